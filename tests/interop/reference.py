# SPDX-License-Identifier: Apache-2.0
"""The mean of an aggregate and the outer step once more, slowly: value by value with exact fractions, each rounding written out. It
shares no arithmetic with formats.py."""
from fractions import Fraction

import numpy as np


def rounded(x):
    """Nearest f32 of a fraction, halves to even; denormal numbers too."""
    if x == 0:
        return Fraction(0)
    size, sign = abs(x), -1 if x < 0 else 1
    e = size.numerator.bit_length() - size.denominator.bit_length()
    while Fraction(2) ** e > size:
        e -= 1
    while Fraction(2) ** (e + 1) <= size:
        e += 1
    unit = Fraction(2) ** (max(e, -126) - 23)
    return sign * round(size / unit) * unit  # Python's round: halves to even


def exact(x):
    return Fraction(float(x))


def mean_of_integers(sums, grid, clip, weights):
    """Summable: exact sums times the step, then one division. sums: (blocks, 256). clip None: steps of 2^-24."""
    total = Fraction(0)
    for w in weights:
        total = rounded(total + exact(w))
    mean = []
    for block, g in zip(sums.tolist(), grid.tolist()):
        step = Fraction(2) ** -24 if clip is None else Fraction(2) ** ((g + 1) // 2 - 64 + clip) if g else Fraction(0)
        mean += [rounded(Fraction(q) * step / total) for q in block]
    return mean


def mean_of_values(values, weights, factors=None):
    """Gathered: values of each site, times its factor, added in site order, then one division."""
    total = Fraction(0)
    for w in weights:
        total = rounded(total + exact(w))
    mean = []
    for column in zip(*[v.tolist() for v in values]):
        column = [rounded(exact(f) * exact(x)) for f, x in zip(factors or [1] * len(column), column, strict=True)]
        x = column[0]
        for y in column[1:]:
            x = rounded(x + y)
        mean.append(rounded(x / total))
    return mean


def nesterov(theta, momentum, mean, lr, mu):
    """-> theta', momentum' as fractions; mean: fractions."""
    lr, mu = exact(lr), exact(mu)
    out_theta, out_momentum = [], []
    for t, m, g in zip(theta.tolist(), momentum.tolist(), mean):
        m = rounded(rounded(mu * exact(m)) + g)
        ahead = rounded(g + rounded(mu * m))
        out_theta.append(rounded(exact(t) - rounded(lr * ahead)))
        out_momentum.append(m)
    return out_theta, out_momentum


def same(fractions, values):
    return all(f == exact(v) for f, v in zip(fractions, np.asarray(values).tolist(), strict=True))
