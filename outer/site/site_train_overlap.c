/* Rounds beside training (Streaming DiLoCo, 2501.18512, Algorithm 2): a fragment is sent after its
 * step, training goes on, and its commit is applied outer.overlap_steps later. Which step does what
 * is the schedule's; a link that was slower makes the step wait.
 *
 * With outer.before_update the commit is applied inside its step, between the backward pass and the
 * update (DreamDDP, 2502.11058: the averaged parameters replace the local ones, then the local step
 * is taken from there). At the end of the step all is as without it.
 */
#include <math.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "kernels/base/log.h"
#include "outer/site/site_train_own.h"

enum { MARK_BYTES = 40 };
static const char mark_path[] = "id/before";

static bool flying(const struct site_train *s, unsigned f)
{
    return s->flight[f] > 0;
}

bool site_overlap_lands(const struct site_train *s, int64_t at, unsigned f)
{
    return flying(s, f) && schedule_apply(&s->o.schedule, f, s->flight[f] - 1) <= at;
}

static bool lands(const struct site_train *s, unsigned f)
{
    return site_overlap_lands(s, s->at, f);
}

/* ---- before anything is changed: wait for what lands ---- */

/* Quorum mode: may the apply wait for an aggregator that is away, while this site trains on? At
 * most outer.max_local_steps_offline, and not beyond the fragment's next send. */
static bool may_postpone(const struct site_train *s, unsigned f)
{
    const struct schedule *c = &s->o.schedule;
    uint64_t round = s->flight[f] - 1;
    int64_t planned = schedule_apply(c, f, round), last = planned + s->o.max_local_steps_offline;
    if (s->o.strict || s->at >= last || s->at >= schedule_step(c, f, round + 1))
        return false;
    return site_is_away(s->o.site, f);
}

static enum err await(struct site_train *s, bool later[ROUND_FRAGMENTS_MAX])
{
    TRY(site_failed(s->o.site));
    for (unsigned f = 0; f < s->o.schedule.fragments; f++) {
        if (!lands(s, f))
            continue;
        later[f] = may_postpone(s, f);
        double begin = site_train_now();
        if (!later[f])
            TRY(site_await(s->o.site, f));
        s->exposed_ms[f] += 1e3 * (site_train_now() - begin);
    }
    return ERR_OK;
}

/* ---- apply ---- */

static void tell(struct site_train *s, unsigned f, const struct site_landed *landed, double mix_ms)
{
    uint64_t round = s->flight[f] - 1;
    struct site_train_round r = {.step = s->at,
                                 .fragment = f,
                                 .included = landed->included,
                                 .up_predicted = landed->up_bytes,
                                 .down_predicted = landed->down_bytes,
                                 .round = round,
                                 .weight = s->weight[f],
                                 .replayed = landed->replayed,
                                 .times = landed->times,
                                 .metrics = landed->metrics,
                                 .gather_ms = s->gather_ms[f],
                                 .mix_ms = mix_ms,
                                 .flight_ms = landed->flight_ms,
                                 .exposed_ms = s->exposed_ms[f]};
    r.seconds = 1e-3 * (r.gather_ms + r.exposed_ms + r.mix_ms);
    s->have[f] = landed->reached;
    s->exposed_ms[f] = 0;
    site_train_tell(s, &r);
}

/* The lead has waited: theta is there. */
static enum err apply(struct site_train *s, struct train *t, unsigned f, float alpha)
{
    double begin = site_train_now();
    struct site_landed landed = {.included = 0};
    const float *theta = NULL;
    enum err e = site_train_lead(s) ? site_collect(s->o.site, f, &theta, &landed) : ERR_OK;
    TRY(site_train_agree(s, e));
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, &landed.sat_out, sizeof landed.sat_out));
    alpha = landed.sat_out ? 0 : alpha; /* what is damaged is not kept */
    TRY(site_train_take(s, t, f, theta, alpha));
    if (site_train_lead(s))
        tell(s, f, &landed, 1e3 * (site_train_now() - begin));
    s->flight[f] = 0;
    return ERR_OK;
}

/* One-round delay: when round 0 leaves there is no commit to apply, so the parameters begin anew,
 * as they do after every other round (DiLoCoX, 2506.21263). */
static enum err apply_initial(struct site_train *s, struct train *t, unsigned f)
{
    float *theta = site_train_handed(s);
    enum err e = site_train_lead(s) ? site_theta(s->o.site, f, 0, theta) : ERR_OK;
    TRY(site_train_agree(s, e));
    return site_train_take(s, t, f, theta, (float)s->o.mix);
}

/* ---- send ---- */

