/* SPDX-License-Identifier: Apache-2.0 */
/* Eager starts (Eager Updates, 2502.12996): with the one-round delay a site that has sent round t
 * continues from an outer step of its own, from the committed state t, with D~ = mean(t-1) +
 * (own(t) - own(t-1)) / M, own fresh delta and the others' of one round ago: an estimate of the
 * state that round t will make. Formed as (others(t-1) + own(t)) / (weights of both), which is the
 * same where weights are equal; own is the decoded contribution, as in the mean. Others' values
 * that are not known (round 0, after a snapshot) count as zero. Exact set. The committed state
 * knows nothing of it; a start is the base of the site's next delta, so it is made once, stored
 * before the contribution, and then only read. The paper lets the replicas' own outer states drift;
 * here each start is a step from the committed state.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/site/site_own.h"
#include "outer/protocol/mutant.h"

enum { PATH_BYTES = 64 };

struct eager_key { /* of an eager start's file; its section: theta */
    uint32_t fragment;
    uint64_t round;
};

static size_t fragment_elements(const struct site *s, unsigned fragment)
{
    return s->replica->fragments->f[fragment].elements;
}

static void eager_path(char out[PATH_BYTES], unsigned fragment, uint64_t round)
{
    snprintf(out, PATH_BYTES, "eager/%u/%" PRIu64, fragment, round);
}

enum err site_eager_open(struct site_slot *l, size_t elements, struct arena *perm)
{
    TRY_ALLOC(l->eager.start = arena_array(perm, elements, sizeof *l->eager.start));
    return ERR_OK;
}

static bool eager_due(const struct site_slot *l, const struct site_submission *w)
{
    return l->eager.start && schedule_eager(&l->site->replica->schedule, w->fragment, w->round);
}

/* ---- the file ---- */

static void start_fields(struct record_cursor *c, void *self)
{
    struct eager_key *k = self;
    record_u32(c, &k->fragment);
    record_u64(c, &k->round);
}

static enum err start_write(struct site_slot *l, unsigned fragment, uint64_t round)
{
    char path[PATH_BYTES];
    struct eager_key key = {fragment, round};
    struct record_form form = {"eager", start_fields, &key};
    struct file_part values = {l->eager.start,
                               fragment_elements(l->site, fragment) * sizeof *l->eager.start};
    struct record_section section = {.parts = &values, .part_count = 1};
    eager_path(path, fragment, round);
    return store_write(l->site->env, path, &form, &section, 1);
}

enum err site_eager_load(struct site_slot *l, unsigned fragment, uint64_t round, float *base,
                         bool *found)
{
    struct env *w = l->site->env;
    struct arena scratch = arena_make(0);
    char path[PATH_BYTES];
    struct eager_key key = {0};
    struct record_form form = {"eager", start_fields, &key};
    struct record r;
    struct file_part values = {base, fragment_elements(l->site, fragment) * sizeof *base};
    eager_path(path, fragment, round);
    *found = !MUTANT(START_FORGOTTEN) && w->ops->exists(w, path);
    if (!*found)
        return ERR_OK;
    enum err e = store_read(w, path, &form, values.size_bytes, &r, &scratch);
    if (e == ERR_CORRUPT || (e == ERR_OK && !(key.fragment == fragment && key.round == round &&
                                              record_take(&r, 0, &values, 1))))
        e = err_set(ERR_CORRUPT,
                    "%s/%s: damaged; without it the start of the steps of fragment %u after "
                    "round %" PRIu64 " is not known",
                    w->root, path, fragment, round);
    arena_free(&scratch);
    return e;
}

enum err site_eager_drop(struct site_slot *l, unsigned fragment, uint64_t round)
{
    char path[PATH_BYTES];
    eager_path(path, fragment, round);
    return l->eager.start ? l->site->env->ops->forget(l->site->env, path) : ERR_OK;
}

enum err site_moved(struct site *s, unsigned fragment)
{
    char path[PATH_BYTES];
    if (!s->replica->schedule.eager)
        return ERR_OK;
    snprintf(path, sizeof path, "eager/%u", fragment);
    s->env->ops->lock(s->env, s->mutex);
    enum err e = s->env->ops->forget(s->env, path);
    s->env->ops->unlock(s->env, s->mutex);
    return e;
}

