#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses of `atoll train` compared with PyTorch's, step by step: the same weights, the same batches, AdamW with the same schedule.
In float32 it ends with exit code 1 where a step's loss is off by more than the bound. In bf16 (--dtype bf16, the default on a
GPU) rounding alone moves a loss by per cents where it falls fast. So PyTorch runs twice, with bf16 autocast and with float32 weights and
TF32 products, and the exit code is 1 where we are further from the latter than twice what autocast is, in the mean of the steps or at the
worst, and further than the bound.

    curve_torch.py ATOLL SHARD [--size tiny|124m|llama_tiny|llama_60m] [--device cpu|cuda] [--dtype f32|bf16] [--steps 200] [--vocab 256]
        [--bound 0.005]

ATOLL: the program. SHARD: one .bin of `atoll data`, or of llm.c with --vocab 50257. The run lies in a folder of its own under
$TMPDIR and is removed.
"""
import argparse
import copy
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from train_torch_cuda import GPT, Shape  # noqa: E402

# a model without its vocabulary, sequences of a step, of a micro-batch
SIZES = {"tiny": (Shape(2, 2, 32, 128, 0, 32), 8, 4), "124m": (Shape(12, 12, 768, 3072, 0, 1024), 64, 16),
         "llama_tiny": (Shape(2, 4, 32, 96, 0, 32, 2, 100.0), 8, 4),
         "llama_60m": (Shape(8, 12, 768, 2048, 0, 1024, 4, 1e4), 64, 16)}
SEED, LR, LR_END, WARMUP, DECAY, CLIP, BETAS, EPS = 1, 1e-3, 0.1, 20, 0.1, 1.0, (0.9, 0.95), 1e-6
MASK32 = 0xFFFFFFFF


# ---- which windows a step takes (kernels/base/philox.h, inner/data/loader.c) ----


def philox(seed, stream, index):
    c = [index & MASK32, index >> 32, stream & MASK32, stream >> 32]
    for n in range(10):
        k0, k1 = (seed + n * 0x9E3779B9) & MASK32, ((seed >> 32) + n * 0xBB67AE85) & MASK32
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & MASK32, (p0 >> 32) ^ c[3] ^ k1, p0 & MASK32]
    return c


def order(place, windows, seed=SEED):
    epoch, x = divmod(place, windows)
    first = philox(seed, 2, epoch)
    key, half = first[1] << 32 | first[0], 1
    while windows > 1 << 2 * half:
        half += 1
    while True:
        left, right = x >> half, x & (1 << half) - 1
        for n in range(6):
            left, right = right, left ^ (philox(key, 2, n << 32 | right)[0] & (1 << half) - 1)
        x = left << half | right
        if x < windows:
            return x


def batches(shard, sequence, sequences, steps):
    magic, _, count = np.fromfile(shard, np.int32, 3)
    tokens = np.fromfile(shard, np.uint16 if magic == 20240520 else np.uint32, count, offset=1024).astype(np.int64)
    windows = (int(count) - 1) // sequence
    for step in range(steps):
        at = [order(step * sequences + i, windows) * sequence for i in range(sequences)]
        rows = torch.from_numpy(np.stack([tokens[a : a + sequence + 1] for a in at]))
        yield rows[:, :-1], rows[:, 1:]


# ---- the weights, as Hugging Face names and lays them out ----

INSIDE = {"norm1": "ln_1", "qkv": "attn.c_attn", "proj": "attn.c_proj", "norm2": "ln_2", "up": "mlp.c_fc", "down": "mlp.c_proj"}


LLAMA = {"norm1": ["input_layernorm"], "qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
         "proj": ["self_attn.o_proj"], "norm2": ["post_attention_layernorm"], "up": ["mlp.gate_proj", "mlp.up_proj"],
         "down": ["mlp.down_proj"]}


def llama_names(model, z):
    """Theirs are tensors of their own: name, rows."""
    head = z.width // z.heads
    rows = {"qkv": (z.width, z.kv_heads * head, z.kv_heads * head), "up": (z.mlp, z.mlp)}
    for name, p in model.state_dict().items():
        part = name.split(".")
        if part[0] == "blocks":
            pieces = p.split(rows[part[2]]) if part[2] in rows else [p]
            yield from ((f"model.layers.{part[1]}.{n}.weight", x) for n, x in zip(LLAMA[part[2]], pieces))
        else:
            yield {"wte": "model.embed_tokens.weight", "norm": "model.norm.weight"}[part[0]], p


def gpt_names(model):
    for name, p in model.state_dict().items():
        part = name.split(".")
        if part[0] == "blocks":
            name = f"h.{part[1]}.{INSIDE[part[2]]}.{part[3]}"
            p = p.T if p.dim() == 2 else p
        elif part[0] == "norm":
            name = f"ln_f.{part[1]}"
        yield name, p


def save(model, z, path):
    tensors = {}
    for name, p in llama_names(model, z) if z.kv_heads else gpt_names(model):
        tensors[name] = p.detach().float().contiguous().numpy().tobytes(), list(p.shape)
    header, at = {}, 0
    for name, (data, shape) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.writelines(data for data, _ in tensors.values())


def initial(z):
    torch.manual_seed(SEED)
    model = GPT(z)
    for name, p in model.named_parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.02 / (math.sqrt(2 * z.layers) if "proj" in name or "down" in name else 1))
        elif name.endswith("bias"):
            torch.nn.init.zeros_(p)
    return model


# ---- both curves ----


def lr_at(step, steps, lr=LR):
    if step < WARMUP:
        return lr * (step + 1) / WARMUP
    x = (step - WARMUP) / (steps - WARMUP)
    return lr * (LR_END + (1 - LR_END) * 0.5 * (1 + math.cos(math.pi * x)))


def theirs(model, a, micro, dtype):
    model = copy.deepcopy(model).to(a.device)
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    z, sequences, _ = SIZES[a.size]
    losses = []
    for step, (x, y) in enumerate(batches(a.shard, z.sequence, sequences, a.steps)):
        for group in optimizer.param_groups:
            group["lr"] = lr_at(step, a.steps)
        total = 0.0
        for i in range(0, sequences, micro):
            with torch.autocast(a.device, torch.bfloat16, enabled=dtype == "bf16"):
                loss = model(x[i : i + micro].to(a.device), y[i : i + micro].to(a.device)) * micro / sequences
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
    return losses


def ours(model, a, micro, folder):
    z, sequences, _ = SIZES[a.size]
    keys = {"run.dir": f"{folder}/run", "run.seed": SEED, "model.vocab_size": a.vocab, "model.layers": z.layers,
            "model.heads": z.heads, "model.d_model": z.width, "model.d_ff": z.mlp, "model.max_seq_len": z.sequence,
            "data.tokenizer": "external", "data.train": a.shard, "train.steps": a.steps,
            "train.batch_tokens": z.sequence * sequences, "train.micro_batch_tokens": z.sequence * micro,
            "train.seq_len": z.sequence, "train.optimizer": "adamw", "train.lr": LR, "train.min_lr_ratio": LR_END,
            "train.warmup_steps": WARMUP, "train.beta1": BETAS[0], "train.beta2": BETAS[1], "train.eps": EPS,
            "train.weight_decay": DECAY, "train.max_grad_norm": CLIP, "train.checkpoint_every": 0, "device.kind": a.device,
            "device.dtype": a.dtype}
    if z.kv_heads:
        keys |= {"model.kv_heads": z.kv_heads, "model.norm": "rms", "model.positions": "rope", "model.rope_theta": z.theta,
                 "model.activation": "swiglu", "model.bias": "false"}
    words = [w for key, value in keys.items() for w in (f"--{key}", str(value))]
    save(model, z, f"{folder}/model.safetensors")
    for command in (["import", *words, "--model", f"{folder}/model.safetensors"], ["train", *words, "--log.progress", "none"]):
        done = subprocess.run([a.atoll, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"atoll {command[0]}:\n{done.stderr}")
    with open(f"{folder}/run/metrics.jsonl") as f:
        rows = [json.loads(line) for line in f]
    return [row["loss"] for row in rows if row.get("kind") == "step"]


def apart(one, other):
    """Relative distances by step, their largest and their mean."""
    off = [abs(x - y) / y for x, y in zip(one, other)]
    return off, max(off), sum(off) / len(off)


def report(one, other, a, against, title, rounded=None):
    """Prints the curves at a few steps. rounded: of PyTorch in bf16. True: we are off by more than is allowed."""
    assert len(one) == len(other) == a.steps, (len(one), len(other))
    off, most, mean = apart(one, other)
    allowed = (a.bound, a.bound)
    for i in sorted({0, a.steps // 4, a.steps // 2, a.steps - 1, off.index(most)}):
        print(f"step {i + 1}: {one[i]:.5f}, {against} {other[i]:.5f}, off by {100 * off[i]:.4f} %"
              + (f", in bf16 {rounded[i]:.5f}" if rounded else ""))
    print(f"{title}: {a.steps} steps, off by {100 * most:.4f} % at most, {100 * mean:.4f} % in the mean")
    if rounded:
        _, most_there, mean_there = apart(rounded, other)
        allowed = (max(a.bound, 2 * most_there), max(a.bound, 2 * mean_there))
        print(f"{against} in bf16: off by {100 * most_there:.4f} % at most, {100 * mean_there:.4f} % in the mean")
    print(f"allowed: {100 * allowed[0]:.2f} %, {100 * allowed[1]:.2f} % in the mean")
    return not (most <= allowed[0] and mean <= allowed[1])  # also where a loss is not finite


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("atoll")
    p.add_argument("shard")
    p.add_argument("--size", choices=SIZES, default="tiny")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--dtype", choices=("f32", "bf16"))
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--vocab", type=int, default=256)
    p.add_argument("--bound", type=float, default=0.005)
    a = p.parse_args()
    a.dtype = a.dtype or ("bf16" if a.device == "cuda" else "f32")
    z, _, micro = SIZES[a.size]
    z = z._replace(vocab=a.vocab)
    model = initial(z)
    with tempfile.TemporaryDirectory() as folder:
        one = ours(model, a, micro, folder)
    if a.dtype == "bf16":
        torch.set_float32_matmul_precision("high")
    other = theirs(model, a, micro, "f32")
    rounded = theirs(model, a, micro, "bf16") if a.dtype == "bf16" else None
    return report(one, other, a, "torch", f"{a.size} on {a.device}, {a.dtype}", rounded)


if __name__ == "__main__":
    sys.exit(main())
