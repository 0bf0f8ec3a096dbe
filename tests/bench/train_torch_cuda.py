#!/usr/bin/env python3
"""GPT-2 124M (or 1.5B, or 1B of Llama's shape) in PyTorch on one GPU, as its users run it: torch.compile, SDPA with flash attention, fused
AdamW, bf16 autocast; tokens/s and MFU beside what `atoll train --device.kind cuda` reports on the same machine.
  train_torch_cuda.py [124m|1558m|1b] [micro-batches to try, default 32,64,128] [steps]
  train_torch_cuda.py attention    SDPA alone at the shapes of bench_cuda: its flash kernels, and cuDNN's
MFU: 6 FLOP per matrix weight plus 12 L C T / 2 of causal attention, over 989 TFLOP/s (H100/H200, dense bf16)."""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

# layers, heads, width, MLP, vocabulary, sequence; 1b is bench_cuda_train's: Llama's shape, RMS norms, no biases
SIZES = {"124m": (12, 12, 768, 3072, 50304, 1024), "1558m": (48, 25, 1600, 6400, 50304, 1024),
         "1b": (16, 32, 2048, 12288, 128256, 2048)}


class Block(nn.Module):
    def __init__(self, heads, width, mlp, llama):
        super().__init__()
        self.heads = heads
        norm, bias = (nn.RMSNorm, False) if llama else (nn.LayerNorm, True)
        self.norm1, self.norm2 = norm(width), norm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)
        self.up, self.down = nn.Linear(width, mlp, bias), nn.Linear(mlp, width, bias)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, heads, width, mlp, vocab, sequence, llama=False):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(Block(heads, width, mlp, llama) for _ in range(layers))
        self.norm = nn.RMSNorm(width) if llama else nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def measure(name, micro, steps):
    layers, heads, width, mlp, vocab, sequence = SIZES[name]
    torch.manual_seed(1)
    model = GPT(*SIZES[name], llama=name == "1b").cuda()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    run = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    tokens = torch.randint(0, 50257, (8, micro, sequence + 1), device="cuda")
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
    flop = 6 * (layers * (4 * width**2 + 2 * width * mlp) + vocab * width) + 6 * layers * width * sequence
    rate = micro * sequence / seconds
    print(f"torch {torch.__version__} gpt-{name} micro={micro} tokens/s={rate:.0f} mfu={rate * flop / 989e12:.3f} "
          f"loss={loss.item():.4f} memory_gib={torch.cuda.max_memory_allocated() / 2**30:.1f}", flush=True)


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
    if sys.argv[1:2] == ["attention"]:
        return attention()
    name = sys.argv[1] if len(sys.argv) > 1 else "124m"
    micros = [int(m) for m in (sys.argv[2] if len(sys.argv) > 2 else "32,64,128").split(",")]
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    torch.set_float32_matmul_precision("high")
    for micro in micros:
        try:
            measure(name, micro, steps)
        except torch.cuda.OutOfMemoryError:
            print(f"torch gpt-{name} micro={micro}: out of memory")


if __name__ == "__main__":
    main()
