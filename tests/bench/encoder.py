#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed of encoders compared with PyTorch's: real tokens/s of the same model, lengths, targets, threads and optimizer, by turns.

    ninja -C build bench_train
    python3 -m venv venv && venv/bin/pip install torch==2.15.0
    venv/bin/python tests/bench/encoder.py build/tests/bench_train [--sizes b1,base] [--sequences 128,512] [--fills 60,100]
        [--types f32,bf16] [--threads 1,2] [--clock wall|cpu] [--rounds 5] [--steps 1]
        [--torch padded-eager,padded-compiled,loop-eager,repad-eager] [--csv FILE]

PyTorch padded, eager and compiled, and PyTorch packed, with an attention call for each sequence or padded for the attention alone
(tests/bench/encoder_torch.py). All run in turn, round after round. What is compared with is the fastest of PyTorch's by median; the
ratio is the median of the rounds' ratios. Tokens are those of the sequences, not those that fill slots or batches up. --clock cpu:
processor time, for one thread on a busy machine.
Rows: date,machine,commit,bench,case,value,unit,baseline,ratio,flags (tests/bench/bench.h).
"""
import argparse
import datetime
import itertools
import os
import statistics
import subprocess
import sys

from train import HERE, Worker, machine

TORCH = {"padded": [("padded", "eager"), ("padded", "compiled")], "packed": [("loop", "eager"), ("repad", "eager")]}


class Timed(Worker):
    def __init__(self, name, command, word):
        super().__init__(name, command)
        self.word = word

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"{self.name} ended early")
        return [float(x) for x in answer.split()]

    def turn(self, steps):
        self.seconds.append(statistics.median(self.ask(f"{self.word} {steps}")))


def start(case, options):
    size, sequence, fill, dtype, threads = case
    word = "go" if options.clock == "wall" else "cpu"
    shape = [sequence, fill]
    workers = {"ours": Timed("ours", [options.program, size, dtype, threads, *shape], word)}
    for how, mode in itertools.chain(*TORCH.values()):
        if f"{how}-{mode}" in options.torch.split(","):
            command = [sys.executable, os.path.join(HERE, "encoder_torch.py"), size, dtype, threads, *shape, how, mode]
            workers[how, mode] = Timed(f"torch {how} {mode}", command, word)
    return workers


def measure(case, options):
    workers = start(case, options)
    for w in workers.values():
        w.ask(f"{w.word} 1")
    tokens, gflop = workers["ours"].ask("work")
    peak, product = workers["ours"].ask("peak")
    for _ in range(options.rounds):
        for w in workers.values():
            w.turn(options.steps)
        peak, product = (max(x) for x in zip((peak, product), workers["ours"].ask("peak")))
    for w in workers.values():
        w.stop()
        print(f"{'-'.join(case):24s} {w.name:22s} {tokens / statistics.median(w.seconds):9.1f} tokens/s", file=sys.stderr)
    return workers, tokens, gflop, peak, product


def rows(case, options):
    size, sequence, fill, dtype, threads = case
    workers, tokens, gflop, peak, product = measure(case, options)
    commit = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True,
                            text=True).stdout.strip()
    ours = workers["ours"].seconds
    rate = gflop / statistics.median(ours)
    for kind, hows in TORCH.items():
        how, theirs = min(((h, workers[h].seconds) for h in hows if h in workers), key=lambda x: statistics.median(x[1]))
        ratio = statistics.median(t / o for t, o in zip(theirs, ours))
        flags = (f"threads={threads} clock={options.clock} rounds={options.rounds} baseline=torch-{how[0]}-{how[1]} "
                 f"gflops_core={rate / int(threads):.1f} peak_core={peak / int(threads):.1f} share={rate / peak:.3f} "
                 f"product_core={product / int(threads):.1f} gflop={gflop:.1f} tokens={tokens:.0f}")
        yield ",".join([datetime.date.today().isoformat(), machine(), commit, "encoder",
                        f"{size}-{sequence}-{fill}-{dtype}-{threads}t {kind}", f"{tokens / statistics.median(ours):.1f}", "tokens/s",
                        f"{tokens / statistics.median(theirs):.1f}", f"{ratio:.3f}", flags])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    for name, default in (("sizes", "b1,base"), ("sequences", "128,512"), ("fills", "60,100"), ("types", "f32,bf16"), ("threads", "1,2"),
                          ("torch", "padded-eager,padded-compiled,loop-eager,repad-eager")):
        parser.add_argument("--" + name, default=default)
    parser.add_argument("--clock", default="wall", choices=("wall", "cpu"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--csv")
    options = parser.parse_args()
    out = open(options.csv, "a") if options.csv else sys.stdout
    if not options.csv or out.tell() == 0:
        print("date,machine,commit,bench,case,value,unit,baseline,ratio,flags", file=out)
    for case in itertools.product(*(getattr(options, x).split(",") for x in ("sizes", "sequences", "fills", "types", "threads"))):
        for row in rows(case, options):
            print(row, file=out, flush=True)


if __name__ == "__main__":
    main()
