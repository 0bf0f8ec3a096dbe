/* SPDX-License-Identifier: Apache-2.0 */
/* Sites that are answered `excluded` for what they sent, until a person readmits them
 * (docs/protocol.md 3.12). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"

/* An accepted contribution of which less than this share counts is as bad as a refused one. */
static const float STRIKE_FACTOR = 0.25f;
enum {
    STRIKE_AGAIN_MS = 10000, /* later than a message can arrive a second time */
    LINES = 4 /* of one site in a window of the limiter: a script may quarantine and readmit */
};

struct strikes { /* of one site: contributions in a row that were refused, or hardly counted */
    unsigned count;
    struct digest last; /* the last one refused, by which process, and when: a message that */
    uint64_t last_by, last_ms; /* arrives twice is one contribution */
};
struct aggregator_quarantine {
    struct strikes site[ROUND_SITES_MAX];
};

enum err aggregator_quarantine_open(struct aggregator_quarantine **out, struct arena *perm)
{
    TRY_ALLOC(*out = arena_alloc(perm, sizeof **out));
    return ERR_OK;
}

static struct strikes *strikes_of(const struct aggregator *a, unsigned site)
{
    return &a->part.quarantine->site[site];
}

unsigned aggregator_strikes(const struct aggregator *a, unsigned site)
{
    return strikes_of(a, site)->count;
}

bool aggregator_quarantined(const struct aggregator *a, unsigned site)
{
    return set_has(&a->core.excluded, site);
}

void aggregator_quarantine_text(const struct aggregator *a, unsigned site, char text[WIRE_TEXT_MAX])
{
    const char *name = a->members.names[site];
    snprintf(
        text, WIRE_TEXT_MAX,
        "%s is in quarantine: several of its contributions in a row were refused or clipped, or "
        "an operator put it there. Look at what it trains; then: atoll operator readmit %s",
        name, name);
}

/* In the core alone: the record is there, or is being read. */
static void quarantine_set(struct aggregator *a, unsigned site, bool in)
{
    struct round_event e = {.kind = in ? ROUND_EXCLUDE : ROUND_READMIT, .site = site};
    struct round_update u;
    strikes_of(a, site)->count = 0;
    aggregator_touch(a, site);
    aggregator_step(a, &e, &u);
}

void aggregator_quarantine_restore(struct aggregator *a, const struct journal_record *r)
{
    quarantine_set(a, r->site, r->round != 0);
}

enum err aggregator_quarantine(struct aggregator *a, unsigned site, bool in, const char *why)
{
    char quoted[512];
    unsigned repeats;
    struct journal_record r = {.kind = JOURNAL_QUARANTINE, .site = site, .round = in};
    if (aggregator_quarantined(a, site) == in)
        return ERR_OK;
    TRY(journal_append(&a->journal, &r));
    quarantine_set(a, site, in);
    if (aggregator_line_passes(a, in ? "quarantine" : "readmit", a->members.names[site], LINES,
                               &repeats))
        log_event(in ? LOG_ERROR : LOG_WARN, in ? "quarantine" : "readmit",
                  "site=%s repeats=%u why=%s", a->members.names[site], repeats,
                  log_quote(quoted, sizeof quoted, why));
    return ERR_OK;
}

static void strike_add(struct aggregator *a, unsigned site, const char *why)
{
    if (!a->o->bounds.strikes_max || aggregator_quarantined(a, site) ||
        ++strikes_of(a, site)->count < a->o->bounds.strikes_max)
        return;
    enum err e = aggregator_quarantine(a, site, true, why);
    if (e == ERR_FULL) /* with the next one, when there is space for the record */
        log_event(LOG_ERROR, "disk_full", "file=%s", AGGREGATOR_JOURNAL);
    else if (e != ERR_OK)
        aggregator_halt(a, e);
}

void aggregator_strike(struct aggregator *a, unsigned site, const struct wire_contribution *m,
                       const char *why)
{
    struct strikes *s = strikes_of(a, site);
    uint64_t now_ms = aggregator_now(a);
    bool again = digest_equal(&s->last, &m->payload) && s->last_by == m->head.incarnation &&
                 s->last_ms && now_ms - s->last_ms < STRIKE_AGAIN_MS;
    if (again)
        return;
    s->last = m->payload;
    s->last_by = m->head.incarnation;
    s->last_ms = now_ms;
    strike_add(a, site, why);
}

void aggregator_strikes_commit(struct aggregator *a, const struct manifest *m)
{
    for (uint32_t i = 0; i < m->site_count; i++) {
        const struct manifest_entry *e = &m->sites[i];
        if (e->included && m->scaled && a->o->bounds.clip > 0 && e->factor <= STRIKE_FACTOR)
            strike_add(a, e->site, "its contributions are clipped to a quarter and less");
        else if (e->included)
            strikes_of(a, e->site)->count = 0;
    }
}

enum err aggregator_quarantine_again(struct aggregator *a)
{
    struct manifest m;
    for (unsigned f = 0; f < a->core.fragments; f++) {
        uint64_t round = a->core.f[f].round;
        if (!round || outer_state_manifest(a->replica, f, round - 1, &m) != ERR_OK)
            continue;
        for (uint32_t i = 0; i < m.site_count; i++)
            if (m.sites[i].reason == ROUND_EXCLUDED && m.sites[i].site < a->members.count)
                TRY(aggregator_quarantine(a, m.sites[i].site, true,
                                          "the journal is lost, the last manifest "
                                          "leaves the site out as quarantined"));
    }
    return ERR_OK;
}
