#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a checkpoint that went through safetensors (atoll export --checkpoint, atoll import --checkpoint) trains
# on with other bits, its moments stand next to the wrong parameters, or files of two exports pass for one.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || {
    echo "SKIPPED: no python3 here"
    exit 77
}
files="python3 $here/checkpoint_files.py"
head -c 120000 text.txt >some.txt
"$atoll" data --out data --seq-len 32 some.txt >data.out 2>&1 || fail "atoll data"
small="--model.layers 2 --model.heads 2 --model.d_model 32 --model.max_seq_len 32 --train.seq_len 32 --train.batch_tokens 128 --train.warmup_steps 0
    --train.eval_tokens 256 --device.threads 1 --device.dtype f32 --data.train data/train-0-*.bin --data.eval data/eval-*.bin
    --train.checkpoint_every 2 --run.seed 7"
run() { # run DIR STEPS: what the training ends with
    "$atoll" train --run.dir "$1" --train.steps "$2" $small $model >run.out 2>&1 || fail "training in $1: $model" >&2
    sed -n 's/.*ev=final .*parameters=\([0-9a-f]*\).*/\1/p' run.out
}
export_checkpoint() { "$atoll" export --checkpoint --run.dir "$1" --out "$2" $small $model >export.out 2>&1 || fail "export of $1: $model"; }
import_checkpoint() { "$atoll" import --checkpoint "$1" --run.dir "$2" $small $model >import.out 2>&1; }

round_trip() { # round_trip NAME: through files and back, then on
    model=$2
    run "$1" 2 >/dev/null
    export_checkpoint "$1" "$1.hf"
    import_checkpoint "$1.hf" "$1.back" || fail "import of $1"
    cmp "$1/inner/00000002/state" "$1.back/inner/00000002/state" || fail "$1: another checkpoint came back"
    [ "${3:-}" = no_further ] && return # train.compress_start ties it to train.steps
    on=$(run "$1" 4) back=$(run "$1.back" 4)
    [ -n "$on" ] && [ "$on" = "$back" ] || fail "$1: parameters $on, and $back after the files"
    $files names "$1.hf" || fail "$1: names"
}
gpt2="--model.positions learned --model.norm layer --model.activation gelu --model.bias true --model.tie_embeddings true"
llama="--model.positions rope --model.norm rms --model.activation swiglu --model.bias false --model.kv_heads 1"
round_trip gpt2 "$gpt2 --train.optimizer adamw --train.lr 0.01 --train.weight_decay 0 --train.lr_schedule exponential --train.lr_decay_factor 1 --train.min_lr_ratio 0 --train.max_grad_norm 0"
round_trip llama "$llama --train.optimizer lamb"
for optimizer in qhadam lans muon merit came; do round_trip "$optimizer" "$gpt2 --train.optimizer $optimizer --train.max_grad_norm 0"; done
round_trip sparse "$gpt2 --train.optimizer adamw --train.compress sparse" no_further

# Values: a step further, by Adam's formula from the files alone.
model="$gpt2 --train.optimizer adamw --train.lr 0.01 --train.weight_decay 0 --train.lr_schedule exponential --train.lr_decay_factor 1 --train.min_lr_ratio 0 --train.max_grad_norm 0"
run gpt2.back 5 >/dev/null
export_checkpoint gpt2 before.hf
export_checkpoint gpt2.back after.hf
$files adam before.hf after.hf 0.01 || fail "the moments are not those of the parameters"

# What is refused: a changed bit, files of two exports, another model, another seed, a directory in use, half a bit.
refused() { # refused WORDS COMMAND...: exit code 4 and these words
    words=$1 code=0
    shift
    "$@" >refused.out 2>&1 || code=$?
    [ "$code" = 4 ] && grep -q "$words" refused.out || fail "exit code $code without \"$words\" from: $*"
}
again() { "$atoll" import --checkpoint "$1" --run.dir other $small $model "$2" "$3"; }
seed="--run.seed 7"
cp -r before.hf bit.hf && $files flip bit.hf/optimizer.safetensors transformer.wte.weight.exp_avg
refused '"m" is not as it was written' again bit.hf $seed
cp -r before.hf mixed.hf && cp after.hf/optimizer.safetensors mixed.hf/
refused '"params" is not as it was written.*different exports' again mixed.hf $seed
refused "another model\|other tensors" again before.hf --model.d_model 64
refused "run.seed: 8 here, 7 there" again before.hf --run.seed 8
refused "train.optimizer: lamb here, adamw there" again before.hf --train.optimizer lamb
again before.hf $seed >import.out 2>&1 || fail "an import that nothing speaks against"
refused "holds checkpoints of a run already" again before.hf $seed
refused "optimizer.safetensors: no such file" again data $seed
cp -r before.hf config.hf && sed -i 's/"n_head": 2/"n_head": 4/' config.hf/config.json
refused "config.hf/config.json is not as it was written with config.hf/optimizer.safetensors" again config.hf $seed
cp before.hf/config.json config.hf/ && echo >>config.hf/config.json # a byte that says nothing
refused "config.hf/config.json is not as it was written" again config.hf $seed
rm config.hf/config.json
refused "config.hf/config.json: cannot open" again config.hf $seed
cp -r before.hf pipe.hf && rm pipe.hf/model.safetensors
refused "pipe.hf/model.safetensors: cannot open: No such file" again pipe.hf $seed
mkfifo pipe.hf/model.safetensors
refused "pipe.hf/model.safetensors: not a regular file" bounded "$atoll" import --checkpoint pipe.hf --run.dir pipe $small $model $seed
refused "leave --bf16" "$atoll" export --checkpoint --bf16 --run.dir gpt2 --out no.hf $small $model
refused "one of --model PATH and --checkpoint DIR" "$atoll" import --run.dir no $small $model

# A site of a run: inner is lost and comes back from the files; outer momentum and residual are still in frag.
configure a,b
undisturbed
wanted=$(final a)
rm -rf a b aggregator ./*.out
serve
sites_start a b
until_rounds a 2
kill -STOP "$b" # without it site a cannot end before the signal arrives
kill -INT "$a"
ends 75 "$a" "site a after Ctrl-C"
kill -CONT "$b"
"$atoll" export --checkpoint --config run.yaml --run.dir a --out site.hf >export.out 2>&1 || fail "export of a site"
grep -q "Not in it: the outer state (a/frag: .*an outer momentum of 0" export.out || fail "export does not say that the outer state is not in it"
rm -r a/inner
"$atoll" import --checkpoint site.hf --config run.yaml --run.dir elsewhere >import.out 2>&1 || fail "import elsewhere"
"$atoll" import --checkpoint site.hf --config run.yaml --run.dir a >import.out 2>&1 || fail "import of a site"
train a --run.dir elsewhere
ends 4 "$pid" "site a in a directory without its rounds"
grep -q "the rounds would begin again" a.out || fail "no word on rounds that would begin again"
sites_start a
sites_end 0 a b
serve_ends
[ "$(final a)" = "$wanted" ] || fail "site a ended at $(final a), undisturbed at $wanted"
echo "checkpoints through safetensors: bit-equal for seven optimizers and for sparse sums, and by Adam's formula"
