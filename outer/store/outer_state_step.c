/* SPDX-License-Identifier: Apache-2.0 */
/* The outer step and the commit. The step is DiLoCo's (2311.08105, Algorithm 1, line 14), on the
 * mean that the aggregate decodes to. */
#include "outer/store/outer_state_own.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/protocol/mutant.h"

/* ---- codec, grid and optimizer of the next round ---- */

enum codec_kind outer_state_codec(const struct outer_state *m, unsigned fragment)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    return schedule_codec(&m->schedule, fragment, s->round, s->residual_ratio);
}

static struct digest grid_of(const struct outer_state *m, const struct outer_state_fragment *s,
                             unsigned fragment)
{
    return digest_of(s->codes, outer_state_elements(m, fragment) / DEV_BLOCK);
}

struct digest outer_state_grid(const struct outer_state *m, unsigned fragment)
{
    return grid_of(m, &m->state[fragment], fragment);
}

struct outer_opt outer_state_optimizer(const struct outer_state *m, unsigned fragment,
                                       uint64_t round)
{
    struct outer_opt o = *outer_state_configured(&m->o, fragment);
    bool early = MUTANT(AMENDED_EARLY) && !m->o.residuals &&
                 round + 1 < schedule_rounds(&m->schedule, fragment);
    const struct schedule_change *changed = schedule_changed(&m->schedule, fragment, round + early);
    if (changed && m->fragments->f[fragment].state == FRAGMENT_PARAMETERS)
        o.lr = changed->lr;
    o.lr = anneal_rate(&o.anneal, o.lr, &m->schedule, fragment, round);
    if (outer_opt_row(o.kind)->momentum)
        o.mu = anneal_momentum(&o.anneal, o.mu, &m->schedule, fragment, round);
    o.ends = schedule_last(&m->schedule, fragment, round);
    return o;
}

struct codec_call outer_state_call(const struct outer_state *m, unsigned fragment,
                                   const uint8_t *grid)
{
    const struct fragment *f = &m->fragments->f[fragment];
    return (struct codec_call){.work = m->work,
                               .grid = grid,
                               .count = f->elements,
                               .view = &f->view,
                               .state = m->state[fragment].codec_state};
}

enum err outer_state_decode(struct outer_state *m, unsigned fragment, enum codec_kind kind,
                            float *values, const struct codec_payload *payload, const uint8_t *grid)
{
    const struct codec *c = codec_get(kind);
    struct codec_call call = outer_state_call(m, fragment, grid);
    return c->decode(c, &call, values, payload->data, payload->size_bytes);
}

/* ---- the outer step ---- */

/* Are these the bytes that the manifest names as its aggregate? */
static bool aggregate_good(const struct manifest *manifest, const struct codec_payload *bytes)
{
    struct digest d = digest_of(bytes->data, bytes->size_bytes);
    return manifest->aggregate_bytes == bytes->size_bytes && digest_equal(&manifest->aggregate, &d);
}

/* What the manifest says about its inputs, before anything is decoded. */
static enum err inputs_check(const struct outer_state *m, const struct outer_state_fragment *s,
                             const struct manifest *manifest, const struct codec_payload *aggregate)
{
    unsigned fragment = manifest->fragment;
    struct digest grid = grid_of(m, s, fragment);
    if (!aggregate_good(manifest, aggregate))
        return err_set(ERR_PROTO,
                       "fragment %u round %" PRIu64 ": the aggregate is not the manifest's",
                       fragment, s->round);
    if (!digest_equal(&manifest->state_before, &s->digest) || !digest_equal(&manifest->grid, &grid))
        return err_set(ERR_DISAGREE,
                       "fragment %u: our state %" PRIu64 " is not the one the round was made from",
                       fragment, s->round);
    return ERR_OK;
}

/* Sums of squares in f64 do not overflow: they are finite where every value is. Theta's is kept. */
static enum err finite_check(struct outer_state *m, unsigned fragment, uint64_t round,
                             const struct outer_opt_state *next)
{
    for (unsigned i = 0; i < 1 + OUTER_SLABS; i++) {
        const float *part = i ? next->slab[i - 1] : next->theta;
        double sum = 0;
        if (part)
            TRY(codec_squares(m->work, &sum, part, NULL, outer_state_elements(m, fragment)));
        if (!isfinite(sum))
            return err_set(ERR_DIVERGED,
                           "fragment %u round %" PRIu64
                           ": the outer step gives values that are not finite",
                           fragment, round);
        if (i == 0)
            m->next.squares = sum;
    }
    return ERR_OK;
}

