/* SPDX-License-Identifier: Apache-2.0 */
/* Which sites a round has, and their names. When they change, the organ roster says
 * (outer/organ/roster). */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "outer/aggregator/aggregator_state.h"

int aggregator_site(const struct aggregator *a, const char *name)
{
    for (unsigned i = 0; i < a->members.count; i++)
        if (strcmp(a->members.names[i], name) == 0)
            return (int)i;
    return -1;
}

void aggregator_members_begin(struct aggregator *a)
{
    struct aggregator_members *m = &a->members;
    for (unsigned i = 0; i < a->o->sites.count; i++)
        m->names[i] = a->o->sites.names[i];
    roster_begin(&m->roster, a->o->sites.count);
    m->former = m->roster;
    m->count = a->o->sites.count;
}

/* A name is there before the count says so: other threads read both. */
static void name_put(struct aggregator *a, unsigned site, const char *name)
{
    struct aggregator_members *m = &a->members;
    if (site < m->count)
        return;
    char *to = m->added[site - m->roster.initial];
    snprintf(to, sizeof m->added[0], "%s", name);
    m->names[site] = to;
    a->site[site].status.loss = a->site[site].status.tokens_per_second = NAN;
    m->count = site + 1;
}

void aggregator_members_change(struct aggregator *a, const struct journal_record *r,
                               const uint64_t *first)
{
    bool in = r->act == MANIFEST_ADD;
    struct manifest_change c = {r->act, r->site, r->digest};
    name_put(a, r->site, r->name);
    if (r->to) {
        a->members.former = a->members.roster;
        roster_change(&a->members.roster, &c);
        a->members.roster.version = (uint32_t)r->to;
        a->members.roster.count = r->fragment;
    } else {
        set_put(&a->members.roster.members, r->site, in);
        a->members.roster.count = a->members.count;
    }
    round_roster(&a->core, r->site, in, first);
    if (in)
        a->site[r->site].finished = a->site[r->site].status.left = false;
    aggregator_touch(a, r->site);
}

void aggregator_members_take(struct aggregator *a, const struct manifest *m, const uint64_t *first)
{
    struct roster r;
    roster_of(&r, a->members.roster.initial, m);
    for (unsigned i = 0; i < r.count; i++) {
        if (i >= a->members.count)
            name_put(a, i, m->names[i - r.initial]);
        round_roster(&a->core, i, set_has(&r.members, i), first);
        aggregator_touch(a, i);
    }
    a->members.roster = a->members.former = r;
    a->members.former.version--;
    a->members.former.change = (struct manifest_change){0};
    set_put(&a->members.former.members, r.change.site, r.change.act == MANIFEST_REMOVE);
}

bool aggregator_serves_site(const struct aggregator *a, unsigned site)
{
    bool serves = set_has(&a->core.members, site);
    for (unsigned i = 0; i < a->core.fragments && !serves; i++)
        serves = aggregator_serves(a, i) && set_has(&a->core.f[i].members, site) &&
                 a->core.f[i].round < aggregator_rounds(a, i);
    return serves;
}

const struct roster *aggregator_roster(const struct aggregator *a, unsigned fragment)
{
    const struct round_fragment *f = &a->core.f[fragment];
    return f->round < f->first ? &a->members.former : &a->members.roster;
}

void aggregator_members_manifest(const struct aggregator *a, unsigned fragment, struct manifest *m)
{
    roster_put(aggregator_roster(a, fragment), m);
    for (uint32_t i = 0; i < m->added; i++) {
        memset(m->names[i], 0, sizeof m->names[i]);
        snprintf(m->names[i], sizeof m->names[i], "%s", a->members.names[m->initial + i]);
    }
}
