#!/usr/bin/env python3
"""Held-out loss at equal tokens: two and four sites, H = 20 and 50, codec f32 / int8 / int4, beside synchronous
data-parallel of the same global batch and beside one site alone.

Every row is real: `atoll serve` and `atoll train` as processes over mutual TLS on loopback, real text. The model is small
(byte vocabulary, 4 layers of width 128) so that the table takes under 40 minutes on two cores; all rows use the same inner
optimizer, learning rate, schedule, steps and tokens per site. "synchronous" is one site whose batch is the sites' batches
together, reading all their shards. Prints a Markdown table, writes one CSV row per run.

    tests/bench/loss_table.py --atoll build/bin/atoll --text gcide.txt --dir /tmp/loss --csv tests/bench/loss.csv
    tests/bench/loss_table.py ... --only 2-20-int8      one row;   --steps 100   a quick look
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import platform
import signal
import socket
import subprocess
import sys
import time

MODEL = ["--model.layers", "4", "--model.width", "128", "--model.heads", "4", "--model.context", "128"]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--atoll", required=True)
    p.add_argument("--text", required=True)
    p.add_argument("--dir", required=True)
    p.add_argument("--csv")
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--batch", type=int, default=2048, help="tokens of one site's step")
    p.add_argument("--lr", default="0.015")
    p.add_argument("--seed", default="1")
    p.add_argument("--outer-lr", default="0.7")
    p.add_argument("--momentum", default="0.9")
    p.add_argument("--only", default="", help="names of rows, separated by commas")
    return p.parse_args()


def run(command, log):
    with open(log, "ab") as out:
        return subprocess.Popen([str(c) for c in command], stdout=out, stderr=out, stdin=subprocess.DEVNULL)


def check(command, log):
    if run(command, log).wait():
        sys.exit(f"failed: {' '.join(map(str, command))}; see {log}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def prepare(a, root, sites):
    data = root / f"data-{sites}"
    if not (data / "done").exists():
        check([a.atoll, "data", a.text, "--out", data, "--sites", sites], root / "data.log")
        (data / "done").touch()
    return data


def shards(data, site=None):
    """Training shards of one site (from 0), or of all."""
    return f"{data}/train-{'*' if site is None else site}-*.bin"


def common(a, data, batch, name):
    return MODEL + ["--run.name", name, "--run.seed", a.seed, "--data.eval", f"{data}/eval-*.bin",
                    "--train.steps", a.steps, "--train.batch_tokens", batch, "--train.sequence", 128,
                    "--train.optimizer", "lamb", "--train.lr", a.lr, "--train.warmup", max(1, a.steps // 10),
                    "--train.checkpoint_every", 0, "--train.eval_tokens", 65536, "--device.dtype", "f32",
                    "--log.progress", "none"]


def held_out(directory):
    loss = None
    sent = 0
    for line in open(directory / "metrics.jsonl"):
        row = json.loads(line)
        if row["kind"] == "eval":
            loss = row["loss"]
        if row["kind"] == "round":
            sent += row["up"]
    return loss, sent


def alone(a, root, name, data, which, batch):
    """One site without an outer loop, on both cores."""
    out = root / name
    check([a.atoll, "train", "--run.dir", out, "--data.train", which, "--device.threads", 2]
          + common(a, data, batch, "alone"), root / f"{name}.log")
    return held_out(out)[0], 0


def together(a, root, name, sites, every, codec):
    data = prepare(a, root, sites)
    names = list("abcd")[:sites]
    tls = root / f"{name}-tls"
    log = root / f"{name}.log"
    port = free_port()
    check([a.atoll, "cert", "authority", "--run", name, "--dir", tls], log)
    check([a.atoll, "cert", "issue", "--role", "aggregator", "--name", "aggregator", "--host", "localhost",
           "--dir", tls], log)
    for n in names:
        check([a.atoll, "cert", "issue", "--role", "site", "--name", n, "--dir", tls], log)
    shared = common(a, data, a.batch, name) + [
        "--outer.sites", ",".join(names), "--outer.every", every, "--outer.codec", codec,
        "--outer.lr", a.outer_lr, "--outer.momentum", a.momentum, "--tls.dir", tls]
    serve = run([a.atoll, "serve", "--serve.dir", root / f"{name}-agg", "--serve.listen", f"127.0.0.1:{port}"]
                + shared, log)
    jobs = [run([a.atoll, "train", "--site.name", n, "--run.dir", root / f"{name}-{n}", "--site.aggregator",
                 f"127.0.0.1:{port}", "--site.aggregator_name", "localhost", "--device.threads", 1,
                 "--data.train", shards(data, i)] + shared, root / f"{name}-{n}.log")
            for i, n in enumerate(names)]
    bad = [n for n, j in zip(names, jobs) if j.wait()]
    if bad:
        serve.send_signal(signal.SIGTERM)
        sys.exit(f"{name}: site {bad} failed; see {root}/{name}-{bad[0]}.log")
    serve.wait()
    return held_out(root / f"{name}-a")


def main():
    a = arguments()
    root = pathlib.Path(a.dir)
    root.mkdir(parents=True, exist_ok=True)
    a.atoll = str(pathlib.Path(a.atoll).resolve())
    os.environ["OMP_WAIT_POLICY"] = "passive"
    rows = [("alone", lambda: alone(a, root, "alone", prepare(a, root, 2), shards(prepare(a, root, 2), 0), a.batch))]
    for n in (2, 4):
        rows.append((f"sync-{n}", lambda n=n: alone(a, root, f"sync-{n}", prepare(a, root, n),
                                                    shards(prepare(a, root, n)), n * a.batch)))
        for every in (20, 50):
            for codec in ("f32", "int8", "int4"):
                rows.append((f"{n}-{every}-{codec}", lambda n=n, e=every, c=codec:
                             together(a, root, f"{n}-{e}-{c}", n, e, c)))
    wanted = [w for w in a.only.split(",") if w]
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    results = {}
    for name, job in rows:
        if wanted and name not in wanted:
            continue
        start = time.time()
        loss, sent = job()
        results[name] = loss
        print(f"{name:10s} held-out {loss:.4f}  payload up {sent / 1e6:8.2f} MB a site  {time.time() - start:5.0f} s",
              flush=True)
        if a.csv:
            new = not os.path.exists(a.csv)
            with open(a.csv, "a", newline="") as f:
                w = csv.writer(f)
                if new:
                    w.writerow(["date", "machine", "commit", "row", "steps", "tokens_per_site", "lr", "seed",
                                "held_out_loss", "payload_up_bytes_per_site"])
                w.writerow([datetime.date.today(), platform.processor() or platform.machine(), commit, name, a.steps,
                            a.steps * a.batch, a.lr, a.seed, f"{loss:.5f}", sent])
    table(results)


def table(r):
    def cell(name, reference):
        if name not in r:
            return "-"
        return f"{r[name]:.4f} ({100 * (r[name] / r[reference] - 1):+.2f} %)" if reference in r else f"{r[name]:.4f}"
    print("\n| sites | H | f32 | int8 | int4 | synchronous, same global batch | one site alone |")
    print("|---|---|---|---|---|---|---|")
    for n in (2, 4):
        for every in (20, 50):
            cells = " | ".join(cell(f"{n}-{every}-{c}", f"sync-{n}") for c in ("f32", "int8", "int4"))
            print(f"| {n} | {every} | {cells} | {cell(f'sync-{n}', 'none')} | {cell('alone', f'sync-{n}')} |")
    print("\nPercentages: against the synchronous run of the same global batch.")


main()
