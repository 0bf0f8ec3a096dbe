#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes values.txt: parameters after ten steps of each case of tests/reproduce/reference/optimizers.py, seed 7."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../reproduce/reference"))
import optimizers  # noqa: E402

with open(os.path.join(HERE, "values.txt"), "w") as out:
    for case in optimizers.CASES:
        values = [v for x in optimizers.run(case, 7) for v in x]
        out.write(f"{case} {len(values)} " + " ".join(f"{v:.9g}" for v in values) + "\n")
