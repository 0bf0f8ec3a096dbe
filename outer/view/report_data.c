/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/view/report_data.h"
#include <math.h>
#include <string.h>
#include "inner/config/keys.h"
#include "outer/config/keys.h"
#include "outer/view/report_now.h"

/* The record's keys. It has none of the outage, which outage_take finds. */
static const char *const time_key[REPORT_OUTAGE] = {
    "compute_ms", "encode_ms", "store_ms", "send_ms", "wait_ms", "fetch_ms", "apply_ms"};

const char *const report_metric_name[REPORT_METRICS] = {"gain", "rho", "agreement",
                                                        "residual_ratio"};

/* Room for one more item in a growing array of the arena. */
static enum err room(void **items, size_t count, size_t *capacity, size_t size, struct arena *a)
{
    if (count < *capacity)
        return ERR_OK;
    size_t larger = *capacity ? 2 * *capacity : 64;
    void *next;
    TRY_ALLOC(next = arena_array(a, larger, size));
    if (count)
        memcpy(next, *items, count * size);
    *items = next;
    *capacity = larger;
    return ERR_OK;
}

static void points_thin(struct report_points *p)
{
    for (size_t i = 0; 2 * i < p->count; i++) {
        p->x[i] = p->x[2 * i];
        p->y[i] = p->y[2 * i];
    }
    p->count = (p->count + 1) / 2;
    p->stride *= 2;
    p->since = 1;
}

/* Points ascend in x; a repeated step goes back and overwrites what was after it. Between two kept
 * points the last one is the newest. */
static enum err point_add(struct report_points *p, double x, double y, struct arena *a)
{
    p->stride = p->stride ? p->stride : 1;
    while (p->count && p->x[p->count - 1] >= x)
        p->count--;
    if (p->count == REPORT_POINTS_MAX)
        points_thin(p);
    bool between = p->count && p->since++ % p->stride != 0;
    if (between && p->count > 1)
        p->count--;
    size_t capacity = p->capacity;
    TRY(room((void **)&p->x, p->count, &capacity, sizeof *p->x, a));
    TRY(room((void **)&p->y, p->count, &p->capacity, sizeof *p->y, a));
    p->x[p->count] = x;
    p->y[p->count++] = y;
    return ERR_OK;
}

double report_last(const struct report_points *p)
{
    return p->count ? p->y[p->count - 1] : NAN;
}

static enum err event_add(struct report_run *r, double t, const char *text, struct arena *a)
{
    TRY(room((void **)&r->events.list, r->events.count, &r->events.capacity, sizeof *r->events.list,
             a));
    struct report_event *e = &r->events.list[r->events.count++];
    e->t = t;
    snprintf(e->text, sizeof e->text, "%s", text);
    return ERR_OK;
}

/* A process that trains or exchanges: its time counts, from its start on. */
static void life_counts(struct report_run *r, double t)
{
    if (r->lives.first_t == 0)
        r->lives.first_t = r->reading.life_t > 0 ? r->reading.life_t : t;
    r->lives.last_t = t;
}

/* ---- rounds ---- */
/* The outage is in the call that stood still: sending first, for that is where a round begins. */
static void outage_take(struct report_run *r, struct report_round *n)
{
    static const enum report_time calls[] = {REPORT_SEND, REPORT_WAIT, REPORT_FETCH};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        double ms = fmin(r->reading.outage_ms, n->ms[calls[i]]);
        n->ms[calls[i]] -= ms;
        n->ms[REPORT_OUTAGE] += ms;
        r->reading.outage_ms -= ms;
    }
    r->reading.outage_ms = 0;
}

/* Of this run, in the order in which they ended; a repeated one overwrites what was after it. */
static enum err round_keep(struct report_run *r, const struct report_round *n, struct arena *a)
{
    while (r->rounds.count) {
        const struct report_round *last = &r->rounds.list[r->rounds.count - 1];
        bool again = last->fragment == n->fragment && last->round >= n->round;
        if (!(last->step > n->step ||
              (last->step == n->step && again))) /* overlapped ones end here */
            break;
        r->rounds.count--;
    }
    TRY(room((void **)&r->rounds.list, r->rounds.count, &r->rounds.capacity, sizeof *r->rounds.list,
             a));
    r->rounds.list[r->rounds.count++] = *n;
    return ERR_OK;
}

