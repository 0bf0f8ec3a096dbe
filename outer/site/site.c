/* SPDX-License-Identifier: Apache-2.0 */
/* A site's end of the outer loop. DiLoCo (2311.08105) Algorithm 1 is ticked off in site_round_run
 * and adopt: lines 11 to 16, with the steps S1 to S11 of docs/protocol.md 3.1.
 */
#include "outer/site/site.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/config/identity.h"
#include "outer/site/site_identity.h"
#include "outer/site/site_masks.h"
#include "outer/site/site_own.h"
#include "outer/site/site_repair.h"
#include "outer/protocol/mutant.h"

enum {
    HOLD_MS =
        2000, /* how long the aggregator may hold a poll: also how soon a stop request is seen */
    SNAPSHOT_RETRY_MS = 1000,
    PENDING_MS = 50,      /* least time between two polls that both say pending */
    FETCHES_MAX = 3,      /* of an aggregate whose digest is wrong, before giving up */
    CLOCK_CALL_MS = 2000, /* a longer report does not compare the clocks */
    /* How long a site tries to say that it has all of the run. An aggregator that is down is back
     * within that time, or a person knows why not. One that recorded the report and ended before
     * its answer arrived never answers again: so there is a limit. */
    LAST_REPORT_MS = 3600000
};

enum err site_open(struct site **out, struct env *w, struct link *l, struct outer_state *m,
                   const struct site_options *o, struct arena *perm)
{
    struct site *s;
    ASSERT(m->o.residuals && o->site_count <= ROUND_SITES_MAX);
    ASSERT(o->index < o->site_count || o->index >= ROUND_SITES_MAX);
    ASSERT(m->o.discards == schedule_discards(&m->schedule, o->error_feedback_decay));
    *out = NULL;
    TRY_ALLOC(s = arena_alloc(perm, sizeof *s));
    s->env = w;
    s->own.link = l;
    s->replica = m;
    struct site_options *kept;
    TRY_ALLOC(kept = arena_alloc(perm, sizeof *kept));
    *kept = *o;
    s->o = kept;
    s->own.index = o->index;
    TRY_ALLOC(s->own.main = arena_alloc(perm, sizeof *s->own.main));
    s->own.config = identity_digest(o->canonical);
    s->own.clock_s = NAN;
    TRY(site_members_open(s, perm));
    TRY(w->ops->mutex_open(w, &s->mutex));
    TRY_ALLOC(s->own.metrics = arena_array(perm, m->fragments->count, sizeof *s->own.metrics));
    for (unsigned f = 0; f < m->fragments->count; f++)
        if (site_holds(s, f))
            TRY(metrics_open(&s->own.metrics[f], m->fragments->f[f].elements, perm));
    *out = s;
    TRY(site_slot_make(s->own.main, s, perm));
    TRY(site_identify(s));
    TRY(site_identity_open(s, perm));
    TRY(site_scrub_open(&s->own.scrub, s, perm));
    return site_slots_open(s, perm);
}

void site_close(struct site *s)
{
    if (!s)
        return;
    site_scrub_close(s);
    site_slots_end(s);
    site_slots_free(s);
    site_masks_close(s);
    s->env->ops->mutex_close(s->env, s->mutex);
    s->mutex = NULL;
}

/* ---- organs ---- */

static void organs_begin(struct site_slot *l)
{
    const struct organs_at_site *o = &l->site->o->organs;
    for (unsigned i = 0; i < o->count; i++)
        o->at[i].organ->begin(o->at[i].self, l);
}

static enum err organs_check(struct site_slot *l, const struct manifest *m)
{
    const struct organs_at_site *o = &l->site->o->organs;
    for (unsigned i = 0; i < o->count; i++)
        TRY(o->at[i].organ->check(o->at[i].self, l, m));
    return ERR_OK;
}

static enum err organs_adopted(struct site_slot *l, const struct organ_adopted *x)
{
    const struct organs_at_site *o = &l->site->o->organs;
    for (unsigned i = 0; i < o->count; i++)
        TRY(o->at[i].organ->adopted(o->at[i].self, l, x));
    return ERR_OK;
}

/* ---- rounds that are final ---- */

/* Rounds that a site can give up, one after the other. More than one is not final only where rounds
 * are aborted: each round that includes sites says that more than half of them had the one before.
 */
enum { FINAL_PATH_BYTES = 64, GIVEN_UP_MAX = 4 };

static void final_path(char out[FINAL_PATH_BYTES], unsigned fragment)
{
    snprintf(out, FINAL_PATH_BYTES, "final/%u", fragment);
}

static void final_fields(struct record_cursor *c, void *self)
{
    record_u64(c, self);
}

void site_index_take(struct site *s, unsigned index)
{
    s->own.index = index;
}

void site_final(struct site *s, unsigned fragment, uint64_t rounds)
{
    uint64_t here = s->replica->state[fragment].round;
    rounds = rounds < here ? rounds : here;
    if (rounds > s->own.final[fragment])
        s->own.final[fragment] = rounds;
    site_masks_final(s, fragment, s->own.final[fragment]);
}

uint64_t site_final_kept(const struct site *s, unsigned fragment)
{
    uint64_t round = s->replica->state[fragment].round, kept = s->own.final[fragment];
    uint64_t least = round > GIVEN_UP_MAX ? round - GIVEN_UP_MAX : 0;
    kept = kept > least ? kept : least;
    return kept < round ? kept : round;
}

