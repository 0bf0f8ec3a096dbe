#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A test program of this repository, whose oracle (float64, published vectors) is in it, as numbers of a row.

    tests.py PROGRAM [ARGUMENT ...]
Prints as JSON: failed (1: the program ends with another code than 0).
"""
import json
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]  # golden files are named from there

done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd=REPOSITORY)
print(json.dumps({"failed": int(done.returncode != 0)}))
