# SPDX-License-Identifier: Apache-2.0
"""Names and shapes of the tensors, and config.json, of small models as transformers saves them.

    python3 tests/golden/families/make.py        writes next to this file; needs torch and transformers

NAME.txt: a tensor a line, `name rows columns` or `name rows`, sorted; NAME.json: config.json.
"""
import os
import shutil
import tempfile
from safetensors import safe_open
from transformers import (AlbertConfig, AlbertForMaskedLM, AlbertForPreTraining, AlbertForSequenceClassification, BertConfig,
                          BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, ModernBertConfig,
                          ModernBertForMaskedLM, ModernBertForSequenceClassification)

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = dict(vocab_size=70, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
             max_position_embeddings=12, pad_token_id=0)
BERT = BertConfig(**SMALL)
ALBERT = AlbertConfig(embedding_size=8, bos_token_id=1, eos_token_id=2, **SMALL)
LABELS = {f"LABEL_{i}": i for i in range(3)}
MODERN = ModernBertConfig(local_attention=6, bos_token_id=1, cls_token_id=1, eos_token_id=2, sep_token_id=2,
                          **{**SMALL, "num_hidden_layers": 4})


def labelled(config, **more):
    return type(config)(**{**config.to_diff_dict(), **more, "label2id": LABELS, "id2label": {i: k for k, i in LABELS.items()},
                           "num_labels": 3})


MODELS = {
    "bert_pretraining": BertForPreTraining(BERT),
    "bert_masked": BertForMaskedLM(BERT),
    "bert_classes": BertForSequenceClassification(labelled(BERT)),
    "albert_pretraining": AlbertForPreTraining(ALBERT),
    "albert_masked": AlbertForMaskedLM(ALBERT),
    "albert_classes": AlbertForSequenceClassification(labelled(ALBERT)),
    "modernbert_masked": ModernBertForMaskedLM(MODERN),
    "modernbert_classes": ModernBertForSequenceClassification(labelled(MODERN)),
    "modernbert_mean": ModernBertForSequenceClassification(labelled(MODERN, classifier_pooling="mean")),
}


def main():
    for name, model in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            with safe_open(os.path.join(folder, "model.safetensors"), "pt") as f:
                lines = [" ".join(map(str, [k, *f.get_slice(k).get_shape()])) for k in sorted(f.keys())]
            with open(os.path.join(HERE, name + ".txt"), "w") as out:
                out.write("\n".join(lines) + "\n")
            shutil.copy(os.path.join(folder, "config.json"), os.path.join(HERE, name + ".json"))


if __name__ == "__main__":
    main()
