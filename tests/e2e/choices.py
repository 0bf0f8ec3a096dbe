#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reference of choices.sh: prompts as lm-evaluation-harness makes them (its rules, with Python's own strip, capitalize and
re), token ids, and the log-likelihoods of an exported GPT-2 in float64, plain Python. Nothing of the program is used."""
import csv
import json
import math
import operator
import re
import struct
import subprocess
import sys

SHOTS, LONGEST, MMLU_LONGEST = 2, 64, 512  # MMLU's worked examples are long
# A blank at the end of a context, brackets, two equal choices, letters that are no ASCII, a choice that is longest by far.
HELLASWAG = [
    {"ind": 1, "activity_label": "Roof shingle removal", "ctx_a": "A man is sitting on a roof.", "ctx_b": "he ÄND a Friend",
     "ctx": "", "label": 3, "split": "val",
     "endings": ["is using wrap to wrap a pair of skis.", "is ripping level tiles off.", "is holding a cube.", "starts pulling up roofing."]},
    {"ind": 2, "activity_label": "How to [step] rest", "ctx_a": "Sit down [title] Lie  down. [substeps] Now [x", "ctx_b": "", "ctx": "",
     "label": "1", "endings": [" the [title] end. ", "same [a] words", "same [bc] words", "naïve — über"]},
    {"ind": 3, "activity_label": "Ends", "ctx_a": "in [brackets]", "ctx_b": "[title]", "ctx": "", "label": 0,
     "endings": ["a", "a", "b " * 20, "c"]},
]
ARC = [
    {"id": "x", "question": "Which is a metal?", "choices": {"text": ["wood", "iron", "air"], "label": ["A", "B", "C"]}, "answerKey": "B"},
    {"id": "y", "question": {"stem": "What is warm?", "choices": [{"text": t, "label": n} for t, n in
                                                                    (("ice", "1"), ("the sun", "2"), ("snow", "3"), ("rain", "4"), ("a cold night", "5"))]},
     "answerKey": "2"},
]
MMLU = [
    {"question": "  What is 1 + 1?\n", "subject": "abstract_algebra", "choices": ["1", "2", "3", "4"], "answer": 1},
    {"question": "Who wrote it?", "subject": "world_history", "choices": ["he", "she", "they", "we"], "answer": "C"},
]
DEV = [
    {"question": f"Is {i} even?" + " Long ago." * (s == "world_history"), "subject": s, "choices": ["no", "yes", "both", "neither"], "answer": (i + 1) % 2}
    for i in range(3) for s in ("world_history", "abstract_algebra")
]
# As Hendrycks' files, by subject: commas, quotes, line breaks within a field, a field that begins with a quote, blanks, an empty choice.
CSV = [
    {"question": 'Let "f" be a map,\r\nand x = "1, 2"', "subject": "abstract_algebra", "choices": ['"quoted", all', "2,3", " blank ", "naïve"], "answer": "D"},
    {"question": " One\r two?", "subject": "abstract_algebra", "choices": ["", "b\nc", '5" wide', "d"], "answer": "A"},
    {"question": "Who wrote it?", "subject": "world_history", "choices": ["he", "she", "they", "we"], "answer": "C"},
]
QUERY = [{"query": "The license", "choices": ["is free", "of this program", "xqzj"], "gold": 1},
         {"query": "Equal ones", "choices": ["e", "e"], "gold": 1}]  # the pick is the first
SETS = {"hellaswag": HELLASWAG, "arc": ARC, "mmlu": MMLU, "csv": CSV, "query": QUERY}


def write():
    for name, rows in {**SETS, "dev": DEV}.items():
        with open(name + ".jsonl", "w", encoding="utf-8") as f:
            f.write("\n".join(json.dumps(r, ensure_ascii=r["ind"] == 1 if "ind" in r else True) for r in rows) + "\n\n")
    for subject, end, quoting in (("abstract_algebra", "\r\n", csv.QUOTE_MINIMAL), ("world_history", "\n", csv.QUOTE_ALL)):
        for part, rows in (("test", CSV), ("dev", DEV)):
            with open(f"{subject}_{part}.csv", "w", encoding="utf-8-sig" if part == "dev" else "utf-8", newline="") as f:
                out = csv.writer(f, lineterminator=end, quoting=quoting)
                for r in rows:
                    if r["subject"] == subject:
                        f.write(end)  # a blank line
                        out.writerow([r["question"], *r["choices"], r["answer"] if isinstance(r["answer"], str) else "ABCD"[r["answer"]]])
    examples = []
    for number, (context, choices, label) in enumerate(bin_rows()):
        stream = [65535, 0, number, label, len(choices), len(context), *context]
        for c in choices:
            stream += [len(c), *c]
        stream[1] = 2 * len(stream)
        examples += stream
    with open("hellaswag.bin", "wb") as f:
        f.write(struct.pack("<256i", 20240522, 1, 3, 0, *[0] * 252) + struct.pack(f"<{len(examples)}H", *examples))


def bin_rows():
    """llm.c's own prompt: ctx as it is, and each ending after a blank; lengths differ, so acc_norm divides by tokens."""
    for r in HELLASWAG:
        yield list((r["ctx_a"] + " x").encode()), [list((" " + e).encode()) for e in r["endings"]], int(r["label"])


