# SPDX-License-Identifier: Apache-2.0
"""Golden values of a small ALBERT: losses, logits, gradients, ten steps of AdamW and of LAMB.

The network is transformers' AlbertForPreTraining; everything else is of ../bert/make.py.

    python3 tests/golden/albert/make.py        writes next to this file; needs torch and transformers
"""
import importlib.util
import os
import sys
from transformers import AlbertConfig, AlbertForPreTraining
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("bert", os.path.join(HERE, "..", "bert", "make.py"))
bert = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bert)
E, L = 8, 3

LAYER = (("attention.dense", "attn.proj"), ("attention.LayerNorm", "norm1"), ("ffn", "mlp.up"), ("ffn_output", "mlp.down"),
         ("full_layer_layer_norm", "norm2"))
OUTSIDE = (("albert.embeddings.word_embeddings", "wte"), ("albert.embeddings.position_embeddings", "wpe"),
           ("albert.embeddings.token_type_embeddings", "wtt"), ("albert.embeddings.LayerNorm", "embed.norm"),
           ("albert.encoder.embedding_hidden_mapping_in", "embed.proj"), ("predictions.dense", "mlm.dense"),
           ("predictions.LayerNorm", "mlm.norm"), ("predictions", "mlm"), ("albert.pooler", "pooler"),
           ("sop_classifier.classifier", "pair"))


def make_network():
    config = AlbertConfig(vocab_size=bert.V, embedding_size=E, hidden_size=bert.C, num_hidden_layers=L, num_hidden_groups=1,
                          num_attention_heads=bert.NH, intermediate_size=bert.F, hidden_act="gelu_new",
                          hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, classifier_dropout_prob=0.0,
                          max_position_embeddings=bert.CONTEXT, type_vocab_size=2, layer_norm_eps=1e-12, pad_token_id=0,
                          attn_implementation="sdpa")
    return AlbertForPreTraining(config)


def rename(theirs):
    ours = {}
    at = "albert.encoder.albert_layer_groups.0.albert_layers.0."
    for part in ("weight", "bias"):
        qkv = [theirs[f"{at}attention.{x}.{part}"] for x in ("query", "key", "value")]
        ours[f"layers.0.attn.qkv.{part}"] = torch.cat(qkv)
        for old, new in LAYER:
            ours[f"layers.0.{new}.{part}"] = theirs[f"{at}{old}.{part}"]
        for old, new in OUTSIDE:
            if f"{old}.{part}" in theirs:
                ours[f"{new}.{part}"] = theirs[f"{old}.{part}"]
    assert sum(x.numel() for x in ours.values()) == sum(x.numel() for x in theirs.values())
    return ours


def forward(model, ids, mask, types):
    out = model(input_ids=ids, attention_mask=mask, token_type_ids=types)
    return out.prediction_logits, out.sop_logits


if __name__ == "__main__":
    bert.write(sys.modules[__name__])
