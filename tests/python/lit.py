# SPDX-License-Identifier: Apache-2.0
"""A Lightning module as a site of a run: one callback.

    lit.py CONFIG TEXT OUT [section.key=value ...]      OUT: the directory of its checkpoints
"""
import pathlib
import sys
import warnings

import lightning
import numpy
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from transformers import GPT2Config, GPT2LMHeadModel

from atoll.lightning import OuterLoopCallback


class Windows(torch.utils.data.Dataset):
    """Windows of 64 bytes at places that follow from their number: step n of a run has the same ones in every process."""

    def __init__(self, path, first):
        self.tokens = torch.from_numpy(numpy.fromfile(path, dtype=numpy.uint8).astype(numpy.int64))
        self.first = first

    def __len__(self):
        return 8 * 1000

    def __getitem__(self, i):
        at = (self.first + i) * 7919 % (len(self.tokens) - 64)
        return self.tokens[at:at + 64]


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.gpt = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0,
                                              embd_pdrop=0, attn_pdrop=0))

    def training_step(self, batch, _):
        return self.gpt(batch, labels=batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main():
    config, text, out = sys.argv[1:4]
    settings = dict(word.split("=", 1) for word in sys.argv[4:])
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    outer = OuterLoopCallback(config, settings, log=lambda level, line: print(line) if level > 1 else None)
    newest = max((p for p in pathlib.Path(out).glob("*.ckpt")), key=lambda p: int(p.stem.split("=")[-1]), default=None)
    keeps = ModelCheckpoint(dirpath=out, filename="{step}", every_n_train_steps=10, save_top_k=-1)
    trainer = lightning.Trainer(max_steps=60, callbacks=[outer, keeps], accelerator="cpu", logger=False, enable_progress_bar=False,
                                enable_model_summary=False)
    done = int(newest.stem.split("=")[-1]) if newest else 0
    data = torch.utils.data.DataLoader(Windows(text, 8 * done), batch_size=8)
    trainer.fit(Model(), data, ckpt_path=newest, **({"weights_only": False} if newest else {}))
    print(f"step {trainer.global_step}, outer state {outer.digest}")


main()
