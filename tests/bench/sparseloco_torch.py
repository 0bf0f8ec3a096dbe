#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SparseLoCo (2508.15706, algorithm 1) and DiLoCo once more, written from the paper: is what top-k loses the method's, or ours?
Shares nothing with Atoll but the text. All sites in one process, inner AdamW in f32 with PyTorch, everything outside in float64
with numpy: exact values or two magnitudes, chunks of the flat parameters or 64 x 64 blocks of matrices.

    tests/bench/sparseloco_torch.py TEXT "f32" "topk" "topk levels=0" "topk blocks=1" "topk H=40" "f32 mu=0.9 lr=0.7"
"""
import argparse
import math
import time

import numpy as np
import torch
import torch.nn.functional as F

T, V = 128, 256  # context; bytes


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("text")
    p.add_argument("rows", nargs="+")
    p.add_argument("--sites", type=int, default=2)
    p.add_argument("--steps", type=int, default=800)
    p.add_argument("--sequences", type=int, default=2, help="of one site's step")
    p.add_argument("--lr", type=float, default=0.004)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def shapes_of(a):
    C = a.width
    block = [(C,), (3 * C, C), (C, C), (C,), (4 * C, C), (C, 4 * C)]
    return [(V, C), (T, C)] + block * a.layers + [(C,)]


def bounds_of(shapes):
    return np.cumsum([0] + [math.prod(s) for s in shapes])


def views(flat, shapes):
    """(sites, parameters) -> the tensors, (sites, ...) each."""
    b = bounds_of(shapes)
    return [flat[:, b[i]:b[i + 1]].reshape(len(flat), *s) for i, s in enumerate(shapes)]


def losses(tensors, x, y, a):
    """x, y (sites, B, T) -> mean loss of each site."""
    C, (S, B, _) = a.width, x.shape
    wte, wpe, *blocks, last = tensors

    def norm(h, gain):
        return h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6) * gain[:, None, None]

    def product(h, w):
        return torch.bmm(h.reshape(S, B * T, -1), w.transpose(1, 2)).view(S, B, T, -1)

    h = torch.gather(wte, 1, x.reshape(S, -1, 1).expand(-1, -1, C)).view(S, B, T, C) + wpe[:, None]
    for i in range(0, len(blocks), 6):
        n1, qkv, out, n2, up, down = blocks[i:i + 6]
        q, k, v = product(norm(h, n1), qkv).view(S * B, T, 3, C // 32, 32).permute(2, 0, 3, 1, 4)
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + product(attention.transpose(1, 2).reshape(S, B, T, C), out)
        h = h + product(F.gelu(product(norm(h, n2), up)), down)
    logits = product(norm(h, last), wte)
    return F.cross_entropy(logits.view(-1, V), y.reshape(-1), reduction="none").view(S, -1).mean(1)


def batch(text, step, a):
    """Each site reads its own part of the text."""
    g = torch.Generator().manual_seed(1000 * a.seed + step)
    part = (len(text) - T - 1) // a.sites
    at = torch.randint(0, part, (a.sites, a.sequences), generator=g) + torch.arange(a.sites)[:, None] * part
    w = text[at[..., None] + torch.arange(T + 1)]
    return w[..., :-1], w[..., 1:]


def held_out(theta, text, shapes, a, n=192):
    at = torch.arange(n)[:, None] * ((len(text) - T - 1) // n) + torch.arange(T + 1)
    with torch.no_grad():
        return losses(views(torch.tensor(theta[None], dtype=torch.float32), shapes), text[at][None, :, :-1],
                      text[at][None, :, 1:], a).item()


def chunk_order(shapes, blocks):
    """Flat indices so that each run of 4096 is one chunk."""
    order, bounds = [], bounds_of(shapes)
    for i, s in enumerate(shapes):
        index = np.arange(bounds[i], bounds[i + 1])
        if blocks and len(s) == 2:
            index = index.reshape(s[0] // 64, 64, s[1] // 64, 64).transpose(0, 2, 1, 3).reshape(-1)
        order.append(index)
    return np.concatenate(order)


def two_levels(v):
    """Sign and one of two magnitudes, Lloyd's."""
    m = np.abs(v)
    bound = (m.min() + m.max()) / 2
    for _ in range(6):
        if (m < bound).any() and (m >= bound).any():
            bound = (m[m < bound].mean() + m[m >= bound].mean()) / 2
    out = np.empty_like(m)
    for group in (m < bound, m >= bound):
        out[group] = m[group].mean() if group.any() else 0
    return np.sign(v) * out


