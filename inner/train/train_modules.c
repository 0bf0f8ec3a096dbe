/* Modules of layers on the ranks of a site (inner/methods/pipeline.h): the order of their passes in
 * a step, and what a checkpoint needs. */
#include "inner/train/train_parallel.h"
#include "inner/methods/pipeline.h"
#include "inner/train/train_tune.h"

/* Each forward is followed by the module's delayed backward, which has its input: it runs while
 * other ranks run the forwards behind it. Steps before `begun` have no forward in memory. */
static enum err pass_stale(struct train *t, int64_t step, int64_t begun)
{
    const struct pipeline *p = t->pipeline;
    TRY(pipeline_fetch(t));
    for (size_t k = 0; k < p->count; k++) {
        int64_t late = step - p->modules[k].delay;
        if (!pipeline_own(t, k))
            continue;
        TRY(pipeline_fwd(t, k, step));
        if (late >= begun)
            TRY(pipeline_bwd(t, k, late));
    }
    for (size_t k = 0; k + 1 < p->count; k++)
        p->modules[k].sent = pipeline_own(t, k) && step - p->modules[k + 1].delay >= begun;
    return ERR_OK;
}

static enum err pass_sequential(struct train *t)
{
    const struct pipeline *p = t->pipeline;
    for (size_t k = 0; k < p->count; k++)
        if (pipeline_own(t, k))
            TRY(pipeline_fwd(t, k, t->step));
    for (size_t k = p->count; k-- > 0;)
        if (pipeline_own(t, k))
            TRY(pipeline_bwd(t, k, t->step));
    return ERR_OK;
}

/* The rank of the heads counts the targets of the whole batch. */
static enum err backward(struct train *t, struct step_targets *targets)
{
    const struct pipeline *p = t->pipeline;
    pipeline_load(t, t->step);
    tune_profile_batch(t);
    if (pipeline_own(t, p->count - 1)) {
        targets->divisor = objective_divisor(&t->loader, &t->batch);
        targets->sequences = t->loader.sequence_targets ? batch_labels(&t->batch) : 0;
        targets->tokens = t->batch.tokens_count - t->batch.filled;
    }
    if (t->step < p->stale_from)
        return pass_sequential(t);
    TRY(pass_stale(t, t->step, p->stale_from));
    pipeline_keep(t, t->step);
    return ERR_OK;
}

/* A tensor's gradients are on one rank, and are whole there. */
static enum err reduce(struct train *t)
{
    (void)t;
    return ERR_OK;
}

static enum err gather(struct train *t)
{
    t->pipeline->loaded = -1; /* an evaluation uses t->batch */
    if (t->coll->size == 1)
        return ERR_OK;
    TRY(pipeline_fetch(t));
    TRY(pipeline_gather(t, model_params(t->model)));
    for (int i = 0; i < OPTIM_MORE; i++)
        if (t->optim.state[i].elements)
            TRY(pipeline_gather(t, t->optim.state[i].shard));
    for (size_t i = 0; i < pipeline_kept_slabs(t); i++)
        TRY(pipeline_gather(t, t->pipeline->params[i]));
    model_params_changed(t->model);
    return ERR_OK;
}

/* Runs the last steps that have a gradient under way again, each with its own parameters and
 * without an update: activations and errors are those that were there. */
static enum err resumed(struct train *t)
{
    const struct pipeline *p = t->pipeline;
    int64_t first = t->step - (int64_t)p->count + 1;
    struct dev *d = t->dev;
    first = first > p->stale_from ? first : p->stale_from;
    for (size_t i = 0; i < pipeline_kept_slabs(t); i++)
        if (p->copies[i])
            d->ops->cast(d, p->copies[i], p->params[i], t->table.elements);
    for (int64_t step = first; step < t->step; step++)
        TRY(pass_stale(t, step, first));
    return dev_sync(d);
}

const struct train_parallel parallel_modules = {.open = pipeline_open,
                                                .close = pipeline_close,
                                                .charge = parallel_nothing,
                                                .backward = backward,
                                                .reduce = reduce,
                                                .gather = gather,
                                                .resumed = resumed};