static enum err round_add(struct report_run *r, const struct jsonl_row *row, struct arena *a)
{
    struct report_round n = {.step = jsonl_number(row, "step"),
                             .fragment = jsonl_number(row, "fragment"),
                             .round = jsonl_number(row, "round"),
                             .included = jsonl_number(row, "included"),
                             .sites = jsonl_number(row, "sites"),
                             .up = report_number(row, "up", 0),
                             .up_predicted = report_number(row, "up_predicted", 0),
                             .down = report_number(row, "down", 0),
                             .down_predicted = report_number(row, "down_predicted", 0),
                             .wire_up = report_number(row, "wire_up", 0),
                             .wire_down = report_number(row, "wire_down", 0),
                             .hidden_ms = report_number(row, "hidden_ms", 0),
                             .exposed_ms = report_number(row, "exposed_ms", 0),
                             .waited_ms = report_number(row, "waited_ms", 0),
                             .momentum_norm = jsonl_number(row, "momentum_norm"),
                             .replayed = jsonl_number(row, "replayed") > 0};
    for (int i = 0; i < REPORT_OUTAGE; i++)
        n.ms[i] = report_number(row, time_key[i], 0);
    for (int i = 0; i < REPORT_METRICS; i++)
        n.metrics[i] = jsonl_number(row, report_metric_name[i]);
    if (!isfinite(n.step)) /* the aggregator's: in the order of their commits */
        n.step = (double)r->rounds.count;
    outage_take(r, &n);
    if (n.replayed) /* its exchange is on record from before the restart */
        return ERR_OK;
    return round_keep(r, &n, a);
}

static enum err notice_take(struct report_run *r, const struct jsonl_row *row, struct arena *a)
{
    double t = jsonl_number(row, "t");
    const char *text = jsonl_string(row, "text");
    if (strncmp(text, "aggregator unreachable", 22) == 0) {
        r->reading.outage_t = r->reading.outage_t > 0 ? r->reading.outage_t : t;
    } else if (strcmp(text, "aggregator reached again") == 0 && r->reading.outage_t > 0) {
        r->reading.outage_ms += 1e3 * (t - r->reading.outage_t);
        r->reading.outage_t = 0;
        report_now_state(r, t, "");
        return event_add(r, t, text, a);
    }
    report_now_state(r, t, text);
    return event_add(r, t, text, a);
}

/* ---- other records ---- */
static enum err keep(const char **to, const struct jsonl_row *row, const char *key, struct arena *a)
{
    const char *text = jsonl_string(row, key);
    TRY_ALLOC(*to = arena_string(a, text, strlen(text)));
    return ERR_OK;
}

/* The page shows the names that people type. */
static enum err keep_config(struct report_run *r, const struct jsonl_row *row, struct arena *a)
{
    const struct config_table tables[] = {keys_inner(NULL), keys_outer(NULL)};
    char *text;
    TRY(config_print_typed(tables, 2, jsonl_string(row, "config"), a, &text));
    r->start.config = text;
    return ERR_OK;
}

static enum err start_take(struct report_run *r, const struct jsonl_row *row, struct arena *a)
{
    char text[160];
    double step = report_number(row, "step", 0);
    if (strcmp(jsonl_string(row, "role"), "aggregator") == 0)
        r->role = REPORT_AGGREGATOR;
    else if (!*jsonl_string(row, "aggregator"))
        r->role = REPORT_ALONE;
    else
        r->role = REPORT_SITE;
    if (r->role == REPORT_AGGREGATOR)
        snprintf(text, sizeof text, r->lives.starts ? "started again" : "started");
    else
        snprintf(text, sizeof text,
                 step > 0 || r->lives.starts ? "started again at step %.0f" : "started", step);
    TRY(event_add(r, jsonl_number(row, "t"), text, a));
    r->lives.starts++;
    r->reading.life_t = jsonl_number(row, "t");
    r->reading.outage_t = r->reading.outage_ms = 0;
    r->training.parameters = report_number(row, "parameters", 0);
    r->training.steps = report_number(row, "steps", 0);
    r->training.ranks = report_number(row, "ranks", 1);
    r->training.threads = report_number(row, "threads", 0);
    if (r->role == REPORT_SITE && *jsonl_string(row, "site"))
        snprintf(r->name, sizeof r->name, "site %s", jsonl_string(row, "site"));
    if (r->role == REPORT_AGGREGATOR && report_number(row, "aggregators", 1) > 1)
        snprintf(r->name, sizeof r->name, "aggregator %.0f", report_number(row, "index", 0));
    else if (r->role == REPORT_AGGREGATOR)
        snprintf(r->name, sizeof r->name, "aggregator");
    r->sites.count = (unsigned)fmax(0, fmin(report_number(row, "sites", 0), ROUND_SITES_MAX));
    report_now_start(r, row, jsonl_number(row, "t"));
    TRY(keep(&r->sites.names, row, "site_names", a));
    TRY(keep(&r->start.run, row, "run", a));
    TRY(keep_config(r, row, a));
    TRY(keep(&r->start.version, row, "version", a));
    TRY(keep(&r->start.commit, row, "commit", a));
    TRY(keep(&r->start.compiler, row, "compiler", a));
    TRY(keep(&r->start.device, row, "device", a));
    return keep(&r->start.command, row, "command", a);
}

