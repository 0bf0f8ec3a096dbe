/* Master weights in 16 bits (train.master_weights): the update of Wang et al. 2018 (1812.08011),
 * whose parameters have 6 bits of exponent and 9 of mantissa. The moments stay in f32: of the
 * paper's three sums of an update, this is the last. Random bits are those of (run.seed, step,
 * element of the slab), so that shards, ranks and a resumed run round as one process does.
 */
#include "inner/optim/optim.h"

static const struct dev_narrow fp16 = {.exponent = 6, .mantissa = 9};

/* Elements from .. to of the slab, of this rank's shard. */
static void elements_round(struct optim *o, const struct optim_slabs *x, struct dev_narrow a,
                           size_t from, size_t to)
{
    a.first = from;
    if (from < to)
        o->dev->ops->round_narrow(o->dev, x->params + from, x->copy ? x->copy + from : NULL, &a,
                                  to - from);
}

/* Ranges that learn in this step, and the padding between them, which is 0, in one call. */
void optim_masters_round(struct optim *o, const struct optim_slabs *x, int64_t step)
{
    struct dev_narrow a = fp16;
    const enum train_master_weights form = o->settings->train_master_weights;
    size_t from = 0, to = 0;
    if (form == TRAIN_MASTER_F32)
        return;
    a.stochastic = form == TRAIN_MASTER_FP16_STOCHASTIC;
    a.seed = (uint64_t)o->settings->run_seed;
    a.step = (uint64_t)step;
    a.gscale = o->buffers.gscale;
    for (size_t r = 0; r < o->parts.range_count; r++) {
        size_t begin = o->shard.begin + o->parts.ranges[r].offset;
        if (o->buffers.groups_host[r].active && from == to)
            from = begin;
        if (o->buffers.groups_host[r].active) {
            to = begin + o->parts.ranges[r].count;
            continue;
        }
        elements_round(o, x, a, from, to);
        from = to = 0;
    }
    elements_round(o, x, a, from, to);
}