# ---- ids ----
TOKENIZE = []  # tests/tokenize FOLDER, which tokenizer_oracle.py compares with Hugging Face's; empty: bytes
known = {}


def encode(text):
    if not TOKENIZE:
        return list(text.encode())
    if text not in known:
        out = subprocess.run(TOKENIZE, input=text.encode() + b"\0", check=True, capture_output=True, timeout=60).stdout
        known[text] = [int(n) for n in out.split()][1:]
    return known[text]


# ---- prompts ----
def preprocess(text):
    text = text.strip().replace(" [title]", ". ")
    return re.sub("\\[.*?\\]", "", text).replace("  ", " ")


def words(name, r):
    """Context, choices, label, description, subject."""
    if name == "hellaswag":
        context = preprocess(r["activity_label"] + ": " + r["ctx_a"] + " " + capitalize(r["ctx_b"]))
        return context, [preprocess(e) for e in r["endings"]], int(r["label"]), "", None
    if name == "arc":
        q = r["question"]
        choices = q["choices"] if isinstance(q, dict) else [{"text": t, "label": n} for t, n in zip(r["choices"]["text"], r["choices"]["label"])]
        stem = q["stem"] if isinstance(q, dict) else q
        return f"Question: {stem}\nAnswer:", [c["text"] for c in choices], [c["label"] for c in choices].index(r["answerKey"]), "", None
    if name in ("mmlu", "csv", "dev"):
        a = r["choices"]
        context = f"{r['question'].strip()}\nA. {a[0]}\nB. {a[1]}\nC. {a[2]}\nD. {a[3]}\nAnswer:"
        label = r["answer"] if isinstance(r["answer"], int) else "ABCD".index(r["answer"])
        return context, list("ABCD"), label, "The following are multiple choice questions (with answers) about " + \
            " ".join(r["subject"].split("_")) + ".\n\n", r["subject"]
    return r["query"], r["choices"], r["gold"], "", None


def capitalize(text):
    return text.capitalize()


def questions(name):
    """(context ids, ids of each choice, length of each choice, label)"""
    if name == "bin":
        yield from ((c, choices, [len(x) for x in choices], label) for c, choices, label in bin_rows())
        return
    for r in SETS[name]:
        context, choices, label, description, subject = words(name, r)
        if name in ("mmlu", "csv"):
            shots = [words("dev", d) for d in DEV if d["subject"] == subject][:SHOTS]
            context = description + "".join(f"{c} {x[n]}\n\n" for c, x, n, _, _ in shots) + context
        blanks = len(context) - len(context.rstrip())
        head, tail = (context[:-blanks], context[-blanks:]) if blanks else (context, "")
        front = encode(head)
        yield front, [encode(head + tail + " " + c)[len(front):] for c in choices], [len(c) for c in choices], label


# ---- the model ----
def read_model(folder):
    data = open(folder + "/model.safetensors", "rb").read()
    (n,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            at = 8 + n + t["data_offsets"][0]
            assert t["dtype"] == "F32"
            values = struct.unpack_from(f"<{(t['data_offsets'][1] - t['data_offsets'][0]) // 4}f", data, at)
            shape = t["shape"]
            tensors[name.removeprefix("transformer.")] = values if len(shape) == 1 else \
                [values[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])]
    return tensors, json.load(open(folder + "/config.json"))


def dot(a, b):
    return sum(map(operator.mul, a, b))


