# SPDX-License-Identifier: Apache-2.0
"""Golden values of a small BERT: losses, logits, gradients, ten steps of AdamW and of LAMB.

The network is transformers' BertForPreTraining and the gradients are autograd's, both in float64; AdamW and the clip are
torch's, LAMB is the paper's with a trust ratio for each parameter that transformers has: one each for q, k and v. The sequences of a batch differ in length: here they are padded and masked, in Atoll they are packed. Tensors are
stored with Atoll's names (inner/model/table.h), so that the vectors test the network alone.

    python3 tests/golden/bert/make.py        writes next to this file; needs torch and transformers
"""
import math
import os
import sys
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForPreTraining

HERE = os.path.dirname(os.path.abspath(__file__))
SEED, V, C, L, NH, F, CONTEXT, STEPS = 7, 48, 16, 2, 2, 40, 16, 10
LENGTHS = (16, 5, 11, 8)
LR, WARMUP, LR_END, DECAY, CLIP = 0.01, 3, 0.1, 0.1, 0.3
BETA1, BETA2, EPS = 0.9, 0.95, 1e-6

LAYER = (("attention.output.dense", "attn.proj"), ("attention.output.LayerNorm", "norm1"), ("intermediate.dense", "mlp.up"),
         ("output.dense", "mlp.down"), ("output.LayerNorm", "norm2"))
OUTSIDE = (("bert.embeddings.word_embeddings", "wte"), ("bert.embeddings.position_embeddings", "wpe"),
           ("bert.embeddings.token_type_embeddings", "wtt"), ("bert.embeddings.LayerNorm", "embed.norm"),
           ("cls.predictions.transform.dense", "mlm.dense"), ("cls.predictions.transform.LayerNorm", "mlm.norm"),
           ("cls.predictions", "mlm"), ("bert.pooler.dense", "pooler"), ("cls.seq_relationship", "pair"))


def make_network():
    config = BertConfig(vocab_size=V, hidden_size=C, num_hidden_layers=L, num_attention_heads=NH, intermediate_size=F,
                        hidden_act="gelu", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                        max_position_embeddings=CONTEXT, type_vocab_size=2, layer_norm_eps=1e-12, pad_token_id=0,
                        attn_implementation="sdpa")
    return BertForPreTraining(config)


def rename(theirs):
    """Their tensors with our names; q, k and v below each other."""
    ours = {}
    for old, new in OUTSIDE:
        for part in ("weight", "bias"):
            if f"{old}.{part}" in theirs:
                ours[f"{new}.{part}"] = theirs[f"{old}.{part}"]
    for i in range(L):
        at = f"bert.encoder.layer.{i}."
        for part in ("weight", "bias"):
            qkv = [theirs[f"{at}attention.self.{x}.{part}"] for x in ("query", "key", "value")]
            ours[f"layers.{i}.attn.qkv.{part}"] = torch.cat(qkv)
            for old, new in LAYER:
                ours[f"layers.{i}.{new}.{part}"] = theirs[f"{at}{old}.{part}"]
    assert sum(x.numel() for x in ours.values()) == sum(x.numel() for x in theirs.values())
    return ours


def forward(model, ids, mask, types):
    out = model(input_ids=ids, attention_mask=mask, token_type_ids=types)
    return out.prediction_logits, out.seq_relationship_logits


def make_model(this):
    torch.manual_seed(SEED)
    model = this.make_network().float().eval()
    with torch.no_grad():  # biases and gains that are not 0 and 1, weights large enough that every term counts
        for p in model.parameters():
            p.copy_(p + 0.1 * torch.randn_like(p))
    start = {k: v.clone() for k, v in tensors(model).items()}
    return model.double(), start


def tensors(model):
    return {k: p.detach().float().contiguous() for k, p in model.named_parameters()}


