#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What site.outer_state = sharded changes at a site of two CPU ranks: interleaved runs of one build, lead and sharded in turn.

  sharded.py ATOLL [--layers 6] [--width 768] [--repeats 3] [--csv FILE]
  sharded.py ATOLL --old PROGRAM [--layers 8] [--width 1152] [--codec int4] [--repeats 2] [--csv FILE]
  sharded.py ATOLL --wan transatlantic [--layers 10] [--width 1024] [--rounds 10] [--csv FILE]

One site, two ranks with one thread each, an aggregator, a fragment a layer, all due after the same step. Printed, medians over
the rounds of all repeats:
  local     ms that a round takes at the site: encode, store and apply of all fragments; of the ranks the one that takes longest
  waited    ms that training waited for the round, with the aggregator's own work and the local link
  rss       MiB, the largest resident size of each rank
With --old: the sharded site next to one rank of another build, with one thread and with as many threads as there are ranks, in
turns. Then `local` is all of a round but the link and the aggregator: gather, encode, hash, store, apply, mix. With `chrt -r 1`
the ranks have the cores, and the aggregator and other programs what they leave.
With --wan: two sites of two ranks each, sharded, over the emulated network of `atoll wan`; what a round takes, its bytes next to
the predicted ones, and the resident size of each process next to what the program planned.
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
EVERY, RANKS = 2, 2
PARTS = ("gather", "encode", "store", "apply", "mix")
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_mpi_yield_when_idle": "1",
       "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
       "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
       "NO_COLOR": "1"}


def configuration(o, sites, aggregator, listen):
    last = o.layers - 1
    slices = [f"embed-0@{EVERY}", *(f"{k}@{EVERY}" for k in range(1, last)), f"{last}-final@{EVERY}"]
    return f"""run: {{name: bench, seed: 1}}
model: {{layers: {o.layers}, heads: {o.width // 64}, d_model: {o.width}, max_seq_len: 64}}
data: {{tokenizer: bytes}}
train: {{steps: {EVERY * o.rounds}, batch_tokens: 128, seq_len: 64, lr: 0.0003, checkpoint_every: 1000, eval_every: 0}}
device: {{kind: cpu, dtype: f32, threads: 1}}
outer:
  sites: [{sites}]
  sync_every: {EVERY}
  fragments: {len(slices)}
  partition: slices
  slices: [{', '.join(slices)}]
  codec: {o.codec}
  state_digest: leaves
site: {{aggregator: "{aggregator}", aggregator_name: localhost}}
tls: {{dir: tls}}
serve: {{listen: "{listen}", dir: aggregator}}
"""


class Peaks(threading.Thread):
    """The largest resident size of each rank, while it lives."""

    def __init__(self, root):
        super().__init__(daemon=True)
        self.root, self.mib, self.over = str(root), {}, False

    def run(self):
        while not self.over:
            for p in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    env = dict(x.split("=", 1) for x in (p / "environ").read_text().split("\0") if "=" in x)
                    if env.get("SHARDED_BENCH") != self.root or not (p / "comm").read_text().startswith("atoll"):
                        continue
                    words = (p / "cmdline").read_text().split("\0")
                    if "train" not in words and "serve" not in words:
                        continue
                    who = words[words.index("--run.dir") + 1] if "--run.dir" in words else "aggregator"
                    key = (who, int(env.get("OMPI_COMM_WORLD_RANK", "0")))
                    high = [x for x in (p / "status").read_text().splitlines() if x.startswith("VmHWM")]
                    self.mib[key] = max(self.mib.get(key, 0), int(high[0].split()[1]) / 1024)
                except (OSError, IndexError, ValueError, UnicodeDecodeError):
                    continue
            time.sleep(0.1)


