/* Committed rounds into the archive (outer/store/archive.h): their manifests, and what this site
 * contributed. */
#include "outer/site/site_own.h"

void site_archive_round(struct site_slot *l, const struct manifest *m, bool sent)
{
    struct site *s = l->site;
    const struct manifest_entry *own = site_own_entry(s, m);
    if (!s->o.archive)
        return;
    if (s->o.masks.on) {
        archive_masked(s->o.archive, m);
        return;
    }
    const struct archive_payload mine = {
        .site = s->o.name, .data = l->payload, .size_bytes = l->box.payload_bytes};
    archive_round(s->o.archive, m, &mine, sent && own && own->included ? 1 : 0, NULL);
}

/* The outbox keeps the contribution of the last committed round. */
static void again(void *self, const struct manifest *m)
{
    struct site_slot *l = self;
    bool sent = site_outbox_load(l, m->fragment, m->round) == ERR_OK && l->box.valid;
    site_archive_round(l, m, sent);
    err_clear();
}

void site_archive_begin(struct site_slot *l)
{
    const struct archive_again missing = {again, l};
    archive_begin(l->site->o.archive, l->site->env, l->site->replica, &missing);
}
