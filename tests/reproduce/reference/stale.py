#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Delayed gradients of Ouroboros (1909.06695), with K = 3 modules, against recorded runs of the test program `ranks`.

    stale.py RANKS

1. Learning rate 0: the network is frozen. One rank without modules records the fresh gradients; two ranks with delayed ones record
   theirs. Module k of K has the fresh gradient of K - 1 - k steps ago, and none before.
2. AdamW in float64 from Loshchilov & Hutter (1711.05101), fed with the recorded gradients of a run that learns. A module that has no
   gradient yet keeps its parameters, its moments and its count of steps. The tied table always has one, the head's.
3. Bits: one module with train.pipeline = stale, and three modules one after the other on two ranks, against no modules at all.
Prints as JSON: frozen, difference (both relative to the largest value), same (1: the bits of 3 agree).
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

from compressed import MPI, SMALL, STEPS, Run

K, LAYERS = 3, 4
FIRST = [0, 1, 3]  # layers of the modules begin here: a quarter, a half, a quarter
BASE = ["--train.micro_batch_tokens", 0, "--model.layers", LAYERS, "--train.optimizer", "adamw", "--train.warmup_steps", 0, "--train.max_grad_norm", 0]
STALE = ["--train.modules", K, "--train.pipeline", "stale"]
LR, BETA1, BETA2, EPS, DECAY = 0.01, 0.9, 0.99, 1e-6, 0.1


def delay(name, tied):
    layer = re.match(r"layers\.(\d+)\.", name)
    if layer:
        return K - 1 - max(k for k in range(K) if FIRST[k] <= int(layer[1]))
    embeddings = name.startswith(("wte", "wpe"))
    return K - 1 if embeddings and not (tied and name.startswith("wte")) else 0


def names(folder):
    with open(os.path.join(folder, "tensors"), encoding="utf-8") as f:
        return [line.split()[4] for line in f.read().split("\n")[1:] if line]


def frozen(program, folder):
    settings = [*BASE, "--train.lr", 0, "--model.tie_embeddings", "false"]
    fresh = Run(program, 1, settings, f"{folder}/fresh").grads[:, 0]
    late = Run(program, 2, [*settings, *STALE], f"{folder}/late")
    got, worst = late.grads.sum(axis=1), 0.0
    for name, r in zip(names(f"{folder}/late"), late.ranges()):
        d = delay(name, False)
        want = np.concatenate([np.zeros_like(fresh[:d, r]), fresh[:STEPS - d, r]])
        worst = max(worst, float(np.abs(got[:, r] - want).max() / np.abs(fresh[:, r]).max()))
    return worst


def learning(program, folder):
    settings = [*BASE, "--train.lr", LR, "--train.min_lr_ratio", 1, "--train.beta1", BETA1, "--train.beta2", BETA2, "--train.eps", EPS,
                "--train.weight_decay", DECAY]
    run = Run(program, 1, [*settings, *STALE], f"{folder}/learning")
    x, decay, worst = run.params[0].copy(), run.decay(), 0.0
    m, v, delays = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for name, r in zip(names(f"{folder}/learning"), run.ranges()):
        delays[r] = delay(name, True)
    for t in range(STEPS):
        g, learns = run.grads[t, 0] / run.steps[t, 0], t >= delays
        count = np.where(learns, t - delays + 1, 1)
        m = np.where(learns, BETA1 * m + (1 - BETA1) * g, m)
        v = np.where(learns, BETA2 * v + (1 - BETA2) * g * g, v)
        step = m / (1 - BETA1**count) / (np.sqrt(v / (1 - BETA2**count)) + EPS) + DECAY * decay * x
        x = np.where(learns, x - run.steps[t, 1] * step, x)
        worst = max(worst, float(np.linalg.norm(run.params[t + 1] - x) / np.linalg.norm(x)))
    return worst


def digest(program, ranks, folder, *words):
    words = ["mpirun", "-n", ranks, program, "train", folder, "whole", *SMALL, *BASE, *words]
    out = subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE, text=True, env=os.environ | MPI).stdout
    return set(re.findall(r"[0-9a-f]{64}", out))


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        plain = digest(program, 1, f"{folder}/plain")
        one = digest(program, 1, f"{folder}/one", "--train.modules", 1, "--train.pipeline", "stale")
        three = digest(program, 2, f"{folder}/three", "--train.modules", K)
        print(json.dumps({"frozen": frozen(program, folder), "difference": learning(program, folder),
                          "same": int(len(plain) == 1 and plain == one == three)}))


main()
