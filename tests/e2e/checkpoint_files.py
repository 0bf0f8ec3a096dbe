# SPDX-License-Identifier: Apache-2.0
"""Reads what `atoll export --checkpoint` wrote by the published format of safetensors, and computes the next step of Adam from it.

    checkpoint_files.py names DIR           each parameter has its moments, in its shape
    checkpoint_files.py adam BEFORE AFTER LR    AFTER is one step of Adam (Kingma & Ba 2015, algorithm 1) after BEFORE
    checkpoint_files.py flip FILE NAME      changes one bit of that tensor
"""
import json
import math
import struct
import sys


def read(path):
    """Tensors by name, (shape, values or bytes), and the metadata."""
    data = open(path, "rb").read()
    (size,) = struct.unpack("<Q", data[:8])
    header, rest = json.loads(data[8 : 8 + size]), data[8 + size :]
    metadata, tensors = header.pop("__metadata__"), {}
    for name, x in header.items():
        part = rest[slice(*x["data_offsets"])]
        values = struct.unpack(f"<{len(part) // 4}f", part) if x["dtype"] == "F32" else part
        assert math.prod(x["shape"]) == len(values), name
        tensors[name] = (x["shape"], values)
    return tensors, metadata


def load(folder):
    return read(f"{folder}/model.safetensors")[0], *read(f"{folder}/optimizer.safetensors")


def names(folder):
    model, more, metadata = load(folder)
    assert metadata["format"] == "pt" and int(metadata["step"]) >= 0 and "train.optimizer=" in metadata["settings"], metadata
    slots = [s for s in ("exp_avg", "exp_avg_sq") if any(n.endswith("." + s) for n in more)]
    assert "exp_avg" in slots, sorted(more)
    zeros = 0
    for name, (shape, values) in model.items():
        for slot in slots:
            if f"{name}.{slot}" in more:
                assert more[f"{name}.{slot}"][0] == shape, name
            else: # a tensor that is zero where this program has none
                assert not any(values), name
                zeros += 1
    others = [n for n in more if not n.startswith("atoll.") and n.rsplit(".", 1)[0] not in model]
    assert not others, others
    print(f"{folder}: {len(model)} tensors, {', '.join(slots)}; without moments {zeros}; of atoll alone "
          f"{sorted(n for n in more if n.startswith('atoll.') and not n.startswith('atoll.part.'))}")


def adam(before, after, rate, beta1=0.9, beta2=0.95, eps=1e-6):
    old, new = load(before), load(after)
    step, worst, moved = int(new[2]["step"]), 0, 0
    for name, (_, values) in new[0].items():
        was, m, v = old[0][name][1], new[1][name + ".exp_avg"][1], new[1][name + ".exp_avg_sq"][1]
        m0, v0 = old[1][name + ".exp_avg"][1], old[1][name + ".exp_avg_sq"][1]
        for i, p in enumerate(values):
            m_hat, v_hat = m[i] / (1 - beta1**step), v[i] / (1 - beta2**step)
            want = was[i] - rate * m_hat / (math.sqrt(v_hat) + eps)
            worst = max(worst, abs(want - p))
            moved = max(moved, abs(was[i] - p))
            g = (m[i] - beta1 * m0[i]) / (1 - beta1)  # the gradient, which the second moment has seen as well
            assert abs(v[i] - beta2 * v0[i] - (1 - beta2) * g * g) <= 1e-4 * v[i] + 1e-12, (name, i)
    assert moved > rate / 2 and worst < 1e-3 * rate, (moved, worst)
    print(f"step {step}: parameters moved by {moved:.2e}, {worst:.1e} from Adam's formula")


def flip(path, name):
    data = bytearray(open(path, "rb").read())
    (size,) = struct.unpack("<Q", data[:8])
    data[8 + size + json.loads(data[8 : 8 + size])[name]["data_offsets"][0]] ^= 1
    open(path, "wb").write(data)


if __name__ == "__main__":
    {"names": names, "adam": lambda a, b, lr: adam(a, b, float(lr)), "flip": flip}[sys.argv[1]](*sys.argv[2:])
