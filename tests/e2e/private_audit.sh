#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: an audit does not see that the noise is missing, or accuses a run that keeps its claim.
. "$(dirname "$0")/lib.sh"

said() { # said WORDS FILE
    grep -qF -- "$1" "$2" || fail "\"$1\" is not in $2"
}
head -c 6000 text.txt >small.txt
"$atoll" data --out data --sites 1 --seq-len 8 small.txt >data.out 2>&1 || fail "atoll data"
cat >run.yaml <<END
model: {layers: 1, heads: 2, d_model: 64, max_seq_len: 8}
data: {tokenizer: bytes}
train: {steps: 300, batch_tokens: 512, seq_len: 8, lr: 0.01, warmup_steps: 5, optimizer: adamw, checkpoint_every: 0}
device: {dtype: f32, threads: 1}
privacy: {unit: sequence, epsilon: 2.5}
END
trains() { # trains DIR ARGUMENTS...: with the canaries
    dir=$1
    shift
    "$atoll" train --config run.yaml --run.dir "$dir" --log.progress none \
        --data.train "data/train-0-*.bin,canaries/in-0000.bin" "$@" >"$dir.out" 2>&1 || fail "train $dir"
}
audits() { # audits CODE DIR ARGUMENTS...
    wanted=$1 dir=$2 code=0
    shift 2
    "$atoll" privacy audit --run.dir "$dir" "$@" >"audit-$dir.out" 2>&1 || code=$?
    [ "$code" -eq "$wanted" ] || fail "wanted exit code $wanted, got $code from: privacy audit --run.dir $dir $*"
}
"$atoll" privacy canaries --config run.yaml --data.train "data/train-0-*.bin" --out canaries --count 400 >canaries.out 2>&1 ||
    fail "atoll privacy canaries"
[ -z "$(find canaries -perm /077)" ] || fail "other users can read which canaries are in"
bound() { sed -n 's/^epsilon is at least \([0-9.]*\) .*/\1/p' "audit-$1.out"; }
# A run that keeps epsilon 2.5, and one whose noise is as good as not there, under the same claim. 100 guesses can refute up to
# epsilon 3.48; without noise all of them are right.
trains honest
audits 0 honest --set canaries
said "100, by the loss against that of the initial model" audit-honest.out
said "claimed      epsilon 2.4" audit-honest.out
with=$(bound honest)
trains silent --privacy.epsilon 0 --privacy.noise_multiplier 0.01 --train.steps 600 # after 300, up to 4 guesses of 100 are wrong, by the draw
audits 1 silent --set canaries --claim 2.5
said "is above the claimed epsilon 2.5: the mechanism does not do what was accounted" audit-silent.out
[ "$(lines '"kind":"audit"' silent/audit.jsonl)" = 1 ] || fail "the audit is not on record"
without=$(bound silent)
awk "BEGIN { exit !($without > 2.5 && $with < 2) }" || fail "bounds: $without without noise, $with with it"
"$atoll" report --privacy silent --format text >page.out 2>&1 || fail "atoll report --privacy"
tr '\n' ' ' <page.out | grep -qF "That is above the claimed epsilon 2.5: the claim is refuted" || fail "the page hides the audit"
tr '\n' ' ' <page.out | grep -qF "Nothing over a link: the site trained alone" || fail "the page invents a link"
# What is no audit.
audits 4 honest --set canaries --guesses 1000
said "1000 guesses for 400 canaries" audit-honest.out
audits 4 honest --set data
code=0
"$atoll" privacy canaries --config run.yaml --data.train "data/train-0-*.bin" --out canaries >again.out 2>&1 || code=$?
[ $code -eq 4 ] || fail "canaries were drawn a second time"

# Labelled texts, of which one is a record, and masked text.
"$atoll" data --tokenizer wordpiece --learn 300 --out text --sites 1 --seq-len 16 small.txt >text.out 2>&1 || fail "a vocabulary"
awk 'BEGIN { for (i = 0; i < 200; i++) print (i % 2 ? "even" : "odd") "\t" (i % 2 ? "round commit" : "site token") " " i }' >rows.tsv
"$atoll" data --labels --tokenizer text --out labels --sites 1 --held-out 0.1 rows.tsv >labels.out 2>&1 || fail "labels"
encoder() { # encoder DIR DATA HEAD OBJECTIVE
    "$atoll" privacy canaries --config "$1.yaml" --out "$1-canaries" --count 40 >"$1.out" 2>&1 || fail "canaries of $1"
    "$atoll" train --config "$1.yaml" --run.dir "$1" --log.progress none --data.train "$2/train-0-*.bin,$1-canaries/in-0000.bin" \
        >"$1.out" 2>&1 || fail "train $1"
    audits 0 "$1" --set "$1-canaries" --claim 100
    said "guesses      10, by the loss" "audit-$1.out"
}
for objective in mlm labels; do
    [ $objective = mlm ] && of=text head="head: mlm" || { of=labels head="classes: [2], pooler: true"; }
    cat >$objective.yaml <<END
model: {vocab_size: 300, layers: 1, heads: 2, d_model: 32, max_seq_len: 16, causal: false, positions: rope, $head}
data: {tokenizer: external, objective: $objective, train: ["$of/train-0-*.bin"]}
train: {steps: 4, batch_tokens: 256, seq_len: 16, warmup_steps: 1, optimizer: adamw, checkpoint_every: 0}
device: {dtype: f32, threads: 1}
privacy: {unit: sequence, noise_multiplier: 1}
END
    encoder $objective $of
done
echo "epsilon at least $without without noise and $with with it, at a claim of 2.5"
