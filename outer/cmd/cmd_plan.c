/* SPDX-License-Identifier: Apache-2.0 */
/* atoll plan: step time and link in; H, fragments, overlap, codec out, with what they cost. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "outer/organ/archive/archive_parts.h"
#include "outer/cmd/cmd.h"
#include "outer/cmd/cmd_plan.h"
#include "outer/plan/plan_settings.h"
#include "outer/plan/plan_tables.h"
#include "outer/record/json_write.h"
#include "outer/view/progress.h"

enum { UTILISATION_MIN = 1 }; /* percent */
static const double GPU_BYTES = 80e9;

struct plan_cmd {
    struct run_source source;
    struct run *p;
    struct plan_task task;
    const char *write;
    double utilisation; /* percent */
    bool force;
    const char *format;
    bool json, alone;    /* alone: nothing but the configuration, on standard output */
    struct json_write w; /* of json */
};

/* ---- the table ---- */

static void print_head(void)
{
    printf("%-10s %5s %3s %4s %5s  %7s  %9s  %9s  %9s  %9s  %10s  %14s  %9s\n", "codec", "H", "P",
           "tau", "lr", "trains", "exchange", "up/site", "down/site", "run", "cost", "loss",
           "equal");
}

/* parts: P, fragments of the parameters; those of moments are the schedule's too. */
static void print_option(const struct plan_cmd *c, const struct plan_option *o, unsigned parts)
{
    const struct plan_result *r = &o->result;
    char up[32], down[32], run[32], equal[32], loss[32];
    progress_bytes(up, sizeof up, (double)r->up_bytes);
    progress_bytes(down, sizeof down, (double)r->down_bytes);
    progress_duration(run, sizeof run, r->total_s);
    progress_duration(equal, sizeof equal, r->equal_s);
    snprintf(loss, sizeof loss, "%+.1f..%+.1f %%%s", r->loss_low, r->loss_high,
             r->extrapolated ? "*" : "");
    printf("%-10s %5lld %3u %4lld %5.3g  %5.1f %%  %7.2f s  %9s  %9s  %9s  %10.2f  %14s  %9s\n",
           codec_get(o->schedule.period[0].codec)->name, (long long)o->schedule.period[0].p.every,
           parts, (long long)o->schedule.overlap, plan_settings_chosen(c->p, o).outer_lr,
           100 * r->utilisation, r->exchange_s, up, down, run, r->cost, loss, equal);
}

static void option_json(struct plan_cmd *c, const char *key, const struct plan_option *o,
                        unsigned parts)
{
    const struct plan_result *r = &o->result;
    struct json_write *w = &c->w;
    json_object(w, key);
    json_text(w, "codec", codec_get(o->schedule.period[0].codec)->name);
    json_int(w, "sync_every", (int64_t)o->schedule.period[0].p.every);
    json_int(w, "fragments", parts);
    json_int(w, "overlap_steps", (int64_t)o->schedule.overlap);
    json_real(w, "outer_lr", plan_settings_chosen(c->p, o).outer_lr);
    json_real(w, "utilisation", r->utilisation);
    json_real(w, "exchange_s", r->exchange_s);
    json_int(w, "up_bytes", (int64_t)r->up_bytes);
    json_int(w, "down_bytes", (int64_t)r->down_bytes);
    json_real(w, "total_s", r->total_s);
    json_real(w, "cost", r->cost);
    json_real(w, "loss_low_percent", r->loss_low);
    json_real(w, "loss_high_percent", r->loss_high);
    json_bool(w, "extrapolated", r->extrapolated);
    json_real(w, "equal_s", r->equal_s);
    json_end(w);
}

static void print_legend(const struct plan_cmd *c)
{
    static const char *const order[] = {
        [PLAN_RANK_TIME] = "time-to-loss", [PLAN_RANK_COST] = "cost", [PLAN_RANK_LOSS] = "loss"};
    printf(
        "\nRows are in the order of %s (plan.rank); those within 10 %% of the best begin, the\n"
        "fewest bytes first. H: of those within 10 %% of the best, a\n"
        "published one (30, 50, 100, 200, 500) with the fewest bytes.\n"
        "trains: share of the run's time that is training. exchange: one round, send to commit.\n"
        "loss: range over data-parallel training at equal tokens, from published tables\n"
        "(2503.09799, 2501.18512, ft-diloco) and docs/results.md, by parameters, tokens, sites,\n"
        "H, rounds, codec and inner optimizer; *: beyond what was measured.\n"
        "equal (time-to-loss): time until the loss of the data-parallel run is reached, at the\n"
        "middle of the range. cost: bytes that leave the sites and the aggregator%s.\n",
        order[c->task.rank], c->task.price_gb > 0 ? "" : "; plan.price_gb is not set");
}

