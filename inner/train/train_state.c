/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: parameters, the optimizer's state, the step and the token count. The files do not
 * depend on the number of ranks nor on sharding (train.zero_stage), so a run may be resumed with
 * another number of ranks. Slabs go piece by piece (train_stream.h), in the order of the parts.
 */
#include "inner/train/train_parallel.h"
#include <stdio.h>
#include <string.h>
#include "inner/data/loader_text.h"
#include "inner/train/train_errors.h"
#include "inner/train/train_stream.h"
#include "kernels/base/log.h"

enum { PARTS_MAX = 8 + METHODS_MAX + OPTIM_STATES };
#define CHOSEN " chosen=" /* before dev->chosen, after the device's note */

struct counters { /* what a checkpoint holds in addition to slabs */
    uint64_t *tokens;
    struct method_kept methods[METHODS_MAX];
    size_t methods_count;
    struct mixture_phase *mixture; /* NULL: without data.weights */
    struct loader_text *text;      /* NULL: none yet */
    struct chained_at *charges;    /* NULL: without privacy.unit */
};

struct slab_bytes { /* of further slabs; 0: none */
    size_t kept, earlier, errors;
};

static struct slab_bytes further_slabs(const struct train *t)
{
    float *const *earlier;
    size_t slab = t->table.elements * sizeof(float);
    return (struct slab_bytes){.kept = train_kept_floats(t) * sizeof(float),
                               .earlier = t->division.how->earlier(t, &earlier) * slab,
                               .errors = train_errors_slabs(t) * slab};
}

/* The slabs under the names of the method, which come in pieces, and the counters. Returns their
 * number. */
static size_t list_parts(const struct optim_state state[OPTIM_STATES], size_t elements,
                         const struct slab_bytes *more, struct counters *c,
                         struct checkpoint_part parts[PARTS_MAX])
{
    size_t n = 0;
    parts[n++] = (struct checkpoint_part){.name = "params", .size_bytes = elements * sizeof(float)};
    for (int i = 0; i < OPTIM_STATES; i++)
        if (state[i].elements)
            parts[n++] = (struct checkpoint_part){.name = state[i].name,
                                                  .size_bytes = state[i].elements * sizeof(float)};
    parts[n++] = (struct checkpoint_part){
        .name = "tokens", .data = c->tokens, .size_bytes = sizeof *c->tokens};
    for (size_t i = 0; i < c->methods_count; i++)
        parts[n++] = (struct checkpoint_part){.name = c->methods[i].name,
                                              .data = c->methods[i].data,
                                              .size_bytes = c->methods[i].bytes};
    if (c->mixture) /* a run without weights may get some */
        parts[n++] = (struct checkpoint_part){.name = "mixture",
                                              .data = c->mixture,
                                              .size_bytes = sizeof *c->mixture,
                                              .optional = true};
    if (c->text) /* older checkpoints have none */
        parts[n++] = (struct checkpoint_part){
            .name = "text", .data = c->text, .size_bytes = sizeof *c->text, .optional = true};
    if (c->charges) /* checkpoints of former programs have none */
        parts[n++] = (struct checkpoint_part){.name = PRIVATE_PART,
                                              .data = c->charges,
                                              .size_bytes = sizeof *c->charges,
                                              .optional = true};
    if (more->kept) /* a run that starts from another (run.init_from) has none yet */
        parts[n++] = (struct checkpoint_part){
            .name = "compress", .size_bytes = more->kept, .optional = true};
    if (more->earlier)
        parts[n++] = (struct checkpoint_part){
            .name = "earlier", .size_bytes = more->earlier, .optional = true};
    if (more->errors) /* of another number of ranks they have another size */
        parts[n++] = (struct checkpoint_part){
            .name = "errors", .size_bytes = more->errors, .optional = true};
    return n;
}

