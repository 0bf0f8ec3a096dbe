#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Token ids of Atoll compared with those of Hugging Face's `tokenizers`, with vocabularies that are trained here.

    tokenizer_oracle.py TOKENIZE [--scratch DIR] [--quick] [--mb 1] [--points 0x30000] [--hard 5000]

TOKENIZE: the program tests/tokenize of the build. Real text in many scripts comes from the locale data of Babel and from the
documents of this repository, --mb of it; then every code point below --points, alone and between letters. --quick is a fifth of it,
for the suite; the whole is `deploy/reliability.sh tokenizers`. Python needs the packages
tokenizers and Babel (and sentencepiece for its normalisation table; left out without it, and said). Without them: SKIPPED.
Differences are allowed only at the code points of tests/inner/data/unicode_versions.txt, where the two sides have tables of different
versions of Unicode; a difference elsewhere ends the script with 1.
"""
import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
try:
    from babel import Locale
    from babel.localedata import locale_identifiers
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
except ImportError as error:
    print(f"SKIPPED: {error}; pip install tokenizers Babel")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
          "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


# ---- text ----


def locale_texts():
    """Sentences of names of languages, countries, currencies and months, in every language that has them."""
    for name in locale_identifiers():
        locale = Locale.parse(name)
        words = [str(w) for table in (locale.languages, locale.territories, locale.currencies, locale.scripts)
                 for w in table.values()]
        words += [str(w) for widths in locale.months.values() for months in widths.values() for w in months.values()]
        yield name, words


def documents(megabytes):
    """Texts of about a kilobyte: fixed prose, and words of all scripts with punctuation, numbers and blanks between."""
    rng, out, size = random.Random(1), [], 0
    for path in sorted(glob.glob(os.path.join(HERE, "../../golden/text/*.txt"))):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        out += [text[i:i + 4000] for i in range(0, len(text), 4000)]
    size = sum(len(t.encode()) for t in out)
    locales = list(locale_texts())
    while size < megabytes * 1_000_000:
        for _, words in rng.sample(locales, min(200, len(locales))):
            text = ""
            for word in rng.sample(words, min(60, len(words))):
                text += word + rng.choice([" ", " ", " ", ", ", ". ", "\n", "  ", "\t", "! ", " (", ") ", "-", "'s ", "\n\n",
                                           " %d " % rng.randrange(10 ** rng.randrange(1, 9)), "\r\n", " \u2014 ", "\u3000"])
            out.append(text)
            size += len(text.encode())
    return [t.replace("\0", "") for t in out]


def hard_cases(count):
    rng = random.Random(2)
    words = ["don't", "DON'T", "I'LL", "'\u017f", "it's", "''", "``quoted''", "a" * 99, "b" * 100, "c" * 101, "naïve", "é" * 120, "[MASK]",
             "[mask]", "<|endoftext|>", "x[SEP]y", "\u0130stanbul", "Stra\u00dfe", "\u1e9e", "\ufb01sh", "e\u0301\u0327", "\u0327\u0301",
             "\u1100\u1161\u11a8", "\ud55c\uad6d\uc5b4", "\u65e5\u672c\u8a9e", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea",
             "\u202e", "\ufeff", "\ufffd", "\u00ad", "1234567", "\u0661\u0662\u0663\u0664", "\u00b2", "\u2160", "...", "?!?", "\u2581", "\u2581\u2581a", "#", "##ing",
             "\x01", "\x7f", "\u0085", "\u00a0", "\u180e", "\u200b", "\u2028", "\r", "\n", "\r\n", "\t", " ", "  ", "   ", "\n\n\n", " \n ", "\x1c",
             "\u0b95\u0bcd\u0bb7", "\u0915\u094d\u0937\u093f", "\u0e01\u0e33", "\u212b", "\u03a3\u03a3", "\u0345", "\u1fb3", "\uac00\u11a8"]
    out = list(words) + [""]
    out = [t for t in out if t]
    for _ in range(count * 4 // 5):
        out.append("".join(rng.choice(words) + rng.choice(["", "", " ", " "]) for _ in range(rng.randrange(1, 9))))
    for _ in range(count // 5): # any code points
        out.append("".join(chr(c) for c in (rng.randrange(1, rng.choice([0x80, 0x800, 0x3000, 0x20000])) for _ in range(20))
                           if not 0xd800 <= c <= 0xdfff))
    return [t for t in out if t]


# ---- tokenizers that are trained here ----


def wordpiece(texts, lower):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=4000, special_tokens=SPECIALS, show_progress=False))
    t.decoder = decoders.WordPiece()
    return t


def wordpiece_points(end):
    """Every code point that is left after normalising is a token, so that no difference is hidden by [UNK]."""
    normal = normalizers.BertNormalizer(lowercase=True)
    seen = sorted({c for p in range(1, end) if not 0xd800 <= p <= 0xdfff for c in normal.normalize_str(chr(p))} - {" "})
    vocab = {w: i for i, w in enumerate(SPECIALS + seen + ["##" + c for c in seen])}
    t = Tokenizer(models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    t.normalizer = normal
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return t


def byte_level(texts, split, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = split
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=4000, special_tokens=["<|endoftext|>"], show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.decoder = decoders.ByteLevel()
    return t


def gpt2(texts):
    return byte_level(texts, pre_tokenizers.ByteLevel(add_prefix_space=False))


def llama3(texts):
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return byte_level(texts, split, ignore_merges=True)


def modernbert(texts):
    t = byte_level(texts, pre_tokenizers.ByteLevel(add_prefix_space=False))
    t.normalizer = normalizers.NFC()
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True, normalized=False), "[CLS]", "[SEP]"])
    t.add_tokens([AddedToken(" " * n, normalized=True) for n in range(2, 25)])
    t.add_tokens([AddedToken("naïve", single_word=True, normalized=True), AddedToken("x", rstrip=True, single_word=True)])
    return t


def prefix_space(texts):
    return byte_level(texts, pre_tokenizers.ByteLevel(add_prefix_space=True))


def smollm(texts):
    return byte_level(texts, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                      pre_tokenizers.ByteLevel(add_prefix_space=False)]))


def characters(texts, normalizer, split, fallback=True, fuse=True):
    """BPE of characters, as the converter of transformers makes of SentencePiece's model; rare characters have no token."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse, byte_fallback=fallback))
    t.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "always", True)
    specials = ["<unk>", "<s>", "</s>"] + ([f"<0x{i:02X}>" for i in range(256)] if fallback else [])
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=4000, special_tokens=specials, show_progress=False, limit_alphabet=300))
    j = json.loads(t.to_str())
    j["added_tokens"] = [{**a, "normalized": a["content"] == "</s>"} for a in j["added_tokens"] if a["id"] < 3]
    t = Tokenizer.from_str(json.dumps({**j, "pre_tokenizer": None}))
    if normalizer:
        t.normalizer = normalizer
    if split:
        t.pre_tokenizer = split
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return t


