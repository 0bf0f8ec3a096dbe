/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of a tokenizer while it is read, and fields of its JSON. */
#include <string.h>
#include "inner/data/tokenizer/tokenizer_read.h"

bool tokenizer_json_flag(const struct json *j, const char *key, bool fallback)
{
    const struct json *item = json_find(j, key);
    return item && item->kind == JSON_FLAG ? item->number > 0 : fallback;
}

const char *tokenizer_json_text(const struct json *j, const char *key)
{
    const struct json *item = json_find(j, key);
    return item && item->kind == JSON_WORDS ? item->text : NULL;
}

static bool stands_for_itself(uint32_t byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
           (byte >= 174 && byte <= 255);
}

/* The other 68 bytes, in order, are U+0100 and the characters after it. */
int tokenizer_byte(uint32_t point)
{
    if (point < 256)
        return stands_for_itself(point) ? (int)point : -1;
    for (uint32_t byte = 0, next = 256; byte < 256; byte++)
        if (!stands_for_itself(byte) && next++ == point)
            return (int)byte;
    return -1;
}

bool tokenizer_bytes(const char *token, size_t bytes, uint8_t *out, size_t *count)
{
    uint32_t point;
    *count = 0;
    for (size_t at = 0, step; at < bytes; at += step) {
        step = unicode_read((const uint8_t *)token + at, bytes - at, &point);
        int byte = step ? tokenizer_byte(point) : -1;
        if (byte < 0)
            return false;
        out[(*count)++] = (uint8_t)byte;
    }
    return true;
}

enum err tokenizer_tokens_grow(struct tokenizer *t, int32_t size)
{
    const char **tokens;
    bool *special;
    if (size <= t->size)
        return ERR_OK;
    TRY_ALLOC(tokens = arena_array(&t->arena, (size_t)size, sizeof *tokens));
    TRY_ALLOC(special = arena_array(&t->arena, (size_t)size, sizeof *special));
    if (t->size) {
        memcpy(tokens, t->tokens, (size_t)t->size * sizeof *tokens);
        memcpy(special, t->special, (size_t)t->size * sizeof *special);
    }
    t->tokens = tokens;
    t->special = special;
    t->size = size;
    return ERR_OK;
}

enum err tokenizer_name_add(struct tokenizer *t, struct trie *to, const void *text, size_t bytes,
                            int32_t id)
{
    if (bytes > TOKENIZER_TOKEN_BYTES_MAX)
        return err_set(ERR_INPUT, "%s: token \"%.40s..\" has %zu bytes; at most %d are read",
                       t->file, (const char *)text, bytes, TOKENIZER_TOKEN_BYTES_MAX);
    enum err e = trie_add(to, text, bytes, id);
    return e ? err_add(e, "%s: ", t->file) : ERR_OK;
}

enum err tokenizer_added_add(struct tokenizer *t, const char *content, int32_t id,
                             struct tokenizer_added a)
{
    size_t bytes = strlen(content);
    TRY(tokenizer_tokens_grow(t, id + 1));
    if (!t->tokens[id])
        TRY_ALLOC(t->tokens[id] = arena_string(&t->arena, content, bytes));
    TRY(tokenizer_name_add(t, &t->names, content, bytes, id));
    t->special[id] = t->special[id] || a.special;
    TRY_ALLOC(a.text = (const uint8_t *)arena_string(&t->arena, content, bytes));
    a.bytes = bytes;
    a.id = id;
    t->added[t->added_count++] = a;
    return ERR_OK;
}

const char *tokenizer_token(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->size ? t->tokens[id] : NULL;
}

int32_t tokenizer_id(const struct tokenizer *t, const char *token)
{
    return trie_find(&t->names, (const uint8_t *)token, strlen(token));
}
