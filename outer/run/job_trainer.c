/* SPDX-License-Identifier: Apache-2.0 */
/* `atoll train` as the trainer of an exchange: the model's parameters and the optimizer's moments
 * are the local values. */
#include <math.h>
#include "outer/run/job.h"

struct job_trainer {
    struct exchange_now now;
    float *local; /* host: what this rank holds of the local parameters while the outer ones are
                     looked at; NULL: they are not */
    struct arena arena;
};

static float *moment_of(const struct train *t, const struct fragment *f)
{
    float *moment = t->optim->state[f->state == FRAGMENT_FIRST ? OPTIM_FIRST : OPTIM_SECOND].shard;
    ASSERT(moment); /* outer.moment1_every, moment2_every are refused where there is no moment */
    return moment;
}

static enum err gather(void *self, const struct fragment *f, float *out)
{
    struct train *t = &((struct job *)self)->train;
    if (f->state != FRAGMENT_PARAMETERS) {
        t->dev->ops->gather_ranges(t->dev, out, moment_of(t, f), f->ranges, f->range_count);
        return ERR_OK;
    }
    return weights_read(model_weights(t->model), f->ranges, f->range_count, out);
}

static enum err mix(void *self, const struct fragment *f, const float *theta,
                    const struct dev_lerp *b)
{
    struct train *t = &((struct job *)self)->train;
    if (f->state != FRAGMENT_PARAMETERS) {
        t->dev->ops->lerp_ranges(t->dev, moment_of(t, f), theta, b);
        return ERR_OK;
    }
    return weights_mix(model_weights(t->model), b, theta);
}

static void mixed(void *self)
{
    model_params_changed(((struct job *)self)->train.model);
}

static void moved(void *self, const struct exchange_now *n)
{
    struct train *t = &((struct job *)self)->train;
    t->step = n->step;
    t->tokens = n->tokens;
}

static enum err checkpoint(void *self)
{
    struct train *t = &((struct job *)self)->train;
    return t->saved.step == t->step ? ERR_OK : train_checkpoint(t);
}

static enum err initial(void *self, float *slab)
{
    return run_initial(((struct job *)self)->run, slab);
}

/* Of shared parameters this rank's shard; else the slab. */
static struct dev_range held(const struct train *t)
{
    const struct unit_map *m = weights_units(model_weights(t->model));
    return m ? (struct dev_range){0, unit_shard(m, t->coll->rank)} : slab_all(&t->table);
}

/* What this rank holds <-> `local`. */
static enum err keep_local(struct train *t, float *local, bool back)
{
    struct weights *w = model_weights(t->model);
    bool shared = weights_units(w) != NULL;
    const struct dev_range r = held(t);
    float *here = shared ? weights_shards(w).params : model_gather(t->model, r);
    if (shared)
        TRY(weights_shards_wait(w));
    t->dev->ops->copy(t->dev, back ? here : local, back ? local : here, r.count * sizeof *local);
    if (!shared)
        model_scatter(t->model, r, back);
    if (back && shared)
        TRY(weights_shards_changed(w, false));
    else if (back)
        model_params_changed(t->model);
    return dev_sync(t->dev);
}

enum err job_trainer_open(struct job *j, const struct exchange_options *o, bool looks)
{
    const struct weights *w = model_weights(j->train.model);
    const struct exchange_trainer t = {.self = j,
                                       .dev = j->dev,
                                       .elements = j->train.table.elements,
                                       .checkpoints = j->train.given.checkpoint_dir,
                                       .everywhere = !weights_have_whole(w),
                                       .gather = gather,
                                       .mix = mix,
                                       .mixed = mixed,
                                       .moved = moved,
                                       .checkpoint = checkpoint,
                                       .initial = initial};
    struct job_trainer *x;
    TRY_ALLOC(x = arena_alloc(&j->run->perm, sizeof *x));
    *x = (struct job_trainer){.now.loss = NAN, .arena = dev_arena(j->dev)};
    j->o->trainer = x;
    TRY(exchange_open(&j->o->exchange, o, &t));
    if (looks)
        TRY_ALLOC(x->local = arena_array(&x->arena, held(&j->train).count, sizeof *x->local));
    return ERR_OK;
}

void job_trainer_close(struct job *j)
{
    if (!j->o->trainer)
        return;
    exchange_close(&j->o->exchange);
    arena_free(&j->o->trainer->arena);
}

struct exchange_now *job_now(struct job *j)
{
    struct exchange_now *n = &j->o->trainer->now;
    n->step = j->train.step;
    n->tokens = j->train.tokens;
    n->batch_tokens = (uint64_t)j->s->train_batch_tokens;
    n->charged = train_charged(&j->train);
    return n;
}

void job_now_report(struct job *j, const struct train_report *r)
{
    j->o->trainer->now.loss = r->loss;
    j->o->trainer->now.tokens_per_second = r->tokens_per_second;
}

/* ---- the outer parameters between rounds ---- */

/* newest: exchange_put_outer */
static enum err work_on_outer(struct job *j, bool newest,
                              enum err (*work)(void *self, struct train *t), void *self)
{
    struct train *t = &j->train;
    float *local = j->o->trainer->local;
    ASSERT(local);
    TRY(keep_local(t, local, false));
    TRY(exchange_put_outer(&j->o->exchange, t->step, newest));
    TRY(work(self, t));
    return keep_local(t, local, true);
}

static enum err evaluate(void *self, struct train *t)
{
    return train_evaluate(t, self);
}

enum err job_outer_eval(struct job *j, struct train_eval *e, bool *same)
{
    *same = exchange_merged(&j->o->exchange, j->train.step) || !j->o->trainer->local;
    return *same ? ERR_OK : work_on_outer(j, true, evaluate, e);
}

enum err job_outer_work(struct job *j, enum err (*work)(void *self, struct train *t), void *self)
{
    bool strict = j->run->o.outer_mode == OUTER_MODE_STRICT;
    if (strict && exchange_merged(&j->o->exchange, j->train.step))
        return work(self, &j->train);
    return work_on_outer(j, false, work, self);
}
