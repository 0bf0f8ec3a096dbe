/* SPDX-License-Identifier: Apache-2.0 */
/* A round given up: an aggregator of a later term has committed the last round of this site
 * otherwise, and the round is not final (docs/protocol.md 3.4).
 *
 * The fragment goes back to the state before. Its contribution to the round given up stays in the
 * outbox and counts there as before, for any manifest of that round. The contribution after it, if
 * there is one, is withdrawn: it was made on the state given up. The training in it is stored in
 * withdrawn/F/<round>, and becomes the contribution to that round on the new parent, or goes into
 * the residual where the round is over. CURRENT is the commit point: before it the files written
 * here count for nothing, since the contribution in the outbox is still valid.
 */
#include <inttypes.h>
#include <stdio.h>
#include "kernels/base/log.h"
#include "outer/protocol/mutant.h"
#include "outer/site/site_own.h"
#include "outer/site/site_repair.h"

enum { PATH_BYTES = 64 };

/* ---- asked to ---- */

static enum err step_back_refuse(unsigned fragment, uint64_t round, const char *why)
{
    log_event(LOG_ERROR, "step_back_refused", "fragment=%u round=%" PRIu64 " why=\"%s\"", fragment,
              round, why);
    return err_set(ERR_DISAGREE,
                   "fragment %u: the aggregator wants this site to give up round %" PRIu64
                   ", and %s: it serves another history of this run",
                   fragment, round, why);
}

enum err site_step_back_asked(struct site *s, unsigned fragment,
                              const struct wire_fragment_state *shown)
{
    const struct outer_state_fragment *state = &s->replica->state[fragment];
    struct manifest m;
    uint64_t term = s->peer[fragment % site_peers(s)].term;
    if (shown->round == 0)
        return err_set(ERR_PROTO,
                       "fragment %u: the aggregator wants a round before the first one "
                       "given up",
                       fragment);
    if (shown->round != state->round || !digest_equal(&shown->manifest, &state->manifest))
        return ERR_OK; /* another slot's hello was answered before */
    uint64_t round = shown->round - 1;
    if (s->o->strict)
        return step_back_refuse(fragment, round, "the run is in strict mode");
    if (s->o->masks.on) /* its seal is signed: the round has no second one */
        return step_back_refuse(fragment, round, "the run has secure aggregation");
    if (s->own.final[fragment] > round && !MUTANT(FINAL_GIVEN_UP))
        return step_back_refuse(fragment, round,
                                "more than half of the sites have adopted it: it is final");
    TRY(outer_state_manifest(s->replica, fragment, round, &m));
    if (m.term >= term && !MUTANT(FINAL_GIVEN_UP))
        return step_back_refuse(fragment, round, "it is of no earlier term than the aggregator's");
    s->asked[fragment] = (struct site_asked){shown->round, shown->manifest};
    return ERR_OK;
}

/* ---- the training for the round after it ---- */

struct withdrawn {
    uint32_t fragment;
    struct site_submission w;
};

static void withdrawn_fields(struct record_cursor *c, void *self)
{
    struct withdrawn *x = self;
    record_u32(c, &x->fragment);
    record_u64(c, &x->w.round);
    record_f32(c, &x->w.weight);
    record_u64(c, &x->w.data_cursor);
    record_u64(c, &x->w.late);
}

static void withdrawn_path(char out[PATH_BYTES], unsigned fragment, uint64_t round)
{
    snprintf(out, PATH_BYTES, "withdrawn/%u/%" PRIu64, fragment, round);
}

bool site_withdrawn(const struct site *s, unsigned fragment, uint64_t round)
{
    char path[PATH_BYTES];
    withdrawn_path(path, fragment, round);
    return s->env->ops->exists(s->env, path);
}

enum err site_withdrawn_load(struct site *s, unsigned fragment, uint64_t round, float *values,
                             struct site_submission *w, bool *found)
{
    struct arena scratch = arena_make(0);
    char path[PATH_BYTES];
    struct withdrawn x = {0};
    struct record_form form = {"withdraw", withdrawn_fields, &x};
    struct record r;
    struct file_part part = {values, s->replica->fragments->f[fragment].elements * sizeof *values};
    *found = site_withdrawn(s, fragment, round);
    if (!*found)
        return ERR_OK;
    withdrawn_path(path, fragment, round);
    enum err e = store_read(s->env, path, &form, part.size_bytes, &r, &scratch);
    if (e == ERR_CORRUPT || (e == ERR_OK && !(x.fragment == fragment && x.w.round == round &&
                                              record_take(&r, 0, &part, 1))))
        e = err_set(ERR_CORRUPT,
                    "%s/%s: damaged; without it this site's work of the round is lost. Remove it "
                    "to continue without it",
                    s->env->root, path);
    arena_free(&scratch);
    *w = x.w;
    w->fragment = fragment;
    return e;
}

/* The contribution to the fragment's round in flight, if there is one. */
static enum err contribution_withdraw(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    uint64_t round = s->replica->state[fragment].round;
    float *trained = (float *)(void *)l->download.bytes; /* as large as a snapshot */
    char path[PATH_BYTES];
    TRY(site_outbox_load(l, fragment, round));
    if (!l->box.valid)
        return ERR_OK;
    TRY(site_outbox_trained(l, fragment, trained));
    struct withdrawn x = {fragment,
                          {.round = round,
                           .weight = l->box.made.weight,
                           .data_cursor = l->box.made.data_cursor,
                           .late = l->box.made.max_local_steps_offline}};
    struct record_form form = {"withdraw", withdrawn_fields, &x};
    struct file_part part = {trained,
                             s->replica->fragments->f[fragment].elements * sizeof *trained};
    struct record_section section = {.parts = &part, .part_count = 1};
    withdrawn_path(path, fragment, round);
    enum err e = store_write(s->env, path, &form, &section, 1);
    l->box.valid = false;
    return e;
}

enum err site_step_back(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    uint64_t given_up = s->replica->state[fragment].round - 1;
    ASSERT(site_step_back_due(s, fragment));
    TRY(contribution_withdraw(l, fragment));
    TRY(site_final_keep(s, fragment));
    enum err e = outer_state_step_back(s->replica, fragment); /* == COMMIT POINT == */
    if (e == ERR_INPUT || e == ERR_CORRUPT)
        return err_add(ERR_CORRUPT,
                       "fragment %u: round %" PRIu64 " is to be given up, and the state before it "
                       "is not kept; start with an empty directory: ",
                       fragment, given_up);
    TRY(e);
    log_event(LOG_WARN, "step_back", "fragment=%u round=%" PRIu64, fragment, given_up);
    site_notice(l, "gives up round %" PRIu64 " of fragment %u: the aggregator has another one",
                given_up, fragment);
    site_members_forget(s, fragment);
    (void)site_head(l, fragment);
    return site_hello(l, true);
}
