/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a learned vocabulary. */
#include <stdio.h>
#include "inner/config/json.h"
#include "inner/data/tokenizer/learn_own.h"
#include "inner/data/tokenizer/tokenizer_own.h"
#include "kernels/base/file.h"

#define WORDPIECE_HEAD                                                                             \
    "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,"                             \
    "\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":%s},\n"                    \
    "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\n"
#define WORDPIECE_TAIL                                                                             \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["                             \
    "{\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}},"                                         \
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"                                                 \
    "{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":0}}],\"pair\":["                              \
    "{\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}},"                                         \
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"                                                 \
    "{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":0}},"                                         \
    "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}},"                                                 \
    "{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":1}}],\"special_tokens\":{"                    \
    "\"[CLS]\":{\"id\":\"[CLS]\",\"ids\":[2],\"tokens\":[\"[CLS]\"]},"                             \
    "\"[SEP]\":{\"id\":\"[SEP]\",\"ids\":[3],\"tokens\":[\"[SEP]\"]}}},\n"                         \
    "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},\n"
#define BPE_HEAD                                                                                   \
    "\"normalizer\":null,\n\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"  \
    "\"trim_offsets\":true,\"use_regex\":true},\n"
#define BPE_TAIL                                                                                   \
    "\"post_processor\":null,\n\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"     \
    "\"trim_offsets\":true,\"use_regex\":true},\n"

static const char wordpiece_base[] =
    "{\"version\":\"1.0\"," WORDPIECE_HEAD
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":{\"[UNK]\":0}}}";
static const char bpe_base[] = "{\"version\":\"1.0\"," BPE_HEAD
                               "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";

enum err learn_words_open(struct tokenizer **t, const struct learn_options *o)
{
    char text[sizeof wordpiece_base + 8];
    ASSERT(o->kind == TOKENIZER_WORDPIECE || o->kind == TOKENIZER_BPE);
    if (o->kind == TOKENIZER_BPE)
        return tokenizer_parse(t, "byte-level BPE", bpe_base, strlen(bpe_base));
    snprintf(text, sizeof text, wordpiece_base, o->lower ? "true" : "false");
    return tokenizer_parse(t, "WordPiece", text, strlen(text));
}

/* ---- tokens as text ---- */

static uint32_t character_of(uint8_t byte)
{
    uint32_t point = byte;
    if (tokenizer_byte(point) == byte)
        return point;
    for (point = 256; tokenizer_byte(point) != byte; point++)
        ASSERT(point < 512);
    return point;
}

enum err learn_token_text(const struct learn *l, int32_t id, struct buffer *out)
{
    const struct learn_token *t = &l->tokens[id];
    const uint8_t *s = l->text.data + t->at;
    uint8_t character[UNICODE_BYTES_MAX];
    if (l->o->kind == TOKENIZER_WORDPIECE || (size_t)id < l->special_count)
        return buffer_add(out, s, t->bytes);
    for (uint32_t i = 0; i < t->bytes; i++)
        TRY(buffer_add(out, character, unicode_write(character_of(s[i]), character)));
    return ERR_OK;
}

static enum err quoted_write(const struct learn *l, int32_t left, int32_t right, struct buffer *out,
                             struct arena *a)
{
    struct buffer text = {0};
    char *quoted = NULL;
    enum err e = learn_token_text(l, left, &text);
    if (!e && right >= 0)
        e = buffer_add(&text, " ", 1);
    if (!e && right >= 0)
        e = learn_token_text(l, right, &text);
    e = e ? e : buffer_add(&text, "", 1);
    if (!e && !(quoted = json_quoted((const char *)text.data, a)))
        e = ERR_MEMORY;
    buffer_free(&text);
    return e ? e : buffer_add(out, quoted, strlen(quoted));
}

/* ---- tokenizer.json ---- */

static enum err text_write(struct buffer *out, const char *text)
{
    return buffer_add(out, text, strlen(text));
}

static enum err added_write(const struct learn *l, struct buffer *out, struct arena *a)
{
    char *id;
    TRY(text_write(
        out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":["));
    for (size_t i = 0; i < l->special_count; i++) {
        TRY_ALLOC(id = arena_printf(a, "%s{\"id\":%zu,\"content\":", i ? ",\n" : "\n", i));
        TRY(text_write(out, id));
        TRY(quoted_write(l, (int32_t)i, -1, out, a));
        TRY(text_write(out, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                            "\"normalized\":false,\"special\":true}"));
    }
    return text_write(out, "],\n");
}

