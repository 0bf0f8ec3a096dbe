/* Opens and closes what a process of `atoll train` works with, after its ranks and its device. */
#include <stdio.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/identity/tls.h"
#include "outer/link/link_many.h"
#include "outer/run/directory.h"
#include "outer/run/job.h"
#include "outer/run/process.h"
#include "outer/run/version.h"

static enum err path_in(struct job *j, const char **path, const char *name)
{
    TRY_ALLOC(*path = arena_printf(&j->run->perm, "%s/%s", j->s->run_dir, name));
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
                   j->s->run_dir, j->s->run_dir);
}

/* The run's directory is this process's alone. */
static enum err own_directory(struct job *j)
{
    const char *path, *log;
    TRY(file_mkdirs(j->s->run_dir));
    TRY(directory_check(j->s->run_dir, DIRECTORY_RUN));
    if (j->outer)
        TRY(env_posix_open(&j->out->env, j->s->run_dir));
    else {
        TRY(file_lock(&j->out->lock, j->s->run_dir));
        TRY(alone_check(j));
    }
    TRY(path_in(j, &path, RECORD_FILE));
    TRY(jsonl_open(&j->out->record, path, &j->run->perm));
    if (j->outer)
        TRY(ledger_book_open(
            &j->out->ledger,
            &(struct ledger_book_options){.directory = j->s->run_dir,
                                          .run = j->s->run_name,
                                          .replica = j->run->o.site_name,
                                          .rounds = (uint64_t)j->run->o.outer_history_rounds},
            &j->run->perm));
    TRY(path_in(j, &log, "log.txt"));
    TRY(progress_open(&j->out->progress,
                      config_choice_name(log_progress_choices, j->run->o.log_progress), 1, log));
    process_directory_look(j->s->run_dir);
    TRY(directory_claim(j->s->run_dir, DIRECTORY_RUN));
    TRY(job_events_open(j));
    return job_page_open(j);
}

#ifdef ATOLL_NET
static enum err dial(struct job *j)
{
    unsigned count = (unsigned)j->run->o.outer_aggregators;
    char target[256];
    struct link *links[WIRE_AGGREGATORS_MAX];
    struct link_dial d = run_dial(j->run);
    d.target = target;
    d.book = ledger_book_add;
    d.book_self = &j->out->ledger;
    link_tune();
    if (j->coll->size == 1) /* MPI's ranks read one another's memory */
        process_memory_private();
    TRY(run_proxy(j->run));
    TRY(run_tls(j->run, j->run->o.site_name, &d.tls));
    j->o->tls = d.tls;
    int64_t days_left;
    TRY(tls_check(&d.tls, j->s->run_name, TLS_SITE, j->run->o.site_name, clock_wall_s(),
                  &days_left));
    snprintf(target, sizeof target, "atoll://%.63s/site/%.63s", j->s->run_name,
             j->run->o.site_name);
    TRY(tls_signer_open(&j->o->signer, &d.tls, target));
    for (unsigned i = 0; i < count; i++) {
        bool there = keys_aggregator(j->run->o.site_aggregator, i, target, sizeof target);
        enum err e = there ? link_open(&links[i], &d) : ERR_CONFIG;
        for (unsigned k = 0; e != ERR_OK && k < i; k++)
            links[k]->ops->close(links[k]);
        TRY(e);
    }
    return link_many_open(&j->o->link, links, count);
}
#else
static enum err dial(struct job *j)
{
    return err_set(
        ERR_UNSUPPORTED,
        "site.aggregator = %s: this build has no network (-DNET=OFF); leave the key out to "
        "train alone",
        j->run->o.site_aggregator);
}
#endif

/* The device of the outer arithmetic, where it is not the training's. */
static enum err open_beside(struct job *j, bool overlap)
{
    const struct dev_options o = run_beside(j->run, j->dev, j->o->gpu);
    return overlap || !j->dev->host_memory ? dev_open(&j->o->beside, &o) : ERR_OK;
}

static enum err open_site(struct job *j)
{
    struct outer_state_options m = run_outer_state(j->run, true);
    bool strict = j->run->o.outer_mode == OUTER_MODE_STRICT;
    struct site_options o = {.run = j->s->run_name,
                             .name = j->run->o.site_name,
                             .index = (unsigned)j->run->index,
                             .site_count = (unsigned)j->run->o.outer_sites.count,
                             .aggregators = (unsigned)j->run->o.outer_aggregators,
                             .canonical = j->run->identity,
                             .strict = strict,
                             .masks = keys_masks(&j->run->o),
                             .roster = j->run->o.outer_sites.items,
                             .error_feedback_decay = (float)j->run->o.outer_error_feedback_decay,
                             .max_local_steps_offline = j->run->o.outer_max_local_steps_offline,
                             .straggler_ms = (uint64_t)(1e3 * j->run->o.outer_straggler_timeout_s),
                             .seed = (uint64_t)j->s->run_seed,
                             .scrub_every_ms = run_scrub_every_ms(j->run),
                             .scrub_bytes_per_s = run_scrub_bytes_per_s(j->run),
                             .stop = &j->stopping->stop,
                             .notice = job_tell_notice,
                             .notice_self = j};
    TRY(open_beside(j, m.schedule.overlap > 0));
    j->o->host = dev_arena(j->dev);
    TRY(outer_state_open(&j->o->replica, j->out->env, j->o->beside ? j->o->beside : j->dev, &m,
                         &j->o->host));
    log_event(LOG_INFO, "outer_device", "kind=%s", j->o->replica.dev->kind);
    TRY(keys_self(&j->run->o) ? job_aggregator_open(j) : dial(j));
    o.signer = j->o->signer;
    TRY(organs_open_site(&j->o->organs, j->run, j->out->env));
    o.organs = j->o->organs.site;
    return site_open(&j->o->site, j->out->env, j->o->link, &j->o->replica, &o, &j->o->host);
}

