#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What breaks if this fails: a data set of `datasets`, a Parquet or an Arrow file gives other shards than its texts do as JSON
lines, a chat is not what the template of its tokenizer makes of it, a frame of metrics has other numbers than metrics.jsonl. What
needs no package is in tests/e2e/python_data.sh.

    tests/python.sh data        what installs datasets, pyarrow and pandas and calls this
    check_data.py ATOLL SCRATCH CSV
"""
import array
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys

import datasets
import pandas
import pyarrow
import pyarrow.feather
import pyarrow.parquet
from transformers import AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import records  # noqa: E402

import atoll  # noqa: E402
import atoll.data  # noqa: E402
import atoll.metrics  # noqa: E402

PUBLISHED = ROOT / "tests/golden/published"
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{% if m.tool_calls is defined %}CALLS{% endif %}<|start_header_id|>"
            "{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endfor %}")
COLUMNS = ["date", "machine", "commit", "case", "rounds", "kills", "outer_state"]


def texts_of():
    whole = "\n\n".join(p.read_text() for p in sorted((ROOT / "tests/golden/text").glob("*.txt")))
    return [text for text in (whole[i:i + 250] for i in range(0, len(whole), 250)) if text.strip()]


def rows_of(texts):
    rows = [{"text": text, "kind": i % 2, "patient": f"p{i // 4}", "number": i,
             "messages": [{"role": "user", "content": text[:40], "tool_calls": None}, {"role": "assistant", "content": text[40:],
                                                                                      "tool_calls": None}]}
            for i, text in enumerate(texts)]
    return [*rows[:2], {**rows[0], "text": None, "messages": None}, *rows[2:]]


def features():
    text = datasets.Value("string")
    return datasets.Features({"text": text, "kind": datasets.ClassLabel(names=["bad", "good"]), "patient": text,
                              "number": datasets.Value("int64"),
                              "messages": datasets.List({"role": text, "content": text, "tool_calls": text})})


def command(*words, code=0):
    """What `python -m atoll.data` says."""
    done = subprocess.run([sys.executable, "-m", "atoll.data", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, (words, done)
    return done.stdout + done.stderr


def program(*words):
    subprocess.run([os.environ["ATOLL_PROGRAM"], "data", *map(str, words)], check=True, capture_output=True)


def files(directory):
    """{name: bytes} of a directory of shards, which is removed."""
    found = {p.name: p.read_bytes() for p in pathlib.Path(directory).iterdir() if p.name != "FORMAT"}
    shutil.rmtree(directory)
    return found


def equal(what, wanted):
    assert files("made") == wanted, f"{what}: other shards than those of `atoll data`"


def write_sources(rows):
    data = datasets.Dataset.from_list(rows, features=features())
    data.save_to_disk("saved")
    datasets.DatasetDict({"train": data, "test": data.select(range(9))}).save_to_disk("splits")
    data.to_parquet("rows.parquet")
    table = data.data.table.combine_chunks()
    pyarrow.feather.write_feather(table, "rows.feather")
    with pyarrow.ipc.new_stream("rows.arrow", table.schema) as stream:
        stream.write_table(table, max_chunksize=100)
    pathlib.Path("hub/more").mkdir(parents=True)  # what load_dataset knows: a directory with data files
    data.to_parquet("hub/more/train-00000-of-00001.parquet")
    data.select(range(9)).to_parquet("hub/more/test-00000-of-00001.parquet")
    pathlib.Path("hub/README.md").write_text("---\nconfigs:\n- config_name: more\n  data_files:\n"
                                             "  - {split: train, path: more/train-*}\n  - {split: test, path: more/test-*}\n---\n")
    return data


def check_sources(data, rows, texts):
    pathlib.Path("texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    options = ["--sites", "2", "--tokenizer", PUBLISHED / "gpt2"]
    program("--out", "made", "--field", "text", *options, "texts.jsonl")
    wanted = files("made")
    for words in (["saved"], ["splits", "--split", "train"], ["rows.parquet"], ["rows.feather"], ["rows.arrow"],
                  ["hub", "--subset", "more", "--split", "train"]):
        said = command("--out", "made", *words, *options)
        assert f"{len(rows)} rows; left out: 1 with a null text, 0 with a blank one" in said, said
        equal(words, wanted)
    for source in (data, data.with_format("numpy"), data.to_iterable_dataset(), pandas.DataFrame(rows).to_dict("records")):
        made = atoll.data.shards(source, "made", sites=2, tokenizer=PUBLISHED / "gpt2")
        assert (made.rows, made.null) == (len(rows), 1), made
        equal(type(source), wanted)


def check_labels(data, rows):
    """The names of a ClassLabel, not its numbers."""
    lines = [(row["patient"], ["bad", "good"][row["kind"]], " ".join(row["text"].split())) for row in rows if row["text"]]
    pathlib.Path("labels.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    program("--out", "made", "--labels", "--owners", "--tokenizer", PUBLISHED / "bert", "labels.tsv")
    wanted = files("made")
    joined = data.map(lambda row: {"text": row["text"] and " ".join(row["text"].split())})
    atoll.data.shards(joined, "made", label="kind", owner="patient", tokenizer=PUBLISHED / "bert")
    equal("labels", wanted)


def check_chats():
    """The template of a tokenizer: the ids are those that the tokenizer itself gives the chat. Before a document of a stream
    `atoll data` puts bos, so that the template's is left out; of --documents the template's stays."""
    shutil.copytree(PUBLISHED / "llama3", "llama3")
    tokenizer = AutoTokenizer.from_pretrained("llama3")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained("chat")
    rows = pyarrow.parquet.read_table("rows.parquet").to_pylist()
    chats = [[{k: m[k] for k in ("role", "content")} for m in row["messages"]] for row in rows if row["messages"]]
    whole = [tokenizer.apply_chat_template(chat, tokenize=False) for chat in chats]
    ids = [i for text in whole for i in tokenizer(text, add_special_tokens=False).input_ids]
    for head, words in ((1024, []), (0, ["--documents"])):
        command("--out", "made", "--messages", "messages", "--template", "chat", "rows.parquet", "--tokenizer", "llama3",
                "--held-out", "0", *words)
        read = array.array("H", files("made")["train-0-0000.bin"][head:]).tolist()
        assert read == ids, f"{words}: {len(read)} ids, and {len(ids)} of the tokenizer"
    assert "the tokenizer has no chat template" in command("--out", "made", "--messages", "messages", "--template", "llama3",
                                                          "rows.parquet", code=4)


def check_errors(data):
    def refused(words, *arguments):
        said = command("--out", "made", *arguments, code=4)
        assert words in said and not pathlib.Path("made").exists(), (words, said)
    for source in ("saved", "rows.parquet", "rows.feather", "rows.arrow"):
        refused(f"{source}: no column \"body\"; the columns are text, kind, patient, number, messages", "--text", "body", source)
        refused(f"{source}, row 0, column \"number\": of type int; a text is expected", "--text", "number", source)
        refused(f"{source}, row 0, column \"text\": a text; a list of messages is expected", "--messages", "text", source)
    refused("splits: several splits; name one with --split: train, test", "splits")
    refused("splits: no split dev; name one with --split: train, test", "splits", "--split", "dev")
    refused("saved: it has no splits", "saved", "--split", "train")
    refused("nix/nix: datasets does not load it", "nix/nix")
    pathlib.Path("bad.parquet").write_bytes(b"PAR1 and no more")
    refused("bad.parquet: ", "bad.parquet")
    unlabelled = data.map(lambda row, i: {"kind": -1 if i == 5 else row["kind"]}, with_indices=True)
    try:
        atoll.data.shards(unlabelled, "made", label="kind", tokenizer=PUBLISHED / "bert")
        raise SystemExit("a row without a label is taken")
    except atoll.Error as error:
        assert 'row 5, column "kind": -1 is none of the 2 classes: bad, good' in str(error), error


def check_frames(program):
    pathlib.Path("run.yaml").write_text("""run: {name: data, seed: 5, dir: a}
