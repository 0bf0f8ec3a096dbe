/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallel: every rank has all layers and its share of the batch, and the gradients are summed
 * over the ranks. */
#include "inner/train/train_parallel.h"
#include "inner/model/depth.h"
#include "inner/train/train_tune.h"
#include "kernels/base/mutant.h"

struct batch_division {
    struct grad_reduce reduce;
    struct grad_units units;    /* of reduce, where the ranks share the gradients out */
    void *memory;               /* device: of the reducer, or NULL */
    struct dev_range *learning; /* (table.count) of the slab; NULL: always the whole */
};

const struct train_parallel *parallel_of(const struct settings *s)
{
    if (s->privacy_unit != PRIVACY_UNIT_NONE)
        return &parallel_private;
    return s->train_modules > 1 ? &parallel_modules : &parallel_batch;
}

static size_t bucket_elements(const struct settings *s)
{
    double elements = s->train_bucket_mb * (1 << 20) / sizeof(float);
    return s->train_bucket_mb > 0 && elements < 1 ? 1 : (size_t)elements;
}

static bool clips_buckets(const struct settings *s)
{
    return s->train_clip_per == TRAIN_CLIP_PER_BUCKET && s->train_max_grad_norm > 0;
}

static enum err open_clip(struct train *t, struct grad_clip *c)
{
    const double one = 1;
    if (!clips_buckets(t->settings))
        return ERR_OK;
    c->norm = (float)t->settings->train_max_grad_norm;
    TRY(dev_alloc(t->dev, (void **)&c->norms, 2 * sizeof *c->norms));
    TRY(dev_alloc(t->dev, (void **)&c->factor, sizeof *c->factor));
    t->dev->ops->copy(t->dev, c->norms + 1, &one, sizeof one);
    return ERR_OK;
}

static enum err open_batch(struct train *t, struct train_division *d, struct arena *perm)
{
    const struct settings *s = t->settings;
    struct batch_division *x;
    TRY_ALLOC(d->state = x = arena_alloc(perm, sizeof *x));
    d->reduce = &x->reduce;
    if (depth_drops(s) || depth_stages(s))
        TRY_ALLOC(x->learning = arena_array(perm, t->table.count, sizeof *x->learning));
    TRY(dev_alloc(t->dev, &x->memory,
                  t->memory.reducer)); /* optim_open takes the rest of grad_reduce */
    x->reduce = (struct grad_reduce){.coll = t->coll,
                                     .dev = t->dev,
                                     .reducer = reducer_of(s),
                                     .memory = x->memory,
                                     .grads = model_grads(t->model),
                                     .elements = t->table.elements,
                                     .bucket = bucket_elements(s)};
    if (weights_units(model_weights(t->model))) {
        x->units = (struct grad_units){.map = weights_units(model_weights(t->model)),
                                       .shard = weights_shards(model_weights(t->model)).grads};
        x->reduce.units = &x->units;
    }
    return open_clip(t, &x->reduce.clip);
}

static void close_batch(struct train *t)
{
    struct batch_division *x = t->division.state;
    if (!x)
        return;
    dev_free(t->dev, x->memory);
    dev_free(t->dev, x->reduce.clip.norms);
    dev_free(t->dev, x->reduce.clip.factor);
}

static void choose_ranges(struct train *t, struct batch_division *x)
{
    x->reduce.ranges = x->learning;
    if (x->learning)
        x->reduce.range_count =
            depth_ranges(t->settings, &t->table, (uint64_t)t->step, true, x->learning);
}

/* Accumulates the gradients of this rank's share in the model's slab, and the losses in the
 * statistics: sums over targets, micro-batches and then ranks, divided in optim_step only. A
 * sequence's loss has the weight (token targets / sequence targets) of the site's step, so that one
 * division makes both means. The backward of the last micro-batch overlaps with the all-reduce of
 * gradients that are final (docs/methods.md 3.3). */
static enum err backward(struct train *t, struct step_targets *targets)
{
    size_t sequences = t->data.loader->rank_sequences;
    struct batch_division *x = t->division.state;
    const struct model_grad_hook hook = {&x->reduce, grad_reduce_ready};
    batch_weigh(t->data.batch, (float)objective_sequence_weight(t->data.loader, (uint64_t)t->step));
    x->reduce.local = !compress_sums(t->settings, t->step);
    choose_ranges(t, x);
    if (model_grads(t->model))
        grad_reduce_begin(&x->reduce);
    for (size_t at = 0; at < sequences; at += t->data.micro_sequences) {
        size_t left = sequences - at,
               count = left < t->data.micro_sequences ? left : t->data.micro_sequences;
        bool hooked =
            (left == count || WITHOUT(ACCUMULATION)) && t->coll->size > 1 && model_grads(t->model);
        objective_step(t->data.loader, (uint64_t)t->step, at, count, t->data.batch);
        tune_profile_batch(t);
        profile_record(t->running.tune->profile, PROFILE_GAP);
        parallel_count_targets(t, targets);
        x->reduce.clip.targets = (double)targets->divisor;
        TRY(model_accumulate(t->model, t->data.batch, 1, hooked ? &hook : NULL,
                             t->optim->buffers.stats + STEP_LOSS));
        if (WITHOUT(ACCUMULATION) && left > count) {
            TRY(grad_reduce_wait(&x->reduce));
            grad_reduce_begin(&x->reduce);
        }
    }
    return ERR_OK;
}

static enum err reduce(struct train *t)
{
    if (!model_grads(t->model)) /* unit by unit, in the backward */
        return weights_grads_wait(model_weights(t->model));
    TRY(grad_reduce_wait(t->division.reduce));
    return compress_reduce(t->optim, model_grads(t->model), t->step);
}

static void plan_nothing(struct train_memory *m, const struct train_sizes *p)
{
    (void)m, (void)p;
}

const struct train_parallel parallel_batch = {.check = parallel_any_ranks,
                                              .batch_ranks = parallel_all_ranks,
                                              .plan = plan_nothing,
                                              .secret = false,
                                              .open = open_batch,
                                              .close = close_batch,
                                              .charge = parallel_nothing,
                                              .backward = backward,
                                              .reduce = reduce,
                                              .gather = parallel_nothing,
                                              .resumed = parallel_nothing,
                                              .earlier = parallel_no_earlier,
                                              .lengthened = method_keeps_past};
