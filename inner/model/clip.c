#include "inner/model/clip_own.h"
#include <math.h>

/* One row for each way. */
static const struct {
    size_t (*plan)(const struct settings *s, const struct table *t, size_t records_max);
    enum err (*open)(struct clip *c, struct arena *perm);
    enum err (*accumulate)(struct clip *c, const struct batch *b);
    void (*close)(struct clip *c);
} ways[] = {
    [PRIVACY_CLIPPING_GHOST] = {clip_ghost_plan, clip_ghost_open, clip_ghost, clip_ghost_close},
    [PRIVACY_CLIPPING_SLOW] = {clip_slow_plan, clip_slow_open, clip_slow, clip_slow_close}};

size_t clip_plan(const struct settings *s, const struct table *t, size_t records_max)
{
    return ways[s->privacy_clipping].plan(s, t, records_max);
}

static enum err clip_open_parts(struct clip *c, struct arena *perm)
{
    const struct clip_options *o = &c->o;
    TRY_ALLOC(c->norms = arena_array(perm, o->records_max, sizeof *c->norms));
    TRY_ALLOC(c->targets = arena_array(perm, o->records_max, sizeof *c->targets));
    TRY(batch_open(&c->own, perm, o->records_max * o->sequence, o->records_max));
    TRY(dev_alloc(c->dev, (void **)&c->loss, MODEL_LOSSES * sizeof *c->loss));
    return ways[o->how].open(c, perm);
}

enum err clip_open(struct clip **out, const struct clip_options *o, struct arena *perm)
{
    struct clip *c;
    *out = NULL;
    ASSERT(o->norm > 0 && o->records_max > 0);
    TRY_ALLOC(c = arena_alloc(perm, sizeof *c));
    c->o = *o;
    c->m = o->model;
    c->dev = o->model->dev;
    ASSERT(c->dev->host_memory && c->dev->model_type == DTYPE_F32);
    enum err e = clip_open_parts(c, perm);
    if (e) {
        clip_close(c);
        return e;
    }
    *out = c;
    return ERR_OK;
}

void clip_close(struct clip *c)
{
    if (!c)
        return;
    ways[c->o.how].close(c);
    dev_free(c->dev, c->loss);
    c->loss = NULL;
}

size_t clip_records(const struct batch *b)
{
    return b->sequences - (b->filled > 0);
}

double clip_factor(const struct clip *c, double norm)
{
    if (!isfinite(norm))
        return 0;
    return norm > c->o.norm ? c->o.norm / norm : 1;
}

static void clip_count_targets(struct clip *c, const struct batch *b)
{
    for (size_t i = 0; i < clip_records(b); i++) {
        c->targets[i] = 0;
        for (int32_t t = b->cu_seqlens[i]; t < b->cu_seqlens[i + 1]; t++)
            c->targets[i] += b->targets[t] >= 0;
    }
}

enum err clip_accumulate(struct clip *c, const struct batch *b, double *norms)
{
    size_t records = clip_records(b);
    ASSERT(records <= c->o.records_max);
    clip_count_targets(c, b);
    TRY(ways[c->o.how].accumulate(c, b));
    for (size_t i = 0; norms && i < records; i++)
        norms[i] = c->norms[i];
    return ERR_OK;
}
