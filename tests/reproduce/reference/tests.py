#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A test program of this repository, whose oracle (float64, published vectors) is in it, as numbers of a row.

    tests.py PROGRAM [ARGUMENT ...]
Prints as JSON: failed (1: the program ends with another code than 0).
"""
import json
import pathlib
import re
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]  # golden files are named from there


def failed_tests(program, least):
    """Of all groups of tests of a program; it is an error if fewer than `least` passed."""
    out = subprocess.run([program], cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         check=False).stdout
    passed, failed = (sum(map(int, re.findall(rf"\[  {word}  \] (\d+) test", out))) for word in ("PASSED", "FAILED"))
    if passed < least:
        sys.exit(f"{program}: {passed} tests passed, {least} are expected\n{out[-2000:]}")
    return failed


if __name__ == "__main__":
    done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd=REPOSITORY)
    print(json.dumps({"failed": int(done.returncode != 0)}))
