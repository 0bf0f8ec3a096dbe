/* SPDX-License-Identifier: Apache-2.0 */
/* atoll train: one site (or a site alone), one process of one or more ranks. Opens everything,
 * runs, closes everything; what happens between steps is in job_loop.c, what it looks like in
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
#include "outer/run/key_forms.h"
#include "outer/run/process.h"
#include "outer/record/directory.h"
#include "outer/run/job.h"
#include "outer/run/notify.h"
#include "outer/record/version.h"

/* ---- configuration ---- */

static enum err configure(struct job *j, const struct args *args)
{
    TRY(run_open(j->run,
                 &(struct run_source){RUN_SITE, .config = j->out->config_path, .args = args}));
    TRY(table_own(&j->run->s));
    log_min(j->run->o.log_level);
    j->outer = *j->run->o.site_aggregator != 0;
    *j->s = run_site_settings(j->run);
    return j->outer ? site_parts_name(j->run) : ERR_OK;
}

/* Outer states on disk, at most: those that a restart from the oldest kept checkpoint repeats. */
static uint64_t states_kept(const struct job *j)
{
    int64_t span = j->s->train_checkpoint_every * (j->s->train_checkpoint_keep + 1);
    return (uint64_t)(span / j->run->o.outer_sync_every) + 2;
}

static void print_predictions(const struct job *j)
{
    size_t elements[ROUND_FRAGMENTS_MAX], all = 0;
    char up[32], down[32], disk[32];
    site_record_sizes(j->run, elements);
    for (unsigned f = 0; f < j->run->sync.fragments.count; f++)
        all += elements[f];
    unsigned sites = (unsigned)j->run->o.outer_sites.count;
    uint64_t rounds = exchange_rounds(&j->run->sync.schedule, j->s->train_steps);
    progress_bytes(up, sizeof up, (double)schedule_upload_bytes(&j->run->sync.schedule, elements));
    progress_bytes(down, sizeof down,
                   (double)schedule_download_bytes(&j->run->sync.schedule, elements, sites));
    progress_bytes(disk, sizeof disk, (double)(states_kept(j) * all * 12));
    printf("\n# The link, of this site in the whole run: %llu exchanges, %s up, %s down (payload)\n"
           "# Disk, outer states kept for restarts: %s\n",
           (unsigned long long)rounds, up, down, disk);
}

static void print_tuning(const struct job *j)
{
    char text[256], warning[512];
    tuning_text(&j->run->tuning, text, sizeof text);
    tuning_warning(&j->run->tuning, warning, sizeof warning);
    printf("# Outer learning rate: %s\n", text);
    if (*warning)
        printf("# WARNING: %s\n", warning);
}

/* What matters comes last. */
static enum err dry_run(struct job *j, bool all)
{
    const struct config_table tables[] = {keys_inner(j->s), keys_outer(&j->run->o)};
    char *text, warning[300];
    if (all)
        TRY(config_print(tables, 2, CONFIG_TYPED, &j->run->perm, &text));
    else
        TRY(config_print_differing(tables, 2, &j->run->perm, &text));
    if (!all)
        printf("# What differs from the defaults; --all prints every key.\n");
    fputs(text, stdout);
    keys_warning(j->s, warning, sizeof warning);
    if (*warning)
        printf("# WARNING: %s\n", warning);
    job_print_memory(j, &j->run->table);
    if (j->outer) {
        print_predictions(j);
        print_tuning(j);
    }
    return ERR_OK;
}

/* ---- run ---- */
/* All ranks return these errors after the same step. */
static bool ends_together(enum err e)
{
    return e == ERR_OK || e == ERR_STOPPED || e == ERR_DIVERGED || e == ERR_SHORT ||
           e == ERR_BUDGET;
}

