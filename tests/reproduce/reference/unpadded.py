#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time of a training step against its real tokens, ours against PyTorch's BERT padded and packed, all in one run and in turn.

    unpadded.py ATOLL BUILD/tests [--quick]

Processor time of one thread, which other programs on the machine hardly change; medians of the rounds. 4096 slots in sequences of 128.
1. test_encoder_model compares a packed batch with transformers' padded one, in float64 (tests/golden/bert): logits, gradients, ten steps.
2. Logits of a random transformers BERT on a padded batch with its mask, against `atoll sample` on each sequence without padding.
3. Steps at fills of 40 to 100 %: fit time = a + b tokens, speed against slots / tokens.
4. Steps with 5 to 60 % of the tokens masked: fit time = a + b rows.
5. bench_loader: the slowest kind of batch of 4096 slots over a step of 4096 tokens on two cores.
Prints as JSON: difference, golden_failed, fit_residual (worst, of the fitted time), fit_a_ms, fit_b_us, gain (worst over the fills of
(time at 100 % / time) / (slots / tokens)), head_residual (worst, of the time that the rows of the head take at 60 %), head_row_us, loader,
torch_padded_60, torch_padded_100, torch_packed_60, torch_packed_100: their time over ours.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

from tests import failed_tests

HERE = os.path.dirname(os.path.abspath(__file__))
FILLS, MASKS, SEQUENCE, SLOTS = (40, 50, 60, 70, 80, 90, 100), (5, 15, 30, 45, 60), 128, 4096


class Worker:
    def __init__(self, words):
        self.seconds = []
        self.process = subprocess.Popen([str(w) for w in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "OMP_NUM_THREADS": "1"})

    def go(self, steps):
        self.process.stdin.write(f"cpu {steps}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args}: ended early")
        self.seconds += [float(x) for x in line.split()]

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def fitted(points):
    """a, b of y = a + b x by least squares, and the worst |y - fit|."""
    n, sx, sy = len(points), sum(x for x, _ in points), sum(y for _, y in points)
    b = (n * sum(x * y for x, y in points) - sx * sy) / (n * sum(x * x for x, _ in points) - sx * sx)
    a = (sy - b * sx) / n
    return a, b, points


def measure(program, rounds, steps):
    """Median seconds of every worker, taking turns."""
    workers = {("ours", f, 15): Worker([program, "b1", "f32", 1, SEQUENCE, f]) for f in FILLS}
    workers |= {("ours", 100, m): Worker([program, "b1", "f32", 1, SEQUENCE, 100, m]) for m in MASKS if m != 15}
    for how in ("padded", "packed"):
        workers |= {(how, f, 15): Worker([sys.executable, os.path.join(HERE, "bert_torch.py"), how, 1, SEQUENCE, f, 15]) for f in (60, 100)}
    for w in workers.values():
        w.go(1)
        w.seconds.clear()
    for _ in range(rounds):
        for w in workers.values():
            w.go(steps)
    for w in workers.values():
        w.stop()
    return {name: statistics.median(w.seconds) for name, w in workers.items()}


def slowest_load(program):
    """Seconds of the loader for a batch, of the slowest kind of mask and pair."""
    out = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
    found = [float(line.split(",")[5]) for line in out.splitlines() if ",loader," in line]
    if len(found) != 9:
        sys.exit(f"bench_loader: {len(found)} rows\n{out}")
    return max(found)


def logits_of(atoll, words, ids):
    out = subprocess.run([atoll, "sample", *words, "--ids", ",".join(map(str, ids)), "--logits", "--device.dtype", "f32"], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    return [float(x) for x in out.split()]


def difference(atoll):
    """Largest difference of a logit of a real token, over the largest logit."""
    import torch
    import transformers
    from bert_torch import lengths
    torch.manual_seed(3)
    config = transformers.BertConfig(vocab_size=4096, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512,
                                     max_position_embeddings=SEQUENCE)
    model = transformers.BertForPreTraining(config).eval()
    count = lengths(SEQUENCE, 60)[::5]
    real = torch.arange(SEQUENCE)[None, :] < torch.tensor(count)[:, None]
    ids = torch.randint(0, 4096, real.shape) * real
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        there, described = os.path.join(folder, "bert"), os.path.join(folder, "run.yaml")
        model.save_pretrained(there)
        run = ["--config", described, "--run.dir", os.path.join(folder, "run"), "--train.seq_len", "128", "--train.batch_tokens", "1024"]
        for words in (["--model", there, "--write-config", described], [*run, "--model", there]):
            subprocess.run([atoll, "import", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with torch.no_grad():
            theirs = model(input_ids=ids, attention_mask=real.long()).prediction_logits
        for row, n in enumerate(count):
            ours = torch.tensor(logits_of(atoll, run, ids[row, :n].tolist())).view(n, -1)
            worst = max(worst, (ours - theirs[row, :n]).abs().max().item())
    return worst / theirs[real].abs().max().item()


def main():
    from bert_torch import lengths
    atoll, bench, test, loader = (os.path.abspath(p) for p in (sys.argv[1], *(os.path.join(sys.argv[2], name) for name in (
        "bench_train", "test_encoder_model", "bench_loader"))))
    quick = "--quick" in sys.argv
    t = measure(bench, 1 if quick else 5, 1 if quick else 3)
    tokens = {f: sum(lengths(SEQUENCE, f)) for f in FILLS}
    a, b, points = fitted([(tokens[f], t["ours", f, 15]) for f in FILLS])
    found = {"fit_a_ms": 1e3 * a, "fit_b_us": 1e6 * b, "fit_residual": max(abs(y / (a + b * x) - 1) for x, y in points),
             "gain": min(t["ours", 100, 15] / t["ours", f, 15] * tokens[f] / tokens[100] for f in FILLS if f < 100)}
    ha, hb, rows = fitted([(SLOTS * m / 100, t["ours", 100, m]) for m in MASKS])
    found["head_residual"] = max(abs(y - ha - hb * x) for x, y in rows) / (hb * SLOTS * MASKS[-1] / 100)
    found["head_row_us"] = 1e6 * hb
    for how in ("padded", "packed"):
        for f in (60, 100):
            found[f"torch_{how}_{f}"] = t[how, f, 15] / t["ours", f, 15]
    found["loader"] = slowest_load(loader) / (t["ours", 100, 15] / 2)
    found["golden_failed"] = failed_tests(test, 10)
    found["difference"] = difference(atoll)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
