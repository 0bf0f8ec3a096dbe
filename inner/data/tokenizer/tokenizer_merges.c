/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.json and merges.txt, as GPT-2 was published: byte-level BPE in two files. They become the
 * text of the tokenizer.json that means the same, so that one file describes the ids of shards. */
#include "inner/data/tokenizer/tokenizer_read.h"
#include "kernels/base/file.h"

static enum err add_words(struct buffer *b, const char *words)
{
    return buffer_add(b, words, strlen(words));
}

/* A line "a b" as a text of JSON. */
static enum err merge_add(struct buffer *b, const char *line, size_t bytes, const char *where,
                          struct arena *a)
{
    const char *blank = memchr(line, ' ', bytes);
    char *pair, *quoted;
    if (!blank || blank == line || blank + 1 == line + bytes ||
        memchr(blank + 1, ' ', bytes - (size_t)(blank + 1 - line)))
        return err_set(ERR_INPUT, "%s: no pair of tokens", where);
    TRY_ALLOC(pair = arena_string(a, line, bytes));
    TRY_ALLOC(quoted = json_quoted(pair, a));
    return add_words(b, quoted);
}

/* Without the first line, which says the version. */
static enum err merges_add(struct buffer *b, const char *path, struct arena *a)
{
    uint8_t *data;
    size_t size;
    const char *comma = "";
    TRY(file_read(path, TOKENIZER_FILE_BYTES_MAX, a, &data, &size));
    const char *text = (const char *)data;
    for (size_t at = 0, number = 1, length; at < size; at += length + 1, number++) {
        const char *end = memchr(text + at, '\n', size - at), *where;
        length = end ? (size_t)(end - text) - at : size - at;
        size_t kept = length && text[at + length - 1] == '\r' ? length - 1 : length;
        bool version = number == 1 && kept >= 8 && !memcmp(text + at, "#version", 8);
        if (!kept || version)
            continue;
        TRY_ALLOC(where = arena_printf(a, "%s: line %zu", path, number));
        TRY(add_words(b, comma));
        TRY(merge_add(b, text + at, kept, where, a));
        comma = ", ";
    }
    return ERR_OK;
}

/* All but the added tokens. */
static enum err body_make(struct buffer *b, const struct tokenizer *t, const char *vocab,
                          size_t bytes, struct arena *a)
{
    const char *slash = strrchr(t->file, '/');
    struct json config;
    char *merges;
    TRY(tokenizer_side_read(t, "tokenizer_config.json", a, &config));
    TRY_ALLOC(merges = arena_printf(a, "%.*smerges.txt", slash ? (int)(slash - t->file) + 1 : 0,
                                    t->file));
    TRY(add_words(b, "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "));
    TRY(add_words(b, tokenizer_json_flag(&config, "add_prefix_space", false) ? "true" : "false"));
    TRY(add_words(b, ", \"trim_offsets\": true, \"use_regex\": true},\n \"decoder\": {\"type\": "
                     "\"ByteLevel\"},\n \"model\": {\"type\": \"BPE\", \"merges\": ["));
    TRY(merges_add(b, merges, a));
    TRY(add_words(b, "],\n \"vocab\": "));
    TRY(buffer_add(b, vocab, bytes));
    return add_words(b, "}}\n");
}

/* "added_tokens", which tokenizer_specials_add has found among the vocabulary. */
static enum err added_make(struct buffer *b, const struct tokenizer *t, struct arena *a)
{
    TRY(add_words(b, "{\"added_tokens\": ["));
    for (size_t i = 0; i < t->added_count; i++) {
        char *quoted, *token;
        TRY_ALLOC(quoted = json_quoted(t->tokens[t->added[i].id], a));
        TRY_ALLOC(token = arena_printf(a,
                                       "%s{\"id\": %d, \"content\": %s, \"single_word\": false, "
                                       "\"lstrip\": false, \"rstrip\": false, \"normalized\": "
                                       "false, \"special\": true}",
                                       i ? ", " : "", t->added[i].id, quoted));
        TRY(add_words(b, token));
    }
    return add_words(b, "],\n \"normalizer\": null, ");
}

static enum err model_read(struct tokenizer *t, const struct buffer *body, struct arena *a)
{
    char *text;
    TRY_ALLOC(text = arena_printf(a, "{%.*s", (int)body->count, (const char *)body->data));
    TRY(tokenizer_json_read(t, t->file, text, body->count + 1));
    return tokenizer_specials_add(t);
}

static enum err text_make(struct tokenizer *t, struct buffer *body, struct buffer *all,
                          struct arena *a)
{
    TRY(model_read(t, body, a));
    TRY(added_make(all, t, a));
    TRY(buffer_add(all, body->data, body->count));
    TRY_ALLOC(t->text = arena_string(&t->arena, (const char *)all->data, all->count));
    t->digest = digest_of(all->data, all->count);
    return ERR_OK;
}

enum err tokenizer_merges_read(struct tokenizer *t, const char *text, size_t bytes)
{
    struct arena scratch = arena_make(0);
    struct buffer body = {0}, all = {0};
    enum err e = buffer_reserve(&body, 2 * bytes);
    e = e ? e : body_make(&body, t, text, bytes, &scratch);
    e = e ? e : text_make(t, &body, &all, &scratch);
    buffer_free(&body);
    buffer_free(&all);
    arena_free(&scratch);
    return e;
}