static enum err final_load(struct site *s)
{
    for (unsigned f = 0; f < s->replica->fragments->count; f++) {
        if (!site_holds(s, f))
            continue;
        uint64_t rounds = 0, round = s->replica->state[f].round;
        struct record_form form = {"final", final_fields, &rounds};
        struct arena scratch = arena_make(0);
        char path[FINAL_PATH_BYTES];
        struct manifest m;
        struct record r;
        final_path(path, f);
        enum err e = store_read(s->env, path, &form, 0, &r, &scratch);
        arena_free(&scratch);
        if (e == ERR_OK)
            site_final(s, f, rounds);
        else if (e != ERR_INPUT && e != ERR_CORRUPT) /* damaged: the aggregator tells it again */
            return e;
        e = round ? outer_state_manifest(s->replica, f, round - 1, &m) : ERR_INPUT;
        if (e == ERR_OK)
            site_charges_take(s, &m);
        if (e == ERR_OK && !manifest_aborted(&m))
            site_final(s, f, m.round);
        else if (e == ERR_MEMORY)
            return e;
    }
    err_clear();
    return ERR_OK;
}

/* A later step back, also of another process, begins at an older manifest, which tells less. */
enum err site_final_keep(struct site *s, unsigned fragment)
{
    char path[FINAL_PATH_BYTES];
    uint64_t rounds = s->own.final[fragment];
    struct record_form form = {"final", final_fields, &rounds};
    final_path(path, fragment);
    return store_write(s->env, path, &form, NULL, 0);
}

bool site_step_back_due(const struct site *s, unsigned fragment)
{
    const struct site_asked *a = &s->asked[fragment];
    const struct outer_state_fragment *state = &s->replica->state[fragment];
    return a->round && a->round == state->round && digest_equal(&a->manifest, &state->manifest);
}

/* ---- S6: what a manifest must be ---- */

/* Of this run at all: enough for a snapshot, whose chain begins there. */
static enum err manifest_ours(struct site *s, unsigned fragment, uint64_t round,
                              const struct manifest *m)
{
    bool ours = !strcmp(m->run, s->o->run) && digest_equal(&m->config, &s->own.config) &&
                m->fragment == fragment && m->round == round &&
                (m->roster_version < 2 ? m->site_count : m->initial) == s->o->site_count;
    unsigned least = round_least(m->site_count, s->o->strict, &s->o->masks),
             have = manifest_included(m);
    bool enough = have >= least || MUTANT_HALF(HALF_ADOPTED, have, m->site_count);
    if (!ours)
        return err_set(ERR_PROTO,
                       "fragment %u round %" PRIu64
                       ": the aggregator sent the manifest of something else",
                       fragment, round);
    TRY(site_identity_check(s, m));
    if (!manifest_aborted(m) && !enough)
        return err_set(ERR_DISAGREE,
                       "fragment %u round %" PRIu64
                       ": %u of %u sites included, at least %u must be",
                       fragment, round, have, m->site_count, least);
    return ERR_OK;
}

/* The next one of our chain, with the codec and the size that configuration and state imply. */
static enum err manifest_next(struct site_slot *l, unsigned fragment, const struct manifest *m)
{
    struct site *s = l->site;
    const struct outer_state_fragment *state = &s->replica->state[fragment];
    size_t n = s->replica->fragments->f[fragment].elements;
    TRY(manifest_ours(s, fragment, state->round, m));
    if (!digest_equal(&m->parent, &state->manifest) && !MUTANT(MANIFEST_UNCHAINED))
        return err_set(ERR_DISAGREE,
                       "fragment %u round %" PRIu64 ": the manifest has another parent than ours",
                       fragment, m->round);
    TRY(organs_check(l, m));
    enum codec_kind kind = outer_state_codec(s->replica, fragment);
    const struct codec *c = codec_get(kind);
    unsigned payloads = schedule_payloads(&s->replica->schedule, kind, manifest_included(m));
    size_t most = m->rolled_back ? outer_state_snapshot_bytes(s->replica, fragment)
                                 : c->aggregate_max(c, n, payloads);
    if (m->codec != kind || m->aggregate_bytes > most)
        return err_set(ERR_PROTO,
                       "fragment %u round %" PRIu64 ": codec %u, aggregate of %" PRIu64
                       " bytes: not what this "
                       "state implies",
                       fragment, m->round, m->codec, m->aggregate_bytes);
    return ERR_OK;
}

/* ---- fetching ---- */

/* Until complete; ROUND_GONE is left to the caller. */
static enum err fetch_bytes(struct site_slot *l, enum wire_what what, unsigned fragment,
                            uint64_t round, size_t size, bool *gone)
{
    struct site *s = l->site;
    uint64_t start = s->env->ops->now_ms(s->env);
    struct wire_answer a = {.outcome =
                                ROUND_NONE}; /* after a cut it says which bytes are here already */
    TRY(site_download_grow(l, size));
    for (;;) {
        struct wire_fetch m = {.head = site_head(l, fragment),
                               .what = what,
                               .fragment = fragment,
                               .round = round,
                               .offset = a.offset};
        bool again;
        site_unlock(s);
        enum err e = s->own.link->ops->fetch(s->own.link, &m, l->download.bytes, size, &a);
        site_lock(s);
        TRY(site_called(l, e, &again));
        *gone = !again && a.outcome == ROUND_GONE;
        if (!again && (*gone || a.outcome == ROUND_NONE))
            break;
        if (again)
            continue;
        TRY(site_react(l, &a));
        a = (struct wire_answer){.outcome = ROUND_NONE};
    }
    l->times.fetch_ms += (double)(s->env->ops->now_ms(s->env) - start);
    return ERR_OK;
}

