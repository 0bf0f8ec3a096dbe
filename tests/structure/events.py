#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The index of events and errors: docs/events.md, of the code.

  events.py            each event that the code logs has a row in outer/record/events.h, each row has an event, and the page is current
  events.py --write    writes the page

What breaks if this fails: an operator sees a name in the log and finds it nowhere.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/events.md"
LEVELS = {"LOG_DEBUG": "debug", "LOG_DETAIL": "info", "LOG_INFO": "info", "LOG_WARN": "warn", "LOG_ERROR": "error"}
ORDER = ("debug", "info", "warn", "error")
# Names that a call takes from a table or from its caller: the calls that give them.
NAMED_ELSEWHERE = {
    "round_event_name(e->kind)": ("outer/protocol/round_trace.c", "round_event_name(enum", r'\[ROUND_\w+\] = "(\w+)"'),
    "event": ("kernels/cuda/attention_cudnn.c kernels/cuda/matmul.cu kernels/cuda/products.c", "", r'cuda_log\(\s*\w+, "(\w+)"'),
}
ALSO = {"event": "info warn"}  # levels of such calls where the call does not say them


def arguments(text, at):
    """The arguments of a call whose opening bracket is before `at`."""
    depth, word, found, quoted = 0, "", [], False
    while True:
        c = text[at]
        if quoted:
            word += text[at:at + 2] if c == "\\" else c
            at += c == "\\"
            quoted = c != '"'
        elif c == '"':
            word, quoted = word + c, True
        elif c in ")]}" and not depth:
            return found + [word.strip()]
        elif c == "," and not depth:
            found, word = found + [word.strip()], ""
        else:
            depth += (c in "([{") - (c in ")]}")
            word += c
        at += 1


def texts(argument):
    return re.findall(r'"((?:[^"\\]|\\.)*)"', argument)


def names(argument):
    if argument in NAMED_ELSEWHERE:
        paths, begin, pattern = NAMED_ELSEWHERE[argument]
        text = "".join((ROOT / path).read_text(encoding="utf-8") for path in paths.split())
        return re.findall(pattern, text[text.index(begin):].partition("};")[0] if begin else text)
    return texts(argument.partition("?")[2] or argument)


def levels(argument, name):
    found = {LEVELS[x] for x in re.findall(r"LOG_[A-Z]+", argument) if x in LEVELS}
    return found or set(ALSO.get(name, "info warn").split())


def events():
    """{name: (levels, fields)} of all calls of the product."""
    found = {}
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "kernels/*.c", "inner/*.c", "outer/*.c"], capture_output=True, text=True, check=True)
    for path in listed.stdout.split():
        text = (ROOT / path).read_text(encoding="utf-8")
        for call in re.finditer(r"\blog_event\(", text):
            given = arguments(text, call.end())
            if given[0].startswith("enum "):
                continue
            fields = re.findall(r"(?:^| )(\w+)=", " " + "".join(texts(given[2])))
            for name in names(given[1]):
                of, seen = found.setdefault(name, (set(), []))
                of |= levels(given[0], given[1])
                seen += [f for f in fields if f not in seen]
        for level, name in re.findall(r'"level=(\w+) ev=(\w+)', text):  # of the log itself, past log_event
            found.setdefault(name, (set(), []))[0].add(level)
    return found


def rows():
    """{name: (process, meaning, what to do)}"""
    text = (ROOT / "outer/record/events.h").read_text(encoding="utf-8")
    text = re.sub(r'"[ \\\n]+"', "", text)
    found = re.findall(r'X\((\w+),[ \\\n]+"([^"]*)",[ \\\n]+"((?:[^"\\]|\\.)*)",[ \\\n]+"((?:[^"\\]|\\.)*)"\)', text)
    assert [r[0] for r in found] == sorted({r[0] for r in found}), "rows of outer/record/events.h: sorted, each once"
    return {r[0]: tuple(x.replace('\\"', '"').replace("|", "\\|") for x in r[1:]) for r in found}


def errors():
    text = (ROOT / "kernels/base/err.h").read_text(encoding="utf-8")
    text = re.sub(r'"[ \\\n]+"', "", text)
    found = re.findall(r'X\((\d+), (\w+), "([^"]*)", (\d+),[ \\\n]+"([^"]*)"\)', text)
    return [e for e in found if e[1] != "OK"]


def page():
    table, code = rows(), events()
    lines = ["# Events and errors", "",
             "For operators: each event of the log (`ev=NAME`) and each error, what it means and what to do. `atoll help NAME` prints a",
             "row. Fields stand in the order of the log line; some lines have only some of them. Values that are not explained here:",
             "[metrics](metrics.md), [runbook](runbook.md).", "", "## Errors", "",
             "A command ends with this exit code, and with what the error means and what to do where its message does not say so.", "",
             "| error | exit code | means | do |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {code} | {what} | {do} |" for number, name, what, code, do in errors()]
    lines += ["", "## Events", "", "| event | level | process | fields | means | do |", "|---|---|---|---|---|---|"]
    for name in sorted(table):
        process, meaning, do = table[name]
        level = ", ".join(x for x in ORDER if x in code[name][0])
        fields = " ".join(f"`{f}`" for f in code[name][1])
        lines.append(f"| `{name}` | {level} | {process} | {fields} | {meaning} | {do} |")
    return "\n".join(lines) + "\n"


def main():
    table, code = rows(), events()
    wrong = [f"the code logs ev={n}, and outer/record/events.h has no row of it" for n in sorted(set(code) - set(table))]
    wrong += [f"outer/record/events.h has a row of {n}, which nothing logs" for n in sorted(set(table) - set(code))]
    if not wrong and sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    elif not wrong and (not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page()):
        wrong = ["docs/events.md is not what the code says: tests/structure/events.py --write"]
    print("\n".join(wrong + [f"{len(code)} events, {len(errors())} errors, {len(wrong)} wrong"]))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
