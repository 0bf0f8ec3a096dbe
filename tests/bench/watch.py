#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an open live page costs a step: one training process, and in turns the page open (page and status.json, which it reads every
2 s, and /metrics every 5 s) and no reader. The client is on the same machine: without a reader it reads the same bytes, at the
same moments, from its memory, so that what a browser costs by itself is in both.

    tests/bench/watch.py [--atoll FILE] [--groups N] [--seconds S] [--nice N] [--csv FILE]        default: 30 groups of 4 x 5 s

A group is four blocks, with the page (P) or without (-): P - - P or - P P -, drawn for each group, so that what drifts slowly cancels.
A block is one scrape interval long. The ratio of a group is the geometric mean of its blocks with the page over that of those
without. Three things are measured in each block, and each says something else:
- processor time of the thread that trains, for a step (nanoseconds of the scheduler): other processes hardly change it;
- wall time of a step, the mean over the block: all that there is, other processes included;
- wall time of a step, the mean without the slowest tenth: what a burst of another process does to single steps is left out.
A fourth row is the processor time of the threads that answer, for a second of the open page: what it takes from the training at most
where every core trains. --nice -10 (as root) gives the training more of a machine on which others work, so that wall time says
something there.
The estimate is the median over the groups; the interval is its 95 % bootstrap interval (seed 1). With --csv they become rows of
bench "watch", with the load of the machine in `flags`. A row shows that the page costs nothing when its interval includes 1 or
lies below 1.01.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests"))
import records  # noqa: E402

COLUMNS = "date,machine,commit,bench,case,value,unit,baseline,ratio,flags".split(",")
MODEL = ["--model.layers", "4", "--model.heads", "4", "--model.d_model", "128", "--model.max_seq_len", "64", "--train.seq_len", "64",
         "--train.batch_tokens", "768", "--train.optimizer", "adamw", "--train.lr", "0.001", "--device.threads", "1"]


def prefer(nice):
    """In the process to be: its own, and its session's, which Linux weighs against other sessions (autogroup)."""
    os.nice(nice)
    group = pathlib.Path("/proc/self/autogroup")
    if nice and group.exists():
        os.setsid()
        group.write_text(str(nice))  # root alone may lower it


def train(atoll, scratch, nice=0):
    text = "".join(p.read_text() for p in sorted((REPOSITORY / "tests/golden/text").glob("*.txt")))
    (scratch / "text.txt").write_text(text * 8)
    subprocess.run([atoll, "data", "--out", "data", "--seq-len", "64", "text.txt"], cwd=scratch, check=True, capture_output=True)
    process = subprocess.Popen([atoll, "train", "--run.dir", "run", "--data.train", "data/train-*.bin", "--train.steps", "100000000",
                                "--train.checkpoint_every", "100000000", "--log.progress", "none", "--site.http", "127.0.0.1:0",
                                *MODEL], cwd=scratch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, "OMP_NUM_THREADS": "1"}, preexec_fn=lambda: prefer(nice))
    until = time.time() + 60
    while time.time() < until:
        log = scratch / "run/log.txt"
        found = re.search(r"ev=page url=(\S+)", log.read_text()) if log.exists() else None
        if found and '"kind":"step"' in (scratch / "run/metrics.jsonl").read_text():
            return process, found.group(1)
        time.sleep(0.2)
    process.kill()
    sys.exit("watch: the training does not begin")


def thread_s(pid, tid):
    return int(pathlib.Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[0]) / 1e9


def all_s(pid):
    return sum(thread_s(pid, t) for t in os.listdir(f"/proc/{pid}/task"))


def steps(scratch, state):
    """Wall milliseconds of the steps since the last call; state: where the record was read to."""
    with open(scratch / "run/metrics.jsonl", "rb") as f:
        f.seek(state[0])
        text = f.read()
    whole = text.rfind(b"\n") + 1
    state[0] += whole
    return [float(m) for m in re.findall(rb'"kind":"step".*?"step_ms":([0-9.e+-]+)', text[:whole])]


SEEN = {}


