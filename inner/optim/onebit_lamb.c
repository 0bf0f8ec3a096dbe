/* SPDX-License-Identifier: Apache-2.0 */
/* 1-bit LAMB (Li et al. 2022, 2104.06069). Stage 1, train.compress_start of the steps: LAMB, whose
 * ratio c of each part (tensor or projection) is averaged where it is not 1. Stage 2, with v frozen
 * and vf a copy of it at the freeze, s_l = mean over the parts of rms(m) / rms(m_l) at the freeze:
 *
 *     z   = s_l (beta1 m + (1 - beta1) g_i)     of this rank's gradient
 *     m'  = mean of z in signs / s_l            squeeze_mean, one scale for all
 *     vf  = beta2 vf + (1 - beta2) ((m' - beta1 m) / (1 - beta1))^2
 *     a   = m' / (sqrt(v) + eps);  u = a + weight_decay x
 *     f   = max over the part of (sqrt(v) + eps) / (sqrt(vf) + eps), moderated (factor_of)
 *     x   = x - lr c_avg f u
 *
 * Biases and norms have ratio 1. Tensors that AdamW steps (train.trust_layers = hidden) have c_avg
 * = f = 1: 1-bit Adam. The moderation reads a few sums of each part on the host.
 */
#include "inner/optim/compress.h"
#include <math.h>
#include "inner/optim/optim.h"

/* Of each part: the mean ratio (0: no ratio but 1 yet), s_l, the last f. */
enum number { NUMBER_RATIO, NUMBER_SCALE, NUMBER_FACTOR, NUMBERS };
/* As published: decay of the mean ratio, bounds of f, change of f in a step. */
static const double ratio_decay = 0.9, factor_min = 0.5, factor_max = 4.0, factor_step = 0.1;

static float *number(struct optim *o, enum number which)
{
    return o->kept->host + (size_t)which * o->parts.count;
}

static size_t numbers(size_t parts)
{
    return NUMBERS * parts;
}

static bool sums(const struct settings *s, int64_t step)
{
    return step < compress_freeze_steps(s);
}

/* The part's ratio of this step, from squares of x and of LAMB's direction. */
static double ratio_of(const struct optim *o, size_t part, double p2, double u2)
{
    struct opt_scalars k = o->kept->scalars;
    k.trust = o->buffers.groups_host[part].trust;
    return (double)opt_trust(&k, p2, u2);
}

static enum err warm_up(struct optim *o, const struct dev_optim *a)
{
    TRY(optim_reduce(o, OPT_REDUCE_LAMB, a));
    TRY(compress_read_sums(o));
    for (size_t i = 0; i < o->parts.count; i++) {
        double c = ratio_of(o, i, o->kept->sums[i], o->kept->sums[o->parts.count + i]);
        float *mean = &number(o, NUMBER_RATIO)[i];
        if (c != 1)
            *mean = (float)(ratio_decay * (double)*mean + (1 - ratio_decay) * c);
    }
    return optim_update(o, OPT_UPDATE_LAMB, a);
}

/* At the freeze. */
static enum err freeze(struct optim *o, const struct dev_optim *a)
{
    double mean = 0;
    TRY(optim_reduce(o, OPT_REDUCE_MOMENT, a));
    TRY(compress_read_sums(o));
    for (size_t i = 0; i < o->parts.count; i++)
        mean += sqrt(o->kept->sums[i] / (double)o->parts.list[i].count) / (double)o->parts.count;
    for (size_t i = 0; i < o->parts.count; i++) {
        double rms = sqrt(o->kept->sums[i] / (double)o->parts.list[i].count);
        number(o, NUMBER_SCALE)[i] = rms > 0 ? (float)(mean / rms) : 1.0f;
        number(o, NUMBER_FACTOR)[i] = 1;
    }
    o->dev->ops->copy(o->dev, o->kept->slab, a->v, o->table->elements * sizeof *a->v);
    return dev_sync(o->dev);
}

static double between(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

/* f of a part from its largest ratio of second moments and the squares of a and u. */
static double factor_of(double ratio, double a2, double u2, double decay, double last)
{
    double rho = u2 > 0 ? sqrt(a2 / u2) : 1, f = ratio;
    if (decay > 0) {
        rho = rho < 1 ? rho : 1;
        f = f * rho + 1 - rho;
    }
    f = between(f, factor_min, factor_max);
    return between(f, (1 - factor_step) * last, (1 + factor_step) * last);
}

/* The factors of this step become step sizes. */
static enum err moderate(struct optim *o)
{
    TRY(compress_read_sums(o));
    TRY(compress_wait_groups(o));
    for (size_t i = 0; i < o->parts.count; i++) {
        double decay = (double)(o->buffers.groups_host[i].decay * o->kept->scalars.weight_decay);
        float *last = &number(o, NUMBER_FACTOR)[i], mean = number(o, NUMBER_RATIO)[i];
        *last = (float)factor_of((double)o->kept->ratios_host[i], o->kept->sums[i],
                                 o->kept->sums[o->parts.count + i], decay, (double)*last);
        bool beside = optim_beside(o, o->parts.list[i].tensor);
        o->buffers.groups_host[i].lr =
            beside ? o->kept->rates[i] : o->kept->rates[i] * (mean > 0 ? mean : 1) * *last;
    }
    compress_put_groups(o);
    return ERR_OK;
}

static enum err step(struct optim *o, const struct dev_optim *a, int64_t step)
{
    struct dev_optim own = *a, fresh = *a;
    float *grads = (float *)(uintptr_t)a->g;
    o->kept->scalars = a->k;
    if (sums(o->settings, step))
        return warm_up(o, a);
    if (step == compress_freeze_steps(o->settings))
        TRY(freeze(o, a));
    TRY(compress_wait_groups(o));
    for (size_t i = 0; i < o->parts.count; i++) {
        o->kept->rates[i] = o->buffers.groups_host[i].lr;
        o->buffers.groups_host[i].lr = number(o, NUMBER_SCALE)[i];
    }
    compress_put_groups(o);
    own.k.lr = fresh.k.lr = 1;
    own.k.ranks = (float)o->coll->size;
    own.p = a->m;
    own.m = grads;
    TRY(optim_reduce(o, OPT_REDUCE_SCALED, &own));
    TRY(squeeze_mean(&o->kept->squeeze,
                     &(struct squeeze_args){.x = grads, .mask = a->v, .stop = a->gscale}));
    fresh.v = o->kept->slab;
    TRY(optim_reduce(o, OPT_REDUCE_UNSCALED, &fresh));
    TRY(optim_reduce(o, OPT_REDUCE_DIRECTIONS, a));
    o->dev->ops->range_moments(o->dev, o->kept->ratios,
                               &(struct dev_moments){.v = a->v,
                                                     .fresh = o->kept->slab,
                                                     .eps = a->k.eps,
                                                     .ranges = o->kept->ranges,
                                                     .n = o->parts.count});
    TRY(moderate(o));
    return optim_update(o, OPT_UPDATE_FROZEN, a);
}

const struct compress_method compress_onebit_lamb = {.sums = sums,
                                                     .second = compress_until_freeze,
                                                     .one_scale = true,
                                                     .slab = true,
                                                     .numbers = numbers,
                                                     .step = step};
