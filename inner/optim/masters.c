/* SPDX-License-Identifier: Apache-2.0 */
/* Master weights in 16 bits (train.master_weights): the update of Wang et al. 2018 (1812.08011),
 * whose parameters have 6 bits of exponent and 9 of mantissa. The paper rounds three sums of an
 * update: decay, momentum, weights. A decoupled decay is part of the last one; the first moment is
 * rounded with fp16_stochastic_moment, the second, which SGD does not have, stays in f32. Random
 * bits are those of (run.seed, step, element of the slab), so that shards, ranks and a resumed run
 * round as one process does.
 */
#include "inner/optim/optim.h"

static const struct dev_narrow fp16 = {.exponent = 6, .mantissa = 9};
static const size_t moment_at = (size_t)1 << 62; /* its elements, for the random bits */

/* `count` elements from `from` on of this rank's shard, which begin at `at` in the slab. */
static void elements_round(struct optim *o, const struct optim_slabs *x, struct dev_narrow a,
                           struct dev_range r, size_t at)
{
    a.first = at;
    if (!r.count)
        return;
    o->dev->ops->round_narrow(o->dev, x->params + r.offset, x->copy ? x->copy + r.offset : NULL, &a,
                              r.count);
    if (o->settings->train_master_weights != TRAIN_MASTER_FP16_MOMENT)
        return;
    a.first = moment_at + at;
    o->dev->ops->round_narrow(o->dev, o->state[OPTIM_FIRST].shard + r.offset, NULL, &a, r.count);
}

/* Ranges that learn in this step, and the padding between them, which is 0, in one call. */
void optim_masters_round(struct optim *o, const struct optim_slabs *x, int64_t step)
{
    struct dev_narrow a = fp16;
    const enum train_master_weights form = o->settings->train_master_weights;
    struct dev_range run = {0, 0};
    size_t at = 0;
    if (form == TRAIN_MASTER_F32)
        return;
    a.stochastic = form != TRAIN_MASTER_FP16;
    a.seed = (uint64_t)o->settings->run_seed;
    a.step = (uint64_t)step;
    a.gscale = o->buffers.gscale;
    for (size_t i = 0; i < o->parts.count; i++) {
        const struct dev_range *r = &o->parts.ranges[i];
        bool joins = run.count && r->offset - run.offset == o->parts.at[i] - at;
        if (r->count == 0)
            continue;
        if (!joins || !o->buffers.groups_host[i].active) {
            elements_round(o, x, a, run, at);
            run = (struct dev_range){r->offset, 0};
            at = o->parts.at[i];
        }
        if (o->buffers.groups_host[i].active)
            run.count = r->offset + r->count - run.offset;
    }
    elements_round(o, x, a, run, at);
}
