/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/boundary.h"
#include "inner/data/sentence.h"

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_inside(uint8_t c) /* a character of UTF-8 */
{
    return (c & 0xc0) == 0x80;
}

size_t boundary_character(const uint8_t *text, size_t bytes, size_t from)
{
    enum { MOST = 3 };
    size_t at = from;
    while (at < bytes && at - from < MOST && is_inside(text[at]))
        at++;
    return at == bytes || !is_inside(text[at]) ? at : from;
}

size_t boundary_sentence(const uint8_t *text, size_t bytes, size_t from)
{
    struct sentence s;
    size_t at = 0;
    while (at < from && sentence_next(text, bytes, &at, &s))
        continue;
    return at < from ? bytes : at;
}

/* ---- words ---- */

struct listing { /* words with their lengths, and how many there are */
    struct buffer text;
    size_t count;
};

static enum err word_list(void *self, const uint8_t *word, size_t bytes)
{
    struct listing *l = self;
    l->count++;
    TRY(buffer_add(&l->text, &bytes, sizeof bytes));
    return buffer_add(&l->text, word, bytes);
}

struct asking {
    const struct tokenizer *t;
    struct tokenizer_scratch *x;
    struct listing whole, parts;
};

static enum err words_add(struct asking *q, struct listing *l, const uint8_t *text, size_t bytes)
{
    const struct split_sink sink = {word_list, l};
    return tokenizer_words(q->t, q->x, text, bytes, &sink);
}

/* The window before a place begins with a character, and with white space where it has some:
 * words of the whole text begin there too. */
static size_t window_start(const uint8_t *text, size_t at)
{
    if (at <= BOUNDARY_WINDOW_BYTES)
        return 0;
    size_t start = at - BOUNDARY_WINDOW_BYTES, middle = at - BOUNDARY_WINDOW_BYTES / 2;
    for (size_t i = start + 1; i < middle; i++)
        if (is_space(text[i]) && !is_space(text[i - 1]))
            return i;
    while (is_inside(text[start]))
        start++;
    return start;
}

static size_t window_end(const uint8_t *text, size_t bytes, size_t at)
{
    size_t end = bytes - at <= BOUNDARY_WINDOW_BYTES ? bytes : at + BOUNDARY_WINDOW_BYTES;
    while (end < bytes && is_inside(text[end]))
        end--;
    return end;
}

/* A first word of a window may be the end of one: there must be another before the place. */
static enum err is_boundary(struct asking *q, const uint8_t *text, size_t bytes, size_t at,
                            bool *yes)
{
    size_t start = window_start(text, at), end = window_end(text, bytes, at), before;
    q->whole.text.count = q->parts.text.count = q->whole.count = q->parts.count = 0;
    TRY(words_add(q, &q->whole, text + start, end - start));
    TRY(words_add(q, &q->parts, text + start, at - start));
    before = q->parts.count;
    TRY(words_add(q, &q->parts, text + at, end - at));
    *yes = (start == 0 || before > 1) && q->whole.count == q->parts.count &&
           q->whole.text.count == q->parts.text.count &&
           (!q->whole.text.count ||
            !memcmp(q->whole.text.data, q->parts.text.data, q->whole.text.count));
    return ERR_OK;
}

static enum err first_boundary(struct asking *q, const uint8_t *text, size_t bytes, size_t from,
                               bool spaces, size_t *at)
{
    unsigned tries = 0;
    bool yes = false;
    for (*at = from; *at < bytes && tries < BOUNDARY_TRIES; ++*at) {
        if (spaces ? !is_space(text[*at]) || is_space(text[*at - 1]) : is_inside(text[*at]))
            continue;
        tries++;
        TRY(is_boundary(q, text, bytes, *at, &yes));
        if (yes)
            return ERR_OK;
    }
    *at = bytes;
    return ERR_OK;
}

enum err boundary_words(const struct tokenizer *t, struct tokenizer_scratch *x, const uint8_t *text,
                        size_t bytes, size_t from, size_t *at)
{
    struct asking q = {.t = t, .x = x};
    ASSERT(from > 0 && from <= bytes);
    enum err e = first_boundary(&q, text, bytes, from, true, at);
    if (!e && *at == bytes)
        e = first_boundary(&q, text, bytes, from, false, at);
    buffer_free(&q.whole.text);
    buffer_free(&q.parts.text);
    return e;
}
