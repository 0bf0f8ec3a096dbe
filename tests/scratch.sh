#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scratch.sh DIR COMMAND...: the command with {} replaced by a folder for its files: one in memory where there is room, else DIR.
# A durable write on a disk took half of the processor time of the end-to-end tests and three quarters of their seconds, and no test
# cuts the power: what a disk loses, tests/sim tries. ATOLL_TEST_DISK=1 keeps all on the disk. What a test that failed leaves is
# moved to DIR.
dir=$1
shift
folder=/dev/shm/atoll-test-$(id -u)-$(echo "$dir" | cksum | tr -d ' ')
rm -rf "$dir" "$folder"
ATOLL_TEST_HOME=$(dirname "$dir") # on the disk: what one test leaves to another run
export ATOLL_TEST_HOME
kib() { awk -v name="$1" '$1 == name { print $2 }' /proc/meminfo 2>/dev/null; }
room() { # GiB, in the folder and in memory
    [ -z "${ATOLL_TEST_DISK:-}" ] && [ -w /dev/shm ] && [ "$(df -Pk /dev/shm | awk 'NR == 2 { print $4 }')" -gt $(($1 << 20)) ] &&
        [ "$(kib MemAvailable:)" -gt $(($1 << 20)) ]
}
if ! room 3 || ! mkdir -m 700 "$folder" 2>/dev/null; then folder=$dir; fi
n=$#
while [ "$n" -gt 0 ]; do # each word to the end of the list, once
    word=$1
    shift
    [ "$word" = "{}" ] && word=$folder
    set -- "$@" "$word"
    n=$((n - 1))
done
code=0
"$@" || code=$?
if [ "$folder" != "$dir" ]; then
    if [ "$code" -ne 0 ] && [ "$code" -ne 77 ]; then
        echo "its files: $dir"
        cp -a "$folder" "$dir"
    fi
    rm -rf "$folder"
fi
exit "$code"
