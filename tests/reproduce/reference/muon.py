#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ten steps of Muon and AdamW in float64 NumPy (tests/golden/muon/make.py, from the papers) and those of atoll, other seeds,
with the coefficients and the scale of either paper.

    muon.py TEST_MUON

Prints as JSON: difference (largest of |ours - reference| over the largest parameter of the tensor), single (the same of the tensors
of one element, whose parameter may lie near zero), values (how many were compared), moments (of each parameter of a layer's
matrices, of the two that AdamW keeps).
"""
import itertools
import json
import pathlib
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "golden/muon"))
import make  # noqa: E402


def main():
    worst, values, kept = [0.0, 0.0], 0, 0.0
    for seed, muloco in itertools.product((1, 2, 3), (False, True)):
        for last in make.run(seed, muloco):
            pass
        words = [sys.argv[1], "vectors", str(seed), *(["muloco"] if muloco else [])]
        lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
        ours = {name: np.array([float(v) for v in rest]) for name, *rest in (line.split() for line in lines)}
        kept = ours["moments"][0]
        for (name, *_), want in zip(make.TENSORS, last):
            single = want.size == 1
            worst[single] = max(worst[single], np.abs(ours[name] - want.ravel()).max() / np.abs(want).max())
            values += want.size
    print(json.dumps({"difference": worst[0], "single": worst[1], "values": values, "moments": kept}))


main()
