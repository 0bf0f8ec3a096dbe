#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FedAdam (Reddi et al. 2020, 2003.00295, Algorithm 2), once in float64 and once with one rounding to float32 for each operation of
docs/formats.md 8: values.txt.

    python3 make.py > values.txt

Plain Python, no code in common with the program. A float32 operation is the float64 one rounded once more: float64 has more than
2 * 24 + 2 bits, so for sums, products, quotients and roots both roundings are one.

A case is a line "case lr mu beta2 eps". Then a line for each round and element: "round element mean theta m v THETA M V"; mean and the
small letters have 17 digits (mean is a float32), the capitals are the bits of float32 in hex.
"""
import math
import struct

ELEMENTS, ROUNDS = 6, 12


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bits(x):
    return struct.pack(">f", x).hex()


def mean_of(case, round_, element):
    """Multiples of 2^-20 of both signs; element 4 gets nothing for five rounds, element 5 is always 0."""
    if element == 5 or (element == 4 and round_ < 5):
        return 0.0
    z = (case * 1000003 + round_ * 8191 + element * 131 + 17) * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ (z >> 29)) * 0xBF58476D1CE4E5B9 % 2**64
    return f32(((z >> 40) / 2**23 - 1) * 2.0 ** (-4 - 2 * element))


class Exact:
    @staticmethod
    def step(theta, m, v, g, lr, mu, beta2, eps):
        m = mu * m + (1 - mu) * g
        v = beta2 * v + (1 - beta2) * g * g
        return theta - lr * m / (math.sqrt(v) + eps), m, v


class Rounded:
    @staticmethod
    def step(theta, m, v, g, lr, mu, beta2, eps):
        rest1, rest2 = f32(1 - mu), f32(1 - beta2)
        m = f32(f32(mu * m) + f32(rest1 * g))
        v = f32(f32(beta2 * v) + f32(rest2 * f32(g * g)))
        way = f32(m / f32(f32(math.sqrt(v)) + eps))
        return f32(theta - f32(lr * way)), m, v


for case, settings in enumerate(((0.01, 0.9, 0.99, 1e-3), (0.1, 0.0, 0.9, 1e-5), (0.3, 0.95, 0.0, 0.1), (1.0, 0.5, 0.9999, 1e-2))):
    lr, mu, beta2, eps = (f32(x) for x in settings)
    print("case", *(f"{x:.17g}" for x in (lr, mu, beta2, eps)))
    start = [f32(0.75 - 0.3 * e) for e in range(ELEMENTS)]
    exact = [(t, 0.0, eps * eps) for t in start]
    rounded = [(t, 0.0, f32(eps * eps)) for t in start]
    for t in range(ROUNDS):
        for e in range(ELEMENTS):
            g = mean_of(case, t, e)
            exact[e] = Exact.step(*exact[e], g, lr, mu, beta2, eps)
            rounded[e] = Rounded.step(*rounded[e], g, lr, mu, beta2, eps)
            print(t, e, f"{g:.17g}", *(f"{x:.17g}" for x in exact[e]), *(bits(x) for x in rounded[e]))
