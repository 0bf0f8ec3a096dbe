/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loop. */
#include "inner/train/train_parallel.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "inner/train/train_tune.h"
#include "kernels/base/log.h"

/* Device events of one step. */
enum step_event { EVENT_BEGIN, EVENT_BACKWARD, EVENT_REDUCED, EVENT_UPDATE, EVENT_END, EVENTS };
/* What the host adds to the statistics of a step: STEP_TARGETS .. STEP_STOP. */
enum { STEP_FLAGS = STEP_STOP - STEP_TARGETS + 1 };

/* ---- open ---- */
/* Ranks that divide the batch. */
static int batch_ranks(const struct settings *s, int ranks)
{
    return parallel_of(s)->batch_ranks(ranks);
}

size_t train_micro_batch_tokens(const struct settings *s, int ranks)
{
    size_t of_rank = (size_t)s->train_batch_tokens / (size_t)batch_ranks(s, ranks),
           micro = (size_t)s->train_micro_batch_tokens;
    return micro && micro < of_rank ? micro : of_rank;
}

static enum err check_ranks(const struct settings *s, int ranks)
{
    int64_t unit = s->train_seq_len * batch_ranks(s, ranks);
    TRY(parallel_of(s)->check(s, ranks));
    if (s->train_batch_tokens % unit == 0)
        return ERR_OK;
    return err_set(
        ERR_CONFIG,
        "train.batch_tokens = %lld is not a multiple of train.seq_len x ranks = %lld x %d",
        (long long)s->train_batch_tokens, (long long)s->train_seq_len, batch_ranks(s, ranks));
}

/* Ids of the byte vocabulary need no tokenizer's word. */
static void warn_unknown(const struct train *t)
{
    char directory[320];
    if (t->coll->rank == 0 && t->data.loader->unknown &&
        t->settings->data_tokenizer != DATA_TOKENIZER_BYTES)
        log_event(LOG_WARN, "data",
                  "directory=%s text=\"no data.json next to these training shards: which tokenizer "
                  "made them is not known\"",
                  log_quote(directory, sizeof directory, t->data.loader->unknown));
}

static enum err files_common(const struct settings *s, struct arena *a, const char **common,
                             size_t *count)
{
    struct config_list train, eval;
    TRY(shard_files(&s->data_train, a, &train));
    TRY(shard_files(&s->data_eval, a, &eval));
    return shard_files_common(&eval, &train, a, common, count);
}

/* A held-out loss on them says how much was learned by heart. */
static enum err warn_common(const struct train *t)
{
    struct arena a = arena_make(0);
    const char *common = NULL;
    size_t count = 0;
    char quoted[400];
    enum err e = t->coll->rank == 0 ? files_common(t->settings, &a, &common, &count) : ERR_OK;
    if (!e && count)
        log_event(LOG_WARN, "data",
                  "file=%s count=%zu text=\"in data.eval and in data.train: the evaluation "
                  "measures text that is trained on\"",
                  log_quote(quoted, sizeof quoted, common), count);
    arena_free(&a);
    return e;
}

static void warn_settings(const struct train *t)
{
    char text[300], quoted[320];
    keys_warning(t->settings, text, sizeof text);
    if (t->coll->rank == 0 && *text)
        log_event(LOG_WARN, "settings", "text=%s", log_quote(quoted, sizeof quoted, text));
}

/* A pattern may match other files on another host: then the ranks would share out other lists. */
static enum err check_dealt(const struct train *t)
{
    const char *dealt = t->data.loader->dealt.files;
    if (!dealt)
        return ERR_OK;
    uint32_t digest = digest_crc32c(0, dealt, strlen(dealt)), leads = digest;
    TRY(t->coll->ops->broadcast_host(t->coll, &leads, sizeof leads, 0));
    double others = leads != digest;
    TRY(t->coll->ops->all_reduce_host(t->coll, &others, 1));
    if (others == 0)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "data.shards = own: %.0f of %d ranks list other files under data.train than the "
                   "lead does; name the files one by one, the same list at every rank",
                   others, t->coll->size);
}

