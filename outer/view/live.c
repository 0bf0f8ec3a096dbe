/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/view/live.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

enum {
    SILENT_S = 120, /* without a record a site that should train is named, at the latest; with the
                       time of its steps after SILENT_STEPS of them */
    SILENT_LEAST_S = 10,
    SILENT_STEPS = 20
};

/* ---- what is derived ---- */
bool live_private(const struct report_run *r)
{
    return r->now.secure || isfinite(r->now.budget.epsilon) || r->now.budget.charged_step > 0;
}

double live_eta_s(const struct report_run *r)
{
    double eta =
        r->end.finished ? 0 : progress_pace_eta(&r->now.pace, jsonl_whole(r->training.steps));
    return eta >= 0 ? eta : NAN;
}

/* A site by the step's time; as the aggregator sees it, by the interval of its rounds. */
double live_sync_s(const struct report_run *r, double now)
{
    const struct report_now *n = &r->now;
    double at = r->role == REPORT_SEEN ? n->round_t[0] + n->interval_s
                                       : n->step_t + (n->next_sync - n->step) * n->step_s;
    if (r->end.finished || (r->role == REPORT_SITE && n->next_sync <= n->step))
        return NAN;
    return isfinite(at) ? fmax(0, at - now) : NAN;
}

/* For how long a site that should train has written no record; 0: not for long. */
static double silent_s(const struct report_run *r, double now)
{
    const struct report_now *n = &r->now;
    double silent = now - n->t, most = SILENT_S;
    if (isfinite(n->step_s) && n->started)
        most = fmin(most, fmax(SILENT_LEAST_S, SILENT_STEPS * n->step_s));
    bool quiet = r->role == REPORT_SITE || r->role == REPORT_ALONE;
    return quiet && !r->end.finished && !*n->state && silent > most ? silent : 0;
}

void live_state(const struct report_run *r, double now, char *out, size_t size)
{
    const struct report_now *n = &r->now;
    double silent = silent_s(r, now);
    if (r->end.finished)
        snprintf(out, size, "done");
    else if (*n->state)
        snprintf(out, size, "%s", n->state);
    else if (silent > 0)
        snprintf(out, size, "no record for %.0f s", silent);
    else
        snprintf(out, size, r->role == REPORT_AGGREGATOR ? "serves" : "trains");
}

const char *live_name(const struct report_run *r)
{
    return strncmp(r->name, "site ", 5) == 0 ? r->name + 5 : r->name;
}

const struct report_run *live_aggregator(const struct report_follow *f)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->runs[i].role == REPORT_AGGREGATOR)
            return &f->runs[i];
    return NULL;
}

static const struct report_round *last_round(const struct report_run *r)
{
    return r->rounds.count ? &r->rounds.list[r->rounds.count - 1] : NULL;
}

/* ---- Prometheus ---- */
enum live_round_part { LIVE_WAITED, LIVE_INCLUDED, LIVE_SITES };
static double live_round(const struct report_run *r, enum live_round_part part)
{
    const struct report_round *n = last_round(r);
    if (!n)
        return NAN;
    return part == LIVE_WAITED ? n->waited_ms : part == LIVE_INCLUDED ? n->included : n->sites;
}

static double live_metric(const struct report_run *r, enum report_metric which)
{
    const struct report_round *n = last_round(r);
    return n ? n->metrics[which] : NAN;
}

static double live_private_steps(const struct report_run *r)
{
    return isfinite(r->now.budget.steps_left)
               ? r->now.budget.steps_left - (r->now.step - r->now.budget.charged_step)
               : NAN;
}

#define X(name, type, who, value, help)                                                            \
    static double value_##name(const struct report_run *r, double now)                             \
    {                                                                                              \
        const struct report_now *n = &r->now;                                                      \
        (void)n;                                                                                   \
        (void)now;                                                                                 \
        return value;                                                                              \
    }
LIVE_METRICS(X)
#undef X

static const struct live_row {
    const char *name, *type, *help;
    enum live_who who;
    double (*value)(const struct report_run *r, double now);
} rows[] = {
#define X(name, type, who, value, help) {#name, #type, help, who, value_##name},
    LIVE_METRICS(X)
#undef X
};
static const char time_name[] = "atoll_time_seconds_total";
static const char time_help[] = "Where the time since the first record went, by cause: ";