def llama2(texts):
    return characters(texts, normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]), None)


def mistral(texts):
    return characters(texts, None, pre_tokenizers.Metaspace("\u2581", "first", False))


def gemma(texts):
    return characters(texts, normalizers.Replace(" ", "\u2581"), pre_tokenizers.Split(" ", "merged_with_previous"))


def unknowns(texts, fuse):
    """Without byte_fallback, and words that end in white space."""
    return characters(texts, normalizers.Strip(), pre_tokenizers.Split(Regex("\\s+"), "merged_with_next"), False, fuse)


def t5(texts, table):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=4000, show_progress=False, unk_token="<unk>",
                                                         special_tokens=["<pad>", "</s>", "<unk>"] + [f"<0x{i:02X}>" for i in range(256)]))
    j = json.loads(t.to_str())
    j["model"]["byte_fallback"] = True
    j["added_tokens"] = j["added_tokens"][:3]
    if table:
        j["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": table}
    t = Tokenizer.from_str(json.dumps(j))
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return t


def charsmap():
    """The table of SentencePiece's rule nmt_nfkc, out of a model that it trains; None without the package."""
    try:
        import sentencepiece
    except ImportError:
        return None
    import base64
    import io
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d e f g h"] * 50), model_writer=out, vocab_size=12,
                                             normalization_rule_name="nmt_nfkc", minloglevel=5)

    def fields(data):
        at = 0
        def number():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(data):
            key = number()
            if key & 7 == 2:
                size = number()
                yield key >> 3, data[at:at + size]
                at += size
            elif key & 7 == 0:
                yield key >> 3, number()
            else:
                at += 4 if key & 7 == 5 else 8
    spec = next(v for k, v in fields(out.getvalue()) if k == 3)   # ModelProto.normalizer_spec
    table = next(v for k, v in fields(spec) if k == 2)            # NormalizerSpec.precompiled_charsmap
    return base64.b64encode(table).decode()


