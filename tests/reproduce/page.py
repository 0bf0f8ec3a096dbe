"""results.csv, and docs/reproductions.md, which is made of the rows and that file alone."""
import csv
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import records
import search
from expression import Bad, Missing, Sample

COLUMNS = ("session", "machine", "commit", "row", "run", "seed", "measure", "value")
HEAD = """# Reproductions

Published methods, run again: what the paper claims, what `deploy/reproduce.sh NAME` measures here, what an independent reference
gives. This page is made by `deploy/reproduce.sh --page` from `tests/reproduce/*.yaml` and `tests/reproduce/results.csv`; a test
holds it equal to them. The runs are small: 0.2 to 11 M parameters on two cores. A `miss` is a result, and stays with its reason.
How a row is written: `tests/reproduce/README.md`.
"""


def append(path, session, machine, commit, row, asked, minutes):
    """asked: {(run, seed, measure): number}; minutes: of all of them."""
    rows = [[session, machine, commit, row, run, "" if seed is None else seed, measure, repr(number)]
            for (run, seed, measure), number in asked.items()]
    records.append(path, COLUMNS, [*rows, [session, machine, commit, row, "", "", "minutes", f"{minutes:.1f}"]])


class Recorded:
    """The newest session of a row in the CSV. As a function: (Run, name) -> Sample. seeds: what a searched run needs."""

    def __init__(self, path, row, seeds=()):
        self.seeds = seeds
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

    def __call__(self, run, name):
        if name in ("best", "rate"):
            rate, losses = search.best(self.seeds, search.losses_of(run.name, self.lines))
            return Sample(losses if name == "best" else [rate])
        found = [float(r["value"]) for r in self.lines if r["run"] == run.name and r["measure"] == name]
        if not found:
            raise Missing(f"{name} of run {run.name} was not measured")
        return Sample(found)


def told(expression, measures):
    """A claim's number, or why there is none."""
    if expression is None:
        return ""
    try:
        found = expression.evaluate(measures)
        return found.text() if isinstance(found, Sample) else "yes" if found else "no"
    except Missing:
        return "not measured"


def judged(row, measures, quick=False):
    """(expression, what was measured, True, False or None, reason) of each acceptance."""
    found = []
    for expression, reason in row.tests(quick):
        try:
            holds = expression.evaluate(measures)
            if isinstance(holds, Sample):
                raise Bad(f"`{expression.text}` is a number, no comparison")
            found.append((expression.text, expression.measured(measures), holds, reason))
        except Missing as why:
            found.append((expression.text, str(why), None, reason))
    return found


def tables(row, measures, where):
    """Markdown: claims, then acceptances."""
    results = judged(row, measures)
    accepted = f"{sum(r[2] is True for r in results)} of {len(results)}"
    lines = ["| paper's claim | ours here (mean +- sd, n) | reference beside | accepted | commit, machine, minutes |",
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
    for text, numbers, holds, reason in results:
        verdict = "yes" if holds else "not measured" if holds is None else "**miss**" + (f": {reason}" if reason else "")
        lines.append(f"| `{text}` | {numbers} | {verdict} |")
    return lines


def page(rows, path):
    lines = [HEAD]
    for row in rows:
        found = Recorded(path, row.name, row.seeds)
        lines += [f"## {row.name}", "", f"{row.title}.", f"`deploy/reproduce.sh {row.name}`, about {row.minutes} minutes.", ""]
        if found.session is None:
            lines += ["Not run yet.", ""]
            continue
        day = found.session[:10]
        lines += [*tables(row, found, f"{found.commit}, {found.machine}, {found.minutes} min, {day}"), ""]
    return "\n".join(lines)
