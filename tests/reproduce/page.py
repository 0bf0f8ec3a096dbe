# SPDX-License-Identifier: Apache-2.0
"""results.csv, and docs/reproductions.md, which is made of the rows, of the files that they list, and of the CSV files here alone."""
import collections
import copy
import csv
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import broken
import fresh
import records
import search
from expression import Bad, Missing, Sample, Undecided
from floor import Floors
from verdict import MISS, UNDECIDED, UNMEASURED, VOID, YES, Verdict, judge

COLUMNS = ("session", "machine", "commit", "row", "run", "seed", "measure", "value")
HEAD = """# Reproductions

Published methods, run again: what the paper claims, what `deploy/reproduce.sh NAME` measures here, what an independent reference
gives. This page is made by `deploy/reproduce.sh --page` from `tests/reproduce/*.yaml` and the CSV files there; a test holds it
equal to them. The runs are small: 0.2 to 11 M parameters on two cores. A `miss` is a result, and stays with its reason. How a row
is written, and what the verdicts mean: `tests/reproduce/README.md`.

- **undecided**: the mean is less than two standard errors from its bound, paired by seed; or there are fewer than three seeds; or
  a best rate lies at an edge of what was run; or the sides were not searched alike.
- **void**: a loss that is compared is not below the unigram entropy of its held-out text, or an accuracy not above its majority
  class.
- **stale**: a file of the method has changed since the row was measured, as of the commit that made this page;
  `deploy/reproduce.sh --list` says it of the tree as it is. *confirmed*: one seed of each run was run again since then, and every
  number is the recorded one to the last digit. *no digest*: measured before digests were kept.
- **guarded by**: the switch that takes the method's mechanism away, and whether the row's acceptance then fails
  (`deploy/reproduce.sh --broken --quick --all`, whose last result is `tests/reproduce/broken.csv`).
"""
Judged = collections.namedtuple("Judged", "text numbers verdict reason")


def append(path, session, machine, commit, row, asked, minutes):
    """asked: {(run, seed, measure): number}; minutes: of all of them."""
    rows = [[session, machine, commit, row, run, "" if seed is None else seed, measure, repr(number)]
            for (run, seed, measure), number in asked.items()]
    records.append(path, COLUMNS, [*rows, [session, machine, commit, row, "", "", "minutes", f"{minutes:.1f}"]])


class Recorded:
    """The newest session of a row in the CSV. As a function: (Run, name) -> Sample. seeds_of(run): what a searched run needs;
    searching_of(run): how many of them search its rate."""

    def __init__(self, path, row, seeds_of=None, searching_of=None):
        self.seeds_of, self.searching_of = seeds_of, searching_of
        lines = []
        if os.path.exists(path):
            with open(path, newline="", encoding="utf-8") as f:
                lines = [r for r in csv.DictReader(f) if r["row"] == row]
        self.session = max((r["session"] for r in lines), default=None)
        self.lines = [r for r in lines if r["session"] == self.session]
        self.machine = self.lines[0]["machine"] if self.lines else ""
        self.commit = " ".join(dict.fromkeys(r["commit"] for r in self.lines))
        minutes = [float(r["value"]) for r in self.lines if r["measure"] == "minutes"]
        self.minutes = f"{sum(minutes):.1f}" if minutes else ""

    def fewer(self):
        """The same with fewer seeds, the most first: a search that is not finished says what it has."""
        seeds = sorted({int(r["seed"]) for r in self.lines if r["seed"]})
        for count in range(len(seeds), 0, -1):
            found, first = copy.copy(self), seeds[:count]
            found.lines = [r for r in self.lines if not r["seed"] or int(r["seed"]) in first]
            found.seeds_of = lambda run, first=first: [s for s in self.seeds_of(run) if s in first]
            yield found

    def __call__(self, run, name):
        if name in ("best", "rate"):
            seeds = self.seeds_of(run.name)
            if not seeds:
                raise Missing(f"run {run.name} has other seeds")
            rate, losses = search.best(seeds, search.losses_of(run.name, self.lines), self.searching_of(run.name))
            return Sample(losses, seeds) if name == "best" else Sample([rate])
        found = {r["seed"]: float(r["value"]) for r in self.lines if r["run"] == run.name and r["measure"] == name}
        if not found:
            raise Missing(f"{name} of run {run.name} was not measured")
        return Sample(found.values(), None if "" in found else map(int, found))


def available(expression, measures):
    """The measures with as many seeds as this expression has."""
    for some in [measures, *(measures.fewer() if isinstance(measures, Recorded) else [])]:
        try:
            expression.evaluate(some)
            return some
        except Missing:
            continue
        except Undecided:
            return some
    return measures


def told(expression, measures):
    """A claim's number, or why there is none."""
    if expression is None:
        return ""
    try:
        some = available(expression, measures)
        found = expression.evaluate(some)
        if not isinstance(found, Sample):
            return "yes" if found else "no"
        return found.text() + (", n 1" if some is not measures and len(found.values) == 1 else "")
    except Missing:
        return "not measured"
    except Undecided as why:
        return f"undecided: {why}"


