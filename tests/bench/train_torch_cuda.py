#!/usr/bin/env python3
"""GPT-2 124M (or 1.5B) in PyTorch on one GPU, as its users run it: torch.compile, SDPA with flash attention, fused
AdamW, bf16 autocast; tokens/s and MFU beside what `atoll train --device.kind cuda` reports on the same machine.
  train_torch_cuda.py [124m|1558m] [micro-batches to try, default 32,64,128] [steps]
MFU: 6 FLOP per matrix weight plus 12 L C T / 2 of causal attention, over 989 TFLOP/s (H100/H200, dense bf16)."""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"124m": (12, 12, 768), "1558m": (48, 25, 1600)}
V, SEQUENCE = 50304, 1024


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, heads, width):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, width), nn.Embedding(SEQUENCE, width)
        self.blocks = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, V).float(), targets.view(-1))


def measure(name, micro, steps):
    layers, heads, width = SIZES[name]
    torch.manual_seed(1)
    model = GPT(layers, heads, width).cuda()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    run = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    tokens = torch.randint(0, 50257, (8, micro, SEQUENCE + 1), device="cuda")
    times = []
    for step in range(steps + 5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        batch = tokens[step % 8]
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(batch[:, :-1], batch[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if step >= 5:
            times.append(time.perf_counter() - start)
    seconds = sorted(times)[len(times) // 2]
    flop = 6 * (12 * layers * width**2 + 50257 * width) + 6 * layers * width * SEQUENCE
    rate = micro * SEQUENCE / seconds
    print(f"torch {torch.__version__} gpt2-{name} micro={micro} tokens/s={rate:.0f} mfu={rate * flop / 989e12:.3f} "
          f"loss={loss.item():.4f} memory_gib={torch.cuda.max_memory_allocated() / 2**30:.1f}", flush=True)


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "124m"
    micros = [int(m) for m in (sys.argv[2] if len(sys.argv) > 2 else "32,64,128").split(",")]
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    torch.set_float32_matmul_precision("high")
    for micro in micros:
        try:
            measure(name, micro, steps)
        except torch.cuda.OutOfMemoryError:
            print(f"torch gpt2-{name} micro={micro}: out of memory")


if __name__ == "__main__":
    main()