static enum err poll_manifest(struct site_slot *l, unsigned fragment, uint64_t round,
                              uint32_t hold_ms, struct wire_poll_answer *a)
{
    struct site *s = l->site;
    bool asked = false;
    a->answer.outcome = ROUND_REBIND;
    while (!site_step_back_due(s, fragment)) {
        struct wire_poll m = {.head = site_head(l, fragment), .fragment = fragment, .round = round};
        bool again;
        a->answer = (struct wire_answer){.outcome = ROUND_NONE};
        manifest_clear(&a->manifest);
        site_unlock(s);
        enum err e = s->own.link->ops->poll(s->own.link, &m, hold_ms, a);
        site_lock(s);
        l->polled_term = m.head.term;
        TRY(site_called(l, e, &again));
        if (again)
            continue;
        enum round_outcome o = a->answer.outcome;
        if (o == ROUND_COMMIT && !asked && !site_identity_signed(s, &a->manifest)) {
            asked = true; /* with another key: a hello brings its certificate */
            TRY(site_hello(l, true));
            continue;
        }
        if (o == ROUND_COMMIT || o == ROUND_PENDING || o == ROUND_GONE) {
            site_final(s, fragment, a->answer.final);
            site_polled(s, fragment, a->answer.round);
            return ERR_OK;
        }
        bool rebind = o == ROUND_REBIND;
        TRY(site_react(l, &a->answer));
        if (rebind) /* its memory of our contribution may have changed: the caller looks */
            return ERR_OK;
    }
    return ERR_OK;
}

/* Right before the commit point: was the manifest given by the aggregator that this site is bound
 * to now? Another slot may have said hello to a newer one since, and a commit of the older one that
 * the newer one does not have would be of another history. */
static bool manifest_outlived(const struct site_slot *l, unsigned fragment, uint64_t round)
{
    uint64_t now = l->site->peer[l->peer].term;
    if (l->polled_term == now)
        return false;
    log_event(LOG_WARN, "term_passed",
              "fragment=%u round=%" PRIu64 " polled=%" PRIu64 " bound=%" PRIu64
              " action=\"asking again\"",
              fragment, round, l->polled_term, now);
    return true;
}

/* The site's own part of a fragment, into or out of the slot: it must outlast calls, and the
 * `next` of the replica belongs to every slot. */
static void own_copy(const struct site *s, unsigned fragment, float *residual, double *discarded,
                     const float *residual_from, const double *discarded_from)
{
    size_t n = s->replica->fragments->f[fragment].elements;
    memcpy(residual, residual_from, n * sizeof *residual);
    if (discarded)
        memcpy(discarded, discarded_from, n * sizeof *discarded);
}

/* State `round` as bytes. own: keeps the residual of the slot; else it starts at zero.
 * *done false: the aggregator has committed further rounds in the meantime. */
static enum err snapshot_fetch(struct site_slot *l, unsigned fragment, uint64_t round, bool own,
                               bool *done)
{
    struct site *s = l->site;
    struct wire_poll_answer a;
    size_t size = outer_state_snapshot_bytes(s->replica, fragment);
    bool gone;
    ASSERT(round > 0);
    *done = false;
    TRY(poll_manifest(l, fragment, round - 1, 0, &a));
    if (a.answer.outcome != ROUND_COMMIT)
        return ERR_OK;
    TRY(manifest_ours(s, fragment, round - 1, &a.manifest));
    TRY(fetch_bytes(l, WIRE_SNAPSHOT, fragment, round, size, &gone));
    if (gone || manifest_outlived(l, fragment, round - 1))
        return ERR_OK;
    struct outer_state_fragment *next = &s->replica->next;
    if (own)
        own_copy(s, fragment, next->residual, next->discarded, l->residual, l->discarded);
    enum err e = outer_state_snapshot_adopt(s->replica, &a.manifest, l->download.bytes, size, own);
    if (e == ERR_PROTO) /* never loaded; asked for again */
        return ERR_OK;
    *done = e == ERR_OK;
    if (!*done)
        return e;
    TRY(organs_adopted(l, &(struct organ_adopted){.manifest = &a.manifest, .snapshot = true}));
    TRY(site_masks_adopted(s, &a.manifest));
    site_charges_take(s, &a.manifest);
    if (!manifest_aborted(&a.manifest))
        site_masks_final(s, fragment, round - 1);
    return ERR_OK;
}

/* The aggregates since our state are no longer kept: takes the newest state. */
static enum err jump_to_snapshot(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    for (bool done = false; !done;) {
        site_notice(l, "fetching a snapshot of fragment %u", fragment);
        (void)site_head(l, fragment);
        TRY(site_hello(l, true));
        if (site_step_back_due(s, fragment))
            return ERR_OK;
        if (s->there.round[fragment] == 0)
            return err_set(ERR_DISAGREE,
                           "fragment %u: the aggregator said that round %" PRIu64
                           " is gone, and says now that it has none: a second aggregator, or one "
                           "started from an older copy of its directory",
                           fragment, s->replica->state[fragment].round);
        TRY(snapshot_fetch(l, fragment, s->there.round[fragment], false, &done));
        if (!done) /* it has committed further rounds, or cannot read its own files: not at once
                      again */
            TRY(site_sleep(l, SNAPSHOT_RETRY_MS));
    }
    return site_outbox_prune(l, fragment);
}

