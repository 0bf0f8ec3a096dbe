#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A site of three ranks while the aggregator is away: a stop signal to one rank alone, in the middle of the run and at a start, ends
# every rank with exit code 75, whether each rank holds some fragments (site.outer_state = sharded) or the lead holds all, and whether
# the rounds of all fragments end at one step or not. The run that continues ends as one without signals.
. "$(dirname "$0")/lib.sh"
needs_mpi
mpi_leaks
steps=32 every=8 fragments=4
configure a,b
sed -i "s/batch_tokens: 128/batch_tokens: 192/" run.yaml # a multiple of three sequences
rank='"$@" & echo $! >pid.$OMPI_COMM_WORLD_RANK; wait $! || code=$?; echo ${code:-0} >code.$OMPI_COMM_WORLD_RANK'
# mpirun, which ends the other ranks after one with an exit code, sees none
site_a() {
    rm -f pid.* code.*
    said=$(lines "aggregator unreachable" a.out)
    mpirun -n 3 sh -c "$rank" sh "$atoll" train --config run.yaml --site.name a --run.dir a --data.train 'data/train-0-*.bin' \
        --log.progress none --site.outer_state $held $settings >>a.out 2>&1 &
    a=$!
    processes="$processes $a"
}
ended() {
    codes 0
    ends 0 "$b" "site b"
    serve_ends
    same_state a b
}
codes() {
    await "site a does not end" '[ -s code.0 ] && [ -s code.1 ] && [ -s code.2 ]'
    for each in 0 1 2; do [ "$(cat code.$each)" = "$1" ] || fail "rank $each ended with exit code $(cat code.$each), wanted $1"; done
    wait "$a" || :
}
# stopped RANK: it alone gets SIGTERM, when the site has said that its aggregator is away
stopped() {
    until_lines $((said + 1)) "aggregator unreachable" a.out
    stopped_rank=$1 # the lead may say so before another rank takes signals, which it blocks and waits for
    await "rank $1 takes no SIGTERM" 'sed -n "s/^SigBlk:.*\(.\)...$/\1/p" "/proc/$(cat "pid.$stopped_rank")/status" 2>/dev/null | grep -q "[4-7c-f]"'
    kill -TERM "$(cat "pid.$1")"
    codes 75
}
together="--outer.partition slices --outer.slices embed@8,0-1@8,2@8,3-final@8"
# who holds the outer state, the rank that is stopped in the middle, the one that is stopped at a start, settings
while read -r held in_middle at_start settings; do
    new_run
    site_a
    ended
    whole=$(final a)

    new_run
    site_a
    until_rounds b 5
    killed "$serve_pid"
    stopped "$in_middle"
    site_a
    stopped "$at_start"
    serve
    site_a
    ended
    [ "$(final a)" = "$whole" ] || fail "after stops: $(final a), undisturbed: $whole"
done <<END
sharded 0 2 $together
sharded 0 2 --outer.overlap_steps 2 --outer.state_digest leaves
lead 2 1 $together
lead 1 2 --outer.overlap_steps 2
END