class Model:
    def __init__(self, folder):
        self.t, self.c = read_model(folder)
        self.fronts = {}  # by ids: q, k, v
        for name in [k for k in self.t if re.search(r"(c_attn|c_proj|c_fc)\.weight$", k)]:  # Conv1D: [in, out]
            self.t[name] = list(zip(*self.t[name]))

    def linear(self, name, x):
        return [dot(row, x) + b for row, b in zip(self.t[name + ".weight"], self.t[name + ".bias"])]

    def norm(self, name, x):
        mean = sum(x) / len(x)
        scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + self.c["layer_norm_epsilon"])
        return [(v - mean) * scale * g + b for v, g, b in zip(x, self.t[name + ".weight"], self.t[name + ".bias"])]

    def logits(self, ids, wanted, before):
        """Of the positions in `wanted`. before: q, k, v by layer of the first positions; those of further ones are added."""
        heads, width = self.c["n_head"], self.c["n_embd"]
        size, known = width // heads, len(before[0])
        xs = {p: [a + b for a, b in zip(self.t["wte.weight"][i], self.t["wpe.weight"][p])] for p, i in enumerate(ids) if p >= known}
        for layer in range(self.c["n_layer"]):
            at = f"h.{layer}."
            qkv = before[layer]
            qkv += [self.linear(at + "attn.c_attn", self.norm(at + "ln_1", x)) for x in xs.values()]
            for p, x in xs.items():
                mixed = []
                for h in range(0, width, size):
                    q = qkv[p][h:h + size]
                    scores = [dot(q, qkv[j][width + h:width + h + size]) / math.sqrt(size) for j in range(p + 1)]
                    top = max(scores)
                    e = [math.exp(s - top) for s in scores]
                    mixed += [dot(e, [qkv[j][2 * width + h + i] for j in range(p + 1)]) / sum(e) for i in range(size)]
                xs[p] = [a + b for a, b in zip(x, self.linear(at + "attn.c_proj", mixed))]
            for p, x in xs.items():
                up = [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3)))
                      for v in self.linear(at + "mlp.c_fc", self.norm(at + "ln_2", x))]
                xs[p] = [a + b for a, b in zip(x, self.linear(at + "mlp.c_proj", up))]
        return {p: [dot(row, y) for row in self.t["wte.weight"]] for p in wanted for y in [self.norm("ln_f", xs[p])]}

    def score(self, context, choice, longest):
        ids = (context + choice)[-(longest + 1):]
        inputs, first = ids[:-1], len(ids) - 1 - len(choice)
        front = tuple(inputs[:first])
        if front not in self.fronts:
            self.fronts[front] = [[] for _ in range(self.c["n_layer"])]
            self.logits(front, (), self.fronts[front])
        out = self.logits(inputs, range(first, len(inputs)), [list(layer) for layer in self.fronts[front]])
        total = 0.0
        for p, row in out.items():
            top = max(row)
            total += row[ids[p + 1]] - top - math.log(sum(math.exp(v - top) for v in row))
        return total


def argmax(values):  # numpy's: the first of equal ones
    return max(range(len(values)), key=lambda i: (values[i], -i))


def compare(folder, found, *tokenize):
    model = Model(folder)
    TOKENIZE[:] = tokenize
    rows = [json.loads(line) for line in open(found, encoding="utf-8")]
    cut = 0
    for name in [n for n in ("hellaswag", "arc", "mmlu", "csv", "query", "bin") if any(r["task"] == n for r in rows)]:
        own = [r for r in rows if r["task"] == name]
        wanted = list(questions(name))
        assert len(own) == len(wanted) > 0, (name, len(own))
        for r, (context, choices, lengths, label) in zip(own, wanted):
            seen = {}
            longest = MMLU_LONGEST if name in ("mmlu", "csv") else LONGEST
            for c in choices:
                seen[tuple(c)] = seen.get(tuple(c)) or model.score(context, c, longest)
            scores = [seen[tuple(c)] for c in choices]
            cut += sum(len(context) + len(c) > longest + 1 for c in choices)
            for a, b in zip(r["scores"], scores):
                assert abs(a - b) <= 1e-6 * abs(b) + 1e-6, (name, r, scores)
            assert r["label"] == label, (name, r, label)
            # Equal picks, and no pick hangs on the last digit.
            assert r["pick"] == argmax(scores), (name, r, scores)
            assert r["pick_norm"] == argmax([s / n for s, n in zip(scores, lengths)]), (name, r, scores, lengths)
    if tokenize:
        assert max(len(c) for c in known.values()) < max(len(t) for t in known), "no token has several letters"
        return
    assert {r["task"] for r in rows} == {*SETS, "bin"}
    assert cut > 3, "no context was longer than the model reads"
    assert min(len(context) for context, _, _, _ in questions("mmlu")) > 200, "MMLU without worked examples"
    same = rows[2]["scores"]
    assert same[0] == same[1], "equal choices with other scores"
    accuracy = {n: [sum(r[k] == r["label"] for r in rows if r["task"] == n) / sum(r["task"] == n for r in rows) for k in ("pick", "pick_norm")]
                for n in {r["task"] for r in rows}}
    json.dump(accuracy, open("accuracy.json", "w", encoding="utf-8"))


def totals(found):
    """atoll eval --format json compared with the picks."""
    wanted = json.load(open("accuracy.json", encoding="utf-8"))
    rows = [json.loads(line) for line in open(found, encoding="utf-8")]
    assert {r["task"] for r in rows} == set(wanted)
    for r in rows:
        assert abs(r["accuracy"] - wanted[r["task"]][0]) < 1e-8 and abs(r["accuracy_norm"] - wanted[r["task"]][1]) < 1e-8, r
    chance = {r["task"]: r["chance"] for r in rows}
    assert abs(chance["arc"] - (1 / 3 + 1 / 5) / 2) < 1e-8 and chance["bin"] == 0.25, chance


if __name__ == "__main__":
    {"write": write, "compare": compare, "totals": totals}[sys.argv[1]](*sys.argv[2:])