/* ---- adopting a round ---- */

/* Our outer state is wrong although its inputs were right, twice: the aggregator's bytes replace
 * it, the residual is our own, of state `kept`. */
static enum err state_resync(struct site_slot *l, unsigned fragment, uint64_t round,
                             const struct outer_state_fragment *kept)
{
    bool done = false;
    l->box.valid = false; /* the slot's residual is no longer the box's */
    own_copy(l->site, fragment, l->residual, l->discarded, kept->residual, kept->discarded);
    log_event(LOG_WARN, "resync", "fragment=%u round=%" PRIu64, fragment, round);
    site_notice(l, "outer state of fragment %u differs from the aggregator's, replacing it",
                fragment);
    for (int i = 0; i < FETCHES_MAX && !done; i++)
        TRY(snapshot_fetch(l, fragment, round, true, &done));
    return done ? ERR_OK
                : err_set(ERR_DISAGREE,
                          "fragment %u: state %" PRIu64
                          " differs and no snapshot of it could be had",
                          fragment, round);
}

/* S7: the outer step, once more from the stored state when its digest is not the manifest's. */
static enum err outer_step(struct site_slot *l, const struct manifest *m)
{
    struct outer_state *replica = l->site->replica;
    enum err e = outer_state_replay(replica, m, l->download.bytes, m->aggregate_bytes);
    if (e != ERR_DISAGREE || manifest_aborted(m))
        return e;
    log_event(LOG_WARN, "state_differs", "fragment=%u round=%" PRIu64, m->fragment, m->round);
    TRY(outer_state_load_fragment(replica, m->fragment));
    return outer_state_replay(replica, m, l->download.bytes, m->aggregate_bytes);
}

/* After the step, while replica->mean is this round's and the state is the one before. */
static void metrics_of_round(struct site *s, unsigned fragment)
{
    const struct outer_state *m = s->replica;
    const struct outer_state_fragment *before = &m->state[fragment];
    const struct outer_opt o = outer_state_optimizer(m, fragment, before->round);
    struct outer_metrics_state *g = &s->own.metrics[fragment];
    const float *mean = codec_sample(m->work, m->mean, g->stride, g->count);
    const struct outer_opt_row *row = outer_opt_row(o.kind);
    const float *momentum = row->momentum && !row->interpolates ? before->slab[0] : NULL;
    bool other = o.delay > 1 || row->squares || row->interpolates; /* than gain's formula */
    metrics_round(g, before->round, mean, momentum, other ? NAN : momentum ? (double)o.mu : 0);
}

/* An aborted round: no aggregate, the state stays. What this site sent goes back into its residual
 * (docs/protocol.md 3.10). A round that was rolled back is an operator's act: the state is that of
 * an earlier round, and the work since is given up. */
static void aborted_tell(struct site_slot *l, unsigned fragment, const struct manifest *m)
{
    if (!m->rolled_back) {
        log_event(LOG_WARN, "round_aborted", "fragment=%u round=%" PRIu64, fragment, m->round);
        site_notice(l,
                    "round %" PRIu64 " of fragment %u was aborted: its work stays in the residual",
                    m->round, fragment);
        return;
    }
    log_event(LOG_WARN, "rolled_back", "fragment=%u round=%" PRIu64 " to=%" PRIu64, fragment,
              m->round, m->rolled_to);
    site_notice(l, "fragment %u is back at its state %" PRIu64 ", by an operator", fragment,
                m->rolled_to);
}

static enum err commit_round(struct site_slot *l, unsigned fragment, struct manifest *m)
{
    struct site *s = l->site;
    enum err e = ERR_PROTO;
    uint64_t start = s->env->ops->now_ms(s->env);
    TRY(manifest_next(l, fragment, m)); /* S6 */
    if (manifest_aborted(m))
        TRY(site_masks_abort(s, fragment, m->round));
    if (manifest_empty(m)) {
        aborted_tell(l, fragment, m);
        e = outer_step(l, m);
    }
    for (int i = 0; i < FETCHES_MAX && e == ERR_PROTO; i++) {
        bool gone;
        TRY(fetch_bytes(l, WIRE_AGGREGATE, fragment, m->round, m->aggregate_bytes, &gone));
        if (gone && manifest_outlived(l, fragment, m->round))
            return ERR_OK; /* of an aggregator that has ended: the next one has others */
        if (gone)
            return jump_to_snapshot(l, fragment);
        start = s->env->ops->now_ms(s->env);
        if (m->rolled_back)
            aborted_tell(l, fragment, m);
        e = outer_step(l, m); /* line 14; S7 */
    }
    if (manifest_outlived(l, fragment, m->round))
        return ERR_OK; /* the state is as before: the round is polled for once more */
    if (e == ERR_DISAGREE && m->round == 0)
        return err_set(ERR_MISMATCH,
                       "fragment %u: other initial parameters than the run's: other seed or build",
                       fragment);
    if (e != ERR_OK && e != ERR_DISAGREE)
        return e;
    if (e == ERR_OK && !manifest_aborted(m))
        metrics_of_round(s, fragment);
    TRY(site_outbox_commit(l, fragment, m)); /* S8 */
    bool sent = l->box.valid && l->box.fragment == fragment && l->box.round == m->round;
    if (e == ERR_DISAGREE)
        TRY(state_resync(l, fragment, m->round + 1, &s->replica->next));
    else
        TRY(outer_state_commit(s->replica, fragment, m,
                               manifest_empty(m) ? NULL : l->download.bytes,
                               m->aggregate_bytes)); /* S9, commit point */
    TRY(organs_adopted(l, &(struct organ_adopted){.manifest = m, .sent = sent}));
    TRY(site_masks_adopted(s, m));
    site_charges_take(s, m);
    if (!manifest_aborted(m)) /* more than half of the sites contributed to it, from this state */
        site_final(s, fragment, m->round);
    l->times.apply_ms += (double)(s->env->ops->now_ms(s->env) - start);
    return site_outbox_prune(l, fragment);
}

