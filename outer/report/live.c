#include "outer/report/live.h"
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "outer/report/json_write.h"

enum {
    SILENT_S = 120, /* without a record a site that should train is named, at the latest; with the
                       time of its steps after SILENT_STEPS of them */
    SILENT_LEAST_S = 10,
    SILENT_STEPS = 20,
    POINTS_SHOWN = 240,
    ROUNDS_SHOWN = 60,
    EVENTS_SHOWN = 40
};

/* ---- what is derived ---- */
bool live_private(const struct report_run *r)
{
    return r->now.secure || isfinite(r->now.epsilon) || r->now.charged_step > 0;
}

double live_eta_s(const struct report_run *r)
{
    double eta = r->finished ? 0 : progress_pace_eta(&r->now.pace, jsonl_whole(r->steps));
    return eta >= 0 ? eta : NAN;
}

/* A site by the step's time; as the aggregator sees it, by the interval of its rounds. */
double live_sync_s(const struct report_run *r, double now)
{
    const struct report_now *n = &r->now;
    double at = r->role == REPORT_SEEN ? n->round_t[0] + n->interval_s
                                       : n->step_t + (n->next_sync - n->step) * n->step_s;
    if (r->finished || (r->role == REPORT_SITE && n->next_sync <= n->step))
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
    return quiet && !r->finished && !*n->state && silent > most ? silent : 0;
}

void live_state(const struct report_run *r, double now, char *out, size_t size)
{
    const struct report_now *n = &r->now;
    double silent = silent_s(r, now);
    if (r->finished)
        snprintf(out, size, "done");
    else if (*n->state)
        snprintf(out, size, "%s", n->state);
    else if (silent > 0)
        snprintf(out, size, "no record for %.0f s", silent);
    else
        snprintf(out, size, r->role == REPORT_AGGREGATOR ? "serves" : "trains");
}

static const char *replica_name(const struct report_run *r)
{
    return strncmp(r->name, "site ", 5) == 0 ? r->name + 5 : r->name;
}

static const struct report_run *aggregator_of(const struct report_follow *f)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->runs[i].role == REPORT_AGGREGATOR)
            return &f->runs[i];
    return NULL;
}

static const struct report_round *last_round(const struct report_run *r)
{
    return r->round_count ? &r->rounds[r->round_count - 1] : NULL;
}

/* ---- JSON ---- */
/* At most POINTS_SHOWN of them, the last one always. */
static void points_json(struct json_write *w, const char *key, const struct report_points *p)
{
    size_t stride = p->count / POINTS_SHOWN + 1;
    json_array(w, key);
    for (size_t i = 0; i < p->count; i++)
        if (i % stride == 0 || i + 1 == p->count) {
            json_array(w, NULL);
            json_real(w, NULL, p->x[i]);
            json_real(w, NULL, p->y[i]);
            json_end(w);
        }
    json_end(w);
}

static void spent_json(struct json_write *w, const struct report_run *r)
{
    double seconds[REPORT_SPENTS], all;
    report_spent(r, seconds, &all);
    json_object(w, "spent_s");
    for (int k = 0; k < REPORT_SPENTS; k++)
        json_real(w, report_spent_name[k], seconds[k]);
    json_real(w, "all", all);
    json_end(w);
}

static void rounds_json(struct json_write *w, const struct report_run *r)
{
    size_t first = r->round_count > ROUNDS_SHOWN ? r->round_count - ROUNDS_SHOWN : 0;
    json_array(w, "last_rounds");
    for (size_t i = first; i < r->round_count; i++) {
        const struct report_round *n = &r->rounds[i];
        json_object(w, NULL);
        json_real(w, "round", n->round);
        json_real(w, "fragment", n->fragment);
        json_real(w, "up_bytes", n->up);
        json_real(w, "down_bytes", n->down);
        json_real(w, "included", n->included);
        json_real(w, "sites", n->sites);
        if (r->role == REPORT_AGGREGATOR) {
            json_real(w, "waited_s", n->waited_ms / 1e3);
            json_real(w, "momentum_norm", n->momentum_norm);
        }
        if (r->role == REPORT_SITE)
            for (int k = 0; k < REPORT_METRICS; k++)
                json_real(w, report_metric_name[k], n->metrics[k]);
        json_end(w);
    }
    json_end(w);
}

