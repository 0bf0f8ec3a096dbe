# SPDX-License-Identifier: Apache-2.0
"""`--broken`: a row's acceptances must see that its method's mechanism is gone. The row names the switch (`broken:`): a mutant of
kernels/base/mutant.h, or a key. Runs with and without it are the same but for it; the acceptance that holds must then fail, with runs
that still learn where it compares losses. broken.csv has the last result of each row."""
import collections
import csv
import datetime
import os
import pathlib
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import floor
from expression import Bad, Missing
from job import Job, Measured
from verdict import MISS, YES, calls, judge

COLUMNS = ("row", "switch", "accept", "intact", "broken", "result", "seconds", "commit", "date")
SEEN, UNSEEN = "seen", "not seen"
Result = collections.namedtuple("Result", COLUMNS)


def read(path):
    """{(row, acceptance): Result}"""
    if not os.path.exists(path):
        return {}
    with open(path, newline="", encoding="utf-8") as f:
        return {(r["row"], r["accept"]): Result(**r) for r in csv.DictReader(f)}


def write(path, results, ran):
    """The results take the place of what the file has of these rows."""
    kept = [r for r in read(path).values() if r.row not in ran]
    part = pathlib.Path(f"{path}.part")
    with open(part, "w", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(COLUMNS)
        out.writerows(sorted([*kept, *results], key=lambda r: (r.row, r.accept)))
    os.replace(part, path)


def told(row, guards):
    """For the page: the switch, or why there is none."""
    if not row.broken:
        return "nothing"
    if "none" in row.broken:
        return f"nothing: {row.broken['none']}"
    found = [guards.get((row.name, row.accept[i - 1].expression.text)) for i in row.broken["accept"]]
    if not all(found):
        return f"{row.switch()}: not run yet"
    return f"{row.switch()}: {'; '.join(dict.fromkeys(r.result for r in found))}"


class BrokenJob(Job):
    """A small run without the mechanism (on: the switch is), or the same by the program itself."""

    def __init__(self, runner, row, name, seed, on):
        self.on, self.mutant = on and name in row.broken_runs(), row.broken.get("mutant")
        super().__init__(runner, row, name, seed, "broken")
        self.folder = runner.root / "broken" / row.name / f"{name}-{'without' if self.on else 'with'}"
        if self.mutant and self.on:
            self.atoll, self.build = runner.build / "mutants/bin/atoll", runner.build / "mutants"
        if self.on and not self.mutant:
            self.settings = {k: v for k, v in {**self.settings, **row.broken["set"]}.items() if v is not None}

    def sibling(self, name):
        return BrokenJob(self.runner, self.row, name, self.seed, self.on)

    def environment(self):
        return {"ATOLL_MUTANT": self.mutant} if self.mutant and self.on else {}


def needed(row):
    """Runs that the acceptances read, with those that these start from, in the row's order."""
    names = set()
    for i in row.broken["accept"]:
        expression = row.accept[i - 1].expression
        for call in calls(expression):
            names |= {a.id for a in call.args if getattr(a, "id", None) in row.runs}
        names |= expression.programs()
    for name in reversed(list(row.runs)):
        if name in names:
            names |= {row.runs[name][k] if k == "from" else row.runs[name][k][0] for k in ("from", "every_s_of") if k in row.runs[name]}
    return [n for n in row.runs if n in names]


def ran(runner, row, names, on):
    jobs = {}
    for name in names:
        job = BrokenJob(runner, row, name, (row.quick.get("seeds") or row.seeds)[0], on)
        jobs[name] = {None: job}
        if on and not job.on:
            continue  # the run without the switch stands for it
        runner.progress.run()
        job.run()
        runner.progress.done()
    return Measured(jobs)


def numbers(expression, measures):
    try:
        return expression.measured(measures)
    except Missing as why:
        return str(why)


def check(runner, row):
    """Results of a row's acceptances."""
    start, names = time.time(), needed(row)
    broken = set(row.broken_runs())
    if not broken & set(names):
        row.broken.fail("runs", f"broken: the acceptances read none of {', '.join(sorted(broken))}")
    shutil.rmtree(runner.root / "broken" / row.name, ignore_errors=True)
    runner.progress.begin(row.name, [*names, *(f"{n} without" for n in names if n in broken)], 1)
    whole = ran(runner, row, names, False)
    without = ran(runner, row, names, True)
    runner.progress.end()
    floors = floor.Floors(row, "", "broken", floor.measured(row, names, runner.data, "broken"))
    found = []
    for i in row.broken["accept"]:
        expression = row.accept[i - 1].expression
        before, after = judge(expression, whole, floors, exact=True), judge(expression, without, floors, exact=True)
        seen = before.word == YES and after.word == MISS
        why = "" if seen else f": {before.word}{before.why and ' '}{before.why} with it, {after.word}{after.why and ' '}{after.why} without"
        found.append(Result(row.name, row.switch(), expression.text, numbers(expression, whole), numbers(expression, without),
                            SEEN if seen else UNSEEN + why, f"{time.time() - start:.0f}", runner.commit, datetime.date.today().isoformat()))
    return found


def in_turn(names, state):
    """The names, beginning after the one that was last."""
    last = state.read_text(encoding="utf-8").strip() if state.exists() else ""
    i = names.index(last) + 1 if last in names else 0
    return names[i:] + names[:i]


def run(runner, every, names, seconds, csv_path):
    """Rows by name; seconds: rows in turn, as many as fit by the time that they last took (broken.csv); the next call continues after
    them. True: all are seen. None: none ran."""
    start, state, results, tried = time.time(), runner.root / "broken-turn", [], []
    took = {r.row: float(r.seconds) for r in read(csv_path).values()}
    with_switch = [n for n in names if every[n].broken and "none" not in every[n].broken]
    for n in sorted(set(names) - set(with_switch)):
        print(f"none  {n}: {every[n].broken.get('none') or 'names no switch (broken:)'}")
    for name in in_turn(with_switch, state) if seconds else with_switch:
        if seconds and time.time() - start + took.get(name, 0) > seconds:
            if took.get(name, 0) > seconds:
                continue  # it never fits; deploy/reproduce.sh --broken --quick --all runs it
            break
        row = every[name]
        try:
            found = runner.broken(row)
        except Bad as wrong:
            runner.progress.end()
            print(f"reproduce: {wrong}", file=sys.stderr, flush=True)
            found = [Result(name, row.switch(), "", "", "", f"not finished: {str(wrong).splitlines()[0]}", "", "", "")]
        runner.unlock()
        if found is None:
            continue
        tried.append(name)
        results += found
        for r in found:
            print(f"{r.result}  {name}: {r.switch}: {r.accept}   ({r.intact}; then {r.broken}; {r.seconds} s)", flush=True)
        if seconds:
            state.write_text(name, encoding="utf-8")
        elif found[0].accept:
            write(csv_path, found, [name])
    unseen = sorted({r.row for r in results if r.result != SEEN})
    if unseen:
        print(f"not seen: {', '.join(unseen)}")
    return not unseen if tried else None
