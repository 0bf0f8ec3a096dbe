# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face BERT with the Trainer, as a site of a run: one callback.

    bert.py CONFIG TEXT OUT [section.key=value ...]      OUT: the Trainer's output directory
"""
import sys

import numpy
import torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

from atoll.transformers import OuterLoopCallback


class Windows(torch.utils.data.Dataset):
    """Windows of 64 bytes, of which every seventh is masked."""

    def __init__(self, path):
        self.tokens = torch.from_numpy(numpy.fromfile(path, dtype=numpy.uint8).astype(numpy.int64))

    def __len__(self):
        return len(self.tokens) // 64

    def __getitem__(self, i):
        labels = self.tokens[64 * i:64 * i + 64]
        masked = torch.arange(64) % 7 == i % 7
        return {"input_ids": torch.where(masked, 319, labels), "labels": torch.where(masked, labels, -100)}


def main():
    config, text, out = sys.argv[1:4]
    settings = dict(word.split("=", 1) for word in sys.argv[4:])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = BertForMaskedLM(BertConfig(vocab_size=320, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                       intermediate_size=128, max_position_embeddings=64, type_vocab_size=2, hidden_dropout_prob=0,
                                       attention_probs_dropout_prob=0, pad_token_id=0))
    outer = OuterLoopCallback(config, settings, log=lambda level, line: print(line) if level > 1 else None)
    arguments = TrainingArguments(out, max_steps=60, per_device_train_batch_size=8, learning_rate=1e-3, save_steps=10,
                                  logging_steps=10, report_to=[], use_cpu=True, disable_tqdm=True, dataloader_num_workers=1)
    trainer = Trainer(model, arguments, train_dataset=Windows(text), callbacks=[outer])
    trainer.train(resume_from_checkpoint=outer.last_checkpoint(out))
    print(f"step {trainer.state.global_step}, outer state {outer.digest}")


main()
