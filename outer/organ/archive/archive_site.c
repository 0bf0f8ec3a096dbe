/* SPDX-License-Identifier: Apache-2.0 */
/* The archive's end at a site: manifests, and what this site contributed. */
#include "outer/organ/archive/archive_organ.h"
#include "outer/site/site_own.h"

static void archive_take(struct archive *archive, struct site_slot *l, const struct manifest *m,
                         bool sent)
{
    struct site *s = l->site;
    const struct manifest_entry *own = site_own_entry(s, m);
    if (s->o->masks.on) {
        archive_masked(archive, m);
        return;
    }
    const struct archive_payload mine = {
        .site = s->o->name, .data = l->payload.bytes, .size_bytes = l->box.made.payload_bytes};
    archive_round(archive, m, &mine, sent && own && own->included ? 1 : 0, NULL);
}

static enum err archive_adopted(void *self, struct site_slot *l, const struct organ_adopted *x)
{
    if (!x->snapshot)
        archive_take(self, l, x->manifest, x->sent);
    return ERR_OK;
}

struct missing_rounds { /* of archive_again */
    struct archive *archive;
    struct site_slot *slot;
};

/* The outbox keeps the contribution of the last committed round. */
static void archive_missing(void *self, const struct manifest *m)
{
    const struct missing_rounds *of = self;
    struct site_slot *l = of->slot;
    bool sent = site_outbox_load(l, m->fragment, m->round) == ERR_OK && l->box.valid;
    archive_take(of->archive, l, m, sent);
    err_clear();
}

static void archive_site_begin(void *self, struct site_slot *l)
{
    struct missing_rounds of = {self, l};
    const struct archive_again missing = {archive_missing, &of};
    archive_begin(self, l->site->env, l->site->replica, &missing);
}

struct organ_at_site archive_at_site(struct archive *archive)
{
    static const struct organ_site organ = {.name = "archive",
                                            .begin = archive_site_begin,
                                            .heard = organ_site_heard_nothing,
                                            .check = organ_site_check_nothing,
                                            .adopted = archive_adopted};
    return (struct organ_at_site){&organ, archive};
}