struct loader_options train_loader_options(const struct settings *s, uint32_t data_site,
                                           uint32_t rank, uint32_t ranks)
{
    return (struct loader_options){
        .seed = (uint64_t)s->run_seed,
        .site = data_site,
        .rank = rank,
        .ranks = ranks,
        .sequence = (size_t)s->train_seq_len,
        .batch_tokens = (size_t)s->train_batch_tokens,
        .vocab = s->model_vocab_size,
        .own_shards = s->data_shards == DATA_SHARDS_OWN,
        .objective = objective_trained(s),
        .settings = s,
    };
}

static enum err open_data(struct train *t, struct arena *perm)
{
    const struct settings *s = t->settings;
    uint32_t ranks = (uint32_t)batch_ranks(s, t->coll->size);
    TRY_ALLOC(t->data.loader = arena_alloc(perm, sizeof *t->data.loader));
    TRY_ALLOC(t->data.batch = arena_alloc(perm, sizeof *t->data.batch));
    struct loader_options o =
        train_loader_options(s, t->given.data_site, (uint32_t)t->coll->rank % ranks, ranks);
    o.mixed = s->data_weights.count > 0;
    TRY(loader_open(t->data.loader, perm, &s->data_train, &o));
    o.mixed = false;
    TRY(check_dealt(t));
    warn_unknown(t);
    warn_settings(t);
    if (s->data_eval.count) {
        o.objective = objective_of(s);
        o.site = o.rank = 0;
        o.ranks = 1;
        o.batch_tokens = o.sequence;
        TRY(loader_open(&t->data.held_out, perm, &s->data_eval, &o));
        TRY(loader_same_tokenizer(t->data.loader, &t->data.held_out));
        TRY(warn_common(t));
        const struct evaluate_rank r = {(size_t)t->coll->rank, (size_t)t->coll->size};
        TRY(evaluate_open(&t->data.evaluation, s, r, perm));
    }
    t->data.micro_sequences = train_micro_batch_tokens(s, t->coll->size) / o.sequence;
    return objective_batch_open(objective_trained(s), t->data.batch, perm, t->data.micro_sequences,
                                o.sequence);
}

/* The model has the heads, and the token types, that the text asks for. */
static enum err check_head(const struct train *t)
{
    const struct settings *s = t->settings;
    const char *objective = t->data.loader->options.objective->name;
    bool labels = s->data_objective == DATA_OBJECTIVE_LABELS;
    if (!t->data.loader->sequence_targets)
        return ERR_OK;
    if (!s->model_pooler)
        return err_set(ERR_CONFIG,
                       "data.objective = %s has a target for each sequence, and the model no head "
                       "for it: set model.pooler = true",
                       objective);
    if (labels != (s->model_classes.count > 0))
        return err_set(ERR_CONFIG,
                       labels
                           ? "data.objective = labels needs model.classes, the number of classes "
                             "of each task"
                           : "data.pairs needs the head for pairs, which a model with "
                             "model.classes does not have");
    if (s->model_token_types == 1)
        return err_set(ERR_CONFIG,
                       "model.token_types = 1: the second text of a pair has type 1; use 2, "
                       "or 0 for none");
    return ERR_OK;
}

static size_t mapped_bytes(const struct loader *l)
{
    size_t bytes = 0;
    for (size_t i = 0; i < l->set.count; i++)
        bytes += l->set.shards[i].map.size_bytes + l->set.shards[i].index_map.size_bytes;
    return bytes;
}