def usual_class():
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def one_run(atoll, root, mode, ranks=RANKS, threads=1, aside=False):
    """mode: of site.outer_state; None: a build that has no such key. aside: the aggregator leaves chrt's class."""
    for name in ("a", "aggregator"):
        shutil.rmtree(root / name, ignore_errors=True)
    env = {**os.environ, **MPI, "SHARDED_BENCH": str(root)}
    peaks = Peaks(root)
    peaks.start()
    with open(root / "serve.out", "w") as out:
        serve = subprocess.Popen([atoll, "serve", "--config", "run.yaml"], cwd=root, env=env, stdout=out, stderr=out,
                                 preexec_fn=usual_class if aside else None)
    with open(root / "a.out", "w") as out:
        command = [atoll, "train", "--config", "run.yaml", "--run.dir", "a", "--site.name", "a", "--data.train",
                   "data/train-0-*.bin", "--log.progress", "none", "--device.threads", str(threads),
                   *(["--site.outer_state", mode] if mode else [])]
        code = subprocess.run([*(["mpirun", "-n", str(ranks)] if ranks > 1 else []), *command], cwd=root, env=env, stdout=out,
                              stderr=out).returncode
    peaks.over = True
    peaks.join()
    if code or serve.wait():
        sys.exit(f"{mode}: exit code {code}\n" + "".join(open(root / "a.out").readlines()[-5:]))
    rounds = [json.loads(x) for x in open(root / "a/metrics.jsonl") if '"kind":"round"' in x]
    local, waited, mixed = [], [], []
    for step in sorted({r["step"] for r in rounds})[1:]:  # the first one is in full precision
        of = {}
        for r in rounds:
            if r["step"] == step:
                rank = r["fragment"] % ranks if mode == "sharded" else 0
                of[rank] = of.get(rank, 0) + r["encode_ms"] + r["store_ms"] + r["apply_ms"]
        local.append(max(of.values()))
        mixed.append(sum(r["gather_ms"] + r["mix_ms"] for r in rounds if r["step"] == step))
        waited.append(sum(r["exposed_ms"] + r["gather_ms"] + r["mix_ms"] for r in rounds if r["step"] == step))
    final = [json.loads(x) for x in open(root / "a/metrics.jsonl") if '"kind":"final"' in x]
    parts = {k: statistics.median(r[k + "_ms"] for r in rounds[len(rounds) // 4:]) for k in PARTS}
    return {"local": local, "waited": waited, "mixed": mixed, "parts": parts, "rss": peaks.mib, "outer": final[-1]["outer"]}


PLACES = """
case {site} in
aggregator) exec $ATOLL serve --config run.yaml ;;
a) n=0 ;;
*) n=1 ;;
esac
exec mpirun --mca oob_tcp_if_include lo --mca btl self,vader -n 2 $ATOLL train --config run.yaml --run.dir {site} --site.name {site} \\
    --site.outer_state sharded --site.aggregator {address:aggregator}:7443 --data.train "data/train-$n-*.bin" --log.progress none
"""


def planned(log):
    """MiB of each rank, by the program's own lines."""
    mib = {}
    for line in open(log):
        rank = re.search(r" rank=(\d+) ", line)
        for event, key in (("memory", "total_mib"), ("memory", "data_mib"), ("outer_memory", "host_mib")):
            value = re.search(rf" ev={event} .*\b{key}=([\d.]+)", line)
            if rank and value:
                mib[int(rank[1])] = mib.get(int(rank[1]), 0) + float(value[1])
    return mib


def keep(o, of, flags):
    """of: {case: (value, unit, baseline)}, appended to --csv."""
    if not o.csv:
        return
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True,
                            check=True).stdout.strip()
    with open(o.csv, "a", newline="") as out:
        for case, (new, unit, old) in of.items():
            csv.writer(out, lineterminator="\n").writerow(
                [datetime.date.today(), platform.machine(), commit, "sharded", f"{case}; {RANKS} ranks", f"{new:.5g}", unit,
                 f"{old:.5g}", f"{new / old:.4g}", f"parameters={12 * o.layers * o.width * o.width} {flags}"])


def over_wan(o, atoll, root):
    env = {**os.environ, **MPI, "SHARDED_BENCH": str(root), "ATOLL": atoll}
    peaks = Peaks(root)
    peaks.start()
    code = subprocess.run([atoll, "wan", "--topology", o.wan, "--logs", "logs", "--", "sh", "-c", PLACES],
                          cwd=root, env=env).returncode
    peaks.over = True
    peaks.join()
    if code:
        sys.exit(f"exit code {code}\n" + "".join(open(root / "logs/a.log").readlines()[-5:]))
    kept = {}
    for site in "ab":
        rounds = [json.loads(x) for x in open(root / site / "metrics.jsonl") if '"kind":"round"' in x]
        for key in ("up", "down"):
            counted, told = sum(r[key] for r in rounds), sum(r[key + "_predicted"] for r in rounds)
            print(f"{site}  payload {key:4} {counted / 1e6:9.1f} MB, predicted {told / 1e6:9.1f} MB")
            kept[f"{o.wan}; site {site}; payload {key}"] = (counted / 1e6, "MB", told / 1e6)
        of = {k: statistics.median(r[k] for r in rounds[2:]) for k in ("encode_ms", "store_ms", "send_ms", "wait_ms", "fetch_ms",
                                                                      "apply_ms", "gather_ms", "mix_ms", "flight_ms")}
        print(f"{site}  a fragment's round, medians: " + ", ".join(f"{k[:-3]} {v:.0f}" for k, v in of.items()) + " ms")
        plan = planned(root / "logs" / f"{site}.log")
        for rank in range(RANKS):
            peak = peaks.mib.get((site, rank), 0)
            print(f"{site}  rank {rank}  resident {peak:6.0f} MiB, planned {plan.get(rank, 0):6.0f} MiB")
            kept[f"{o.wan}; site {site}; rss of rank {rank}"] = (peak, "MiB", plan.get(rank) or peak)
    print(f"aggregator  resident {peaks.mib.get(('aggregator', 0), 0):6.0f} MiB")
    finals = [[json.loads(x)["outer"] for x in open(root / s / "metrics.jsonl") if '"kind":"final"' in x][-1] for s in "ab"]
    print("digests of both sites:", "equal" if finals[0] == finals[1] else "DIFFERENT")
    if finals[0] != finals[1]:
        sys.exit(1)
    keep(o, kept, f"rounds={o.rounds} baseline=planned")


def with_old(o, atoll, root):
    """The sharded site next to one rank of o.old."""
    old = str(pathlib.Path(o.old).resolve())
    of = {"sharded": (atoll, "sharded", RANKS, 1), "old, 1 thread": (old, None, 1, 1),
          f"old, {RANKS} threads": (old, None, 1, RANKS)}
    runs = {name: [] for name in of}
    for _ in range(o.repeats):
        for name, (program, mode, ranks, threads) in of.items():
            runs[name].append(one_run(program, root, mode, ranks, threads, aside=True))
    median = {}
    for name, all_of in runs.items():
        local = [a + b for r in all_of for a, b in zip(r["local"], r["mixed"])]
        median[name] = statistics.median(local)
        print(f"{name:16} local {median[name]:6.0f} ms of {', '.join(f'{x:.0f}' for x in local)}; gather and mix "
              f"{statistics.median(x for r in all_of for x in r['mixed']):.0f} ms; rss of the lead "
              f"{max(r['rss'].get(('a', 0), 0) for r in all_of):.0f} MiB")
        print("                 a fragment: " + ", ".join(
            f"{k} {statistics.median(r['parts'][k] for r in all_of):.0f}" for k in PARTS) + " ms")
    for name in list(of)[1:]:
        print(f"sharded / {name}: local {median['sharded'] / median[name]:.2f}")
        keep(o, {"local with gather and mix": (median["sharded"], "ms", median[name])},
             f"fragments={o.layers} {o.codec} rounds={len(runs[name]) * (o.rounds - 1)} baseline={name.replace(',', '')}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("atoll")
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=768)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--codec", default="int8")
    p.add_argument("--old", metavar="PROGRAM")
    p.add_argument("--wan", metavar="TOPOLOGY")
    p.add_argument("--csv")
    o = p.parse_args()
    atoll = str(pathlib.Path(o.atoll).resolve())
    root = pathlib.Path(tempfile.mkdtemp(prefix="sharded."))
    try:
        text = b"".join(x.read_bytes() for x in sorted((REPOSITORY / "tests/golden/text").glob("*.txt")))
        (root / "text.txt").write_bytes(text)
        here = f"127.0.0.1:{10000 + os.getpid() % 20000}"
        text = configuration(o, "a, b", "127.0.0.1:7443", "0.0.0.0:7443") if o.wan else configuration(o, "a", here, here)
        (root / "run.yaml").write_text(text)
        for args in (["data", "--out", "data", "--sites", "2", "--seq-len", "64", "text.txt"],
                     ["cert", "authority", "--run", "bench", "--dir", "tls"],
                     ["cert", "issue", "--role", "aggregator", "--host", "localhost,127.0.0.1", "--dir", "tls"],
                     ["cert", "issue", "--role", "site", "--name", "a", "--dir", "tls"],
                     ["cert", "issue", "--role", "site", "--name", "b", "--dir", "tls"]):
            subprocess.run([atoll, *args], cwd=root, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if o.wan:
            over_wan(o, atoll, root)
            return
        if o.old:
            with_old(o, atoll, root)
            return
        runs = {"lead": [], "sharded": []}
        for _ in range(o.repeats):
            for mode in runs:
                runs[mode].append(one_run(atoll, root, mode))
        if len({r["outer"] for of in runs.values() for r in of}) != 1:
            sys.exit("the outer states differ")
        parameters = 12 * o.layers * o.width * o.width
        median = {m: {k: statistics.median(x for r in of for x in r[k]) for k in ("local", "waited")} for m, of in runs.items()}
        for mode, of in runs.items():
            rss = [round(max(r["rss"].get(("a", rank), 0) for r in of)) for rank in range(RANKS)]
            median[mode]["rss"] = rss
            print(f"{mode:8}  local {median[mode]['local']:8.0f} ms  waited {median[mode]['waited']:8.0f} ms  "
                  f"rss {' '.join(map(str, rss))} MiB")
        print(f"sharded / lead: local {median['sharded']['local'] / median['lead']['local']:.2f}, "
              f"waited {median['sharded']['waited'] / median['lead']['waited']:.2f}; about {parameters / 1e6:.0f} M parameters, "
              f"{RANKS} ranks, {o.repeats} interleaved runs each")
        of = {k: (median["sharded"][k], "ms", median["lead"][k]) for k in ("local", "waited")}
        of["rss of the lead"] = (median["sharded"]["rss"][0], "MiB", median["lead"]["rss"][0])
        keep(o, of, f"repeats={o.repeats} baseline=lead")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
