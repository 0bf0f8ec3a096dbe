/* SPDX-License-Identifier: Apache-2.0 */
/* The roster at a site: each manifest's sites must follow from those of the round before
 * (docs/protocol.md 3.6), and a hello says where the site itself stands. */
#include <inttypes.h>
#include "kernels/base/log.h"
#include "outer/organ/roster/roster_organ.h"
#include "outer/protocol/mutant.h"
#include "outer/site/site_own.h"

/* The sites of the next manifest are those of the state's, or one change that it names. Where they
 * are not known, it waits until they are. */
static enum err roster_site_check(void *self, struct site_slot *l, const struct manifest *m)
{
    const struct site *s = l->site;
    struct roster r;
    bool known;
    (void)self;
    TRY(site_members_now(s, m->fragment, &r, &known));
    if (!known && m->roster_version < 2) /* versions never decrease: it was version 1 before, too */
        roster_begin(&r, s->o->site_count);
    else if (!known)
        TRY(site_members_known(l, m->fragment, &r));
    if (roster_follows(&r, m))
        return ERR_OK;
    return err_set(ERR_DISAGREE,
                   "fragment %u round %" PRIu64
                   ": the manifest names other sites than the round before, and no operator's "
                   "change that says so (version %" PRIu32 ", %" PRIu32 " sites; before: version "
                   "%" PRIu32 ", %u)",
                   m->fragment, m->round, m->roster_version, m->site_count, r.version,
                   set_count(&r.members));
}

static enum err roster_site_adopted(void *self, struct site_slot *l, const struct organ_adopted *x)
{
    const struct manifest *m = x->manifest;
    (void)self;
    if (!site_members_take(l->site, l->peer, m))
        return ERR_OK;
    uint32_t site = m->change.site;
    const char *name = site < m->initial ? "" : m->names[site - m->initial];
    log_event(LOG_INFO, "roster",
              "version=%" PRIu32 " fragment=%u round=%" PRIu64 " %s=%" PRIu32 "%s%s sites=%" PRIu32,
              m->roster_version, m->fragment, m->round,
              m->change.act == MANIFEST_ADD ? "added" : "removed", site, *name ? " name=" : "",
              name, m->site_count);
    return ERR_OK;
}

/* A process that has not heard of the removal ends now, as others do: so what it trains in a strict
 * run does not depend on when it heard. */
static enum err roster_site_heard(void *self, struct site *s, unsigned peer,
                                  const struct wire_hello_answer *a)
{
    unsigned peers = site_peers(s);
    bool changed = a->roster_version > 1;
    (void)self;
    if (changed && s->own.index < ROUND_SITES_MAX && s->own.index != a->site)
        return err_set(ERR_DISAGREE,
                       "the aggregator has site %s as number %" PRIu32 " of the roster, this site "
                       "has number %u: not the same run",
                       s->o->name, a->site, s->own.index);
    for (unsigned f = peer; s->own.started && s->o->strict && f < s->replica->fragments->count; f++)
        if (peers == 1 && site_holds(s, f) && !MUTANT(REMOVED_UNHEARD) &&
            s->replica->state[f].round < a->fragments[f].first &&
            a->fragments[f].first != s->members.first[f])
            return err_set(ERR_DENIED,
                           "site %s was removed from the roster by an operator, and added again: "
                           "start it again, and it continues with its first rounds",
                           s->o->name);
    if (changed)
        site_index_take(s, a->site);
    site_members_heard(s, peer, a);
    return ERR_OK;
}

struct organ_at_site roster_at_site(void)
{
    static const struct organ_site organ = {.name = "roster",
                                            .begin = organ_site_begin_nothing,
                                            .heard = roster_site_heard,
                                            .check = roster_site_check,
                                            .adopted = roster_site_adopted};
    return (struct organ_at_site){&organ, NULL};
}
