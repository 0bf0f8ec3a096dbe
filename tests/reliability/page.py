# SPDX-License-Identifier: Apache-2.0
"""results.csv, and docs/reliability.md, which is made of the campaigns, the goals and that file alone."""
import csv
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import records
from campaigns import ADD, MOST, Figure

COLUMNS = ("campaign", "figure", "value", "machine", "commit", "date", "command")
FAILED = Figure("failed", ADD, "sessions that failed")
HEAD = """# Reliability

For the reader who asks what was tried to break a run, how often, and what came of it: each figure with the command that makes it,
and the goal for a release next to the figure reached. `deploy/reliability.sh --page` makes this page. Figures count from the
session after the last one that found something, and are the sum of all sessions where nothing
else is said. The suite runs small parts of most campaigns; its figures are not in here.
"""


def append(path, machine, commit, date, campaign, figures, command):
    """A session: its figures, added whole or not at all."""
    records.append(path, COLUMNS, [[campaign, name, f"{value:.10g}", machine, commit, date, command] for name, value in figures.items()])


class Recorded:
    """All sessions of a campaign in the CSV, oldest first. Where one found something, the program changes: figures count from the
    session after the last one that failed."""

    def __init__(self, path, campaign):
        self.campaign, self.sessions = campaign, []
        by_session = {}
        if os.path.exists(path):
            with open(path, newline="", encoding="utf-8") as f:
                for r in csv.DictReader(f):
                    if r["campaign"] == campaign.name:
                        by_session.setdefault((r["date"], r["command"]), []).append(r)
        for rows in sorted(by_session.values(), key=lambda rows: rows[0]["date"]):
            self.sessions.append({"machine": rows[0]["machine"], "commit": rows[0]["commit"], "date": rows[0]["date"],
                                  "command": rows[0]["command"], "figures": {r["figure"]: float(r["value"]) for r in rows}})

    def failed(self):
        return [s for s in self.sessions if s["figures"].get("failed")]

    def counted(self):
        """Sessions after the last one that failed; that one itself where it is the newest."""
        at = max((i for i, s in enumerate(self.sessions) if s["figures"].get("failed")), default=-1)
        return self.sessions[at + 1:] or self.sessions[at:]

    def done(self):
        """Where the next session continues. After a failure from the start: what failed must hold now."""
        newest_failed = self.sessions and self.sessions[-1]["figures"].get("failed")
        return 0 if newest_failed or not self.campaign.progress else self.value(self.campaign.progress) or 0

    def names(self):
        """Names of all its figures, in the order of the campaign's list."""
        found = dict.fromkeys(name for s in self.counted() for name in s["figures"])
        return [name for f in self.campaign.figures for name in found if self.campaign.figure(name) is f]

    def value(self, name):
        """None where no session has it."""
        kind = (FAILED if name == "failed" else self.campaign.figure(name)).kind
        values = [s["figures"][name] for s in self.counted() if name in s["figures"]]
        if not values:
            return None
        return sum(values) if kind == ADD else max(values) if kind == MOST else values[-1]


def number(value):
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


class Goal:
    """tests: (campaign, figure, comparison, number or another figure's name). A figure's name that ends with a dot: the least of all
    that begin so."""

    def __init__(self, name, text, *tests, instead=None):
        self.name, self.text, self.tests, self.instead = name, text, tests, instead

    def reached(self, recorded):
        """(what was reached, verdict)"""
        if self.instead:
            return self.instead, "not run"
        cells, verdicts = [], {"yes"}
        for campaign, name, comparison, wanted in self.tests:
            of = recorded[campaign]
            figure, value = self.value(of, name)
            if value is None:
                cells.append(f"{campaign}: not run")
                verdicts.add("not run")
                continue
            wanted = of.value(wanted) if isinstance(wanted, str) else wanted
            holds = {"<=": value <= wanted, ">=": value >= wanted, "=": value == wanted}[comparison] if wanted is not None else True
            cells.append(f"{figure.text}: {number(value)} {figure.unit}" if figure.unit else f"{number(value)} {figure.text}")
            if not holds:
                verdicts.add("**no**" if comparison != ">=" else "not yet")
        return "; ".join(dict.fromkeys(cells)), next(v for v in ("**no**", "not run", "not yet", "yes") if v in verdicts)

    @staticmethod
    def value(of, name):
        if not name.endswith("."):
            figure = FAILED if name == "failed" else of.campaign.figure(name)
            return figure, of.value(name)
        found = {n: of.value(n) for n in of.names() if n.startswith(name)}
        least = min(found, key=found.get, default=None)
        text = f"{of.campaign.figure(name).text} of {(least or name)[len(name):]}, the least of {len(found)} targets"
        return Figure(name, ADD, text), found.get(least)


