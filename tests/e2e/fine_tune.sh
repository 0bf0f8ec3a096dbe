#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The way of an encoder: a vocabulary is learned, two sites train on masked text, fine-tune on labels that stay where they are, and
# evaluate. Killed sites and a killed aggregator change nothing. Two ranks train as one.
. "$(dirname "$0")/lib.sh"
free_port
"$atoll" data --tokenizer wordpiece --learn 512 --out data --sites 2 --seq-len 32 text.txt >data.out 2>&1 || fail "a vocabulary"
# Each class has words of its own, and shares others.
awk 'BEGIN {
    split("round commit aggregator site state", word)
    split("text token shard batch label", own)
    split("network link frame certificate port", other)
    for (i = 0; i < 180; i++) {
        line = ""
        for (k = 0; k < 8; k++) {
            n = (i * 7 + k * k * 3 + int(i / 5)) % 5 + 1
            line = line " " (k % 2 ? word[n] : i % 3 == 0 ? own[n] : i % 3 == 1 ? other[n] : word[6 - n])
        }
        print (i % 3 == 0 ? "data" : i % 3 == 1 ? "link" : "rounds") "\t" substr(line, 2)
    }
}' >rows.tsv
"$atoll" data --labels --tokenizer data --out labels --sites 2 --held-out 0.2 rows.tsv >labels.out 2>&1 || fail "labels"
sha=$(sed -n 's/.*"sha256": "\([0-9a-f]*\)".*/\1/p' data/data.json)
classes=$(sed -n 's/^ *classes: \(\[".*\]\)$/\1/p' labels.out)
[ "$classes" = '["data", "link", "rounds"]' ] || fail "the classes are printed as $classes"

"$atoll" cert authority --run e2e --dir tls >cert.out 2>&1 || fail "atoll cert authority"
"$atoll" cert issue --role aggregator --host localhost,127.0.0.1 --dir tls >>cert.out 2>&1 || fail "atoll cert issue"
for s in a b; do "$atoll" cert issue --role site --name $s --dir tls >>cert.out 2>&1 || fail "atoll cert issue $s"; done
describe() { # describe MODEL DATA TRAIN OUTER: run.yaml
    cat >run.yaml <<END
run: {name: e2e, seed: 7}
model: {vocab_size: 512, layers: 2, heads: 2, d_model: 32, max_seq_len: 32, causal: false, norm_place: pre, embed_norm: true, token_types: 2, pooler: true, activation: gelu_erf, $1}
data: {tokenizer: external, tokenizer_sha256: $sha, eval: ["data/eval-*.bin"], $2}
train: {seq_len: 32, batch_tokens: 256, warmup_steps: 5, optimizer: adamw, lr: 0.003, eval_tokens: 4096, $3}
device: {kind: ${ATOLL_E2E_DEVICE:-cpu}, dtype: f32, threads: 1}
outer: {sites: [a, b], sync_every: 8, codec: int4, straggler_timeout_s: 60, optimizer: $4}
site: {aggregator: "127.0.0.1:$port", aggregator_name: localhost}
tls: {dir: tls}
serve: {listen: "127.0.0.1:$port", dir: aggregator}
END
}
value() { sed -n "s/.*\"$1\":\(-\{0,1\}[0-9.e-]*\).*/\1/p" "$2" | tail -n 1; }
tokens_of() { awk "BEGIN {printf \"%.0f\", $(value tokens_per_second "$1") * $(value step_ms "$1") / 1000}"; }
holds() { awk "BEGIN {exit !($1)}"; }

# ---- masked text ----
describe "head: mlm" "objective: mlm" "steps: 160, checkpoint_every: 50" nesterov
"$atoll" train --config run.yaml --site.aggregator= --site.name a --run.dir alone --data.train "data/train-0-*.bin" --train.steps 6 \
    --log.progress none >alone.out 2>&1 || fail "one rank"
grep '"kind":"step"' alone/metrics.jsonl | while read -r line; do
    echo "$line" >x.json
    tokens_of x.json
    echo
done >tokens.txt
[ "$(sort -n tokens.txt | head -n 1)" -lt 256 ] || fail "every step counts 256 tokens: slots, and not what is in them"
if has_mpi; then
    mpirun --allow-run-as-root --oversubscribe -n 2 "$atoll" train --config run.yaml --site.aggregator= --site.name a --run.dir ranks \
        --data.train "data/train-0-*.bin" --train.steps 6 --log.progress none >ranks.out 2>&1 || fail "two ranks"
    for step in 1 2 6; do
        one=$(grep "\"step\":$step," alone/metrics.jsonl | grep '"kind":"step"' >x.json && value loss x.json)
        tokens=$(tokens_of x.json)
        two=$(grep "\"step\":$step," ranks/metrics.jsonl | grep '"kind":"step"' >x.json && value loss x.json)
        holds "($one - $two) ^ 2 < 1e-8" || fail "step $step: loss $one with one rank, $two with two"
        [ "$tokens" = "$(tokens_of x.json)" ] || fail "step $step: $tokens tokens with one rank, $(tokens_of x.json) with two"
    done
