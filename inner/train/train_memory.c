/* SPDX-License-Identifier: Apache-2.0 */
/* The memory table of this rank, logged before anything is allocated. */
#include "inner/train/train_parallel.h"
#include <stdio.h>
#include <string.h>
#include "inner/train/memory_left.h"
#include "inner/train/train_stream.h"
#include "kernels/base/log.h"

/* Two passes of a micro-batch, some 20 nodes in a layer: 2 KiB each in the device's memory. */
static size_t graphs_bytes(const struct settings *s)
{
    enum { NODES_LAYER = 20, NODE_BYTES = 2 << 10 };
    bool any = s->device_kind == DEVICE_CUDA && s->device_graphs != DEVICE_GRAPHS_OFF;
    return any ? 2 * (size_t)(s->model_layers + 2) * NODES_LAYER * NODE_BYTES : 0;
}

/* A bucket is full with the tensor that fills it. */
static size_t largest_sum_bytes(const struct settings *s, const struct table *t)
{
    double bucket = s->train_bucket_mb * (1 << 20) / sizeof(float);
    size_t most = 0;
    for (size_t i = 0; i < t->count; i++)
        most = table_span(t, i) > most ? table_span(t, i) : most;
    bool whole = bucket <= 0 || bucket + (double)most > (double)t->elements;
    return (whole ? t->elements : (size_t)bucket + most) * dtype_size(reducer_of(s)->type);
}

/* MPI's room for what other ranks send of the largest sum. */
static size_t received_bytes(const struct settings *s, const struct unit_map *map)
{
    size_t most = 0;
    for (size_t u = 0; u < map->count; u++)
        for (int r = 0; r < map->ranks; r++) {
            size_t others = (size_t)(map->ranks - 1) * unit_part(map, u, r).count;
            most = others > most ? others : most;
        }
    return most * dtype_size(reducer_of(s)->type);
}

/* Pieces of a checkpoint. A CPU rank that holds all stores it from where it lies. */
static size_t staging_bytes(const struct settings *s, const struct table *t, int ranks)
{
    bool pieces = s->device_kind == DEVICE_CUDA || optim_shares(s, ranks) ||
                  (compress_of(s) && s->train_error_feedback);
    return pieces ? stream_bytes(t) : 0;
}

/* What depends on how the ranks share the table out; `map` NULL: they do not. */
static void plan_shared(struct train_memory *m, const struct train_sizes *x,
                        const struct unit_map *map)
{
    const struct settings *s = x->settings;
    const struct model_sharing by = {NULL, map, (int)s->train_zero_stage, reducer_of(s)->type};
    const struct model_options model = {s, x->table, x->tokens, true};
    size_t sum_bytes = map ? received_bytes(s, map) : largest_sum_bytes(s, x->table);
    m->model = model_plan_shared(&model, &by, x->model_type);
    m->collectives = coll_memory_bytes(config_choice_name(device_kind_choices, s->device_kind),
                                       x->ranks, sum_bytes);
}

static enum err plan(struct train_memory *m, const struct train_sizes *x, struct arena *scratch)
{
    const struct settings *s = x->settings;
    const struct table *t = x->table;
    bool shares = optim_shares(s, x->ranks);
    struct unit_map map;
    TRY(optim_plan(&m->moments, s, t, x->ranks));
    if (shares)
        TRY(optim_units(&map, s, t, x->ranks, scratch));
    plan_shared(m, x, shares ? &map : NULL);
    m->update = optim_workspace(s, t, x->model_type);
    parallel_of(s)->plan(m, x);
    m->staging = staging_bytes(s, t, x->ranks);
    if (x->ranks > 1 && s->train_zero_stage < 2) /* else of units, with the gradients */
        m->reducer = reducer_of(s)->bytes(t->elements);
    m->grad_reduce = m->reducer + compress_plan(s, t, x->ranks);
    m->graphs = graphs_bytes(s);
    return ERR_OK;
}