/* A strict round that is over without this site is one that an operator has closed. The site adopts
 * it at its own step of the round, with its contribution: so what it trains for the round goes into
 * its residual, whenever it hears of the act. */
static enum err closed_ahead(struct site_slot *l, unsigned fragment, const struct manifest *m,
                             bool *ahead)
{
    const struct manifest_entry *own = site_own_entry(l->site, m);
    *ahead = false;
    if (!l->site->o->strict || !manifest_aborted(m) || !own || own->reason == ROUND_ABORTED ||
        MUTANT(ABORT_EARLY))
        return ERR_OK;
    TRY(site_outbox_load(l, fragment, m->round));
    *ahead = !l->box.valid;
    return ERR_OK;
}

/* One poll about the round in flight; at most one state further. ahead: training may not
 * have come to the round; true: the round waits for it. NULL: it has. */
static enum err poll_round(struct site_slot *l, unsigned fragment, uint32_t hold_ms, bool *ahead)
{
    struct site *s = l->site;
    struct wire_poll_answer a;
    uint64_t start = s->env->ops->now_ms(s->env);
    if (site_step_back_due(s, fragment))
        return site_step_back(l, fragment);
    TRY(poll_manifest(l, fragment, s->replica->state[fragment].round, hold_ms, &a));
    uint64_t now = s->env->ops->now_ms(s->env);
    l->times.wait_ms += (double)(now - start);
    if (a.answer.outcome == ROUND_COMMIT && ahead)
        TRY(closed_ahead(l, fragment, &a.manifest, ahead));
    if (a.answer.outcome == ROUND_COMMIT)
        return ahead && *ahead ? ERR_OK : commit_round(l, fragment, &a.manifest);
    if (a.answer.outcome == ROUND_GONE)
        return jump_to_snapshot(l, fragment);
    if (a.answer.outcome == ROUND_PENDING && a.wants != WIRE_MASK_NONE)
        return site_masks_answer(l, fragment, s->replica->state[fragment].round, &a);
    if (a.answer.outcome == ROUND_PENDING && *a.answer.text)
        site_notice(l, "waiting for %s", a.answer.text);
    return now - start < PENDING_MS ? site_sleep(l, PENDING_MS) : ERR_OK;
}

static enum err fragment_catch_up(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    bool ahead = false;
    while (!ahead && s->replica->state[fragment].round < s->there.round[fragment])
        TRY(poll_round(l, fragment, 0, &ahead));
    return ERR_OK;
}

/* ---- start, part by part ---- */

/* After a hello: same round, other digest. */
static enum err compare_state(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    const struct outer_state_fragment *state = &s->replica->state[fragment];
    if (s->there.round[fragment] != state->round ||
        digest_equal(&s->there.state[fragment], &state->digest))
        return ERR_OK;
    if (state->round == 0)
        return err_set(ERR_MISMATCH,
                       "fragment %u: other initial parameters than the run's: other seed or build",
                       fragment);
    return state_resync(l, fragment, state->round, state);
}

/* Is the round before the first one with this site? Nothing is contributed to it. */
static bool round_early(const struct site *s, unsigned fragment, uint64_t round)
{
    return round < s->members.first[fragment];
}

/* The others may be waiting for bytes that are stored here: they go before the steps are repeated.
 */
static enum err send_stored(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    uint64_t round = s->replica->state[fragment].round;
    TRY(site_outbox_load(l, fragment, round));
    return l->box.valid && !round_early(s, fragment, round) ? site_outbox_send(l) : ERR_OK;
}

/* One look at the round in flight, which is before the first one with this site. adopt: it is
 * committed here too. */
static enum err join_poll(struct site_slot *l, unsigned fragment, bool adopt)
{
    struct site *s = l->site;
    struct wire_poll_answer a;
    uint64_t start = s->env->ops->now_ms(s->env);
    site_notice(l, "fragment %u: waiting for round %" PRIu64 ", the first one with this site",
                fragment, s->members.first[fragment]);
    if (adopt)
        return poll_round(l, fragment, HOLD_MS, NULL);
    TRY(poll_manifest(l, fragment, s->there.round[fragment], HOLD_MS, &a));
    bool soon = s->env->ops->now_ms(s->env) - start < PENDING_MS;
    return soon ? site_sleep(l, PENDING_MS) : ERR_OK;
}

/* A site that an operator has added begins with the state that its first round takes up, and has
 * none of the states before it: whether it can repeat the steps before it must not depend on when
 * it came. A site that is added again has a residual, and adopts one round after the other; one of
 * outer.sites may have been removed before it had adopted any. With
 * several aggregators it does not wait: the other one may have been told later, and its rounds in
 * flight may need a site that waits for this one. */
