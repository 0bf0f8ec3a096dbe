/* SPDX-License-Identifier: Apache-2.0 */
/* Modules of the layers: which are here, their boundaries between ranks, their passes. */
#include "inner/methods/pipeline.h"
#include <string.h>
#include "kernels/base/log.h"
#include "kernels/base/mutant.h"

enum { DIRECTIONS = 2, FORWARD = 0, BACKWARD = 1 };

/* ---- who has what ---- */
enum err pipeline_check(const struct settings *s, int ranks)
{
    long long cuts = s->train_modules - 1, below = cuts / ranks * ranks;
    if (cuts % ranks == 0)
        return ERR_OK;
    return err_set(
        ERR_CONFIG,
        "train.modules = %lld on %d ranks: the number of ranks must divide train.modules "
        "- 1, so that rank 0 has both ends of the model; use train.modules = %lld, or "
        "%lld ranks",
        cuts + 1, ranks, below ? below + 1 : (long long)ranks + 1, cuts);
}

bool pipeline_own(const struct pipeline *p, size_t k)
{
    return p->modules[k].rank == p->parts.coll->rank;
}

/* Where module k of K begins: both ends have half of the layers of another module, since rank 0 has
 * both. */
static size_t layer_at(size_t layers, size_t k, size_t K)
{
    size_t twice = 2 * (K - 1);
    if (k == 0 || k == K)
        return k ? layers : 0;
    return ((2 * k - 1) * layers + (K - 1)) / twice;
}

static size_t element_at(const struct table *t, size_t layer)
{
    size_t i = 0;
    while (t->tensors[i].layer < (int)layer)
        i++;
    return t->tensors[i].offset;
}

static void cut_modules(struct pipeline *p)
{
    size_t layers = (size_t)p->parts.settings->model_layers, K = p->count;
    for (size_t k = 0; k < K; k++) {
        struct pipeline_module *x = &p->modules[k];
        x->first = layer_at(layers, k, K);
        x->end = layer_at(layers, k + 1, K);
        x->offset = k ? element_at(p->parts.table, x->first) : 0;
        x->stop = k + 1 < K ? element_at(p->parts.table, x->end) : p->parts.table->elements;
        x->rank = (int)(k % (size_t)p->parts.coll->size);
        x->delay = p->stale_from < INT64_MAX ? (int64_t)(K - 1 - k) : 0;
        ASSERT(x->first < x->end);
    }
}

/* The table of a tied head is in the first module, and the last one's gradient of it is fresh. */
static void delay_tensors(struct pipeline *p)
{
    size_t k = 0;
    for (size_t i = 0; i < p->parts.table->count; i++) {
        const struct tensor *x = &p->parts.table->tensors[i];
        while (x->offset >= p->modules[k].stop)
            k++;
        p->delays[i] = pipeline_own(p, k) ? p->modules[k].delay : OPTIM_ELSEWHERE;
        if (p->parts.settings->model_tie_embeddings && !strcmp(x->name, "wte.weight") &&
            pipeline_own(p, k))
            p->delays[i] = 0;
    }
}

/* ---- memory ---- */
static size_t kept_slabs(const struct settings *s)
{
    return s->train_pipeline == TRAIN_PIPELINE_STALE ? (size_t)s->train_modules - 1 : 0;
}

size_t pipeline_kept_slabs(const struct pipeline *p)
{
    return kept_slabs(p->parts.settings);
}

size_t pipeline_plan(const struct settings *s, const struct table *t, enum dtype model_type,
                     size_t tokens_max)
{
    size_t copy = model_type == DTYPE_F32 ? 0 : dtype_size(model_type),
           boundary = tokens_max * (size_t)s->model_d_model * dtype_size(model_type),
           cuts = (size_t)s->train_modules - 1;
    return kept_slabs(s) * t->elements * (sizeof(float) + copy) + DIRECTIONS * cuts * boundary;
}

