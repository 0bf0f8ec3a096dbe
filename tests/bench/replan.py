#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""outer.replan in a real run: a preset of `atoll wan` whose rates halve in mid-run, and training's share of the time by round.

    tests/bench/replan.py --atoll build/bin/atoll --text gcide.txt --dir /tmp/replan [--wan 4g_hospital] [--csv tests/bench/results.csv]

Real processes as in utilisation.py: `atoll serve` and two `atoll train` at the places of the emulated network. A short run says
what a step and an exchange take; then outer.sync_every is what leaves training --share of the time, and all rates halve after --before
rounds. The same run is repeated over loopback, with the amendments that were recorded given before the first step and without
outer.replan: its SHA-256s must be the same. Minutes; both sites and the network share this machine's cores.
"""
import argparse
import csv
import datetime
import json
import math
import os
import pathlib
import platform
import re
import socket
import statistics
import subprocess
import sys
import time

from utilisation import NODES, check


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--atoll", required=True)
    p.add_argument("--text", required=True)
    p.add_argument("--dir", required=True)
    p.add_argument("--wan", default="4g_hospital", help="a preset or a topology's file")
    p.add_argument("--share", type=float, default=0.962)
    p.add_argument("--overlap", type=int, default=0)
    p.add_argument("--fragments", type=int, default=1)
    p.add_argument("--batch", type=int, default=512, help="tokens of a site's step")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--width", type=int, default=96)
    p.add_argument("--before", type=float, default=5.4, help="rounds before the rates halve")
    p.add_argument("--after", type=int, default=3, help="about this number of longer ones")
    p.add_argument("--csv")
    return p.parse_args()


def prepare(a, root):
    check([a.atoll, "data", a.text, "--out", root / "data", "--sites", 2, "--seq-len", 128, "--force"], root / "data.log")
    subprocess.call(["rm", "-rf", str(root / "tls")])
    check([a.atoll, "cert", "authority", "--run", "replan", "--dir", root / "tls"], root / "cert.log")
    for role in (["aggregator", "--host", "localhost"], ["site", "--name", "a"], ["site", "--name", "b"], ["operator"]):
        check([a.atoll, "cert", "issue", "--role", *role, "--dir", root / "tls"], root / "cert.log")


def settings(a, root, every, steps, replan):
    return ["--run.name", "replan", "--model.layers", a.layers, "--model.d_model", a.width, "--model.heads", 4, "--model.max_seq_len", 128,
            "--data.eval", f"{root}/data/eval-*.bin", "--train.steps", steps, "--train.batch_tokens", a.batch, "--train.seq_len", 128,
            "--train.eval_tokens", 128, "--train.checkpoint_every", 1000000, "--device.dtype", "f32", "--device.threads", 1,
            "--outer.sites", "a,b", "--outer.sync_every", every, "--outer.fragments", a.fragments, "--outer.codec", "int8",
            "--outer.overlap_steps", a.overlap, "--outer.replan", "true" if replan else "false", "--tls.dir", root / "tls",
            "--log.progress", "none"]


def halving(a, root, later_s):
    """The preset's text, in which each rate halves at that time."""
    text = subprocess.run([a.atoll, "wan", "--topology", a.wan, "--print"], capture_output=True, text=True, check=True).stdout
    text = re.sub(r"(?m)^  rate_mbit: (\S+)$", lambda m: f"{m[0]}\n  later_s: {later_s:.1f}\n  later_rate_mbit: {float(m[1]) / 2:g}",
                  text)
    (root / "halving.yaml").write_text(text)
    return root / "halving.yaml"


def environment(a, root, out, shared):
    subprocess.call(["rm", "-rf", str(out)])
    out.mkdir()
    os.environ.update(ATOLL=a.atoll, DIR=str(out), DATA=str(root / "data"), OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1",
                      SHARED=" ".join(map(str, shared)))


def over(a, root, out, topology, shared):
    environment(a, root, out, shared)
    check([a.atoll, "wan", "--topology", topology, "--sites", "a,b,aggregator", "--logs", out, "--", "sh", "-c", NODES],
          out / "wan.log")


def rows_of(path, kind):
    return [row for row in map(json.loads, open(path)) if row["kind"] == kind]


def by_round(out, fragments):
    """(round, steps, share, seconds in steps, seconds waited, end) of the slower site, from one round of fragment 0 to the next."""
    def of(site):
        found, trained, waited = [], 0, 0
        for row in rows_of(out / site / "metrics.jsonl", "round"):
            trained += row["compute_ms"] / 1e3
            waited += (row["gather_ms"] + row["exposed_ms"] + row["mix_ms"]) / 1e3
            if row["fragment"] == 0:
                found.append((row["round"], row["trained"], trained / (trained + waited), trained, waited, row["t"]))
                trained = waited = 0
        return found
    return max((of("a"), of("b")), key=lambda found: sum(r[3] for r in found))


