#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch trainers as sites of a run: each example of this folder next to `atoll train` (or next to itself, where Atoll does not have
the model), over mutual TLS. Both sites must end in the same outer state, with and without `kill -9` of the Python site, and each
round's state must be the aggregator's.

    tests/python.sh [CASE...]        what installs PyTorch and calls this
    check.py ATOLL SCRATCH CSV [CASE...]

What was seen is added to CSV: date, machine, commit, case, rounds, equal, and the seconds and shares of the site.
"""
import csv
import datetime
import glob
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODEL = {"vocab": 256, "layers": 2, "heads": 2, "width": 32, "context": 64}
BERT = {**MODEL, "vocab": 320, "types": 2, "embed_norm": True, "norm_place": "post", "norm_eps": 1e-12, "head": "mlm",
        "causal": False, "activation": "gelu_erf"}
LLAMA = {**MODEL, "positions": "rope", "norm": "rms", "norm_eps": 1e-6, "activation": "swiglu", "mlp": 96, "bias": False,
         "tied": False}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
OVERLAP = {"outer": {"fragments": 2, "overlap_steps": 3}}
CASES = {  # script, words of the interpreter before it, model, what differs in the configuration
    "gpt": ("gpt.py", [], MODEL, {}),
    "gpt-overlap": ("gpt.py", [], MODEL, OVERLAP),
    "ddp": ("gpt.py", TORCHRUN, MODEL, {}),
    "bert": ("bert.py", [], BERT, {"data": {"tokenizer": "external", "objective": "mlm"}}),
    "lightning": ("lit.py", [], MODEL, {}),
    "fsdp": ("fsdp.py", TORCHRUN, LLAMA, {}),
    "fsdp-overlap": ("fsdp.py", TORCHRUN, LLAMA, OVERLAP),
    "grpc-before": ("grpc_too.py", [], MODEL, {}),
    "grpc-after": ("grpc_too.py", ["-X", "after"], MODEL, {}),
    "experts": ("experts.py", [], None, {}),
}


def yaml_of(sections):
    def value(x):
        return str(x).lower() if isinstance(x, bool) else "[" + ", ".join(map(value, x)) + "]" if isinstance(x, list) else str(x)
    return "".join(f"{name}:\n" + "".join(f"  {key}: {value(x)}\n" for key, x in keys.items()) for name, keys in sections.items())


def port_free():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Case:
    def __init__(self, name, atoll, scratch):
        self.name, self.atoll = name, atoll
        self.script, self.words, self.model, self.more = CASES[name]
        self.folder = pathlib.Path(scratch) / name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.processes = []

    def call(self, *words):
        done = subprocess.run([self.atoll, *words], cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{self.name}: atoll {' '.join(words)}: {done.stderr}")
        return done.stdout

    def prepare(self):
        port = port_free()
        text = b"".join(pathlib.Path(p).read_bytes() for p in sorted(glob.glob(str(ROOT / "tests/golden/text/*.txt"))))
        (self.folder / "text.txt").write_bytes(text)
        sections = {"run": {"name": "python", "seed": 7}, "outer": {"sites": ["a", "b"], "every": 10, "codec": "int4"},
                    "model": dict(self.model or {}), "data": {"tokenizer": "bytes"},
                    "train": {"steps": 60, "batch_tokens": 512, "sequence": 64, "lr": 0.003, "checkpoint_every": 10},
                    "device": {"kind": "cpu", "dtype": "f32", "threads": 1},
                    "site": {"aggregator": f"127.0.0.1:{port}", "aggregator_name": "localhost"}, "tls": {"dir": "tls"},
                    "serve": {"listen": f"127.0.0.1:{port}", "dir": "aggregator"}}
        for section, keys in self.more.items():
            sections[section].update(keys)
        if self.model is None:
            subprocess.run([sys.executable, HERE / self.script, "--table", "tensors.json"], cwd=self.folder, check=True)
            sections["model"] = {"tensors": "tensors.json"}
        elif sections["data"]["tokenizer"] == "external":
            self.call("data", "--tokenizer", "wordpiece", "--learn", "300", "--out", "data", "--sites", "2", "--seq-len", "64",
                      "--split-sentences", "text.txt")
            found = re.search(r'"sha256": *"([0-9a-f]+)"', (self.folder / "data/data.json").read_text())
            sections["data"]["tokenizer_sha256"] = found.group(1)
        else:
            self.call("data", "--out", "data", "--sites", "2", "--seq-len", "64", "text.txt")
        (self.folder / "run.yaml").write_text(yaml_of(sections))
        self.call("cert", "authority", "--run", "python", "--dir", "tls")
        self.call("cert", "issue", "--role", "aggregator", "--host", "localhost,127.0.0.1", "--dir", "tls")
        for site in "ab":
            self.call("cert", "issue", "--role", "site", "--name", site, "--dir", "tls")

    def start(self, log, words):
        with open(self.folder / log, "a") as out:
            p = subprocess.Popen([str(w) for w in words], cwd=self.folder, stdout=out, stderr=subprocess.STDOUT,
                                 start_new_session=True)
        self.processes.append(p)
        return p

    def start_python(self, site, log):
        return self.start(log, [sys.executable, *self.words, HERE / self.script, "run.yaml", "text.txt", f"out-{site}",
                                f"site.name={site}", f"run.dir={site}"])

    def rounds(self, log):
        """{(fragment, round): state} that a site's log has."""
        text = (self.folder / log).read_text() if (self.folder / log).exists() else ""
        return {(int(f), int(r)): s for f, r, s in re.findall(r"ev=round .*fragment=(\d+) round=(\d+) .*state=([0-9a-f]{16})", text)}

    def run(self, kills):
        for old in ("a", "b", "aggregator"):
            shutil.rmtree(self.folder / old, ignore_errors=True)
        for old in list(self.folder.glob("out-*")) + list(self.folder.glob("*.log")):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        serve = self.start("serve.log", [self.atoll, "serve", "--config", "run.yaml"])
        other = (self.start_python("a", "a.log") if self.model is None else
                 self.start("a.log", [self.atoll, "train", "--config", "run.yaml", "--site.name", "a", "--run.dir", "a",
                                      "--data.train", "data/train-0-*.bin", "--log.progress", "none"]))
        for _ in range(kills):
            site, seen = self.start_python("b", "b.log"), len(self.rounds("b.log"))
            while site.poll() is None and len(self.rounds("b.log")) <= seen:
                time.sleep(0.01)
            if site.poll() is None:
                os.killpg(site.pid, signal.SIGKILL)
            site.wait()
        site = self.start_python("b", "b.log")
        for p, who in ((site, "site b"), (other, "site a"), (serve, "the aggregator")):
            if p.wait(timeout=600):
                sys.exit(f"{self.name}: {who} ended with {p.returncode}; see {self.folder}")
        said = (self.folder / "b.log").read_text()
        mine = re.findall(r"outer state ([0-9a-f]{64})", said)[-1]
        logs = (self.folder / "a.log").read_text() + (self.folder / "serve.log").read_text()
        committed = {(int(f), int(r)): s for f, r, s in re.findall(r"ev=commit fragment=(\d+) round=(\d+) .*state=([0-9a-f]{16})", logs)}
        states = self.rounds("b.log")
        if mine not in logs:
            sys.exit(f"{self.name}: site b ends in outer state {mine}, and no other site does; see {self.folder}")
        wrong = [key for key, state in states.items() if committed.get(key) != state]
        if wrong or not kills and len(committed) != len(states):
            sys.exit(f"{self.name}: rounds {wrong} differ from the aggregator's, {len(states)} of {len(committed)} seen; {self.folder}")
        return mine, len(states), said

    def close(self):
        for p in self.processes:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)


def main():
    atoll, scratch, results = map(os.path.abspath, sys.argv[1:4])
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True).stdout.strip()
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    machine = f"{os.cpu_count()} x {cpu.group(1) if cpu else 'unknown'}".replace(",", " ")
    for name in sys.argv[4:] or CASES:
        case = Case(name, atoll, scratch)
        try:
            case.prepare()
            plain, rounds, said = case.run(0)
            killed, _, _ = case.run(3)
        finally:
            case.close()
        if killed != plain:
            sys.exit(f"{name}: kill -9 changes the outer state: {plain} without, {killed} with; see {case.folder}")
        print(f"{name}: {rounds} rounds, all states equal; the same after three kills: {plain[:16]}")
        with open(results, "a", newline="") as out:
            csv.writer(out, lineterminator="\n").writerow([datetime.datetime.now().isoformat(timespec="seconds"), machine, commit, name,
                                                           rounds, 3, plain[:16]])


main()
