#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# data.shards: own with two ranks, each in a directory that holds only its own files, as on a disk of its own. A run that starts
# again with two ranks ends with the same bits; one rank is refused, and so are ranks that list different files.
. "$(dirname "$0")/lib.sh"
needs_mpi
mpi_leaks
head -c 200000 text.txt >less.txt
"$atoll" data --out data --seq-len 32 --shard-tokens 50000 less.txt >data.out
mkdir disk0 disk1
mv data/train-0-0000.bin data/train-0-0002.bin disk0
mv data/train-0-0001.bin data/train-0-0003.bin disk1
cat >rank.sh <<'END'
cd "disk$OMPI_COMM_WORLD_RANK" && exec "$@"
END
files=train-0-0000.bin,train-0-0001.bin,train-0-0002.bin,train-0-0003.bin

# train RANKS DIR LIST [settings...]: an exit code
train() {
    ranks=$1 dir=$PWD/$2 list=$3
    shift 3
    code=0
    bounded mpirun -n "$ranks" sh rank.sh "$atoll" train --run.dir "$dir" --data.train "$list" --data.eval "$PWD/data/eval-*.bin" \
        --data.shards own --model.layers 1 --model.heads 2 --model.d_model 32 --model.max_seq_len 32 --train.seq_len 32 \
        --train.batch_tokens 128 --train.steps 20 --train.warmup_steps 2 --train.checkpoint_every 5 --train.checkpoint_keep 9 \
        --device.dtype f32 --device.threads 1 --log.progress none "$@" >"$dir.out" 2>&1 || code=$?
}
digest() { sed -n 's/.*"kind":"final".*"parameters":"\([0-9a-f]*\)".*/\1/p' "$1/metrics.jsonl" | tail -n 1; }

train 2 whole "$files"
[ "$code" -eq 0 ] || fail "two ranks with their own files: exit code $code"
grep -q '"shards":"0: train-0-0000.bin train-0-0002.bin; 1: train-0-0001.bin train-0-0003.bin"' whole/metrics.jsonl ||
    fail "the record does not list each rank's files"
train 2 again "$files" --train.steps 10 --train.lr_schedule none
train 2 again "$files" --train.lr_schedule none
train 2 straight "$files" --train.lr_schedule none
[ -n "$(digest straight)" ] && [ "$(digest again)" = "$(digest straight)" ] || fail "a run that starts again has other bits"
[ "$(digest whole)" != "$(digest straight)" ] || fail "train.lr_schedule changes nothing"
cp disk1/* disk0
train 1 again "$files" --train.lr_schedule none --train.steps 30
[ "$code" -eq 4 ] && grep -q "made by 2 ranks with data.shards = own" again.out || fail "another number of ranks: exit code $code"
train 2 lists "train-0-*.bin"
[ "$code" -ne 0 ] && grep -q "1 of 2 ranks list other files under data.train" lists.out || fail "different lists: exit code $code"
