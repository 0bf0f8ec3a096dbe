/* SPDX-License-Identifier: Apache-2.0 */
/* Closing a round: exact sum in site order, outer step, commit point, record, spool away. All that
 * takes long is done without the lock of the service, by the thread of work(), while other calls
 * are answered from the state before (docs/protocol.md 3.14). What it reads of the aggregator does
 * not change meanwhile: the entries of a sealed round, the current state, what the commit copied
 * when it began. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_signs.h"
#include "outer/aggregator/aggregator_sums.h"
#include "outer/protocol/mutant.h"
#include "outer/protocol/shares.h"
#include "outer/store/aggregate.h"

enum {
    COMMIT_RETRY_MS = 5000,
    RESERVE_SLACK_BYTES = 1 << 17 /* headers, manifest, CURRENT, journal records, whole blocks */
};

/* Of the one commit in flight. The work of all but IDLE is done by aggregator_commit_outside
 * without the lock; the stage changes under it. */
enum commit_stage {
    COMMIT_IDLE,
    COMMIT_MAKING, /* sum, outer step, files of the next state. An operator's act still changes what
                      is committed; the stage then begins again */
    COMMIT_PASSING,  /* CURRENT; the state's arrays are copied */
    COMMIT_CLEARING, /* committed: the spool of the round goes */
    COMMIT_BESIDE    /* no commit: other work in its place */
};
struct aggregator_commit {
    enum commit_stage stage;
    const struct aggregator_beside *beside; /* COMMIT_BESIDE */
    unsigned fragment;
    struct set set; /* as it was sealed, and what an operator wanted, when the commit began */
    bool ordered, rolls_back;
    struct digest ordered_by;
    uint64_t rolls_to;
    struct manifest manifest, none; /* none: without a site */
    struct aggregate aggregate;
    bool done;     /* the work of the stage is */
    bool spent;    /* the reserve is */
    bool drops[2]; /* the spool of the round, of the one before: it is over */
    enum err e;    /* of the stage, and its sentence */
    char why[AGGREGATOR_TEXT_MAX];
};

enum err aggregator_commit_open(struct aggregator_commit **out, struct arena *perm)
{
    TRY_ALLOC(*out = arena_alloc(perm, sizeof **out));
    return ERR_OK;
}

bool aggregator_commit_idle(const struct aggregator *a)
{
    return a->part.commit->stage == COMMIT_IDLE;
}

bool aggregator_commit_passes(const struct aggregator *a, unsigned fragment)
{
    return a->part.commit->stage == COMMIT_PASSING && a->part.commit->fragment == fragment;
}

bool aggregator_commit_manifest(const struct aggregator *a, unsigned fragment)
{
    const struct aggregator_commit *c = a->part.commit;
    return c->fragment == fragment && (c->stage == COMMIT_MAKING || c->stage == COMMIT_PASSING) &&
           c->manifest.round == a->core.f[fragment].round;
}

/* ---- the reserve ---- */

/* What a commit writes: a state and the aggregate, for the fragment that needs most. */
static uint64_t reserve_bytes(const struct aggregator *a)
{
    uint64_t most = 0;
    const struct schedule *s = &a->replica->schedule;
    for (unsigned i = 0; i < a->core.fragments; i++)
        for (unsigned k = 0; k < CODEC_COUNT; k++) {
            enum codec_kind kind = (enum codec_kind)k;
            const struct codec *c = codec_get(kind);
            if (!schedule_uses(s, kind))
                continue;
            unsigned payloads = schedule_payloads_max(s, kind, a->members.count);
            uint64_t n = outer_state_state_bytes(a->replica, i) +
                         c->aggregate_max(c, a->replica->fragments->f[i].elements, payloads);
            most = n > most ? n : most;
        }
    return most + RESERVE_SLACK_BYTES;
}

enum err aggregator_reserve(struct aggregator *a)
{
    int handle;
    uint64_t have, bytes = reserve_bytes(a);
    enum err e = a->env->ops->part_open(a->env, AGGREGATOR_RESERVE, bytes, &handle, &have);
    if (e == ERR_FULL) { /* not a reason to refuse to start: the sites may be waiting for this very
                            commit */
        log_event(LOG_WARN, "no_reserve", "bytes=%" PRIu64, bytes);
        return ERR_OK;
    }
    TRY(e);
    return a->env->ops->part_close(a->env, handle, AGGREGATOR_RESERVE, NULL);
}

