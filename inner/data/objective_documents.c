/* SPDX-License-Identifier: Apache-2.0 */
/* Causal windows that keep within one document, for units of privacy: a document of n ids has
 * windows at multiples of S while an id and its successor are left, so the last one is shorter, and
 * every id but the first of each document is a target. A document of one id has no window.
 */
#include "inner/data/objective.h"

struct documents {
    uint64_t *in_front; /* (shards + 1) documents before each shard */
    uint64_t *first;    /* (documents + 1) windows before each document */
};

static uint64_t document_first(const struct shard *s, uint64_t document)
{
    uint64_t sentence = indexed_document(&s->index, document);
    return sentence < s->index.sentences ? indexed_first(&s->index, sentence) : s->count;
}

static enum err count_documents(struct documents *x, const struct loader *l, struct arena *perm)
{
    TRY_ALLOC(x->in_front = arena_array(perm, l->set.count + 1, sizeof *x->in_front));
    for (size_t i = 0; i < l->set.count; i++) {
        const struct shard *s = &l->set.shards[i];
        if (!s->indexed)
            return err_set(ERR_INPUT,
                           "%s: no index next to this shard (.idx), which windows of one document "
                           "need (privacy.unit): atoll data --documents makes such shards",
                           s->path);
        x->in_front[i + 1] = x->in_front[i] + s->index.documents_count;
    }
    return ERR_OK;
}

static enum err documents_open(struct loader *l, struct arena *perm)
{
    struct documents *x;
    uint64_t S = l->options.sequence, d = 0;
    TRY_ALLOC(x = arena_alloc(perm, sizeof *x));
    TRY(count_documents(x, l, perm));
    TRY_ALLOC(x->first = arena_array(perm, x->in_front[l->set.count] + 1, sizeof *x->first));
    TRY_ALLOC(l->window_first = arena_array(perm, l->set.count + 1, sizeof *l->window_first));
    for (size_t i = 0; i < l->set.count; i++) {
        const struct shard *s = &l->set.shards[i];
        for (uint64_t k = 0; k < s->index.documents_count; k++, d++) {
            uint64_t ids = document_first(s, k + 1) - document_first(s, k);
            x->first[d + 1] = x->first[d] + (ids > 1 ? (ids - 2) / S + 1 : 0);
        }
        l->window_first[i + 1] = x->first[d];
    }
    l->windows = x->first[d];
    if (!l->windows)
        return err_set(ERR_INPUT, "%s: no document has two ids", l->set.shards[0].path);
    l->token_targets = true;
    l->own = x;
    return ERR_OK;
}

struct stretch { /* of a document: ids, of which all but the last are inputs */
    size_t shard;
    uint64_t token;
    size_t ids;
};

static struct stretch stretch_of(const struct loader *l, uint64_t window)
{
    const struct documents *x = l->own;
    struct stretch s = {.shard = loader_shard(l, window)};
    uint64_t low = x->in_front[s.shard], high = x->in_front[s.shard + 1], S = l->options.sequence;
    const struct shard *shard = &l->set.shards[s.shard];
    while (high - low > 1) { /* the last document whose first window is not after it */
        uint64_t middle = (low + high) / 2;
        if (x->first[middle] <= window)
            low = middle;
        else
            high = middle;
    }
    uint64_t document = low - x->in_front[s.shard];
    s.token = document_first(shard, document) + (window - x->first[low]) * S;
    uint64_t left = document_first(shard, document + 1) - s.token;
    s.ids = left < S + 1 ? (size_t)left : (size_t)S + 1;
    return s;
}

static size_t documents_length(const struct loader *l, uint64_t window, uint64_t example)
{
    (void)example;
    return stretch_of(l, window).ids - 1;
}

static void documents_append(const struct loader *l, uint64_t window, uint64_t example,
                             struct batch *b)
{
    struct stretch s = stretch_of(l, window);
    size_t at = batch_append(b, s.ids - 1);
    (void)example;
    shard_read(&l->set.shards[s.shard], s.token, s.ids - 1, b->tokens + at);
    shard_read(&l->set.shards[s.shard], s.token + 1, s.ids - 1, b->targets + at);
}

static void documents_count(const struct loader *l, uint64_t window, uint64_t example,
                            struct target_counts *c)
{
    c->token += documents_length(l, window, example);
}

static void documents_origin(const struct loader *l, uint64_t window, size_t *shard,
                             uint64_t *token)
{
    struct stretch s = stretch_of(l, window);
    *shard = s.shard;
    *token = s.token;
}

const struct objective objective_documents = {.name = "causal",
                                              .varies = true,
                                              .open = documents_open,
                                              .length = documents_length,
                                              .append = documents_append,
                                              .count = documents_count,
                                              .origin = documents_origin};
