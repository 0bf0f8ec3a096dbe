#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What run.archive costs a round: an aggregator and two sites over loopback, the same run in turns with an archive and without.

    tests/bench/archive.py [--atoll FILE] [--groups N] [--rounds R] [--tau STEPS] [--dir DIR] [--csv FILE]     default: 8 groups, 40 rounds

A group is four runs, with the archive (A) or without (-): A - - A or - A A -, drawn for each group, so that what drifts slowly
cancels. Rounds in full precision are left out. The value of a run is the median over its rounds, at site a:
- apply_ms of metrics.jsonl: the outer step, the commit and the archive at the site, without waiting for others;
- exposed_ms, for which training waited for the exchange. With --tau 0 it has all of the above, and the wait for the other site;
- the time between two rounds: all that there is, compute and other programs included.
The mean over all rounds of the processor time of each process (its rusage) is the fourth and fifth. The difference of a group is
the mean of its runs with the archive less that of those without. The estimate is the median over the groups; the interval is its
95 % bootstrap interval (seed 1).

The last rows are bytes: what the start line predicts for the run, what the program counts, and what the files have; and the floor:
the bytes of a round of the site, its files one by one as the archive writes them, each with fsync, on the same disk. --tau is
outer.overlap_steps: with 0 training waits for the exchange. Rows of bench "archive" with --csv, the load of the machine in `flags`.
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parent)]
import records  # noqa: E402
from watch import COLUMNS, interval  # noqa: E402

CODEC = "int8"
FULL_FIRST, FULL_LAST = 5, 2  # rounds at the start and the end that are left out: in full precision, or next to such a one
PORT = 7443


def configure(atoll, folder, o):
    def run(*words):
        subprocess.run([atoll, *words], cwd=folder, check=True, capture_output=True)
    (folder / "text.txt").write_text("".join(p.read_text() for p in sorted((records.REPOSITORY / "tests/golden/text").glob("*.txt"))) * 5)
    run("data", "--out", "data", "--sites", "2", "--seq-len", "64", "text.txt")
    run("cert", "authority", "--run", "archive", "--dir", "tls")
    run("cert", "issue", "--role", "aggregator", "--host", "localhost,127.0.0.1", "--dir", "tls")
    for name in "ab":
        run("cert", "issue", "--role", "site", "--name", name, "--dir", "tls")
    (folder / "run.yaml").write_text(f"""
run: {{name: archive, seed: 7}}
model: {{layers: {o.layers}, heads: 4, d_model: {o.width}, max_seq_len: 64}}
data: {{tokenizer: bytes}}
train: {{steps: {o.rounds * o.every}, batch_tokens: 128, seq_len: 64, lr: 0.001, warmup_steps: {o.every}, checkpoint_every: 1000000}}
device: {{threads: 1}}
outer: {{sites: [a, b], sync_every: {o.every}, codec: {CODEC}, overlap_steps: {o.tau}}}
site: {{aggregator: "127.0.0.1:{PORT}", aggregator_name: localhost}}
tls: {{dir: tls}}
serve: {{listen: "127.0.0.1:{PORT}", dir: aggregator}}
""")


def rounds_of(folder, o):
    """Rounds of site a in the codec: apply_ms, exposed_ms, ms since the round before."""
    lines = [json.loads(x) for x in (folder / "a/metrics.jsonl").read_text().splitlines() if '"kind":"round"' in x]
    kept = [i for i in range(FULL_FIRST, len(lines) - FULL_LAST)]
    return [(lines[i]["apply_ms"], lines[i]["exposed_ms"], 1e3 * (lines[i]["t"] - lines[i - 1]["t"])) for i in kept]


def bytes_of(folder, who):
    log = (folder / f"{who}.out").read_text()
    predicted, counted = (int(re.search(rf" ev={x}=(\d+)", log).group(1)) for x in (r"archive .*bytes_run", r"archive_closed bytes"))
    files = [f for f in (folder / who / "archive").rglob("*") if f.is_file()]
    return predicted, counted, sum(f.stat().st_size for f in files)