model: {layers: 1, heads: 2, d_model: 32, max_seq_len: 32}
data: {train: [bytes/train-0-0000.bin], eval: [bytes/eval-0000.bin]}
train: {steps: 20, seq_len: 32, batch_tokens: 256, warmup_steps: 0, eval_every: 5, eval_tokens: 512}
device: {dtype: f32, threads: 1}
""")
    atoll.data.shards(({"text": t} for t in texts_of()), "bytes")
    for steps in (20, 30):
        subprocess.run([program, "train", "--config", "run.yaml", "--train.steps", str(steps)], check=True, capture_output=True)
    lines = [json.loads(line) for line in open("a/metrics.jsonl")]
    with open("a/metrics.jsonl", "a") as file:
        file.write(json.dumps({**[r for r in lines if r["kind"] == "step"][-1], "loss": None}) + "\n" + '{"v":1,')
    frames = atoll.metrics.frames("a")
    assert {"start", "step", "eval", "final"} <= frames.keys(), frames.keys()
    steps = frames["step"]
    assert list(steps.step) == list(range(1, 31)) and steps.loss.dtype == float and steps.loss.isna().sum() == 1
    assert list(steps.loss)[:29] == [r["loss"] for r in lines if r["kind"] == "step"][:29]
    assert steps.groupby("process").size().to_dict() == {0: 20, 1: 10}
    assert len(atoll.metrics.frame("a", "step", repeated=True)) == 31
    assert steps.equals(atoll.metrics.frame("a", "step"))
    try:
        atoll.metrics.frame("a", "round")
        raise SystemExit("a kind that is not there")
    except KeyError as error:
        assert "no record of kind round; there are start, " in str(error), error


def main():
    program_path, scratch, results = map(os.path.abspath, sys.argv[1:4])
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    os.chdir(scratch)
    os.environ.update(ATOLL_PROGRAM=program_path, HF_HUB_OFFLINE="1", HF_HOME=os.path.join(scratch, "cache"))
    texts = texts_of()
    rows = rows_of(texts)
    data = write_sources(rows)
    check_sources(data, rows, texts)
    check_labels(data, rows)
    check_chats()
    check_errors(data)
    check_frames(program_path)
    print(f"data: {len(rows)} rows of ten sources have the ids of `atoll data`; frames have the numbers of metrics.jsonl")
    records.append(results, COLUMNS, [[datetime.datetime.now().isoformat(timespec="seconds"), records.machine(),
                                       records.commit("tests/python/results.csv"), "data", "", "", ""]])


main()
