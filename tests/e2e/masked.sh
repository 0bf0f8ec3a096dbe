#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Masked text from an indexed data set: the loss falls, a stopped run ends with the bits of a whole one, two ranks train as one, two
# sites share the vocabulary or are refused before a step, and sets with names are evaluated one by one.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || {
    echo "SKIPPED: no python3 here"
    exit 77
}
digest=$(python3 "$here/masked.py" masked)
cat >masked.yaml <<END
run: {name: masked, seed: 7}
model: {vocab_size: 64, layers: 2, heads: 2, d_model: 32, max_seq_len: 32, causal: false}
data: {tokenizer: external, objective: mlm, train: ["masked/train-0.bin"], eval: ["masked/eval.bin"]}
train: {steps: 600, seq_len: 32, batch_tokens: 512, warmup_steps: 10, lr: 0.02, checkpoint_every: 50}
END
masked() { # masked DIR WORDS...
    run=$1
    shift
    "$atoll" train --config masked.yaml --run.dir "$run" --log.progress none "$@" >>"$run.out" 2>&1
}
digest_of() { sed -n 's/.*"kind":"final".*"parameters":"\([0-9a-f]*\)".*/\1/p' "$1/metrics.jsonl"; }
loss_at() { sed -n "s/.*\"kind\":\"step\".*\"step\":$2,.*\"loss\":\([0-9.]*\).*/\1/p" "$1/metrics.jsonl" | tail -n 1; }
below() { awk "BEGIN {exit !($1 < $2)}"; }

masked whole || fail "masked text"
first=$(loss_at whole 1) last=$(loss_at whole 600)
echo "masked loss: $first at step 1, $last at step 600"
below "$last" "0.8 * $first" || fail "the masked loss does not fall"

"$atoll" train --config masked.yaml --run.dir parts --log.progress none >parts.out 2>&1 &
p=$!
processes="$processes $p"
until_lines 1 '"kind":"step"' parts/metrics.jsonl
kill -TERM $p
ends 75 $p "a site after SIGTERM"
masked parts || fail "the last part"
[ "$(digest_of whole)" = "$(digest_of parts)" ] || fail "stopped and whole run differ"

masked micro --train.micro_batch_tokens 96 2>/dev/null && fail "96 does not divide 512"
masked micro --train.micro_batch_tokens 128 --train.steps 20 || fail "micro-batches"
for step in 1 2 10; do
    a=$(loss_at whole $step) b=$(loss_at micro $step)
    awk "BEGIN {d = $a - $b; exit !(d < 2e-3 && d > -2e-3)}" || fail "step $step: loss $a whole, $b in micro-batches"
done
for kind in word ngram; do
    masked $kind --data.mask $kind --train.steps 10 || fail "data.mask = $kind"
done

if has_mpi; then
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # Open MPI's own
    mpirun --allow-run-as-root --oversubscribe -n 2 "$atoll" train --config masked.yaml --run.dir ranks --train.steps 20 --log.progress none >ranks.out 2>&1 ||
        fail "two ranks"
    masked drop --train.dropout 0.3 --train.steps 20 || fail "dropout"
    mpirun --allow-run-as-root --oversubscribe -n 2 "$atoll" train --config masked.yaml --run.dir drop-ranks --train.dropout 0.3 --train.steps 20 \
        --log.progress none >drop-ranks.out 2>&1 || fail "dropout on two ranks"
    for step in 1 2 10; do
        a=$(loss_at drop $step) b=$(loss_at drop-ranks $step)
        echo "step $step with dropout: loss $a with one rank, $b with two"
        awk "BEGIN {d = $a - $b; exit !(d < 2e-3 && d > -2e-3)}" || fail "step $step with dropout: loss $a with one rank, $b with two"
    done
    for step in 1 2 10; do
        a=$(loss_at whole $step) b=$(loss_at ranks $step)
        echo "step $step: loss $a with one rank, $b with two"
        awk "BEGIN {d = $a - $b; exit !(d < 2e-3 && d > -2e-3)}" || fail "step $step: loss $a with one rank, $b with two"
    done
fi

"$atoll" eval --config masked.yaml --run.dir whole --data.eval held=masked/eval.bin,trained=masked/train-0.bin --format json >eval.out 2>&1 ||
    fail "evaluation"
[ "$(grep -c '"set":"' eval.out)" -eq 2 ] && grep -q '"set":"trained"' eval.out || fail "two sets should be evaluated"

refused() { # refused WORDS SETTINGS...: with exit code 4
    words=$1
    shift
    status=0
    "$atoll" train --config masked.yaml --run.dir refused --log.progress none "$@" >refused.out 2>&1 || status=$?
    [ $status -eq 4 ] && grep -q "$words" refused.out || fail "exit code $status, wanted 4 and \"$words\" from: $*"
}
refused "data.tokenizer_sha256 is missing" --outer.sites a,b --site.name a --site.aggregator 127.0.0.1:9
grep -q "it is $digest" refused.out || fail "the message should name the digest"
python3 "$here/masked.py" other salt >other.digest
refused "were made with the tokenizer $(cat other.digest); data.tokenizer_sha256 is $digest" --outer.sites a,b --site.name a --site.aggregator 127.0.0.1:9 \
    --data.tokenizer_sha256 "$digest" --data.train other/train-1.bin
refused "shards of different tokenizers" --data.train masked/train-0.bin,other/train-1.bin
refused "no head for it" --data.pairs sop
refused "data.objective = causal has the next id" --data.objective causal
head -c 100 masked/train-1.idx >cut.idx
cp masked/train-1.bin cut.bin
cp masked/data.json data.json
refused "cut.idx: the header promises" --data.train cut.bin
echo "masked text: ok"
