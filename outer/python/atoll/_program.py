# SPDX-License-Identifier: Apache-2.0
"""The program `atoll` of the wheel."""
import os
import pathlib
import sys


def main():
    program = pathlib.Path(__file__).parent / "bin" / "atoll"
    if not program.exists():
        sys.exit("this installation has no program; build it with deploy/build.sh of the repository")
    os.execv(program, [str(program), *sys.argv[1:]])
