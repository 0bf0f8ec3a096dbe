#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""1-bit Adam (Tang et al. 2021, 2102.02888) in float64, fed the gradients that four ranks recorded.

    onebit.py RANKS [--quick]

RANKS: the test program `ranks`. Prints as JSON: difference (largest over 20 steps, of the parameters, relative to their
norm), bytes (1 if the bytes that were counted in each step of stage 2 are those of the formula), volume (of stage 2 over
that of fp16 sums)."""
import json
import sys
import tempfile

import numpy as np
from compressed import STEPS, Run, Signs, clipped, difference

BETA1, BETA2, EPS, DECAY, CLIP, FREEZE = 0.9, 0.95, 1e-6, 0.1, 1.0, 5
SETTINGS = ["--train.optimizer", "adamw", "--train.compress", "onebit", "--train.compress_start", FREEZE / STEPS]
STATS = 8  # bytes of a double


def replay(run):
    x, m, v = run.params[0].copy(), np.zeros(run.elements), np.zeros(run.elements)
    codec, decay, largest = Signs(run.ranges(), run.elements, run.ranks), run.decay(), 0.0
    for t in range(STEPS):
        lr = run.steps[t, 1]
        if t < FREEZE:
            g = clipped(run, t, CLIP, True)[0]
            m = BETA1 * m + (1 - BETA1) * g
            v = BETA2 * v + (1 - BETA2) * g * g
        else:
            own = BETA1 * m + (1 - BETA1) * run.ranks * clipped(run, t, CLIP, False)
            m = codec.mean(own, v != 0)
        vh = v / (1 - BETA2 ** min(t + 1, FREEZE))
        x -= lr * (m / (1 - BETA1 ** (t + 1)) / (np.sqrt(vh) + EPS) + DECAY * decay * x)
        largest = max(largest, difference(run, t, x))
    return largest, codec.up()


def main():
    with tempfile.TemporaryDirectory() as folder:
        run = Run(sys.argv[1], 4, SETTINGS, folder)
    largest, up = replay(run)
    counted = run.steps[FREEZE:, 2]
    full = run.steps[:FREEZE, 2]
    statistics = full[0] - 2 * 3 / 4 * 4 * run.elements  # of the step: a few doubles
    exact = np.all(np.abs(counted - up - statistics) <= 2 * STATS)
    print(json.dumps({"difference": largest, "bytes": int(exact), "volume": up / (2 * 3 / 4 * 2 * run.elements)}))


if __name__ == "__main__":
    main()
