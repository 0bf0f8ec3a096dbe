#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gates of progressive layer dropping, drawn once more from the paper, against those of a run of atoll.

    layer_drop.py ATOLL SHARDS

1. In float64 from 2010.13369: theta(t) = (1 - keep) exp(-rate t) + keep, p_l = 1 - l / L (1 - theta(t)); layer l runs at step t where a
   number of Philox4x32-10 (Salmon et al. 2011, written here again), key run.seed, is below p_l. The layers of 400 steps of a tiny model
   are in its metrics.jsonl.
2. A run that keeps every layer against one without layer dropping.
3. The scale 1 / p_l of a layer that runs: the losses of a run whose parameters stay (a rate of 1e-12) against those of models without
   layer dropping, in which the two matrices of layer l that write into the stream are multiplied by 1 / p_l where its gate is open, and
   by 0 where it is not. These models are made here, from exported safetensors.
Prints as JSON: scale (largest difference of a loss of 3, relative), difference (steps with another number of layers), apart (|layers drawn - expected| in standard deviations), share (of the
layers that ran), expected (of them), plain (1: keeping every layer is the plain run, bit for bit).
"""
import json
import math
import os
import re
import struct
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
                          "--model.d_model", "16", "--model.heads", "2", "--model.max_seq_len", "16", "--train.seq_len", "16",
                          "--train.batch_tokens", "32", "--train.steps", str(STEPS), "--train.checkpoint_every", "0", "--device.dtype", "f32",
                          "--device.threads", "1", "--log.progress", "none", *words],
                         check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder).stdout
    with open(os.path.join(name, "metrics.jsonl"), encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    layers = [r.get("layers") for r in rows if r["kind"] == "step"]
    return layers, re.search(r"ev=final .*parameters=([0-9a-f]+)", out).group(1)


# ---- the scale ----
SMALL = ["--run.seed", str(SEED), "--model.layers", "3", "--model.d_model", "16", "--model.heads", "2", "--model.max_seq_len", "16",
         "--train.seq_len", "16", "--train.batch_tokens", "64", "--train.checkpoint_every", "0", "--device.dtype", "f32", "--device.threads",
         "1", "--log.progress", "none", "--train.lr", "1e-12", "--train.optimizer", "adamw"]
SMALL_LAYERS, SMALL_STEPS, FAST = 3, 24, "50"  # theta is at its end from step 1 on


def call(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout[-2000:]}")


def losses(atoll, shards, folder, *words):
    call(atoll, "train", "--run.dir", folder, "--data.train", shards, *SMALL, "--train.steps", str(SMALL_STEPS), *words)
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as f:
        return [r["loss"] for r in map(json.loads, f) if r["kind"] == "step"]


def scaled(source, out, factors):
    """A copy of a folder of atoll export, the output matrices of layer l times factors[l]."""
    os.mkdir(out)
    with open(os.path.join(source, "config.json"), "rb") as f, open(os.path.join(out, "config.json"), "wb") as g:
        g.write(f.read())
    with open(os.path.join(source, "model.safetensors"), "rb") as f:
        content = bytearray(f.read())
    n = struct.unpack_from("<Q", content)[0]
    for name, spec in json.loads(content[8:8 + n]).items():
        match = re.search(r"h\.(\d+)\.(?:attn|mlp)\.c_proj\.", name)
        if match:
            begin, end = (8 + n + x for x in spec["data_offsets"])
            values = struct.unpack_from(f"<{(end - begin) // 4}f", content, begin)
            struct.pack_into(f"<{len(values)}f", content, begin, *(factors[int(match.group(1))] * v for v in values))
    with open(os.path.join(out, "model.safetensors"), "wb") as f:
        f.write(content)


def scale_apart(atoll, shards, folder):
    first, exported, start = (os.path.join(folder, n) for n in ("first", "exported", "start"))
    call(atoll, "train", "--run.dir", first, "--data.train", shards, *SMALL, "--train.steps", "1")
    call(atoll, "export", "--run.dir", first, "--out", exported)
    drop = ["--train.layer_drop", str(1 - KEEP), "--train.layer_drop_rate", FAST]
    call(atoll, "import", "--run.dir", start, "--model", exported, "--data.train", shards, *SMALL, *drop)
    dropped = losses(atoll, shards, start, *drop)
    keep = [1 - layer / SMALL_LAYERS * (1 - KEEP) for layer in range(SMALL_LAYERS)]
    gates = [tuple(t == 0 or unit(SEED, STREAM | t << 32, i) < keep[i] for i in range(SMALL_LAYERS)) for t in range(SMALL_STEPS)]
    worst = 0
    for number, gate in enumerate(set(gates[1:])):
        model, place = (os.path.join(folder, f"{what}{number}") for what in ("model", "plain"))
        scaled(exported, model, [open_ / p for open_, p in zip(gate, keep)])
        call(atoll, "import", "--run.dir", place, "--model", model, "--data.train", shards, *SMALL)
        plain = losses(atoll, shards, place)
        worst = max([worst] + [abs(plain[t] / dropped[t] - 1) for t in range(1, SMALL_STEPS) if gates[t] == gate])
    return worst


def main():
    atoll, shards = sys.argv[1:3]
    want = [sum(unit(SEED, STREAM | t << 32, i) < kept(t, i) for i in range(LAYERS)) for t in range(STEPS)]
    with tempfile.TemporaryDirectory() as folder:
        got, _ = run(atoll, shards, folder, "--train.layer_drop", str(KEEP), "--train.layer_drop_rate", str(RATE))
        _, plain = run(atoll, shards, folder)
        _, keeps = run(atoll, shards, folder, "--train.layer_drop", str(KEEP), "--train.layer_drop_rate", "0")
    with tempfile.TemporaryDirectory() as folder:
        apart = scale_apart(atoll, shards, folder)
    each = [kept(t, i) for t in range(STEPS) for i in range(LAYERS)]
    deviation = math.sqrt(sum(p * (1 - p) for p in each))
    print(json.dumps({"scale": apart, "difference": sum(a != b for a, b in zip(got, want)) + abs(len(got) - STEPS),
                      "apart": abs(sum(got) - sum(each)) / deviation, "share": sum(got) / (LAYERS * STEPS),
                      "expected": sum(each) / (LAYERS * STEPS), "plain": int(plain == keeps)}))


main()
