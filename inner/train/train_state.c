/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: parameters, the optimizer's state, the step and the token count. The files do not
 * depend on the number of ranks nor on sharding (train.zero_stage), so a run may be resumed with
 * another number of ranks. On a CPU, slabs that a rank holds whole are read and written in place;
 * otherwise the lead uses staging buffers in host memory. Shards of state pass through the slab of
 * gradients, which is unused between two steps.
 */
#include "inner/train/train_parallel.h"
#include <stdio.h>
#include <string.h>
#include "inner/data/loader_text.h"
#include "inner/train/train_errors.h"
#include "inner/train/train_units.h"
#include "kernels/base/log.h"

enum { PARTS_MAX = 8 + METHODS_MAX + OPTIM_STATES };
#define CHOSEN " chosen=" /* in front of dev->attention, behind the device's note */

struct staging { /* whole slabs in host memory, on the lead */
    float *slab; /* all parameters, on the device of every rank: model_gather; NULL: shared out */
    float *params, *state[OPTIM_STATES];
    float *errors; /* of train.compress: error_bytes; NULL: none */
    size_t error_bytes;
    float *kept; /* further state of train.compress: kept_bytes; NULL: none */
    size_t kept_bytes;
    float *earlier; /* parameters of the steps whose gradients are under way
                       (inner/methods/pipeline.h): slabs */
    size_t earlier_bytes;
    float *room; /* device: of a unit, where no slab of gradients is there; NULL */
    struct arena arena;
};

static enum err staging_slab(struct staging *s, float **to, float *in_place, size_t elements)
{
    *to = in_place;
    if (!in_place)
        TRY_ALLOC(*to = arena_array(&s->arena, elements, sizeof **to));
    return ERR_OK;
}

/* On a CPU the last slab of sharded state stays in the slab of gradients. */
static enum err staging_open(const struct train *t, struct staging *s)
{
    const struct optim *o = t->optim;
    bool direct = t->dev->host_memory;
    int last = OPTIM_STATES - 1;
    while (last > 0 && !o->state[last].elements)
        last--;
    *s = (struct staging){.slab = s->slab, .room = s->room, .arena = arena_make(0)};
    TRY(staging_slab(s, &s->params, direct ? s->slab : NULL, t->table.elements));
    for (int i = 0; i <= last; i++) {
        float *in_place = !direct         ? NULL
                          : !o->shard.map ? o->state[i].shard
                          : i == last     ? model_grads(t->model)
                                          : NULL;
        if (o->state[i].elements)
            TRY(staging_slab(s, &s->state[i], in_place, o->state[i].elements));
    }
    s->error_bytes = train_errors_slabs(t) * t->table.elements * sizeof *s->errors;
    s->kept_bytes = train_kept_floats(t) * sizeof *s->kept;
    if (s->kept_bytes)
        TRY(staging_slab(s, &s->kept, NULL, s->kept_bytes / sizeof *s->kept));
    float *const *earlier;
    s->earlier_bytes =
        t->division.how->earlier(t, &earlier) * t->table.elements * sizeof *s->earlier;
    if (s->earlier_bytes)
        TRY(staging_slab(s, &s->earlier, NULL, s->earlier_bytes / sizeof *s->earlier));
    return s->error_bytes ? staging_slab(s, &s->errors, NULL, s->error_bytes / sizeof *s->errors)
                          : ERR_OK;
}

struct counters { /* what a checkpoint holds beside slabs */
    uint64_t *tokens;
    struct method_kept methods[METHODS_MAX];
    size_t methods_count;
    struct mixture_phase *mixture; /* NULL: without data.weights */
    struct loader_text *text;      /* NULL: none yet */
    struct chained_at *charges;    /* NULL: without privacy.unit */
};

