/* SPDX-License-Identifier: Apache-2.0 */
/* Names and log lines of the protocol core. */
#include <stdio.h>
#include "kernels/base/err.h"
#include "kernels/base/log.h"
#include "outer/protocol/round.h"

const char *round_outcome_name(enum round_outcome o)
{
    static const char *const names[ROUND_OUTCOMES] = {
        [ROUND_NONE] = "none",
        [ROUND_RECEIPT] = "receipt",
        [ROUND_RESUME] = "resume",
        [ROUND_BEHIND] = "behind",
        [ROUND_LATE] = "late",
        [ROUND_EARLY] = "early",
        [ROUND_REBIND] = "rebind",
        [ROUND_DENIED] = "denied",
        [ROUND_EXCLUDED] = "excluded",
        [ROUND_INVALID] = "invalid",
        [ROUND_MISMATCH] = "mismatch",
        [ROUND_CONFLICT] = "conflict",
        [ROUND_SUPERSEDED] = "superseded",
        [ROUND_LOST_STATE] = "lost_state",
        [ROUND_FULL] = "full",
        [ROUND_CURRENT] = "current",
        [ROUND_JOIN] = "join",
        [ROUND_DIVERGED] = "diverged",
        [ROUND_PENDING] = "pending",
        [ROUND_COMMIT] = "commit",
        [ROUND_GONE] = "gone",
        [ROUND_ABORTED] = "aborted",
        [ROUND_STEP_BACK] = "step_back",
        [ROUND_SUPPLY] = "supply",
    };
    return (unsigned)o < ROUND_OUTCOMES ? names[o] : "unknown"; /* a peer's number may come here */
}

const char *round_event_name(enum round_event_kind k)
{
    static const char *const names[] = {
        [ROUND_HELLO] = "hello",     [ROUND_BIND] = "bind",         [ROUND_OFFER] = "offer",
        [ROUND_STORED] = "stored",   [ROUND_RESTORED] = "restored", [ROUND_COMMITTED] = "committed",
        [ROUND_POLL] = "poll",       [ROUND_FETCH] = "fetch",       [ROUND_REPORT] = "report",
        [ROUND_LOST] = "lost",       [ROUND_LEAVE] = "leave",       [ROUND_TICK] = "tick",
        [ROUND_EXCLUDE] = "exclude", [ROUND_READMIT] = "readmit",   [ROUND_CLOSE] = "close",
    };
    ASSERT((size_t)k < sizeof names / sizeof *names);
    return names[k];
}

struct line {
    char *at;
    size_t left;
};

static void trace_number_add(struct line *l, const char *format, unsigned long long value)
{
    int n = snprintf(l->at, l->left, format, value);
    size_t used = n < 0 ? 0 : (size_t)n < l->left ? (size_t)n : l->left - 1;
    l->at += used;
    l->left -= used;
}

static void line_text(struct line *l, const char *key, const char *text)
{
    char quoted[512];
    int n = snprintf(l->at, l->left, " %s=%s", key, log_quote(quoted, sizeof quoted, text));
    size_t used = n < 0 ? 0 : (size_t)n < l->left ? (size_t)n : l->left - 1;
    l->at += used;
    l->left -= used;
}

/* One hexadecimal number, site 0 the lowest bit: as wide as it must be. */
static void line_set(struct line *l, const struct set *s)
{
    unsigned w = SET_WORDS - 1;
    while (w && !s->word[w])
        w--;
    trace_number_add(l, " set=0x%llx", (unsigned long long)s->word[w]);
    while (w--)
        trace_number_add(l, "%016llx", (unsigned long long)s->word[w]);
}

void round_trace(const struct round_event *e, const struct round_update *u, char *out,
                 size_t size_bytes)
{
    ASSERT(size_bytes > 0);
    struct line l = {out, size_bytes};
    bool from_site = e->kind != ROUND_TICK && e->kind != ROUND_COMMITTED;
    *out = 0;
    trace_number_add(&l, e->kind == ROUND_TICK ? "at_ms=%llu" : "fragment=%llu",
                     e->kind == ROUND_TICK ? (unsigned long long)e->now_ms : e->fragment);
    if (from_site)
        trace_number_add(&l, " site=%llu", e->site);
    if (e->kind != ROUND_TICK)
        trace_number_add(&l, " round=%llu", (unsigned long long)e->round);
    if (from_site)
        line_text(&l, "answer", round_outcome_name(u->outcome));
    if (from_site && u->round != e->round)
        trace_number_add(&l, " ours=%llu", (unsigned long long)u->round);
    if (u->text)
        line_text(&l, "why", u->text);
    if (u->accept)
        trace_number_add(&l, " accept=%llu", 1);
    if (u->seal) {
        trace_number_add(&l, " seal=%llu", u->seal_fragment);
        line_set(&l, &u->seal_set);
    }
    if (u->alarm)
        trace_number_add(&l, " alarm=%llu", 1);
    if (u->halt)
        trace_number_add(&l, " halt=%llu", 1);
    if (u->wake_ms != UINT64_MAX)
        trace_number_add(&l, " wake_ms=%llu", (unsigned long long)u->wake_ms);
}
