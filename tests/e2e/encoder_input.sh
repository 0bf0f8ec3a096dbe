#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: wrong input of an encoder's way - tokenizer, text, labels, masked text, pairs, a published model -
# trains anyway, or is refused without what, where and what to do.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || {
    echo "SKIPPED: no python3 here"
    exit 77
}
cases=0
refused() { # refused "WORDS|WORDS" COMMAND...: exit code 4, a sentence with all these words, and no step
    words=$1 code=0
    shift
    "$@" >refused.out 2>&1 || code=$?
    [ "$code" -eq 4 ] || fail "exit code $code, wanted 4 from: $*"
    ! grep -q "ev=start\|ev=step" refused.out || fail "it started: $*"
    while [ -n "$words" ]; do
        word=${words%%|*}
        case $words in *"|"*) words=${words#*|} ;; *) words="" ;; esac
        grep -qF -- "$word" refused.out || fail "\"$word\" is not said by: $*"
    done
    cases=$((cases + 1))
}
i=0
while [ $i -lt 400 ]; do
    a=$((i % 17)) b=$((i % 13))
    printf 'Begin w%d w%d now.  Middle w%d w%d\nEnd w%d w%d.\n\n' $a $((a + 1)) $b $((b + 1)) $a $b
    i=$((i + 1))
done >ordered.txt
data() { # data DIR OPTIONS...: shards of ordered.txt
    out=$1
    shift
    "$atoll" data --out "$out" --seq-len 32 "$@" ordered.txt >"$out.out" 2>&1 || fail "atoll data --out $out"
}
data words --tokenizer wordpiece --learn 120 --sites 2
cat >masked.yaml <<END
run: {name: masked, seed: 7}
model: {vocab_size: 128, layers: 2, heads: 2, d_model: 32, max_seq_len: 32, causal: false, token_types: 2, pooler: true, head: mlm}
data: {tokenizer: external, objective: mlm, train: ["words/train-0-*.bin"]}
train: {steps: 3, seq_len: 32, batch_tokens: 512, warmup_steps: 1}
device: {threads: 1}
END
masked() { # masked DIR WORDS...
    run=$1
    shift
    "$atoll" train --config masked.yaml --log.progress none --run.dir "$run" "$@"
}
masked plain >plain.out 2>&1 || fail "masked text"

# ---- tokenizers ----
mkdir without_mask without_cls
grep -v '^\[MASK\]$' words/vocab.txt >without_mask/vocab.txt
grep -v '^\[CLS\]$' words/vocab.txt >without_cls/vocab.txt
data unmasked --tokenizer without_mask --split-sentences
grep -q "has no \[CLS\], \[SEP\] or \[MASK\]: data.objective = mlm refuses these shards" unmasked.out || fail "atoll data does not say it"
if grep -q "objective: mlm" unmasked.out; then fail "an objective is printed, but refused"; fi
refused 'unmasked/data.json: the tokenizer has no special id "mask"|make the shards with a tokenizer that has' masked x --data.train "unmasked/train-0-*.bin"
edit() { python3 -c "import json; j = json.load(open('words/tokenizer.json')); $1; json.dump(j, open('$2', 'w'))"; }
edit "j['model'] = {'type': 'WordLevel', 'vocab': {'[UNK]': 0}}" level.json
edit "j['normalizer'] = {'type': 'Nmt'}" nmt.json
edit "j['pre_tokenizer'] = {'type': 'UnicodeScripts'}" scripts.json
for case in 'level.json: a model of type "WordLevel"|supported are WordPiece, BPE and Unigram' \
    'nmt.json: a normalizer of type "Nmt"' 'scripts.json: a pre_tokenizer of type "UnicodeScripts"'; do
    refused "$case" "$atoll" data --out x --tokenizer "${case%%:*}" ordered.txt
done
echo "piece" >spiece.model
refused "spiece.model: a model of SentencePiece is not supported|tokenizer.json" "$atoll" data --out x --tokenizer spiece.model ordered.txt

# ---- text that is not UTF-8: file, line and byte ----
printf 'good\nbad \377 byte\n' >latin.txt
printf '{"text": "good"}\n{"text": "b\377d"}\n' >latin.jsonl
printf 'a\tone\nb\ttw\377o\n' >latin.tsv
gzip -c latin.txt >latin.txt.gz
refused "latin.txt: line 2, byte 5 is not UTF-8|iconv" "$atoll" data --out x --tokenizer words latin.txt
refused "latin.txt: line 2, byte 5 is not UTF-8|iconv" "$atoll" data --out x --tokenizer wordpiece --learn 100 latin.txt
refused "latin.txt.gz: line 2, byte 5 is not UTF-8|iconv" "$atoll" data --out x --tokenizer words latin.txt.gz
refused "latin.jsonl: line 2, byte 12 is not UTF-8|iconv" "$atoll" data --out x --tokenizer words --field text latin.jsonl
refused "latin.tsv:2: byte 5 of the line is not UTF-8|iconv" "$atoll" data --out x --tokenizer words --labels latin.tsv

# ---- labels ----
i=0
while [ $i -lt 40 ]; do
    printf 'a\tw1 w%d\nb\tw3 w%d\n' $((i % 7)) $((i % 5))
    i=$((i + 1))
