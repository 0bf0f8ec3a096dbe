#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ctrl-C: the site finishes its step, stores, leaves with exit code 75; the same command continues and ends with the same bits.
# SIGTERM and SIGUSR1 mean the same. A strict run does not continue with other text. Alone, and as a site of a run whose other site waits meanwhile.
. "$(dirname "$0")/lib.sh"
steps=1200 every=8 checkpoint_every=100 # far more than are done before a signal arrives
configure a,b

"$atoll" train --config run.yaml --site.aggregator= --site.name a --run.dir whole --data.train 'data/train-0-*.bin' \
    --log.progress none >whole.out 2>&1 || fail "the run without a stop"
for signal in INT TERM USR1; do
    "$atoll" train --config run.yaml --site.aggregator= --site.name a --run.dir parts --data.train 'data/train-0-*.bin' \
        --log.progress none >>parts.out 2>&1 &
    p=$!
    processes="$processes $p"
    until_lines $(($(lines '"kind":"step"' parts/metrics.jsonl) + 5)) '"kind":"step"' parts/metrics.jsonl
    # No handler may interrupt a computation: oneDNN's code keeps data below the stack pointer. Every thread blocks the signal but
    # the one that waits for it.
    open=0
    for thread in /proc/$p/task/*; do
        blocked=$(sed -n 's/^SigBlk:.*\(....\)$/\1/p' "$thread/status" 2>/dev/null) || continue
        [ -z "$blocked" ] || [ $((0x$blocked & 2)) -ne 0 ] || open=$((open + 1))
    done
    [ "$open" -le 1 ] || fail "$open threads may be interrupted by SIGINT"
    kill -s $signal $p
    ends 75 $p "a site alone after SIG$signal"
done
"$atoll" train --config run.yaml --site.aggregator= --site.name a --run.dir parts --data.train 'data/train-0-*.bin' \
    --log.progress none >>parts.out 2>&1 || fail "the last part"
[ "$(grep -c '"kind":"stop"' parts/metrics.jsonl)" -eq 3 ] || fail "three stops should be on record"
digest() { sed -n 's/.*"kind":"final".*"parameters":"\([0-9a-f]*\)".*/\1/p' "$1/metrics.jsonl"; }
[ -n "$(digest whole)" ] && [ "$(digest whole)" = "$(digest parts)" ] || fail "stopped and whole run differ"

steps=120 every=4 checkpoint_every=7
configure a,b
serve
train a
a=$pid
train b
ends 0 "$a" "site a"
ends 0 "$pid" "site b"
serve_ends
wanted=$(final a)
rm -rf a b aggregator
serve
train a
a=$pid
train b
b=$pid
for n in 3 9 15; do
    until_rounds b $n
    kill -STOP "$b" # without it site a cannot end before the signal arrives
    kill -INT "$a"
    ends 75 "$a" "site a after Ctrl-C"
    if [ $n -eq 9 ]; then # other text is another order of all examples: a strict run would end with other bits
        cp data/train-0-0000.bin data/train-0-0001.bin
        train a
        ends 4 "$pid" "site a with a shard more"
        grep -q "at the checkpoint of step .*bring the files back" a.out || fail "the refusal does not say what to do"
        rm data/train-0-0001.bin
    fi
    kill -CONT "$b"
    train a
    a=$pid
done
ends 0 "$a" "site a"
ends 0 "$b" "site b"
serve_ends
[ "$(final a)" = "$wanted" ] || fail "site a ended at $(final a), undisturbed $wanted"
