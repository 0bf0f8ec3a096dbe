# SPDX-License-Identifier: Apache-2.0
"""What a model must beat before its loss or accuracy says anything: the unigram entropy of the held-out text, in nats a token, and the
share of the largest class of an eval set. floors.csv keeps them for the page; small runs compute them again."""
import array
import collections
import csv
import glob
import math
import os
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import records
from expression import Bad

COLUMNS = ("data", "of", "set", "floor")
LLMC = {20240520: "H", 20240801: "I"}  # magic of a shard: type of its ids
MEGATRON = {8: "H", 4: "i"}


def ids_of(path):
    """The token ids of a shard: llm.c's, or Megatron's next to its index."""
    content = pathlib.Path(path).read_bytes()
    index = pathlib.Path(path).with_suffix(".idx")
    if index.exists():
        kind, start = MEGATRON[index.read_bytes()[17]], 0
    else:
        magic, _, count = struct.unpack("<3i", content[:12])
        kind, start = LLMC.get(magic), 1024
        if kind is None:
            raise Bad(f"{path}: no shard of tokens: magic {magic}")
        content = content[:start + count * struct.calcsize(kind)]
    found = array.array(kind)
    found.frombytes(content[start:])
    if sys.byteorder == "big":
        found.byteswap()
    return found


def entropy(counts):
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values())


def unigram(pattern):
    counts = collections.Counter()
    for path in sorted(glob.glob(pattern)):
        counts.update(ids_of(path))
    if not counts:
        raise Bad(f"{pattern}: no held-out text")
    return entropy(counts)


def majority(pattern):
    counts = collections.Counter()
    for path in sorted(glob.glob(pattern)):
        content = pathlib.Path(path).with_suffix(".labels").read_bytes()
        counts.update(struct.unpack_from(f"<{struct.unpack_from('<Q', content, 8)[0]}i", content, 16))
    if not counts:
        raise Bad(f"{pattern}: no labels")
    return max(counts.values()) / sum(counts.values())


def of_eval(text):
    """{set: floor} of a setting data.eval: SET=PATTERN,.. of labels, or the pattern of a text, whose set is "text"."""
    if "=" not in text.rsplit("/", 1)[0].partition("/")[0]:
        return {"text": unigram(text)}
    return {name: majority(pattern) for name, _, pattern in (item.partition("=") for item in text.split(","))}


class Floors:
    """Of the data sets of a row, by what floors.csv says. made: {(data, of, set): floor} in addition, of a quick run."""

    def __init__(self, row, path, quick=False, made=None):
        self.row, self.quick, self.found = row, quick, dict(made or {})
        if not quick and os.path.exists(path):
            with open(path, newline="", encoding="utf-8") as f:
                self.found |= {(r["data"], int(r["of"]), r["set"]): float(r["floor"]) for r in csv.DictReader(f)}

    def __call__(self, run, part):
        settings = self.row.settings(run, self.quick)
        return self.found.get((*place(settings), part or "text"))


def place(settings):
    """Data set and number of parts that the held-out text of a run depends on."""
    return settings.get("data", "bytes"), int(settings.get("of", settings.get("sites", 1)))


def measured(row, names, data, quick):
    """{(data, of, set): floor} of the training runs that are named."""
    found = {}
    for name in names:
        settings = row.settings(name, quick)
        if "program" in settings:
            continue
        where = place(settings)
        if not any(key[:2] == where for key in found):
            found |= {(*where, part): value for part, value in of_eval(data.shards(*where)[0]["data.eval"]).items()}
    return found


def keep(path, found):
    """Adds to floors.csv what is new; Bad: a text has another floor than before."""
    known = Floors(None, path).found
    for key, value in found.items():
        if key in known and abs(known[key] / value - 1) > 1e-3:
            raise Bad(f"{path}: the floor of {' '.join(map(str, key))} was {known[key]:.6g} and is {value:.6g}: the text is another one; "
                      "remove the line, and run the rows of that text again")
    rows = [[*key, f"{value:.6g}"] for key, value in found.items() if key not in known]
    if rows:
        records.append(path, COLUMNS, rows)
