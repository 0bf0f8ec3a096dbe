#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An encoder at two sites, from text to classes. run-demo.sh --model bert calls it:
#   deploy/demo-bert.sh PROGRAM TASKS OUT [--steps N] [--labels N] [--tune-steps N]
# TASKS: made by prepare-tasks.sh. 1. Two sites train a small ModernBERT on masked glosses, without labels. 2. Both fine-tune on
# half of the labels each, from these parameters, and from random ones. 3. Held-out glosses: accuracy of both, compared with naive Bayes
# with all labels. 4. The classifier is written for transformers.
set -eu
demo=demo-bert steps=3000 epsilon="" labels=2000 tune=250
. "$(dirname "$0")/demo-lib.sh"
threads=$((($(nproc) + 1) / 2))

# ---- data ----
cut -f 2 "$tasks/glosses.train.tsv" | sed 's/$/\n/' >text.txt
shards text.txt 2 2
say "$(sed -n 's/^read *//p' text.log); $(sed -n 's/^read *//p' labels.log)"

# describe NAME HEAD DATA TRAIN OUTER: NAME.yaml and certificates. A gloss has 20 tokens: batch_tokens / sequence of them a step.
describe() {
    cat >"$1.yaml" <<END
run: {name: $1, seed: 7}
$(model "$2")
data: {tokenizer: external, tokenizer_sha256: $sha, $3}
train: {seq_len: 64, optimizer: adamw, weight_decay: 0.01, checkpoint_every: 500, $4}
device: {kind: cpu, dtype: f32, threads: $threads}
outer: {sites: [a, b], $5, codec: int4}
$(places "$1")
END
    mkdir "$1"
    certificates "$1" a b
}

# train NAME DATA [FROM]: an aggregator and two sites over mutual TLS, until the last step
train() {
    from=${3:+--run.init_from $3}
    "$program" serve --config "$1.yaml" $from >"$1-aggregator.log" 2>&1 &
    aggregator=$!
    "$program" train --config "$1.yaml" --site.name a --run.dir "$1/a" --data.train "$2/train-0-*.bin" --log.progress none $from \
        >"$1-a.log" 2>&1 &
    a=$!
    "$program" train --config "$1.yaml" --site.name b --run.dir "$1/b" --data.train "$2/train-1-*.bin" --log.progress none $from \
        >"$1-b.log" 2>&1 &
    b=$!
    processes="$aggregator $a $b"
    wait $a || fail "site a of $1"
    wait $b || fail "site b of $1"
    wait $aggregator || fail "the aggregator of $1"
    processes=""
}
rounded() { awk "BEGIN {printf \"%.3f\", $(value "$1" "$2")}"; }

# ---- masked text ----
describe masked "head: mlm" 'objective: mlm, mlm_probability: 0.3, eval: ["text/eval-*.bin"]' \
    "batch_tokens: 4096, steps: $steps, warmup_steps: 100, lr: 0.004, eval_tokens: 16384" "sync_every: 20, optimizer: average"
train masked text
"$program" eval --tokens 0 --config masked.yaml --run.dir masked/a --format json >masked.json 2>eval.log || fail "atoll eval"
before=$(grep '"kind":"eval"' masked/a/metrics.jsonl | head -n 1 >first.json && value loss first.json)
say "masked text, $steps steps at each of two sites: loss $before before, $(value masked_loss masked.json) after;" \
    "$(percent "$(value masked_accuracy masked.json)") of the masked tokens right"
"$program" sample --config masked.yaml --run.dir masked/a --prompt "a [MASK] of the family of birds" >sample.log 2>&1 || fail "atoll sample"
say "a [MASK] of the family of birds: $(sed -n 's/^  \([^ ]*\) *\([0-9.]*\)$/\1 \2/p' sample.log | tr '\n' ' ')"

# ---- labels ----
for name in tuned random; do
    describe $name "pooler: true, pooler_norm: true, classes: [$count]" \
        "objective: labels, classes: $classes, eval: [\"held/train-*.bin\"]" \
        "batch_tokens: 1024, steps: $tune, warmup_steps: 50, lr: 0.0015, dropout: 0.1, eval_tokens: 16384" "sync_every: 10, optimizer: average"
    [ $name = tuned ] && train $name labels masked/a || train $name labels
    "$program" eval --tokens 0 --config $name.yaml --run.dir $name/a >$name.txt 2>eval.log || fail "atoll eval"
    "$program" eval --tokens 0 --config $name.yaml --run.dir $name/a --format json >$name.json 2>eval.log || fail "atoll eval"
    say "$labels labels, $tune steps, $([ $name = tuned ] && echo "from the masked model" || echo "from random weights  "):" \
        "accuracy $(percent "$(value accuracy $name.json)"), F1 $(rounded f1_macro $name.json), MCC $(rounded mcc $name.json)"
done
cat tuned.txt
if command -v python3 >/dev/null; then
    python3 "$here/../tests/bench/naive_bayes.py" labels.tsv "$tasks/glosses.test.tsv" --add 1,0.1 >bayes.txt || fail "naive Bayes"
    say "naive Bayes on words and bigrams, all labels at one place:"
    cat bayes.txt
fi
"$program" export --config tuned.yaml --from tuned/a --tokenizer text --out classifier >export.log 2>&1 || fail "atoll export"
say "classifier: AutoModelForSequenceClassification.from_pretrained(\"$out/classifier\")"
"$program" report masked/a masked/b --out report.html >report.log 2>&1 || fail "atoll report"
say "report: $out/report.html"
