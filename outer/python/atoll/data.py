# SPDX-License-Identifier: Apache-2.0
"""Data sets become token shards: rows of Hugging Face datasets, Parquet, Arrow, JSON lines, and chats.

    python -m atoll.data --out data SOURCE... [options of `atoll data`]
    atoll.data.shards(rows, "data", sites=2, tokenizer="gpt2/tokenizer.json")

This module reads rows and nothing else: their texts go to the program `atoll data`, which makes the ids, in a file without a name
in the output's folder. So the ids are those that `atoll data` makes of the same texts, and no row stays in memory.
"""
import argparse
import collections.abc
import csv
import dataclasses
import difflib
import gzip
import itertools
import json
import numbers
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from ._library import Error

BATCH_ROWS = 256  # that are in memory at once
WRONG, FAILED = 4, 1  # exit codes of `atoll`: wrong arguments or input; a read or write failed
LINE_BYTES_MAX, RECORD_BYTES_MAX = 1 << 26, 1 << 20  # what `atoll data` reads: a line of JSON, a record of CSV
DECIDED = ("field", "owner-field", "csv", "labels", "owners", "tokens", "bytes", "whole-files")  # options that the columns decide
ENDINGS = (".parquet", ".arrow", ".feather", ".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")


def _wrong(text):
    return Error(text, WRONG)


@dataclasses.dataclass
class Made:
    """What was made. rows: of the source; null, blank: of them without a text, which are left out; report: of `atoll data`."""
    rows: int = 0
    null: int = 0
    blank: int = 0
    report: str = ""

    def __str__(self):
        out = self.null + self.blank
        return f"{self.rows} rows" + (f"; left out: {self.null} with a null text, {self.blank} with a blank one" if out else "")


# ---- a row ----

def _kind(value):
    return {"NoneType": "null", "str": "a text"}.get(type(value).__name__, f"of type {type(value).__name__}")


def _is_null(value):
    """NaN is the null of pandas."""
    return value is None or isinstance(value, float) and value != value


def _without(where, column, names):
    return _wrong(f"{where}: no column \"{column}\"; the columns are {', '.join(map(str, names))}")


def _need(where, columns, names):
    for column in columns:
        if column not in names:
            raise _without(where, column, names)


class Columns:
    """Which columns of a row are used, and how a row becomes a line of the file that `atoll data` reads: JSON lines, or CSV with
    labels. `messages` takes the place of `text`. template: the directory of a tokenizer, or a function of a list of messages."""

    def __init__(self, text="text", label=None, owner=None, messages=None, template=None):
        self.text, self.label, self.owner, self.messages = text, label, owner, messages
        if template and not messages:
            raise _wrong("a template is for messages; name their column")
        self._render, self._bos = (template or plain, "") if template is None or callable(template) else _template(template)
        self._marked = False
        self.names = list(dict.fromkeys(c for c in (messages or text, label, owner) if c))

    @property
    def head(self):
        """The first line of CSV."""
        return ("text", "label", "owner")[:3 if self.owner else 2]

    @property
    def words(self):
        """The options of `atoll data` for this file."""
        if self.label:
            return ["--labels", "--csv", ",".join(f"{name}={name}" for name in self.head)]
        return ["--field", "text", *(["--owner-field", "owner"] if self.owner else [])]

    def mark(self, options):
        """Does `atoll data` put the token bos before each document? Then a template's is left out."""
        self._marked = "tokenizer" in options and not self.label and not {"documents", "split-sentences"} & options.keys()

    def line(self, where, row, made):
        """The line of a row, in bytes; None: it has no text, which is counted in `made`."""
        if not isinstance(row, collections.abc.Mapping):
            raise _wrong(f"{where} is {_kind(row)}; a dict of columns is expected")
        made.rows += 1
        _need(where, self.names, row)
        column = self.messages or self.text
        text = row[column]
        if _is_null(text):
            made.null += 1
            return None
        text = self._rendered(where, text) if self.messages else text
        if not isinstance(text, str):
            raise _wrong(f"{where}, column \"{column}\": {_kind(text)}; a text is expected")
        if not text.strip():
            made.blank += 1
            return None
        return self._encoded(where, column, [text, *(self._name(where, row, c) for c in (self.label, self.owner) if c)])

    def _encoded(self, where, column, values):
        """The line of these values, if `atoll data` can read it."""
        try:
            line = _csv(values) if self.label else _json(dict(zip(("text", "owner"), values)))
        except UnicodeEncodeError as error:
            raise _wrong(f"{where}, column \"{column}\": {error.object[error.start]!r} is half of a character (UTF-16)") from None
        most = RECORD_BYTES_MAX if self.label else LINE_BYTES_MAX
        if len(line) > most:
            raise _wrong(f"{where}, column \"{column}\": a row of {len(line)} bytes; `atoll data` reads {most} at most")
        if self.label and b"\0" in line:
            raise _wrong(f"{where}, column \"{column}\": a zero byte, which a labelled text does not have")
        return line

    def _name(self, where, row, column):
        value = row[column]
        if isinstance(value, numbers.Integral) and not isinstance(value, bool):
            value = str(int(value))
        if not isinstance(value, str) or not value:
            raise _wrong(f"{where}, column \"{column}\": {'an empty text' if value == '' else _kind(value)}; a text or a whole "
                         "number is expected in every row")
        return value

    def _rendered(self, where, value):
        messages = _messages(where, self.messages, value)
        try:
            text = self._render(messages) if messages else ""
            return text.removeprefix(self._bos) if self._marked and self._bos else text
        except Exception as error:  # of a template in Jinja, or of the caller's function
            raise _wrong(f"{where}, column \"{self.messages}\": the template fails: {error}") from error