/* The slabs under the names of the method. Returns their number. */
static size_t list_parts(const struct optim_state state[OPTIM_STATES], const struct staging *s,
                         size_t elements, struct counters *c,
                         struct checkpoint_part parts[PARTS_MAX])
{
    size_t n = 0;
    parts[n++] = (struct checkpoint_part){
        .name = "params", .data = s->params, .size_bytes = elements * sizeof *s->params};
    for (int i = 0; i < OPTIM_STATES; i++)
        if (state[i].elements)
            parts[n++] =
                (struct checkpoint_part){.name = state[i].name,
                                         .data = s->state[i],
                                         .size_bytes = state[i].elements * sizeof *s->state[i]};
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
    if (s->kept) /* a run that starts from another (run.from) has none yet */
        parts[n++] = (struct checkpoint_part){
            .name = "compress", .data = s->kept, .size_bytes = s->kept_bytes, .optional = true};
    if (s->earlier)
        parts[n++] = (struct checkpoint_part){.name = "earlier",
                                              .data = s->earlier,
                                              .size_bytes = s->earlier_bytes,
                                              .optional = true};
    if (s->errors) /* of another number of ranks they have another size */
        parts[n++] = (struct checkpoint_part){
            .name = "errors", .data = s->errors, .size_bytes = s->error_bytes, .optional = true};
    return n;
}

static void copy_if_needed(struct train *t, float *to, const float *from, size_t count)
{
    if (to != from)
        t->dev->ops->copy(t->dev, to, from, count * sizeof *to);
}

/* What the ranks share out of a slab; it passes through the slab of gradients. */
static struct units_slab shared_slab(const struct train *t, const struct staging *s,
                                     const struct unit_map *map, float *shard)
{
    return (struct units_slab){.map = map,
                               .shard = shard,
                               .room = s->room ? s->room : model_grads(t->model),
                               .room_is_unit = s->room != NULL};
}

static struct units_slab shared_params(const struct train *t, const struct staging *s)
{
    const struct weights *w = model_weights(t->model);
    return shared_slab(t, s, weights_units(w), weights_shards(w).params);
}

/* A slab of state -> the lead's host memory. */
static enum err gather_state(struct train *t, const struct staging *s, float *host,
                             const struct optim_state *x)
{
    const struct units_slab shared = shared_slab(t, s, x->map, x->shard);
    if (x->map)
        return units_to_lead(t, &shared, host);
    if (t->coll->rank == 0)
        copy_if_needed(t, host, x->shard, x->elements);
    return dev_sync(t->dev);
}

/* The parameters -> the lead's host memory. */
static enum err gather_params(struct train *t, const struct staging *s)
{
    if (!s->slab) {
        const struct units_slab shared = shared_params(t, s);
        return units_to_lead(t, &shared, s->params);
    }
    if (t->coll->rank == 0)
        copy_if_needed(t, s->params, s->slab, t->table.elements);
    return ERR_OK;
}

/* The lead's host memory -> a slab of every rank's device. */
static enum err broadcast_slab(struct train *t, float *slab, const float *host, size_t elements)
{
    if (t->coll->rank == 0)
        copy_if_needed(t, slab, host, elements);
    TRY(dev_sync(t->dev));
    return t->coll->ops->broadcast(t->coll, slab, elements * sizeof *slab);
}

static enum err scatter_state(struct train *t, const struct staging *s, const struct optim_state *x,
                              const float *host)
{
    const struct units_slab shared = shared_slab(t, s, x->map, x->shard);
    if (x->map)
        return units_from_lead(t, &shared, host);
    return broadcast_slab(t, x->shard, host, x->elements);
}

static enum err scatter_params(struct train *t, const struct staging *s)
{
    if (s->slab)
        return broadcast_slab(t, s->slab, s->params, t->table.elements);
    const struct units_slab shared = shared_params(t, s);
    return units_from_lead(t, &shared, s->params);
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
    snprintf(meta.device, sizeof meta.device, "%s%s%s", d->note, *d->attention ? CHOSEN : "",
             d->attention);
    return meta;
}

/* The attention kernel chosen in the stored run is used again, unless this device has no choice. It
 * then no longer counts as a difference of the devices. */
