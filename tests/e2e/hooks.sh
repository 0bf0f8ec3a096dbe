#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: run.after_checkpoint delays a step, copies a checkpoint that is removed meanwhile, lets a file name become
# a command, or ends the run; data.fetch takes half a file for a shard, or a run ends where it should wait for one.
. "$(dirname "$0")/lib.sh"
head -c 60000 text.txt >some.txt
"$atoll" data --out data --seq-len 32 some.txt >data.out 2>&1 || fail "atoll data"
cat >run.yaml <<END
run: {name: e2e, seed: 5}
model: {layers: 1, heads: 2, d_model: 32, max_seq_len: 32}
data: {train: [data/train-0-0000.bin], eval: [data/eval-0000.bin]}
train: {steps: 30, seq_len: 32, batch_tokens: 256, warmup_steps: 0, checkpoint_every: 5, checkpoint_keep: 1, eval_tokens: 512}
device: {dtype: f32, threads: 1}
END
run() { # run DIR ARGUMENTS...: the digest at the end
    dir=$1
    shift
    "$atoll" train --config run.yaml --run.dir "$dir" "$@" >run.out 2>&1 || fail "training in $dir: $*" >&2
    sed -n 's/.*ev=final .*parameters=\([0-9a-f]*\).*/\1/p' run.out
}
hook() { # hook STEP: its last record in $run_dir
    grep "\"kind\":\"hook\".*\"step\":$1," "$run_dir/metrics.jsonl" | tail -n 1
}

alive() { grep -qs '^State:.[^Z]' "/proc/$1/status"; } # a zombie is no process

# The object store is a folder. The first copy, of step 5 unless the machine is busy, takes longer than all 30 steps. The directory's
# name would be a command in a shell.
cat >put.sh <<'END'
set -eu
env | grep ^ATOLL_ | sort >"env.$ATOLL_STEP"
ls /proc/self/fd | wc -l >"files.$ATOLL_STEP"
if [ ! -e first ]; then
    echo "$ATOLL_STEP" >first
    until grep -q "ev=eval step=30" run.out; do sleep 0.1; done
fi
mkdir -p store
cp -r "$ATOLL_CHECKPOINT" store/
echo "stored $ATOLL_STEP"
END
run_dir='a $(touch hacked); touch hacked'
export ATOLL_SECRET=1
whole=$(run "$run_dir" --run.after_checkpoint "sh put.sh")
[ -n "$whole" ] || fail "no digest"
[ ! -e hacked ] || fail "the name of a directory became a command"
at() { sed -n "s/^ts=\([^ ]*\) .*ev=$1.*/\1/p" run.out | head -n 1; }
first=$(cat first)
[ "$first" -lt 25 ] || again "the first command began at step $first"
[ "$(printf '%s\n' "$(at 'checkpoint step=30')" "$(at "after_checkpoint step=$first exit")" | sort | head -n 1)" = "$(at 'checkpoint step=30')" ] || fail "a step waited for the command"
stored=$(printf %08d "$first")
[ -e "store/$stored/state" ] && [ -e store/00000030/state ] || fail "the store has $(ls store)"
[ "$(ls store | wc -l)" = 2 ] || fail "the store has $(ls store)"
unread=$([ "$first" = 10 ] && echo 00000015 || echo 00000010)
[ ! -e "$run_dir/inner/$unread" ] || fail "checkpoints that no command reads stay: $(ls "$run_dir/inner")"
hook "$first" | grep -q '"exit":0,"tries":1,"replaced":0' || fail "the record of step $first: $(hook "$first")"
hook 25 | grep -q '"replaced":1' || fail "the record of step 25: $(hook 25)"
hook 30 | grep -q '"exit":0,"tries":1,"replaced":0' || fail "the record of step 30: $(hook 30)"
[ "$(grep -c stored "$run_dir/after_checkpoint.log")" = 2 ] || fail "the output of the command"
printf '%s\n' "ATOLL_CHECKPOINT=$PWD/$run_dir/inner/00000030" ATOLL_ROUND=0 ATOLL_RUN=e2e ATOLL_SITE= ATOLL_STEP=30 ATOLL_TRY=1 |
    cmp - env.30 || fail "the environment: $(cat env.30)"
[ "$(cat files.30)" -le 4 ] || fail "the command has $(cat files.30) open files"

# From the store alone a new directory continues with the same bits.
mkdir -p back/inner && cp -r "store/$stored" back/inner/
[ "$(run back)" = "$whole" ] || fail "a run from the store ends elsewhere"

# A command that fails, one that hangs, one that never ends: the run does not care.
run_dir=b
[ "$(run b --run.after_checkpoint '[ $ATOLL_STEP != 30 ] || [ $ATOLL_TRY = 2 ] || { echo no room; exit 3; }')" = "$whole" ] ||
    fail "a failing command"
hook 30 | grep -q '"exit":0,"tries":2' || fail "the record of a failing command: $(hook 30)"
[ "$(run c --run.after_checkpoint '[ $ATOLL_TRY = 2 ] || { sleep 1000 & echo $! >sleep.pid; wait; }' --run.after_checkpoint_timeout_s 2 \
    --train.checkpoint_every 30)" = "$whole" ] || fail "a hanging command"
