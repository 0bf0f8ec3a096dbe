#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a site that has lost a rank hangs, or ends without a word, or cannot continue where it was.
# A site of two ranks next to a site of one; first its second rank is killed, then its lead.
. "$(dirname "$0")/lib.sh"
needs_mpi
steps=200 every=8
configure a,b
site_a() { # with further arguments; Open MPI leaks at its end, see two_ranks.sh
    ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" mpirun -n 2 sh -c "$to_file" rank a.out "$atoll" train --config run.yaml --site.name a \
        --run.dir a --data.train 'data/train-0-*.bin' --log.progress none "$@" >>a.out 2>&1 &
    a=$!
    processes="$processes $a"
}
# rank N: the process of rank N of site a, by what mpirun told it
rank() {
    for p in $(pgrep -P "$a"); do
        if tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$1"; then echo "$p"; fi
    done
}
serve
train b
b=$pid
for victim in 1 0; do
    site_a --train.zero_stage $((2 + victim))
    until_rounds b $((2 * (2 - victim)))
    killed=$(rank "$victim")
    [ -n "$killed" ] || fail "rank $victim was not found"
    kill -9 "$killed"
    await "the site does not end without rank $victim" '! ps -o stat= -p "$a" | grep -qv Z'
    ends 137 "$a" "the site that lost rank $victim"
done
[ "$(lines "received SIGTERM from the launcher" a.out)" -ge 1 ] || fail "the rank that was left said nothing"
tr '\n' ' ' <a.out | grep -q "rank 1 .*signal 9" || fail "no message says which rank was lost"
site_a
ends 0 "$a" "the site of two ranks"
ends 0 "$b" "site b"
serve_ends
fa=$(final a) fb=$(final b)
[ -n "$fa" ] && [ "${fa% *}" = "${fb% *}" ] || fail "sites differ: $fa / $fb"
