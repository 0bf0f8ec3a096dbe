/* SPDX-License-Identifier: Apache-2.0 */
/* Ids to text, as the decoder of the file or of the model's kind has it. */
#include <stdio.h>
#include "inner/data/tokenizer/tokenizer_own.h"

static enum err bytes_decode(const char *token, struct buffer *out)
{
    size_t bytes = strlen(token), count;
    TRY(buffer_reserve(out, bytes));
    if (!tokenizer_bytes(token, bytes, out->data + out->count, &count))
        return buffer_add(out, token, bytes);
    out->count += count;
    return ERR_OK;
}

/* Words are joined by blanks, but a full stop, comma, question or exclamation mark has none. */
static enum err piece_decode(const struct tokenizer *t, const char *token, bool first,
                             struct buffer *out)
{
    size_t prefix = strlen(t->prefix);
    if (!first && prefix && !strncmp(token, t->prefix, prefix))
        return buffer_add(out, token + prefix, strlen(token) - prefix);
    if (!first && (!*token || !strchr(".,?!", *token)))
        TRY(buffer_add(out, " ", 1));
    return buffer_add(out, token, strlen(token));
}

static enum err marks_decode(const struct tokenizer *t, const char *token, bool first,
                             struct buffer *out)
{
    for (size_t bytes = strlen(token); bytes;) {
        bool mark = bytes >= t->mark_bytes && !memcmp(token, t->mark, t->mark_bytes);
        size_t step = mark ? t->mark_bytes : 1;
        if (!mark || !first)
            TRY(buffer_add(out, mark ? " " : token, 1));
        token += step;
        bytes -= step;
    }
    return ERR_OK;
}

/* ---- the file's list: Replace, ByteFallback, Fuse, Strip ---- */

/* Of "<0x41>"; -1: the token is none of a byte. */
static int byte_of(const char *token)
{
    unsigned value;
    char end;
    return strlen(token) == 6 && sscanf(token, "<0x%2X%c", &value, &end) == 2 && end == '>'
               ? (int)value
               : -1;
}

/* Bytes in a row become text if they are text, else U+FFFD each. */
static enum err bytes_flush(struct buffer *bytes, struct buffer *out)
{
    size_t bad, count = bytes->count;
    bytes->count = 0;
    if (count && unicode_check(bytes->data, count, &bad))
        return buffer_add(out, bytes->data, count);
    for (size_t i = 0; i < count; i++)
        TRY(buffer_add(out, "\xef\xbf\xbd", 3));
    return ERR_OK;
}

static enum err part_decode(const struct tokenizer *t, const char *token, struct buffer *bytes,
                            struct buffer *out)
{
    int byte = t->decoder.byte_fallback ? byte_of(token) : -1;
    if (byte >= 0)
        return buffer_add(bytes, &(uint8_t){(uint8_t)byte}, 1);
    TRY(bytes_flush(bytes, out));
    return t->decoder.replace ? marks_decode(t, token, false, out)
                              : buffer_add(out, token, strlen(token));
}

static void blanks_strip(const struct tokenizer *t, struct buffer *out, size_t from)
{
    size_t blanks = 0;
    while (blanks < t->decoder.strip && from + blanks < out->count &&
           out->data[from + blanks] == ' ')
        blanks++;
    if (!blanks)
        return;
    memmove(out->data + from, out->data + from + blanks, out->count - from - blanks);
    out->count -= blanks;
}

static enum err token_decode(const struct tokenizer *t, const char *token, bool first,
                             struct buffer *bytes, struct buffer *out)
{
    switch (t->decoder.kind) {
    case DECODE_BYTES:
        return bytes_decode(token, out);
    case DECODE_PIECES:
        return piece_decode(t, token, first, out);
    case DECODE_MARKS:
        return marks_decode(t, token, first, out);
    case DECODE_PARTS:
        break;
    }
    return part_decode(t, token, bytes, out);
}

enum err tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t count,
                          bool skip_special, struct buffer *out)
{
    struct buffer bytes = {0};
    size_t from = out->count;
    bool first = true;
    enum err e = ERR_OK;
    for (size_t i = 0; i < count && !e; i++) {
        const char *token = tokenizer_token(t, ids[i]);
        if (!token || (skip_special && t->special[ids[i]]))
            continue;
        e = token_decode(t, token, first, &bytes, out);
        first = false;
    }
    e = e ? e : bytes_flush(&bytes, out);
    buffer_free(&bytes);
    blanks_strip(t, out, from);
    return e;
}
