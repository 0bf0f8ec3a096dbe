#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Words of comments, messages and documents that English does not use so (CONTRIBUTING.md 2.3): `behind` for after, `goes on` for
continues, `nobody` in place of the noun. The spine (docs/architecture.md 10) has none. What other folders still have is a row of
words.csv; a row may only shrink. Of C sources comments and strings are read, of scripts, YAML and pages all of it.

    tests/structure/words.py            ends with 1 and names what is new
    tests/structure/words.py FOLDER     lists the places of a folder, or of docs
    tests/structure/words.py --shrink   lowers the rows to what is there
"""
import csv
import os
import re
import subprocess
import sys

import sources

SPINE = ("outer/codec/", "outer/protocol/", "outer/diloco/", "outer/wire/", "outer/store/", "outer/site/", "outer/aggregator/")
# word: (pattern, what to say)
WORDS = {
    "behind": (r"(?<!further )\b[Bb]ehind\b", "after; past; `behind` an interface: by"),
    "in front of": (r"\b[Ii]n front\b", "before"),
    "beside": (r"\b[Bb]eside\b", "next to; in addition to; compared with; while"),
    "goes on": (r"\b(?:[Gg]oes|[Gg]o|[Gg]oing|[Ww]ent|[Gg]one) on\b(?! the| a | one| it)", "continues"),
    "made again": (r"\b(?:[Mm]ade|[Mm]akes?|[Mm]aking) (?:it |them )?again\b", "repaired; rebuilt; repeated; recomputed"),
    "the own": (r"\b(?:[Tt]he|[Aa]n) own\b", "its own; the site's own"),
    "lacks": (r"\b[Ll]ack(?:s|ed|ing)?\b", "has no; is missing"),
    "whoever": (r"\b(?:[Ww]hoever|[Ww]hatever|[Ww]hichever)\b", "the noun; any"),
    "nobody": (r"\b(?:[Nn]obody|[Ee]verybody|[Ss]omebody|[Aa]nybody)\b", "no site; every reader; the noun"),
    "so many": (r"\b[Ss]o many\b", "the number; its name"),
    "of then": (r"\bof then\b", "former; of that time"),
    "all the same": (r"\b[Aa]ll the same\b", "nevertheless; anyway"),
    "slow line": (r"\b[Ss]low(?:er)? lines?\b", "a slow link"),
    "anew": (r"(?<!started )\banew\b", "again; rewritten"),
}
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "words.csv")
TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
QUOTED = re.compile(r"`[^`\n]*`|\"(?:behind|nobody|anew)\"|'behind'")  # names, of answers and sites for instance
C = (".c", ".h", ".cu", ".cuh", ".proto")
READ = (*C, ".sh", ".py", ".yaml", ".yml", ".js", ".html", ".cmake", "CMakeLists.txt", ".service", ".timer", ".sbatch", ".md")
UNREAD = ("tests/golden/text/", "tests/structure/words.py")  # what tests train on; the words themselves


def texts(root, f):
    """(offset, text) of a document's prose, of a source's comments and strings, or of a script. Line breaks of comments are blanks."""
    with open(os.path.join(root, f), encoding="utf-8") as source:
        whole = source.read()
    if f.endswith(".md"):
        yield 0, re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m.group()), whole, flags=re.DOTALL | re.MULTILINE)
        return
    if not f.endswith(C):
        yield 0, re.sub(r"\n[ \t]*# ?", lambda m: " " * len(m.group()), whole)
        return
    for m in TEXT.finditer(whole):
        if not m.group().startswith("'"):
            yield m.start(), re.sub(r"\n[ \t]*\* ?", lambda x: " " * len(x.group()), m.group())


def named(before, after):
    """A word of a script is part of a name: of a file, a function, a member."""
    return before in ("/", "$", ".", "_", "(", "[", "-") or re.match(r"[_(]|[./=]\w|: [{\[]", after)


def area(f):
    if f.startswith(SPINE):
        return "spine"
    folder = f.split("/")[0]
    return folder if folder in sources.FOLDERS or folder in ("tests", "deploy") else "docs"


def found(root):
    """(area, word, "FILE:LINE: words around it")"""
    sources.listed(root)  # without git: a skip
    names = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True).stdout.split()
    for f in (n for n in names if n.endswith(READ) and not n.startswith(UNREAD) and os.path.isfile(os.path.join(root, n))):
        with open(os.path.join(root, f), encoding="utf-8") as source:
            whole = source.read()
        for start, text in texts(root, f):
            clean = QUOTED.sub(lambda m: " " * len(m.group()), text)
            for word, (pattern, _) in WORDS.items():
                for m in re.finditer(re.sub(" ", r"\\s+", pattern) if word in ("in front of", "goes on") else pattern, clean):
                    if not f.endswith((*C, ".md")) and named(clean[m.start() - 1:m.start()], clean[m.end():m.end() + 3]):
                        continue
                    around = " ".join(text[max(0, m.start() - 40):m.end() + 40].split())
                    yield area(f), word, f"{f}:{whole.count(chr(10), 0, start + m.start()) + 1}: {around}"


def main():
    root = os.path.join(os.path.dirname(TABLE), "..", "..")
    places = list(found(root))
    if len(sys.argv) > 1 and sys.argv[1] != "--shrink":
        print("\n".join(f"{word}: {place}" for where, word, place in places if where == sys.argv[1] or place.startswith(sys.argv[1])))
        return 0
    counts = {}
    for where, word, _ in places:
        counts[where, word] = counts.get((where, word), 0) + 1
    with open(TABLE, newline="", encoding="utf-8") as f:
        rows = {(r["where"], r["word"]): int(r["count"]) for r in csv.DictReader(f)}
    if "--shrink" in sys.argv:
        with open(TABLE, "w", newline="", encoding="utf-8") as f:
            out = csv.writer(f, lineterminator="\n")
            out.writerow(["where", "word", "count"])
            out.writerows([*key, min(n, counts.get(key, 0))] for key, n in rows.items() if counts.get(key, 0))
        return 0
    more = {key: n for key, n in counts.items() if n > rows.get(key, 0)}
    for key, n in sorted(more.items()):
        print(f"{key[0]}: `{key[1]}` {n} times, at most {rows.get(key, 0)}; say: {WORDS[key[1]][1]}")
        if not rows.get(key):
            print("".join(f"  {place}\n" for where, word, place in places if (where, word) == key), end="")
    fewer = sum(n - counts.get(key, 0) for key, n in rows.items() if key not in more)
    print(f"{sum(counts.values())} places, {len(more)} rows above words.csv" + (f"; {fewer} fewer: --shrink" if fewer else ""))
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main())
