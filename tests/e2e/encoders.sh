#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: an encoder of Hugging Face computes other logits after its import, or is not the same file after its
# export. The models and the logits are transformers' (tests/golden); deploy/check-export.py asks the package itself.
. "$(dirname "$0")/lib.sh"

encoders="python3 $repository/tests/e2e/encoders.py"
for family in bert albert modernbert; do
    golden=$repository/tests/golden/$family
    $encoders write "$golden" $family || fail "no $family"
    "$atoll" import --model $family --write-config $family.yaml >>import.out 2>&1 || fail "atoll import --write-config of $family"
    model="--config $family.yaml --run.dir run_$family --train.seq_len 16 --train.batch_tokens 64 --device.dtype f32"
    echo "[PAD] $family" >$family/vocab.txt
    "$atoll" import $model --model $family >>import.out 2>&1 || fail "atoll import of $family"
    if grep 'has none of them\|left out' import.out; then fail "heads of $family"; fi
    $encoders compare "$golden" "$atoll" $model || fail "logits of $family"
    "$atoll" export $model --out again_$family >>export.out 2>&1 || fail "atoll export of $family"
    cmp $family/vocab.txt again_$family/vocab.txt || fail "the vocabulary of $family was not copied"
    "$atoll" import $model --run.dir back_$family --model again_$family >>import.out 2>&1 || fail "import of the exported $family"
    "$atoll" export $model --run.dir back_$family --out third_$family >>export.out 2>&1 || fail "second export of $family"
    cmp again_$family/model.safetensors third_$family/model.safetensors || fail "$family changes on its way"
    cmp again_$family/config.json third_$family/config.json || fail "config.json of $family changes on its way"
done

# Masked training's file as the start of fine-tuning: what only one side has is named.
"$atoll" import --config bert.yaml --run.dir tune --train.seq_len 16 --train.batch_tokens 64 --model bert --model.head plain \
    --model.classes 3 --data.objective labels --data.pairs none >tune.out 2>&1 || fail "atoll import for labels"
grep -q 'heads="classes.0" why="bert has none of them: they start from run.seed' tune.out || fail "the head that starts from the seed"
grep -q 'heads="mlm, pair" why="bert has them and this model does not' tune.out || fail "the heads that are left out"

# A model of another family, and text from an encoder, are refused.
refused() { # refused WORDS COMMAND...: exit code 4 and these words
    words=$1 code=0
    shift
    "$@" >refused.out 2>&1 || code=$?
    [ "$code" = 4 ] && grep -q "$words" refused.out || fail "exit code $code without \"$words\" from: $*"
}
refused "describes another model than this configuration" "$atoll" import --config bert.yaml --run.dir other --train.seq_len 16 \
    --train.batch_tokens 64 --model albert
refused "an encoder writes no text" "$atoll" sample --config bert.yaml --run.dir run_bert --train.seq_len 16 \
    --train.batch_tokens 64 --ids 1,2
echo "encoders: ok"
