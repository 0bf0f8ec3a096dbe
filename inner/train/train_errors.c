/* SPDX-License-Identifier: Apache-2.0 */
/* The errors of compressed sums (inner/optim/compress.h) in checkpoints: for each kind that a rank
 * keeps (worker error or residual, momentum) one slab of each rank in order, then one slab for the
 * server errors of all shares. They pass through the slab of gradients, which is unused between two
 * steps. */
#include "inner/train/train_errors.h"
#include <string.h>

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

/* Where the ranges of all_gather begin if rank `sender` alone has something to send. */
static void only_from(size_t *first, int ranks, int sender, size_t elements)
{
    for (int r = 0; r <= ranks; r++)
        first[r] = r <= sender ? 0 : elements;
}

static enum err gather_slab(struct train *t, float *host, const size_t *first)
{
    struct coll *c = t->coll;
    float *grads = model_grads(t->model);
    TRY(dev_sync(t->dev));
    TRY(c->ops->all_gather(c, grads, sizeof *grads, first));
    if (c->rank == 0)
        t->dev->ops->copy(t->dev, host, grads, t->table.elements * sizeof *grads);
    return dev_sync(t->dev);
}

static size_t share_bytes(const struct squeeze *q)
{
    return (q->shares[q->coll->rank + 1] - q->shares[q->coll->rank]) * sizeof *q->server;
}

/* Slab i of the checkpoint, in the lead's host memory; NULL at other ranks. */
static float *slab_at(const struct train *t, const float *host, size_t i)
{
    return host ? (float *)(uintptr_t)host + i * t->table.elements : NULL;
}

enum err train_errors_gather(struct train *t, float *host, struct arena *a)
{
    const struct squeeze *q = &t->optim->kept->squeeze;
    struct dev *d = t->dev;
    float *grads = model_grads(t->model);
    size_t elements = t->table.elements, *first, ranks = (size_t)t->coll->size;
    TRY_ALLOC(first = arena_array(a, ranks + 1, sizeof *first));
    for (size_t i = 0; i < own_slabs(t) * ranks; i++) {
        only_from(first, t->coll->size, (int)(i % ranks), elements);
        if ((size_t)t->coll->rank == i % ranks)
            d->ops->copy(d, grads, t->optim->kept->own[i / ranks], elements * sizeof *grads);
        TRY(gather_slab(t, slab_at(t, host, i), first));
    }
    if (!q->server)
        return ERR_OK;
    d->ops->copy(d, grads + q->shares[t->coll->rank], q->server, share_bytes(q));
    return gather_slab(t, slab_at(t, host, own_slabs(t) * ranks), q->shares);
}

/* The lead's host memory -> every rank's slab of gradients. */
static enum err broadcast_slab(struct train *t, const float *host)
{
    size_t bytes = t->table.elements * sizeof(float);
    if (t->coll->rank == 0)
        t->dev->ops->copy(t->dev, model_grads(t->model), host, bytes);
    TRY(dev_sync(t->dev));
    return t->coll->ops->broadcast(t->coll, model_grads(t->model), bytes);
}

enum err train_errors_scatter(struct train *t, const float *host)
{
    const struct squeeze *q = &t->optim->kept->squeeze;
    struct dev *d = t->dev;
    float *grads = model_grads(t->model);
    size_t elements = t->table.elements, ranks = (size_t)t->coll->size;
    for (size_t i = 0; i < own_slabs(t) * ranks; i++) {
        TRY(broadcast_slab(t, slab_at(t, host, i)));
        if ((size_t)t->coll->rank == i % ranks)
            d->ops->copy(d, t->optim->kept->own[i / ranks], grads, elements * sizeof *grads);
        TRY(dev_sync(d));
    }
    if (!q->server)
        return ERR_OK;
    TRY(broadcast_slab(t, slab_at(t, host, own_slabs(t) * ranks)));
    d->ops->copy(d, q->server, grads + q->shares[t->coll->rank], share_bytes(q));
    return dev_sync(d);
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

enum err train_kept_read(struct train *t, float *host)
{
    const struct compress_kept *k = t->optim->kept;
    size_t slab = kept_slab(t);
    if (slab)
        t->dev->ops->copy(t->dev, host, k->slab, slab * sizeof *host);
    if (k->host_count)
        memcpy(host + slab, k->host, k->host_count * sizeof *host);
    return dev_sync(t->dev);
}

enum err train_kept_write(struct train *t, const float *host)
{
    const struct compress_kept *k = t->optim->kept;
    struct coll *c = t->coll;
    size_t slab = kept_slab(t);
    if (slab && c->rank == 0)
        t->dev->ops->copy(t->dev, k->slab, host, slab * sizeof *host);
    TRY(dev_sync(t->dev));
    if (slab)
        TRY(c->ops->broadcast(c, k->slab, slab * sizeof *host));
    if (k->host_count && c->rank == 0)
        memcpy(k->host, host + slab, k->host_count * sizeof *host);
    return k->host_count ? c->ops->broadcast_host(c, k->host, k->host_count * sizeof *host)
                         : ERR_OK;
}
