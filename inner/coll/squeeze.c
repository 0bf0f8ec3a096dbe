/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/coll/squeeze.h"
#include "kernels/base/mutant.h"

static size_t runs_of(size_t elements)
{
    return (elements + DEV_RUN - 1) / DEV_RUN;
}

/* ---- open ---- */
static enum err cut_shares(struct squeeze *q, struct arena *perm)
{
    size_t ranks = (size_t)q->coll->size, blocks = q->elements / DEV_BLOCK;
    TRY_ALLOC(q->shares = arena_array(perm, ranks + 1, sizeof *q->shares));
    TRY_ALLOC(q->bytes = arena_array(perm, ranks + 1, sizeof *q->bytes));
    TRY_ALLOC(q->scale_firsts = arena_array(perm, ranks + 1, sizeof *q->scale_firsts));
    TRY_ALLOC(q->piece_firsts = arena_array(perm, ranks + 1, sizeof *q->piece_firsts));
    for (size_t r = 0; r <= ranks; r++) {
        q->shares[r] = blocks * r / ranks * DEV_BLOCK;
        q->bytes[r] = q->shares[r] / 8;
        q->scale_firsts[r] = r * q->ranges.count;
    }
    return ERR_OK;
}

/* The part of a range in [from, to); count 0: none. */
static struct dev_range part_of(const struct dev_range *x, size_t from, size_t to)
{
    size_t begin = x->offset > from ? x->offset : from, end = x->offset + x->count;
    end = end < to ? end : to;
    return (struct dev_range){begin, begin < end ? end - begin : 0};
}

static void add_range(struct squeeze_ranges *to, struct dev_range *host, struct dev_range x)
{
    host[to->count++] = x;
    to->longest = x.count > to->longest ? x.count : to->longest;
}

/* The pieces of all shares in order, and those of this rank's. */
static void cut_pieces(struct squeeze *q, const struct squeeze_options *o, struct dev_range *pieces,
                       struct dev_range *served)
{
    size_t rank = (size_t)q->coll->rank;
    for (size_t r = 0; r < (size_t)q->coll->size; r++) {
        q->piece_firsts[r] = q->pieces.count;
        for (size_t i = 0; i < o->count; i++) {
            struct dev_range x = part_of(&o->ranges[i], q->shares[r], q->shares[r + 1]);
            if (!x.count)
                continue;
            add_range(&q->pieces, pieces, x);
            x.offset -= q->shares[r];
            if (r == rank && !q->served.count)
                q->first_range = i;
            if (r == rank)
                add_range(&q->served, served, x);
        }
    }
    q->piece_firsts[q->coll->size] = q->pieces.count;
}

static enum err put_ranges(struct dev *d, struct squeeze_ranges *to, const struct dev_range *host)
{
    TRY(dev_alloc(d, (void **)&to->ranges, to->count * sizeof *to->ranges));
    if (to->count)
        d->ops->copy(d, to->ranges, host, to->count * sizeof *to->ranges);
    return ERR_OK;
}

static enum err open_ranges(struct squeeze *q, const struct squeeze_options *o, struct arena *perm)
{
    size_t ranks = (size_t)q->coll->size, most = o->count + ranks;
    struct dev_range *pieces, *served, *ranges;
    TRY_ALLOC(ranges = arena_array(perm, o->count, sizeof *ranges));
    TRY_ALLOC(pieces = arena_array(perm, most, sizeof *pieces));
    TRY_ALLOC(served = arena_array(perm, most, sizeof *served));
    for (size_t i = 0; i < o->count; i++)
        add_range(&q->ranges, ranges, o->ranges[i]);
    TRY(cut_shares(q, perm));
    cut_pieces(q, o, pieces, served);
    TRY(put_ranges(q->dev, &q->ranges, ranges));
    TRY(put_ranges(q->dev, &q->pieces, pieces));
    TRY(put_ranges(q->dev, &q->served, served));
    TRY(dev_alloc(q->dev, (void **)&q->ranges.scales,
                  ranks * q->ranges.count * sizeof *q->ranges.scales));
    TRY(dev_alloc(q->dev, (void **)&q->pieces.scales, q->pieces.count * sizeof *q->pieces.scales));
    q->served.scales = q->pieces.scales + q->piece_firsts[q->coll->rank];
    return dev_sync(q->dev);
}

static size_t share_of(const struct squeeze *q)
{
    return q->shares[q->coll->rank + 1] - q->shares[q->coll->rank];
}

static enum err open_slabs(struct squeeze *q, bool feedback)
{
    size_t runs = q->ranges.count * runs_of(q->ranges.longest),
           server_runs = q->served.count * runs_of(q->served.longest);
    TRY(dev_alloc(q->dev, (void **)&q->mine, q->elements / 8));
    TRY(dev_alloc(q->dev, (void **)&q->theirs, (size_t)q->coll->size * (share_of(q) / 8)));
    TRY(dev_alloc(q->dev, (void **)&q->sums,
                  (runs > server_runs ? runs : server_runs) * sizeof *q->sums));
    if (!feedback)
        return ERR_OK;
    TRY(dev_alloc(q->dev, (void **)&q->worker, q->elements * sizeof *q->worker));
    return dev_alloc(q->dev, (void **)&q->server, share_of(q) * sizeof *q->server);
}