struct train_memory train_plan(const struct settings *s, const struct table *t,
                               enum dtype model_type, int ranks)
{
    size_t tokens = objective_tokens_max(objective_trained(s), train_micro_batch_tokens(s, ranks));
    struct train_memory m = {.moments = 0};
    struct arena scratch = arena_make(0);
    m.failed = plan(&m, &(struct train_sizes){s, t, model_type, tokens, ranks}, &scratch);
    arena_free(&scratch);
    struct train_memory_row rows[TRAIN_MEMORY_ROWS];
    train_memory_rows(&m, rows);
    for (int i = 0; i < TRAIN_MEMORY_ROWS - 1; i++)
        m.total += rows[i].bytes;
    if (m.failed)
        m.total = SIZE_MAX;
    return m;
}

void train_memory_rows(const struct train_memory *m,
                       struct train_memory_row rows[TRAIN_MEMORY_ROWS])
{
    const struct model_memory *x = &m->model;
    const struct train_memory_row all[TRAIN_MEMORY_ROWS] = {
        {"parameters", "parameters (f32)", x->parameters},
        {"model_copy", "bf16 copy", x->params_bf16},
        {"gradients", "gradients", x->gradients},
        {"grad_reduce", "reduced gradients", m->grad_reduce},
        {"moments", "optimizer moments", m->moments},
        {"update", "optimizer workspace", m->update},
        {"activations", "activations", x->activations},
        {"clipping", "clipping of records", m->clipping},
        {"modules", "boundaries, earlier parameters", m->modules},
        {"logits", "classifier chunk", x->workspace.logits},
        {"gemm", "GEMM workspace", x->workspace.gemm},
        {"ops", "other ops", x->workspace.ops},
        {"code", "kernels (estimate)", x->workspace.code},
        {"collectives", "collectives (estimate)", m->collectives},
        {"graphs", "graphs (estimate)", m->graphs},
        {"staging", "checkpoint staging", m->staging},
        {"total", "all", m->total}};
    memcpy(rows, all, sizeof all);
}

size_t train_memory_left(void)
{
    struct memory_left left;
    memory_left(&left, NULL);
    return left.bytes;
}

/* The largest micro-batch with which `s` fits, 0: none does. */
static size_t fitting_micro_batch(const struct train *t, struct settings s, size_t max_sequences,
                                  size_t bytes)
{
    for (size_t n = max_sequences + 1; n-- > 1;) {
        s.train_micro_batch_tokens = (int64_t)n * s.train_seq_len;
        struct train_memory m = train_plan(&s, &t->table, t->dev->model_type, t->coll->size);
        if (s.train_batch_tokens % s.train_micro_batch_tokens == 0 && m.total <= bytes)
            return (size_t)s.train_micro_batch_tokens;
    }
    return 0;
}

struct advice {
    char text[400];
    size_t length;
};

/* Appends a suggestion; micro 0: it does not fit. */
static void advise(struct advice *a, const char *words, size_t micro)
{
    if (micro)
        a->length += (size_t)snprintf(
            a->text + a->length, sizeof a->text - a->length, "%s%s%strain.micro_batch_tokens = %zu",
            a->length ? "; or " : "", words, *words ? " with " : "", micro);
    ASSERT(a->length < sizeof a->text);
}

/* The lowest train.zero_stage with which `s` fits, in s->train_zero_stage; its micro-batch, 0: none
 * does. */
static size_t fitting_stage(const struct train *t, struct settings *s, size_t most, size_t bytes)
{
    bool whole = s->train_clip_per == TRAIN_CLIP_PER_BUCKET ||
                 s->privacy_unit != PRIVACY_UNIT_NONE; /* which refuse more than 1 */
    size_t micro = 0;
    for (int64_t stage = 1; !micro && stage <= (whole ? 1 : 3); stage++) {
        s->train_zero_stage = stage;
        micro = fitting_micro_batch(t, *s, most, bytes);
    }
    return micro;
}

