#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a finished run cannot continue as a new run with other settings in the same certificate authority, or its
# parameters are lost on the way, or a process that starts from other parameters is let in.
. "$(dirname "$0")/lib.sh"
steps=24
configure a,b
serve
train a
a=$pid
train b
ends 0 "$a" "site a"
ends 0 "$pid" "site b"
serve_ends
loss() { sed -n "s/.*ev=eval step=$1 loss=\([0-9.]*\).*of=outer.*/\1/p" a.out | head -n 1; }
before=$(loss 24)
[ -n "$before" ] || fail "no eval loss at the end of the first run"

# Other H, cut, codec and mode; new directories; each process starts from a directory of the old run.
mkdir old && mv a b old/ && rm -rf aggregator && mv ./*.out old/
settings="--train.steps 12 --outer.sync_every 4 --outer.fragments 2 --outer.codec int4 --outer.mode quorum --train.warmup_steps 0 --train.lr 0.002"
serve --run.init_from old/b
listening
"$atoll" train --config run.yaml --site.name a --run.dir other --data.train "data/train-0-*.bin" $settings >other.out 2>&1 &&
    fail "a site that starts from the seed is let in"
grep -q "run.initial: not set here" other.out || fail "the refusal does not name run.initial"
train a --run.init_from old/a
a=$pid
train b --run.init_from old/b/inner
ends 0 "$a" "site a"
ends 0 "$pid" "site b"
serve_ends
[ "$(loss 0)" = "$before" ] || fail "the new run begins at loss $(loss 0), the old one ended at $before"
fa=$(final a) fb=$(final b)
[ -n "$fa" ] && [ "${fa% *}" = "${fb% *}" ] || fail "sites differ: $fa / $fb"
awk "BEGIN { exit !($(loss 12) < $before) }" || fail "from $before to $(loss 12): the new run does not continue to learn"

# A site's moments go along: without them, as after an export, the same steps end elsewhere.
"$atoll" export --config run.yaml --run.dir old/a --out hf >hf.out 2>&1 || fail "atoll export"
"$atoll" import --config run.yaml --run.dir bare --model hf >>hf.out 2>&1 || fail "atoll import"
alone() { "$atoll" train --config run.yaml --site.aggregator= --site.name a --run.dir "$1" --run.init_from "$2" --data.train "data/train-0-*.bin" \
    --train.steps 3 --train.warmup_steps 0 2>&1 | sed -n 's/.*ev=final .*parameters=\([0-9a-f]*\).*/\1/p'; }
with=$(alone with old/a) without=$(alone without bare)
[ -n "$with" ] && [ -n "$without" ] && [ "$with" != "$without" ] || fail "the moments do not go along: $with, $without"

# Started again when it is done: the checkpoints in run.dir count, not run.init_from.
"$atoll" train --config run.yaml --site.name a --run.dir a --data.train "data/train-0-*.bin" $settings --run.init_from old/a >again.out 2>&1 ||
    fail "a finished run does not start again"
"$atoll" train --config run.yaml --site.name a --run.dir x --data.train "data/train-0-*.bin" $settings --run.init_from none >none.out 2>&1 &&
    fail "run.init_from = none is accepted"
grep -q "none" none.out || fail "the refusal does not name the directory"
"$atoll" train --config run.yaml --site.name a --run.dir x --data.train "data/train-0-*.bin" $settings --run.init_from old/a --model.d_model 64 \
    >width.out 2>&1 && fail "run.init_from of another model is accepted"
grep -q "holds another model" width.out || fail "the refusal does not say that it is another model"
echo "a finished run continues as another one: loss $before at its end and at the new start, $(loss 12) after 12 steps"
