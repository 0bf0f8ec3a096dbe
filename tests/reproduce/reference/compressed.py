# SPDX-License-Identifier: Apache-2.0
"""What the references of compressed sums share: a recorded run of the test program `ranks`, and the codec step of 1-bit Adam in
float64, written from the papers (Tang et al. 2021, 2102.02888)."""
import os
import subprocess
import sys

import numpy as np

STEPS = 20
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
       "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
SMALL = ["--model.d_model", 16, "--model.d_ff", 64, "--model.layers", 2, "--train.steps", STEPS, "--train.warmup_steps", 2, "--train.checkpoint_every", 0]


class Run:
    """Gradients of every rank, as its optimizer got them, and the parameters before and after each step."""

    def __init__(self, program, ranks, settings, folder):
        words = ["mpirun", "-n", ranks, program, "train", folder, "record", *SMALL, *settings]
        subprocess.run([str(w) for w in words], check=True, stdout=sys.stderr, env=os.environ | MPI)
        lines = open(os.path.join(folder, "tensors"), encoding="utf-8").read().split("\n")
        self.elements, self.ranks = (int(x) for x in lines[0].split())
        words = [line.split() for line in lines[1:] if line]
        self.tensors = [(int(a), int(b), float(c), int(d)) for a, b, c, d, _ in words]
        self.names = [line[4] for line in words]
        self.steps = np.loadtxt(os.path.join(folder, "steps"), ndmin=2)
        self.params = self.slabs(folder, "params")
        self.grads = np.stack([self.slabs(folder, f"grads.{r}") for r in range(ranks)], axis=1)

    def slabs(self, folder, name):
        return np.fromfile(os.path.join(folder, name), np.float32).reshape(-1, self.elements).astype(np.float64)

    def ranges(self):
        return [slice(offset, offset + count) for offset, count, _, _ in self.tensors]

    def decay(self):
        """Weight decay of each element relative to the setting."""
        x = np.zeros(self.elements)
        for (_, _, decay, _), r in zip(self.tensors, self.ranges()):
            x[r] = decay
        return x


def shares(elements, ranks):
    """Where the servers' parts of the slab begin: even, at multiples of 256."""
    return [elements // 256 * r // ranks * 256 for r in range(ranks + 1)]


def pieces(ranges, begin, end):
    found = [slice(max(r.start, begin), min(r.stop, end)) for r in ranges]
    return [r for r in found if r.start < r.stop]


def signs(z, error, parts, mask):
    """Each part of z as its signs times its root mean square; what is lost goes to error. Masked elements count nowhere."""
    sent = np.zeros_like(z)
    for p in parts:
        used = mask[p]
        scale = np.sqrt(np.mean(np.square(z[p][used]))) if used.any() else 0.0
        sent[p] = np.where(used, np.where(z[p] >= 0, scale, -scale), 0)
        error[p] = np.where(used, z[p] - sent[p], 0)
    return sent


class Signs:
    """ef_sign_allreduce. feedback False: errors are forgotten."""

    def __init__(self, ranges, elements, ranks):
        self.ranges, self.ranks, self.cuts = ranges, ranks, shares(elements, ranks)
        self.worker, self.server = np.zeros((ranks, elements)), np.zeros(elements)

    def mean(self, x, mask):
        total = np.zeros_like(self.server)
        for i in range(self.ranks):
            total += signs(x[i] + self.worker[i], self.worker[i], self.ranges, mask) / self.ranks
        parts = [p for r in range(self.ranks) for p in pieces(self.ranges, self.cuts[r], self.cuts[r + 1])]
        return signs(total + self.server, self.server, parts, mask)

    def up(self):
        """Payload bytes of rank 0 for one mean."""
        others, share = self.ranks - 1, self.cuts[1] - self.cuts[0]
        served = len(pieces(self.ranges, self.cuts[0], self.cuts[1]))
        return (self.cuts[-1] - share) / 8 + others * (4 * len(self.ranges) + share / 8 + 4 * served)


def clipped(run, t, clip, summed):
    """Gradients of the ranks as means over all targets, times the clip. Where they are not summed the norm is that of ranks'
    gradients that are orthogonal."""
    g = run.grads[t] / run.steps[t, 0]
    norm = np.sqrt(np.sum(np.square(g[0] if summed else g)))
    return g * min(1.0, clip / norm)


def difference(run, t, x):
    """Of the parameters after step t, relative to their norm."""
    return float(np.linalg.norm(run.params[t + 1] - x) / np.linalg.norm(x))
