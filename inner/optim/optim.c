/* Schedule, clip and update; the formulas of the update are in the device's ops. */
#include "inner/optim/optim.h"
#include <math.h>
#include <string.h>

/* Bounds of LAMB's trust ratio: those of DeepSpeed, clip(rho, .01, 10). */
static const float trust_min = 0.01f, trust_max = 10.0f;

/* Share of the peak, from 1 to lr_end, x from 0 to 1 through the decay. */
static double decayed(const struct settings *s, double x)
{
    if (s->train_decay == TRAIN_DECAY_NONE)
        return 1.0;
    double left = s->train_decay == TRAIN_DECAY_COSINE
                      ? 0.5 * (1.0 + cos(3.14159265358979323846 * x))
                      : 1.0 - x;
    return s->train_lr_end + (1.0 - s->train_lr_end) * left;
}

double optim_lr(const struct settings *s, int64_t step)
{
    int64_t flat = s->train_warmup + s->train_stable_steps;
    if (step < s->train_warmup)
        return s->train_lr * (double)(step + 1) / (double)s->train_warmup;
    if (step < flat || s->train_steps <= flat)
        return s->train_lr;
    double x = (double)(step - flat) / (double)(s->train_steps - flat);
    return s->train_lr * decayed(s, x < 1.0 ? x : 1.0);
}

/* ---- parts ---------------------------------------------------------------------------------- */
size_t optim_cut(const struct table *t, int rank, int ranks)
{
    size_t even = t->elements / (size_t)ranks * (size_t)rank;
    if (rank == ranks)
        return t->elements;
    for (size_t i = t->count; i-- > 0;) {
        const struct tensor *x = &t->tensors[i];
        if (x->offset > even)
            continue;
        size_t runs = (even - x->offset) / DEV_RUN * DEV_RUN,
               next = i + 1 < t->count ? x[1].offset : t->elements;
        return runs < x->count ? x->offset + runs : next;
    }
    return 0;
}

static bool in_parts(const struct settings *s, int ranks)
{
    return s->train_zero_stage && ranks > 1;
}

size_t optim_plan(const struct settings *s, const struct table *t, int ranks)
{
    size_t most = 0, parts = in_parts(s, ranks) ? (size_t)ranks : 1;
    for (size_t r = 0; r < parts; r++) {
        size_t mine = optim_cut(t, (int)r + 1, (int)parts) - optim_cut(t, (int)r, (int)parts);
        most = mine > most ? mine : most;
    }
    return 2 * most * sizeof(float);
}

static enum err cut_parts(struct optim *o, const struct table *t, struct arena *perm)
{
    struct coll *c = o->coll;
    o->end = t->elements;
    if (!in_parts(o->settings, c->size))
        return ERR_OK;
    TRY_ALLOC(o->first = arena_array(perm, (size_t)c->size + 1, sizeof *o->first));
    for (int r = 0; r <= c->size; r++)
        o->first[r] = optim_cut(t, r, c->size);
    o->begin = o->first[c->rank];
    o->end = o->first[c->rank + 1];
    return ERR_OK;
}

/* The tensors' ranges within this rank's part, counted from its begin. */
static enum err cut_ranges(struct optim *o, const struct table *t, struct arena *perm)
{
    TRY_ALLOC(o->ranges = arena_array(perm, t->count, sizeof *o->ranges));
    o->tensors = t->count;
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        size_t from = x->offset > o->begin ? x->offset : o->begin, to = x->offset + x->count;
        to = to < o->end ? to : o->end;
        if (from >= to)
            continue;
        if (o->range_count == 0)
            o->first_tensor = i;
        o->ranges[o->range_count++] = (struct dev_range){from - o->begin, to - from, x->decay};
    }
    return ERR_OK;
}

