#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deploy/examples/one_site.c, the inner library without outer/: each loss, the held-out loss and every bit of the final parameters
# are those of `atoll train` with the same settings.
. "$(dirname "$0")/lib.sh"
one_site=$(cd "$(dirname "$atoll")/../examples" && pwd)/one_site

same() { # same NAME SETTING...
    name=$1
    shift
    "$one_site" text.txt "$name" --train.steps 24 "$@" >"$name.out" 2>&1 || fail "one_site $*"
    "$atoll" train --run.dir "$name-train" --data.train "$name/train-0-*.bin" --data.eval "$name/eval-*.bin" --train.steps 24 \
        --model.vocab_size 256 --model.layers 4 --model.heads 4 --model.d_model 128 --train.seq_len 128 --train.batch_tokens 2048 \
        --train.optimizer lamb --train.lr 0.01 --train.warmup_steps 20 --train.eval_tokens 1000000 --device.dtype f32 --device.threads 1 \
        --log.progress none "$@" >"$name-train.out" 2>&1 || fail "atoll train $*"
    sed -n 's/^step \([0-9]*\) loss \([^ ]*\) .*/\1 \2/p; s/^held-out loss \([^ ]*\) .*/eval \1/p' "$name.out" >walked
    sed -n 's/.*"kind":"step".*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$name-train/metrics.jsonl" >trained
    sed -n 's/.*"kind":"eval".*"step":24,"loss":\([^,]*\),.*/eval \1/p' "$name-train/metrics.jsonl" >>trained
    [ "$(wc -l <walked)" -eq 25 ] || fail "$name: one_site printed $(wc -l <walked) losses"
    cmp -s walked trained || fail "$name: losses of one_site and of atoll train: $(diff walked trained)"
    "$atoll" export --from "$name-train" --out "$name-export" >export.out 2>&1 || fail "$name: atoll export"
    cmp "$name/model.safetensors" "$name-export/model.safetensors" || fail "$name: other parameters"
}
same lamb
same adamw --train.optimizer adamw --train.lr 0.001 --model.norm rms --model.positions rope --model.activation swiglu

code=0
"$one_site" text.txt bad --model.heads 3 >refused.out 2>&1 || code=$?
[ $code -eq 4 ] || fail "three heads of a width of 128: exit code $code"
grep -q "model.heads" refused.out || fail "no word about the heads"