static enum err final_take(struct report_run *r, const struct jsonl_row *row, struct arena *a)
{
    static const char *const key[] = {"parameters", "momentum", "residual", "outer"};
    for (int i = 0; i < 4; i++)
        snprintf(r->end.digest[i], sizeof r->end.digest[i], "%.64s", jsonl_string(row, key[i]));
    r->end.finished = true;
    report_now_state(r, jsonl_number(row, "t"), "done");
    TRY(keep(&r->end.short_of_sites, row, "short", a));
    return event_add(r, jsonl_number(row, "t"),
                     r->role == REPORT_AGGREGATOR ? "all rounds committed" : "all steps done", a);
}

/* The aggregator's sites are more now, or fewer. */
static enum err roster_row_take(struct report_run *r, const struct jsonl_row *row, struct arena *a)
{
    char text[160];
    r->sites.count = (unsigned)fmax(0, fmin(report_number(row, "indices", 0), ROUND_SITES_MAX));
    snprintf(text, sizeof text, "roster version %.0f: site %.64s %.16s",
             report_number(row, "version", 0), jsonl_string(row, "site"), jsonl_string(row, "act"));
    TRY(keep(&r->sites.names, row, "site_names", a));
    return event_add(r, jsonl_number(row, "t"), text, a);
}

static enum err amendment_row_take(struct report_run *r, const struct jsonl_row *row,
                                   struct arena *a)
{
    char text[400], why[128] = "";
    double share = jsonl_number(row, "share");
    report_now_length(r, report_number(row, "rounds", r->now.rounds_all));
    r->training.steps = report_number(row, "steps", r->training.steps);
    if (isfinite(share))
        snprintf(why, sizeof why,
                 " (outer.replan: training had %.1f %% of the time, %.3g s, and waited %.3g s)",
                 100 * share, report_number(row, "trained_s", 0),
                 report_number(row, "waited_s", 0));
    snprintf(text, sizeof text, "amendment %.0f: %.224s from round %.0f on%s",
             report_number(row, "number", 0), jsonl_string(row, "setting"),
             report_number(row, "from_round", 0), why);
    return event_add(r, jsonl_number(row, "t"), text, a);
}

static enum err step_take(struct report_run *r, const struct jsonl_row *row, struct arena *a)
{
    double step = jsonl_number(row, "step"), t = jsonl_number(row, "t");
    double speed = report_number(row, "tokens_per_second", 0);
    report_now_step(r, row, t);
    life_counts(r, t);
    r->training.tokens = report_number(row, "tokens", r->training.tokens);
    r->training.tokens_per_second +=
        (speed - r->training.tokens_per_second) / ++r->reading.step_rows;
    TRY(point_add(&r->series[REPORT_NORM], step, jsonl_number(row, "norm"), a));
    TRY(point_add(&r->series[REPORT_LR], step, jsonl_number(row, "lr"), a));
    TRY(point_add(&r->series[REPORT_RATE], (t - r->lives.first_t) / 60,
                  jsonl_number(row, "tokens_per_second"), a));
    return point_add(&r->series[REPORT_LOSS], step, jsonl_number(row, "loss"), a);
}

/* ---- evaluation in the run ---- */
/* Time of a process that trains; of one that has yet to make a step it is part of its start. */
static void evaluation_spent(struct report_run *r, const struct jsonl_row *row)
{
    if (r->lives.last_t <= 0 || r->reading.life_t > r->lives.last_t)
        return;
    r->lives.last_t = jsonl_number(row, "t");
    report_now_evaluated(r, report_number(row, "ms", 0));
}

