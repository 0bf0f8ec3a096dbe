/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/view/report_now.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const report_spent_name[REPORT_SPENTS] = {
#define X(value, name, help) #name,
    REPORT_SPENT(X)
#undef X
};

double report_number(const struct jsonl_row *row, const char *key, double fallback)
{
    double value = jsonl_number(row, key);
    return isfinite(value) ? value : fallback;
}

void report_now_begin(struct report_run *r)
{
    r->now = (struct report_now){.step = NAN,
                                 .next_sync = NAN,
                                 .step_s = NAN,
                                 .loss = NAN,
                                 .tokens_per_second = NAN,
                                 .interval_s = NAN,
                                 .rounds_all = NAN,
                                 .certificate_days = NAN,
                                 .disk_free_bytes = NAN,
                                 .clock = {NAN, NAN, NAN},
                                 .term = NAN,
                                 .norm = NAN,
                                 .budget = {NAN, NAN, NAN, 0}};
}

void report_now_state(struct report_run *r, double t, const char *text)
{
    struct report_now *n = &r->now;
    if (strcmp(n->state, text) != 0)
        n->state_t = t;
    snprintf(n->state, sizeof n->state, "%s", text);
}

/* A pace counts exchanges, so a site's intervals are as long as its rounds. */
static void pace_step(struct report_run *r, double step, double t)
{
    struct report_now *n = &r->now;
    double every = r->role == REPORT_SITE ? r->training.steps / n->rounds_all : 1;
    int64_t steps = isfinite(every) && every >= 1 ? (int64_t)every : 1;
    if (!n->started && isfinite(n->step_s)) /* start-up is no pace */
        progress_pace_step(&n->pace, (int64_t)step - 1, steps, t - n->step_s);
    progress_pace_step(&n->pace, (int64_t)step, steps, t);
    n->started = true;
}

/* A step that was made before is lost time: the process in between did not keep it. */
void report_now_step(struct report_run *r, const struct jsonl_row *row, double t)
{
    struct report_now *n = &r->now;
    double step = jsonl_number(row, "step"), ms = report_number(row, "step_ms", 0);
    bool again = step <= n->step;
    if (!n->started && r->lives.last_t > 0)
        n->spent_ms[REPORT_SPENT_RESTART] += fmax(0, 1e3 * (t - r->lives.last_t) - ms);
    n->spent_ms[again ? REPORT_SPENT_RESTART : REPORT_SPENT_COMPUTE] += ms;
    n->step_s = ms / 1e3;
    pace_step(r, step, t);
    n->step = step;
    n->step_t = t;
    n->next_sync = jsonl_number(row, "next_sync");
    n->loss = jsonl_number(row, "loss");
    n->norm = jsonl_number(row, "norm");
    n->tokens_per_second =
        progress_smooth(n->tokens_per_second, jsonl_number(row, "tokens_per_second"));
    n->waited = false;
    report_now_state(r, t, "");
}

void report_now_length(struct report_run *r, double rounds_all)
{
    r->now.rounds_all = rounds_all;
}

void report_now_evaluated(struct report_run *r, double ms)
{
    r->now.spent_ms[REPORT_SPENT_EVALUATION] += ms;
}

void report_now_round(struct report_run *r, const struct jsonl_row *row, double t)
{
    struct report_now *n = &r->now;
    double fragment = report_number(row, "fragment", 0), next = report_number(row, "round", 0) + 1;
    if (fragment >= 0 && fragment < ROUND_FRAGMENTS_MAX && next > n->next[(unsigned)fragment]) {
        n->rounds += r->role == REPORT_AGGREGATOR ? 1 : next - n->next[(unsigned)fragment];
        n->next[(unsigned)fragment] = next;
    }
    n->rounds_all = report_number(row, "rounds", n->rounds_all);
    n->up += report_number(row, "up", 0);
    n->down += report_number(row, "down", 0);
    n->up_predicted += report_number(row, "up_predicted", 0);
    n->down_predicted += report_number(row, "down_predicted", 0);
    n->round_t[1] = n->round_t[0];
    n->round_t[0] = t;
    if (n->round_t[1] > 0)
        n->interval_s = n->round_t[0] - n->round_t[1];
}

/* Of rounds that an observer is not sent one by one (feed.h). */
static void skipped_take(struct report_now *n, const struct jsonl_row *row)
{
    n->rounds += report_number(row, "rounds", 0);
    n->up += report_number(row, "up", 0);
    n->down += report_number(row, "down", 0);
}

