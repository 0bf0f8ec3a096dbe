#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses of masked training in `atoll train` compared with those of transformers, step by step: the same weights, the same examples and
masks, AdamW with the same schedule, float32. Theirs is padded. The examples and masks are made here a second time, from the
description in inner/data/mlm.c and mlm_mask.c. Exit code 1 where a step's loss is off by more than the bound.

    curve_encoder.py ATOLL FOLDER [--family bert|albert|modernbert] [--steps 200] [--bound 0.003] [--lr 0.0005]

ATOLL: the program. FOLDER: made by `atoll data --tokenizer wordpiece ...` from plain text. Needs torch and transformers.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from curve_torch import lr_at, order, philox, report  # noqa: E402

SEED, SEQUENCE, SEQUENCES, RATE, SHORT, DECAY, BETAS, EPS = 1, 64, 16, 0.15, 0.1, 0.01, (0.9, 0.999), 1e-6
EXAMPLE, MASK = 12, 13  # streams of kernels/base/rng.h
SMALL = {"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 128, "max_position_embeddings": SEQUENCE}
DROP = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
FAMILIES = {
    "bert": (transformers.BertConfig, transformers.BertForMaskedLM, {**SMALL, **DROP, "intermediate_size": 512}),
    "albert": (transformers.AlbertConfig, transformers.AlbertForMaskedLM,
               {**SMALL, **DROP, "intermediate_size": 512, "embedding_size": 64, "classifier_dropout_prob": 0,
                "hidden_act": "gelu"}),
    "modernbert": (transformers.ModernBertConfig, transformers.ModernBertForMaskedLM,
                   {**SMALL, "intermediate_size": 192, "local_attention": 16, "global_attn_every_n_layers": 3}),
}


# ---- the examples: [CLS] text [SEP], masked ----


class Draws:
    """Words of Philox, each block from its last word to its first."""

    def __init__(self, stream, window, epoch):
        first = philox(SEED, stream, epoch)
        self.key, self.stream, self.index, self.block = first[1] << 32 | first[0], stream | window << 8, 0, []

    def word(self):
        if not self.block:
            self.block = philox(self.key, self.stream, self.index)
            self.index += 1
        return self.block.pop()

    def below(self, n):
        return self.word() * n >> 32


class Examples:
    def __init__(self, folder):
        with open(f"{folder}/data.json") as f:
            self.about = json.load(f)
        self.special = self.about["special"]
        self.ids = sorted(self.special.values())
        path, = glob.glob(f"{folder}/train-0-*.bin")
        magic, _, count = np.fromfile(path, np.int32, 3)
        kind = np.uint16 if magic == 20240520 else np.uint32
        self.text = np.fromfile(path, kind, count, offset=1024).astype(np.int64)
        self.room = SEQUENCE - 2
        self.windows = -(-len(self.text) // self.room)

    def example(self, place):
        """ids, targets (-100: none)"""
        window, epoch = order(place, self.windows, SEED), place // self.windows
        d = Draws(EXAMPLE, window, epoch)
        target = 2 + d.below(self.room - 1) if d.word() < SHORT * 2**32 else self.room
        text = self.text[window * self.room : (window + 1) * self.room]
        if len(text) > target:
            at = d.below(len(text) - target + 1)
            text = text[at : at + target]
        ids = np.concatenate([[self.special["cls"]], text, [self.special["sep"]]])
        return self.mask(ids, Draws(MASK, window, epoch))

    def mask(self, ids, d):
        free = [i for i, x in enumerate(ids) if x not in self.ids]
        count, among, chosen = max(1, round(RATE * len(free))) if free else 0, len(free), []
        for i in free:
            if len(chosen) == count:
                break
            if d.below(among) < count - len(chosen):
                chosen.append(i)
            among -= 1
        targets = np.full(len(ids), -100)
        for i in chosen:
            targets[i] = ids[i]
            tenth = d.below(10)
            if tenth < 8:
                ids[i] = self.special["mask"]
            elif tenth < 9:
                x = d.below(self.about["vocab"] - len(self.ids))
                for s in self.ids:
                    x += x >= s
                ids[i] = x
        return ids, targets

    def batch(self, step):
        rows = [self.example(step * SEQUENCES + i) for i in range(SEQUENCES)]
        longest = max(len(ids) for ids, _ in rows)
        ids = np.full((SEQUENCES, longest), self.special["pad"])
        targets, mask = np.full((SEQUENCES, longest), -100), np.zeros((SEQUENCES, longest), int)
        for i, (x, y) in enumerate(rows):
            ids[i, : len(x)], targets[i, : len(x)], mask[i, : len(x)] = x, y, 1
        return [torch.from_numpy(t) for t in (ids, mask, targets)]


# ---- both curves ----


def theirs(model, examples, a):
    model.train()
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=a.lr, betas=BETAS, eps=EPS)
    losses = []
    for step in range(a.steps):
        for group in optimizer.param_groups:
            group["lr"] = lr_at(step, a.steps, a.lr)
        ids, mask, targets = examples.batch(step)
        loss = model(input_ids=ids, attention_mask=mask, labels=targets).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def run(command):
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command[:2])}:\n{done.stderr}")


def ours(model, a, folder):
    model.save_pretrained(f"{folder}/hf")
    run([a.atoll, "import", "--model", f"{folder}/hf", "--write-config", f"{folder}/run.yaml"])
    keys = {"run.dir": f"{folder}/run", "run.seed": SEED, "data.tokenizer": "external", "data.objective": "mlm",
            "data.train": f"{a.folder}/train-0-*.bin", "data.mlm_probability": RATE, "data.short_seq_prob": SHORT, "train.steps": a.steps,
            "train.batch_tokens": SEQUENCE * SEQUENCES, "train.seq_len": SEQUENCE, "train.optimizer": "adamw",
            "train.lr": a.lr, "train.warmup_steps": 20, "train.beta1": BETAS[0], "train.beta2": BETAS[1], "train.eps": EPS,
            "train.weight_decay": DECAY, "train.checkpoint_every": 0, "device.kind": "cpu", "device.dtype": "f32"}
    words = ["--config", f"{folder}/run.yaml", *(w for key, value in keys.items() for w in (f"--{key}", str(value)))]
    run([a.atoll, "import", *words, "--model", f"{folder}/hf"])
    run([a.atoll, "train", *words, "--log.progress", "none"])
    with open(f"{folder}/run/metrics.jsonl") as f:
        rows = [json.loads(line) for line in f]
    return [row["loss"] for row in rows if row.get("kind") == "step"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("atoll")
    p.add_argument("folder")
    p.add_argument("--family", choices=FAMILIES, default="bert")
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--bound", type=float, default=0.003)
    p.add_argument("--lr", type=float, default=5e-4)
    a = p.parse_args()
    examples = Examples(a.folder)
    config, kind, settings = FAMILIES[a.family]
    ids = {f"{x}_token_id": examples.special[x] for x in ("pad", "cls", "sep") if x in examples.special}
    if a.family == "modernbert":
        ids |= {"bos_token_id": ids["cls_token_id"], "eos_token_id": ids["sep_token_id"]}
    torch.manual_seed(SEED)
    model = kind(config(vocab_size=examples.about["vocab"], **ids, **settings))
    with tempfile.TemporaryDirectory() as folder:
        one = ours(model, a, folder)
    other = theirs(model, examples, a)
    return report(one, other, a, "transformers", a.family)


if __name__ == "__main__":
    sys.exit(main())
