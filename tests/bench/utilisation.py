#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Share of the time that training trains, two sites under an emulated ocean: blocking, streaming, overlapped, delayed.

    tests/bench/utilisation.py --atoll build/bin/atoll --text gcide.txt --dir /tmp/util [--wan transatlantic] [--csv tests/bench/results.csv]

Real processes at the places of `atoll wan`: `atoll serve`, two `atoll train`, mutual TLS over emulated packets. The share is the
time between rounds that is not spent waiting for an exchange (compute_ms of metrics.jsonl), over the wall time of the same
rounds; the first and last round of every fragment (sent whole, the last one waited for) are left out. It is the share of the
slower site, since the other waits for it as well. Both sites and the network share this machine's cores: run it on an idle one.
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

MODES = {  # P, tau
    "blocking": (1, 0),
    "streaming": (4, 0),
    "overlapped": (4, 5),
    "delayed": (1, None),
}
NODES = """
case {site} in
aggregator) exec $ATOLL serve --serve.dir $DIR/aggregator --serve.listen 0.0.0.0:7443 $SHARED ;;
a) n=0 ;;
*) n=1 ;;
esac
exec $TRAIN --site.name {site} --run.dir $DIR/{site} --site.aggregator {address:aggregator}:7443 \\
    --site.aggregator_name localhost --data.train "$DATA/train-$n-*.bin" $SHARED
"""
# The link first at b, then at a; what a round costs at both at once, since they share the machine in the run too.
LINK = """
probe() { $ATOLL probe --site.name {site} --site.aggregator {address:aggregator}:7443 --site.aggregator_name localhost $SHARED \\
    --write $DIR/{site}.part && mv $DIR/{site}.part $DIR/{site}.yaml; }
case {site} in
aggregator) exec $ATOLL probe --listen --serve.listen 0.0.0.0:7443 $SHARED ;;
a) while [ ! -e $DIR/b.yaml ]; do sleep 0.1; done; sleep 1; probe ;;
*) sleep 1; probe; sleep 999 ;;
esac
"""
STEP = """
case {site} in
aggregator) exit 0 ;;
a) n=0 ;;
*) n=1 ;;
esac
exec $ATOLL probe --step --site.name {site} --run.dir $DIR/{site} --data.train "$DATA/train-$n-*.bin" $SHARED --write $DIR/{site}.yaml
"""


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--atoll", required=True)
    p.add_argument("--text", required=True)
    p.add_argument("--dir", required=True)
    p.add_argument("--wan", default="transatlantic")
    p.add_argument("--codec", default="int8")
    p.add_argument("--every", type=int, default=20)
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--batch", type=int, default=512, help="tokens of a site's step")
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=384)
    p.add_argument("--modes", default=",".join(MODES))
    p.add_argument("--torch", metavar="PYTHON", help="the sites are PyTorch trainers (site_torch.py), by this interpreter, which has "
                   "torch and transformers; set PYTHONPATH and ATOLL_LIBRARY")
    p.add_argument("--sim", action="store_true", help="for each run the same one in atoll sim")
    p.add_argument("--csv")
    return p.parse_args()


def check(command, log):
    with open(log, "ab") as out:
        if subprocess.call([str(c) for c in command], stdout=out, stderr=out, stdin=subprocess.DEVNULL):
            sys.exit(f"failed: {' '.join(map(str, command))[:200]}; see {log}")


def prepare(a, root):
    if not (root / "data" / "done").exists():
        check([a.atoll, "data", a.text, "--out", root / "data", "--sites", 2, "--seq-len", 128, "--force"], root / "data.log")
        check([a.atoll, "cert", "authority", "--run", "utilisation", "--dir", root / "tls"], root / "cert.log")
        check([a.atoll, "cert", "issue", "--role", "aggregator", "--host", "localhost", "--dir", root / "tls"], root / "cert.log")
        for site in "ab":
            check([a.atoll, "cert", "issue", "--role", "site", "--name", site, "--dir", root / "tls"], root / "cert.log")
        (root / "data" / "done").touch()


def rounds_of(metrics, site, parts):
    """Rounds of a site without the first and last of every fragment, and all step times in seconds."""
    rows = [json.loads(line) for line in open(metrics)]
    rows = [r for r in rows if r.get("site", site) == site]
    rounds = [r for r in rows if r["kind"] == "round"][parts:-parts]
    return rounds, [r["step_ms"] / 1e3 for r in rows if r["kind"] == "step" and "step_ms" in r]


def figures(rounds):
    """Training's share of the time, the median exchange from its send to its commit, and the time of these rounds, in seconds."""
    clock = "run_s" if "run_s" in rounds[0] else "t"
    wall = rounds[-1][clock] - rounds[0][clock]
    trained = sum(r["compute_ms"] for r in rounds[1:]) / 1e3
    return {"utilisation": 100 * trained / wall, "exchange": statistics.median(r["flight_ms"] for r in rounds[1:]) / 1e3,
            "run": wall}


