#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: masked text with pairs, or labels, train otherwise on two ranks or after a stop in the middle of an epoch;
# a document of one token, one labelled line or a text that is too long stops an encoder.
. "$(dirname "$0")/lib.sh"
i=0
while [ $i -lt 500 ]; do
    a=$((i % 17)) b=$((i % 13))
    printf 'Begin w%d w%d now.  Middle w%d w%d\nEnd w%d w%d.\n\n' $a $((a + 1)) $b $((b + 1)) $a $b
    i=$((i + 1))
done >ordered.txt
# Texts of 1 to 19 words: the ranks of a step have unequal numbers of tokens.
awk 'BEGIN {
    for (i = 0; i < 400; i++) {
        line = ""
        for (k = 0; k <= i * 7 % 19; k++) line = line " w" (i % 3 + 3 * (k * i % 5))
        print substr("abc", i % 3 + 1, 1) "\t" substr(line, 2)
    }
}' >rows.tsv
prepare() { "$atoll" data --out "$@" >"$1.out" 2>&1 || fail "atoll data --out $1"; }
prepare words --tokenizer wordpiece --learn 120 --split-sentences --seq-len 32 ordered.txt
prepare labels --tokenizer words --labels --held-out 0.1 rows.tsv
cat >pairs.yaml <<END
run: {name: m, seed: 7}
model: {vocab_size: 128, layers: 2, heads: 2, d_model: 32, max_seq_len: 32, causal: false, token_types: 2, pooler: true, head: mlm}
data: {tokenizer: external, objective: mlm, pairs: sop, train: ["words/train-0-*.bin"], eval: ["words/eval-*.bin"]}
train: {steps: 800, seq_len: 32, batch_tokens: 512, warmup_steps: 5, optimizer: adamw, lr: 0.003, checkpoint_every: 0}
device: {threads: 1, dtype: f32}
END
sed -e 's/head: mlm/classes: [3]/' -e 's/objective: mlm, pairs: sop/objective: labels/' -e 's/words\/\(train\|eval\)/labels\/\1/g' pairs.yaml >labels.yaml

train() { # train KIND DIR WORDS...
    kind=$1 run=$2
    shift 2
    "$atoll" train --config "$kind.yaml" --run.dir "$run" --log.progress none "$@" >>"$run.out" 2>&1
}
final_of() { sed -n 's/.*"kind":"final".*"parameters":"\([0-9a-f]*\)".*/\1/p' "$1/metrics.jsonl"; }
value() { sed -n "s/.*\"kind\":\"step\".*\"step\":$2,.*\"$1\":\([0-9.]*\).*/\1/p" "$3/metrics.jsonl" | tail -n 1; }
ranks() { mpirun --allow-run-as-root --oversubscribe -n 2 "$atoll" train --config "$1.yaml" --run.dir "$1-ranks" --train.steps 12 --log.progress none; }

for kind in pairs labels; do
    train $kind $kind || fail "$kind"
    # Stopped in the middle of an epoch: 475 documents, or 361 texts, of which a step takes 16.
    "$atoll" train --config $kind.yaml --run.dir $kind-parts --log.progress none >$kind-parts.out 2>&1 &
    p=$!
    processes="$processes $p"
    until_lines 1 '"step":3,' $kind-parts/metrics.jsonl
    kill -TERM $p
    ends 75 $p "a run of $kind after SIGTERM"
    at=$(sed -n 's/.*stopped after step \([0-9]*\) of 800.*/\1/p' $kind-parts.out)
    [ -n "$at" ] || fail "$kind: it is not said after which step it stopped"
    train $kind $kind-parts || fail "the second part of $kind"
    [ -n "$(final_of $kind)" ] && [ "$(final_of $kind)" = "$(final_of $kind-parts)" ] || fail "$kind: a run stopped after step $at ends with other bits"
    echo "$kind: stopped after step $at of 800; the same bits as without a stop"
    if has_mpi; then
        train $kind $kind-one --train.steps 12 || fail "one rank, $kind"
        ranks $kind >$kind-ranks.out 2>&1 || fail "two ranks, $kind"
        for step in 1 2 7 12; do
            for key in loss loss_token loss_sequence; do
                one=$(value $key $step $kind-one) two=$(value $key $step $kind-ranks)
                [ "$kind $key" != "pairs loss" ] || [ -n "$one" ] || fail "no loss of step $step"
                awk "BEGIN {d = ${one:-0} - ${two:-0}; exit !(d < 1e-5 && d > -1e-5)}" || fail "$kind, step $step: $key $one with one rank, $two with two"
            done
        done
        echo "$kind: loss of step 12 is $(value loss 12 $kind-one) with one rank, $(value loss 12 $kind-ranks) with two"
    fi
done

# One token, one line, one text, and a text longer than the context.
eval_of() { # eval_of KIND DIR: "evaluated N .." and nothing that is no number
    "$atoll" eval --config "$1.yaml" --run.dir "$1" --data.eval "$2/train-0-*.bin" >eval.out 2>&1 || fail "atoll eval of $2"
    if grep -qi "nan\|inf" eval.out; then fail "atoll eval of $2"; fi
    sed -n 's/^evaluated *//p' eval.out
}
printf 'w1.\nW2.\n\n' >tiny.txt
prepare tiny --tokenizer words --split-sentences --held-out 0 --seq-len 1 tiny.txt
[ "$(eval_of pairs tiny)" = "1 masked tokens" ] || fail "a document of one token and a stop in each sentence"
train pairs tiny-run --data.train "tiny/train-0-*.bin" --data.eval= --train.steps 8 || fail "training on one document"
printf 'w1\n\nw2\n\n' >token.txt
prepare token --tokenizer words --split-sentences --held-out 0 --seq-len 1 token.txt
train pairs token-run --data.train "token/train-0-*.bin" --data.pairs none --data.eval= --train.steps 8 || fail "documents of one token"
printf 'b\tw3\n' >one.tsv
prepare one --labels --tokenizer words --classes-of labels --held-out 0 one.tsv
[ "$(eval_of labels one)" = "1 texts" ] || fail "one labelled line"
train labels one-run --data.train "one/train-0-*.bin" --data.eval= --train.steps 8 || fail "training on one labelled line"
awk 'BEGIN { printf "b\t"; for (i = 0; i < 200; i++) printf "w%d ", i % 15; print "" }' >long.tsv
prepare long --labels --tokenizer words --classes-of labels --held-out 0 long.tsv
[ "$(eval_of labels long)" = "1 texts" ] || fail "a text longer than the context"
awk 'BEGIN { for (i = 0; i < 400; i++) printf "w%d ", i % 15; print "." }' >sentence.txt
prepare sentence --tokenizer words --split-sentences --held-out 0 --seq-len 32 sentence.txt
train pairs sentence-run --data.train "sentence/train-0-*.bin" --data.pairs none --data.eval= --train.steps 8 || fail "a sentence longer than the context"
train pairs refused --train.seq_len 64 && fail "train.seq_len beyond model.max_seq_len"
grep -q "train.seq_len = 64 is longer than model.max_seq_len = 32" refused.out || fail "the message about train.seq_len"
echo "encoder runs: ok"