/* ---- sum and step ---- */

struct maps { /* the contributions of a set, in site order */
    struct file_map map[ROUND_SITES_MAX];
    struct codec_payload payload[ROUND_SITES_MAX];
    unsigned count;
};

static void maps_close(struct env *w, struct maps *m)
{
    for (unsigned i = 0; i < m->count; i++)
        w->ops->unmap(w, &m->map[i]);
    m->count = 0;
}

/* Every load verifies a digest. */
static enum err maps_add(struct env *w, struct maps *m, const char *path,
                         const struct digest *payload)
{
    TRY(w->ops->map(w, path, &m->map[m->count]));
    const struct file_map *map = &m->map[m->count];
    m->payload[m->count++] = (struct codec_payload){map->data, map->size_bytes};
    struct digest d = digest_of(map->data, map->size_bytes);
    return digest_equal(&d, payload) ? ERR_OK
                                     : err_set(ERR_CORRUPT, "%s: damaged since its receipt", path);
}

/* A contribution that is missing or damaged since its receipt goes into `lost`: ERR_CORRUPT. */
static enum err maps_open(struct aggregator *a, unsigned fragment, const struct set *set,
                          struct maps *m)
{
    const struct round_fragment *f = &a->core.f[fragment];
    struct set *lost = &a->fragment[fragment].lost;
    char quoted[512];
    m->count = 0;
    for (unsigned i = 0; i < a->members.count; i++) {
        char path[AGGREGATOR_PATH_MAX];
        if (!set_has(set, i))
            continue;
        aggregator_spool_path(a->members.names[i], fragment, f->round, &f->entries[i].payload,
                              path);
        enum err e = maps_add(a->env, m, path, &f->entries[i].payload);
        if (e == ERR_CORRUPT || e == ERR_INPUT) {
            log_event(LOG_WARN, "payload_lost",
                      "fragment=%u round=%" PRIu64 " site=%s why=%s action=\"asked for again\"",
                      fragment, f->round, a->members.names[i],
                      log_quote(quoted, sizeof quoted, err_message()));
            set_put(lost, i, true);
            continue;
        }
        TRY(e);
        if (MUTANT(ADDED_TWICE) && m->count > 1)
            m->payload[m->count - 1] = m->payload[0];
    }
    return set_count(lost) ? err_set(ERR_CORRUPT, "contributions are no longer stored") : ERR_OK;
}

/* Of the round before the one in flight; NULL: there is none, or it is damaged. */
static const struct manifest *manifest_before(const struct aggregator *a, unsigned fragment,
                                              struct manifest *m)
{
    uint64_t round = a->core.f[fragment].round;
    bool there = round && outer_state_manifest(a->replica, fragment, round - 1, m) == ERR_OK;
    return there ? m : NULL;
}

/* The charges of sites that contributed nothing are those of the manifest before: a site that comes
 * back with an older directory learns of them from any manifest. */
static void charges_keep(const struct aggregator *a, unsigned fragment, struct manifest *m)
{
    struct manifest kept;
    const struct manifest *before = NULL;
    bool absent = false;
    for (uint32_t i = 0; i < m->site_count && !absent; i++)
        absent = digest_zero(&m->sites[i].payload);
    if (absent)
        before = manifest_before(a, fragment, &kept);
    for (uint32_t i = 0; before && i < m->site_count; i++) {
        struct manifest_entry *e = &m->sites[i];
        const struct manifest_entry *b = manifest_site(before, e->site);
        if (digest_zero(&e->payload) && b)
            e->charged = b->charged;
    }
}

