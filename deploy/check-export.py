#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does transformers compute what atoll computes? Compares the logits for random ids of several lengths.

    atoll export --config run.yaml --run.dir run/a --out hf
    python3 deploy/check-export.py hf build/bin/atoll --config run.yaml --run.dir run/a

Everything after the program's path goes to `atoll sample` as it is. GPT-2, Llama: the logits after the last id. BERT, ALBERT,
ModernBERT: those of every position, with random token types, and the logits of the pair head or of the classes, as the
architecture in config.json has them. Needs torch and transformers (PyPI); not part of the test suite. Exit code 0: equal within
1e-4 of the largest logit, in float32; 77: torch or transformers is missing.
"""
import random
import subprocess
import sys

try:
    import torch
    import transformers
except ImportError as missing:
    print(f"check-export: SKIPPED, nothing was compared: {missing}", file=sys.stderr)
    sys.exit(77)

ENCODERS = ("bert", "albert", "modernbert")
LIMIT = 1e-4


def listed(values):
    return ",".join(map(str, values))


def ours(command, ids, types, kind):
    words = [command[0], "sample", *command[1:], "--ids", listed(ids), kind, "--device.dtype", "f32"]
    if types:
        words += ["--types", listed(types)]
    out = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    return torch.tensor([float(x) for x in out.split()])


def load(folder):
    """The class that config.json names; a bare encoder has no logits to compare."""
    config = transformers.AutoConfig.from_pretrained(folder)
    name = (config.architectures or ["AutoModelForCausalLM"])[0]
    if name.endswith("Model"):
        sys.exit(f"check-export: {name} has no head, so no logits; export a model with one")
    model, info = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[kind]:
            sys.exit(f"check-export: {folder}: {kind} of {name}: {sorted(info[kind])}")
    return model.eval()


def theirs(model, ids, types):
    """Logits by the option of atoll sample that prints the same."""
    words = {"input_ids": torch.tensor([ids])}
    if types:
        words["token_type_ids"] = torch.tensor([types])
    with torch.no_grad():
        out = model(**words)
    if model.config.model_type not in ENCODERS:
        return {"--logits": out.logits[0, -1]}
    if hasattr(out, "prediction_logits"):
        pair = out.seq_relationship_logits if hasattr(out, "seq_relationship_logits") else out.sop_logits
        return {"--logits": out.prediction_logits[0], "--class-logits": pair[0]}
    return {"--logits": out.logits[0]} if out.logits.dim() == 3 else {"--class-logits": out.logits[0]}


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    model = load(sys.argv[1])
    config, rng, worst = model.config, random.Random(1), 0.0
    context = config.max_position_embeddings
    for length in sorted({1, 2, 7, min(context // 2, 256), min(context, 512)} - {0}):
        ids = [rng.randrange(config.vocab_size) for _ in range(length)]
        count = getattr(config, "type_vocab_size", 0) if config.model_type in ENCODERS else 0
        types = [rng.randrange(count) for _ in range(length)] if count > 1 else None
        for kind, logits in theirs(model, ids, types).items():
            difference = (logits.flatten() - ours(sys.argv[2:], ids, types, kind)).abs().max().item()
            difference /= logits.abs().max().item()
            print(f"{length:5d} ids, {kind:14s}: largest difference {difference:.2e} of the largest logit", flush=True)
            worst = max(worst, difference)
    print(f"{type(model).__name__}: the same function" if worst < LIMIT else "NOT the same function")
    sys.exit(worst >= LIMIT)


if __name__ == "__main__":
    main()
