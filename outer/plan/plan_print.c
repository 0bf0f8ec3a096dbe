/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/plan_print.h"
#include <stdio.h>
#include "outer/organ/archive/archive_parts.h"
#include "outer/plan/plan_settings.h"
#include "outer/plan/scaling.h"
#include "outer/view/progress.h"

static const double GPU_BYTES = 80e9;

/* ---- the table ---- */

/* parts: P, fragments of the parameters; those of moments are the schedule's too. */
static void option_text(const struct run *run, const struct plan_option *o, unsigned parts)
{
    const struct plan_result *r = &o->result;
    char up[32], down[32], total[32], equal[32], loss[32];
    progress_bytes(up, sizeof up, (double)r->up_bytes);
    progress_bytes(down, sizeof down, (double)r->down_bytes);
    progress_duration(total, sizeof total, r->total_s);
    progress_duration(equal, sizeof equal, r->equal_s);
    snprintf(loss, sizeof loss, "%+.1f..%+.1f %%%s", r->loss_low, r->loss_high,
             r->extrapolated ? "*" : "");
    printf("%-10s %5lld %3u %4lld %5.3g  %5.1f %%  %7.2f s  %9s  %9s  %9s  %10.2f  %14s  %9s\n",
           codec_get(o->schedule.period[0].codec)->name, (long long)o->schedule.period[0].p.every,
           parts, (long long)o->schedule.overlap, plan_settings_chosen(run, o).outer_lr,
           100 * r->utilisation, r->exchange_s, up, down, total, r->cost, loss, equal);
}

static void option_json(struct json_write *w, const char *key, const struct run *run,
                        const struct plan_option *o, unsigned parts)
{
    const struct plan_result *r = &o->result;
    json_object(w, key);
    json_text(w, "codec", codec_get(o->schedule.period[0].codec)->name);
    json_int(w, "sync_every", (int64_t)o->schedule.period[0].p.every);
    json_int(w, "fragments", parts);
    json_int(w, "overlap_steps", (int64_t)o->schedule.overlap);
    json_real(w, "outer_lr", plan_settings_chosen(run, o).outer_lr);
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

static void legend_text(const struct plan_task *t)
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
        order[t->rank], t->price_gb > 0 ? "" : "; plan.price_gb is not set");
}

static void task_text(const struct plan_task *t, int64_t steps)
{
    printf("%.4g M parameters, %u sites, %lld steps of %.4g s; link %.4g up, %.4g down Mbit/s, "
           "%.4g ms round trip",
           t->parameters / 1e6, t->sites, (long long)steps, t->step_s, t->link.up_bps / 1e6,
           t->link.down_bps / 1e6, 1e3 * t->link.rtt_s);
    if (t->link.loss > 0)
        printf(", %.3g %% lost: one TCP stream carries %.4g Mbit/s up", 100 * t->link.loss,
               line_rate_bps(&t->link, t->link.up_bps) / 1e6);
    printf("\n\n");
}

static void task_json(struct json_write *w, const struct plan_task *t, int64_t steps)
{
    json_real(w, "parameters", t->parameters);
    json_int(w, "sites", t->sites);
    json_int(w, "steps", steps);
    json_real(w, "step_s", t->step_s);
    json_real(w, "up_mbit", t->link.up_bps / 1e6);
    json_real(w, "down_mbit", t->link.down_bps / 1e6);
    json_real(w, "rtt_ms", 1e3 * t->link.rtt_s);
    json_real(w, "loss_percent", 100 * t->link.loss);
}

void plan_print_options(const struct plan_print *p, const struct plan_option *options, size_t count,
                        const struct plan_result *configured)
{
    const struct plan_option now = {p->run->sync.schedule, *configured};
    unsigned parts = p->run->sync.fragments.parts;
    if (p->w) {
        task_json(p->w, p->task, p->run->s.train_steps);
        json_array(p->w, "options");
        for (size_t i = 0; i < count; i++)
            option_json(p->w, NULL, p->run, &options[i], options[i].schedule.fragments);
        json_end(p->w);
        option_json(p->w, "configured", p->run, &now, parts);
        return;
    }
    task_text(p->task, p->run->s.train_steps);
    printf("%-10s %5s %3s %4s %5s  %7s  %9s  %9s  %9s  %9s  %10s  %14s  %9s\n", "codec", "H", "P",
           "tau", "lr", "trains", "exchange", "up/site", "down/site", "run", "cost", "loss",
           "equal");
    for (size_t i = 0; i < count; i++)
        option_text(p->run, &options[i], options[i].schedule.fragments);
    printf("as configured:\n");
    option_text(p->run, &now, parts);
    legend_text(p->task);
}