static struct checkpoint_meta describe(const struct train *t)
{
    struct checkpoint_meta meta = {
        .step = (uint64_t)t->step,
        .seed = (uint64_t)t->settings->run_seed,
        .model = table_digest(&t->table),
        .settings = t->saved.pinned,
        .threads = (uint32_t)t->dev->threads,
        .ranks = (uint32_t)t->coll->size,
    };
    const struct dev *d = t->dev;
    snprintf(meta.device, sizeof meta.device, "%s%s%s", d->note, *d->chosen ? CHOSEN : "",
             d->chosen);
    return meta;
}

/* The kernels chosen in the stored run are used again, unless this device has no choice. They then
 * no longer count as a difference of the devices. */
static void adopt_chosen(struct dev *d, struct checkpoint_meta *was, struct checkpoint_meta *is)
{
    char *record = strstr(was->device, CHOSEN);
    if (record && d->autotune) {
        snprintf(d->chosen, sizeof d->chosen, "%s", record + strlen(CHOSEN));
        *record = 0;
    }
    record = strstr(is->device, CHOSEN);
    if (record)
        *record = 0;
}

enum err train_state_open(struct train *t, struct arena *perm)
{
    struct config_table pinned = keys_inner((struct settings *)(uintptr_t)t->settings);
    t->saved.step = -1;
    return config_canonical(&pinned, 1, perm, &t->saved.pinned);
}

enum err train_share_error(struct train *t, enum err e)
{
    int32_t code = (int32_t)e;
    TRY(t->coll->ops->broadcast_host(t->coll, &code, sizeof code, 0));
    if (t->coll->rank == 0)
        return e;
    return code ? err_set((enum err)code, "the lead of this site failed; its message says why")
                : ERR_OK;
}

static struct counters counters_of(struct train *t, struct loader_text *text)
{
    struct counters c = {.tokens = &t->tokens,
                         .mixture = t->data.loader->mixture ? &t->saved.phase : NULL,
                         .text = text,
                         .charges = train_charges_at(t)};
    c.methods_count = methods_kept(&t->methods, t->settings, c.methods);
    return c;
}

/* ---- store ---- */
static enum err params_out(struct train *t, struct stream *s)
{
    const struct weights *w = model_weights(t->model);
    const struct dev_range all = slab_all(&t->table);
    if (weights_units(w))
        return stream_out_units(s, weights_units(w), weights_shards(w).params);
    enum err e = stream_out_whole(s, model_gather(t->model, all), all.count);
    model_scatter(t->model, all, false);
    return e;
}

/* In the order of list_parts. */
static enum err slabs_out(struct train *t, struct stream *s)
{
    float *const *earlier;
    size_t count = t->division.how->earlier(t, &earlier);
    TRY(params_out(t, s));
    for (int i = 0; i < OPTIM_STATES; i++) {
        const struct optim_state *x = &t->optim->state[i];
        if (x->elements)
            TRY(x->map ? stream_out_units(s, x->map, x->shard)
                       : stream_out_whole(s, x->shard, x->elements));
    }
    TRY(train_kept_out(s));
    for (size_t i = 0; i < count; i++)
        TRY(stream_out_whole(s, earlier[i], t->table.elements));
    return train_errors_out(s);
}

static enum err store_checkpoint(struct train *t, struct stream *s)
{
    struct checkpoint_part parts[PARTS_MAX];
    struct checkpoint_meta meta = describe(t);
    struct loader_text text = loader_text(t->data.loader);
    struct counters c = counters_of(t, &text);
    const struct slab_bytes more = further_slabs(t);
    bool lead = t->coll->rank == 0;
    if (lead && c.mixture)
        *c.mixture = *loader_phase(t->data.loader, (uint64_t)t->step);
    size_t n = list_parts(t->optim->state, t->table.elements, &more, &c, parts);
    enum err e = lead ? checkpoint_begin(&s->to, t->given.checkpoint_dir, &meta, parts, n) : ERR_OK;
    TRY(train_share_error(t, e));
    e = slabs_out(t, s);
    if (e)
        checkpoint_abandon(s->to);
    else if (lead)
        e = checkpoint_commit(s->to, (unsigned)t->settings->train_checkpoint_keep);
    return e && !lead ? e : train_share_error(t, e);
}