static struct report_task *task_named(struct report_run *r, const char *name)
{
    for (size_t i = 0; i < r->evaluation.task_count; i++)
        if (strcmp(r->evaluation.tasks[i].name, name) == 0)
            return &r->evaluation.tasks[i];
    if (r->evaluation.task_count == REPORT_TASKS_MAX)
        return NULL;
    struct report_task *x = &r->evaluation.tasks[r->evaluation.task_count++];
    snprintf(x->name, sizeof x->name, "%s", name);
    return x;
}

static enum err task_take(struct report_run *r, const struct jsonl_row *row, struct arena *a)
{
    evaluation_spent(r, row);
    if (!r->evaluation.tasks)
        TRY_ALLOC(r->evaluation.tasks =
                      arena_array(a, REPORT_TASKS_MAX, sizeof *r->evaluation.tasks));
    struct report_task *x = task_named(r, jsonl_string(row, "of"));
    if (!x)
        return ERR_OK;
    x->questions = jsonl_number(row, "questions");
    x->chance = jsonl_number(row, "chance");
    x->round = jsonl_number(row, "round");
    x->accuracy = jsonl_number(row, "accuracy");
    x->accuracy_norm = jsonl_number(row, "accuracy_norm");
    TRY(point_add(&x->by_round, x->round, x->accuracy, a));
    return point_add(&x->by_round_norm, x->round, x->accuracy_norm, a);
}

static enum err probe_take(struct report_run *r, const struct jsonl_row *row, struct arena *a)
{
    double number = jsonl_number(row, "number");
    evaluation_spent(r, row);
    if (!(number >= 0 && number < REPORT_PROBES_MAX))
        return ERR_OK;
    if (!r->evaluation.probes)
        TRY_ALLOC(r->evaluation.probes =
                      arena_array(a, REPORT_PROBES_MAX, sizeof *r->evaluation.probes));
    for (; r->evaluation.probe_count <= (size_t)number; r->evaluation.probe_count++)
        r->evaluation.probes[r->evaluation.probe_count].round = NAN;
    struct report_probe *x = &r->evaluation.probes[(size_t)number];
    x->round = jsonl_number(row, "round");
    snprintf(x->prompt, sizeof x->prompt, "%s", jsonl_string(row, "prompt"));
    snprintf(x->text, sizeof x->text, "%s", jsonl_string(row, "text"));
    return ERR_OK;
}

static enum err row_take(struct report_run *r, const struct jsonl_row *row, struct arena *a)
{
    char text[160];
    double step = jsonl_number(row, "step"), t = jsonl_number(row, "t");
    report_now_record(r, row, t);
    if (jsonl_is(row, "start"))
        return start_take(r, row, a);
    if (jsonl_is(row, "step"))
        return step_take(r, row, a);
    if (jsonl_is(row, "notice"))
        return notice_take(r, row, a);
    if (jsonl_is(row, "amendment"))
        return amendment_row_take(r, row, a);
    if (jsonl_is(row, "roster"))
        return roster_row_take(r, row, a);
    if (jsonl_is(row, "round")) {
        report_now_round(r, row, t);
        r->training.steps = report_number(row, "steps", r->training.steps);
        life_counts(r, t);
        if (r->role == REPORT_AGGREGATOR && !r->counted) {
            TRY_ALLOC(r->counted = arena_alloc(a, sizeof *r->counted));
            *r->counted = (struct counted){0};
        }
        if (r->counted)
            counted_record(r->counted, row);
        return round_add(r, row, a);
    }
    if (jsonl_is(row, "eval")) {
        if (r->lives.last_t > 0) /* of a start that is refused there may be one, too */
            r->lives.last_t = r->reading.life_t <= r->lives.last_t ? t : r->lives.last_t;
        return point_add(&r->series[REPORT_EVAL], step, jsonl_number(row, "loss"), a);
    }
    if (jsonl_is(row, "task"))
        return task_take(r, row, a);
    if (jsonl_is(row, "probe"))
        return probe_take(r, row, a);
    if (jsonl_is(row, "final"))
        return final_take(r, row, a);
    if (!jsonl_is(row, "stop"))
        return ERR_OK; /* of a later version: what it means is not ours to guess */
    report_now_state(r, t, "stopped");
    if (isfinite(step))
        snprintf(text, sizeof text, "stopped at step %.0f: %.100s", step,
                 jsonl_string(row, "reason"));
    else
        snprintf(text, sizeof text, "stopped: %.100s", jsonl_string(row, "reason"));
    return event_add(r, t, text, a);
}

