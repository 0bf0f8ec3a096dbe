#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The licences of the libraries that programs link, as Debian has them: FOLDER/PACKAGE for each package.
#   deploy/licences.sh FOLDER PROGRAM...
set -eu
[ $# -ge 2 ] || {
    sed -n '3,4s/^# \{0,1\}//p' "$0" >&2
    exit 4
}
folder=$1
shift
mkdir -p "$folder"
ldd "$@" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u | while read -r library; do
    path=$(readlink -f "$library") # /lib may be a link to /usr/lib, and a package may name either
    package=$(dpkg -S "$path" 2>/dev/null || dpkg -S "${path#/usr}" 2>/dev/null || :)
    package=$(echo "$package" | sed -n '1s/:.*//p')
    [ -z "$package" ] || cp "/usr/share/doc/$package/copyright" "$folder/$package"
done