/* The room stays: CUDA graphs are recorded again after each free. */
static enum err pieces_open(struct stream *s, struct train *t)
{
    *s = (struct stream){0};
    if (!t->saved.piece)
        TRY(dev_alloc(t->dev, &t->saved.piece, stream_bytes(&t->table)));
    return stream_open(s, t, t->saved.piece);
}

enum err train_checkpoint(struct train *t)
{
    struct stream s;
    TRY(t->division.how->gather(t));
    enum err e = pieces_open(&s, t);
    if (!e)
        e = store_checkpoint(t, &s);
    stream_close(&s);
    TRY(e);
    t->saved.step = t->step;
    if (t->coll->rank == 0)
        log_event(LOG_INFO, "checkpoint", "step=%lld dir=%s", (long long)t->step,
                  t->given.checkpoint_dir);
    return ERR_OK;
}

/* Another device, thread count or number of ranks sums in another order: a warning, no error. */
static void warn_if_different(const struct checkpoint_meta *was, const struct checkpoint_meta *is)
{
    if (!was->ranks) /* imported parameters: no steps were taken */
        return;
    if (!strcmp(was->device, is->device) && was->threads == is->threads && was->ranks == is->ranks)
        return;
    char text[512], quoted[600], device[256] = "", ranks[96] = "", threads[96] = "";
    if (strcmp(was->device, is->device) != 0)
        snprintf(device, sizeof device, " on another device (%.100s instead of %.100s)", is->device,
                 was->device);
    if (was->ranks != is->ranks)
        snprintf(ranks, sizeof ranks, " with %u rank%s instead of %u", is->ranks,
                 is->ranks == 1 ? "" : "s", was->ranks);
    if (was->threads != is->threads)
        snprintf(threads, sizeof threads, " with %u thread%s a rank instead of %u", is->threads,
                 is->threads == 1 ? "" : "s", was->threads);
    snprintf(text, sizeof text, "resumed%s%s%s: not bit-identical to an undisturbed run", ranks,
             threads, device);
    log_event(LOG_WARN, "resume", "text=%s", log_quote(quoted, sizeof quoted, text));
}

/* Errors belong to a rank and to its share. */
static void tell_errors(const struct train *t, const struct checkpoint_meta *was)
{
    if (train_errors_slabs(t) && was->step && was->ranks != (uint32_t)t->coll->size)
        log_event(
            LOG_WARN, "resume",
            "text=\"train.compress: the checkpoint holds the errors of %u rank%s; those of %d "
            "begin at 0\"",
            was->ranks, was->ranks == 1 ? "" : "s", t->coll->size);
}

/* What ends at a share of train.steps would move into the past of the run. */
static enum err check_shares(const struct settings *s, const struct checkpoint_meta *got,
                             const char *dir)
{
    struct settings before = *s;
    if (!got->steps || got->steps == s->train_steps)
        return ERR_OK;
    before.train_steps = got->steps;
    TRY(parallel_of(s)->lengthened(&before, s, dir));
    TRY(methods_lengthened(&before, s, dir));
    return compress_lengthened(&before, s, dir);
}

/* Each rank reads its own files: other ranks would continue with other text. */
static enum err check_own_shards(const struct train *t, const struct checkpoint_meta *got)
{
    if (t->settings->data_shards != DATA_SHARDS_OWN || !got->step ||
        got->ranks == (uint32_t)t->coll->size)
        return ERR_OK;
    return err_set(
        ERR_MISMATCH,
        "%s was made by %u rank%s with data.shards = own, which deals out the files "
        "among them; continue with %u, or begin a run with data.shards = shared from its "
        "parameters (run.init_from)",
        t->given.checkpoint_dir, got->ranks, got->ranks == 1 ? "" : "s", got->ranks);
}

