/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/library/atoll.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "inner/io/names.h"
#include "outer/library/ranks.h"
#include "outer/library/site_parts.h"
#include "outer/library/site_record.h"
#include "outer/library/tensors.h"
#include "outer/record/counted.h"
#include "outer/record/directory.h"
#include "outer/record/version.h"

struct atoll_counts { /* of the rounds that this process has finished */
    uint64_t rounds, up, down;
    double waited_s, flight_s;
    unsigned included, sites;
};
struct atoll {
    struct atoll_options o;
    struct run *run;
    struct schedule configured; /* run->sync has the amended one */
    struct dev *dev;
    struct ranks ranks;
    struct tensors tensors;
    struct env *env; /* these four: the lead's */
    struct ledger_book *ledger;
    struct jsonl *record;
    double last_round; /* seconds, by clock_mono_s */
    struct site_parts *parts;
    struct exchange *exchange; /* NULL before it is open */
    struct exchange_now now;
    struct atoll_counts counts;
    struct site_notice notice;
    atomic_int stop;
    bool started, failed;
};

static int result(enum err e)
{
    return err_exit_code(e);
}

static bool is_lead(const struct atoll *a)
{
    return a->ranks.coll.rank == 0;
}

const char *atoll_version(void)
{
    return version_number();
}

const char *atoll_error(void)
{
    return err_message();
}

/* ---- the log ---- */

static void log_nothing(void *self, enum log_level level, const char *line)
{
    (void)self, (void)level, (void)line;
}

struct listener { /* of the process; not freed, since a thread may be in it */
    void (*log)(void *self, int level, const char *line);
    void *self;
};

static void log_line(void *self, enum log_level level, const char *line)
{
    const struct listener *l = self;
    l->log(l->self, (int)level, line);
}

static enum err log_open(const struct atoll_options *o)
{
    static bool silent;
    if (!o->log) {
        if (!silent)
            log_to(log_nothing, NULL);
        silent = true;
        return ERR_OK;
    }
    struct listener *l = malloc(sizeof *l);
    TRY_ALLOC(l);
    *l = (struct listener){o->log, o->self};
    log_to(log_line, l);
    silent = true;
    return ERR_OK;
}

/* ---- the trainer of the exchange ---- */

static enum err gather(void *self, const struct fragment *f, float *out)
{
    return tensors_gather(&((struct atoll *)self)->tensors, f->ranges, f->range_count, out);
}

static enum err mix(void *self, const struct fragment *f, const float *theta,
                    const struct dev_lerp *b)
{
    struct atoll *a = self;
    (void)f;
    return tensors_mix(&a->tensors, a->dev, theta, b);
}

static void mixed(void *self)
{
    (void)self;
}

static void moved(void *self, const struct exchange_now *n)
{
    (void)self, (void)n;
}

static enum err checkpoint(void *self)
{
    (void)self; /* the caller writes it when atoll_step has returned */
    return ERR_OK;
}

static enum err initial(void *self, float *slab)
{
    return run_initial(((struct atoll *)self)->run, slab);
}

/* What did not change is not sent: a contribution of next to nothing is a trainer that forgot its
 * step. The sparsest codec sends a 50th of the elements in bytes. */
static void warn_unchanged(const struct atoll *a, const struct exchange_round *r)
{
    size_t elements = a->run->sync.fragments.f[r->fragment].elements;
    if (!r->replayed && r->up_predicted && 500 * r->up_predicted < elements)
        log_event(
            LOG_WARN, "unchanged",
            "step=%lld fragment=%u round=%llu up=%llu text=\"hardly any parameter has changed "
            "since the round before: does the optimizer make its step?\"",
            (long long)r->step, r->fragment, (unsigned long long)r->round,
            (unsigned long long)r->up_predicted);
}

