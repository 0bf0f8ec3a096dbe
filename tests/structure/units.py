#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Units of more than four .c files, and the header of each that says which file writes which member.

  units.py [--shrink]   compares with structure.csv
  units.py UNIT...      shows the .c files of units that no such header names

What breaks if this fails: a unit of many files in which no reader can tell which may change a member of its structs. A unit
is the files of a folder with one prefix (includes.py). Such a header has a comment with a line for each .c file of the unit,

     name.c: members of structs of this header that it writes, or none

and the value of a unit is the number of its .c files that its best header has no such line of. A line with a word that is no
member does not count. `members.py STRUCT` shows what to write there.
"""
import os
import re
import sys

import includes
import members
import sources
import structure

LINE = re.compile(r"^[ \t/*]*(\w+\.c):((?:\s*\*?\s*\w+,)*\s*\*?\s*\w+)", re.MULTILINE)


def named(path, text):
    """The .c files that have a line of a comment of this header, with members of its structs."""
    header = sources.Source(path, text)
    known = {name for s in members.File(header).structs.values() for name, _ in s.fields} | {"none"}
    comments = [piece for piece in sources.COMMENT.findall(text) if piece[0] == "/"]
    lines = [found for comment in comments for found in LINE.findall(comment)]
    return {name for name, words in lines if set(re.findall(r"\w+", words)) <= known}


def missing(texts, most):
    """{unit: (number of its .c files, those without a line)} of the units of more than `most` .c files. texts: {file: its text}"""
    units = {}
    for path in texts:
        units.setdefault(includes.unit_of(path), []).append(path)
    out = {}
    for unit, parts in units.items():
        files = {os.path.basename(f) for f in parts if f.endswith(".c")}
        if len(files) > most:
            lines = [named(f, texts[f]) for f in parts if f.endswith(".h")]
            out[unit] = len(files), min((files - line for line in lines), key=len, default=files)
    return out


def label(unit, units):
    """The prefix alone, so that a unit that moves keeps its row, but where two folders have it."""
    folder, name = unit.rsplit("/", 1)
    alone = sum(other.rsplit("/", 1)[1] == name for other in units) == 1
    return name if alone else f"{folder.rsplit('/', 1)[-1]}/{name}"


def main():
    options = structure.arguments(__doc__, names={"nargs": "*", "metavar": "UNIT", "help": "unit to show"})
    most = structure.limit_of(structure.rows_read(), "units", "files without a header")
    large = missing(sources.texts(options.root), most)
    found = {label(unit, large): files for unit, (_, files) in large.items()}
    for unit in options.names:
        print(f"{unit}: {' '.join(sorted(found.get(unit, ())))}")
    if options.names:
        return 0
    found = {unit: len(files) for unit, files in found.items() if files}
    summary = f"{len(large)} units of more than {most} files, {len(found)} without a header that says who writes what"
    return structure.verdict(lambda rows: structure.compare(rows, "units", found), summary, options.shrink)


if __name__ == "__main__":
    sys.exit(main())
