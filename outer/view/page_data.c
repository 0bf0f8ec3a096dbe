/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/view/page_data.h"
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "outer/view/live.h"
#include "outer/view/page_own.h"

enum { /* SHOWN: of the live page; WHOLE: of a report */
       ROUNDS_SHOWN = 60,
       ROUNDS_WHOLE = 160,
       EVENTS_SHOWN = 40,
       EVENTS_WHOLE = 60
};

/* ---- rounds ---- */
enum { ROUND_NUMBERS = offsetof(struct report_round, replayed) / sizeof(double) };
struct round_group { /* rounds that are alike; one round, if most is 1 */
    const struct report_run *run;
    double least[ROUND_FRAGMENTS_MAX]; /* payload up of each fragment's smallest round */
    size_t most, first, n;
    struct report_round mean; /* of the group, but for: */
    double included;          /* the smallest in the group */
};

static bool has_fragments(const struct report_run *r)
{
    for (size_t i = 0; i < r->rounds.count; i++)
        if (r->rounds.list[i].fragment > 0)
            return true;
    return false;
}

static unsigned fragment_of(const struct report_round *n)
{
    return (unsigned)fmax(0, fmin(n->fragment, ROUND_FRAGMENTS_MAX - 1));
}

static void group_begin(struct round_group *g, const struct report_run *r, size_t first,
                        size_t most)
{
    *g = (struct round_group){.run = r, .first = first, .most = most};
    for (unsigned f = 0; f < ROUND_FRAGMENTS_MAX; f++)
        g->least[f] = INFINITY;
    for (size_t i = 0; most > 1 && i < r->rounds.count; i++) {
        double *least = &g->least[fragment_of(&r->rounds.list[i])];
        if (r->rounds.list[i].up_predicted > 0)
            *least = fmin(*least, r->rounds.list[i].up_predicted);
    }
}

/* A full-precision round is larger than the others of its fragment: a mean would hide it. */
static bool is_full(const struct round_group *g, size_t i)
{
    const struct report_round *n = &g->run->rounds.list[i];
    return n->up_predicted > 1.3 * g->least[fragment_of(n)];
}

/* Means of what is known. Everything before `replayed` is a number. */
static void group_mean(struct round_group *g)
{
    double sum[ROUND_NUMBERS] = {0}, known[ROUND_NUMBERS] = {0}, one[ROUND_NUMBERS];
    const struct report_round *first = &g->run->rounds.list[g->first];
    g->included = first->included;
    for (size_t i = 0; i < g->n; i++) {
        memcpy(one, first + i, sizeof one);
        g->included = fmin(g->included, first[i].included);
        for (int k = 0; k < ROUND_NUMBERS; k++)
            if (isfinite(one[k])) {
                sum[k] += one[k];
                known[k]++;
            }
    }
    for (int k = 0; k < ROUND_NUMBERS; k++)
        sum[k] = known[k] > 0 ? sum[k] / known[k] : NAN;
    memcpy(&g->mean, sum, sizeof sum);
}

static bool group_next(struct round_group *g)
{
    g->first += g->n;
    g->n = 0;
    if (g->first >= g->run->rounds.count)
        return false;
    while (g->first + g->n < g->run->rounds.count && g->n < g->most &&
           is_full(g, g->first + g->n) == is_full(g, g->first))
        g->n++;
    group_mean(g);
    return true;
}

/* Where they stand on the axis: by number, with several fragments by their order. */
static void place_json(struct json_write *w, const struct round_group *g, bool fragments)
{
    size_t last = g->first + g->n - 1;
    json_real(w, "from", fragments ? (double)g->first : g->run->rounds.list[g->first].round);
    json_real(w, "to", fragments ? (double)last : g->run->rounds.list[last].round);
    json_real(w, "count", (double)g->n);
    json_real(w, "up_bytes_predicted", g->mean.up_predicted);
    json_real(w, "down_bytes_predicted", g->mean.down_predicted);
    json_array(w, "ms");
    for (int k = 0; g->run->role == REPORT_SITE && k < REPORT_TIMES; k++)
        json_real(w, NULL, g->mean.ms[k]);
    json_end(w);
}

