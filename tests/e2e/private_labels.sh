#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Three sites fine-tune an encoder on labels that stay where they are, each with privacy for an owner, such as a patient, of several
# texts: from the parameters of a masked model that was trained without it, on public text. A site that is killed is charged for
# each of its steps once. No loss of training is on record.
. "$(dirname "$0")/lib.sh"
free_port
"$atoll" data --tokenizer wordpiece --learn 512 --out data --sites 1 --seq-len 32 text.txt >data.out 2>&1 || fail "a vocabulary"
awk 'BEGIN {
    split("round commit aggregator site state", word)
    split("text token shard batch label", own)
    split("network link frame certificate port", other)
    for (i = 0; i < 1800; i++) {
        line = ""
        for (k = 0; k < 8; k++) {
            n = (i * 7 + k * k * 3 + int(i / 5)) % 5 + 1
            line = line " " (k % 2 ? word[n] : i % 3 == 0 ? own[n] : i % 3 == 1 ? other[n] : word[6 - n])
        }
        print "patient " i % 540 "\t" (i % 3 == 0 ? "data" : i % 3 == 1 ? "link" : "rounds") "\t" substr(line, 2)
    }
}' >rows.tsv
"$atoll" data --labels --owners --tokenizer data --out labels --sites 3 --held-out 0.1 rows.tsv >labels.out 2>&1 || fail "labels"
sha=$(sed -n 's/.*"sha256": "\([0-9a-f]*\)".*/\1/p' data/data.json)
"$atoll" cert authority --run e2e --dir tls >cert.out 2>&1 || fail "atoll cert authority"
"$atoll" cert issue --role aggregator --host localhost,127.0.0.1 --dir tls >>cert.out 2>&1 || fail "atoll cert issue"
for s in a b c; do "$atoll" cert issue --role site --name $s --dir tls >>cert.out 2>&1 || fail "atoll cert issue $s"; done
describe() { # describe MODEL DATA TRAIN PRIVACY: run.yaml
    cat >run.yaml <<END
run: {name: e2e, seed: 7}
model: {vocab_size: 512, layers: 2, heads: 2, d_model: 32, max_seq_len: 32, causal: false, positions: rope, embed_norm: true, pooler: true,
        pooler_norm: true, activation: geglu, bias: false, $1}
data: {tokenizer: external, tokenizer_sha256: $sha, $2}
train: {seq_len: 32, warmup_steps: 5, optimizer: adamw, $3}
device: {kind: cpu, dtype: f32, threads: 1}
outer: {sites: [a, b, c], sync_every: 8, codec: int8, straggler_timeout_s: 60, optimizer: average}
site: {aggregator: "127.0.0.1:$port", aggregator_name: localhost}
tls: {dir: tls}
serve: {listen: "127.0.0.1:$port", dir: aggregator}
privacy: {$4}
END
}
value() { sed -n "s/.*\"$1\":\(-\{0,1\}[0-9.e-]*\).*/\1/p" "$2" | tail -n 1; }
holds() { awk "BEGIN {exit !($1)}"; }

describe "head: mlm" 'objective: mlm, eval: ["data/eval-*.bin"]' \
    "steps: 40, batch_tokens: 256, lr: 0.003, eval_tokens: 2048" "unit: none"
"$atoll" train --config run.yaml --site.aggregator= --site.name a --run.dir public --data.train "data/train-0-*.bin" \
    --log.progress none >public.out 2>&1 || fail "masked text"
mv data text && mv labels data

describe "classes: [3]" 'objective: labels, classes: [data, link, rounds], eval: ["data/eval-*.bin"]' \
    "steps: 96, batch_tokens: 2048, lr: 0.01, eval_tokens: 8192, checkpoint_every: 8" "unit: owner, unit_sequences: 2, noise_multiplier: 0.1, clip: 0.5"
settings="--run.init_from public"
serve
sites_start a b c
until_rounds b 9
kill -9 "$b" 2>/dev/null && wait "$b" 2>/dev/null || :
train b
b=$pid
sites_end 0 a b c
serve_ends
same_state a b c
for s in a b c; do
    [ "$(cut -d ' ' -f 1 $s/inner/privacy.charges | sort -u | wc -l)" = 96 ] || fail "not every step of site $s is charged"
    [ "$(lines "" $s/inner/privacy.charges)" = 96 ] || fail "site $s: $(lines "" $s/inner/privacy.charges) charges for 96 steps"
    [ "$(grep -c "unit=owner .*records=162 expected=32 .* unit_sequences=2 " $s/inner/privacy.charges)" = 96 ] ||
        fail "site $s: a record is not a patient"
    [ "$(lines '"loss":null' $s/metrics.jsonl)" -ge 96 ] || fail "site $s has a loss of training on record"
done
! cmp -s a/inner/privacy.key b/inner/privacy.key || fail "two sites have one key"
"$atoll" eval --config run.yaml --run.dir a --format json >eval.out 2>&1 || fail "evaluation of labels"
echo "accuracy on held-out rows $(value accuracy eval.out), loss $(value loss eval.out)"
holds "$(value accuracy eval.out) > 0.5" || fail "accuracy $(value accuracy eval.out)"
"$atoll" report a b c --out report.html >report.out 2>&1 || fail "atoll report"
"$atoll" export --config run.yaml --from a --tokenizer text --out classifier >export.out 2>&1 || fail "atoll export"
echo "private labels: ok"
