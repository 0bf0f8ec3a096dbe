/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/coll/reduce.h"
#include <math.h>
#include "kernels/base/mutant.h"

const struct reducer *reducer_of(const struct settings *s)
{
    static const struct reducer *const reducers[] = {
#define X(VALUE, name) [VALUE] = &reducer_##name,
        TRAIN_GRAD_REDUCE_DTYPE(X)
#undef X
    };
    return reducers[s->train_grad_reduce_dtype];
}

void grad_reduce_begin(struct grad_reduce *r)
{
    r->begun = r->elements;
    r->error = ERR_OK;
    if (!r->units)
        return;
    r->units->left = r->units->map->count;
    if (r->range_count) /* of units that are not sent */
        r->dev->ops->zero(r->dev, r->units->shard,
                          unit_shard(r->units->map, r->coll->rank) * sizeof *r->units->shard);
}

/* Whether anything of a unit is reduced in this step. */
static bool sends(const struct grad_reduce *r, struct dev_range unit)
{
    size_t end = unit.offset + unit.count;
    bool any = r->range_count == 0;
    for (size_t i = 0; i < r->range_count; i++)
        any |= r->ranges[i].offset < end && r->ranges[i].offset + r->ranges[i].count > unit.offset;
    return any && unit.count;
}

/* Where the sum of this rank's part appears: in the shard, or in the reducer's memory. */
static void *sum_at(const struct grad_reduce *r, size_t unit, void *packed)
{
    struct dev_range part = unit_part(r->units->map, unit, r->coll->rank);
    if (!r->reducer->unpack)
        return r->units->shard + unit_base(r->units->map, unit, r->coll->rank);
    return (char *)packed +
           (part.offset - unit_range(r->units->map, unit).offset) * dtype_size(r->reducer->type);
}

static enum err begin_unit(struct grad_reduce *r, size_t unit)
{
    struct dev_range x = unit_range(r->units->map, unit);
    uint64_t ticket;
    if (!sends(r, x))
        return ERR_OK;
    void *packed = r->reducer->pack(r, x.offset, x.offset + x.count);
    const struct coll_parts p = {packed, sum_at(r, unit, packed), r->reducer->type,
                                 unit_cuts(r->units->map, unit)};
    return r->coll->ops->reduce_scatter_begin(r->coll, &p, &ticket);
}

/* The units that lie after `from`. */
static enum err begin_units(struct grad_reduce *r, size_t from)
{
    struct grad_units *u = r->units;
    while (u->left && unit_range(u->map, u->left - 1).offset >= from)
        TRY(begin_unit(r, --u->left));
    return ERR_OK;
}

/* Begins the sum of [from, to). */
static enum err begin_part(struct grad_reduce *r, size_t from, size_t to)
{
    if (from >= to || r->coll->size == 1)
        return ERR_OK;
    void *x = r->reducer->pack(r, from, to);
    return r->coll->ops->reduce_begin(r->coll, x, r->reducer->type, to - from);
}

static enum err begin_to(struct grad_reduce *r, size_t from)
{
    size_t to = r->begun;
    r->begun = from;
    if (r->units)
        return begin_units(r, from);
    if (!r->range_count)
        return begin_part(r, from, to);
    for (size_t i = r->range_count; i-- > 0;) {
        size_t begin = r->ranges[i].offset, end = begin + r->ranges[i].count;
        TRY(begin_part(r, begin > from ? begin : from, end < to ? end : to));
    }
    return ERR_OK;
}

/* The gradients of [from, to) times what their norm, as a mean over this rank's targets, allows. */
static void clip_bucket(struct grad_reduce *r, size_t from, size_t to)
{
    size_t count = r->bucket ? (r->elements + r->bucket - 1) / r->bucket : 1;
    if (WITHOUT(BUCKET_CLIP))
        return;
    const struct grad_clip *c = &r->clip;
    const struct dev_clip a = {.sumsq = c->norms,
                               .loss = c->norms,
                               .targets = c->norms + 1,
                               .max_norm = (float)(c->norm * c->targets / sqrt((double)count))};
    r->dev->ops->sumsq(r->dev, c->norms, r->grads + from, to - from);
    r->dev->ops->clip_scale(r->dev, c->factor, &a);
    r->dev->ops->scale_by(r->dev, r->grads + from, c->factor, to - from);
}

/* Whole buckets that lie after `from`, clipped. */
static enum err begin_clipped(struct grad_reduce *r, size_t from)
{
    while (r->begun > from) {
        size_t to = r->begun, begin = r->bucket && to > r->bucket ? to - r->bucket : 0;
        if (begin < from)
            return ERR_OK;
        clip_bucket(r, begin, to);
        r->begun = begin;
        TRY(r->units ? begin_units(r, begin) : begin_part(r, begin, to));
    }
    return ERR_OK;
}

void grad_reduce_ready(void *reduce, size_t from)
{
    struct grad_reduce *r = reduce;
    ASSERT(from <= r->begun);
    if (r->error || r->coll->size == 1 || r->local)
        return;
    if (r->clip.norm > 0)
        r->error = begin_clipped(r, from);
    else if (r->units || (r->bucket && r->begun - from >= r->bucket))
        r->error = begin_to(r, from);
    if (!r->error)
        r->error = r->coll->ops->progress(r->coll);
}

/* This rank's parts, from the reducer's memory to its shard. */
static void unpack_units(struct grad_reduce *r)
{
    const struct unit_map *m = r->units->map;
    for (size_t u = 0; u < m->count; u++) {
        struct dev_range part = unit_part(m, u, r->coll->rank);
        if (!sends(r, unit_range(m, u)) || part.count == 0)
            continue;
        r->reducer->unpack(r, part.offset, part.offset + part.count);
        r->dev->ops->copy(r->dev, r->units->shard + unit_base(m, u, r->coll->rank),
                          r->grads + part.offset, part.count * sizeof *r->grads);
    }
}

enum err grad_reduce_wait(struct grad_reduce *r)
{
    if (r->local)
        return ERR_OK;
    if (!r->error)
        r->error = r->clip.norm > 0 ? begin_clipped(r, 0) : begin_to(r, 0);
    TRY(r->error);
    if (r->coll->size == 1) /* nothing was summed, and the reducer has no memory */
        return ERR_OK;
    TRY(r->coll->ops->reduce_wait(r->coll));
    if (r->units) {
        if (r->reducer->unpack)
            unpack_units(r);
        return ERR_OK;
    }
    if (r->reducer->unpack && !r->range_count)
        r->reducer->unpack(r, 0, r->elements);
    for (size_t i = 0; r->reducer->unpack && i < r->range_count; i++)
        r->reducer->unpack(r, r->ranges[i].offset, r->ranges[i].offset + r->ranges[i].count);
    return ERR_OK;
}