static void rounds_json(struct page_view *v, const struct report_run *r)
{
    size_t shown = v->whole ? r->rounds.count : ROUNDS_SHOWN;
    struct round_group g;
    bool fragments = v->whole && has_fragments(r);
    group_begin(&g, r, r->rounds.count > shown ? r->rounds.count - shown : 0,
                v->whole ? r->rounds.count / ROUNDS_WHOLE + 1 : 1);
    json_array(v->w, v->whole ? "rounds_all" : "last_rounds");
    while (group_next(&g)) {
        json_object(v->w, NULL);
        json_real(v->w, "round", r->rounds.list[g.first].round);
        json_real(v->w, "fragment", r->rounds.list[g.first].fragment);
        json_real(v->w, "up_bytes", g.mean.up);
        json_real(v->w, "down_bytes", g.mean.down);
        json_real(v->w, "included", g.included);
        json_real(v->w, "sites", g.mean.sites);
        if (r->role == REPORT_AGGREGATOR) {
            json_real(v->w, "waited_s", g.mean.waited_ms / 1e3);
            json_real(v->w, "momentum_norm", g.mean.momentum_norm);
        }
        if (r->role == REPORT_SITE)
            for (int k = 0; k < REPORT_METRICS; k++)
                json_real(v->w, report_metric_name[k], g.mean.metrics[k]);
        if (v->whole)
            place_json(v->w, &g, fragments);
        json_end(v->w);
    }
    json_end(v->w);
}

/* ---- a site, the aggregator ---- */
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

static void health_json(struct json_write *w, const struct report_now *n)
{
    json_real(w, "certificate_days", n->certificate_days);
    json_real(w, "disk_free_bytes", n->disk_free_bytes);
    json_real(w, "clock_offset_s", n->clock.offset_s);
    json_real(w, "clock_error_s", n->clock.error_s);
    json_real(w, "clock_aggregator_s", n->clock.aggregator_s);
}

static void evaluation_json(struct page_view *v, const struct report_run *r)
{
    struct json_write *w = v->w;
    json_array(w, "tasks");
    for (size_t i = 0; i < r->evaluation.task_count; i++) {
        const struct report_task *x = &r->evaluation.tasks[i];
        json_object(w, NULL);
        json_text(w, "name", x->name);
        json_real(w, "questions", x->questions);
        json_real(w, "chance", x->chance);
        json_real(w, "round", x->round);
        json_real(w, "accuracy", x->accuracy);
        json_real(w, "accuracy_norm", x->accuracy_norm);
        page_points(v, "by_round", &x->by_round);
        page_points(v, "by_round_norm", &x->by_round_norm);
        json_end(w);
    }
    json_end(w);
    json_array(w, "probes");
    for (size_t i = 0; i < r->evaluation.probe_count; i++) {
        json_object(w, NULL);
        json_real(w, "round", r->evaluation.probes[i].round);
        json_text(w, "prompt", r->evaluation.probes[i].prompt);
        json_text(w, "text", r->evaluation.probes[i].text);
        json_end(w);
    }
    json_end(w);
}

static void privacy_json(struct json_write *w, const struct report_run *r)
{
    if (!live_private(r))
        return;
    json_real(w, "epsilon", r->now.budget.epsilon);
    json_real(w, "epsilon_cap", r->now.budget.cap);
}

/* What the aggregator has, too. */
static void replica_json(struct page_view *v, const struct report_run *r)
{
    const struct report_now *n = &r->now;
    struct json_write *w = v->w;
    char state[256];
    live_state(r, v->now, state, sizeof state);
    json_text(w, "name", live_name(r));
    json_text(w, "state", state);
    json_real(w, "record_age_s", v->now - n->t);
    json_real(w, "starts", r->lives.starts);
    json_real(w, "rounds", n->rounds);
    json_real(w, "rounds_planned", n->rounds_all);
    json_real(w, "up_bytes", n->up);
    health_json(w, n);
    rounds_json(v, r);
    if (v->whole)
        page_whole_replica(v, r);
}

static void site_json(struct page_view *v, const struct report_run *r)
{
    const struct report_now *n = &r->now;
    struct json_write *w = v->w;
    bool private = live_private(r) && !v->whole;
    json_object(w, NULL);
    json_text(w, "seen_by", r->role == REPORT_SEEN ? "aggregator" : "itself");
    json_bool(w, "trains", !*n->state && !r->end.finished);
    json_bool(w, "waited_for", n->waited);
    json_real(w, "state_s", *n->state ? v->now - n->state_t : 0);
    json_real(w, "step", n->step);
    json_real(w, "steps", r->training.steps);
    json_real(w, "loss", private ? NAN : n->loss);
    json_real(w, "gradient_norm", n->norm);
    json_real(w, "tokens", r->training.tokens);
    json_real(w, "tokens_per_second", n->tokens_per_second);
    json_real(w, "down_bytes", n->down);
    json_real(w, "up_bytes_predicted", n->up_predicted);
    json_real(w, "down_bytes_predicted", n->down_predicted);
    json_real(w, "next_sync_s", live_sync_s(r, v->now));
    json_real(w, "eta_s", live_eta_s(r));
    privacy_json(w, r);
    if (r->role != REPORT_SEEN)
        spent_json(w, r);
    if (!private)
        page_points(v, "losses", &r->series[REPORT_LOSS]);
    page_points(v, "eval_losses", &r->series[REPORT_EVAL]);
    if (r->role == REPORT_SITE)
        evaluation_json(v, r);
    replica_json(v, r);
    if (v->whole)
        page_whole_site(v, r);
    json_end(w);
}