/* Another text is another order of all examples from this step on. A list that an operator has
 * changed, and files that data.fetch brings, are meant; a mixture counts what its sources gave. */
static enum err check_text(const struct train *t, const struct loader_text *was, uint64_t step)
{
    const struct loader_text is = loader_text(t->data.loader);
    const struct settings *s = t->settings;
    enum loader_text_change change = loader_text_compare(was, &is);
    char text[400], quoted[500];
    if (!step || t->data.loader->mixture || change == LOADER_TEXT_SAME)
        return ERR_OK;
    snprintf(text, sizeof text,
             "data.train: %llu shards with %llu tokens, at the checkpoint of step %llu they were "
             "%llu with %llu; %s",
             (unsigned long long)is.files, (unsigned long long)is.tokens, (unsigned long long)step,
             (unsigned long long)was->files, (unsigned long long)was->tokens,
             is.tokens == was->tokens && is.files == was->files
                 ? "names, sizes, first ids, labels or owners differ"
                 : "other files");
    if (t->given.text_fixed && change == LOADER_TEXT_FILES && !*s->data_fetch)
        return err_set(
            ERR_MISMATCH,
            "%s. With outer.mode = strict a restart repeats the run: bring the files "
            "back, or name the new ones in data.train (a list that has changed is meant)",
            text);
    log_event(LOG_WARN, "data", "text=%s order=\"another from this step on\"",
              log_quote(quoted, sizeof quoted, text));
    return ERR_OK;
}

/* The learning rate is a function of train.steps: from the loaded step on that of the new total. */
static void tell_steps(const struct settings *s, const struct checkpoint_meta *got)
{
    struct settings before = *s;
    int64_t step = (int64_t)got->step;
    if (got->steps == 0 || got->steps == s->train_steps)
        return;
    before.train_steps = got->steps;
    log_event(LOG_INFO, "extended",
              "steps_before=%lld steps=%lld from_step=%lld lr_before=%g lr=%g "
              "text=\"the learning rate follows the new train.steps from this step on\"",
              (long long)got->steps, (long long)s->train_steps, (long long)step,
              optim_lr(&before, step), optim_lr(s, step));
}

/* ---- load ---- */
/* All but the slabs, which follow. *r NULL: there is no checkpoint. */
static enum err find_checkpoint(struct train *t, struct checkpoint_reader **r)
{
    struct checkpoint_part parts[PARTS_MAX];
    struct checkpoint_meta want = describe(t), got;
    struct loader_text text = {0};
    struct counters c = counters_of(t, &text);
    const struct slab_bytes more = further_slabs(t);
    size_t n = list_parts(t->optim->state, t->table.elements, &more, &c, parts);
    TRY(checkpoint_find(r, t->given.checkpoint_dir, &want, parts, n, &got));
    if (!*r)
        return ERR_OK;
    if (got.step > (uint64_t)t->settings->train_steps)
        return err_set(ERR_MISMATCH,
                       "%s holds step %llu, beyond train.steps = %lld; set train.steps to at "
                       "least %llu, or use another run.dir",
                       t->given.checkpoint_dir, (unsigned long long)got.step,
                       (long long)t->settings->train_steps, (unsigned long long)got.step);
    TRY(check_shares(t->settings, &got, t->given.checkpoint_dir));
    TRY(check_own_shards(t, &got));
    TRY(check_text(t, &text, got.step));
    tell_errors(t, &got);
    tell_steps(t->settings, &got);
    t->step = t->saved.step = (int64_t)got.step;
    adopt_chosen(t->dev, &got, &want);
    warn_if_different(&got, &want);
    return ERR_OK;
}

/* Whole f32 parameters that passes read are collected from the shards again; a copy in another type
 * is made by model_params_changed. */
