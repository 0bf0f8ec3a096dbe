/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/tokenizer/trie.h"
#include <stdlib.h>
#include "inner/data/tokenizer/buffer.h"

enum { NODES_FIRST = 1024 };

static void edge_put(struct trie_edge *edges, uint32_t mask, struct trie_edge e)
{
    uint32_t slot = trie_slot(e.key) & mask;
    while (edges[slot].key)
        slot = (slot + 1) & mask;
    edges[slot] = e;
}

/* Twice as many nodes, and four edge slots for each node. */
static enum err trie_grow(struct trie *t)
{
    uint32_t room = t->room ? 2 * t->room : NODES_FIRST, mask = 4 * room - 1;
    if (room > TRIE_NODES_MAX)
        return err_set(ERR_INPUT, "the tokens have more than %u different beginnings",
                       TRIE_NODES_MAX);
    struct trie_edge *edges = calloc((size_t)mask + 1, sizeof *edges);
    int32_t *ids = edges ? realloc(t->ids, room * sizeof *ids) : NULL;
    if (!ids) {
        free(edges);
        return err_set(ERR_MEMORY, "no memory for a vocabulary with %u prefixes", room);
    }
    for (size_t i = 0; t->edges && i <= t->mask; i++)
        if (t->edges[i].key)
            edge_put(edges, mask, t->edges[i]);
    free(t->edges);
    t->edges = edges;
    t->ids = ids;
    t->mask = mask;
    t->room = room;
    return ERR_OK;
}

enum err trie_open(struct trie *t)
{
    *t = (struct trie){0};
    TRY(trie_grow(t));
    t->ids[t->count++] = -1;
    return ERR_OK;
}

void trie_close(struct trie *t)
{
    free(t->edges);
    free(t->ids);
    *t = (struct trie){0};
}

enum err trie_add(struct trie *t, const uint8_t *s, size_t n, int32_t id)
{
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t next = trie_step(t, node, s[i]);
        if (next == UINT32_MAX) {
            if (t->count == t->room)
                TRY(trie_grow(t));
            next = t->count++;
            t->ids[next] = -1;
            edge_put(t->edges, t->mask, (struct trie_edge){((uint64_t)node << 8 | s[i]) + 1, next});
        }
        node = next;
    }
    t->ids[node] = id;
    return ERR_OK;
}

uint32_t trie_node(const struct trie *t, const uint8_t *s, size_t n)
{
    uint32_t node = 0;
    for (size_t i = 0; i < n && node != UINT32_MAX; i++)
        node = trie_step(t, node, s[i]);
    return node;
}

int32_t trie_find(const struct trie *t, const uint8_t *s, size_t n)
{
    uint32_t node = trie_node(t, s, n);
    return node == UINT32_MAX ? -1 : t->ids[node];
}