def batch(step):
    """Ids, mask, types, targets (-100: none) and the labels of the sequences (-100: none)."""
    g = torch.Generator().manual_seed(1000 + step)
    ids = torch.randint(1, V, (len(LENGTHS), max(LENGTHS)), generator=g)
    mask = torch.tensor([[int(i < n) for i in range(max(LENGTHS))] for n in LENGTHS])
    types = torch.tensor([[int(i >= n // 2 + step % 2) for i in range(max(LENGTHS))] for n in LENGTHS])
    chosen = (torch.rand(ids.shape, generator=g) < 0.3) & (mask > 0)
    chosen[0, 3] = True
    targets = torch.where(chosen, torch.randint(1, V, ids.shape, generator=g), -100)
    labels = torch.randint(0, 2, (len(LENGTHS),), generator=g)
    labels[step % len(LENGTHS)] = -100
    return ids * mask, mask, types * mask, targets, labels


def losses(this, model, step):
    """The losses of the tokens and of the sequences that have one, in order, and both logits."""
    ids, mask, types, targets, labels = batch(step)
    tokens, pairs = this.forward(model, ids, mask, types)
    token = torch.nn.functional.cross_entropy(tokens[targets >= 0], targets[targets >= 0], reduction="none")
    if pairs is None:
        return token, None, tokens, None
    sequence = torch.nn.functional.cross_entropy(pairs[labels >= 0], labels[labels >= 0], reduction="none")
    return token, sequence, tokens, pairs


def total(token, sequence):
    return token.mean() + (sequence.mean() if sequence is not None else 0)


def lr_at(step):
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    x = (step - WARMUP) / (STEPS - WARMUP)
    return LR * (LR_END + (1 - LR_END) * 0.5 * (1 + math.cos(math.pi * x)))


class Lamb(torch.optim.Optimizer):
    """You et al. 2020, Algorithm 2, with bias correction."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for x in group["params"]:
                s = self.state[x]
                t = s["t"] = s.get("t", 0) + 1
                m = s["m"] = BETA1 * s.get("m", 0) + (1 - BETA1) * x.grad
                v = s["v"] = BETA2 * s.get("v", 0) + (1 - BETA2) * x.grad * x.grad
                u = (m / (1 - BETA1 ** t)) / (torch.sqrt(v / (1 - BETA2 ** t)) + EPS) + group["weight_decay"] * x
                ratio = torch.clamp(x.norm() / u.norm(), 0.01, 10.0) if group["trust"] else 1.0
                x -= group["lr"] * ratio * u


def train(this, name):
    model, _ = make_model(this)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": DECAY, "trust": True}, {"params": vectors, "weight_decay": 0.0, "trust": False}]
    optimizer = Lamb(groups, {"lr": LR}) if name == "lamb" else torch.optim.AdamW(groups, lr=LR, betas=(BETA1, BETA2), eps=EPS)
    seen, norms = [], []
    for step in range(STEPS):
        model.zero_grad()
        loss = total(*losses(this, model, step)[:2])
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        for group in optimizer.param_groups:
            group["lr"] = lr_at(step)
        optimizer.step()
        seen.append(loss.item())
    return model, seen, norms


def packed(x, mask):
    return x[mask > 0].reshape(-1).tolist()


def line(out, name, values):
    out.write(f"{name} {len(values)} " + " ".join(repr(v) for v in values) + "\n")


def save(this, tensors_, name):
    save_file(this.rename(tensors_), os.path.join(this.HERE, name + ".safetensors"), metadata={"format": "pt"})


def write(this):
    model, start = make_model(this)
    save(this, start, "model")
    token, sequence, tokens, pairs = losses(this, model, 0)
    total(token, sequence).backward()
    save(this, {k: p.grad.float().contiguous() for k, p in model.named_parameters()}, "gradients")
    with open(os.path.join(this.HERE, "values.txt"), "w") as out:
        line(out, "lengths", list(LENGTHS))
        for step in range(STEPS):
            ids, mask, types, targets, labels = batch(step)
            line(out, f"tokens{step}", packed(ids, mask))
            line(out, f"types{step}", packed(types, mask))
            line(out, f"targets{step}", packed(targets, mask))
            line(out, f"labels{step}", labels.tolist())
        mask = batch(0)[1]
        line(out, "losses", token.tolist())
        line(out, "logits", packed(tokens, mask))
        if pairs is not None:
            line(out, "sequence_losses", sequence.tolist())
            line(out, "pair_logits", pairs.reshape(-1).tolist())
        for name in ("adamw", "lamb"):
            trained, seen, norms = train(this, name)
            save(this, tensors(trained), name)
            line(out, name + "_losses", seen)
            line(out, name + "_norms", norms)
    print("torch", torch.__version__)


if __name__ == "__main__":
    write(sys.modules[__name__])