/* ---- what a run takes with the first row ---- */

static enum err print_memory(const struct plan_print *p, const struct plan_option *o)
{
    size_t training, outer;
    TRY(plan_settings_memory(p->run, o, p->task->sites, &training, &outer));
    if (p->w) {
        json_int(p->w, "memory_training_bytes", (int64_t)training);
        json_int(p->w, "memory_outer_bytes", (int64_t)outer);
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

/* run.archive, whether it is on or not: what it would take. */
static void print_archive(const struct plan_print *p, const struct plan_option *o,
                          const struct fragments *f)
{
    static const char *const key[] = {"archive_of_the_aggregator", "archive_of_a_site"};
    const struct run *run = p->run;
    const struct sync_config_replica aggregator = {.sites = p->task->sites,
                                                   .digest = run->sync.digest};
    struct outer_state_options m =
        sync_config_state(f, &o->schedule, &run->sync.outer, &aggregator);
    char round[2][32], whole[2][32];
    for (unsigned i = 0; i < 2; i++) {
        struct archive_size size =
            archive_size(&m, p->task->sites, i == 0, (uint64_t)run->o.run_archive_states);
        progress_bytes(round[i], sizeof round[i], (double)size.round_bytes);
        progress_bytes(whole[i], sizeof whole[i], (double)size.run_bytes);
        if (!p->w)
            continue;
        json_object(p->w, key[i]);
        json_int(p->w, "round_bytes", (int64_t)size.round_bytes);
        json_int(p->w, "run_bytes", (int64_t)size.run_bytes);
        json_end(p->w);
    }
    if (!p->w)
        printf("Archive (run.archive, which is %s): at the aggregator %s a round, %s in the run; "
               "at each site %s, %s.\n",
               archive_parts_on(&run->o) ? "on" : "off", round[0], whole[0], round[1], whole[1]);
}

static void sites_row(struct json_write *w, const struct scaling *s, const struct plan_result *r)
{
    if (!w) {
        printf("%8.0f %7.1f %% %10.2f %11.2f %+5.1f%%%s\n", s->n, 100 * r->utilisation, s->speedup,
               s->efficiency, r->loss_percent, r->extrapolated ? "*" : "");
        return;
    }
    json_object(w, NULL);
    json_int(w, "sites", (int64_t)s->n);
    json_real(w, "utilisation", r->utilisation);
    json_real(w, "speedup", s->speedup);
    json_real(w, "efficiency", s->efficiency);
    json_real(w, "loss_percent", r->loss_percent);
    json_bool(w, "extrapolated", r->extrapolated);
    json_end(w);
}

/* 1, 2, 4, .. sites with the same settings, the tokens shared among them: T(n), the time until the
 * same loss, and the number beyond which more of them stop paying (scaling.h). */
static void print_more_sites(const struct plan_print *p, const struct plan_option *o,
                             const struct fragments *f)
{
    enum { ROWS = 7 };
    struct plan_task t = *p->task;
    struct plan_result r[ROWS];
    struct scaling rows[ROWS];
    size_t elements[ROUND_FRAGMENTS_MAX];
    fragment_sizes(elements, f);
    for (unsigned i = 0; i < ROWS; i++) {
        t.sites = 1u << i;
        plan_predict(&t, &o->schedule, elements, &r[i]);
        rows[i] = (struct scaling){.n = t.sites, .seconds = r[i].equal_s / t.sites};
    }
    scaling_fill(rows, ROWS);
    double knee = rows[scaling_knee(rows, ROWS)].n;
    if (p->w)
        json_array(p->w, "more_sites");
    else
        printf(
            "\nThe same settings with other numbers of sites, the tokens shared among them:\n%8s "
            "%9s %10s %11s %6s\n",
            "sites", "trains", "speed-up", "efficiency", "loss");
    for (unsigned i = 0; i < ROWS; i++)
        sites_row(p->w, &rows[i], &r[i]);
    if (p->w) {
        json_end(p->w);
        json_int(p->w, "knee_sites", (int64_t)knee);
        return;
    }
    printf("sites x time^2 is least at %.0f sites: beyond it a doubling saves less than it costs "
           "(2509.03263).\n",
           knee);
}

enum err plan_print_first(const struct plan_print *p, const struct plan_option *first)
{
    struct run *run = p->run;
    struct fragments f;
    TRY(sync_config_cut(&f, &run->s, &run->o, &run->table, first->schedule.fragments, &run->perm));
    print_more_sites(p, first, &f);
    TRY(print_memory(p, first));
    print_archive(p, first, &f);
    return ERR_OK;
}
