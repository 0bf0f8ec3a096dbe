/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRIE_H
#define TRIE_H
/* Strings of bytes and their ids as a tree with one node for each prefix. Node 0 is the empty
 * prefix. Built once, then read by any thread. The tree counts at most TRIE_NODES_MAX nodes.
 */
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/err.h"

#define TRIE_NODES_MAX (UINT32_C(1) << 22) /* 290 MB; a vocabulary of 256,000 has about 10^6 */

struct trie_edge {
    uint64_t key; /* (node << 8 | byte) + 1; 0: free */
    uint32_t node;
};
struct trie {
    struct trie_edge *edges; /* open addressing, a power of two */
    int32_t *ids;            /* of each node: the string's id, or -1 */
    uint32_t count, room;    /* nodes */
    uint32_t mask;           /* edges - 1 */
};

enum err trie_open(struct trie *t) MUST;
void trie_close(struct trie *t); /* a zeroed one is fine */
/* A string that is there gets the new id. */
enum err trie_add(struct trie *t, const uint8_t *s, size_t n, int32_t id) MUST;
int32_t trie_find(const struct trie *t, const uint8_t *s, size_t n);  /* -1: not there */
uint32_t trie_node(const struct trie *t, const uint8_t *s, size_t n); /* UINT32_MAX: no prefix */

static inline uint32_t trie_slot(uint64_t key)
{
    return (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

/* The node of one more byte; UINT32_MAX: there is none. */
static inline uint32_t trie_step(const struct trie *t, uint32_t node, uint8_t byte)
{
    uint64_t key = ((uint64_t)node << 8 | byte) + 1;
    for (uint32_t slot = trie_slot(key) & t->mask;; slot = (slot + 1) & t->mask)
        if (t->edges[slot].key == key || !t->edges[slot].key)
            return t->edges[slot].key ? t->edges[slot].node : UINT32_MAX;
}

#endif
