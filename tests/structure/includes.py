#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The include graph of the C sources: layers, folders and units (docs/architecture.md).

A file includes its own folder, or a folder of an earlier line of LAYERS; kernels <- inner <- outer -> proto, and nothing of tests/.
A program of deploy/ includes the header that an installation has, atoll.h; deploy/examples/one_site.c the headers of kernels/ and inner/.
Two folders, or two units of a folder, never include each other. No two headers have one include guard. A unit is the files of a folder with one prefix: site.c,
site_call.c and site_own.h are one. The .c file of a seam may include its implementations, which lie in folders below its own.

    tests/structure/includes.py [ROOT]     ends with 1 and names every include against the order
"""
import os
import re
import subprocess
import sys

import sources

# One line a level. Folders of one line do not include each other in a circle.
LAYERS = [
    ["kernels/base"],
    ["kernels/scalar"],
    ["kernels"],
    ["kernels/cpu", "kernels/cuda"],
    ["inner/config"],
    ["inner/data/tokenizer"],
    ["inner/data", "inner/coll"],
    ["inner/model"],
    ["inner/io", "inner/optim", "inner/eval"],
    ["inner/methods"],
    ["inner/train"],
    ["proto"],
    ["outer/codec", "outer/budget"],
    ["outer/protocol"],
    ["outer/diloco", "outer/wire", "outer/masks"],
    ["outer/store"],
    ["outer/link"],
    ["outer/identity"],
    ["outer/link/grpc"],
    ["outer/config", "outer/record"],
    ["outer/organ"],
    ["outer/site", "outer/aggregator"],
    ["outer/organ/roster", "outer/organ/amend", "outer/organ/archive"],
    ["outer/library"],
    ["outer/sim"],
    ["outer/plan", "outer/view", "outer/wan"],
    ["outer/run"],
    ["outer/cmd"],
]
EXAMPLES = {"deploy/examples/one_site.c": ("kernels/", "inner/")}  # what it may include; other files of deploy/: atoll.h
LEVEL = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}


def unit_of(path):
    folder, name = os.path.split(path)
    return folder + "/" + re.split(r"[_.]", name)[0]


def includes(root):
    """(file, included file) of all files of the product."""
    known = sources.texts(root)
    for f, text in known.items():
        for name in sources.INCLUDE.findall(text):
            local = os.path.normpath(os.path.join(os.path.dirname(f), name))
            if name in known or local in known:
                yield f, name if name in known else local
            elif "tests/" in name:
                yield f, name


def examples(root):
    """Includes of deploy/ that it may not have."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "deploy/*.c", "deploy/*.h"], capture_output=True, text=True).stdout.split()
    for f in listed:
        with open(os.path.join(root, f), encoding="utf-8") as source:
            for name in sources.INCLUDE.findall(source.read()):
                if name != "atoll.h" and not name.startswith(EXAMPLES.get(f, "/")):
                    yield f"{f} includes {name}: " + ("only " + " and ".join(EXAMPLES[f]) if f in EXAMPLES else "only atoll.h")


def guards(root):
    """Two headers with one include guard: a file that includes both gets the first alone, without a word of the compiler."""
    first = {}
    listed = subprocess.run(["git", "-C", root, "ls-files", "*.h", "*.cuh"], capture_output=True, text=True).stdout.split()
    for f in listed:
        with open(os.path.join(root, f), encoding="utf-8") as source:
            found = re.search(r"^#ifndef (\w+_H)$", source.read(), re.M)
        if found and first.setdefault(found[1], f) != f:
            yield f"{f} has the include guard of {first[found[1]]}: {found[1]}"


def circles(edges):
    """Strongly connected components of more than one node (Tarjan)."""
    index, low, stack, out = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            component = [stack.pop()]
            while component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1:
                out.append(sorted(component))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return out


def main():
    sys.setrecursionlimit(10000)
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    wrong, folders, units = [], {}, {}
    count = 0
    for f, g in includes(root):
        count += 1
        here, there = os.path.dirname(f), os.path.dirname(g)
        if "tests/" in g:
            wrong.append(f"{f} includes {g}: the product includes nothing of tests/")
            continue
        if f.endswith(".c") and there.startswith(here + "/"):
            continue  # a seam's own implementation
        if unit_of(f) != unit_of(g):
            units.setdefault(unit_of(f), set()).add(unit_of(g))
        if here == there:
            continue
        folders.setdefault(here, set()).add(there)
        for folder, file in ((here, f), (there, g)):
            if folder not in LEVEL:
                wrong.append(f"{file}: the folder {folder} is in no layer; add it to LAYERS of this script and to docs/architecture.md")
        if here in LEVEL and there in LEVEL and LEVEL[there] > LEVEL[here]:
            wrong.append(f"{f} includes {g}: {there} is a later layer than {here}")
    wrong += [*examples(root), *guards(root)]
    wrong += ["folders that include each other: " + " ".join(c) for c in circles(folders)]
    wrong += ["units that include each other: " + " ".join(c) for c in circles(units)]
    for line in wrong:
        print(line)
    print(f"{count} includes, {len(folders)} folders, {len(units)} units, {len(wrong)} against the order")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
