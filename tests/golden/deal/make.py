# SPDX-License-Identifier: Apache-2.0
"""The snake deal of Kim et al. (2024), section on local presorting, in NumPy: values.txt.

    python make.py > values.txt

Each case is three lines: "ranks each", the lengths, and for each rank in turn the indices of its examples.
"""
import numpy as np

rng = np.random.default_rng(2024)
for ranks, each, kinds in ((1, 5, 4), (2, 1, 9), (2, 6, 512), (3, 5, 3), (8, 16, 512), (8, 12, 2), (7, 9, 1)):
    lengths = rng.integers(1, kinds + 1, ranks * each)
    rows = np.argsort(-lengths, kind="stable").reshape(each, ranks)
    rows[1::2] = rows[1::2, ::-1]
    print(ranks, each)
    print(*lengths)
    print(*rows.T.ravel())
