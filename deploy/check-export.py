#!/usr/bin/env python3
"""Does transformers compute what atoll computes? Compares the logits behind random prompts of several lengths.

    atoll export --config run.yaml --run.dir run/a --out hf
    python3 deploy/check-export.py hf build/bin/atoll --config run.yaml --run.dir run/a

Everything behind the program's path goes to `atoll sample` as it is. Needs torch and transformers (PyPI); not part of
the test suite. Exit code 0: equal within 1e-4 of the largest logit, in float32.
"""
import random
import subprocess
import sys
import torch
from transformers import AutoModelForCausalLM


def ours(command, ids):
    text = ",".join(map(str, ids))
    out = subprocess.run([command[0], "sample", *command[1:], "--ids", text, "--logits", "--device.dtype", "f32"],
                         check=True, capture_output=True, text=True).stdout
    return torch.tensor([float(x) for x in out.split()])


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], torch_dtype=torch.float32).eval()
    rng, worst = random.Random(1), 0.0
    lengths = sorted({1, 2, 7, model.config.max_position_embeddings // 2, model.config.max_position_embeddings} - {0})
    for length in lengths:
        ids = [rng.randrange(model.config.vocab_size) for _ in range(length)]
        with torch.no_grad():
            theirs = model(torch.tensor([ids])).logits[0, -1]
        difference = (theirs - ours(sys.argv[2:], ids)).abs().max().item() / theirs.abs().max().item()
        print(f"{length:5d} ids: largest difference {difference:.2e} of the largest logit")
        worst = max(worst, difference)
    print("the same function" if worst < 1e-4 else "NOT the same function")
    sys.exit(worst >= 1e-4)


if __name__ == "__main__":
    main()