/* set: the included sites; empty: the round is aborted. */
static void manifest_fill(const struct aggregator *a, unsigned fragment, const struct set *set,
                          struct manifest *m)
{
    enum round_outcome left_out = set_count(set) ? ROUND_LATE : ROUND_ABORTED;
    const struct round_fragment *f = &a->core.f[fragment];
    manifest_clear(m);
    snprintf(m->run, sizeof m->run, "%s", a->o->run);
    m->config = a->start.config;
    aggregator_members_manifest(a, fragment, m);
    aggregator_organs_manifest(a, m);
    m->fragment = fragment;
    m->round = f->round;
    m->parent = f->parent;
    m->codec = (uint32_t)outer_state_codec(a->replica, fragment);
    for (unsigned i = 0; i < a->members.count; i++) {
        const struct round_entry *e = &f->entries[i];
        struct manifest_entry *to = &m->sites[m->site_count];
        if (!set_has(&f->members, i))
            continue;
        m->site_count++;
        *to = (struct manifest_entry){0};
        to->site = i;
        to->included = set_has(set, i);
        if (!e->accepted) { /* absent: all else zero */
            to->reason = aggregator_quarantined(a, i) ? ROUND_EXCLUDED : ROUND_NONE;
            continue;
        }
        to->reason = (uint8_t)(to->included ? ROUND_NONE : left_out);
        to->payload = e->payload;
        to->payload_bytes = e->payload_bytes;
        to->weight = e->weight;
        to->norm = e->norm;
        to->data_cursor = e->data_cursor;
        to->charged = e->charged;
        to->residual_ratio = e->residual_ratio;
    }
    charges_keep(a, fragment, m);
    m->term = a->start.term;
    m->instance = a->start.instance;
    m->unix_ms = a->env->ops->unix_ms(a->env);
}

/* Moments are averaged as they are: their norms say nothing of a step. */
static enum merge_kind merge_of(const struct aggregator *a, unsigned fragment)
{
    bool moments = a->replica->fragments->f[fragment].state != FRAGMENT_PARAMETERS;
    return moments ? MERGE_MEAN : a->replica->o.outer.merge;
}

static void shares_log(const struct aggregator *a, unsigned fragment, const struct manifest *m,
                       enum log_level level)
{
    const struct bounds_history *h = &a->fragment[fragment].norms;
    for (uint32_t i = 0; m->scaled && i < m->site_count; i++)
        if (m->sites[i].factor != 1)
            log_event(level, "clipped",
                      "fragment=%u round=%" PRIu64 " site=%s norm=%g median=%g factor=%g", fragment,
                      m->round, a->members.names[m->sites[i].site], (double)m->sites[i].norm,
                      (double)bounds_median(h), (double)m->sites[i].factor);
}

/* How much of each contribution counts. ERR_DIVERGED: nothing of any (outer.merge edit), and the
 * manifest includes no site. */
static enum err manifest_shares(const struct aggregator *a, unsigned fragment, struct manifest *m)
{
    const struct fragment *f = &a->replica->fragments->f[fragment];
    enum merge_kind merge = merge_of(a, fragment);
    struct shares_edit edit = {f->elements, a->o->bounds.edit_warmup};
    struct manifest before;
    bool some = true;
    if (merge == MERGE_CLIPPED)
        shares_median(m);
    else if (merge == MERGE_EDIT)
        some = shares_edit(m, manifest_before(a, fragment, &before), &edit);
    else if (f->state == FRAGMENT_PARAMETERS)
        bounds_clip(&a->fragment[fragment].norms, a->o->bounds.clip, m);
    shares_log(a, fragment, m,
               merge == MERGE_CLIPPED || merge == MERGE_EDIT ? LOG_DETAIL : LOG_WARN);
    return some ? ERR_OK
                : err_set(ERR_DIVERGED,
                          "the norms of all contributions are anomalous: outer.merge = edit rolls "
                          "the round back");
}

static void aggregate_close(struct aggregator *a, struct aggregate *g)
{
    a->env->ops->unmap(a->env, &g->map);
    arena_free(&g->arena);
    *g = (struct aggregate){.arena = arena_make(0)};
}

static enum err commit_sum(struct aggregator *a, unsigned fragment, const struct set *set,
                           struct aggregate *g)
{
    struct maps maps;
    enum err e = maps_open(a, fragment, set, &maps);
    if (e == ERR_OK) {
        outer_state_own_keep(a->replica, fragment);
        e = a->sums->sum(a, fragment, maps.payload, maps.count, g);
    }
    maps_close(a->env, &maps);
    return e;
}

/* The contributions of a committed round, and from them what it was encoded as: those very bytes,
 * or they are not those. */
