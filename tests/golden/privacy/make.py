#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""References of the privacy accountant, by other means than its own: points.txt (mpmath), pld.txt (dp-accounting), audit.txt (SciPy),
banded.txt (NumPy). README.md says what each line holds.

    python make.py points|pld|audit|banded > FILE
"""
import itertools
import math
import random
import sys


def short(value):
    """A decimal with few digits, and the double that C reads from it."""
    text = f"{value:.4g}"
    return text, float(text)


def draw(rng, low, high):
    return short(math.exp(rng.uniform(math.log(low), math.log(high))))


# ---- points.txt: arbitrary precision ----

def points():
    import mpmath as mp
    mp.mp.dps = 60
    rng = random.Random(20)

    def tail(x):
        return mp.erfc(x / mp.sqrt(2)) / 2

    def gauss(mu, eps):
        return tail(eps / mu - mu / 2) - mp.exp(eps) * tail(eps / mu + mu / 2)

    def integer(q, s, alpha):
        total = mp.mpf(0)
        for k in range(alpha + 1):
            total += mp.binomial(alpha, k) * (1 - q) ** (alpha - k) * q ** k * mp.exp((k * k - k) / (2 * s * s))
        return mp.log(total) / (alpha - 1)

    def integral(q, s, alpha):
        """log E[r^alpha] / (alpha - 1) by its definition."""
        def f(x):
            r = (1 - q) + q * mp.exp((2 * x - 1) / (2 * s * s))
            return mp.npdf(x, 0, s) * r ** alpha
        step = min(s / 6, 2 * mp.pi ** 2 * s * s / 80)  # trapezoidal: error below exp(-75)
        low, high = -13 * s, alpha + 13 * s
        return mp.log(mp.fsum(f(low + i * step) for i in range(int((high - low) / step) + 1)) * step) / (alpha - 1)

    def series(q, s, alpha, terms):
        """The two series of Mironov, Talwar, Zhang 3.3, with signed binomials."""
        z0 = s * s * mp.log(1 / q - 1) + mp.mpf(1) / 2
        total = mp.mpf(0)
        for i in range(terms):
            weight = (mp.mpf(1) / 2 if i == terms - 1 else 1) * mp.binomial(alpha, i) / 2
            for j, x in ((i, (i - z0)), (alpha - i, (z0 - (alpha - i)))):
                total += weight * q ** j * (1 - q) ** (alpha - j) * mp.exp((j * j - j) / (2 * s * s)) * mp.erfc(x / (mp.sqrt(2) * s))
        return mp.log(total) / (alpha - 1)

    def line(*words):
        print(*words)

    for _ in range(4000):  # delta of mu and epsilon
        while True:
            tm, mu = draw(rng, 1e-3, 60)
            te, eps = short(max(0, mu * mu / 2 + mu * rng.uniform(-3, 12)))
            value = gauss(mp.mpf(mu), mp.mpf(eps))
            if value > mp.mpf("1e-120"):
                break
        line("gauss", tm, te, mp.nstr(value, 14))
    for _ in range(4500):  # integer orders
        tq, q = draw(rng, 1e-6, 0.95)
        ts, s = draw(rng, 0.2, 200)
        alpha = rng.choice([2, 3, 4, 5, 8, 16, 31, 64]) if rng.random() < 0.9 else rng.choice([128, 256, 512])
        line("order", tq, ts, alpha, mp.nstr(integer(mp.mpf(q), mp.mpf(s), alpha), 14))
    mp.mp.dps = 40
    for n in range(500):  # fractional orders
        tq, q = draw(rng, 1e-4, 0.9)
        ts, s = draw(rng, 0.4, 20)
        ta, alpha = short(1 + math.exp(rng.uniform(math.log(0.05), math.log(12))))
        value = integral(mp.mpf(q), mp.mpf(s), mp.mpf(alpha))
        if n % 50 == 0 and alpha > 2:
            other = series(mp.mpf(q), mp.mpf(s), mp.mpf(alpha), 3000)
            assert abs(other / value - 1) < 1e-8, (q, s, alpha, value, other)
        line("order", tq, ts, ta, mp.nstr(value, 14))
    mp.mp.dps = 60
    for _ in range(1000):  # one sampled step: delta of q, noise, epsilon; the larger direction
        while True:
            tq, q = draw(rng, 1e-4, 0.95)
            ts, s = draw(rng, 0.3, 20)
            te, eps = draw(rng, 1e-3, 10)
            q_, s_, e_ = mp.mpf(q), mp.mpf(s), mp.mpf(eps)

            def inverse(loss):  # x with log r(x) = loss
                r = (mp.exp(loss) - (1 - q_)) / q_
                return s_ * s_ * mp.log(r) + mp.mpf(1) / 2 if r > 0 else None

            x = inverse(e_)
            removed = (1 - q_) * tail(x / s_) + q_ * tail((x - 1) / s_) - mp.exp(e_) * tail(x / s_)
            x = inverse(-e_)
            below = (lambda y: tail(-y / s_))
            added = 0 if x is None else below(x) - mp.exp(e_) * ((1 - q_) * below(x) + q_ * below(x - 1))
            if max(removed, added) > mp.mpf("1e-14"):
                break
        line("step", tq, ts, te, mp.nstr(max(removed, added), 14))


# ---- pld.txt: dp-accounting ----

def pld():
    from dp_accounting.pld import privacy_loss_distribution as d
    rng = random.Random(21)
    cases = [("0.01", "0.7", 120, "1e-5"), ("1", "0.7", 2, "1e-5"), ("0.2", "0.5", 3, "1e-5")]
    while len(cases) < 60:
        tq, q = draw(rng, 2e-3, 0.9)
        ts, s = draw(rng, 0.5, 8)
        steps = int(math.exp(rng.uniform(0, math.log(5000))))
        if q * math.sqrt(steps) / s < 4:
            cases.append((tq, ts, steps, short(10 ** rng.uniform(-9, -4))[0]))
    for tq, ts, steps, td in cases:
        def make(pessimistic):
            return d.from_gaussian_mechanism(float(ts), sampling_prob=float(tq), value_discretization_interval=1e-4,
                                             pessimistic_estimate=pessimistic, use_connect_dots=pessimistic).self_compose(steps)
        upper, lower = make(True), make(False)
        eps = upper.get_epsilon_for_delta(float(td))
        te, at = short(eps * rng.uniform(0.3, 1.2))
        print(tq, ts, steps, td, f"{lower.get_epsilon_for_delta(float(td)):.12g}", f"{eps:.12g}", te,
              f"{lower.get_delta_for_epsilon(at):.12g}", f"{upper.get_delta_for_epsilon(at):.12g}")


# ---- audit.txt: the formula of Steinke, Nasr, Jagielski with SciPy's binomial ----

def audit():
    from scipy.stats import binom
    rng = random.Random(22)

    def p_value(m, r, v, eps, delta):
        q = 1 / (1 + math.exp(-eps))
        beta = binom.sf(v - 1, r, q)
        alpha, total = 0.0, 0.0
        for i in range(1, v + 1):
            total += binom.pmf(v - i, r, q)
            alpha = max(alpha, total / i)
        return min(1.0, beta + alpha * delta * 2 * m)

    def bound(m, r, v, delta, p):
        if p_value(m, r, v, 0, delta) >= p:
            return 0.0
        low, high = 0.0, 1.0
        while p_value(m, r, v, high, delta) < p:
            high += 1
        for _ in range(45):
            eps = (low + high) / 2
            low, high = (eps, high) if p_value(m, r, v, eps, delta) < p else (low, eps)
        return low

    for _ in range(120):
        m = int(math.exp(rng.uniform(math.log(4), math.log(3000))))
        r = rng.randint(1, min(m, 600))
        v = rng.randint(r // 2, r)
        eps, delta, p = short(rng.uniform(0, 6)), short(rng.choice([0, 1e-8, 1e-5, 1e-3])), short(rng.choice([0.01, 0.05, 0.1]))
        print(m, r, v, eps[0], delta[0], p[0], f"{p_value(m, r, v, eps[1], delta[1]):.14g}", f"{bound(m, r, v, delta[1], p[1]):.12g}")


# ---- banded.txt: dense matrices ----

def banded():
    import numpy as np
    for n, bands, times, separation in ((1, 1, 1, 1), (6, 1, 6, 1), (8, 2, 3, 2), (9, 3, 3, 3), (9, 3, 2, 4), (12, 4, 9, 5), (16, 16, 1, 16),
                                        (64, 8, 3, 8), (200, 20, 10, 20), (200, 1, 200, 1), (500, 32, 4, 100)):
        # The square root of the prefix sum, as a series of (1-x)^(-1/2): c_j = binom(2j, j) / 4^j.
        c = [math.comb(2 * j, j) / 4 ** j for j in range(bands)]
        C = sum(c[j] * np.eye(n, k=-j) for j in range(min(bands, n)))
        A = np.tril(np.ones((n, n)))
        error = np.linalg.norm(A @ np.linalg.inv(C)) / math.sqrt(n)
        gram = C.T @ C
        best = 0.0
        if n <= 16:  # every pattern of participations; signs are all 1, as all entries of gram are at least 0
            for k in range(1, times + 1):
                for pattern in itertools.combinations(range(n), k):
                    if all(b - a >= separation for a, b in zip(pattern, pattern[1:])):
                        best = max(best, math.sqrt(gram[np.ix_(pattern, pattern)].sum()))
        else:  # best of all sets of columns at least `separation` apart, by dynamic programming: columns do not overlap
            value = np.zeros((times + 1, n + separation + 1))
            for k in range(1, times + 1):
                for i in range(n - 1, -1, -1):
                    value[k, i] = max(value[k, i + 1], gram[i, i] + value[k - 1, min(i + separation, n)])
            best = math.sqrt(value[times, 0])
        print(n, bands, times, separation, f"{error:.14g}", f"{best:.14g}")


{"points": points, "pld": pld, "audit": audit, "banded": banded}[sys.argv[1]]()
