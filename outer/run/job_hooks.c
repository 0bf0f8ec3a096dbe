/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of the operator: run.after_checkpoint of the lead, data.fetch of one rank a host. */
#include "outer/run/job.h"

enum { STOP_PATIENCE_MS = 30000 }; /* a job's manager gives a minute or so */

static enum err log_path(struct job *j, const char *name, const char **path)
{
    TRY_ALLOC(*path = arena_printf(&j->run->perm, "%s/%s", j->s->run_dir, name));
    return ERR_OK;
}

enum err job_hooks_open(struct job *j)
{
    struct hook_options o = {.command = j->s->run_after_checkpoint,
                             .run = j->s->run_name,
                             .site = j->run->o.site_name,
                             .checkpoints = j->train.given.checkpoint_dir,
                             .timeout_ms = 1000 * (uint64_t)j->s->run_after_checkpoint_timeout_s};
    TRY(log_path(j, "after_checkpoint.log", &o.log));
    return hooks_open(&j->hooks, &o);
}

void job_hooks_record(struct job *j)
{
    struct hook_outcome o;
    while (hooks_take(&j->hooks, &o)) {
        jsonl_begin(&j->out->record, "hook");
        jsonl_text(&j->out->record, "hook", "after_checkpoint");
        jsonl_int(&j->out->record, "step", o.step);
        jsonl_int(&j->out->record, "exit", o.status);
        jsonl_int(&j->out->record, "tries", o.tries);
        jsonl_int(&j->out->record, "replaced", o.replaced);
        jsonl_real(&j->out->record, "seconds", o.seconds);
        jsonl_end(&j->out->record);
    }
}

void job_hooks_saved(struct job *j)
{
    hooks_saved(&j->hooks, j->train.step, j->told.line.round);
    job_hooks_record(j);
}

void job_hooks_close(struct job *j, bool finished)
{
    hooks_close(&j->hooks, finished ? j->hooks.o.timeout_ms : STOP_PATIENCE_MS, finished);
    job_hooks_record(j);
}

static enum err fetch(struct job *j)
{
    bool own = j->s->data_shards == DATA_SHARDS_OWN && j->coll->size > 1;
    struct fetch_options o = {.command = j->s->data_fetch,
                              .run = j->s->run_name,
                              .site = j->run->o.site_name,
                              .timeout_ms = 1000 * (uint64_t)j->s->data_fetch_timeout_s,
                              .stop = &j->stopping->stop,
                              .each = 1};
    TRY(log_path(j, "fetch.log", &o.log));
    if (own || j->coll->local_rank == 0) {
        struct fetch_options mine = o;
        mine.number = own ? (uint32_t)j->coll->rank : 0;
        mine.each = own ? (uint32_t)j->coll->size : 1;
        TRY(hooks_fetch(&j->s->data_train, &mine));
    }
    return j->coll->local_rank == 0 ? hooks_fetch(&j->s->data_eval, &o) : ERR_OK;
}

enum err job_fetch(struct job *j)
{
    if (!*j->s->data_fetch)
        return ERR_OK;
    TRY(fetch(j));
    return j->coll->size > 1 ? j->coll->ops->barrier(j->coll) : ERR_OK;
}