static void aggregator_json(struct page_view *v, const char *key, const struct report_run *r)
{
    json_object(v->w, key);
    json_real(v->w, "interval_s", r->now.interval_s);
    json_real(v->w, "term", r->now.term);
    replica_json(v, r);
    json_end(v->w);
}

/* ---- events ---- */
struct event_place {
    const struct report_run *run;
    size_t left; /* events not yet taken, the oldest first */
};

static const struct event_place *newest_take(struct event_place *place, size_t count)
{
    struct event_place *newest = NULL;
    for (size_t i = 0; i < count; i++)
        if (place[i].left && (!newest || place[i].run->events.list[place[i].left - 1].t >
                                             newest->run->events.list[newest->left - 1].t))
            newest = &place[i];
    if (newest)
        newest->left--;
    return newest;
}

/* Of all directories, newest first: the newest; of a whole run the oldest as well. */
static void events_json(struct page_view *v, const struct report_follow *f)
{
    struct event_place place[ROUND_SITES_MAX + REPORT_RUNS_MAX];
    size_t count = 0, total = 0, newest = v->whole ? EVENTS_WHOLE / 2 : EVENTS_SHOWN;
    for (; count < f->count && count < sizeof place / sizeof *place; count++) {
        place[count] = (struct event_place){&f->runs[count], f->runs[count].events.count};
        total += f->runs[count].events.count;
    }
    size_t oldest =
        total > newest ? total - newest : 0; /* from here on a whole run has them, too */
    json_array(v->w, "events");
    for (size_t k = 0; k < (v->whole ? total : newest); k++) {
        const struct event_place *at = newest_take(place, count);
        if (!at)
            break;
        if (k >= newest && k < oldest)
            continue;
        const struct report_event *e = &at->run->events.list[at->left];
        json_object(v->w, NULL);
        json_real(v->w, "t", e->t);
        json_text(v->w, "who", at->run->name);
        json_text(v->w, "text", e->text);
        json_end(v->w);
    }
    json_end(v->w);
    if (v->whole)
        json_real(v->w, "events_left_out", oldest > newest ? (double)(oldest - newest) : 0);
}

/* ---- the object ---- */
static void run_json(struct page_view *v, const struct report_follow *f)
{
    bool any_private = false;
    for (size_t i = 0; i < f->count; i++)
        any_private |= live_private(&f->runs[i]);
    json_real(v->w, "v", RECORD_VERSION);
    json_real(v->w, "t", v->now);
    json_text(v->w, "run", f->count ? f->runs[0].start.run : "");
    json_bool(v->w, "private", any_private);
}

static void sites_json(struct page_view *v, const struct report_follow *f)
{
    json_array(v->w, "sites");
    for (size_t i = 0; i < f->count; i++)
        if (f->runs[i].role != REPORT_AGGREGATOR)
            site_json(v, &f->runs[i]);
    json_end(v->w);
}

void page_data_live(FILE *out, const struct report_follow *f, double now)
{
    struct json_write w = {.out = out};
    struct page_view v = {&w, now, false};
    const struct report_run *aggregator = live_aggregator(f);
    json_object(&w, NULL);
    run_json(&v, f);
    if (aggregator)
        aggregator_json(&v, "aggregator", aggregator);
    sites_json(&v, f);
    events_json(&v, f);
    json_close(&w);
}

double page_data_now(const struct report_follow *f)
{
    double now = 0;
    for (size_t i = 0; i < f->count; i++)
        now = fmax(now, f->runs[i].now.t);
    return now;
}

enum err page_data_whole(struct json_write *w, const struct report_follow *f, const char *wan)
{
    struct page_view v = {w, page_data_now(f), true};
    size_t directories = 0;
    for (size_t i = 0; i < f->count; i++)
        directories += f->runs[i].role != REPORT_SEEN;
    json_object(w, NULL);
    run_json(&v, f);
    json_real(w, "directories", (double)directories);
    json_array(w, "aggregators");
    for (size_t i = 0; i < f->count; i++)
        if (f->runs[i].role == REPORT_AGGREGATOR)
            aggregator_json(&v, NULL, &f->runs[i]);
    json_end(w);
    sites_json(&v, f);
    events_json(&v, f);
    if (wan)
        TRY(page_whole_wan(&v, wan));
    json_end(w);
    return ERR_OK;
}
