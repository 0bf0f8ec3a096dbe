/* Modules of the layers: which are here, their boundaries between ranks, their passes. */
#include "inner/methods/pipeline.h"
#include <string.h>
#include "kernels/base/log.h"

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

bool pipeline_own(const struct train *t, size_t k)
{
    return t->pipeline->modules[k].rank == t->coll->rank;
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

static void cut_modules(struct train *t)
{
    struct pipeline *p = t->pipeline;
    size_t layers = (size_t)t->settings->model_layers, K = p->count;
    for (size_t k = 0; k < K; k++) {
        struct pipeline_module *x = &p->modules[k];
        x->first = layer_at(layers, k, K);
        x->end = layer_at(layers, k + 1, K);
        x->offset = k ? element_at(&t->table, x->first) : 0;
        x->stop = k + 1 < K ? element_at(&t->table, x->end) : t->table.elements;
        x->rank = (int)(k % (size_t)t->coll->size);
        x->delay = p->stale_from < INT64_MAX ? (int64_t)(K - 1 - k) : 0;
        ASSERT(x->first < x->end);
    }
}

/* The table of a tied head is in the first module, and the last one's gradient of it is fresh. */
static void delay_tensors(struct train *t)
{
    struct pipeline *p = t->pipeline;
    size_t k = 0;
    for (size_t i = 0; i < t->table.count; i++) {
        const struct tensor *x = &t->table.tensors[i];
        while (x->offset >= p->modules[k].stop)
            k++;
        p->delays[i] = pipeline_own(t, k) ? p->modules[k].delay : OPTIM_ELSEWHERE;
        if (t->settings->model_tied && !strcmp(x->name, "wte.weight") && pipeline_own(t, k))
            p->delays[i] = 0;
    }
}

/* ---- memory ---- */
static size_t kept_slabs(const struct settings *s)
{
    return s->train_pipeline == TRAIN_PIPELINE_STALE ? (size_t)s->train_modules - 1 : 0;
}

size_t pipeline_kept_slabs(const struct train *t)
{
    return t->pipeline ? kept_slabs(t->settings) : 0;
}

size_t pipeline_plan(const struct settings *s, const struct table *t, enum dtype model_type,
                     size_t tokens_max)
{
    size_t copy = model_type == DTYPE_F32 ? 0 : dtype_size(model_type),
           boundary = tokens_max * (size_t)s->model_width * dtype_size(model_type),
           cuts = (size_t)s->train_modules - 1;
    return kept_slabs(s) * t->elements * (sizeof(float) + copy) + DIRECTIONS * cuts * boundary;
}

static enum err alloc_buffers(struct train *t)
{
    struct pipeline *p = t->pipeline;
    struct dev *d = t->dev;
    size_t bytes = model_boundary_bytes(t->model), elements = t->table.elements;
    for (size_t k = 1; k < p->count; k++) {
        TRY(dev_alloc(d, &p->modules[k].input, bytes));
        TRY(dev_alloc(d, &p->modules[k].error, bytes));
    }
    for (size_t i = 0; i < kept_slabs(t->settings); i++) {
        TRY(dev_alloc(d, (void **)&p->params[i], elements * sizeof **p->params));
        d->ops->zero(d, p->params[i], elements * sizeof **p->params);
        if (model_params_bf16(t->model))
            TRY(dev_alloc(d, &p->copies[i], elements * dtype_size(d->model_type)));
    }
    return ERR_OK;
}

static void log_modules(const struct train *t)
{
    for (size_t k = 0; k < t->pipeline->count && t->coll->rank == 0; k++) {
        const struct pipeline_module *x = &t->pipeline->modules[k];
        log_event(LOG_INFO, "module", "module=%zu layers=%zu-%zu rank=%d delay_steps=%lld", k,
                  x->first, x->end - 1, x->rank, (long long)x->delay);
    }
}

enum err pipeline_open(struct train *t, struct arena *perm)
{
    const struct settings *s = t->settings;
    struct pipeline *p;
    if (t->coll->size > 1 && !t->dev->host_memory)
        return err_set(ERR_UNSUPPORTED,
                       "train.modules = %lld on several GPUs: messages between ranks are built for "
                       "CPU ranks; use device.kind = cpu, or train.modules = 1",
                       (long long)s->train_modules);
    TRY_ALLOC(t->pipeline = p = arena_alloc(perm, sizeof *p));
    p->count = (size_t)s->train_modules;
    p->loaded = -1;
    p->stale_from = s->train_pipeline == TRAIN_PIPELINE_STALE ? keys_warmup(s) : INT64_MAX;
    TRY_ALLOC(p->modules = arena_array(perm, p->count, sizeof *p->modules));
    TRY_ALLOC(p->delays = arena_array(perm, t->table.count, sizeof *p->delays));
    TRY_ALLOC(p->params = arena_array(perm, p->count, sizeof *p->params));
    TRY_ALLOC(p->copies = arena_array(perm, p->count, sizeof *p->copies));
    cut_modules(t);
    delay_tensors(t);
    t->optim.delays = p->delays;
    t->optim.delayed_from = p->stale_from;
    log_modules(t);
    return alloc_buffers(t);
}

void pipeline_close(struct train *t)
{
    struct pipeline *p = t->pipeline;
    for (size_t k = 0; p && p->copies && k < p->count; k++) {
        dev_free(t->dev, p->modules[k].input);
        dev_free(t->dev, p->modules[k].error);
        dev_free(t->dev, p->params[k]);
        dev_free(t->dev, p->copies[k]);
    }
    t->pipeline = NULL;
}

/* ---- passes ---- */
void pipeline_load(struct train *t, int64_t step)
{
    if (t->pipeline->loaded == step)
        return;
    objective_step(&t->loader, (uint64_t)step, 0, t->loader.rank_sequences, &t->batch);
    t->batch.sequence_weight = (float)objective_sequence_weight(&t->loader, (uint64_t)step);
    t->pipeline->loaded = step;
}

static int tag_of(size_t k, int direction)
{
    return (int)(DIRECTIONS * k) + direction;
}

/* The buffer of a boundary: at both ranks, or the same where one rank has both modules. k is the
 * module behind the boundary, `peer` the module that reads or writes the other end. */
static enum err receive(struct train *t, void *x, size_t k, size_t peer, int direction)
{
    const struct coll_ops *ops = t->coll->ops;
    if (pipeline_own(t, peer))
        return ERR_OK;
    return ops->recv(t->coll, x, model_boundary_bytes(t->model), t->pipeline->modules[peer].rank,
                     tag_of(k, direction));
}

static enum err send(struct train *t, const void *x, size_t k, size_t peer, int direction)
{
    const struct coll_ops *ops = t->coll->ops;
    if (pipeline_own(t, peer))
        return ERR_OK;
    TRY(dev_sync(t->dev));
    return ops->send_begin(t->coll, x, model_boundary_bytes(t->model),
                           t->pipeline->modules[peer].rank, tag_of(k, direction));
}

/* In front of a write: the message before has left the buffer. */
static enum err buffer_free(struct train *t, size_t k, size_t peer, int direction)
{
    return pipeline_own(t, peer) ? ERR_OK : t->coll->ops->send_wait(t->coll, tag_of(k, direction));
}

static struct model_part part_of(const struct train *t, size_t k, int64_t step)
{
    const struct pipeline *p = t->pipeline;
    struct model_part x = {.first = p->modules[k].first,
                           .end = p->modules[k].end,
                           .set = kept_slabs(t->settings) ? 1 + (size_t)step % p->count : 0};
    if (step < t->step) {
        x.params = p->params[(size_t)step % (p->count - 1)];
        x.copy = p->copies[(size_t)step % (p->count - 1)];
    }
    return x;
}

enum err pipeline_fwd(struct train *t, size_t k, int64_t step)
{
    struct pipeline *p = t->pipeline;
    const struct model_part part = part_of(t, k, step);
    bool last = k + 1 == p->count;
    void *in = p->modules[k].input, *out = last ? NULL : p->modules[k + 1].input;
    pipeline_load(t, step);
    if (k)
        TRY(receive(t, in, k, k - 1, FORWARD));
    if (!last)
        TRY(buffer_free(t, k + 1, k + 1, FORWARD));
    TRY(model_part_fwd(t->model, &t->batch, &part, in, out, t->optim.stats + STEP_LOSS));
    return last ? ERR_OK : send(t, out, k + 1, k + 1, FORWARD);
}

/* MPI advances only inside its calls. */
static void advance(void *self, size_t from)
{
    struct coll *c = self;
    (void)from;
    (void)!c->ops->progress(c);
}

enum err pipeline_bwd(struct train *t, size_t k, int64_t step)
{
    struct pipeline *p = t->pipeline;
    const struct model_part part = part_of(t, k, step);
    const struct model_grad_hook hook = {t->coll, advance};
    bool last = k + 1 == p->count;
    void *dout = last ? NULL : p->modules[k + 1].error, *din = p->modules[k].error;
    pipeline_load(t, step);
    if (!last && !p->modules[k].here)
        TRY(receive(t, dout, k + 1, k + 1, BACKWARD));
    p->modules[k].here = false;
    if (k)
        TRY(buffer_free(t, k, k - 1, BACKWARD));
    TRY(model_part_bwd(t->model, &t->batch, &part, dout, din, &hook));
    return k ? send(t, din, k, k - 1, BACKWARD) : ERR_OK;
}

enum err pipeline_fetch(struct train *t)
{
    for (size_t k = 0; k + 1 < t->pipeline->count; k++) {
        struct pipeline_module *x = &t->pipeline->modules[k];
        if (!x->sent)
            continue;
        TRY(receive(t, x[1].error, k + 1, k + 1, BACKWARD));
        x->sent = false;
        x->here = true;
    }
    return ERR_OK;
}

/* ---- slabs ---- */
void pipeline_keep(struct train *t, int64_t step)
{
    struct pipeline *p = t->pipeline;
    size_t slot = (size_t)step % (p->count - 1);
    const struct dev_ops *ops = t->dev->ops;
    for (size_t k = 0; k < p->count; k++) {
        size_t at = p->modules[k].offset, count = p->modules[k].stop - at;
        float *kept = p->params[slot] + at;
        if (!pipeline_own(t, k))
            continue;
        ops->copy(t->dev, kept, model_params(t->model) + at, count * sizeof *kept);
        if (p->copies[slot])
            ops->cast(t->dev, (char *)p->copies[slot] + at * dtype_size(t->dev->model_type), kept,
                      count);
    }
}

enum err pipeline_gather(struct train *t, float *slab)
{
    const struct pipeline *p = t->pipeline;
    size_t first[64 + 1];
    int ranks = t->coll->size;
    ASSERT((size_t)ranks < sizeof first / sizeof *first);
    TRY(dev_sync(t->dev));
    for (size_t k = 0; k < p->count && ranks > 1; k++) {
        for (int r = 0; r <= ranks; r++)
            first[r] = r <= p->modules[k].rank ? 0 : p->modules[k].stop - p->modules[k].offset;
        TRY(t->coll->ops->all_gather(t->coll, slab + p->modules[k].offset, sizeof *slab, first));
    }
    return ERR_OK;
}
