/* Schedule, clip and update; the formulas of the update are in the device's ops. */
#include "inner/optim/optim.h"
#include <math.h>
#include <string.h>

/* Bounds of LAMB's trust ratio: those of DeepSpeed, clip(rho, .01, 10). */
static const float trust_min = 0.01f, trust_max = 10.0f;

/* Share of the peak, from 1 to lr_end, x from 0 to 1 through the decay. */
static double decayed(const struct settings *s, double x)
{
    if (!strcmp(s->train_decay, "none"))
        return 1.0;
    double left =
        strcmp(s->train_decay, "linear") ? 0.5 * (1.0 + cos(3.14159265358979323846 * x)) : 1.0 - x;
    return s->train_lr_end + (1.0 - s->train_lr_end) * left;
}

double optim_lr(const struct settings *s, int64_t step)
{
    int64_t flat = s->train_warmup + s->train_hold;
    if (step < s->train_warmup)
        return s->train_lr * (double)(step + 1) / (double)s->train_warmup;
    if (step < flat || s->train_steps <= flat)
        return s->train_lr;
    double x = (double)(step - flat) / (double)(s->train_steps - flat);
    return s->train_lr * decayed(s, x < 1.0 ? x : 1.0);
}

size_t optim_plan(const struct table *t)
{
    return 2 * t->elements * sizeof(float);
}

static enum err take_slabs(struct optim *o)
{
    TRY(dev_alloc(o->dev, (void **)&o->m, o->elements * sizeof *o->m));
    TRY(dev_alloc(o->dev, (void **)&o->v, o->elements * sizeof *o->v));
    return dev_alloc(o->dev, (void **)&o->scalars, 2 * sizeof *o->scalars);
}

enum err optim_open(struct optim *o, struct dev *d, const struct settings *s, const struct table *t,
                    struct arena *perm)
{
    *o = (struct optim){.dev = d, .settings = s, .range_count = t->count, .elements = t->elements};
    TRY_ALLOC(o->ranges = arena_array(perm, t->count, sizeof *o->ranges));
    for (size_t i = 0; i < t->count; i++)
        o->ranges[i] =
            (struct dev_range){t->tensors[i].offset, t->tensors[i].count, t->tensors[i].decay};
    enum err e = take_slabs(o);
    if (e)
        optim_close(o);
    return e;
}

void optim_close(struct optim *o)
{
    if (!o->dev)
        return;
    dev_free(o->dev, o->m);
    dev_free(o->dev, o->v);
    dev_free(o->dev, o->scalars);
    *o = (struct optim){0};
}

static struct dev_adam arguments(const struct optim *o, struct model *m, int64_t step)
{
    const struct settings *s = o->settings;
    double t = (double)(step + 1);
    return (struct dev_adam){
        .p = model_params(m),
        .m = o->m,
        .v = o->v,
        .g = model_grads(m),
        .model = model_copy(m),
        .gscale = &o->scalars[1],
        .lr = (float)optim_lr(s, step),
        .beta1 = (float)s->train_beta1,
        .beta2 = (float)s->train_beta2,
        .eps = (float)s->train_eps,
        .weight_decay = (float)s->train_weight_decay,
        .bias1 = (float)(1.0 - pow(s->train_beta1, t)),
        .bias2 = (float)(1.0 - pow(s->train_beta2, t)),
        .trust_min = trust_min,
        .trust_max = trust_max,
    };
}

enum err optim_step(struct optim *o, struct model *m, int64_t step, float *norm)
{
    struct dev *d = o->dev;
    float sum = 0;
    d->ops->sumsq(d, &o->scalars[0], model_grads(m), o->elements);
    d->ops->clip_scale(d, &o->scalars[1], &o->scalars[0], (float)o->settings->train_clip);
    d->ops->copy(d, &sum, &o->scalars[0], sizeof sum);
    TRY(dev_sync(d));
    *norm = sqrtf(sum);
    if (!isfinite(sum))
        return err_set(ERR_DIVERGED, "the gradient of step %lld is not finite",
                       (long long)(step + 1));
    struct dev_adam a = arguments(o, m, step);
    if (!strcmp(o->settings->train_optimizer, "adamw"))
        d->ops->adamw(d, &a, o->ranges, o->range_count);
    else
        d->ops->lamb(d, &a, o->ranges, o->range_count);
    return dev_sync(d);
}
