# SPDX-License-Identifier: Apache-2.0
"""Reads a row (NAME.yaml) and the workloads, and checks them: Bad names file and line. The format is in README.md."""
import collections
import hashlib
import keyword
import pathlib
import re

import yaml

from expression import Bad, Expression
from verdict import calls

HERE = pathlib.Path(__file__).parent
ROW = ("title", "work", "minutes", "claim", "needs", "build", "base", "runs", "reference", "formula", "seeds", "searching", "accept", "quick",
       "files", "broken", "models", "data")
RUN = ("model", "data", "tokens", "ranks", "sites", "of", "parts", "threads", "shares", "every_s_of", "from", "seeds", "program",
       "search", "search_of", "searching", "wan", "mean")
BASE = tuple(key for key in RUN if key not in ("search", "search_of", "searching"))
CLAIM = ("what", "value", "here", "ours", "reference")
BROKEN = ("mutant", "set", "runs", "accept", "base", "tokens", "none")
QUICK = ("tokens", "seeds", "runs", "accept", "base", "cheap")
DATA = ("text", "labels", "tokenizer", "arguments", "eval", "most")
KEY = re.compile(r"(run|model|data|train|device|outer|site|tls|serve|log)\.[a-z0-9_]+$")


Acceptance = collections.namedtuple("Acceptance", "expression reason small")  # small: judged on the small runs of `broken`


class Map(dict):
    """With the line of each key, and its own."""
    file, line, lines = "", 0, {}

    def fail(self, key, why):
        raise Bad(f"{self.file}:{self.lines.get(key, self.line)}: {why}")


class List(list):
    lines = ()


def scalar(node):
    if node.style in ("'", '"', "|", ">"):
        return node.value
    for kind in (int, float):
        try:
            return kind(node.value)
        except ValueError:
            pass
    return {"true": True, "false": False, "yes": True, "no": False, "null": None, "~": None, "": None}.get(node.value.lower(), node.value)


def plain(node, file, above=()):
    if node in above:
        raise Bad(f"{file}:{node.start_mark.line + 1}: an alias (*) of what it stands in")
    above = (*above, node)
    if isinstance(node, yaml.ScalarNode):
        return scalar(node)
    if isinstance(node, yaml.SequenceNode):
        found = List(plain(n, file, above) for n in node.value)
        found.lines = [n.start_mark.line + 1 for n in node.value]
        return found
    found = Map()
    found.file, found.line, found.lines = file, node.start_mark.line + 1, {}
    for key, content in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise Bad(f"{file}:{key.start_mark.line + 1}: a key is a word")
        if key.value in found:
            raise Bad(f"{file}:{key.start_mark.line + 1}: {key.value} stands here twice")
        found.lines[key.value] = key.start_mark.line + 1
        found[key.value] = plain(content, file, above)
    return found


def read(path):
    try:
        node = yaml.compose(pathlib.Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as wrong:
        raise Bad(f"{path}: {wrong.strerror}") from None
    except (UnicodeDecodeError, yaml.reader.ReaderError) as wrong:
        raise Bad(f"{path}: no text in UTF-8: {wrong.reason}") from None
    except yaml.MarkedYAMLError as wrong:
        raise Bad(f"{path}:{wrong.problem_mark.line + 1}: {wrong.problem}") from None
    if not isinstance(node, yaml.MappingNode):
        raise Bad(f"{path}:1: a row is a mapping of {', '.join(ROW)}")
    return plain(node, str(path))


def only(mapping, known, what):
    for key in mapping:
        if key not in known:
            mapping.fail(key, f"{what} has no key {key}; it has {', '.join(known)}")


def mapping_at(parent, key):
    """The mapping at a key, or an empty one."""
    found = parent.get(key)
    if found is None:
        found = Map()
        found.file, found.line = parent.file, parent.line
    if not isinstance(found, Map):
        parent.fail(key, f"{key} is a mapping")
    return found


def list_at(parent, key, of, what):
    """The list at a key, or an empty one; of: the kinds of its entries."""
    found = parent.get(key)
    if found is None:
        return List()
    if not isinstance(found, list) or not all(isinstance(x, of) and not isinstance(x, bool) for x in found):
        parent.fail(key, f"{key} is a list of {what}")
    return found


class Workloads:
    """models: settings by name. data: data sets by name."""

    def __init__(self, path=HERE / "workloads.yaml"):
        whole = read(path)
        only(whole, ("models", "data"), "workloads.yaml")
        self.models, self.data = {}, {}
        self.add(whole, HERE)

    def add(self, whole, folder):
        """Those of workloads.yaml, or of a row that has its own; folder: what a text's path is relative to."""
        for name in mapping_at(whole, "models"):
            check_settings(mapping_at(whole["models"], name), ("data",), f"model {name}")
            self.models[name] = whole["models"][name]
        for name in mapping_at(whole, "data"):
            only(mapping_at(whole["data"], name), DATA, f"data set {name}")
            self.data[name] = dict(whole["data"][name])
            for key in ("text", "labels"):
                own = folder / str(self.data[name].get(key))
                if own.is_file():
                    at = own.stat()
                    self.data[name] |= {key: str(own), "folder": f"{name}-{short(own, at.st_size, at.st_mtime_ns)}"}


def is_number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool) and x > 0


