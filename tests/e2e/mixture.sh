#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a mixture of sources (data.train: [{glob, weight}]) gives a source another share than its weight, or a
# run that was killed, or continued with other weights or another number of ranks, trains on other samples than an undisturbed one.
. "$(dirname "$0")/lib.sh"
head -c 200000 text.txt >web.txt
tail -c 60000 text.txt | tr a-z A-Z >code.txt
for source in web code; do
    "$atoll" data --out $source --seq-len 32 $source.txt >data.out 2>&1 || fail "atoll data of $source"
done
cat >run.yaml <<END
run: {seed: 5}
model: {layers: 2, heads: 2, d_model: 32, max_seq_len: 32}
data:
  train:
    - {glob: web/train-*.bin, weight: 3, anneal_weight: 1}
    - {glob: code/train-*.bin, weight: 1, anneal_weight: 3}
  eval: [web/eval-*.bin]
  anneal_from: 20
train: {steps: 30, seq_len: 32, batch_tokens: 256, warmup_steps: 0, checkpoint_every: 7, eval_tokens: 512}
device: {dtype: f32, threads: 1}
END
run() { # run DIR ARGUMENTS...: the digest at the end
    dir=$1
    shift
    "$atoll" train --config run.yaml --run.dir "$dir" "$@" >"$dir.out" 2>&1 || fail "training in $dir: $*" >&2
    sed -n 's/.*ev=final .*parameters=\([0-9a-f]*\).*/\1/p' "$dir.out"
}
counts() { # counts DIR STEP: examples of web and of code
    sed -n "s/.*\"kind\":\"source\".*\"step\":$2,.*\"examples\":\([0-9]*\).*/\1/p" "$1/metrics.jsonl" | tail -n 2 | paste -sd ' '
}
# 8 examples a step: 3 to 1 in 20 steps, then 1 to 3.
whole=$(run whole)
[ "$(counts whole 14)" = "84 28" ] || fail "after 14 steps: $(counts whole 14)"
[ "$(counts whole 30)" = "140 100" ] || fail "at the end: $(counts whole 30)"

# Killed at any step, and continued; and through the files of an export.
# A step takes a millisecond: the line of step 14 kills at once, and where the run was quicker, it is repeated.
mkfifo line
tries=0
until [ -d killed ] && ! grep -q "ev=final" killed.out; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "no run was killed before its end"
    rm -rf killed
    "$atoll" train --config run.yaml --run.dir killed >line 2>&1 &
    pid=$!
    while read -r line; do
        echo "$line"
        case $line in *"ev=checkpoint step=14"*) kill -9 $pid 2>/dev/null || : ;; esac
    done <line >killed.out
    wait $pid 2>/dev/null || :
done
[ "$(run killed)" = "$whole" ] || fail "a killed run ends elsewhere"
[ "$(counts killed 30)" = "140 100" ] || fail "a killed run counts $(counts killed 30)"
run half --train.steps 21 >/dev/null
! grep -q "data.anneal_from =" half.out || fail "a warning of data.anneal_from, which is within the run"
"$atoll" export --checkpoint --config run.yaml --run.dir half --out half.hf >export.out 2>&1 || fail "atoll export --checkpoint"
"$atoll" import --checkpoint half.hf --config run.yaml --run.dir back >import.out 2>&1 || fail "atoll import --checkpoint"
[ "$(run half)" = "$(run back)" ] || fail "a checkpoint through files ends elsewhere"
[ "$(counts back 30)" = "140 100" ] || fail "a checkpoint through files counts $(counts back 30)"

# Other weights hold from the step of the restart on, and the counts continue: 60 of 80, then 1 to 1.
run other --train.steps 10 >/dev/null
beyond="data.anneal_from = 20, and the run ends at train.steps = 10"
grep -q "ev=settings text=\"$beyond" other.out || fail "no word on weights that the run does not reach"
"$atoll" train --config run.yaml --train.steps 10 --dry-run | grep -q "^# WARNING: $beyond" || fail "no word in a dry run on these weights"
"$atoll" train --config run.yaml --train.steps 20 --dry-run | grep -q "^# WARNING: data.anneal_from" || fail "no word at the border"
other=$(run other --data.weights 1,1)
grep -q 'ev=mixture step=10 text="other weights' other.out || fail "no word on other weights"
[ "$(counts other 14)" = "76 36" ] || fail "with other weights: $(counts other 14)"
[ "$other" != "$whole" ] || fail "other weights change nothing"
run later --train.steps 10 --data.weights= --data.anneal_weights= --data.anneal_from 0 >/dev/null
run later >/dev/null
grep -q "ev=mixture step=10 .*each begins from its start" later.out || fail "no word on weights that a run gets later"

# A source that has changed, one that has gone, and settings without sense.
refused() { # refused WORDS ARGUMENTS...: exit code 4 and these words
    words=$1 code=0
    shift
    "$atoll" train --config run.yaml "$@" >refused.out 2>&1 || code=$?
    [ "$code" = 4 ] && grep -q -- "$words" refused.out || fail "exit code $code without \"$words\" from: $*"
}
web="web/train-*.bin" code="code/train-*.bin"
refused "holds [0-9]* examples, and [0-9]* when the checkpoint was written" --run.dir half --train.steps 40 --data.train "$web,code/*.bin"
refused "data.train has 1 sources, the checkpoint counts 2" --run.dir half --train.steps 40 --data.train "$web" --data.weights 1 --data.anneal_weights 1
refused "data.weights has 2 items and data.train 3" --run.dir no --data.train "$web,$code,$web"
refused 'data.weights: item 2 is "0"; a weight is a number above 0' --run.dir no --data.weights 1,0
refused 'data.weights: item 1 is "some"' --run.dir no --data.weights some,1
refused "data.anneal_weights: all are 0" --run.dir no --data.anneal_weights 0,0
refused "data.anneal_weights and data.anneal_from go together" --run.dir no --data.anneal_from 0
sed 's/weight: 3, anneal_weight: 1/weight: 3/' run.yaml >lacking.yaml
refused "data.train: map 1 has no anneal_weight" --config lacking.yaml --run.dir no
sed 's/glob: code[^,]*/glob: ""/' run.yaml >lacking.yaml
refused "data.train: item 2 names no file" --config lacking.yaml --run.dir no
refused "data.weights with privacy.unit" --run.dir no --privacy.unit sequence
refused "data.weights with data.shards = own" --run.dir no --data.shards own
refused "none/\*.bin: no file matches" --run.dir no --data.train "$web,none/*.bin"
echo "mixtures: exact counts, also after a kill, an export and a change of weights"
