#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Manual pages of a built program, from its option tables: atoll.1, atoll-train.1, atoll-cert-issue.1, ...
#   deploy/manuals.sh PROGRAM FOLDER
set -eu
[ $# = 2 ] && [ -x "$1" ] || {
    sed -n '3,4s/^# \{0,1\}//p' "$0" >&2
    exit 4
}
program=$1 folder=$2
mkdir -p "$folder"
page() { # page WORD...: the manual page of this command
    name=$(echo atoll "$@" | tr ' ' '-')
    "$program" "$@" --help=man >"$folder/$name.1" </dev/null
}
page
"$program" --help=words | cut -f 1 | while read -r command; do
    page "$command"
    "$program" "$command" --help=words </dev/null | cut -f 1 | grep -v '^-' | while read -r act; do
        # shellcheck disable=SC2086 # "roster list" is two words
        page "$command" $act
    done || :
done