/* Values that took no part in the round: theta and the slabs stay as before. */
static void held_keep(struct outer_state *m, const struct outer_state_fragment *s,
                      unsigned fragment, const struct outer_opt_state *at)
{
    size_t n = stages_held(&m->stages, &m->schedule, fragment, s->round);
    for (size_t i = 0; i < n; i++)
        for (unsigned k = 0; k < 1 + OUTER_SLABS; k++) {
            const struct dev_range *held = &m->stages.ranges[i];
            float *to = k ? at->slab[k - 1] : at->theta;
            const float *from = k ? s->slab[k - 1] : s->theta;
            if (to)
                m->dev->ops->copy(m->dev, to + held->offset, from + held->offset,
                                  held->count * sizeof *to);
        }
}

/* The layers that the next stage adds. Nothing has changed their slabs yet. */
static void layers_add(const struct outer_state *m, unsigned fragment, uint64_t round, float *theta,
                       uint8_t *codes)
{
    size_t n = stages_growth(&m->stages, &m->schedule, fragment, round);
    for (size_t i = 0; i < n; i++) {
        const struct depth_copy *c = &m->stages.copies[i];
        m->dev->ops->copy(m->dev, theta + c->to, theta + c->from, c->count * sizeof *theta);
        memcpy(codes + c->to / DEV_BLOCK, codes + c->from / DEV_BLOCK,
               (c->count + DEV_BLOCK - 1) / DEV_BLOCK);
    }
}

/* The outer step with m->mean, from state s into `next`. */
static enum err state_advance(struct outer_state *m, const struct outer_state_fragment *s,
                              unsigned fragment)
{
    struct outer_state_fragment *next = outer_state_next(m, fragment);
    size_t n = outer_state_elements(m, fragment);
    struct staging *g = &m->staging;
    struct outer_opt_state at = {.theta = staging_take(g, STAGING_THETA, next->theta, s->theta, n)};
    for (unsigned i = 0; i < OUTER_SLABS; i++)
        at.slab[i] = staging_take(g, STAGING_BESIDE + i, next->slab[i], s->slab[i], n);
    struct outer_opt o = outer_state_optimizer(m, fragment, s->round);
    if (outer_opt_restarts(&o, &m->schedule, fragment, s->round))
        m->dev->ops->zero(m->dev, at.slab[0], n * sizeof *at.slab[0]);
    outer_opt_step(m->dev, &o, &at, m->mean, s->round, n);
    held_keep(m, s, fragment, &at);
    layers_add(m, fragment, s->round, at.theta, next->codes);
    TRY(finite_check(m, fragment, s->round, &at));
    staging_out(g, next->theta, at.theta, n);
    for (unsigned i = 0; i < OUTER_SLABS; i++)
        staging_out(g, next->slab[i], at.slab[i], n);
    staging_keep(g, STAGING_THETA, next->theta);
    return dev_sync(m->dev);
}

enum err outer_state_ahead(struct outer_state *m, unsigned fragment, float *theta)
{
    TRY(state_advance(m, &m->state[fragment], fragment));
    memcpy(theta, m->next.theta, outer_state_elements(m, fragment) * sizeof *theta);
    return ERR_OK;
}