/* A page without the ledger's table is better than none: it says why. */
static enum err ledger_take(struct report_run *r, const char *dir, struct arena *a)
{
    enum err e = ledger_read(&r->ledger.member, dir, NULL, a);
    if (e == ERR_OK || e == ERR_MEMORY)
        return e;
    snprintf(r->ledger.why, sizeof r->ledger.why, "%s", err_message());
    r->ledger.member = (struct ledger_member){0};
    err_clear();
    return ERR_OK;
}

/* ---- sites as the aggregator saw them ---- */
static enum err run_new(struct report_follow *g, struct report_run **r)
{
    TRY(room((void **)&g->runs, g->count, &g->capacity, sizeof *g->runs, g->a));
    *r = &g->runs[g->count++];
    **r = (struct report_run){.start.run = "",
                              .start.config = "",
                              .start.version = "",
                              .start.commit = "",
                              .start.compiler = "",
                              .start.device = "",
                              .start.command = "",
                              .sites.names = "",
                              .end.short_of_sites = ""};
    report_now_begin(*r);
    return ERR_OK;
}

static struct report_run *run_named(struct report_follow *g, const char *name)
{
    for (size_t i = 0; i < g->count; i++)
        if (strcmp(g->runs[i].name, name) == 0)
            return &g->runs[i];
    return NULL;
}

/* The run of a site that has no directory of its own here; NULL: it speaks for itself. */
static enum err seen_run(struct report_follow *g, const struct report_run *from, const char *site,
                         struct report_run **out)
{
    char name[64];
    const struct report_run aggregator = *from; /* the array may move */
    snprintf(name, sizeof name, "site %.50s", site);
    struct report_run *r = run_named(g, name);
    *out = r && r->role == REPORT_SEEN ? r : NULL;
    if (r)
        return ERR_OK;
    TRY(run_new(g, &r));
    memcpy(r->name, name, sizeof name);
    r->role = REPORT_SEEN;
    r->start.run = aggregator.start.run;
    r->training.parameters = aggregator.training.parameters;
    r->training.steps = aggregator.training.steps;
    r->reading.life_t = aggregator.reading.life_t;
    report_now_length(r, aggregator.now.rounds_all);
    *out = r;
    return ERR_OK;
}

/* A row of kind "site": the site has adopted a round. */
static enum err seen_take(struct report_follow *g, const struct report_run *from,
                          const struct jsonl_row *row)
{
    struct report_run *r;
    double t = jsonl_number(row, "t");
    double steps = from->training.steps, rounds = from->now.rounds_all; /* the array may move */
    TRY(seen_run(g, from, jsonl_string(row, "site"), &r));
    if (!r)
        return ERR_OK;
    life_counts(r, t);
    r->training.steps = report_number(row, "steps", steps);
    report_now_length(r, rounds);
    double up = report_number(row, "up_total", 0), down = report_number(row, "down_total", 0);
    struct report_round n = {.step = jsonl_number(row, "step"),
                             .fragment = jsonl_number(row, "fragment"),
                             .round = jsonl_number(row, "round"),
                             .up = fmax(0, up - r->reading.seen_up),
                             .down = fmax(0, down - r->reading.seen_down),
                             .metrics = {NAN, NAN, NAN, NAN}};
    n.up_predicted = n.up;
    n.down_predicted = n.down;
    r->reading.seen_up = up;
    r->reading.seen_down = down;
    report_now_seen(r, row, t);
    r->training.tokens = report_number(row, "tokens", 0);
    r->training.tokens_per_second = report_number(row, "tokens_per_second", 0);
    TRY(round_keep(r, &n, g->a));
    TRY(point_add(&r->series[REPORT_RATE], (t - r->lives.first_t) / 60,
                  r->training.tokens_per_second, g->a));
    return point_add(&r->series[REPORT_LOSS], n.step, jsonl_number(row, "loss"), g->a);
}