static enum err rounded(void *self, const struct exchange_round *r)
{
    const struct atoll *a = self;
    struct atoll_counts *c = &((struct atoll *)self)->counts;
    const struct schedule *s = &a->run->sync.schedule;
    double now = clock_mono_s();
    (void)site_record_round(a->record, a->ledger, r,
                            &(struct site_progress){.rounds = exchange_rounds(s, s->steps),
                                                    .steps = s->steps,
                                                    .compute_s = now - a->last_round - r->seconds});
    jsonl_end(a->record);
    ((struct atoll *)self)->last_round = now;
    warn_unchanged(a, r);
    const struct outer_state_fragment *state = &a->parts->replica.state[r->fragment];
    char hex[65] = "-"; /* a replayed round's state is an older one than the replica's */
    if (!r->replayed)
        digest_hex(&state->digest, hex);
    log_event(LOG_INFO, "round",
              "step=%lld fragment=%u round=%llu included=%u of=%u replayed=%d waited_s=%.3f "
              "up=%llu down=%llu state=%.16s",
              (long long)r->step, r->fragment, (unsigned long long)r->round, r->included, r->sites,
              r->replayed, r->seconds, (unsigned long long)r->up_predicted,
              (unsigned long long)r->down_predicted, hex);
    c->rounds++;
    c->up += r->counted.payload_up;
    c->down += r->counted.payload_down;
    c->waited_s += r->seconds;
    c->flight_s = 1e-3 * r->flight_ms;
    c->included = r->included;
    c->sites = r->sites;
    return ERR_OK;
}

static enum err rescheduled(void *self, struct schedule *s, uint32_t *version)
{
    struct atoll *a = self;
    TRY(organs_reschedule(a->run, &a->configured, a->parts->site, &a->ranks.coll, s, version));
    a->run->sync.schedule = *s;
    return ERR_OK;
}

/* ---- open ---- */

static enum err settings_words(struct atoll *a, char ***out)
{
    struct arena *perm = &a->run->perm;
    char **word = arena_array(perm, a->o.setting_count + 1, sizeof *word);
    TRY_ALLOC(word);
    for (size_t i = 0; i < a->o.setting_count; i++)
        TRY_ALLOC(word[i] = arena_printf(perm, "--%s", a->o.settings[i]));
    *out = word;
    return ERR_OK;
}

