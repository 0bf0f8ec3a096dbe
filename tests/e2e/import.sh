#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: several sites that import published weights train from other parameters than these, or a process that
# starts from others is let in.
. "$(dirname "$0")/lib.sh"
steps=16
configure a,b
# A model that is not a function of run.seed: two steps trained, then exported, as another program would write it.
"$atoll" train --config run.yaml --site.aggregator= --site.name a --run.dir made --data.train "data/train-0-*.bin" --train.steps 2 \
    --train.warmup_steps 0 >made.out 2>&1 || fail "no model to import"
"$atoll" export --config run.yaml --run.dir made --out hf >hf.out 2>&1 || fail "atoll export"
for dir in start a b; do
    "$atoll" import --config run.yaml --run.dir $dir --model hf >>hf.out 2>&1 || fail "atoll import to $dir"
done
loss() { sed -n "s/.*ev=eval step=$2 loss=\([0-9.]*\).*of=$3.*/\1/p" "$1" | head -n 1; }
wanted=$(loss made.out 2 local)

# An aggregator that starts from the seed: refused, with the digest of the imported parameters.
serve
listening
train a
ends 4 "$pid" "a site with imported parameters and an aggregator without"
grep -q "run.initial: [0-9a-f]\{64\} here, not set there; .*run.init_from" a.out || fail "the refusal has no digest, or does not say what to do"
kill "$serve_pid" && wait "$serve_pid" 2>/dev/null || :
rm -rf aggregator serve.out a.out

# Another site with other parameters.
"$atoll" train --config run.yaml --site.aggregator= --site.name a --run.dir more --data.train "data/train-0-*.bin" --train.steps 3 \
    --train.warmup_steps 0 >made.out 2>&1 || fail "no second model"
"$atoll" export --config run.yaml --run.dir more --out hf2 >hf.out 2>&1 || fail "atoll export"
"$atoll" import --config run.yaml --run.dir third --model hf2 >>hf.out 2>&1 || fail "atoll import"
serve --run.init_from start
listening
train b --run.dir third
ends 4 "$pid" "a site with other imported parameters"
digests=$(sed -n 's/.*run.initial: \([0-9a-f]*\) here, \([0-9a-f]*\) there.*/\1 \2/p' b.out | head -n 1)
[ "$digests" = "$(cat third/imported) $(cat start/imported)" ] || fail "the refusal does not name both digests: $digests"
train b --run.dir empty
ends 4 "$pid" "a site that starts from the seed"
rm b.out

train a
a=$pid
train b
b=$pid
until_lines 1 "ev=commit" serve.out
kill -9 "$a"
wait "$a" 2>/dev/null || :
train a --run.init_from start
ends 0 "$!" "site a"
ends 0 "$b" "site b"
serve_ends
first=$(loss b.out 0 outer)
[ -n "$first" ] && [ "$first" = "$wanted" ] || fail "the run begins at outer loss $first, the imported model has $wanted"
fa=$(final a) fb=$(final b)
[ -n "$fa" ] && [ "${fa% *}" = "${fb% *}" ] || fail "sites differ: $fa / $fb"
train a --run.init_from more
ends 4 "$pid" "run.init_from with other parameters than the imported ones"
grep -q "holds the imported parameters" a.out || fail "no word on run.init_from"
echo "two sites start from the imported parameters: outer loss $first, as the model itself"
