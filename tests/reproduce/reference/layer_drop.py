#!/usr/bin/env python3
"""Gates of progressive layer dropping, drawn once more from the paper, beside those of a run of atoll.

    layer_drop.py ATOLL SHARDS

1. In float64 from 2010.13369: theta(t) = (1 - keep) exp(-rate t) + keep, p_l = 1 - l / L (1 - theta(t)); layer l runs at step t where a
   number of Philox4x32-10 (Salmon et al. 2011, written here again), key run.seed, is below p_l. The layers of 400 steps of a tiny model
   are in its metrics.jsonl.
2. A run that keeps every layer beside one without layer dropping.
Prints as JSON: difference (steps with another number of layers), apart (|layers drawn - expected| in standard deviations), share (of the
layers that ran), expected (of them), plain (1: keeping every layer is the plain run, bit for bit).
"""
import json
import math
import os
import re
import subprocess
import sys
import tempfile

LAYERS, STEPS, KEEP, RATE, SEED = 12, 400, 0.5, 0.02, 7
STREAM = 14  # kernels/base/rng.h: RNG_DROPOUT
MASK = (1 << 32) - 1


def philox(seed, stream, index):
    c = [index & MASK, index >> 32, stream & MASK, stream >> 32]
    k0, k1 = seed & MASK, seed >> 32
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k0, q & MASK, (p >> 32) ^ c[3] ^ k1, p & MASK]
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c


def unit(seed, stream, index):
    c = philox(seed, stream, index)
    return ((c[1] << 32 | c[0]) >> 11) / 2**53


def kept(step, layer):
    theta = (1 - KEEP) * math.exp(-RATE * step) + KEEP
    return 1 - layer / LAYERS * (1 - theta)


def run(atoll, shards, folder, *words):
    name = os.path.join(folder, str(len(os.listdir(folder))))
    out = subprocess.run([atoll, "train", "--run.dir", name, "--run.seed", str(SEED), "--data.train", shards, "--model.layers", str(LAYERS),
                          "--model.width", "16", "--model.heads", "2", "--model.context", "16", "--train.sequence", "16",
                          "--train.batch_tokens", "32", "--train.steps", str(STEPS), "--train.checkpoint_every", "0", "--device.dtype", "f32",
                          "--device.threads", "1", "--log.progress", "none", *words],
                         check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder).stdout
    with open(os.path.join(name, "metrics.jsonl"), encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    layers = [r.get("layers") for r in rows if r["kind"] == "step"]
    return layers, re.search(r"ev=final .*parameters=([0-9a-f]+)", out).group(1)


def main():
    atoll, shards = sys.argv[1:3]
    want = [sum(unit(SEED, STREAM | t << 32, i) < kept(t, i) for i in range(LAYERS)) for t in range(STEPS)]
    with tempfile.TemporaryDirectory() as folder:
        got, _ = run(atoll, shards, folder, "--train.layer_drop", str(KEEP), "--train.layer_drop_rate", str(RATE))
        _, plain = run(atoll, shards, folder)
        _, keeps = run(atoll, shards, folder, "--train.layer_drop", str(KEEP), "--train.layer_drop_rate", "0")
    each = [kept(t, i) for t in range(STEPS) for i in range(LAYERS)]
    deviation = math.sqrt(sum(p * (1 - p) for p in each))
    print(json.dumps({"difference": sum(a != b for a, b in zip(got, want)) + abs(len(got) - STEPS),
                      "apart": abs(sum(got) - sum(each)) / deviation, "share": sum(got) / (LAYERS * STEPS),
                      "expected": sum(each) / (LAYERS * STEPS), "plain": int(plain == keeps)}))


main()
