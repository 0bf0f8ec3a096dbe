#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Statements of the documents, held against what they speak of.
  claims.py ROOT
claims.csv: a figure that a document states, and the row of a CSV that it comes from. Each figure in the results of README.md must
have a row there. unfinished.csv: each sentence that says "not built", "not measured", "not run", "not tried" or "not yet", with the
reason why it is still so. counts.csv: a count that a document states, and how to count it.
If this fails, a document says something that was true once. Columns: see the head of each CSV.
"""
import csv
import fnmatch
import re
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NUMBER = r"[+-]?\d+(?:,\d{3})*(?:\.\d+)?"
PHRASES = r"\b(?:not built|not measured|(?<!does )(?<!did )(?<!has )not run|not tried|not yet)\b"
# Written by programs from their own data: unfinished work there is a row of that data.
GENERATED = ("docs/reproductions.md", "docs/reliability.md", "docs/refusals.md")


def plain(text):
    """One line, without line breaks and emphasis, so that a rewrapped sentence is the same one."""
    return re.sub(r"\s+", " ", text.replace("**", "")).strip()


def rows_of(path, cache={}):
    if path not in cache:
        with open(path, encoding="utf-8", newline="") as f:
            cache[path] = list(csv.DictReader(f))
    return cache[path]


def matching(root, file, where):
    """Rows of a CSV whose columns have these values: "bench=train;case=gpt-*"."""
    wanted = [part.split("=", 1) for part in where.split(";")]
    return [r for r in rows_of(root / file) if all(fnmatch.fnmatchcase(r.get(k) or "", v) for k, v in wanted)]


def value_of(root, file, where, column, pick):
    rows = matching(root, file, where)
    if not rows:
        return None
    session = max(r.get("session", "") for r in rows)  # a row that was measured again: the newest numbers
    rows = [r for r in rows if r.get("session", "") == session]
    if pick == "last":
        return float(rows[-1][column])
    return {"min": min, "max": max, "mean": statistics.mean}[pick](float(r[column]) for r in rows)


def stated(figure):
    """The value of a figure as it is printed, and the number of its decimals."""
    digits = re.search(NUMBER, figure).group().replace(",", "")
    return float(digits), len(digits.partition(".")[2])


def check_claim(root, claim, documents):
    where = f"{claim['document']}: {claim['figure']}"
    if plain(claim["text"]) not in documents[claim["document"]]:
        return f"{where}: the document does not say \"{claim['text']}\" any more; correct claims.csv"
    if claim["figure"] not in claim["text"]:
        return f"{where}: the figure is not in its text"
    if claim["file"] == "-":
        return None  # a figure that no CSV has; `where` says why
    value = value_of(root, claim["file"], claim["where"], claim["column"], claim["pick"])
    if value is None:
        return f"{where}: {claim['file']} has no row {claim['where']}"
    if claim["over"]:
        base = value_of(root, claim["file"], claim["over"], claim["column"], claim["pick"])
        if base is None:
            return f"{where}: {claim['file']} has no row {claim['over']}"
        value /= base
    if claim["unit"] == "change":
        value = 100 * (value - 1)
    elif claim["unit"] == "percent":
        value = 100 * value
    number, decimals = stated(claim["figure"])
    if abs(number - value) > 0.5 * 10**-decimals * 1.001:
        return f"{where}: {claim['file']} has {value:.6g}"
    return None


def uncovered(readme, claims):
    """Figures in the cells of README's results that no claim holds."""
    section = readme.split("\n## Results\n")[1].split("\n## ")[0]
    known = [c for c in claims if c["document"] == "README.md"]
    for line in section.splitlines():
        if not line.startswith("| ") or line.startswith("|---") or line.startswith("| what"):
            continue
        held = " ".join(c["figure"] for c in known if plain(c["text"]) in plain(line))
        for cell in plain(line).strip("|").split("|")[1:]:
            for number in re.findall(NUMBER, cell):
                if number.lstrip("+-") not in held:
                    yield f"README.md: {number} in \"{plain(line)[:70]}..\" has no row in claims.csv"


def check_counts(root, documents):
    for row in rows_of(HERE / "counts.csv"):
        found = re.search(row["text"], documents[row["document"]])
        if not found:
            yield f"{row['document']}: does not say \"{row['text']}\"; correct counts.csv"
            continue
        text = (root / row["file"]).read_text(encoding="utf-8")
        count = len(re.findall(row["pattern"], text, re.M)) if row["how"] == "lines" else int(re.search(row["pattern"], text).group(1).replace("'", ""))
        if int(found.group(1).replace(",", "")) != count:
            yield f"{row['document']}: {found.group()}: {row['file']} has {count}"


def check_unfinished(documents):
    known, used = rows_of(HERE / "unfinished.csv"), set()
    for name, text in documents.items():
        if name in GENERATED:
            continue
        for found in re.finditer(PHRASES, text):
            for i, row in enumerate(known):
                at = row["text"].find(found.group())
                fragment = plain(row["text"])
                begin = found.start() - fragment.find(found.group())
                if row["document"] == name and at >= 0 and text[begin : begin + len(fragment)] == fragment:
                    used.add(i)
                    break
            else:
                yield f"{name}: \"{text[max(0, found.start() - 60):found.end() + 20]}\" is not in unfinished.csv: finish it, or give the reason"
    for i, row in enumerate(known):
        if i not in used:
            yield f"unfinished.csv: {row['document']} does not say \"{row['text']}\" any more; remove the row"
        elif len(row["reason"]) < 10:
            yield f"unfinished.csv: {row['document']}, \"{row['text']}\": no reason"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    names = ["README.md", "CONTRIBUTING.md", "SECURITY.md", *(str(p.relative_to(root)) for p in sorted((root / "docs").glob("*.md")))]
    documents = {n: plain((root / n).read_text(encoding="utf-8")) for n in names}
    claims = rows_of(HERE / "claims.csv")
    wrong = [w for w in (check_claim(root, c, documents) for c in claims) if w]
    wrong += uncovered((root / "README.md").read_text(encoding="utf-8"), claims)
    wrong += check_counts(root, documents)
    wrong += check_unfinished(documents)
    for w in wrong:
        print(w)
    print(f"{len(claims)} figures, {len(rows_of(HERE / 'counts.csv'))} counts, {len(rows_of(HERE / 'unfinished.csv'))} unfinished, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