/* ---- open ---------------------------------------------------------------------------------- */
static enum err take_slabs(struct optim *o)
{
    size_t count = o->end - o->begin;
    TRY(dev_alloc(o->dev, (void **)&o->m, count * sizeof *o->m));
    TRY(dev_alloc(o->dev, (void **)&o->v, count * sizeof *o->v));
    TRY(dev_alloc(o->dev, (void **)&o->gscale, sizeof *o->gscale));
    TRY(dev_alloc(o->dev, (void **)&o->tally, OPTIM_TALLY * sizeof *o->tally));
    return dev_alloc(o->dev, (void **)&o->norms, o->first ? 2 * o->tensors * sizeof *o->norms : 0);
}

static enum err open_parts(struct optim *o, const struct table *t, struct arena *perm)
{
    TRY(cut_parts(o, t, perm));
    TRY(cut_ranges(o, t, perm));
    return take_slabs(o);
}

enum err optim_open(struct optim *o, struct dev *d, struct coll *c, const struct settings *s,
                    const struct table *t, struct arena *perm)
{
    *o = (struct optim){.dev = d, .coll = c, .settings = s};
    enum err e = open_parts(o, t, perm);
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
    dev_free(o->dev, o->gscale);
    dev_free(o->dev, o->tally);
    dev_free(o->dev, o->norms);
    *o = (struct optim){0};
}

/* ---- step ---------------------------------------------------------------------------------- */
static struct dev_adam arguments(const struct optim *o, struct model *m, int64_t step)
{
    const struct settings *s = o->settings;
    double t = (double)(step + 1);
    return (struct dev_adam){
        .p = model_params(m) + o->begin,
        .m = o->m,
        .v = o->v,
        .g = model_grads(m) + o->begin,
        .model =
            model_copy(m) && !model_rounds_by_step(m) ? (uint16_t *)model_copy(m) + o->begin : NULL,
        .gscale = o->gscale,
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

/* The sums over the ranks, the global norm, and from it the scale of the gradient. Of shared-out
 * parts the squares are summed, too; else every rank has the whole. */
static enum err clip(struct optim *o, struct model *m)
{
    struct dev *d = o->dev;
    double *tally = o->tally;
    d->ops->sumsq(d, tally + OPTIM_SQUARE, model_grads(m) + o->begin, o->end - o->begin);
    TRY(o->coll->ops->sum(o->coll, tally, o->first ? OPTIM_TALLY : OPTIM_SQUARE));
    d->ops->clip_scale(d, o->gscale, tally + OPTIM_SQUARE, tally + OPTIM_LOSS,
                       (float)o->settings->train_clip);
    return ERR_OK;
}

/* LAMB where a tensor's norms are the sum of what several ranks hold of it. */
static enum err lamb_in_parts(struct optim *o, const struct dev_adam *a)
{
    struct dev *d = o->dev;
    double *mine = o->norms + 2 * o->first_tensor;
    d->ops->zero(d, o->norms, 2 * o->tensors * sizeof *o->norms);
    d->ops->lamb_norms(d, mine, a, o->ranges, o->range_count);
    TRY(o->coll->ops->sum(o->coll, o->norms, 2 * o->tensors));
    d->ops->lamb_apply(d, mine, a, o->ranges, o->range_count);
    return ERR_OK;
}

enum err optim_step(struct optim *o, struct model *m, int64_t step)
{
    struct dev *d = o->dev;
    TRY(clip(o, m));
    struct dev_adam a = arguments(o, m, step);
    if (o->settings->train_optimizer == OPTIM_ADAMW)
        d->ops->adamw(d, &a, o->ranges, o->range_count);
    else if (o->first)
        TRY(lamb_in_parts(o, &a));
    else
        d->ops->lamb(d, &a, o->ranges, o->range_count);
    model_name_step(m, step + 1);
    if (o->first)
        TRY(o->coll->ops->gather(o->coll, model_params(m), o->first));
    if (o->first || model_rounds_by_step(m)) /* else the update has written the copy */
        model_params_changed(m);
    return ERR_OK;
}
