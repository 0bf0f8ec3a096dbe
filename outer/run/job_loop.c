/* SPDX-License-Identifier: Apache-2.0 */
/* What a process of `atoll train` does around each step: its hook in the loop of inner/train. */
#include <stdlib.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/run/job.h"
#include "outer/run/notify.h"

bool job_lead(const struct job *j)
{
    return j->coll->rank == 0;
}

static enum err hook_start(void *self, struct train *t)
{
    struct job *j = self;
    if (job_lead(j))
        TRY(job_tell_start(j, t->step));
    if (job_lead(j)) {
        job_health(j);
        notify_ready();
    }
    log_event(LOG_INFO, "start", "step=%lld of=%lld tokens_per_step=%lld parameters=%zu",
              (long long)t->step, (long long)j->s->train_steps, (long long)j->s->train_batch_tokens,
              t->table.parameters);
    j->out->last_round = clock_mono_s();
    if (j->outer)
        TRY(exchange_start(&j->o->exchange, job_now(j)));
    if (j->outer && job_lead(j))
        TRY(job_keys_record(j));
    TRY(job_amend_step(j, t->step));
    TRY(job_eval_look(j, t));
    arena_seal(&j->run->perm); /* what a step or a round needs was taken at open */
    arena_seal(&j->o->parts.host);
    j->out->last_round = clock_mono_s();
    return ERR_OK;
}

static enum err hook_update(void *self, struct train *t)
{
    struct job *j = self;
    (void)t;
    return j->outer ? exchange_update(&j->o->exchange, job_now(j)) : ERR_OK;
}

static bool hook_due(void *self, const struct train *t, int64_t step)
{
    struct job *j = self;
    (void)t;
    return j->outer && exchange_due(&j->o->exchange, step);
}

static enum err hook_step(void *self, struct train *t, const struct train_report *r)
{
    struct job *j = self;
    if (job_lead(j)) {
        job_tell_step(j, r);
        job_health(j);
        job_hooks_record(j);
        job_page_step(j);
    }
    bool due = j->outer && exchange_due(&j->o->exchange, t->step); /* the device rests */
    if (!j->outer)
        return ERR_OK;
    job_now_report(j, r);
    TRY(exchange_step(&j->o->exchange, job_now(j)));
    TRY(job_amend_step(j, t->step));
    return due ? job_eval_look(j, t) : ERR_OK;
}

static enum err hook_eval(void *self, struct train *t, const struct train_eval *e)
{
    struct job *j = self;
    struct train_eval outer = *e;
    bool same = true;
    if (j->outer)
        TRY(job_outer_eval(j, &outer, &same));
    if (job_lead(j) && !same)
        job_tell_eval(j, e, "local");
    bool found = !same || (j->outer && exchange_merged(&j->o->exchange, t->step));
    if (job_lead(j))
        job_tell_eval(j, &outer, found ? "outer" : "local");
    return ERR_OK;
}

static enum err hook_saving(void *self, struct train *t)
{
    struct job *j = self;
    (void)t;
    return j->outer ? exchange_saving(&j->o->exchange, job_now(j)) : ERR_OK;
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
    if (job_lead(j)) {
        job_tell_sources(j);
        tfevents_flush(&j->out->events); /* a restart repeats what comes after this step alone */
        job_hooks_saved(j);
        TRY(oldest_checkpoint(t->given.checkpoint_dir, &oldest));
    }
    return j->outer ? exchange_saved(&j->o->exchange, oldest) : ERR_OK;
}

struct train_hook job_loop(struct job *j)
{
    return (struct train_hook){j,         hook_start, hook_update, hook_due,
                               hook_step, hook_eval,  hook_saving, hook_saved};
}