def small(row, acceptance, guards):
    """What the small runs of `--broken` said of an acceptance."""
    found = guards.get((row.name, acceptance.expression.text))
    if not found:
        return Judged(acceptance.expression.text, "", Verdict(UNMEASURED, "--broken was not run"), acceptance.reason)
    word = YES if found.result == broken.SEEN else MISS
    return Judged(acceptance.expression.text, f"{found.intact}; small runs", Verdict(word, ""), acceptance.reason)


def judged(row, measures, quick=False, floors=None, guards=None):
    """What each acceptance is worth. quick: runs of one seed, judged by what they measured. guards: of the small ones."""
    found = []
    for acceptance in row.tests(quick):
        expression, reason, _ = acceptance
        if acceptance.small and not quick:
            found.append(small(row, acceptance, guards or {}))
            continue
        some = available(expression, measures)
        verdict = judge(expression, some, floors, exact=quick)
        try:
            numbers = expression.measured(some)
        except (Missing, Undecided):
            numbers = ""
        found.append(Judged(expression.text, numbers or verdict.why, verdict, reason))
    return found


def counted(results):
    """`4 of 7, 2 undecided, 1 void`."""
    words = collections.Counter(r.verdict.word for r in results)
    text = f"{words[YES]} of {len(results)}"
    return text + "".join(f", {words[w]} {w}" for w in (UNDECIDED, VOID, UNMEASURED) if words[w])


def spoken(result):
    word, why = result.verdict
    if word in (YES, UNMEASURED):
        return word
    return f"**{word}**" + "".join(f"{mark}{part}" for mark, part in ((": ", why), ("; " if why else ": ", result.reason)) if part)


def tables(row, measures, where, floors=None, guards=None):
    """Markdown: claims, then acceptances."""
    results = judged(row, measures, floors=floors, guards=guards)
    accepted = counted(results)
    lines = ["| paper's claim | ours here (mean +- sd, n) | reference | accepted | commit, machine, minutes |",
             "|---|---|---|---|---|"]
    for i, (claim, ours, reference) in enumerate(row.claims):
        here = claim.get("here", True)
        if ours:
            cell = told(ours, measures)
        else:
            cell = "not here" + (f": {here}" if isinstance(here, str) else "") if here is not True else "see below"
        last = [accepted, where] if i == 0 else ["", ""]
        lines.append("| " + " | ".join([f"{claim['what']}: {claim.get('value', '')}", cell, told(reference, measures), *last]) + " |")
    if not row.claims:
        lines.append(f"| | | | {accepted} | {where} |")
    lines += ["", "| acceptance | measured | |", "|---|---|---|"]
    for r in results:
        lines.append(f"| `{r.text}` | {r.numbers} | {spoken(r)} |")
    return lines


def verdict_of(results):
    """Of a row, in one word and the counts."""
    words = [r.verdict.word for r in results]
    word = next((w for w in (VOID, MISS, UNDECIDED, UNMEASURED) if w in words), "accepted")
    return word if word == "accepted" else f"**{word}**" if word == VOID else word


def overview(rows, path):
    """The first table: a line for each row."""
    folder = pathlib.Path(path).parent
    ages, guards = fresh.read(folder / "fresh.csv"), broken.read(folder / "broken.csv")
    lines = ["| method | claim | here | verdict | yes | guarded by | age |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        found = Recorded(path, row.name, row.seeds_of, row.searching_of)
        claim, ours = next(((c, o) for c, o, _ in row.claims if o), ({"what": ""}, None))
        results = judged(row, found, floors=Floors(row, folder / "floors.csv"), guards=guards)
        age = f"{found.session[:10]}, {fresh.told(row, found.session, found.commit.split(), ages)}" if found.session else "not run yet"
        lines.append(f"| [{row.name}](#{row.name}) | {claim['what']}: {claim.get('value', '')} | {told(ours, found)} | {verdict_of(results)} | "
                     f"{counted(results)} | {broken.told(row, guards)} | {age} |")
    return lines


def without_ages(text):
    """A page without its marks of freshness, which a change of any method's file changes."""
    return re.sub(rf", (?:{fresh.CURRENT}|{fresh.CONFIRMED} [0-9-]+|{re.escape(fresh.STALE)}) \|$", " |", text, flags=re.M)


def page(rows, path):
    guards = broken.read(pathlib.Path(path).parent / "broken.csv")
    lines = [HEAD, *overview(rows, path), ""]
    for row in rows:
        found = Recorded(path, row.name, row.seeds_of, row.searching_of)
        lines += [f"## {row.name}", "", f"{row.title}.", f"`deploy/reproduce.sh {row.name}`, about {row.minutes} minutes.", ""]
        if found.session is None:
            lines += ["Not run yet.", ""]
            continue
        day = found.session[:10]
        floors = Floors(row, pathlib.Path(path).parent / "floors.csv")
        lines += [*tables(row, found, f"{found.commit}, {found.machine}, {found.minutes} min, {day}", floors, guards), ""]
    return "\n".join(lines)
