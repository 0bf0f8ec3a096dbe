#!/usr/bin/env python3
"""What the flags against attacks on memory cost (hardening.cmake): codecs, kernels and training steps of two builds, with all flags
and without some, in turns.

    tests/bench/hardening.py [--without FLAG] [--repeats N] [--csv FILE]      default: without all of them, 5 turns each

Builds build-hardened and build-unhardened. A ratio is time with the flags by time without them, so above 1 they cost: of each case the
median over the turns, of a program the median over its cases. With --csv the ratios become rows of bench "hardening".
"""
import argparse
import csv
import datetime
import io
import pathlib
import statistics
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests"))
import records  # noqa: E402

PROGRAMS = ("bench_codec", "bench_ops", "bench_train")


def build(folder, without):
    where = REPOSITORY / folder
    for command in (["cmake", "-B", where, "-G", "Ninja", f"-DHARDENING_WITHOUT={without}"],
                    ["cmake", "--build", where, "--target", *PROGRAMS]):
        if subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=False).returncode:
            sys.exit(f"hardening: {' '.join(map(str, command))} fails")
    return where / "tests"


def bench_times(program):
    """case: seconds, or what is in proportion to them."""
    text = subprocess.run([program], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    times = {}
    for row in csv.DictReader(io.StringIO(text)):
        value = float(row["value"])
        if value > 0:
            more = "/s" in row["unit"]
            times[row["case"]] = 1 / value if more else value
    return times


def train_times(program, steps=3):
    """Processor time of a step: other processes of the machine count little."""
    times = {}
    for kind in ("f32", "bf16"):
        answer = subprocess.run([program, "10m", kind, "1"], cwd=REPOSITORY, input=f"cpu 1\ncpu {steps}\nstop\n", stdout=subprocess.PIPE,
                                text=True, check=True).stdout.splitlines()
        times[f"step {kind}"] = statistics.median(float(word) for word in answer[-1].split())
    return times


def measure(programs):
    times = {}
    for name in PROGRAMS:
        for case, seconds in (train_times if name == "bench_train" else bench_times)(programs / name).items():
            times[name, case] = seconds
    return times


def main(words):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--without", default="all")
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--csv")
    o = p.parse_args(words)
    hard, soft = build("build-hardened", ""), build("build-unhardened", o.without)
    ratios = {}
    for turn in range(o.repeats):
        first, second = (hard, soft) if turn % 2 == 0 else (soft, hard)
        a, b = measure(first), measure(second)
        with_flags, without = (a, b) if first == hard else (b, a)
        for key in with_flags.keys() & without.keys():
            ratios.setdefault(key, []).append(with_flags[key] / without[key])
    rows = []
    for name in PROGRAMS:
        cases = {case: statistics.median(r) for (program, case), r in ratios.items() if program == name}
        worst = max(cases, key=cases.get)
        middle = statistics.median(cases.values())
        spread = statistics.median(max(r) - min(r) for (program, _), r in ratios.items() if program == name)
        print(f"{name}: ratio {middle:.3f} over {len(cases)} cases (turns differ by {spread:.3f}); most {cases[worst]:.3f}: {worst}", flush=True)
        rows.append([datetime.date.today().isoformat(), records.machine(), records.commit(), "hardening", f"{name} without {o.without}", f"{middle:.4f}",
                     "time with / time without", "1", f"{middle:.4f}", f"cases={len(cases)} turns={o.repeats} worst={cases[worst]:.4f}"])
    if o.csv:
        with open(o.csv, "a", encoding="utf-8", newline="") as f:
            csv.writer(f, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
