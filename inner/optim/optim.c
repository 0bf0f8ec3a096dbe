/* SPDX-License-Identifier: Apache-2.0 */
/* Schedule, shards of the state, clip; the update is the method's. */
#include "inner/optim/optim.h"
#include <math.h>
#include <string.h>
#include "inner/model/depth.h"

/* Share of the peak, from 1 to min_lr_ratio, x from 0 to 1 through the decay. */
static double decayed(const struct settings *s, double x)
{
    if (s->train_lr_schedule == TRAIN_LR_SCHEDULE_NONE)
        return 1.0;
    double left = s->train_lr_schedule == TRAIN_LR_SCHEDULE_COSINE
                      ? 0.5 * (1.0 + cos(3.14159265358979323846 * x))
                      : 1.0 - x;
    return s->train_min_lr_ratio + (1.0 - s->train_min_lr_ratio) * left;
}

/* train.lr, or by the square-root rule (You et al. 2020) what it is for this batch. */
static double lr_peak(const struct settings *s)
{
    double times = s->train_lr_batch_tokens
                       ? (double)s->train_batch_tokens / (double)s->train_lr_batch_tokens
                       : 1;
    return s->train_lr * sqrt(times);
}

static double lr_warming(const struct settings *s, int64_t step)
{
    double lr = lr_peak(s) * (double)(step + 1) / (double)keys_warmup(s);
    bool square = s->train_warmup_shape == TRAIN_WARMUP_QUADRATIC;
    return square ? lr * (double)(step + 1) / (double)keys_warmup(s) : lr;
}

static double lr_of_run(const struct settings *s, int64_t step)
{
    int64_t flat = keys_warmup(s) + s->train_stable_steps;
    if (step < keys_warmup(s))
        return lr_warming(s, step);
    if (s->train_lr_schedule == TRAIN_LR_SCHEDULE_EXPONENTIAL && step >= flat)
        return lr_peak(s) * pow(s->train_lr_decay_factor,
                                (double)(step - flat) / (double)s->train_lr_decay_steps);
    if (step < flat || s->train_steps <= flat)
        return lr_peak(s);
    double x = (double)(step - flat) / (double)(s->train_steps - flat);
    return lr_peak(s) * decayed(s, x < 1.0 ? x : 1.0);
}

double optim_lr(const struct settings *s, int64_t step)
{
    double lr = lr_of_run(s, step);
    if (s->train_lr_schedule == TRAIN_LR_SCHEDULE_EXPONENTIAL)
        lr += s->train_min_lr_ratio * lr_peak(s);
    return lr * depth_warmup(s, (uint64_t)step);
}

size_t optim_workspace(const struct settings *s, const struct table *t, enum dtype type)
{
    const struct optim_method *m = optim_method_of(s);
    return m->workspace ? m->workspace(m, s, t, type) : 0;
}

void optim_describe(struct optim_state state[OPTIM_STATES], const struct optim_method *m,
                    const struct table *t)
{
    static const char *const names[OPTIM_STATES] = {"m", "v", "more"};
    const size_t elements[OPTIM_STATES] = {m->first ? t->elements : 0, m->second ? t->elements : 0,
                                           optim_more_of(m, t, 0, t->elements)};
    for (int i = 0; i < OPTIM_STATES; i++)
        state[i] =
            (struct optim_state){.name = names[i], .elements = elements[i], .count = elements[i]};
}

/* ---- open ---- */
static enum err take_state(struct optim *o, const struct table *t)
{
    optim_describe(o->state, o->method, t);
    for (int i = 0; i < OPTIM_STATES; i++) {
        struct optim_state *x = &o->state[i];
        if (x->elements && o->shard.map) {
            x->map = i == OPTIM_MORE ? o->shard.more : o->shard.map;
            x->count = unit_shard(x->map, o->coll->rank);
        }
        TRY(dev_alloc(o->dev, (void **)&x->shard, x->count * sizeof *x->shard));
    }
    return ERR_OK;
}

static enum err take_slabs(struct optim *o, const struct table *t, struct arena *perm)
{
    TRY(take_state(o, t));
    TRY(dev_alloc(o->dev, (void **)&o->buffers.gscale, sizeof *o->buffers.gscale));
    TRY(dev_alloc(o->dev, (void **)&o->buffers.stats, STEP_STATS * sizeof *o->buffers.stats));
    TRY(dev_alloc(o->dev, (void **)&o->buffers.sums,
                  o->method->sums ? OPT_SUMS * o->parts.count * sizeof *o->buffers.sums : 0));
    TRY(dev_alloc(o->dev, &o->buffers.workspace,
                  optim_workspace(o->settings, t, o->dev->model_type)));
    size_t bytes = o->parts.count * sizeof *o->buffers.groups;
    TRY(dev_alloc(o->dev, (void **)&o->buffers.groups, bytes));
    TRY(o->dev->ops->host_alloc(o->dev, (void **)&o->buffers.groups_host, bytes));
    if (o->method->matrices)
        TRY(optim_matrices_open(o, perm));
    o->buffers.event = dev_events(o->dev, 1);
    TRY_ALLOC(o->learned.updates = arena_array(perm, t->count, sizeof *o->learned.updates));
    return ERR_OK;
}

