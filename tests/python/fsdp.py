# SPDX-License-Identifier: Apache-2.0
"""A Llama in PyTorch, sharded over the ranks of torchrun by FSDP2, as one site of a run.

    torchrun --nproc-per-node 2 fsdp.py CONFIG TEXT OUT [section.key=value ...]      OUT.STEP.RANK: the last two checkpoints
"""
import os
import sys

import numpy
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

from atoll.torch import OuterLoop


def main():
    config, text, out = sys.argv[1:4]
    settings = dict(word.split("=", 1) for word in sys.argv[4:])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tokens = torch.from_numpy(numpy.fromfile(text, dtype=numpy.uint8).astype(numpy.int64))
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=32, intermediate_size=96, num_hidden_layers=2,
                                         num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
                                         rope_theta=10000.0, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None))
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    state, loss = None, None
    kept = [int(name.split(".")[1]) for name in os.listdir() if name.startswith(out + ".") and name.endswith(".0")]
    whole = [step for step in kept if all(os.path.exists(f"{out}.{step}.{r}") for r in range(ranks))]
    dist.barrier()
    if whole:
        saved = torch.load(f"{out}.{max(whole)}.{rank}", weights_only=False)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        state = saved["outer"]
    outer = OuterLoop(model, config, settings, state=state, log=lambda level, line: print(line) if level > 1 else None)
    while outer.running:
        generator = torch.Generator().manual_seed(1000 * outer.steps_done + rank)
        at = torch.randint(len(tokens) - 65, (4,), generator=generator)
        batch = torch.stack([tokens[i:i + 64] for i in at])
        loss = model(batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        outer.step(loss)
        if outer.steps_done % 10 == 0:
            step = outer.steps_done
            with outer.saving(oldest=step - 10):  # a kill may leave one of one rank
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "outer": outer.state_dict()},
                           f"{out}.new.{rank}.part")
                os.replace(f"{out}.new.{rank}.part", f"{out}.{step}.{rank}")
                dist.barrier()
            if step > 20 and os.path.exists(f"{out}.{step - 20}.{rank}"):
                os.remove(f"{out}.{step - 20}.{rank}")
    if rank == 0:
        print(f"step {outer.steps_done}, loss {loss.item() if loss is not None else 0:.4f}, outer state {outer.digest}")
        print(outer.status)
    outer.close()
    dist.destroy_process_group()


main()
