#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: heads of multiverse learning that never leave, leave at other ranks than at one, or come back after a
# restart; an evaluation that asks a head which has left.
. "$(dirname "$0")/lib.sh"
free_port
"$atoll" data --tokenizer wordpiece --learn 512 --out data --sites 2 --seq-len 32 text.txt >data.out 2>&1 || fail "a vocabulary"
awk 'BEGIN {
    split("round commit aggregator site state text token shard batch label", word)
    for (i = 0; i < 240; i++) {
        line = ""
        for (k = 0; k < 6; k++) line = line " " word[(i * 7 + k * k * 3 + int(i / 5)) % 10 + 1]
        print (i % 3 == 0 ? "data" : i % 3 == 1 ? "link" : "rounds") "\t" substr(line, 2)
    }
}' >rows.tsv
"$atoll" data --labels --tokenizer data --out labels --sites 2 --held-out 0.2 rows.tsv >labels.out 2>&1 || fail "labels"
sha=$(sed -n 's/.*"sha256": "\([0-9a-f]*\)".*/\1/p' data/data.json)
cat >run.yaml <<END
run: {name: e2e, seed: 7}
model: {vocab_size: 512, layers: 1, heads: 2, d_model: 32, max_seq_len: 32, causal: false, norm_place: pre, token_types: 2, pooler: true, classes: [3]}
data: {tokenizer: external, tokenizer_sha256: $sha, eval: ["labels/eval-*.bin"], objective: labels, classes: [data, link, rounds]}
train: {seq_len: 32, batch_tokens: 256, warmup_steps: 5, optimizer: adamw, lr: 0.003, eval_tokens: 4096, steps: 48, checkpoint_every: 5,
  checkpoint_keep: 1000, eval_every: 6}
device: {kind: ${ATOLL_E2E_DEVICE:-cpu}, dtype: f32, threads: 1}
outer: {sites: [a, b], sync_every: 8}
site: {aggregator: "127.0.0.1:$port", aggregator_name: localhost}
END
settings="--model.classifier_heads 6 --train.heads_drop 1.0005 --train.heads_least 3"
alone() { "$atoll" train --config run.yaml --site.aggregator= --site.name a --data.train 'labels/train-0-*.bin' --log.progress none $settings "$@"; }
parameters() { sed -n 's/.*ev=final .*parameters=\([0-9a-f]*\) .*/\1/p' "$1"; }
heads() { sed -n 's/.*"kind":"step".*"heads":\([0-9]*\),.*/\1/p' "$1/metrics.jsonl" | uniq | tr '\n' ' '; }
refused() { # refused WORDS COMMAND...: with exit code 4
    words=$1 code=0
    shift
    "$@" >refused.out 2>&1 || code=$?
    [ $code -eq 4 ] && grep -q -- "$words" refused.out || fail "exit code $code, wanted 4 and \"$words\" from: $*: $(cat refused.out)"
}

alone --run.dir a >a.out 2>&1 || fail "six heads"
grep "ev=head_dropped" a.out | sed 's/^ts=[^ ]* //'
[ "$(lines "ev=head_dropped" a.out)" -ge 1 ] || fail "no head leaves"
case "$(heads a)" in "6 "*"3 " | "6 "*"4 " | "6 5 ") ;; *) fail "heads left: $(heads a)" ;; esac
grep -q '"cosine":0\.[0-9]*' a/metrics.jsonl || fail "no cosine on record"
"$atoll" eval --config run.yaml $settings --run.dir a >eval.out 2>&1 || fail "evaluation"
grep -q "^accuracy\|accuracy " eval.out || fail "no accuracy: $(cat eval.out)"
refused "a model of Hugging Face has one classifier" "$atoll" export --config run.yaml $settings --from a --out x

# From a checkpoint in the middle the averages and the heads continue as they were.
mkdir half && cp -r a/inner half/inner
for d in half/inner/0*; do [ "$(basename "$d")" -le 20 ] || rm -r "$d"; done
alone --run.dir half >half.out 2>&1 || fail "the second half"
[ -n "$(parameters a.out)" ] && [ "$(parameters a.out)" = "$(parameters half.out)" ] || fail "a resumed run is another run"

# Two ranks drop the heads that one drops.
if has_mpi; then
    mpirun --allow-run-as-root --oversubscribe -n 2 "$atoll" train --config run.yaml --site.aggregator= --site.name a --run.dir two \
        --data.train 'labels/train-0-*.bin' --log.progress none $settings >two.out 2>&1 || fail "two ranks"
    said() { sed -n 's/.*ev=head_dropped \(step=[0-9]* head=[0-9]*\) .*/\1/p' "$1"; }
    [ "$(said a.out)" = "$(said two.out)" ] || fail "one rank dropped $(said a.out), two dropped $(said two.out)"
fi

# One head is the plain head.
settings=""
alone --run.dir plain >plain.out 2>&1 || fail "a plain head"
alone --run.dir single --model.classifier_heads 1 --train.heads_orthogonal 1 --train.heads_drop 1.5 >single.out 2>&1 || fail "one head"
[ "$(parameters plain.out)" = "$(parameters single.out)" ] || fail "one head is not the plain head"
refused "train.heads_drop = 1.1 with 2 sites" "$atoll" train --config run.yaml --dry-run --model.classifier_heads 4
echo "heads: ok"
