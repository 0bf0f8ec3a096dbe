#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 124M (or 1.5B, or Llama 3.2 1B) in PyTorch on one GPU, as its users run it: torch.compile, SDPA with flash attention, fused
AdamW, bf16 autocast; tokens/s and MFU against what `atoll train --device.kind cuda` reports on the same machine.
  train_torch_cuda.py [124m|1558m|1b] [micro-batches to try, default 32,64,128] [steps] [--attention default|flash|cudnn] [--mode MODE] [--csv FILE]
  train_torch_cuda.py attention    SDPA alone at the shapes of bench_cuda: its flash kernels, and cuDNN's
--attention: the only kernel that SDPA may take; default: PyTorch's own choice, which each line names. It depends on PyTorch's and
cuDNN's versions, so the bar for Atoll is the best of the three. --mode: of torch.compile, default or max-autotune. --csv: adds rows as bench_cuda_train does.
MFU: 6 FLOP per matrix weight plus 12 L C T / 2 of causal attention, over 989 TFLOP/s (H100/H200, dense bf16)."""
import argparse
import contextlib
import os
import subprocess
import time
from collections import namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F

# The models of bench_cuda_train; kv_heads and theta: of Llama, whose MLP has a gate of the same width
Shape = namedtuple("Shape", "layers heads width mlp vocab sequence kv_heads theta", defaults=(0, 0))
SIZES = {"124m": Shape(12, 12, 768, 3072, 50304, 1024), "1558m": Shape(48, 25, 1600, 6400, 50304, 1024),
         "1b": Shape(16, 32, 2048, 8192, 128256, 2048, 8, 5e5)}


def turn(x, cosine, sine):
    a, b = x.chunk(2, dim=-1)
    return (x * cosine + torch.cat((-b, a), dim=-1) * sine).type_as(x)


class Block(nn.Module):
    def __init__(self, z):
        super().__init__()
        self.llama, self.heads = z.kv_heads > 0, (z.heads, z.kv_heads or z.heads)
        bias, head = not self.llama, z.width // z.heads
        self.norm1, self.norm2 = ((nn.RMSNorm(z.width, eps=1e-5) if self.llama else nn.LayerNorm(z.width)) for _ in range(2))
        self.qkv = nn.Linear(z.width, (z.heads + 2 * self.heads[1]) * head, bias)
        self.proj = nn.Linear(z.width, z.width, bias)
        self.up, self.down = nn.Linear(z.width, z.mlp * (2 if self.llama else 1), bias), nn.Linear(z.mlp, z.width, bias)

    def attention(self, x, angles):
        b, t, c = x.shape
        heads, shared = self.heads
        q, k, v = self.qkv(x).view(b, t, heads + 2 * shared, c // heads).transpose(1, 2).split((heads, shared, shared), 1)
        if self.llama:
            q, k = turn(q, *angles), turn(k, *angles)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared < heads)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x, angles):
        x = x + self.attention(self.norm1(x), angles)
        h = self.up(self.norm2(x))
        if self.llama:
            gate, up = h.chunk(2, dim=-1)
            return x + self.down(F.silu(gate) * up)
        return x + self.down(F.gelu(h, approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, z):
        super().__init__()
        self.llama = z.kv_heads > 0
        self.wte = nn.Embedding(z.vocab, z.width)
        self.blocks = nn.ModuleList(Block(z) for _ in range(z.layers))
        self.norm = nn.RMSNorm(z.width, eps=1e-5) if self.llama else nn.LayerNorm(z.width)
        if self.llama:
            head = z.width // z.heads
            step = z.theta ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)
            angles = torch.outer(torch.arange(z.sequence, dtype=torch.float64), torch.cat((step, step)))
            self.register_buffer("cosine", angles.cos().float(), persistent=False)
            self.register_buffer("sine", angles.sin().float(), persistent=False)
        else:
            self.wpe = nn.Embedding(z.sequence, z.width)

    def forward(self, tokens, targets):
        t = tokens.shape[1]
        x = self.wte(tokens) if self.llama else self.wte(tokens) + self.wpe.weight[:t]
        angles = (self.cosine[:t], self.sine[:t]) if self.llama else None
        for block in self.blocks:
            x = block(x, angles)
        logits = F.linear(self.norm(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def flop_per_token(z):
    """6 for each matrix weight, 12 L C T / 2 of causal attention."""
    layer = z.width * z.width * (2 + 2 * (z.kv_heads or z.heads) / z.heads) + z.width * z.mlp * (3 if z.kv_heads else 2)
    return 6 * (z.layers * layer + z.vocab * z.width) + 6 * z.layers * z.width * z.sequence


HEADER = "date,machine,commit,bench,case,value,unit,baseline,ratio,flags\n"


def allowed(kernel):
    """The context in which SDPA may take this kernel alone; default: any."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}.get(kernel)
    return sdpa_kernel(backend) if backend is not None else contextlib.nullcontext()


