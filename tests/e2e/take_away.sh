#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model taken elsewhere and back: import, export, sample, train on. The file we write is byte for byte what the reference
# writer of safetensors made of the same model (tests/golden/gpt); that transformers computes the same logits is
# deploy/check-export.py.
. "$(dirname "$0")/lib.sh"

golden=$repository/tests/golden/gpt/model.safetensors
model="--run.dir run --data.tokenizer external --model.vocab_size 48 --model.d_model 16 --model.layers 2 --model.heads 2
       --model.max_seq_len 12 --train.seq_len 12 --train.batch_tokens 48 --train.steps 3 --train.warmup_steps 0 --device.dtype f32"
refused() { # refused WORDS COMMAND...: exit code 4 and these words
    words=$1 code=0
    shift
    "$@" >refused.out 2>&1 || code=$?
    [ "$code" = 4 ] && grep -q "$words" refused.out || fail "exit code $code without \"$words\" from: $*"
}

"$atoll" import $model --model "$golden" >import.out 2>&1 || fail "atoll import"
"$atoll" export $model --out gpt2 >export.out 2>&1 || fail "atoll export"
cmp gpt2/model.safetensors "$golden" || fail "the exported file differs"
grep -q '"n_embd": 16' gpt2/config.json || fail "config.json"
"$atoll" export $model --out half --bf16 >>export.out 2>&1 || fail "atoll export --bf16"
[ "$(wc -c <half/model.safetensors)" -lt "$(wc -c <"$golden")" ] || fail "bf16 is not smaller"

# The logits after the first golden sequence, to 1e-5.
ids=$(sed -n 's/^tokens0 [0-9]* //p' "$repository/tests/golden/gpt/values.txt" | cut -d' ' -f1-12 | tr ' ' ,)
"$atoll" sample $model --ids "$ids" --logits >logits 2>sample.out || fail "atoll sample --logits"
sed -n 's/^logits [0-9]* //p' "$repository/tests/golden/gpt/values.txt" | tr ' ' '\n' | head -n 48 >wanted
paste logits wanted | awk '{ d = $1 - $2; if (d > 1e-5 || d < -1e-5) exit 1 } END { exit NR != 48 }' || fail "logits"
"$atoll" sample $model --ids 1,2 --tokens 20 >once.out && "$atoll" sample $model --ids 1,2 --tokens 20 >twice.out
cmp once.out twice.out || fail "the same seed writes another text"

# A Llama likewise: there and back is the same file, and the logits are those of LlamaForCausalLM.
golden_llama=$repository/tests/golden/llama/model.safetensors
llama="$model --run.dir llama --model.heads 4 --model.kv_heads 2 --model.norm rms --model.norm_eps 1e-3 --model.positions rope
       --model.rope_theta 100 --model.activation swiglu --model.d_ff 40 --model.bias false --model.tie_embeddings false"
"$atoll" import $llama --model "$golden_llama" >>import.out 2>&1 || fail "atoll import of a Llama"
"$atoll" export $llama --out hf >>export.out 2>&1 || fail "atoll export of a Llama"
cmp hf/model.safetensors "$golden_llama" || fail "the exported Llama differs"
grep -q '"num_key_value_heads": 2' hf/config.json || fail "config.json of a Llama"
"$atoll" sample $llama --ids "$ids" --logits >logits 2>sample.out || fail "atoll sample --logits of a Llama"
sed -n 's/^logits [0-9]* //p' "$repository/tests/golden/llama/values.txt" | tr ' ' '\n' | head -n 48 >wanted
paste logits wanted | awk '{ d = $1 - $2; if (d > 1e-5 || d < -1e-5) exit 1 } END { exit NR != 48 }' || fail "logits of a Llama"
"$atoll" sample $llama --ids 1,2 --tokens 20 >once.out || fail "atoll sample of a Llama, beyond its context"
refused "model.kv_heads: 0 here, 2 there" "$atoll" eval $llama --model.kv_heads 0
refused "model.tie_embeddings: true here, false there" "$atoll" eval $llama --model.tie_embeddings true
refused "not GPT-2 (model.positions is not learned), nor Llama (model.norm = layer)" \
    "$atoll" import $model --run.dir neither --model.positions rope --model "$golden"

# The configuration that config.json describes, several files, and a model that another program would compute otherwise.
"$atoll" export $llama --out parts --part-gb 0.00001 >>export.out 2>&1 || fail "atoll export in parts"
[ -e parts/model.safetensors.index.json ] && [ ! -e parts/model.safetensors ] || fail "no parts"
"$atoll" import --model parts --write-config derived.yaml >>import.out 2>&1 || fail "atoll import --write-config"
refused "derived.yaml exists" "$atoll" import --model parts --write-config derived.yaml
common="--run.dir derived --train.seq_len 12 --train.batch_tokens 48 --train.steps 3 --train.warmup_steps 0 --device.dtype f32"
"$atoll" import --config derived.yaml $common --model parts >>import.out 2>&1 || fail "atoll import of parts"
"$atoll" export --config derived.yaml $common --out again >>export.out 2>&1 || fail "atoll export of what was derived"
cmp again/model.safetensors "$golden_llama" || fail "the Llama of the derived configuration differs"
sed 's/"silu"/"gelu"/' hf/config.json >config.new && mv config.new hf/config.json
refused "hidden_act = gelu" "$atoll" import $llama --run.dir other --model hf

refused "holds checkpoints" "$atoll" import $model --model "$golden"
refused "model.layers: 3 here, 2 there" "$atoll" export $model --model.layers 3 --out gpt2
for command in eval sample "export --out gpt2"; do
    refused "model.heads: 4 here, 2 there" "$atoll" $command $model --model.heads 4
    refused "model.causal = false" "$atoll" $command $model --model.causal false
    refused "model.activation: gelu_erf here" "$atoll" $command $model --model.activation gelu_erf
done
refused "has no tensor" "$atoll" import $model --model.layers 3 --run.dir other --model "$golden"
refused "train first" "$atoll" sample --run.dir nowhere
refused "no id below" "$atoll" sample $model --ids 1,48
