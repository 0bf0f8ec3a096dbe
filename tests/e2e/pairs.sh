#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From text to masked training with pairs: atoll data splits documents into sentences, training learns the order of two texts, and
# shards without documents and documents of one sentence are refused.
. "$(dirname "$0")/lib.sh"
i=0
while [ $i -lt 600 ]; do
    a=$((i % 17)) b=$((i % 13))
    printf 'Begin w%d w%d now.  Middle w%d w%d\nEnd w%d w%d.\n\n' $a $((a + 1)) $b $((b + 1)) $a $b
    i=$((i + 1))
done >ordered.txt

prepare() { # prepare DIR FILE OPTIONS...: with the vocabulary of split/ once it is there
    out=$1 from=$2 tokenizer="wordpiece --learn 120"
    shift 2
    [ ! -e split ] || tokenizer=split
    "$atoll" data --out "$out" --tokenizer $tokenizer --seq-len 32 "$@" "$from" >"$out.out" 2>&1
}
prepare split ordered.txt --sites 2 --split-sentences || fail "atoll data --split-sentences"
for part in train-0 train-1 eval; do
    [ -s split/$part-0000.bin ] && [ -s split/$part-0000.idx ] || fail "split/$part has no .bin or no .idx"
done
grep -q '"documents": 600' split/data.json || fail "600 documents"
OMP_NUM_THREADS=3 "$atoll" data --out threads --tokenizer split --seq-len 32 --sites 2 --split-sentences ordered.txt >threads.out 2>&1 || fail "three threads"
cmp split/train-1-0000.idx threads/train-1-0000.idx || fail "the index depends on the number of threads"

# The keys that it prints are the configuration.
sed -n '/^in the configuration/,$p' split.out | sed '1d; s/^    //' >sop.yaml
cat >>sop.yaml <<END
    layers: 2
    heads: 2
    d_model: 32
    max_seq_len: 32
run: {name: sop, seed: 7}
train: {steps: 600, seq_len: 32, batch_tokens: 512, warmup_steps: 10, lr: 0.01, checkpoint_every: 1000}
device: {threads: 1}
END
"$atoll" train --config sop.yaml --run.dir sop --log.progress none >train.out 2>&1 || fail "training with data.pairs = sop"
mean() { # mean KEY FROM TO: of steps FROM to TO
    sed -n 's/.*"kind":"step".*"step":\([0-9]*\),.*"'"$1"'":\([0-9.e-]*\).*/\1 \2/p' sop/metrics.jsonl |
        awk "\$1 >= $2 && \$1 <= $3 {s += \$2; n++} END {printf \"%.4f\", s / n}"
}
below() { awk "BEGIN {exit !($1 < $2)}"; }
for key in loss loss_token loss_sequence; do
    first=$(mean $key 1 20) last=$(mean $key 581 600)
    echo "$key: $first in steps 1 to 20, $last in steps 581 to 600"
    below "$last" "0.8 * $first" || fail "$key does not fall"
done
below "$last" 0.3 || fail "the order of two texts is not learned"
grep '"step":600,' sop/metrics.jsonl | sed 's/.*"loss":\([0-9.]*\),"loss_token":\([0-9.]*\),"loss_sequence":\([0-9.e-]*\).*/\1 \2 \3/' |
    awk 'NR == 1 {d = $1 - $2 - $3; exit !(d < 1e-5 && d > -1e-5)}' || fail "loss is not the sum of its parts"

refused() { # refused CODE WORDS COMMAND...
    code=$1 words=$2 status=0
    shift 2
    "$@" >refused.out 2>&1 || status=$?
    [ $status -eq "$code" ] && grep -q -- "$words" refused.out || fail "exit code $status, wanted $code and \"$words\" from: $*"
}
retrain() { "$atoll" train --config sop.yaml --run.dir refused --log.progress none --data.tokenizer_sha256 "" --data.eval "" "$@"; }
prepare plain ordered.txt || fail "atoll data without sentences"
refused 4 "data.pairs = sop needs documents and their sentences; this shard has none" retrain --data.train "plain/train-0-*.bin"

# A document of one sentence: counted, refused by training with pairs, or left out.
(cat ordered.txt && printf 'Only one w1.\n\n') >single.txt
prepare single single.txt --held-out 0 --split-sentences || fail "a document of one sentence"
grep -q "1 document has one sentence, which data.pairs refuses: --min-sentences 2" single.out || fail "no note about the document"
grep -q "pairs: sop" single.out && fail "pairs are printed, but refused"
refused 4 "document 600 has 1 sentence; data.pairs = sop needs two or more in each" retrain --data.train "single/train-0-*.bin"
prepare two single.txt --held-out 0 --split-sentences --min-sentences 2 || fail "--min-sentences 2"
grep -q "1 document of fewer than 2 sentences left out" two.out || fail "what is left out is not told"
grep -q '"documents": 600' two/data.json || fail "600 documents are left"
retrain --data.train "two/train-0-*.bin" --train.steps 2 --train.warmup_steps 1 >two_train.out 2>&1 || fail "training on what is left"
refused 4 "the part of site 0 would have 0 tokens" "$atoll" data --out none --tokenizer split --seq-len 32 --held-out 0 --split-sentences --min-sentences 9 \
    single.txt
[ ! -e none/train-0-0000.bin ] || fail "shards of a text that is too short"
refused 4 "--split-sentences needs --tokenizer" "$atoll" data --out x --split-sentences single.txt
refused 4 "--min-sentences needs --split-sentences" "$atoll" data --out x --tokenizer split --min-sentences 2 single.txt
refused 4 "takes none of" "$atoll" data --out x --tokenizer split --labels --split-sentences single.txt
echo "pairs: ok"
