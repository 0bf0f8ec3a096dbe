/* SPDX-License-Identifier: Apache-2.0 */
/* Unigram: the path through the word whose tokens have the largest sum of scores (Viterbi). */
#include "inner/data/tokenizer/subword.h"
#include "inner/data/tokenizer/unicode.h"

#define UNKNOWN_PENALTY 10.0 /* below the least score, as SentencePiece has it */

static enum err nodes_open(struct subword_scratch *x, size_t count)
{
    if (x->node_room < count) {
        void *nodes = x->nodes;
        TRY(buffer_grow(&nodes, &x->node_room, count, sizeof *x->nodes));
        x->nodes = nodes;
    }
    for (size_t i = 0; i < count; i++)
        x->nodes[i] = (struct subword_node){0, SIZE_MAX, -1};
    return ERR_OK;
}

static void node_offer(struct subword_node *to, double score, size_t start, int32_t id)
{
    if (to->start == SIZE_MAX || score > to->score)
        *to = (struct subword_node){score, start, id};
}

/* All tokens that begin at `at`; a character without a token of its own is unknown. */
static void tokens_offer(const struct subword *w, struct subword_node *nodes, const uint8_t *word,
                         size_t bytes, size_t at, size_t point_bytes)
{
    double here = nodes[at].score;
    bool alone = false;
    uint32_t node = 0;
    for (size_t end = at; end < bytes;) {
        node = trie_step(&w->trie, node, word[end++]);
        if (node == UINT32_MAX)
            break;
        int32_t id = w->trie.ids[node];
        if (id < 0)
            continue;
        node_offer(&nodes[end], w->scores[id] + here, at, id);
        alone = alone || end - at == point_bytes;
    }
    if (!alone)
        node_offer(&nodes[at + point_bytes], w->score_least - UNKNOWN_PENALTY + here, at,
                   w->unknown);
}

static void ids_reverse(struct buffer_ids *out, size_t first)
{
    for (size_t i = first, j = out->count; i + 1 < j; i++) {
        int32_t id = out->ids[i];
        out->ids[i] = out->ids[--j];
        out->ids[j] = id;
    }
}

/* Backwards, as path_write goes. */
static enum err bytes_write(const struct subword *w, const uint8_t *s, size_t n,
                            struct buffer_ids *out, bool *done)
{
    size_t first = out->count;
    TRY(subword_fallback(w, s, n, out, done));
    ids_reverse(out, first);
    return ERR_OK;
}

/* From the end to the start; unknown neighbours become one. */
static enum err path_write(const struct subword *w, const struct subword_node *nodes,
                           const uint8_t *word, size_t bytes, struct buffer_ids *out)
{
    size_t first = out->count;
    for (size_t end = bytes; end > 0;) {
        size_t start = nodes[end].start;
        int32_t id = nodes[end].id;
        while (id == w->unknown && w->fuse_unknown && start > 0 && nodes[start].id == w->unknown)
            start = nodes[start].start;
        bool bytes_taken = false;
        if (id == w->unknown) { /* the text of the unknown token is a token */
            int32_t known = trie_find(&w->trie, word + start, end - start);
            id = known < 0 ? id : known;
            if (known < 0)
                TRY(bytes_write(w, word + start, end - start, out, &bytes_taken));
        }
        if (!bytes_taken)
            TRY(buffer_ids_add(out, id));
        end = start;
    }
    ids_reverse(out, first);
    return ERR_OK;
}

enum err subword_unigram(const struct subword *w, struct subword_scratch *x, const uint8_t *word,
                         size_t bytes, struct buffer_ids *out)
{
    uint32_t point;
    TRY(nodes_open(x, bytes + 1));
    for (size_t at = 0, one; at < bytes; at += one) {
        one = unicode_read(word + at, bytes - at, &point);
        tokens_offer(w, x->nodes, word, bytes, at, one);
    }
    return path_write(w, x->nodes, word, bytes, out);
}

enum err subword_fallback(const struct subword *w, const uint8_t *s, size_t n,
                          struct buffer_ids *out, bool *done)
{
    *done = w->byte_fallback;
    for (size_t i = 0; i < n && *done; i++)
        *done = w->fallback_ids[s[i]] >= 0;
    for (size_t i = 0; i < n && *done; i++)
        TRY(buffer_ids_add(out, w->fallback_ids[s[i]]));
    return ERR_OK;
}
