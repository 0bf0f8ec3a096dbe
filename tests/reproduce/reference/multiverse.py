#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The orthogonality of classifiers in float64, and the tests that compare atoll's with it.

    multiverse.py TEST_MODEL TEST_ENCODER HEADS_SH ATOLL

1. From 1911.06182: the sum over pairs of heads and over classes of |cosine|; its gradient, written here from the quotient rule, against
   central differences; 0 on an orthogonal set.
2. TEST_ENCODER: the op; TEST_MODEL: gradients of a model with four heads; tests/e2e/heads.sh: one head is the plain head bit for bit,
   heads leave alike on two ranks and after a resume.
Prints as JSON: difference (of the gradient, of its largest value), zero (penalty of an orthogonal set), failed (test programs).
"""
import json
import math
import os
import random
import subprocess
import sys
import tempfile

from differences import apart

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def penalty(w):
    return sum(abs(dot(a, b)) / math.sqrt(dot(a, a) * dot(b, b)) for i, one in enumerate(w) for two in w[:i] for a, b in zip(one, two))


def gradient(w):
    out = [[[0.0] * len(row) for row in head] for head in w]
    for i, one in enumerate(w):
        for j, two in enumerate(w):
            for c in range(len(one) if i != j else 0):
                a, b = one[c], two[c]
                norm = math.sqrt(dot(a, a) * dot(b, b))
                sign = 1 if dot(a, b) >= 0 else -1
                for k in range(len(a)):
                    out[i][c][k] += sign * (b[k] / norm - dot(a, b) / norm * a[k] / dot(a, a))
    return out


def main():
    test_model, test_encoder, atoll = sys.argv[1:4]
    draw = random.Random(3)
    w = [[[draw.gauss(0, 1) for _ in range(7)] for _ in range(3)] for _ in range(4)]
    difference = apart(lambda: penalty(w), sum(w, []), sum(gradient(w), []), 1e-6)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for words in ([test_model], [test_encoder], [os.path.join(REPOSITORY, "tests/e2e/heads.sh"), atoll, os.path.join(folder, "run")]):
            failed += subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0
    print(json.dumps({"difference": difference, "zero": penalty([[[1.0, 0.0]], [[0.0, 2.0]]]), "failed": failed}))


main()