static bool is_of(const struct report_run *r, enum live_who who)
{
    return who & (r->role == REPORT_AGGREGATOR ? LIVE_AGGREGATOR : LIVE_SITE);
}

/* Names have letters, digits, - and _; a directory's may have more. */
static void label_write(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc((unsigned char)*text < 32 ? ' ' : *text, out);
    }
}

static void labels_write(FILE *out, const char *name, const struct report_run *r)
{
    fprintf(out, "%s{run=\"", name);
    label_write(out, r->start.run);
    fputs("\",site=\"", out);
    label_write(out, live_name(r));
    fputs("\"", out);
}

/* Of each task of a site. */
static const struct task_row {
    const char *name, *help;
    size_t at; /* in struct report_task */
} task_rows[] = {
    {"atoll_eval_accuracy",
     "Share of the questions of a task whose right choice has the largest "
     "likelihood, of the outer parameters.",
     offsetof(struct report_task, accuracy)},
    {"atoll_eval_accuracy_norm", "The same, by the likelihood over the length of the choice.",
     offsetof(struct report_task, accuracy_norm)},
    {"atoll_eval_chance", "Accuracy of a pick at random.", offsetof(struct report_task, chance)},
    {"atoll_eval_round", "Round of the first fragment after which the task was evaluated.",
     offsetof(struct report_task, round)},
};

static void task_metrics(FILE *out, const struct report_follow *f, const struct task_row *row)
{
    bool said = false;
    for (size_t i = 0; i < f->count; i++)
        for (size_t k = 0; k < f->runs[i].evaluation.task_count; k++) {
            const struct report_task *x = &f->runs[i].evaluation.tasks[k];
            double value;
            memcpy(&value, (const char *)x + row->at, sizeof value);
            if (!said)
                fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n", row->name, row->help, row->name);
            said = true;
            labels_write(out, row->name, &f->runs[i]);
            fputs(",task=\"", out);
            label_write(out, x->name);
            fprintf(out, "\"} %.15g\n", value);
        }
}

static void times_metrics(FILE *out, const struct report_follow *f)
{
    fprintf(out, "# HELP %s %s", time_name, time_help);
    for (int k = 0; k < REPORT_SPENTS; k++)
        fprintf(out, "%s%s", k ? ", " : "", report_spent_name[k]);
    fprintf(out, ".\n# TYPE %s counter\n", time_name);
    for (size_t i = 0; i < f->count; i++) {
        double seconds[REPORT_SPENTS], all;
        const struct report_run *r = &f->runs[i];
        if (r->role != REPORT_SITE && r->role != REPORT_ALONE)
            continue;
        report_spent(r, seconds, &all);
        for (int k = 0; k < REPORT_SPENTS; k++) {
            labels_write(out, time_name, r);
            fprintf(out, ",cause=\"%s\"} %.3f\n", report_spent_name[k], seconds[k]);
        }
    }
}

void live_metrics(FILE *out, const struct report_follow *f, double now)
{
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        bool said = false;
        for (size_t i = 0; i < f->count; i++) {
            const struct report_run *r = &f->runs[i];
            double value = is_of(r, rows[k].who) ? rows[k].value(r, now) : NAN;
            if (!isfinite(value))
                continue;
            if (!said)
                fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", rows[k].name, rows[k].help,
                        rows[k].name, rows[k].type);
            said = true;
            labels_write(out, rows[k].name, r);
            fprintf(out, "} %.15g\n", value);
        }
    }
    for (size_t k = 0; k < sizeof task_rows / sizeof *task_rows; k++)
        task_metrics(out, f, &task_rows[k]);
    times_metrics(out, f);
}

