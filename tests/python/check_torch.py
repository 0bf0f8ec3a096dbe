#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The run's tensors as a model's parameters (atoll.torch), without a run: what is written is read again, piece by piece, and lies in the
parameters where it belongs, in any memory format and dtype.

    check_torch.py
"""
import array

import torch
from atoll import Place, Tensor
from atoll.torch import _Values


def buffer(values):
    return bytearray(array.array("f", values).tobytes())


def round_trip(name, table, parameters, wanted):
    """wanted: {parameter: its values after 1, 2, 3, .. were written to the run's tensors in order}"""
    values, first = _Values(table, parameters), 1
    for number, t in enumerate(table):
        count = torch.Size(t.shape).numel()
        for at in range(0, count, 5):  # pieces that begin and end within rows
            n = min(5, count - at)
            values.write(number, at, n, buffer(range(first + at, first + at + n)))
        out = buffer([0] * count)
        values.read(number, 0, count, out)
        assert array.array("f", bytes(out)).tolist() == list(range(first, first + count)), f"{name}: {t.name} is read otherwise"
        first += count
    for key, x in wanted.items():
        assert torch.equal(parameters[key].detach().float(), x.float()), f"{name}: {key} is {parameters[key]}, wanted {x}"


def main():
    count = torch.arange(1, 49)
    plain = torch.nn.Parameter(torch.zeros(4, 12))
    round_trip("plain", [Tensor("w", (4, 12))], {"w": plain}, {"w": count.view(4, 12)})
    image = torch.nn.Conv2d(3, 4, 2, bias=False).to(memory_format=torch.channels_last)
    assert not image.weight.is_contiguous()
    round_trip("channels_last", [Tensor("w", (4, 12))], {"w": image.weight}, {"w": count.view(4, 3, 2, 2)})
    half = torch.nn.Parameter(torch.zeros(48, dtype=torch.bfloat16))
    round_trip("bf16", [Tensor("w", (48,))], {"w": half}, {"w": count})
    q, k = torch.nn.Parameter(torch.zeros(6, 2)), torch.nn.Parameter(torch.zeros(2, 6))
    stacked = [Tensor("qk", (4, 6), (Place("q", 0, 2, True), Place("k", 2, 2, False)))]
    round_trip("stacked, one transposed", stacked, {"q": q, "k": k},
               {"q": torch.arange(1, 13).view(2, 6).t(), "k": torch.arange(13, 25).view(2, 6)})
    round_trip("a single value", [Tensor("s", ())], {"s": torch.nn.Parameter(torch.zeros(()))}, {"s": torch.tensor(1)})
    print("tensors: 5 cases")


main()
