/* The state that CURRENT names is loaded; what is damaged is made again. */
#include "outer/store/outer_state_own.h"
#include <inttypes.h>
#include <string.h>
#include "kernels/base/log.h"

/* ---- a state that does not verify ---- */

/* The aggregator's residual of a state that is made again. What its own encoding of that round lost
 * is a function of the contributions, not of the aggregate: without them given up, said, and the
 * manifest's residual ratio says how much. */
static void remade_own(struct outer_state *m, unsigned fragment, const struct manifest *manifest)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    size_t n = outer_state_elements(m, fragment);
    if (!m->o.compresses_downlink)
        return;
    bool again = schedule_compresses_downlink(&m->schedule, (enum codec_kind)manifest->codec,
                                              manifest_included(manifest));
    if (again && m->o.remake(m->o.remake_self, m, fragment, manifest) == ERR_OK)
        return;
    if (s->discarded)
        memcpy(m->next.discarded, s->discarded, n * sizeof *s->discarded);
    memcpy(m->next.residual, s->residual, n * sizeof *s->residual);
    if (!again)
        return;
    memset(m->next.residual, 0, n * sizeof *s->residual);
    m->residuals_lost++;
    char quoted[512];
    log_event(LOG_WARN, "residual_lost", "fragment=%u round=%" PRIu64 " residual_ratio=%u why=%s",
              fragment, manifest->round + 1, manifest->residual_ratio,
              log_quote(quoted, sizeof quoted, err_message()));
}

/* A committed round once more, from its manifest and aggregate: state and digest into `next`. */
static enum err step_again(struct outer_state *m, unsigned fragment, struct manifest *manifest)
{
    struct file_map aggregate;
    if (manifest_aborted(manifest) && !manifest->rolled_back)
        return outer_state_abort(m, fragment, manifest, false);
    TRY(outer_state_aggregate(m, fragment, manifest->round, &aggregate));
    enum err e =
        manifest->rolled_back
            ? outer_state_rolled_back(m, fragment, manifest, aggregate.data, aggregate.size_bytes)
            : outer_state_apply(m, fragment, manifest, false, aggregate.data, aggregate.size_bytes);
    m->env->ops->unmap(m->env, &aggregate);
    return e;
}

/* The aggregator's: from the state of the round before, and the aggregate. */
static enum err remake(struct outer_state *m, unsigned fragment, uint64_t round)
{
    struct manifest manifest;
    char path[PATH_BYTES];
    TRY(outer_state_manifest(m, fragment, round, &manifest));
    outer_state_path(path, fragment, round + 1, "MANIFEST");
    if (!digest_equal(&manifest.parent, &m->state[fragment].manifest)) /* of another history */
        return outer_state_damaged(m, path);
    if (!manifest.rolled_back)
        remade_own(m, fragment, &manifest);
    TRY(step_again(m, fragment, &manifest));
    if (manifest.rolled_back)
        outer_state_give_up(m, fragment);
    return outer_state_commit(m, fragment, &manifest, NULL, 0);
}

/* The state of this round does not verify. Only the aggregator can make it again in full: a site's
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
        return e == ERR_OK ? remake(m, fragment, before) : e;
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

enum err outer_state_load(struct outer_state *m)
{
    TRY(outer_state_amendments_find(m));
    for (unsigned p = 0; p < m->fragments->count; p++)
        TRY(outer_state_load_fragment(m, p));
    return ERR_OK;
}

/* ---- a file that was found damaged ---- */

static enum err repair_present(struct outer_state *m, unsigned fragment)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    struct digest d = outer_state_shared_digest(s, outer_state_elements(m, fragment));
    if (!digest_equal(&d, &s->digest))
        return err_set(ERR_CORRUPT,
                       "fragment %u: state %" PRIu64
                       " has changed in memory too, in this process: faulty memory?",
                       fragment, s->round);
    return outer_state_write(m, fragment, s);
}

static enum err repair_before(struct outer_state *m, unsigned fragment, uint64_t round)
{
    struct arena scratch = arena_make(0);
    struct outer_state copy = *m;
    struct manifest manifest;
    struct outer_state_fragment *s = NULL;
    enum err e = round ? outer_state_manifest(m, fragment, round - 1, &manifest)
                       : err_set(ERR_INPUT, "nothing comes before the initial state");
    if (e == ERR_OK && !(copy.state = arena_array(&scratch, m->fragments->count, sizeof *s)))
        e = ERR_MEMORY;
    if (e == ERR_OK) {
        s = &copy.state[fragment];
        e = outer_state_arrays_alloc(s, &m->o, outer_state_configured(&m->o, fragment),
                                     outer_state_elements(m, fragment), &scratch);
        s->codec_state = m->state[fragment].codec_state;
    }
    if (e == ERR_OK)
        e = outer_state_read(&copy, fragment, round - 1, s);
    if (e == ERR_OK && !digest_equal(&manifest.parent, &s->manifest))
        e = err_set(ERR_CORRUPT, "the manifest kept with it is of another history");
    if (e == ERR_OK)
        e = step_again(&copy, fragment, &manifest);
    if (e == ERR_OK)
        e = outer_state_own_read(&copy, fragment, round);
    if (e == ERR_OK) {
        copy.next.manifest = manifest_digest(&manifest);
        copy.next.residual_ratio = manifest_residual_ratio(&manifest);
        e = outer_state_write(m, fragment, &copy.next);
    }
    m->staging = copy.staging;
    m->next.squares = SQUARES_UNKNOWN;
    staging_forget(&m->staging, m->buffers.theta);
    if (s)
        staging_forget(&m->staging, s->theta);
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
    enum err e =
        outer_state_drop(m, fragment, round, ""); /* what is left is replaced by the next commit */
    return e == ERR_FULL || e == ERR_MEMORY ? ERR_OK : e;
}
