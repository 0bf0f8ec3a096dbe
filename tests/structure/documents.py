#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documents agree with one another and with the code: relative links and their anchors, paths and configuration keys in backticks, keys in
commands and settings, what a command replaces in an example (sed), every page and every "docs/PAGE.md NUMBER" that a comment cites,
every file of the repository that a source or a README names; the lines of the reading path and the names of "Where is ...?" in
docs/architecture.md. Lines have at most 130 columns outside tables and generated pages.

    tests/structure/documents.py [ROOT]     ends with 1 and names every miss
    tests/structure/documents.py --wrap     wraps long paragraphs of the documents
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import textwrap

COLUMNS = 130
GENERATED = ["docs/configuration.md"]
FOREIGN = "docs/comparison.md"  # names files of other repositories; its links are checked
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:\.\./)?(?:kernels|inner|outer|proto|tests|deploy|docs)/[\w./*-]*)`")
KEY = re.compile(r"`((?:run|model|data|train|device|outer|site|tls|serve|log|plan|wan|link)\.[a-z0-9_]+)(?![\w.]*\()[^`]*`")
SECTIONS = "run|model|data|train|device|outer|site|tls|serve|log|plan|wan|link|privacy|eval|scrub"
ARGUMENT = re.compile(rf"(?:--|\bset )((?:{SECTIONS})\.[a-z0-9_]+)(?=[ =]|$)|(?<![\w/.-])((?:{SECTIONS})\.[a-z0-9_]+)(?=[:=])")
FILE = re.compile(r"(?<![\w/.$}-])((?:kernels|inner|outer|proto|tests|deploy|docs)/(?:[\w.-]+/)*[a-z0-9_]+"
                  r"\.(?:c|h|cu|cuh|cc|md|py|sh|yaml|csv|cmake|proto))\b(?!\.\w)")  # NAME.c stands for any file
SUFFIXES = (".c", ".h", ".cu", ".md", ".py", ".sh", ".log", ".yaml", ".proto")
PAGE = re.compile(r"\b([\w-]+\.md)\b")
CITED = re.compile(r"docs/([\w-]+)\.md ((?:\d+(?:\.\d+)*)(?:, (?!row)\d+(?:\.\d+)*)*)((?:, row \d+|, I\d+)?)")


def files(root, *patterns):
    listed = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
                            capture_output=True, text=True)
    return [f for f in listed.stdout.split("\n") if f and os.path.isfile(os.path.join(root, f))]


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def code(text):
    """(line number, line) of code blocks that are commands or settings."""
    inside, kind = False, ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            inside, kind = not inside, line[3:].strip()
        elif inside and kind in ("", "sh", "yaml"):
            yield number, line


def prose(text):
    """(line number, line) outside code blocks."""
    code = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            code = not code
        elif not code:
            yield number, line


def anchors(text):
    """As GitHub makes them of headings."""
    found = set()
    for _, line in prose(text):
        if line.startswith("#"):
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()).lower()
            found.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return found


def numbers(text):
    """What a citation may name: numbered headings, numbered rows of tables, invariants."""
    found = set()
    for _, line in prose(text):
        m = re.match(r"#+ (\d+(?:\.\d+)*)", line) or re.match(r"\| \**(\d+\.\d+)\** \|", line)
        if m:
            found.add(m.group(1))
        m = re.match(r"\| (\d+) \|", line)
        if m:
            found.add("row " + m.group(1))
        m = re.match(r"\| \*\*(I\d+)\*\* \|", line)
        if m:
            found.add(m.group(1))
    # "4. Name of a rule" under a numbered heading: section.rule
    section = ""
    for _, line in prose(text):
        m = re.match(r"## (\d+)\.", line)
        section = m.group(1) if m else section
        m = re.match(r"(\d+)\. \*\*", line)
        if m and section:
            found.add(f"{section}.{m.group(1)}")
    return found


def keys(root):
    """All configuration keys, from the generated tables."""
    found = set()
    for page in ("docs/configuration.md", "docs/wan.md"):
        today = read(root, page).partition("## Renamed keys")[0]
        found.update(re.findall(r"^\| `(\w+\.\w+)` \|", today, re.MULTILINE))
    return found


def check_page(root, name, text, known, missed):
    here = os.path.dirname(name)
    for number, line in code(text):
        keys_said = [m.group(1) or m.group(2) for m in ARGUMENT.finditer(line)]
        flow = re.match(rf"({SECTIONS}): \{{(.*)\}}", line)
        if flow:  # section: {key: value, ...}; the names in a map as a value are no keys
            keys_said += [f"{flow.group(1)}.{k}" for k in re.findall(r"(?:^|, )([a-z0-9_]+): ", re.sub(r"\{[^{}]*\}", "", flow.group(2)))]
        for key in keys_said:
            if key not in known:
                missed.append(f"{name}:{number}: {key} is no key of docs/configuration.md or docs/wan.md")
    for number, line in prose(text):
        if len(line) > COLUMNS and not line.startswith("|") and name not in GENERATED:
            missed.append(f"{name}:{number}: {len(line)} columns; at most {COLUMNS}")
        for target in LINK.findall(line):
            if re.match(r"\w+:", target):
                continue
            path, _, anchor = target.partition("#")
            full = os.path.normpath(os.path.join(root, here, path)) if path else os.path.join(root, name)
            if not os.path.exists(full):
                missed.append(f"{name}:{number}: {target} is not there")
            elif anchor and full.endswith(".md") and anchor not in anchors(read("", full)):
                missed.append(f"{name}:{number}: {target}: no such heading")
        for key in KEY.findall(line):
            if key not in known and not key.endswith(SUFFIXES) and name not in GENERATED:
                missed.append(f"{name}:{number}: `{key}` is no key of docs/configuration.md or docs/wan.md")
        for path in PATH.findall(line) if name != FOREIGN else ():
            if not glob.glob(os.path.join(root, path)) and not os.path.exists(os.path.join(root, here, path)):
                missed.append(f"{name}:{number}: `{path}` is not there")


def check_replaced(root, name, text, missed):
    """What `sed` replaces in an installed example is in the example."""
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for command in re.findall(r"^sed .*?/usr/share/doc/atoll/examples/[\w.-]+", block, re.DOTALL | re.MULTILINE):
            example = "deploy/examples/" + command.rpartition("/")[2]
            if not os.path.isfile(os.path.join(root, example)):
                missed.append(f"{name}: {example} is not there")
                continue
            for pattern in re.findall(r"(?<=['; ])s/((?:[^/\\]|\\.)+)/", command):
                if not re.search(pattern, read(root, example)):
                    missed.append(f"{name}: {example} has no \"{pattern}\", which sed replaces")


def check_reading(root, name, missed):
    """A row of the reading path has the lines of its files, and its text their sum; a row of "Where is ...?" names what is there."""
    path, _, where = read(root, name).partition("## 10.")[2].partition("## 11.")
    lines = 0
    for row in re.findall(r"^\| \d+ \|(.*)\| (\d+) \|", path, re.MULTILINE):
        there = sum(read(root, f).count("\n") for f in PATH.findall(row[0]) if os.path.isfile(os.path.join(root, f)))
        lines += there
        if abs(there - int(row[1])) > max(20, there / 10):
            missed.append(f"{name}: {row[0].strip()}: {row[1]} lines; there are {there}")
    said = re.search(r"about\s+([\d,]+) lines", path)
    if not said or abs(int(said.group(1).replace(",", "")) - lines) > lines / 10:
        missed.append(f"{name}: the reading path says {said and said.group(1)} lines in all; there are {lines}")
    for row in re.findall(r"^\|(?! question|---)(.*)\|$", where, re.MULTILINE):
        text = "".join(read(root, f) for f in PATH.findall(row) if os.path.isfile(os.path.join(root, f)))
        for word in re.findall(r"`(\w+)`", row.split("|")[2]):
            if not re.search(rf"\b{word}\b", text):
                missed.append(f"{name}: {row.split('|')[0].strip()} No file of the row has {word}")
    if not lines or not where:
        missed.append(f"{name}: no reading path, or no answers after it")


def check_citations(root, name, pages, markdown, missed):
    text = re.sub(r"\s*\\?\n\s*(?:\*|//|#)?\s*", " ", read(root, name))
    for page in set(PAGE.findall(text)) - markdown if name.endswith(SUFFIXES[:3]) else ():
        missed.append(f"{name}: {page} is not in the repository")
    for page, cited, more in CITED.findall(text):
        if page not in pages:
            missed.append(f"{name}: docs/{page}.md is not there")
            continue
        for what in re.split(r", ", cited) + ([more[2:]] if more else []):
            if what not in pages[page]:
                missed.append(f"{name}: docs/{page}.md has no {what}")


def check_files(root, name, missed):
    """The files that a source or a README names, from the root or from its own folder."""
    for number, line in enumerate(read(root, name).split("\n"), 1):
        for path in FILE.findall(line):
            if not any(os.path.exists(os.path.join(root, folder, path)) for folder in ("", os.path.dirname(name))):
                missed.append(f"{name}:{number}: {path} is not there")


def check_training_text(root, name, missed):
    """A test that trains on the documents gets another loss with each corrected sentence."""
    for number, line in enumerate(read(root, name).split("\n"), 1):
        if re.search(r"""docs/\*\.md|/ ?["']docs["']\)?\.(?:glob|rglob|iterdir)""", line):
            missed.append(f"{name}:{number}: takes all documents as its text; tests/golden/text is the text of tests")


def wrapped(text):
    """Paragraphs and list items with a long line are filled again; code, tables and headings stay. Links and `code` are not broken."""
    out, paragraph, code = [], [], False

    def flush():
        if any(len(line) > COLUMNS for line in paragraph):
            mark = re.match(r"\s*(?:(?:[-*]|\d+\.)\s+)?", paragraph[0]).group()  # not of **bold**
            joined = " ".join(line.strip() for line in [paragraph[0][len(mark):]] + paragraph[1:])
            kept = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", lambda m: m.group().replace(" ", "\0"), joined)
            paragraph[:] = [line.replace("\0", " ") for line in textwrap.wrap(
                kept, COLUMNS - 2, initial_indent=mark, subsequent_indent=" " * len(mark), break_long_words=False, break_on_hyphens=False)]
        out.extend(paragraph)
        paragraph.clear()

    for line in text.split("\n"):
        fence = line.startswith("```")
        if code or fence or not line.strip() or line[0] in "|#" or re.match(r"\d+\. \[", line):
            flush()
            out.append(line)
            code ^= fence
            continue
        if re.match(r"\s*(?:[-*]|\d+\.)\s", line):
            flush()
        paragraph.append(line)
    flush()
    return "\n".join(out)


def main():
    if not shutil.which("git"):
        print("SKIPPED: git is not installed, and lists the files")
        return 77
    if sys.argv[1:] == ["--wrap"]:
        for d in files(".", "README.md", "CONTRIBUTING.md", "docs/*.md"):
            if d not in GENERATED:
                before = read(".", d)
                with open(d, "w", encoding="utf-8") as f:
                    f.write(wrapped(before))
        return 0
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    missed = []
    documents = files(root, "README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md")
    if not documents:
        print("SKIPPED: this is no git checkout, so there is no list of documents")
        return 77
    pages = {os.path.basename(d)[:-3]: numbers(read(root, d)) for d in documents if d.startswith("docs/")}
    known = keys(root)
    for d in documents:
        check_page(root, d, read(root, d), known, missed)
        check_replaced(root, d, read(root, d), missed)
    check_reading(root, "docs/architecture.md", missed)
    markdown = {os.path.basename(f) for f in files(root, "*.md")}
    sources = files(root, "*.c", "*.h", "*.cu", "*.cuh", "*.cc", "*.proto", "*.py", "*.sh", "*CMakeLists.txt")
    for f in sources:
        if not f.endswith("structure/documents.py"):
            check_citations(root, f, pages, markdown, missed)
    for f in [*sources, *files(root, "*.md")]:
        if not f.startswith(("tests/structure/", "tests/golden/text/", FOREIGN)):  # made-up files; text that never changes
            check_files(root, f, missed)
    for f in files(root, "tests/*.sh", "tests/*.py", "tests/*.c", "deploy/*.sh"):
        if not f.startswith("tests/structure/"):
            check_training_text(root, f, missed)
    for line in missed:
        print(line)
    print(f"{len(documents)} documents, {len(sources)} sources, {len(missed)} misses")
    return 1 if missed else 0


sys.exit(main())