static void health_json(struct json_write *w, const struct report_now *n)
{
    json_real(w, "certificate_days", n->certificate_days);
    json_real(w, "disk_free_bytes", n->disk_free_bytes);
    json_real(w, "clock_offset_s", n->clock_offset_s);
    json_real(w, "clock_error_s", n->clock_error_s);
    json_real(w, "clock_aggregator_s", n->clock_aggregator_s);
}

static void evaluation_json(struct json_write *w, const struct report_run *r)
{
    json_array(w, "tasks");
    for (size_t i = 0; i < r->task_count; i++) {
        const struct report_task *x = &r->tasks[i];
        json_object(w, NULL);
        json_text(w, "name", x->name);
        json_real(w, "questions", x->questions);
        json_real(w, "chance", x->chance);
        json_real(w, "round", x->round);
        json_real(w, "accuracy", x->accuracy);
        json_real(w, "accuracy_norm", x->accuracy_norm);
        points_json(w, "by_round", &x->by_round);
        points_json(w, "by_round_norm", &x->by_round_norm);
        json_end(w);
    }
    json_end(w);
    json_array(w, "probes");
    for (size_t i = 0; i < r->probe_count; i++) {
        json_object(w, NULL);
        json_real(w, "round", r->probes[i].round);
        json_text(w, "prompt", r->probes[i].prompt);
        json_text(w, "text", r->probes[i].text);
        json_end(w);
    }
    json_end(w);
}

static void privacy_json(struct json_write *w, const struct report_run *r)
{
    if (!live_private(r))
        return;
    json_real(w, "epsilon", r->now.epsilon);
    json_real(w, "epsilon_cap", r->now.cap);
}

/* What the aggregator has, too. */
static void replica_json(struct json_write *w, const struct report_run *r, double now)
{
    const struct report_now *n = &r->now;
    char state[256];
    live_state(r, now, state, sizeof state);
    json_text(w, "name", replica_name(r));
    json_text(w, "state", state);
    json_real(w, "record_age_s", now - n->t);
    json_real(w, "starts", r->starts);
    json_real(w, "rounds", n->rounds);
    json_real(w, "rounds_planned", n->rounds_all);
    json_real(w, "up_bytes", n->up);
    health_json(w, n);
    rounds_json(w, r);
}

static void run_json(struct json_write *w, const struct report_run *r, double now)
{
    const struct report_now *n = &r->now;
    json_object(w, NULL);
    json_text(w, "seen_by", r->role == REPORT_SEEN ? "aggregator" : "itself");
    json_bool(w, "trains", !*n->state && !r->finished);
    json_bool(w, "waited_for", n->waited);
    json_real(w, "state_s", *n->state ? now - n->state_t : 0);
    json_real(w, "step", n->step);
    json_real(w, "steps", r->steps);
    json_real(w, "loss", live_private(r) ? NAN : n->loss);
    json_real(w, "gradient_norm", n->norm);
    json_real(w, "tokens", r->tokens);
    json_real(w, "tokens_per_second", n->tokens_per_second);
    json_real(w, "down_bytes", n->down);
    json_real(w, "up_bytes_predicted", n->up_predicted);
    json_real(w, "down_bytes_predicted", n->down_predicted);
    json_real(w, "next_sync_s", live_sync_s(r, now));
    json_real(w, "eta_s", live_eta_s(r));
    privacy_json(w, r);
    if (r->role != REPORT_SEEN)
        spent_json(w, r);
    if (!live_private(r))
        points_json(w, "losses", &r->series[REPORT_LOSS]);
    points_json(w, "eval_losses", &r->series[REPORT_EVAL]);
    if (r->role == REPORT_SITE)
        evaluation_json(w, r);
    replica_json(w, r, now);
    json_end(w);
}

