#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Three data sites that must not share their data. run-demo.sh --private calls it:
#   deploy/demo-private.sh PROGRAM TASKS OUT [--epsilon E] [--tune-steps N] [--labels N] [--steps N]
# TASKS: made by prepare-tasks.sh. 1. A small encoder learns masked text that counts as public, without privacy. 2. Three sites
# fine-tune it on labels of their own (N in all), with secure aggregation between the sites and record-level privacy inside each.
# 3. For comparison: the same without privacy, and one site alone with the same privacy. 4. What each site has spent, what an audit
# finds, what left the sites, and a page for a data-protection officer.
set -eu
demo=demo-private epsilon=3 tune=150 labels=60000 steps=1000
. "$(dirname "$0")/demo-lib.sh"

# ---- data: public text, and labels that are dealt to three sites ----
cut -f 2 "$tasks/glosses.train.tsv" | tail -n 15000 | sed 's/$/\n/' >public.txt
shards public.txt 1 3
say "public text: $(sed -n 's/^read *//p' text.log); labels at three sites: $(sed -n 's/^read *//p' labels.log)"

# describe NAME SITES THREADS HEAD DATA TRAIN PRIVACY: NAME.yaml
describe() {
    cat >"$1.yaml" <<END
run: {name: $1, seed: 7}
$(model "$4")
data: {tokenizer: external, tokenizer_sha256: $sha, $5}
train: {seq_len: 64, optimizer: adamw, weight_decay: 0.01, checkpoint_every: 50, $6}
device: {kind: cpu, dtype: f32, threads: $3}
outer: {sites: [$2], sync_every: 10, codec: int8, optimizer: average, weights: equal, full_precision: fixed}
$(places "$1")
privacy: {$7}
END
    mkdir "$1"
}
# train NAME: an aggregator and three sites over mutual TLS, until the last step
train() {
    certificates "$1" a b c
    "$program" serve --config "$1.yaml" --run.init_from masked/a >"$1-aggregator.log" 2>&1 &
    aggregator=$!
    processes=$aggregator
    part=0
    for s in a b c; do
        text="labels/train-$part-*.bin"
        [ "$1$s" != privatea ] || text="$text,canaries/in-0000.bin"
        "$program" train --config "$1.yaml" --site.name $s --run.dir "$1/$s" --data.train "$text" \
            --log.progress none --run.init_from masked/a >"$1-$s.log" 2>&1 &
        eval "$s=\$!"
        processes="$processes $!"
        part=$((part + 1))
    done
    wait "$a" || fail "site a of $1"
    wait "$b" || fail "site b of $1"
    wait "$c" || fail "site c of $1"
    wait "$aggregator" || fail "the aggregator of $1"
    processes=""
}
held_out() { # held_out NAME: "loss L, accuracy A"
    "$program" eval --tokens 0 --config "$1.yaml" --run.dir "$1/a" --format json >"$1.json" 2>eval.log || fail "atoll eval"
    printf 'held-out loss %.3f, accuracy %s' "$(value loss "$1.json")" "$(percent "$(value accuracy "$1.json")")"
}

# ---- masked text, public ----
describe masked a "$(nproc)" "head: mlm" 'objective: mlm, mlm_probability: 0.3, eval: ["text/eval-*.bin"]' \
    "batch_tokens: 4096, steps: $steps, warmup_steps: $((steps / 10)), lr: 0.004, eval_tokens: 16384" "secure: off"
"$program" train --config masked.yaml --site.aggregator= --site.name a --run.dir masked/a --data.train "text/train-0-*.bin" \
    --outer.full_precision bf16 --log.progress none >masked.log 2>&1 || fail "masked text"
say "an encoder of public masked text, $steps steps"

# ---- labels ----
tuning="batch_tokens: 16384, steps: $tune, warmup_steps: $((tune / 8)), eval_tokens: 16384"
head="pooler: true, pooler_norm: true, classes: [$count]"
data="objective: labels, classes: $classes, eval: [\"held/train-*.bin\"]"
budget="unit: sequence, epsilon: $epsilon, delta: 0.00001, clip: 0.5"

describe private "a, b, c" 1 "$head" "$data" "$tuning, lr: 0.01" "secure: sum, $budget"
"$program" privacy canaries --config private.yaml --data.train "labels/train-0-*.bin" --out canaries --count 1000 >canaries.log 2>&1 || fail "atoll privacy canaries"
train private
grep -q "ev=secure" private-a.log && grep -q "ev=privacy" private-a.log || fail "the sites do not say what they promise"
say "three sites, secure aggregation and (epsilon, delta) = ($epsilon, 1e-5) in each: $(held_out private)"
sed -n 's/.*ev=secure text="\(.*\)"$/        \1/p' private-a.log | fold -s -w 120
describe plain "a, b, c" 1 "$head" "$data" "$tuning, lr: 0.0015" "secure: off"
train plain
say "the same without privacy:                                               $(held_out plain)"
describe alone a "$(nproc)" "$head" "$data" "$tuning, lr: 0.01" "secure: off, $budget"
"$program" train --config alone.yaml --site.aggregator= --site.name a --run.dir alone/a --data.train "labels/train-0-*.bin" \
    --run.init_from masked/a --log.progress none >alone.log 2>&1 || fail "one site alone"
say "one site alone, with the same privacy:                                  $(held_out alone)"

# ---- what was spent, what an audit finds, what left the sites ----
for s in a b c; do
    say "site $s:"
    "$program" privacy ledger "private/$s" | sed 's/^/        /'
done
"$program" privacy audit --run.dir private/a --set canaries >audit.txt 2>&1 || fail "the audit of site a: $(cat audit.txt)"
say "audit of site a, 1000 canaries:"
sed 's/^/        /' audit.txt
"$program" privacy verify private/a private/b private/c >verify.txt 2>&1 || fail "atoll privacy verify: $(cat verify.txt)"
say "what left the sites:"
sed 's/^/        /' verify.txt
for s in a b c; do
    say "site $s: $("$program" ledger "private/$s" | awk '$1 == "all" { printf "%.1f MB up, %.1f MB down in all layers", $4 / 1e6, $6 / 1e6 }')"
done
"$program" report --privacy private/a --out privacy.html >report.log 2>&1 || fail "atoll report --privacy"
say "for a data-protection officer: $out/privacy.html (site a)"