/* Settings that fit, cheapest first: smaller micro-batches cost nearly nothing, what the ranks
 * share out an all_gather, recomputed activations a third of the time. */
static void list_fitting(struct advice *a, const struct train *t, size_t bytes)
{
    struct settings s = *t->settings;
    char words[96];
    size_t now = train_micro_batch_tokens(&s, t->coll->size) / (size_t)s.train_seq_len, micro;
    bool can_recompute = s.train_activation_checkpointing != TRAIN_CHECKPOINTING_BLOCK,
         can_shard = t->coll->size > 1 && !s.train_zero_stage &&
                     s.train_compress == TRAIN_COMPRESS_NONE; /* which refuses shards */
    advise(a, "", fitting_micro_batch(t, s, now - 1, bytes));
    micro = can_shard ? fitting_stage(t, &s, now, bytes) : 0;
    snprintf(words, sizeof words, "train.zero_stage = %lld", (long long)s.train_zero_stage);
    advise(a, words, micro);
    if (!can_recompute)
        return;
    s.train_zero_stage = t->settings->train_zero_stage;
    s.train_activation_checkpointing = TRAIN_CHECKPOINTING_BLOCK;
    micro = fitting_micro_batch(t, s, now, bytes);
    advise(a, "train.activation_checkpointing = block", micro);
    if (micro || !can_shard)
        return;
    micro = fitting_stage(t, &s, now, bytes);
    snprintf(words, sizeof words, "train.zero_stage = %lld, train.activation_checkpointing = block",
             (long long)s.train_zero_stage);
    advise(a, words, micro);
}

static double mib(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

static void log_rows(const struct train_memory *m)
{
    struct train_memory_row rows[TRAIN_MEMORY_ROWS];
    char line[640];
    int used = 0;
    train_memory_rows(m, rows);
    for (int i = 0; i < TRAIN_MEMORY_ROWS; i++) {
        used += snprintf(line + used, sizeof line - (size_t)used, "%s_mib=%.1f ", rows[i].name,
                         mib(rows[i].bytes));
        ASSERT(used > 0 && (size_t)used < sizeof line);
    }
    log_event(LOG_INFO, "memory", "%sdata_mib=%.1f", line, mib(m->data));
}

enum err train_memory_check(const struct train *t)
{
    const struct train_memory *m = &t->memory;
    struct memory_left left = {.bytes = t->dev->memory_bytes};
    struct advice a = {.length = 0};
    char where[5000];
    if (!left.bytes)
        memory_left(&left, NULL);
    size_t have = left.bytes;
    TRY(m->failed);
    log_rows(m);
    if (m->total <= have) /* without m->data: pages of mapped files can be taken back */
        return ERR_OK;
    list_fitting(&a, t, have);
    if (t->dev->memory_bytes)
        snprintf(where, sizeof where, "GPU has %zu MiB left", have >> 20);
    else
        memory_left_text(&left, where, sizeof where);
    return err_set(ERR_MEMORY, "this rank needs %zu MiB, the %s: %s%s", m->total >> 20, where,
                   a.length ? a.text : "use a smaller model.d_model, model.layers or train.seq_len",
                   a.length ? " would fit" : "");
}

void train_memory_used(const struct train *t)
{
    double planned = mib(t->memory.total);
    if (t->dev->host_memory) {
        size_t peak = memory_peak();
        log_event(LOG_INFO, "memory_used", "planned_mib=%.1f data_mib=%.1f peak_mib=%.1f", planned,
                  mib(t->memory.data), mib(peak));
        return;
    }
    size_t left = t->dev->ops->memory_free(t->dev);
    log_event(LOG_INFO, "memory_used", "planned_mib=%.1f taken_mib=%.1f gpu_mib=%.1f", planned,
              mib(t->dev->used_bytes),
              mib(t->running.free_bytes > left ? t->running.free_bytes - left : 0));
}
