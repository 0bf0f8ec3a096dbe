#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""0/1 Adam (Lu et al. 2023, 2202.06009) in float64, fed the gradients that four ranks recorded.

    zeroone.py RANKS

RANKS: the test program `ranks`. Prints as JSON: difference (largest over 20 steps, of rank 0's parameters, relative to their norm),
bytes (1 if the bytes that were counted in each step are those of the schedule), rounds (steps in which the ranks summed a slab)."""
import json
import sys
import tempfile

import numpy as np
from compressed import STEPS, Run, Signs, clipped, difference

BETA1, BETA2, EPS, DECAY, CLIP = 0.9, 0.95, 1e-6, 0.1, 1.0
FREEZE, VARIANCE, STAGE, MOST, EVAL = 8, 2, 4, 4, 9
SETTINGS = ["--train.optimizer", "adamw", "--train.compress", "zeroone", "--train.compress_start", FREEZE / STEPS, "--train.variance_grow", VARIANCE,
            "--train.local_grow", STAGE / STEPS, "--train.local_max", MOST, "--train.eval_every", EVAL]
STATS = 8  # bytes of a double


def schedule():
    """For each step: full, signs or local. As the paper's policies: counters that double an interval."""
    kinds, interval, done, since = [], 1, 0, 0
    for _ in range(FREEZE):
        since += 1
        kinds.append("full" if since == interval else "signs")
        if since == interval:
            since, done = 0, done + 1
        if done == VARIANCE:
            interval, done = 2 * interval, 0
    for local in range(1, STEPS - FREEZE + 1):
        interval, t = min(MOST, 2 ** ((local - 1) // STAGE)), FREEZE + local
        kinds.append("signs" if local % interval == 0 or t % EVAL == 0 or t == STEPS else "local")
    return kinds


class Replay:
    def __init__(self, run):
        n = run.elements
        self.run, self.decay, self.codec = run, DECAY * run.decay(), Signs(run.ranges(), n, run.ranks)
        self.m, self.v, self.squares = np.zeros((run.ranks, n)), np.zeros(n), 0
        self.x, self.shared, self.u = np.tile(run.params[0], (run.ranks, 1)), run.params[0].copy(), np.zeros((run.ranks, n))
        self.lr = self.moved = 0.0

    def moments(self, t):
        return 1 / (1 - BETA1 ** (t + 1)), np.sqrt(self.v / (1 - BETA2 ** self.squares)) + EPS

    def summed(self, t, lr, full):
        if full:
            g = clipped(self.run, t, CLIP, True)[0]
            self.v, self.squares = BETA2 * self.v + (1 - BETA2) * g * g, self.squares + 1
        else:
            g = self.codec.mean(self.run.ranks * clipped(self.run, t, CLIP, False), self.v != 0)
        self.m[:] = BETA1 * self.m[0] + (1 - BETA1) * g
        correction, root = self.moments(t)
        self.x[:] = self.x[0] - lr * (correction * self.m[0] / root + self.decay * self.x[0])
        self.shared = self.x[0].copy()

    def local(self, t, lr, sync):
        correction, root = self.moments(t)
        self.m = BETA1 * self.m + (1 - BETA1) * self.run.ranks * clipped(self.run, t, CLIP, False)
        self.m[:, self.v == 0] = 0
        self.u += lr * correction * self.m
        self.x -= lr * correction * self.m / root
        self.lr, self.moved = self.lr + lr, self.moved + lr * correction
        if not sync:
            return
        y = self.codec.mean(self.u, self.v != 0)
        self.shared = self.shared - y / root - self.lr * self.decay * self.shared
        self.m[:], self.x[:] = y / self.moved, self.shared
        self.u[:], self.lr, self.moved = 0, 0.0, 0.0


def main():
    with tempfile.TemporaryDirectory() as folder:
        run = Run(sys.argv[1], 4, SETTINGS, folder)
    replay, largest, kinds = Replay(run), 0.0, schedule()
    for t, kind in enumerate(kinds):
        if t == FREEZE:
            replay.codec = Signs(run.ranges(), run.elements, run.ranks)
        if t < FREEZE:
            replay.summed(t, run.steps[t, 1], kind == "full")
        else:
            replay.local(t, run.steps[t, 1], kind == "signs")
        largest = max(largest, difference(run, t, replay.x[0]))
    full = 2 * 3 / 4 * 4 * run.elements
    statistics = run.steps[0, 2] - full  # of the step: a few doubles
    sent = np.array([{"full": full, "signs": replay.codec.up(), "local": 0}[kind] for kind in kinds])
    exact = np.all(np.abs(run.steps[:, 2] - sent - statistics) <= 2 * STATS)
    print(json.dumps({"difference": largest, "bytes": int(exact), "rounds": sum(kind != "local" for kind in kinds)}))


if __name__ == "__main__":
    main()
