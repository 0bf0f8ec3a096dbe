/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the state that CURRENT names, and rebuilds damaged states. */
#include "outer/store/outer_state_own.h"
#include <inttypes.h>
#include <string.h>
#include "kernels/base/log.h"

/* ---- a state that does not verify ---- */

/* The aggregator's residual of a state that is rebuilt. What its own encoding of that round lost
 * is a function of the contributions, not of the aggregate: without them given up, said, and the
 * manifest's residual ratio says how much. */
static void own_again(struct outer_state *m, const struct manifest *manifest)
{
    unsigned fragment = manifest->fragment;
    if (manifest->rolled_back) {
        outer_state_give_up(m, fragment);
        return;
    }
    bool again = m->o.compresses_downlink &&
                 schedule_compresses_downlink(&m->schedule, (enum codec_kind)manifest->codec,
                                              manifest_included(manifest));
    if (again && m->o.remake(m->o.remake_self, m, fragment, manifest) == ERR_OK)
        return;
    outer_state_own_keep(m, fragment);
    if (!again)
        return;
    memset(m->next.residual, 0, outer_state_elements(m, fragment) * sizeof *m->next.residual);
    m->residuals_lost++;
    char quoted[512];
    log_event(LOG_WARN, "residual_lost", "fragment=%u round=%" PRIu64 " residual_ratio=%u why=%s",
              fragment, manifest->round + 1, manifest->residual_ratio,
              log_quote(quoted, sizeof quoted, err_message()));
}

/* Replays a committed round from state s and the files that are kept here. */
static enum err step_again(struct outer_state *m, const struct outer_state_fragment *s,
                           const struct manifest *manifest)
{
    struct file_map map = {0};
    if (!manifest_empty(manifest))
        TRY(outer_state_aggregate(m, manifest->fragment, manifest->round, &map));
    enum err e =
        outer_state_replay_from(m, s, manifest, &(struct codec_payload){map.data, map.size_bytes});
    m->env->ops->unmap(m->env, &map);
    return e;
}

/* The aggregator's: from the state of the round before, and the aggregate. */
static enum err state_remake(struct outer_state *m, unsigned fragment, uint64_t round)
{
    struct manifest manifest;
    char path[PATH_BYTES];
    TRY(outer_state_manifest(m, fragment, round, &manifest));
    outer_state_path(path, fragment, round + 1, "MANIFEST");
    if (!digest_equal(&manifest.parent, &m->state[fragment].manifest)) /* of another history */
        return outer_state_damaged(m, path);
    own_again(m, &manifest);
    TRY(step_again(m, &m->state[fragment], &manifest));
    return outer_state_commit(m, fragment, &manifest, NULL, 0);
}

/* The state of this round does not verify. Only the aggregator can rebuild it in full: a site's
 * residual of that state is not a function of the aggregate; the site gets the rounds again from
 * the aggregator and its own outbox, or a snapshot where it had taken one. */
static enum err load_before(struct outer_state *m, unsigned fragment, uint64_t round)
{
    struct outer_state_fragment *s = &m->state[fragment];
    char path[PATH_BYTES];
    uint64_t before;
    enum err e = outer_state_newest(m, fragment, "state", round, &before);
    if (e == ERR_INPUT || (e == ERR_OK && !m->o.residuals && before + 1 != round)) {
        outer_state_path(path, fragment, round, "state");
        return outer_state_damaged(m, path);
    }
    TRY(e);
    log_event(LOG_WARN, "state_damaged",
              "fragment=%u round=%" PRIu64 " action=from_state before=%" PRIu64, fragment, round,
              before);
    e = outer_state_read(m, fragment, before, s);
    if (!m->o.residuals)
        return e == ERR_OK ? state_remake(m, fragment, before) : e;
    if (e == ERR_CORRUPT)
        e = load_before(m, fragment, before);
    return e == ERR_OK ? outer_state_drop(m, fragment, round, "state")
                       : e; /* it counts for nothing any more */
}

/* ---- load ---- */

/* found: CURRENT was lost, and this is what it named. */
static enum err load_current(struct outer_state *m, unsigned fragment,
                             const struct outer_state_current *current, bool found)
{
    struct outer_state_fragment *s = &m->state[fragment];
    enum err e = outer_state_read(m, fragment, current->round, s);
    bool other = e == ERR_OK && !digest_equal(&s->manifest, &current->manifest);
    if (other && !found)
        return err_set(ERR_CORRUPT,
                       "%s/frag/%u/CURRENT and state %" PRIu64 " name different manifests",
                       m->env->root, fragment, current->round);
    if (e == ERR_CORRUPT || e == ERR_INPUT || other)
        return load_before(m, fragment, current->round);
    return e;
}

