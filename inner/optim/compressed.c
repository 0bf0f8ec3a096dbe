/* SPDX-License-Identifier: Apache-2.0 */
/* Which method of compressed sums a run has, and what the run asks of it. */
#include "inner/optim/compress.h"
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

static const struct {
    enum train_compress compress;
    const struct compress_method *method;
} any[] = {
#define X(name, COMPRESS) {COMPRESS, &compress_##name},
    COMPRESS_ANY_LIST(X)
#undef X
};

const struct compress_method *compress_of(const struct settings *s)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].compress == s->train_compress && methods[i].optimizer == s->train_optimizer)
            return methods[i].method;
    for (size_t i = 0; i < sizeof any / sizeof *any; i++)
        if (any[i].compress == s->train_compress)
            return any[i].method;
    return NULL;
}

bool compress_local(const struct settings *s, int64_t step)
{
    const struct compress_method *m = compress_of(s);
    return m && !m->sums(s, step) && !m->reduce;
}

enum err compress_reduce(struct optim *o, float *grads, int64_t step)
{
    const struct compress_method *m = o->compress;
    return m && m->reduce && !m->sums(o->settings, step) ? m->reduce(o, grads) : ERR_OK;
}

bool compress_sums(const struct settings *s, int64_t step)
{
    const struct compress_method *m = compress_of(s);
    return !m || m->sums(s, step);
}

bool compress_rests(const struct settings *s, int64_t step)
{
    const struct compress_method *m = compress_of(s);
    return m && m->rests && m->rests(s, step);
}

int64_t compress_second(const struct settings *s, int64_t steps)
{
    const struct compress_method *m = compress_of(s);
    return m && m->second ? m->second(s, steps) : steps;
}

enum err compress_lengthened(const struct settings *before, const struct settings *s,
                             const char *dir)
{
    if (!compress_of(s))
        return ERR_OK;
    return err_set(
        ERR_MISMATCH,
        "%s was made with train.steps = %lld, and train.compress_start is a share of these; with "
        "train.steps = %lld its past would be another",
        dir, (long long)before->train_steps, (long long)s->train_steps);
}

size_t compress_plan(const struct settings *s, const struct table *t, int ranks)
{
    const struct compress_method *m = compress_of(s);
    if (!m)
        return 0;
    size_t own = m->plan ? m->plan(s, t, ranks)
                         : squeeze_plan(t->elements, t->count, ranks, s->train_error_feedback);
    return own + (m->slab ? t->elements * sizeof(float) : 0);
}

static enum err open_numbers(struct optim *o, struct arena *perm)
{
    struct compress_kept *k = o->kept;
    size_t n = o->parts.count;
    struct dev_range *ranges;
    k->host_count = o->compress->numbers(n);
    TRY_ALLOC(k->host = arena_array(perm, k->host_count, sizeof *k->host));
    TRY_ALLOC(k->sums = arena_array(perm, OPT_SUMS * n, sizeof *k->sums));
    TRY_ALLOC(k->ratios_host = arena_array(perm, n, sizeof *k->ratios_host));
    TRY_ALLOC(k->rates = arena_array(perm, n, sizeof *k->rates));
    TRY_ALLOC(ranges = arena_array(perm, n, sizeof *ranges));
    for (size_t i = 0; i < n; i++)
        ranges[i] = (struct dev_range){o->parts.list[i].offset, o->parts.list[i].count};
    TRY(dev_alloc(o->dev, (void **)&k->ratios, n * sizeof *k->ratios));
    TRY(dev_alloc(o->dev, (void **)&k->ranges, n * sizeof *k->ranges));
    o->dev->ops->copy(o->dev, k->ranges, ranges, n * sizeof *ranges);
    return dev_sync(o->dev);
}

void compress_close(struct optim *o)
{
    if (o->kept->own[0] == o->kept->squeeze.worker)
        o->kept->own[0] = NULL;
    squeeze_close(&o->kept->squeeze);
    dev_free(o->dev, o->kept->slab);
    dev_free(o->dev, o->kept->ratios);
    dev_free(o->dev, o->kept->ranges);
    for (int i = 0; i < 2; i++) {
        dev_free(o->dev, o->kept->own[i]);
        dev_free(o->dev, o->kept->buffers[i]);
    }
    *o->kept = (struct compress_kept){0};
}

enum err compress_open(struct optim *o, const struct table *t, struct arena *perm)
{
    if (o->compress->slab)
        TRY(dev_alloc(o->dev, (void **)&o->kept->slab, t->elements * sizeof *o->kept->slab));
    if (o->compress->numbers)
        TRY(open_numbers(o, perm));
    TRY(o->compress->open ? o->compress->open(o, t, perm) : compress_open_signs(o, t, perm));
    if (o->coll->size == 1)
        log_event(LOG_WARN, "compress",
                  "text=\"one rank sends nothing: train.compress saves nothing here, and what it "
                  "loses costs accuracy\"");
    return ERR_OK;
}