static void aggregator_json(struct json_write *w, const struct report_run *r, double now)
{
    json_object(w, "aggregator");
    json_real(w, "interval_s", r->now.interval_s);
    json_real(w, "epoch", r->now.epoch);
    replica_json(w, r, now);
    json_end(w);
}

struct event_place {
    const struct report_run *run;
    size_t left; /* events not yet taken, the oldest first */
};

/* The newest of all directories, newest first. */
static void events_json(struct json_write *w, const struct report_follow *f)
{
    struct event_place place[REPORT_RUNS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < f->count && count < REPORT_RUNS_MAX; i++)
        place[count++] = (struct event_place){&f->runs[i], f->runs[i].event_count};
    json_array(w, "events");
    for (int k = 0; k < EVENTS_SHOWN; k++) {
        struct event_place *newest = NULL;
        for (size_t i = 0; i < count; i++)
            if (place[i].left && (!newest || place[i].run->events[place[i].left - 1].t >
                                                 newest->run->events[newest->left - 1].t))
                newest = &place[i];
        if (!newest)
            break;
        const struct report_event *e = &newest->run->events[--newest->left];
        json_object(w, NULL);
        json_real(w, "t", e->t);
        json_text(w, "who", newest->run->name);
        json_text(w, "text", e->text);
        json_end(w);
    }
    json_end(w);
}

void live_json(FILE *out, const struct report_follow *f, double now)
{
    struct json_write w = {.out = out};
    const struct report_run *aggregator = aggregator_of(f);
    bool private = false;
    for (size_t i = 0; i < f->count; i++)
    private |= live_private(&f->runs[i]);
    json_object(&w, NULL);
    json_real(&w, "v", RECORD_VERSION);
    json_real(&w, "t", now);
    json_text(&w, "run", f->count ? f->runs[0].run : "");
    json_bool(&w, "private", private);
    if (aggregator)
        aggregator_json(&w, aggregator, now);
    json_array(&w, "sites");
    for (size_t i = 0; i < f->count; i++)
        if (f->runs[i].role != REPORT_AGGREGATOR)
            run_json(&w, &f->runs[i], now);
    json_end(&w);
    events_json(&w, f);
    json_end(&w);
    fputc('\n', out);
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
    return isfinite(r->now.steps_left) ? r->now.steps_left - (r->now.step - r->now.charged_step)
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
    label_write(out, r->run);
    fputs("\",replica=\"", out);
    label_write(out, replica_name(r));
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
    {"atoll_eval_round", "Round of the first fragment behind which the task was evaluated.",
     offsetof(struct report_task, round)},
};

static void task_metrics(FILE *out, const struct report_follow *f, const struct task_row *row)
{
    bool said = false;
    for (size_t i = 0; i < f->count; i++)
        for (size_t k = 0; k < f->runs[i].task_count; k++) {
            const struct report_task *x = &f->runs[i].tasks[k];
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
static void row_line(struct progress_line *l, const struct report_run *r, double now)
{
    const struct report_now *n = &r->now;
    double sync = live_sync_s(r, now), eta = live_eta_s(r);
    *l = (struct progress_line){.step = jsonl_whole(n->step),
                                .steps = jsonl_whole(r->steps),
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
    snprintf(l->site, sizeof l->site, "%s", replica_name(r));
    if (r->finished)
        l->eta_seconds = -1;
    if (*n->state || r->finished || silent_s(r, now) > 0)
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
    row_line(&line, r, now);
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
    for (size_t i = 0; i < r->task_count; i++) {
        const struct report_task *x = &r->tasks[i];
        fprintf(out,
                "%-10s %s after round %.0f: accuracy %.1f %%, by length %.1f %%, chance %.1f %%\n",
                "", x->name, x->round, 100 * x->accuracy, 100 * x->accuracy_norm, 100 * x->chance);
    }
}

void live_text(FILE *out, const struct report_follow *f, double now)
{
    const struct report_run *a = aggregator_of(f);
    if (f->count)
        fprintf(out, "run %s\n", f->runs[0].run);
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
