/* SPDX-License-Identifier: Apache-2.0 */
/* Who is missing: the names for an answer's text, and the "waiting" lines of the log. */
#include <inttypes.h>
#include <stdio.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"

enum {
    NOTICE_FIRST_MS = 10000,
    NOTICE_LAST_MS = 300000
}; /* "waiting" lines: 10 s, then twice as rare each time */

struct notice_lines {                     /* "waiting" lines of one thing that is waited for */
    uint64_t since_ms, next_ms, every_ms; /* every_ms 0: of none yet */
};
struct aggregator_notice {
    struct notice_lines end;                           /* all rounds are committed */
    struct notice_lines fragment[ROUND_FRAGMENTS_MAX]; /* of the round in flight */
};

enum err aggregator_notice_open(struct aggregator_notice **out, struct arena *perm)
{
    TRY_ALLOC(*out = arena_alloc(perm, sizeof **out));
    return ERR_OK;
}

/* Of a site whose contribution is missing. */
static void notice_text(char *out, size_t size, const struct aggregator *a, unsigned site,
                        uint64_t now_ms)
{
    const struct aggregator_site_status *s = &a->site[site].status;
    if (aggregator_quarantined(a, site))
        snprintf(out, size,
                 a->o->strict
                     ? "the others wait for site %s, which is in quarantine: atoll operator "
                       "readmit %s, or begin a run without it"
                     : "site %s is in quarantine: atoll operator readmit %s",
                 a->members.names[site], a->members.names[site]);
    else if (!s->heard_ms)
        snprintf(out, size, "the others wait for site %s, which has not been heard from yet",
                 a->members.names[site]);
    else if (s->bound)
        snprintf(out, size, "the others wait for site %s, last heard from %" PRIu64 " s ago",
                 a->members.names[site], (now_ms - s->heard_ms) / 1000);
    else
        snprintf(out, size,
                 "the others wait for site %s, whose connection is lost since %" PRIu64 " s",
                 a->members.names[site], (now_ms - s->heard_ms) / 1000);
}

/* What a missing site has sent of this round so far. */
static void notice_upload(char *out, size_t size, const struct aggregator *a, unsigned fragment,
                          unsigned site)
{
    struct aggregator_sent sent;
    if (aggregator_spool_sent(a, fragment, site, &sent))
        snprintf(out, size, "%" PRIu64 "/%" PRIu64 " idle_s=%" PRIu64, sent.bytes, sent.of_bytes,
                 sent.idle_ms / 1000);
    else
        snprintf(out, size, "0");
}

/* "c:2,d:1": sites with open streams, and how many: they hold what others may wait for. */
static void notice_streams(const struct aggregator *a)
{
    char names[512] = "";
    size_t used = 0;
    for (unsigned i = 0; i < a->members.count; i++) {
        unsigned streams = aggregator_spool_streams(a, i);
        if (!streams || used + 1 >= sizeof names)
            continue;
        int n = snprintf(names + used, sizeof names - used, "%s%s:%u", used ? "," : "",
                         a->members.names[i], streams);
        used = n < 0 || used + (size_t)n >= sizeof names ? sizeof names - 1 : used + (size_t)n;
    }
    log_event(LOG_WARN, "receiving", "streams=%s", used ? names : "none");
}

static void notice_heard(char *out, size_t size, const struct aggregator *a, unsigned site,
                         uint64_t now_ms)
{
    uint64_t heard_ms = a->site[site].status.heard_ms;
    snprintf(out, size, "never");
    if (heard_ms)
        snprintf(out, size, "%" PRIu64 "s_ago", (now_ms - heard_ms) / 1000);
}

/* One line for each missing site: whether it is bound and when it was last heard tells where to
 * look. */
static void notice_sites(const struct aggregator *a, unsigned fragment, uint64_t now_ms)
{
    const char *owes;
    struct set missing = aggregator_missing_of(a, fragment, &owes);
    for (unsigned i = 0; i < a->members.count; i++) {
        const struct aggregator_site_status *s = &a->site[i].status;
        char heard[32], text[160], quoted[192], sent[96];
        if (!set_has(&missing, i))
            continue;
        notice_heard(heard, sizeof heard, a, i, now_ms);
        notice_text(text, sizeof text, a, i, now_ms);
        notice_upload(sent, sizeof sent, a, fragment, i);
        log_event(LOG_WARN, "waiting",
                  "fragment=%u round=%" PRIu64 " since_s=%" PRIu64
                  " missing=%s owes=%s bound=%d heard=%s sent=%s text=%s",
                  fragment, a->core.f[fragment].round,
                  (now_ms - a->fragment[fragment].first_ms) / 1000, a->members.names[i], owes,
                  s->bound, heard, sent, log_quote(quoted, sizeof quoted, text));
    }
    notice_streams(a);
}

static void lines_begin(struct notice_lines *l, uint64_t since_ms)
{
    *l = (struct notice_lines){since_ms, since_ms + NOTICE_FIRST_MS, NOTICE_FIRST_MS};
}

static void lines_next(struct notice_lines *l, uint64_t now_ms)
{
    l->every_ms = l->every_ms * 2 < NOTICE_LAST_MS ? l->every_ms * 2 : NOTICE_LAST_MS;
    l->next_ms = now_ms + l->every_ms;
}

/* Only reports of sites that may have ended are missing: no round waits for them any more. */
static void notice_reports(const struct aggregator *a, uint64_t now_ms)
{
    for (unsigned i = 0; i < a->members.count; i++) {
        char heard[32];
        if (!aggregator_owes_report(a, i))
            continue;
        notice_heard(heard, sizeof heard, a, i, now_ms);
        log_event(LOG_WARN, "waiting",
                  "since_s=%" PRIu64 " missing=%s owes=report bound=%d heard=%s "
                  "text=\"all rounds are committed, and site %s has not confirmed the last one: if "
                  "it has ended, start it again; if it is gone for good, stop this aggregator: "
                  "everything is stored\"",
                  (now_ms - a->part.notice->end.since_ms) / 1000, a->members.names[i],
                  a->site[i].status.bound, heard, a->members.names[i]);
    }
}

/* The run is over but for the reports of some sites. */
static uint64_t notice_end(struct aggregator *a, uint64_t now_ms)
{
    if (!aggregator_last_committed(a))
        return UINT64_MAX;
    struct notice_lines *l = &a->part.notice->end;
    if (!l->every_ms)
        lines_begin(l, now_ms);
    if (now_ms >= l->next_ms) {
        notice_reports(a, now_ms);
        lines_next(l, now_ms);
    }
    return l->next_ms;
}

uint64_t aggregator_notice(struct aggregator *a, uint64_t now_ms)
{
    uint64_t wake_ms = notice_end(a, now_ms);
    for (unsigned i = 0; i < a->core.fragments; i++) {
        const struct aggregator_fragment *f = &a->fragment[i];
        struct notice_lines *l = &a->part.notice->fragment[i];
        if (f->first_ms == UINT64_MAX)
            continue;
        if (!l->every_ms || l->since_ms != f->first_ms)
            lines_begin(l, f->first_ms);
        if (now_ms >= l->next_ms) {
            notice_sites(a, i, now_ms);
            lines_next(l, now_ms);
        }
        wake_ms = l->next_ms < wake_ms ? l->next_ms : wake_ms;
    }
    return wake_ms;
}
