#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often a seed finds each deliberate bug, and how many seeds it is given: makes tests/sim/mutants.csv.

    mutant_rates.py build/tests [--seeds 2000] [--hits 40] [--from N] [NAME...]

The rows of these mutants (all: none is named) are measured again, with the program and the arguments that they have; a mutant
without a row is run by test_sim without a focus: to give it another program or a focus, write the row's first three columns. A
mutant that a test of one module finds has no rate: it is found, or the row is refused.

Seeds are tried from N on (by default drawn from the present commit) until `--seeds` were tried or `--hits` have found it. Either
way the lower bound of the rate is that of Clopper and Pearson at 99 %: P(at least `found` of `seeds` | least) = 1 %. The budget is
the smallest number of seeds with (1 - least)^budget < 1e-6. One that would need more than 10,000 gets none, and `chance` is that
of 10,000: such a row is open. Exit 1: a row is open, or a test of one module does not find its mutant.
"""
import argparse
import concurrent.futures
import csv
import math
import pathlib
import re
import subprocess
import sys
import threading
import zlib

COLUMNS = ["mutant", "program", "arguments", "seeds", "found", "rate", "least", "budget", "chance", "commit"]
TABLE = pathlib.Path(__file__).with_name("mutants.csv")
ROOT = pathlib.Path(__file__).resolve().parents[2]  # some tests of modules read their files from there
CONFIDENCE, MISS, BUDGET_MAX, BUDGET_MIN = 0.99, 1e-6, 10000, 20


def binomial_tail(found, seeds, p):
    """P(X >= found), X binomial."""
    if found == 0:
        return 1.0
    below = 0.0
    for k in range(found):
        log = (math.lgamma(seeds + 1) - math.lgamma(k + 1) - math.lgamma(seeds - k + 1)
               + k * math.log(p) + (seeds - k) * math.log1p(-p))
        below += math.exp(log)
    return 1 - min(below, 1.0)


def lower_bound(found, seeds):
    low, high = 1e-12, 1 - 1e-12
    if found == 0:
        return 0.0
    for _ in range(60):
        middle = math.sqrt(low * high) if high < 0.5 else (low + high) / 2
        low, high = (middle, high) if binomial_tail(found, seeds, middle) < 1 - CONFIDENCE else (low, middle)
    return low


def budget_of(least):
    return max(BUDGET_MIN, math.ceil(math.log(MISS) / math.log1p(-least)) + 1) if 0 < least < 1 else None


def measure(program, arguments, mutant, begin, seeds_max, hits):
    """(tried, found). A seed that ends the program with a failed assertion has found it, too."""
    tried = found = 0
    while tried < seeds_max and found < hits:
        at = begin + tried
        run = subprocess.run([program, *arguments, "--mutant", mutant, "--from", str(at), "--count", str(seeds_max - tried),
                              "--failures", str(hits - found)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace", check=False)
        seeds = [int(x) for x in re.findall(r"^seed=(\d+)$", run.stdout, re.M)]
        if not seeds:
            raise SystemExit(f"{mutant}: {run.stdout.strip()[-300:]}")
        ended = run.returncode in (0, 1) and " violations" in run.stdout
        found += len(re.findall(r"^FAILED ", run.stdout, re.M)) + (not ended)
        tried += seeds[-1] - at + 1
    return tried, found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--hits", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--from", type=int, dest="begin")
    options = parser.parse_intermixed_args()
    options.programs = options.programs.resolve()
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=TABLE.parent, stdout=subprocess.PIPE, text=True,
                            check=True).stdout.strip()
    listed = subprocess.run([options.programs / "test_mutants", "--list"], stdout=subprocess.PIPE, text=True,
                            check=False).stdout.split()
    rows = {row["mutant"]: row for row in csv.DictReader(TABLE.open())} if TABLE.exists() else {}
    write_lock, bad = threading.Lock(), []

    def one(name):
        row = rows[name]
        arguments = row["arguments"].replace("+", ",").split()
        if row["program"] != "sim":
            test = subprocess.run([options.programs / f"test_mutants_{row['program']}", *arguments, "--mutant", name],
                                  cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            row.update(dict.fromkeys(COLUMNS[3:9], ""), commit=commit)
            said, refused = f"test_mutants_{row['program']} ends with {test.returncode}", test.returncode == 0
        else:
            begin = options.begin if options.begin is not None else zlib.crc32(f"{commit} {name}".encode())
            tried, found = measure(options.programs / "test_mutants", arguments, name, begin, options.seeds, options.hits)
            least = lower_bound(found, tried)
            budget = budget_of(least)
            enough = budget is not None and budget <= BUDGET_MAX
            row.update(seeds=tried, found=found, rate=f"{found / tried:.4g}", least=f"{least:.3g}", budget=budget if enough else "",
                       chance=f"{(1 - least) ** (budget if enough else BUDGET_MAX):.1e}", commit=commit)
            said, refused = f"{found} of {tried}, at least {least:.3g}, budget {budget}", not budget or budget > BUDGET_MAX
        with write_lock:
            print(f"{name}: {said}", flush=True)
            if refused:
                bad.append(name)
            with TABLE.open("w", newline="") as out:
                write = csv.DictWriter(out, COLUMNS, lineterminator="\n", extrasaction="ignore")
                write.writeheader()
                write.writerows(rows[n] for n in listed if n in rows)

    names = options.names or listed
    for name in names:
        rows.setdefault(name, dict.fromkeys(COLUMNS, "") | {"mutant": name, "program": "sim"})
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, names))
    if bad:
        print("not found often enough:", *bad)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
