#!/usr/bin/env python3
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
exec $ATOLL train --site.name {site} --run.dir $DIR/{site} --site.aggregator {address:aggregator}:7443 \\
    --site.aggregator_name localhost --data.train "$DATA/train-$n-*.bin" $SHARED
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
    p.add_argument("--csv")
    return p.parse_args()


def check(command, log):
    with open(log, "ab") as out:
        if subprocess.call([str(c) for c in command], stdout=out, stderr=out, stdin=subprocess.DEVNULL):
            sys.exit(f"failed: {' '.join(map(str, command))[:200]}; see {log}")


def prepare(a, root):
    if not (root / "data" / "done").exists():
        check([a.atoll, "data", a.text, "--out", root / "data", "--sites", 2, "--sequence", 128, "--force"], root / "data.log")
        check([a.atoll, "cert", "authority", "--run", "utilisation", "--dir", root / "tls"], root / "cert.log")
        check([a.atoll, "cert", "issue", "--role", "aggregator", "--host", "localhost", "--dir", root / "tls"], root / "cert.log")
        for site in "ab":
            check([a.atoll, "cert", "issue", "--role", "site", "--name", site, "--dir", root / "tls"], root / "cert.log")
        (root / "data" / "done").touch()


def share(metrics, parts):
    """Training's share of the time, and the median step and exchange in seconds."""
    rows = [json.loads(line) for line in open(metrics)]
    steps = [r["step_ms"] for r in rows if r["kind"] == "step"]
    rounds = [r for r in rows if r["kind"] == "round"][parts:-parts]
    wall = 1e3 * (rounds[-1]["t"] - rounds[0]["t"])
    trained = sum(r["compute_ms"] for r in rounds[1:])
    exchange = [sum(r[k] for k in ("encode_ms", "store_ms", "send_ms", "wait_ms", "fetch_ms", "apply_ms")) for r in rounds[1:]]
    return trained / wall, sorted(steps)[len(steps) // 2] / 1e3, sorted(exchange)[len(exchange) // 2] / 1e3


def measure(a, root, mode):
    parts, tau = MODES[mode]
    out = root / mode
    if out.exists():
        subprocess.call(["rm", "-rf", str(out)])
    out.mkdir()
    shared = ["--run.name", "utilisation", "--model.layers", a.layers, "--model.width", a.width, "--model.heads", 6,
              "--model.context", 128, "--data.eval", f"{root}/data/eval-*.bin", "--train.steps", a.every * a.rounds,
              "--train.batch_tokens", a.batch, "--train.sequence", 128, "--train.eval_tokens", 128,
              "--train.checkpoint_every", 1000000, "--device.dtype", "bf16", "--device.threads", 1, "--outer.sites", "a,b",
              "--outer.every", a.every, "--outer.fragments", parts, "--outer.codec", a.codec,
              "--outer.overlap_steps", a.every if tau is None else tau, "--tls.dir", root / "tls", "--log.progress", "none"]
    os.environ.update(ATOLL=a.atoll, DIR=str(out), DATA=str(root / "data"), SHARED=" ".join(map(str, shared)),
                      OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1")
    check([a.atoll, "wan", "--topology", a.wan, "--sites", "a,b,aggregator", "--logs", out, "--", "sh", "-c", NODES],
          out / "wan.log")
    return max((share(out / site / "metrics.jsonl", parts) for site in "ab"), key=lambda x: x[0])


def main():
    a = arguments()
    root = pathlib.Path(a.dir).resolve()
    root.mkdir(parents=True, exist_ok=True)
    a.atoll = str(pathlib.Path(a.atoll).resolve())
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    prepare(a, root)
    for mode in a.modes.split(","):
        trained, step, exchange = measure(a, root, mode)
        print(f"{mode:11s} utilisation {100 * trained:6.2f} %   step {step:.3f} s   exchange {exchange:.3f} s", flush=True)
        if a.csv:
            with open(a.csv, "a", newline="") as f:
                csv.writer(f, lineterminator="\n").writerow(
                    [datetime.date.today(), platform.processor() or platform.machine(), commit, "utilisation",
                     f"{a.wan}-{mode}", f"{100 * trained:.2f}", "%", "", "",
                     f"codec={a.codec} H={a.every} step={step:.3f}s exchange={exchange:.3f}s"])


main()
