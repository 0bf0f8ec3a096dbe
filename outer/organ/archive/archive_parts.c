/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/organ/archive/archive_parts.h"
#include <inttypes.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/config/identity.h"

bool archive_parts_on(const struct outer_settings *o)
{
    return *o->run_archive && strcmp(o->run_archive, ARCHIVE_OFF) != 0;
}

struct archive_size archive_parts_size(const struct run *r, bool aggregator)
{
    struct outer_state_options o = run_outer_state(r, !aggregator);
    return archive_size(&o, (unsigned)r->o.outer_sites.count, aggregator,
                        (uint64_t)r->o.run_archive_states);
}

static void say(const struct run *r, const char *path, bool aggregator)
{
    struct archive_size size = archive_parts_size(r, aggregator);
    char quoted[1024];
    uint64_t free_bytes = 0;
    bool told = file_free_bytes(path, &free_bytes) == ERR_OK;
    log_event(LOG_INFO, "archive",
              "dir=%s rounds=%" PRIu64 " bytes_per_round=%" PRIu64 " bytes_run=%" PRIu64
              " free=%" PRIu64,
              log_quote(quoted, sizeof quoted, path), size.rounds, size.round_bytes, size.run_bytes,
              free_bytes);
    if (told && free_bytes < size.run_bytes)
        log_event(LOG_WARN, "archive",
                  "bytes_run=%" PRIu64 " free=%" PRIu64
                  " text=\"the disk will not hold the archive of the whole run: it will have a "
                  "gap, and the run continues\"",
                  size.run_bytes, free_bytes);
}

static enum err settings_text(struct run *r, char **text)
{
    const struct config_table tables[] = {keys_inner(&r->s), keys_outer(&r->o)};
    return config_print(tables, 2, CONFIG_RECORDED, &r->perm, text);
}

static enum err open_in(struct archive_parts *p, struct run *r, struct env *w, const char *dir,
                        const char *name)
{
    char *settings, *replica;
    TRY(settings_text(r, &settings));
    TRY_ALLOC(replica = name ? arena_printf(&r->perm, "%s", name)
                             : arena_printf(&r->perm, "aggregator %" PRId64, r->o.serve_index));
    const struct archive_options o = {.head = {.run = r->s.run_name,
                                               .replica = replica,
                                               .aggregator = !name,
                                               .index = (uint32_t)r->o.serve_index,
                                               .aggregators = (uint32_t)r->o.outer_aggregators,
                                               .masked = keys_masks(&r->o).on,
                                               .config = identity_digest(r->identity)},
                                      .settings = settings,
                                      .imported = strstr(r->identity, "\nrun.initial=") != NULL,
                                      .states_every = (uint64_t)r->o.run_archive_states,
                                      .free_bytes = file_free_bytes};
    return archive_open(&p->archive, w, dir, &o, &r->perm);
}

enum err archive_parts_open(struct archive_parts *p, struct run *r, struct env *own,
                            const char *name)
{
    char *path;
    *p = (struct archive_parts){0};
    if (!archive_parts_on(&r->o))
        return ERR_OK;
    if (strcmp(r->o.run_archive, ARCHIVE_ON) == 0) {
        say(r, own->root, !name);
        return open_in(p, r, own, "archive", name);
    }
    bool several = !name && r->o.outer_aggregators > 1;
    TRY_ALLOC(path = several ? arena_printf(&r->perm, "%s/aggregator-%" PRId64, r->o.run_archive,
                                            r->o.serve_index)
                             : arena_printf(&r->perm, "%s/%s", r->o.run_archive,
                                            name ? name : "aggregator"));
    TRY(env_posix_open(&p->env, path));
    say(r, path, !name);
    return open_in(p, r, p->env, "", name);
}

void archive_parts_close(struct archive_parts *p)
{
    if (p->archive)
        log_event(LOG_INFO, "archive_closed", "bytes=%" PRIu64, archive_bytes(p->archive));
    env_posix_close(p->env);
    *p = (struct archive_parts){0};
}
