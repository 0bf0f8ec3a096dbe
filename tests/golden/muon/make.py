# SPDX-License-Identifier: Apache-2.0
"""Ten steps of Muon with AdamW for the other tensors, in float64 NumPy: values.txt.

    python make.py > values.txt

Written from Jordan et al. (2024), kellerjordan.github.io/posts/muon, Liu et al. (2025), 2502.16982, equation 4, and Therien et al.
(2025), 2505.23725, MuLoCo, whose scale and coefficients have the names that end in "m".
"""
import numpy as np

LR, DECAY, MOMENTUM, FACTOR, BETA1, BETA2, EPS = 0.02, 0.1, 0.95, 0.3, 0.9, 0.95, 1e-6
CLIP, TARGETS, STEPS, WARMUP = 0.5, 3, 10, 3
# name, shape, matrix of a layer, size of the gradient, decay; q, k, v of the last are matrices of their own
TENSORS = [("embedding", (5, 8), False, 1, True), ("wide", (24, 40), True, 1, True), ("tall", (40, 24), True, 1, True),
           ("zero", (16, 16), True, 0, True), ("vector", (7,), False, 1, False), ("one", (1, 1), True, 1, True),
           ("scalar", (1,), False, 1, False), ("qkv", (24, 8), True, 1, True)]


def noise(shape, stream):
    """Multiples of 2^-23 in [-1, 1): splitmix64 of (stream, element)."""
    with np.errstate(over="ignore"):
        z = np.arange(np.prod(shape), dtype=np.uint64) + np.uint64(stream << 32)
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return ((z >> np.uint64(40)).astype(float) / 2**23 - 1).reshape(shape)


JORDAN = 5 * [(3.4445, -4.7750, 2.0315)]
MULOCO = [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046),
          (2.8366, -3.0525, 1.2012)]


def orthogonal(u, coefficients):
    x = u / (np.sqrt((u * u).sum()) + 1e-7)
    transposed = x.shape[0] > x.shape[1]
    x = x.T if transposed else x
    for first, second, third in coefficients:
        a = x @ x.T
        x = first * x + (second * a + third * a @ a) @ x
    return x.T if transposed else x


def muon(p, m, g, lr, muloco):
    m[:] = MOMENTUM * m + g
    scale = np.sqrt(p.shape[0] / p.shape[1]) if muloco else 0.2 * np.sqrt(max(p.shape))
    o = scale * orthogonal(g + MOMENTUM * m, MULOCO if muloco else JORDAN)
    p[:] = p - lr * (o + DECAY * p)


def adamw(p, m, v, g, lr, decay, t):
    m[:] = BETA1 * m + (1 - BETA1) * g
    v[:] = BETA2 * v + (1 - BETA2) * g * g
    u = m / (1 - BETA1**t) / (np.sqrt(v / (1 - BETA2**t)) + EPS)
    p[:] = p - FACTOR * lr * (u + (DECAY if decay else 0) * p)


def run(seed=0, muloco=False):
    """The parameters at the start and after each step: arrays that the next step changes."""
    stream = seed << 20
    params = [noise(shape, stream + k) for k, (_, shape, _, _, _) in enumerate(TENSORS)]
    first, second = [np.zeros_like(p) for p in params], [np.zeros_like(p) for p in params]
    yield params
    for step in range(STEPS):
        lr = LR * min(1, (step + 1) / WARMUP)
        grads = [size * noise(shape, stream + 1000 * (step + 1) + k) for k, (_, shape, _, size, _) in enumerate(TENSORS)]
        norm = np.sqrt(sum((g * g).sum() for g in grads)) / TARGETS
        scale = min(1, CLIP / norm) / TARGETS
        for k, (name, _, matrix, _, decay) in enumerate(TENSORS):
            g = grads[k] * scale
            if not matrix:
                adamw(params[k], first[k], second[k], g, lr, decay, step + 1)
            else:
                for rows in np.split(np.arange(len(g)), 3 if name == "qkv" else 1):
                    p, m = params[k][rows], first[k][rows]
                    muon(p, m, g[rows], lr, muloco)
                    params[k][rows], first[k][rows] = p, m
        yield params


if __name__ == "__main__":
    for muloco in (False, True):
        for number, params in enumerate(run(muloco=muloco)):
            for k, (name, *_) in enumerate(TENSORS):
                if number in (1, STEPS):
                    print(f"{name}{number}{'m' if muloco else ''}", params[k].size, *(f"{x:.9g}" for x in params[k].ravel()))