fi
undisturbed
"$atoll" eval --tokens 0 --config run.yaml --run.dir a --format json >eval.out 2>&1 || fail "evaluation of masked text"
before=$(grep '"kind":"eval"' a/metrics.jsonl | head -n 1 >x.json && value loss x.json)
echo "masked loss: $before at step 0, $(value masked_loss eval.out) at step 160; accuracy $(value masked_accuracy eval.out)"
holds "$(value masked_loss eval.out) < $before - 0.5" || fail "the masked loss does not fall"
holds "$(value masked_accuracy eval.out) > 0.01" || fail "masked accuracy"
grep -q '"masked_accuracy":0\.[0-9]*,"of":"outer"' a/metrics.jsonl || fail "no accuracy on record"
"$atoll" sample --config run.yaml --run.dir a --prompt "The [MASK] of the [MASK]." >sample.out 2>&1 || fail "filling masks"
[ "$(grep -c '^mask ' sample.out)" -eq 2 ] && [ "$(grep -c '^  .* 0\.' sample.out)" -eq 10 ] || fail "two masks, five tokens each"

# ---- labels, from the parameters of the masked model ----
mv a masked-a && mv b masked-b && mv aggregator masked-aggregator && mv data masked-data && mv labels data
rm -f ./*.out
describe "classes: [3]" "objective: labels, classes: $classes" "steps: 320, checkpoint_every: 20" average
settings="--run.init_from masked-a"
undisturbed
grep -q 'ev=start.*classes.0.weight' a.out || fail "it is not said which tensors start from the seed"
wanted_a=$(final a) wanted_b=$(final b)
[ -n "$wanted_a" ] || fail "no final digests"
"$atoll" eval --config run.yaml --run.dir a >eval.out 2>&1 || fail "evaluation of labels"
cat eval.out
grep -q "^MCC " eval.out && grep -q "^  rounds " eval.out || fail "no scores by class"
"$atoll" eval --config run.yaml --run.dir a --data.eval "held=data/eval-*.bin,own=data/train-0-*.bin" --format json >json.out 2>&1 || fail "two sets"
[ "$(grep -c '"set":' json.out)" -eq 2 ] || fail "two sets should be evaluated"
holds "$(value accuracy json.out) > 0.6" || fail "accuracy on the site's own rows: $(value accuracy json.out)"
rm -rf a b aggregator ./*.out
disturbed 2 a serve b a
[ "$(final a)" = "$wanted_a" ] || fail "site a ended at $(final a), undisturbed $wanted_a"
[ "$(final b)" = "$wanted_b" ] || fail "site b ended at $(final b), undisturbed $wanted_b"
echo "$killed kills, same digests: $wanted_a"

# ---- what is refused ----
refused() { # refused WORDS COMMAND...: with exit code 4
    words=$1 code=0
    shift
    "$@" >refused.out 2>&1 || code=$?
    [ $code -eq 4 ] && grep -q -- "$words" refused.out || fail "exit code $code, wanted 4 and \"$words\" from: $*"
}
again="$atoll train --config run.yaml --site.aggregator= --site.name a --run.dir x --data.train data/train-0-*.bin --log.progress none"
refused "model.d_model: 64 here, 32 there" $again --run.init_from masked-a --model.d_model 64
refused "layers and overwrites the others" $again --run.init_from masked-a --train.stages 1@0.5,2@0.5
refused "was trained with the tokenizer" $again --run.init_from masked-a --data.tokenizer_sha256 00000000000000000000000000000000000000000000000000000000000000ff
refused "tokenizer_sha256" $again --data.tokenizer_sha256 0000000000000000000000000000000000000000000000000000000000000000
refused "the prompt has no \[MASK\]" "$atoll" sample --config run.yaml --run.dir masked-a --prompt "The" --model.head mlm --model.classes= \
    --data.objective mlm --data.classes=
refused "needs --tokenizer PATH" "$atoll" data --labels --out x rows.tsv
printf 'data\tone\nother\ttwo\n' >unknown.tsv
refused "unknown.tsv:2: unknown label" "$atoll" data --labels --tokenizer masked-data --classes-of data --out x unknown.tsv
printf 'one\tthe same\none\tlabel\n' >single.tsv
refused "every line has the label" "$atoll" data --labels --tokenizer masked-data --out x single.tsv
echo "fine-tuning: ok"