static enum err alloc_buffers(struct pipeline *p)
{
    struct dev *d = p->parts.dev;
    size_t bytes = model_boundary_bytes(p->parts.model), elements = p->parts.table->elements;
    for (size_t k = 1; k < p->count; k++) {
        TRY(dev_alloc(d, &p->modules[k].input, bytes));
        TRY(dev_alloc(d, &p->modules[k].error, bytes));
    }
    for (size_t i = 0; i < kept_slabs(p->parts.settings); i++) {
        TRY(dev_alloc(d, (void **)&p->params[i], elements * sizeof **p->params));
        d->ops->zero(d, p->params[i], elements * sizeof **p->params);
        if (model_params_bf16(p->parts.model))
            TRY(dev_alloc(d, &p->copies[i], elements * dtype_size(d->model_type)));
    }
    return ERR_OK;
}

static void log_modules(const struct pipeline *p)
{
    for (size_t k = 0; k < p->count && p->parts.coll->rank == 0; k++) {
        const struct pipeline_module *x = &p->modules[k];
        log_event(LOG_INFO, "module", "module=%zu layers=%zu-%zu rank=%d delay_steps=%lld", k,
                  x->first, x->end - 1, x->rank, (long long)x->delay);
    }
}

enum err pipeline_open(struct pipeline **out, const struct method_parts *parts, struct arena *perm)
{
    const struct settings *s = parts->settings;
    struct pipeline *p;
    if (parts->coll->size > 1 && !parts->dev->host_memory)
        return err_set(ERR_UNSUPPORTED,
                       "train.modules = %lld on several GPUs: messages between ranks are built for "
                       "CPU ranks; use device.kind = cpu, or train.modules = 1",
                       (long long)s->train_modules);
    TRY_ALLOC(*out = p = arena_alloc(perm, sizeof *p));
    p->parts = *parts;
    p->count = (size_t)s->train_modules;
    p->loaded = -1;
    bool stale = s->train_pipeline == TRAIN_PIPELINE_STALE && !WITHOUT(STALE_GRADIENTS);
    p->stale_from = stale ? keys_warmup(s) : INT64_MAX;
    TRY_ALLOC(p->modules = arena_array(perm, p->count, sizeof *p->modules));
    TRY_ALLOC(p->delays = arena_array(perm, p->parts.table->count, sizeof *p->delays));
    TRY_ALLOC(p->params = arena_array(perm, p->count, sizeof *p->params));
    TRY_ALLOC(p->copies = arena_array(perm, p->count, sizeof *p->copies));
    cut_modules(p);
    delay_tensors(p);
    p->parts.optim->delays.steps = p->delays;
    p->parts.optim->delays.from = p->stale_from;
    log_modules(p);
    return alloc_buffers(p);
}

void pipeline_close(struct pipeline *p)
{
    for (size_t k = 0; p && p->copies && k < p->count; k++) {
        dev_free(p->parts.dev, p->modules[k].input);
        dev_free(p->parts.dev, p->modules[k].error);
        dev_free(p->parts.dev, p->params[k]);
        dev_free(p->parts.dev, p->copies[k]);
    }
}

/* ---- passes ---- */
void pipeline_load(struct pipeline *p, int64_t step)
{
    if (p->loaded == step)
        return;
    objective_step(p->parts.loader, (uint64_t)step, 0, p->parts.loader->rank_sequences,
                   p->parts.batch);
    batch_weigh(p->parts.batch, (float)objective_sequence_weight(p->parts.loader, (uint64_t)step));
    p->loaded = step;
}

static int tag_of(size_t k, int direction)
{
    return (int)(DIRECTIONS * k) + direction;
}

/* The buffer of a boundary: at both ranks, or the same where one rank has both modules. k is the
 * module after the boundary, `peer` the module that reads or writes the other end. */
static enum err receive(struct pipeline *p, void *x, size_t k, size_t peer, int direction)
{
    const struct coll_ops *ops = p->parts.coll->ops;
    if (pipeline_own(p, peer))
        return ERR_OK;
    return ops->recv(p->parts.coll, x, model_boundary_bytes(p->parts.model), p->modules[peer].rank,
                     tag_of(k, direction));
}

static enum err send(struct pipeline *p, const void *x, size_t k, size_t peer, int direction)
{
    const struct coll_ops *ops = p->parts.coll->ops;
    if (pipeline_own(p, peer))
        return ERR_OK;
    TRY(dev_sync(p->parts.dev));
    return ops->send_begin(p->parts.coll, x, model_boundary_bytes(p->parts.model),
                           p->modules[peer].rank, tag_of(k, direction));
}

