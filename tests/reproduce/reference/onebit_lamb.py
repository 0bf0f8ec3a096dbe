#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""1-bit LAMB (Li et al. 2022, 2104.06069) in float64, fed the gradients that four ranks recorded.

    onebit_lamb.py RANKS

RANKS: the test program `ranks`. Prints as JSON: difference (largest over 20 steps, of the parameters, relative to their norm; also with
train.trust_layers = hidden, where 1-bit Adam steps what is no matrix of a layer), bytes (1 if the bytes that were counted in each step
of stage 2 are those of the formula), equal (largest distance from 1 of
rms(s_l m_l) over its mean at the freeze), volume (of stage 2 over that of fp16 sums)."""
import json
import sys
import tempfile

import numpy as np
from compressed import STEPS, Run, Signs, clipped, difference

BETA1, BETA2, EPS, DECAY, CLIP, FREEZE, LEAST, MOST = 0.9, 0.95, 1e-6, 0.1, 1.0, 5, 0.01, 0.3
SETTINGS = ["--train.optimizer", "lamb", "--train.compress", "onebit", "--train.compress_start", FREEZE / STEPS, "--train.bias_correction",
            "false", "--train.trust_max", MOST]
BESIDE = 0.4
HIDDEN = ["--train.trust_layers", "hidden", "--train.adamw_lr", BESIDE]
COEFFICIENT, FACTORS, THRESHOLD = 0.9, (0.5, 4.0), 0.1
STATS = 8  # bytes of a double


def rms(x):
    return np.sqrt(np.mean(np.square(x)))


class Replay:
    def __init__(self, run, hidden):
        self.run, n = run, run.elements
        # Of each tensor: whether Adam steps it, at BESIDE times the rate.
        self.adam = [hidden and not (name.startswith("layers.") and tensor[3]) for name, tensor in zip(run.names, run.tensors)]
        self.x, self.m, self.v, self.fresh = run.params[0].copy(), np.zeros(n), np.zeros(n), np.zeros(n)
        self.parts, self.decay = run.ranges(), DECAY * run.decay()
        self.average, self.last = np.zeros(len(self.parts)), np.ones(len(self.parts))
        self.codec, self.equal = Signs([slice(0, n)], n, run.ranks), 0.0

    def warm(self, t, lr):
        g = clipped(self.run, t, CLIP, True)[0]
        self.m = BETA1 * self.m + (1 - BETA1) * g
        self.v = BETA2 * self.v + (1 - BETA2) * g * g
        u = self.m / (np.sqrt(self.v) + EPS) + self.decay * self.x
        for k, (p, tensor) in enumerate(zip(self.parts, self.run.tensors)):
            size, step = np.linalg.norm(self.x[p]), np.linalg.norm(u[p])
            if self.adam[k]:
                self.x[p] -= BESIDE * lr * u[p]
                continue
            c = np.clip(size / step, LEAST, MOST) if tensor[3] and size > 0 and step > 0 else 1.0
            if c != 1:
                self.average[k] = COEFFICIENT * self.average[k] + (1 - COEFFICIENT) * c
            self.x[p] -= lr * c * u[p]

    def freeze(self):
        sizes = np.array([rms(self.m[p]) for p in self.parts])
        self.scales = np.where(sizes > 0, sizes.mean() / np.where(sizes > 0, sizes, 1), 1)
        self.fresh = self.v.copy()
        scaled = np.array([rms(s * self.m[p]) for s, p in zip(self.scales, self.parts)])[sizes > 0]
        self.equal = float(np.max(np.abs(scaled / scaled.mean() - 1)))

    def compressed(self, t, lr):
        own, scale = clipped(self.run, t, CLIP, False), np.ones_like(self.x)
        for s, p in zip(self.scales, self.parts):
            scale[p] = s
        z = scale * (BETA1 * self.m + (1 - BETA1) * self.run.ranks * own)
        m = self.codec.mean(z, self.v != 0) / scale
        g = (m - BETA1 * self.m) / (1 - BETA1)
        self.fresh = BETA2 * self.fresh + (1 - BETA2) * g * g
        self.m = m
        a = m / (np.sqrt(self.v) + EPS)
        u = a + self.decay * self.x
        ratio = (np.sqrt(self.v) + EPS) / (np.sqrt(self.fresh) + EPS)
        for k, p in enumerate(self.parts):
            if self.adam[k]:
                self.x[p] -= BESIDE * lr * u[p]
                continue
            f = ratio[p].max()
            if self.decay[p].any():
                rho = min(1, np.linalg.norm(a[p]) / np.linalg.norm(u[p]))
                f = f * rho + 1 - rho
            f = np.clip(np.clip(f, *FACTORS), (1 - THRESHOLD) * self.last[k], (1 + THRESHOLD) * self.last[k])
            self.last[k] = f
            self.x[p] -= lr * (self.average[k] if self.average[k] > 0 else 1) * f * u[p]


def replayed(hidden):
    """The replay of a recorded run, its largest difference, and whether its bytes are those of the formula."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(sys.argv[1], 4, SETTINGS + (HIDDEN if hidden else []), folder)
    replay, largest = Replay(run, hidden), 0.0
    for t in range(STEPS):
        if t == FREEZE:
            replay.freeze()
        (replay.warm if t < FREEZE else replay.compressed)(t, run.steps[t, 1])
        largest = max(largest, difference(run, t, replay.x))
    statistics = run.steps[0, 2] - 2 * 3 / 4 * 4 * run.elements  # of the step: a few doubles
    return replay, largest, np.all(np.abs(run.steps[FREEZE:, 2] - replay.codec.up() - statistics) <= 2 * STATS)


def main():
    replays, largest, exact = zip(*[replayed(hidden) for hidden in (False, True)])
    print(json.dumps({"difference": max(largest), "bytes": int(all(exact)), "equal": max(r.equal for r in replays),
                      "volume": replays[0].codec.up() / (2 * 3 / 4 * 2 * replays[0].run.elements)}))


if __name__ == "__main__":
    main()
