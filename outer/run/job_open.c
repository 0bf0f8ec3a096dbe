/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes what a process of `atoll train` works with, after its ranks and its device. */
#include <stdio.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/record/directory.h"
#include "outer/run/job.h"
#include "outer/run/process.h"
#include "outer/record/version.h"

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
                   "with run.init_from = %s",
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
        TRY(site_record_ledger(&j->out->ledger, j->run));
    TRY(path_in(j, &log, "log.txt"));
    TRY(progress_open(&j->out->progress,
                      config_choice_name(log_progress_choices, j->run->o.log_progress), 1, log));
    process_directory_look(j->s->run_dir);
    TRY(directory_claim(j->s->run_dir, DIRECTORY_RUN));
    TRY(job_events_open(j));
    return job_page_open(j);
}

static enum err open_site(struct job *j)
{
    if (!keys_self(&j->run->o) && j->coll->size == 1) /* MPI's ranks read one another's memory */
        process_memory_private();
    void *book_self;
    ledger_sink *book = job_ledger(j, &book_self);
    return site_parts_open(&j->o->parts,
                           &(struct site_parts_options){.run = j->run,
                                                        .env = j->out->env,
                                                        .dev = j->dev,
                                                        .gpu = j->o->gpu,
                                                        .shards = job_shards(j, j->run),
                                                        .joint = job_shards_process(j),
                                                        .book = book,
                                                        .book_self = book_self,
                                                        .stop = &j->stopping->stop,
                                                        .notice = job_tell_notice,
                                                        .own = job_aggregator_open,
                                                        .self = j});
}

static enum err open_exchange(struct job *j)
{
    const struct exchange_options o = job_exchange(j, j->run);
    TRY(job_trainer_open(j, &o, job_looks(j)));
    TRY(job_amend_open(j));
    j->s->train_steps = j->run->sync.schedule.steps; /* a checkpoint may be of any step of it */
    return ERR_OK;
}

static void say_what(const struct job *j)
{
    char device[320], launcher[160];
    log_event(LOG_INFO, "atoll", "version=%s commit=%s compiler=\"%s\" run=%s", version_number(),
              version_commit(), version_compiler(), j->s->run_name);
    log_event(LOG_INFO, "hardware", "device=%s threads=%d ranks=%d coll=%s launcher=%s",
              log_quote(device, sizeof device, j->dev->note), j->dev->threads, j->coll->size,
              j->coll->kind, log_quote(launcher, sizeof launcher, j->coll->found));
    if (j->outer)
        tuning_log(&j->run->tuning, &j->run->s, &j->run->o,
                   (int64_t)schedule_rounds(&j->run->sync.schedule, 0));
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

/* The records of the processes before this one, each for all who continue from it. */
static enum err records_read(struct job *j)
{
    struct jsonl_reader reader;
    struct jsonl_row row;
    const char *path;
    TRY(path_in(j, &path, RECORD_FILE));
    if (!jsonl_reader_open(&reader, path))
        return ERR_OK;
    while (jsonl_next(&reader, &row)) {
        job_tell_resume(j, &row);
        job_eval_record(j, &row);
    }
    jsonl_reader_close(&reader);
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
        TRY(job_shards_open(j));
    if (j->outer && !job_lead(j) && job_holds(j))
        TRY(open_site(j));
    if (j->outer)
        TRY(open_exchange(j));
    TRY(job_eval_open(j));
    if (job_lead(j)) {
        TRY(records_read(j));
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
    job_trainer_close(j);
    site_parts_close(&j->o->parts);
    job_shards_close(j);
    job_aggregator_close(j);
    ledger_book_close(&j->out->ledger);
    job_eval_close(j);
    train_close(&j->train);
    if (j->out->env)
        env_posix_close(j->out->env);
    file_unlock(&j->out->lock);
    bool shown = progress_shows(&j->out->progress);
    progress_close(&j->out->progress);
    job_tell_farewell(j, shown);
    jsonl_close(&j->out->record);
}