NUMBERS = ("tokens", "ranks", "sites", "of", "threads", "minutes")


def check_numbers(mapping):
    """Numbers above 0, seeds as a list of them."""
    for key in NUMBERS:
        if key in mapping and not is_number(mapping[key]):
            mapping.fail(key, f"{key}: {mapping[key]} is no number above 0")
    shares = mapping.get("shares")
    if shares is not None and not (isinstance(shares, list) and shares and all(map(is_number, shares))):
        mapping.fail("shares", f"shares: {shares} is no list of numbers above 0")
    seeds = mapping.get("seeds")
    if seeds is not None and not (isinstance(seeds, list) and seeds and all(isinstance(x, int) and is_number(x) for x in seeds)):
        mapping.fail("seeds", f"seeds: {seeds} is no list of whole numbers above 0")


def check_settings(settings, own, what):
    check_numbers(settings)
    for key in settings:
        if key not in own and not KEY.match(key):
            settings.fail(key, f"{what}: {key} is neither a setting of atoll (section.key) nor one of {', '.join(own)}")


class Row:
    def __init__(self, path, workloads):
        self.name, self.path, self.workloads = pathlib.Path(path).stem, pathlib.Path(path), workloads
        self.place = self.name if self.path.parent == HERE else f"{self.name}-{short(self.path.resolve())}"  # of its runs
        y = self.yaml = read(path)
        only(y, ROW, "a row")
        workloads.add(y, self.path.resolve().parent)
        for needed in ("title", "minutes", "runs", "accept"):
            if needed not in y:
                y.fail(None, f"a row needs {needed}")
        self.title, self.minutes, self.work = y["title"], y["minutes"], y.get("work", "")
        self.needs, self.build = list_at(y, "needs", str, "packages"), list_at(y, "build", str, "targets")
        self.seeds = y.get("seeds") or [1]
        self.files = list_at(y, "files", str, "paths below the repository")
        self.base, self.quick = mapping_at(y, "base"), mapping_at(y, "quick")
        check_settings(self.base, BASE, "base")
        only(self.quick, QUICK, "quick")
        check_numbers(y)
        check_numbers(self.quick)
        check_settings(mapping_at(self.quick, "base"), BASE, "quick.base")
        self.broken = mapping_at(y, "broken")
        self.read_runs()
        self.read_expressions()
        self.read_broken()
        self.check_searching(y, self.seeds, bool(self.searched()))
        for name, run in self.runs.items():
            self.check_searching(run, self.seeds_of(name), "search" in run, f"run {name}: ")

    def read_runs(self):
        y, self.runs = self.yaml, {}
        for name in mapping_at(y, "runs"):
            run = mapping_at(y["runs"], name)
            if not name.isidentifier() or keyword.iskeyword(name):
                y["runs"].fail(name, f"{name} is no name: letters, digits and _, and no word of Python")
            check_settings(run, RUN, f"run {name}")
            self.runs[name] = run
        if y.get("reference"):
            words = y["reference"] if isinstance(y["reference"], list) else [y["reference"]]
            own = self.path.resolve().parent / str(words[0])
            if not own.is_file() and not (HERE / "reference" / str(words[0])).is_file():
                y.fail("reference", f"tests/reproduce/reference/{words[0]} is not there")
            run = Map(program=List(["$python", str(own) if own.is_file() else f"$here/reference/{words[0]}", *words[1:]]))
            run.file, run.line, run.lines = y.file, y.lines["reference"], {}
            self.runs["reference"] = run
        for name, run in self.runs.items():
            both = {**self.base, **run}
            if "shares" in both and len(both["shares"]) != both.get("sites", 1):
                run.fail("shares", f"run {name}: shares has {len(both['shares'])} numbers, one for each of {both.get('sites', 1)} sites")
            if "wan" in both and both.get("sites", 1) == 1:
                run.fail("wan", f"run {name}: wan is a network between sites, and the run has one site")
            if "mean" in both:
                self.check_mean(run, name, both)
            self.check_search(run, name)
            paced = run.get("every_s_of")
            if paced is not None and not (isinstance(paced, list) and len(paced) == 2 and is_number(paced[1]) and
                                          paced[0] in list(self.runs)[:list(self.runs).index(name)]):
                run.fail("every_s_of", f"run {name}: every_s_of is [a run above it, rounds]")
            before = run.get("from")
            if before is not None and before not in list(self.runs)[:list(self.runs).index(name)]:
                run.fail("from", f"run {name}: from: {before} is no run above it")
            for key, known, what in (("model", self.workloads.models, "model"), ("data", self.workloads.data, "data set")):
                if run.get(key, self.base.get(key)) not in (None, *known):
                    run.fail(key, f"run {name}: no {what} {run.get(key, self.base.get(key))} in workloads.yaml: {', '.join(known)}")
        alone = [name for name, run in self.runs.items() if "search" not in run]
        if self.searched() and alone:
            y.fail("runs", f"{', '.join(alone)}: without search, in a row whose other runs have it")

    @staticmethod
    def check_mean(run, name, both):
        count, kept = both["mean"], "serve.keep_states" if both.get("sites", 1) > 1 else "train.checkpoint_keep"
        if not (type(count) is int and count > 1 and "program" not in both):
            run.fail("mean", f"run {name}: mean: {count} is how many states of a training run, two or more")
        if both.get(kept, 2) < count:
            run.fail("mean", f"run {name}: mean: {count} needs {kept}: {count}")

    def check_search(self, run, name):
        rates = run.get("search")
        if rates is None:
            if "search_of" in run:
                run.fail("search_of", f"run {name}: search_of without search")
            return
        if not (isinstance(rates, list) and len(rates) >= 3 and all(map(is_number, rates)) and rates == sorted(set(rates))):
            run.fail("search", f"run {name}: search: {rates} is no list of three or more rising rates")
        if searched_key(run) in run or "program" in run:
            run.fail("search", f"run {name}: search is of {searched_key(run)}, which a run with it does not set, nor a program")

    def seeds_of(self, name):
        """Of a run."""
        return self.runs[name].get("seeds") or self.seeds

    def searching_of(self, name):
        """Of a run: how many of its seeds search its rate; None: all."""
        return self.runs[name].get("searching", self.yaml.get("searching"))

    @staticmethod
    def check_searching(mapping, seeds, searched, where=""):
        count = mapping.get("searching")
        if count is not None and not (searched and type(count) is int and 1 <= count <= len(seeds)):
            mapping.fail("searching", f"{where}searching: {count}: how many of the {len(seeds)} seeds, where rates are searched")

    def searched(self):
        """The runs whose rate is searched: none, or all."""
        return [name for name, run in self.runs.items() if "search" in run]

    def expression(self, text, file_map, key, line=None):
        try:
            return Expression(text, self.runs, self.formulas)
        except Bad as wrong:
            raise Bad(f"{file_map.file}:{line or file_map.lines.get(key, file_map.line)}: {wrong}") from None

    def read_expressions(self):
        y, self.formulas = self.yaml, {}
        for name, text in mapping_at(y, "formula").items():
            if name in self.runs:
                y["formula"].fail(name, f"{name} is a run, too")
            self.formulas[name] = self.expression(text, y["formula"], name)
        self.claims = []
        for claim in list_at(y, "claim", Map, f"mappings of {', '.join(CLAIM)}"):
            only(claim, CLAIM, "a claim")
            if "what" not in claim:
                claim.fail(None, "a claim needs what")
            self.claims.append((claim, *[self.expression(claim[k], claim, k) if k in claim else None for k in ("ours", "reference")]))
        self.accept = []
        if not list_at(y, "accept", (str, int, float, Map), "expressions, or of {test: .., miss: ..}"):
            y.fail("accept", "accept is empty: a row that nothing can fail shows nothing")
        for item, line in zip(y["accept"], y["accept"].lines):
            if isinstance(item, Map):
                only(item, ("test", "miss", "small"), "an acceptance")
                if "test" not in item:
                    item.fail(None, "an acceptance needs test")
            test = item["test"] if isinstance(item, Map) else item
            more = item if isinstance(item, Map) else {}
            self.accept.append(Acceptance(self.expression(test, y, "accept", line), more.get("miss", ""), more.get("small", False)))
            self.check_best_of(self.accept[-1].expression, line)
        for index in list_at(self.quick, "accept", int, "numbers of acceptances"):
            if not 1 <= index <= len(self.accept):
                self.quick.fail("accept", f"quick.accept: there is no acceptance {index}; they count from 1 to {len(self.accept)}")
        for name in list_at(self.quick, "runs", str, "names of runs"):
            if name not in self.runs:
                self.quick.fail("runs", f"quick.runs: there is no run {name}")

    def check_best_of(self, expression, line):
        """The runs of best_of() differ in one number, which rises."""
        for call in calls(expression):
            if call.func.id != "best_of":
                continue
            each = [self.settings(a.id, False) for a in call.args]
            keys = [k for k in dict.fromkeys(k for s in each for k in s) if any(s.get(k) != each[0].get(k) for s in each)]
            numbers = [s.get(keys[0]) for s in each] if len(keys) == 1 else []
            if not numbers or not all(map(is_number, numbers)) or numbers != sorted(set(numbers)):
                raise Bad(f"{self.yaml.file}:{line}: best_of({', '.join(a.id for a in call.args)}): runs that differ in one number, which "
                          f"rises; they differ in {', '.join(keys) or 'nothing'}")

    def read_broken(self):
        b = self.broken
        only(b, BROKEN, "broken")
        if not b or "none" in b:
            return
        if ("mutant" in b) == ("set" in b):
            b.fail(None, "broken needs mutant or set, one of them; or none, with the reason")
        if "mutant" in b and b["mutant"] not in mutants():
            b.fail("mutant", f"broken: no mutant {b['mutant']} in kernels/base/mutant.h: {', '.join(mutants())}")
        if not list_at(b, "accept", int, "numbers of acceptances"):
            b.fail("accept", "broken: accept lists the acceptances that fail without the mechanism")
        for index in b["accept"]:
            if not 1 <= index <= len(self.accept):
                b.fail("accept", f"broken.accept: there is no acceptance {index}; they count from 1 to {len(self.accept)}")
        for name in list_at(b, "runs", str, "names of runs"):
            if name not in self.runs:
                b.fail("runs", f"broken.runs: there is no run {name}")
        if "set" in b and not b.get("runs"):
            b.fail("runs", "broken.set needs runs")
        check_settings(mapping_at(b, "set"), RUN, "broken.set")
        check_settings(mapping_at(b, "base"), RUN, "broken.base")
        check_numbers(b)

    def broken_runs(self):
        return self.broken.get("runs") or list(self.runs)

    def switch(self):
        """In words."""
        if "mutant" in self.broken:
            return f"mutant {self.broken['mutant']}"
        keys = [f"without {k}" if v is None else f"with {k} {v}" for k, v in self.broken["set"].items()]
        return f"{', '.join(self.broken['runs'])} {', '.join(keys)}"

    def settings(self, name, quick):
        """The run's settings: those of its model, of base and its own, the later ones winning. name: also RUN@RATE; of a run with
        search alone, the rate in the middle. quick: also "broken"."""
        name, _, rate = name.partition("@")
        run = self.runs[name]
        if "program" in run:
            return dict(run)
        own = {**self.base, **run}
        small = quick == "broken" and "base" in self.broken
        if small:
            own = {**self.broken["base"], **run}
        elif quick:
            own |= mapping_at(self.quick, "base")
        if quick and "tokens" in self.quick:
            own["tokens"] = self.quick["tokens"]
        if quick == "broken" and "tokens" in self.broken:
            own["tokens"] = self.broken["tokens"]
        if "search" in run:
            own[searched_key(run)] = float(rate) if rate else run["search"][len(run["search"]) // 2]
        return {**self.workloads.models.get(own.get("model"), {}), **own}

    def chosen(self, quick):
        """Names of the runs, and seeds."""
        names = self.quick.get("runs") or list(self.runs) if quick else list(self.runs)
        return names, (self.quick.get("seeds") or self.seeds[:1]) if quick else self.seeds

    def tests(self, quick):
        indexes = [i - 1 for i in self.quick.get("accept") or []] if quick else range(len(self.accept))
        return [self.accept[i] for i in indexes]


def mutants():
    """Names of the mutants of methods."""
    text = (HERE.parents[1] / "kernels/base/mutant.h").read_text(encoding="utf-8")
    return re.findall(r"^    X\(([A-Z0-9_]+),", text, flags=re.M)


def searched_key(run):
    """The setting whose value a run with `search` finds."""
    return run.get("search_of", "train.lr")


def short(*things):
    """A name for these: they are what it is made of."""
    return hashlib.sha256(" ".join(map(str, things)).encode()).hexdigest()[:8]


def outside(path):
    """Is it the path of a row that lies elsewhere?"""
    return str(path).endswith(".yaml")


def rows():
    """Paths of all rows by name."""
    return {p.stem: p for p in sorted(HERE.glob("*.yaml"), key=lambda p: p.stem) if p.stem != "workloads"}