/* Of a start: what only a running process knows is not known any more. */
void report_now_start(struct report_run *r, const struct jsonl_row *row, double t)
{
    struct report_now *n = &r->now;
    n->started = false;
    n->secure = false;
    n->rounds_all = jsonl_number(row, "rounds");
    if (r->role == REPORT_AGGREGATOR)
        n->rounds = report_number(row, "committed", n->rounds);
    report_now_state(r, t, r->role == REPORT_AGGREGATOR ? "" : "starting");
}

static void health_take(struct report_now *n, const struct jsonl_row *row)
{
    n->certificate_days = jsonl_number(row, "certificate_days");
    n->disk_free_bytes = jsonl_number(row, "disk_free_bytes");
    n->clock.offset_s = jsonl_number(row, "clock_offset_s");
    n->clock.error_s = jsonl_number(row, "clock_error_s");
    n->clock.aggregator_s = jsonl_number(row, "clock_aggregator_s");
    n->term = jsonl_number(row, "epoch");
}

static void privacy_take(struct report_now *n, const struct jsonl_row *row)
{
    n->budget.epsilon = jsonl_number(row, "epsilon");
    n->budget.cap = jsonl_number(row, "cap");
    n->budget.steps_left = jsonl_number(row, "steps_left");
    n->budget.charged_step = report_number(row, "charged", 0);
}

void report_now_record(struct report_run *r, const struct jsonl_row *row, double t)
{
    struct report_now *n = &r->now;
    n->t = t;
    n->secure = n->secure || jsonl_is(row, "secure");
    if (jsonl_is(row, "health"))
        health_take(n, row);
    if (jsonl_is(row, "privacy"))
        privacy_take(n, row);
    if (jsonl_is(row, "skipped"))
        skipped_take(n, row);
}

void report_now_seen(struct report_run *r, const struct jsonl_row *row, double t)
{
    struct report_now *n = &r->now;
    n->t = n->step_t = t;
    report_now_round(r, row, t);
    n->up = n->up_predicted = report_number(row, "up_total", 0);
    n->down = n->down_predicted = report_number(row, "down_total", 0);
    n->step = jsonl_number(row, "step");
    n->loss = jsonl_number(row, "loss");
    pace_step(r, n->step, t);
    n->tokens_per_second = report_number(row, "tokens_per_second", 0);
}

void report_now_seen_state(struct report_run *r, const struct jsonl_row *row)
{
    r->now.t = jsonl_number(row, "t");
    r->now.waited = jsonl_number(row, "waited") > 0;
    report_now_state(r, r->now.t, jsonl_string(row, "text"));
}

/* What training stood still for, by the parts of the exchanges; then the rest. */
void report_spent(const struct report_run *r, double seconds[REPORT_SPENTS], double *all)
{
    double ms[REPORT_SPENTS] = {0}, sum = 0;
    ms[REPORT_SPENT_COMPUTE] = r->now.spent_ms[REPORT_SPENT_COMPUTE];
    ms[REPORT_SPENT_RESTART] = r->now.spent_ms[REPORT_SPENT_RESTART];
    ms[REPORT_SPENT_EVALUATION] = r->now.spent_ms[REPORT_SPENT_EVALUATION];
    for (size_t i = 0; i < r->rounds.count; i++) {
        const struct report_round *n = &r->rounds.list[i];
        double parts = 0;
        for (int k = REPORT_ENCODE; k < REPORT_TIMES; k++)
            parts += n->ms[k];
        double scale = parts > 0 ? n->exposed_ms / parts : 0;
        ms[REPORT_SPENT_WAIT] += scale * n->ms[REPORT_WAIT];
        ms[REPORT_SPENT_OUTAGE] += scale * n->ms[REPORT_OUTAGE];
        ms[REPORT_SPENT_EXCHANGE] += scale * (parts - n->ms[REPORT_WAIT] - n->ms[REPORT_OUTAGE]);
    }
    *all = fmax(0, r->lives.last_t - r->lives.first_t);
    for (int k = 0; k < REPORT_SPENTS; k++) {
        seconds[k] = ms[k] / 1e3;
        sum += seconds[k];
    }
    seconds[REPORT_SPENT_OTHER] = fmax(0, *all - sum);
}

double report_compute_share(const struct report_run *r)
{
    double seconds[REPORT_SPENTS], all;
    report_spent(r, seconds, &all);
    return all > 0 ? seconds[REPORT_SPENT_COMPUTE] / all : NAN;
}
