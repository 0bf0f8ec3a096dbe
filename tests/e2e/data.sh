#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a text file to shards through the two commands a person types, and the exit codes of what goes wrong.
# $1: the program, $2: a scratch directory
set -eu
atoll=$1 dir=$2
prepare=$(dirname "$0")/../../deploy/prepare-text.sh
rm -rf "$dir"
mkdir -p "$dir"

expect() { # expect CODE WORDS COMMAND...: it ends with that code and says these words
    code=$1 words=$2
    shift 2
    status=0
    "$@" >"$dir/said" 2>&1 || status=$?
    if [ "$status" -ne "$code" ] || ! grep -q -- "$words" "$dir/said"; then
        echo "wanted exit code $code and \"$words\", got $status from: $*"
        cat "$dir/said"
        exit 1
    fi
}

i=0
while [ $i -lt 2000 ]; do
    printf 'Entry %d of a small text.\nIts second line.\n\n' $i
    i=$((i + 1))
done | gzip >"$dir/own.txt.gz"

expect 0 "bytes in" "$prepare" --text "$dir/own.txt.gz" "$dir/text"
[ "$(grep -c '^Entry' "$dir/text")" -eq 2000 ]
expect 0 "train, site 1" "$atoll" data --out "$dir/shards" --sites 2 "$dir/text"
[ -s "$dir/shards/train-0-0000.bin" ] && [ -s "$dir/shards/train-1-0000.bin" ] && [ -s "$dir/shards/eval-0000.bin" ]
expect 4 "already there" "$atoll" data --out "$dir/shards" "$dir/text"
expect 0 "train, site 0" "$atoll" data --out "$dir/shards" --force "$dir/text"
[ ! -e "$dir/shards/train-1-0000.bin" ]
expect 4 "the nearest is --sites" "$atoll" data --out "$dir/x" --stes 2 "$dir/text"
expect 0 "train, site 0" "$atoll" data --out "$dir/packed" "$dir/own.txt.gz"
expect 0 "train, site 0" "$atoll" data --out "$dir/plain" "$dir/text"
expect 4 "No such file" "$atoll" data --out "$dir/x" "$dir/none"
expect 4 "name the text files" "$atoll" data --out "$dir/x"
expect 0 "Usage: atoll data" "$atoll" data --help
expect 4 "not a readable file" "$prepare" --text "$dir/none" "$dir/y"
expect 4 "unknown option" "$prepare" --txt "$dir/none" "$dir/y"

# ---- tokenizers ----
# Learned, the same for every number of threads; then text in, a run, and text out.
for threads in 1 3; do
    OMP_NUM_THREADS=$threads "$atoll" data --tokenizer wordpiece --learn 120 --out "$dir/words$threads" --sites 2 "$dir/text" >"$dir/said"
done
grep -q "2000 documents, a vocabulary of" "$dir/said"
for file in tokenizer.json vocab.txt train-0-0000.bin train-1-0000.bin eval-0000.bin data.json; do
    cmp "$dir/words1/$file" "$dir/words3/$file"
done
grep -q "$(sha256sum <"$dir/words1/tokenizer.json" | cut -c1-64)" "$dir/words1/data.json"
expect 4 "has no room" "$atoll" data --tokenizer bpe --learn 100 --out "$dir/x" "$dir/text"
expect 4 "give --learn N" "$atoll" data --tokenizer wordpiece --out "$dir/x" "$dir/text"
expect 4 "--learn needs --tokenizer" "$atoll" data --learn 300 --out "$dir/x" "$dir/text"
printf 'good\nbad \377 byte\n' >"$dir/latin"
expect 4 "latin: line 2, byte 5 is not UTF-8" "$atoll" data --tokenizer "$dir/words1" --out "$dir/x" "$dir/latin"

# A dictionary with a byte that is not UTF-8: what comes out is, and a tokenizer takes it.
i=0
while [ $i -lt 400 ]; do
    printf 'Entry%d \\En"try\\, n.\n   A sm\351ll text, number %d. [1913 Webster]\n\n' $i $i
    i=$((i + 1))
