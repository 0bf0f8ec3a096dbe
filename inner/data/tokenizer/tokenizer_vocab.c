/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.txt of BERT. */
#include "inner/data/tokenizer/tokenizer_read.h"

enum { POINTS_MAX = 100 };

static size_t line_length(const char *text, size_t bytes)
{
    const char *end = memchr(text, '\n', bytes);
    return end ? (size_t)(end - text) : bytes;
}

static size_t trimmed(const char *line, size_t bytes)
{
    while (bytes && strchr(" \t\r\n", line[bytes - 1]) && line[bytes - 1])
        bytes--;
    return bytes;
}

static bool has_capital(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes && *line != '['; i++)
        if (line[i] >= 'A' && line[i] <= 'Z')
            return true;
    return false;
}

static enum err lines_take(struct tokenizer *t, const char *text, size_t bytes, bool *capitals)
{
    size_t bad, count = 0;
    if (!unicode_check((const uint8_t *)text, bytes, &bad))
        return err_set(ERR_INPUT, "%s: byte %zu is not UTF-8", t->file, bad + 1);
    for (size_t at = 0; at < bytes; at += line_length(text + at, bytes - at) + 1)
        count++;
    if (!count || count > TOKENIZER_IDS_MAX)
        return err_set(ERR_INPUT, "%s: %zu lines are no vocabulary", t->file, count);
    t->kind = TOKENIZER_WORDPIECE;
    t->size = (int32_t)count;
    TRY_ALLOC(t->tokens = arena_array(&t->arena, count, sizeof *t->tokens));
    TRY_ALLOC(t->special = arena_array(&t->arena, count, sizeof *t->special));
    int32_t id = 0;
    for (size_t at = 0, length; at < bytes; at += length + 1, id++) {
        length = line_length(text + at, bytes - at);
        size_t kept = trimmed(text + at, length);
        *capitals = *capitals || has_capital(text + at, kept);
        TRY(tokenizer_token_add(t, id, text + at, kept));
    }
    return ERR_OK;
}

static enum err bert_open(struct tokenizer *t, const struct json *config, bool capitals)
{
    const struct json *strip = json_find(config, "strip_accents");
    struct normal_op *op = &t->normal.ops[t->normal.count++];
    op->kind = NORMAL_BERT;
    op->clean = true;
    op->lower = tokenizer_json_flag(config, "do_lower_case", !capitals);
    op->strip = strip && strip->kind == JSON_FLAG ? strip->number > 0 : op->lower;
    op->chinese = tokenizer_json_flag(config, "tokenize_chinese_chars", true);
    t->split.ops[t->split.count++].kind = SPLIT_BERT;
    return ERR_OK;
}

static enum err vocab_take(struct tokenizer *t, const char *text, size_t bytes,
                           struct arena *scratch)
{
    struct json config;
    bool capitals = false;
    TRY(tokenizer_side_read(t, "tokenizer_config.json", scratch, &config));
    TRY(lines_take(t, text, bytes, &capitals));
    const char *unknown = tokenizer_json_text(&config, "unk_token");
    TRY(tokenizer_wordpiece_open(t, t->file, unknown ? unknown : "[UNK]", "##", POINTS_MAX));
    TRY(bert_open(t, &config, capitals));
    TRY(tokenizer_roles_read(t, scratch));
    t->decoder.kind = DECODE_PIECES;
    return tokenizer_specials_add(t);
}

enum err tokenizer_vocab_read(struct tokenizer *t, const char *text, size_t bytes)
{
    struct arena scratch = arena_make(0);
    enum err e = vocab_take(t, text, bytes, &scratch);
    arena_free(&scratch);
    return e;
}
