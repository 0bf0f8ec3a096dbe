/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/protocol/roster.h"
#include <string.h>
#include "kernels/base/err.h"

void roster_begin(struct roster *r, unsigned initial)
{
    ASSERT(initial >= 1 && initial <= ROUND_SITES_MAX);
    *r = (struct roster){.version = 1, .initial = initial, .count = initial};
    for (unsigned i = 0; i < initial; i++)
        set_put(&r->members, i, true);
}

void roster_change(struct roster *r, const struct manifest_change *c)
{
    ASSERT(c->site <= r->count && c->site < ROUND_SITES_MAX);
    ASSERT(set_has(&r->members, c->site) == (c->act == MANIFEST_REMOVE));
    r->version++;
    r->change = *c;
    r->count += c->site == r->count;
    set_put(&r->members, c->site, c->act == MANIFEST_ADD);
}

void roster_of(struct roster *r, unsigned initial, const struct manifest *m)
{
    if (m->roster_version < 2) {
        roster_begin(r, initial);
        return;
    }
    *r = (struct roster){.version = m->roster_version,
                         .initial = m->initial,
                         .count = m->initial + m->added,
                         .change = m->change};
    for (uint32_t i = 0; i < m->site_count; i++)
        set_put(&r->members, m->sites[i].site, true);
}

void roster_put(const struct roster *r, struct manifest *m)
{
    m->roster_version = r->version;
    if (r->version < 2)
        return;
    m->change = r->change;
    m->initial = r->initial;
    m->added = r->count - r->initial;
}

static bool change_equal(const struct manifest_change *a, const struct manifest_change *b)
{
    return a->act == b->act && a->site == b->site && digest_equal(&a->by, &b->by);
}

static bool roster_equal(const struct roster *a, const struct roster *b)
{
    return a->version == b->version && a->initial == b->initial && a->count == b->count &&
           change_equal(&a->change, &b->change) &&
           memcmp(&a->members, &b->members, sizeof a->members) == 0;
}

bool roster_follows(const struct roster *r, const struct manifest *m)
{
    struct roster its, next = *r;
    if (m->roster_version < 2 && (r->version != 1 || m->site_count != r->initial))
        return false;
    for (uint32_t i = 0; m->roster_version < 2 && i < m->site_count; i++)
        if (m->sites[i].site != i)
            return false;
    roster_of(&its, r->initial, m);
    if (its.version == r->version + 1) {
        const struct manifest_change *c = &m->change;
        bool possible = c->site <= r->count && c->site < ROUND_SITES_MAX &&
                        set_has(&r->members, c->site) == (c->act == MANIFEST_REMOVE);
        if (!possible)
            return false;
        roster_change(&next, c);
    }
    return roster_equal(&its, &next);
}
