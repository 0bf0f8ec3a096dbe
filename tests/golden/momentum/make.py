# SPDX-License-Identifier: Apache-2.0
"""The outer momentum of rounds by docs/formats.md 8, in exact fractions with one rounding to float64 for each operation and one to
float32 at the end: values.txt.

    python3 make.py > values.txt

A case is one line, "start mu end warmup cooldown every fragments steps former after every' steps'": the three momenta, the settings, a
former train.steps (0: none), and an amendment of outer.sync_every and train.steps after the step `after` (0: none). Then one line for each
round of each fragment: fragment, round, the bits of the float32 in hex.
"""
import struct
from fractions import Fraction


def f64(x):
    return Fraction(float(x))  # Python rounds a fraction to the nearest, halves to even


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def due(case, p):
    """(step, H of the round, last step of the run as the round knows it), in order."""
    every, fragments, steps, former, after, other, end = case
    last = end if after else steps
    ends = sorted({former, last} - {0})
    found = {}
    for step in range(1, last + 1):
        amended = after and step > after
        h = other if amended else every
        since = step - (after if amended else 0) - p * h // fragments
        periodic = since % h == 0 and (since > 0 or (amended and p > 0 and since == 0))
        known = former if former and step <= former else end if amended else steps
        if periodic or step in ends:
            found[step] = (h, known)
    return [(step, *found[step]) for step in sorted(found)]


def momentum(start, mu, end, warmup, cooldown, round_, step, every, last):
    start, m, end = (Fraction(f32(x)) for x in (start, mu, end))
    if round_ < warmup:
        m = f64(start + f64(f64(m - start) * f64(Fraction(round_, warmup))))
    if last - step < cooldown * every:
        m = f64(end + f64(f64(m - end) * f64(Fraction(last - step, cooldown * every))))
    return struct.pack(">f", float(m)).hex()


for way, case in (((0.0, 0.9, 0.0, 0, 0), (10, 1, 60, 0, 0, 0, 0)), ((0.0, 0.9, 0.0, 7, 0), (10, 1, 100, 0, 0, 0, 0)),
                  ((0.3, 0.9, 0.1, 10, 7), (20, 4, 430, 0, 0, 0, 0)), ((0.95, 0.6, 0.35, 3, 11), (6, 2, 97, 0, 0, 0, 0)),
                  ((0.1, 0.85, 0.2, 9, 5), (8, 2, 150, 61, 0, 0, 0)), ((0.05, 0.9, 0.15, 4, 6), (12, 3, 140, 0, 60, 9, 200)),
                  ((0.05, 0.9, 0.15, 4, 6), (12, 3, 240, 0, 96, 21, 150)), ((0.7, 0.9999, 0.9, 13, 13), (4, 1, 104, 0, 0, 0, 0)),
                  ((0.2, 0.9, 0.4, 12, 12), (6, 1, 60, 0, 0, 0, 0))):
    print(*way, *case)
    for p in range(case[1]):
        for round_, (step, every, last) in enumerate(due(case, p)):
            print(p, round_, momentum(*way, round_, step, every, last))
