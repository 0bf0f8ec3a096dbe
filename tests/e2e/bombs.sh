#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A compressed file of little more than nothing becomes shards in the memory that a small file takes: foreign bytes are bounded
# before they are expanded. What a file expands to lies on disk, and is gone afterwards. $1: the program, $2: a scratch directory
set -eu
atoll=$1 dir=$2 limit_kib=65536
rm -rf "$dir"
mkdir -p "$dir"
cd "$dir"
export OMP_NUM_THREADS=2

fail() {
    echo "$*"
    exit 1
}
limited() { # COMMAND...: memory of its own (not mappings of files) has that many KiB
    (ulimit -d $limit_kib && exec "$@")
}

printf '[UNK]\none\ntwo\nthree\nfour\n' >vocab.txt
yes 'one two three four' | head -n 5000 >small.txt
limited "$atoll" data --out small --tokenizer vocab.txt small.txt >said 2>&1 || {
    echo "skipped: this build does not run within $limit_kib KiB (a sanitizer?): $(head -1 said)"
    exit 77
}
limited python3 -c 'x = bytearray(80 << 20)' 2>/dev/null && { echo "skipped: ulimit -d limits nothing here"; exit 77; }

# name, lines of text, arguments: each is more than the limit, and packed less than one
make() { yes "$2" | head -n "$3" | "$4" -c >"$1"; }
packers="gzip"
command -v zstd >/dev/null && packers="gzip zstd"
for packer in $packers; do
    end=$([ $packer = gzip ] && echo gz || echo zst)
    make plain.txt.$end 'one two three four' 3900000 $packer
    make lines.jsonl.$end '{"text": "one two three four"}' 2300000 $packer
    [ "$(stat -c %s plain.txt.$end)" -lt 1000000 ] || fail "the file is no bomb"
    for how in "plain.txt.$end" "--tokenizer vocab.txt plain.txt.$end" "--tokenizer vocab.txt --field text lines.jsonl.$end"; do
        limited "$atoll" data --out o --force --seq-len 8 --shard-tokens 1000000 $how >said 2>&1 || fail "$how: $(head -1 said)"
        grep -q 'train, site 0' said || fail "$how: no report"
    done
done
[ "$(ls -A o | grep -c spill)" -eq 0 ] || fail "a file of expanded text is left: $(ls -A o)"

# What must stay together has a limit of its own, and the message names it.
head -c 70000001 /dev/zero | tr '\0' a | gzip -c >word.txt.gz
limited "$atoll" data --out o --force --seq-len 8 --shard-tokens 1000000 --tokenizer vocab.txt word.txt.gz >said 2>&1 && fail "a word of 70 MB is taken"
grep -q 'word.txt.gz: byte 1: 70000001 bytes that must stay together' said || fail "the word is not named: $(head -1 said)"

# A disk that is too small is said so, and nothing is left.
(trap '' XFSZ && ulimit -f 20000 && exec "$atoll" data --out full --seq-len 8 plain.txt.gz) >said 2>&1 && fail "a full disk is not noticed"
grep -q 'plain.txt.gz: .*cannot write after .* bytes of expanded data' said || fail "the disk is not named: $(head -1 said)"
[ ! -d full ] || [ -z "$(ls -A full)" ] || fail "something is left: $(ls -A full)"
echo "bombs: fine"
