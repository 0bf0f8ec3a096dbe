# SPDX-License-Identifier: Apache-2.0
"""Golden values of a small ModernBERT: losses, logits, gradients, ten steps of AdamW and of LAMB.

The network is transformers' ModernBertForMaskedLM; its rotary angles, which the package computes in float32, are replaced by
the same in float64, and so is their application. Everything else is of ../bert/make.py.

    python3 tests/golden/modernbert/make.py        writes next to this file; needs torch and transformers
"""
import importlib.util
import os
import sys
import torch
from transformers import ModernBertConfig, ModernBertForMaskedLM
from transformers.models.modernbert import modeling_modernbert

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("bert", os.path.join(HERE, "..", "bert", "make.py"))
bert = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bert)
L, F, WINDOW, EVERY, THETA = 4, 24, 6, 3, {"full_attention": 1000.0, "sliding_attention": 100.0}

LAYER = (("attn.Wqkv", "attn.qkv"), ("attn.Wo", "attn.proj"), ("attn_norm", "norm1"), ("mlp_norm", "norm2"),
         ("mlp.Wi", "mlp.up"), ("mlp.Wo", "mlp.down"))
OUTSIDE = (("model.embeddings.tok_embeddings.weight", "wte.weight"), ("model.embeddings.norm.weight", "embed.norm.weight"),
           ("model.final_norm.weight", "norm.weight"), ("head.dense.weight", "mlm.dense.weight"),
           ("head.norm.weight", "mlm.norm.weight"), ("decoder.bias", "mlm.bias"))


class Angles(torch.nn.Module):
    """Su et al. 2021, in float64."""

    def forward(self, x, position_ids, layer_type):
        hd = bert.C // bert.NH
        step = THETA[layer_type] ** (-torch.arange(0, hd, 2, dtype=torch.float64) / hd)
        angle = position_ids[..., None].double() * step
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)


def apply_in_place(q, k, cos, sin, unsqueeze_dim=1):
    half = modeling_modernbert.rotate_half
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + half(q) * sin, k * cos + half(k) * sin


def make_network(exact=True):
    config = ModernBertConfig(vocab_size=bert.V, hidden_size=bert.C, num_hidden_layers=L, num_attention_heads=bert.NH,
                              intermediate_size=F, max_position_embeddings=bert.CONTEXT, local_attention=WINDOW,
                              global_attn_every_n_layers=EVERY, pad_token_id=0, norm_eps=1e-5,
                              rope_parameters={k: {"rope_type": "default", "rope_theta": v} for k, v in THETA.items()},
                              attn_implementation="sdpa")
    model = ModernBertForMaskedLM(config)
    if exact:
        model.model.rotary_emb = Angles()
    return model


def rename(theirs):
    ours = {}
    for old, new in OUTSIDE:
        ours[new] = theirs[old]
    for i in range(L):
        for old, new in LAYER:
            if f"model.layers.{i}.{old}.weight" in theirs:
                ours[f"layers.{i}.{new}.weight"] = theirs[f"model.layers.{i}.{old}.weight"]
    assert sum(x.numel() for x in ours.values()) == sum(x.numel() for x in theirs.values())
    return ours


def forward(model, ids, mask, types):
    return model(input_ids=ids, attention_mask=mask).logits, None


def check_against_the_package():
    """The package as it is, whose angles are float32, gives nearly the same."""
    model = make_network(exact=False).double().eval()
    theirs = bert.losses(sys.modules[__name__], model, 0)[0].detach()
    model.model.rotary_emb = Angles()
    modeling_modernbert.apply_rotary_pos_emb = apply_in_place
    ours = bert.losses(sys.modules[__name__], model, 0)[0].detach()
    difference = (ours - theirs).abs().max().item()
    assert 0 < difference < 1e-5, difference
    print("difference of the package's angles", difference)


if __name__ == "__main__":
    check_against_the_package()
    bert.write(sys.modules[__name__])
