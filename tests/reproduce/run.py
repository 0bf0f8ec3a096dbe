#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the rows of tests/reproduce: published methods against what they claim and against an independent reference.
deploy/reproduce.sh calls it, which installs and builds first. What a row is written like: README.md in this folder.

    run.py NAME ...   runs the rows that are named, prints their tables, appends to results.csv
    run.py NAME --runs A,B   of a row whose rates are searched: these runs alone (each finished point is in results.csv at once; a
                      killed or stopped search continues there with the same command, --again begins again)
    run.py NAME --seeds N    of a row whose rates are searched: its first N seeds alone
    run.py --all      all rows           --quick [NAME|--all]   small runs on this repository's documents; nothing is recorded
    run.py --broken [--quick] NAME|--all   is each mechanism seen by its row's acceptances? small runs with and without it; broken.csv
                      --seconds N: rows in turn, as many as fit, and nothing is recorded
    run.py --floors   what losses and accuracies must beat, for all data sets of the rows that are named (or --all): floors.csv
    run.py --confirm NAME ...   of a row that is stale: the first seed of each run again; are all numbers the recorded ones to the last
                      digit, fresh.csv says that the row holds for today's files
    run.py --digests  digests of the rows' files for commits that have none, from the history: fresh.csv
    run.py --list     rows and minutes   --page   writes docs/reproductions.md --check-page   does it match?
    --atoll PROGRAM   --dir DIR (build/reproduce)   --again (finished runs, too)
