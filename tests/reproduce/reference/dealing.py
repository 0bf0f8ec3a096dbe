#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The deal of Kim et al. (2402.02447), local presorting, in NumPy from the paper: samples sorted by length, longest first (stable),
laid out as rows of as many as there are ranks, every odd row reversed; a rank has a column.

    dealing.py STEPS PROGRAM WORDS ...     PROGRAM lengths STEPS WORDS ... prints what ours does (tests/reproduce/deals.c)

Prints as JSON: difference, the number of places in which our deal is another one, and of ranks whose batch has other tokens; dealt,
undealt: medians over the steps of (max - min) / mean tokens of the ranks.
"""
import json
import subprocess
import sys

import numpy


def deal(lengths, ranks):
    order = numpy.argsort(-lengths, kind="stable").reshape(-1, ranks)
    order[1::2] = order[1::2, ::-1]
    return order.T


def spread(tokens):
    return (tokens.max() - tokens.min()) / tokens.mean()


def main():
    steps, program, *words = sys.argv[1:]
    out = subprocess.run([program, "lengths", steps, *words], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    wrong, dealt, undealt, seen = 0, [], [], []
    for at in range(0, len(out), 3):
        lengths, order, tokens = (numpy.array(line.split(), dtype=numpy.int64) for line in out[at:at + 3])
        expected = deal(lengths, len(tokens))
        wrong += int((order != expected.ravel()).sum()) + int((tokens != lengths[expected].sum(axis=1)).sum())
        dealt.append(spread(tokens))
        undealt.append(spread(lengths.reshape(len(tokens), -1).sum(axis=1)))
        seen.append(lengths)
    seen = numpy.concatenate(seen)
    print(json.dumps({"difference": wrong, "steps": len(dealt), "dealt": float(numpy.median(dealt)), "undealt": float(numpy.median(undealt)),
                      "mean_length": float(seen.mean()), "sd_length": float(seen.std())}))


if __name__ == "__main__":
    main()
