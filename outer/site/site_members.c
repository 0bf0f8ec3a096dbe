/* SPDX-License-Identifier: Apache-2.0 */
/* Which sites a round has, as this site knows it: from the manifests that it has adopted. That each
 * follows from the one before, the organ roster checks (outer/organ/roster). */
#include <inttypes.h>
#include <stdio.h>
#include "kernels/base/log.h"
#include "outer/protocol/mutant.h"
#include "outer/site/site_own.h"

enum { MEND_MS = 1000 }; /* between two questions for a manifest that is damaged here */

enum err site_members_open(struct site *s, struct arena *perm)
{
    struct site_members *m = &s->members;
    unsigned fragments = s->replica->fragments->count;
    m->sites = s->o->site_count;
    TRY_ALLOC(m->roster = arena_array(perm, fragments, sizeof *m->roster));
    TRY_ALLOC(m->round = arena_array(perm, fragments, sizeof *m->round));
    return ERR_OK;
}

void site_members_heard(struct site *s, unsigned peer, const struct wire_hello_answer *a)
{
    bool changed = a->roster_version > 1;
    s->members.sites = changed ? a->sites : s->o->site_count;
    s->members.version[peer] = a->roster_version;
    for (unsigned f = peer; f < s->replica->fragments->count; f += site_peers(s))
        s->members.first[f] = changed ? a->fragments[f].first : 0;
}

bool site_members_take(struct site *s, unsigned peer, const struct manifest *m)
{
    struct site_members *x = &s->members;
    uint32_t before = x->roster[m->fragment].version;
    bool later = m->roster_version > 1 && m->roster_version > before;
    roster_of(&x->roster[m->fragment], s->o->site_count, m);
    x->round[m->fragment] = m->round + 1;
    if (m->roster_version > x->version[peer])
        x->version[peer] = m->roster_version;
    if (later)
        x->sites = m->site_count;
    return later;
}

void site_members_forget(struct site *s, unsigned fragment)
{
    s->members.roster[fragment].version = 0;
}

enum err site_members_now(const struct site *s, unsigned fragment, struct roster *out, bool *known)
{
    struct manifest m;
    uint64_t round = s->replica->state[fragment].round;
    *known = true;
    if (s->members.roster[fragment].version && s->members.round[fragment] == round) {
        *out = s->members.roster[fragment];
        return ERR_OK;
    }
    if (round == 0) {
        roster_begin(out, s->o->site_count);
        return ERR_OK;
    }
    enum err e = outer_state_manifest(s->replica, fragment, round - 1, &m);
    *known = e == ERR_OK;
    if (e == ERR_OK)
        roster_of(out, s->o->site_count, &m);
    return e == ERR_INPUT || e == ERR_CORRUPT ? ERR_OK : e;
}

/* The manifest of the newest state, of a round > 0, from the aggregator. */
static enum err manifest_again(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    uint64_t round = s->replica->state[fragment].round;
    struct manifest m;
    ASSERT(round > 0);
    TRY(site_manifest_ask(l, fragment, round - 1, &m));
    if (s->replica->state[fragment].round == round)
        TRY(outer_state_manifest_put(s->replica, &m));
    return ERR_OK;
}

/* The manifest of the newest state cannot be read: once. */
static enum err members_mend(struct site_slot *l, unsigned fragment, bool says)
{
    struct site *s = l->site;
    char quoted[SITE_TEXT_MAX], why[SITE_TEXT_MAX / 2];
    unsigned peer = l->peer;
    uint64_t round = s->replica->state[fragment].round;
    snprintf(why, sizeof why, "%s", err_message());
    enum err e = manifest_again(l, fragment);
    l->peer = peer;
    if (e == ERR_OK || says)
        log_event(LOG_WARN, "manifest_lost", "fragment=%u round=%" PRIu64 " fetched=%d why=%s",
                  fragment, round - 1, e == ERR_OK, log_quote(quoted, sizeof quoted, why));
    if (e != ERR_OK && e != ERR_STOPPED && e != ERR_MEMORY && e != ERR_FULL)
        site_notice(l,
                    "cannot check which sites a round has (%s); the aggregator has not sent the "
                    "manifest again: %s",
                    why, err_message());
    return e;
}

enum err site_members_known(struct site_slot *l, unsigned fragment, struct roster *out)
{
    bool known = false;
    for (unsigned tries = 0;; tries++) {
        TRY(site_members_now(l->site, fragment, out, &known));
        if (known)
            return ERR_OK;
        enum err e = members_mend(l, fragment, tries == 0);
        if (e != ERR_OK && e != ERR_LINK)
            return e;
        if (e == ERR_LINK)
            TRY(site_sleep(l, MEND_MS));
    }
}

enum err site_members_try(struct site_slot *l, unsigned fragment)
{
    struct roster now;
    bool known;
    TRY(site_members_now(l->site, fragment, &now, &known));
    if (known)
        return ERR_OK;
    enum err e = members_mend(l, fragment, true);
    err_clear();
    return e == ERR_STOPPED || e == ERR_MEMORY || e == ERR_FULL ? e : ERR_OK;
}

/* Not what hello says: when a site hears of a change depends on the link. */
enum err site_members_count(struct site_slot *l, unsigned fragment, unsigned *count)
{
    const struct site *s = l->site;
    struct roster r;
    TRY(site_members_known(l, fragment, &r));
    bool in = s->own.index >= ROUND_SITES_MAX || set_has(&r.members, s->own.index);
    *count = MUTANT(ROSTER_HEARD) ? s->members.sites : set_count(&r.members) + !in;
    return ERR_OK;
}