/* m->mean, and the codes that follow from an aggregate on the grid `codes`. */
static enum err mean_of(struct outer_state *m, unsigned fragment, const struct manifest *manifest,
                        const struct codec_payload *aggregate, uint8_t *next, const uint8_t *codes)
{
    const struct codec *c = codec_get(manifest->codec);
    if (!c || !manifest_included(manifest))
        return err_set(ERR_PROTO,
                       "fragment %u round %" PRIu64 ": a manifest without codec or contributions",
                       fragment, manifest->round);
    struct codec_call call = outer_state_call(m, fragment, codes);
    if (!isfinite(manifest_weight(manifest)))
        return err_set(ERR_DIVERGED,
                       "fragment %u round %" PRIu64 ": the sum of weights is not finite", fragment,
                       manifest->round);
    enum merge_kind merge = outer_state_configured(&m->o, fragment)->merge;
    float weights[ROUND_SITES_MAX], factors[ROUND_SITES_MAX];
    struct merge_input in = {
        .aggregate = {aggregate->data, aggregate->size_bytes,
                      schedule_payloads(&m->schedule, c->kind, manifest_included(manifest)),
                      manifest_weight(manifest)},
        .weights = weights,
        .length_max = outer_state_configured(&m->o, fragment)->length_max};
    manifest_weights(manifest, weights);
    if (manifest_factors(manifest, factors))
        in.factors = factors;
    if (in.factors && in.aggregate.n != manifest_included(manifest))
        return err_set(ERR_PROTO,
                       "fragment %u round %" PRIu64
                       ": factors for contributions of which only the sum is there",
                       fragment, manifest->round);
    if (merge_reads_each(merge) || in.factors) /* both are free until the step */
        in.values = staging_at(&m->staging, STAGING_BESIDE, m->next.theta);
    return merge_apply(merge, c, &call, m->mean, next, &in);
}

static enum err mean_again(struct outer_state *m, unsigned fragment,
                           const struct manifest *manifest, const uint8_t *aggregate,
                           struct arena *scratch)
{
    uint8_t *next;
    TRY_ALLOC(next = arena_alloc(scratch, outer_state_elements(m, fragment) / DEV_BLOCK));
    const struct codec_payload payload = {aggregate, manifest->aggregate_bytes};
    return mean_of(m, fragment, manifest, &payload, next, m->next.codes);
}

enum err outer_state_mean(struct outer_state *m, unsigned fragment, uint64_t round,
                          struct manifest *manifest)
{
    struct arena scratch = arena_make(0);
    struct outer_state_fragment before = *outer_state_next(m, fragment);
    struct file_map aggregate = {0};
    enum err e = outer_state_manifest(m, fragment, round, manifest);
    if (e == ERR_OK && manifest_aborted(manifest))
        e = err_set(ERR_INPUT, "fragment %u round %" PRIu64 " was aborted: it has no mean",
                    fragment, round);
    if (e == ERR_OK)
        e = outer_state_aggregate(m, fragment, round, &aggregate);
    if (e == ERR_OK)
        e = outer_state_read(m, fragment, round, &before);
    if (e == ERR_OK)
        e = mean_again(m, fragment, manifest, aggregate.data, &scratch);
    m->env->ops->unmap(m->env, &aggregate);
    arena_free(&scratch);
    return e;
}

/* ---- one round further ---- */

static void parts_copy(const struct file_part *to, const struct file_part *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memcpy((void *)(uintptr_t)to[i].data, from[i].data, to[i].size_bytes);
}

/* An included round: from state s, and the aggregate, into `next`. */
static enum err next_step(struct outer_state *m, const struct outer_state_fragment *s,
                          const struct manifest *manifest, const struct codec_payload *aggregate)
{
    unsigned fragment = manifest->fragment;
    TRY(mean_of(m, fragment, manifest, aggregate, outer_state_next(m, fragment)->codes, s->codes));
    TRY(state_advance(m, s, fragment));
    m->next.round = s->round + 1;
    outer_state_sum(m, fragment, &m->next);
    return ERR_OK;
}

/* An aborted round: `next` is state s, grown where the round ends a stage. */
static enum err next_same(struct outer_state *m, const struct outer_state_fragment *s,
                          unsigned fragment)
{
    struct outer_state_fragment *next = outer_state_next(m, fragment);
    struct file_part from[SHARED_MAX], to[SHARED_MAX];
    size_t elements = outer_state_elements(m, fragment);
    outer_state_shared_parts(next, elements, to);
    parts_copy(to, from, outer_state_shared_parts(s, elements, from));
    next->round = s->round + 1;
    layers_add(m, fragment, s->round, next->theta, next->codes);
    TRY(dev_sync(m->dev));
    outer_state_sum(m, fragment, next);
    return ERR_OK;
}

/* `next` is the state that the bytes are: of a snapshot, or of a round that was rolled back. False:
 * they are not the manifest's state. */
