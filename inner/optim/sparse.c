/* SPDX-License-Identifier: Apache-2.0 */
/* GradientFlow's coarse-grained sparse sums (Sun et al. 2019, 1902.06855). The slab of gradients is
 * cut into chunks of 4,096 values. After train.compress_start of the steps, in which sums are
 * full:
 *
 *     G   = g_i + residual_i                       of rank i
 *     n_c = sum over the ranks of |G_c|_1           C doubles are summed
 *     the k chunks with the largest n are summed over the ranks, ties to the lower index
 *     residual_i = G without these chunks; the gradient is 0 outside of them
 *
 * All ranks know the same n, so no index is sent. k is train.sparse_share of C. With momentum
 * correction (train.sparse_momentum, mu above 0) u = mu u + g_i, and u is added to the residual in
 * place of g_i; u is 0 where a chunk was sent. Sent plus residual is the input, bit for bit.
 */
#include "inner/optim/compress.h"
#include <math.h>
#include <stdlib.h>
#include "inner/optim/optim.h"

struct chunk_norm {
    double norm;
    size_t chunk;
};
struct sparse {                 /* in o->kept->work */
    double *norms, *norms_host; /* (chunks) device, host */
    struct chunk_norm *order;   /* (chunks) */
    struct dev_range *chosen;   /* (k), rising */
    float *sent;                /* device: the chosen chunks, one after the other */
    size_t chunks, k;
};

static bool sums(const struct settings *s, int64_t step)
{
    return step < compress_freeze_steps(s);
}

static size_t chunks_of(size_t elements)
{
    return (elements + DEV_CHUNK - 1) / DEV_CHUNK;
}

static size_t chosen_of(const struct settings *s, size_t chunks)
{
    size_t k = (size_t)llround(s->train_sparse_share * (double)chunks);
    return k ? k : 1;
}

static size_t plan(const struct settings *s, const struct table *t, int ranks)
{
    (void)ranks;
    size_t chunks = chunks_of(t->elements), slabs = s->train_sparse_momentum > 0 ? 2 : 1;
    return (s->train_error_feedback ? slabs * t->elements : 0) * sizeof(float) +
           chosen_of(s, chunks) * DEV_CHUNK * sizeof(float) + chunks * sizeof(double);
}

static enum err open_sparse(struct optim *o, const struct table *t, struct arena *perm)
{
    struct sparse *x;
    struct compress_kept *kept = o->kept;
    TRY_ALLOC(kept->work = x = arena_alloc(perm, sizeof *x));
    x->chunks = chunks_of(t->elements);
    x->k = chosen_of(o->settings, x->chunks);
    TRY_ALLOC(x->norms_host = arena_array(perm, x->chunks, sizeof *x->norms_host));
    TRY_ALLOC(x->order = arena_array(perm, x->chunks, sizeof *x->order));
    TRY_ALLOC(x->chosen = arena_array(perm, x->k, sizeof *x->chosen));
    TRY(dev_alloc(o->dev, (void **)&kept->buffers[0], x->chunks * sizeof *x->norms));
    TRY(dev_alloc(o->dev, (void **)&kept->buffers[1], x->k * DEV_CHUNK * sizeof *x->sent));
    x->norms = kept->buffers[0];
    x->sent = kept->buffers[1];
    if (!o->settings->train_error_feedback)
        return ERR_OK;
    TRY(dev_alloc(o->dev, (void **)&kept->own[0], t->elements * sizeof(float)));
    return o->settings->train_sparse_momentum > 0
               ? dev_alloc(o->dev, (void **)&kept->own[1], t->elements * sizeof(float))
               : ERR_OK;
}

/* Larger norms first; what is not finite comes first, so that it is sent and ends the run on
 * all ranks. */
static int by_norm(const void *a, const void *b)
{
    const struct chunk_norm *x = a, *y = b;
    double p = isfinite(x->norm) ? x->norm : INFINITY, q = isfinite(y->norm) ? y->norm : INFINITY;
    return p != q ? (p < q) - (p > q) : (x->chunk > y->chunk) - (x->chunk < y->chunk);
}

static int by_offset(const void *a, const void *b)
{
    const struct dev_range *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The chunks that all ranks send, from the norms on the device. */
static enum err choose(struct optim *o, struct sparse *x)
{
    struct dev *d = o->dev;
    size_t elements = o->table->elements;
    TRY(o->coll->ops->all_reduce(o->coll, x->norms, x->chunks));
    TRY(o->coll->ops->event_record(o->coll)); /* a wait after collectives notices a lost rank */
    TRY(o->coll->ops->event_wait(o->coll));
    d->ops->copy(d, x->norms_host, x->norms, x->chunks * sizeof *x->norms);
    TRY(dev_sync(d));
    for (size_t i = 0; i < x->chunks; i++)
        x->order[i] = (struct chunk_norm){x->norms_host[i], i};
    qsort(x->order, x->chunks, sizeof *x->order, by_norm);
    for (size_t i = 0; i < x->k; i++) {
        size_t begin = x->order[i].chunk * DEV_CHUNK, left = elements - begin;
        x->chosen[i] = (struct dev_range){begin, left < DEV_CHUNK ? left : DEV_CHUNK};
    }
    qsort(x->chosen, x->k, sizeof *x->chosen, by_offset);
    return ERR_OK;
}

/* The chosen chunks of a slab become `sent`. */
static void put_chosen(struct optim *o, const struct sparse *x, float *slab)
{
    const struct dev_lerp whole = {x->chosen, x->k, 0, false};
    if (slab)
        o->dev->ops->lerp_ranges(o->dev, slab, x->sent, &whole);
}

/* grads = what this rank has to send; the residual is part of it. */
static void add_residual(struct optim *o, float *grads)
{
    struct dev *d = o->dev;
    float *residual = o->kept->own[0], *momentum = o->kept->own[1];
    size_t n = o->table->elements;
    if (momentum) {
        d->ops->scale(d, momentum, (float)o->settings->train_sparse_momentum, n);
        d->ops->axpy(d, momentum, grads, 1, n);
        d->ops->copy(d, grads, momentum, n * sizeof *grads);
    }
    if (residual)
        d->ops->axpy(d, grads, residual, 1, n);
}

static enum err reduce(struct optim *o, float *grads)
{
    struct dev *d = o->dev;
    struct sparse *x = o->kept->work;
    const struct coll_ops *ops = o->coll->ops;
    size_t bytes = o->table->elements * sizeof *grads, count = 0;
    add_residual(o, grads);
    d->ops->chunk_l1(d, x->norms, grads, o->table->elements);
    TRY(choose(o, x));
    for (size_t i = 0; i < x->k; i++)
        count += x->chosen[i].count;
    d->ops->gather_ranges(d, x->sent, grads, x->chosen, x->k);
    if (o->kept->own[0])
        d->ops->copy(d, o->kept->own[0], grads, bytes);
    TRY(ops->reduce_begin(o->coll, x->sent, DTYPE_F32, count));
    TRY(ops->reduce_wait(o->coll));
    d->ops->zero(d, grads, bytes);
    put_chosen(o, x, grads);
    d->ops->zero(d, x->sent, count * sizeof *x->sent);
    put_chosen(o, x, o->kept->own[0]);
    put_chosen(o, x, o->kept->own[1]);
    return ERR_OK;
}

static enum err step(struct optim *o, const struct dev_optim *a, int64_t step)
{
    (void)step;
    return o->method->step(o, a);
}

const struct compress_method compress_sparse = {
    .sums = sums, .plan = plan, .open = open_sparse, .reduce = reduce, .step = step};
