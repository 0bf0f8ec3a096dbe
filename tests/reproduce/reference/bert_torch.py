#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of BERT (4 layers of 128, 4 heads, vocabulary 4096) in PyTorch, written from the paper (1810.04805): padded with a mask
of the keys, as the works before 2208.08124 train it, or packed. Takes commands as tests/bench/bench_train.c does.

    bert_torch.py padded|packed THREADS SEQUENCE FILL MASKED

"cpu N" on standard input: N lines of processor time on one line; "go N": of the clock. The lengths of the 4096 / SEQUENCE sequences
grow by equal amounts and fill FILL percent of the slots; MASKED percent of the real tokens have a target. padded: the head runs on
every slot, as transformers' BertForPreTraining does. packed: linear layers and norms run on real tokens, the head on those with a
target, attention on each sequence by itself.
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, VOCAB, SLOTS = 4, 128, 4, 4096, 4096
CLOCKS = {"cpu": time.process_time, "go": time.perf_counter}


def lengths(sequence, fill):
    n, low = SLOTS // sequence, max(0, 2 * fill - 100)
    return [max(1, sequence * (low * (n - 1) + (2 * fill - 2 * low) * i) // (100 * (n - 1))) for i in range(n)]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)

    def attention(self, x, mask, count):
        q, k, v = (y.view(*x.shape[:-1], HEADS, WIDTH // HEADS).transpose(-3, -2) for y in self.qkv(x).split(WIDTH, -1))
        if count is None:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            parts = zip(*(y.split(count, -2) for y in (q, k, v)))
            y = torch.cat([F.scaled_dot_product_attention(*(p.unsqueeze(0) for p in part)).squeeze(0) for part in parts], -2)
        return self.proj(y.transpose(-3, -2).reshape(x.shape))

    def forward(self, x, mask, count):
        x = self.norm1(x + self.attention(x, mask, count))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, sequence):
        super().__init__()
        self.token, self.place, self.kind = nn.Embedding(VOCAB, WIDTH), nn.Embedding(sequence, WIDTH), nn.Embedding(2, WIDTH)
        self.norm, self.head_norm = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.dense, self.bias = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.zeros(VOCAB))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, places, targets, mask=None, count=None):
        x = self.norm(self.token(ids) + self.place(places) + self.kind(torch.zeros_like(ids)))
        for block in self.blocks:
            x = block(x, mask, count)
        if count is not None:
            x, targets = x[targets >= 0], targets[targets >= 0]
        logits = F.linear(self.head_norm(F.gelu(self.dense(x))), self.token.weight, self.bias)
        return F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1), ignore_index=-100)


def batch(how, sequence, fill, masked):
    count = lengths(sequence, fill)
    real = torch.arange(sequence)[None, :] < torch.tensor(count)[:, None]
    ids = torch.randint(0, VOCAB, real.shape)
    chosen = torch.arange(int(real.sum())) * masked % 100 < masked
    targets = torch.full(real.shape, -100)
    targets[real] = torch.where(chosen, torch.randint(0, VOCAB, chosen.shape), -100)
    places = torch.arange(sequence).expand(real.shape)
    if how == "padded":
        return {"ids": ids, "places": places, "targets": targets, "mask": None if real.all() else real[:, None, None, :]}
    return {"ids": ids[real], "places": places[real], "targets": targets[real], "count": count}


def main():
    how, (threads, sequence, fill, masked) = sys.argv[1], map(int, sys.argv[2:])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Bert(sequence)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1, fused=True)
    for line in sys.stdin:
        word, _, count = line.partition(" ")
        if word not in CLOCKS:
            break
        seconds = []
        for _ in range(int(count)):
            inputs = batch(how, sequence, fill, masked)
            start = CLOCKS[word]()
            optimizer.zero_grad(set_to_none=True)
            model(**inputs).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            seconds.append(CLOCKS[word]() - start)
        print(" ".join(f"{s:.6f}" for s in seconds), flush=True)


if __name__ == "__main__":
    main()