static bool next_bytes(struct outer_state *m, const struct manifest *manifest,
                       const struct codec_payload *bytes)
{
    struct outer_state_fragment *next = outer_state_next(m, manifest->fragment);
    struct file_part parts[SHARED_MAX];
    size_t n = outer_state_shared_parts(next, outer_state_elements(m, manifest->fragment), parts);
    if (bytes->size_bytes != outer_state_parts_bytes(parts, n))
        return false;
    outer_state_parts_fill(parts, n, bytes->data);
    next->round = manifest->round + 1;
    outer_state_sum(m, manifest->fragment, next);
    return digest_equal(&next->digest, &manifest->state_after);
}

static void round_check(const struct outer_state_fragment *s, const struct manifest *manifest)
{
    ASSERT(manifest->round == s->round);
    ASSERT(digest_equal(&manifest->parent, &s->manifest));
}

static struct outer_state_fragment *manifest_begin(struct outer_state *m, struct manifest *manifest)
{
    struct outer_state_fragment *s = &m->state[manifest->fragment];
    round_check(s, manifest);
    manifest->state_before = s->digest;
    manifest->grid = outer_state_grid(m, manifest->fragment);
    return s;
}

enum err outer_state_apply(struct outer_state *m, struct manifest *manifest,
                           const uint8_t *aggregate, size_t aggregate_bytes)
{
    const struct outer_state_fragment *s = manifest_begin(m, manifest);
    manifest->aggregate = digest_of(aggregate, aggregate_bytes);
    manifest->aggregate_bytes = aggregate_bytes;
    TRY(next_step(m, s, manifest, &(struct codec_payload){aggregate, aggregate_bytes}));
    manifest->state_after = m->next.digest;
    return ERR_OK;
}

/* What the residuals of the round before hold waits on; after a residual reset it is gone, and
 * they hold this round's work alone. */
static uint8_t abort_residual_ratio(const struct outer_state *m,
                                    const struct outer_state_fragment *s)
{
    return schedule_resets_residual(&m->schedule, s->residual_ratio) ? 0 : s->residual_ratio;
}

enum err outer_state_abort(struct outer_state *m, struct manifest *manifest)
{
    const struct outer_state_fragment *s = manifest_begin(m, manifest);
    ASSERT(manifest_aborted(manifest));
    manifest->residual_ratio = abort_residual_ratio(m, s);
    TRY(next_same(m, s, manifest->fragment));
    manifest->state_after = m->next.digest;
    return ERR_OK;
}

enum err outer_state_replay_from(struct outer_state *m, const struct outer_state_fragment *s,
                                 const struct manifest *manifest, const struct codec_payload *bytes)
{
    unsigned fragment = manifest->fragment;
    round_check(s, manifest);
    if (manifest->rolled_back)
        return aggregate_good(manifest, bytes) && next_bytes(m, manifest, bytes)
                   ? ERR_OK
                   : err_set(ERR_PROTO,
                             "fragment %u round %" PRIu64
                             ": these bytes are not the state rolled back to",
                             fragment, manifest->round);
    if (!manifest_aborted(manifest))
        TRY(inputs_check(m, s, manifest, bytes));
    else if (!digest_equal(&manifest->state_before, &s->digest))
        return err_set(ERR_DISAGREE,
                       "fragment %u: our state %" PRIu64 " is not the one whose round was aborted",
                       fragment, s->round);
    TRY(manifest_aborted(manifest) ? next_same(m, s, fragment) : next_step(m, s, manifest, bytes));
    if (!digest_equal(&manifest->state_after, &m->next.digest))
        return err_set(ERR_DISAGREE, "fragment %u: our state %" PRIu64 " is not the manifest's",
                       fragment, m->next.round);
    return ERR_OK;
}

enum err outer_state_replay(struct outer_state *m, const struct manifest *manifest,
                            const uint8_t *bytes, size_t size_bytes)
{
    return outer_state_replay_from(m, &m->state[manifest->fragment], manifest,
                                   &(struct codec_payload){bytes, size_bytes});
}

/* ---- an operator's act ---- */

void outer_state_own_keep(struct outer_state *m, unsigned fragment)
{
    struct file_part from[OWN_MAX], to[OWN_MAX];
    size_t elements = outer_state_elements(m, fragment);
    outer_state_own_parts(&m->next, elements, to);
    parts_copy(to, from, outer_state_own_parts(&m->state[fragment], elements, from));
}

