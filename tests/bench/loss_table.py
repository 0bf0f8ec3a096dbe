#!/usr/bin/env python3
"""Held-out loss at equal tokens a site: any exchange beside synchronous data-parallel of the same global batch and beside one
site alone.

A row is named SITES-H-CODEC with any further settings behind it, +section.key=value each:
    2-20-int4    4-50-topk    2-20-int4+outer.overlap_steps=5    sync-4    alone
Every row is real: `atoll serve` and `atoll train` as processes over mutual TLS on loopback, real text. All rows of one model use
the same inner optimizer, learning rate, schedule, steps and tokens per site. "sync-N" is one site whose batch is the N sites'
batches together, reading all their shards. Rows that the CSV holds already (same model, steps, batch, lr, seed) are not run
again. Prints a Markdown table, appends one CSV row per run.

    tests/bench/loss_table.py --atoll build/bin/atoll --text gcide.txt --dir /tmp/loss --csv tests/bench/loss.csv
    tests/bench/loss_table.py ... --model 10m --rows 2-20-f32,2-20-int4        some rows;   --steps 100   a quick look
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

MODELS = {  # layers, width, heads: bytes as vocabulary, context 128
    "200k": (4, 64, 2),  # 0.2 M parameters
    "1m": (4, 128, 4),   # 0.8 M parameters
    "10m": (6, 384, 6),  # 10.8 M parameters
}
CODECS = ("f32", "bf16", "fp8_e5m2", "fp8_e4m3", "int8", "int4", "e3m0", "int2", "sign", "topk")
ROWS = (["alone", "sync-2"] + [f"2-20-{c}" for c in CODECS] + [f"2-{h}-{c}" for h in (50, 100) for c in ("f32", "int4")]
        + ["sync-4", "4-20-f32", "4-20-int4", "sync-8", "8-20-f32", "8-20-int4"]
        + [f"2-20-{c}+outer.overlap_steps={t}" for c in ("f32", "int4") for t in (1, 5)])
COLUMNS = ["date", "machine", "commit", "model", "row", "steps", "tokens_per_site", "lr", "seed", "held_out_loss",
           "payload_up_bytes_per_site"]


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
    p.add_argument("--model", default="1m", choices=MODELS)
    p.add_argument("--dtype", default="f32", choices=("f32", "bf16"), help="of the inner steps")
    p.add_argument("--rows", default=",".join(ROWS), help="names of rows, separated by commas")
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
    layers, width, heads = MODELS[a.model]
    return ["--model.layers", layers, "--model.width", width, "--model.heads", heads, "--model.context", 128,
            "--run.name", name, "--run.seed", a.seed, "--data.eval", f"{data}/eval-*.bin",
                    "--train.steps", a.steps, "--train.batch_tokens", batch, "--train.sequence", 128,
                    "--train.optimizer", "lamb", "--train.lr", a.lr, "--train.warmup", max(1, a.steps // 10),
                    "--train.checkpoint_every", 0, "--train.eval_tokens", 65536, "--device.dtype", a.dtype,
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


def together(a, root, name, sites, every, codec, more):
    data = prepare(a, root, sites)
    names = list("abcdefgh")[:sites]
    tls = root / f"{name}-tls"
    log = root / f"{name}.log"
    port = free_port()
    check([a.atoll, "cert", "authority", "--run", "table", "--dir", tls], log)
    check([a.atoll, "cert", "issue", "--role", "aggregator", "--name", "aggregator", "--host", "localhost",
           "--dir", tls], log)
    for n in names:
        check([a.atoll, "cert", "issue", "--role", "site", "--name", n, "--dir", tls], log)
    shared = common(a, data, a.batch, "table") + [
        "--outer.sites", ",".join(names), "--outer.every", every, "--outer.codec", codec,
        "--outer.lr", a.outer_lr, "--outer.momentum", a.momentum, "--tls.dir", tls] + more
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


def key(a, name):
    """What makes a row of the CSV the same experiment."""
    model = a.model if a.dtype == "f32" else f"{a.model}-{a.dtype}"
    return (model, name, str(a.steps), str(a.steps * a.batch), a.lr, a.seed)


def known(a):
    """Rows that were run before -> (loss, bytes)."""
    rows = {}
    if a.csv and os.path.exists(a.csv):
        for r in csv.DictReader(open(a.csv)):
            rows[tuple(r[c] for c in ("model", "row", "steps", "tokens_per_site", "lr", "seed"))] = (
                float(r["held_out_loss"]), int(r["payload_up_bytes_per_site"]))
    return rows


def measure(a, root, name):
    if name == "alone":
        data = prepare(a, root, 2)
        return alone(a, root, name, data, shards(data, 0), a.batch)
    if name.startswith("sync-"):
        n = int(name[5:])
        data = prepare(a, root, n)
        return alone(a, root, name, data, shards(data), n * a.batch)
    plain, *settings = name.split("+")
    sites, every, codec = plain.split("-")
    more = [x for s in settings for x in ("--" + s.split("=")[0], s.split("=")[1])]
    return together(a, root, name, int(sites), int(every), codec, more)


def main():
    a = arguments()
    root = pathlib.Path(a.dir)
    root.mkdir(parents=True, exist_ok=True)
    a.atoll = str(pathlib.Path(a.atoll).resolve())
    os.environ["OMP_WAIT_POLICY"] = "passive"
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    done, results = known(a), {}
    for name in a.rows.split(","):
        start = time.time()
        fresh = key(a, name) not in done
        loss, sent = measure(a, root, name) if fresh else done[key(a, name)]
        results[name] = loss, sent
        print(f"{name:32s} held-out {loss:.4f}  payload up {sent / 1e6:8.2f} MB a site  {time.time() - start:5.0f} s",
              flush=True)
        if a.csv and fresh:
            new = not os.path.exists(a.csv)
            with open(a.csv, "a", newline="") as f:
                w = csv.writer(f, lineterminator="\n")
                if new:
                    w.writerow(COLUMNS)
                w.writerow([datetime.date.today(), platform.processor() or platform.machine(), commit, *key(a, name),
                            f"{loss:.5f}", sent])
    table(results)


def table(r):
    """Each row beside synchronous training of the same global batch, and beside f32 of the same sites and H."""
    def against(loss, reference):
        return f"{100 * (loss / r[reference][0] - 1):+.2f} %" if reference in r else "-"
    print("\n| row | held-out loss | against synchronous | against f32 | payload up, MB a site |\n|---|---|---|---|---|")
    for name, (loss, sent) in r.items():
        part = name.split("+")[0].split("-")
        sites, f32 = ("sync-" + part[0], f"{part[0]}-{part[1]}-f32") if len(part) == 3 else ("sync-2", "")
        print(f"| {name} | {loss:.4f} | {against(loss, sites)} | {against(loss, f32)} | {sent / 1e6:.1f} |")


main()