static enum err open_model(struct train *t, struct arena *perm)
{
    const struct settings *s = t->settings;
    const struct model_options o = {s, &t->table, t->data.batch->room.tokens, true};
    struct model_sharing by = {.map = NULL};
    struct unit_map *map;
    if (optim_shares(s, t->coll->size)) {
        TRY_ALLOC(map = arena_alloc(perm, sizeof *map));
        TRY(optim_units(map, s, &t->table, t->coll->size, perm));
        by = (struct model_sharing){t->coll, map, (int)s->train_zero_stage, reducer_of(s)->type};
    }
    TRY(model_open_shared(&t->model, t->dev, &o, &by, perm));
    TRY_ALLOC(t->optim = arena_alloc(perm, sizeof *t->optim));
    TRY(optim_open(t->optim, t->dev, t->coll, s, &t->table, perm));
    TRY(t->dev->ops->host_alloc(t->dev, (void **)&t->running.flags,
                                STEP_FLAGS * sizeof *t->running.flags));
    TRY(t->dev->ops->host_alloc(t->dev, (void **)&t->running.stats,
                                STEP_STATS * sizeof *t->running.stats));
    t->running.events = dev_events(t->dev, 2 * EVENTS);
    t->running.ahead = !t->dev->host_memory;
    TRY(tune_open(&t->running.tune, t, perm));
    const struct method_parts parts = train_parts(t);
    TRY(methods_open(&t->methods, &parts, perm));
    t->division.how = parallel_of(s);
    TRY(t->division.how->open(t, &t->division, perm));
    return train_state_open(t, perm);
}

/* The plan fits, and the system says no: another process was faster, or counts differently. */
static enum err smaller(enum err e)
{
    char said[512];
    if (e != ERR_MEMORY)
        return e;
    snprintf(said, sizeof said, "%s", err_message());
    return err_set(e,
                   "%s; a smaller train.micro_batch_tokens, train.seq_len, model.layers or "
                   "model.d_model takes less",
                   said);
}

static enum err open_parts(struct train *t, struct arena *perm)
{
    const struct settings *s = t->settings;
    TRY(check_ranks(s, t->coll->size));
    TRY(table_make(&t->table, s, perm));
    TRY(open_data(t, perm));
    TRY(check_head(t));
    t->memory = train_plan(s, &t->table, t->dev->model_type, t->coll->size);
    t->memory.data = mapped_bytes(t->data.loader) + mapped_bytes(&t->data.held_out);
    t->running.free_bytes = t->dev->ops->memory_free(t->dev);
    TRY(train_memory_check(t));
    return smaller(open_model(t, perm));
}

enum err train_open(struct train *t, const struct train_options *o, struct arena *perm)
{
    *t = (struct train){.settings = o->settings,
                        .dev = o->dev,
                        .coll = o->coll,
                        .given = {.checkpoint_dir = o->checkpoint_dir, .data_site = o->data_site}};
    coll_follow(t->coll, t->dev);
    enum err e = open_parts(t, perm);
    if (e)
        train_close(t);
    return e;
}

void train_close(struct train *t)
{
    if (t->coll)
        coll_follow(t->coll, NULL);
    if (t->dev) {
        if (t->division.how)
            t->division.how->close(t);
        if (t->running.flags)
            t->dev->ops->host_free(t->dev, t->running.flags);
        if (t->running.stats)
            t->dev->ops->host_free(t->dev, t->running.stats);
    }
    if (t->dev && t->saved.piece)
        dev_free(t->dev, t->saved.piece);
    if (t->optim)
        optim_close(t->optim);
    model_close(t->model);
    loader_close(&t->data.held_out);
    if (t->data.loader)
        loader_close(t->data.loader);
    *t = (struct train){0};
}

void train_stop_by(struct train *t, atomic_int *stop)
{
    t->given.stop = stop;
}

void train_charge_to(struct train *t, const struct train_budget *budget)
{
    t->given.budget = budget;
}

void train_fix_text(struct train *t, bool fixed)
{
    t->given.text_fixed = fixed;
}

/* ---- evaluation ---- */
enum err train_gather(struct train *t)
{
    return t->division.how->gather(t);
}

