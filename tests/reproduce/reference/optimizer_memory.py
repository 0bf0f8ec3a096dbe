#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of one optimizer's state over another's, of a GPT of 19 M parameters.

    optimizer_memory.py ATOLL DATA FIRST SECOND

Two runs of two steps. Prints as JSON: table (state of SECOND over that of FIRST, start-up table), saved (peak resident memory of FIRST
less that of SECOND, over the state of FIRST).
"""
import json
import re
import subprocess
import sys
import tempfile

MODEL = ["--model.layers", "6", "--model.d_model", "512", "--model.heads", "8", "--train.seq_len", "32", "--model.max_seq_len", "32",
         "--train.batch_tokens", "64", "--train.steps", "2", "--train.warmup_steps", "0", "--train.checkpoint_every", "0",
         "--train.eval_tokens", "64", "--device.dtype", "f32"]


def run(atoll, data, optimizer, folder):
    words = [atoll, "train", "--run.dir", f"{folder}/{optimizer}", "--data.train", data, "--train.optimizer", optimizer, *MODEL]
    p = subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return [float(re.search(rf"{name}=([0-9.]+)", p.stdout).group(1)) for name in ("moments_mib", "peak_mib")]


def main():
    atoll, data, first, second = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        one, other = run(atoll, data, first, folder), run(atoll, data, second, folder)
    print(json.dumps({"table": other[0] / one[0], "saved": (one[1] - other[1]) / one[0]}))


main()
