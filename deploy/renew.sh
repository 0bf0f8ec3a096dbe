#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Renews the certificate of a process on a machine that does not have the authority's key: the next key is made here and stays here.
#   deploy/renew.sh NAME DIR COMMAND...     DIR holds ca.pem, NAME.pem and NAME.key
# COMMAND reads a request on standard input and prints the answer of `atoll cert sign -`, for example: ssh -T atoll-sign@authority
# What carries them need not be trusted: the present key signs the request, and the answer is checked before it is put in place.
# Exit code 0: a new certificate is in place, and running processes use it. Otherwise the present one stays; run it again.
set -eu
case ${1:---help} in -h | --help)
    sed -n '3,7s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
[ $# -ge 3 ] || { echo "renew: NAME, DIR and a command are needed; --help says more" >&2; exit 4; }
atoll=${ATOLL:-atoll}
name=$1 dir=$2
shift 2
# An answer that a crash left fits the key that was left with it.
if [ -e "$dir/$name.answer" ] && [ -e "$dir/$name.next.key" ] &&
    "$atoll" cert install "$name" --dir "$dir" --answer "$dir/$name.answer" 2>/dev/null; then
    rm -f "$dir/$name.answer"
    exit 0
fi
"$atoll" cert request "$name" --dir "$dir" >/dev/null
"$@" <"$dir/$name.request" >"$dir/$name.answer"
"$atoll" cert install "$name" --dir "$dir" --answer "$dir/$name.answer"
rm -f "$dir/$name.answer"
