# SPDX-License-Identifier: Apache-2.0
"""The site of utilisation.py --torch: a GPT-2 of Hugging Face in PyTorch, with the settings that `atoll train` would get.

    site_torch.py --section.key value ...
"""
import glob
import sys
import time

import numpy
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from atoll.torch import OuterLoop


def main():
    words = sys.argv[1:]
    settings = {key[2:]: value for key, value in zip(words[::2], words[1::2]) if key not in ("--log.progress", "--data.train")}
    files = sorted(glob.glob(dict(zip(words[::2], words[1::2]))["--data.train"]))
    tokens = torch.from_numpy(numpy.concatenate([numpy.fromfile(f, dtype=numpy.uint16, offset=1024) for f in files]).astype(numpy.int64))
    sequence, batch = int(settings["train.seq_len"]), int(settings["train.batch_tokens"])
    torch.set_num_threads(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=int(settings["model.max_seq_len"]), n_embd=int(settings["model.d_model"]),
                                       n_layer=int(settings["model.layers"]), n_head=int(settings["model.heads"])))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # At the aggregator's port from the first moment on, as `atoll train` is.
    outer = OuterLoop(model, "run:\n", settings, log=lambda level, line: print(line, flush=True) if level > 1 else None)
    inside = begin = 0.0
    while outer.running:
        at = torch.randint(len(tokens) - sequence, (batch // sequence,)).tolist()
        inputs = torch.stack([tokens[i:i + sequence] for i in at])
        model(inputs, labels=inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        before = time.monotonic()
        begin = begin or before
        outer.step()
        inside += time.monotonic() - before
    print(f"outer.step takes {100 * inside / (time.monotonic() - begin):.2f} % of the time", flush=True)
    outer.close()


main()
