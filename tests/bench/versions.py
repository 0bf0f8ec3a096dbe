#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed of two versions of Atoll side by side in one run: the inner step and a whole outer round.

    tests/bench/versions.py OLD NEW [--turns 5] [--size 10m] [--csv tests/bench/results.csv]

OLD and NEW are checkouts, each with build/bin/atoll and build/tests/bench_train (`ninja -C build atoll bench_train`).
step   bench_train of both (forward, backward, clip, AdamW; one thread; f32 and bf16), three steps each in turn.
round  two sites and an aggregator over mutual TLS on loopback (4.9 M parameters, int8, a round every two steps), run in
       the order old, new, new, old; flight_ms and compute_ms of site a's metrics.jsonl, without the first records.
Medians; ratio = new / old, so below 1 is faster. Use an idle machine.
"""
import argparse, csv, datetime, json, os, platform, shutil, statistics, subprocess, sys, tempfile

ROUND = """steps=16 every=2 straggler_s=60 checkpoint_every=1000
. "$(dirname "$0")/lib.sh"
settings="--model.layers 6 --model.d_model 256 --model.heads 4 --model.max_seq_len 64 --train.seq_len 32"
configure a,b
undisturbed
"""


def steps(checkouts, size, kind, turns):
    """Seconds of each step of both programs."""
    program = [os.path.join(c, "build/tests/bench_train") for c in checkouts]
    workers = [subprocess.Popen([p, size, kind, "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True) for p in program]

    def go(worker, count):
        worker.stdin.write(f"go {count}\n")
        worker.stdin.flush()
        return [float(x) for x in worker.stdout.readline().split()]

    for worker in workers:
        go(worker, 2)  # warm-up
    seconds = [[], []]
    for turn in range(turns):
        for i in (0, 1) if turn % 2 == 0 else (1, 0):
            seconds[i] += go(workers[i], 3)
    for worker in workers:
        worker.stdin.write("stop\n")
        worker.stdin.close()
        worker.wait()
    return seconds


def read(checkout, path):
    with open(os.path.join(checkout, path), encoding="utf-8") as f:
        return f.read()


def before_names(text):
    """The same for a version from before the keys had these names."""
    for now, before in (("d_model", "width"), ("max_seq_len", "context"), ("seq_len", "sequence")):
        text = text.replace(now, before)
    return text


def one_run(checkout):
    """Milliseconds of site a's rounds and steps in one run of a checkout, with that checkout's own lib.sh."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.join(scratch, "tests/e2e")
        os.makedirs(folder)
        shutil.copy(os.path.join(checkout, "tests/e2e/lib.sh"), folder)
        shutil.copy(os.path.join(checkout, "LICENSE"), scratch)
        for text in ("tests/golden/text", "docs"):  # older ones train on their documents
            if os.path.isdir(os.path.join(checkout, text)):
                shutil.copytree(os.path.join(checkout, text), os.path.join(scratch, text))
        script = os.path.join(folder, "round.sh")
        with open(script, "w") as f:
            f.write(ROUND if "d_model" in read(checkout, "inner/config/keys.h") else before_names(ROUND))
        run = os.path.join(scratch, "run")
        done = subprocess.run(["sh", script, os.path.join(checkout, "build/bin/atoll"), run], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{checkout}: the run failed\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        with open(os.path.join(run, "a/metrics.jsonl")) as f:
            records = [json.loads(line) for line in f]
    flights = [r["flight_ms"] for r in records if r.get("kind") == "round" and "flight_ms" in r]
    computes = [r["compute_ms"] for r in records if r.get("kind") == "step" and "compute_ms" in r]
    return flights[1:], computes[2:]


def rounds(checkouts, turns):
    flight, compute = [[], []], [[], []]
    for _ in range(turns):
        for i in (0, 1, 1, 0):
            f, c = one_run(checkouts[i])
            flight[i] += f
            compute[i] += c
    return flight, compute


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("checkouts", nargs=2, metavar=("OLD", "NEW"))
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--size", default="10m")
    p.add_argument("--csv")
    a = p.parse_args()
    checkouts = [os.path.abspath(c) for c in a.checkouts]
    commits = [subprocess.run(["git", "-C", c, "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True).stdout.strip()
               for c in checkouts]
    rows = []

    def report(case, unit, values):
        old, new = map(statistics.median, values)
        print(f"{case:24} old {old:9.4f}  new {new:9.4f} {unit:2}  new/old {new / old:.3f}  least {min(values[1]) / min(values[0]):.3f}"
              f"  n {len(values[1])}", flush=True)
        rows.append([datetime.date.today().isoformat(), platform.machine(), commits[1], "versions", case, f"{new:.5g}", unit,
                     f"{old:.5g}", f"{new / old:.4f}", f"old={commits[0]} n={len(values[1])}"])

    for kind in ("f32", "bf16"):
        report(f"step {a.size} {kind}", "s", steps(checkouts, a.size, kind, a.turns))
    flight, compute = rounds(checkouts, max(1, a.turns - 1))
    report("round 2 sites int8", "ms", flight)
    report("step 2 sites", "ms", compute)
    if a.csv:
        with open(a.csv, "a", newline="") as f:
            csv.writer(f, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
