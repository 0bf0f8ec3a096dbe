# SPDX-License-Identifier: Apache-2.0
"""The encoder's training step in PyTorch, speaking bench_train.c's protocol: "go N" on stdin, N times in seconds on stdout; "cpu N":
processor time instead of the clock's.

    python3 tests/bench/encoder_torch.py b1|base f32|bf16 THREADS SEQUENCE FILL HOW eager|compiled

PyTorch's best. In all of them the head sees only the rows with a target, the optimizer is the fused AdamW, gradients are set to
None, bf16 is autocast. HOW:
- padded: every sequence fills its slot; scaled_dot_product_attention with a mask of the keys, without one where nothing is padded.
- loop: packed; linear layers, norms and head on the real tokens, one scaled_dot_product_attention for each sequence.
- repad: packed; the attention alone is padded again, with the mask.
- jagged: packed; scaled_dot_product_attention of nested tensors with the jagged layout, which is the varlen attention of the CPU.
"""
import sys
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

CLOCKS = {"go": time.perf_counter, "cpu": time.process_time}
# layers, width, heads, vocabulary, slots of a step
SHAPES = {"b1": (4, 128, 4, 4096, 4096), "base": (12, 768, 12, 30522, 1024)}


def lengths(slots, sequence, fill):
    """As in bench_train.c."""
    n, low = slots // sequence, 2 * fill - 100
    return [sequence * (low * (n - 1) + (100 - low) * i) // (100 * (n - 1)) for i in range(n)]


class Attention(nn.Module):
    def __init__(self, width, heads, how):
        super().__init__()
        self.heads, self.how = heads, how
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, plan):
        c = x.shape[-1]
        q, k, v = (y.view(*x.shape[:-1], self.heads, c // self.heads) for y in self.qkv(x).split(c, -1))
        return self.proj(getattr(self, self.how)(q, k, v, plan).reshape(x.shape))

    def padded(self, q, k, v, plan):
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=plan["mask"]).transpose(1, 2)

    def loop(self, q, k, v, plan):
        parts = [F.scaled_dot_product_attention(*(y.transpose(0, 1).unsqueeze(0) for y in qkv))
                 for qkv in zip(*(y.split(plan["lengths"]) for y in (q, k, v)))]
        return torch.cat([y.squeeze(0).transpose(0, 1) for y in parts])

    def repad(self, q, k, v, plan):
        slots = (q.new_zeros(plan["slots"], *q.shape[1:]).index_copy(0, plan["places"], y).view(*plan["shape"], *q.shape[1:])
                 for y in (q, k, v))
        return self.padded(*slots, plan).reshape(plan["slots"], *q.shape[1:])[plan["places"]]

    def jagged(self, q, k, v, plan):
        nested = (torch.nested.nested_tensor_from_jagged(y, plan["offsets"], min_seqlen=min(plan["lengths"]),
                                                         max_seqlen=max(plan["lengths"])).transpose(1, 2) for y in (q, k, v))
        return F.scaled_dot_product_attention(*nested).transpose(1, 2).values()


class Block(nn.Module):
    def __init__(self, width, heads, how):
        super().__init__()
        self.attention = Attention(width, heads, how)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, plan):
        x = self.norm1(x + self.attention(x, plan))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, layers, width, heads, vocab, context, how):
        super().__init__()
        self.wte, self.wpe, self.wtt = nn.Embedding(vocab, width), nn.Embedding(context, width), nn.Embedding(2, width)
        self.norm, self.head_norm = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.blocks = nn.ModuleList(Block(width, heads, how) for _ in range(layers))
        self.dense, self.bias = nn.Linear(width, width), nn.Parameter(torch.zeros(vocab))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets, plan):
        x = self.norm(self.wte(tokens) + self.wpe(plan["positions"]) + self.wtt(plan["types"]))
        for block in self.blocks:
            x = block(x, plan)
        x = x.reshape(-1, x.shape[-1])[plan["rows"]]
        logits = F.linear(self.head_norm(F.gelu(self.dense(x))), self.wte.weight, self.bias)
        return F.cross_entropy(logits.float(), targets)


def plan_of(slots, sequence, fill, how):
    """What of a batch does not change from step to step; the rows with a target as in bench_train.c: 15 % of the real tokens."""
    n, count = slots // sequence, lengths(slots, sequence, fill)
    real, full = sum(count), all(x == sequence for x in count)
    places = torch.cat([torch.arange(x) + i * sequence for i, x in enumerate(count)])
    rows = torch.tensor([t for t in range(real) if t * 3 % 20 < 3])
    padded = how == "padded"
    mask = torch.arange(sequence)[None, :] < torch.tensor(count)[:, None]
    shape = (n, sequence) if padded else (real,)
    positions = torch.arange(sequence).expand(n, sequence) if padded else places % sequence
    return {"lengths": count, "offsets": F.pad(torch.tensor(count).cumsum(0), (1, 0)), "slots": slots, "shape": (n, sequence), "real": real,
            "places": places, "positions": positions, "types": torch.zeros(shape, dtype=torch.long),
            "rows": places[rows] if padded else rows, "mask": None if full else mask[:, None, None, :]}, shape


def main():
    size, dtype, threads, sequence, fill, how, mode = sys.argv[1:]
    layers, width, heads, vocab, slots = SHAPES[size]
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    plan, shape = plan_of(slots, int(sequence), int(fill), how)
    model = Bert(layers, width, heads, vocab, int(sequence), how)
    count = sum(p.numel() for p in model.parameters())
    print(f"{size}: {count} parameters, torch {torch.__version__} {how} {mode}", file=sys.stderr)
    step = torch.compile(model) if mode == "compiled" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1, fused=True)
    for line in sys.stdin:
        word, _, count = line.partition(" ")
        if word not in CLOCKS:
            break
        seconds, clock = [], CLOCKS[word]
        for _ in range(int(count)):
            tokens, targets = torch.randint(0, vocab, shape), torch.randint(0, vocab, plan["rows"].shape)
            start = clock()
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
                loss = step(tokens, targets, plan)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            loss.item()
            seconds.append(clock() - start)
        print(" ".join(f"{s:.6f}" for s in seconds), flush=True)


if __name__ == "__main__":
    main()