void outer_state_give_up(struct outer_state *m, unsigned fragment)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    size_t n = outer_state_elements(m, fragment);
    for (size_t i = 0; m->next.discarded && i < n; i++)
        m->next.discarded[i] = s->discarded[i] + (double)s->residual[i];
    if (m->next.residual)
        memset(m->next.residual, 0, n * sizeof *m->next.residual);
}

enum err outer_state_roll_back(struct outer_state *m, unsigned fragment, struct manifest *manifest,
                               uint64_t to)
{
    const struct outer_state_fragment *s = manifest_begin(m, manifest);
    struct outer_state_fragment *next = outer_state_next(m, fragment), kept = *next;
    struct file_part parts[SHARED_MAX];
    struct file_map map;
    size_t elements = outer_state_elements(m, fragment);
    ASSERT(to < s->round && manifest_aborted(manifest));
    TRY(outer_state_read(m, fragment, to, &kept));
    next->round = s->round + 1;
    outer_state_sum(m, fragment, next);
    size_t n = outer_state_shared_parts(next, elements, parts);
    TRY(outer_state_aggregate_put(m, fragment, parts, n, &map));
    manifest->aggregate = digest_of(map.data, map.size_bytes);
    m->env->ops->unmap(m->env, &map);
    outer_state_give_up(m, fragment);
    manifest->rolled_back = true;
    manifest->rolled_to = to;
    manifest->state_after = next->digest;
    manifest->aggregate_bytes = outer_state_parts_bytes(parts, n);
    return ERR_OK;
}

/* ---- the commit ---- */

static enum err squares_find(struct outer_state *m, unsigned fragment,
                             struct outer_state_fragment *s)
{
    size_t n = outer_state_elements(m, fragment);
    if (s->squares >= 0)
        return ERR_OK;
    const float *theta = staging_in(&m->staging, STAGING_THETA, s->theta, n);
    staging_keep(&m->staging, STAGING_THETA, s->theta);
    return codec_squares(m->work, &s->squares, theta, NULL, n);
}

enum err outer_state_rms(struct outer_state *m, unsigned fragment, float *rms)
{
    struct outer_state_fragment *s = &m->state[fragment];
    TRY(squares_find(m, fragment, s));
    *rms = (float)sqrt(s->squares / (double)outer_state_elements(m, fragment));
    return ERR_OK;
}

/* All arrays of `next` but the codes, which are the last of the shared parts. */
static void arrays_copy(struct outer_state *m, unsigned fragment)
{
    struct outer_state_fragment *s = &m->state[fragment];
    struct file_part to[PARTS_MAX], from[PARTS_MAX];
    size_t n = outer_state_elements(m, fragment);
    size_t k = outer_state_shared_parts(s, n, to) - 1;
    outer_state_shared_parts(&m->next, n, from);
    outer_state_own_parts(&m->next, n, from + k);
    parts_copy(to, from, k + outer_state_own_parts(s, n, to + k));
    staging_forget(&m->staging, s->theta);
    if (staging_kept(&m->staging, STAGING_THETA, m->next.theta))
        staging_keep(&m->staging, STAGING_THETA, s->theta);
}

void outer_state_next_name(struct outer_state *m, const struct manifest *manifest)
{
    m->next.manifest = manifest_digest(manifest);
    m->next.residual_ratio = manifest_residual_ratio(manifest);
}

/* `next`, complete, becomes durable. aggregate NULL: there is none (from a snapshot), or its file
 * is complete already. */
static enum err next_store(struct outer_state *m, unsigned fragment,
                           const struct manifest *manifest, const uint8_t *aggregate,
                           size_t aggregate_bytes)
{
    char path[PATH_BYTES];
    outer_state_next_name(m, manifest);
    outer_state_path(path, fragment, m->next.round, "aggregate");
    if (aggregate)
        TRY(m->env->ops->write(m->env, path, &(struct file_part){aggregate, aggregate_bytes}, 1));
    else if (manifest_empty(manifest)) /* a gathered one was written before the outer step */
        TRY(m->env->ops->remove(m->env, path));
    TRY(outer_state_manifest_write(m, manifest));
    if (MUTANT(CURRENT_FIRST))
        TRY(outer_state_current_write(m, fragment, &m->next));
    return outer_state_write(m, fragment, &m->next);
}