static enum err join_wait(struct site_slot *l, unsigned fragment, bool found)
{
    struct site *s = l->site;
    const uint64_t *here = &s->replica->state[fragment].round, *there = &s->there.round[fragment],
                   *first = &s->members.first[fragment];
    bool again = *here > 0 || (found && s->own.index < s->o->site_count);
    if (s->o->aggregators > 1 || *here >= *first)
        return ERR_OK;
    while ((again ? *here : *there) < *first)
        TRY(join_poll(l, fragment, again));
    /* Later rounds may hold its own work: these it adopts too. */
    return !again && *there == *first ? jump_to_snapshot(l, fragment) : ERR_OK;
}

/* ---- the round ---- */

enum err site_theta_to(struct site *s, unsigned fragment, uint64_t round, float *local)
{
    enum err e = MUTANT(REPLAY_NEWEST) ? ERR_INPUT
                                       : outer_state_load_theta(s->replica, fragment, round, local);
    if (e == ERR_INPUT) /* not kept: a snapshot brings none before it */
        return outer_state_load_theta(s->replica, fragment, s->replica->state[fragment].round,
                                      local);
    return e;
}

/* Quorum mode: can a round be committed without this site? */
static bool others_can(const struct site *s)
{
    struct round_masks masks = s->o->masks;
    if (MUTANT(SKIPPED_NEEDED))
        masks.on = false;
    return round_least(s->members.sites, s->o->strict, &masks) < s->members.sites;
}

/* No round needs what this site has trained for it: others have enough, or it is over. */
static bool round_spares(const struct site *s, unsigned fragment, uint64_t round)
{
    return others_can(s) || s->there.round[fragment] > round;
}

/* A stored contribution is sent. One that was accepted from this site but is no longer stored is
 * never encoded a second time. */
static enum err contribution_make(struct site_slot *l, const struct site_submission *w)
{
    struct site *s = l->site;
    unsigned f = w->fragment;
    uint64_t round = s->replica->state[f].round;
    if (round_early(s, f, round)) {
        l->box.valid = false;
        l->skipped = true;
        TRY(site_eager_drop(l, f, round));
        return site_eager_begin(l, w);
    }
    TRY(site_outbox_load(l, f, round));
    bool taken = s->there.round[f] == round && !digest_zero(&s->there.accepted[f]);
    if (!l->box.valid && !taken && site_withdrawn(s, f, round))
        TRY(site_outbox_make_again(l, f));
    if (l->box.valid)
        return site_eager_begin(l, w);
    if (taken) {
        log_event(LOG_WARN, "outbox_lost", "fragment=%u round=%" PRIu64, f, round);
        return site_eager_begin(l, w);
    }
    if (w->resend && round_spares(s, f, round)) { /* it was skipped, or its outbox is lost */
        l->skipped = true;
        return ERR_OK;
    }
    if (w->resend)
        return err_set(ERR_CORRUPT,
                       "outbox/%u/%" PRIu64
                       " is gone, and the parameters it was made of have been trained "
                       "on; remove the newest checkpoints in run.dir/inner, so that the steps are "
                       "repeated from before it",
                       f, round);
    struct site_announced_round announced;
    TRY(site_masks_announced(l, f, round, &announced)); /* may call: before shared memory is used */
    TRY(site_eager_others(l, w));
    enum err e = site_outbox_make(l, w, &announced, l->local);
    if (e != ERR_DIVERGED || !round_spares(s, f, round))
        return e;
    char quoted[512];
    log_event(LOG_ERROR, "skipped", "fragment=%u round=%" PRIu64 " why=%s", f, round,
              log_quote(quoted, sizeof quoted, err_message()));
    l->skipped = true;
    site_notice(l, "skips round %" PRIu64 ": %s", round, err_message());
    TRY(site_eager_drop(l, f, round));
    return site_eager_begin(l, w);
}

/* The next call of the fragment's round in flight; or a round given up. */
static enum err round_advance(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    uint64_t round = s->replica->state[fragment].round;
    bool here = l->box.valid && l->box.fragment == fragment && l->box.round == round;
    if (!site_step_back_due(s, fragment) && here && !l->box.received &&
        s->there.round[fragment] <= round)
        return site_outbox_send(l);                /* S4, S5 */
    return poll_round(l, fragment, HOLD_MS, NULL); /* S6 to S9 */
}

/* The fragment has advanced by a round, or has another parent than before. */
static enum err contribution_again(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    uint64_t round = s->replica->state[fragment].round;
    TRY(site_outbox_load(l, fragment, round));
    bool taken = s->there.round[fragment] == round && !digest_zero(&s->there.accepted[fragment]);
    bool makes = !l->box.valid && !taken && s->there.round[fragment] <= round &&
                 !round_early(s, fragment, round) && site_withdrawn(s, fragment, round);
    return makes ? site_outbox_make_again(l, fragment) : ERR_OK;
}

