#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# FineWeb as GPT-2 tokens, ready to train on: one held-out shard and N for training, of 100 M tokens (200 MB) each.
#   deploy/fetch-shards.sh FOLDER [N]      default 1; 103 are the 10 G tokens of the GPT-2 124M that llm.c reproduces
# From huggingface.co/datasets/kjj0/fineweb10B-gpt2 or $SHARDS_URL; what is there already is not fetched again. Needs curl.
# Your own text with GPT-2's tokens: docs/data.md.
set -eu
url=${SHARDS_URL:-https://huggingface.co/datasets/kjj0/fineweb10B-gpt2/resolve/main}

fail() {
    echo "fetch-shards: $1" >&2
    exit "$2"
}
case ${1:-} in
-h | --help) sed -n '3,6s/^# *//p' "$0"; exit 0 ;;
"" | -*) fail "name a folder; see --help" 4 ;;
esac
folder=$1 count=${2:-1}
case $count in *[!0-9]* | "") fail "N is a number, not $count" 4 ;; esac
command -v curl >/dev/null || fail "needs curl: apt-get install curl" 4
mkdir -p "$folder"

# whole FILE: a header of 1,024 bytes (20240520, 1, number of ids) and two bytes for each id
whole() {
    header=$(od -An -tu4 -N12 "$1" | tr -s ' ')
    case $header in " 20240520 1 "*) ;; *) return 1 ;; esac
    [ "$(wc -c <"$1")" -eq $((1024 + 2 * ${header##* })) ]
}
fetch() {
    [ ! -e "$folder/$1" ] || return 0
    curl -fsSL --retry 5 -C - -o "$folder/$1.part" "$url/$1" || fail "$url/$1 cannot be had; run this again to continue" 2
    if ! whole "$folder/$1.part"; then
        rm "$folder/$1.part"
        fail "$url/$1 is no whole shard of GPT-2 tokens" 1
    fi
    mv "$folder/$1.part" "$folder/$1"
    echo "fetched  $folder/$1" >&2
}
fetch fineweb_val_000000.bin
i=1
while [ "$i" -le "$count" ]; do
    fetch "$(printf 'fineweb_train_%06d.bin' "$i")"
    i=$((i + 1))
done
echo "data     --data.train '$folder/fineweb_train_*.bin' --data.eval '$folder/fineweb_val_*.bin'" >&2
