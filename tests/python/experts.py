# SPDX-License-Identifier: Apache-2.0
"""A small mixture of experts, which Atoll does not have, as a site of a run of such sites.

    experts.py --table FILE                                       writes the file of model.tensors
    experts.py CONFIG TEXT OUT [section.key=value ...]            OUT: its checkpoint
"""
import os
import sys

import numpy
import torch

from atoll.torch import OuterLoop, write_table


class Experts(torch.nn.Module):
    """Each token goes through the one of four MLPs that its gate prefers."""

    def __init__(self, width, experts=4):
        super().__init__()
        self.gate = torch.nn.Linear(width, experts, bias=False)
        self.up = torch.nn.Parameter(0.05 * torch.randn(experts, width, 2 * width))
        self.down = torch.nn.Parameter(0.05 * torch.randn(experts, 2 * width, width))

    def forward(self, x):
        weight, chosen = torch.softmax(self.gate(x), -1).max(-1)
        hidden = torch.relu(torch.einsum("btc,btch->bth", x, self.up[chosen]))
        return x + weight[..., None] * torch.einsum("bth,bthc->btc", hidden, self.down[chosen])


class Model(torch.nn.Module):
    """Two layers of experts on the embeddings of the last two bytes."""

    def __init__(self, width=16):
        super().__init__()
        self.embed = torch.nn.Embedding(256, width)
        self.before = torch.nn.Embedding(256, width)
        self.layers = torch.nn.ModuleList(Experts(width) for _ in range(2))
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, 256)

    def forward(self, batch):
        x = self.embed(batch[:, 1:]) + self.before(batch[:, :-1])
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model()
    if sys.argv[1] == "--table":
        write_table(model, sys.argv[2])
        return
    config, text, out = sys.argv[1:4]
    settings = dict(word.split("=", 1) for word in sys.argv[4:])
    tokens = torch.from_numpy(numpy.fromfile(text, dtype=numpy.uint8).astype(numpy.int64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    state = None
    if os.path.exists(out):
        saved = torch.load(out)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        state = saved["outer"]
    outer = OuterLoop(model, config, settings, state=state, log=lambda level, line: print(line) if level > 1 else None)
    first = loss = None
    while outer.running:
        generator = torch.Generator().manual_seed(outer.steps_done)
        at = torch.randint(len(tokens) - 65, (8,), generator=generator)
        batch = torch.stack([tokens[i:i + 64] for i in at])
        loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 2:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        first = first or loss.item()
        outer.step(loss)
        if outer.steps_done % 10 == 0:
            with outer.saving():
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "outer": outer.state_dict()}, out + ".new")
                os.replace(out + ".new", out)
    print(f"step {outer.steps_done}, loss {first or 0:.4f} to {loss.item() if loss is not None else 0:.4f}, outer state {outer.digest}")
    outer.close()


main()