/* The lead hands the fragment to a lane; s->gathered holds it already when `gathered`. */
static enum err depart(struct site_train *s, struct train *t, const struct train_report *report,
                       unsigned f, uint64_t round, bool gathered, bool ahead)
{
    size_t bytes = s->o.fragments->f[f].elements * sizeof(float);
    double begin = site_train_now();
    float *local;
    s->weight[f] = site_train_weight(s, t, f, round);
    TRY(site_lend(s->o.site, f, &local));
    if (gathered)
        t->dev->ops->copy(t->dev, local, s->gathered, bytes);
    else
        TRY(site_train_gather(s, t, local, f));
    TRY(dev_sync(t->dev));
    site_send(s->o.site, &(struct site_sending){.fragment = f,
                                                .round = round,
                                                .base = schedule_base(&s->o.schedule, f, round),
                                                .ahead = ahead,
                                                .weight = (float)s->weight[f],
                                                .data_cursor = t->tokens,
                                                .step = t->step,
                                                .loss = report->loss,
                                                .tokens_per_second = report->tokens_per_second,
                                                .tokens = t->tokens});
    s->gather_ms[f] += 1e3 * (site_train_now() - begin);
    return ERR_OK;
}

/* Rounds at the last step: nothing hides them, and their theta is what the run leaves. One
 * fragment, the first of those that are left. */
static enum err finish(struct site_train *s, struct train *t, unsigned *next)
{
    unsigned f = (*next)++;
    double begin = site_train_now();
    enum err e = site_train_lead(s) ? site_await(s->o.site, f) : ERR_OK;
    s->exposed_ms[f] += 1e3 * (site_train_now() - begin);
    TRY(site_train_agree(s, e));
    return apply(s, t, f, 0);
}

static enum err send(struct site_train *s, struct train *t, const struct train_report *report,
                     unsigned f, uint64_t round, bool gathered, bool ahead)
{
    enum err e = site_train_lead(s) ? depart(s, t, report, f, round, gathered, ahead) : ERR_OK;
    TRY(site_train_agree(s, e));
    s->flight[f] = round + 1;
    s->merged_step[f] = t->step;
    return ERR_OK;
}

/* The eager start of the round that has just left: its contribution is encoded and stored by then.
 */
static enum err go_ahead(struct site_train *s, struct train *t, unsigned f)
{
    double begin = site_train_now();
    const float *start = NULL;
    enum err e = site_train_lead(s) ? site_eager(s->o.site, f, &start) : ERR_OK;
    s->exposed_ms[f] += 1e3 * (site_train_now() - begin);
    TRY(site_train_agree(s, e));
    return site_train_take(s, t, f, start, 0);
}

/* ---- a step ---- */

static bool due(const struct site_train *s, const struct train *t, unsigned f, uint64_t *round)
{
    return t->step > 0 && schedule_due(&s->o.schedule, t->step, f, round);
}

/* Sent before the round before it is applied, at the same step. */
static bool sent_first(const struct site_train *s, const struct train *t, unsigned f)
{
    uint64_t round;
    return schedule_delayed(&s->o.schedule, f) && due(s, t, f, &round);
}

static enum err leave(struct site_train *s, struct train *t, const struct train_report *report,
                      unsigned f, uint64_t round)
{
    bool first = sent_first(s, t, f), eager = schedule_eager(&s->o.schedule, f, round);
    bool ahead = s->o.schedule.eager && first && lands(s, f); /* what these steps began at */
    double begin = site_train_now();
    if (first)
        site_train_collect(s, t, s->gathered, f);
    s->gather_ms[f] = 1e3 * (site_train_now() - begin);
    if (first && lands(s, f))
        TRY(apply(s, t, f, (float)s->o.mix));
    else if (first && round == 0 && !eager)
        TRY(apply_initial(s, t, f));
    TRY(send(s, t, report, f, round, first, ahead));
    return eager ? go_ahead(s, t, f) : ERR_OK;
}

/* All that lands at step s->at and is not sent first; it is waited for before anything is changed.
 */
static enum err land(struct site_train *s, struct train *t, bool *changed)
{
    bool later[ROUND_FRAGMENTS_MAX] = {false};
    TRY(site_train_agree(s, site_train_lead(s) ? await(s, later) : ERR_OK));
    if (s->o.max_local_steps_offline)
        TRY(s->o.coll->ops->broadcast_host(s->o.coll, later, sizeof later));
    for (unsigned f = 0; f < s->o.schedule.fragments; f++) {
        if (!lands(s, f) || later[f] || sent_first(s, t, f))
            continue;
        TRY(apply(s, t, f, (float)s->o.mix));
        *changed = true;
    }
    return ERR_OK;
}

/* What lands comes before what leaves: there are as many lanes as rounds in flight after a step. At
 * the last step all fragments leave, as many at once as there are lanes. */
static enum err leave_all(struct site_train *s, struct train *t, const struct train_report *report,
                          bool *changed)
{
    uint64_t round;
    unsigned lanes = schedule_lanes(&s->o.schedule), finished = 0;
    bool last = t->step == s->o.schedule.steps;
    for (unsigned f = 0; f < s->o.schedule.fragments; f++) {
        if (!due(s, t, f, &round))
            continue;
        if (last && f - finished == lanes)
            TRY(finish(s, t, &finished));
        TRY(leave(s, t, report, f, round));
        *changed = true;
    }
    while (last && finished < s->o.schedule.fragments)
        TRY(finish(s, t, &finished));
    return ERR_OK;
}