def fetch(url, looks):
    if looks or url not in SEEN:
        with urllib.request.urlopen(url, timeout=20) as answer:
            SEEN[url] = answer.read()
    return SEEN[url]


def block(process, scratch, url, state, seconds, looks):
    """Seconds of a step: of the thread that trains, wall, wall without the slowest tenth; seconds of the other threads."""
    pid, begun, next_page, next_metrics = process.pid, time.monotonic(), 0.0, 0.0
    steps(scratch, state)
    before = thread_s(pid, pid), all_s(pid)
    while (now := time.monotonic() - begun) < seconds:
        if now >= next_page:
            if next_page == 0:
                fetch(url, looks)
            json.loads(fetch(url + "status.json", looks))
            next_page += 2
        if now >= next_metrics:
            fetch(url + "metrics", looks)
            next_metrics += 5
        time.sleep(0.05)
    used, everything = thread_s(pid, pid) - before[0], all_s(pid) - before[1]
    took, ms = time.monotonic() - begun, sorted(steps(scratch, state))
    if len(ms) < 10:
        sys.exit(f"watch: {len(ms)} steps in {seconds:g} s: the machine is too busy to measure anything")
    return used / len(ms), took / len(ms), statistics.fmean(ms[:len(ms) * 9 // 10]) / 1e3, everything - used


def interval(ratios):
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(4000))
    return medians[100], medians[3899]


CASES = ("processor time of a step with the page open", "wall time of a step with the page open",
         "wall time of a step with the page open, without the slowest tenth")


def main(words):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--atoll", default=str(REPOSITORY / "build/bin/atoll"))
    p.add_argument("--groups", type=int, default=30)
    p.add_argument("--seconds", type=float, default=5)
    p.add_argument("--nice", type=int, default=0)
    p.add_argument("--csv")
    o = p.parse_args(words)
    groups, order, loads = [], random.Random(2), []
    with tempfile.TemporaryDirectory() as folder:
        scratch, state = pathlib.Path(folder), [0]
        process, url = train(os.path.abspath(o.atoll), scratch, o.nice)
        try:
            block(process, scratch, url, state, o.seconds, True)
            for _ in range(o.groups):
                first = order.random() < 0.5
                made = [(looks, block(process, scratch, url, state, o.seconds, looks)) for looks in (first, not first, not first, first)]
                groups.append([[m for looks, m in made if looks is side] for side in (True, False)])
                loads.append(os.getloadavg()[0])
        finally:
            process.kill()
            process.wait()
    rows, load = [], f"{min(loads):.1f}..{max(loads):.1f}"
    for i, case in enumerate(CASES):
        ratios = [math.sqrt(a[0][i] * a[1][i] / (b[0][i] * b[1][i])) for a, b in groups]
        low, high = interval(ratios)
        value, base = (statistics.median(m[i] for g in groups for m in g[side]) for side in (0, 1))
        shown = "costs nothing" if low <= 1 <= high or high < 1.01 else "costs something" if low > 1 else "faster?"
        print(f"{case}: {1e3 * value:.3f} ms, without {1e3 * base:.3f} ms: ratio {statistics.median(ratios):.4f} ({low:.4f} to {high:.4f}): {shown}")
        rows.append([datetime.date.today().isoformat(), records.machine(), records.commit(), "watch", case, f"{1e3 * value:.4g}", "ms",
                     f"{1e3 * base:.4g}", f"{statistics.median(ratios):.4f}",
                     f"baseline=the client reads from its memory groups={o.groups} blocks=4x{o.seconds:g}s interval95={low:.4f}-{high:.4f} load={load} nice={o.nice} threads=1"])
    with_page, without = (1e3 / o.seconds * statistics.fmean(m[3] for g in groups for m in g[side]) for side in (0, 1))
    print(f"threads that answer: {with_page:.3f} ms of processor a second, without {without:.3f} ms; load of the machine {load}")
    rows.append([*rows[0][:4], "processor time of the threads that answer, a second", f"{with_page:.4g}", "ms", f"{without:.4g}", "", rows[0][9].split(" interval95")[0] + f" load={load} threads=1"])
    if o.csv:
        records.append(o.csv, COLUMNS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