static enum err vocab_write(const struct learn *l, struct buffer *out, struct arena *a)
{
    char number[32];
    TRY(text_write(out, "\"vocab\":{"));
    for (size_t i = 0; i < l->token_count; i++) {
        TRY(text_write(out, i ? ",\n" : "\n"));
        TRY(quoted_write(l, (int32_t)i, -1, out, a));
        snprintf(number, sizeof number, ":%zu", i);
        TRY(text_write(out, number));
    }
    return text_write(out, "}");
}

static enum err merges_write(const struct learn *l, struct buffer *out, struct arena *a)
{
    TRY(text_write(out, ",\n\"merges\":["));
    for (size_t i = 0; i < l->merges.count; i += 2) {
        TRY(text_write(out, i ? ",\n" : "\n"));
        TRY(quoted_write(l, l->merges.ids[i], l->merges.ids[i + 1], out, a));
    }
    return text_write(out, "]");
}

static enum err json_write(const struct learn *l, struct buffer *out, struct arena *a)
{
    bool pieces = l->o->kind == TOKENIZER_WORDPIECE;
    char head[sizeof WORDPIECE_HEAD + 8];
    snprintf(head, sizeof head, WORDPIECE_HEAD, l->o->lower ? "true" : "false");
    TRY(added_write(l, out, a));
    TRY(text_write(out, pieces ? head : BPE_HEAD));
    TRY(text_write(out, pieces ? WORDPIECE_TAIL : BPE_TAIL));
    TRY(text_write(out, pieces ? "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
                                 "\"continuing_subword_prefix\":\"##\","
                                 "\"max_input_chars_per_word\":100,"
                               : "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                                 "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                                 "\"fuse_unk\":false,\"byte_fallback\":false,"
                                 "\"ignore_merges\":false,"));
    TRY(vocab_write(l, out, a));
    if (!pieces)
        TRY(merges_write(l, out, a));
    return text_write(out, "}}\n");
}

/* ---- vocab.txt and what transformers wants to know ---- */

static enum err lines_write(const struct learn *l, struct buffer *out)
{
    for (size_t i = 0; i < l->token_count; i++) {
        TRY(learn_token_text(l, (int32_t)i, out));
        TRY(text_write(out, "\n"));
    }
    return ERR_OK;
}

static enum err config_write(const struct learn *l, struct buffer *out)
{
    if (l->o->kind == TOKENIZER_BPE)
        return text_write(out, "{\"tokenizer_class\":\"PreTrainedTokenizerFast\","
                               "\"bos_token\":\"<|endoftext|>\",\"eos_token\":\"<|endoftext|>\","
                               "\"unk_token\":\"<|endoftext|>\"}\n");
    TRY(text_write(out, "{\"tokenizer_class\":\"BertTokenizer\",\"do_lower_case\":"));
    TRY(text_write(out, l->o->lower ? "true" : "false"));
    return text_write(out, ",\"strip_accents\":null,\"tokenize_chinese_chars\":true,"
                           "\"pad_token\":\"[PAD]\",\"unk_token\":\"[UNK]\","
                           "\"cls_token\":\"[CLS]\",\"sep_token\":\"[SEP]\","
                           "\"mask_token\":\"[MASK]\"}\n");
}

static enum err file_of(const char *directory, const char *name, const struct buffer *text,
                        struct arena *a)
{
    char *path;
    struct file_part part = {text->data, text->count};
    TRY_ALLOC(path = arena_printf(a, "%s/%s", directory, name));
    return file_write(path, &part, 1, 0644);
}

static enum err files_write(const struct learn *l, const char *directory, struct buffer *text,
                            struct arena *a)
{
    TRY(json_write(l, text, a));
    TRY(file_of(directory, "tokenizer.json", text, a));
    text->count = 0;
    TRY(config_write(l, text));
    TRY(file_of(directory, "tokenizer_config.json", text, a));
    text->count = 0;
    if (l->o->kind == TOKENIZER_BPE)
        return ERR_OK;
    TRY(lines_write(l, text));
    return file_of(directory, "vocab.txt", text, a);
}

enum err learn_files_write(const struct learn *l, const char *directory)
{
    struct arena a = arena_make(0);
    struct buffer text = {0};
    enum err e = files_write(l, directory, &text, &a);
    buffer_free(&text);
    arena_free(&a);
    return e;
}
