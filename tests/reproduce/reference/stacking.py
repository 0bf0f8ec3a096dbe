#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What progressive stacking must hold: bits, operations and bytes, by programs of the tests, and the paper's count of operations.

    stacking.py ATOLL TEST_MODEL

1. tests/e2e/stages.sh: frozen tensors keep every bit at two sites with outer momentum, the bytes before the run are the bytes of the run,
   kills and a resume in a stage change nothing, two ranks are one.
2. TEST_MODEL: gradients of a stage against float64; operations of its backward against those of all layers.
3. Operations of the run of the row by 2011.13635: layers forward and twice the layers that learn backward, over 3 L.
Prints as JSON: difference (failed programs), factor (operations of the stages over those of the plain run).
"""
import json
import os
import subprocess
import sys
import tempfile

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
STAGES, LAYERS = [(3, 0.2), (6, 0.2), (9, 0.2), (12, 0.2), (12, 0.2)], 12


def main():
    atoll, test_model = sys.argv[1:3]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for words in ([os.path.join(REPOSITORY, "tests/e2e/stages.sh"), atoll, os.path.join(folder, "run")], [test_model]):
            p = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            failed += p.returncode != 0
            if p.returncode:
                print("\n".join(p.stdout.splitlines()[-20:]), file=sys.stderr)
    factor, before = 0.0, 0
    for layers, share in STAGES:
        learns = layers - before if layers > before else layers
        factor += share * (layers + 2 * learns) / (3 * LAYERS)
        before = layers
    print(json.dumps({"difference": failed, "factor": factor}))


main()
