/* SPDX-License-Identifier: Apache-2.0 */
/* atoll train: one site (or a site alone), one process of one or more ranks. A job's course is in
 * outer/run/job_run.c, what happens between its steps in job_loop.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/base/args.h"
#include "outer/cmd/acts.h"
#include "outer/cmd/cmd.h"
#include "outer/run/key_forms.h"
#include "outer/run/process.h"
#include "outer/record/directory.h"
#include "outer/run/job.h"
#include "outer/run/notify.h"
#include "outer/record/version.h"

/* What --dry-run says; in JSON the lines of a comment are members. */
struct dry_run {
    struct json_write *w; /* NULL: text */
    bool all;
};

static void dry_link(const struct dry_run *d, const struct job *j)
{
    char up[32], down[32], disk[32];
    struct job_prediction p = job_predict(j);
    if (d->w) {
        json_int(d->w, "rounds", (int64_t)p.rounds);
        json_int(d->w, "payload_up", (int64_t)p.up_bytes);
        json_int(d->w, "payload_down", (int64_t)p.down_bytes);
        json_int(d->w, "disk_bytes", (int64_t)p.disk_bytes);
        return;
    }
    progress_bytes(up, sizeof up, (double)p.up_bytes);
    progress_bytes(down, sizeof down, (double)p.down_bytes);
    progress_bytes(disk, sizeof disk, (double)p.disk_bytes);
    printf("\n# The link, of this site in the whole run: %llu exchanges, %s up, %s down (payload)\n"
           "# Disk, outer states kept for restarts: %s\n",
           (unsigned long long)p.rounds, up, down, disk);
}

static void dry_sentence(const struct dry_run *d, const char *member, const char *label,
                         const char *text)
{
    if (d->w && *text)
        json_text(d->w, member, text);
    else if (*text)
        printf("# %s: %s\n", label, text);
}

static void dry_tuning(const struct dry_run *d, const struct job *j)
{
    char text[512];
    tuning_text(&j->run->tuning, text, 256);
    dry_sentence(d, "outer_lr", "Outer learning rate", text);
    tuning_warning(&j->run->tuning, text, sizeof text);
    dry_sentence(d, "outer_lr_warning", "WARNING", text);
    const int64_t rounds = (int64_t)schedule_rounds(&j->run->sync.schedule, 0);
    tuning_momentum_text(&j->run->s, &j->run->o, rounds, text, sizeof text);
    dry_sentence(d, "outer_momentum", "Outer momentum", text);
    tuning_overlap_text(&j->run->o, rounds, text, sizeof text);
    dry_sentence(d, "outer_update_alpha", "Overlap", text);
}

static enum err dry_settings(const struct dry_run *d, struct job *j)
{
    const struct config_table tables[] = {keys_inner(j->s), keys_outer(&j->run->o)};
    char *text;
    if (d->all)
        TRY(config_print(tables, 2, CONFIG_TYPED, &j->run->perm, &text));
    else
        TRY(config_print_differing(tables, 2, &j->run->perm, &text));
    if (d->w)
        json_text(d->w, "configuration", text);
    else
        printf("%s%s", d->all ? "" : "# What differs from the defaults; --all prints every key.\n",
               text);
    return ERR_OK;
}

/* What matters comes last. */
static enum err dry_run(struct job *j, const struct dry_run *d)
{
    char warning[300];
    if (d->w)
        json_object(d->w, NULL);
    TRY(dry_settings(d, j));
    keys_warning(j->s, warning, sizeof warning);
    dry_sentence(d, "warning", "WARNING", warning);
    job_print_memory(j, &j->run->table, d->w);
    if (j->outer) {
        dry_link(d, j);
        dry_tuning(d, j);
    }
    if (d->w)
        json_close(d->w);
    return ERR_OK;
}

struct train_wish {
    bool dry, all, keys;
    const char *form; /* of --help-keys and of --dry-run */
};

static enum err train(struct job *j, const struct args *args, const struct train_wish *w)
{
    struct json_write out = {.out = stdout};
    bool json = false;
    char no_gpu[512];
    if (w->dry)
        TRY(cmd_format(w->form ? w->form : "text", &json));
    else if (w->form)
        return err_set(ERR_CONFIG, "--format %.40s is for --dry-run and --help-keys", w->form);
    TRY(job_configure(j, args));
    enum err e = job_ranks_open(j, w->dry, no_gpu);
    if (e == ERR_OK && *no_gpu && !json)
        printf("# No GPU here, the tables below are for one anyway: %s\n", no_gpu);
    if (e == ERR_OK && !w->dry)
        e = job_run(j);
    else if (e == ERR_OK && job_lead(j))
        e = dry_run(j, &(struct dry_run){json ? &out : NULL, w->all});
    job_ranks_close(j);
    return e;
}

static enum err print_keys(const char *form, struct arena *arena)
{
    char *text;
    if (!form)
        form = "markdown";
    if (strcmp(form, "json-schema") == 0)
        return key_schema_print(stdout, arena);
    if (strcmp(form, "words") == 0)
        return key_words_print(arena);
    if (strcmp(form, "markdown") != 0)
        return err_set(ERR_CONFIG, "--format %.100s: markdown, json-schema or words", form);
    TRY(run_reference(arena, &text));
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

enum err cmd_train(int argc, char **argv, struct arena *arena)
{
    struct run run = {.imported = false};
    struct settings s;
    struct job_outer o = {.gpu = ""};
    struct job_out out = {.lock = {-1, -1, false}};
    struct job_stopping stopping = {.stop = 0};
    struct job j = {.run = &run, .s = &s, .o = &o, .out = &out, .stopping = &stopping};
    struct train_wish w = {.form = NULL};
    const struct args_option options[] = {
        {"config", ARGS_TEXT, &out.config_path, .value = "FILE",
         .help = "Configuration (YAML), - is standard input; without it, defaults and "
                 "--section.key arguments."},
        TLS_ROW,
        {"dry-run", ARGS_FLAG, &w.dry,
         .help = "Print the settings that differ from the defaults, the memory and the bytes on "
                 "the link, "
                 "and stop."},
        {"all", ARGS_FLAG, &w.all, .help = "With --dry-run: every setting."},
        {"help-keys", ARGS_FLAG, &w.keys,
         .help = "Print every key, or what a KEY after it means, and stop."},
        {"format", ARGS_TEXT, &w.form, .value = "FORM",
         .help =
             "With --dry-run: text or json, one object: configuration, parameters, memory_bytes, "
             "payload_up. With --help-keys: markdown, json-schema (for editors) or words (for "
             "completion)."},
    };
    struct args args = {
        .command = "train",
        .summary =
            "Trains: as a site of a run when site.aggregator is given, else alone. Ctrl-C "
            "finishes the step, "
            "saves and leaves with exit code 75; the same command continues from there. SIGUSR2 "
            "prints its status. The live row: site, state (what it waits for), step, loss, "
            "committed rounds, time to the next sync, time left (+ wait: it stands still), "
            "tokens/s, payload up and down of the whole run.",
        .example = "atoll train --config deploy/examples/minute.yaml --site.name a --run.dir run-a "
                   "--data.train data/train-a.bin",
        .settings = run_nearest_setting,
        ARGS_OPTIONS(options)};
    const char *key = key_asked(argc, argv);
    if (key)
        return cmd_help_key(key);
    out.command = args_line(arena, argc, argv);
    process_files_private();
    TRY(args_parse(&args, argc, argv, arena));
    if (w.keys)
        return print_keys(w.form, arena);
    enum err e = args.help ? ERR_OK : train(&j, &args, &w);
    run_close(j.run);
    return e;
}