def albert(texts):
    """As the converter of transformers writes it."""
    t = Tokenizer(models.Unigram())
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
             normalizers.Lowercase()]
    t.normalizer = normalizers.Sequence(steps + [normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=4000, show_progress=False, unk_token="<unk>",
                                                         special_tokens=["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]))
    t.decoder = decoders.Metaspace()
    return t


def albert_form(learned, old, table):
    """The same vocabulary, which takes long to learn. old: the form of files of before 2022, WhitespaceSplit before Metaspace."""
    t = Tokenizer.from_str(learned.to_str())
    if old:
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    if not table:
        return t
    j = json.loads(t.to_str())
    j["normalizer"]["normalizers"].insert(5, {"type": "Precompiled", "precompiled_charsmap": table})
    return Tokenizer.from_str(json.dumps(j))


def unigram_points(end, table):
    """Characters are tokens of equal score."""
    steps = [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]
    steps += [{"type": "Precompiled", "precompiled_charsmap": table}] if table else []
    points = [chr(p) for p in range(1, end) if not 0xd800 <= p <= 0xdfff]
    j = {"version": "1.0", "added_tokens": [], "normalizer": {"type": "Sequence", "normalizers": steps},
         "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
         "post_processor": None, "decoder": None,
         "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0]] + [[c, -1.0] for c in points]}}
    return Tokenizer.from_str(json.dumps(j))


# ---- vocabularies that Atoll learns ----


def learned(program, scratch, texts, size):
    """Failures: tokens for each word more than 2 % off those of tokenizers' trainer, or other ids where tokenizers loads the file."""
    failed = 0
    for kind in ("wordpiece", "bpe"):
        folder = os.path.join(scratch, f"learned-{kind}-{size}")
        os.makedirs(folder, exist_ok=True)
        subprocess.run([program, "--learn", kind, str(size), folder], input=b"".join(t.encode() + b"\0" for t in texts), check=True)
        if kind == "wordpiece":
            theirs = Tokenizer(models.WordPiece(unk_token="[UNK]"))
            theirs.normalizer, theirs.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
            trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=SPECIALS, show_progress=False, limit_alphabet=1000)
        else:
            theirs = Tokenizer(models.BPE())
            theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<|endoftext|>"], show_progress=False,
                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        theirs.train_from_iterator(texts, trainer)
        loaded = Tokenizer.from_file(folder + "/tokenizer.json")
        words = sum(len(t.split()) for t in texts)
        ids = ours(program, folder, texts)
        same = ids == [e.ids for e in loaded.encode_batch(texts, add_special_tokens=False)]
        if kind == "wordpiece":
            same = same and ids == ours(program, folder + "/vocab.txt", texts)
        a = sum(map(len, ids)) / words
        b = sum(len(e.ids) for e in theirs.encode_batch(texts, add_special_tokens=False)) / words
        common = len(set(loaded.get_vocab()) & set(theirs.get_vocab()))
        print(f"learned {kind} {size}: {loaded.get_vocab_size()} tokens, {common} of them theirs; {a:.4f} tokens a word, theirs {b:.4f} "
              f"({100 * (a / b - 1):+.2f} %); ids of the file as tokenizers loads it: {'equal' if same else 'DIFFERENT'}")
        failed += not same or abs(a / b - 1) > 0.02 or loaded.get_vocab_size() != theirs.get_vocab_size()
    return failed


# ---- comparison ----


def ours(program, path, texts):
    data = b"".join(t.encode() + b"\0" for t in texts)
    done = subprocess.run([program, path], input=data, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{path}: {done.stderr.decode()}")
    return [[int(x) for x in line.split()[1:]] for line in done.stdout.decode().splitlines()]


def decoded(program, path, ids):
    data = "".join(f"{len(i)} {' '.join(map(str, i))}\n" for i in ids).encode()
    done = subprocess.run([program, "--decode", path], input=data, capture_output=True, check=True)
    return [t.decode(errors="replace") for t in done.stdout.split(b"\0")[:-1]]


def known_points():
    points = set()
    with open(os.path.join(HERE, "unicode_versions.txt"), encoding="utf-8") as f:
        for line in f:
            line = line.split("#")[0].strip()
            if line:
                first, _, last = line.partition("..")
                points |= set(range(int(first, 16), int(last or first, 16) + 1))
    return points


def compare(program, path, name, theirs, texts, known, differing):
    """Number of texts whose ids differ without a known code point in them; all code points of those with one go to `differing`."""
    wrong, count = 0, 0
    for text, a, b in zip(texts, ours(program, path, texts), theirs.encode_batch(texts, add_special_tokens=False), strict=True):
        count += len(b.ids)
        if a == b.ids:
            continue
        points = [ord(c) for c in text if ord(c) in known]
        if points:
            differing |= set(points)
            continue
        wrong += 1
        if wrong <= 5:
            at = next((i for i, (x, y) in enumerate(zip(a, b.ids)) if x != y), min(len(a), len(b.ids)))
            print(f"{name}: {text[:60]!r}, from token {at}\n  ours   {a[at:at + 12]}\n  theirs {b.ids[at:at + 12]} "
                  f"{b.tokens[at:at + 12]}")
    return wrong, count


def point_texts(end, known):
    """Each code point alone, in a word and before a digit. Where Unicode's versions differ it has a text of its own, others share one."""
    points = [p for p in range(1, end) if not 0xd800 <= p <= 0xdfff]
    texts = [[chr(p)] for p in points if p in known]
    shared = [chr(p) for p in points if p not in known]
    texts += [shared[i:i + 32] for i in range(0, len(shared), 32)]
    return ["\n".join(f"{c} a{c}b {c}1" for c in text) for text in texts]


def main():
    args = argparse.ArgumentParser()
    args.add_argument("program")
    args.add_argument("--scratch")
    args.add_argument("--quick", action="store_true")
    args.add_argument("--mb", type=float)
    args.add_argument("--points", type=lambda s: int(s, 0))
    args.add_argument("--hard", type=int, help="number of texts that are made of hard cases")
    args.add_argument("--learn", type=int, default=4096, help="size of the vocabularies that Atoll learns")
    args.add_argument("--only-learn", action="store_true")
    args.add_argument("--text", help="a file: its text instead of the words of many languages, for learning")
    a = args.parse_args()
    for name, quick, whole in (("mb", 0.2, 1), ("points", 0x3000, 0x30000), ("hard", 1000, 5000)):
        if getattr(a, name) is None:
            setattr(a, name, quick if a.quick else whole)
    scratch = a.scratch or tempfile.mkdtemp(prefix="atoll-tokenizer-")
    os.makedirs(scratch, exist_ok=True)
    texts, hard, known, failed = documents(a.mb), hard_cases(a.hard), known_points(), 0
    table = charsmap()
    if not table:
        print("left out: the precompiled charsmap (pip install sentencepiece)")
    learn, points, some = texts[:200], point_texts(a.points, known), texts[:100] + hard[:2000]
    unigram = albert(learn)
    rows = [] if a.only_learn else [("wordpiece", wordpiece(learn, True), texts + hard), ("wordpiece cased", wordpiece(learn, False), texts + hard),
            ("gpt2", gpt2(learn), texts + hard), ("gpt2 in two files", gpt2(learn), hard), ("llama3", llama3(learn), texts + hard),
            ("modernbert", modernbert(learn), texts + hard), ("prefix space", prefix_space(learn), hard),
            ("albert", unigram, texts + hard), ("albert old", albert_form(unigram, True, table), texts + hard),
            ("albert charsmap", albert_form(unigram, False, table), texts + hard), ("smollm", smollm(learn), some),
            ("llama2", llama2(learn), some), ("mistral", mistral(learn), some),
            ("gemma", gemma(learn), some), ("unknowns fused", unknowns(learn, True), some),
            ("unknowns", unknowns(learn, False), some), ("t5 with bytes", t5(learn, table), some)]
    if a.points and rows:
        rows += [("wordpiece, code points", wordpiece_points(a.points), points),
                 ("unigram, code points", unigram_points(a.points, table), points),
                 ("gpt2, code points", rows[2][1], points), ("llama3, code points", rows[4][1], points),
                 ("modernbert, code points", rows[5][1], points)]
    for name, theirs, what in rows:
        path, differing = os.path.join(scratch, name.replace(" ", "-").replace(",", "") + ".json"), set()
        if name.endswith("two files"):  # vocab.json and merges.txt
            path = path[:-len(".json")]
            os.makedirs(path, exist_ok=True)
            theirs.model.save(path)
        else:
            theirs.save(path)
        wrong, count = compare(a.program, path, name, theirs, what, known, differing)
        size = sum(len(t.encode()) for t in what)
        print(f"{name}: {len(what)} texts, {size / 1e6:.2f} MB, {count} ids, {wrong} texts differ, "
              f"{len(differing)} code points of other versions of Unicode met")
        failed += wrong
        if "points" not in name and theirs.decoder:
            ids = [theirs.encode(t, add_special_tokens=False).ids for t in what[:500]]
            back = decoded(a.program, path, ids)
            bad = [(x, y) for x, y in zip(back, theirs.decode_batch(ids, skip_special_tokens=False), strict=True) if x != y]
            if bad:
                print(f"{name}: {len(bad)} texts decode to other text, the first\n  ours   {bad[0][0]!r}\n  theirs {bad[0][1]!r}")
            failed += len(bad)
    if a.text:
        with open(a.text, encoding="utf-8", errors="ignore") as f:
            texts = [t for t in f.read().split("\n\n") if t.strip()]
    failed += learned(a.program, scratch, [t for t in texts if not known & set(map(ord, t))], a.learn)
    return 1 if failed else 0


sys.exit(main())
