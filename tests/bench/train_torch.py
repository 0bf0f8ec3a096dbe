# SPDX-License-Identifier: Apache-2.0
"""The same training step in PyTorch, speaking bench_train.c's protocol: "go N" on stdin, N times in seconds on stdout.

    python3 tests/bench/train_torch.py 10m|30m f32|bf16 THREADS eager|compiled

PyTorch's best: fused attention, fused AdamW, gradients set to None, bf16 by autocast; compiled: torch.compile of the model with
its loss.
"""
import sys
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, SEQUENCES, SEQUENCE = 8192, 16, 256
SHAPES = {"10m": (6, 320, 5), "30m": (8, 512, 8)}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.proj(y)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, width, heads):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, width), nn.Embedding(SEQUENCE, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCAB).float(), targets.view(-1))


def main():
    size, dtype, threads, how = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    model = GPT(*SHAPES[size])
    print(f"{size}: {sum(p.numel() for p in model.parameters())} parameters, torch {torch.__version__} {how}", file=sys.stderr)
    step = torch.compile(model) if how == "compiled" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1, fused=True)
    for line in sys.stdin:
        if not line.startswith("go "):
            break
        seconds = []
        for _ in range(int(line[3:])):
            tokens, targets = (torch.randint(0, VOCAB, (SEQUENCES, SEQUENCE)) for _ in range(2))
            start = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
                loss = step(tokens, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            loss.item()
            seconds.append(time.perf_counter() - start)
        print(" ".join(f"{s:.6f}" for s in seconds), flush=True)


if __name__ == "__main__":
    main()