static void print_task(const struct plan_cmd *c)
{
    const struct plan_task *t = &c->task;
    printf("%.4g M parameters, %u sites, %lld steps of %.4g s; link %.4g up, %.4g down Mbit/s, "
           "%.4g ms round trip",
           t->parameters / 1e6, t->sites, (long long)c->p->s.train_steps, t->step_s,
           t->link.up_bps / 1e6, t->link.down_bps / 1e6, 1e3 * t->link.rtt_s);
    if (t->link.loss > 0)
        printf(", %.3g %% lost: one TCP stream carries %.4g Mbit/s up", 100 * t->link.loss,
               line_rate_bps(&t->link, t->link.up_bps) / 1e6);
    printf("\n\n");
}

static void task_json(struct plan_cmd *c)
{
    const struct plan_task *t = &c->task;
    struct json_write *w = &c->w;
    json_real(w, "parameters", t->parameters);
    json_int(w, "sites", t->sites);
    json_int(w, "steps", c->p->s.train_steps);
    json_real(w, "step_s", t->step_s);
    json_real(w, "up_mbit", t->link.up_bps / 1e6);
    json_real(w, "down_mbit", t->link.down_bps / 1e6);
    json_real(w, "rtt_ms", 1e3 * t->link.rtt_s);
    json_real(w, "loss_percent", 100 * t->link.loss);
}

/* The table: the rows found, and the run as configured. */
static void give_options(struct plan_cmd *c, const struct plan_option *options, size_t count,
                         const struct plan_option *configured)
{
    unsigned parts = c->p->sync.fragments.parts;
    if (c->alone)
        return;
    if (!c->json) {
        print_task(c);
        print_head();
        for (size_t i = 0; i < count; i++)
            print_option(c, &options[i], options[i].schedule.fragments);
        printf("as configured:\n");
        print_option(c, configured, parts);
        print_legend(c);
        return;
    }
    task_json(c);
    json_array(&c->w, "options");
    for (size_t i = 0; i < count; i++)
        option_json(c, NULL, &options[i], options[i].schedule.fragments);
    json_end(&c->w);
    option_json(c, "configured", configured, parts);
}

/* ---- what else a run takes ---- */

static void elements_of(const struct fragments *f, size_t elements[ROUND_FRAGMENTS_MAX])
{
    for (unsigned i = 0; i < f->count; i++)
        elements[i] = f->f[i].elements;
}

static enum err print_memory(struct plan_cmd *c, const struct plan_option *o)
{
    size_t training, outer;
    TRY(plan_settings_memory(c->p, o, c->task.sites, &training, &outer));
    if (c->json) {
        json_int(&c->w, "memory_training_bytes", (int64_t)training);
        json_int(&c->w, "memory_outer_bytes", (int64_t)outer);
        return ERR_OK;
    }
    printf("\nMemory: %.2f GiB for training (one rank, bf16), %.2f GiB for the outer loop on the "
           "lead.\n",
           (double)training / (1 << 30), (double)outer / (1 << 30));
    if ((double)training > GPU_BYTES)
        printf(
            "No GPU of 80 GB holds that: use several ranks with train.zero_stage: 1, 2 or 3, "
            "train.activation_checkpointing: block\n"
            "or a smaller train.micro_batch_tokens. Atoll has no tensor or pipeline parallelism: "
            "each rank runs all layers.\n");
    return ERR_OK;
}

static void archive_json(struct json_write *w, const struct archive_size *size, bool site)
{
    json_object(w, site ? "archive_of_a_site" : "archive_of_the_aggregator");
    json_int(w, "round_bytes", (int64_t)size->round_bytes);
    json_int(w, "run_bytes", (int64_t)size->run_bytes);
    json_end(w);
}