GOALS = [
    Goal("R1", "every run under faults ends with the SHA-256 of the undisturbed one", ("sim", "violations", "=", 0), ("points", "violations", "=", 0),
         ("chaos", "failed", "=", 0)),
    Goal("R2", "1,000,000 fault schedules in the simulator, 500 simulated years, no violation", ("sim", "schedules", ">=", 1e6),
         ("sim", "simulated_years", ">=", 500), ("sim", "violations", "=", 0)),
    Goal("R3", "every fault at every storage operation and every allocation of a short run, none fails", ("points", "tried", ">=", "points"),
         ("points", "violations", "=", 0), ("pairs", "tried", ">=", "points"), ("pairs", "violations", "=", 0), ("memory", "tried", ">=", "points"), ("memory", "violations", "=", 0)),
    Goal("R4", "10,000 real SIGKILLs, 8 sites, 1,000 committed rounds", ("chaos", "kills", ">=", 10000), ("chaos", "rounds", ">=", 1000)),
    Goal("R5", "24 h of real processes; no round waits more than 60 s after the last fault", ("soak", "hours", ">=", 24),
         ("soak", "longest_wait_s", "<=", 60)),
    Goal("R6", "the aggregator killed anywhere: no receipt or round lost; restart-to-commit published", ("chaos", "failed", "=", 0),
         ("chaos", "restart_to_commit_p50_ms", ">=", None), ("chaos", "restart_to_commit_p99_ms", ">=", None)),
    Goal("R7", "the loss of the aggregator's disk is recovered, with real processes", ("chaos", "rebuilt", ">=", 1)),
    Goal("R8", "each deliberate bug found within 10,000 seeds", ("mutants", "found", ">=", "mutants")),
    Goal("states", "every order of events of the protocol core and of the steppers, three sites and two rounds", ("states", "states", ">=", 1),
         ("states", "violations", "=", 0), ("steppers", "states", ">=", 1), ("steppers", "violations", "=", 0)),
    Goal("hello", "a hello is answered within 1 s while 2 GiB are committed", ("hello", "state_mib", ">=", 2048),
         ("hello", "longest_hello_ms", "<=", 1000)),
    Goal("R9", "equal trace hashes: same seed twice, gcc and clang, -O0 and -O3", ("trace", "builds", ">=", 4), ("trace", "traces", "=", 1)),
    Goal("R9, aarch64", "the same trace on x86-64 and aarch64", instead="no machine; `TRACE=HEX tests/sim/trace.sh` compares"),
    Goal("R10", "protocol, journal, codecs: all reachable lines and branches", ("coverage", "lines_missed", "=", 0),
         ("coverage", "branches_missed", "=", 0)),
    Goal("S1", "all names of what must be refused", ("refusals", "names", ">=", 40), ("refusals", "not_built", "<=", 0)),
    Goal("S2", "100,000,000 executions of each fuzz target, no finding", ("fuzz", "executions.", ">=", 1e8), ("fuzz", "findings", "=", 0)),
    Goal("tokenizers", "the ids of Hugging Face's tokenizers", ("tokenizers", "differ", "=", 0)),
    Goal("suite", "the whole suite on two idle cores in 12 minutes", ("suite", "seconds", "<=", 720), ("suite", "failed", "=", 0)),
]


def goals(recorded):
    lines = ["## 1. Goals", "", "| goal | for a release | reached | | campaigns |", "|---|---|---|---|---|"]
    for goal in GOALS:
        cell, verdict = goal.reached(recorded)
        names = list(dict.fromkeys(t[0] for t in goal.tests))
        lines.append(f"| {goal.name} | {goal.text} | {cell} | {verdict} | {', '.join(names)} |")
    return lines


def campaign_part(of, index):
    c = of.campaign
    lines = [f"### 2.{index} {c.name}", "", f"{c.title}.", f"`deploy/reliability.sh {c.name}`: {c.amount:,} {c.measure}; for a release {c.release:,}."]
    if not of.sessions:
        return [*lines[:-1], lines[-1] + " Not run yet.", ""]
    lines.append("")
    lines += ["| figure | value |", "|---|---|"]
    for name in of.names():
        figure = c.figure(name)
        text = figure.text + (f": {name[len(figure.name):]}" if figure.name.endswith(".") else "") + (f" ({figure.unit})" if figure.unit else "")
        text += f", {figure.kind}" if len(of.counted()) > 1 and figure.kind != ADD else ""
        lines.append(f"| {text} | {number(of.value(name))} |")
    last = of.sessions[-1]
    commits = list(dict.fromkeys(s["commit"] for s in of.counted()))
    failed = of.failed()
    if failed:
        before = "" if failed[-1] is last else f"; {len(of.counted())} since then, which are counted here"
        lines += ["", f"**{len(failed)} of {len(of.sessions)} sessions found something**, the last one at commit {failed[-1]['commit']}{before}:",
                  f"`{failed[-1]['command']}`"]
    shown = " ".join(commits) if len(commits) < 4 else f"{commits[0]} to {commits[-1]} ({len(commits)})"
    return [*lines, "", f"{len(of.counted())} session{'s' if len(of.counted()) > 1 else ''}; commit {shown};",
            f"{last['machine']}; newest {last['date'][:10]}:", f"`{last['command']}`", ""]


def page(campaigns, path):
    recorded = {c.name: Recorded(path, c) for c in campaigns}
    lines = [HEAD, *goals(recorded), "", "## 2. Campaigns", ""]
    for index, of in enumerate(recorded.values(), 1):
        lines += campaign_part(of, index)
    return "\n".join(lines)
