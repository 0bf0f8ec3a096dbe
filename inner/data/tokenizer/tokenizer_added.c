/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/tokenizer/tokenizer_own.h"

/* By kind and first byte, longest first. */
static int by_length(const void *a, const void *b)
{
    const struct tokenizer_added *x = a, *y = b;
    if (x->normalised != y->normalised)
        return x->normalised ? 1 : -1;
    if (x->text[0] != y->text[0])
        return x->text[0] < y->text[0] ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static enum err added_normalise(struct tokenizer *t, struct tokenizer_scratch *x)
{
    const uint8_t *out;
    size_t bytes;
    for (size_t i = 0; i < t->added_count; i++) {
        struct tokenizer_added *a = &t->added[i];
        if (!a->normalised)
            continue;
        TRY(normal_apply(&t->normal, &x->normal, a->text, a->bytes, &out, &bytes));
        TRY_ALLOC(a->text = (const uint8_t *)arena_string(&t->arena, (const char *)out, bytes));
        a->bytes = bytes;
    }
    return ERR_OK;
}

enum err tokenizer_added_open(struct tokenizer *t)
{
    struct tokenizer_scratch *x;
    TRY(tokenizer_scratch_open(&x));
    enum err e = added_normalise(t, x);
    tokenizer_scratch_close(x);
    TRY(e);
    if (t->added_count)
        qsort(t->added, t->added_count, sizeof *t->added, by_length);
    for (size_t i = t->added_count; i-- > 0;) {
        const struct tokenizer_added *a = &t->added[i];
        struct tokenizer_range *r = &t->begins[a->normalised][a->text[0]];
        r->first = (uint32_t)i;
        r->count++;
    }
    return ERR_OK;
}

/* ---- the neighbours that a token cares for ---- */

static unsigned class_before(const uint8_t *s, size_t at, size_t *bytes)
{
    uint32_t point;
    size_t start = at;
    while (start > 0 && (s[--start] & 0xc0) == 0x80)
        ;
    *bytes = at - start;
    return at && unicode_read(s + start, at - start, &point) ? unicode_class(point) : 0;
}

static unsigned class_behind(const uint8_t *s, size_t n, size_t at, size_t *bytes)
{
    uint32_t point;
    *bytes = unicode_read(s + at, n - at, &point);
    return *bytes ? unicode_class(point) : 0;
}

static bool stands_alone(const uint8_t *s, size_t n, size_t start, size_t end)
{
    size_t bytes;
    return !(class_before(s, start, &bytes) & UNICODE_WORD) &&
           !(class_behind(s, n, end, &bytes) & UNICODE_WORD);
}

static const struct tokenizer_added *added_at(const struct tokenizer *t, bool normalised,
                                              const uint8_t *s, size_t n, size_t at)
{
    const struct tokenizer_range *r = &t->begins[normalised][s[at]];
    for (uint32_t i = 0; i < r->count; i++) {
        const struct tokenizer_added *a = &t->added[r->first + i];
        if (a->bytes && a->bytes <= n - at && !memcmp(a->text, s + at, a->bytes))
            return a;
    }
    return NULL;
}

/* The longest token of the leftmost place. A token that does not stand alone but has to is passed
 * over as a whole. White space that a token takes along is not hidden from the tokens after it. */
const struct tokenizer_added *tokenizer_added_next(const struct tokenizer *t, bool normalised,
                                                   const uint8_t *s, size_t n,
                                                   struct tokenizer_place *p)
{
    const struct tokenizer_range *begins = t->begins[normalised];
    const struct tokenizer_added *a = NULL;
    size_t bytes;
    p->at = p->end;
    for (size_t i = p->scan; t->added_count && i < n; i++) {
        if (!begins[s[i]].count || !(a = added_at(t, normalised, s, n, i)))
            continue;
        p->start = i;
        p->end = p->scan = i + a->bytes;
        if (!a->single_word || stands_alone(s, n, p->start, p->end))
            break;
        i += a->bytes - 1;
        a = NULL;
    }
    if (!a)
        return NULL;
    while (a->lstrip && p->start > p->at && class_before(s, p->start, &bytes) & UNICODE_SPACE)
        p->start -= bytes;
    while (a->rstrip && class_behind(s, n, p->end, &bytes) & UNICODE_SPACE)
        p->end += bytes;
    return a;
}
