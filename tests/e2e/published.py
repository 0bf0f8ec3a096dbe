#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Folders in the layout of published models (tests/golden/published) through the program: ids, logits, weights there and back.

    published.py ATOLL GOLDEN [NAME...]        works in the current directory
"""
import array
import filecmp
import json
import os
import shutil
import struct
import subprocess
import sys

ATOLL, GOLDEN = sys.argv[1], sys.argv[2]
IMPORTED = ("gpt2", "bert", "llama2", "llama3", "mistral", "smollm", "modernbert", "albert")
ENCODERS = ("bert", "modernbert", "albert")
REFUSED = {"distilbert": "model_type = distilbert: there is no such model here", "t5": "model_type = t5: there is no such model here"}
SETTINGS = ["--train.seq_len", "16", "--train.batch_tokens", "64", "--train.warmup_steps", "0"]
LIMIT = 1e-5  # of the largest logit; deploy/check-export.py has 1e-4
failures = []


def fail(text):
    failures.append(text)
    print("FAILED:", text)


def atoll(*words, ok=True):
    done = subprocess.run([ATOLL, *words], capture_output=True, text=True, check=False)
    if ok and done.returncode:
        fail(f"atoll {' '.join(words)}: {done.returncode}: {done.stderr.strip()[-600:]}")
    return done


# ---- ids ----


def documents(folder):
    """Sequences of Megatron-LM's data set: docs/data.md 2.1."""
    with open(os.path.join(folder, "train-0-0000.idx"), "rb") as f:
        index = f.read()
    kind, count = index[17], struct.unpack("<Q", index[18:26])[0]
    lengths = struct.unpack(f"<{count}i", index[34:34 + 4 * count])
    ids = array.array("H" if kind == 8 else "i")
    with open(os.path.join(folder, "train-0-0000.bin"), "rb") as f:
        ids.frombytes(f.read())
    at, out = 0, []
    for n in lengths:
        out.append(list(ids[at:at + n]))
        at += n
    return out


def check_ids(name, golden):
    """Texts without an id are no documents. The order of the parts is not promised, so the lists are compared sorted."""
    atoll("data", "--tokenizer", os.path.join(GOLDEN, name), "--field", "text", "--documents", "--held-out", "0", "--seq-len", "1",
          "--force", "--out", name + ".data", os.path.join(GOLDEN, "texts.jsonl"))
    got, want = sorted(documents(name + ".data")), sorted(x for x in golden["ids"] if x)
    if got != want:
        other = [x for x in want if x not in got]
        fail(f"{name}: {len(other)} of {len(want)} texts have other ids, the first should be {other[:1]}")
    return len(want)


# ---- weights ----


def tensors(folder):
    """name -> (dtype, shape, bytes) of every file of the folder."""
    out = {}
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, file), "rb") as f:
            data = f.read()
        n = struct.unpack("<Q", data[:8])[0]
        for name, x in json.loads(data[8:8 + n]).items():
            if name != "__metadata__":
                out[name] = x["dtype"], x["shape"], data[8 + n + x["data_offsets"][0]:8 + n + x["data_offsets"][1]]
    return out


def as_f32(dtype, data):
    if dtype == "F32":
        return data
    if dtype == "BF16":
        return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    return array.array("f", struct.unpack(f"<{len(data) // 2}e", data)).tobytes()


def plain(name):
    for prefix in ("transformer.", "model.", "bert.", "albert."):
        name = name.removeprefix(prefix)
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def check_weights(name, exported):
    """Every exported tensor has the bytes of the published one, widened to float32."""
    theirs = {plain(k): as_f32(dtype, data) for k, (dtype, _, data) in tensors(os.path.join(GOLDEN, name)).items()}
    ours = tensors(exported)
    for k, (_, _, data) in ours.items():
        if theirs.get(plain(k)) != data:
            fail(f"{name}: {k} is {'another tensor' if plain(k) in theirs else 'not there'} after import and export")
    return len(ours)


def check_logits(name, settings, golden):
    words = ["sample", *settings, "--run.dir", name + ".run", "--ids", ",".join(map(str, golden["input"])), "--logits", "--device.dtype", "f32"]
    got = [float(x) for x in atoll(*words).stdout.split()]
    n, worst = len(golden["logits"][0]), 0.0
    middle, last = golden["logits"]
    rows = [(last, got[-n:])]
    if name in ENCODERS:  # every position; a decoder prints the last one
        at = len(golden["input"]) // 2
        rows.append((middle, got[at * n:(at + 1) * n]))
    for want, mine in rows:
        if len(mine) != n:
            fail(f"{name}: {len(mine)} logits, not {n}")
            continue
        worst = max(worst, max(abs(a - b) for a, b in zip(want, mine)) / max(map(abs, want)))
    if not worst < LIMIT:
        fail(f"{name}: a logit differs by {worst:.2e} of the largest one")
    return worst


def check_tokenizer_files(name, exported):
    """They travel from the folder to the run's directory, and from there into what is exported."""
    for file in ("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"):
        path = os.path.join(GOLDEN, name, file)
        if os.path.exists(path) and not filecmp.cmp(path, os.path.join(exported, file), shallow=False):
            fail(f"{name}: {file} is another one after import and export")


