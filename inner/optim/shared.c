/* SPDX-License-Identifier: Apache-2.0 */
/* What the methods share: the parts of a tensor, the passes of a step. It knows no method by name.
 */
#include "inner/optim/optim.h"

size_t optim_parts(const struct optim_method *m, const struct settings *s, const struct tensor *x,
                   size_t elements[TABLE_PROJECTIONS_MAX])
{
    if (s->train_trust_per == TRAIN_TRUST_PER_PROJECTION || m->projections)
        return table_projections(s, x, elements);
    elements[0] = x->count;
    return 1;
}

static const struct {
    size_t first, count;
} columns[OPT_REDUCES] = {
#define X(NAME, name, prepare, first, count, writes) {first, count},
    OPT_REDUCE_LIST(X)
#undef X
};

enum err optim_reduce(struct optim *o, enum opt_reduce rule, const struct dev_optim *a)
{
    struct dev *d = o->dev;
    double *sums = o->buffers.sums + columns[rule].first * o->parts.count;
    size_t count = columns[rule].count * o->parts.count;
    if (o->shard.map)
        d->ops->zero(d, sums, count * sizeof *sums);
    d->ops->range_reduce(d, rule, a);
    return o->shard.map ? o->coll->ops->all_reduce(o->coll, sums, count) : ERR_OK;
}

enum err optim_update(struct optim *o, enum opt_update rule, const struct dev_optim *a)
{
    o->dev->ops->range_update(o->dev, rule, a);
    return ERR_OK;
}
