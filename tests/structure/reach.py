#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reach of a feature: the files of the product outside it that know it.

  reach.py [--shrink]   compares with structure.csv
  reach.py FEATURE...   shows a feature: its files, and each file outside with what it uses

What breaks if this fails: a feature that cuts through the whole program again, so that a change of it touches dozens of files. At
most eight files outside a feature know it (structure.csv).

A file knows a feature when it includes a header of the feature, or uses a name that the feature declares in a header, or defines
for other files. Names are whole words of the code: functions, variables, structs and other tags, constants, macros. Words of
comments and texts do not count, nor members of structs.
"""
import fnmatch
import functools
import re
import sys

import members
import sources
import structure

# A feature has all files of the folder of outer/ with its name, and files of other folders by their names, so that a file that
# moves stays with its feature. Commands (outer/cmd) and simulators are outside.
FEATURES = {
    "masks": ("aggregator_masks*", "site_masks*"),
    "roster": ("roster.*",),
    "amend": ("amend.*", "amendments.*", "replan.*"),
    "repair": ("scrub.*", "aggregator_scrub.*", "site_scrub.*", "supply.*", "site_supply.*", "site_step_back.*",
               "site_repair.*"),
    "archive": (),
    "operator": ("aggregator_operate.*",),
    # Who signs a round, and who checks it. The keys (signer.h) and TLS are what this stands on.
    "signing": ("signed.*", "aggregator_identity.*", "site_identity.*"),
    "budget": (),
}
# Folders of files that are outside every feature, with any names.
OUTSIDE = ("cmd", "run", "sim")
WORD = re.compile(r"(?:(->|\.)\s*|\b(struct|union|enum)\s+)?\b([A-Za-z_]\w*)")
TEXT = re.compile(r'^[ \t]*#\s*include[^\n]*|""', re.MULTILINE)


@functools.cache
def belongs(path, feature):
    folder, name = path.split("/")[-2:]
    if folder in OUTSIDE or not path.startswith("outer/"):
        return False
    return folder == feature or any(fnmatch.fnmatchcase(name, p) for p in FEATURES[feature])


@functools.cache
def uses(source):
    """Names in the code of a file; tags as "struct x"."""
    found = set()
    for access, tag, name in WORD.findall(TEXT.sub("", source.plain)):
        if not access:
            found.add(f"{tag} {name}" if tag else name)
    return found


def enums(file):
    """Tags and constants of the enums of a header, and rows of lists, which make constants."""
    t, found = file.t, set()
    for i in range(len(file.source.tokens)):
        if t[i] != "enum":
            continue
        k = i + 2 if members.NAME.fullmatch(t[i + 1]) else i + 1
        if t[k] != "{":
            continue
        if k == i + 2:
            found.add(f"enum {t[i + 1]}")
        end, k = file.close(k), k + 1
        while k < end:
            if members.LIST.fullmatch(t[k]) and t[k + 1] == "(":
                k = file.close(k + 1) + 1
            else:
                found.add(t[k])
                k = file.after(k, ",") + 1
    for name, parameters, body in file.source.defines:
        if parameters:
            found.update(re.findall(rf"\b{parameters.split(',')[0].strip()}\(\s*([A-Z][A-Z0-9_]+)\b", body))
    return found


def declares(file):
    """Names that a file makes known to others."""
    if not file.path.endswith((".h", ".cuh")):
        return set(file.external)
    guards = set(re.findall(r"#\s*ifndef\s+(\w+)\s+#\s*define\s+\1\b", file.source.plain))
    found = {*file.functions, *file.globals} | {f"{s.kind} {s.name}" for s in file.structs.values()} | enums(file)
    return found | {name for name, _, _ in file.source.defines if name not in guards and name != "X"}


def reach(files, feature):
    """(the feature's files, {file outside: what it includes and uses})."""
    own = [f for f in files if belongs(f.path, feature)]
    headers, names = {f.path for f in own if f.path.endswith((".h", ".cuh"))}, set()
    for f in own:
        names |= declares(f)
    known = {}
    for f in files:
        if f not in own:
            namesakes = f.defined | {f"{s.kind} {s.name}" for s in f.structs.values()}
            what = sorted(headers & set(f.source.includes)) + sorted(names & uses(f.source) - namesakes)
            if what:
                known[f.path] = what
    return own, known


def main():
    options = structure.arguments(__doc__, names={"nargs": "*", "metavar": "FEATURE", "help": "feature to show"})
    files = [members.File(s) for s in sources.read(options.root)]
    limit, found = structure.limit_of(structure.rows_read(), "reach", "files outside"), {}
    for feature in options.names or FEATURES:
        own, known = reach(files, feature)
        if not own:
            sys.exit(f"reach: no file of the product belongs to {feature}; correct FEATURES")
        if options.names:
            print(f"{feature}: {len(own)} files, {len(known)} outside know it\n  " + "\n  ".join(f.path for f in own))
            for path, what in sorted(known.items()):
                print(f"{path}: {' '.join(what)}")
        if len(known) > limit:
            found[feature] = len(known)
    if options.names:
        return 0
    summary = f"{len(FEATURES)} features, {len(found)} above the limit"
    return structure.verdict(lambda rows: structure.compare(rows, "reach", found), summary, options.shrink)


if __name__ == "__main__":
    sys.exit(main())
