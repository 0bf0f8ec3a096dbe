#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The standardization loss of the paper in float64, and the gradients of atoll against central differences of it.

    standard.py TEST_MODEL TEST_ENCODER

1. From 1903.00925, eq. 5: half of the sum over channels of mean^2 + variance - log(variance) - 1, and its gradient
   (mean + (1 - 1 / variance) (x - mean)) / n, here against central differences; standardised rows lose nothing.
2. TEST_ENCODER: the op against a float64 reference; TEST_MODEL: gradients of all tensors of a model without norms against central
   differences of a float64 model, to 1e-4.
Prints as JSON: difference (of the gradient, of its largest value), zero (loss of standardised rows), failed (test programs).
"""
import json
import math
import random
import subprocess
import sys

from differences import apart


def loss(x):
    rows, sum_ = len(x), 0.0
    for channel in zip(*x):
        mean = sum(channel) / rows
        variance = sum((v - mean) ** 2 for v in channel) / rows
        sum_ += (mean**2 + variance - math.log(variance) - 1) / 2
    return sum_


def gradient(x):
    rows, out = len(x), [[0.0] * len(x[0]) for _ in x]
    for c, channel in enumerate(zip(*x)):
        mean = sum(channel) / rows
        variance = sum((v - mean) ** 2 for v in channel) / rows
        for r in range(rows):
            out[r][c] = (mean + (1 - 1 / variance) * (x[r][c] - mean)) / rows
    return out


def main():
    draw = random.Random(3)
    x = [[draw.gauss(0.3, 1.7) for _ in range(5)] for _ in range(20)]
    difference = apart(lambda: loss(x), x, gradient(x), 1e-5)
    failed = sum(subprocess.run([p], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0
                 for p in sys.argv[1:3])
    print(json.dumps({"difference": difference, "zero": abs(loss([[1.0], [-1.0]])), "failed": failed}))


main()