Exit code: 0: every acceptance holds; 1: not, and the failed ones are named; 4: a row or the arguments are wrong; 77: skipped.
"""
import argparse
import datetime
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

try:
    import yaml  # noqa: F401
except ImportError:
    print("reproduce: SKIPPED, nothing was run: PyYAML is missing (pip install pyyaml, or deploy/reproduce.sh)", file=sys.stderr)
    sys.exit(77)

import broken
import confirm
import curves
import floor
import fresh
import page
import records
import search
from data import REPOSITORY, Data
from expression import Bad
from job import Job, Measured, commits
from row import HERE, Row, Workloads, outside, rows
from verdict import MISS, YES

RESULTS = HERE / "results.csv"  # of rows that lie elsewhere: next to them
QUICK_INSTALLS = {"numpy"}  # what --quick may install; torch is too large for it
PAGE = REPOSITORY / "docs/reproductions.md"


class Progress:
    """One line: which run of how many, how far, and the time left by the time that the runs took so far."""

    def __init__(self):
        self.out, self.live, self.last = sys.stderr, sys.stderr.isatty(), 0.0

    def begin(self, row, names, minutes):
        self.row, self.names, self.index, self.start = row, names, -1, time.time()
        self.guess = 60 * minutes / max(1, len(names))
        self.known = []  # seconds of finished runs

    def run(self, finished=None):
        """The next run; finished: seconds of one that is not run again."""
        self.index, self.now = self.index + 1, time.time()
        if finished is not None:
            self.known.append(finished)
        self.step(1.0 if finished is not None else 0.0, force=True, word="is finished already" if finished is not None else "")

    def done(self):
        self.known.append(time.time() - self.now)
        self.step(1.0, force=True, word=f"{self.known[-1]:.0f} s")

    def left(self, share):
        each = sum(self.known) / len(self.known) if self.known else self.guess
        spent = time.time() - self.now
        this = spent / share - spent if share > 0.05 else max(0.0, each - spent)
        return this + each * (len(self.names) - self.index - 1) if share < 1 else each * (len(self.names) - self.index - 1)

    def step(self, share, force=False, word=""):
        if not force and time.time() - self.last < (0.5 if self.live else 30):
            return
        self.last = time.time()
        seconds = self.left(share)
        left = f"{seconds / 60:.0f} min left" if seconds > 90 else f"{seconds:.0f} s left"
        text = f"{self.row}  run {self.index + 1}/{len(self.names)} {self.names[self.index]}  {100 * share:3.0f} %  {left}  {word}"
        print(f"\r{text:<100s}" if self.live else text.rstrip(), end="" if self.live else "\n", file=self.out, flush=True)

    def say(self, words):
        print(f"\r{words:<100s}" if self.live else words, file=self.out, flush=True)

    def end(self):
        if self.live:
            print(file=self.out)


class Runner:
    def __init__(self, options):
        self.atoll = pathlib.Path(options.atoll).resolve()
        if not self.atoll.is_file():
            raise Bad(f"--atoll {options.atoll} is no file: deploy/build.sh atoll builds the program")
        self.build = self.atoll.parent.parent
        if not options.dir:
            raise Bad("--dir is empty; name a folder, or leave it out")
        self.root = pathlib.Path(options.dir).resolve()
        self.root.mkdir(parents=True, exist_ok=True)
        self.workloads, self.progress = Workloads(), Progress()
        self.locks = []
        self.again, self.quick = options.again, options.quick
        self.only = [n for n in (options.runs or "").split(",") if n]
        self.most_seeds = options.seeds
        self.now = datetime.datetime.now().isoformat(timespec="seconds")
        self.commit = records.commit("docs/reproductions.md", *(f"tests/reproduce/{n}.csv" for n in ("results", "broken", "floors", "fresh")))
        self.python = sys.executable
        self.data = Data(self.atoll, self.root, self.workloads.data, options.quick, self.progress.say)

    def job(self, row, name, seed, quick):
        return Job(self, row, name, seed, quick)

    def python_for(self, wanted):
        """A Python that has what a row needs: $ATOLL_PYTHON, this one, or a virtual environment of the rows."""
        test = "import importlib.util as u, sys; sys.exit(any(u.find_spec(n) is None for n in sys.argv[1:]))"
        own = self.root / "venv/bin/python"
        for candidate in filter(None, [os.environ.get("ATOLL_PYTHON"), sys.executable, own if own.exists() else None]):
            if subprocess.run([str(candidate), "-c", test, *wanted], check=False).returncode == 0:
                return str(candidate)
        if self.quick and not set(wanted) <= QUICK_INSTALLS:
            return None
        self.progress.say(f"installs {' '.join(wanted)} into {self.root / 'venv'}")
        with open(self.root / "pip.log", "ab") as log:
            if not own.exists():
                subprocess.run([sys.executable, "-m", "venv", self.root / "venv"], stdout=log, stderr=log, check=False)
            if not own.exists() or subprocess.run([own, "-m", "pip", "install", "-q", "--retries", "1", "--timeout", "20", "pyyaml", *wanted],
                                                  stdout=log, stderr=log, check=False).returncode:
                if self.quick:
                    return None
                raise Bad(f"pip install {' '.join(wanted)} fails: {self.root / 'pip.log'}")
        return str(own)

    def targets(self, row, build):
        if build and subprocess.run(["cmake", "--build", self.build, "--target", *build], stdout=subprocess.DEVNULL,
                                    check=False).returncode:
            raise Bad(f"{row.name}: cmake --build {self.build} --target {' '.join(build)} fails")

    def ready(self, row, build, needs):
        """The row's lock, its Python and its programs. False: no Python has what it needs."""
        self.lock(row)
        self.python = self.python_for(list(map(str, needs)))
        if self.python is None:
            print(f"SKIPPED: {row.name}: no Python here has {', '.join(needs)}")
            return False
        self.targets(row, build)
        return True

    def broken(self, row):
        """broken.check, or None: skipped."""
        mutant = [*row.build, *(f"mutant_{target}" for target in ("atoll", *row.build))] if "mutant" in row.broken else row.build
        needs = row.needs if "reference" in broken.needed(row) else []
        return broken.check(self, row) if self.ready(row, mutant, needs) else None

    def confirm(self, row):
        """confirm.check, printed and kept. None: skipped."""
        recorded = self.recorded(row)
        if not self.ready(row, row.build, row.needs):
            return None
        compared = confirm.check(self, row, recorded)
        other = [c for c in compared if c[3] != c[4]]
        for name, seed, measure, was, now in other:
            print(f"{row.name}: {name}{'' if seed is None else f', seed {seed}'}: {measure} was {was:.9g}, is {now:.9g}")
        if other or not compared:
            print(f"{row.name}: {len(other)} of {len(compared)} numbers differ: run the row again, or confirm it on a machine with the "
                  f"vector instructions that it was measured with ({recorded.machine})")
            return False
        print(f"{row.name}: all {len(compared)} numbers of {len({c[0] for c in compared})} runs are those of {recorded.session[:10]}")
        fresh.keep(RESULTS.parent / "fresh.csv", recorded.session, row, self.commit, confirmed=self.now[:10])
        return True

    def lock(self, row, run=""):
        """Held until this program ends: two of them would remove one another's runs. run: of a row whose rates are searched."""
        self.locks.append(open(self.root / f"{row.place}{run and '.'}{run}.lock", "wb"))
        try:
            fcntl.flock(self.locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Bad(f"{row.name}{run and ', run '}{run} is being run in {self.root} already; wait for it, or give another --dir") from None

    def unlock(self):
        while self.locks:
            self.locks.pop().close()

    def run(self, path):
        """True: every acceptance holds. None: skipped."""
        row = Row(path, self.workloads)
        if self.only and not set(self.only) <= set(row.searched()):
            raise Bad(f"--runs {','.join(self.only)}: the searched runs of {row.name} are {', '.join(row.searched()) or 'none'}")
        if self.most_seeds is not None and (self.most_seeds < 1 or not row.searched()):
            raise Bad(f"--seeds {self.most_seeds}: one seed or more, of a row whose rates are searched; {row.name} "
                      f"{'has such runs' if row.searched() else 'has none'}")
        if not self.quick and RESULTS.exists() and not os.access(RESULTS, os.W_OK):
            raise Bad(f"{RESULTS} cannot be written, and the row's numbers belong there: chmod u+w, or --quick")
        if row.searched() and not self.quick:
            return self.search(row)
        if not self.ready(row, row.build, row.needs):
            return None
        names, seeds = row.chosen(self.quick)
        jobs = {n: {s: self.job(row, n, s, self.quick) for s in seeds_of(row, n, seeds)} for n in names}
        for group in jobs.values():
            first = next(iter(group.values()))
            if not first.program:
                first.dry_run()
        dones = self.run_all(row, [j for group in jobs.values() for j in group.values()])
        return self.report(row, Measured(jobs), dones)

    def run_all(self, row, jobs):
        self.progress.begin(row.name, [j.name if j.seed is None else f"{j.name} seed {j.seed}" for j in jobs], float(row.minutes))
        dones = []
        if self.quick or self.again:
            for folder in {j.folder.parent for j in jobs}:
                shutil.rmtree(folder, ignore_errors=True)
        for job in jobs:
            done = job.done()
            self.progress.run(done["seconds"] if done else None)
            if not done:
                done = job.run()
                self.progress.done()
            dones.append(done)
        self.progress.end()
        return dones

    def recorded(self, row):
        """What results.csv has of a searched row; with --again only since this program began."""
        found = page.Recorded(RESULTS, row.name, row.seeds_of, row.searching_of)
        if self.again and found.session != self.now:
            found.session, found.lines = self.now, []
        return found

    def search(self, row):
        """Every point is a run; the next ones follow from those in results.csv."""
        broken = []
        for name in self.only or row.searched():
            try:
                self.lock(row, name)
                self.job(row, search.named(name, row.runs[name]["search"][0]), row.seeds[0], False).dry_run()
                grid, seeds = row.runs[name]["search"], row.seeds_of(name)[:self.most_seeds]
                while points := search.wanted(grid, seeds, self.known(row, name), row.searching_of(name)):
                    self.point(row, search.named(name, points[0][0]), points[0][1])
            except Bad as wrong:
                self.progress.say(f"{row.name}, {name}: {wrong}")
                broken.append(f"{name}: {wrong}")
        measures, floors = self.recorded(row), self.floors(row, self.only or row.searched())
        for line in page.tables(row, measures, f"{measures.commit}, {measures.machine}, {measures.minutes} min", floors, guards()):
            print(line)
        if RESULTS.parent != HERE:
            points = self.points(row, measures)
            self.leave(row, points, search.best_points(row.searched(), points, measures))
        if broken:
            raise Bad(f"{row.name}: not finished: {'; '.join(broken)}")
        part = self.only or self.most_seeds
        words = [r.verdict.word for r in page.judged(row, measures, floors=floors, guards=guards())]
        return all(w == YES or (part and w != MISS) for w in words)

    def points(self, row, measures):
        """{point: {seed: Job}} of a searched row whose runs are still here."""
        found = {}
        for name, seed in ((line["run"], int(line["seed"])) for line in measures.lines if line["measure"] == search.LOSS):
            job = self.job(row, name, seed, False)
            if job.done():
                found.setdefault(name, {})[seed] = job
        return found

    @staticmethod
    def leave(row, jobs, drawn=None):
        """Of a row elsewhere: losses and curves next to it."""
        for line in curves.leave(row, jobs, drawn):
            print(line)

    def floors(self, row, names):
        """What the row's losses must beat; new ones are kept in floors.csv."""
        found = floor.measured(row, names, self.data, self.quick)
        if not self.quick:
            floor.keep(RESULTS.parent / "floors.csv", found)
        return floor.Floors(row, RESULTS.parent / "floors.csv", self.quick, found)

    def known(self, row, name):
        lines = self.recorded(row).lines
        for line in lines:
            if line["measure"] == "settings" and line["run"].partition("@")[0] == name and \
                    float(line["value"]) != settings_of(self.job(row, line["run"], int(line["seed"]), False)):
                raise Bad(f"{line['run']} in results.csv has other settings than {row.path} now; --again begins again")
        return search.losses_of(name, lines)

    def point(self, row, name, seed):
        job = self.job(row, name, seed, False)
        self.progress.begin(row.name, [f"{name} seed {seed}"], float(row.minutes) / (3 * len(row.seeds) * len(row.searched())))
        done = None if self.again else job.done()
        self.progress.run(done["seconds"] if done else None)
        if not done:
            done = job.run()
            self.progress.done()
        self.progress.end()
        found = {(name, seed, "settings"): settings_of(job), (name, seed, search.LOSS): job.measure(search.LOSS),
                 (name, seed, "processor_s"): round(done["processor_s"], 1)}
        with open(self.root / f"{row.name}.session.lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two programs have one session
            session = self.recorded(row).session or self.now
            page.append(RESULTS, session, records.machine(), done["commit"], row.name, found, done["seconds"] / 60)
            fresh.keep(RESULTS.parent / "fresh.csv", session, row, done["commit"])

    def report(self, row, measures, dones):
        seconds, made_by = sum(d["seconds"] for d in dones), commits(dones)
        floors = None if self.quick else self.floors(row, list(measures.jobs))
        results = page.judged(row, measures, self.quick, floors, guards())
        if self.quick:
            print(f"{row.name}: quick, {len(measures.jobs)} runs, {seconds:.0f} s; no acceptance of quality")
        else:
            for line in page.tables(row, measures, f"{made_by}, {records.machine()}, {seconds / 60:.1f} min", floors, guards()):
                print(line)
            session = datetime.datetime.now().isoformat(timespec="seconds")
            page.append(RESULTS, session, records.machine(), made_by, row.name, measures.asked, seconds / 60)
            if all(fresh.same_files(row, c, self.commit) for c in made_by.split()):
                for commit in made_by.split():
                    fresh.keep(RESULTS.parent / "fresh.csv", session, row, commit)
        if RESULTS.parent != HERE:
            self.leave(row, measures.jobs)
        for r in results:
            if self.quick or r.verdict.word != YES:
                print(f"{r.verdict.word.upper() if r.verdict.word == MISS else r.verdict.word:4s}  {row.name}: {r.text}   "
                      f"({'; '.join(filter(None, dict.fromkeys([r.numbers, r.verdict.why, r.reason if r.verdict.word != YES else ''])))})")
        return all(r.verdict.word == YES for r in results)


def guards():
    return broken.read(RESULTS.parent / "broken.csv")


def settings_of(job):
    """Of a point, as a number of the CSV."""
    return float(int(job.key()[:12], 16))


def seeds_of(row, name, seeds):
    program = row.runs[name].get("program")
    if program and not any("$seed" in str(w) for w in program):
        return [None]
    return [s for s in row.runs[name].get("seeds") or seeds if s in seeds] or seeds[:1]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    p.add_argument("names", nargs="*")
    for flag in ("all", "quick", "list", "page", "check-page", "again", "broken", "floors", "digests", "confirm"):
        p.add_argument("--" + flag, action="store_true")
    p.add_argument("--runs")
    p.add_argument("--seeds", type=int)
    p.add_argument("--seconds", type=float)
    p.add_argument("--atoll", default=str(REPOSITORY / "build/bin/atoll"))
    p.add_argument("--dir", default=str(REPOSITORY / "build/reproduce"))
    return p.parse_args()


def every_row():
    workloads = Workloads()
    return [Row(p, workloads) for p in rows().values()]


def list_rows():
    found, ages = every_row(), fresh.read(RESULTS.parent / "fresh.csv")
    for row in found:
        recorded = page.Recorded(RESULTS, row.name)
        age = fresh.told(row, recorded.session, recorded.commit.split(), ages).strip("*")
        last = f"last run {recorded.session[:10]}, {recorded.minutes} min, {age}" if recorded.session else "not run yet"
        print(f"{row.name:16s} {str(row.work):>4s}  {row.minutes:4} min  {row.title}; {last}")
    return 0


def elsewhere(paths):
    """Rows by their paths: of one folder, where their results are kept, too."""
    global RESULTS
    found = {pathlib.Path(p).stem: pathlib.Path(p).resolve() for p in paths}
    if not all(map(outside, paths)) or len({p.parent for p in found.values()}) > 1 or HERE in {p.parent for p in found.values()}:
        raise Bad("rows outside of the repository are named by their paths, NAME.yaml, all of one folder")
    RESULTS = next(iter(found.values())).parent / "results.csv"
    return found


def known_row(path):
    return Row(path, Workloads())


def digests(paths):
    for row in map(known_row, paths):
        found = page.Recorded(RESULTS, row.name, row.seeds_of, row.searching_of)
        if found.session:
            fresh.backfill(RESULTS.parent / "fresh.csv", row, found.session, found.commit.split())
    return 0


def update_page(check):
    text = page.page(every_row(), RESULTS)
    if not check:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    found = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    same = page.without_ages(found) == page.without_ages(text)
    print("docs/reproductions.md marks other rows as stale than the tree has: deploy/reproduce.sh --page, when there is time" if same and
          found != text else "docs/reproductions.md is what the rows and results.csv say" if same else
          "docs/reproductions.md differs from tests/reproduce/*.yaml and results.csv: deploy/reproduce.sh --page")
    return 0 if same else 1


def main():
    options = arguments()
    if options.list:
        return list_rows()
    if options.page or options.check_page:
        return update_page(options.check_page)
    others = [f"--{n}" for n in ("again", "quick", "runs", "seeds") if getattr(options, n)]
    if options.confirm and others:
        raise Bad(f"--confirm compares the first seed of every recorded run with what is recorded: leave {' and '.join(others)} out")
    known = rows()
    names = options.names
    if any(map(outside, names)):
        known = elsewhere(names)
        names = list(known)
    if options.all or (options.quick and not names):
        names = list(known)
        if options.quick and not options.all:
            names = [r.name for r in every_row() if r.quick.get("cheap", True)]
    for name in names:
        if name not in known:
            raise Bad(f"there is no row {name}; rows: {', '.join(known)}")
    if not names:
        raise Bad("name a row, or --list, --quick or --all; --help says more")
    if options.digests:
        return digests(known[n] for n in names)
    runner = Runner(options)
    if options.floors:
        for row in (known_row(known[n]) for n in names):
            runner.floors(row, list(row.runs))
        return 0
    if options.broken:
        seen = broken.run(runner, {n: known_row(known[n]) for n in names}, names, options.seconds, RESULTS.parent / "broken.csv")
        return 77 if seen is None else 0 if seen else 1
    results, failures = {}, []
    for name in names:
        try:
            results[name] = runner.confirm(known_row(known[name])) if options.confirm else runner.run(known[name])
        except Bad as wrong:
            if len(names) == 1:
                raise
            runner.progress.end()
            print(f"reproduce: {wrong}", file=sys.stderr, flush=True)
            failures.append(name)
    failed = [name for name, held in results.items() if held is False]
    if failed:
        print(f"not {'confirmed' if options.confirm else 'accepted'}: {', '.join(failed)}")
    if failures:
        print(f"not finished: {', '.join(failures)}; correct what is said of each above, then the same command continues", file=sys.stderr)
    if failed or failures:
        return 1 if failed else 4
    return 77 if results and all(held is None for held in results.values()) else 0


def stopped(*_):
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stopped)  # what was started ends, too
    try:
        sys.exit(main())
    except Bad as wrong:
        print(f"reproduce: {wrong}", file=sys.stderr)
        sys.exit(4)
    except OSError as wrong:
        where = f"{wrong.filename}: " if wrong.filename else ""
        print(f"\nreproduce: {where}{wrong.strerror}; finished runs are kept: mend that (room, permissions, or another --dir), then the "
              "same command continues", file=sys.stderr)
        sys.exit(4)
    except KeyboardInterrupt:
        print("\nreproduce: stopped; the same command continues from the runs that are finished", file=sys.stderr)
        sys.exit(75)
