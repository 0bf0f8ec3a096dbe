# SPDX-License-Identifier: Apache-2.0
"""Runs what a row names and measures it. A finished run leaves done.json in its folder and is not run again while its settings are
the same."""
import collections
import ctypes
import datetime
import hashlib
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import time

from data import REPOSITORY, command
from expression import REDUCTIONS, Bad, Missing, Sample

HERE = pathlib.Path(__file__).parent
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
       "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def end_with_parent():
    """In a process that starts: it ends when the one that started it is killed, and writes no more where the next try begins."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def first_names():
    """{name of a key, or of a value "key: value": the one it had first}. A digest is of these: a key that gets another name leaves
    recorded runs what they are."""
    page = (REPOSITORY / "docs/configuration.md").read_text(encoding="utf-8")
    return {now: before for before, now in re.findall(r"^\| `([a-z0-9_]+\.[^`]+)` \| `([a-z0-9_]+\.[^`]+)` \|$", page, flags=re.M)}


def under_first_names(words):
    """Arguments `--section.key value`."""
    names, found = first_names(), []
    for key, value in zip(words[::2], words[1::2]):
        key = key.removeprefix("--")
        found += ["--" + names.get(key, key), names.get(f"{key}: {value}", f": {value}").partition(": ")[2]]
    return found


def processor_seconds():
    """Of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Job:
    """One run with one seed."""

    def __init__(self, runner, row, name, seed, quick):
        self.runner, self.row, self.name, self.seed, self.quick = runner, row, name, seed, quick
        self.settings = row.settings(name, quick)
        self.program = self.settings.get("program")
        self.folder = runner.root / ("quick" if quick else "runs") / row.place / (name if seed is None else f"{name}-{seed}")
        self.atoll, self.build = runner.atoll, runner.build
        self.processes = []

    def sibling(self, name):
        """Another run of the same kind: what this one starts from."""
        return self.runner.job(self.row, name, self.seed, self.quick)

    def environment(self):
        return {}

    # ---- settings of atoll ----
    def words(self):
        """Arguments that all processes of the run share, and data.train of each site."""
        s = self.settings
        self.sites, self.ranks = int(s.get("sites", 1)), int(s.get("ranks", 1))
        shared, train = self.runner.data.shards(s.get("data", "bytes"), int(s.get("of", self.sites)))
        if s.get("parts") == "all":
            train = [train[0].replace("train-0-", "train-*-")] * self.sites
        labels = shared.get("data.objective") == "labels"
        shared |= {k: v for k, v in s.items() if "." in k} | ({"data.objective": "labels", "model.head": "plain"} if labels else {})
        batch = int(shared.setdefault("train.batch_tokens", 2048))
        if "tokens" in s:
            shared["train.steps"] = max(2, int(float(s["tokens"])) // batch)
        steps = int(shared.setdefault("train.steps", 400))
        shared.setdefault("train.warmup_steps", max(1, steps // 10))
        shared["train.warmup_steps"] = min(int(shared["train.warmup_steps"]), steps)
        shared.setdefault("train.checkpoint_every", 0)
        threads = max(1, (os.cpu_count() or 1) // (self.sites * self.ranks))
        shared |= {"run.name": f"{self.row.name}-{self.name.partition('@')[0]}".replace("_", "-"), "run.seed": self.seed,
                   "device.threads": s.get("threads", threads), "log.progress": "none"}
        if "from" in s:
            before = self.sibling(s["from"])
            before.words()
            shared["run.init_from"] = before.site_folder(0)
        if "every_s_of" in s:
            other, rounds = s["every_s_of"]
            before = self.sibling(other)
            shared["outer.sync_interval_s"] = round(before.measure("time") / rounds, 3) if before.done() else 1
        self.steps = steps
        return [w for k, v in shared.items() for w in ("--" + k, spelled(v))], train

    def site_folder(self, i):
        return self.folder / "abcdefghijklmnop"[i]

    def key(self):
        """What makes a finished run the same experiment."""
        if self.program:
            words = self.substituted(self.program)
        else:
            own, train = self.words()
            words = [[under_first_names(own), train], self.sites, self.ranks]
        for key in ("shares", "wan", "mean"):
            if key in self.settings:
                words.append(self.settings[key])
        text = json.dumps(words, default=str).replace(str(self.runner.root), "")
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def done(self):
        try:
            found = json.loads((self.folder / "done.json").read_text())
        except (OSError, ValueError):
            return None
        return found if found["key"] == self.key() else None

    # ---- running ----
    def run(self):
        key = self.key()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        start, used = time.time(), processor_seconds()
        try:
            values = self.run_program() if self.program else self.run_training()
        finally:
            for p in self.processes:
                if p.poll() is None:
                    p.send_signal(signal.SIGTERM)
        done = {"key": key, "seconds": time.time() - start, "processor_s": processor_seconds() - used, "date": datetime.date.today().isoformat(), "commit": self.runner.commit,
                "values": values}
        (self.folder / "done.json").write_text(json.dumps(done))
        self.drop_history()
        return done

    def drop_history(self):
        """Of the rounds and checkpoints of a finished run the newest ones stay: eight rounds of 10 M parameters are 3 GB."""
        for kept in (*self.folder.glob("*/frag/*"), *self.folder.glob("*/inner")):
            numbered = sorted((p for p in kept.iterdir() if p.name.isdigit()), key=lambda p: int(p.name)) if kept.is_dir() else []
            for older in numbered[:-1]:
                shutil.rmtree(older)

    def substituted(self, words):
        named = {"$atoll": self.atoll, "$build": self.build, "$python": self.runner.python, "$here": HERE,
                 "$repository": REPOSITORY, "$seed": self.seed, "$dir": self.folder, "$threads": os.cpu_count()}
        found = []
        for word in words:
            word = str(word)
            if word == "$quick":
                found += ["--quick"] if self.quick else []
                continue
            if word.startswith("$data:"):
                name, slash, rest = word[6:].partition("/")
                word = self.runner.data.shards(name, 1)[1][0].rsplit("/", 1)[0] + slash + rest
            for name in sorted(named, key=len, reverse=True):
                word = word.replace(name, str(named[name]))
            found.append(word)
        return found

    def start(self, words, log, environment=None):
        out = open(self.folder / log, "ab")
        p = subprocess.Popen([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder,
                             env={**os.environ, "OMP_WAIT_POLICY": "passive", **MPI, **self.environment(), **(environment or {})},
                             preexec_fn=end_with_parent)
        out.close()
        self.processes.append(p)
        return p

    def run_program(self):
        """The last line of standard output is a JSON object: numbers by name."""
        with open(self.folder / "program.log", "wb") as log:
            p = subprocess.Popen(self.substituted(self.program), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                 cwd=self.folder, text=True,
                                 env={**os.environ, "OMP_WAIT_POLICY": "passive", **MPI, **self.environment()})
            self.processes.append(p)
            with p.stdout:
                out = self.output_of(p)
        if p.wait():
            self.failed("program.log", f"exit code {p.returncode}")
        lines = out.strip().splitlines()
        try:
            values = json.loads(lines[-1])
            return {k: float(v) for k, v in values.items()}
        except (IndexError, ValueError, AttributeError):
            raise Bad(f"{self.row.name}, {self.name}: the last line is no JSON object of numbers: {(lines or ['nothing'])[-1]}") from None

    def output_of(self, p):
        while True:
            try:
                return p.communicate(timeout=0.5)[0]
            except subprocess.TimeoutExpired:
                self.runner.progress.step(0.0)  # how far it is, only the program knows

    def failed(self, log, why):
        tail = (self.folder / log).read_text(errors="replace").strip().splitlines()[-6:]
        raise Bad(f"{self.row.name}, run {self.name}: {why}; {self.folder / log}:\n  " + "\n  ".join(tail))

    def dry_run(self):
        """Refused settings are found before the first run."""
        words, train = self.words()
        done = subprocess.run([str(self.atoll), "train", "--dry-run", *map(str, self.only_known(words)), "--data.train", train[0]],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            run = self.row.runs[self.name.partition("@")[0]]  # of a point RUN@RATE the run
            why = done.stderr.strip().splitlines()
            key = next((k for k in run if why and k in why[0]), None)
            run.fail(key, f"run {self.name}: {why[0] if why else 'atoll train --dry-run fails'}")

    @staticmethod
    def only_known(words):
        """Without run.init_from: the run before may not be there yet."""
        pairs = list(zip(words[::2], words[1::2]))
        return [w for k, v in pairs if k != "--run.init_from" for w in (k, v)]

    def run_training(self):
        words, train = self.words()
        for folder in map(self.site_folder, range(self.sites)):
            folder.mkdir()
        if self.sites == 1:
            jobs = [self.start_site(0, [*words, "--data.train", train[0]])]
            serve = None
        else:
            serve, jobs = self.start_sites(words, train)
        self.wait(jobs, serve)
        values = {}
        if self.settings.get("data") in self.runner.data.sets and "labels" in self.runner.data.sets[self.settings["data"]]:
            values = self.scores(words)
        if "mean" in self.settings:
            values["eval.loss.last"] = self.loss_of_mean()
        return values

    def start_site(self, i, words):
        command_words = [self.atoll, "train", "--run.dir", self.site_folder(i), *words]
        if self.ranks > 1:
            command_words = ["mpirun", "-n", self.ranks, *command_words]
        return self.start(command_words, f"{self.site_folder(i).name}.log")

    def start_sites(self, words, train):
        names, port, log = [self.site_folder(i).name for i in range(self.sites)], free_port(), self.folder / "cert.log"
        words = [*words, "--outer.sites", ",".join(names), "--tls.dir", self.folder / "tls"]
        run = words[words.index("--run.name") + 1]
        command([self.runner.atoll, "cert", "authority", "--run", run, "--dir", self.folder / "tls"], log)
        for role in [["aggregator", "--host", "localhost"], *[["site", "--name", n] for n in names]]:
            command([self.runner.atoll, "cert", "issue", "--role", *role, "--dir", self.folder / "tls"], log)
        if self.settings.get("wan"):
            return None, [self.start_wan(words, train, names)]
        serve = self.start([self.atoll, "serve", "--serve.dir", self.folder / "aggregator", "--serve.listen",
                            f"127.0.0.1:{port}", *words], "aggregator.log")
        shares = self.settings.get("shares", [1] * self.sites)
        return serve, [self.start_site(i, [*words, "--site.batch_scale", shares[i], "--site.name", n, "--site.aggregator", f"127.0.0.1:{port}",
                                           "--site.aggregator_name", "localhost", "--data.train", train[i]])
                       for i, n in enumerate(names)]

    def start_wan(self, words, train, names):
        """Sites and aggregator at the places of an emulated network: a topology's file, or a preset of `atoll wan`."""
        shares, ranks = self.settings.get("shares", [1] * self.sites), ["mpirun", "-n", self.ranks] if self.ranks > 1 else []
        places = {"aggregator": [self.atoll, "serve", "--serve.dir", self.folder / "aggregator", *words]}
        for i, name in enumerate(names):
            places[name] = [*ranks, self.atoll, "train", "--run.dir", self.site_folder(i), *words, "--site.batch_scale", shares[i], "--site.name", name,
                            "--site.aggregator_name", "localhost", "--data.train", train[i]]
        lines = ["# $1: place, $2: its address, $3: the aggregator's", "case $1 in"]
        for name, command_words in places.items():
            there = '--serve.listen "$2:7443"' if name == "aggregator" else '--site.aggregator "$3:7443"'
            lines.append(f"{name}) exec {shlex.join(str(w) for w in command_words)} {there} ;;")
        script = self.folder / "places.sh"
        script.write_text("\n".join([*lines, "esac", ""]), encoding="utf-8")
        return self.start([self.atoll, "wan", "--topology", self.topology(names), "--logs", self.folder, "--", "sh", script, "{site}", "{address}", "{address:aggregator}"], "wan.log")

    def topology(self, names):
        """A file next to the row, or a preset; it has a place for each site and for the aggregator."""
        own = self.row.path.resolve().parent / str(self.settings["wan"])
        found = own if own.is_file() else self.settings["wan"]
        done = subprocess.run([str(self.atoll), "wan", "--topology", str(found), "--print"], capture_output=True, text=True, check=False)
        listed = re.search(r"^  sites: \[(.*)\]", done.stdout, flags=re.M)
        missing = {*names, "aggregator"} - set(listed.group(1).replace(" ", "").split(",") if listed else ())
        if missing:
            self.row.runs[self.name].fail("wan", f"run {self.name}: wan {found} has no place {', '.join(sorted(missing))}; its sites are named "
                                          f"a, b, .. and aggregator{': ' + done.stderr.strip() if done.returncode else ''}")
        return found

    def wait(self, jobs, serve):
        while any(p.poll() is None for p in jobs):
            bad = next((i for i, p in enumerate(jobs) if p.poll()), None)
            if bad is None and serve is not None and serve.poll():
                self.failed("aggregator.log", f"the aggregator ended with {serve.returncode}")
            if bad is not None:
                break
            self.runner.progress.step(self.steps_done() / self.steps)
            time.sleep(0.3)
        for i, p in enumerate(jobs):
            if p.poll():
                self.failed("wan.log" if self.settings.get("wan") else f"{self.site_folder(i).name}.log",
                            f"{'atoll wan' if self.settings.get('wan') else 'atoll train'} ended with {p.returncode}")
        if serve is not None and serve.wait():
            self.failed("aggregator.log", f"the aggregator ended with {serve.returncode}")

    def steps_done(self):
        try:
            with open(self.site_folder(0) / "metrics.jsonl", "rb") as f:
                f.seek(max(0, os.fstat(f.fileno()).st_size - 4000))
                found = [line for line in f.read().split(b"\n")[:-1] if b'"kind":"step"' in line]
            return json.loads(found[-1])["step"] if found else 0
        except (OSError, ValueError):
            return 0

    def evaluated(self, words):
        """What atoll eval says: a dictionary for each held-out set."""
        out = self.folder / "eval.jsonl"
        with open(out, "wb") as f, open(self.folder / "eval.log", "wb") as log:
            if subprocess.run([str(w) for w in [self.runner.atoll, "eval", *words, "--format", "json"]], stdout=f, stderr=log,
                              stdin=subprocess.DEVNULL, check=False).returncode:
                self.failed("eval.log", "atoll eval fails")
        return [json.loads(line) for line in out.read_text().splitlines()]

    def scores(self, words):
        found = {}
        for fields in self.evaluated(["--tokens", 0, *self.only_known(words), "--run.dir", self.site_folder(0)]):
            found |= {f"score.{k}.{fields.get('set') or 'all'}": v for k, v in fields.items() if isinstance(v, (int, float))}
        return found

    def loss_of_mean(self):
        """Of the mean of the newest states that the run keeps."""
        kept = self.folder / "aggregator" if self.sites > 1 else self.site_folder(0)
        return self.evaluated(["--from", kept, "--mean", self.settings["mean"]])[0]["loss"]

    # ---- measures ----
    def records(self):
        by_kind = collections.defaultdict(list)
        with open(self.site_folder(0) / "metrics.jsonl", encoding="utf-8") as f:
            for line in f:
                record = json.loads(line)
                by_kind[record["kind"]].append(record)
        return by_kind

    def clock(self, records):
        """(step, seconds of training until its end), without evaluations."""
        held, trained = collections.Counter(), collections.Counter()
        for r in records["round"]:
            held[r["step"]] += r["exposed_ms"]
        for r in records["step"]:
            trained[r["step"]] += r["step_ms"]
        seconds, found = 0.0, {0: 0.0}
        for step in sorted(held.keys() | trained.keys()):  # a round by time may end at a step that was not made
            seconds += (trained[step] + held[step]) / 1000
            found[step] = seconds
        return found

    def measure(self, name):
        done = json.loads((self.folder / "done.json").read_text())
        values = done["values"]
        if name == "processor_s":
            return done["processor_s"]
        if name in values or name.startswith(("value.", "score.")):
            plain = name[6:] if name.startswith("value.") else name
            if plain not in values:
                raise Bad(f"{self.row.name}: run {self.name} has no {name}; it has {', '.join(values) or 'none'}")
            return values[plain]
        if self.program:
            raise Bad(f"{self.row.name}: run {self.name} is a program: value({self.name}, \"NAME\") reads what it printed")
        records = self.records()
        if name == "time":
            return max(self.clock(records).values())
        if name == "tokens":
            return records["step"][-1]["tokens"]
        kind, *rest = name.split(".", 1)
        if kind in ("time_to", "loss_at"):
            return crossing(records, self.clock(records), float(rest[0]), kind == "time_to")
        field, how = rest[0].rsplit(".", 1)
        found = [r[field] for r in records[kind] if r.get(field) is not None]
        if not found and how not in ("sum", "count"):
            raise Bad(f"{self.row.name}: run {self.name} has no {field} in its {kind} records")
        return REDUCTIONS[how](found)


def spelled(v):
    return {True: "true", False: "false"}[v] if isinstance(v, bool) else ",".join(map(str, v)) if isinstance(v, list) else str(v)


def crossing(records, clock, level, time_wanted):
    """By lines between the points (seconds, loss) of the evaluations."""
    points = [(clock[r["step"]], r["loss"]) for r in records["eval"] if r["step"] in clock]
    for (t0, l0), (t1, l1) in zip(points, points[1:]):
        if time_wanted and l1 <= level:
            return t0 + (t1 - t0) * (l0 - level) / (l0 - l1) if l0 > level else t0
        if not time_wanted and t1 >= level > t0:
            return l0 + (l1 - l0) * (level - t0) / (t1 - t0)
    return float("inf") if time_wanted else points[-1][1]


def commits(dones):
    """Of the programs that made these runs."""
    return " ".join(dict.fromkeys(d["commit"] for d in dones))


class Measured:
    """Measures of finished runs, remembered for the CSV. As a function: (Run, name) -> Sample."""

    def __init__(self, jobs):
        self.jobs, self.asked = jobs, {}  # jobs: run -> {seed: Job}

    def __call__(self, run, name):
        found = {}
        if name in ("best", "rate"):
            raise Missing(f"the rates of run {run.name} were not searched")
        if run.name not in self.jobs:
            raise Missing(f"run {run.name} was not made")
        for seed, job in self.jobs[run.name].items():
            key = (run.name, seed, name)
            if key not in self.asked:
                self.asked[key] = float(job.measure(name))
            found[seed] = self.asked[key]
        return Sample(found.values(), None if None in found else found)
