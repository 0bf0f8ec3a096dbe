/* atoll train: one site (or a site alone), one process of one or more ranks. Opens everything,
 * runs, closes everything; what happens between steps is in site_train.c, what it looks like in
 * progress.c and record.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/base/args.h"
#include "outer/cmd/cmd.h"
#include "outer/run/directory.h"
#include "outer/run/job.h"
#include "outer/run/notify.h"
#include "outer/link/link_many.h"
#include "outer/identity/tls.h"
#include "outer/run/version.h"

/* ---- configuration ---- */

/* A site that the run did not begin with: the aggregator knows whether an operator has added it. A
 * name without a certificate is a slip. */
static enum err later_site_check(struct job *j)
{
    struct link_tls tls;
    if (!j->outer || j->run.index < ROUND_SITES_MAX)
        return ERR_OK;
    TRY(run_tls(&j->run, j->run.o.site_name, &tls));
    if (file_exists(tls.ca) && !file_exists(tls.certificate)) /* ranks but the lead may have none */
        return err_set(ERR_CONFIG,
                       "site.name = \"%.80s\" is none of outer.sites, and there is no %s either: "
                       "correct the name; a site that joins later needs its certificate",
                       j->run.o.site_name, tls.certificate);
    log_event(LOG_INFO, "later_site",
              "site=%s text=\"none of outer.sites: the aggregator says "
              "whether an operator has added it\"",
              j->run.o.site_name);
    return ERR_OK;
}

static enum err configure(struct job *j, const struct args *args)
{
    TRY(run_open(&j->run, &(struct run_source){RUN_SITE, .config = j->config_path, .args = args}));
    log_min(j->run.o.log_level);
    j->outer = *j->run.o.site_aggregator != 0;
    j->s = run_site_settings(&j->run);
    return later_site_check(j);
}

/* Outer states on disk, at most: those that a restart from the oldest kept checkpoint repeats. */
static uint64_t states_kept(const struct job *j)
{
    int64_t span = j->s.train_checkpoint_every * (j->s.train_checkpoint_keep + 1);
    return (uint64_t)(span / j->run.o.outer_every) + 2;
}

static void print_predictions(const struct job *j)
{
    size_t elements[ROUND_FRAGMENTS_MAX], all = 0;
    char up[32], down[32], disk[32];
    job_sizes(j, elements);
    for (unsigned f = 0; f < j->run.sync.fragments.count; f++)
        all += elements[f];
    unsigned sites = (unsigned)j->run.o.outer_sites.count;
    uint64_t rounds = site_train_rounds(&j->run.sync.schedule, j->s.train_steps);
    progress_bytes(up, sizeof up, (double)schedule_upload_bytes(&j->run.sync.schedule, elements));
    progress_bytes(down, sizeof down,
                   (double)schedule_download_bytes(&j->run.sync.schedule, elements, sites));
    progress_bytes(disk, sizeof disk, (double)(states_kept(j) * all * 12));
    printf("\n# The link, of this site in the whole run: %llu exchanges, %s up, %s down (payload)\n"
           "# Disk, outer states kept for restarts: %s\n",
           (unsigned long long)rounds, up, down, disk);
}

static void print_tuning(const struct job *j)
{
    char text[256], warning[512];
    tuning_text(&j->run.tuning, text, sizeof text);
    tuning_warning(&j->run.tuning, warning, sizeof warning);
    printf("# Outer learning rate: %s\n", text);
    if (*warning)
        printf("# WARNING: %s\n", warning);
}

/* What matters comes last. */
static enum err dry_run(struct job *j, bool all)
{
    const struct config_table tables[] = {keys_inner(&j->s), keys_outer(&j->run.o)};
    char *text, warning[300];
    if (all)
        TRY(config_print(tables, 2, &j->run.perm, &text));
    else
        TRY(config_print_differing(tables, 2, &j->run.perm, &text));
    if (!all)
        printf("# What differs from the defaults; --all prints every key.\n");
    fputs(text, stdout);
    keys_warning(&j->s, warning, sizeof warning);
    if (*warning)
        printf("# WARNING: %s\n", warning);
    job_print_memory(j, &j->run.table);
    if (j->outer) {
        print_predictions(j);
        print_tuning(j);
    }
    return ERR_OK;
}