/* A step at which nothing flies, lands or leaves costs no word between the ranks. */
static bool idle(const struct site_train *s, const struct train *t)
{
    uint64_t round;
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        if (flying(s, f) || due(s, t, f, &round))
            return false;
    return true;
}

enum err site_overlap_step(struct site_train *s, struct train *t, const struct train_report *report)
{
    bool changed = false;
    s->at = t->step;
    if (idle(s, t))
        return ERR_OK;
    if (!s->o.before_update)
        TRY(land(s, t, &changed));
    TRY(leave_all(s, t, report, &changed));
    if (changed)
        model_params_changed(t->model);
    return ERR_OK;
}

enum err site_overlap_update(struct site_train *s, struct train *t)
{
    bool changed = false, any = false;
    s->at = t->step + 1;
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        any = any || flying(s, f);
    if (any)
        TRY(land(s, t, &changed));
    if (changed)
        model_params_changed(t->model);
    return ERR_OK;
}

/* ---- restart and moves ---- */

static enum err again(struct site_train *s, unsigned f, uint64_t round)
{
    float *unused;
    TRY(site_lend(s->o.site, f, &unused));
    site_send(s->o.site, &(struct site_sending){.fragment = f,
                                                .round = round,
                                                .base = schedule_base(&s->o.schedule, f, round),
                                                .again = true,
                                                .step = schedule_step(&s->o.schedule, f, round),
                                                .loss = NAN,
                                                .tokens_per_second = NAN});
    return ERR_OK;
}

enum err site_overlap_resume(struct site_train *s, struct train *t)
{
    int64_t done = s->before ? t->step - 1 : t->step; /* steps whose rounds the checkpoint has */
    for (unsigned f = 0; f < s->o.schedule.fragments; f++) {
        uint64_t round;
        if (!schedule_flying(&s->o.schedule, f, done, &round) ||
            (s->o.before_update && schedule_apply(&s->o.schedule, f, round) <= t->step))
            continue;
        s->flight[f] = round + 1;
        TRY(site_train_agree(s, site_train_lead(s) ? again(s, f, round) : ERR_OK));
    }
    return ERR_OK;
}

enum err site_overlap_clear(struct site_train *s)
{
    for (unsigned f = 0; f < s->o.schedule.fragments; f++) {
        const float *unused;
        struct site_landed landed;
        enum err e = ERR_OK;
        if (!flying(s, f))
            continue;
        if (site_train_lead(s))
            e = site_collect(s->o.site, f, &unused, &landed);
        TRY(site_train_agree(s, e));
        s->flight[f] = 0;
    }
    return ERR_OK;
}

/* ---- the mark ---- */

/* The step and the parameters themselves: whichever checkpoint a restart loads, it is this one or
 * it is not. */
static enum err mark_make(struct site_train *s, struct train *t, uint8_t mark[MARK_BYTES])
{
    enum { PIECE = 1 << 20 };
    struct arena scratch = arena_make(0);
    struct digest_stream d;
    struct bytes_writer w = bytes_writer(mark, MARK_BYTES);
    float *piece;
    TRY_ALLOC(piece = arena_array(&scratch, PIECE, sizeof *piece));
    digest_open(&d);
    for (unsigned f = 0; f < s->o.fragments->count; f++) {
        site_train_collect(s, t, s->fragment, f);
        for (size_t at = 0, n = s->o.fragments->f[f].elements; at < n; at += PIECE) {
            size_t bytes = (n - at < PIECE ? n - at : PIECE) * sizeof *piece;
            t->dev->ops->copy(t->dev, piece, s->fragment + at, bytes);
            digest_add(&d, piece, bytes);
        }
    }
    arena_free(&scratch);
    TRY(dev_sync(t->dev));
    struct digest sum = digest_close(&d);
    bytes_put_u64(&w, (uint64_t)t->step);
    bytes_put(&w, sum.bytes, sizeof sum.bytes);
    return ERR_OK;
}

enum err site_overlap_mark(struct site_train *s, struct train *t)
{
    uint8_t mark[MARK_BYTES];
    TRY(mark_make(s, t, mark));
    return s->o.env->ops->write(s->o.env, mark_path, &(struct file_part){mark, sizeof mark}, 1);
}

enum err site_overlap_marked(struct site_train *s, struct train *t, bool *before)
{
    struct arena scratch = arena_make(0);
    uint8_t mark[MARK_BYTES], *data;
    size_t size;
    *before = false;
    if (!s->o.env->ops->exists(s->o.env, mark_path))
        return ERR_OK;
    enum err e = s->o.env->ops->read(s->o.env, mark_path, MARK_BYTES, &scratch, &data, &size);
    if (e == ERR_OK)
        e = mark_make(s, t, mark);
    *before = e == ERR_OK && size == MARK_BYTES && !memcmp(mark, data, MARK_BYTES);
    arena_free(&scratch);
    return e;
}
