/* SPDX-License-Identifier: Apache-2.0 */
/* What the methods of compressed sums share. It knows none of them by name. */
#include "inner/optim/compress.h"
#include <math.h>
#include "inner/optim/optim.h"

int64_t compress_freeze_steps(const struct settings *s)
{
    return llround(s->train_compress_start * (double)s->train_steps);
}

int64_t compress_until_freeze(const struct settings *s, int64_t steps)
{
    int64_t freeze = compress_freeze_steps(s);
    return steps < freeze ? steps : freeze;
}

enum err compress_read_sums(struct optim *o)
{
    struct dev *d = o->dev;
    TRY(o->coll->ops->event_record(o->coll)); /* a wait after collectives notices a lost rank */
    TRY(o->coll->ops->event_wait(o->coll));
    d->ops->copy(d, o->kept->sums, o->buffers.sums,
                 OPT_SUMS * o->parts.count * sizeof *o->kept->sums);
    d->ops->copy(d, o->kept->ratios_host, o->kept->ratios,
                 o->parts.count * sizeof *o->kept->ratios);
    return dev_sync(d);
}

enum err compress_wait_groups(struct optim *o)
{
    return o->dev->ops->event_wait(o->dev, o->buffers.event);
}

void compress_put_groups(struct optim *o)
{
    struct dev *d = o->dev;
    d->ops->copy_async(d, o->buffers.groups, o->buffers.groups_host,
                       o->parts.count * sizeof *o->buffers.groups);
    d->ops->event_record(d, o->buffers.event);
}

enum err compress_open_signs(struct optim *o, const struct table *t, struct arena *perm)
{
    const struct dev_range all = {0, t->elements};
    struct dev_range *ranges;
    bool one = o->compress->one_scale;
    TRY_ALLOC(ranges = arena_array(perm, t->count, sizeof *ranges));
    for (size_t i = 0; i < t->count; i++)
        ranges[i] = (struct dev_range){t->tensors[i].offset, t->tensors[i].count};
    TRY(squeeze_open(&o->kept->squeeze,
                     &(struct squeeze_options){.dev = o->dev,
                                               .coll = o->coll,
                                               .ranges = one ? &all : ranges,
                                               .count = one ? 1 : t->count,
                                               .elements = t->elements,
                                               .feedback = o->settings->train_error_feedback},
                     perm));
    o->kept->own[0] = o->kept->squeeze.worker;
    return ERR_OK;
}
