#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What secure aggregation costs on a long link: three sites and an aggregator on an emulated network, with masks and without, in turns.

    tests/bench/secure_wan.py ATOLL SCRATCH [--topology NAME] [--turns N] [--codec NAME] [--width N] [--csv FILE]

A round's time is its flight at site a: from the send to the adopted state. Prints the medians over all rounds of a turn but the
first, the median over the turns, and the ratio of the turns pair by pair. The floor: with masks a round has two calls and two polls more,
one after the other: four round trips of the line; and the masked bytes (atoll ledger) at the line's rate.
The final parameters of both are compared: they must be equal. --csv: appends a row for each figure.
"""
import argparse
import csv
import datetime
import json
import os
import statistics
import subprocess
import sys

NAMES = ["a", "b", "c"]


def configure(tests, scratch, codec):
    """run.yaml, shards and certificates, as the end-to-end tests make them."""
    script = f'. "$(dirname "$0")/lib.sh"; steps=64 every=8 codec={codec}; configure a,b,c'
    subprocess.run(["sh", "-c", script, os.path.join(tests, "secure_wan"), options.atoll, scratch], check=True,
                   stdout=subprocess.DEVNULL)


def run(scratch, secure, topology):
    subprocess.run("rm -rf a b c aggregator", shell=True, cwd=scratch, check=True)
    settings = (f"--model.d_model {options.width} --model.heads 4 --outer.weights equal --outer.full_precision fixed "
                f"--privacy.secure {'sum' if secure else 'off'}")
    body = f"""case {{site}} in
        aggregator) exec {options.atoll} serve --config run.yaml --serve.listen {{address}}:7443 {settings} ;;
        *) case {{site}} in a) part=0 ;; b) part=1 ;; *) part=2 ;; esac
           exec {options.atoll} train --config run.yaml --site.name {{site}} --run.dir {{site}} --log.progress none {settings} \\
               --data.train "data/train-$part-*.bin" --site.aggregator {{address:aggregator}}:7443 ;;
        esac"""
    env = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", NO_COLOR="1")
    done = subprocess.run([options.atoll, "wan", "--topology", topology, "--sites", "a,b,c,aggregator", "--logs", "logs", "--", "sh", "-c",
                           body], cwd=scratch, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"atoll wan: {done.stderr[-2000:]}")
    rows = [json.loads(line) for line in open(f"{scratch}/a/metrics.jsonl")]
    rounds = [r for r in rows if r["kind"] == "round" and not r["replayed"]]
    final = [r for r in rows if r["kind"] == "final"][-1]["parameters"]
    return (statistics.median(r["flight_ms"] for r in rounds[1:]), statistics.median(r["up"] for r in rounds[1:]), final)


parser = argparse.ArgumentParser()
parser.add_argument("atoll", type=os.path.abspath)
parser.add_argument("scratch", type=os.path.abspath)
parser.add_argument("--topology", default="transatlantic")
parser.add_argument("--turns", type=int, default=3)
parser.add_argument("--codec", default="int4")
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--csv")
options = parser.parse_args()
repository = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
configure(os.path.join(repository, "tests", "e2e"), options.scratch, options.codec)
times = {True: [], False: []}
sizes = {}
for turn in range(options.turns):
    finals = []
    for secure in (False, True):
        ms, up, final = run(options.scratch, secure, options.topology)
        times[secure].append(ms)
        sizes[secure] = up
        finals.append(final)
    if finals[0] != finals[1]:
        sys.exit("with masks and without: other final parameters")
    print(f"turn {turn}: plain {times[False][-1]:.1f} ms, masked {times[True][-1]:.1f} ms, same final parameters", flush=True)
plain, masked = statistics.median(times[False]), statistics.median(times[True])
ratio = statistics.median(m / p for m, p in zip(times[True], times[False]))
print(f"round over {options.topology}: plain {plain:.1f} ms, {sizes[False]} bytes up; masked {masked:.1f} ms, {sizes[True]} bytes up; "
      f"ratio {ratio:.3f}, {masked - plain:.1f} ms more")
if options.csv:
    sys.path.insert(0, os.path.join(repository, "tests"))
    import records
    with open(options.csv, "a", encoding="utf-8", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        flags = f"topology={options.topology} codec={options.codec} width={options.width} sites=3 turns={options.turns}"
        for name, value, base in (("plain round", plain, 0), ("masked round", masked, plain)):
            w.writerow([datetime.date.today(), records.machine(), records.commit(), "secure_wan", name, round(value, 1), "ms",
                        round(base, 1), round(value / base, 4) if base else 0, flags])