static enum err run(struct job *j)
{
    const struct train_hook hook = job_loop(j);
    train_stop_by(&j->train, &j->stopping->stop);
    train_fix_text(&j->train, j->outer && j->run->o.outer_mode == OUTER_MODE_STRICT);
    enum err e = train_run(&j->train, &hook);
    if (e == ERR_OK)
        e = job_digest_inner(j);
    if (!job_lead(j)) {
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
        progress_close(&j->out->progress);
        cmd_close("train", e);
    }
    bool spent = e == ERR_BUDGET && j->run->o.outer_mode == OUTER_MODE_QUORUM;
    if (j->o->parts.site && (ended || spent || e == ERR_STOPPED)) {
        char quoted[1024],
            said[1024]; /* what ended the run is the message, not how the good-bye went */
        snprintf(said, sizeof said, "%s", err_message());
        enum err left = site_leave(j->o->parts.site, ended   ? "all steps done"
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
    bool f32 = j->s->device_dtype == DEVICE_DTYPE_F32;
    const struct dev_options o = {.kind = "cpu", .model_type = f32 ? "f32" : "bf16", .threads = 1};
    printf("# No GPU here, the tables below are for one all the same: %s\n", err_message());
    return dev_open(&j->dev, &o);
}

struct train_wish {
    bool dry, all, keys;
    const char *form; /* of --help-keys */
};

static enum err train(struct job *j, const struct args *args, const struct train_wish *w)
{
    bool dry = w->dry;
    TRY(configure(j, args));
    job_signals_open(j);
    TRY(coll_open(&j->coll, config_choice_name(device_kind_choices, j->s->device_kind)));
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
    if (e == ERR_UNSUPPORTED && dry && !cpu)
        e = open_instead(j);
    log_prefix("site=%s rank=%d ", *j->run->o.site_name ? j->run->o.site_name : "-", j->coll->rank);
    if (e != ERR_OK)
        end_job(j, e);
    else if (dry)
        e = job_lead(j) ? dry_run(j, w->all) : ERR_OK;
    else {
        atomic_store(&j->stopping->stoppable, true);
        e = job_open(j);
        if (e == ERR_OK)
            e = run(j);
        end_job(j, e);
        job_close(j, e == ERR_OK);
    }
    dev_close(j->dev);
    job_signals_close(j);
    coll_close(j->coll);
    return e;
}

static enum err print_keys(struct job *j, const char *form)
{
    char *text;
    if (strcmp(form, "json-schema") == 0)
        return key_schema_print(stdout, &j->run->perm);
    if (strcmp(form, "words") == 0)
        return key_words_print(&j->run->perm);
    if (strcmp(form, "markdown") != 0)
        return err_set(ERR_CONFIG, "--format %.100s: markdown, json-schema or words", form);
    TRY(run_reference(&j->run->perm, &text));
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
    TRY(run_key_reference(&j->run->perm, key, &text));
    args_print(text, 0, 4);
    return ERR_OK;
}

enum err cmd_train(int argc, char **argv)
{
    struct run run = {.imported = false};
    struct settings s;
    struct job_outer o = {.gpu = ""};
    struct job_out out = {.lock = {-1, -1, false}};
    struct job_stopping stopping = {.stop = 0};
    struct job j = {.run = &run, .s = &s, .o = &o, .out = &out, .stopping = &stopping};
    struct train_wish w = {.form = "markdown"};
    const struct args_option options[] = {
        {"config", ARGS_TEXT, &out.config_path, .value = "FILE",
         .help = "Configuration (YAML); without it, defaults and --section.key arguments."},
        {"dry-run", ARGS_FLAG, &w.dry,
         .help = "Print the settings that differ from the defaults, the memory and the bytes on "
                 "the link, "
                 "and stop."},
        {"all", ARGS_FLAG, &w.all, .help = "With --dry-run: every setting."},
        {"help-keys", ARGS_FLAG, &w.keys,
         .help = "Print every key, or what a KEY after it means, and stop."},
        {"format", ARGS_TEXT, &w.form, .value = "FORM",
         .help =
             "With --help-keys: markdown, json-schema (for editors) or words (for completion)."},
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
    out.command = args_line(&j.run->perm, argc, argv);
    process_files_private();
    const char *key = key_asked(argc, argv);
    if (key) {
        enum err asked = print_key(&j, key);
        run_close(j.run);
        return asked;
    }
    enum err e = args_parse(&args, argc, argv, &j.run->perm);
    if (e == ERR_OK && w.keys)
        e = print_keys(&j, w.form);
    else if (e == ERR_OK && !args.help)
        e = train(&j, &args, &w);
    run_close(j.run);
    return e;
}
