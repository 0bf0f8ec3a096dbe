#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The golden models of BERT, ALBERT and ModernBERT as transformers names them, and their golden logits.

    tests/e2e/encoders.py write GOLDEN_FOLDER OUT        OUT/model.safetensors and config.json
    tests/e2e/encoders.py compare GOLDEN_FOLDER ATOLL WORDS ...

The names are those of GOLDEN_FOLDER/make.py, which ran transformers; no package is needed here. compare: `ATOLL sample WORDS` for
each sequence of the golden batch gives the golden logits of every position, and those of the pair head, within 1e-4.
"""
import ast
import json
import os
import struct
import subprocess
import sys

CONFIGS = {
    "bert": {"architectures": ["BertForPreTraining"], "hidden_act": "gelu", "type_vocab_size": 2, "layer_norm_eps": 1e-12,
             "num_hidden_layers": 2, "intermediate_size": 40},
    "albert": {"architectures": ["AlbertForPreTraining"], "hidden_act": "gelu_new", "type_vocab_size": 2, "embedding_size": 8,
               "layer_norm_eps": 1e-12, "num_hidden_layers": 3, "intermediate_size": 40},
    "modernbert": {"architectures": ["ModernBertForMaskedLM"], "local_attention": 6, "global_attn_every_n_layers": 3,
                   "global_rope_theta": 1000.0, "local_rope_theta": 100.0, "norm_eps": 1e-05, "num_hidden_layers": 4,
                   "intermediate_size": 24},
}
SIZES = {"vocab_size": 48, "hidden_size": 16, "num_attention_heads": 2, "max_position_embeddings": 16}
LAYERS = {"bert": "bert.encoder.layer.{}.", "albert": "albert.encoder.albert_layer_groups.{}.albert_layers.0.",
          "modernbert": "model.layers.{}."}
QUERIES = {"bert": "attention.self.", "albert": "attention."}


def tables(folder):
    with open(os.path.join(folder, "make.py"), encoding="utf-8") as f:
        tree = ast.parse(f.read())
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in ("LAYER", "OUTSIDE"):
            found[node.targets[0].id] = [(ours, theirs) for theirs, ours in ast.literal_eval(node.value)]
    return found["LAYER"], found["OUTSIDE"]


def renamed(family, folder, name, shape, data):
    """Their tensors of one of ours: (name, shape, data)."""
    layer, outside = tables(folder)
    part = name.rsplit(".", 1)[1]
    for ours, theirs in outside:
        if name in (ours, f"{ours}.{part}"):
            return [(theirs if name == ours else f"{theirs}.{part}", shape, data)]
    _, number, inside = name.split(".", 2)
    at = LAYERS[family].format(number)
    if inside == f"attn.qkv.{part}" and family in QUERIES:
        third, size = len(data) // 3, [shape[0] // 3, *shape[1:]]
        return [(f"{at}{QUERIES[family]}{q}.{part}", size, data[i * third:(i + 1) * third])
                for i, q in enumerate(("query", "key", "value"))]
    for ours, theirs in layer:
        if inside == f"{ours}.{part}":
            return [(f"{at}{theirs}.{part}", shape, data)]
    sys.exit(f"no name for {name}")


def write(folder, out):
    family = os.path.basename(folder)
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    tensors = []
    for name, x in header.items():
        if name != "__metadata__":
            begin, end = x["data_offsets"]
            tensors += renamed(family, folder, name, x["shape"], data[begin:end])
    header, at = {}, 0
    for name, shape, part in tensors:
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(part)]}
        at += len(part)
    text = json.dumps(header).encode()
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(part for _, _, part in tensors))
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": family, **SIZES, **CONFIGS[family]}, f)


def golden_values(folder):
    with open(os.path.join(folder, "values.txt"), encoding="utf-8") as f:
        return {line.split()[0]: [float(x) for x in line.split()[2:]] for line in f}


def sampled(command, ids, types, kind):
    words = [*command, "--ids", ",".join(map(str, ids)), kind]
    if types:
        words += ["--types", ",".join(map(str, types))]
    return [float(x) for x in subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.split()]


def compare(folder, command):
    golden, at, worst = golden_values(folder), 0, 0.0
    vocabulary, checked = SIZES["vocab_size"], 0
    for i, length in enumerate(int(x) for x in golden["lengths"]):
        ids = [int(x) for x in golden["tokens0"][at:at + length]]
        types = [int(x) for x in golden["types0"][at:at + length]] if "modernbert" not in folder else None
        pairs = [(sampled(command, ids, types, "--logits"), golden["logits"][at * vocabulary:(at + length) * vocabulary])]
        if "pair_logits" in golden:
            pairs.append((sampled(command, ids, types, "--class-logits"), golden["pair_logits"][2 * i:2 * i + 2]))
        for ours, theirs in pairs:
            if len(ours) != len(theirs):
                sys.exit(f"{len(ours)} logits instead of {len(theirs)}")
            worst = max([worst] + [abs(a - b) for a, b in zip(ours, theirs)])
            checked += len(ours)
        at += length
    print(f"{folder}: {checked} logits, largest difference {worst:.1e}")
    sys.exit(not worst < 1e-4)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], sys.argv[3])
    else:
        compare(sys.argv[2], [sys.argv[3], "sample", *sys.argv[4:]])