/* A row of kind "state": what the aggregator knows of a site has changed. */
static enum err seen_state(struct report_follow *g, const struct report_run *from,
                           const struct jsonl_row *row)
{
    struct report_run *r;
    TRY(seen_run(g, from, jsonl_string(row, "site"), &r));
    if (!r)
        return ERR_OK;
    report_now_seen_state(r, row);
    return event_add(r, r->now.t, *r->now.state ? r->now.state : "trains", g->a);
}

/* ---- reading ---- */
static void directory_name(char out[64], const char *dir)
{
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    size_t start = length;
    while (start > 0 && dir[start - 1] != '/')
        start--;
    snprintf(out, 64, "%.*s", (int)(length - start), dir + start);
}

static enum err bytes_sum(struct report_run *r, struct arena *a)
{
    double up = 0, down = 0;
    for (size_t i = 0; i < r->rounds.count; i++) {
        const struct report_round *n = &r->rounds.list[i];
        up += n->up;
        down += n->down;
        if (i + 1 < r->rounds.count && r->rounds.list[i + 1].step <= n->step)
            continue;
        TRY(point_add(&r->series[REPORT_BYTES_UP], n->step, up, a));
        TRY(point_add(&r->series[REPORT_BYTES_DOWN], n->step, down, a));
    }
    return ERR_OK;
}

/* Is it the aggregator's directory? Those are read last: sites speak for themselves. */
static bool is_aggregator(const char *dir)
{
    struct jsonl_reader reader;
    struct jsonl_row row;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, RECORD_FILE);
    bool found = jsonl_reader_open(&reader, path);
    bool is =
        found && jsonl_next(&reader, &row) && strcmp(jsonl_string(&row, "role"), "aggregator") == 0;
    if (found)
        jsonl_reader_close(&reader);
    return is;
}

void report_follow_open(struct report_follow *f, const char *const *dirs, size_t dir_count,
                        struct arena *a)
{
    *f = (struct report_follow){.a = a};
    ASSERT(dir_count <= REPORT_RUNS_MAX);
    for (; f->source_count < dir_count; f->source_count++)
        f->source[f->source_count].dir = dirs[f->source_count];
}

static enum err source_row(struct report_follow *f, struct report_source *s,
                           const struct jsonl_row *row)
{
    struct report_run *r;
    if (!s->begun) {
        s->run = f->count;
        TRY(run_new(f, &r));
        directory_name(r->name, s->dir);
        s->begun = true;
    }
    r = &f->runs[s->run];
    if (r->role == REPORT_AGGREGATOR && jsonl_is(row, "site"))
        return seen_take(f, r, row);
    if (r->role == REPORT_AGGREGATOR && jsonl_is(row, "state"))
        return seen_state(f, r, row);
    return row_take(r, row, f->a);
}

enum err report_follow_row(struct report_follow *f, const struct jsonl_row *row)
{
    f->source_count = 1;
    f->source[0].dir = "";
    return source_row(f, &f->source[0], row);
}

static enum err source_read(struct report_follow *f, struct report_source *s)
{
    struct jsonl_row row;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", s->dir, RECORD_FILE);
    if (!s->reader.file && !jsonl_reader_open(&s->reader, path))
        return ERR_OK;
    while (jsonl_next(&s->reader, &row))
        TRY(source_row(f, s, &row));
    return ERR_OK;
}

/* A killed process writes no last word; its lock is gone with it. */
static void source_held(struct report_follow *f, const struct report_source *s)
{
    struct report_run *r = &f->runs[s->run];
    if (!s->begun || r->end.finished || strcmp(r->now.state, "stopped") == 0)
        return;
    if (file_held(s->dir) == FILE_HELD_NO)
        report_now_state(r, r->now.t, "no process");
}

enum err report_follow_read(struct report_follow *f)
{
    for (size_t i = 0; i < f->source_count; i++) {
        f->source[i].aggregator = is_aggregator(f->source[i].dir);
        struct report_run *r = &f->runs[f->source[i].run];
        if (f->source[i].begun && strcmp(r->now.state, "no process") == 0 &&
            file_held(f->source[i].dir) == FILE_HELD_YES)
            report_now_state(r, r->now.t, "starting");
    }
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < f->source_count; i++)
            if (f->source[i].aggregator == (pass == 1))
                TRY(source_read(f, &f->source[i]));
    for (size_t i = 0; i < f->source_count; i++)
        source_held(f, &f->source[i]);
    return ERR_OK;
}

