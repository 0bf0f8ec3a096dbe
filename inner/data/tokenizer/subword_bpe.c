/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-pair encoding: of all neighbours, the pair of the lowest rank becomes one token, the
 * leftmost first; again and again. A heap holds the candidates, so a word of n bytes costs n log n.
 */
#include "inner/data/tokenizer/subword.h"
#include "inner/data/tokenizer/unicode.h"

#define NO_RANK UINT32_MAX
#define NO_ONE  UINT32_MAX

/* ---- merges ---- */

enum err subword_merges_open(struct subword *w, size_t count)
{
    size_t room = 16;
    while (room < 2 * count)
        room *= 2;
    w->merges = calloc(room, sizeof *w->merges);
    w->merge_mask = room - 1;
    return w->merges ? ERR_OK : err_set(ERR_MEMORY, "no memory for %zu merges", count);
}

static struct subword_merge *merge_slot(const struct subword *w, int32_t left, int32_t right)
{
    uint64_t pair = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    size_t slot = (pair * UINT64_C(0x9e3779b97f4a7c15)) >> 32 & w->merge_mask;
    while (w->merges[slot].pair && w->merges[slot].pair != pair)
        slot = (slot + 1) & w->merge_mask;
    return &w->merges[slot];
}

void subword_merge_add(struct subword *w, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    *merge_slot(w, left, right) =
        (struct subword_merge){((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1, rank, id};
}

const struct subword_merge *subword_merge_find(const struct subword *w, int32_t left, int32_t right)
{
    const struct subword_merge *m = merge_slot(w, left, right);
    return m->pair ? m : NULL;
}

/* ---- heap of candidates, smallest first ---- */

static enum err heap_push(struct subword_scratch *x, uint64_t value)
{
    if (x->heap_count == x->heap_room) {
        void *heap = x->heap;
        TRY(buffer_grow(&heap, &x->heap_room, x->heap_count + 1, sizeof *x->heap));
        x->heap = heap;
    }
    size_t at = x->heap_count++;
    for (; at && x->heap[(at - 1) / 2] > value; at = (at - 1) / 2)
        x->heap[at] = x->heap[(at - 1) / 2];
    x->heap[at] = value;
    return ERR_OK;
}

static uint64_t heap_pop(struct subword_scratch *x)
{
    uint64_t top = x->heap[0], value = x->heap[--x->heap_count];
    size_t at = 0, child;
    for (; (child = 2 * at + 1) < x->heap_count; at = child) {
        if (child + 1 < x->heap_count && x->heap[child + 1] < x->heap[child])
            child++;
        if (x->heap[child] >= value)
            break;
        x->heap[at] = x->heap[child];
    }
    x->heap[at] = value;
    return top;
}

/* ---- a word ---- */

static void symbol_add(struct subword_scratch *x, int32_t id, size_t *count)
{
    uint32_t at = (uint32_t)(*count)++;
    x->symbols[at] = (struct subword_symbol){id, at - 1, at + 1, NO_RANK};
}

/* The bytes of a character that has no token; false: one of them has none either. */
static bool symbols_fall_back(const struct subword *w, struct subword_scratch *x, const uint8_t *s,
                              size_t n, size_t *count)
{
    for (size_t i = 0; i < n; i++)
        if (!w->byte_fallback || w->fallback_ids[s[i]] < 0)
            return false;
    for (size_t i = 0; i < n; i++)
        symbol_add(x, w->fallback_ids[s[i]], count);
    return true;
}

/* An unknown symbol waits for the next one that has a token, as in tokenizers: bytes that stand for
 * a character do not end the wait. */
static void symbols_write(const struct subword *w, struct subword_scratch *x, const uint8_t *word,
                          size_t bytes, size_t *count)
{
    bool waits = false;
    uint32_t point;
    for (size_t at = 0, step; at < bytes; at += step) {
        step = w->points ? unicode_read(word + at, bytes - at, &point) : 1;
        step = step ? step : 1;
        int32_t id = w->points ? trie_find(&w->trie, word + at, step) : w->byte_ids[word[at]];
        if (id < 0 && symbols_fall_back(w, x, word + at, step, count))
            continue;
        if (id < 0 && w->unknown < 0)
            continue;
        if (waits && (id >= 0 || !w->fuse_unknown))
            symbol_add(x, w->unknown, count);
        waits = id < 0;
        if (id >= 0)
            symbol_add(x, id, count);
    }
    if (waits)
        symbol_add(x, w->unknown, count);
}

static enum err symbols_open(const struct subword *w, struct subword_scratch *x,
                             const uint8_t *word, size_t bytes, size_t *count)
{
    *count = 0;
    x->heap_count = 0;
    if (bytes >= NO_ONE)
        return err_set(ERR_INPUT, "a word of %zu bytes", bytes);
    if (x->symbol_room < bytes) {
        void *symbols = x->symbols;
        TRY(buffer_grow(&symbols, &x->symbol_room, bytes, sizeof *x->symbols));
        x->symbols = symbols;
    }
    symbols_write(w, x, word, bytes, count);
    if (*count)
        x->symbols[*count - 1].behind = NO_ONE;
    return ERR_OK;
}

static enum err symbol_rank(const struct subword *w, struct subword_scratch *x, uint32_t at)
{
    struct subword_symbol *s = &x->symbols[at];
    const struct subword_merge *m =
        s->behind == NO_ONE ? NULL : subword_merge_find(w, s->id, x->symbols[s->behind].id);
    s->rank = m ? m->rank : NO_RANK;
    return m ? heap_push(x, (uint64_t)m->rank << 32 | at) : ERR_OK;
}

static enum err symbol_merge(const struct subword *w, struct subword_scratch *x, uint32_t at)
{
    struct subword_symbol *s = &x->symbols[at], *gone = &x->symbols[s->behind];
    s->id = subword_merge_find(w, s->id, gone->id)->id;
    s->behind = gone->behind;
    gone->id = -1;
    if (s->behind != NO_ONE)
        x->symbols[s->behind].before = at;
    TRY(symbol_rank(w, x, at));
    return s->before == NO_ONE ? ERR_OK : symbol_rank(w, x, s->before);
}

enum err subword_bpe(const struct subword *w, struct subword_scratch *x, const uint8_t *word,
                     size_t bytes, struct buffer_ids *out)
{
    size_t count;
    int32_t whole = w->whole_first ? trie_find(&w->trie, word, bytes) : -1;
    if (whole >= 0)
        return buffer_ids_add(out, whole);
    TRY(symbols_open(w, x, word, bytes, &count));
    for (size_t i = 0; i + 1 < count; i++)
        TRY(symbol_rank(w, x, (uint32_t)i));
    while (x->heap_count) {
        uint64_t top = heap_pop(x);
        uint32_t at = (uint32_t)top;
        if (x->symbols[at].id >= 0 && x->symbols[at].rank == top >> 32) /* else: out of date */
            TRY(symbol_merge(w, x, at));
    }
    TRY(buffer_ids_reserve(out, count));
    for (uint32_t i = 0; count && i != NO_ONE; i = x->symbols[i].behind)
        out->ids[out->count++] = x->symbols[i].id;
    return ERR_OK;
}
