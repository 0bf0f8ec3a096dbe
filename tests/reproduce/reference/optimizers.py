#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Inner optimizers in float64, written from their papers, and atoll's ten steps against them.

    optimizers.py TEST_OPTIM [--test PROGRAM] CASE ..

CASE: a name of CASES. Parameters and gradients are those of drawn(), a function of seed, step, tensor and element; seeds 1 to 3 are
compared (the golden vectors in tests/golden/optim have seed 7). Prints as JSON: difference (largest of |ours - reference| over the
largest parameter of the tensor), values (how many were compared), failed (1: PROGRAM, which compares with other references, failed).
"""
import json
import math
import os
import subprocess
import sys

STEPS, RATE = 10, 0.01
# Rows, columns (0: a vector). rows: its row 2 has no gradient, its row 3 is zero. still: no gradient at all.
TENSORS = {"matrix": (24, 40), "vector": (40, 0), "rows": (6, 10), "zero": (5, 8), "one": (1, 0), "still": (3, 4), "wide": (2, 300),
           "tall": (130, 3)}
HIDDEN = ("matrix", "zero", "still", "tall")  # matrices of the layers; the others stand for embeddings, biases and norms
DEFAULTS = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-6, "decay": 0.1, "clip": 1.0, "correct": True, "least": 0.01, "most": 10.0,
            "all": False, "adamw": None}
CASES = {
    "adamw": ("adam", {}),
    "adamw_plain": ("adam", {"correct": False, "beta2": 0.99}),
    "lamb": ("lamb", {}),
    "lamb_tensorflow": ("lamb", {"correct": False, "least": 0.0, "most": math.inf}),
    "lamb_apex": ("lamb", {"least": 0.0, "most": math.inf}),
    "lamb_nvlamb": ("lamb", {"least": 0.0, "most": math.inf, "all": True}),
    "lamb_deepspeed": ("lamb", {"correct": False, "most": 0.3, "all": True}),
    "lamb_hidden": ("lamb", {"adamw": 0.4}),  # AdamW at 0.4 of the rate for what is not of HIDDEN
    "lamb_hidden_plain": ("lamb", {"adamw": 0.4, "correct": False, "most": 0.3}),
    "qhadam": ("qhadam", {"beta1": 0.999, "beta2": 0.9999}),
    "qhadam_plain": ("qhadam", {"beta1": 0.99, "beta2": 0.99, "w": 0.9, "correct": False}),
    "lans": ("lans", {"clip": 0.0}),
    "lans_all": ("lans", {"clip": 0.0, "all": True}),
    "lans_clip": ("lans", {"normalize": False}),
    "lans_hidden": ("lans", {"adamw": 0.4, "clip": 0.0}),
    "lans_hidden_clip": ("lans", {"adamw": 0.4, "normalize": False}),
    "merit": ("merit", {}),
    "merit_hidden": ("merit", {"adamw": 0.4}),
    "came": ("came", {"beta3": 0.99}),
    "came_published": ("came", {"beta2": 0.999, "beta3": 0.9999, "limit": 0.5, "clip": 0.0}),
}


def drawn(seed, step, tensor, element):
    """A multiple of 1/1024 from -1 to 1. step -1: the parameters."""
    h = (element * 2654435761 + (step + 2) * 40503 + tensor * 2246822519 + seed * 3266489917) % 2**32
    h = (h ^ (h >> 15)) * 2246822519 % 2**32
    h = (h ^ (h >> 13)) * 3266489917 % 2**32
    return ((h >> 16) % 2049 - 1024) / 1024


def start(seed):
    out = []
    for t, (name, (rows, columns)) in enumerate(TENSORS.items()):
        width = columns or 1
        x = [drawn(seed, -1, t, i) for i in range(rows * width)]
        if name == "zero":
            x = [0.0] * len(x)
        if name == "rows":
            x[3 * width:4 * width] = [0.0] * width
        out.append(x)
    return out


def gradients(seed, step):
    out = []
    for t, (name, (rows, columns)) in enumerate(TENSORS.items()):
        width = columns or 1
        g = [drawn(seed, step, t, i) for i in range(rows * width)]
        if name == "still":
            g = [0.0] * len(g)
        if name == "rows":
            g[2 * width:3 * width] = [0.0] * width
        out.append(g)
    return out


def norm(x):
    return math.sqrt(sum(v * v for v in x))


class Tensor:
    """One tensor with what an optimizer keeps of it."""

    def __init__(self, x, rows, columns, o):
        self.x, self.rows, self.columns, self.o = x, rows, columns or rows, o
        self.vector = columns == 0
        self.rows = 1 if self.vector else rows
        self.m, self.v, self.t = [0.0] * len(x), [0.0] * len(x), 0
        self.lines = {name: [0.0] * (self.rows if name in ("r", "rs") else self.columns) for name in ("r", "c", "rs", "cs")}
        self.decay, self.rate = 0.0 if self.vector else o["decay"], RATE

    def moments(self, g):
        o = self.o
        self.t += 1
        self.m = [o["beta1"] * m + (1 - o["beta1"]) * d for m, d in zip(self.m, g)]
        self.v = [o["beta2"] * v + (1 - o["beta2"]) * d * d for v, d in zip(self.v, g)]
        c1, c2 = (1 - o["beta1"] ** self.t, 1 - o["beta2"] ** self.t) if o["correct"] else (1.0, 1.0)
        return [m / c1 for m in self.m], [v / c2 for v in self.v]

    def move(self, step):
        self.x = [x - s for x, s in zip(self.x, step)]

    def ratio(self, u):
        """||x|| / ||u||; 1 where one of them is 0, and for vectors unless all have one."""
        if (self.vector and not self.o["all"]) or norm(self.x) == 0 or norm(u) == 0:
            return None
        return norm(self.x) / norm(u)

    # Loshchilov & Hutter 2019, algorithm 2
    def adam(self, g):
        m, v = self.moments(g)
        self.move([self.rate * (a / (math.sqrt(b) + self.o["eps"]) + self.decay * x) for a, b, x in zip(m, v, self.x)])

    # You et al. 2020, algorithm 2
    def lamb(self, g):
        m, v = self.moments(g)
        u = [a / (math.sqrt(b) + self.o["eps"]) + self.decay * x for a, b, x in zip(m, v, self.x)]
        ratio = self.ratio(u)
        ratio = 1.0 if ratio is None else min(max(ratio, self.o["least"]), self.o["most"])
        self.move([RATE * ratio * d for d in u])

    # Ma & Yarats 2019, eq. 4; MT-DAO's N = 1 without the corrections
    def qhadam(self, g):
        w = self.o.get("w", 0.7)
        m, v = self.moments(g)
        self.move([RATE * (((1 - w) * d + w * a) / (math.sqrt(b) + self.o["eps"]) + self.decay * x)
                   for d, a, b, x in zip(g, m, v, self.x)])

    # Zheng et al. 2020, algorithm 2
    def lans(self, g):
        o = self.o
        size = norm(g)
        q = [d / (size + o["eps"]) for d in g] if size > 0 and o.get("normalize", True) else g
        m, v = self.moments(q)
        r = [a / (math.sqrt(b) + o["eps"]) + self.decay * x for a, b, x in zip(m, v, self.x)]
        c = [d / (math.sqrt(b) + o["eps"]) + self.decay * x for d, b, x in zip(q, v, self.x)]
        of_r, of_c = self.ratio(r), self.ratio(c)
        of_r, of_c = 1.0 if of_r is None else of_r, 1.0 if of_c is None else of_c
        self.move([RATE * (o["beta1"] * of_r * a + (1 - o["beta1"]) * of_c * b) for a, b in zip(r, c)])


    def cells(self, x):
        """Row, column, value."""
        return [(i // self.columns, i % self.columns, v) for i, v in enumerate(x)]

    def over(self, x, f):
        """f of each row and of each column."""
        rows, columns = [[] for _ in range(self.rows)], [[] for _ in range(self.columns)]
        for i, j, v in self.cells(x):
            rows[i].append(v)
            columns[j].append(v)
        return [f(row) for row in rows], [f(column) for column in columns]

    # Luo et al. 2025, algorithm 1
    def merit(self, g):
        o = {**self.o, "correct": False}
        self.o = o
        m, v = self.moments(g)
        u = [a / (math.sqrt(b) + o["eps"]) + self.decay * x for a, b, x in zip(m, v, self.x)]
        most_x, most_u = max(abs(a) for a in self.x), max(abs(a) for a in u)
        whole = most_x / most_u if most_x and most_u else 1.0
        ratio = [whole] * len(u)
        if not self.vector:
            rows_x, columns_x = self.over(self.x, lambda line: max(abs(a) for a in line))
            rows_u, columns_u = self.over(u, lambda line: max(abs(a) for a in line))
            ratio = [max(rows_x[i] / rows_u[i], columns_x[j] / columns_u[j], whole)
                     if rows_x[i] and rows_u[i] and columns_x[j] and columns_u[j] else 1.0 for i, j, _ in self.cells(u)]
        self.move([RATE * min(max(t * d, -1.0), 1.0) for t, d in zip(ratio, u)])

    def decayed(self, rows, columns, beta, x):
        """Moving means of the rows and of the columns of x."""
        mean = self.over(x, lambda line: sum(line) / len(line))
        for name, now in zip((rows, columns), mean):
            self.lines[name] = [beta * a + (1 - beta) * b for a, b in zip(self.lines[name], now)]

    def factors(self, rows, columns, x):
        """x times (R_i / mean(R))^-1/2 C_j^-1/2."""
        r, c = self.lines[rows], self.lines[columns]
        mean = sum(r) / len(r)
        return [v * (r[i] / mean) ** -0.5 * c[j] ** -0.5 for i, j, v in self.cells(x)]

    # Luo et al. 2023, algorithm 2; vectors have a whole second moment, as in its authors' description
    def came(self, g):
        o = self.o
        if self.vector:
            self.v = [o["beta2"] * v + (1 - o["beta2"]) * (d * d + 1e-30) for v, d in zip(self.v, g)]
            u = [d / math.sqrt(v) for d, v in zip(g, self.v)]
        else:
            self.decayed("r", "c", o["beta2"], [d * d + 1e-30 for d in g])
            u = self.factors("r", "c", g)
        limit = max(1.0, norm(u) / math.sqrt(len(u)) / o.get("limit", 1.0))
        u = [d / limit for d in u]
        self.m = [o["beta1"] * m + (1 - o["beta1"]) * d for m, d in zip(self.m, u)]
        step = self.m
        if not self.vector:
            self.decayed("rs", "cs", o["beta3"], [(d - m) ** 2 + 1e-16 for d, m in zip(u, self.m)])
            step = self.factors("rs", "cs", self.m)
        self.x = [x - RATE * self.decay * x for x in self.x]
        self.move([RATE * d for d in step])


def run(case, seed):
    """Parameters after STEPS steps, tensor by tensor."""
    method, changed = CASES[case]
    o = {**DEFAULTS, **changed}
    tensors = [Tensor(x, rows, columns, o) for x, (rows, columns) in zip(start(seed), TENSORS.values())]
    methods = [method if o["adamw"] is None or name in HIDDEN else "adam" for name in TENSORS]
    for x, of_x in zip(tensors, methods):
        x.rate = RATE * o["adamw"] if of_x != method else RATE
    for step in range(STEPS):
        g = gradients(seed, step)
        size = norm([v for x in g for v in x])
        scale = o["clip"] / size if o["clip"] and size > o["clip"] else 1.0
        for x, of_x, d in zip(tensors, methods, g):
            getattr(x, of_x)([v * scale for v in d])
    return [x.x for x in tensors]


def main():
    worst, count, failed, cases = 0.0, 0, 0, sys.argv[2:]
    if cases[:1] == ["--test"]:
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")  # where its golden files are
        failed = int(subprocess.run([os.path.abspath(cases[1])], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                    check=False).returncode != 0)
        cases = cases[2:]
    for case in cases:
        for seed in (1, 2, 3):
            out = subprocess.run([sys.argv[1], "vectors", case, str(seed)], check=True, capture_output=True, text=True).stdout
            ours = [float(word) for word in out.split()]
            for x in run(case, seed):
                mine, ours = ours[:len(x)], ours[len(x):]
                largest = max(abs(v) for v in x) or 1.0
                worst = max([worst] + [abs(a - b) / largest for a, b in zip(mine, x)])
                count += len(mine)
            assert not ours
    print(json.dumps({"difference": worst, "values": count, "failed": failed}))


if __name__ == "__main__":
    main()