done | gzip >"$dir/small.dict.dz"
expect 0 "bytes in" "$prepare" --dictionary "$dir/small.dict.dz" "$dir/dictionary"
[ "$(grep -c '^Entry.*, n' "$dir/dictionary")" -eq 400 ]
expect 0 "train, site 0" "$atoll" data --tokenizer "$dir/words1" --out "$dir/dictionary_ids" "$dir/dictionary"

# A directory, with compressed files in it: sorted, each file a document.
mkdir -p "$dir/many/b" "$dir/many/a"
head -c 20000 "$dir/text" | gzip >"$dir/many/b/one.txt.gz"
head -c 20000 "$dir/text" >"$dir/many/a/two.txt"
expect 0 "2 documents, a vocabulary of" "$atoll" data --tokenizer bpe --learn 300 --out "$dir/bpe" "$dir/many"
cat >"$dir/run.yaml" <<EOF
run:
  dir: $dir/run
data:
  train: ["$dir/bpe/train-0-*.bin"]
  tokenizer: external
model:
  vocab_size: 300
  layers: 1
  heads: 2
  d_model: 32
  max_seq_len: 32
train:
  seq_len: 32
  batch_tokens: 128
  steps: 20
  warmup_steps: 2
EOF
expect 0 "all 20 steps done" "$atoll" train --config "$dir/run.yaml"
expect 0 "^Entry 1" "$atoll" sample --config "$dir/run.yaml" --prompt "Entry 1" --tokens 8
expect 0 "^[0-9 ]*$" "$atoll" sample --config "$dir/run.yaml" --ids 1,2 --tokens 8
rm "$dir/bpe/tokenizer.json"
expect 4 "name one with --tokenizer" "$atoll" sample --config "$dir/run.yaml" --prompt "Entry 1"

# ---- kinds of files, by name and first bytes ----
(printf 'PAR1'; head -c 40000 /dev/urandom; printf 'PAR1') >"$dir/r.parquet"
expect 4 "a Parquet file, and text in UTF-8 is expected; docs/data.md 1.3 converts it" "$atoll" data --out "$dir/x" "$dir/r.parquet"
head -c 40000 /dev/urandom >"$dir/noise"
expect 4 "this is no text; or --bytes takes the bytes of any file" "$atoll" data --out "$dir/x" "$dir/noise"
expect 0 "train, site 0" "$atoll" data --bytes --out "$dir/noise_bytes" "$dir/noise"
expect 4 "give one of them" "$atoll" data --bytes --tokenizer "$dir/words1" --out "$dir/x" "$dir/noise"
mkdir "$dir/kinds"
head -c 4000 "$dir/text" >"$dir/kinds/a.txt"
awk 'BEGIN { for (i = 0; i < 300; i++) printf "{\"text\": \"Entry %d of a small text.\"}\n", i }' | gzip >"$dir/kinds/b.jsonl.gz"
awk 'BEGIN { print "owner,label,text"; for (i = 0; i < 300; i++) printf "p%d,%s,\"A small text,\n of a \"\"table\"\".\"\n", i / 5, i % 2 ? "x" : "y" }' \
    >"$dir/kinds/c.csv"
expect 0 "601 documents, a vocabulary of" "$atoll" data --tokenizer "$dir/words1" --field text --out "$dir/kinds_ids" "$dir/kinds"
expect 0 "60 owners" "$atoll" data --tokenizer "$dir/words1" --documents --owner-field owner --out "$dir/kinds_owned" "$dir/kinds/c.csv"
expect 0 "60 owners" "$atoll" data --tokenizer "$dir/words1" --labels --out "$dir/kinds_labels" "$dir/kinds/c.csv"
expect 4 'no column "diagnosis"' "$atoll" data --tokenizer "$dir/words1" --labels --csv label=diagnosis --out "$dir/x" "$dir/kinds/c.csv"
expect 4 "are for --labels" "$atoll" data --csv label=label --out "$dir/x" "$dir/kinds/c.csv"
expect 4 "is not ROLE=COLUMN" "$atoll" data --csv text --out "$dir/x" "$dir/kinds/c.csv"
printf 'x\tone\nx\ttwo\ny\tone\ttwo\n' >"$dir/tab.tsv"
expect 4 "2 lines have one text" "$atoll" data --tokenizer "$dir/words1" --labels --out "$dir/x" "$dir/tab.tsv"