def shared_settings(a, root, mode):
    parts, tau = MODES[mode]
    return ["--run.name", "utilisation", "--model.layers", a.layers, "--model.d_model", a.width, "--model.heads", 6,
            "--model.max_seq_len", 128, "--data.eval", f"{root}/data/eval-*.bin", "--train.steps", a.every * a.rounds,
            "--train.batch_tokens", a.batch, "--train.seq_len", 128, "--train.eval_tokens", 128,
            "--train.checkpoint_every", 1000000, "--device.dtype", "bf16", "--device.threads", 1, "--outer.sites", "a,b",
            "--outer.sync_every", a.every, "--outer.fragments", parts, "--outer.codec", a.codec,
            "--outer.overlap_steps", a.every if tau is None else tau, "--tls.dir", root / "tls", "--log.progress", "none"]


def places(a, root, mode, script, out, *more):
    """Runs the script at the places of the emulated network."""
    if out.exists():
        subprocess.call(["rm", "-rf", str(out)])
    out.mkdir()
    script_torch = pathlib.Path(__file__).resolve().with_name("site_torch.py")
    os.environ.update(ATOLL=a.atoll, TRAIN=f"{a.torch} {script_torch}" if a.torch else f"{a.atoll} train",
                       DIR=str(out), DATA=str(root / "data"), OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1",
                      SHARED=" ".join(map(str, shared_settings(a, root, mode))))
    check([a.atoll, "wan", "--topology", a.wan, "--sites", "a,b,aggregator", "--logs", out, *more, "--", "sh", "-c", script],
          out / "wan.log")


def probe(a, root, mode):
    """What atoll probe says of the link, once, and of a round's costs in this mode, at both sites at the same time."""
    link, step = root / "link", root / f"{mode}-step"
    if not link.exists():
        places(a, root, mode, LINK, link, "--until", "a")
    places(a, root, mode, STEP, step)
    for site in "ab":
        lines = [(d / f"{site}.yaml").read_text().replace("plan:\n", "") for d in (link, step)]
        (step / f"{site}-all.yaml").write_text("plan:\n" + "".join(lines))
    return step


def simulated(a, root, mode, site, step_s):
    """The same run in atoll sim, on the probed link (what TCP and this machine make of it) and on the topology (what it says)."""
    step = probe(a, root, mode)
    probed = [f"{s}:probe={step}/{s}-all.yaml,step_s={step_s[s]:.6g}" for s in "ab"]
    out = {}
    alone = [f"{s}:step_s={step_s[s]:.6g}" for s in "ab"]
    for name, sites, more in (("probed", probed, []), ("topology", alone, ["--topology", a.wan])):
        record = root / f"{mode}-{name}.jsonl"
        check([a.atoll, "sim", *shared_settings(a, root, mode), "--probe", f"{step}/b-all.yaml", "--record", record, "--force",
               *more, *sites], root / "sim.log")
        out[name] = figures(rounds_of(record, site, MODES[mode][0])[0])
    return out


def measure(a, root, mode):
    out = root / mode
    places(a, root, mode, NODES, out)
    found = {site: rounds_of(out / site / "metrics.jsonl", site, MODES[mode][0]) for site in "ab"}
    real = {site: figures(rounds) for site, (rounds, _) in found.items()}
    slower = max("ab", key=lambda site: real[site]["utilisation"])
    if a.torch:  # such a site does not record the time of a step
        return slower, real[slower], {site: real[site]["run"] / a.every / (a.rounds - 3) for site in "ab"}
    return slower, real[slower], {site: sum(steps) / len(steps) for site, (_, steps) in found.items()}


def main():
    a = arguments()
    root = pathlib.Path(a.dir).resolve()
    root.mkdir(parents=True, exist_ok=True)
    a.atoll = str(pathlib.Path(a.atoll).resolve())
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    prepare(a, root)
    rows = []

    def row(case, value, unit, baseline="", note=""):
        rows.append([datetime.date.today(), platform.processor() or platform.machine(), commit, "utilisation", f"{a.wan}-{'torch-' if a.torch else ''}{case}",
                     f"{value:.4g}", unit, f"{baseline:.4g}" if baseline else "", f"{value / baseline:.4f}" if baseline else "", note])

    for mode in a.modes.split(","):
        slower, real, step_s = measure(a, root, mode)
        note = f"codec={a.codec} H={a.every} site={slower} step={step_s[slower]:.3f}s"
        print(f"{mode:11s} real                utilisation {real['utilisation']:6.2f} %   exchange {real['exchange']:.3f} s   "
              f"run {real['run']:.2f} s   step {step_s[slower]:.3f} s", flush=True)
        row(mode, real["utilisation"], "%", note=note + f" exchange={real['exchange']:.3f}s")
        for name, sim in (simulated(a, root, mode, slower, step_s) if a.sim else {}).items():
            ratio = {k: sim[k] / real[k] for k in sim}
            print(f"{mode:11s} simulated {name:9s} utilisation {sim['utilisation']:6.2f} %   exchange {sim['exchange']:.3f} s   "
                  f"run {sim['run']:.2f} s   ratios {ratio['utilisation']:.3f} {ratio['exchange']:.3f} {ratio['run']:.3f}", flush=True)
            for what, unit in (("utilisation", "%"), ("exchange", "s"), ("run", "s")):
                row(f"{mode} {what} simulated ({name})", sim[what], unit, real[what], note)
    if a.csv:
        with open(a.csv, "a", newline="") as f:
            csv.writer(f, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