/* ---- the start ---- */

/* Decodes this site's contribution to a round, on the grid of the replica's `next`, to `own`
 * (device); the slot's box is then that round's. *known false: it is not stored here. */
static enum err own_decoded(struct site_slot *l, float *own, unsigned fragment, uint64_t round,
                            bool *known)
{
    struct outer_state *m = l->site->replica;
    enum err e = site_outbox_load(l, fragment, round);
    *known = e == ERR_OK && l->box.valid;
    if (!*known)
        return e == ERR_CORRUPT ? ERR_OK : e;
    return outer_state_decode(m, fragment, l->box.made.codec, own,
                              &(struct codec_payload){l->payload.bytes, l->box.made.payload_bytes},
                              m->next.codes);
}

/* all * mean - own; a lost contribution counts as the mean was. */
static enum err others_of(struct site_slot *l, const struct site_submission *w, float all,
                          float mine)
{
    struct outer_state *m = l->site->replica;
    size_t n = fragment_elements(l->site, w->fragment);
    float *own = staging_at(&m->staging, STAGING_THETA, m->next.theta); /* free until the step */
    float *sum = staging_at(&m->staging, STAGING_BESIDE, l->eager.start);
    bool known = false;
    if (mine > 0)
        TRY(own_decoded(l, own, w->fragment, w->round - 1, &known));
    l->eager.others = all - mine;
    m->dev->ops->zero(m->dev, sum, n * sizeof *sum);
    m->dev->ops->axpy(m->dev, sum, m->mean, known ? all : l->eager.others, n);
    if (known)
        m->dev->ops->axpy(m->dev, sum, own, -1, n);
    staging_out(&m->staging, l->eager.start, sum, n);
    return dev_sync(m->dev);
}

enum err site_eager_others(struct site_slot *l, const struct site_submission *w)
{
    struct site *s = l->site;
    struct manifest last;
    if (!eager_due(l, w))
        return ERR_OK;
    unsigned sites;
    TRY(site_members_count(l, w->fragment, &sites));
    memset(l->eager.start, 0, fragment_elements(s, w->fragment) * sizeof *l->eager.start);
    l->eager.others = (float)(sites - 1) * w->weight; /* not heard: as many as there are */
    if (w->round == 0)
        return ERR_OK;
    enum err e = outer_state_mean(s->replica, w->fragment, w->round - 1, &last);
    if (e == ERR_INPUT || e == ERR_CORRUPT) {
        log_event(LOG_WARN, "eager_alone",
                  "fragment=%u round=%" PRIu64 " why=\"there is no mean of the round before here\"",
                  w->fragment, w->round);
        return ERR_OK;
    }
    TRY(e);
    const struct manifest_entry *own = site_own_entry(s, &last);
    float mine = own && own->included ? own->weight : 0;
    return others_of(l, w, manifest_weight(&last), mine);
}

enum err site_eager_make(struct site_slot *l, const struct site_submission *w)
{
    struct outer_state *m = l->site->replica;
    const struct outer_state_fragment *state = &m->state[w->fragment];
    size_t n = fragment_elements(l->site, w->fragment);
    float all = l->eager.others + w->weight;
    if (!eager_due(l, w))
        return ERR_OK;
    TRY(outer_state_decode(m, w->fragment, l->box.made.codec, m->mean,
                           &(struct codec_payload){l->payload.bytes, l->box.made.payload_bytes},
                           state->codes));
    m->dev->ops->axpy(m->dev, m->mean, staging_in(&m->staging, STAGING_BESIDE, l->eager.start, n),
                      1, n);
    m->dev->ops->div_scalar(m->dev, m->mean, all, n);
    TRY(outer_state_ahead(m, w->fragment, l->eager.start));
    return start_write(l, w->fragment, w->round);
}

enum err site_eager_begin(struct site_slot *l, const struct site_submission *w)
{
    struct site *s = l->site;
    bool found;
    if (w->resend || !eager_due(l, w))
        return ERR_OK;
    TRY(site_eager_load(l, w->fragment, w->round, l->eager.start, &found));
    return found ? ERR_OK : site_theta_to(s, w->fragment, w->round, l->eager.start);
}