enum err squeeze_open(struct squeeze *q, const struct squeeze_options *o, struct arena *perm)
{
    *q = (struct squeeze){.dev = o->dev, .coll = o->coll, .elements = o->elements};
    ASSERT(o->elements % DEV_BLOCK == 0);
    enum err e = open_ranges(q, o, perm);
    e = e ? e : open_slabs(q, o->feedback);
    if (e)
        squeeze_close(q);
    return e;
}

void squeeze_close(struct squeeze *q)
{
    if (!q->dev)
        return;
    dev_free(q->dev, q->ranges.ranges);
    dev_free(q->dev, q->pieces.ranges);
    dev_free(q->dev, q->served.ranges);
    dev_free(q->dev, q->ranges.scales);
    dev_free(q->dev, q->pieces.scales);
    dev_free(q->dev, q->worker);
    dev_free(q->dev, q->server);
    dev_free(q->dev, q->mine);
    dev_free(q->dev, q->theirs);
    dev_free(q->dev, q->sums);
    *q = (struct squeeze){0};
}

size_t squeeze_plan(size_t elements, size_t ranges, int ranks, bool feedback)
{
    size_t share = elements / (size_t)ranks + DEV_BLOCK, bits = 2 * (elements / 8),
           scales = ((size_t)ranks + 1) * (ranges + (size_t)ranks) * sizeof(float),
           sums = (runs_of(elements) + ranges) * sizeof(struct dev_sign_sum);
    return bits + scales + sums + (feedback ? (elements + share) * sizeof(float) : 0);
}

/* ---- the mean ---- */
/* This rank's signs and scales; the worker error. */
static void encode_worker(struct squeeze *q, const struct squeeze_args *a)
{
    const struct dev_sign_encode e = {.x = a->x,
                                      .error = q->worker,
                                      .mask = a->mask,
                                      .stop = a->stop,
                                      .ranges = q->ranges.ranges,
                                      .n = q->ranges.count,
                                      .longest = q->ranges.longest,
                                      .scales = q->ranges.scales + q->scale_firsts[q->coll->rank],
                                      .sums = q->sums};
    q->dev->ops->sign_encode(q->dev, q->mine, &e);
}

/* The mean over the ranks of this rank's share, and its signs and scales; the server error. The
 * values that were encoded are no longer needed: the mean lies in their place. */
static void encode_server(struct squeeze *q, const struct squeeze_args *a, const uint8_t *theirs)
{
    struct dev *d = q->dev;
    size_t begin = q->shares[q->coll->rank];
    float *share = a->x + begin;
    const float *mask = a->mask ? a->mask + begin : NULL;
    const struct dev_sign_decode mean = {.mask = mask,
                                         .stop = a->stop,
                                         .ranges = q->served.ranges,
                                         .n = q->served.count,
                                         .longest = q->served.longest,
                                         .parts = (size_t)q->coll->size,
                                         .bits = theirs,
                                         .bits_stride = share_of(q) / 8,
                                         .scales = q->ranges.scales + q->first_range,
                                         .scales_stride = q->ranges.count};
    const struct dev_sign_encode e = {.x = share,
                                      .error = WITHOUT(SERVER_FEEDBACK) ? NULL : q->server,
                                      .mask = mask,
                                      .stop = a->stop,
                                      .ranges = q->served.ranges,
                                      .n = q->served.count,
                                      .longest = q->served.longest,
                                      .scales = q->served.scales,
                                      .sums = q->sums};
    d->ops->sign_decode(d, share, &mean);
    d->ops->sign_encode(d, q->mine + begin / 8, &e);
}

static void decode_all(struct squeeze *q, const struct squeeze_args *a)
{
    const struct dev_sign_decode all = {.mask = a->mask,
                                        .stop = a->stop,
                                        .ranges = q->pieces.ranges,
                                        .n = q->pieces.count,
                                        .longest = q->pieces.longest,
                                        .parts = 1,
                                        .bits = q->mine,
                                        .scales = q->pieces.scales};
    q->dev->ops->sign_decode(q->dev, a->x, &all);
}

enum err squeeze_mean(struct squeeze *q, const struct squeeze_args *a)
{
    const struct coll_ops *ops = q->coll->ops;
    const uint8_t *theirs = q->coll->size == 1 ? q->mine : q->theirs;
    encode_worker(q, a);
    TRY(ops->all_to_all(q->coll, q->theirs, q->mine, 1, q->bytes));
    TRY(ops->all_gather(q->coll, q->ranges.scales, sizeof *q->ranges.scales, q->scale_firsts));
    encode_server(q, a, theirs);
    TRY(ops->all_gather(q->coll, q->mine, 1, q->bytes));
    TRY(ops->all_gather(q->coll, q->pieces.scales, sizeof *q->pieces.scales, q->piece_firsts));
    decode_all(q, a);
    return ERR_OK;
}

void squeeze_forget(struct squeeze *q)
{
    if (q->worker)
        q->dev->ops->zero(q->dev, q->worker, q->elements * sizeof *q->worker);
    if (q->server)
        q->dev->ops->zero(q->dev, q->server, share_of(q) * sizeof *q->server);
}

void squeeze_rescale(struct squeeze *q, float factor)
{
    if (q->worker)
        q->dev->ops->scale(q->dev, q->worker, factor, q->elements);
    if (q->server)
        q->dev->ops->scale(q->dev, q->server, factor, share_of(q));
}

size_t squeeze_up(const struct squeeze *q)
{
    size_t others = (size_t)q->coll->size - 1, share = share_of(q);
    return (q->elements - share) / 8 + others * q->ranges.count * sizeof(float) +
           others * (share / 8 + q->served.count * sizeof(float));
}