/* The first windows of the held-out text, divided among the ranks. */
enum err train_evaluate(struct train *t, struct train_eval *e)
{
    struct evaluate_sums *sums = &t->data.evaluation;
    const struct loader *l = &t->data.held_out;
    *e = (struct train_eval){.step = t->step};
    if (!l->windows)
        return ERR_OK;
    TRY(t->division.how->gather(t));
    uint64_t windows = evaluate_count(l, t->settings->train_eval_tokens);
    uint64_t rank = (uint64_t)t->coll->rank, size = (uint64_t)t->coll->size;
    uint64_t first = windows * rank / size, end = windows * (rank + 1) / size;
    TRY(evaluate_windows(t->model, l, t->data.batch, first, end, sums));
    if (weights_together(model_weights(t->model)))
        TRY(evaluate_along(t->model, l, t->data.batch, end - first, (windows + size - 1) / size));
    TRY(t->coll->ops->all_reduce_host(t->coll, sums->values, sums->values_count));
    e->loss = evaluate_loss(sums);
    e->tokens = (size_t)sums->count[l->token_targets ? MODEL_LOSS_TOKEN : MODEL_LOSS_SEQUENCE];
    evaluate_scores(sums, t->settings, l, &e->scores);
    for (size_t i = 0; i < sums->layers; i++)
        e->attention[i] = evaluate_attention(sums, i);
    e->layers = sums->layers;
    return ERR_OK;
}

static enum err evaluate(struct train *t, const struct train_hook *hook)
{
    struct train_eval e;
    if (!hook || !t->data.held_out.windows)
        return ERR_OK;
    TRY(train_evaluate(t, &e));
    return hook->eval(hook->self, t, &e);
}

/* ---- one step ---- */
/* Two sets of events, used alternately: that of the step after `steps` finished ones. */
static unsigned event_of(const struct train *t, int64_t steps, enum step_event e)
{
    return t->running.events + (unsigned)(steps % 2) * EVENTS + e;
}

static void record(struct train *t, enum step_event e)
{
    t->dev->ops->event_record(t->dev, event_of(t, t->step, e));
}

/* Forward, backward and all-reduce of step t->step + 1. */
static enum err step_begin(struct train *t, struct step_targets *targets)
{
    TRY(tune_profile_step(t, false));
    record(t, EVENT_BEGIN);
    methods_begin(&t->methods, t->step);
    model_grads_zero(t->model);
    t->dev->ops->zero(t->dev, t->optim->buffers.stats,
                      STEP_STATS * sizeof *t->optim->buffers.stats);
    profile_record(t->running.tune->profile, PROFILE_UPLOAD);
    TRY(t->division.how->backward(t, targets));
    record(t, EVENT_BACKWARD);
    TRY(t->division.how->reduce(t));
    profile_record(t->running.tune->profile, PROFILE_REDUCE);
    record(t, EVENT_REDUCED);
    return ERR_OK;
}

static bool due(int64_t step, int64_t every)
{
    return every && step % every == 0;
}

/* Whether anything but the next step reads the parameters of this one. Equal on all ranks. */
static bool is_read(const struct train *t, const struct train_hook *hook, int64_t step)
{
    const struct settings *s = t->settings;
    return step == s->train_steps || due(step, s->train_eval_every) ||
           due(step, s->train_checkpoint_every) || (hook && hook->due(hook->self, t, step));
}

/* The update. Losses, targets and stop requests are summed over the ranks in the statistics, so
 * that all ranks decide alike: a rank that skips a collective would hang the others. */
static enum err step_end(struct train *t, const struct train_hook *hook,
                         const struct step_targets *targets)
{
    const struct dev_ops *ops = t->dev->ops;
    if (hook)
        TRY(hook->update(hook->self, t));
    profile_record(t->running.tune->profile, PROFILE_GAP);
    record(t, EVENT_UPDATE);
    t->running.flags[0] = (double)targets->divisor;
    t->running.flags[STEP_SEQUENCES - STEP_TARGETS] = (double)targets->sequences;
    t->running.flags[STEP_TOKENS - STEP_TARGETS] = (double)targets->tokens;
    t->running.flags[STEP_STOP - STEP_TARGETS] = t->given.stop && *t->given.stop;
    ops->copy_async(t->dev, t->optim->buffers.stats + STEP_TARGETS, t->running.flags,
                    STEP_FLAGS * sizeof *t->running.flags);
    t->optim->together = is_read(t, hook, t->step + 1);
    TRY(optim_step(t->optim, t->model, t->step));
    ops->copy_async(t->dev, t->running.stats, t->optim->buffers.stats,
                    STEP_STATS * sizeof *t->running.stats);
    profile_record(t->running.tune->profile, PROFILE_UPDATE);
    record(t, EVENT_END);
    TRY(t->coll->ops->event_record(t->coll));
    t->step++;
    t->tokens += (uint64_t)t->settings->train_batch_tokens;
    t->running.pending = true;
    return ERR_OK;
}

