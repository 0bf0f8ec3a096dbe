#!/bin/sh
# The example deploy/examples/one_site.c beside `atoll train`. What breaks if this fails: the walk that a newcomer reads is not what
# the program does.
. "$(dirname "$0")/lib.sh"
one_site=$(cd "$(dirname "$3")" && pwd)/$(basename "$3")
model="--model.layers 2 --model.heads 2 --model.width 32 --model.context 32 --model.vocab 256 --train.sequence 32 --train.batch_tokens 256
    --train.micro_batch_tokens 64 --train.steps 20 --train.warmup 4 --train.lr 0.01 --train.eval_tokens 2048 --device.threads 1"
alike() { # alike WHAT SETTING...: every loss of the example is the program's
    what=$1
    shift
    rm -rf run
    "$one_site" text.txt shards $model "$@" >example.out 2>&1 || fail "the example, $what: exit code $?"
    "$atoll" train --run.dir run --data.train 'shards/train-0-*.bin' --data.eval 'shards/eval-*.bin' --device.dtype f32 \
        --log.progress none $model "$@" >train.out 2>&1 || fail "atoll train, $what: exit code $?"
    sed -n 's/^step=[0-9]* loss=//p; s/^held_out loss=//p' example.out >example.losses
    sed -n 's/.*"kind":"step",.*"loss":\([0-9.]*\),.*/\1/p' run/metrics.jsonl >train.losses
    sed -n 's/.*"kind":"eval",.*"loss":\([0-9.]*\),.*/\1/p' run/metrics.jsonl | tail -n 1 >>train.losses
    [ "$(wc -l <train.losses)" -eq 21 ] || fail "$(wc -l <train.losses) losses of atoll train, wanted 20 and one held out"
    cmp example.losses train.losses || fail "other losses, $what"
}
alike "the defaults"
alike "a Llama with LAMB" --model.norm rms --model.positions rope --model.activation swiglu --train.optimizer lamb --train.trust_layers hidden
first=$(sed -n 's/^step=1 loss=//p' example.out) last=$(sed -n 's/^held_out loss=//p' example.out)
awk "BEGIN { exit !($last < 0.8 * $first) }" || fail "nothing was learnt: $first at the first step, $last held out"
code=0
"$one_site" text.txt shards --train.step 20 >wrong.out 2>&1 || code=$?
[ $code -eq 4 ] && grep -q 'train.steps' wrong.out || fail "a wrong key: exit code $code"
echo "example: held out $last after 20 steps, the losses of atoll train"
