/* SPDX-License-Identifier: Apache-2.0 */
/* 0/1 Adam (Lu et al. 2023, 2202.06009), in the form of its published code. Phase 1,
 * train.compress_start of the steps: at growing intervals a full sum of the gradients and AdamW;
 * between them
 *
 *     g = mean of the g_i in signs                 squeeze_mean; v stays
 *     m = beta1 m + (1 - beta1) g;  x = x - lr (mh / (sqrt(vh) + eps) + weight_decay x)
 *
 * Phase 2: local steps of rank i from X, the parameters of the last sum, with v frozen
 *
 *     m_i = beta1 m_i + (1 - beta1) g_i;  u_i = u_i + lr mh_i
 *     x_i = x_i - lr mh_i / (sqrt(vh) + eps)
 *
 * and at growing intervals, with s the sum of lr since the last one,
 *
 *     y = mean of the u_i in signs;  x = X - y / (sqrt(vh) + eps) - s weight_decay X;  u_i = 0
 *     m = y divided by the sum of lr and of the bias corrections
 *
 * What is kept and sent is u over that sum: the mean of the moments, which for one step is the
 * moment itself. The errors, too, are over it, so they are multiplied by the quotient of the sums
 * when it changes. They measure gradients in phase 1, and become 0 after it. Both schedules are
 * pure functions of the step. Sums that the caller asks for (optim.together) come in addition.
 */
#include "inner/optim/compress.h"
#include <math.h>
#include "inner/optim/optim.h"

struct zeroone {  /* in o->kept->work: of the local steps since the last sum */
    float *start; /* device, (elements): the parameters before them */
    float *mean;  /* device, (elements): of their first moments */
    double lr;    /* sum */
    double moved; /* sum of lr times bias correction */
};

/* ---- schedules ---- */
/* Blocks of train.variance_grow full sums, 1, 2, 4, .. steps apart. Of step `steps`, counted from
 * 1: its place in its block, and the block. */
static int64_t place_of(const struct settings *s, int64_t steps, int *block)
{
    int64_t length = s->train_variance_grow;
    for (*block = 0; steps > length; ++*block, length *= 2)
        steps -= length;
    return steps;
}

static bool sums(const struct settings *s, int64_t step)
{
    int block;
    int64_t place = place_of(s, step + 1, &block);
    return step < compress_freeze_steps(s) && place % ((int64_t)1 << block) == 0;
}

static int64_t second(const struct settings *s, int64_t steps)
{
    int block;
    int64_t place = place_of(s, compress_until_freeze(s, steps), &block);
    return block * s->train_variance_grow + (place >> block);
}

static int64_t interval_of(const struct settings *s, int64_t local)
{
    double stage = floor((double)local / (s->train_local_grow * (double)s->train_steps));
    return stage < log2((double)s->train_local_max) ? (int64_t)1 << (int)stage : s->train_local_max;
}

static bool rests(const struct settings *s, int64_t step)
{
    int64_t local = step - compress_freeze_steps(s);
    return local >= 0 && (local + 1) % interval_of(s, local) != 0;
}

/* ---- state ---- */
static size_t numbers(size_t parts)
{
    (void)parts;
    return 1; /* `moved` of the last sum, in whose units the errors are; 0: none yet */
}

static size_t plan(const struct settings *s, const struct table *t, int ranks)
{
    return squeeze_plan(t->elements, t->count, ranks, s->train_error_feedback) +
           2 * t->elements * sizeof(float);
}

static enum err open_zeroone(struct optim *o, const struct table *t, struct arena *perm)
{
    struct zeroone *z;
    TRY(compress_open_signs(o, t, perm));
    TRY_ALLOC(o->kept->work = z = arena_alloc(perm, sizeof *z));
    for (int i = 0; i < 2; i++)
        TRY(dev_alloc(o->dev, &o->kept->buffers[i], t->elements * sizeof(float)));
    *z = (struct zeroone){.start = o->kept->buffers[0], .mean = o->kept->buffers[1]};
    return ERR_OK;
}

/* ---- steps ---- */
static enum err between_full_sums(struct optim *o, const struct dev_optim *a)
{
    struct dev_optim own = *a;
    float *grads = (float *)(uintptr_t)a->g;
    own.k.beta1 = 0;
    own.k.lr = 1;
    own.k.ranks = (float)o->coll->size;
    own.m = grads; /* the gradient, times gscale */
    TRY(optim_reduce(o, OPT_REDUCE_SCALED, &own));
    TRY(squeeze_mean(&o->kept->squeeze,
                     &(struct squeeze_args){.x = grads, .mask = a->v, .stop = a->gscale}));
    return optim_update(o, OPT_UPDATE_SUMMED, a);
}

/* The steps since the last sum as one step of all ranks. */
static enum err synchronise(struct optim *o, const struct dev_optim *a)
{
    struct zeroone *z = o->kept->work;
    struct dev_optim all = *a;
    float *last = o->kept->host;
    if (*last > 0 && z->moved > 0)
        squeeze_rescale(&o->kept->squeeze, *last / (float)z->moved);
    *last = (float)z->moved;
    all.g = z->mean;
    TRY(optim_reduce(o, OPT_REDUCE_MEAN, &all));
    TRY(squeeze_mean(&o->kept->squeeze,
                     &(struct squeeze_args){.x = a->m, .mask = a->v, .stop = a->gscale}));
    TRY(compress_wait_groups(o));
    for (size_t i = 0; i < o->parts.count && z->lr > (double)a->k.lr; i++)
        o->buffers.groups_host[i].inverse1 = (float)(z->moved / z->lr);
    compress_put_groups(o);
    all.g = z->start;
    all.k.lr = (float)z->lr;
    z->lr = z->moved = 0;
    o->kept->apart = false;
    return optim_update(o, OPT_UPDATE_RESTORED, &all);
}

static enum err local_step(struct optim *o, const struct dev_optim *a, int64_t step)
{
    struct zeroone *z = o->kept->work;
    struct dev_optim own = *a;
    double moved = (double)a->k.lr * (double)o->buffers.groups_host[0].inverse1;
    if (step == compress_freeze_steps(o->settings))
        squeeze_forget(&o->kept->squeeze);
    if (!o->kept->apart) {
        o->dev->ops->copy(o->dev, z->start, a->p, o->table->elements * sizeof *a->p);
        o->dev->ops->zero(o->dev, z->mean, o->table->elements * sizeof *z->mean);
    }
    z->lr += (double)a->k.lr;
    z->moved += moved;
    own.p = a->v;
    own.v = z->mean;
    own.k.ranks = (float)o->coll->size;
    own.k.weight = z->moved > 0 ? (float)(moved / z->moved) : 1;
    TRY(optim_reduce(o, OPT_REDUCE_LOCAL, &own));
    if (o->together || !rests(o->settings, step))
        return synchronise(o, a);
    own = *a;
    own.k.weight_decay = 0;
    o->kept->apart = true;
    return optim_update(o, OPT_UPDATE_FROZEN, &own);
}

static enum err step(struct optim *o, const struct dev_optim *a, int64_t step)
{
    if (step >= compress_freeze_steps(o->settings))
        return local_step(o, a, step);
    return sums(o->settings, step) ? o->method->step(o, a) : between_full_sums(o, a);
}

const struct compress_method compress_zeroone = {.sums = sums,
                                                 .second = second,
                                                 .rests = rests,
                                                 .numbers = numbers,
                                                 .plan = plan,
                                                 .open = open_zeroone,
                                                 .step = step};