/* Before a write: waits until the previous message has left the buffer. */
static enum err buffer_free(struct pipeline *p, size_t k, size_t peer, int direction)
{
    return pipeline_own(p, peer)
               ? ERR_OK
               : p->parts.coll->ops->send_wait(p->parts.coll, tag_of(k, direction));
}

static struct model_part part_of(const struct pipeline *p, size_t k, int64_t step)
{
    struct model_part x = {.first = p->modules[k].first,
                           .end = p->modules[k].end,
                           .set = kept_slabs(p->parts.settings) ? 1 + (size_t)step % p->count : 0};
    if (step < p->step) {
        x.params = p->params[(size_t)step % (p->count - 1)];
        x.copy = p->copies[(size_t)step % (p->count - 1)];
    }
    return x;
}

enum err pipeline_fwd(struct pipeline *p, size_t k, int64_t step)
{
    const struct model_part part = part_of(p, k, step);
    bool last = k + 1 == p->count;
    void *in = p->modules[k].input, *out = last ? NULL : p->modules[k + 1].input;
    pipeline_load(p, step);
    if (k)
        TRY(receive(p, in, k, k - 1, FORWARD));
    if (!last)
        TRY(buffer_free(p, k + 1, k + 1, FORWARD));
    TRY(model_part_fwd(p->parts.model, p->parts.batch, &part, in, out,
                       p->parts.optim->buffers.stats + STEP_LOSS));
    return last ? ERR_OK : send(p, out, k + 1, k + 1, FORWARD);
}

/* MPI advances only inside its calls. */
static void advance(void *self, size_t from)
{
    struct coll *c = self;
    (void)from;
    (void)!c->ops->progress(c);
}

enum err pipeline_bwd(struct pipeline *p, size_t k, int64_t step)
{
    const struct model_part part = part_of(p, k, step);
    const struct model_grad_hook hook = {p->parts.coll, advance};
    bool last = k + 1 == p->count;
    void *dout = last ? NULL : p->modules[k + 1].error, *din = p->modules[k].error;
    pipeline_load(p, step);
    if (!last && !p->modules[k].here)
        TRY(receive(p, dout, k + 1, k + 1, BACKWARD));
    p->modules[k].here = false;
    if (k)
        TRY(buffer_free(p, k, k - 1, BACKWARD));
    TRY(model_part_bwd(p->parts.model, p->parts.batch, &part, dout, din, &hook));
    return k ? send(p, din, k, k - 1, BACKWARD) : ERR_OK;
}

enum err pipeline_fetch(struct pipeline *p)
{
    for (size_t k = 0; k + 1 < p->count; k++) {
        struct pipeline_module *x = &p->modules[k];
        if (!x->sent)
            continue;
        TRY(receive(p, x[1].error, k + 1, k + 1, BACKWARD));
        x->sent = false;
        x->here = true;
    }
    return ERR_OK;
}

/* ---- slabs ---- */
void pipeline_keep(struct pipeline *p, int64_t step)
{
    size_t slot = (size_t)step % (p->count - 1);
    const struct dev_ops *ops = p->parts.dev->ops;
    for (size_t k = 0; k < p->count; k++) {
        size_t at = p->modules[k].offset, count = p->modules[k].stop - at;
        float *kept = p->params[slot] + at;
        if (!pipeline_own(p, k))
            continue;
        const struct dev_range own = {at, count};
        ops->copy(p->parts.dev, kept, model_gather(p->parts.model, own), count * sizeof *kept);
        model_scatter(p->parts.model, own, false);
        if (p->copies[slot])
            ops->cast(p->parts.dev,
                      (char *)p->copies[slot] + at * dtype_size(p->parts.dev->model_type), kept,
                      count);
    }
}

enum err pipeline_gather(struct pipeline *p, float *slab)
{
    size_t first[64 + 1];
    int ranks = p->parts.coll->size;
    ASSERT((size_t)ranks < sizeof first / sizeof *first);
    TRY(dev_sync(p->parts.dev));
    for (size_t k = 0; k < p->count && ranks > 1; k++) {
        for (int r = 0; r <= ranks; r++)
            first[r] = r <= p->modules[k].rank ? 0 : p->modules[k].stop - p->modules[k].offset;
        TRY(p->parts.coll->ops->all_gather(p->parts.coll, slab + p->modules[k].offset, sizeof *slab,
                                           first));
    }
    return ERR_OK;
}