enum err site_round_run(struct site_slot *l, const struct site_submission *w)
{
    struct site *s = l->site;
    unsigned f = w->fragment;
    const struct outer_state_fragment *state = &s->replica->state[f];
    l->times = (struct site_times){0};
    l->skipped = false;
    if (state->round > w->round) {
        TRY(site_eager_begin(l, w));
        return site_theta_to(s, f, w->round + 1, l->local);
    }
    if (state->round < w->round)
        return err_set(ERR_INTERNAL, "fragment %u: round %" PRIu64 " is due before round %" PRIu64,
                       f, w->round, state->round);
    TRY(contribution_make(l, w)); /* lines 11, 12; S1 to S3 */
    site_slot_stored(l);
    struct digest parent = state->manifest;
    while (state->round <= w->round) {
        if (!digest_equal(&parent, &state->manifest))
            TRY(contribution_again(l, f));
        parent = state->manifest;
        TRY(round_advance(l, f));
        site_scrub_serve(s);
    }
    TRY(fragment_catch_up(l, f));
    return site_theta_to(s, f, state->round, l->local); /* line 15; S10 */
}

/* ---- report, start, leave ---- */

static bool fragment_ended(const struct site *s, unsigned fragment)
{
    return s->replica->state[fragment].round >= schedule_rounds(&s->replica->schedule, fragment);
}

bool site_ended(const struct site *s)
{
    bool ended = s->call.ends_known;
    for (unsigned f = 0; f < s->replica->fragments->count; f++)
        ended = ended && (!site_holds(s, f) || fragment_ended(s, f));
    return ended;
}

/* reported/F: digest of the last state, once the aggregator has confirmed that it knows of it. */
static void reported_path(char out[32], unsigned fragment)
{
    snprintf(out, 32, "reported/%u", fragment);
}

static bool state_reported(struct site *s, unsigned fragment)
{
    char path[32];
    struct arena scratch = arena_make(0);
    uint8_t *data;
    size_t size;
    reported_path(path, fragment);
    bool yes =
        s->env->ops->exists(s->env, path) &&
        s->env->ops->read(s->env, path, sizeof(struct digest), &scratch, &data, &size) == ERR_OK &&
        size == sizeof(struct digest) &&
        !memcmp(data, s->replica->state[fragment].digest.bytes, size);
    arena_free(&scratch);
    return yes;
}

/* Without it, a restart waits for the aggregator once more: a full disk does no harm. */
static enum err reported_keep(struct site *s, unsigned fragment)
{
    char path[32];
    const struct digest *d = &s->replica->state[fragment].digest;
    if (!fragment_ended(s, fragment))
        return ERR_OK;
    reported_path(path, fragment);
    enum err e =
        s->env->ops->write(s->env, path, &(struct file_part){d->bytes, sizeof d->bytes}, 1);
    return e == ERR_FULL ? ERR_OK : e;
}

/* The run was over when this process began, and the aggregator does not answer: the log says so at
 * once. True: the aggregator has confirmed the end before, and no process waits for this site. */
static bool run_over(struct site *s, unsigned fragment)
{
    if (s->call.heard)
        return false;
    bool confirmed = state_reported(s, fragment);
    if (!s->own.told_over)
        log_event(LOG_INFO, "complete", "text=\"all rounds are recorded here%s\"",
                  confirmed ? ", and the aggregator knows it"
                            : "; telling the aggregator, should it still wait");
    s->own.told_over = true;
    return confirmed;
}

/* The answer's time is between the two others. A long call gives no exact comparison. */
static void clock_compare(struct site *s, uint64_t before_ms, const struct wire_answer *a)
{
    uint64_t after_ms = s->env->ops->unix_ms(s->env);
    if (a->clock_ms && after_ms >= before_ms && after_ms - before_ms <= CLOCK_CALL_MS)
        s->own.clock_s = ((double)before_ms / 2 + (double)after_ms / 2 - (double)a->clock_ms) / 1e3;
}

double site_clock_s(struct site *s)
{
    site_lock(s);
    double clock_s = s->own.clock_s;
    site_unlock(s);
    return clock_s;
}

/* S11. */
enum err site_report_on(struct site_slot *l, const struct site_submission *w)
{
    struct site *s = l->site;
    unsigned fragment = w->fragment;
    const struct outer_state_fragment *state = &s->replica->state[fragment];
    uint64_t start = s->env->ops->now_ms(s->env);
    for (;;) {
        struct link_counters bytes;
        struct wire_answer a = {.outcome = ROUND_NONE};
        s->own.link->ops->counters(s->own.link, &bytes);
        struct wire_report m = {.head = site_head(l, fragment),
                                .fragment = fragment,
                                .round = state->round,
                                .state = state->digest,
                                .step = w->step,
                                .loss = s->o->masks.on ? NAN : w->loss, /* of one site's data */
                                .tokens_per_second = w->tokens_per_second,
                                .tokens = w->tokens,
                                .bytes_up = bytes.messages_up,
                                .bytes_down = bytes.messages_down};
        uint64_t before_ms = s->env->ops->unix_ms(s->env);
        site_unlock(s);
        enum err e = s->own.link->ops->report(s->own.link, &m, &a);
        site_lock(s);
        if (e == ERR_OK)
            clock_compare(s, before_ms, &a);
        if (e == ERR_LINK && !fragment_ended(s, fragment))
            return ERR_OK;
        if (e == ERR_LINK && run_over(s, fragment))
            return ERR_OK;
        if (e == ERR_LINK && s->env->ops->now_ms(s->env) - start > LAST_REPORT_MS) {
            log_event(LOG_WARN, "unreported",
                      "fragment=%u round=%" PRIu64
                      " text=\"all rounds are recorded here, and the aggregator has not confirmed "
                      "that it knows; if it still waits, start this site again: it only reports\"",
                      fragment, state->round);
            return ERR_OK;
        }
        bool again;
        TRY(site_called(l, e, &again));
        if (site_step_back_due(s, fragment)) /* it is no state of that aggregator's */
            return ERR_OK;
        if (again)
            continue;
        if (a.outcome == ROUND_CURRENT || a.outcome == ROUND_BEHIND)
            site_final(s, fragment, a.final);
        if (a.outcome == ROUND_CURRENT)
            return reported_keep(s, fragment);
        if (a.outcome == ROUND_BEHIND)
            return ERR_OK;
        if (a.outcome == ROUND_DIVERGED)
            return err_set(ERR_DISAGREE,
                           "fragment %u: our state %" PRIu64
                           " is not the aggregator's; a restart resyncs it",
                           fragment, state->round);
        TRY(site_react(l, &a));
    }
}