static enum err params_in(struct train *t, struct stream *s)
{
    struct weights *w = model_weights(t->model);
    const struct dev_range all = slab_all(&t->table);
    if (!weights_units(w)) {
        enum err e = stream_in_whole(s, model_gather(t->model, all), all.count);
        model_scatter(t->model, all, true);
        return e;
    }
    TRY(stream_in_units(s, weights_units(w), weights_shards(w).params));
    return weights_have_whole(w) ? weights_shards_changed(w, false) : ERR_OK;
}

static enum err slabs_in(struct train *t, struct stream *s)
{
    float *const *earlier;
    size_t count = t->division.how->earlier(t, &earlier);
    stream_begin(s, "params", t->table.elements * sizeof(float));
    TRY(params_in(t, s));
    for (int i = 0; i < OPTIM_STATES; i++) {
        const struct optim_state *x = &t->optim->state[i];
        stream_begin(s, x->name, x->elements * sizeof(float));
        if (x->elements)
            TRY(x->map ? stream_in_units(s, x->map, x->shard)
                       : stream_in_whole(s, x->shard, x->elements));
    }
    TRY(train_kept_in(s));
    stream_begin(s, "earlier", further_slabs(t).earlier);
    for (size_t i = 0; i < count; i++)
        TRY(stream_in_whole(s, earlier[i], t->table.elements));
    return train_errors_in(s);
}

static enum err counters_in(struct train *t)
{
    struct coll *c = t->coll;
    TRY(c->ops->broadcast_host(c, &t->tokens, sizeof t->tokens, 0));
    struct method_kept kept[METHODS_MAX];
    size_t methods = methods_kept(&t->methods, t->settings, kept);
    for (size_t i = 0; i < methods; i++)
        TRY(c->ops->broadcast_host(c, kept[i].data, kept[i].bytes, 0));
    TRY(c->ops->broadcast_host(c, &t->saved.phase, sizeof t->saved.phase, 0));
    TRY(c->ops->broadcast_host(c, &t->step, sizeof t->step, 0));
    return c->ops->broadcast_host(c, &t->saved.step, sizeof t->saved.step, 0);
}

/* Every rank computes the initial parameters itself. */
static enum err start_from_seed(struct train *t, struct stream *s)
{
    struct weights *w = model_weights(t->model);
    const struct unit_map *m = weights_units(w);
    const struct dev_range all = slab_all(&t->table);
    if (!m) {
        enum err e = stream_seed(s, all, model_gather(t->model, all));
        model_scatter(t->model, all, true);
        return e;
    }
    for (size_t u = 0; u < m->count; u++)
        TRY(stream_seed(s, unit_part(m, u, t->coll->rank),
                        weights_shards(w).params + unit_base(m, u, t->coll->rank)));
    return weights_have_whole(w) ? weights_shards_changed(w, false) : ERR_OK;
}

static enum err resume_from(struct train *t, struct stream *s, struct checkpoint_reader *r)
{
    s->from = r;
    enum err e = slabs_in(t, s);
    if (!e)
        e = train_share_error(t, s->error);
    return e ? e : counters_in(t);
}

static enum err resume(struct train *t, struct stream *s)
{
    struct checkpoint_reader *r = NULL;
    enum err e = t->coll->rank == 0 ? find_checkpoint(t, &r) : ERR_OK;
    bool found = r != NULL;
    e = train_share_error(t, e);
    if (!e)
        e = t->coll->ops->broadcast_host(t->coll, &found, sizeof found, 0);
    if (!e)
        e = found ? resume_from(t, s, r) : start_from_seed(t, s);
    checkpoint_close(r);
    return e;
}

/* Kernels of attention and algorithms of products differ in their last bits, and the fastest is
 * chosen by measurement: before the first step, in one pass whose gradients are discarded, unless a
 * checkpoint names the choice. All ranks use the lead's choice. */