def top(z, order, levels):
    sent, z = np.zeros_like(z), z[order]
    for at in range(0, len(z), 4096):
        chunk = z[at:at + 4096]
        k = max(1, len(chunk) // 64)
        i = np.argpartition(-np.abs(chunk), k - 1)[:k]
        sent[order[at + i]] = two_levels(chunk[i]) if levels else chunk[i]
    return sent


def rate(a, t):
    warm = max(1, a.steps // 10)
    return a.lr * (t / warm if t < warm else 0.5 * (1 + math.cos(math.pi * (t - warm) / (a.steps - warm))))


def run(a, row, train, held):
    codec, *settings = row.split()
    o = {"H": 10, "lr": 1.0, "mu": 0.0, "feedback": 0.95, "levels": 1, "blocks": 0}
    o.update((s.split("=")[0], float(s.split("=")[1])) for s in settings)
    shapes, g, start = shapes_of(a), torch.Generator().manual_seed(a.seed), time.time()
    deep = {(a.width, a.width), (a.width, 4 * a.width)}  # what is added to the residual stream
    theta = torch.cat([torch.ones(s) if len(s) == 1 else torch.randn(math.prod(s), generator=g) * 0.02
                       * (1 / math.sqrt(2 * a.layers) if s in deep else 1) for s in shapes]).double().numpy()
    decay = torch.cat([torch.full((math.prod(s),), 0.1 * (len(s) > 1)) for s in shapes])
    order, n = chunk_order(shapes, o["blocks"]), len(theta)
    local = torch.tensor(theta, dtype=torch.float32).repeat(a.sites, 1)
    m, v = torch.zeros(a.sites, n), torch.zeros(a.sites, n)
    e, buf = np.zeros((a.sites, n)), np.zeros(n)
    for t in range(1, a.steps + 1):
        tensors = [w.detach().requires_grad_() for w in views(local, shapes)]
        loss = losses(tensors, *batch(train, t, a), a).sum()
        grad = torch.cat([x.reshape(a.sites, -1) for x in torch.autograd.grad(loss, tensors)], 1)
        grad /= torch.clamp(grad.norm(dim=1, keepdim=True), min=1.0)
        m.mul_(0.9).add_(grad, alpha=0.1)
        v.mul_(0.95).addcmul_(grad, grad, value=0.05)
        local = local - rate(a, t) * (m / (1 - 0.9**t) / ((v / (1 - 0.95**t)).sqrt() + 1e-8) + decay * local)
        if t % int(o["H"]) == 0:
            e = o["feedback"] * e + (theta - local.double().numpy())
            sent = e if codec == "f32" else np.stack([top(z, order, o["levels"]) for z in e])
            e = e - sent
            buf = o["mu"] * buf + sent.mean(0)
            theta = theta - o["lr"] * (sent.mean(0) + o["mu"] * buf)
            local = torch.tensor(theta, dtype=torch.float32).repeat(a.sites, 1)
    print(f"{row:40s} held-out {held_out(theta, held, shapes, a):.4f}  {time.time() - start:5.0f} s", flush=True)


def main():
    a = arguments()
    torch.set_num_threads(1)
    text = torch.from_numpy(np.fromfile(a.text, dtype=np.uint8).astype(np.int64))
    cut = len(text) * 9 // 10
    for row in a.rows:
        run(a, row, text[:cut], text[cut:])


main()
