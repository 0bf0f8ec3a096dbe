/* Committed rounds into the archive (outer/store/archive.h), from the spool. */
#include <string.h>
#include "outer/aggregator/aggregator_state.h"

struct source_paths { /* of the contributions of one round */
    struct archive_payload *payloads;
    char (*paths)[AGGREGATOR_PATH_MAX];
    size_t count;
};

static enum err paths_make(struct source_paths *p, const struct aggregator *a,
                           const struct manifest *m, bool moves, struct arena *scratch)
{
    size_t room = manifest_included(m) + 1;
    p->count = 0;
    TRY_ALLOC(p->payloads = arena_array(scratch, room, sizeof *p->payloads));
    TRY_ALLOC(p->paths = arena_array(scratch, room, sizeof *p->paths));
    for (uint32_t i = 0; i < m->site_count; i++) {
        const struct manifest_entry *e = &m->sites[i];
        const char *site = manifest_name(m, a->o.sites, e->site);
        if (!e->included)
            continue;
        aggregator_spool_path(site, m->fragment, m->round, &e->payload, p->paths[p->count]);
        p->payloads[p->count] = (struct archive_payload){.site = site,
                                                         .path = p->paths[p->count],
                                                         .moves = moves,
                                                         .size_bytes = e->payload_bytes};
        p->count++;
    }
    return ERR_OK;
}

void aggregator_archive(struct aggregator *a, const struct manifest *m, bool moves)
{
    struct arena scratch = arena_make(0);
    struct source_paths p;
    if (!a->o.archive)
        return;
    if (a->masks)
        archive_masked(a->o.archive, m);
    else if (paths_make(&p, a, m, moves, &scratch) == ERR_OK)
        archive_round(a->o.archive, m, p.payloads, p.count, NULL);
    arena_free(&scratch);
    err_clear();
}

static void again(void *self, const struct manifest *m)
{
    aggregator_archive(self, m, false);
}

void aggregator_archive_begin(struct aggregator *a)
{
    const struct archive_again missing = {again, a};
    archive_begin(a->o.archive, a->env, a->replica, &missing);
}
