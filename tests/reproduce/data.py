# SPDX-License-Identifier: Apache-2.0
"""Text and labels for the rows, prepared once below a folder: deploy/prepare-text.sh, deploy/prepare-tasks.sh, then `atoll data`.

With --quick the text is tests/golden/text and the labels say which page of it a sentence comes from: nothing is downloaded.
"""
import contextlib
import fcntl
import json
import pathlib
import re
import shutil
import subprocess

from expression import Bad

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
QUICK_TEXT = REPOSITORY / "tests/golden/text"
QUICK_PAGES = ("configuration", "protocol", "runbook", "results")


def command(words, log):
    with open(log, "ab") as out:
        code = subprocess.run([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False).returncode
    if code:
        tail = pathlib.Path(log).read_text(errors="replace").strip().splitlines()[-6:]
        raise Bad(f"{' '.join(str(w) for w in words[:6])} ...: exit code {code}; {log}:\n  " + "\n  ".join(tail))


class Data:
    def __init__(self, atoll, root, sets, quick, say):
        self.atoll, self.sets, self.quick, self.say = atoll, sets, quick, say
        self.text = root / "text"
        self.root = root / ("quick-data" if quick else "data")
        self.root.mkdir(parents=True, exist_ok=True)
        self.text.mkdir(parents=True, exist_ok=True)
        self.log = self.root / "data.log"

    @contextlib.contextmanager
    def lock(self):
        """Rows that are run at the same time in one folder share its data: one of them prepares, the others wait."""
        with open(self.text.parent / "data.lock", "wb") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.say("waits for another row, which prepares text")
                fcntl.flock(f, fcntl.LOCK_EX)
            yield

    # ---- sources ----
    def tasks(self):
        out = self.text / "tasks"
        if not (out / "done").exists():
            self.say("prepares text and labels (deploy/prepare-tasks.sh)")
            command([REPOSITORY / "deploy/prepare-tasks.sh", out], self.log)
            (out / "done").touch()
        return out

    def source(self, name):
        """A file of text: gcide, the dictionary; english, all texts of prepare-tasks.sh; glosses, those with a label, each a
        document; or NAME.tsv of its labels."""
        if self.quick:
            return self.quick_labels() if name.endswith(".tsv") else self.quick_text()
        if name.endswith(".tsv"):
            return self.tasks() / name
        if pathlib.Path(name).is_absolute():  # of a row outside of this repository
            return pathlib.Path(name)
        if name == "english":
            return self.tasks() / "text.txt"
        if name == "glosses":
            return self.glosses()
        if name != "gcide":
            raise Bad(f"text {name}: gcide, glosses or english")
        out = self.text / "gcide.txt"
        if not out.exists():
            installed = pathlib.Path("/usr/share/dictd/gcide.dict.dz")
            dictionary = installed if installed.exists() else self.tasks() / "packages/root/usr/share/dictd/gcide.dict.dz"
            command([REPOSITORY / "deploy/prepare-text.sh", "--dictionary", dictionary, out], self.log)
        return out

    def glosses(self):
        out = self.text / "glosses.txt"
        if not out.exists():
            rows = (self.tasks() / "glosses.train.tsv").read_text(encoding="utf-8").splitlines()
            out.write_text("".join(row.split("\t")[1] + "\n\n" for row in rows), encoding="utf-8")
        return out

    def paragraphs(self, page):
        text = re.sub(r"```.*?```", "", (QUICK_TEXT / f"{page}.txt").read_text(encoding="utf-8"), flags=re.S)
        return [" ".join(re.sub(r"[|`*#\[\]]", " ", p).split()) for p in re.split(r"\n\s*\n|\n\|", text)]

    def quick_text(self):
        out = self.text / "golden.txt"
        if not out.exists():
            out.write_text("".join(re.sub(r"(?<=[.:;]) ", "\n", p) + "\n\n" for page in QUICK_PAGES for p in self.paragraphs(page)
                                   if len(p) > 60), encoding="utf-8")
        return out

    def quick_labels(self):
        out = self.text / "pages.tsv"
        if not out.exists():
            rows = [f"{page}\t{p[:200]}" for page in QUICK_PAGES for p in self.paragraphs(page) if len(p) > 30]
            rows.sort(key=lambda r: hash_of(r.split("\t")[1]))
            out.write_text("\n".join(rows) + "\n", encoding="utf-8")
        return out

    # ---- shards ----
    def made(self, folder, make):
        """The folder, made once: a half-made one is removed."""
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            self.say(f"prepares {folder.relative_to(self.root.parent)}")
            make(folder)
            (folder / "done").touch()
        return folder

    def shards(self, name, sites):
        """The settings that a run needs to read this data set, and data.train of each site."""
        spec = self.sets[name]
        with self.lock():
            folder = self.labelled(name, spec, sites) if "labels" in spec else self.plain(name, spec, sites)
        settings = {}
        described = json.loads((folder / "data.json").read_text()) if (folder / "data.json").exists() else None
        if described and "sha256" in described:
            settings = {"data.tokenizer": "external", "data.tokenizer_sha256": described["sha256"],
                        "model.vocab_size": described["vocab"]}
        if "labels" in spec:
            classes = [c["name"] for c in described["classes"]]
            settings |= {"data.objective": "labels", "data.classes": ",".join(classes), "model.classes": len(classes),
                         "data.eval": ",".join(f"{s}={self.root}/{name}-{sites}-eval-{s}/train-*.bin" for s in spec["eval"])}
        else:
            settings["data.eval"] = f"{folder}/eval-*.bin"
        return settings, [f"{folder}/train-{i}-*.bin" for i in range(sites)]

    def plain(self, name, spec, sites):
        def make(folder):
            command([self.atoll, "data", self.source(spec["text"]), "--out", folder, "--sites", sites, *spec.get("arguments", [])],
                    self.log)
        return self.made(self.root / f"{spec.get('folder', name)}-{sites}", make)

    def labelled(self, name, spec, sites):
        tokenizer = self.plain(spec["tokenizer"], self.sets[spec["tokenizer"]], sites)  # as the run has that it starts from
        base = [self.atoll, "data", "--labels", "--tokenizer", tokenizer, "--held-out", 0]
        classes = []
        for s, file in spec["eval"].items():
            def make(folder, file=file):
                command([*base, *classes, "--out", folder, self.part(file, None, held=True)], self.log)
            folder = self.made(self.root / f"{name}-{sites}-eval-{s}", make)
            classes = classes or ["--classes-of", folder]

        def make_train(folder):
            command([*base, *classes, "--out", folder, "--sites", sites, *spec.get("arguments", []),
                     self.part(spec["labels"], spec.get("most"), held=False)], self.log)
        return self.made(self.root / f"{name}-{sites}", make_train)

    def part(self, file, most, held):
        """The first rows of a file. Quick: a fifth of the rows for evaluation, the others for training."""
        path = self.source(file)
        rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
        if self.quick:
            rows = rows[:len(rows) // 5] if held else rows[len(rows) // 5:]
        elif most is None:
            return path
        out = self.root / f"part-{path.stem}-{most or 'all'}-{'held' if held else 'train'}.tsv"
        out.write_text("".join(rows[:None if self.quick else most]), encoding="utf-8")
        return out


def hash_of(text):
    """FNV-1a: the same order on every machine."""
    h = 2166136261
    for byte in text.encode():
        h = (h ^ byte) * 16777619 & 0xFFFFFFFF
    return h