static enum err encoded_remake(const char *const *sites, struct outer_state *m, unsigned fragment,
                               const struct manifest *manifest, struct maps *maps,
                               struct arena *scratch)
{
    struct aggregate_bytes made;
    for (unsigned i = 0; i < manifest->site_count; i++) {
        char path[AGGREGATOR_PATH_MAX];
        const struct manifest_entry *e = &manifest->sites[i];
        if (!e->included)
            continue;
        aggregator_spool_path(manifest_name(manifest, sites, e->site), fragment, manifest->round,
                              &e->payload, path);
        if (!m->env->ops->exists(m->env, path))
            return err_set(ERR_INPUT, "%s: not kept", path);
        TRY(maps_add(m->env, maps, path, &e->payload));
    }
    TRY(aggregate_make(m, fragment, &(struct downlink_input){maps->payload, maps->count}, &made,
                       scratch));
    struct digest d = digest_of(made.data, made.size_bytes);
    return digest_equal(&d, &manifest->aggregate)
               ? ERR_OK
               : err_set(ERR_CORRUPT, "another aggregate than was committed");
}

enum err aggregator_remake(void *sites, struct outer_state *m, unsigned fragment,
                           const struct manifest *manifest)
{
    struct arena scratch = arena_make(0);
    struct maps maps = {.count = 0};
    enum err e = encoded_remake(sites, m, fragment, manifest, &maps, &scratch);
    maps_close(m->env, &maps);
    arena_free(&scratch);
    return e;
}

/* The next state, in `next` of the replica, and its manifest. ERR_DIVERGED: there is none. */
static enum err commit_step(struct aggregator *a, unsigned fragment, struct manifest *m,
                            struct aggregate *g)
{
    TRY(commit_sum(a, fragment, &a->part.commit->set, g));
    TRY(manifest_shares(a, fragment, m));
    TRY(outer_state_apply(a->replica, m, g->data, g->size_bytes));
    return downlink_residual_ratio(a->replica, fragment, m, &m->residual_ratio);
}

/* A9. */
static enum err store_signed(struct aggregator *a, unsigned fragment, struct manifest *m,
                             const uint8_t *aggregate, size_t size_bytes)
{
    TRY(a->signs->sign(a, m));
    return outer_state_store(a->replica, fragment, m, aggregate, size_bytes);
}

/* A round that cannot be applied must not end the run: it is committed with an empty set. The state
 * stays, and every contribution goes back into its site's residual. */
static enum err commit_abort(struct aggregator *a, unsigned fragment, struct manifest *m)
{
    const struct aggregator_commit *c = a->part.commit;
    char quoted[512];
    log_event(LOG_ERROR, "abort", "fragment=%u round=%" PRIu64 " why=%s", fragment,
              a->core.f[fragment].round, log_quote(quoted, sizeof quoted, err_message()));
    if (c->ordered || !manifest_aborted(m)) { /* else it is made, and gives nothing back */
        struct manifest before;
        *m = c->none;
        if (merge_of(a, fragment) == MERGE_EDIT)
            shares_keep(m, manifest_before(a, fragment, &before));
    }
    m->ordered_by = c->ordered_by;
    if (c->rolls_back) { /* a state that turns out damaged: the round is aborted, no more */
        enum err e = outer_state_roll_back(a->replica, fragment, m, c->rolls_to);
        if (e == ERR_OK)
            return store_signed(a, fragment, m, NULL, 0);
        if (e != ERR_CORRUPT && e != ERR_INPUT)
            return e;
        log_event(LOG_ERROR, "rollback", "fragment=%u to=%" PRIu64 " why=%s", fragment, c->rolls_to,
                  log_quote(quoted, sizeof quoted, err_message()));
    }
    TRY(outer_state_abort(a->replica, m));
    outer_state_own_keep(a->replica, fragment);
    return store_signed(a, fragment, m, NULL, 0);
}

/* The next state and its files. The old one stays in force. */
static enum err commit_files(struct aggregator *a)
{
    struct aggregator_commit *c = a->part.commit;
    struct aggregate *g = &c->aggregate;
    struct manifest *m = &c->manifest;
    enum err e = c->ordered ? err_set(ERR_DIVERGED, "an operator's act")
                 : !set_count(&c->set)
                     ? err_set(ERR_DIVERGED, "the seal of the round is no longer stored")
                     : commit_step(a, c->fragment, m, g);
    if (e == ERR_DIVERGED)
        return commit_abort(a, c->fragment, m);
    return e == ERR_OK ? store_signed(a, c->fragment, m, g->made, g->size_bytes) : e;
}