/* run.archive, whether it is on or not: what it would take. */
static enum err print_archive(struct plan_cmd *c, const struct plan_option *o)
{
    const struct run *run = c->p;
    const struct sync_config_replica aggregator = {.sites = c->task.sites,
                                                   .digest = run->sync.digest};
    struct fragments f;
    char round[2][32], whole[2][32];
    uint64_t every = (uint64_t)run->o.run_archive_states;
    TRY(sync_config_cut(&f, &run->s, &run->o, &run->table, o->schedule.fragments, &c->p->perm));
    struct outer_state_options m =
        sync_config_state(&f, &o->schedule, &run->sync.outer, &aggregator);
    for (unsigned i = 0; i < 2; i++) {
        struct archive_size size = archive_size(&m, c->task.sites, i == 0, every);
        if (c->json)
            archive_json(&c->w, &size, i != 0);
        progress_bytes(round[i], sizeof round[i], (double)size.round_bytes);
        progress_bytes(whole[i], sizeof whole[i], (double)size.run_bytes);
    }
    if (c->json)
        return ERR_OK;
    printf(
        "Archive (run.archive, which is %s): at the aggregator %s a round, %s in the run; at each "
        "site %s, %s.\n",
        archive_parts_on(&run->o) ? "on" : "off", round[0], whole[0], round[1], whole[1]);
    return ERR_OK;
}

static void print_sites_row(struct plan_cmd *c, unsigned sites, const struct plan_result *r,
                            double speedup)
{
    struct json_write *w = &c->w;
    if (!c->json) {
        printf("%8u %7.1f %% %10.2f %11.2f %+5.1f%%%s\n", sites, 100 * r->utilisation, speedup,
               speedup / sites, r->loss_percent, r->extrapolated ? "*" : "");
        return;
    }
    json_object(w, NULL);
    json_int(w, "sites", sites);
    json_real(w, "utilisation", r->utilisation);
    json_real(w, "speedup", speedup);
    json_real(w, "efficiency", speedup / sites);
    json_real(w, "loss_percent", r->loss_percent);
    json_bool(w, "extrapolated", r->extrapolated);
    json_end(w);
}

/* Cortes et al. 2025 (2509.03263) report break-even configurations; ours: n T(n)^2 is least where
 * doubling the sites stops paying more than a factor of sqrt 2. T: time until the same loss, with
 * the tokens shared among the sites. */
static void print_more_sites(struct plan_cmd *c, const struct plan_option *o,
                             const size_t *elements)
{
    struct plan_task t = c->task;
    struct plan_result r;
    double alone = 0, best = INFINITY;
    unsigned knee = 1;
    if (c->json)
        json_array(&c->w, "more_sites");
    else
        printf(
            "\nThe same settings with other numbers of sites, the tokens shared among them:\n%8s "
            "%9s %10s %11s %6s\n",
            "sites", "trains", "speed-up", "efficiency", "loss");
    for (t.sites = 1; t.sites <= 64; t.sites *= 2) {
        plan_predict(&t, &o->schedule, elements, &r);
        double time = r.equal_s / t.sites;
        alone = t.sites == 1 ? time : alone;
        double efficiency = alone / time / t.sites;
        print_sites_row(c, t.sites, &r, alone / time);
        if (efficiency >= 0.7 && t.sites * time * time < best) {
            best = t.sites * time * time;
            knee = t.sites;
        }
    }
    if (c->json) {
        json_end(&c->w);
        json_int(&c->w, "knee_sites", knee);
        return;
    }
    printf("sites x time^2 is least at %u sites: beyond it a doubling saves less than it costs "
           "(2509.03263).\n",
           knee);
}

/* ---- the configuration ---- */

static enum err configuration_json(struct plan_cmd *c, const struct plan_option *o,
                                   const char *probe)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out)
        plan_settings_print(out, c->p, o, probe);
    bool bad = !out || fclose(out) != 0;
    if (!bad)
        json_text(&c->w, "configuration", text);
    free(text);
    return bad ? err_set(ERR_MEMORY, "no memory for the configuration") : ERR_OK;
}

static enum err give_configuration(struct plan_cmd *c, const struct plan_option *o)
{
    const char *probe = c->source.probe ? c->source.probe : c->p->o.site_probe;
    if (c->json) {
        TRY(configuration_json(c, o, probe));
    } else {
        if (!c->alone)
            printf("\nConfiguration of the first row, as it is or to be merged into yours:\n\n");
        plan_settings_print(stdout, c->p, o, probe);
    }
    return c->write && !c->alone ? plan_settings_write(c->write, c->p, o, probe) : ERR_OK;
}

