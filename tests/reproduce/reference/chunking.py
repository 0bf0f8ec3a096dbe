#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums in narrow accumulators: NumPy's own fp16 arithmetic, and bf16 by rounding bits; the closed form of 1901.06588, theorem 1.

    chunking.py ATOLL TEST_NARROW

2,000 sums of 8,192 products of two standard normals. Prints as JSON: fp16_plain, fp16_chunks, bf16_plain (log2 of the error over the
sum, root mean squares), difference (largest distance of these and TEST_NARROW's, bits), ranks_plain, ranks_chunks (predicted error of
the sum of eight ranks' gradients in bf16, in one level and in chunks of four), saved_fp16, least (bits by the closed form, products of 5 bits), least_ours (of `atoll plan --accumulator`), least_model (the same for all sums of the row's GPT), retention (largest relative distance of both programs' n (1 - VRR)).
"""
import json
import math
import subprocess
import sys

import numpy as np

TERMS, SUMS, CHUNK = 8192, 2000, 64


def to_fp16(x):
    return x.astype(np.float16).astype(np.float32)


def to_bf16(x):
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def error(to, chunk, terms=TERMS, sums=SUMS):
    rng = np.random.default_rng(5)
    exact, total, part = np.zeros(sums), np.zeros(sums, np.float32), np.zeros(sums, np.float32)
    for i in range(terms):
        x = to((rng.standard_normal(sums) * rng.standard_normal(sums)).astype(np.float32))
        exact += x
        part = to(part + x)
        if chunk and (i + 1) % chunk == 0:
            total, part = to(total + part), np.zeros(sums, np.float32)
    return math.log2(math.sqrt((((total if chunk else part) - exact) ** 2).mean() / (exact**2).mean()))


def beyond(t):
    return math.erfc(t / math.sqrt(2))


def lost(bits, product, n):
    """n (1 - VRR)."""
    def alpha(top):
        return 2.0**(bits - 3 * product) / 3 * sum(2.0**j * (2.0**j - 1) * (2.0**(j + 1) - 1) for j in range(1, top + 1))
    terms = [(i - alpha(product), beyond(2.0**bits / math.sqrt(i)) * (1 - beyond(2.0**bits / math.sqrt(i - 1)))) for i in range(2, n)]
    for r in range(2, product + 1):
        edge = 2.0**(bits - product + r)
        terms.append((n - alpha(r - 1), edge * beyond(edge / 2 / math.sqrt(n)) * (1 - beyond(edge / math.sqrt(n)))))
    terms.append((n, 1 - beyond(2.0**(bits - product + 1) / math.sqrt(n))))
    counted = [(t, p) for t, p in terms if t > 0]
    return n * (1 - sum(t * p for t, p in counted) / (n * sum(p for _, p in counted)))


def main():
    ours = json.loads(subprocess.run([sys.argv[2], "figures"], capture_output=True, text=True, check=True).stdout)
    found = {"fp16_plain": error(to_fp16, 0), "fp16_chunks": error(to_fp16, CHUNK), "bf16_plain": error(to_bf16, 0)}
    predicted = {"ranks_plain": error(to_bf16, 0, 8, 65536), "ranks_chunks": error(to_bf16, 4, 8, 65536)}
    table = subprocess.run([sys.argv[1], "plan", "--accumulator", "8", "--product", "5", "--train.batch_tokens", str(TERMS),
                            "--train.micro_batch_tokens", str(TERMS)], capture_output=True, text=True, check=True).stdout
    small = subprocess.run([sys.argv[1], "plan", "--accumulator", "6", "--product", "10", "--model.d_model", "64", "--model.heads", "2",
                            "--train.batch_tokens", "512"], capture_output=True, text=True, check=True).stdout
    model = max(int(row[3]) for row in map(str.split, small.splitlines()) if len(row) > 8 and row[0].isdigit())
    apart, least = 0.0, 0
    for row in (line.split() for line in table.splitlines()):
        if len(row) > 8 and row[0].isdigit():
            want = lost(8, 5, int(row[0]))
            apart = max(apart, abs(float(row[1]) / want - 1))
            least = int(row[3]) if int(row[0]) == TERMS else least
    print(json.dumps({**found, **predicted, "difference": max(abs(found[k] - ours[k]) for k in found),
                      "saved_fp16": found["fp16_plain"] - found["fp16_chunks"], "retention": apart, "least_ours": least, "least_model": model,
                      "least": next(b for b in range(5, 24) if lost(b, 5, TERMS) < 3.9)}))


main()