/* ---- the hook ---- */
static bool is_lead(const struct job *j)
{
    return j->coll->rank == 0;
}

static enum err hook_start(void *self, struct train *t)
{
    struct job *j = self;
    if (is_lead(j))
        TRY(job_tell_start(j, t->step));
    if (is_lead(j)) {
        job_health(j);
        notify_ready();
    }
    log_event(LOG_INFO, "start", "step=%lld of=%lld tokens_per_step=%lld parameters=%zu",
              (long long)t->step, (long long)j->s.train_steps, (long long)j->s.train_batch_tokens,
              t->table.parameters);
    j->last_round = clock_mono_s();
    if (j->outer)
        TRY(site_train_start(&j->exchange, t));
    if (j->outer && is_lead(j))
        TRY(job_keys_record(j));
    TRY(job_amend_step(j, t->step));
    TRY(job_eval_look(j, t));
    arena_seal(&j->run.perm); /* what a step or a round needs was taken at open */
    arena_seal(&j->host);
    j->last_round = clock_mono_s();
    return ERR_OK;
}

static enum err hook_update(void *self, struct train *t)
{
    struct job *j = self;
    return j->outer ? site_train_update(&j->exchange, t) : ERR_OK;
}

static bool hook_due(void *self, const struct train *t, int64_t step)
{
    struct job *j = self;
    (void)t;
    return j->outer && site_train_due(&j->exchange, step);
}

static enum err hook_step(void *self, struct train *t, const struct train_report *r)
{
    struct job *j = self;
    if (is_lead(j)) {
        job_tell_step(j, r);
        job_health(j);
        job_hooks_record(j);
        job_page_step(j);
    }
    bool due = j->outer && site_train_due(&j->exchange, t->step); /* the device rests */
    if (!j->outer)
        return ERR_OK;
    TRY(site_train_step(&j->exchange, t, r));
    TRY(job_amend_step(j, t->step));
    return due ? job_eval_look(j, t) : ERR_OK;
}

static enum err hook_eval(void *self, struct train *t, const struct train_eval *e)
{
    struct job *j = self;
    struct train_eval outer = *e;
    bool same = true;
    if (j->outer)
        TRY(site_train_eval(&j->exchange, t, &outer, &same));
    if (is_lead(j) && !same)
        job_tell_eval(j, e, "local");
    bool found = !same || (j->outer && site_train_merged(&j->exchange, t->step));
    if (is_lead(j))
        job_tell_eval(j, &outer, found ? "outer" : "local");
    return ERR_OK;
}

static enum err hook_saving(void *self, struct train *t)
{
    struct job *j = self;
    return j->outer ? site_train_saving(&j->exchange, t) : ERR_OK;
}

/* Checkpoints are directories named by their step, so the first name is the oldest. */
static enum err oldest_checkpoint(const char *dir, int64_t *step)
{
    struct arena scratch = arena_make(0);
    char **names;
    size_t count;
    enum err e = file_list(dir, &scratch, &names, &count);
    if (e == ERR_OK && count)
        *step = strtoll(names[0], NULL, 10);
    arena_free(&scratch);
    return e;
}

static enum err hook_saved(void *self, struct train *t)
{
    struct job *j = self;
    int64_t oldest = 0;
    if (!is_lead(j))
        return ERR_OK;
    job_tell_sources(j);
    tfevents_flush(&j->events); /* a restart repeats what comes after this step alone */
    job_hooks_saved(j);
    TRY(oldest_checkpoint(t->given.checkpoint_dir, &oldest));
    return j->outer ? site_train_saved(&j->exchange, oldest) : ERR_OK;
}

/* ---- open, run, close ---- */
static enum err path_in(struct job *j, const char **path, const char *name)
{
    TRY_ALLOC(*path = arena_printf(&j->run.perm, "%s/%s", j->s.run_dir, name));
    return ERR_OK;
}

/* Steps without rounds in the directory of a site would be another run under its name. */
static enum err alone_check(struct job *j)
{
    const char *site;
    TRY(path_in(j, &site, "id/site"));
    if (!file_exists(site))
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "%s has rounds of a site, and site.aggregator is empty: it would train on "
                   "without rounds; give site.aggregator (self, or host:port), or another run.dir "
                   "with run.from = %s",
                   j->s.run_dir, j->s.run_dir);
}