static enum err refuse(const struct plan_cmd *c, const struct plan_option *nearest)
{
    struct line link;
    enum plan_nearest by;
    char possible[256], less[48] = "";
    double share = c->utilisation / 100, most = floor(1000 * nearest->result.utilisation) / 10;
    if (most >= UTILISATION_MIN)
        snprintf(less, sizeof less, "; or --utilisation %.1f", most);
    TRY(plan_nearest_link(&c->task, &c->p->sync.schedule, &c->p->table, share, &link, &by));
    if (by == PLAN_BY_RATE || by == PLAN_BY_BOTH)
        snprintf(possible, sizeof possible, "%.3g up and %.3g down Mbit/s at %.4g ms",
                 link.up_bps / 1e6, link.down_bps / 1e6, 1e3 * link.rtt_s);
    else if (by == PLAN_BY_DELAY)
        snprintf(possible, sizeof possible, "a round trip of %.3g ms", 1e3 * link.rtt_s);
    else
        snprintf(possible, sizeof possible,
                 "no link at all: sites and aggregator themselves take too long for a round "
                 "(plan.encode_ns and the like); faster "
                 "disks, or longer steps");
    return err_set(ERR_CONFIG,
                   "no settings train %.4g %% of the time on this link; the most is %.1f %%, with "
                   "%s, H %lld, %u fragments, %lld "
                   "steps of overlap, where one round takes %.3g s\nthe nearest possible: %s%s",
                   c->utilisation, 100 * nearest->result.utilisation,
                   codec_get(nearest->schedule.period[0].codec)->name,
                   (long long)nearest->schedule.period[0].p.every, nearest->schedule.fragments,
                   (long long)nearest->schedule.overlap, nearest->result.exchange_s, possible,
                   less);
}

/* What a run takes with the first row. */
static enum err give_first(struct plan_cmd *c, const struct plan_option *first)
{
    size_t elements[ROUND_FRAGMENTS_MAX];
    struct fragments f;
    if (c->alone)
        return give_configuration(c, first);
    TRY(sync_config_cut(&f, &c->p->s, &c->p->o, &c->p->table, first->schedule.fragments,
                        &c->p->perm));
    elements_of(&f, elements);
    print_more_sites(c, first, elements);
    TRY(print_memory(c, first));
    TRY(print_archive(c, first));
    return give_configuration(c, first);
}

static enum err plan_give(struct plan_cmd *c, const struct plan_option *options, size_t count,
                          const struct plan_option *nearest, const struct plan_result *now)
{
    give_options(c, options, count, &(struct plan_option){c->p->sync.schedule, *now});
    return count ? give_first(c, options) : refuse(c, nearest);
}

static enum err plan(struct run *r, void *self)
{
    struct plan_cmd *c = self;
    struct plan_option options[PLAN_OPTIONS_MAX], nearest;
    struct plan_result now;
    size_t count, elements[ROUND_FRAGMENTS_MAX];
    c->p = r;
    TRY(cmd_format(c->format, &c->json));
    c->alone = c->write && strcmp(c->write, "-") == 0;
    if (c->alone && c->json)
        return err_set(ERR_CONFIG,
                       "plan: --format json has the configuration: leave out --write -");
    TRY(plan_settings_may_write(c->write, c->force));
    TRY(plan_settings_own(&c->task, r));
    elements_of(&c->p->sync.fragments, elements);
    plan_predict(&c->task, &c->p->sync.schedule, elements, &now);
    TRY(plan_search(&c->task,
                    &(struct plan_goal){&c->p->sync.schedule, &c->p->table, c->utilisation / 100},
                    options, &count, &nearest));
    c->w = (struct json_write){.out = stdout, .digits = 10};
    if (c->json)
        json_object(&c->w, NULL);
    enum err e = plan_give(c, options, count, &nearest, &now);
    if (c->json)
        json_close(&c->w);
    return e;
}

/* atoll plan --inside is atoll plan inside, and atoll plan --times LIST is atoll plan times LIST.
 */
static enum err act_spelled(const struct cmd_acts *acts, int argc, char **argv, bool *found)
{
    struct arena arena = arena_make(0);
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
        e = act->run(argc - !equals, argv, &arena);
    }
    arena_free(&arena);
    return e;
}

enum err cmd_plan(int argc, char **argv)
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
        {"utilisation", ARGS_REAL, &c.utilisation, .min = UTILISATION_MIN, .max = 99.9,
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
        .options = options,
        .count = sizeof options / sizeof *options};
    bool spelled;
    if (cmd_act_find(&all, argv[1]))
        return cmd_acts_run(&all, argc, argv);
    TRY(act_spelled(&all, argc, argv, &spelled));
    if (spelled)
        return ERR_OK;
    TRY(cmd_run(&args, &c.source, argc, argv, plan, &c));
    if (args.help)
        cmd_acts_more(&all, args.form);
    return ERR_OK;
}