def finals(out):
    return [{k: rows_of(out / site / "metrics.jsonl", "final")[-1][k] for k in ("parameters", "momentum", "residual")} for site in "ab"]


def calibrate(a, root):
    """Seconds of a step and of what training waits in a round."""
    over(a, root, root / "short", a.wan, settings(a, root, 12 * a.fragments, 72 * a.fragments, False))
    rounds = by_round(root / "short", a.fragments)[2:-1]
    step_s = sum(r[3] for r in rounds) / sum(r[1] for r in rounds)
    return step_s, statistics.median(r[4] for r in rounds)


def replayed(a, root, every, steps, amendments):
    """The same run over loopback, which is given the amendments before its first step."""
    out = root / "replayed"
    environment(a, root, out, settings(a, root, every, steps, False))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    shared = os.environ["SHARED"].split()
    serve = subprocess.Popen([a.atoll, "serve", "--serve.dir", out / "aggregator", "--serve.listen", listen, *shared],
                             stdout=open(out / "aggregator.log", "w"), stderr=subprocess.STDOUT)
    while "ev=listening" not in (out / "aggregator.log").read_text():
        time.sleep(0.1)
        if serve.poll() is not None:
            sys.exit(f"atoll serve has ended; see {out}")
    for row in amendments:
        key, value = row["setting"].split("=")
        check([a.atoll, "operator", "set", key, value, "--at-round", int(row["from_round"]), "--aggregator", listen,
               "--aggregator-name", "localhost", "--tls", root / "tls"], root / "operator.log")
    sites = [subprocess.Popen([a.atoll, "train", "--site.name", site, "--run.dir", out / site, "--site.aggregator", listen,
                               "--site.aggregator_name", "localhost", "--data.train", f"{root}/data/train-{n}-*.bin", *shared],
                              stdout=open(out / f"{site}.log", "w"), stderr=subprocess.STDOUT) for n, site in enumerate("ab")]
    codes = [p.wait() for p in (*sites, serve)]
    if any(codes):
        sys.exit(f"the replayed run ended with {codes}; see {out}")
    return finals(out)


def main():
    a = arguments()
    root = pathlib.Path(a.dir).resolve()
    root.mkdir(parents=True, exist_ok=True)
    a.atoll = str(pathlib.Path(a.atoll).resolve())
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    prepare(a, root)
    step_s, waits_s = calibrate(a, root)
    every = math.ceil(waits_s / step_s * a.share / (1 - a.share) / a.fragments) * a.fragments
    round_s = every * step_s + waits_s
    steps = every * (math.ceil(a.before) + 2 + 3 * a.after)
    print(f"a step {step_s:.4f} s, waiting {waits_s:.3f} s a round: outer.sync_every {every}, {steps} steps", flush=True)
    out = root / "run"
    over(a, root, out, halving(a, root, a.before * round_s), settings(a, root, every, steps, True))
    amendments = rows_of(out / "aggregator" / "metrics.jsonl", "amendment")
    rounds = by_round(out, a.fragments)
    began = rounds[0][5] - rounds[0][3] - rounds[0][4]
    halved = next(r[0] for r in rounds if r[5] >= began + a.before * round_s)
    for number, trained, share, trained_s, waited_s, _ in rounds:
        print(f"round {number:3d}  steps {trained:4d}  in steps {trained_s:7.2f} s  waited {waited_s:6.2f} s  utilisation {100 * share:5.1f} %"
              + ("  <- the rates halve" if number == halved else ""))
    for row in amendments:
        print("amendment", row["number"], row["setting"], "from round", row["from_round"], {k: row.get(k) for k in ("share", "waited_s")})
    same = replayed(a, root, every, steps, amendments) == finals(out)
    print("replayed with the amendments given: the SHA-256s are", "the same" if same else "DIFFERENT")
    rounds.pop()  # in full precision
    cases = {"before": [r[2] for r in rounds[1:halved]]}
    cases.update({f"round {k}": [r[2] for r in rounds if r[0] == halved + k] for k in (1, 2, 3, 4)})
    note = f"H={every} step={step_s:.4f}s overlap={a.overlap} fragments={a.fragments} same={same} " + \
        " ".join(f"{r['setting']}@{r['from_round']}" for r in amendments)
    for case, shares in cases.items():
        print(f"{case:9s} {100 * statistics.mean(shares):6.2f} %" if shares else f"{case:9s} -")
    if a.csv:
        with open(a.csv, "a", newline="") as f:
            csv.writer(f, lineterminator="\n").writerows(
                [datetime.date.today(), platform.processor() or platform.machine(), commit, "replan", f"{pathlib.Path(a.wan).stem}-halved {case}",
                 f"{100 * statistics.mean(shares):.4g}", "%", "", "", note] for case, shares in cases.items() if shares)
    sys.exit(0 if same and amendments else 1)


if __name__ == "__main__":
    main()