/* The run's directory is this process's alone. */
static enum err own_directory(struct job *j)
{
    const char *path, *log;
    TRY(file_mkdirs(j->s.run_dir));
    TRY(directory_check(j->s.run_dir, DIRECTORY_RUN));
    if (j->outer)
        TRY(env_posix_open(&j->env, j->s.run_dir));
    else {
        TRY(file_lock(&j->lock, j->s.run_dir));
        TRY(alone_check(j));
    }
    TRY(path_in(j, &path, RECORD_FILE));
    TRY(jsonl_open(&j->record, path, &j->run.perm));
    if (j->outer)
        TRY(ledger_book_open(
            &j->ledger,
            &(struct ledger_book_options){.directory = j->s.run_dir,
                                          .run = j->s.run_name,
                                          .replica = j->run.o.site_name,
                                          .rounds = (uint64_t)j->run.o.outer_history_rounds},
            &j->run.perm));
    TRY(path_in(j, &log, "log.txt"));
    TRY(progress_open(&j->progress, config_choice_name(log_progress_choices, j->run.o.log_progress),
                      1, log));
    cmd_directory_look(j->s.run_dir);
    TRY(directory_claim(j->s.run_dir, DIRECTORY_RUN));
    TRY(job_events_open(j));
    return job_page_open(j);
}

#ifdef ATOLL_NET
static enum err dial(struct job *j)
{
    unsigned count = (unsigned)j->run.o.outer_aggregators;
    char target[256];
    struct link *links[WIRE_AGGREGATORS_MAX];
    struct link_dial d = {.target = target,
                          .streams = (unsigned)j->run.o.site_streams,
                          .automatic = j->run.o.site_streams == SITE_STREAMS_AUTO,
                          .bbr = j->run.o.site_congestion == SITE_CONGESTION_BBR,
                          .rate_up = (uint64_t)(1e6 / 8 * j->run.o.site_rate_up),
                          .rate_down = (uint64_t)(1e6 / 8 * j->run.o.site_rate_down),
                          .book = ledger_book_add,
                          .book_self = &j->ledger};
    link_tune();
    if (j->coll->size == 1) /* MPI's ranks read one another's memory */
        cmd_memory_private();
    if (*j->run.o.site_aggregator_name)
        d.server_name = j->run.o.site_aggregator_name;
    d.proxy = &j->run.proxy;
    TRY(run_proxy(&j->run));
    TRY(run_tls(&j->run, j->run.o.site_name, &d.tls));
    j->tls = d.tls;
    int64_t days_left;
    TRY(tls_check(&d.tls, j->s.run_name, TLS_SITE, j->run.o.site_name, clock_wall_s(), &days_left));
    snprintf(target, sizeof target, "atoll://%.63s/site/%.63s", j->s.run_name, j->run.o.site_name);
    TRY(tls_signer_open(&j->signer, &d.tls, target));
    for (unsigned i = 0; i < count; i++) {
        bool there = keys_aggregator(j->run.o.site_aggregator, i, target, sizeof target);
        enum err e = there ? link_open(&links[i], &d) : ERR_CONFIG;
        for (unsigned k = 0; e != ERR_OK && k < i; k++)
            links[k]->ops->close(links[k]);
        TRY(e);
    }
    return link_many_open(&j->link, links, count);
}
#else
static enum err dial(struct job *j)
{
    return err_set(
        ERR_UNSUPPORTED,
        "site.aggregator = %s: this build has no network (-DNET=OFF); leave the key out to "
        "train alone",
        j->run.o.site_aggregator);
}
#endif

/* The device of the outer arithmetic, where it is not the training's. */
static enum err open_beside(struct job *j, bool overlap)
{
    struct dev_options o = {.kind = "cpu", .model_type = "f32"};
    if (j->dev->host_memory)
        o.threads = (j->dev->threads + 3) / 4;
    else if (job_outer_on_gpu(j))
        o = (struct dev_options){
            .kind = j->gpu, .model_type = "f32", .threads = dev_threads(), .low_priority = true};
    return overlap || !j->dev->host_memory ? dev_open(&j->beside, &o) : ERR_OK;
}