def _json(row):
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


class _Echo:
    """What csv.writer writes is what its writerow() returns."""

    @staticmethod
    def write(text):
        return text.encode()


_csv = csv.writer(_Echo, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow


# ---- chats ----

def _messages(where, column, value):
    if isinstance(value, (str, bytes, collections.abc.Mapping)) or not isinstance(value, collections.abc.Iterable):
        raise _wrong(f"{where}, column \"{column}\": {_kind(value)}; a list of messages is expected")
    messages = list(value)
    for number, message in enumerate(messages):
        place = f"{where}, column \"{column}\", message {number}"
        if not isinstance(message, collections.abc.Mapping):
            raise _wrong(f"{place} is {_kind(message)}; a dict with role and content is expected")
        if not isinstance(message.get("role"), str):
            raise _wrong(f"{place}: no role that is a text; it has {', '.join(map(str, message))}")
    return [{key: x for key, x in m.items() if x is not None} for m in messages]  # a column of Arrow has all keys in every row


def plain(messages):
    """The template without a tokenizer: for each message a line with its role and a colon, and then its content."""
    for number, message in enumerate(messages):
        if not isinstance(message.get("content"), str):
            raise ValueError(f"the content of message {number} is {_kind(message.get('content'))}; a text is expected")
    return "\n".join(f"{m['role']}:\n{m['content']}" for m in messages)


def _template(directory):
    """(the chat template of a tokenizer as a function, its token bos)."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise ImportError("a chat template needs transformers and jinja2: pip install transformers jinja2") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory)
    except (OSError, ValueError) as error:
        raise _wrong(f"{directory}: transformers has no tokenizer of it: {error}") from error
    if not tokenizer.chat_template:
        raise _wrong(f"{directory}: the tokenizer has no chat template")
    return lambda messages: tokenizer.apply_chat_template(messages, tokenize=False), tokenizer.bos_token or ""


# ---- sources: each gives (where, row) ----

def _imported(name, what):
    try:
        return __import__(name, fromlist=["_"])
    except ImportError:
        package = name.split(".")[0]
        raise ImportError(f"{what} needs {package}: pip install {package}") from None


def _json_rows(path, columns):
    with (gzip.open if str(path).endswith(".gz") else open)(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            where = f"{path}, line {number}"
            if line.isspace():
                continue
            try:
                yield where, json.loads(line.removeprefix(b"\xef\xbb\xbf").decode() if number == 1 else line.decode())
            except UnicodeDecodeError as error:
                raise _wrong(f"{where}: byte {error.start + 1} is not UTF-8") from None
            except json.JSONDecodeError as error:
                raise _wrong(f"{where}: not JSON: {error.msg} at character {error.pos + 1}; each line is one row") from None


def _batch_rows(path, columns, batches):
    """Rows of record batches, a few at a time."""
    number = itertools.count()
    for batch in batches:
        _need(path, columns.names, batch.schema.names)
        for first in range(0, batch.num_rows, BATCH_ROWS):
            for row in batch.select(columns.names).slice(first, BATCH_ROWS).to_pylist():
                yield f"{path}, row {next(number)}", row


def _parquet_rows(path, columns):
    parquet = _imported("pyarrow.parquet", "a Parquet file")
    with parquet.ParquetFile(path) as file:
        _need(path, columns.names, file.schema_arrow.names)
        yield from _batch_rows(path, columns, file.iter_batches(batch_size=BATCH_ROWS, columns=columns.names))


def _arrow_rows(path, columns):
    """A file of Arrow IPC, as Feather is, or a stream of it, as `datasets` has in its cache."""
    arrow = _imported("pyarrow", "an Arrow file")
    with arrow.memory_map(str(path)) as source:
        if source.read(6) == b"ARROW1":
            file = arrow.ipc.open_file(source)
            batches = map(file.get_batch, range(file.num_record_batches))
        else:
            source.seek(0)
            batches = arrow.ipc.open_stream(source)
        yield from _batch_rows(path, columns, batches)


def _dataset_rows(data, columns, prefix=""):
    """Rows of a data set of `datasets`. Of a ClassLabel the number becomes the name."""
    names = data.column_names
    if names is not None:
        _need(prefix.rstrip(", ") or "the data set", columns.names, names)
        data = data.select_columns(columns.names)
    classes = getattr((data.features or {}).get(columns.label), "names", None)
    number = itertools.count()
    for batch in data.with_format(None).iter(batch_size=BATCH_ROWS):
        for values in zip(*batch.values()):
            row, where = dict(zip(batch, values)), f"{prefix}row {next(number)}"
            if classes:
                label = row[columns.label]
                if label is None or not 0 <= label < len(classes):
                    raise _wrong(f"{where}, column \"{columns.label}\": {label} is none of the {len(classes)} classes: "
                                 f"{', '.join(classes[:8])}{', ..' if len(classes) > 8 else ''}")
                row[columns.label] = classes[label]
            yield where, row


def _file_rows(path, columns):
    if not str(path).endswith(ENDINGS):
        raise _wrong(f"{path}: its name ends in none of {', '.join(ENDINGS)}; text and CSV are for `atoll data` itself")
    if str(path).endswith(".parquet"):
        rows = _parquet_rows
    else:
        rows = _arrow_rows if str(path).endswith((".arrow", ".feather")) else _json_rows
    try:
        yield from rows(path, columns)
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise _wrong(f"{path}: {error}") from error


def _one_split(source, data, split):
    """Of several splits the one that is named, or the only one."""
    if not isinstance(data, dict):
        if split:
            raise _wrong(f"{source}: it has no splits; leave out --split")
        return data
    if not split and len(data) == 1:
        return next(iter(data.values()))
    if split not in data:
        raise _wrong(f"{source}: {f'no split {split}' if split else 'several splits'}; name one with --split: {', '.join(data)}")
    return data[split]


def _loaded(source, split, subset):
    """A directory of save_to_disk, or what load_dataset knows."""
    datasets = _imported("datasets", f"{source}, which is no file,")
    saved = any((pathlib.Path(source) / name).exists() for name in ("dataset_dict.json", "state.json"))
    try:
        if saved:
            return _one_split(source, datasets.load_from_disk(source), split)
        data = datasets.load_dataset(source, subset, split=split)
    except (OSError, ValueError) as error:
        raise _wrong(f"{source}: datasets does not load it: {error}") from error
    return data if split else _one_split(source, data, split)


def sources(names, columns, split=None, subset=None):
    """(where, row) of files, directories of save_to_disk, and names that load_dataset knows, one after the other."""
    for name in names:
        if os.path.isfile(name) or str(name).endswith(ENDINGS):
            if split or subset:
                raise _wrong(f"{name}: a file has no splits and no subsets; leave out --split and --subset")
            yield from _file_rows(name, columns)
        else:
            yield from _dataset_rows(_loaded(str(name), split, subset), columns, f"{name}, ")


# ---- the program ----

def program():
    """The program `atoll`: next to this file (a wheel), else ATOLL_PROGRAM, else of the PATH."""
    bundled = pathlib.Path(__file__).parent / "bin" / "atoll"
    found = str(bundled) if bundled.exists() else shutil.which(os.environ.get("ATOLL_PROGRAM") or "atoll")
    if not found:
        raise _wrong("the program atoll is not there: install the wheel, or set ATOLL_PROGRAM to the path of build/bin/atoll")
    return found


def _known(path):
    """{option of `atoll data`: has it a value?}, from its help."""
    said = subprocess.run([path, "data", "--help"], capture_output=True, text=True, check=True).stdout
    return {name: bool(value) for name, value in re.findall(r"^  --([a-z][a-z-]*)( [^ ]+)?(?=  |$)", said, re.M)}


def _check_options(options, columns, out, known):
    """What the program would say once all rows are written, or what the columns decide."""
    known = known.keys() - {"out", "help"}
    for name in options:
        if name in DECIDED:
            raise _wrong(f"--{name} is not for rows: their columns are named by --text, --label, --owner and --messages")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise _wrong(f"unknown option --{name}" + (f"; the nearest is --{near[0]}" if near else "") +
                         "; `atoll data --help` has them")
    if columns.label and "tokenizer" not in options:
        raise _wrong("labels need a tokenizer: --tokenizer PATH")
    if columns.owner and not columns.label and not {"documents", "split-sentences"} & options.keys():
        raise _wrong("owners need --documents or --split-sentences")
    if "tokenizer" in options and "learn" not in options and not os.path.exists(options["tokenizer"]):
        raise _wrong(f"--tokenizer {options['tokenizer']}: no such file or directory")
    if "force" not in options and any(next(pathlib.Path(out).glob(f"{part}-*.bin"), None) for part in ("train", "eval")):
        raise _wrong(f"{out}: shards are already there; take another directory, or --force to replace them")


def _write(file, rows, columns, made, progress):
    """The file that `atoll data` reads."""
    shown_s = time.monotonic()
    if columns.label:
        file.write(_csv(columns.head))
    for where, row in rows:
        line = columns.line(where, row, made)
        if line:
            file.write(line)
        if progress and time.monotonic() - shown_s > 10:
            shown_s = time.monotonic()
            print(f"{made.rows} rows, {file.tell() / 1e6:.1f} MB", file=sys.stderr)
    file.flush()
    if made.rows == made.null + made.blank:
        raise _wrong(f"no row has a text: {made}")


def _make(rows, out, columns, options, quiet):
    """Shards in `out` of (where, row). quiet: nothing is printed; else what the program says goes where this process prints."""
    path = program()
    _check_options(options, columns, out, _known(path))
    columns.mark(options)
    made = Made()
    parent = pathlib.Path(os.path.abspath(out)).parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=parent) as file:  # it has no name: nothing is left of it, however this process ends
        _write(file, rows, columns, made, not quiet)
        if not quiet:
            print(made, flush=True)
        words = [path, "data", "--out", os.fspath(out), *columns.words]
        for name, value in options.items():
            words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        done = subprocess.run([*words, f"/dev/fd/{file.fileno()}"], pass_fds=[file.fileno()], text=True,
                              stdout=subprocess.PIPE if quiet else None, stderr=subprocess.PIPE if quiet else None)
    if done.returncode:
        said = re.findall(r"^atoll data: (.*)", done.stderr or "", re.M) or [f"exit code {done.returncode} of `atoll data`"]
        raise Error(said[-1] if quiet else "", done.returncode)
    made.report = done.stdout or ""
    return made


def shards(rows, out, text="text", label=None, owner=None, messages=None, template=None, **options):
    """Token shards in the directory `out`, of an iterable of dicts or a data set of `datasets`.

    text, label, owner, messages: the columns. template: for messages, the directory of a transformers tokenizer with a chat
    template, or a function from a list of messages to a text; None: plain(). options: those of `atoll data`, such as sites=2,
    documents=True.
    Returns what was Made. Raises Error, which names row and column; rows count from 0.
    """
    columns = Columns(text, label, owner, messages, template)
    named = {name.replace("_", "-"): value for name, value in options.items() if value is not None and value is not False}
    if hasattr(rows, "column_names") and hasattr(rows, "select_columns"):
        placed = _dataset_rows(rows, columns)
    else:
        placed = ((f"row {number}", row) for number, row in enumerate(rows))
    return _make(placed, out, columns, named, quiet=True)


# ---- the command ----

class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise _wrong(f"{message}; see --help")


def _arguments():
    p = _Parser("python -m atoll.data", allow_abbrev=False, usage="%(prog)s --out DIR [options] SOURCE...",
                                description="Token shards of rows. A SOURCE is a Parquet, Arrow or JSON lines file, a directory "
                                "of datasets.save_to_disk, or a name that datasets.load_dataset knows.",
                                epilog="All other options go to `atoll data`, which makes the ids: --sites, --tokenizer, .. "
                                "`atoll data --help` has them.")
    p.add_argument("sources", nargs="+", metavar="SOURCE")
    p.add_argument("--out", required=True, metavar="DIR", help="directory for the shards")
    p.add_argument("--text", default="text", metavar="COLUMN", help="the text of a row (default: text)")
    p.add_argument("--label", metavar="COLUMN", help="its label: shards for data.objective = labels")
    p.add_argument("--owner", metavar="COLUMN", help="whose it is: all rows of an owner go to one part")
    p.add_argument("--messages", metavar="COLUMN", help="in place of --text: a list of messages with role and content")
    p.add_argument("--template", metavar="DIR", help="for --messages: the chat template of the transformers tokenizer in DIR; "
                   "otherwise \"role:\", a line break, the content")
    p.add_argument("--split", metavar="NAME", help="of a data set with several splits")
    p.add_argument("--subset", metavar="NAME", help="of a data set of load_dataset with several subsets")
    return p


def _divided(words):
    """The words of this command, and the options of `atoll data` as {name: value, or True for a flag}."""
    own = {"help", "out", "text", "label", "owner", "messages", "template", "split", "subset"}
    known, mine, options, rest = None, [], {}, iter(words)
    after = False  # "--"
    for word in rest:
        name, equals, value = word[2:].partition("=")
        if word == "--":
            after = True
        elif not word.startswith("--") or name in own and not after:
            if after:
                raise _wrong(f"{word}: after -- stand options of `atoll data`; name sources before")
            mine.append(word)
        else:
            known = known or _known(program())
            if known.get(name) and not equals:
                value = next(rest, None)
                if value is None:
                    raise _wrong(f"--{name} needs a value")
            options[name] = value if known.get(name) or equals else True
    return mine, options


def main(words):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        mine, options = _divided(words)
        a = _arguments().parse_intermixed_args(mine)
        columns = Columns(a.text, a.label, a.owner, a.messages, a.template)
        _make(sources(a.sources, columns, a.split, a.subset), a.out, columns, options, quiet=False)
    except (Error, ImportError, OSError) as error:
        if str(error):  # else the program has said it
            print(f"atoll.data: {error}", file=sys.stderr)
        return getattr(error, "code", WRONG if isinstance(error, ImportError) else FAILED)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