def run(atoll, folder, o, archived):
    """(medians of rounds_of, processor ms a round of site a, of the aggregator); bytes of site a and of the aggregator."""
    for name in ("a", "b", "aggregator"):
        shutil.rmtree(folder / name, ignore_errors=True)
    processes = {}
    for name in ("aggregator", "a", "b"):
        words = ["serve"] if name == "aggregator" else [
            "train", "--site.name", name, "--run.dir", name, "--data.train", f"data/train-{'ab'.index(name)}-*.bin", "--log.progress", "none"]
        with open(folder / f"{name}.out", "wb") as out:
            processes[name] = subprocess.Popen([atoll, *words, "--config", "run.yaml", "--run.archive", "on" if archived else "off"],
                                               cwd=folder, stdout=out, stderr=out, env={**os.environ, "OMP_NUM_THREADS": "1"})
    used = {}
    for name, p in processes.items():
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        used[name] = 1e3 * (usage.ru_utime + usage.ru_stime) / o.rounds
        if p.returncode:
            sys.exit(f"archive: {name} ended with {p.returncode}: {(folder / f'{name}.out').read_text()[-600:]}")
    columns = [statistics.median(x) for x in zip(*rounds_of(folder, o))]
    return [*columns, used["a"], used["aggregator"]], [bytes_of(folder, w) if archived else None for w in ("a", "aggregator")]


def floor_ms(folder):
    """Writing the files of one round of site a again, each with fsync; median over the rounds in the codec."""
    took, to = [], folder / "floor"
    rounds = sorted((folder / "a/archive/0").iterdir(), key=lambda p: int(p.name))[FULL_FIRST:-FULL_LAST]
    for one in rounds:
        files = [f.read_bytes() for f in one.iterdir()]
        start = time.monotonic()
        for data in files:
            with open(to, "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
        took.append(1e3 * (time.monotonic() - start))
    size = statistics.median(sum(f.stat().st_size for f in one.iterdir()) for one in rounds)
    return statistics.median(took), size


CASES = ("outer step and commit at the site, a round", "training waits for the exchange, a round", "between two rounds",
         "processor time of the site, a round", "processor time of the aggregator, a round")


def main(words):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--atoll", default=str(records.REPOSITORY / "build/bin/atoll"))
    p.add_argument("--groups", type=int, default=8)
    p.add_argument("--rounds", type=int, default=40)
    p.add_argument("--every", type=int, default=4)
    p.add_argument("--tau", type=int, default=0)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--dir", help="on the disk that is measured; default: the one of temporary files")
    p.add_argument("--csv")
    o = p.parse_args(words)
    groups, order, loads, sizes = [], random.Random(2), [], None
    with tempfile.TemporaryDirectory(dir=o.dir) as name:
        folder = pathlib.Path(name)
        configure(os.path.abspath(o.atoll), folder, o)
        for _ in range(o.groups):
            first, made = order.random() < 0.5, []
            for archived in (first, not first, not first, first):
                made.append((archived, run(os.path.abspath(o.atoll), folder, o, archived)))
                if archived:
                    sizes, floor = made[-1][1][1], floor_ms(folder)
                loads.append(os.getloadavg()[0])
            groups.append([[m[0] for archived, m in made if archived is side] for side in (True, False)])
    load, rows = f"{min(loads):.1f}..{max(loads):.1f}", []
    settings = f"groups={o.groups} runs=4x{o.rounds} rounds every={o.every} tau={o.tau} layers={o.layers} width={o.width} codec={CODEC} sites=2 load={load}"

    def row(case, value, unit, base, ratio, flags):
        rows.append([datetime.date.today().isoformat(), records.machine(), records.commit(), "archive", case, value, unit, base, ratio, flags])

    for i, case in enumerate(CASES):
        differences = [statistics.fmean(m[i] for m in a) - statistics.fmean(m[i] for m in b) for a, b in groups]
        low, high = interval(differences)
        value, base = (statistics.median(m[i] for g in groups for m in g[side]) for side in (0, 1))
        print(f"{case}: {value:.2f} ms, without {base:.2f} ms: {statistics.median(differences):+.2f} ms ({low:+.2f} to {high:+.2f})")
        row(f"{case}, tau {o.tau}", f"{value:.4g}", "ms", f"{base:.4g}", f"{value / base:.4g}" if base else "",
            f"baseline=without run.archive difference={statistics.median(differences):.2f}ms interval95={low:.2f}-{high:.2f}ms {settings}")
    for who, (predicted, counted, files) in zip(("a site", "the aggregator"), sizes):
        print(f"archive of {who}: {predicted} bytes predicted, {counted} counted, {files} in files")
        row(f"bytes of the archive of {who}", files, "bytes", predicted, f"{files / predicted:.4f}", f"baseline=predicted counted={counted} {settings}")
    print(f"floor: {floor[1]:.0f} bytes of a round of a site, one file after the other: {floor[0]:.2f} ms; load {load}")
    row("floor: files of a round of a site, written with fsync", f"{floor[0]:.4g}", "ms", "", "", f"bytes={floor[1]:.0f} {settings}")
    if o.csv:
        records.append(o.csv, COLUMNS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
