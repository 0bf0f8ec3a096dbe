#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed compared with PyTorch's: tokens/s, same model, batch (16 x 256), threads and optimizer, taking turns.

    ninja -C build bench && python3 tests/bench/train.py build/tests/bench_train [--sizes 10m,30m] [--rounds 5] [--csv FILE]

All programs are started first and warmed up; then each does a few steps in turn, round after round, so that a busy moment of
the machine hits all alike. The median step counts. PyTorch's baseline for a type is the better of eager and compiled.
Rows: date,machine,commit,bench,case,value,unit,baseline,ratio,flags (tests/bench/bench.h).
"""
import argparse
import datetime
import os
import platform
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = 16 * 256


class Worker:
    def __init__(self, name, command):
        self.name, self.seconds = name, []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def go(self, steps):
        self.process.stdin.write(f"go {steps}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended early")
        return [float(x) for x in line.split()]

    def speed(self):
        return TOKENS / statistics.median(self.seconds)

    def stop(self):
        self.process.stdin.write("stop\n")
        self.process.stdin.close()
        self.process.wait()


def machine():
    with open("/proc/cpuinfo") as f:
        model = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), platform.machine())
    return model.replace(",", " ")


def measure(size, options):
    workers = {}
    for dtype in ("f32", "bf16"):
        workers["ours", dtype] = Worker(f"ours {dtype}", [options.program, size, dtype, options.threads])
        for how in ("eager", "compiled"):
            command = [sys.executable, os.path.join(HERE, "train_torch.py"), size, dtype, options.threads, how]
            workers[how, dtype] = Worker(f"torch {how} {dtype}", command)
    for w in workers.values():
        w.go(2)
    for _ in range(options.rounds):
        for w in workers.values():
            w.seconds += w.go(options.steps)
    for w in workers.values():
        w.stop()
        print(f"{size} {w.name:20s} {w.speed():9.0f} tokens/s", file=sys.stderr)
    return workers


def rows(size, workers, options):
    commit = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True,
                            text=True).stdout.strip()
    for dtype in ("f32", "bf16"):
        torch, how = max((workers[how, dtype].speed(), how) for how in ("eager", "compiled"))
        ours = workers["ours", dtype].speed()
        yield ",".join([datetime.date.today().isoformat(), machine(), commit, "train", f"gpt-{size}-{dtype}",
                        f"{ours:.1f}", "tokens/s", f"{torch:.1f}", f"{ours / torch:.3f}",
                        f"threads={options.threads} vocab=8192 batch=16x256 adamw baseline=torch-{how}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--sizes", default="10m,30m")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--csv")
    options = parser.parse_args()
    out = open(options.csv, "a") if options.csv else sys.stdout
    if out.tell() == 0 if options.csv else True:
        print("date,machine,commit,bench,case,value,unit,baseline,ratio,flags", file=out)
    for size in options.sizes.split(","):
        for row in rows(size, measure(size, options), options):
            print(row, file=out, flush=True)


if __name__ == "__main__":
    main()
