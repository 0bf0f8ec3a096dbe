#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planner inside a site against closed forms, and against measured runs of the same program on this machine.

    inside.py knee ATOLL DIR [--quick] WORDS ...        work 6: speed-up, efficiency, GPU-hours, knee
    inside.py cost ATOLL DIR [--quick] WORDS ...        work 7: accumulation, weak scaling, price
    inside.py exposed ATOLL DIR [--quick] WORDS ...     work 11: exposed communication, diminishing returns
    inside.py search ATOLL DIR WORDS ...                work 14: the pick of the search and the memory of 12 runs
    inside.py fits TEST_SITE_MODEL DIR                  work 14: 1,000 random settings, planner against the start-up check
    inside.py sums ATOLL DIR [--quick] WORDS ...        work 17: all-reduces between the fitted sizes, overlap and fusion
    inside.py step ATOLL DIR [--quick] WORDS ...        work 20: steps of six shapes from three calibrated widths

WORDS are settings of atoll. Times of several ranks are the fastest of several steps: what else the machine does only makes steps
slower. Times of one rank are processor times. Prints JSON.
"""
import json
import math
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys

# Mean of ten runs without the fastest and the slowest, minutes of NVIDIA's H100 in MLPerf Training 4.1, BERT: run_start to run_stop in
# the public logs (github.com/mlcommons/training_results_v4.1, NVIDIA/results/eos*/bert).
MLPERF = {8: 5.4688, 64: 0.8981, 3472: 0.1193}
MODEL = {"model.layers": 4, "model.d_model": 128, "model.heads": 4, "model.max_seq_len": 128, "train.seq_len": 128, "train.batch_tokens": 2048,
         "device.dtype": "f32", "device.threads": 1, "train.optimizer": "adamw"}
LEAST_EFFICIENCY, LEAST_MARGINAL, MOST_EXPOSED = 0.7, 0.5, 0.05


class Bench:
    def __init__(self, atoll, folder, quick, words):
        self.atoll, self.folder, self.quick, self.given = atoll, folder, quick, words
        self.count = 0

    def words(self, settings):
        return [*self.given, *(str(w) for k, v in {**MODEL, **settings}.items() for w in ("--" + k, v))]

    def call(self, command):
        done = subprocess.run([str(w) for w in command], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
        return done

    def ranks(self, n):
        return ["mpirun", "-n", n] if n > 1 else []

    def probe(self, n, settings, widths=None, data=True):
        """The file that plans read, and what the probe said."""
        self.count += 1
        path = os.path.join(self.folder, f"probe-{self.count}.yaml")
        words = self.words(settings)
        if not data:
            at = words.index("--data.train")
            del words[at:at + 2]
        done = self.call([*self.ranks(n), self.atoll, "probe", "--ranks", "--write", path, "--force", "--seconds", 0.02 if self.quick else 0.5,
                          *(["--widths", widths] if widths else []), *words])
        return path, done.stderr

    def plan(self, probe, settings, *more):
        done = self.call([self.atoll, "plan", "--inside", "--format", "json", "--probe", probe, *more, *self.words(settings)])
        return json.loads(done.stdout)["rows"]

    def train(self, n, settings, steps=None):
        """The fastest step, the least exposed time, and the memory in MiB, planned and used."""
        steps = steps or (6 if self.quick else 40)
        self.count += 1
        run = os.path.join(self.folder, f"run-{self.count}")
        shutil.rmtree(run, ignore_errors=True)
        done = self.call([*self.ranks(n), self.atoll, "train", "--run.dir", run, *self.words(settings), "--train.steps", steps, "--train.warmup_steps", 2,
                          "--train.checkpoint_every", 0, "--train.eval_every", 0, "--log.progress", "none"])
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as f:
            found = [r for r in map(json.loads, f) if r["kind"] == "step"][3:]
        used = re.search(r"rank=0 level=info ev=memory_used planned_mib=([\d.]+) data_mib=[\d.]+ peak_mib=([\d.]+)", done.stderr)
        return {"step_s": min(r["step_ms"] for r in found) / 1000, "exposed_s": min(r.get("exposed_ms", 0) for r in found) / 1000,
                "inner_up": found[-1].get("inner_up", 0), "median_s": statistics.median(r["step_ms"] for r in found) / 1000,
                "planned": float(used.group(1)) if used else math.nan, "used": float(used.group(2)) if used else math.nan}

    def processor_step(self, settings):
        """Processor time of a step of one rank with one thread, which other programs hardly change: of 30 steps, without the start."""
        spent = []
        for steps in (4, 14 if self.quick else 34):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.train(1, settings, steps)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append((steps, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
        return (spent[1][1] - spent[0][1]) / (spent[1][0] - spent[0][0])


# ---- work 6 ----

def scaled(rows):
    """Rows (n, seconds): from the definitions."""
    (n0, t0), found = rows[0], []
    for n, t in rows:
        found.append({"n": n, "speedup": t0 / t, "efficiency": t0 / t * n0 / n, "gpu_hours": n * t / 3600})
    good = [i for i, (n, t) in enumerate(rows) if i == 0 or found[i]["efficiency"] >= LEAST_EFFICIENCY]
    return found, rows[min(good, key=lambda i: rows[i][0] * rows[i][1] ** 2)][0]


def times(bench, rows):
    done = bench.call([bench.atoll, "plan", "--format", "json", "--times", ",".join(f"{n}:{t / 60:.12g}" for n, t in rows)])
    return json.loads(done.stdout)["rows"]


def knee(bench):
    curves = [[(n, serial + work / n + each * n) for n in range(1, 33)]
              for serial, work, each in ((1, 100, 0.001), (2, 50, 0.01), (5, 400, 0), (0, 1000, 0.5), (10, 100, 0.1))]
    curves.append([(n, 60 * t) for n, t in MLPERF.items()])
    off, wrong, out = 0, 0, {}
    for rows in curves:
        got, (want, where) = times(bench, rows), scaled(rows)
        off = max([off] + [abs(g[k] / w[k] - 1) for g, w in zip(got, want) for k in w])
        wrong += [g["n"] for g in got if g["knee"]] != [where]
    out |= {"difference": off, "wrong": wrong, "mlperf_knee": where}
    out |= {f"mlperf_{k}_{g['n']:.0f}": g[k] for g in got for k in ("speedup", "efficiency", "gpu_hours")}
    if not bench.quick:
        measured = [(n, bench.train(n, {})["step_s"]) for n in (1, 2)]
        got = times(bench, measured)
        out |= {"speedup_2": got[1]["speedup"], "efficiency_2": got[1]["efficiency"], "knee_2": next(g["n"] for g in got if g["knee"])}
    return out


# ---- work 7 ----

def cost(bench):
    micro = {"train.micro_batch_tokens": 256}
    probe, _ = bench.probe(2, {**micro, "train.batch_tokens": 512}, "128")
    counted, predicted = {}, {}
    for a in (1, 2, 4, 8):
        now = {**micro, "train.batch_tokens": 512 * a}
        row = bench.plan(probe, now, "--ranks", "2")[0]
        counted[a], predicted[a] = bench.train(2, now, 6)["inner_up"] / (512 * a), row["sum_bytes"] / (512 * a)
        chosen = row["accumulate_hidden"]
    off = max(abs(counted[1] / counted[a] / a - 1) for a in counted)
    run = bench.train(2, {**micro, "train.batch_tokens": 512 * chosen})
    one = bench.train(1, {**micro, "train.batch_tokens": 256 * chosen})
    price = bench.plan(probe, {**micro, "train.batch_tokens": 512 * chosen, "train.steps": 1000, "plan.price_hour": 2.5}, "--ranks", "2")[0]
    return {"difference": off, "counted_off": max(abs(counted[a] / predicted[a] - 1) for a in counted), "accumulate": chosen, "exposed_share": run["exposed_s"] / run["step_s"],
            "predicted_share": price["exposed_s"] / price["step_s"], "weak_efficiency": one["step_s"] / run["step_s"],
            "price_off": abs(price["price"] / (price["gpu_hours"] * 2.5) - 1), "price": price["price"]}


# ---- work 11 ----

def exposed(bench):
    """A model of 3.2 M parameters, so that its sums take milliseconds; with --quick 0.8 M."""
    base = {} if bench.quick else {"model.d_model": 256}
    probe, _ = bench.probe(2, base, str(base.get("model.d_model", MODEL["model.d_model"])))
    shapes = [{"train.bucket_mb": 0}] if bench.quick else \
        [{"train.bucket_mb": 0}, {"train.bucket_mb": 2}, {"train.batch_tokens": 4096}, {"model.layers": 8}, {"train.bucket_mb": 6}]
    off, shares, planned = [], [], []
    for shape in shapes:
        plan = bench.plan(probe, {**base, **shape}, "--ranks", "2")[0]
        run = bench.train(2, {**base, **shape})
        planned.append(plan["exposed_s"])
        off.append(plan["exposed_s"] / run["exposed_s"] - 1)
        shares.append(abs(plan["exposed_s"] - run["exposed_s"]) / run["step_s"])
    # The warning, against a scan of the rows of simulated H100s.
    words = ["--plan.gpu", "h100", "--plan.net_gbs", "50", "--model.layers", "24", "--model.d_model", "2048", "--model.heads", "16", "--model.max_seq_len",
             "2048", "--train.seq_len", "2048", "--train.batch_tokens", str(1 << 22), "--device.dtype", "bf16"]
    asked = [bench.atoll, "plan", "--inside", "--search", *words]
    rows = json.loads(bench.call([*asked, "--format", "json"]).stdout)["rows"]
    said = re.search(r"Diminishing returns from (\d+) to (\d+)", bench.call(asked).stdout)
    marginal = [(b["ranks"], math.log(b["tokens_per_second"] / a["tokens_per_second"]) / math.log(b["ranks"] / a["ranks"]))
                for a, b in zip(rows, rows[1:])]
    first = next((n for n, m in marginal if m < LEAST_MARGINAL), 0)
    out = {"planned": min(planned), "difference": max(map(abs, off)), "of_step": max(shares), "warned": int((int(said.group(2)) if said else 0) == first),
           "warned_at": first}
    for r in rows:
        out |= {f"mfu_{r['ranks']}": r["mfu"], f"tokens_per_joule_{r['ranks']}": r["tokens_per_second"] / (r["ranks"] * r["watts"])}
    return out


# ---- work 14 ----

def search(bench):
    base = {"model.layers": 6, "model.d_model": 384, "model.heads": 6, "train.batch_tokens": 4096}
    probe, _ = bench.probe(2, base, "384")
    grid, memory = {}, []
    empty = bench.train(2, {"model.layers": 1, "model.d_model": 16, "model.heads": 1, "train.batch_tokens": 256}, 5)
    program = empty["used"] - empty["planned"]  # of the process itself and its libraries
    for micro in (2048, 1024, 512):
        for again in ("none", "block"):
            for zero in (0, 1):
                now = {**base, "train.micro_batch_tokens": micro, "train.activation_checkpointing": again, "train.zero_stage": zero}
                run = bench.train(2, now, 14)
                plan = bench.plan(probe, now, "--ranks", "2")[0]
                grid[micro, again, zero] = run["step_s"]
                memory.append((run["used"] - program) / (plan["memory_bytes"] / 2 ** 20))
    pick = bench.plan(probe, base, "--ranks", "2", "--search")[0]
    chosen = bench.train(2, {**base, "train.micro_batch_tokens": pick["micro_batch_tokens"], "train.zero_stage": pick["zero_stage"],
                             "train.activation_checkpointing": "block" if pick["recompute"] else "none", "train.bucket_mb": pick["bucket_mb"]}, 14)
    return {"difference": chosen["step_s"] / min(grid.values()) - 1, "runs": len(grid), "memory_least": min(memory), "memory_most": max(memory)}


def fits(bench):
    done = subprocess.run([bench.atoll], capture_output=True, text=True, check=False)
    found = [int(m.group(1)) if (m := re.search(rf"\[  {word}  \] (\d+) test", done.stdout + done.stderr)) else 0 for word in ("PASSED", "FAILED")]
    if not found[0] or "] test_fits_as_start_up" not in done.stdout + done.stderr:
        sys.exit(f"{bench.atoll}: test_fits_as_start_up has not run")
    return {"failed": found[1]}


# ---- work 17 ----

def fitted(seconds, ranks):
    """alpha, beta of the ring all-reduce by least squares of the relative error; neither below 0."""
    rows = [(2 * (ranks - 1) / t, 2 * (ranks - 1) / ranks * 4096 * 2 ** i / t) for i, t in enumerate(seconds)]
    aa, ab, bb = (sum(r[i] * r[k] for r in rows) for i, k in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(r[i] for r in rows) for i in (0, 1))
    alpha, beta = (a * bb - b * ab) / (aa * bb - ab * ab), (b * aa - a * ab) / (aa * bb - ab * ab)
    return (0, b / bb) if alpha < 0 else (a / aa, 0) if beta < 0 else (alpha, beta)


def sums(bench):
    path, said = bench.probe(2, {}, data=False)
    worst, mean, at, others = map(float, re.search(
        r"predicted within ([\d.]+) %, in the mean ([\d.]+) %; the worst at (\d+) KiB, the others within ([\d.]+) %", said).groups())
    alpha, beta, formula = map(float, re.search(r"all-reduce .* alpha ([\d.e+-]+) us, beta ([\d.e+-]+) GB/s .* at most ([\d.]+) % off", said).groups())
    with open(path, encoding="utf-8") as f:
        seconds = [float(x) for x in re.search(r"all_reduce_s: \[([^]]*)\]", f.read()).group(1).split(",")]
    own = fitted(seconds, 2)
    fit_off = max(abs(got - want) / max(abs(want), 1e-12) for got, want in ((alpha * 1e-6, own[0]), (beta and 1e-9 / beta, own[1])))
    out = {"difference": worst / 100, "mean": mean / 100, "at": at, "others": others / 100, "formula": formula / 100, "fit": fit_off}
    if bench.quick:
        return out
    _, said = bench.probe(4, {}, data=False)
    out["four"] = float(re.search(r"predicted within ([\d.]+) %", said).group(1)) / 100
    big = {"model.d_model": 256}
    for name, mib in (("behind", 0), ("tensor", 0.001), ("quarter", 0.25), ("lazy", 2), ("whole", 25)):
        run = bench.train(2, {**big, "train.bucket_mb": mib})
        out |= {f"step_{name}": 1000 * run["step_s"], f"exposed_{name}": 1000 * run["exposed_s"]}
    return out


# ---- work 20 ----

def step(bench):
    calibrated = "64,128,256"
    probe, _ = bench.probe(1, {}, calibrated)
    shapes = [{"model.d_model": 96, "model.heads": 3, "model.layers": 3}, {"model.d_model": 192, "model.heads": 6, "model.layers": 2},
              {"train.batch_tokens": 1024, "model.layers": 6}, {"train.seq_len": 64, "model.layers": 3},
              {"model.d_model": 64, "model.heads": 2, "model.layers": 8}, {"model.d_model": 256, "model.heads": 8, "model.layers": 3}]
    off, memory = [], []
    for shape in shapes[:2 if bench.quick else None]:
        plan, took = bench.plan(probe, shape, "--ranks", "1")[0], bench.processor_step(shape)
        print(f"{shape}: predicted {plan['step_s']:.4f} s, measured {took:.4f} s", file=sys.stderr)
        off.append(abs(plan["step_s"] / took - 1))
        memory.append(abs(plan["memory_bytes"] / 2 ** 20 / bench.train(1, shape, 5)["planned"] - 1))
    return {"difference": statistics.median(off), "worst": max(off), "memory": max(memory), "shapes": len(off)}


def main():
    what, atoll, folder, *words = sys.argv[1:]
    quick = "--quick" in words
    os.makedirs(folder, exist_ok=True)
    bench = Bench(os.path.abspath(atoll), folder, quick, [w for w in words if w != "--quick"])
    print(json.dumps({"knee": knee, "cost": cost, "exposed": exposed, "search": search, "fits": fits, "sums": sums, "step": step}[what](bench)))


if __name__ == "__main__":
    main()