enum err outer_state_store(struct outer_state *m, unsigned fragment,
                           const struct manifest *manifest, const uint8_t *aggregate,
                           size_t aggregate_bytes)
{
    ASSERT(m->next.round == m->state[fragment].round + 1 && manifest->round + 1 == m->next.round);
    ASSERT(digest_equal(&manifest->state_after, &m->next.digest));
    if (!m->o.residuals) /* a site has no use for it */
        TRY(squares_find(m, fragment, &m->next));
    return next_store(m, fragment, manifest, aggregate, aggregate_bytes);
}

enum err outer_state_next_pass(struct outer_state *m, unsigned fragment)
{
    TRY(m->env->ops->owned(m->env));
    TRY(outer_state_current_write(m, fragment, &m->next)); /* == COMMIT POINT == */
    arrays_copy(m, fragment);
    return ERR_OK;
}

/* After the commit point: what a full disk leaves goes with the next commit. */
static enum err next_prune(struct outer_state *m, unsigned fragment)
{
    uint64_t more = m->o.states > OUTER_STATES_MIN ? m->o.states - 1 : 0;
    uint64_t oldest = m->next.round > more ? m->next.round - more : 0;
    enum err e = outer_state_prune_before(m, fragment, m->next.round,
                                          m->o.residuals ? m->pruned[fragment] : oldest);
    return e == ERR_FULL || e == ERR_MEMORY ? ERR_OK : e;
}

enum err outer_state_pass(struct outer_state *m, unsigned fragment)
{
    TRY(outer_state_next_pass(m, fragment));
    return next_prune(m, fragment);
}

void outer_state_switch(struct outer_state *m, unsigned fragment)
{
    struct outer_state_fragment *s = &m->state[fragment];
    memcpy(s->codes, m->next.codes, outer_state_elements(m, fragment) / DEV_BLOCK);
    s->round = m->next.round;
    s->manifest = m->next.manifest;
    s->residual_ratio = m->next.residual_ratio;
    s->digest = m->next.digest;
    if (s->leaf)
        memcpy(s->leaf, m->next.leaf, outer_state_leaves(&m->o, fragment) * sizeof *s->leaf);
    s->squares = m->next.squares;
}

static enum err next_commit(struct outer_state *m, unsigned fragment)
{
    TRY(outer_state_next_pass(m, fragment));
    outer_state_switch(m, fragment);
    return next_prune(m, fragment);
}

enum err outer_state_commit(struct outer_state *m, unsigned fragment,
                            const struct manifest *manifest, const uint8_t *aggregate,
                            size_t aggregate_bytes)
{
    TRY(outer_state_store(m, fragment, manifest, aggregate, aggregate_bytes));
    return next_commit(m, fragment);
}

void outer_state_follow(struct outer_state *m, unsigned fragment, const struct manifest *manifest)
{
    ASSERT(m->next.round == m->state[fragment].round + 1 && manifest->round + 1 == m->next.round);
    outer_state_next_name(m, manifest);
    arrays_copy(m, fragment);
    outer_state_switch(m, fragment);
}

enum err outer_state_snapshot_adopt(struct outer_state *m, const struct manifest *manifest,
                                    const uint8_t *data, size_t size_bytes, bool own)
{
    unsigned fragment = manifest->fragment;
    struct file_part parts[OWN_MAX];
    if (!next_bytes(m, manifest, &(struct codec_payload){data, size_bytes}))
        return err_set(ERR_PROTO,
                       "fragment %u: the snapshot is not state %" PRIu64 " of its manifest",
                       fragment, manifest->round + 1);
    if (!own)
        outer_state_parts_fill(
            parts, outer_state_own_parts(&m->next, outer_state_elements(m, fragment), parts), NULL);
    log_event(LOG_INFO, "snapshot_adopted", "fragment=%u round=%" PRIu64 " residual=%s", fragment,
              m->next.round, own ? "kept" : "zero");
    TRY(next_store(m, fragment, manifest, NULL, 0));
    return next_commit(m, fragment);
}