void report_follow_close(struct report_follow *f)
{
    for (size_t i = 0; i < f->source_count; i++)
        jsonl_reader_close(&f->source[i].reader);
    f->source_count = 0;
}

static enum err sources_check(const struct report_follow *f)
{
    for (size_t i = 0; i < f->source_count; i++) {
        const struct report_source *s = &f->source[i];
        if (!s->reader.file)
            return err_set(ERR_INPUT,
                           "%s/%s: there is no such file: give the run.dir of an `atoll train`, or "
                           "the serve.dir of an `atoll serve`",
                           s->dir, RECORD_FILE);
        if (!s->begun || f->runs[s->run].lives.starts == 0)
            return err_set(ERR_INPUT, "%s/%s: it holds no record of a run", s->dir, RECORD_FILE);
    }
    return ERR_OK;
}

static enum err ledgers_take(struct report_follow *f)
{
    for (size_t i = 0; i < f->source_count; i++) {
        struct report_run *r = &f->runs[f->source[i].run];
        if (r->role != REPORT_ALONE)
            TRY(ledger_take(r, f->source[i].dir, f->a));
    }
    return ERR_OK;
}

enum err report_data_read(struct report_run **runs, size_t *count, const char *const *dirs,
                          size_t dir_count, struct arena *a)
{
    struct report_follow *f;
    TRY_ALLOC(f = arena_alloc(a, sizeof *f));
    report_follow_open(f, dirs, dir_count, a);
    enum err e = report_follow_read(f);
    e = e == ERR_OK ? sources_check(f) : e;
    report_follow_close(f);
    TRY(e);
    f->source_count = dir_count;
    TRY(ledgers_take(f));
    for (size_t i = 0; i < f->count; i++)
        if (f->runs[i].role != REPORT_AGGREGATOR)
            TRY(bytes_sum(&f->runs[i], a));
    *runs = f->runs;
    *count = f->count;
    return ERR_OK;
}

struct report_round report_totals(const struct report_run *r)
{
    struct report_round t = {0};
    for (size_t i = 0; i < r->rounds.count; i++) {
        const struct report_round *n = &r->rounds.list[i];
        t.up += n->up;
        t.up_predicted += n->up_predicted;
        t.down += n->down;
        t.down_predicted += n->down_predicted;
        t.wire_up += n->wire_up;
        t.wire_down += n->wire_down;
        t.hidden_ms += n->hidden_ms;
        t.exposed_ms += n->exposed_ms;
    }
    return t;
}

/* Training stood still for `exposed`; its parts are as those of the whole exchange. */
struct report_cost report_cost(const struct report_run *r)
{
    struct report_cost c = {.share = {NAN, NAN, NAN, NAN, NAN, NAN}};
    double ms[REPORT_TIMES] = {0}, exchange = 0, exposed = 0;
    for (size_t i = 0; i < r->rounds.count; i++) {
        for (int k = 0; k < REPORT_TIMES; k++)
            ms[k] += r->rounds.list[i].ms[k];
        exposed += r->rounds.list[i].exposed_ms;
        c.hidden_s += 1e-3 * r->rounds.list[i].hidden_ms;
    }
    for (int k = REPORT_ENCODE; k < REPORT_TIMES; k++)
        exchange += ms[k];
    double all = 1e3 * (r->lives.last_t - r->lives.first_t);
    if (!r->rounds.count || !(all > 0))
        return c;
    double scale = exchange > 0 ? exposed / exchange / all : 0;
    c.share[REPORT_COMPUTING] = report_compute_share(r);
    c.share[REPORT_SENDING] = ms[REPORT_SEND] * scale;
    c.share[REPORT_WAITING] = (ms[REPORT_WAIT] + ms[REPORT_OUTAGE]) * scale;
    c.share[REPORT_RECEIVING] = ms[REPORT_FETCH] * scale;
    c.share[REPORT_REST] = (ms[REPORT_ENCODE] + ms[REPORT_STORE] + ms[REPORT_APPLY]) * scale;
    c.share[REPORT_BESIDES] = 1;
    for (int k = 0; k < REPORT_BESIDES; k++)
        c.share[REPORT_BESIDES] -= c.share[k];
    c.round_s = 1e-3 * exchange / (double)r->rounds.count;
    c.step_s = 1e-3 * ms[REPORT_COMPUTE] / r->rounds.list[r->rounds.count - 1].step;
    return c;
}