static enum err open_site(struct job *j)
{
    struct outer_state_options m = run_outer_state(&j->run, true);
    bool strict = j->run.o.outer_mode == OUTER_MODE_STRICT;
    struct site_options o = {.run = j->s.run_name,
                             .name = j->run.o.site_name,
                             .index = (unsigned)j->run.index,
                             .site_count = (unsigned)j->run.o.outer_sites.count,
                             .aggregators = (unsigned)j->run.o.outer_aggregators,
                             .canonical = j->run.identity,
                             .strict = strict,
                             .masks = keys_masks(&j->run.o),
                             .roster = j->run.o.outer_sites.items,
                             .error_feedback_decay = (float)j->run.o.outer_error_feedback_decay,
                             .max_local_steps_offline = j->run.o.outer_max_local_steps_offline,
                             .straggler_ms = (uint64_t)(1e3 * j->run.o.outer_straggler_timeout_s),
                             .seed = (uint64_t)j->s.run_seed,
                             .scrub_every_ms = run_scrub_every_ms(&j->run),
                             .scrub_bytes_per_s = run_scrub_bytes_per_s(&j->run),
                             .stop = &j->stop,
                             .notice = job_tell_notice,
                             .notice_self = j};
    TRY(open_beside(j, m.schedule.overlap > 0));
    j->host = dev_arena(j->dev);
    TRY(outer_state_open(&j->replica, j->env, j->beside ? j->beside : j->dev, &m, &j->host));
    log_event(LOG_INFO, "outer_device", "kind=%s", j->replica.dev->kind);
    TRY(keys_self(&j->run.o) ? job_aggregator_open(j) : dial(j));
    o.signer = j->signer;
    TRY(organs_open_site(&j->organs, &j->run, j->env));
    o.organs = j->organs.site;
    return site_open(&j->site, j->env, j->link, &j->replica, &o, &j->host);
}

static enum err open_exchange(struct job *j)
{
    struct site_train_options o = job_exchange(j);
    TRY(site_train_open(&j->exchange, &o, j->train.table.elements));
    TRY(job_amend_open(j));
    j->s.train_steps = j->run.sync.schedule.steps; /* a checkpoint may be of any step of it */
    return ERR_OK;
}

static void say_what(const struct job *j)
{
    char device[320], launcher[160];
    log_event(LOG_INFO, "atoll", "version=%s commit=%s compiler=\"%s\" run=%s site=%s",
              version_number(), version_commit(), version_compiler(), j->s.run_name,
              *j->run.o.site_name ? j->run.o.site_name : "-");
    log_event(LOG_INFO, "hardware", "device=%s threads=%d ranks=%d coll=%s launcher=%s",
              log_quote(device, sizeof device, j->dev->note), j->dev->threads, j->coll->size,
              j->coll->kind, log_quote(launcher, sizeof launcher, j->coll->found));
    if (j->outer)
        tuning_log(&j->run.tuning);
}

/* Sites of one run must number tokens and classes alike, and shards lie at the sites alone: the
 * settings say which, and they are the same at all sites or the aggregator refuses one. */
static enum err check_vocabulary(const struct job *j)
{
    const struct sidecar *s = &j->train.data.loader->sidecar;
    if (j->run.o.outer_sites.count < 2)
        return ERR_OK;
    if (*s->sha256 && !*j->s.data_tokenizer_sha256)
        return err_set(ERR_CONFIG,
                       "data.tokenizer_sha256 is missing: the sites of a run must share one "
                       "tokenizer; for the shards in %s it is %s, for all sites and the aggregator",
                       j->train.data.loader->directory, s->sha256);
    if (j->s.data_objective == DATA_OBJECTIVE_LABELS && !j->s.data_classes.count)
        return err_set(ERR_CONFIG,
                       "data.classes is missing: the sites of a run must number the classes alike; "
                       "%s/data.json has their names",
                       j->train.data.loader->directory);
    return ERR_OK;
}

