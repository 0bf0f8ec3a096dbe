#!/usr/bin/env python3
"""What an open live page costs a step: one training process, and in turns the page open (page and status.json, which it reads every
2 s, and /metrics every 5 s) and nobody looking.

    tests/bench/watch.py [--atoll FILE] [--pairs N] [--seconds S] [--csv FILE]        default: 30 pairs of 2 x 10 s

Neighbouring windows are a pair, in changing order. A ratio is a step's time with the page by its time without, as the mean over a
window: wall time, and processor time of the thread that trains, which other processes of the machine hardly change. The median
over the pairs counts; the interval is the 95 % bootstrap interval of that median (seed 1). With --csv the ratios become rows of
bench "watch".
"""
import argparse
import datetime
import json
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
MODEL = ["--model.layers", "4", "--model.heads", "4", "--model.width", "128", "--model.context", "64", "--train.sequence", "64",
         "--train.batch_tokens", "768", "--train.optimizer", "adamw", "--train.lr", "0.001", "--device.threads", "1"]


def train(atoll, scratch):
    text = "".join(p.read_text() for p in sorted((REPOSITORY / "docs").glob("*.md")))
    (scratch / "text.txt").write_text(text * 3)
    subprocess.run([atoll, "data", "--out", "data", "--sequence", "64", "text.txt"], cwd=scratch, check=True, capture_output=True)
    process = subprocess.Popen([atoll, "train", "--run.dir", "run", "--data.train", "data/train-*.bin", "--train.steps", "100000000",
                                "--train.checkpoint_every", "100000000", "--log.progress", "none", "--site.http", "127.0.0.1:0",
                                *MODEL], cwd=scratch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, "OMP_NUM_THREADS": "1"})
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
    fields = pathlib.Path(f"/proc/{pid}/task/{tid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def all_s(pid):
    return sum(thread_s(pid, t) for t in os.listdir(f"/proc/{pid}/task"))


def steps(scratch, state):
    """Steps so far; state: where the record was read to, and how many steps that were."""
    with open(scratch / "run/metrics.jsonl", "rb") as f:
        f.seek(state[0])
        text = f.read()
    whole = text.rfind(b"\n") + 1
    state[0] += whole
    state[1] += text[:whole].count(b'"kind":"step"')
    return state[1]


def fetch(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read()


def window(process, scratch, url, state, seconds, looks):
    """Seconds of a step: wall, and of the thread that trains; seconds of the other threads."""
    pid, begun, next_page, next_metrics = process.pid, time.monotonic(), 0.0, 0.0
    before = steps(scratch, state), thread_s(pid, pid), all_s(pid)
    while (now := time.monotonic() - begun) < seconds:
        if looks and now >= next_page:
            if next_page == 0:
                fetch(url)
            json.loads(fetch(url + "status.json"))
            next_page += 2
        if looks and now >= next_metrics:
            fetch(url + "metrics")
            next_metrics += 5
        time.sleep(0.05)
    made, used = steps(scratch, state) - before[0], thread_s(pid, pid) - before[1]
    return (time.monotonic() - begun) / made, used / made, all_s(pid) - before[2] - used


def interval(ratios):
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(4000))
    return medians[100], medians[3899]


def main(words):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--atoll", default=str(REPOSITORY / "build/bin/atoll"))
    p.add_argument("--pairs", type=int, default=30)
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--csv")
    o = p.parse_args(words)
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        scratch, state = pathlib.Path(folder), [0, 0]
        process, url = train(os.path.abspath(o.atoll), scratch)
        try:
            window(process, scratch, url, state, 3, True)
            for turn in range(o.pairs):
                made = {looks: window(process, scratch, url, state, o.seconds, looks) for looks in ((True, False) if turn % 2 else (False, True))}
                pairs.append((made[True], made[False]))
        finally:
            process.kill()
            process.wait()
    rows = []
    for i, case in enumerate(("wall time of a step with the page open", "processor time of a step with the page open")):
        ratios = [a[i] / b[i] for a, b in pairs]
        low, high = interval(ratios)
        value, base = (statistics.median(x[i] for x in side) for side in zip(*pairs))
        print(f"{case}: {1e3 * value:.3f} ms, without {1e3 * base:.3f} ms: ratio {statistics.median(ratios):.4f} ({low:.4f} to {high:.4f})")
        rows.append([datetime.date.today().isoformat(), records.machine(), records.commit(), "watch", case, f"{1e3 * value:.4g}", "ms",
                     f"{1e3 * base:.4g}", f"{statistics.median(ratios):.4f}",
                     f"baseline=nobody looks pairs={o.pairs} seconds={o.seconds:g} interval95={low:.4f}-{high:.4f} threads=1"])
    extra = statistics.median(a[2] - b[2] for a, b in pairs)
    print(f"the page's own threads: {extra:.3f} s of processor in {o.seconds:g} s")
    if o.csv:
        records.append(o.csv, COLUMNS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
