#include "outer/report/page_data.h"
#include <math.h>
#include "outer/report/json_write.h"
#include "outer/report/live.h"

enum { POINTS_SHOWN = 240, ROUNDS_SHOWN = 60, EVENTS_SHOWN = 40 };

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
    json_text(w, "name", live_name(r));
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

static const struct report_run *aggregator_of(const struct report_follow *f)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->runs[i].role == REPORT_AGGREGATOR)
            return &f->runs[i];
    return NULL;
}

void page_data_live(FILE *out, const struct report_follow *f, double now)
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