static enum err open_optim(struct optim *o, const struct table *t, struct arena *perm)
{
    TRY(optim_shard_open(o, perm));
    TRY(optim_ranges_open(o, perm));
    TRY(take_slabs(o, t, perm));
    return o->compress ? compress_open(o, t, perm) : ERR_OK;
}

enum err optim_open(struct optim *o, struct dev *d, struct coll *c, const struct settings *s,
                    const struct table *t, struct arena *perm)
{
    *o = (struct optim){.dev = NULL};
    struct compress_kept *kept = arena_alloc(perm, sizeof *kept);
    TRY_ALLOC(kept);
    *o = (struct optim){.dev = d,
                        .coll = c,
                        .settings = s,
                        .method = optim_method_of(s),
                        .table = t,
                        .compress = compress_of(s),
                        .kept = kept};
    enum err e = open_optim(o, t, perm);
    if (e)
        optim_close(o);
    return e;
}

void optim_close(struct optim *o)
{
    if (!o->dev)
        return;
    compress_close(o);
    for (int i = 0; i < OPTIM_STATES; i++)
        dev_free(o->dev, o->state[i].shard);
    dev_free(o->dev, o->buffers.gscale);
    dev_free(o->dev, o->buffers.stats);
    dev_free(o->dev, o->buffers.sums);
    dev_free(o->dev, o->buffers.workspace);
    dev_free(o->dev, o->buffers.groups);
    if (o->buffers.groups_host)
        o->dev->ops->host_free(o->dev, o->buffers.groups_host);
    *o = (struct optim){0};
}

/* ---- step ---- */
/* After these, the updates are those of steps 0 .. step - 1: one step more than last time, or all
 * of them in a run that continues from a checkpoint. */
static void count_updates(struct optim *o, int64_t step)
{
    if (o->learned.counted > step)
        memset(o->learned.updates, 0, o->table->count * sizeof *o->learned.updates);
    o->learned.counted = o->learned.counted > step ? 0 : o->learned.counted;
    for (size_t i = 0; i < o->table->count; i++)
        o->learned.updates[i] += depth_updates(o->settings, (uint64_t)o->learned.counted,
                                               (uint64_t)step, o->table->tensors[i].layer);
    o->learned.counted = step;
}

/* Steps below `step` that a tensor missed while its first gradient was under way. */
static int64_t missed(const struct optim *o, size_t tensor, int64_t step)
{
    int64_t behind = o->delays.steps ? step - o->delays.from : 0,
            delay = o->delays.steps && o->delays.steps[tensor] > 0 ? o->delays.steps[tensor] : 0;
    return behind <= 0 ? 0 : behind < delay ? behind : delay;
}

/* Whether this rank has a gradient of a tensor in a step. */
static bool has_gradient(const struct optim *o, size_t tensor, int64_t step)
{
    if (!o->delays.steps)
        return true;
    return o->delays.steps[tensor] != OPTIM_ELSEWHERE &&
           missed(o, tensor, step + 1) == missed(o, tensor, step);
}

/* What the step does with a part; the updates are counted. */
static struct opt_group group_of(const struct optim *o, const struct optim_part *part, int64_t step)
{
    const struct settings *s = o->settings;
    const struct tensor *x = part->tensor;
    struct opt_group group = table_group(x);
    size_t i = (size_t)(x - o->table->tensors);
    double t = (double)((int64_t)o->learned.updates[i] - missed(o, i, step) + 1),
           t2 = (double)compress_second(s, (int64_t)t);
    if (s->train_bias_correction) {
        group.inverse1 = 1.0f / (float)(1.0 - pow(s->train_beta1, t));
        group.inverse2 = 1.0f / (float)(1.0 - pow(s->train_beta2, t2));
    }
    group.trust = group.trust || s->train_trust_all;
    group.active = depth_learns(s, (uint64_t)step, x->layer) && has_gradient(o, i, step);
    if (o->method->group)
        o->method->group(o, part, &group);
    return group;
}

static enum err put_groups(struct optim *o, int64_t step)
{
    struct dev *d = o->dev;
    count_updates(o, step);
    TRY(d->ops->event_wait(d, o->buffers.event));
    for (size_t i = 0; i < o->parts.count; i++) {
        o->buffers.groups_host[i] = group_of(o, &o->parts.list[i], step);
        o->buffers.groups_host[i].active &= o->parts.ranges[i].count > 0;
    }
    d->ops->copy_async(d, o->buffers.groups, o->buffers.groups_host,
                       o->parts.count * sizeof *o->buffers.groups);
    d->ops->event_record(d, o->buffers.event);
    return ERR_OK;
}

