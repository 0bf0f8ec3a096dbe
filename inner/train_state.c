/* What survives the process: parameters, both moments, the step and the tokens counted. On a CPU
 * the device's memory is the host's and is read and written in place. */
#include "inner/train.h"
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"

enum { PARTS = 4 };

static void fill_parts(struct checkpoint_part parts[PARTS], float *params, float *m, float *v,
                       uint64_t *tokens, size_t elements)
{
    parts[0] = (struct checkpoint_part){"params", params, elements * sizeof *params};
    parts[1] = (struct checkpoint_part){"m", m, elements * sizeof *m};
    parts[2] = (struct checkpoint_part){"v", v, elements * sizeof *v};
    parts[3] = (struct checkpoint_part){"tokens", tokens, sizeof *tokens};
}

static void list_parts(struct train *t, struct checkpoint_part parts[PARTS])
{
    fill_parts(parts, model_params(t->model), t->optim.m, t->optim.v, &t->tokens,
               t->table.elements);
}

static struct checkpoint_meta describe(const struct train *t)
{
    struct checkpoint_meta meta = {
        .step = (uint64_t)t->step,
        .seed = (uint64_t)t->settings->run_seed,
        .model = table_digest(&t->table),
        .settings = t->pinned,
        .threads = (uint32_t)t->dev->threads,
        .ranks = (uint32_t)t->coll->size,
    };
    snprintf(meta.device, sizeof meta.device, "%.*s", (int)sizeof meta.device - 1, t->dev->note);
    return meta;
}

/* The lead's result becomes everybody's, so that no rank waits in a collective for one that gave
 * up. */
static enum err share(struct train *t, enum err e)
{
    int32_t code = (int32_t)e;
    TRY(t->coll->ops->broadcast_host(t->coll, &code, sizeof code));
    if (t->coll->rank == 0)
        return e;
    return code ? err_set((enum err)code, "the lead of this site failed; its message says why")
                : ERR_OK;
}

enum err train_checkpoint(struct train *t)
{
    enum err e = ERR_OK;
    if (t->coll->rank == 0) {
        struct checkpoint_part parts[PARTS];
        struct checkpoint_meta meta = describe(t);
        list_parts(t, parts);
        e = checkpoint_save(t->checkpoint_dir, &meta, parts, PARTS,
                            (unsigned)t->settings->train_checkpoint_keep);
    }
    TRY(share(t, e));
    t->saved_step = t->step;
    return ERR_OK;
}

/* Another device, thread count or number of ranks adds in another order: say so, and go on. */
static void warn_if_different(const struct checkpoint_meta *was, const struct checkpoint_meta *is)
{
    if (!strcmp(was->device, is->device) && was->threads == is->threads && was->ranks == is->ranks)
        return;
    char before[256], now[256];
    log_event(LOG_WARN, "resume",
              "bits=differ was=%s was_threads=%u was_ranks=%u is=%s is_threads=%u is_ranks=%u",
              log_quote(before, sizeof before, was->device), was->threads, was->ranks,
              log_quote(now, sizeof now, is->device), is->threads, is->ranks);
}

static enum err load(struct train *t, bool *found)
{
    struct checkpoint_part parts[PARTS];
    struct checkpoint_meta want = describe(t), got;
    list_parts(t, parts);
    TRY(checkpoint_load(t->checkpoint_dir, &want, parts, PARTS, &got, found));
    if (!*found)
        return ERR_OK;
    if (got.step > (uint64_t)t->settings->train_steps)
        return err_set(ERR_MISMATCH, "%s holds step %llu, beyond train.steps = %lld",
                       t->checkpoint_dir, (unsigned long long)got.step,
                       (long long)t->settings->train_steps);
    t->step = t->saved_step = (int64_t)got.step;
    warn_if_different(&got, &want);
    return ERR_OK;
}

static enum err spread(struct train *t)
{
    struct checkpoint_part parts[PARTS];
    list_parts(t, parts);
    for (size_t i = 0; i < PARTS; i++)
        TRY(t->coll->ops->broadcast(t->coll, parts[i].data, parts[i].size_bytes));
    TRY(t->coll->ops->broadcast_host(t->coll, &t->step, sizeof t->step));
    return t->coll->ops->broadcast_host(t->coll, &t->saved_step, sizeof t->saved_step);
}

enum err train_resume(struct train *t)
{
    bool found = false;
    enum err e = t->coll->rank == 0 ? load(t, &found) : ERR_OK;
    TRY(share(t, e));
    TRY(t->coll->ops->broadcast_host(t->coll, &found, sizeof found));
    if (found)
        TRY(spread(t));
    else
        table_init(&t->table, (uint64_t)t->settings->run_seed, model_params(t->model));
    model_params_changed(t->model);
    return dev_sync(t->dev);
}

enum err train_begin_from(const struct settings *s, const struct table *t, const float *params,
                          const char *dir, struct arena *a)
{
    struct checkpoint_part parts[PARTS];
    struct config_table keys = keys_inner((struct settings *)(uintptr_t)s);
    uint64_t tokens = 0;
    float *zeros;
    char *pinned, *current;
    TRY_ALLOC(zeros = arena_array(a, t->elements, sizeof *zeros));
    TRY_ALLOC(current = arena_printf(a, "%s/CURRENT", dir));
    TRY(config_canonical(&keys, 1, a, &pinned));
    if (file_exists(current))
        return err_set(ERR_CONFIG, "%s holds checkpoints of a run already; use another run.dir",
                       dir);
    struct checkpoint_meta meta = {.seed = (uint64_t)s->run_seed,
                                   .model = table_digest(t),
                                   .settings = pinned,
                                   .device = "import"};
    fill_parts(parts, (float *)(uintptr_t)params, zeros, zeros, &tokens, t->elements);
    return checkpoint_save(dir, &meta, parts, PARTS, 1);
}
