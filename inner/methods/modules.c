/* SPDX-License-Identifier: Apache-2.0 */
/* Modules of layers on the ranks of a site (pipeline.h): the order of their passes in a step. */
#include "inner/methods/pipeline.h"

/* After each forward the module runs its delayed backward, whose input has arrived already. At the
 * same time other ranks run the forwards of later modules. Steps before `begun` have no forward in
 * memory. */
static enum err pass_stale(struct pipeline *p, int64_t step, int64_t begun)
{
    TRY(pipeline_fetch(p));
    for (size_t k = 0; k < p->count; k++) {
        int64_t late = step - p->modules[k].delay;
        if (!pipeline_own(p, k))
            continue;
        TRY(pipeline_fwd(p, k, step));
        if (late >= begun)
            TRY(pipeline_bwd(p, k, late));
    }
    for (size_t k = 0; k + 1 < p->count; k++)
        p->modules[k].sent = pipeline_own(p, k) && step - p->modules[k + 1].delay >= begun;
    return ERR_OK;
}

static enum err pass_sequential(struct pipeline *p, int64_t step)
{
    for (size_t k = 0; k < p->count; k++)
        if (pipeline_own(p, k))
            TRY(pipeline_fwd(p, k, step));
    for (size_t k = p->count; k-- > 0;)
        if (pipeline_own(p, k))
            TRY(pipeline_bwd(p, k, step));
    return ERR_OK;
}

enum err modules_passes(struct pipeline *p, int64_t step)
{
    p->step = step;
    if (step < p->stale_from)
        return pass_sequential(p, step);
    TRY(pass_stale(p, step, p->stale_from));
    pipeline_keep(p, step);
    return ERR_OK;
}

enum err modules_gather(struct pipeline *p)
{
    const struct method_parts *x = &p->parts;
    p->loaded = -1; /* an evaluation uses parts.batch */
    if (x->coll->size == 1)
        return ERR_OK;
    TRY(pipeline_fetch(p));
    float *params = model_gather(x->model, slab_all(x->table));
    TRY(pipeline_gather(p, params));
    model_scatter(x->model, slab_all(x->table), true);
    for (int i = 0; i < OPTIM_MORE; i++)
        if (x->optim->state[i].elements)
            TRY(pipeline_gather(p, x->optim->state[i].shard));
    for (size_t i = 0; i < pipeline_kept_slabs(p); i++)
        TRY(pipeline_gather(p, p->params[i]));
    model_params_changed(x->model);
    return ERR_OK;
}

/* Recomputes activations and errors of the last steps, whose gradients are under way: their passes
 * run again, each step with its own parameters and without an update. */
enum err modules_resumed(struct pipeline *p, int64_t step)
{
    int64_t first = step - (int64_t)p->count + 1;
    struct dev *d = p->parts.dev;
    first = first > p->stale_from ? first : p->stale_from;
    p->step = step;
    for (size_t i = 0; i < pipeline_kept_slabs(p); i++)
        if (p->copies[i])
            d->ops->cast(d, p->copies[i], p->params[i], p->parts.table->elements);
    for (int64_t at = first; at < step; at++)
        TRY(pass_stale(p, at, first));
    return dev_sync(d);
}

enum err modules_lengthened(const struct settings *before, const struct settings *s,
                            const char *dir)
{
    if (s->train_pipeline != TRAIN_PIPELINE_STALE || keys_warmup(before) == keys_warmup(s))
        return ERR_OK;
    return err_set(ERR_MISMATCH,
                   "%s was made with train.steps = %lld and so with a warm-up of %lld steps, at "
                   "whose end train.pipeline = stale begins; with train.steps = %lld it is %lld",
                   dir, (long long)before->train_steps, (long long)keys_warmup(before),
                   (long long)s->train_steps, (long long)keys_warmup(s));
}