enum err outer_state_load_fragment(struct outer_state *m, unsigned fragment)
{
    struct outer_state_current current = {0};
    char quoted[512];
    enum err e = outer_state_current_read(m, fragment, &current);
    bool lost = e == ERR_INPUT || e == ERR_CORRUPT;
    if (!lost) {
        TRY(e);
        return load_current(m, fragment, &current, false);
    }
    log_event(LOG_WARN, "current_lost", "fragment=%u why=%s", fragment,
              log_quote(quoted, sizeof quoted, err_message()));
    TRY(outer_state_current_find(m, fragment, &current));
    TRY(load_current(m, fragment, &current, true));
    log_event(LOG_WARN, "current_found", "fragment=%u round=%" PRIu64, fragment,
              m->state[fragment].round);
    return outer_state_current_write(m, fragment, &m->state[fragment]);
}

enum err outer_state_amendments_find(struct outer_state *m)
{
    struct manifest manifest;
    for (unsigned p = 0; p < m->fragments->count; p++) {
        enum err e = outer_state_manifest_newest(m, p, &manifest);
        if (e == ERR_OK)
            e = outer_state_amend(m, &manifest.amendments);
        else if (e == ERR_INPUT || e == ERR_CORRUPT) /* none; the load says what it means */
            e = ERR_OK;
        TRY(e);
    }
    return ERR_OK;
}

enum err outer_state_load(struct outer_state *m)
{
    TRY(outer_state_amendments_find(m));
    for (unsigned p = 0; p < m->fragments->count; p++)
        if (outer_state_holds(m, p))
            TRY(outer_state_load_fragment(m, p));
    return ERR_OK;
}

/* ---- a file that was found damaged ---- */

static enum err repair_present(struct outer_state *m, unsigned fragment)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    if (!outer_state_unchanged(m, fragment, s))
        return err_set(ERR_CORRUPT,
                       "fragment %u: state %" PRIu64
                       " has changed in memory too, in this process: faulty memory?",
                       fragment, s->round);
    return outer_state_write(m, fragment, s);
}

static enum err repair_before(struct outer_state *m, unsigned fragment, uint64_t round)
{
    struct arena scratch = arena_make(0);
    struct outer_state_fragment before = {0};
    struct manifest manifest;
    enum err e = round ? outer_state_manifest(m, fragment, round - 1, &manifest)
                       : err_set(ERR_INPUT, "nothing comes before the initial state");
    if (e == ERR_OK)
        e = outer_state_arrays_alloc(&before, &m->o, outer_state_configured(&m->o, fragment),
                                     outer_state_elements(m, fragment), &scratch);
    if (e == ERR_OK)
        e = outer_state_read(m, fragment, round - 1, &before);
    if (e == ERR_OK && !digest_equal(&manifest.parent, &before.manifest))
        e = err_set(ERR_CORRUPT, "the manifest kept with it is of another history");
    if (e == ERR_OK)
        e = step_again(m, &before, &manifest);
    if (e == ERR_OK)
        e = outer_state_own_read(m, fragment, round);
    if (e == ERR_OK) {
        outer_state_next_name(m, &manifest);
        e = outer_state_write(m, fragment, &m->next);
    }
    (void)outer_state_next(m, fragment); /* the staged copy is not of the next round's state */
    staging_forget(&m->staging, before.theta);
    arena_free(&scratch);
    return e;
}

enum err outer_state_repair(struct outer_state *m, unsigned fragment, uint64_t round)
{
    return round == m->state[fragment].round ? repair_present(m, fragment)
                                             : repair_before(m, fragment, round);
}

enum err outer_state_repair_current(struct outer_state *m, unsigned fragment)
{
    return outer_state_current_write(m, fragment, &m->state[fragment]);
}

enum err outer_state_manifest_digest(struct outer_state *m, unsigned fragment, uint64_t round,
                                     struct digest *out)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    struct manifest after;
    if (round + 1 >= s->round) {
        *out = s->manifest;
        return round + 1 == s->round ? ERR_OK : err_set(ERR_INPUT, "not committed");
    }
    TRY(outer_state_manifest(m, fragment, round + 1, &after));
    *out = after.parent;
    return ERR_OK;
}

/* ---- a round given up ---- */

enum err outer_state_step_back(struct outer_state *m, unsigned fragment)
{
    uint64_t round = m->state[fragment].round;
    struct outer_state_fragment *before = outer_state_next(m, fragment);
    struct manifest made;
    char path[PATH_BYTES];
    ASSERT(m->o.residuals && round > 0);
    TRY(outer_state_manifest(m, fragment, round - 1, &made));
    TRY(outer_state_read(m, fragment, round - 1, before));
    outer_state_path(path, fragment, round - 1, "state");
    if (!digest_equal(&before->manifest, &made.parent) ||
        !digest_equal(&before->digest, &made.state_before))
        return outer_state_damaged(m, path);
    TRY(outer_state_next_pass(m, fragment)); /* == COMMIT POINT == */
    outer_state_switch(m, fragment);
    enum err e = outer_state_drop(m, fragment, round, ""); /* the next commit replaces the rest */
    return e == ERR_FULL || e == ERR_MEMORY ? ERR_OK : e;
}
