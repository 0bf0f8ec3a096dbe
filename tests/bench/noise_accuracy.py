#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Held-out accuracy with independent noise and with correlated noise at the same epsilon, in turns.

    tests/bench/noise_accuracy.py ATOLL DEMO [--epsilon E,E] [--bands N] [--seeds N] [--csv FILE]

DEMO: what deploy/run-demo.sh --private left (run-demo-private): its data, its public encoder, and alone.yaml, the settings of site a
alone. Only privacy.epsilon, privacy.mechanism, privacy.sampling and run.seed change. Prints the accuracy of each seed, the means, and
what `atoll privacy banded` predicts for the noise of the prefix sums. --csv: appends a row for each mean.
"""
import argparse
import csv
import datetime
import json
import os
import statistics
import subprocess
import sys

KINDS = {"independent": ["--privacy.mechanism", "independent", "--privacy.sampling", "poisson"],
         "banded": ["--privacy.mechanism", "banded", "--privacy.sampling", "cyclic"]}


def atoll(*words):
    done = subprocess.run([options.atoll, *words], cwd=options.demo, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"atoll {words[0]}: {done.stderr[-2000:]}")
    return done.stdout + done.stderr


def accuracy(kind, epsilon, seed):
    name = f"noise-{kind}-{epsilon}-{seed}"
    subprocess.run(["rm", "-rf", name], cwd=options.demo, check=True)
    settings = ["--config", "alone.yaml", "--run.dir", name, "--run.seed", str(seed), "--site.aggregator=",
                "--privacy.epsilon", str(epsilon), *KINDS[kind]]
    if kind == "banded":
        settings += ["--privacy.bands", str(options.bands)]
    atoll("train", *settings, "--site.name", "a", "--data.train", "labels/train-0-*.bin", "--run.init_from", "masked/a", "--log.progress", "none")
    told = atoll("eval", "--config", "alone.yaml", "--run.dir", name, "--format", "json")
    return json.loads(told[told.index("{"):told.rindex("}") + 1])["accuracy"]


parser = argparse.ArgumentParser()
parser.add_argument("atoll", type=os.path.abspath)
parser.add_argument("demo", type=os.path.abspath)
parser.add_argument("--epsilon", default="3,1")
parser.add_argument("--bands", type=int, default=8)
parser.add_argument("--seeds", type=int, default=3)
parser.add_argument("--csv")
options = parser.parse_args()

for epsilon in [float(e) for e in options.epsilon.split(",")]:
    found = {kind: [] for kind in KINDS}
    for seed in range(1, options.seeds + 1):
        for kind in KINDS:
            found[kind].append(accuracy(kind, epsilon, seed))
            print(f"epsilon {epsilon:g}, {kind}, seed {seed}: {100 * found[kind][-1]:.1f} %", flush=True)
    mean = {kind: statistics.mean(found[kind]) for kind in KINDS}
    print(f"epsilon {epsilon:g}, mean of {options.seeds} seeds: independent {100 * mean['independent']:.1f} %, "
          f"banded {100 * mean['banded']:.1f} %", flush=True)
    if options.csv:
        sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        import records
        with open(options.csv, "a", newline="") as to:
            for kind in KINDS:
                csv.writer(to, lineterminator="\n").writerow([
                    datetime.date.today(), records.machine(), records.commit(), "noise_accuracy",
                    f"{kind} noise at epsilon {epsilon:g}", round(100 * mean[kind], 2), "%",
                    round(100 * mean["independent"], 2), round(mean[kind] / mean["independent"], 4),
                    f"seeds={options.seeds} bands={options.bands} spread={100 * min(found[kind]):.1f}-{100 * max(found[kind]):.1f}"])