/* The device has skipped the update. */
static enum err diverged(struct train *t, const char *what)
{
    enum err e =
        err_set(ERR_DIVERGED, "the %s of step %lld is not finite", what, (long long)t->step);
    t->step--;
    t->tokens -= (uint64_t)t->settings->train_batch_tokens;
    return e;
}

static double between(const struct train *t, enum step_event from, enum step_event to)
{
    return t->dev->ops->event_seconds(t->dev, event_of(t, t->step - 1, from),
                                      event_of(t, t->step - 1, to));
}

/* The mean over the targets of the step; of sequences a step may have none. */
static double loss_mean(const struct train *t, size_t row)
{
    bool sequences = loss_rows[row].unit == LOSS_OF_SEQUENCES;
    double count = t->running.stats[sequences ? STEP_SEQUENCES : STEP_TARGETS];
    return sequences && count <= 0 ? 0 : t->running.stats[STEP_LOSS + row] / count;
}

static bool has_loss(const struct train *t, size_t row)
{
    return loss_any((enum model_loss_kind)row, t->settings, t->data.loader);
}

/* The sum of the means of the learned losses. */
static double step_loss(const struct train *t)
{
    double sum = 0;
    for (size_t i = 0; i < MODEL_LOSS_ROWS; i++)
        if (loss_rows[i].learned && has_loss(t, i))
            sum += loss_mean(t, i);
    return sum;
}

/* Adds each loss that is not part of step_loss; the terms of step_loss where it has several. */
static void add_losses(const struct train *t, bool hidden, struct figures *f)
{
    size_t learned = 0;
    for (size_t i = 0; i < MODEL_LOSS_ROWS; i++)
        learned += loss_rows[i].learned && has_loss(t, i);
    for (size_t i = 0; i < MODEL_LOSS_ROWS; i++)
        if (has_loss(t, i) && (!loss_rows[i].learned || learned > 1))
            figures_add(f, loss_rows[i].name, hidden ? NAN : loss_mean(t, i));
}

/* Waits for the last step and reads its statistics. */
static enum err read_step_stats(struct train *t, struct train_report *r, bool *stop)
{
    TRY(t->coll->ops->event_wait(t->coll));
    TRY(t->dev->ops->event_wait(t->dev, event_of(t, t->step - 1, EVENT_END)));
    double targets = t->running.stats[STEP_TARGETS],
           norm = sqrt(t->running.stats[STEP_SQUARE]) / targets;
    t->running.pending = false;
    bool hidden = t->division.how->secret; /* the statistics hold no losses */
    if (!isfinite(step_loss(t)))
        return diverged(t, "loss");
    if (!isfinite(norm))
        return diverged(t, "gradient");
    *r = (struct train_report){.step = t->step,
                               .steps = t->settings->train_steps,
                               .loss = hidden ? NAN : step_loss(t),
                               .hidden = hidden,
                               .norm = (float)norm,
                               .lr = (float)optim_lr(t->settings, t->step - 1),
                               .compute_seconds = between(t, EVENT_BEGIN, EVENT_BACKWARD),
                               .exposed_seconds = between(t, EVENT_BACKWARD, EVENT_REDUCED),
                               .tokens = t->tokens,
                               .inner_up = t->running.inner_up,
                               .compressed = t->optim->compress != NULL,
                               .summed = !t->optim->kept->apart};
    methods_read(&t->methods, t->step, t->running.stats, &r->figures);
    add_losses(t, hidden, &r->figures);
    r->step_seconds = between(t, EVENT_BEGIN, EVENT_REDUCED) + between(t, EVENT_UPDATE, EVENT_END);
    r->tokens_per_second = t->running.stats[STEP_TOKENS] / r->step_seconds;
    *stop = t->running.stats[STEP_STOP] > 0;
    return ERR_OK;
}