/* Reports a state that was committed here without a step of the trainer. No later report would, and
 * the run ends only when every site has reported the last round. */
static enum err report_standing(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    uint64_t round = s->replica->state[fragment].round;
    if (round == 0 || MUTANT(STANDING_UNTOLD))
        return ERR_OK;
    struct site_submission w = {.fragment = fragment,
                                .step = schedule_step(&s->replica->schedule, fragment, round - 1),
                                .loss = NAN,
                                .tokens_per_second = NAN};
    return site_report_on(l, &w);
}

/* Does this process talk to the aggregator: has it a fragment that this one serves? */
static bool peer_needed(const struct site *s, unsigned peer)
{
    for (unsigned f = peer; f < s->replica->fragments->count; f += site_peers(s))
        if (site_holds(s, f))
            return true;
    return false;
}

/* What the directory holds, once. */
static enum err states_load(struct site *s)
{
    s->own.found = outer_state_begun(s->replica);
    return s->own.found ? outer_state_load(s->replica) : ERR_OK;
}

static enum err prepare(struct site_slot *l, const float *initial_slab)
{
    struct site *s = l->site;
    bool found = s->own.found;
    TRY(final_load(s));
    for (l->peer = 0; l->peer < site_peers(s); l->peer++)
        if (peer_needed(s, l->peer))
            TRY(site_hello(l, found));
    if (!found)
        TRY(outer_state_begin(s->replica, initial_slab));
    s->own.prepared = true;
    return ERR_OK;
}

static enum err site_begin(struct site_slot *l, const float *initial_slab)
{
    struct site *s = l->site;
    if (!s->own.prepared) {
        TRY(states_load(s));
        TRY(prepare(l, initial_slab));
    }
    TRY(site_masks_begin(s)); /* once it has begun, a file that is missing is lost */
    if (!site_joint(s))
        TRY(store_begin(s->env));
    organs_begin(l);
    for (unsigned f = 0; f < s->replica->fragments->count; f++) {
        if (!site_holds(s, f))
            continue;
        TRY(site_members_try(l, f));
        while (site_step_back_due(s, f))
            TRY(site_step_back(l, f));
        TRY(compare_state(l, f));
        if (MUTANT(JOINED_BEFORE))
            TRY(fragment_catch_up(l, f));
        TRY(join_wait(l, f, s->own.found));
        TRY(fragment_catch_up(l, f));
        TRY(send_stored(l, f));
        TRY(report_standing(l, f));
    }
    s->own.started = true;
    return ERR_OK;
}

enum err site_prepare(struct site *s, const float *initial_slab)
{
    site_lock(s);
    enum err e = states_load(s);
    if (e == ERR_OK && !(s->own.found && site_ended(s)))
        e = prepare(s->own.main, initial_slab);
    return site_unlocked(s, e);
}

bool site_prepared(const struct site *s)
{
    return s->own.prepared;
}

enum err site_start(struct site *s, const float *initial_slab)
{
    site_lock(s);
    TRY(site_unlocked(s, site_begin(s->own.main, initial_slab)));
    return site_scrub_begin(s);
}

void site_drain(struct site *s)
{
    site_slots_drain(s);
    site_slots_end(s);
}

enum err site_leave(struct site *s, const char *why)
{
    struct wire_leave m;
    struct wire_answer a;
    site_drain(s); /* nothing is said after the good-bye */
    enum err e = ERR_OK;
    for (unsigned p = 0; e == ERR_OK && p < site_peers(s); p++) {
        m = (struct wire_leave){.head = site_head(s->own.main, p)};
        snprintf(m.text, sizeof m.text, "%s", why);
        e = s->own.link->ops->leave(s->own.link, &m, &a);
        e = e == ERR_LINK ? ERR_OK : e;
    }
    return e;
}

enum err site_theta(struct site *s, unsigned fragment, uint64_t round, float *theta)
{
    site_lock(s);
    return site_unlocked(s, site_theta_to(s, fragment, round, theta));
}

bool site_aggregator_key(struct site *s, unsigned aggregator, struct signer_key *out)
{
    site_lock(s);
    const struct site_peer p = s->peer[aggregator];
    site_unlock(s);
    *out = p.key;
    return p.signs;
}

uint32_t site_schedule_version(struct site *s)
{
    site_lock(s);
    uint32_t version = outer_state_schedule_version(s->replica);
    site_unlock(s);
    return version;
}

enum err site_prune(struct site *s, unsigned fragment, uint64_t oldest_round)
{
    site_lock(s);
    uint64_t kept = site_final_kept(s, fragment);
    return site_unlocked(
        s, outer_state_prune(s->replica, fragment, oldest_round < kept ? oldest_round : kept));
}
