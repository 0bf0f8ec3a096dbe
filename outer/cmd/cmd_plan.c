/* SPDX-License-Identifier: Apache-2.0 */
/* atoll plan: step time and link in; H, fragments, overlap, codec out, with what they cost. */
#include <stdio.h>
#include <string.h>
#include "outer/cmd/cmd.h"
#include "outer/cmd/cmd_plan.h"
#include "outer/plan/plan_print.h"
#include "outer/plan/plan_settings.h"

struct plan_cmd {
    struct run_source source;
    const char *write, *format;
    double utilisation; /* percent */
    bool force;
};

/* The options that were found, best first, and what the first one takes. alone: nothing but its
 * configuration, on standard output. */
static enum err plan_give(const struct plan_cmd *c, const struct plan_print *p,
                          const struct plan_option *first, bool alone)
{
    const char *probe = c->source.probe ? c->source.probe : p->run->o.site_probe;
    char *text;
    if (!alone)
        TRY(plan_print_first(p, first));
    TRY(plan_settings_text(&text, p->run, first, probe));
    if (p->w)
        json_text(p->w, "configuration", text);
    else
        printf("%s%s",
               alone ? ""
                     : "\nConfiguration of the first row, as it is or to be merged into yours:\n\n",
               text);
    return c->write && !alone ? plan_settings_write(c->write, text) : ERR_OK;
}

static enum err plan(struct run *r, void *self)
{
    const struct plan_cmd *c = self;
    struct plan_task task;
    struct plan_option options[PLAN_OPTIONS_MAX], nearest;
    struct plan_result now;
    size_t count, elements[ROUND_FRAGMENTS_MAX];
    bool json, alone = c->write && strcmp(c->write, "-") == 0;
    TRY(cmd_format(c->format, &json));
    if (alone && json)
        return err_set(ERR_CONFIG,
                       "plan: --format json has the configuration: leave out --write -");
    TRY(plan_settings_may_write(c->write, c->force));
    TRY(plan_settings_own(&task, r));
    fragment_sizes(elements, &r->sync.fragments);
    plan_predict(&task, &r->sync.schedule, elements, &now);
    TRY(plan_search(&task, &(struct plan_goal){&r->sync.schedule, &r->table, c->utilisation / 100},
                    options, &count, &nearest));
    struct json_write w = {.out = stdout, .digits = 10};
    const struct plan_print p = {r, &task, json ? &w : NULL};
    if (json)
        json_object(&w, NULL);
    if (!alone)
        plan_print_options(&p, options, count, &now);
    enum err e = count ? plan_give(c, &p, options, alone)
                       : plan_settings_refuse(&task, r, c->utilisation, &nearest);
    if (json)
        json_close(&w);
    return e;
}

/* atoll plan --inside is atoll plan inside, and atoll plan --times LIST is atoll plan times LIST.
 */
static enum err act_spelled(const struct cmd_acts *acts, int argc, char **argv, struct arena *arena,
                            bool *found)
{
    enum err e = ERR_OK;
    *found = false;
    for (int i = 1; i < argc && !*found; i++) {
        char name[32];
        const char *equals = strchr(argv[i], '=');
        size_t n = equals ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        snprintf(name, sizeof name, "%.*s", (int)n, argv[i]);
        const struct cmd_act *act = strncmp(name, "--", 2) ? NULL : cmd_act_find(acts, name + 2);
        if (!act)
            continue;
        *found = true;
        if (equals)
            argv[i] += n + 1;
        else
            memmove(argv + i, argv + i + 1, (size_t)(argc - i) * sizeof *argv);
        e = act->run(argc - !equals, argv, arena);
    }
    return e;
}

enum err cmd_plan(int argc, char **argv, struct arena *arena)
{
    static const struct cmd_act acts[] = {
#define X(act, summary) {#act, summary, cmd_plan_##act},
        PLAN_ACTS(X)
#undef X
    };
    static const struct cmd_acts all = {
        "plan", "\nOther plans, atoll plan ACT:", "  atoll plan inside --help", acts,
        sizeof acts / sizeof *acts};
    struct plan_cmd c = {.utilisation = 95, .format = "text", .source = {.role = RUN_PLAN}};
    const struct args_option options[] = {
        PLAN_ROWS(&c.source),
        {"utilisation", ARGS_REAL, &c.utilisation, .min = PLAN_UTILISATION_MIN, .max = 99.9,
         .value = "PERCENT", .help = "Settings must train at least this share of the run's time."},
        {"write", ARGS_TEXT, &c.write, .value = "FILE",
         .help =
             "Write the configuration of the best row there, in a new file; - is standard output, "
             "without the table."},
        FORMAT_ROW(&c.format, ": options, configured, more_sites, memory, archive, configuration"),
        {"force", ARGS_FLAG, &c.force, .help = "Replace the file of --write."},
    };
    struct args args = {
        .command = "plan",
        .summary = "Chooses H, fragments, overlap and codec for a link and a step time, with the "
                   "predicted share of time that trains, bytes, cost and loss. A link that cannot "
                   "do it is refused with the nearest one that can.",
        .example = "atoll plan --config run.yaml --probe link.yaml --plan.price_gb 0.05",
        .settings = run_nearest_of_plan,
        ARGS_OPTIONS(options)};
    bool spelled;
    if (cmd_act_find(&all, argv[1]))
        return cmd_acts_run(&all, argc, argv, arena);
    TRY(act_spelled(&all, argc, argv, arena, &spelled));
    if (spelled)
        return ERR_OK;
    TRY(args_parse(&args, argc, argv, arena));
    TRY(cmd_run(&args, &c.source, plan, &c));
    if (args.help)
        cmd_acts_more(&all, args.form);
    return ERR_OK;
}
