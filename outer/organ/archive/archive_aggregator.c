/* SPDX-License-Identifier: Apache-2.0 */
/* The archive's end at the aggregator: committed rounds, with the contributions of the spool. */
#include <string.h>
#include "outer/aggregator/aggregator_state.h"
#include "outer/organ/archive/archive_organ.h"

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
        const char *site = manifest_name(m, a->members.names, e->site);
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

static void archive_committed(void *self, struct aggregator *a, const struct manifest *m,
                              bool moves)
{
    struct arena scratch = arena_make(0);
    struct source_paths p;
    if (a->o->masks.on)
        archive_masked(self, m);
    else if (paths_make(&p, a, m, moves, &scratch) == ERR_OK)
        archive_round(self, m, p.payloads, p.count, NULL);
    arena_free(&scratch);
    err_clear();
}

struct missing_rounds { /* of archive_again */
    struct archive *archive;
    struct aggregator *aggregator;
};

static void archive_missing(void *self, const struct manifest *m)
{
    const struct missing_rounds *of = self;
    archive_committed(of->archive, of->aggregator, m, false);
}

static void archive_aggregator_begin(void *self, struct aggregator *a)
{
    struct missing_rounds of = {self, a};
    const struct archive_again missing = {archive_missing, &of};
    archive_begin(self, a->env, a->replica, &missing);
}

struct organ_at_aggregator archive_at_aggregator(struct archive *archive)
{
    static const struct organ_aggregator organ = {.name = "archive",
                                                  .reads_spool = true,
                                                  .open = organ_open_nothing,
                                                  .restore = organ_restore_nothing,
                                                  .recovered = organ_recovered_nothing,
                                                  .begin = archive_aggregator_begin,
                                                  .records = organ_records_nothing,
                                                  .bound = organ_bound_nothing,
                                                  .work = organ_work_nothing,
                                                  .sealed = organ_sealed_nothing,
                                                  .manifest = organ_manifest_nothing,
                                                  .operate = organ_operate_nothing,
                                                  .committed = archive_committed};
    return (struct organ_at_aggregator){&organ, archive};
}
