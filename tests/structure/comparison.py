#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README's table of systems, held against docs/comparison.md: each cell has a row there with the same value and a source.

    tests/structure/comparison.py [ROOT]      ends with 1 and names each cell that differs

A system's section has "Version: ..." and "Looked at: MONTH YEAR" in its first line. `none` as a source stands for "not known", of a
cell or of a part of it, and only for that. The counts of cells that the page states are counted here.
"""
import re
import sys
from pathlib import Path

MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
HEAD = re.compile(rf"^Version: .+\. Looked at: (?:{MONTHS}) 20\d\d\.", re.M)
# A file, or a link to a thread, a paper or a page.
PLACE = re.compile(r"`[^`]*(?:/|\.(?:py|h|cpp|md)\b)[^`]*`|\]\([^)]+\)|https://\S+")
# The repository as a whole at the version of the first line, or a name to search for.
WHOLE = re.compile(r"\bsnapshot\b|\bby name\b")
COUNTS = re.compile(r"Of (\d+) cells of the six systems (\d+) name no file, thread, paper or page, and (\d+) are not known")


def plain(cell):
    """What a reader sees of a cell: without links and emphasis."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell).replace("**", "").strip()


def table(text):
    """The rows of the first table of a text, each a list of its cells."""
    rows = []
    for line in text.splitlines():
        if line.startswith("|"):
            rows.append([c.strip() for c in line.strip().strip("|").split("|")])
        elif rows:
            break
    return [rows[0], *rows[2:]] if len(rows) > 2 else []


def readme_cells(text):
    """{system: {row: cell}} of the README's table."""
    rows = table(text.partition("\n## Compared with other systems\n")[2].partition("\n## ")[0])
    if not rows:
        return {}
    return {plain(name): {plain(r[0]): plain(r[i]) for r in rows[1:]} for i, name in enumerate(rows[0]) if i}


def sections(text):
    """{system: (its text, {row: (cell, source)}, rows of other than three cells)} of docs/comparison.md."""
    found = {}
    for part in text.split("\n### ")[1:]:
        name, _, body = part.partition("\n")
        rows = table(body.partition("\n## ")[0])[1:]
        found[name.strip()] = (body, {plain(r[0]): (plain(r[1]), r[2]) for r in rows if len(r) == 3}, [r for r in rows if len(r) != 3])
    return found


def check_section(name, body, rows, odd):
    """A section by itself: version and date, and a source for each cell."""
    if not HEAD.match(body):
        yield f"{name}: the first line must be \"Version: .... Looked at: MONTH YEAR.\""
    for r in odd:
        yield f"{name}: \"{' | '.join(r)}\": a row has row, cell and source"
    for row, (cell, source) in rows.items():
        if bool(re.search(r"\bnone\b", source)) != ("not known" in cell):
            yield f"{name}, {row}: \"{cell}\" has the source \"{source}\"; what has no source (`none`) is \"not known\", and only that"
        elif cell != "not known" and not (PLACE.search(source) or WHOLE.search(source)):
            yield f"{name}, {row}: \"{source}\" is no file, thread, page or snapshot"


def check_cells(readme, known):
    """The README's cells, and the rows of docs/comparison.md that the README no longer has."""
    for name, cells in readme.items():
        if name not in known:
            yield f"README.md: {name} has no section in docs/comparison.md"
            continue
        rows = known[name][1]
        for row, cell in cells.items():
            if row not in rows:
                yield f"README.md: {name}, {row}: docs/comparison.md has no such row"
            elif rows[row][0] != cell:
                yield f"README.md: {name}, {row}: \"{cell}\"; docs/comparison.md has \"{rows[row][0]}\""
        for row in rows.keys() - cells.keys():
            yield f"docs/comparison.md: {name}, {row}: the README has no such row"


def check_counts(text, readme, known):
    cells = [c for name, (_, rows, _) in known.items() if name in readme and name != "Atoll" for c in rows.values()]
    counted = [len(cells), sum(s != "none" and not PLACE.search(s) for _, s in cells), sum("not known" in cell for cell, _ in cells)]
    said = COUNTS.search(re.sub(r"\s+", " ", text))
    if not said or [int(n) for n in said.groups()] != counted:
        yield f"docs/comparison.md: says {said.group() if said else 'no counts'}; counted: {counted}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    text = (root / "docs/comparison.md").read_text(encoding="utf-8")
    readme = readme_cells((root / "README.md").read_text(encoding="utf-8"))
    known = sections(text)
    wrong = [w for name, section in known.items() for w in check_section(name, *section)]
    wrong += [*check_cells(readme, known), *check_counts(text, readme, known)]
    if len(readme) < 2:
        wrong.append("README.md: no table in \"Compared with other systems\"")
    for w in wrong:
        print(w)
    print(f"{sum(map(len, readme.values()))} cells of the README, {len(known)} sections, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