def chosen(z):
    """Which kernel SDPA takes for this model's attention, by PyTorch's name."""
    from torch.nn.attention import SDPBackend

    shape = (1, z.heads, z.sequence, z.width // z.heads)
    q, k, v = (torch.empty(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    try:
        return SDPBackend(torch._fused_sdp_choice(q, k, v, None, 0.0, True)).name.lower()
    except (AttributeError, ValueError, RuntimeError) as e:
        return f"unknown ({str(e).splitlines()[0]})"


def write_row(csv, name, micro, rate, attention):
    """A row as tests/bench/bench.c writes it; ratio: the MFU."""
    z = SIZES[name]
    peak = 989e12 / flop_per_token(z)
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True).stdout.strip() or "unknown"
    case = f"{name} adamw {micro} x {z.sequence} torch {torch.__version__} compiled attention {attention}"
    new = not os.path.exists(csv) or os.path.getsize(csv) == 0
    with open(csv, "a", encoding="utf-8") as f:
        f.write((HEADER if new else "") + f"{time.strftime('%Y-%m-%d', time.gmtime())},x{os.cpu_count()},{commit},cuda_train,{case},"
                f"{rate:.4g},tokens/s,{peak:.4g},{rate / peak:.4g},bf16 autocast {torch.cuda.get_device_name()}\n")


def measure(name, micro, steps, mode, csv):
    z = SIZES[name]
    torch.manual_seed(1)
    model = GPT(z).cuda()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    run = torch.compile(model, mode=mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    tokens = torch.randint(0, 50257, (8, micro, z.sequence + 1), device="cuda")
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
    rate = micro * z.sequence / seconds
    print(f"torch {torch.__version__} {name} micro={micro} tokens/s={rate:.0f} mfu={rate * flop_per_token(z) / 989e12:.3f} "
          f"attention={chosen(z)} compile={mode} loss={loss.item():.4f} memory_gib={torch.cuda.max_memory_allocated() / 2**30:.1f}", flush=True)
    if csv:
        write_row(csv, name, micro, rate, f"{chosen(z)} {mode}")


def median_ms(run, repeats=11):
    run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(5):
            run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 5)
    return sorted(times)[repeats // 2]


def attention():
    """Rows as bench_cuda's, for each backend: 32768 tokens, width 1024; FLOP as FlashAttention's papers count them."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    tokens, width = 32768, 1024
    for length in (512, 1024, 2048, 4096):
        for dimension in (64, 128):
            shape = (tokens // length, width // dimension, length, dimension)
            q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
            dout = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
            for causal in (True, False):
                flop = 4 * tokens * length * width / (2 if causal else 1)
                for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
                    what = f"L={length} HD={dimension} causal={int(causal)} torch-{name}"
                    try:
                        with sdpa_kernel(backend):
                            out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
                            forward = median_ms(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal))
                            backward = median_ms(lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))
                        print(f"attention fwd {what} TFLOP/s={flop / forward * 1e-9:.0f}\n"
                              f"attention bwd {what} TFLOP/s={2.5 * flop / backward * 1e-9:.0f}", flush=True)
                    except RuntimeError as e:
                        print(f"attention {what}: {str(e).splitlines()[0]}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("size", nargs="?", default="124m", choices=(*SIZES, "attention"))
    p.add_argument("micros", nargs="?", default="32,64,128")
    p.add_argument("steps", nargs="?", type=int, default=20)
    p.add_argument("--attention", choices=("default", "flash", "cudnn"), default="default")
    p.add_argument("--mode", choices=("default", "max-autotune"), default="default")
    p.add_argument("--csv")
    a = p.parse_args()
    if a.size == "attention":
        return attention()
    torch.set_float32_matmul_precision("high")
    for micro in [int(m) for m in a.micros.split(",")]:
        try:
            with allowed(a.attention):
                measure(a.size, micro, a.steps, a.mode, a.csv)
        except torch.cuda.OutOfMemoryError:
            print(f"torch {a.size} micro={micro}: out of memory")


if __name__ == "__main__":
    main()
