/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/tokenizer/tally.h"
#include "inner/data/tokenizer/cache.h"

enum { SLOTS_FIRST = 1 << 12 };

static void entry_put(struct tally_entry *entries, size_t mask, struct tally_entry e)
{
    size_t slot = e.hash >> 1 & mask;
    while (entries[slot].hash)
        slot = (slot + 1) & mask;
    entries[slot] = e;
}

static enum err tally_grow(struct tally *w)
{
    size_t slots = w->entries ? 2 * (w->mask + 1) : SLOTS_FIRST;
    struct tally_entry *entries = calloc(slots, sizeof *entries);
    if (!entries)
        return err_set(ERR_MEMORY, "no memory for %zu words", slots);
    for (size_t i = 0; w->entries && i <= w->mask; i++)
        if (w->entries[i].hash)
            entry_put(entries, slots - 1, w->entries[i]);
    free(w->entries);
    w->entries = entries;
    w->mask = slots - 1;
    return ERR_OK;
}

enum err tally_open(struct tally *w)
{
    *w = (struct tally){0};
    return tally_grow(w);
}

void tally_close(struct tally *w)
{
    free(w->entries);
    buffer_free(&w->text);
    *w = (struct tally){0};
}

enum err tally_add(struct tally *w, const uint8_t *word, size_t bytes, uint64_t times)
{
    uint64_t hash = cache_hash(word, bytes);
    for (size_t slot = hash >> 1 & w->mask; w->entries[slot].hash; slot = (slot + 1) & w->mask) {
        struct tally_entry *e = &w->entries[slot];
        if (e->hash == hash && e->bytes == bytes && !memcmp(w->text.data + e->at, word, bytes)) {
            e->count += times;
            return ERR_OK;
        }
    }
    if (bytes > UINT32_MAX)
        return err_set(ERR_INPUT, "a word of %zu bytes", bytes);
    if (2 * (w->count + 1) > w->mask)
        TRY(tally_grow(w));
    entry_put(w->entries, w->mask,
              (struct tally_entry){hash, times, w->text.count, (uint32_t)bytes});
    w->count++;
    return buffer_add(&w->text, word, bytes);
}

enum err tally_merge(struct tally *into, const struct tally *from)
{
    for (size_t i = 0; i <= from->mask; i++)
        if (from->entries[i].hash)
            TRY(tally_add(into, from->text.data + from->entries[i].at, from->entries[i].bytes,
                          from->entries[i].count));
    return ERR_OK;
}

static int by_bytes(const void *a, const void *b, void *text)
{
    const struct tally_entry *x = a, *y = b;
    const uint8_t *t = text;
    size_t common = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(t + x->at, t + y->at, common);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

void tally_sort(struct tally *w)
{
    size_t kept = 0;
    for (size_t i = 0; i <= w->mask; i++)
        if (w->entries[i].hash)
            w->entries[kept++] = w->entries[i];
    qsort_r(w->entries, kept, sizeof *w->entries, by_bytes, w->text.data);
}