/* What `atoll train` does in addition to its exchange, and this library does not. */
static enum err refuse(const struct run *r)
{
    const struct {
        bool given;
        const char *what;
    } rows[] = {
        {!*r->o.site_aggregator, "site.aggregator is missing: give the host:port of atoll serve"},
        {r->o.outer_before_update, "outer.before_update: the update is the trainer's"},
        {r->o.outer_moment1_every || r->o.outer_moment2_every,
         "outer.moment1_every, outer.moment2_every: the optimizer's moments are the trainer's"},
        {r->o.outer_sync_interval_s > 0,
         "outer.sync_interval_s: rounds by time need the trainer's tokens"},
        {r->s.privacy_unit != PRIVACY_UNIT_NONE,
         "privacy.unit: records are clipped and charged by atoll train alone"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given)
            return err_set(ERR_UNSUPPORTED, "libatoll cannot do this: %s", rows[i].what);
    return ERR_OK;
}

/* role: RUN_MODEL, to look at the model alone */
static enum err configure(struct atoll *a, enum run_role role)
{
    char **words;
    TRY(settings_words(a, &words));
    const struct args args = {.setting = words, .setting_count = (int)a->o.setting_count};
    TRY(run_open(a->run, &(struct run_source){.role = role,
                                              .config = a->o.config ? a->o.config
                                                                    : "text of the configuration",
                                              .text = a->o.config ? NULL : a->o.config_text,
                                              .args = &args}));
    a->configured = a->run->sync.schedule;
    return role == RUN_SITE ? refuse(a->run) : ERR_OK;
}

/* ---- the run's tensors ---- */

struct lister {
    void *self;
    int (*each)(void *self, const struct atoll_tensor *t, const struct atoll_place *places,
                size_t count);
    const struct names_place *all; /* of every tensor */
    size_t count;
};

static enum err list_one(const struct lister *l, const struct tensor *x, struct arena *scratch)
{
    struct atoll_tensor t = {.name = x->name, .dims = x->shape[1] > 1 ? 2 : 1};
    struct atoll_place *places = arena_array(scratch, l->count + 1, sizeof *places);
    size_t n = 0;
    TRY_ALLOC(places);
    memcpy(t.shape, x->shape, sizeof x->shape);
    for (size_t i = 0; i < l->count; i++)
        if (!strcmp(l->all[i].ours, x->name))
            places[n++] = (struct atoll_place){l->all[i].theirs, (int64_t)l->all[i].first,
                                               (int64_t)l->all[i].rows, l->all[i].transposed};
    return l->each(l->self, &t, places, n)
               ? err_set(ERR_IO, "the caller stopped at tensor %.80s", x->name)
               : ERR_OK;
}

static enum err list_all(struct atoll *a, struct lister *l, struct arena *scratch)
{
    struct names_place *places = NULL;
    TRY(log_open(&a->o));
    TRY(configure(a, RUN_MODEL));
    const struct run *r = a->run;
    enum err e = names_places(&r->s, &r->table, scratch, &places, &l->count);
    if (e != ERR_OK && e != ERR_UNSUPPORTED)
        return e;
    err_clear(); /* a model of no family has no other names */
    l->all = places;
    for (size_t i = 0; i < r->table.count; i++)
        TRY(list_one(l, &r->table.tensors[i], scratch));
    return ERR_OK;
}

static enum err take_tensors(struct atoll *a)
{
    size_t count = a->o.tensors ? a->o.tensor_count : 0;
    struct atoll_tensor *list;
    TRY_ALLOC(list = arena_array(&a->run->perm, count + 1, sizeof *list));
    if (count)
        memcpy(list, a->o.tensors, count * sizeof *list);
    a->tensors = (struct tensors){.table = &a->run->table,
                                  .list = list,
                                  .read = a->o.read,
                                  .write = a->o.write,
                                  .self = a->o.self};
    TRY_ALLOC(a->tensors.piece = arena_array(&a->run->perm, TENSORS_PIECE, sizeof(float)));
    return tensors_check(&a->tensors, count);
}

static enum err own_directory(struct atoll *a)
{
    const struct settings *s = &a->run->s;
    TRY(file_mkdirs(s->run_dir));
    TRY(directory_check(s->run_dir, DIRECTORY_RUN));
    TRY(env_posix_open(&a->env, s->run_dir));
    TRY_ALLOC(a->ledger = arena_alloc(&a->run->perm, sizeof *a->ledger));
    TRY(site_record_ledger(a->ledger, a->run));
    TRY_ALLOC(a->record = arena_alloc(&a->run->perm, sizeof *a->record));
    const char *path = arena_printf(&a->run->perm, "%s/%s", s->run_dir, RECORD_FILE);
    TRY_ALLOC(path);
    TRY(jsonl_open(a->record, path, &a->run->perm));
    return directory_claim(s->run_dir, DIRECTORY_RUN);
}

/* What a wait is for. */
static void notice(void *self, const char *text)
{
    struct atoll *a = self;
    char quoted[600];
    if (!site_notice_new(&a->notice, text))
        return;
    log_event(LOG_WARN, "wait", "text=%s", log_quote(quoted, sizeof quoted, text));
    site_record_notice(a->record, text);
}

static enum err open_lead(struct atoll *a)
{
    TRY(site_parts_name(a->run));
    TRY(own_directory(a));
    return site_parts_open(a->parts, &(struct site_parts_options){.run = a->run,
                                                                  .env = a->env,
                                                                  .dev = a->dev,
                                                                  .gpu = "",
                                                                  .book = ledger_book_add,
                                                                  .book_self = a->ledger,
                                                                  .stop = &a->stop,
                                                                  .notice = notice,
                                                                  .self = a});
}

static enum err open_exchange(struct atoll *a)
{
    const struct exchange_options o = {.rules = site_parts_rules(a->run),
                                       .shards = shards_of((unsigned)a->ranks.coll.rank, 1),
                                       .site = a->parts->site,
                                       .replica = is_lead(a) ? &a->parts->replica : NULL,
                                       .link = a->parts->link,
                                       .coll = &a->ranks.coll,
                                       .beside = true,
                                       .env = a->env,
                                       .rounded = rounded,
                                       .rescheduled = rescheduled,
                                       .self = a};
    const struct exchange_trainer t = {.self = a,
                                       .dev = a->dev,
                                       .elements = a->run->table.elements,
                                       .checkpoints = "the trainer's checkpoint",
                                       .everywhere = a->ranks.coll.size > 1,
                                       .gather = gather,
                                       .mix = mix,
                                       .mixed = mixed,
                                       .moved = moved,
                                       .checkpoint = checkpoint,
                                       .initial = initial};
    struct exchange *x;
    TRY_ALLOC(x = arena_alloc(&a->run->perm, sizeof *x));
    *x = (struct exchange){.t = t};
    a->exchange = x;
    return exchange_open(x, &o, &t);
}

static enum err open_all(struct atoll *a)
{
    struct run *r = a->run;
    TRY(log_open(&a->o));
    TRY(ranks_open(&a->ranks, &a->o));
    TRY(configure(a, RUN_SITE));
    TRY(take_tensors(a));
    TRY_ALLOC(a->parts = arena_alloc(&r->perm, sizeof *a->parts));
    *a->parts = (struct site_parts){0};
    TRY(dev_open(&a->dev, &(struct dev_options){.kind = "cpu",
                                                .model_type = "f32",
                                                .threads = (int)r->s.device_threads}));
    if (is_lead(a))
        TRY(open_lead(a));
    TRY(open_exchange(a));
    enum err e = is_lead(a) ? outer_state_amendments_find(&a->parts->replica) : ERR_OK;
    TRY(exchange_agree(a->exchange, e));
    return exchange_reschedule(a->exchange);
}

/* Accepts what is half open. */
static void close_all(struct atoll *a)
{
    if (a->exchange)
        exchange_close(a->exchange);
    if (a->parts)
        site_parts_close(a->parts);
    if (a->ledger)
        ledger_book_close(a->ledger);
    if (a->record)
        jsonl_close(a->record);
    if (a->env)
        env_posix_close(a->env);
    dev_close(a->dev);
    if (a->run)
        run_close(a->run);
    free(a->run);
    free(a);
}

/* A handle with the caller's options, of which nothing is open. */
static enum err handle_make(struct atoll **out, const struct atoll_options *o, const char *call)
{
    struct atoll *a = NULL;
    *out = NULL;
    err_clear();
    if (o->size < offsetof(struct atoll_options, self) || !(o->config || o->config_text))
        return err_set(ERR_CONFIG,
                       "%s: size is not that of struct atoll_options, or neither config nor "
                       "config_text is given",
                       call);
    TRY_ALLOC(a = calloc(1, sizeof *a));
    a->run = calloc(1, sizeof *a->run);
    memcpy(&a->o, o, o->size < sizeof a->o ? o->size : sizeof a->o);
    if (a->run)
        *out = a;
    else
        free(a);
    return *out ? ERR_OK : err_set(ERR_MEMORY, "%s: no memory for a handle", call);
}

int atoll_tensors(const struct atoll_options *o, void *self,
                  int (*each)(void *self, const struct atoll_tensor *t,
                              const struct atoll_place *places, size_t count))
{
    struct atoll *a;
    struct arena scratch = arena_make(0);
    struct lister l = {.self = self, .each = each};
    enum err e = handle_make(&a, o, "atoll_tensors");
    if (e == ERR_OK) {
        e = list_all(a, &l, &scratch);
        close_all(a);
    }
    arena_free(&scratch);
    return result(e);
}

int atoll_open(struct atoll **run, const struct atoll_options *o)
{
    struct atoll *a;
    enum err e = handle_make(&a, o, "atoll_open");
    *run = NULL;
    if (e != ERR_OK)
        return result(e);
    e = open_all(a);
    if (e == ERR_OK)
        *run = a;
    else
        close_all(a);
    return result(e);
}

/* ---- steps ---- */

/* The result of the exchange, which decides what the handle is good for. */
static enum err worked(struct atoll *a, enum err e)
{
    a->failed = a->failed || (e != ERR_OK && e != ERR_STOPPED);
    return e;
}

/* ERR_CONFIG: the caller makes its calls out of order. */
static enum err in_order(const struct atoll *a, bool started, const char *call)
{
    err_clear();
    if (a->failed)
        return err_set(ERR_CONFIG, "%s: an earlier call failed; close the handle", call);
    if (a->started != started)
        return err_set(ERR_CONFIG,
                       started ? "%s: atoll_start comes first" : "%s: this handle has been started",
                       call);
    return ERR_OK;
}

static void stand_at(struct atoll *a, int64_t step)
{
    a->now.step = step;
    a->now.tokens = (uint64_t)step * a->now.batch_tokens;
}

/* The parameters that the run starts from, on every rank. */
static enum err put_initial(struct atoll *a)
{
    size_t n = a->run->table.elements;
    struct arena scratch = arena_make(0);
    float *slab = arena_array(&scratch, n, sizeof *slab);
    enum err e = slab ? run_initial(a->run, slab) : ERR_MEMORY;
    if (e == ERR_OK)
        e = tensors_write(&a->tensors, 0, n, slab);
    arena_free(&scratch);
    return e;
}

/* metrics.jsonl, as of every site. Lead. */
static enum err record_start(struct atoll *a, const struct settings *s)
{
    struct run *r = a->run;
    const struct config_table tables[] = {keys_inner(&r->s), keys_outer(&r->o)};
    char *config;
    TRY(config_print(tables, 2, CONFIG_RECORDED, &r->perm, &config));
    site_record_start(a->record, r,
                      &(struct site_facts){.s = s,
                                           .outer = true,
                                           .device = "the trainer's",
                                           .threads = a->dev->threads,
                                           .ranks = a->ranks.coll.size,
                                           .parameters = r->table.parameters,
                                           .step = a->now.step});
    jsonl_text(a->record, "command", "libatoll");
    jsonl_text(a->record, "config", config);
    jsonl_end(a->record);
    a->last_round = clock_mono_s();
    return ERR_OK;
}

static enum err start(struct atoll *a, int64_t *step)
{
    TRY(in_order(a, false, "atoll_start"));
    if (*step < 0 || *step > a->run->sync.schedule.steps)
        return err_set(ERR_CONFIG, "atoll_start: step %lld of train.steps = %lld", (long long)*step,
                       (long long)a->run->sync.schedule.steps);
    a->started = true;
    if (*step == 0)
        TRY(worked(a, put_initial(a)));
    const struct settings s = run_site_settings(a->run);
    a->now = (struct exchange_now){.batch_tokens = (uint64_t)s.train_batch_tokens, .loss = NAN};
    stand_at(a, *step);
    if (is_lead(a))
        TRY(worked(a, record_start(a, &s)));
    TRY(worked(a, exchange_start(a->exchange, &a->now)));
    *step = a->now.step;
    return ERR_OK;
}

int atoll_start(struct atoll *run, int64_t *step)
{
    return result(start(run, step));
}

int64_t atoll_steps(const struct atoll *run)
{
    return run->run->sync.schedule.steps;
}

int atoll_due(const struct atoll *run, int64_t step)
{
    return exchange_due(run->exchange, step);
}

static void take_report(struct atoll *a, const struct atoll_report *r)
{
    struct atoll_report mine = {.loss = NAN, .tokens_per_second = NAN};
    if (r && r->size)
        memcpy(&mine, r, r->size < sizeof mine ? r->size : sizeof mine);
    a->now.loss = mine.loss;
    a->now.tokens_per_second = mine.tokens_per_second;
}

static enum err step_made(struct atoll *a, int64_t *step, const struct atoll_report *report)
{
    TRY(in_order(a, true, "atoll_step"));
    if (a->now.step >= a->run->sync.schedule.steps)
        return err_set(ERR_CONFIG, "atoll_step: the run has ended after train.steps = %lld",
                       (long long)a->run->sync.schedule.steps);
    if (*step <= a->now.step || *step > a->run->sync.schedule.steps)
        return err_set(ERR_CONFIG, "atoll_step: step %lld after step %lld of %lld; steps go up",
                       (long long)*step, (long long)a->now.step,
                       (long long)a->run->sync.schedule.steps);
    for (int64_t s = a->now.step + 1; s < *step; s++)
        if (exchange_due(a->exchange, s))
            return err_set(ERR_CONFIG, "atoll_step: step %lld was due and is missing (atoll_due)",
                           (long long)s);
    stand_at(a, *step);
    take_report(a, report);
    if (is_lead(a))
        site_record_step(a->record, &a->now, schedule_next(&a->run->sync.schedule, a->now.step));
    enum err e = exchange_step(a->exchange, &a->now);
    *step = a->now.step;
    return worked(a, e);
}

int atoll_step(struct atoll *run, int64_t *step, const struct atoll_report *report)
{
    return result(step_made(run, step, report));
}

/* ---- checkpoints of the trainer ---- */

static enum err saving(struct atoll *a, int64_t step)
{
    TRY(in_order(a, true, "atoll_saving"));
    if (step < a->now.step)
        return err_set(ERR_CONFIG, "atoll_saving: step %lld after atoll_step of step %lld",
                       (long long)step, (long long)a->now.step);
    struct exchange_now now = a->now;
    now.step = step;
    return worked(a, exchange_saving(a->exchange, &now));
}

int atoll_saving(struct atoll *run, int64_t step)
{
    return result(saving(run, step));
}

static enum err saved(struct atoll *a, int64_t oldest)
{
    TRY(in_order(a, true, "atoll_saved"));
    return worked(a, exchange_saved(a->exchange, oldest));
}

int atoll_saved(struct atoll *run, int64_t oldest)
{
    return result(saved(run, oldest));
}

/* ---- what it holds ---- */

static enum err put_outer(struct atoll *a, int64_t step)
{
    TRY(in_order(a, true, "atoll_outer"));
    return worked(a, exchange_put_outer(a->exchange, step, true));
}

int atoll_outer(struct atoll *run, int64_t step)
{
    return result(put_outer(run, step));
}

int atoll_status(struct atoll *run, struct atoll_status *out)
{
    const struct atoll_counts *c = &run->counts;
    const struct schedule *s = &run->run->sync.schedule;
    const struct atoll_status all = {.size = sizeof all,
                                     .step = run->now.step,
                                     .steps = s->steps,
                                     .rounds = c->rounds,
                                     .rounds_all = exchange_rounds(s, s->steps),
                                     .up_bytes = c->up,
                                     .down_bytes = c->down,
                                     .waited_s = c->waited_s,
                                     .flight_s = c->flight_s,
                                     .included = c->included,
                                     .sites = c->sites};
    size_t size = out->size < sizeof all ? out->size : sizeof all;
    err_clear();
    if (size < sizeof out->size)
        return result(err_set(ERR_CONFIG, "atoll_status: size is not that of struct atoll_status"));
    memcpy(out, &all, size);
    out->size = size;
    return result(ERR_OK);
}

int atoll_digest(struct atoll *run, char hex[65])
{
    enum err e = in_order(run, true, "atoll_digest");
    hex[0] = 0;
    if (e == ERR_OK && is_lead(run)) {
        struct digest d = outer_state_digest(&run->parts->replica, false);
        digest_hex(&d, hex);
    }
    return result(e);
}

/* ---- the end ---- */

void atoll_stop(struct atoll *run)
{
    atomic_store(&run->stop, 1);
}

static enum err leave(struct atoll *a)
{
    bool all = a->now.step >= a->run->sync.schedule.steps;
    if (!a->started || a->failed || !is_lead(a))
        return ERR_OK;
    enum err e = site_leave(a->parts->site, all ? "all steps done" : "stopped on request");
    if (e != ERR_OK || !all) {
        site_record_stop(a->record, a->now.step, "closed");
        return e;
    }
    char outer[65];
    struct counted_last last = {0};
    struct digest d = outer_state_digest(&a->parts->replica, false);
    digest_hex(&d, outer);
    TRY(counted_last(&last, &a->parts->replica, 0, 1));
    return site_record_final(
        a->record, a->run,
        &(struct site_final){.step = a->now.step, .last = &last, .outer = outer});
}

int atoll_close(struct atoll *run)
{
    if (!run)
        return 0;
    err_clear();
    enum err e = leave(run);
    close_all(run);
    return result(e);
}
