/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/tokenizer/cache.h"

enum { SLOTS = 1 << 18, WORDS_MAX = SLOTS / 2 }; /* 6 MiB: the words of a large dictionary */

enum err cache_open(struct cache *c)
{
    *c = (struct cache){0};
    c->entries = calloc(SLOTS, sizeof *c->entries);
    return c->entries ? ERR_OK : err_set(ERR_MEMORY, "no memory for a cache of words");
}

void cache_close(struct cache *c)
{
    free(c->entries);
    buffer_free(&c->words);
    buffer_ids_free(&c->ids);
    *c = (struct cache){0};
}

static inline uint64_t load64(const uint8_t *s)
{
    uint64_t v;
    memcpy(&v, s, 8);
    return v;
}

static inline uint64_t load_tail(const uint8_t *s, size_t n)
{
    uint32_t first, last;
    if (n >= 4) {
        memcpy(&first, s, 4);
        memcpy(&last, s + n - 4, 4);
        return (uint64_t)first << 32 | last;
    }
    return n ? (uint64_t)s[0] << 16 | (uint64_t)s[n / 2] << 8 | s[n - 1] : 0;
}

uint64_t cache_hash(const uint8_t *word, size_t bytes)
{
    const uint64_t k = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t h = (bytes + 1) * k;
    for (; bytes >= 8; word += 8, bytes -= 8) {
        h = (h ^ load64(word)) * k;
        h ^= h >> 32;
    }
    h = (h ^ load_tail(word, bytes)) * k;
    h ^= h >> 29;
    h *= k;
    return h >> 16 | 1;
}

const struct cache_entry *cache_find(const struct cache *c, uint64_t hash, const uint8_t *word,
                                     size_t bytes)
{
    for (size_t slot = hash >> 1 & (SLOTS - 1);; slot = (slot + 1) & (SLOTS - 1)) {
        const struct cache_entry *e = &c->entries[slot];
        if (!e->hash)
            return NULL;
        if (e->hash == hash && e->word_bytes == bytes &&
            !memcmp(c->words.data + e->word, word, bytes))
            return e;
    }
}

void cache_clear(struct cache *c)
{
    memset(c->entries, 0, SLOTS * sizeof *c->entries);
    c->words.count = c->ids.count = c->count = 0;
}

enum err cache_add(struct cache *c, uint64_t hash, const uint8_t *word, size_t bytes,
                   const int32_t *ids, size_t count)
{
    if (bytes > CACHE_WORD_BYTES_MAX || count > UINT16_MAX)
        return ERR_OK;
    if (c->count == WORDS_MAX)
        cache_clear(c);
    size_t slot = hash >> 1 & (SLOTS - 1);
    while (c->entries[slot].hash)
        slot = (slot + 1) & (SLOTS - 1);
    c->entries[slot] = (struct cache_entry){hash, (uint32_t)c->words.count, (uint32_t)c->ids.count,
                                            (uint16_t)bytes, (uint16_t)count};
    TRY(buffer_ids_reserve(&c->ids, count));
    if (count)
        memcpy(c->ids.ids + c->ids.count, ids, count * sizeof *ids);
    c->ids.count += count;
    c->count++;
    return buffer_add(&c->words, word, bytes);
}
