# SPDX-License-Identifier: Apache-2.0
"""`run.py --confirm`: for a row whose files have changed and whose numbers have not. The first seed of each recorded run is run again,
of a run with `search` at its best rate. Where every number is the recorded one to the last digit, fresh.csv says that the row holds for
the files as they are now. A run that is finished already, by a program with the same files, counts."""
import re

import fresh
import search
from expression import Bad

CLOCK = re.compile(r"time$|time_to\.|loss_at\.|processor_s$|.*_ms\.")  # what no second run has to the last digit
BESIDE = ("settings", "processor_s")  # of a point, recorded with its loss and not judged


def first_points(row, recorded):
    """[(run or RUN@RATE, seed)] to run, in the row's order; a run may start from another one that was not recorded."""
    seeds = {}
    for line in recorded.lines:
        if line["run"]:
            seeds.setdefault(line["run"], int(line["seed"]) if line["seed"] else None)
    if row.searched():
        points = [p for p in seeds if p.partition("@")[0] in row.runs]
        return [(p, seeds[p]) for p in search.best_points(row.searched(), points, recorded)]
    return [(n, seeds.get(n, row.seeds[0])) for n in row.chosen(False)[0]]


def numbers(row, recorded, name, seed):
    """{measure: value} of one run in results.csv."""
    found = {line["measure"]: float(line["value"]) for line in recorded.lines
             if line["run"] == name and line["seed"] == ("" if seed is None else str(seed))}
    return {m: v for m, v in found.items() if not (row.searched() and m in BESIDE)}


def check(runner, row, recorded):
    """[(run, seed, measure, recorded, now)], all of them."""
    if not recorded.session:
        raise Bad(f"{row.name} has no results yet: --confirm compares with those of results.csv")
    points = [(n, s, numbers(row, recorded, n, s)) for n, s in first_points(row, recorded)]
    timed = sorted({f"{n}: {m}" for n, _, found in points for m in found if CLOCK.match(m)})
    if timed:
        raise Bad(f"{row.name} cannot be confirmed, only run again: it has measured time ({', '.join(timed[:3])})")
    runner.progress.begin(row.name, [n if s is None else f"{n} seed {s}" for n, s, _ in points], float(row.minutes))
    compared = []
    for name, seed, found in points:
        job = runner.job(row, name, seed, False)
        done = job.done()
        if done and not fresh.same_files(row, done["commit"], runner.commit):
            done = None
        runner.progress.run(done["seconds"] if done else None)
        if not done:
            job.run()
            runner.progress.done()
        compared += [(name, seed, measure, was, float(job.measure(measure))) for measure, was in found.items()]
    runner.progress.end()
    return compared
