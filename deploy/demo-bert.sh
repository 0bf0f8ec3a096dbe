#!/bin/sh
# An encoder at two sites, from text to classes. run-demo.sh --model bert calls it:
#   deploy/demo-bert.sh PROGRAM TASKS OUT [--steps N] [--labels N] [--tune-steps N]
# TASKS: made by prepare-tasks.sh. 1. Two sites train a small ModernBERT on masked glosses, without labels. 2. Both fine-tune on
# half of the labels each, from these parameters, and from random ones. 3. Held-out glosses: accuracy of both beside naive Bayes
# with all labels. 4. The classifier is written for transformers.
set -eu
steps=3000 labels=2000 tune=250
here=$(cd "$(dirname "$0")" && pwd)
program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
tasks=$2 out=$3
shift 3
while [ $# -gt 0 ]; do
    case $1 in
    --steps) steps=$2 ;;
    --labels) labels=$2 ;;
    --tune-steps) tune=$2 ;;
    *)
        echo "demo-bert: unknown option $1; see the head of $0" >&2
        exit 4
        ;;
    esac
    shift 2
done
tasks=$(cd "$tasks" && pwd)
rm -rf "$out"
mkdir -p "$out"
cd "$out"
processes=""
cleanup() {
    for p in $processes; do kill "$p" 2>/dev/null || :; done
}
trap cleanup EXIT
trap 'exit 1' INT TERM
fail() {
    echo "demo-bert: $1" >&2
    tail -n 5 ./*.log >&2
    exit 1
}
say() { printf '%4d s  %s\n' $(($(date +%s) - start)) "$*"; }
start=$(date +%s)
port=$((10000 + $$ % 20000))
threads=$((($(nproc) + 1) / 2))
export OMP_WAIT_POLICY=passive

# ---- data ----
cut -f 2 "$tasks/glosses.train.tsv" | sed 's/$/\n/' >text.txt
head -n "$labels" "$tasks/glosses.train.tsv" >labels.tsv
"$program" data --tokenizer wordpiece --learn 4096 --split-sentences --out text --sites 2 --held-out 0.02 text.txt >text.log 2>&1 ||
    fail "atoll data"
"$program" data --labels --tokenizer text --out held --held-out 0 "$tasks/glosses.test.tsv" >held.log 2>&1 || fail "atoll data --labels"
"$program" data --labels --tokenizer text --out labels --sites 2 --held-out 0 --classes-of held labels.tsv >labels.log 2>&1 ||
    fail "atoll data --labels"
sha=$(sed -n 's/.*"sha256": "\([0-9a-f]*\)".*/\1/p' text/data.json)
classes=$(sed -n 's/^ *classes: \(\[".*\]\)$/\1/p' labels.log)
count=$(sed -n 's/^ *classes: \[\([0-9]*\)\]$/\1/p' labels.log)
say "$(sed -n 's/^read *//p' text.log); $(sed -n 's/^read *//p' labels.log)"

# describe NAME HEAD DATA TRAIN OUTER: NAME.yaml and certificates. A gloss has 20 tokens: batch_tokens / sequence of them a step.
describe() {
    cat >"$1.yaml" <<END
run: {name: $1, seed: 7}
model: {vocab: 4096, layers: 2, heads: 4, width: 128, mlp: 320, context: 64, causal: false, positions: rope, activation: geglu,
        bias: false, embed_norm: true, $2}
data: {tokenizer: external, tokenizer_sha256: $sha, $3}
train: {sequence: 64, optimizer: adamw, weight_decay: 0.01, checkpoint_every: 500, $4}
device: {kind: cpu, dtype: f32, threads: $threads}
outer: {sites: [a, b], $5, codec: int4}
site: {aggregator: "127.0.0.1:$port", aggregator_name: localhost}
tls: {dir: tls-$1}
serve: {listen: "127.0.0.1:$port", dir: $1/aggregator}
END
    mkdir "$1"
    "$program" cert authority --run "$1" --dir "tls-$1" >"cert-$1.log" 2>&1 &&
        "$program" cert issue --role aggregator --host localhost,127.0.0.1 --dir "tls-$1" >>"cert-$1.log" 2>&1 &&
        "$program" cert issue --role site --name a --dir "tls-$1" >>"cert-$1.log" 2>&1 &&
        "$program" cert issue --role site --name b --dir "tls-$1" >>"cert-$1.log" 2>&1 || fail "certificates"
}

# train NAME DATA [FROM]: an aggregator and two sites over mutual TLS, until the last step
train() {
    from=${3:+--run.from $3}
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
value() { sed -n "s/.*\"$1\":\(-\{0,1\}[0-9.e-]*\).*/\1/p" "$2"; }
rounded() { awk "BEGIN {printf \"%.3f\", $(value "$1" "$2")}"; }
percent() { awk "BEGIN {printf \"%.1f %%\", 100 * $1}"; }

# ---- masked text ----
describe masked "head: mlm" 'objective: mlm, mask_rate: 0.3, eval: ["text/eval-*.bin"]' \
    "batch_tokens: 4096, steps: $steps, warmup: 100, lr: 0.004, eval_tokens: 16384" "every: 20, optimizer: average"
train masked text
"$program" eval --config masked.yaml --run.dir masked/a --format json >masked.json 2>eval.log || fail "atoll eval"
before=$(grep '"kind":"eval"' masked/a/metrics.jsonl | head -n 1 >first.json && value loss first.json)
say "masked text, $steps steps at each of two sites: loss $before before, $(value masked_loss masked.json) after;" \
    "$(percent "$(value masked_accuracy masked.json)") of the masked tokens right"
"$program" sample --config masked.yaml --run.dir masked/a --prompt "a [MASK] of the family of birds" >sample.log 2>&1 || fail "atoll sample"
say "a [MASK] of the family of birds: $(sed -n 's/^  \([^ ]*\) *\([0-9.]*\)$/\1 \2/p' sample.log | tr '\n' ' ')"

# ---- labels ----
for name in tuned random; do
    describe $name "pooler: true, pooler_norm: true, classes: [$count]" \
        "objective: labels, classes: $classes, eval: [\"held/train-*.bin\"]" \
        "batch_tokens: 1024, steps: $tune, warmup: 50, lr: 0.0015, dropout: 0.1, eval_tokens: 16384" "every: 10, optimizer: average"
    [ $name = tuned ] && train $name labels masked/a || train $name labels
    "$program" eval --config $name.yaml --run.dir $name/a >$name.txt 2>eval.log || fail "atoll eval"
    "$program" eval --config $name.yaml --run.dir $name/a --format json >$name.json 2>eval.log || fail "atoll eval"
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
