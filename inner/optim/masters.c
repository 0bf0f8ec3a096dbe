/* SPDX-License-Identifier: Apache-2.0 */
/* Master weights in 16 bits (train.master_weights): the update of Wang et al. 2018 (1812.08011),
 * whose parameters have 6 bits of exponent and 9 of mantissa. The moments stay in f32: of the
 * paper's three sums of an update, this is the last. Random bits are those of (run.seed, step,
 * element of the slab), so that shards, ranks and a resumed run round as one process does.
 */
#include "inner/optim/optim.h"

static const struct dev_narrow fp16 = {.exponent = 6, .mantissa = 9};

/* `count` elements from `from` on of this rank's shard, which begin at `at` in the slab. */
static void elements_round(struct optim *o, const struct optim_slabs *x, struct dev_narrow a,
                           struct dev_range r, size_t at)
{
    a.first = at;
    if (r.count)
        o->dev->ops->round_narrow(o->dev, x->params + r.offset, x->copy ? x->copy + r.offset : NULL,
                                  &a, r.count);
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
    a.stochastic = form == TRAIN_MASTER_FP16_STOCHASTIC;
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
