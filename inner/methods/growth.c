/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/methods/growth.h"
#include "inner/model/depth.h"

struct growth {
    struct method_parts parts;
    struct depth_copy *copies; /* (table.count) scratch; NULL: without train.stages */
};

static bool growth_asked(const struct settings *s)
{
    return depth_drops(s) || depth_stages(s);
}

static enum err growth_open(void **state, const struct method_parts *p, struct arena *perm)
{
    struct growth *x;
    TRY_ALLOC(*state = x = arena_alloc(perm, sizeof *x));
    x->parts = *p;
    if (depth_stages(p->settings))
        TRY_ALLOC(x->copies = arena_array(perm, p->table->count, sizeof *x->copies));
    return ERR_OK;
}

static bool growth_changes(const void *state, int64_t steps)
{
    const struct growth *x = state;
    return depth_grows(x->parts.settings, (uint64_t)steps);
}

/* Copies the layers that exist from the next step on. A round of several sites between the two
 * steps may have written parameters that have grown already: then nothing changes. */
static void growth_begin(void *state, int64_t steps)
{
    const struct growth *x = state;
    const struct method_parts *p = &x->parts;
    size_t count = x->copies ? depth_growth(p->settings, p->table, (uint64_t)steps, x->copies) : 0;
    for (size_t i = 0; i < count; i++) {
        const struct depth_copy *c = &x->copies[i];
        const struct dev_range to = {c->to, c->count}, from = {c->from, c->count};
        float *params = model_gather(p->model, to);
        p->dev->ops->copy(p->dev, params, model_gather(p->model, from), c->count * sizeof *params);
        model_scatter(p->model, from, false);
        model_scatter(p->model, to, true);
        optim_forget(p->optim, c->to, c->count);
    }
    if (count)
        model_params_changed(p->model);
}

static void growth_read(void *state, int64_t steps, const double *stats, struct figures *f)
{
    const struct growth *x = state;
    size_t layers = 0;
    (void)stats;
    for (size_t i = 0; i < (size_t)x->parts.settings->model_layers; i++)
        layers += depth_runs(x->parts.settings, (uint64_t)steps - 1, i);
    figures_count(f, "layers", layers);
}

static enum err growth_lengthened(const struct settings *before, const struct settings *s,
                                  const char *dir)
{
    if (!depth_stages(s))
        return ERR_OK;
    return err_set(ERR_MISMATCH,
                   "%s was made with train.steps = %lld, and train.stages divides these; with "
                   "train.steps = %lld its past would be another",
                   dir, (long long)before->train_steps, (long long)s->train_steps);
}

const struct method method_growth = {.name = "growth",
                                     .asked = growth_asked,
                                     .open = growth_open,
                                     .bytes = 0,
                                     .kept = method_keeps_nothing,
                                     .resumed = method_resumes_nothing,
                                     .changes = growth_changes,
                                     .begin = growth_begin,
                                     .read = growth_read,
                                     .review = method_reviews_nothing,
                                     .lengthened = growth_lengthened};