/* ---- after the commit point ---- */

/* The rename decided; a record that finds no room is written by the next recovery. */
static enum err commit_record(struct aggregator *a, unsigned fragment)
{
    const struct round_fragment *f = &a->core.f[fragment];
    struct journal_record r = {
        .kind = JOURNAL_COMMIT, .fragment = fragment, .round = f->round - 1, .digest = f->parent};
    enum err e = journal_append(&a->journal, &r);
    if (e == ERR_OK)
        a->fragment[fragment].committed = f->round;
    if (e == ERR_OK && journal_long(&a->journal, a->o->files.journal_bytes_max))
        e = aggregator_journal_again(a);
    if (e == ERR_FULL)
        log_event(LOG_ERROR, "disk_full", "file=%s", AGGREGATOR_JOURNAL);
    return e == ERR_FULL ? ERR_OK : e;
}

static void commit_log(const struct aggregator *a, unsigned fragment, const struct manifest *m,
                       uint64_t waited_ms)
{
    char hex[65], missing[256] = "";
    size_t used = 0;
    digest_hex(&m->state_after, hex);
    for (unsigned i = 0; i < m->site_count && used < sizeof missing; i++)
        if (!m->sites[i].included)
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%s", used ? "," : "",
                                     a->members.names[m->sites[i].site]);
    log_event(LOG_INFO, "commit",
              "fragment=%u round=%" PRIu64 " of=%" PRIu64 " sites=%u/%u bytes=%" PRIu64
              " waited_s=%.3f state=%.16s%s%s",
              fragment, m->round, aggregator_rounds(a, fragment), manifest_included(m),
              m->site_count, m->aggregate_bytes, (double)waited_ms / 1000, hex,
              used ? " without=" : "", missing);
}

/* Contributions whose sum was encoded again stay for one more round: aggregator_remake. */
static void commit_drops(struct aggregator *a)
{
    struct aggregator_commit *c = a->part.commit;
    const struct schedule *s = &a->replica->schedule;
    const struct manifest *m = &c->manifest;
    bool again = schedule_compresses_downlink(s, (enum codec_kind)m->codec, manifest_included(m));
    c->drops[0] = !again && !aggregator_spool_verifying(a, c->fragment, m->round);
    c->drops[1] = a->replica->o.compresses_downlink && m->round &&
                  !aggregator_spool_verifying(a, c->fragment, m->round - 1);
}

static enum err commit_done(struct aggregator *a, unsigned fragment, const struct manifest *m)
{
    struct aggregator_fragment *f = &a->fragment[fragment];
    const struct outer_state_fragment *s = &a->replica->state[fragment];
    struct round_event e = {.kind = ROUND_COMMITTED,
                            .fragment = fragment,
                            .round = s->round,
                            .parent = s->manifest,
                            .state = s->digest,
                            .aborted = manifest_empty(m)};
    struct round_update u;
    uint64_t first_ms = f->first_ms, now_ms = aggregator_now(a);
    f->sealed = f->ordered = f->rolls_back = false;
    f->ordered_by = (struct digest){0};
    f->retry_ms = 0;
    f->first_ms = UINT64_MAX;
    bounds_add(&f->norms, m);
    a->sums->over(a, fragment);
    aggregator_step(a, &e, &u);
    aggregator_strikes_commit(a, m);
    aggregator_metrics_commit(a, m);
    uint64_t waited_ms = first_ms == UINT64_MAX ? 0 : now_ms - first_ms;
    commit_log(a, fragment, m, waited_ms);
    if (a->o->tell.committed)
        a->o->tell.committed(a->o->tell.self, m, waited_ms);
    TRY(commit_record(a, fragment));
    return a->sums->committed(a, m);
}

