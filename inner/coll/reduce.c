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
}

/* Begins the sum of [from, to). */
static enum err begin_range(struct grad_reduce *r, size_t from, size_t to, int root)
{
    void *x = r->reducer->pack(r, from, to);
    return r->coll->ops->reduce_begin(r->coll, x, r->reducer->type, to - from, root);
}

/* Reduces the part of [from, to) in each rank's shard to that rank. */
static enum err begin_shards(struct grad_reduce *r, size_t from, size_t to)
{
    for (int i = r->coll->size; i-- > 0;) {
        size_t begin = r->offsets[i] > from ? r->offsets[i] : from,
               end = r->offsets[i + 1] < to ? r->offsets[i + 1] : to;
        if (begin < end)
            TRY(begin_range(r, begin, end, i));
    }
    return ERR_OK;
}

static enum err begin_part(struct grad_reduce *r, size_t from, size_t to)
{
    if (from >= to || r->coll->size == 1)
        return ERR_OK;
    return r->offsets ? begin_shards(r, from, to) : begin_range(r, from, to, COLL_ALL);
}

static enum err begin_to(struct grad_reduce *r, size_t from)
{
    size_t to = r->begun;
    r->begun = from;
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
    const struct dev_clip a = {.sumsq = r->norms,
                               .loss = r->norms,
                               .targets = r->norms + 1,
                               .max_norm = (float)(r->clip * r->targets / sqrt((double)count))};
    r->dev->ops->sumsq(r->dev, r->norms, r->grads + from, to - from);
    r->dev->ops->clip_scale(r->dev, r->factor, &a);
    r->dev->ops->scale_by(r->dev, r->grads + from, r->factor, to - from);
}

/* Whole buckets that lie behind `from`, clipped. */
static enum err begin_clipped(struct grad_reduce *r, size_t from)
{
    while (r->begun > from) {
        size_t to = r->begun, begin = r->bucket && to > r->bucket ? to - r->bucket : 0;
        if (begin < from)
            return ERR_OK;
        clip_bucket(r, begin, to);
        r->begun = begin;
        TRY(begin_part(r, begin, to));
    }
    return ERR_OK;
}

void grad_reduce_ready(void *reduce, size_t from)
{
    struct grad_reduce *r = reduce;
    ASSERT(from <= r->begun);
    if (r->error || r->coll->size == 1 || r->local)
        return;
    if (r->clip > 0)
        r->error = begin_clipped(r, from);
    else if (r->bucket && r->begun - from >= r->bucket)
        r->error = begin_to(r, from);
    if (!r->error)
        r->error = r->coll->ops->progress(r->coll);
}

enum err grad_reduce_wait(struct grad_reduce *r)
{
    if (r->local)
        return ERR_OK;
    if (!r->error)
        r->error = r->clip > 0 ? begin_clipped(r, 0) : begin_to(r, 0);
    TRY(r->error);
    if (r->coll->size == 1) /* nothing was summed, and the reducer has no memory */
        return ERR_OK;
    TRY(r->coll->ops->reduce_wait(r->coll));
    if (r->reducer->unpack && !r->range_count)
        r->reducer->unpack(r, 0, r->elements);
    for (size_t i = 0; r->reducer->unpack && i < r->range_count; i++)
        r->reducer->unpack(r, r->ranges[i].offset, r->ranges[i].offset + r->ranges[i].count);
    return ERR_OK;
}
