#!/bin/sh
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
expect 4 "compressed (gzip)" "$atoll" data --out "$dir/x" "$dir/own.txt.gz"
expect 4 "No such file" "$atoll" data --out "$dir/x" "$dir/none"
expect 4 "name the text files" "$atoll" data --out "$dir/x"
expect 0 "Usage: atoll data" "$atoll" data --help
expect 4 "not a readable file" "$prepare" --text "$dir/none" "$dir/y"
expect 4 "unknown option" "$prepare" --txt "$dir/none" "$dir/y"
