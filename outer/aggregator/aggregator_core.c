/* SPDX-License-Identifier: Apache-2.0 */
/* What every other file of the aggregator uses: the time, the rounds that it serves, one event
 * through the protocol core, and the end of the process after an error. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"

enum { ALARMS_MAX = 2 }; /* lines of one caller, kind and answer in a window of the limiter */

uint64_t aggregator_now(const struct aggregator *a)
{
    return a->env->ops->now_ms(a->env);
}

bool aggregator_serves(const struct aggregator *a, unsigned fragment)
{
    return a->o->place.count <= 1 || fragment % a->o->place.count == a->o->place.index;
}

uint64_t aggregator_rounds(const struct aggregator *a, unsigned fragment)
{
    return aggregator_serves(a, fragment) ? schedule_rounds(&a->replica->schedule, fragment) : 0;
}

bool aggregator_last_committed(const struct aggregator *a)
{
    for (unsigned i = 0; i < a->core.fragments; i++)
        if (a->core.f[i].round < aggregator_rounds(a, i))
            return false;
    return true;
}

enum err aggregator_core_open(struct aggregator *a, struct arena *perm)
{
    struct log_limit *l = &a->state.limit;
    l->count = LOG_LIMIT_KEYS_MIN + 16 * a->o->sites.count;
    TRY_ALLOC(l->keys = arena_array(perm, l->count, sizeof *l->keys));
    return ERR_OK;
}

bool aggregator_line_passes(struct aggregator *a, const char *what, const char *who, unsigned lines,
                            unsigned *repeats)
{
    return log_limit_pass(&a->state.limit, what, who, lines, aggregator_now(a), repeats);
}

void aggregator_lines_flush(struct aggregator *a, uint64_t now_ms)
{
    log_limit_flush(&a->state.limit, now_ms);
}

void aggregator_touch(struct aggregator *a, unsigned site)
{
    set_put(&a->state.touched, site, true);
}

struct set aggregator_touched(struct aggregator *a)
{
    const struct set touched = a->state.touched;
    a->state.touched = (struct set){0};
    return touched;
}

void aggregator_halt(struct aggregator *a, enum err e)
{
    if (a->state.failed != ERR_OK)
        return;
    char quoted[AGGREGATOR_TEXT_MAX];
    a->state.failed = e;
    snprintf(a->state.why, sizeof a->state.why, "%s", err_message());
    log_event(LOG_ERROR, "halt", "error=%s why=%s", err_name(e),
              log_quote(quoted, sizeof quoted, a->state.why));
}

/* For good: a start refuses the directory until a person removes the file. */
static void stale_halt(struct aggregator *a, const char *why)
{
    char text[AGGREGATOR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", why);
    struct file_part part = {text, strlen(text)};
    if (a->env->ops->write(a->env, AGGREGATOR_STALE, &part, 1) != ERR_OK)
        log_event(LOG_WARN, "stale", "text=\"not marked: the disk fails\"");
    aggregator_halt(a, err_set(ERR_STALE, "%s", text));
}

/* An alarm is one of a caller, a kind of event and an answer: a site may repeat it at each call. */
static bool alarm_passes(struct aggregator *a, const struct round_event *e,
                         const struct round_update *u, unsigned *repeats)
{
    char what[80];
    snprintf(what, sizeof what, "%s %s", round_event_name(e->kind), round_outcome_name(u->outcome));
    const char *who = e->site < a->members.count ? a->members.names[e->site] : "";
    return log_limit_pass(&a->state.limit, what, who, ALARMS_MAX, e->now_ms, repeats);
}

static void step_log(struct aggregator *a, const struct round_event *e,
                     const struct round_update *u)
{
    char values[1024];
    unsigned repeats = 0;
    enum log_level level = u->halt ? LOG_ERROR : u->alarm ? LOG_WARN : LOG_DEBUG;
    if (!log_wanted(level) || (level == LOG_WARN && !alarm_passes(a, e, u, &repeats)))
        return;
    round_trace(e, u, values, sizeof values);
    if (repeats)
        log_event(level, round_event_name(e->kind), "%s repeats=%u", values, repeats);
    else
        log_event(level, round_event_name(e->kind), "%s", values);
}

void aggregator_step(struct aggregator *a, struct round_event *e, struct round_update *u)
{
    e->now_ms = aggregator_now(a);
    round_step(&a->core, e, u);
    if (e->kind != ROUND_TICK || u->seal)
        step_log(a, e, u);
    if (u->seal) {
        a->fragment[u->seal_fragment].sealed = true;
        a->fragment[u->seal_fragment].seal_set = u->seal_set;
    }
    a->state.wake_ms = u->wake_ms;
    for (unsigned i = 0; i < a->core.fragments; i++)
        if (a->fragment[i].first_ms == UINT64_MAX &&
            (a->core.f[i].count || a->fragment[i].asked > a->core.f[i].round))
            a->fragment[i].first_ms = e->now_ms; /* the others wait from now on */
    if (u->halt && u->outcome == ROUND_LOST_STATE)
        stale_halt(a, u->text);
    else if (u->halt)
        aggregator_halt(a, err_set(ERR_DISAGREE,
                                   "more than half of the sites agree on another state than ours"));
}

struct round_event aggregator_event(enum round_event_kind kind, unsigned site,
                                    const struct wire_head *head)
{
    return (struct round_event){.kind = kind,
                                .site = site,
                                .incarnation = head->incarnation,
                                .instance = head->instance,
                                .term = head->term};
}

void aggregator_heard(struct aggregator *a, unsigned site)
{
    uint64_t now_ms = aggregator_now(a), before_ms = a->site[site].status.heard_ms;
    a->site[site].silent_ms = now_ms - (before_ms ? before_ms : a->start.opened_ms);
    a->site[site].status.heard_ms = now_ms;
    aggregator_touch(a, site);
}

void aggregator_say_failed(struct aggregator *a, enum err e, struct wire_answer *answer)
{
    char quoted[512];
    aggregator_say(answer, ROUND_FULL, "%s", err_message());
    answer->retry_ms = AGGREGATOR_FULL_RETRY_MS;
    if (e == ERR_FULL || e == ERR_MEMORY)
        log_event(LOG_ERROR, e == ERR_FULL ? "disk_full" : "no_memory", "retry_ms=%d why=%s",
                  AGGREGATOR_FULL_RETRY_MS, log_quote(quoted, sizeof quoted, err_message()));
    else
        aggregator_halt(a, e);
}