static enum err open_all(struct job *j)
{
    const char *checkpoints;
    if (is_lead(j))
        TRY(own_directory(j));
    say_what(j);
    TRY(path_in(j, &checkpoints, "inner"));
    if (j->outer)
        TRY(job_reserve(j));
    if (is_lead(j))
        TRY(run_begin_from(&j->run));
    TRY(job_fetch(j));
    TRY(train_open(
        &j->train,
        &(struct train_options){&j->s, j->dev, j->coll, (uint32_t)j->run.index, checkpoints},
        &j->run.perm));
    if (j->train.data.loader->directory)
        TRY(directory_check(j->train.data.loader->directory, DIRECTORY_DATA));
    TRY(job_privacy_open(j));
    TRY(check_vocabulary(j));
    if (j->outer && is_lead(j))
        TRY(open_site(j));
    if (j->outer)
        TRY(open_exchange(j));
    TRY(job_eval_open(j));
    if (is_lead(j)) {
        TRY(job_tell_resume(j));
        TRY(job_hooks_open(j));
    }
    TRY(job_eval_begin(j));
    atomic_store(&j->status_ready, is_lead(j));
    return ERR_OK;
}

static void close_all(struct job *j, bool finished)
{
    job_hooks_close(j, finished);
    job_signals_close(j);
    if (is_lead(j))
        job_page_close(j);
    if (j->site)
        site_close(j->site);
    organs_close(&j->organs);
    if (j->link)
        j->link->ops->close(j->link);
    if (j->signer)
        j->signer->ops->close(j->signer);
    job_aggregator_close(j);
    ledger_book_close(&j->ledger);
    site_train_close(&j->exchange);
    outer_state_close(&j->replica);
    job_eval_close(j);
    train_close(&j->train);
    arena_free(&j->host);
    if (j->env)
        env_posix_close(j->env);
    file_unlock(&j->lock);
    bool shown = progress_shows(&j->progress);
    progress_close(&j->progress);
    job_tell_farewell(j, shown);
    jsonl_close(&j->record);
}

/* All ranks return these errors after the same step. */
static bool ends_together(enum err e)
{
    return e == ERR_OK || e == ERR_STOPPED || e == ERR_DIVERGED || e == ERR_SHORT ||
           e == ERR_BUDGET;
}

static enum err run(struct job *j)
{
    const struct train_hook hook = {j,         hook_start, hook_update, hook_due,
                                    hook_step, hook_eval,  hook_saving, hook_saved};
    train_stop_by(&j->train, &j->stop);
    train_fix_text(&j->train, j->outer && j->run.o.outer_mode == OUTER_MODE_STRICT);
    enum err e = train_run(&j->train, &hook);
    if (!is_lead(j)) {
        if (e != ERR_OK && ends_together(e))
            cmd_silence();
        return e;
    }
    bool ended = e == ERR_OK;
    if (ended)
        e = job_tell_final(j);
    else
        job_tell_stop(j, err_message());
    if (e == ERR_STOPPED && j->coll->size > 1) { /* the launcher may kill within a second */
        progress_close(&j->progress);
        cmd_close("train", e);
    }
    bool spent = e == ERR_BUDGET && j->run.o.outer_mode == OUTER_MODE_QUORUM;
    if (j->site && (ended || spent || e == ERR_STOPPED)) {
        char quoted[1024],
            said[1024]; /* what ended the run is the message, not how the good-bye went */
        snprintf(said, sizeof said, "%s", err_message());
        enum err left = site_leave(j->site, ended   ? "all steps done"
                                            : spent ? "its privacy budget is spent"
                                                    : "stopped on request");
        if (left != ERR_OK)
            log_event(LOG_WARN, "leave", "reason=%s",
                      log_quote(quoted, sizeof quoted, err_message()));
        err_set(e, "%s", said);
    }
    return e;
}

/* An error that only this rank knows of would leave the others in a collective: the whole job ends.
 */
static void end_job(struct job *j, enum err e)
{
    if (ends_together(e) || j->coll->size == 1)
        return;
    char quoted[1024];
    log_event(LOG_ERROR, "ends", "error=%s reason=%s", err_name(e),
              log_quote(quoted, sizeof quoted, err_message()));
    coll_abort(j->coll, err_exit_code(e));
}

/* A dry run for a GPU where there is none, as on the machine that jobs are sent from: its tables
 * hold for bf16 there. */
static enum err open_instead(struct job *j)
{
    bool f32 = j->s.device_dtype == DEVICE_DTYPE_F32;
    const struct dev_options o = {.kind = "cpu", .model_type = f32 ? "f32" : "bf16", .threads = 1};
    printf("# No GPU here, the tables below are for one all the same: %s\n", err_message());
    return dev_open(&j->dev, &o);
}

struct train_wish {
    bool dry, all, keys;
};