void live_metrics_table(FILE *out)
{
    static const char *const of[] = {"", "site", "aggregator", "site, aggregator"};
    fputs("| name | type | of | meaning |\n|---|---|---|---|\n", out);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        fprintf(out, "| `%s` | %s | %s | %s |\n", rows[k].name, rows[k].type, of[rows[k].who],
                rows[k].help);
    for (size_t k = 0; k < sizeof task_rows / sizeof *task_rows; k++)
        fprintf(out, "| `%s` | gauge | site | %s Label `task`. |\n", task_rows[k].name,
                task_rows[k].help);
    fprintf(out, "| `%s` | counter | site | %s", time_name, time_help);
    static const char *const help[] = {
#define X(value, name, help) #name " (" help ")",
        REPORT_SPENT(X)
#undef X
    };
    for (int k = 0; k < REPORT_SPENTS; k++)
        fprintf(out, "%s%s", k ? "; " : "", help[k]);
    fputs(". |\n", out);
}

/* ---- text ---- */
void live_line(struct progress_line *l, const struct report_run *r, double now)
{
    const struct report_now *n = &r->now;
    double sync = live_sync_s(r, now), eta = live_eta_s(r);
    *l = (struct progress_line){.step = jsonl_whole(n->step),
                                .steps = jsonl_whole(r->training.steps),
                                .loss = live_private(r) ? NAN : n->loss,
                                .tokens_per_second = n->tokens_per_second,
                                .round = (uint64_t)jsonl_whole(fmax(0, n->rounds)),
                                .rounds = (uint64_t)jsonl_whole(fmax(0, n->rounds_all)),
                                .bytes_up = (uint64_t)jsonl_whole(fmax(0, n->up)),
                                .bytes_down = (uint64_t)jsonl_whole(fmax(0, n->down)),
                                .predicted_up = (uint64_t)jsonl_whole(fmax(0, n->up_predicted)),
                                .predicted_down = (uint64_t)jsonl_whole(fmax(0, n->down_predicted)),
                                .sync_seconds = isfinite(sync) ? sync : -1,
                                .eta_seconds = isfinite(eta) ? eta : -1};
    snprintf(l->site, sizeof l->site, "%s", live_name(r));
    if (r->end.finished)
        l->eta_seconds = -1;
    if (*n->state || r->end.finished || silent_s(r, now) > 0)
        live_state(r, now, l->state, sizeof l->state);
}

static void health_text(FILE *out, const struct report_now *n)
{
    char free[32];
    if (n->certificate_days < 0)
        fprintf(out, ", its certificate has EXPIRED, or is not valid");
    else if (isfinite(n->certificate_days))
        fprintf(out, ", certificate valid for %.0f days", n->certificate_days);
    if (isfinite(n->disk_free_bytes)) {
        progress_bytes(free, sizeof free, n->disk_free_bytes);
        fprintf(out, ", %s of disk free", free);
    }
}

static void site_text(FILE *out, const struct report_run *r, double now)
{
    struct progress_line line;
    struct progress_row row;
    live_line(&line, r, now);
    progress_format(&row, &line,
                    &(struct progress_layout){.name_width = 10, .state_s = now - r->now.state_t});
    fprintf(out, "%s\n", row.text);
    char age[32];
    progress_duration(age, sizeof age, fmax(0, now - r->now.t));
    fprintf(out, "%-10s newest record %s ago", "", age);
    if (r->now.waited)
        fprintf(out, ", the other sites wait for it");
    health_text(out, &r->now);
    fputs("\n", out);
    for (size_t i = 0; i < r->evaluation.task_count; i++) {
        const struct report_task *x = &r->evaluation.tasks[i];
        fprintf(out,
                "%-10s %s after round %.0f: accuracy %.1f %%, by length %.1f %%, chance %.1f %%\n",
                "", x->name, x->round, 100 * x->accuracy, 100 * x->accuracy_norm, 100 * x->chance);
    }
}

void live_text(FILE *out, const struct report_follow *f, double now)
{
    const struct report_run *a = live_aggregator(f);
    if (f->count)
        fprintf(out, "run %s\n", f->runs[0].start.run);
    if (a) {
        char state[256];
        live_state(a, now, state, sizeof state);
        fprintf(out, "%-10s %s, %.0f of %.0f rounds committed", a->name, state, a->now.rounds,
                a->now.rounds_all);
        health_text(out, &a->now);
        fputs("\n", out);
    }
    for (size_t i = 0; i < f->count; i++)
        if (f->runs[i].role != REPORT_AGGREGATOR)
            site_text(out, &f->runs[i], now);
}