/* Is a step after `from`, up to `step`, due? The hook may have moved on by more than one. */
static bool passed(int64_t from, int64_t step, int64_t every)
{
    return every && step / every > from / every;
}

static enum err save(struct train *t, const struct train_hook *hook)
{
    if (t->saved.step == t->step)
        return ERR_OK;
    if (hook)
        TRY(hook->saving(hook->self, t));
    TRY(train_checkpoint(t));
    return hook ? hook->saved(hook->self, t) : ERR_OK;
}

static enum err after_step(struct train *t, const struct train_hook *hook,
                           const struct train_report *r, bool stop)
{
    const struct settings *s = t->settings;
    int64_t from = t->step - 1;
    if (hook)
        TRY(hook->step(hook->self, t, r));
    bool last = t->step == s->train_steps, reviewed = passed(from, t->step, s->train_eval_every);
    if (reviewed)
        TRY(methods_review(&t->methods, t->step));
    if (!last && !stop && reviewed)
        TRY(evaluate(t, hook));
    if (last || stop || passed(from, t->step, s->train_checkpoint_every))
        TRY(save(t, hook));
    if (stop && !last)
        return err_set(ERR_STOPPED,
                       "stopped after step %lld of %lld; saved in %s; start again with the same "
                       "command",
                       (long long)t->step, (long long)s->train_steps, t->given.checkpoint_dir);
    return ERR_OK;
}

/* Whether the result of the last step is needed before the next begins. Equal on all ranks. */
static bool must_wait(struct train *t, const struct train_hook *hook)
{
    return !t->running.ahead || is_read(t, hook, t->step) || methods_change(&t->methods, t->step);
}

/* Reports, evaluates and stores the last step. If the host ran ahead, the gradients of the next
 * step are being computed; after an error or a stop they are discarded. */
static enum err finish_step(struct train *t, const struct train_hook *hook)
{
    struct train_report r;
    bool stop = false;
    if (!t->running.pending)
        return ERR_OK;
    TRY(read_step_stats(t, &r, &stop));
    tune_graphs(t, &r);
    return after_step(t, hook, &r, stop && r.summed); /* else the ranks have nothing to store yet */
}

/* What was trained so far is stored, and the message stays that of the refusal. */
static enum err refused(struct train *t, const struct train_hook *hook)
{
    char why[1024];
    snprintf(why, sizeof why, "%s", err_message());
    ASSERT(!t->running.pending); /* a private site trains on the CPU */
    TRY(save(t, hook));
    return err_set(ERR_BUDGET, "%s; %lld of %lld steps are done and saved in %s", why,
                   (long long)t->step, (long long)t->settings->train_steps,
                   t->given.checkpoint_dir);
}

static enum err step(struct train *t, const struct train_hook *hook)
{
    struct step_targets targets = {0};
    double before = t->coll->up, sent;
    enum err e = t->division.how->charge(t);
    if (e == ERR_BUDGET)
        return refused(t, hook);
    TRY(e);
    TRY(step_begin(t, &targets));
    sent = t->coll->up - before;
    TRY(finish_step(t, hook));
    before = t->coll->up;
    TRY(step_end(t, hook, &targets));
    t->running.inner_up = sent + t->coll->up - before;
    return must_wait(t, hook) ? finish_step(t, hook) : ERR_OK;
}

static enum err run(struct train *t, const struct train_hook *hook)
{
    TRY(train_resume(t));
    if (hook)
        TRY(hook->start(hook->self, t));
    if (t->step == 0)
        TRY(evaluate(t, hook));
    while (t->step < t->settings->train_steps)
        TRY(step(t, hook));
    TRY(tune_profile_step(t, true));
    return evaluate(t, hook);
}

enum err train_run(struct train *t, const struct train_hook *hook)
{
    ASSERT(!hook || (hook->start && hook->update && hook->due && hook->step && hook->eval &&
                     hook->saving && hook->saved));
    enum err e = run(t, hook);
    train_memory_used(t);
    return e;
}
