/* Which sites a round has, as this site knows it: from the manifests that it has adopted, each of
 * which must follow from the one before (docs/protocol.md 3.6), and from hello, where the site
 * itself stands. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/protocol/mutant.h"
#include "outer/site/site_masks.h"

enum { MEND_MS = 1000 }; /* between two questions for a manifest that is damaged here */

enum err site_roster_now(const struct site *s, unsigned fragment, struct roster *out, bool *known)
{
    struct manifest m;
    uint64_t round = s->replica->state[fragment].round;
    *known = true;
    if (s->roster[fragment].version && s->roster_round[fragment] == round) {
        *out = s->roster[fragment];
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

/* The manifest of the newest state cannot be read: once. */
static enum err roster_mend(struct site_slot *l, unsigned fragment, bool says)
{
    struct site *s = l->site;
    char quoted[SITE_TEXT_MAX], why[SITE_TEXT_MAX / 2];
    unsigned peer = l->peer;
    uint64_t round = s->replica->state[fragment].round;
    snprintf(why, sizeof why, "%s", err_message());
    enum err e = site_manifest_again(l, fragment);
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

enum err site_roster_known(struct site_slot *l, unsigned fragment, struct roster *out)
{
    bool known = false;
    for (unsigned tries = 0;; tries++) {
        TRY(site_roster_now(l->site, fragment, out, &known));
        if (known)
            return ERR_OK;
        enum err e = roster_mend(l, fragment, tries == 0);
        if (e != ERR_OK && e != ERR_LINK)
            return e;
        if (e == ERR_LINK)
            TRY(site_sleep(l, MEND_MS));
    }
}

enum err site_roster_try(struct site_slot *l, unsigned fragment)
{
    struct roster now;
    bool known;
    TRY(site_roster_now(l->site, fragment, &now, &known));
    if (known)
        return ERR_OK;
    enum err e = roster_mend(l, fragment, true);
    err_clear();
    return e == ERR_STOPPED || e == ERR_MEMORY || e == ERR_FULL ? e : ERR_OK;
}

/* Not what hello says: when a site hears of a change depends on the link. */
enum err site_roster_count(struct site_slot *l, unsigned fragment, unsigned *count)
{
    const struct site *s = l->site;
    struct roster r;
    TRY(site_roster_known(l, fragment, &r));
    bool in = s->index >= ROUND_SITES_MAX || set_has(&r.members, s->index);
    *count = MUTANT(ROSTER_HEARD) ? s->sites : set_count(&r.members) + !in;
    return ERR_OK;
}

enum err site_roster_check(struct site_slot *l, unsigned fragment, const struct manifest *m)
{
    const struct site *s = l->site;
    struct roster r;
    bool known;
    TRY(site_roster_now(s, fragment, &r, &known));
    if (!known && m->roster_version < 2) /* versions never decrease: it was version 1 before, too */
        roster_begin(&r, s->o->site_count);
    else if (!known)
        TRY(site_roster_known(l, fragment, &r));
    if (roster_follows(&r, m))
        return ERR_OK;
    return err_set(ERR_DISAGREE,
                   "fragment %u round %" PRIu64
                   ": the manifest names other sites than the round before, and no operator's "
                   "change that says so (version %" PRIu32 ", %" PRIu32 " sites; before: version "
                   "%" PRIu32 ", %u)",
                   fragment, m->round, m->roster_version, m->site_count, r.version,
                   set_count(&r.members));
}

enum err site_roster_take(struct site *s, unsigned peer, const struct manifest *m)
{
    unsigned f = m->fragment;
    uint32_t before = s->roster[f].version;
    roster_of(&s->roster[f], s->o->site_count, m);
    s->roster_round[f] = m->round + 1;
    if (m->roster_version > s->roster_version[peer])
        s->roster_version[peer] = m->roster_version;
    if (m->roster_version < 2 || before >= m->roster_version)
        return ERR_OK;
    s->sites = m->site_count;
    uint32_t site = m->change.site;
    const char *name = site < m->initial ? "" : m->names[site - m->initial];
    log_event(LOG_INFO, "roster",
              "version=%" PRIu32 " fragment=%u round=%" PRIu64 " %s=%" PRIu32 "%s%s sites=%" PRIu32,
              m->roster_version, f, m->round, m->change.act == MANIFEST_ADD ? "added" : "removed",
              site, *name ? " name=" : "", name, m->site_count);
    return site_masks_roster(s);
}

/* A process that has not heard of the removal ends now, as others do: so what it trains in a strict
 * run does not depend on when it heard. */
enum err site_roster_heard(struct site *s, unsigned peer, const struct wire_hello_answer *a)
{
    unsigned peers = site_peers(s);
    bool changed = a->roster_version > 1;
    if (changed && s->index < ROUND_SITES_MAX && s->index != a->site)
        return err_set(ERR_DISAGREE,
                       "the aggregator has site %s as number %" PRIu32 " of the roster, this site "
                       "has number %u: not the same run",
                       s->o->name, a->site, s->index);
    for (unsigned f = peer; s->started && s->o->strict && f < s->replica->fragments->count; f++)
        if (peers == 1 && !MUTANT(REMOVED_UNHEARD) &&
            s->replica->state[f].round < a->fragments[f].first &&
            a->fragments[f].first != s->first_there[f])
            return err_set(ERR_DENIED,
                           "site %s was removed from the roster by an operator, and added again: "
                           "start it again, and it goes on with its first rounds",
                           s->o->name);
    if (changed)
        s->index = a->site;
    s->sites = changed ? a->sites : s->o->site_count;
    s->roster_version[peer] = a->roster_version;
    for (unsigned f = peer; f < s->replica->fragments->count; f += peers)
        s->first_there[f] = changed ? a->fragments[f].first : 0;
    return ERR_OK;
}

bool site_roster_early(const struct site *s, unsigned fragment, uint64_t round)
{
    return round < s->first_there[fragment];
}
