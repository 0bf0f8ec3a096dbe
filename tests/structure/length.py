#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Words of the documents that people write. They may not become more than LIMIT, and each page says in its first line whom it is for.

    tests/structure/length.py [ROOT]      ends with 1 above the limit, and names pages without a reader
    tests/structure/length.py --pages     the words of each page

A word has a letter or a digit. So the bars of tables (4,500) and signs by themselves (2,000: =, +, ->, a middle dot) are none, which
`wc -w` counts. Words of code blocks count. Not counted: pages and tables that a program writes.
"""
import re
import subprocess
import sys
from pathlib import Path

LIMIT = 62030
GENERATED = ("docs/configuration.md", "docs/events.md", "docs/metrics.md", "docs/refusals.md", "docs/reliability.md", "docs/reproductions.md")
TABLES = ("| name | type | of | meaning |", "| key | allowed | default | pinned | meaning |")  # atoll watch --help-metrics, atoll wan --help-keys
WITHOUT_READER = ("README.md",)  # for everyone


def written(text):
    """A page without the tables that programs write."""
    lines, inside = [], False
    for line in text.split("\n"):
        inside = line.startswith("|") and (inside or line in TABLES)
        if not inside:
            lines.append(line)
    return "\n".join(lines)


def count(text):
    return sum(1 for word in text.split() if re.search(r"[^\W_]", word))


def first_line(text):
    lines = text.split("\n")
    return next((line for line in lines[1:] if line.strip()), "") if lines[0].startswith("# ") else ""


def main():
    root = Path(next((a for a in sys.argv[1:] if not a.startswith("--")), "."))
    names = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], capture_output=True,
                           text=True).stdout.split()
    pages = {n: (root / n).read_text(encoding="utf-8") for n in names
             if (n.startswith("docs/") or "/" not in n) and n not in GENERATED and (root / n).is_file()}
    words = {n: count(written(text)) for n, text in pages.items()}
    if "--pages" in sys.argv:
        print("".join(f"{w:6} {n}\n" for n, w in sorted(words.items(), key=lambda x: -x[1])), end="")
    wrong = [f"{n}: the first line must say whom the page is for: \"For ...\"" for n, text in pages.items()
             if n not in WITHOUT_READER and not first_line(text).startswith("For ")]
    total = sum(words.values())
    if total > LIMIT:
        wrong.append(f"{total} words in {len(pages)} documents, at most {LIMIT}: say a thing once (--pages: words of each page)")
    for line in wrong:
        print(line)
    print(f"{total} words in {len(pages)} documents, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
