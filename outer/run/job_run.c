/* SPDX-License-Identifier: Apache-2.0 */
/* The course of one `atoll train` process: configuration, ranks and device, the steps, the end. */
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/run/closing.h"
#include "outer/run/job.h"

enum err job_configure(struct job *j, const struct args *args)
{
    TRY(run_open(j->run,
                 &(struct run_source){RUN_SITE, .config = j->out->config_path, .args = args}));
    if (j->out->config_path && strcmp(j->out->config_path, "-") == 0)
        j->out->config_path = NULL; /* standard input: no command can name it again */
    TRY(table_own(&j->run->s));
    log_min(j->run->o.log_level);
    j->outer = *j->run->o.site_aggregator != 0;
    *j->s = run_site_settings(j->run);
    return j->outer ? site_parts_name(j->run) : ERR_OK;
}

/* All ranks return these errors after the same step. */
static bool ends_together(enum err e)
{
    return e == ERR_OK || e == ERR_STOPPED || e == ERR_DIVERGED || e == ERR_SHORT ||
           e == ERR_BUDGET;
}

/* Tells the aggregator. e stays the error, with its message: what ended the run, not how the
 * farewell went. */
static void site_farewell(struct job *j, enum err e, const char *reason)
{
    char quoted[1024], said[1024];
    snprintf(said, sizeof said, "%s", err_message());
    if (site_leave(j->o->parts.site, reason) != ERR_OK)
        log_event(LOG_WARN, "leave", "why=%s", log_quote(quoted, sizeof quoted, err_message()));
    err_set(e, "%s", said);
}

static enum err steps_run(struct job *j)
{
    const struct train_hook hook = job_loop(j);
    train_stop_by(&j->train, &j->stopping->stop);
    train_fix_text(&j->train, j->outer && j->run->o.outer_mode == OUTER_MODE_STRICT);
    enum err e = train_run(&j->train, &hook);
    if (e == ERR_OK)
        e = job_digest_inner(j);
    if (e == ERR_OK)
        e = job_digest_outer(j);
    if (e == ERR_STOPPED) /* the signal may have come to another rank alone, after the last wait */
        atomic_store(&j->stopping->stop, 1);
    if (ends_together(e)) {
        enum err ended = job_shards_end(j);
        e = e == ERR_OK ? ended : e;
    }
    if (!job_lead(j)) {
        if (e != ERR_OK && ends_together(e))
            closing_silence();
        return e;
    }
    bool ended = e == ERR_OK;
    if (ended)
        e = job_tell_final(j);
    else
        job_tell_stop(j, err_message());
    if (e == ERR_STOPPED && j->coll->size > 1) { /* the launcher may kill within a second */
        progress_close(&j->out->progress);
        closing_message("train", e);
    }
    bool spent = e == ERR_BUDGET && j->run->o.outer_mode == OUTER_MODE_QUORUM;
    if (j->o->parts.site && (ended || spent || e == ERR_STOPPED))
        site_farewell(j, e,
                      ended   ? "all steps done"
                      : spent ? "its privacy budget is spent"
                              : "stopped on request");
    return e;
}

/* An error that only this rank knows of would leave the others in a collective: the whole job ends.
 */
static void end_job(struct job *j, enum err e)
{
    if (ends_together(e) || j->coll->size == 1)
        return;
    char quoted[1024];
    log_event(LOG_ERROR, "ends", "error=%s why=%s", err_name(e),
              log_quote(quoted, sizeof quoted, err_message()));
    coll_abort(j->coll, err_exit_code(e));
}

/* A dry run for a GPU where there is none, as on the machine that jobs are sent from: its tables
 * hold for bf16 there. */
static enum err open_instead(struct job *j, char no_gpu[512])
{
    bool f32 = j->s->device_dtype == DEVICE_DTYPE_F32;
    const struct dev_options o = {.kind = "cpu", .model_type = f32 ? "f32" : "bf16", .threads = 1};
    snprintf(no_gpu, 512, "%s", err_message());
    return dev_open(&j->dev, &o);
}

static enum err device_open(struct job *j, bool dry, char no_gpu[512])
{
    /* One rank for each GPU of a host. */
    snprintf(j->o->gpu, sizeof j->o->gpu, "cuda:%d", j->coll->local_rank);
    bool cpu = j->s->device_kind == DEVICE_CPU;
    const struct dev_options device = {
        .kind = cpu ? "cpu" : j->o->gpu,
        .model_type = config_choice_name(device_dtype_choices, j->s->device_dtype),
        .threads = (int)j->s->device_threads,
        .graphs = j->s->device_graphs == DEVICE_GRAPHS_ON,
        .emulation = model_emulation(j->s),
        .attention = config_choice_name(device_attention_choices, j->s->device_attention)};
    enum err e = dev_open(&j->dev, &device);
    return e == ERR_UNSUPPORTED && dry && !cpu ? open_instead(j, no_gpu) : e;
}

enum err job_ranks_open(struct job *j, bool dry, char no_gpu[512])
{
    *no_gpu = 0;
    job_signals_open(j);
    TRY(coll_open(&j->coll, config_choice_name(device_kind_choices, j->s->device_kind)));
    enum err e = device_open(j, dry, no_gpu);
    log_prefix("site=%s rank=%d ", *j->run->o.site_name ? j->run->o.site_name : "-", j->coll->rank);
    if (e != ERR_OK)
        end_job(j, e);
    return e;
}

void job_ranks_close(struct job *j)
{
    if (!j->coll)
        return;
    dev_close(j->dev);
    job_signals_close(j);
    coll_close(j->coll);
}

enum err job_run(struct job *j)
{
    atomic_store(&j->stopping->stoppable, true);
    enum err e = job_open(j);
    if (e == ERR_OK)
        e = steps_run(j);
    end_job(j, e);
    job_close(j, e == ERR_OK);
    return e;
}