static void adopt_attention(struct dev *d, struct checkpoint_meta *was, struct checkpoint_meta *is)
{
    char *record = strstr(was->device, CHOSEN);
    if (record && d->autotune) {
        snprintf(d->attention, sizeof d->attention, "%s", record + strlen(CHOSEN));
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
    TRY(t->coll->ops->broadcast_host(t->coll, &code, sizeof code));
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

/* The order matters: on the lead the last slab may stay in the slab of gradients. */
static enum err store_checkpoint(struct train *t, struct staging *s)
{
    bool lead = t->coll->rank == 0;
    enum err e = lead ? staging_open(t, s) : ERR_OK;
    TRY(train_share_error(t, e));
    TRY(gather_params(t, s));
    for (int i = 0; i < OPTIM_STATES; i++)
        if (t->optim->state[i].elements)
            TRY(gather_state(t, s, s->state[i], &t->optim->state[i]));
    TRY(train_errors_gather(t, s->errors, &s->arena));
    if (lead)
        TRY(train_kept_read(t, s->kept));
    float *const *slabs;
    size_t earlier = t->division.how->earlier(t, &slabs);
    for (size_t i = 0; lead && i < earlier; i++)
        t->dev->ops->copy(t->dev, s->earlier + i * t->table.elements, slabs[i],
                          t->table.elements * sizeof *s->earlier);
    TRY(dev_sync(t->dev));
    if (lead) {
        struct checkpoint_part parts[PARTS_MAX];
        struct checkpoint_meta meta = describe(t);
        struct loader_text text = loader_text(t->data.loader);
        struct counters c = counters_of(t, &text);
        if (c.mixture)
            *c.mixture = *loader_phase(t->data.loader, (uint64_t)t->step);
        size_t n = list_parts(t->optim->state, s, t->table.elements, &c, parts);
        e = checkpoint_save(t->given.checkpoint_dir, &meta, parts, n,
                            (unsigned)t->settings->train_checkpoint_keep);
    }
    return train_share_error(t, e);
}

/* Room on the device for the largest unit of any slab. */
static enum err staging_room(const struct train *t, struct staging *s)
{
    const struct unit_map *m = weights_units(model_weights(t->model));
    size_t most = m ? unit_most(m) : 0;
    for (int i = 0; m && i < OPTIM_STATES; i++)
        if (t->optim->state[i].elements && unit_most(t->optim->state[i].map) > most)
            most = unit_most(t->optim->state[i].map);
    return dev_alloc(t->dev, (void **)&s->room, model_grads(t->model) ? 0 : most * sizeof *s->room);
}

static void staging_close(const struct train *t, struct staging *s)
{
    arena_free(&s->arena);
    dev_free(t->dev, s->room);
}

static float *whole_params(struct train *t)
{
    return weights_have_whole(model_weights(t->model)) ? model_gather(t->model, slab_all(&t->table))
                                                       : NULL;
}

enum err train_checkpoint(struct train *t)
{
    TRY(t->division.how->gather(t));
    struct staging s = {.slab = whole_params(t)};
    enum err e = staging_room(t, &s);
    if (!e)
        e = store_checkpoint(t, &s);
    if (s.slab)
        model_scatter(t->model, slab_all(&t->table), false);
    staging_close(t, &s);
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

/* Each rank reads its own files: other ranks would go on with other text. */
static enum err check_own_shards(const struct train *t, const struct checkpoint_meta *got)
{
    if (t->settings->data_shards != DATA_SHARDS_OWN || !got->step ||
        got->ranks == (uint32_t)t->coll->size)
        return ERR_OK;
    return err_set(ERR_MISMATCH,
                   "%s was made by %u rank%s with data.shards = own, which deals out the files "
                   "among them; go on with %u, or begin a run with data.shards = shared from its "
                   "parameters (run.from)",
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

static enum err load_checkpoint(struct train *t, struct staging *s, bool *found)
{
    struct checkpoint_part parts[PARTS_MAX];
    struct checkpoint_meta want = describe(t), got;
    TRY(staging_open(t, s));
    struct loader_text text = {0};
    struct counters c = counters_of(t, &text);
    size_t n = list_parts(t->optim->state, s, t->table.elements, &c, parts);
    TRY(checkpoint_load(t->given.checkpoint_dir, &want, parts, n, &got, found));
    if (!*found)
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
    adopt_attention(t->dev, &got, &want);
    warn_if_different(&got, &want);
    return ERR_OK;
}

/* The last slab first: the lead's may be in the slab of gradients already. */
static enum err distribute(struct train *t, const struct staging *s)
{
    struct coll *c = t->coll;
    for (int i = OPTIM_STATES; i-- > 0;)
        if (t->optim->state[i].elements)
            TRY(scatter_state(t, s, &t->optim->state[i], s->state[i]));
    TRY(train_errors_scatter(t, s->errors));
    TRY(train_kept_write(t, s->kept));
    float *const *slabs;
    size_t earlier = t->division.how->earlier(t, &slabs);
    for (size_t i = 0; i < earlier; i++)
        TRY(broadcast_slab(t, slabs[i], s->earlier ? s->earlier + i * t->table.elements : NULL,
                           t->table.elements));
    TRY(scatter_params(t, s));
    TRY(c->ops->broadcast_host(c, &t->tokens, sizeof t->tokens));
    struct method_kept kept[METHODS_MAX];
    size_t methods = methods_kept(&t->methods, t->settings, kept);
    for (size_t i = 0; i < methods; i++)
        TRY(c->ops->broadcast_host(c, kept[i].data, kept[i].bytes));
    TRY(c->ops->broadcast_host(c, &t->saved.phase, sizeof t->saved.phase));
    TRY(c->ops->broadcast_host(c, &t->step, sizeof t->step));
    return c->ops->broadcast_host(c, &t->saved.step, sizeof t->saved.step);
}

/* Every rank computes the initial parameters itself. */
static enum err start_from_seed(struct train *t, struct staging *s)
{
    arena_free(&s->arena);
    if (!s->slab) {
        const struct units_slab shared = shared_params(t, s);
        return units_from_seed(t, &shared);
    }
    TRY(staging_open(t, s));
    table_init(&t->table, (uint64_t)t->settings->run_seed, s->params);
    copy_if_needed(t, s->slab, s->params, t->table.elements);
    return dev_sync(t->dev);
}

static enum err resume(struct train *t, struct staging *s)
{
    bool found = false;
    enum err e = t->coll->rank == 0 ? load_checkpoint(t, s, &found) : ERR_OK;
    TRY(train_share_error(t, e));
    TRY(t->coll->ops->broadcast_host(t->coll, &found, sizeof found));
    return found ? distribute(t, s) : start_from_seed(t, s);
}

/* Attention kernels differ in their last bits, and the fastest is chosen by measurement: before the
 * first step, in one pass whose gradients are discarded, unless a checkpoint names the choice. All
 * ranks use the lead's choice. */
static enum err choose_attention(struct train *t)
{
    struct dev *d = t->dev;
    if (d->autotune && !*d->attention) {
        struct model_loss loss;
        objective_step(t->data.loader, (uint64_t)t->step, 0, t->data.micro_sequences,
                       t->data.batch);
        TRY(model_step(t->model, t->data.batch, 1, NULL, &loss));
    }
    return t->coll->ops->broadcast_host(t->coll, d->attention, sizeof d->attention);
}

/* The sources of data.train go on where the checkpoint left them. */
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
    struct staging s = {.slab = whole_params(t)};
    enum err e = staging_room(t, &s);
    if (!e)
        e = resume(t, &s);
    if (s.slab)
        model_scatter(t->model, slab_all(&t->table), true);
    staging_close(t, &s);
    TRY(e);
    TRY(resume_mixture(t));
    model_set_step(t->model, t->step);
    model_params_changed(t->model);
    TRY(dev_sync(t->dev));
    TRY(methods_resumed(&t->methods));
    TRY(t->division.how->resumed(t));
    return choose_attention(t);
}

enum err train_begin_from(const struct settings *s, const struct table *t,
                          const float *const slabs[3], const char *dir, struct arena *a)
{
    const struct optim_method *method = optim_method_of(s);
    struct optim_state state[OPTIM_STATES] = {0};
    struct checkpoint_part parts[PARTS_MAX];
    struct config_table keys = keys_inner((struct settings *)(uintptr_t)s);
    struct staging whole = {.params = (float *)(uintptr_t)slabs[0]};
    uint64_t tokens = 0;
    char *pinned, *current;
    optim_describe(state, method, t);
    for (int i = 0; i < OPTIM_STATES; i++)
        if (i < 2 && slabs[i + 1])
            whole.state[i] = (float *)(uintptr_t)slabs[i + 1];
        else if (state[i].elements)
            TRY_ALLOC(whole.state[i] = arena_array(a, state[i].elements, sizeof **whole.state));
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
    size_t n = list_parts(state, &whole, t->elements, &c, parts);
    return checkpoint_save(dir, &meta, parts, n, 1);
}
