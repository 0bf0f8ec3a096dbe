#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MB/s of one thread from text to ids: bench_tokenizer compared with `tokenizers` of Hugging Face, in the same run, with the same files,
by processor time (so that a busy machine does not count) and best of several passes.

    tests/bench/tokenizer_speed.py BENCH_TOKENIZER TEXT [--seconds 5] [--vocab 30522] [--kinds wordpiece,...] [--csv FILE]

BENCH_TOKENIZER: build/tests/bench_tokenizer (`ninja bench_tokenizer`). TEXT: at least some megabytes, UTF-8. The vocabularies are
trained on the first megabytes of the text. Needs Python's package tokenizers; ends with 77 without it. Both sides get the text in
pieces of about 64 KiB; ids are compared. Rows as in bench.h: MB/s of one core; flags: its tokenizer's version and its vocabulary.
"""
import argparse
import datetime
import os
import platform
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
sys.path.pop(0)  # this file has the package's name
try:
    from tokenizers import Regex, Tokenizer, __version__ as VERSION, models, normalizers, pre_tokenizers, trainers
except ImportError:
    print("SKIPPED: pip install tokenizers")
    sys.exit(77)

PIECE = 1 << 16
LLAMA3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
          "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")


def made(kind, texts, vocab):
    specials = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    if kind == "wordpiece":
        t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=vocab, show_progress=False, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    elif kind == "albert":
        t = Tokenizer(models.Unigram())
        t.normalizer = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
                                             normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " ")])
        t.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=min(vocab, 8000), show_progress=False, unk_token="<unk>", special_tokens=specials)
    else:
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        if kind == "llama3":
            t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        if kind == "modernbert":
            t.normalizer = normalizers.NFC()
        trainer = trainers.BpeTrainer(vocab_size=vocab, show_progress=False, special_tokens=["<|endoftext|>"],
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(texts, trainer)
    return t


def pieces(data):
    at = 0
    while at < len(data):
        end = min(at + PIECE, len(data))
        while end < len(data) and data[end - 1] != 10:
            end += 1
        yield data[at:end].decode()
        at = end


def row(kind, ours, theirs, vocab, size):
    with open("/proc/cpuinfo") as f:
        model = next((x.split(":")[1].strip() for x in f if x.startswith("model name")), platform.machine()).replace(",", " ")
    commit = subprocess.run(["git", "-C", os.path.dirname(os.path.abspath(__file__)), "describe", "--always", "--dirty", "--abbrev=12"],
                            capture_output=True, text=True).stdout.strip()
    return (f"{datetime.date.today().isoformat()},{model} x{os.cpu_count()},{commit},tokenizers,{kind},{ours:.1f},MB/s,{theirs:.1f},"
            f"{ours / theirs:.3f},threads=1 processor time tokenizers={VERSION} vocab={vocab} text={size / 1e6:.1f}MB")


def main():
    args = argparse.ArgumentParser()
    args.add_argument("bench")
    args.add_argument("text")
    args.add_argument("--seconds", type=float, default=5)
    args.add_argument("--vocab", type=int, default=30522)
    args.add_argument("--kinds", default="wordpiece,gpt2,llama3,modernbert,albert")
    args.add_argument("--csv")
    a = args.parse_args()
    with open(a.text, "rb") as f:
        data = f.read()
    texts, failed = list(pieces(data)), 0
    print(f"{len(data) / 1e6:.1f} MB, one thread, processor time\n{'':12} {'vocab':>7} {'Atoll':>8} {'tokenizers':>11} {'MB/s':>5} {'ratio':>6}  ids")
    for kind in a.kinds.split(","):
        theirs = made(kind, texts[:60], a.vocab)
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/tokenizer.json"
            theirs.save(path)
            said = subprocess.run([a.bench, path, a.text, str(a.seconds)], capture_output=True, text=True, check=True).stdout.split()
        ours, count = float(said[said.index("MB/s") + 1]), int(said[said.index("ids") + 1])
        best, end = 1e9, time.process_time() + a.seconds
        while time.process_time() < end:
            start = time.process_time()
            total = sum(len(theirs.encode(t, add_special_tokens=False).ids) for t in texts)
            best = min(best, time.process_time() - start)
        rate = len(data) / best / 1e6
        failed += total != count
        print(f"{kind:12} {theirs.get_vocab_size():7} {ours:8.1f} {rate:11.1f} {'':5} {ours / rate:5.1f}x  "
              f"{count} {'equal' if total == count else f'against {total}'}", flush=True)
        if a.csv:
            with open(a.csv, "a") as out:
                print(row(kind, ours, rate, theirs.get_vocab_size(), len(data)), file=out)
    return 1 if failed else 0


sys.exit(main())