done >rows.tsv
"$atoll" data --labels --tokenizer words --out labels rows.tsv >labels.out 2>&1 || fail "labels"
labels() { masked "$@" --data.objective labels --model.head plain; }
labels tuned --data.train "labels/train-0-*.bin" --model.classes 2 >tuned.out 2>&1 || fail "labelled text"
refused "without_cls/vocab.txt: the vocabulary has no [CLS] token" "$atoll" data --labels --tokenizer without_cls --out x rows.tsv
printf 'a\tone\nzz\ttwo\n' >unknown.tsv
refused 'unknown.tsv:2: unknown label "zz"; the 2 classes are a, b' "$atoll" data --labels --tokenizer words --classes-of labels --out x unknown.tsv
printf 'a\tone\na\ttwo\n' >single.tsv
refused 'single.tsv:1: every line has the label "a"; a task needs two|--classes-of' "$atoll" data --labels --tokenizer words --out x single.tsv
refused "2 classes, model.classes 3" labels x --data.train "labels/train-0-*.bin" --model.classes 3
refused 'class 1 is "b" in its data.json and "c" in data.classes' labels x --data.train "labels/train-0-*.bin" --model.classes 2 --data.classes a,c
refused "needs model.classes" labels x --data.train "labels/train-0-*.bin"
refused "words/train-0-0000.bin: no labels next to it|atoll data --labels" labels x --model.classes 2
cp -r labels unnamed
python3 -c "import json; j = json.load(open('labels/data.json')); j['classes'] = j['classes'][:1]; json.dump(j, open('unnamed/data.json', 'w'))"
refused "unnamed/data.json: 1 class; a task needs two or more|atoll data --labels" labels x --data.train "unnamed/train-0-*.bin" --model.classes 2

# ---- masked text and pairs ----
refused "data.mlm_probability|0.9" masked x --data.mlm_probability 0.95
masked most --data.mlm_probability 0.9 >most.out 2>&1 || fail "nine tokens of ten are masked"
(cat ordered.txt && printf 'Only one w1.\n\n') >with_single.txt
"$atoll" data --tokenizer words --split-sentences --held-out 0 --seq-len 32 --out with_single with_single.txt >single.out 2>&1 || fail "a single sentence"
refused "document 400 has 1 sentence; data.pairs = sop needs two or more in each|--min-sentences 2" masked x --data.pairs sop \
    --data.train "with_single/train-0-*.bin"
for pairs in sop nsp; do
    refused "words/train-0-0000.bin: data.pairs = $pairs needs documents|--split-sentences" masked x --data.pairs $pairs
done
data paired --tokenizer words --split-sentences
refused "set model.pooler = true" masked x --data.pairs sop --model.pooler false --data.train "paired/train-0-*.bin"

# ---- shards of another vocabulary ----
data other --tokenizer wordpiece --learn 60 --sites 2 --held-out 0.2
sha=$(sed -n 's/.*"sha256": "\([0-9a-f]*\)".*/\1/p' words/data.json)
foreign=$(sed -n 's/.*"sha256": "\([0-9a-f]*\)".*/\1/p' other/data.json)
[ "$sha" != "$foreign" ] || fail "two vocabularies"
site() { masked "$@" --outer.sites a,b --site.name a --site.aggregator 127.0.0.1:9; }
if "$atoll" cert authority --run masked --dir tls >cert.out 2>&1; then
    "$atoll" cert issue --role site --name a --dir tls >>cert.out 2>&1 || fail "atoll cert"
    refused "other: the shards there were made with the tokenizer $foreign; data.tokenizer_sha256 is $sha" site x --data.train "other/train-0-*.bin" \
        --data.tokenizer_sha256 "$sha"
    refused "data.tokenizer_sha256 is missing|$sha" site x
fi
refused "other and words hold shards of different tokenizers|--tokenizer words" masked x --data.train "words/train-0-*.bin,other/train-0-*.bin"
refused "words and other hold shards of different tokenizers|--tokenizer words" masked x --data.eval "other/eval-*.bin"
refused "other: the shards there were made with the tokenizer $foreign" "$atoll" eval --config masked.yaml --run.dir plain \
    --data.eval "other/eval-*.bin" --data.tokenizer_sha256 "$sha"
mkdir bare && cp words/train-0-0000.bin bare/
refused "bare/train-0-0000.bin: no data.json next to it|atoll data" masked x --data.train "bare/train-0-0000.bin"
masked mixed --data.train "words/train-0-0000.bin,bare/train-0-0000.bin" >mixed.out 2>&1 || fail "a directory without data.json next to another"
grep -q 'level=warn ev=data directory=bare text="no data.json' mixed.out || fail "no warning of bare/"

# ---- a published model of another family, and a run's ----
for family in bert albert; do
    python3 "$here/encoders.py" write "$repository/tests/golden/$family" $family || fail "no $family"
    "$atoll" import --model $family --write-config $family.yaml >import.out 2>&1 || fail "atoll import --write-config of $family"
done
mkdir roberta && sed 's/"model_type": "bert"/"model_type": "roberta"/' bert/config.json >roberta/config.json && cp bert/model.safetensors roberta/
small="--train.seq_len 16 --train.batch_tokens 64"
refused "roberta/config.json: model_type = roberta|bert, albert and modernbert are read" "$atoll" import --model roberta --write-config x.yaml
refused "albert/config.json describes another model|model.share_layers: false here, true there" "$atoll" import --config bert.yaml --run.dir x $small \
    --model albert
refused "bert/config.json describes a BERT, and this configuration does not: model.share_layers = true" "$atoll" import --config bert.yaml --run.dir x \
    $small --model bert --model.share_layers true --model.embedding_size 8
"$atoll" import --config bert.yaml --run.dir imported $small --model bert >import.out 2>&1 || fail "atoll import of bert"
refused "imported/inner holds another model|model.share_layers: true here, false there" "$atoll" train --config albert.yaml $small --run.dir x \
    --run.init_from imported --data.train "words/train-0-*.bin" --data.pairs none --model.vocab_size 128 --log.progress none
echo "$cases cases of wrong input"
