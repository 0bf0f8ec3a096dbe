# SPDX-License-Identifier: Apache-2.0
"""Golden values of a small GPT-2: losses, logits, gradients, ten steps of AdamW and of LAMB.

The network is transformers' GPT2LMHeadModel and the gradients are autograd's, both in float64; AdamW and the clip are
torch's; LAMB is written here from You et al. 2020, Algorithm 2, with the choices of Atoll's defaults: bias
correction, trust ratio clipped to [0.01, 10], no decay and ratio 1 for biases and norms.

    python3 tests/golden/gpt/make.py        writes next to this file; needs torch and transformers
"""
import math
import os
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

HERE = os.path.dirname(os.path.abspath(__file__))
SEED, V, C, L, NH, T, B, STEPS = 7, 48, 16, 2, 2, 12, 3, 10
LR, WARMUP, LR_END, DECAY, CLIP = 0.01, 3, 0.1, 0.1, 0.3
BETA1, BETA2, EPS = 0.9, 0.95, 1e-6


def make_model():
    torch.manual_seed(SEED)
    config = GPT2Config(vocab_size=V, n_positions=T, n_embd=C, n_layer=L, n_head=NH, activation_function="gelu_new",
                        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, attn_implementation="eager")
    model = GPT2LMHeadModel(config).float().eval()
    with torch.no_grad():  # biases and gains that are not 0 and 1, weights large enough that every term counts
        for p in model.parameters():
            p.copy_(p + 0.1 * torch.randn_like(p))
    start = {k: v.clone() for k, v in tensors(model).items()}
    return model.double(), start


def tensors(model):
    return {k: p.detach().float().contiguous() for k, p in model.named_parameters()}


def batch(step):
    g = torch.Generator().manual_seed(1000 + step)
    ids = torch.randint(0, V, (B, T + 1), generator=g)
    return ids[:, :-1], ids[:, 1:]


def losses(model, step):
    x, y = batch(step)
    logits = model(x).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, V), y.reshape(-1), reduction="none"), logits


def lr_at(step):
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    x = (step - WARMUP) / (STEPS - WARMUP)
    return LR * (LR_END + (1 - LR_END) * 0.5 * (1 + math.cos(math.pi * x)))


class Lamb:
    """You et al. 2020, Algorithm 2."""

    def __init__(self, parameters):
        self.p = list(parameters)
        self.m = [torch.zeros_like(p) for p in self.p]
        self.v = [torch.zeros_like(p) for p in self.p]
        self.t = 0

    @torch.no_grad()
    def step(self, lr):
        self.t += 1
        for x, m, v in zip(self.p, self.m, self.v):
            g = x.grad
            m.copy_(BETA1 * m + (1 - BETA1) * g)
            v.copy_(BETA2 * v + (1 - BETA2) * g * g)
            r = (m / (1 - BETA1 ** self.t)) / (torch.sqrt(v / (1 - BETA2 ** self.t)) + EPS)
            if x.dim() == 1:
                x -= lr * r
                continue
            u = r + DECAY * x
            phi, norm = x.norm(), u.norm()
            ratio = torch.clamp(phi / norm, 0.01, 10.0) if phi > 0 and norm > 0 else 1.0
            x -= lr * ratio * u


def adamw(model):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=LR, betas=(BETA1, BETA2), eps=EPS)


def train(name):
    model, _ = make_model()
    optimizer = Lamb(model.parameters()) if name == "lamb" else adamw(model)
    seen, norms = [], []
    for step in range(STEPS):
        model.zero_grad()
        loss = losses(model, step)[0].mean()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        if name == "lamb":
            optimizer.step(lr_at(step))
        else:
            for group in optimizer.param_groups:
                group["lr"] = lr_at(step)
            optimizer.step()
        seen.append(loss.item())
    save_file(tensors(model), os.path.join(HERE, name + ".safetensors"), metadata={"format": "pt"})
    return seen, norms


def line(out, name, values):
    out.write(f"{name} {len(values)} " + " ".join(repr(v) for v in values) + "\n")


def main():
    model, start = make_model()
    save_file(start, os.path.join(HERE, "model.safetensors"), metadata={"format": "pt"})
    each, logits = losses(model, 0)
    each.mean().backward()
    gradients = {k: p.grad.float().contiguous() for k, p in model.named_parameters()}
    save_file(gradients, os.path.join(HERE, "gradients.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(HERE, "values.txt"), "w") as out:
        for step in range(STEPS):
            x, y = batch(step)
            line(out, f"tokens{step}", x.reshape(-1).tolist())
            line(out, f"targets{step}", y.reshape(-1).tolist())
        line(out, "losses", each.tolist())
        line(out, "logits", logits[:, -1].reshape(-1).tolist())
        for name in ("adamw", "lamb"):
            seen, norms = train(name)
            line(out, name + "_losses", seen)
            line(out, name + "_norms", norms)
    print("torch", torch.__version__)


if __name__ == "__main__":
    main()
