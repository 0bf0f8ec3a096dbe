/* Which method of compressed sums a run has, and what they share. */
#include "inner/optim/compress.h"
#include <math.h>
#include "inner/optim/optim.h"
#include "kernels/base/log.h"

static const struct {
    enum train_compress compress;
    enum optim_kind optimizer;
    const struct compress_method *method;
} methods[] = {
#define X(name, COMPRESS, OPTIMIZER) {COMPRESS, OPTIMIZER, &compress_##name},
    COMPRESS_LIST(X)
#undef X
};

const struct compress_method *compress_of(const struct settings *s)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].compress == s->train_compress && methods[i].optimizer == s->train_optimizer)
            return methods[i].method;
    return NULL;
}

bool compress_sums(const struct settings *s, int64_t step)
{
    const struct compress_method *m = compress_of(s);
    return !m || m->sums(s, step);
}

int64_t compress_second(const struct settings *s, int64_t steps)
{
    const struct compress_method *m = compress_of(s);
    return m && steps > m->freeze(s) ? m->freeze(s) : steps;
}

int64_t compress_freeze_steps(const struct settings *s)
{
    return llround(s->train_freeze * (double)s->train_steps);
}

size_t compress_plan(const struct settings *s, const struct table *t, int ranks)
{
    const struct compress_method *m = compress_of(s);
    size_t signs = m ? squeeze_plan(t->elements, t->count, ranks, s->train_error_feedback) : 0;
    return signs + (m && m->slab ? t->elements * sizeof(float) : 0);
}

size_t compress_staging(const struct settings *s, const struct table *t, int ranks)
{
    bool any = compress_of(s) && s->train_error_feedback;
    return any ? ((size_t)ranks + 1) * t->elements * sizeof(float) : 0;
}

static enum err open_numbers(struct optim *o, struct arena *perm)
{
    struct compress_kept *k = &o->kept;
    size_t n = o->part_count;
    struct dev_range *ranges;
    k->host_count = o->compress->numbers(n);
    TRY_ALLOC(k->host = arena_array(perm, k->host_count, sizeof *k->host));
    TRY_ALLOC(k->sums = arena_array(perm, OPT_SUMS * n, sizeof *k->sums));
    TRY_ALLOC(k->ratios_host = arena_array(perm, n, sizeof *k->ratios_host));
    TRY_ALLOC(k->rates = arena_array(perm, n, sizeof *k->rates));
    TRY_ALLOC(ranges = arena_array(perm, n, sizeof *ranges));
    for (size_t i = 0; i < n; i++)
        ranges[i] = (struct dev_range){o->parts[i].offset, o->parts[i].count};
    TRY(dev_alloc(o->dev, (void **)&k->ratios, n * sizeof *k->ratios));
    TRY(dev_alloc(o->dev, (void **)&k->ranges, n * sizeof *k->ranges));
    o->dev->ops->copy(o->dev, k->ranges, ranges, n * sizeof *ranges);
    return dev_sync(o->dev);
}

void compress_close(struct optim *o)
{
    squeeze_close(&o->squeeze);
    dev_free(o->dev, o->kept.slab);
    dev_free(o->dev, o->kept.ratios);
    dev_free(o->dev, o->kept.ranges);
    o->kept = (struct compress_kept){0};
}

enum err compress_read_sums(struct optim *o)
{
    struct dev *d = o->dev;
    TRY(o->coll->ops->event_record(o->coll)); /* a wait behind collectives notices a lost rank */
    TRY(o->coll->ops->event_wait(o->coll));
    d->ops->copy(d, o->kept.sums, o->sums, OPT_SUMS * o->part_count * sizeof *o->kept.sums);
    d->ops->copy(d, o->kept.ratios_host, o->kept.ratios, o->part_count * sizeof *o->kept.ratios);
    return dev_sync(d);
}

enum err compress_put_groups(struct optim *o)
{
    struct dev *d = o->dev;
    TRY(d->ops->event_wait(d, o->event));
    d->ops->copy_async(d, o->groups, o->groups_host, o->range_count * sizeof *o->groups);
    d->ops->event_record(d, o->event);
    return ERR_OK;
}

enum err compress_open(struct optim *o, const struct table *t, struct arena *perm)
{
    const struct dev_range all = {0, t->elements};
    struct dev_range *ranges;
    bool one = o->compress->one_scale;
    if (o->compress->slab)
        TRY(dev_alloc(o->dev, (void **)&o->kept.slab, t->elements * sizeof *o->kept.slab));
    if (o->compress->numbers)
        TRY(open_numbers(o, perm));
    TRY_ALLOC(ranges = arena_array(perm, t->count, sizeof *ranges));
    for (size_t i = 0; i < t->count; i++)
        ranges[i] = (struct dev_range){t->tensors[i].offset, t->tensors[i].count};
    TRY(squeeze_open(&o->squeeze,
                     &(struct squeeze_options){.dev = o->dev,
                                               .coll = o->coll,
                                               .ranges = one ? &all : ranges,
                                               .count = one ? 1 : t->count,
                                               .elements = t->elements,
                                               .feedback = o->settings->train_error_feedback},
                     perm));
    if (o->coll->rank == 0)
        log_event(
            LOG_INFO, "compress", "ranks=%d bytes_step=%zu full_bytes_step=%zu%s", o->coll->size,
            squeeze_up(&o->squeeze),
            2 * (size_t)(o->coll->size - 1) * t->elements * sizeof(float) / (size_t)o->coll->size,
            o->coll->size == 1 ? " text=\"one rank sends nothing: train.compress saves nothing"
                                 " here, and its signs cost accuracy\""
                               : "");
    return ERR_OK;
}
