# SPDX-License-Identifier: Apache-2.0
"""A GPT-2 trainer in plain PyTorch, as nanoGPT has one: its own text, its own optimizer, as a site of a run. Under torchrun it is
data-parallel (DDP) and compiled.

    gpt.py CONFIG TEXT OUT [section.key=value ...]      OUT: its checkpoint
"""
import os
import sys

import numpy
import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel

from atoll.torch import OuterLoop


def main():
    config, text, out = sys.argv[1:4]
    settings = dict(word.split("=", 1) for word in sys.argv[4:])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    tokens = torch.from_numpy(numpy.fromfile(text, dtype=numpy.uint8).astype(numpy.int64))
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0,
                                       attn_pdrop=0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    trained, state = model, None
    if ranks > 1:
        dist.init_process_group("gloo")
        trained = torch.compile(torch.nn.parallel.DistributedDataParallel(model), backend="eager")
    if os.path.exists(out):
        saved = torch.load(out)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        state = saved["outer"]
    outer = OuterLoop(trained, config, settings, state=state, log=lambda level, line: print(line) if level > 1 else None)
    loss = None
    while outer.running:
        generator = torch.Generator().manual_seed(ranks * outer.steps_done + rank)  # a step that is repeated is the same step
        at = torch.randint(len(tokens) - 65, (8,), generator=generator)
        batch = torch.stack([tokens[i:i + 64] for i in at])
        loss = trained(batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        outer.step(loss)
        if outer.steps_done % 10 == 0:
            with outer.saving():
                if rank == 0:
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "outer": outer.state_dict()}
                    torch.save(state, out + ".new")
                    os.replace(out + ".new", out)
                if ranks > 1:
                    dist.barrier()
    if rank == 0:
        print(f"step {outer.steps_done}, loss {loss.item() if loss is not None else 0:.4f}, outer state {outer.digest}")
        print(outer.status)
    outer.close()
    if ranks > 1:
        dist.destroy_process_group()


main()