enum err aggregator_payload_again(struct aggregator *a, unsigned fragment, unsigned site)
{
    const struct round_fragment *r = &a->core.f[fragment];
    struct round_event e = {
        .kind = ROUND_LOST, .site = site, .fragment = fragment, .round = r->round};
    struct round_update u;
    char path[AGGREGATOR_PATH_MAX];
    aggregator_spool_path(a->members.names[site], fragment, r->round, &r->entries[site].payload,
                          path);
    TRY(a->env->ops->remove(a->env, path));
    aggregator_step(a, &e, &u);
    return ERR_OK;
}

/* The sites keep them until the commit; the damaged files are removed. */
static enum err payloads_again(struct aggregator *a, unsigned fragment)
{
    struct aggregator_fragment *f = &a->fragment[fragment];
    f->sealed = false;
    for (unsigned i = 0; i < a->members.count; i++)
        if (set_has(&f->lost, i))
            TRY(aggregator_payload_again(a, fragment, i));
    f->lost = (struct set){0};
    return ERR_OK;
}

/* ---- the stages ---- */

static void stage_begin(struct aggregator_commit *c, enum commit_stage stage)
{
    c->stage = stage;
    c->done = false;
}

void aggregator_commit_beside(struct aggregator *a, const struct aggregator_beside *work)
{
    a->part.commit->beside = work;
    stage_begin(a->part.commit, COMMIT_BESIDE);
}

void aggregator_commit_begin(struct aggregator *a, unsigned fragment)
{
    struct aggregator_commit *c = a->part.commit;
    const struct aggregator_fragment *f = &a->fragment[fragment];
    const struct set nobody = {0};
    ASSERT(c->stage == COMMIT_IDLE && f->sealed);
    stage_begin(c, COMMIT_MAKING);
    c->fragment = fragment;
    c->set = f->seal_set;
    c->ordered = f->ordered;
    c->ordered_by = f->ordered_by;
    c->rolls_back = f->rolls_back;
    c->rolls_to = f->rolls_to;
    c->spent = false;
    c->aggregate = (struct aggregate){.arena = arena_make(0)};
    manifest_fill(a, fragment, &c->set, &c->manifest);
    manifest_fill(a, fragment, &nobody, &c->none);
}

/* This is what it was kept for. */
static bool reserve_spend(struct aggregator *a, enum err *e)
{
    if (*e != ERR_FULL || !a->env->ops->exists(a->env, AGGREGATOR_RESERVE))
        return false;
    char quoted[512];
    log_event(LOG_ERROR, "disk_full", "freed=%s why=%s", AGGREGATOR_RESERVE,
              log_quote(quoted, sizeof quoted, err_message()));
    *e = a->env->ops->remove(a->env, AGGREGATOR_RESERVE);
    a->part.commit->spent = true;
    return *e == ERR_OK;
}

static enum err commit_make(struct aggregator *a)
{
    struct aggregator_commit *c = a->part.commit;
    const struct manifest before = c->manifest;
    enum err e = commit_files(a);
    if (set_count(&a->fragment[c->fragment].lost) || !reserve_spend(a, &e))
        return e;
    aggregate_close(a, &c->aggregate);
    c->manifest = before;
    return commit_files(a);
}

static enum err commit_pass(struct aggregator *a)
{
    unsigned fragment = a->part.commit->fragment;
    enum err e = outer_state_pass(a->replica, fragment);
    return reserve_spend(a, &e) ? outer_state_pass(a->replica, fragment) : e;
}

static enum err commit_clear(struct aggregator *a)
{
    const struct aggregator_commit *c = a->part.commit;
    uint64_t round = c->manifest.round;
    aggregator_organs_committed(a, &c->manifest, c->drops[0]);
    if (c->drops[1])
        TRY(aggregator_spool_remove(a, c->fragment, round - 1));
    if (c->drops[0])
        TRY(aggregator_spool_remove(a, c->fragment, round));
    return c->spent ? aggregator_reserve(a) : ERR_OK;
}

bool aggregator_commit_outside(void *self)
{
    struct aggregator *a = self;
    struct aggregator_commit *c = a->part.commit;
    if (c->stage == COMMIT_IDLE)
        return false;
    c->done = true;
    if (c->stage == COMMIT_BESIDE) {
        c->beside->outside(a);
        return true;
    }
    c->e = c->stage == COMMIT_MAKING    ? commit_make(a)
           : c->stage == COMMIT_PASSING ? commit_pass(a)
                                        : commit_clear(a);
    if (c->e != ERR_OK)
        snprintf(c->why, sizeof c->why, "%s", err_message());
    return true;
}

