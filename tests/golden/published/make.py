# SPDX-License-Identifier: Apache-2.0
"""Small models in the layout of published ones: files, fields of config.json, names of tensors and kind of tokenizer as their authors
published them; the vocabularies are learned here from a few sentences and the weights are random.

    python3 tests/golden/published/make.py [NAME...]       writes next to this file; needs torch, transformers, tokenizers,
                                                           safetensors and sentencepiece (see README.md for the versions)
"""
import base64
import io
import json
import os
import sys

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH, SLIM, LAYERS, LENGTH = 32, 16, 2, 32  # SLIM: of those that are written in float32
LLAMA3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
          "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
NO_LIMIT = 1000000000000000019884624838656  # transformers' "no limit"

LEARN = ["the river runs past the stone and the meadow", "a stone in the river", "They don't know what we've seen; it's 1234567 miles.",
         "naïve café façade", "Straße und Wörter, die länger sind", "река течёт мимо камня", "日本語の文章です。", "한국어 문장입니다",
         "the meadow and the river and the stone", "running runs run runner", "in 2024 there were 17 rivers"] * 3
TEXTS = ["the river runs past the stone", "The RIVER, the Stone!", "They don't; we've, I'LL, it's.", "1234567 and 17", "x² ½ ٣٤ Ⅷ 12a34",
         "  two  blanks   three ", "\ttab\nline\r\nline\n\n\nend", "naïve café façade", "nai\u0308ve e\u0301 Å\u212b ﬁsh Ａｂｃ", "Straße ẞ İstanbul",
         "река течёт", "日本語の文章。混ぜたtext", "한국어 \u1112\u1161\u11ab", "क्षि \u0e01\u0e33 தமிழ்", "שלום עולם مرحبا",
         "😀 👨‍👩‍👧 🇩🇪 \U0001f468\U0001f3fd", "\u00a0nbsp\u3000wide\u2009thin\u200bzero", "a\u00adb \ufeff bom \u2028 line", "``quoted'' \"x\" — …",
         "[MASK] [mask]x[SEP]y <|endoftext|>z", "<s>a</s> <unk> <pad>", "<extra_id_0> and <extra_id_1>.", "<|begin_of_text|>hi<|eot_id|>",
         "<|im_start|>user\nhi<|im_end|>", "▁mark ▁▁ two", "<0x41> <0x0A>", "a" * 120, "\x01\x7f control", "q", "", " ", "\n",
         "stonestone riverriver ririver", "and the the andthe", "/usr/bin/x --flag=1 a_b::c(d)[e]{f}", "éééé ĉĉ 字字字",
         "𝕏 𝟙𝟚 𐍈", "\u0301\u0327 alone", "I.B.M. e.g. 3.14, -7", "the river\n\nthe stone\n\n"]


# ---- files ----


def write(folder, name, value, indent=None):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        if isinstance(value, str):
            f.write(value)
        else:
            json.dump(value, f, ensure_ascii=False, indent=indent, separators=None if indent else (",", ":"))
            f.write("\n")


def save_tokenizer(folder, tokenizer, untyped=False, edit=None):
    j = json.loads(tokenizer.to_str())
    if untyped:  # as before tokenizers 0.9.4
        del j["model"]["type"]
    if edit:
        edit(j)
    write(folder, "tokenizer.json", j)
    return Tokenizer.from_str(json.dumps(j))