static struct opt_scalars scalars_of(const struct settings *s, int64_t step)
{
    return (struct opt_scalars){
        .lr = (float)optim_lr(s, step),
        .beta1 = (float)s->train_beta1,
        .beta2 = (float)s->train_beta2,
        .beta3 = (float)s->train_beta3,
        .rest1 = (float)(1 - s->train_beta1),
        .rest2 = (float)(1 - s->train_beta2),
        .rest3 = (float)(1 - s->train_beta3),
        .update_clip = (float)s->train_update_clip,
        .eps = (float)s->train_eps,
        .weight_decay = (float)s->train_weight_decay,
        .trust_min = (float)s->train_trust_min,
        .trust_max = s->train_trust_max > 0 ? (float)s->train_trust_max : INFINITY,
        .qh_weight = (float)s->train_qh_weight,
    };
}

static struct dev_optim arguments(const struct optim *o, const struct optim_slabs *x, int64_t step)
{
    return (struct dev_optim){
        .p = x->params,
        .m = o->state[OPTIM_FIRST].shard,
        .v = o->state[OPTIM_SECOND].shard,
        .g = x->grads,
        .model = x->copy,
        .gscale = o->buffers.gscale,
        .k = scalars_of(o->settings, step),
        .ranges = o->parts.ranges,
        .groups = o->buffers.groups,
        .n = o->parts.count,
        .sums = o->buffers.sums,
        .sums_stride = o->parts.count,
        .matrix = {.list = o->matrices.list,
                   .tiles = o->matrices.all.tiles,
                   .longest = o->matrices.all.longest,
                   .lines = o->matrices.lines,
                   .partial = o->matrices.partial},
    };
}

/* The sums over the ranks, the global norm, and from it the scale of the gradient. Of shards the
 * squares are summed, too; else every rank has the whole. Where each rank keeps its own gradients
 * (train.compress), the norm of their sum is not known: their squares are added as if the ranks'
 * gradients were orthogonal, which noise is. */
static enum err clip(struct optim *o, const float *grads, int64_t step)
{
    struct dev *d = o->dev;
    double *stats = o->buffers.stats;
    bool parts = o->shard.map || o->delays.steps || compress_local(o->settings, step);
    const struct dev_clip a = {.sumsq = stats + STEP_SQUARE,
                               .loss = stats + STEP_LOSS,
                               .targets = stats + STEP_TARGETS,
                               .max_norm = o->settings->train_clip_per == TRAIN_CLIP_PER_MODEL
                                               ? (float)o->settings->train_max_grad_norm
                                               : 0};
    d->ops->sumsq(d, stats + STEP_SQUARE, grads, o->shard.count);
    TRY(o->coll->ops->all_reduce(o->coll, stats, parts ? STEP_STATS : STEP_SQUARE));
    d->ops->clip_scale(d, o->buffers.gscale, &a);
    return ERR_OK;
}

void optim_forget(struct optim *o, size_t from, size_t count)
{
    for (size_t i = 0; i < o->parts.count; i++) {
        struct dev_range own = o->parts.ranges[i];
        size_t at = o->parts.list[i].offset;
        if (at < from || at >= from + count || own.count == 0)
            continue;
        for (int k = 0; k < OPTIM_MORE; k++)
            if (o->state[k].elements)
                o->dev->ops->zero(o->dev, o->state[k].shard + own.offset,
                                  own.count * sizeof *o->state[k].shard);
    }
}

enum err optim_step_slabs(struct optim *o, const struct optim_slabs *x, int64_t step)
{
    struct dev_optim a = arguments(o, x, step);
    TRY(put_groups(o, step));
    TRY(clip(o, x->grads, step));
    TRY(o->compress ? o->compress->step(o, &a, step) : o->method->step(o, &a));
    optim_masters_round(o, x, step);
    return ERR_OK;
}

/* Of this rank's shards; the model collects what it needs of the others. */
static enum err step_shards(struct optim *o, struct model *m, int64_t step)
{
    struct model_shards own = weights_shards(model_weights(m));
    bool copies = own.copy && !model_rounds_stochastically(m);
    const struct optim_slabs x = {own.params, own.grads, copies ? own.copy : NULL};
    TRY(weights_shards_wait(
        model_weights(m))); /* the shards may still be on their way to other ranks */
    TRY(optim_step_slabs(o, &x, step));
    model_set_step(m, step + 1);
    return weights_shards_changed(model_weights(m), copies);
}

enum err optim_step(struct optim *o, struct model *m, int64_t step)
{
    bool copies = model_params_bf16(m) && !model_rounds_stochastically(m);
    const struct dev_range all = slab_all(o->table);
    if (o->shard.map)
        return step_shards(o, m, step);
    float *params = model_gather(m, all);
    const struct optim_slabs x = {params, model_grads(m),
                                  copies ? (uint16_t *)model_params_bf16(m) : NULL};
    TRY(optim_step_slabs(o, &x, step));
    model_set_step(m, step + 1);
    model_scatter(m, all, true);
    if (model_rounds_stochastically(m)) /* else the update has written the copy */
        model_params_changed(m);
    return ERR_OK;
}
