#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Circles: C files of one folder of which each needs, directly or not, each other one.

  circles.py BUILD [--shrink]   compares with structure.csv
  circles.py BUILD FILE...      shows of each file which others of its folder it needs, and for what

What breaks if this fails: files that can be understood, tested and replaced only together. The circles of today are rows of
structure.csv: the files' names, and their number. A new circle fails, and so does one with another file in it. At the end no more
than four are wanted.

What a file defines and needs is read by nm from the object files of BUILD. A row is left as it is if the build does not have one
of its files (a build without the network, say).
"""
import json
import os
import re
import shutil
import subprocess
import sys

import includes
import sources
import structure

OUTPUT = re.compile(r" -o (\S+)")


def objects(root, build):
    """{source of the product: its object files}, of the libraries and programs that the build makes of it. Not of tests, nor of
    the copies with deliberate bugs."""
    known, found = set(sources.listed(root, (".c",))), {}
    try:
        with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
            commands = json.load(f)
    except OSError:
        sources.skip(f"{build} is no build folder: it has no compile_commands.json")
    for entry in commands:
        output = OUTPUT.search(entry["command"]).group(1)
        source = os.path.relpath(entry["file"], root)
        made = os.path.join(entry["directory"], output)
        place = os.path.relpath(made, build)
        if source in known and place.startswith(sources.FOLDERS) and "/mutants" not in place and os.path.isfile(made):
            found.setdefault(source, []).append(made)
    return found


def symbols(files):
    """{object file: (names that it defines, names that it needs)}"""
    out = {f: (set(), set()) for f in files}
    for i in range(0, len(files), 100):
        listed = subprocess.run(["nm", "-A", "-P", "-g", *files[i : i + 100]], capture_output=True, text=True).stdout
        for line in listed.splitlines():
            file, _, rest = line.partition(": ")
            name, kind = rest.split()[:2]
            out[file][kind in "Uvw"].add(name)
    return out


def needs(made):
    """{source: {other source of its folder: names}}. made: {source: (defined, needed)}"""
    edges = {}
    for folder in {os.path.dirname(f) for f in made}:
        here = [f for f in made if os.path.dirname(f) == folder]
        owner = {name: f for f in here for name in made[f][0]}
        for f in here:
            for name in made[f][1]:
                if owner.get(name, f) != f:
                    edges.setdefault(f, {}).setdefault(owner[name], set()).add(name)
    return edges


def compare(rows, found, built, there):
    """As structure.compare. found: circles, each a set of file names; built: names of the files that the build has; there: of
    those that the product has."""
    wrong, left, held = [], [], set()
    for row in rows:
        if row["meter"] != "circles" or row["what"][0] == "(":
            left.append(row)
            continue
        files = frozenset(row["what"].split())
        inside = [c for c in found if c <= files]
        held.update(inside)
        if row["value"] != len(files):
            wrong.append(f"{row['what']}: {len(files)} files, and its row of structure.csv says {row['value']}")
        if len(row["reason"]) < 10:
            wrong.append(f"{row['what']}: its row of structure.csv has no reason")
        if files in inside or not files & there <= built:
            left.append(row)
            continue
        if not [c for c in found if c & files and not c <= files]:
            wrong.append(f"{row['what']}: no circle of all of them; its row of structure.csv must shrink (--shrink does it)")
            left += [{**row, "what": " ".join(sorted(c)), "value": len(c)} for c in inside]
        else:
            left.append(row)
    for c in found:
        if c not in held:
            wrong.append(f"{' '.join(sorted(c))}: a circle of {len(c)} files, and structure.csv has no row that holds it")
    return wrong, left


def main():
    options = structure.arguments(__doc__, build={}, names={"nargs": "*", "metavar": "FILE", "help": "file to show"})
    if not shutil.which("nm"):
        sources.skip("nm (binutils) is not installed, and reads what object files define and need")
    made = objects(options.root, options.build)
    if not made:
        sources.skip(f"{options.build} has no object files of the product")
    read = symbols([o for files in made.values() for o in files])
    made = {f: tuple(set().union(*(read[o][k] for o in files)) for k in (0, 1)) for f, files in made.items()}
    edges = needs(made)
    for f in sorted(edges):
        if os.path.basename(f) in options.names:
            for other, names in sorted(edges[f].items()):
                print(f"{f} needs {os.path.basename(other)}: {' '.join(sorted(names))}")
    if options.names:
        return 0
    found = [frozenset(os.path.basename(f) for f in c) for c in includes.circles(edges)]
    built, there = ({os.path.basename(f) for f in files} for files in (made, sources.listed(options.root)))
    summary = f"{len(made)} files with objects, {len(found)} circles"
    return structure.verdict(lambda rows: compare(rows, found, built, there), summary, options.shrink)


if __name__ == "__main__":
    sys.exit(main())