static enum err open_exchange(struct job *j)
{
    struct site_train_options o = job_exchange(j);
    TRY(site_train_open(&j->o->exchange, &o, j->train.table.elements));
    TRY(job_amend_open(j));
    j->s->train_steps = j->run->sync.schedule.steps; /* a checkpoint may be of any step of it */
    return ERR_OK;
}

static void say_what(const struct job *j)
{
    char device[320], launcher[160];
    log_event(LOG_INFO, "atoll", "version=%s commit=%s compiler=\"%s\" run=%s site=%s",
              version_number(), version_commit(), version_compiler(), j->s->run_name,
              *j->run->o.site_name ? j->run->o.site_name : "-");
    log_event(LOG_INFO, "hardware", "device=%s threads=%d ranks=%d coll=%s launcher=%s",
              log_quote(device, sizeof device, j->dev->note), j->dev->threads, j->coll->size,
              j->coll->kind, log_quote(launcher, sizeof launcher, j->coll->found));
    if (j->outer)
        tuning_log(&j->run->tuning);
}

/* Sites of one run must number tokens and classes alike, and shards lie at the sites alone: the
 * settings say which, and they are the same at all sites or the aggregator refuses one. */
static enum err check_vocabulary(const struct job *j)
{
    const struct sidecar *s = &j->train.data.loader->sidecar;
    if (j->run->o.outer_sites.count < 2)
        return ERR_OK;
    if (*s->sha256 && !*j->s->data_tokenizer_sha256)
        return err_set(ERR_CONFIG,
                       "data.tokenizer_sha256 is missing: the sites of a run must share one "
                       "tokenizer; for the shards in %s it is %s, for all sites and the aggregator",
                       j->train.data.loader->directory, s->sha256);
    if (j->s->data_objective == DATA_OBJECTIVE_LABELS && !j->s->data_classes.count)
        return err_set(ERR_CONFIG,
                       "data.classes is missing: the sites of a run must number the classes alike; "
                       "%s/data.json has their names",
                       j->train.data.loader->directory);
    return ERR_OK;
}

enum err job_open(struct job *j)
{
    const char *checkpoints;
    if (job_lead(j))
        TRY(own_directory(j));
    say_what(j);
    TRY(path_in(j, &checkpoints, "inner"));
    if (j->outer)
        TRY(job_reserve(j));
    if (job_lead(j))
        TRY(run_begin_from(j->run));
    TRY(job_fetch(j));
    TRY(train_open(
        &j->train,
        &(struct train_options){j->s, j->dev, j->coll, (uint32_t)j->run->index, checkpoints},
        &j->run->perm));
    if (j->train.data.loader->directory)
        TRY(directory_check(j->train.data.loader->directory, DIRECTORY_DATA));
    TRY(job_privacy_open(j));
    TRY(check_vocabulary(j));
    if (j->outer && job_lead(j))
        TRY(open_site(j));
    if (j->outer)
        TRY(open_exchange(j));
    TRY(job_eval_open(j));
    if (job_lead(j)) {
        TRY(job_tell_resume(j));
        TRY(job_hooks_open(j));
    }
    TRY(job_eval_begin(j));
    atomic_store(&j->stopping->status_ready, job_lead(j));
    return ERR_OK;
}

void job_close(struct job *j, bool finished)
{
    job_hooks_close(j, finished);
    job_signals_close(j);
    if (job_lead(j))
        job_page_close(j);
    if (j->o->site)
        site_close(j->o->site);
    organs_close(&j->o->organs);
    if (j->o->link)
        j->o->link->ops->close(j->o->link);
    if (j->o->signer)
        j->o->signer->ops->close(j->o->signer);
    job_aggregator_close(j);
    ledger_book_close(&j->out->ledger);
    site_train_close(&j->o->exchange);
    outer_state_close(&j->o->replica);
    job_eval_close(j);
    train_close(&j->train);
    arena_free(&j->o->host);
    if (j->out->env)
        env_posix_close(j->out->env);
    file_unlock(&j->out->lock);
    bool shown = progress_shows(&j->out->progress);
    progress_close(&j->out->progress);
    job_tell_farewell(j, shown);
    jsonl_close(&j->out->record);
}
