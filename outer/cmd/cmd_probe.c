/* SPDX-License-Identifier: Apache-2.0 */
/* atoll probe: measures the link and this machine and prints a probe file. One end listens with the
 * aggregator's certificate, the other dials as a site.
 */
#include <stdio.h>
#include <string.h>
#include "kernels/base/args.h"
#include "kernels/base/file.h"
#include "kernels/base/log.h"
#include "kernels/base/number.h"
#include "outer/cmd/acts.h"
#include "outer/cmd/cmd.h"
#include "outer/link/link.h"
#include "outer/plan/plan_settings.h"
#include "outer/plan/probe.h"
#include "outer/record/json_write.h"

struct probe_cmd {
    struct run p;
    const char *config, *write, *widths, *format;
    bool listening, step, ranks, force, json;
    int64_t most_mib;
    double seconds;
};

/* ---- JSON ---- */
static void list_json(struct json_write *w, const char *key, const struct config_list *list)
{
    double number;
    if (!list->count)
        return;
    json_array(w, key);
    for (size_t i = 0; i < list->count; i++)
        if (number_good(list->items[i], &number))
            json_real(w, NULL, number);
        else
            json_text(w, NULL, list->items[i]);
    json_end(w);
}

/* What is 0 or empty was not measured; a choice is no measurement. */
static void key_json(struct json_write *w, const struct config_key *k, const void *values)
{
    const void *at = (const char *)values + k->offset;
    if (k->type == CONFIG_REAL && *(const double *)at != 0)
        json_real(w, k->name, *(const double *)at);
    else if (k->type == CONFIG_INT && *(const int64_t *)at != 0)
        json_int(w, k->name, *(const int64_t *)at);
    else if (k->type == CONFIG_LIST)
        list_json(w, k->name, at);
}

static void measured_json(struct measured *m)
{
    struct config_table tables[MEASURED_TABLES];
    struct json_write w = {.out = stdout, .digits = 9};
    measured_tables(m, tables);
    json_object(&w, NULL);
    json_object(&w, "plan");
    for (size_t t = 0; t < MEASURED_TABLES; t++)
        for (size_t i = 0; i < tables[t].count; i++)
            key_json(&w, &tables[t].keys[i], tables[t].values);
    json_close(&w);
}

/* "-": on standard output, where it is anyway. */
static enum err found_write(const struct probe_cmd *c, const char *text)
{
    const struct file_part part = {text, strlen(text)};
    bool file = c->write && strcmp(c->write, "-") != 0;
    return file && part.size_bytes ? file_write(c->write, &part, 1, 0644) : ERR_OK;
}

static enum err probe(struct probe_cmd *c, const struct args *args)
{
    struct measured found;
    char *text;
    log_min(LOG_WARN); /* the measurements are printed, not logged */
    TRY(cmd_format(c->format, &c->json));
    TRY(plan_settings_may_write(c->write, c->force));
    if (c->ranks && (c->listening || c->step))
        return err_set(ERR_CONFIG, "--ranks measures alone; leave out --step and --listen");
    TRY(run_open(&c->p,
                 &(struct run_source){RUN_PLAN, .config = c->config, .sites = c->ranks ? 1 : 0,
                                      .measures = true, .args = args}));
    TRY(measured_default(&found, &c->p.perm));
    link_tune();
    if (c->listening)
        return probe_listen(&c->p, c->most_mib);
    if (!c->ranks && !*c->p.o.site_aggregator && !c->step)
        return err_set(ERR_CONFIG,
                       "nothing to measure: give --site.aggregator HOST:PORT, --step, or both");
    if (c->ranks)
        TRY(probe_ranks(&c->p, &found, c->widths, c->seconds));
    else if (*c->p.o.site_aggregator)
        TRY(probe_link(&c->p, &found, c->most_mib));
    if (c->step)
        TRY(probe_step(&c->p, &found));
    TRY(measured_text(&found, &c->p.perm, &text));
    if (c->json)
        measured_json(&found);
    else
        fputs(text, stdout);
    return found_write(c, text);
}

enum err cmd_probe(int argc, char **argv, struct arena *arena)
{
    struct probe_cmd c = {
        .format = "text", .most_mib = 64, .seconds = 0.25, .p.perm = arena_make(0)};
    const struct args_option options[] = {
        {"config", ARGS_TEXT, &c.config, .value = "FILE",
         .help = "Configuration (YAML) of the run: site, certificates, model."},
        TLS_ROW,
        {"listen", ARGS_FLAG, &c.listening,
         .help = "Run the listening end, on serve.listen with the aggregator's certificate, until "
                 "Ctrl-C."},
        {"step", ARGS_FLAG, &c.step,
         .help = "Also, on this machine, the step time of the configured model (data.train) and "
                 "what a round costs apart from "
                 "the link, on the disk of run.dir."},
        {"ranks", ARGS_FLAG, &c.ranks,
         .help = "Instead, under mpirun or deploy/ranks.sh: the collectives of these ranks from 4 "
                 "KiB to 64 MiB, their products, their memory and, with data.train, the classes of "
                 "a step, for atoll plan inside."},
        {"widths", ARGS_TEXT, &c.widths, .value = "LIST",
         .help = "With --ranks: model.d_model of the measured steps; half, whole and twice the "
                 "configured one."},
        {"seconds", ARGS_REAL, &c.seconds, .min = 0, .max = 60, .value = "S",
         .help = "With --ranks: each size of each collective is repeated for so long; the fastest "
                 "counts."},
        {"most-mib", ARGS_INT, &c.most_mib, .min = 1, .max = 4096, .value = "MIB",
         .help = "Largest payload."},
        {"write", ARGS_TEXT, &c.write, .value = "FILE",
         .help = "Write what was measured to this new file, a probe file: for site.probe, and for "
                 "atoll "
                 "plan --probe."},
        FORMAT_ROW(&c.format, ": plan, with the keys that were measured"),
        {"force", ARGS_FLAG, &c.force, .help = "Replace the file of --write."},
    };
    struct args args = {.command = "probe",
                        .summary =
                            "Measures round trip and both rates to atoll probe --listen over the "
                            "real link, and with --step the "
                            "time of an inner step: values that atoll plan and atoll sim take.",
                        .example = "atoll probe --config run.yaml --site.name a --site.aggregator "
                                   "hub.example.org:7443 --write link.yaml",
                        .settings = run_nearest_setting,
                        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    enum err e = args.help ? ERR_OK : probe(&c, &args);
    run_close(&c.p);
    return e;
}
