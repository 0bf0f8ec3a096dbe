#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# site.outer_state = sharded: each file of the directory is scrubbed by one of three ranks, and a damaged one is found, and written
# again, by that rank alone: the holder of its fragment, the rank whose name it has, else the lead.
. "$(dirname "$0")/lib.sh"
needs_mpi
mpi_leaks
steps=96 every=8 fragments=4
configure a,b
sed -i "s/batch_tokens: 128/batch_tokens: 192/" run.yaml # a multiple of three sequences
serve
train b
b=$pid
mpirun -n 3 "$atoll" train --config run.yaml --site.name a --run.dir a --data.train 'data/train-0-*.bin' --log.progress none \
    --site.outer_state sharded --scrub.every_h 0.0003 --scrub.mib_s 1000 >a.out 2>&1 &
a=$!
processes="$processes $a"
until_rounds b 9
kill -STOP "$b" # the round stands still, and with it site a's directory
await_stands a b

read_by() { grep "rank=$1 .*ev=scrub pass=" a.out | sed -n '$s/.* files=\([0-9]*\) .*/\1/p'; }
there() {
    ls a/begun a/id/site a/id/marks a/id/announced.* a/id/rank.* a/frag/*/CURRENT a/frag/*/*/state a/frag/*/*/MANIFEST \
        a/frag/*/*/aggregate a/outbox/*/* a/eager/*/* a/inner/CURRENT a/inner/*/state 2>/dev/null | wc -l
}
each_once() { # every rank has some, and all together as many as there are
    parts="$(read_by 0) $(read_by 1) $(read_by 2)"
    for part in $parts; do [ "$part" -gt 0 ] || return 1; done
    [ "$(echo "$parts" | wc -w)" = 3 ] && [ $(($(echo "$parts" | tr ' ' '+'))) -eq "$(there)" ]
}
await "the ranks do not read each file once" each_once

flip() { # flip FILE: one bit, in the middle
    at=$(($(wc -c <"$1") / 2))
    byte=$(od -An -tu1 -j $at -N 1 "$1" | tr -d ' ')
    printf "$(printf '\\%03o' $((byte ^ 4)))" | dd of="$1" bs=1 seek=$at conv=notrunc 2>/dev/null
}
found() { # found RANK FILE
    cp "a/$2" before
    flip "a/$2"
    until_lines 1 "ev=scrub file=$PWD/a/$2 damaged=1 repaired=1" a.out
    cmp "a/$2" before || fail "a/$2 was rebuilt, and is another file"
    passes=$(lines "ev=scrub pass=" a.out)
    until_lines $((passes + 6)) "ev=scrub pass=" a.out # the other ranks have read it, if they do
    [ "$(grep "ev=scrub file=$PWD/a/$2 " a.out | grep -o "rank=[0-9]*" | tr '\n' ' ')" = "rank=$1 " ] || fail "a/$2 is not rank $1's"
}
found 0 begun
found 0 id/site
found 1 id/rank.1.site
found 2 id/rank.2.announced.0
for fragment in 0 1 2 3; do found $((fragment % 3)) frag/$fragment/CURRENT; done
kill -CONT "$b"
ends 0 "$a" "site a"
ends 0 "$b" "site b"
serve_ends
same_state a b