def save_weights(folder, tensors, dtype=torch.float32, parts=1):
    names = sorted(tensors)
    tensors = {n: (t if not t.is_floating_point() else t.to(dtype)).contiguous() for n, t in tensors.items()}
    if parts == 1:
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        return
    size, where = -(-len(names) // parts), {}
    for k in range(parts):
        file = f"model-{k + 1:05d}-of-{parts:05d}.safetensors"
        some = names[k * size:(k + 1) * size]
        save_file({n: tensors[n] for n in some}, os.path.join(folder, file), metadata={"format": "pt"})
        where |= {n: file for n in some}
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    write(folder, "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where}, 2)


# ---- tokenizers ----


def wordpiece():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(LEARN, trainers.WordPieceTrainer(vocab_size=240, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                                           show_progress=False))
    t.decoder = decoders.WordPiece()
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                     special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t


def byte_level(split, specials, size=330, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = split
    t.train_from_iterator(LEARN, trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def characters(normalizer, split):
    """BPE of characters with byte_fallback, as the converter of transformers makes of SentencePiece's model."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = None
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    t.train_from_iterator(LEARN[:7] * 2, trainers.BpeTrainer(vocab_size=350, special_tokens=specials, show_progress=False, limit_alphabet=40))
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if a["id"] < 3]
    t = Tokenizer.from_str(json.dumps(j))
    if normalizer:
        t.normalizer = normalizer
    else:
        t.normalizer = None
    if split:
        t.pre_tokenizer = split
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return t


def charsmap():
    """SentencePiece's compiled form of a few rules of its nmt_nfkc; the whole table has 240 kB."""
    import sentencepiece
    rules = {"Ａ": "A", "ｂ": "b", "ｃ": "c", "ﬁ": "fi", "½": "1⁄2", "²": "2", "\u00a0": " ", "\u3000": " ", "\u200b": "", "\u00ad": "", "\t": " ", "\n": " ",
             "\r": " ", "\x01": "", "\x7f": "", "i\u0308": "ï", "e\u0301": "é", "…": "...", "Ⅷ": "VIII", "\ufeff": "", "\u2028": " ", "\u2009": " "}
    tsv = os.path.join(HERE, "rules.tsv")
    with open(tsv, "w", encoding="utf-8") as f:
        for k, v in rules.items():
            f.write(" ".join(f"{ord(c):X}" for c in k) + "\t" + " ".join(f"{ord(c):X}" for c in v) + "\n")
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d e f g h"] * 50), model_writer=out, vocab_size=12,
                                             normalization_rule_tsv=tsv, minloglevel=5)
    os.remove(tsv)
    from sentencepiece import sentencepiece_model_pb2 as pb
    m = pb.ModelProto()
    m.ParseFromString(out.getvalue())
    return base64.b64encode(m.normalizer_spec.precompiled_charsmap).decode()


def unigram(specials, unknown, steps):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence(steps)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.train_from_iterator(LEARN, trainers.UnigramTrainer(vocab_size=150, show_progress=False, unk_token=unknown, special_tokens=specials))
    t.decoder = decoders.Metaspace()
    return t


# ---- weights ----


def random_weights(shapes, seed=1):
    g = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in shapes.items():
        gain = name.endswith(("norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight", "LayerNorm.weight", "gamma")) or \
            ("layernorm" in name.lower() and name.endswith("weight"))
        x = torch.randn(shape, generator=g) * (0.1 if gain else 0.2)
        out[name] = x + 1 if gain else x
    return out


def of_model(config, cls):
    """Names and shapes as transformers has them."""
    import transformers
    model = getattr(transformers, cls)(config)
    return {k: tuple(v.shape) for k, v in model.state_dict().items() if v.is_floating_point()}


def config_of(fields):
    import transformers
    with open(os.path.join(HERE, "c.json"), "w") as f:
        json.dump(fields, f)
    config = transformers.AutoConfig.from_pretrained(os.path.join(HERE, "c.json"))
    os.remove(os.path.join(HERE, "c.json"))
    return config


def logits_of(folder, cls, ids):
    """In float64, of two positions: the last one and one in the middle."""
    import transformers
    model = getattr(transformers, cls).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").double().eval()
    with torch.no_grad():
        out = model(input_ids=torch.tensor([ids]))
    logits = out.logits if hasattr(out, "logits") else out.prediction_logits
    return [[float(f"{x:.9g}") for x in logits[0, p].tolist()] for p in (len(ids) // 2, len(ids) - 1)]


# ---- the families ----


def gpt2(folder):
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t = byte_level(split, ["<|endoftext|>"])
    last = t.get_vocab_size() - 1

    def edit(j):  # GPT-2's id is the last one
        vocab = j["model"]["vocab"]
        moved = {w: (last if w == "<|endoftext|>" else i - 1) for w, i in vocab.items()}
        j["model"] = {"dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                      "vocab": dict(sorted(moved.items(), key=lambda p: p[1])), "merges": [" ".join(m) for m in j["model"]["merges"]]}
        j["added_tokens"] = [{"id": last, "special": True, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": True}]
    t = save_tokenizer(folder, t, untyped=True, edit=edit)
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
        model = json.load(f)["model"]
    write(folder, "vocab.json", model["vocab"])
    write(folder, "merges.txt", "#version: 0.2\n" + "\n".join(model["merges"]) + "\n")
    write(folder, "tokenizer_config.json", {"model_max_length": 1024})
    write(folder, "generation_config.json", {"bos_token_id": last, "eos_token_id": last, "transformers_version": "4.26.0.dev0",
                                             "_from_model_config": True}, 2)
    config = {"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": last, "embd_pdrop": 0.1,
              "eos_token_id": last, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": LENGTH,
              "n_embd": SLIM, "n_head": 4, "n_layer": LAYERS, "n_positions": LENGTH, "resid_pdrop": 0.1, "summary_activation": None,
              "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True,
              "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}, "vocab_size": last + 1}
    write(folder, "config.json", config, 2)
    shapes = {k.removeprefix("transformer."): v for k, v in of_model(config_of(config), "GPT2LMHeadModel").items() if k != "lm_head.weight"}
    tensors = random_weights(shapes)
    for i in range(LAYERS):  # the published file holds the masks too
        tensors[f"h.{i}.attn.bias"] = torch.tril(torch.ones(LENGTH, LENGTH)).view(1, 1, LENGTH, LENGTH)
    save_weights(folder, tensors)
    return t, "GPT2LMHeadModel"


def bert_tokenizer(folder, config):
    t = save_tokenizer(folder, wordpiece(), untyped=True)
    vocab = t.get_vocab(with_added_tokens=False)
    write(folder, "vocab.txt", "".join(w + "\n" for w, _ in sorted(vocab.items(), key=lambda p: p[1])))
    write(folder, "tokenizer_config.json", config)
    return t, len(vocab)


def bert(folder):
    t, vocab = bert_tokenizer(folder, {"do_lower_case": True, "model_max_length": 512})
    config = {"architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": False, "hidden_act": "gelu",
              "hidden_dropout_prob": 0.1, "hidden_size": SLIM, "initializer_range": 0.02, "intermediate_size": 64, "layer_norm_eps": 1e-12,
              "max_position_embeddings": LENGTH, "model_type": "bert", "num_attention_heads": 4, "num_hidden_layers": LAYERS, "pad_token_id": 0,
              "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0", "type_vocab_size": 2, "use_cache": True,
              "vocab_size": vocab}
    write(folder, "config.json", config, 2)
    shapes = of_model(config_of(config), "BertForPreTraining")
    tensors = {}
    for name, x in random_weights(shapes).items():  # names of TensorFlow's time; the decoder is the embedding
        if not name.startswith("cls.predictions.decoder"):
            tensors[name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")] = x
    save_weights(folder, tensors)
    return t, "BertForMaskedLM"


def distilbert(folder):
    t, vocab = bert_tokenizer(folder, {"do_lower_case": True, "model_max_length": 512})
    config = {"activation": "gelu", "architectures": ["DistilBertForMaskedLM"], "attention_dropout": 0.1, "dim": 16, "dropout": 0.1, "hidden_dim": 32,
              "initializer_range": 0.02, "max_position_embeddings": LENGTH, "model_type": "distilbert", "n_heads": 2, "n_layers": 1, "pad_token_id": 0,
              "qa_dropout": 0.1, "seq_classif_dropout": 0.2, "sinusoidal_pos_embds": False, "tie_weights_": True,
              "transformers_version": "4.10.0.dev0", "vocab_size": vocab}
    write(folder, "config.json", config, 2)
    save_weights(folder, random_weights(of_model(config_of(config), "DistilBertForMaskedLM")), torch.float16)
    return t, None


def t5(folder):
    specials = ["<pad>", "</s>", "<unk>"]
    t = unigram(specials, "<unk>", [normalizers.NFKC()])
    table = charsmap()
    pieces = len(json.loads(t.to_str())["model"]["vocab"])

    def edit(j):
        j["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": table}
        j["model"] = {"unk_id": 2, "vocab": j["model"]["vocab"]}
        extra = [(f"<extra_id_{9 - i}>", pieces + i) for i in range(10)]
        j["added_tokens"] += [{"id": i, "special": True, "content": w, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
                              for w, i in extra]
        j["pre_tokenizer"]["pretokenizers"][1] = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
        j["decoder"] = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
    t = save_tokenizer(folder, t, edit=edit)
    write(folder, "tokenizer_config.json", {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "extra_ids": 10,
                                            "additional_special_tokens": [f"<extra_id_{i}>" for i in range(10)], "model_max_length": 512})
    write(folder, "special_tokens_map.json", {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"})
    write(folder, "generation_config.json", {"_from_model_config": True, "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0,
                                             "transformers_version": "4.27.0.dev0"}, 2)
    config = {"architectures": ["T5ForConditionalGeneration"], "d_ff": 32, "d_kv": 8, "d_model": 16, "decoder_start_token_id": 0, "dropout_rate": 0.1,
              "eos_token_id": 1, "feed_forward_proj": "relu", "initializer_factor": 1.0, "is_encoder_decoder": True, "layer_norm_epsilon": 1e-06,
              "model_type": "t5", "n_positions": 512, "num_heads": 2, "num_layers": 1, "output_past": True, "pad_token_id": 0,
              "relative_attention_num_buckets": 32, "task_specific_params": {"summarization": {"early_stopping": True, "length_penalty": 2.0,
              "max_length": 200, "min_length": 30, "no_repeat_ngram_size": 3, "num_beams": 4, "prefix": "summarize: "}}, "use_cache": True,
              "vocab_size": pieces + 10}
    write(folder, "config.json", config, 2)
    shapes = {k: v for k, v in of_model(config_of(config), "T5ForConditionalGeneration").items() if "embed_tokens" not in k and k != "lm_head.weight"}
    save_weights(folder, random_weights(shapes), torch.float16)
    return t, None


def llama_config(vocab, **more):
    return {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
            "hidden_act": "silu", "hidden_size": WIDTH, "initializer_range": 0.02, "intermediate_size": 48, "max_position_embeddings": LENGTH,
            "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": LAYERS, "num_key_value_heads": 2, "pretraining_tp": 1,
            "rms_norm_eps": 1e-05, "rope_scaling": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True,
            "vocab_size": vocab, **more}


def llama_weights(folder, config, dtype, cls="LlamaForCausalLM", parts=1, angles=False):
    shapes = {k: v for k, v in of_model(config_of(config), cls).items() if not (config["tie_word_embeddings"] and k == "lm_head.weight")}
    tensors = random_weights(shapes)
    for i in range(LAYERS if angles else 0):
        size = WIDTH // config["num_attention_heads"]
        tensors[f"model.layers.{i}.self_attn.rotary_emb.inv_freq"] = 10000.0 ** -(torch.arange(0, size, 2).float() / size)
    save_weights(folder, tensors, dtype, parts)


def llama_specials():
    return {k: {"content": w, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
            for k, w in (("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>"))}


def llama2(folder):
    marked = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t = save_tokenizer(folder, characters(marked, None))
    vocab = t.get_vocab_size()
    write(folder, "special_tokens_map.json", llama_specials(), 2)
    added = {k: {**v, "__type": "AddedToken"} for k, v in llama_specials().items()}
    write(folder, "tokenizer_config.json", {"add_bos_token": True, "add_eos_token": False, **added, "clean_up_tokenization_spaces": False,
                                            "legacy": False, "model_max_length": NO_LIMIT, "pad_token": None, "padding_side": "right",
                                            "sp_model_kwargs": {}, "tokenizer_class": "LlamaTokenizer"}, 2)
    write(folder, "generation_config.json", {"_from_model_config": True, "bos_token_id": 1, "do_sample": True, "eos_token_id": 2, "pad_token_id": 0,
                                             "temperature": 0.6, "max_length": 4096, "top_p": 0.9, "transformers_version": "4.31.0.dev0"}, 2)
    config = llama_config(vocab, _name_or_path="meta-llama/Llama-2-7b-hf", num_key_value_heads=4, torch_dtype="float16",
                          transformers_version="4.31.0.dev0")
    write(folder, "config.json", config, 2)
    llama_weights(folder, config, torch.float16, parts=2, angles=True)
    return t, "LlamaForCausalLM"


def llama3(folder):
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t = byte_level(split, [], ignore_merges=True)
    first = t.get_vocab_size()
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    t.add_special_tokens(names)
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", special_tokens=[("<|begin_of_text|>", first)])])
    t = save_tokenizer(folder, t)
    write(folder, "special_tokens_map.json", {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}, 2)
    write(folder, "tokenizer_config.json", {
        "added_tokens_decoder": {str(first + i): {"content": n, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                                                  "special": True} for i, n in enumerate(names)},
        "bos_token": "<|begin_of_text|>", "clean_up_tokenization_spaces": True, "eos_token": "<|end_of_text|>",
        "model_input_names": ["input_ids", "attention_mask"], "model_max_length": 131072, "tokenizer_class": "PreTrainedTokenizerFast"}, 2)
    write(folder, "generation_config.json", {"_from_model_config": True, "bos_token_id": first, "do_sample": True,
                                             "eos_token_id": [first + 1, first + 5], "temperature": 0.6, "top_p": 0.9,
                                             "transformers_version": "4.45.0.dev0"}, 2)
    config = llama_config(first + len(names), bos_token_id=first, eos_token_id=first + 1, head_dim=16, num_attention_heads=2, num_key_value_heads=1,
                          max_position_embeddings=512, mlp_bias=False, rope_theta=500000.0, tie_word_embeddings=True, transformers_version="4.45.0.dev0",
                          rope_scaling={"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 256,
                                        "rope_type": "llama3"})
    write(folder, "config.json", config, 2)
    llama_weights(folder, config, torch.bfloat16)
    return t, "LlamaForCausalLM"


def mistral(folder):
    t = save_tokenizer(folder, characters(None, pre_tokenizers.Metaspace("▁", "first", False)))
    write(folder, "special_tokens_map.json", llama_specials(), 2)
    write(folder, "tokenizer_config.json", {"add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "clean_up_tokenization_spaces": False,
                                            "eos_token": "</s>", "legacy": False, "model_max_length": NO_LIMIT, "pad_token": None,
                                            "sp_model_kwargs": {}, "spaces_between_special_tokens": False, "tokenizer_class": "LlamaTokenizer",
                                            "unk_token": "<unk>", "use_default_system_prompt": False}, 2)
    write(folder, "generation_config.json", {"_from_model_config": True, "bos_token_id": 1, "eos_token_id": 2, "transformers_version": "4.42.0"}, 2)
    config = {"architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
              "hidden_size": WIDTH, "initializer_range": 0.02, "intermediate_size": 48, "max_position_embeddings": LENGTH, "model_type": "mistral",
              "num_attention_heads": 4, "num_hidden_layers": LAYERS, "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
              "sliding_window": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.42.0", "use_cache": True,
              "vocab_size": t.get_vocab_size()}
    write(folder, "config.json", config, 2)
    llama_weights(folder, config, torch.bfloat16, "MistralForCausalLM")
    return t, "MistralForCausalLM"


def smollm(folder):
    split = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>"]
    t = save_tokenizer(folder, byte_level(split, specials))
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
        model = json.load(f)["model"]
    write(folder, "vocab.json", model["vocab"])
    write(folder, "merges.txt", "#version: 0.2\n" + "\n".join(m if isinstance(m, str) else " ".join(m) for m in model["merges"]) + "\n")
    write(folder, "special_tokens_map.json", {"additional_special_tokens": specials, "bos_token": specials[0], "eos_token": specials[0],
                                              "unk_token": specials[0]}, 2)
    write(folder, "tokenizer_config.json", {"add_prefix_space": False, "additional_special_tokens": specials, "bos_token": specials[0],
                                            "clean_up_tokenization_spaces": False, "eos_token": specials[0], "model_max_length": NO_LIMIT,
                                            "tokenizer_class": "GPT2Tokenizer", "unk_token": specials[0], "vocab_size": len(model["vocab"])}, 2)
    write(folder, "generation_config.json", {"_from_model_config": True, "bos_token_id": 0, "eos_token_id": 0, "transformers_version": "4.40.1"}, 2)
    config = llama_config(len(model["vocab"]), bos_token_id=0, eos_token_id=0, is_llama_config=True, rope_interleaved=False, rope_theta=10000.0,
                          tie_word_embeddings=True, transformers_version="4.40.1",
                          **{"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}}})
    write(folder, "config.json", config, 2)
    llama_weights(folder, config, torch.bfloat16)
    return t, "LlamaForCausalLM"


def modernbert(folder):
    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), ["|||IP_ADDRESS|||", "<|padding|>"])
    t.normalizer = normalizers.NFC()
    t.add_tokens([AddedToken(" " * n, normalized=True) for n in range(2, 6)])
    t.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]", AddedToken("[MASK]", lstrip=True, normalized=False)])
    cls, sep, pad = (t.token_to_id(w) for w in ("[CLS]", "[SEP]", "[PAD]"))
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                     special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    t = save_tokenizer(folder, t)
    names = {"cls_token": "[CLS]", "pad_token": "[PAD]", "sep_token": "[SEP]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
    write(folder, "special_tokens_map.json", {k: {"content": w, "lstrip": w == "[MASK]", "normalized": False, "rstrip": False, "single_word": False}
                                              for k, w in names.items()}, 2)
    write(folder, "tokenizer_config.json", {**names, "clean_up_tokenization_spaces": True, "model_input_names": ["input_ids", "attention_mask"],
                                            "model_max_length": 8192, "tokenizer_class": "PreTrainedTokenizerFast"}, 2)
    config = {"architectures": ["ModernBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": cls,
              "classifier_activation": "gelu", "classifier_bias": False, "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": cls,
              "decoder_bias": True, "deterministic_flash_attn": False, "embedding_dropout": 0.0, "eos_token_id": sep, "global_attn_every_n_layers": 3,
              "global_rope_theta": 160000.0, "gradient_checkpointing": False, "hidden_activation": "gelu", "hidden_size": SLIM,
              "initializer_cutoff_factor": 2.0, "initializer_range": 0.02, "intermediate_size": 24, "layer_norm_eps": 1e-05, "local_attention": 8,
              "local_rope_theta": 10000.0, "max_position_embeddings": LENGTH, "mlp_bias": False, "mlp_dropout": 0.0, "model_type": "modernbert",
              "norm_bias": False, "norm_eps": 1e-05, "num_attention_heads": 4, "num_hidden_layers": 3, "pad_token_id": pad,
              "position_embedding_type": "absolute", "repad_logits_with_grad": False, "sep_token_id": sep, "sparse_pred_ignore_index": -100,
              "sparse_prediction": False, "torch_dtype": "float32", "transformers_version": "4.47.0.dev0", "vocab_size": t.get_vocab_size()}
    write(folder, "config.json", config, 2)
    shapes = {k: v for k, v in of_model(config_of(config), "ModernBertForMaskedLM").items() if k != "decoder.weight"}
    save_weights(folder, random_weights(shapes))
    return t, "ModernBertForMaskedLM"


def albert(folder):
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
             normalizers.Lowercase()]
    t = unigram(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], "<unk>", steps)
    table = charsmap()

    def edit(j):
        j["normalizer"]["normalizers"].append({"type": "Precompiled", "precompiled_charsmap": table})
        for a in j["added_tokens"]:
            a["lstrip"] = a["content"] == "[MASK]"
    t = save_tokenizer(folder, t, untyped=True, edit=edit)
    write(folder, "tokenizer_config.json", {"model_max_length": 512})
    config = {"architectures": ["AlbertForMaskedLM"], "attention_probs_dropout_prob": 0, "bos_token_id": 2, "classifier_dropout_prob": 0.1,
              "down_scale_factor": 1, "embedding_size": 8, "eos_token_id": 3, "gap_size": 0, "hidden_act": "gelu_new", "hidden_dropout_prob": 0,
              "hidden_size": SLIM, "initializer_range": 0.02, "inner_group_num": 1, "intermediate_size": 64, "layer_norm_eps": 1e-12,
              "max_position_embeddings": LENGTH, "model_type": "albert", "net_structure_type": 0, "num_attention_heads": 4, "num_hidden_groups": 1,
              "num_hidden_layers": 3, "num_memory_blocks": 0, "pad_token_id": 0, "type_vocab_size": 2, "vocab_size": t.get_vocab_size()}
    write(folder, "config.json", config, 2)
    shapes = {k: v for k, v in of_model(config_of(config), "AlbertForPreTraining").items() if k != "predictions.decoder.weight"}
    tensors = random_weights(shapes)
    tensors["predictions.decoder.bias"] = tensors["predictions.bias"].clone()
    save_weights(folder, tensors)
    return t, "AlbertForMaskedLM"


FAMILIES = {f.__name__: f for f in (gpt2, bert, distilbert, t5, llama2, llama3, mistral, smollm, modernbert, albert)}


def main():
    with open(os.path.join(HERE, "texts.jsonl"), "w", encoding="utf-8") as f:
        for text in TEXTS:
            f.write(json.dumps({"text": text}, ensure_ascii=True) + "\n")
    for name, make in FAMILIES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        folder = os.path.join(HERE, name)
        os.makedirs(folder, exist_ok=True)
        tokenizer, cls = make(folder)
        golden = {"ids": [tokenizer.encode(t, add_special_tokens=False).ids for t in TEXTS]}
        if cls:
            with open(os.path.join(folder, "config.json")) as f:
                vocab = json.load(f)["vocab_size"]
            golden["input"] = [(7 * i * i + 3 * i + 5) % vocab for i in range(24)]
            golden["logits"] = logits_of(folder, cls, golden["input"])
        with open(os.path.join(HERE, name + ".json"), "w") as f:
            f.write("{" + ",\n".join(f'"{k}": ' + ("[" + ",\n ".join(json.dumps(x, separators=(",", ":")) for x in v) + "]"
                                                   if isinstance(v[0], list) else json.dumps(v)) for k, v in golden.items()) + "}\n")
        print(name, tokenizer.get_vocab_size(), max(map(abs, golden["logits"][0])) if cls else "")


if __name__ == "__main__":
    main()