def check_model(name, golden):
    source, yaml = os.path.join(GOLDEN, name), name + ".yaml"
    if os.path.exists(yaml):
        os.remove(yaml)
    settings = ["--config", yaml, *SETTINGS]
    if atoll("import", "--model", source, "--write-config", yaml).returncode:
        return
    said = atoll("import", *settings, "--run.dir", name + ".run", "--model", source).stderr
    if "level=warn" in said and name not in ENCODERS:  # an encoder's heads may be left out, which is said
        fail(f"{name}: import warns: {said}")
    worst = check_logits(name, settings, golden)
    atoll("export", *settings, "--from", name + ".run", "--out", name + ".hf")
    count = check_weights(name, name + ".hf")
    check_tokenizer_files(name, name + ".hf")
    atoll("import", *settings, "--run.dir", name + ".again", "--model", name + ".hf")
    atoll("export", *settings, "--run.dir", name + ".again", "--out", name + ".hf2")
    check_tokenizer_files(name, name + ".hf2")
    with open(name + ".hf/model.safetensors", "rb") as a, open(name + ".hf2/model.safetensors", "rb") as b:
        if a.read() != b.read():
            fail(f"{name}: export, import, export gives other bytes")
    print(f"{name}: logits within {worst:.1e} of the largest one, {count} tensors with equal bytes")


# ---- what is refused, or said ----


def edited(name, source, **fields):
    shutil.copytree(os.path.join(GOLDEN, source), name, dirs_exist_ok=True)
    path = os.path.join(name, "config.json")
    with open(path, encoding="utf-8") as f:
        config = json.load(f)
    with open(path, "w", encoding="utf-8") as f:
        json.dump({**config, **fields}, f)
    return name


def refused(name, *words, says):
    done = atoll(*words, ok=False)
    if done.returncode == 0 or any(s not in done.stderr for s in says):
        fail(f"{name}: exit {done.returncode}, should say {says}: {done.stderr.strip()[:600]}")


def write_tensors(path, all_tensors):
    header, data = {}, b""
    for k, (dtype, shape, x) in all_tensors.items():
        header[k] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(x)]}
        data += x
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def check_refusals():
    for name, says in REFUSED.items():
        refused(name, "import", "--model", os.path.join(GOLDEN, name), "--write-config", "none.yaml",
                says=[says, "weights of gpt2, llama, mistral, bert, albert and modernbert are read", "atoll data --tokenizer"])
    window = edited("window", "mistral", sliding_window=4096)
    refused("a window", "import", "--model", window, "--write-config", "none.yaml",
            says=["sliding_window = 4096", "no sequence has more than 4096 tokens", '"sliding_window": null'])
    field = edited("field", "llama2", new_switch=True)
    refused("a field", "import", "--model", field, "--write-config", "none.yaml", says=["new_switch = true", "--ignore-field new_switch"])
    atoll("import", "--model", field, "--write-config", "field.yaml", "--ignore-field", "new_switch")
    scaled = edited("scaled", "llama3", rope_scaling={"rope_type": "yarn", "factor": 2.0})
    refused("yarn", "import", "--model", scaled, "--write-config", "none.yaml", says=["rope_scaling.rope_type = yarn", "default and llama3"])


def check_thin_messages():
    settings = ["import", "--config", "smollm.yaml", *SETTINGS, "--run.dir"]
    source, first = tensors(os.path.join(GOLDEN, "smollm")), "model.norm.weight"
    for k, prefix in enumerate(("_orig_mod.", "module.", "module._orig_mod.")):
        folder = edited(f"wrapped{k}", "smollm")
        write_tensors(folder + "/model.safetensors", {prefix + n: x for n, x in source.items()})
        said = atoll(*settings, folder + ".run", "--model", folder).stderr
        if f"every name begins with {prefix}," not in said:
            fail(f"{prefix}: nothing said: {said}")
    write_tensors("wrapped0/model.safetensors", {("module." if n == first else "") + n: x for n, x in source.items()})
    refused("some names wrapped", *settings, "w.run", "--model", "wrapped0", says=["module.model.norm.weight", "one has a prefix of torch.compile", "state_dict()"])
    folder = edited("pickled", "smollm")
    os.rename(folder + "/model.safetensors", folder + "/pytorch_model.bin")
    refused("a pickle", *settings, "p.run", "--model", folder, says=["pytorch_model.bin", "pickle", "save_pretrained"])
    folder = edited("both", "smollm")
    with open(folder + "/model.safetensors.index.json", "w", encoding="utf-8") as f:
        json.dump({"weight_map": {first: "other.safetensors"}}, f)
    said = atoll(*settings, "both.run", "--model", folder).stderr
    if "model.safetensors why=\"taken, as transformers does" not in said or "index.json next to it is not read" not in said:
        fail(f"two sets of weights: nothing said: {said}")


def check_start():
    """Nothing was trained before an import: no warning about another number of ranks."""
    atoll("data", "--tokenizer", os.path.join(GOLDEN, "smollm"), "--field", "text", "--held-out", "0", "--seq-len", "16", "--force", "--out", "start.data",
          os.path.join(GOLDEN, "texts.jsonl"))
    done = atoll("train", "--config", "smollm.yaml", "--run.dir", "smollm.run", *SETTINGS, "--train.steps", "2", "--train.eval_every", "0",
                 "--data.eval", "", "--data.train", "start.data/train-0-*.bin", "--log.progress", "none")
    if "bit-identical" in done.stderr + done.stdout:
        fail(f"a start from an import: {done.stderr}")


def main():
    for name in sys.argv[3:] or sorted(IMPORTED + tuple(REFUSED)):
        with open(os.path.join(GOLDEN, name + ".json"), encoding="utf-8") as f:
            golden = json.load(f)
        print(f"{name}: ids of {check_ids(name, golden)} texts are those of tokenizers" if not failures else name)
        if name in IMPORTED:
            check_model(name, golden)
    if not sys.argv[3:]:
        check_refusals()
        check_thin_messages()
        check_start()
    sys.exit(1 if failures else 0)


main()
