/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/model/clip_own.h"

/* One row for each way. */
static const struct {
    size_t (*plan)(const struct settings *s, const struct table *t, const struct clip_options *o);
    enum err (*open)(struct clip *c, struct arena *perm);
    enum err (*accumulate)(struct clip *c, const struct batch *b);
    void (*close)(struct clip *c);
} ways[] = {
    [PRIVACY_CLIPPING_GHOST] = {clip_ghost_plan, clip_ghost_open, clip_ghost, clip_ghost_close},
    [PRIVACY_CLIPPING_PER_EXAMPLE] = {clip_slow_plan, clip_slow_open, clip_slow, clip_slow_close}};

size_t clip_plan(const struct settings *s, const struct table *t, const struct clip_options *o)
{
    return ways[o->how].plan(s, t, o);
}

static enum err clip_open_parts(struct clip *c, struct arena *perm)
{
    const struct clip_options *o = &c->o;
    size_t R = o->sequences_max;
    TRY_ALLOC(c->first = arena_array(perm, R + 1, sizeof *c->first));
    TRY_ALLOC(c->norms = arena_array(perm, R, sizeof *c->norms));
    TRY_ALLOC(c->targets = arena_array(perm, R, sizeof *c->targets));
    TRY_ALLOC(c->labels = arena_array(perm, R, sizeof *c->labels));
    for (size_t i = 0; i <= R; i++)
        c->first[i] = i;
    TRY(batch_open(&c->own, perm, R * o->sequence, R));
    TRY(dev_alloc(c->dev, (void **)&c->loss, MODEL_LOSSES * sizeof *c->loss));
    return ways[o->how].open(c, perm);
}

enum err clip_open(struct clip **out, const struct clip_options *o, struct arena *perm)
{
    struct clip *c;
    *out = NULL;
    ASSERT(o->norm > 0 && o->record_max > 0 && o->record_max <= o->sequences_max);
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

static void clip_count(struct clip *c, const struct batch *b)
{
    for (size_t r = 0; r < c->cut.records; r++) {
        size_t first = c->cut.first[r], end = c->cut.first[r + 1];
        ASSERT(first < end && end - first <= c->o.record_max);
        c->targets[r] = c->labels[r] = 0;
        for (int32_t t = b->cu_seqlens[first]; t < b->cu_seqlens[end]; t++)
            c->targets[r] += b->targets[t] >= 0;
        for (size_t i = first; i < end; i++)
            c->labels[r] += b->labels[i] >= 0;
    }
}

enum err clip_accumulate(struct clip *c, const struct batch *b, const struct clip_cut *cut,
                         double *norms)
{
    size_t sequences = b->sequences - (b->filled > 0);
    ASSERT(sequences <= c->o.sequences_max);
    c->cut = cut ? *cut : (struct clip_cut){c->first, sequences};
    ASSERT(c->cut.first[0] == 0 && c->cut.first[c->cut.records] == sequences);
    clip_count(c, b);
    TRY(ways[c->o.how].accumulate(c, b));
    for (size_t i = 0; norms && i < c->cut.records; i++)
        norms[i] = c->norms[i];
    return ERR_OK;
}
