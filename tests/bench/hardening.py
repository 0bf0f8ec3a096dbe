#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the flags against attacks on memory cost (deploy/hardening.cmake): codecs, kernels and training steps of two builds, with
all flags and without some, in turns.

    tests/bench/hardening.py [--without FLAG] [--only WORD] [--repeats N] [--csv FILE]      default: without all, 5 turns of each

Builds build-hardened and build-unhardened. Measured is processor time of one thread, so that other processes of the machine count
little: of bench_codec and bench_ops (fixed work: their sum over all cases, matrix products by oneDNN included) and of a training
step. --only: cases with this word. A ratio is time with the flags by time without: above 1 they cost. The median over the turns counts. With --csv the ratios
become rows of bench "hardening".

November 2026, 2 x AMD EPYC, one thread, medians of 3 turns, a training step of a GPT of 10 M parameters: 0.994 (f32, 0.991 to 1.013)
and 1.017 (bf16, 1.004 to 1.037). docs/security.md has the rounded figures.
"""
import argparse
import csv
import datetime
import os
import pathlib
import statistics
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests"))
import records  # noqa: E402

PROGRAMS = ("bench_codec", "bench_ops", "bench_train")
STEPS = 3
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def build(folder, without):
    for command in (["cmake", "-B", folder, "-G", "Ninja", f"-DHARDENING_WITHOUT={without}"],
                    ["cmake", "--build", folder, "--target", *PROGRAMS]):
        if subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=False).returncode:
            sys.exit(f"hardening: {' '.join(command)} fails")
    return REPOSITORY / folder / "tests"


def whole_s(program):
    """Processor time of the whole program, in user mode."""
    process = subprocess.Popen([program], cwd=REPOSITORY, env=ONE_THREAD, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"hardening: {program}: exit code {process.returncode}")
    return used.ru_utime


def step_s(program, kind):
    lines = subprocess.run([program, "10m", kind, "1"], cwd=REPOSITORY, env=ONE_THREAD, input=f"cpu 1\ncpu {STEPS}\nstop\n",
                           stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return statistics.median(map(float, lines[-1].split()))


CASES = {
    "codecs": lambda programs: whole_s(programs / "bench_codec"),
    "kernels": lambda programs: whole_s(programs / "bench_ops"),
    "step of a GPT of 10 M in f32": lambda programs: step_s(programs / "bench_train", "f32"),
    "step of a GPT of 10 M in bf16": lambda programs: step_s(programs / "bench_train", "bf16"),
}


def main(words):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--without", default="all")
    p.add_argument("--only", default="")
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--csv")
    o = p.parse_args(words)
    hard, soft = build("build-hardened", ""), build("build-unhardened", o.without)
    rows = []
    for case, seconds in CASES.items():
        if o.only not in case:
            continue
        with_flags, without, ratios = [], [], []
        for turn in range(o.repeats):
            order = (hard, soft) if turn % 2 == 0 else (soft, hard)
            measured = {programs: seconds(programs) for programs in order}
            with_flags.append(measured[hard])
            without.append(measured[soft])
            ratios.append(measured[hard] / measured[soft])
        middle = statistics.median(ratios)
        print(f"{case}: {statistics.median(with_flags):.3f} s with, {statistics.median(without):.3f} s without {o.without}: "
              f"ratio {middle:.3f} ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)
        rows.append([datetime.date.today().isoformat(), records.machine(), records.commit(), "hardening", case,
                     f"{statistics.median(with_flags):.4g}", "s of processor", f"{statistics.median(without):.4g}", f"{middle:.4g}",
                     f"baseline=without {o.without} threads=1 turns={o.repeats} ratios={min(ratios):.3f}-{max(ratios):.3f}"])
    if o.csv:
        with open(o.csv, "a", encoding="utf-8", newline="") as f:
            csv.writer(f, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