static void commit_drop(struct aggregator *a)
{
    if (a->part.commit->stage != COMMIT_IDLE)
        aggregate_close(a, &a->part.commit->aggregate);
    a->part.commit->stage = COMMIT_IDLE;
}

void aggregator_commit_close(struct aggregator *a)
{
    const struct aggregator_commit *c = a->part.commit;
    if (c->stage == COMMIT_CLEARING && !c->done) /* the last round of the run */
        aggregator_organs_committed(a, &c->manifest, c->drops[0]);
    commit_drop(a);
}

static void retry_log(unsigned fragment, enum err e, const char *why)
{
    char quoted[512];
    log_event(LOG_ERROR, e == ERR_FULL ? "disk_full" : "no_memory",
              "fragment=%u retry_ms=%d why=%s", fragment, COMMIT_RETRY_MS,
              log_quote(quoted, sizeof quoted, why));
}

void aggregator_commit_later(struct aggregator *a, unsigned fragment, enum err e)
{
    if (e != ERR_FULL && e != ERR_MEMORY) {
        aggregator_halt(a, e);
        return;
    }
    a->fragment[fragment].retry_ms = aggregator_now(a) + COMMIT_RETRY_MS;
    retry_log(fragment, e, err_message());
}

/* The round stays sealed, where it is not committed yet. */
static enum err commit_failed(struct aggregator *a)
{
    const struct aggregator_commit *c = a->part.commit;
    bool clearing = c->stage == COMMIT_CLEARING;
    commit_drop(a);
    if (c->e != ERR_FULL && c->e != ERR_MEMORY)
        return err_set(c->e, "%s", c->why);
    if (!clearing) /* else the files go at the next start */
        a->fragment[c->fragment].retry_ms = aggregator_now(a) + COMMIT_RETRY_MS;
    retry_log(c->fragment, c->e, c->why);
    return ERR_OK;
}

static enum err commit_made(struct aggregator *a)
{
    struct aggregator_commit *c = a->part.commit;
    struct aggregator_fragment *f = &a->fragment[c->fragment];
    bool lost = set_count(&f->lost) > 0, order_came = f->ordered && !c->ordered;
    if (a->state.failed != ERR_OK || (order_came && (lost || c->e == ERR_OK))) {
        f->lost = (struct set){0}; /* and the next attempt overwrites its files */
        commit_drop(a);
    } else if (lost) {
        commit_drop(a);
        return payloads_again(a, c->fragment);
    } else if (c->e != ERR_OK) {
        return commit_failed(a);
    } else {
        stage_begin(c, COMMIT_PASSING);
    }
    return ERR_OK;
}

static enum err commit_passed(struct aggregator *a)
{
    struct aggregator_commit *c = a->part.commit;
    if (c->e != ERR_OK)
        return commit_failed(a);
    outer_state_switch(a->replica, c->fragment);
    enum err e = commit_done(a, c->fragment, &c->manifest);
    if (e != ERR_OK) {
        commit_drop(a);
        return e;
    }
    commit_drops(a);
    if (aggregator_organs_read_spool(a))
        aggregator_spool_hold(a, c->fragment, c->manifest.round);
    stage_begin(c, COMMIT_CLEARING);
    return ERR_OK;
}

/* Under the lock again. */
static enum err commit_cleared(struct aggregator *a)
{
    if (a->part.commit->e != ERR_OK)
        TRY(commit_failed(a));
    else
        commit_drop(a);
    return aggregator_spool_release(a);
}

enum err aggregator_commit_next(struct aggregator *a)
{
    struct aggregator_commit *c = a->part.commit;
    if (c->stage == COMMIT_IDLE || !c->done)
        return ERR_OK;
    if (c->stage == COMMIT_MAKING)
        return commit_made(a);
    if (c->stage == COMMIT_PASSING)
        return commit_passed(a);
    if (c->stage == COMMIT_CLEARING)
        return commit_cleared(a);
    c->beside->end(a);
    commit_drop(a);
    return ERR_OK;
}