if alive "$(cat sleep.pid)"; then fail "what a hanging command started is still there"; fi
# The last checkpoint's command has its own time, not what an older one left of it.
run_dir=e
[ "$(run e --run.after_checkpoint '[ $ATOLL_STEP = 30 ] || exec sleep 1000' --run.after_checkpoint_timeout_s 2)" = "$whole" ] ||
    fail "a hanging command of an older checkpoint"
hook 30 | grep -q '"exit":0,"tries":1' || fail "the record of the last checkpoint: $(hook 30)"
"$atoll" train --config run.yaml --run.dir d --train.steps 1000000 --run.after_checkpoint 'echo $$ >d.pid; exec sleep 1000' >d.out 2>&1 &
pid=$!
processes="$processes $pid"
until_lines 1 "ev=checkpoint step=10" d.out
until [ -s d.pid ]; do sleep 0.05; done
kill -INT $pid
until_lines 1 "waiting for the command of the last checkpoint, 30 s" d.out
kill -INT $pid
wait $pid 2>/dev/null || :
await "the command outlives the second Ctrl-C" '! alive "$(cat d.pid)"'

# Shards that are not there yet: the run waits, and begins when they are. Half a file is none.
mkdir bucket
fetch='[ -e "bucket/${ATOLL_SHARD##*/}" ] || { head -c 2000 data/train-0-0000.bin >"$ATOLL_TARGET"; echo not yet; exit 2; }
    cp "bucket/${ATOLL_SHARD##*/}" "$ATOLL_TARGET"'
"$atoll" train --config run.yaml --run.dir e --data.train cold/train-0-0000.bin --data.eval cold/eval-0000.bin --data.fetch "sh -c '$fetch'" \
    >e.out 2>&1 && fail "a command with a line break is accepted"
fetch=$(echo "$fetch" | tr '\n' ' ' | sed 's/exit 2; }/exit 2; };/')
"$atoll" train --config run.yaml --run.dir e --data.train cold/train-0-0000.bin --data.eval cold/eval-0000.bin --data.fetch "$fetch" \
    >e.out 2>&1 &
pid=$!
processes="$processes $pid"
until_lines 1 'output="not yet" text="the run waits for this file' e.out
cp data/*.bin bucket/
ends 0 $pid "the run that waited"
[ "$(sed -n 's/.*ev=final .*parameters=\([0-9a-f]*\).*/\1/p' e.out)" = "$whole" ] || fail "with fetched shards the run ends elsewhere"
[ "$(ls cold)" = "$(printf 'eval-0000.bin\ntrain-0-0000.bin')" ] || fail "in the folder of the shards: $(ls cold)"
# A command that leaves a directory, a pipe, or only hostile bytes; then a link, to a path with a blank.
fetch='case $ATOLL_TRY in 1) mkdir "$ATOLL_TARGET"; touch "$ATOLL_TARGET/x" ;; 2) mkfifo "$ATOLL_TARGET"; printf "\033[2J\377\233 ev=forged\r" ;;
    *) ln -s "$PWD/bucket/train-0-0000.bin" "$ATOLL_TARGET" ;; esac'
"$atoll" train --config run.yaml --run.dir h --data.train "cold/a b.bin" --data.fetch "$(printf %s "$fetch" | tr "\n" " ")" >h.out 2>&1 ||
    fail "a run whose command left a directory first"
[ "$(sed -n 's/.*ev=final .*parameters=\([0-9a-f]*\).*/\1/p' h.out)" = "$whole" ] || fail "with a link to a shard the run ends elsewhere"
grep -q 'ev=fetch shard="cold/a b.bin" exit=0 tries=1 output="it left no file ATOLL_TARGET; "' h.out || fail "no word on a directory"
grep -qF 'exit=0 tries=2 output="it left no file ATOLL_TARGET; \x1b[2J\xff\x9b ev=forged\r"' h.out || fail "the bytes of a command are not escaped"
"$atoll" train --config run.yaml --run.dir f --data.train none/x.bin --data.fetch "exit 1" >f.out 2>&1 &
pid=$!
processes="$processes $pid"
until_lines 1 'the run waits for this file' f.out
kill -INT $pid
ends 75 $pid "a run that waits for a shard, after Ctrl-C"
"$atoll" train --config run.yaml --run.dir i --data.train none/x.bin --data.fetch_timeout_s 1 --data.fetch "trap '' TERM; sleep 30 & wait; sleep 30" \
    >i.out 2>&1 & # hangs, and does not end when it is told to
pid=$!
processes="$processes $pid"
until_lines 1 'exit=137 tries=1' i.out
kill -INT $pid
ends 75 $pid "a run whose command hangs, after Ctrl-C"
code=0
"$atoll" train --config run.yaml --run.dir g --data.train none/x.bin >g.out 2>&1 || code=$?
[ $code = 4 ] || fail "exit code $code without a shard and without data.fetch"
echo "hooks: no step waits, checkpoints stay while they are copied, the store alone continues; missing shards are waited for"
