# SPDX-License-Identifier: Apache-2.0
"""The rates of a run with `search` (README.md). A point is the run at one rate with one seed; it is named RUN@RATE. The best rate has
the lowest mean loss over the seeds that search, and a rate with a higher one on each side: at the edge of what was run no rate is the
best. The other seeds run that rate alone."""
import statistics

from expression import Bad, Missing, Run

MOST = 12  # rates of a search
LOSS = "eval.loss.last"


def named(run, rate):
    return f"{run}@{rate:g}"


def losses_of(run, lines):
    """{(rate, seed): loss} of the points of a run among lines of results.csv."""
    found = {}
    for line in lines:
        name, _, rate = line["run"].partition("@")
        if name == run and rate and line["measure"] == LOSS:
            found[float(rate), int(line["seed"])] = float(line["value"])
    return found


def all_rates(grid, losses):
    return sorted({*grid, *(rate for rate, _ in losses)})


def lowest(rates, seeds, losses):
    """Of the rates that have all seeds, the one with the lowest mean; None: there is none."""
    whole = [r for r in rates if all((r, s) in losses for s in seeds)]
    return min(whole, key=lambda r: statistics.fmean(losses[r, s] for s in seeds), default=None)


def around(rates, rate):
    """With its neighbours; at an edge the grid gets one more, at the same ratio."""
    i = rates.index(rate)
    below = rates[i - 1] if i > 0 else float(f"{rate * rate / rates[1]:.3g}")
    above = rates[i + 1] if i + 1 < len(rates) else float(f"{rate * rate / rates[-2]:.3g}")
    return [below, rate, above]


def wanted(grid, seeds, losses, searching=None):
    """The points (rate, seed) to run next; none where the best rate is known. The first seed runs the grid, each further one only
    what lies around the best rate so far; a best rate at an edge extends the grid. searching: how many seeds do so; None: all."""
    needed = list(grid)
    for count in range(1, len(seeds[:searching]) + 1):
        first, before = seeds[:count], None
        while needed != before:
            missing = [(r, s) for s in first for r in needed if (r, s) not in losses]
            if missing:
                return missing
            rates = all_rates(grid, losses)
            before, needed = needed, around(rates, lowest(rates, first, losses))
            if len({*rates, *needed}) > MOST:
                raise Bad(f"no best rate among {len(rates)}, {rates[0]:g} to {rates[-1]:g}: correct the grid")
    return [(needed[1], s) for s in seeds[len(seeds[:searching]):] if (needed[1], s) not in losses]


def best(seeds, losses, searching=None):
    """The best rate and its losses, by seed. Missing: not known yet."""
    rates = all_rates((), losses)
    if len(rates) < 3:
        raise Missing("fewer than three rates were run")
    first = seeds[:searching]
    rate = lowest(rates, first, losses)
    if rate is None or any((rate, s) not in losses for s in seeds):
        raise Missing("no rate was run with all seeds")
    i = rates.index(rate)
    if not 0 < i < len(rates) - 1:
        raise Missing(f"the best rate, {rate:g}, is at the edge of what was run")
    if any((r, s) not in losses for r in rates[i - 1:i + 2] for s in first):
        raise Missing(f"the rates next to {rate:g} were not run with all seeds")
    return rate, [losses[rate, s] for s in seeds]


def best_points(runs, points, measures):
    """Names of the points to draw: of each run its best rate; while that is not known, all."""
    found = []
    for run in runs:
        try:
            found.append(named(run, measures(Run(run), "rate").values[0]))
        except Missing:
            found += [p for p in points if p.partition("@")[0] == run]
    return found