static enum err choose_kernels(struct train *t)
{
    struct dev *d = t->dev;
    if (d->autotune && !*d->chosen) {
        struct model_loss loss;
        objective_step(t->data.loader, (uint64_t)t->step, 0, t->data.micro_sequences,
                       t->data.batch);
        d->autotune = DEV_TUNING_NOW;
        enum err e = model_step(t->model, t->data.batch, 1, NULL, &loss);
        d->autotune = DEV_TUNING_KEPT;
        TRY(e);
    }
    return t->coll->ops->broadcast_host(t->coll, d->chosen, sizeof d->chosen, 0);
}

/* The sources of data.train continue where the checkpoint left them. */
static enum err resume_mixture(struct train *t)
{
    bool changed;
    TRY(loader_resume(t->data.loader, (uint64_t)t->step, &t->saved.phase, &changed));
    if (changed && t->step)
        log_event(LOG_INFO, "mixture",
                  "step=%lld text=\"other weights than in the checkpoint: they hold from this step "
                  "on%s\"",
                  (long long)t->step,
                  t->saved.phase.count ? ""
                                       : "; it counts no sources, and each begins from its start");
    return ERR_OK;
}

enum err train_resume(struct train *t)
{
    struct stream s;
    enum err e = pieces_open(&s, t);
    if (!e)
        e = resume(t, &s);
    stream_close(&s);
    TRY(e);
    TRY(resume_mixture(t));
    model_set_step(t->model, t->step);
    model_params_changed(t->model);
    TRY(dev_sync(t->dev));
    TRY(methods_resumed(&t->methods));
    TRY(t->division.how->resumed(t));
    return choose_kernels(t);
}

/* A slab that `from` does not have is zero. */
static enum err put_slab(struct checkpoint_writer *w, const struct start *from, int slab,
                         float *piece, size_t count)
{
    bool there = slab < START_SLABS && from->there[slab];
    if (!there)
        memset(piece, 0, START_PIECE * sizeof *piece);
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < START_PIECE ? count - at : START_PIECE;
        if (there)
            TRY(start_read(from, slab, at, piece, n));
        checkpoint_put(w, piece, n * sizeof *piece);
    }
    return ERR_OK;
}

enum err train_begin_from(const struct settings *s, const struct table *t, const struct start *from,
                          const char *dir, struct arena *a)
{
    const struct optim_method *method = optim_method_of(s);
    struct optim_state state[OPTIM_STATES] = {0};
    struct checkpoint_part parts[PARTS_MAX];
    struct checkpoint_writer *w;
    struct config_table keys = keys_inner((struct settings *)(uintptr_t)s);
    uint64_t tokens = 0;
    float *piece;
    char *pinned, *current;
    optim_describe(state, method, t);
    TRY_ALLOC(piece = arena_array(a, START_PIECE, sizeof *piece));
    TRY_ALLOC(current = arena_printf(a, "%s/CURRENT", dir));
    TRY(config_canonical(&keys, 1, a, &pinned));
    if (file_exists(current))
        return err_set(ERR_CONFIG, "%s holds checkpoints of a run already; use another run.dir",
                       dir);
    struct checkpoint_meta meta = {.seed = (uint64_t)s->run_seed,
                                   .model = table_digest(t),
                                   .settings = pinned,
                                   .device = "import"};
    struct counters c = {.tokens = &tokens};
    c.methods_count = methods_kept(NULL, s, c.methods);
    for (size_t i = 0; i < c.methods_count; i++)
        TRY_ALLOC(c.methods[i].data = arena_alloc(a, c.methods[i].bytes));
    size_t n = list_parts(state, t->elements, &(struct slab_bytes){0}, &c, parts);
    TRY(checkpoint_begin(&w, dir, &meta, parts, n));
    enum err e = put_slab(w, from, 0, piece, t->elements);
    for (int i = 0; e == ERR_OK && i < OPTIM_STATES; i++)
        e = put_slab(w, from, i < OPTIM_MORE ? i + 1 : START_SLABS, piece, state[i].elements);
    if (e == ERR_OK)
        return checkpoint_commit(w, 1);
    checkpoint_abandon(w);
    return e;
}
