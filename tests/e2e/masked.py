# SPDX-License-Identifier: Apache-2.0
"""Writes data sets of masked text by the published format of Megatron-LM's index, with Python's standard library alone:

    masked.py DIR [SALT]

DIR/train-0.{bin,idx}, train-1.*, eval.*, vocab.txt and data.json. A sentence counts upwards from a random id, so that
a masked id follows from its neighbours. SALT goes into the vocabulary's text and so into its digest.
"""
import array
import hashlib
import json
import os
import random
import struct
import sys

out, salt = sys.argv[1], (sys.argv[2:] + [""])[0]
os.makedirs(out, exist_ok=True)
VOCAB, FIRST = 64, 5
draw = random.Random(11)


def sentence():
    start, step, length = draw.randrange(59), 1, draw.randrange(4, 14)
    return [FIRST + (start + step * i) % (VOCAB - FIRST) for i in range(length)]


def write(stem, documents):
    ids, lengths, ends = array.array("H"), [], [0]
    for _ in range(documents):
        for _ in range(draw.randrange(2, 9)):
            s = sentence()
            ids.extend(s)
            lengths.append(len(s))
        ends.append(len(lengths))
    with open(stem + ".bin", "wb") as f:
        f.write(ids.tobytes())
    pointers = [2 * sum(lengths[:i]) for i in range(len(lengths))]
    with open(stem + ".idx", "wb") as f:
        f.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(lengths), len(ends)))
        f.write(struct.pack("<%di" % len(lengths), *lengths))
        f.write(struct.pack("<%dq" % len(pointers), *pointers))
        f.write(struct.pack("<%dq" % len(ends), *ends))


for name, documents in (("train-0", 120), ("train-1", 120), ("eval", 30)):
    write(os.path.join(out, name), documents)
pieces = ["[PAD]" + salt, "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ["%sw%d" % ("##" if i % 3 == 0 else "", i) for i in range(FIRST, VOCAB)]
vocabulary = "\n".join(pieces) + "\n"
with open(os.path.join(out, "vocab.txt"), "w") as f:
    f.write(vocabulary)
digest = hashlib.sha256(vocabulary.encode()).hexdigest()
with open(os.path.join(out, "data.json"), "w") as f:
    json.dump({"tokenizer": "vocab.txt", "kind": "wordpiece", "sha256": digest, "vocab": VOCAB, "word_start": "##",
               "special": {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}}, f)
print(digest)
