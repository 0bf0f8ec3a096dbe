#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ALBERT of atoll against Hugging Face's, both ways, and what `atoll plan` says of its payload.

    albert.py ATOLL TEST_ENCODER_MODEL [--quick]

1. TEST_ENCODER_MODEL compares logits, gradients and ten steps with tests/golden/albert, which transformers computed in float64.
2. A random transformers ALBERT (12 x 64, embeddings of 32) is imported; deploy/check-export.py compares the logits. It is exported
   again; transformers loads that, the logits are compared once more, and the tensors with those at the start.
3. `atoll plan` for BERT and ALBERT, base and large: payload of a site, as configured.
Prints as JSON: difference (of the logits, of the largest one), golden_failed, changed (tensors that came back otherwise), base, large
(payload of BERT over ALBERT's).
"""
import json
import os
import re
import subprocess
import sys
import tempfile

from tests import failed_tests

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.join(HERE, "..", "..", "..")
ENCODER = ["--model.causal", "false", "--model.norm_place", "post", "--model.embed_norm", "true", "--model.token_types", 2, "--model.pooler",
           "true", "--model.head", "mlm", "--model.max_seq_len", 512, "--model.norm_eps", "1e-12", "--data.objective", "mlm",
           "--data.tokenizer", "external", "--train.seq_len", 512, "--train.batch_tokens", 8192, "--train.steps", 500, "--train.warmup_steps", 50,
           "--outer.sync_every", 500, "--outer.codec", "bf16", "--plan.step_s", 1, "--plan.up_mbit", 1000, "--plan.down_mbit", 1000]
SIZES = {"base": ["--model.layers", 12, "--model.d_model", 768, "--model.heads", 12],
         "large": ["--model.layers", 24, "--model.d_model", 1024, "--model.heads", 16]}
BERT = ["--model.vocab_size", 30522, "--model.activation", "gelu_erf"]
ALBERT = ["--model.vocab_size", 30000, "--model.activation", "gelu", "--model.share_layers", "true", "--model.embedding_size", 128]
UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}


def called(words, **more):
    return subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more).stdout


def compared(folder, atoll, words):
    out = called([sys.executable, os.path.join(REPOSITORY, "deploy/check-export.py"), folder, atoll, *words])
    found = [float(x) for x in re.findall(r"largest difference (\S+) of", out)]
    if len(found) < 8:
        sys.exit(f"check-export.py compared {len(found)} times\n{out}")
    return max(found)


def both_ways(atoll):
    import torch
    import transformers
    torch.manual_seed(5)
    config = transformers.AlbertConfig(vocab_size=4096, embedding_size=32, hidden_size=64, num_hidden_layers=12, num_attention_heads=2,
                                       intermediate_size=256, hidden_act="gelu_new", max_position_embeddings=128,
                                       classifier_dropout_prob=0.0)
    theirs = transformers.AlbertForPreTraining(config)
    with torch.no_grad():
        for p in theirs.parameters():  # biases and gains count, too
            p.add_(0.1 * torch.randn_like(p))
    with tempfile.TemporaryDirectory() as folder:
        there, back, described = (os.path.join(folder, x) for x in ("there", "back", "run.yaml"))
        theirs.save_pretrained(there)
        called([atoll, "import", "--model", there, "--write-config", described])
        run = ["--config", described, "--run.dir", os.path.join(folder, "run"), "--train.seq_len", 128, "--train.batch_tokens", 1024]
        called([atoll, "import", *run, "--model", there])
        worst = compared(there, atoll, run)
        called([atoll, "export", *run, "--out", back])
        worst = max(worst, compared(back, atoll, run))
        again = transformers.AlbertForPreTraining.from_pretrained(back)
    changed = sum(not torch.equal(a, b) for a, b in zip(theirs.state_dict().values(), again.state_dict().values()))
    return worst, changed


def payload(atoll, words):
    out = called([atoll, "plan", "--sites", 2, *ENCODER, *words])
    row = out.split("as configured:\n")[1].splitlines()[0]
    number, unit = re.search(r"% +[\d.]+ m?s +([\d.]+) ([kMG]B)", row).groups()
    return float(number) * UNITS[unit]


def main():
    atoll, test = (os.path.abspath(p) for p in sys.argv[1:3])
    found = {"golden_failed": failed_tests(test, 10)}
    for name, size in SIZES.items():
        found[name] = payload(atoll, [*size, *BERT]) / payload(atoll, [*size, *ALBERT])
    if "--quick" not in sys.argv:
        found["difference"], found["changed"] = both_ways(atoll)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
