/* SPDX-License-Identifier: Apache-2.0 */
/* The layers divided among the ranks (inner/methods/pipeline.h): every rank has the whole batch. */
#include "inner/methods/pipeline.h"
#include "inner/train/train_parallel.h"
#include "inner/train/train_tune.h"

static int one_rank(int ranks)
{
    (void)ranks;
    return 1;
}

static void plan_modules(struct train_memory *m, const struct train_sizes *p)
{
    m->modules = pipeline_plan(p->settings, p->table, p->model_type, p->tokens);
}

static struct pipeline *pipeline_of(const struct train *t)
{
    return t->division.state;
}

static enum err open_modules(struct train *t, struct train_division *d, struct arena *perm)
{
    const struct method_parts parts = train_parts(t);
    struct pipeline *p = NULL;
    enum err e = pipeline_open(&p, &parts, perm);
    d->state = p; /* closed, too, where it is partly open */
    return e;
}

static void close_modules(struct train *t)
{
    pipeline_close(pipeline_of(t));
}

/* The rank of the heads counts the targets of the whole batch. */
static enum err backward(struct train *t, struct step_targets *targets)
{
    struct pipeline *p = pipeline_of(t);
    pipeline_load(p, t->step);
    tune_profile_batch(t);
    if (pipeline_own(p, p->count - 1))
        parallel_count_targets(t, targets);
    return modules_passes(p, t->step);
}

static enum err gather(struct train *t)
{
    return modules_gather(pipeline_of(t));
}

static enum err resumed(struct train *t)
{
    return modules_resumed(pipeline_of(t), t->step);
}

static size_t earlier(const struct train *t, float *const **slabs)
{
    *slabs = pipeline_of(t)->params;
    return pipeline_kept_slabs(pipeline_of(t));
}

/* A tensor's gradients are on one rank, and are whole there: there is nothing to reduce. */
const struct train_parallel parallel_modules = {.check = pipeline_check,
                                                .batch_ranks = one_rank,
                                                .plan = plan_modules,
                                                .secret = false,
                                                .open = open_modules,
                                                .close = close_modules,
                                                .charge = parallel_nothing,
                                                .backward = backward,
                                                .reduce = parallel_nothing,
                                                .gather = gather,
                                                .resumed = resumed,
                                                .earlier = earlier,
                                                .lengthened = modules_lengthened};