static enum err train(struct job *j, const struct args *args, const struct train_wish *w)
{
    bool dry = w->dry;
    TRY(configure(j, args));
    job_signals_open(j);
    TRY(coll_open(&j->coll, config_choice_name(device_kind_choices, j->s.device_kind)));
    /* One rank for each GPU of a host. */
    snprintf(j->gpu, sizeof j->gpu, "cuda:%d", j->coll->local_rank);
    bool cpu = j->s.device_kind == DEVICE_CPU;
    const struct dev_options device = {
        .kind = cpu ? "cpu" : j->gpu,
        .model_type = config_choice_name(device_dtype_choices, j->s.device_dtype),
        .threads = (int)j->s.device_threads,
        .graphs = j->s.device_graphs == DEVICE_GRAPHS_ON,
        .emulation = model_emulation(&j->s),
        .attention = config_choice_name(device_attention_choices, j->s.device_attention)};
    enum err e = dev_open(&j->dev, &device);
    if (e == ERR_UNSUPPORTED && dry && !cpu)
        e = open_instead(j);
    log_prefix("site=%s rank=%d ", *j->run.o.site_name ? j->run.o.site_name : "-", j->coll->rank);
    if (e != ERR_OK)
        end_job(j, e);
    else if (dry)
        e = is_lead(j) ? dry_run(j, w->all) : ERR_OK;
    else {
        atomic_store(&j->stoppable, true);
        e = open_all(j);
        if (e == ERR_OK)
            e = run(j);
        end_job(j, e);
        close_all(j, e == ERR_OK);
    }
    dev_close(j->beside);
    dev_close(j->dev);
    job_signals_close(j);
    coll_close(j->coll);
    return e;
}

static enum err print_keys(struct job *j)
{
    char *text;
    TRY(run_reference(&j->run.perm, &text));
    fputs(text, stdout);
    return ERR_OK;
}

/* `--help-keys outer.lr`: the word after it. */
static const char *key_asked(int argc, char **argv)
{
    for (int i = 0; i + 1 < argc; i++)
        if (strcmp(argv[i], "--help-keys") == 0 && *argv[i + 1] != '-')
            return argv[i + 1];
    return NULL;
}

static enum err print_key(struct job *j, const char *key)
{
    char *text;
    TRY(run_key_reference(&j->run.perm, key, &text));
    args_print(text, 0, 4);
    return ERR_OK;
}

enum err cmd_train(int argc, char **argv)
{
    struct job j = {.lock = {-1, -1, false}};
    struct train_wish w = {0};
    const struct args_option options[] = {
        {"config", ARGS_TEXT, &j.config_path, .value = "FILE",
         .help = "Configuration (YAML); without it, defaults and --section.key arguments."},
        {"dry-run", ARGS_FLAG, &w.dry,
         .help = "Print the settings that differ from the defaults, the memory and the bytes on "
                 "the link, "
                 "and stop."},
        {"all", ARGS_FLAG, &w.all, .help = "With --dry-run: every setting."},
        {"help-keys", ARGS_FLAG, &w.keys,
         .help = "Print every key, as Markdown, or what a KEY after it means, and stop."},
    };
    struct args args = {
        .command = "train",
        .summary =
            "Trains: as a site of a run when site.aggregator is given, else alone. Ctrl-C "
            "finishes the step, "
            "saves and leaves with exit code 75; the same command goes on from there. SIGUSR2 "
            "prints its status. The live row: site, state (what it waits for), step, loss, "
            "committed rounds, time to the next sync, time left (+ wait: it stands still), "
            "tokens/s, payload up and down of the whole run.",
        .example = "atoll train --config deploy/examples/minute.yaml --site.name a --run.dir run-a "
                   "--data.train data/train-a.bin",
        .settings = run_nearest_setting,
        .options = options,
        .count = sizeof options / sizeof *options};
    j.command = args_line(&j.run.perm, argc, argv);
    cmd_files_private();
    const char *key = key_asked(argc, argv);
    if (key) {
        enum err asked = print_key(&j, key);
        run_close(&j.run);
        return asked;
    }
    enum err e = args_parse(&args, argc, argv, &j.run.perm);
    if (e == ERR_OK && w.keys)
        e = print_keys(&j);
    else if (e == ERR_OK && !args.help)
        e = train(&j, &args, &w);
    run_close(&j.run);
    return e;
}
