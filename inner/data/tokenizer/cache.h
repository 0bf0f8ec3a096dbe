/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CACHE_H
#define CACHE_H
/* The ids of words that one thread has met. A full cache is emptied, so its memory is bounded and
 * an answer never depends on it.
 */
#include <stdbool.h>
#include "inner/data/tokenizer/buffer.h"

enum { CACHE_WORD_BYTES_MAX = 256 }; /* longer words are seldom met twice */

struct cache_entry {
    uint64_t hash; /* 0: free */
    uint32_t word, ids;
    uint16_t word_bytes, id_count;
};
struct cache {
    struct cache_entry *entries;
    struct buffer words;
    struct buffer_ids ids;
    size_t count;
};

enum err cache_open(struct cache *c) MUST;
void cache_close(struct cache *c); /* a zeroed one is fine */
void cache_clear(struct cache *c);
uint64_t cache_hash(const uint8_t *word, size_t bytes);
/* NULL: not there. */
const struct cache_entry *cache_find(const struct cache *c, uint64_t hash, const uint8_t *word,
                                     size_t bytes);
/* The word must not be there. Words of too many bytes or ids are left out. */
enum err cache_add(struct cache *c, uint64_t hash, const uint8_t *word, size_t bytes,
                   const int32_t *ids, size_t count) MUST;

#endif
