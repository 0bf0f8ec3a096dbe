# SPDX-License-Identifier: Apache-2.0
"""metrics.jsonl of a site or an aggregator (docs/metrics.md) as dicts, or as a pandas DataFrame for each kind of record.

    for record in atoll.metrics.records("run/a", "round"): ...
    atoll.metrics.frame("run/a", "step").plot(x="step", y="loss")
"""
import json
import os

NAME = "metrics.jsonl"
# What makes two records of a kind the same one, repeated by a restart. Kinds that are not here are events: each counts.
KEYS = {"step": ("step",), "round": ("fragment", "round"), "eval": ("step", "of"), "task": ("round", "of"),
        "probe": ("round", "number"), "source": ("step", "source"), "hook": ("step", "hook"),
        "site": ("site", "fragment", "round")}


def _lines(path, end=None):
    """(place, record) of each line until byte `end`. The last line may be torn: a process is writing it, or was killed."""
    process = -1
    with open(path, "rb") as file:
        place = 0
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n") or end is not None and place >= end:
                return
            record = _record(line)
            if record is None:
                raise ValueError(f"{path}: line {number} is no record; docs/metrics.md has the format")
            process += record["kind"] == "start"
            yield place, {**record, "process": max(process, 0)}
            place += len(line)


def _record(line):
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("kind"), str) else None


def _counting(path):
    """({key: place of the record that counts}, byte at which this was so). A round that a restart takes from its own disk
    (replayed) says nothing new: the one before counts."""
    last, end = {}, 0
    for place, record in _lines(path):
        key = _key(record)
        if key and not (record.get("replayed") and key in last):
            last[key] = place
        end = place + 1
    return last, end


def _key(record):
    fields = KEYS.get(record["kind"])
    return fields and (record["kind"], *(record.get(name) for name in fields))


def records(run_dir, kind=None, repeated=False):
    """The records of a directory, or of the file itself, in their order, as dicts; kind: of this kind alone.

    A restarted site repeats some steps: of the records of one step, or of one round, the last one counts, and repeated=True gives
    all. `process` is added: how many starts came before it. Records that are written meanwhile are left out.
    """
    path = os.path.join(run_dir, NAME) if os.path.isdir(run_dir) else run_dir
    last, end = _counting(path)
    for place, record in _lines(path, end):
        if (kind is None or record["kind"] == kind) and (repeated or last.get(_key(record), place) == place):
            yield record


def _pandas():
    try:
        import pandas
    except ImportError:
        raise ImportError("frames need pandas: pip install pandas; atoll.metrics.records() gives dicts without it") from None
    return pandas


def frames(run_dir, repeated=False):
    """{kind: DataFrame} of all records(). A number that is null in the file is NaN."""
    pandas, rows = _pandas(), {}
    for record in records(run_dir, repeated=repeated):
        rows.setdefault(record.pop("kind"), []).append(record)
    return {kind: pandas.DataFrame(found).drop(columns="v").infer_objects() for kind, found in rows.items()}


def frame(run_dir, kind, repeated=False):
    """The DataFrame of one kind, such as "round". KeyError: there is none of it yet."""
    found = _pandas().DataFrame(records(run_dir, kind, repeated))
    if found.empty:
        raise KeyError(f"{run_dir}: no record of kind {kind}; there are {', '.join({r['kind']: 0 for r in records(run_dir)})}")
    return found.drop(columns=["v", "kind"]).infer_objects()
