#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Campaigns against a run's reliability: what was tried to break it, how often, and what came of it.
deploy/reliability.sh calls it.

    run.py NAME ... | --all       runs campaigns, adds their figures to results.csv      --amount N   seeds, kills, hours, seconds
    run.py --release NAME ...     with the amounts for a release                         --list       campaigns and amounts
    run.py --page                 rewrites docs/reliability.md   --check-page   is it what results.csv says?
    --build DIR (build)           --results FILE
A campaign is cut into sessions, and each that ends is recorded: a stopped command continues where its last session ended.
Exit code 0: nothing was found; 1: something was, and it is named; 4: an argument is wrong or a program is missing; 77: skipped.
"""
import argparse
import datetime
import fcntl
import pathlib
import signal
import subprocess
import sys

import campaigns
import page
import records

HERE = pathlib.Path(__file__).resolve().parent
RESULTS, PAGE = HERE / "results.csv", records.REPOSITORY / "docs/reliability.md"


def arguments(words):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    p.add_argument("names", nargs="*")
    for flag in ("all", "release", "list", "page", "check-page"):
        p.add_argument("--" + flag, action="store_true")
    p.add_argument("--amount", type=float)
    p.add_argument("--build", default=str(records.REPOSITORY / "build"))
    p.add_argument("--results", default=str(RESULTS))
    return p.parse_args(words)


def whole(number):
    return int(number) if number == int(number) else number


def build(place, targets):
    if targets and subprocess.run(["cmake", "--build", place.build, "--target", *targets], stdout=subprocess.DEVNULL, check=False).returncode:
        raise campaigns.Unusable(f"cmake --build {place.build} --target {' '.join(targets)} fails; deploy/build.sh configures {place.build}")


def campaign_run(c, place, amount, results):
    """True: nothing was found."""
    locked = open(place.scratch / f"{c.name}.lock", "wb")  # until this returns: both would use one folder, and the same seeds
    try:
        fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        locked.close()
        raise campaigns.Unusable(f"{c.name} is being run in {place.build} already; wait for it") from None
    with locked:
        return sessions_run(c, place, amount, results)


def sessions_run(c, place, amount, results):
    build(place, c.builds)
    commit = records.commit("tests/reliability/results.csv", "docs/reliability.md")
    left = whole(amount)
    while left > 0:
        piece = min(left, c.session)
        done = page.Recorded(results, c).done()
        date = datetime.datetime.now().isoformat(timespec="milliseconds")
        figures, command = campaigns.run(c, place, piece, done, place.scratch / f"{c.name}.log")
        page.append(results, records.machine(), commit, date, c.name, figures, command)
        left -= piece
        print(f"{c.name}: recorded; {left} of {whole(amount)} {c.measure} left", flush=True)
        if figures["failed"]:
            print(f"{c.name}: FAILED: {command}", flush=True)
            return False
    return True


def update_page(check, results):
    text = page.page(campaigns.CAMPAIGNS, results)
    if not check:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
    print("docs/reliability.md is what results.csv says" if same else
          "docs/reliability.md differs from tests/reliability/results.csv: deploy/reliability.sh --page")
    return 0 if same else 1


def list_campaigns(results):
    for c in campaigns.CAMPAIGNS:
        of = page.Recorded(results, c)
        last = f"{len(of.sessions)} sessions, newest {of.sessions[-1]['date'][:10]}" if of.sessions else "not run yet"
        print(f"{c.name:10s} {c.amount:>7,} (release {c.release:,}) {c.measure:22s} {c.title}; {last}")
    return 0


def main(words):
    options = arguments(words)
    if options.list:
        return list_campaigns(options.results)
    if options.page or options.check_page:
        return update_page(options.check_page, options.results)
    known = campaigns.by_name()
    names = list(known) if options.all else options.names
    for name in names:
        if name not in known:
            raise campaigns.Unusable(f"there is no campaign {name}; campaigns: {', '.join(known)}")
    if not names:
        raise campaigns.Unusable("name a campaign, or --list or --all; --help says more")
    if options.amount is not None and (len(names) > 1 or options.amount <= 0):
        raise campaigns.Unusable("--amount is a number above 0, of one campaign")
    place = campaigns.Place(records.REPOSITORY, pathlib.Path(options.build).resolve(), pathlib.Path(options.build).resolve() / "reliability")
    place.scratch.mkdir(parents=True, exist_ok=True)
    found, broken = [], []
    for name in names:
        c = known[name]
        try:
            if not campaign_run(c, place, options.amount or (c.release if options.release else c.amount), options.results):
                found.append(name)
        except campaigns.Unusable as wrong:
            print(f"reliability: {wrong}", file=sys.stderr, flush=True)
            broken.append(name)
    if found:
        print(f"found something: {', '.join(found)}")
    if broken:
        print(f"not run: {', '.join(broken)}", file=sys.stderr)
    return 1 if found else 4 if broken else 0


def stopped(*_):
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stopped)  # what was started ends, too
    try:
        sys.exit(main(sys.argv[1:]))
    except campaigns.Unusable as wrong:
        print(f"reliability: {wrong}", file=sys.stderr)
        sys.exit(4)
    except KeyboardInterrupt:
        print("\nreliability: stopped; the same command continues after the last session that ended", file=sys.stderr)
        sys.exit(75)
