/* SPDX-License-Identifier: Apache-2.0 */
/* The errors of compressed sums (inner/optim/compress.h) in checkpoints: for each kind that a rank
 * keeps (worker error or residual, momentum) one slab of each rank in order, then one slab for the
 * server errors of all shares. */
#include "inner/train/train_errors.h"

/* Slabs of each rank. */
static size_t own_slabs(const struct train *t)
{
    const struct compress_kept *k = t->optim->kept;
    return (k->own[0] != NULL) + (size_t)(k->own[1] != NULL);
}

size_t train_errors_slabs(const struct train *t)
{
    return own_slabs(t) * (size_t)t->coll->size + (t->optim->kept->squeeze.server != NULL);
}

/* A slab that one rank holds whole. */
static void only_of(size_t *first, int ranks, size_t rank, size_t elements)
{
    for (size_t r = 0; r <= (size_t)ranks; r++)
        first[r] = r <= rank ? 0 : elements;
}

/* Slab i of those of a rank; *own: this rank's of this kind. */
static void own_slab(const struct train *t, size_t i, size_t *first, float **own)
{
    size_t ranks = (size_t)t->coll->size;
    ASSERT(t->coll->size <= COLL_RANKS_MAX);
    only_of(first, t->coll->size, i % ranks, t->table.elements);
    *own = t->optim->kept->own[i / ranks];
}

enum err train_errors_out(struct stream *s)
{
    const struct train *t = s->t;
    const struct squeeze *q = &t->optim->kept->squeeze;
    size_t first[COLL_RANKS_MAX + 1];
    float *own;
    for (size_t i = 0; i < own_slabs(t) * (size_t)t->coll->size; i++) {
        own_slab(t, i, first, &own);
        TRY(stream_out(s, first, own));
    }
    return q->server ? stream_out(s, q->shares, q->server) : ERR_OK;
}

enum err train_errors_in(struct stream *s)
{
    const struct train *t = s->t;
    const struct squeeze *q = &t->optim->kept->squeeze;
    size_t first[COLL_RANKS_MAX + 1];
    float *own;
    stream_begin(s, "errors", train_errors_slabs(t) * t->table.elements * sizeof(float));
    for (size_t i = 0; i < own_slabs(t) * (size_t)t->coll->size; i++) {
        own_slab(t, i, first, &own);
        TRY(stream_in(s, first, own));
    }
    return q->server ? stream_in(s, q->shares, q->server) : ERR_OK;
}

/* ---- state that all ranks share ---- */
static size_t kept_slab(const struct train *t)
{
    return t->optim->kept->slab ? t->table.elements : 0;
}

size_t train_kept_floats(const struct train *t)
{
    return kept_slab(t) + t->optim->kept->host_count;
}

enum err train_kept_out(struct stream *s)
{
    const struct compress_kept *k = s->t->optim->kept;
    TRY(stream_out_whole(s, k->slab, kept_slab(s->t)));
    stream_out_host(s, k->host, k->host_count * sizeof *k->host);
    return ERR_OK;
}

enum err train_kept_in(struct stream *s)
{
    const struct compress_kept *k = s->t->optim->kept;
    struct coll *c = s->t->coll;
    size_t bytes = k->host_count * sizeof *k->host;
    if (!train_kept_floats(s->t))
        return ERR_OK;
    stream_begin(s, "compress", train_kept_floats(s->t) * sizeof(float));
    if (kept_slab(s->t))
        TRY(stream_in_whole(s, k->slab, kept_slab(s->t)));
    stream_in_host(s, k->host, bytes);
    return bytes ? c->ops->broadcast_host(c, k->host, bytes, 0) : ERR_OK;
}
