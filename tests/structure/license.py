#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every source file says its licence, which is that of LICENSE, in its first line, or in its second one after #!.

    tests/structure/license.py            ends with 1 and names the files that do not
    tests/structure/license.py --write    adds the line
"""
import os
import subprocess
import sys

import sources

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
LINES = {"/* {} */": (".c", ".h", ".cu", ".cuh", ".cc"), "// {}": (".proto",), "# {}": (".py", ".sh")}
TAG = "SPDX-License-Identifier: Apache-2.0"


def main():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True)
    if listed.returncode:
        sources.skip("this is no git checkout, so there is no list of sources")
    with open(os.path.join(ROOT, "LICENSE"), encoding="utf-8") as f:
        if "Apache License" not in f.read(200):
            print("LICENSE is no Apache licence any more: change TAG in tests/structure/license.py")
            return 1
    count = missed = 0
    for name in listed.stdout.split("\n"):
        form = next((form for form, endings in LINES.items() if name.endswith(endings)), None)
        path = os.path.join(ROOT, name)
        if not form or not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8") as f:
            lines = f.read().split("\n")
        count += 1
        at = lines[0].startswith("#!")
        if len(lines) > at and lines[at] == form.format(TAG):
            continue
        missed += 1
        if sys.argv[1:] != ["--write"]:
            print(f"{name}:{at + 1}: must be {form.format(TAG)}")
            continue
        lines.insert(at, form.format(TAG))
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n".join(lines))
    print(f"{count} sources, {missed} without a licence")
    return 1 if missed and sys.argv[1:] != ["--write"] else 0


if __name__ == "__main__":
    sys.exit(main())
