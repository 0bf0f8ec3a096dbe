/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/library/organs.h"
#include "outer/config/amend.h"
#include "outer/organ/amend/amend_organ.h"
#include "outer/organ/archive/archive_organ.h"
#include "outer/organ/roster/roster_organ.h"

static void site_add(struct organs *o, struct organ_at_site organ)
{
    ASSERT(o->site.count < ORGANS_MAX);
    o->site.at[o->site.count++] = organ;
}

static void aggregator_add(struct organs *o, struct organ_at_aggregator organ)
{
    ASSERT(o->aggregator.count < ORGANS_MAX);
    o->aggregator.at[o->aggregator.count++] = organ;
}

enum err organs_open_site(struct organs *o, struct run *r, struct env *own)
{
    *o = (struct organs){0};
    site_add(o, roster_at_site());
    site_add(o, amend_at_site());
    TRY(archive_parts_open(&o->archive, r, own, r->o.site_name));
    if (o->archive.archive)
        site_add(o, archive_at_site(o->archive.archive));
    return ERR_OK;
}

enum err organs_open_aggregator(struct organs *o, struct run *r, struct env *own)
{
    struct organ_at_aggregator roster, amend;
    *o = (struct organs){0};
    TRY(roster_at_aggregator(&roster, &r->perm));
    aggregator_add(o, roster);
    TRY(amend_at_aggregator(&amend, &r->base, &r->perm));
    aggregator_add(o, amend);
    TRY(archive_parts_open(&o->archive, r, own, NULL));
    if (o->archive.archive)
        aggregator_add(o, archive_at_aggregator(o->archive.archive));
    return ERR_OK;
}

void organs_close(struct organs *o)
{
    archive_parts_close(&o->archive);
    *o = (struct organs){0};
}

enum err organs_reschedule(const struct run *r, const struct schedule *configured,
                           struct site *site, struct coll *c, struct schedule *s, uint32_t *version)
{
    struct amendments list = {.count = 0};
    if (site)
        amend_site_list(site, &list);
    TRY(c->ops->broadcast_host(c, &list, sizeof list, 0));
    *version = list.count;
    return list.count ? amend_reschedule(&r->base, configured, &list, s) : ERR_OK;
}
