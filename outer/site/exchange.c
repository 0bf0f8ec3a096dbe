/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/site/exchange.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/site/site_marks.h"
#include "outer/store/state_digest.h"

static bool exchange_lead(const struct exchange *s)
{
    return s->o.coll->rank == 0;
}

static bool sharded(const struct exchange *s)
{
    return s->o.shards.ranks > 1;
}

/* The rank that holds the fragment, and whether it is this one. */
static int holder(const struct exchange *s, unsigned f)
{
    return (int)shards_holder(&s->o.shards, f);
}

static bool holds(const struct exchange *s, unsigned f)
{
    return shards_hold(&s->o.shards, f);
}

/* Does this rank call gather for values that one rank alone needs? */
static bool rank_gathers(const struct exchange *s, bool mine)
{
    return mine || s->t.everywhere;
}

/* Every rank learns how rank `from` fared before any rank waits for data. */
static enum err agree_from(const struct exchange *s, int from, enum err mine)
{
    int32_t status = (int32_t)mine;
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, &status, sizeof status, from));
    if (s->o.coll->rank == from || status == ERR_OK)
        return mine;
    if (from == 0)
        return err_set((enum err)status, "the lead of this site stopped: %s",
                       err_text((enum err)status));
    return err_set((enum err)status, "rank %d of this site stopped: %s", from,
                   err_text((enum err)status));
}

enum err exchange_ranks(const struct exchange *s, double mine, double of[SHARDS_RANKS_MAX])
{
    const struct shards *x = &s->o.shards;
    memset(of, 0, SHARDS_RANKS_MAX * sizeof *of);
    if (x->rank < x->ranks)
        of[x->rank] = mine;
    return sharded(s) ? s->o.coll->ops->all_reduce_host(s->o.coll, of, x->ranks) : ERR_OK;
}

/* An error of any rank that holds fragments: the first one's. */
static enum err agree_all(const struct exchange *s, enum err mine)
{
    double status[SHARDS_RANKS_MAX];
    unsigned ranks = s->o.shards.ranks, bad = 0;
    TRY(exchange_ranks(s, (double)mine, status));
    while (bad < ranks && status[bad] == 0)
        bad++;
    if (bad == ranks || mine != ERR_OK)
        return mine;
    enum err e = (enum err)status[bad];
    return err_set(e, "rank %u of this site stopped: %s", bad, err_text(e));
}

enum err exchange_agree(const struct exchange *s, enum err mine)
{
    return sharded(s) ? agree_all(s, mine) : agree_from(s, 0, mine);
}

/* Of ranks that hold fragments; elsewhere 0. */
static uint64_t now_ms(const struct exchange *s)
{
    return s->o.env ? s->o.env->ops->now_ms(s->o.env) : 0;
}

static double ms_since(const struct exchange *s, uint64_t begin_ms)
{
    return (double)(now_ms(s) - begin_ms);
}

/* ---- open and close ---- */

struct parts { /* bytes of each buffer; 0: none */
    size_t fragment, gathered, host;
};

/* Blocking, the lead works in the memory of the site's one slot. Where it holds some fragments
 * alone, that may be too small for the others. */
static bool lead_borrows_slot(const struct exchange_options *o)
{
    return o->coll->rank == 0 && o->rules.schedule.overlap == 0 && o->shards.ranks <= 1;
}

static bool rank_holds_any(const struct exchange_options *o)
{
    return shards_largest(&o->shards, o->rules.fragments) > 0;
}

static struct parts exchange_parts(const struct exchange_options *o)
{
    size_t bytes = fragment_largest(o->rules.fragments) * sizeof(float);
    bool delayed = false;
    for (unsigned f = 0; f < o->rules.fragments->count; f++)
        delayed = delayed || schedule_delayed(&o->rules.schedule, f);
    return (struct parts){.fragment = lead_borrows_slot(o) && o->beside ? 0 : bytes,
                          .gathered = delayed ? bytes : 0,
                          .host =
                              o->beside || !rank_holds_any(o) || lead_borrows_slot(o) ? 0 : bytes};
}

struct outer_memory exchange_memory(const struct exchange_options *o, bool here)
{
    struct parts p = exchange_parts(o);
    size_t device = p.fragment + p.gathered, host = p.host;
    return (struct outer_memory){here ? 0 : device, here ? device + host : host};
}

static enum err exchange_clock_check(const struct exchange_options *o)
{
    if (!o->rules.every_ms || clock_mono_there())
        return ERR_OK;
    return err_set(
        ERR_UNSUPPORTED,
        "outer.sync_interval_s = %g needs a clock that is never set back (CLOCK_MONOTONIC), and "
        "this system has none; the nearest is outer.sync_interval_s = 0 at all sites: rounds "
        "of outer.sync_every steps",
        1e-3 * (double)o->rules.every_ms);
}

enum err exchange_open(struct exchange *s, const struct exchange_options *o,
                       const struct exchange_trainer *t)
{
    struct parts p = exchange_parts(o);
    *s = (struct exchange){.o = *o, .t = *t, .arena = dev_arena(t->dev)};
    s->interval.length_ms = o->rules.every_ms;
    TRY(exchange_clock_check(o));
    stepper_open(&s->stepper, &(struct stepper_options){.schedule = o->rules.schedule,
                                                        .strict = o->rules.strict,
                                                        .timed = o->rules.every_ms > 0,
                                                        .before_update = o->rules.before_update,
                                                        .max_local_steps_offline =
                                                            o->rules.max_local_steps_offline,
                                                        .mix = (float)o->rules.mix,
                                                        .holders = o->shards.ranks});
    if (p.fragment)
        TRY(dev_alloc(t->dev, (void **)&s->own_fragment, p.fragment));
    TRY(dev_alloc(t->dev, (void **)&s->gathered, p.gathered));
    if (p.host)
        TRY_ALLOC(s->host = arena_alloc(&s->arena, p.host));
    if (o->rules.schedule.draw.share > 0)
        TRY_ALLOC(s->drawn =
                      arena_array(&s->arena, draw_ranges_max(o->rules.fragments->f[0].elements),
                                  sizeof *s->drawn));
    s->fragment = s->own_fragment;
    if (lead_borrows_slot(o))
        *(o->beside ? &s->fragment : &s->host) = site_blocking_memory(o->site);
    return ERR_OK;
}

void exchange_close(struct exchange *s)
{
    dev_free(s->t.dev, s->own_fragment);
    dev_free(s->t.dev, s->gathered);
    arena_free(&s->arena);
    *s = (struct exchange){0};
}

uint64_t exchange_rounds(const struct schedule *s, int64_t step)
{
    uint64_t ended = 0;
    for (unsigned f = 0; f < s->fragments; f++)
        ended += schedule_sent(s, f, step);
    return ended;
}

/* ---- local parameters ---- */

/* The local values of a fragment -> memory of the replica's device. copied: what `gathered` holds
 * instead. */
static enum err local_gather(struct exchange *s, float *out, unsigned f, bool copied)
{
    const struct fragment *part = &s->o.rules.fragments->f[f];
    if (!copied)
        TRY(s->t.gather(s->t.self, part, s->host ? s->fragment : out));
    if (copied || s->host)
        s->t.dev->ops->copy(s->t.dev, out, copied ? s->gathered : s->fragment,
                            part->elements * sizeof *out);
    return dev_sync(s->t.dev);
}

/* Where the replica leaves theta. */
static float *theta_memory(const struct exchange *s)
{
    return s->host ? s->host : s->fragment;
}

/* The holder's theta (memory of the replica's device, or the host's) -> s->fragment of every rank.
 */
static enum err theta_share(struct exchange *s, unsigned f, const float *theta)
{
    struct dev *d = s->t.dev;
    size_t bytes = s->o.rules.fragments->f[f].elements * sizeof *theta;
    if (holds(s, f) && theta != s->fragment)
        d->ops->copy(d, s->fragment, theta, bytes);
    TRY(dev_sync(d));
    return s->o.coll->ops->broadcast(s->o.coll, s->fragment, bytes, holder(s, f));
}

/* theta becomes part of the local values. A second moment is a mean of squares; what a codec's
 * rounding takes below zero would be a root of a negative number. */
static enum err take_theta(struct exchange *s, unsigned f, const float *theta, float alpha)
{
    const struct fragment *part = &s->o.rules.fragments->f[f];
    TRY(theta_share(s, f, theta));
    TRY(s->t.mix(s->t.self, part, s->fragment,
                 &(struct dev_lerp){part->ranges, part->range_count, alpha,
                                    part->state == FRAGMENT_SECOND}));
    return dev_sync(s->t.dev);
}

/* A round of a drawn share changes these values alone: the other values stay local. A site
 * that has missed a round, or whose parameters are damaged, takes all. */
static enum err take_drawn(struct exchange *s, uint64_t round, const float *theta, float alpha)
{
    const struct fragment *part = &s->o.rules.fragments->f[0];
    size_t n = draw_ranges(&s->o.rules.schedule.draw, round, part->elements, true, s->drawn);
    ASSERT(part->range_count == 1 && part->ranges[0].offset == 0);
    TRY(theta_share(s, 0, theta));
    for (size_t i = 0; i < n; i++)
        TRY(s->t.mix(s->t.self, part, s->fragment + s->drawn[i].offset,
                     &(struct dev_lerp){&s->drawn[i], 1, alpha, false}));
    return dev_sync(s->t.dev);
}

static enum err take_recorded(struct exchange *s, unsigned f, uint64_t round, float alpha)
{
    float *theta = theta_memory(s);
    enum err e = holds(s, f) ? site_theta(s->o.site, f, round, theta) : ERR_OK;
    TRY(agree_from(s, holder(s, f), e));
    return take_theta(s, f, theta, alpha);
}

/* ---- marks of checkpoints ---- */

/* Of the local parameters, by the rule of outer.state_digest: of all bytes, or of the leaves'
 * digests.
 */
enum { DIGEST_PIECE = 16 * STATE_LEAF };

static enum err fragment_digest(struct exchange *s, unsigned f, float *piece,
                                struct digest_stream *d)
{
    const struct fragment *part = &s->o.rules.fragments->f[f];
    TRY(s->t.gather(s->t.self, part, s->fragment));
    for (size_t at = 0, n = part->elements; exchange_lead(s) && at < n; at += DIGEST_PIECE) {
        size_t count = n - at < DIGEST_PIECE ? n - at : DIGEST_PIECE;
        const struct file_part bytes = {piece, count * sizeof *piece};
        const struct state_cut cut = {s->o.replica->o.digest, count, s->o.replica->dev->threads};
        s->t.dev->ops->copy(s->t.dev, piece, s->fragment + at, bytes.size_bytes);
        state_digest_add(d, &cut, &bytes, 1, NULL);
    }
    return ERR_OK;
}

/* On the lead, and wherever gather wants to be called; elsewhere nothing. */
static enum err parameters_digest(struct exchange *s, struct digest *out)
{
    struct arena scratch = arena_make(0);
    struct digest_stream d;
    if (!rank_gathers(s, exchange_lead(s)))
        return ERR_OK;
    float *piece = arena_array(&scratch, DIGEST_PIECE, sizeof *piece);
    enum err e = piece ? ERR_OK : ERR_MEMORY;
    digest_open(&d);
    for (unsigned f = 0; e == ERR_OK && f < s->o.rules.fragments->count; f++)
        e = fragment_digest(s, f, piece, &d);
    arena_free(&scratch);
    *out = digest_close(&d);
    TRY(e);
    return dev_sync(s->t.dev);
}

/* Of the checkpoint that is written at this event. */
static enum err mark_write(struct exchange *s, int64_t step, const struct stepper_event *e)
{
    struct site_mark mark = {.step = (uint64_t)step, .before = e->before};
    (void)stepper_postponed(&s->stepper, e, mark.postponed);
    TRY(parameters_digest(s, &mark.parameters));
    return exchange_lead(s) ? site_marks_add(s->o.env, &mark) : ERR_OK;
}

/* *any: there are marks of checkpoints of this step. Lead. */
static enum err marks_read(struct exchange *s, int64_t step, struct site_marks *marks, bool *any)
{
    if (!s->o.rules.schedule.overlap && !s->o.rules.max_local_steps_offline)
        return ERR_OK;
    enum err read = site_marks_read(marks, s->o.env);
    if (read == ERR_CORRUPT)
        return err_set(read,
                       "%s/id/marks: damaged; it says which checkpoints have rounds left to do: "
                       "restore it, or remove it and the newest checkpoint in %s",
                       s->o.env->root, s->t.checkpoints);
    TRY(read);
    *any = site_marks_step(marks, (uint64_t)step);
    return ERR_OK;
}

/* The mark of the checkpoint that was loaded, into the event. */
static enum err mark_take(struct exchange *s, int64_t step, const struct site_marks *marks)
{
    struct digest parameters;
    TRY(parameters_digest(s, &parameters));
    if (!exchange_lead(s))
        return ERR_OK;
    const struct site_mark *mark = site_marks_find(marks, (uint64_t)step, &parameters);
    if (mark) {
        s->event.before = mark->before;
        memcpy(s->event.postponed, mark->postponed, sizeof s->event.postponed);
    }
    return ERR_OK;
}

static enum err marks_take(struct exchange *s, int64_t step)
{
    struct site_marks marks;
    bool any = false;
    TRY(exchange_agree(s, exchange_lead(s) ? marks_read(s, step, &marks, &any) : ERR_OK));
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, &any, sizeof any, 0));
    return any ? exchange_agree(s, mark_take(s, step, &marks)) : ERR_OK;
}

/* ---- actions of the stepper ---- */

/* Training waits from begin_ms until now; in ms. */
static double idle_add(struct exchange *s, uint64_t begin_ms)
{
    double ms = ms_since(s, begin_ms);
    s->pace.idle_ms += ms;
    return ms;
}

/* Until now, when the next submission begins. */
static struct wire_pace exchange_pace(struct exchange *s, unsigned fragment, uint64_t at_ms)
{
    struct wire_pace p = {0};
    if (fragment)
        return p;
    if (s->pace.since_ms && s->pace.flights)
        p = (struct wire_pace){.trained_s =
                                   (double)(at_ms - s->pace.since_ms) / 1e3 - s->pace.idle_ms / 1e3,
                               .waited_s = s->pace.idle_ms / 1e3,
                               .exchange_s = s->pace.flight_ms / 1e3 / s->pace.flights};
    memset(&s->pace, 0, sizeof s->pace);
    s->pace.since_ms = at_ms;
    return p;
}

static struct link_counters counters_since(const struct link_counters *now,
                                           const struct link_counters *then)
{
    return (struct link_counters){
        .payload_up = now->payload_up - then->payload_up,
        .payload_down = now->payload_down - then->payload_down,
        .messages_up = now->messages_up - then->messages_up,
        .messages_down = now->messages_down - then->messages_down,
        .wire_up = now->wire_up > then->wire_up ? now->wire_up - then->wire_up : 0,
        .wire_down = now->wire_down > then->wire_down ? now->wire_down - then->wire_down : 0};
}

/* From the holder to the lead, which tells it. */
static enum err tell_round(struct exchange *s, const struct stepper_action *a,
                           const struct site_completion *done, double mix_ms)
{
    unsigned f = a->fragment;
    struct link_counters now;
    struct exchange_round r = {.step = s->event.step,
                               .fragment = f,
                               .included = done->included,
                               .sites = done->sites ? done->sites : s->o.rules.site_count,
                               .round = a->round,
                               .rank = holder(s, f),
                               .trained = s->trained[f],
                               .weight = s->weight[f],
                               .replayed = done->replayed,
                               .times = done->times,
                               .flight_ms = done->flight_ms,
                               .exposed_ms = s->exposed_ms[f],
                               .gather_ms = s->gather_ms[f],
                               .mix_ms = mix_ms,
                               .up_predicted = done->up_bytes,
                               .down_predicted = done->down_bytes,
                               .metrics = done->metrics};
    r.seconds = 1e-3 * (r.gather_ms + r.exposed_ms + r.mix_ms);
    if (holds(s, f)) {
        s->o.link->ops->counters(s->o.link, &now);
        r.counted = counters_since(&now, &s->counted);
        s->counted = now;
    }
    s->gather_ms[f] = s->exposed_ms[f] = 0;
    if (holder(s, f) != 0)
        TRY(s->o.coll->ops->broadcast_host(s->o.coll, &r, sizeof r, holder(s, f)));
    s->pace.flight_ms += done->flight_ms;
    s->pace.flights++;
    return s->o.rounded(s->o.self, &r);
}

enum err exchange_reschedule(struct exchange *s)
{
    TRY(s->o.rescheduled(s->o.self, &s->o.rules.schedule, &s->schedule_version));
    stepper_reschedule(&s->stepper, &s->o.rules.schedule);
    return ERR_OK;
}

/* Reaps on the holder; every rank learns what the stepper must know. */
static enum err round_reap(struct exchange *s, const struct stepper_action *a, const float **theta,
                           struct site_completion *done, float *alpha)
{
    int from = holder(s, a->fragment);
    bool mine = holds(s, a->fragment);
    *done = (struct site_completion){0};
    enum err e = mine ? site_reap(s->o.site, a->fragment, theta, done) : ERR_OK;
    TRY(agree_from(s, from, e));
    if (mine)
        done->schedule_version = site_schedule_version(s->o.site);
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, done, sizeof *done, from));
    if (done->schedule_version != s->schedule_version)
        TRY(exchange_reschedule(s));
    *alpha = stepper_reaped(&s->stepper, a, done->reached, done->skipped);
    return ERR_OK;
}

static enum err round_apply(struct exchange *s, const struct stepper_action *a)
{
    uint64_t begin = now_ms(s);
    struct site_completion done;
    const float *theta = NULL;
    float alpha;
    TRY(round_reap(s, a, &theta, &done, &alpha));
    bool next = !done.skipped && (done.replayed || done.reached == a->round + 1);
    TRY(next && schedule_draws(&s->o.rules.schedule, a->fragment, a->round)
            ? take_drawn(s, a->round, theta, alpha)
            : take_theta(s, a->fragment, theta, alpha));
    bool tells = exchange_lead(s) || holder(s, a->fragment) != 0;
    return tells ? tell_round(s, a, &done, idle_add(s, begin)) : ERR_OK;
}

static enum err round_drop(struct exchange *s, const struct stepper_action *a)
{
    struct site_completion done;
    const float *theta;
    float alpha;
    s->gather_ms[a->fragment] = s->exposed_ms[a->fragment] = 0;
    return round_reap(s, a, &theta, &done, &alpha);
}

static double action_weight(const struct exchange *s, const struct stepper_action *a)
{
    return weights_of(s->o.rules.weights,
                      &(struct weights_round){
                          .share = s->o.rules.share,
                          .steps = a->steps,
                          .length = schedule_length(&s->o.rules.schedule, a->fragment, a->round)});
}

/* The local values are in the slot; `begin`: since when training waits. */
static void submission_send(struct exchange *s, const struct exchange_now *n,
                            const struct stepper_action *a, uint64_t begin)
{
    unsigned f = a->fragment;
    struct site_submission w = {.fragment = f,
                                .round = a->round,
                                .base = a->base,
                                .late = (uint64_t)a->late,
                                .resend = a->resend,
                                .from_start = a->from_start,
                                .data_cursor = n->tokens,
                                .charged = n->charged,
                                .step = n->step,
                                .loss = n->loss,
                                .tokens_per_second = n->tokens_per_second,
                                .pace = exchange_pace(s, f, begin),
                                .tokens = n->tokens};
    s->weight[f] = action_weight(s, a);
    s->trained[f] = a->steps;
    w.weight = (float)s->weight[f];
    if (a->resend) /* nothing is gathered: its contribution is stored */
        w = (struct site_submission){.fragment = f,
                                     .round = a->round,
                                     .base = a->base,
                                     .resend = true,
                                     .step = schedule_step(&s->o.rules.schedule, f, a->round),
                                     .loss = NAN,
                                     .tokens_per_second = NAN};
    site_submit(s->o.site, &w);
    s->gather_ms[f] += idle_add(s, begin);
}

struct exchange_waits { /* of one rank */
    struct exchange *s;
    unsigned fragment;
    float *local;
    int64_t at;
};

static enum err slot_wait(void *self)
{
    struct exchange_waits *w = self;
    return site_acquire(w->s->o.site, w->fragment, &w->local);
}

static enum err slot_acquire(struct exchange *s, unsigned fragment, float **local)
{
    struct exchange_waits w = {.s = s, .fragment = fragment};
    bool mine = holds(s, fragment);
    enum err e = exchange_together(s, &(struct exchange_call){mine ? slot_wait : NULL, &w});
    *local = mine ? w.local : s->fragment;
    return e;
}

static enum err round_submit(struct exchange *s, const struct exchange_now *n,
                             const struct stepper_action *a)
{
    uint64_t begin = now_ms(s);
    float *local;
    bool mine = holds(s, a->fragment);
    enum err e = slot_acquire(s, a->fragment, &local);
    if (s->t.everywhere)
        TRY(agree_from(s, holder(s, a->fragment), e)); /* a gather is a collective */
    if (e == ERR_OK && !a->resend && rank_gathers(s, mine))
        e = local_gather(s, local, a->fragment, a->copied);
    if (e == ERR_OK && mine)
        submission_send(s, n, a, begin);
    return agree_from(s, holder(s, a->fragment), e);
}

static enum err commit_wait(void *self)
{
    const struct exchange_waits *w = self;
    struct exchange *s = w->s;
    if (s->o.site && sharded(s)) /* while another one is waited for */
        site_carry_out(s->o.site);
    return holds(s, w->fragment) ? site_complete(s->o.site, w->fragment) : ERR_OK;
}

/* Until the round is committed; the other ranks wait with its holder. */
static enum err round_wait(struct exchange *s, const struct stepper_action *a)
{
    uint64_t begin = now_ms(s);
    struct exchange_waits w = {.s = s, .fragment = a->fragment};
    enum err e = exchange_together(s, &(struct exchange_call){commit_wait, &w});
    e = agree_from(s, holder(s, a->fragment), e);
    s->exposed_ms[a->fragment] += idle_add(s, begin);
    return e;
}

static enum err go_eager(struct exchange *s, const struct stepper_action *a)
{
    uint64_t begin = now_ms(s);
    const float *start = NULL;
    enum err e = holds(s, a->fragment) ? site_eager(s->o.site, a->fragment, &start) : ERR_OK;
    s->exposed_ms[a->fragment] += idle_add(s, begin);
    TRY(agree_from(s, holder(s, a->fragment), e));
    return take_theta(s, a->fragment, start, 0);
}

static void tell_postponed(const struct exchange *s, const struct stepper_action *a)
{
    if (exchange_lead(s) && a->steps == 0)
        log_event(LOG_WARN, "train_on",
                  "fragment=%u round=%" PRIu64 " at_most_steps=%" PRId64
                  " why=\"aggregator unreachable\"",
                  a->fragment, a->round, a->left);
}

static enum err forget_starts(struct exchange *s)
{
    for (unsigned f = 0; f < s->o.rules.schedule.fragments; f++)
        if (holds(s, f))
            TRY(site_moved(s->o.site, f));
    return ERR_OK;
}

/* ---- rounds by time ---- */

/* The steps from here on belong to the round after those that end by `step`. Lead. */
static enum err interval_begin(struct exchange *s, int64_t step)
{
    uint64_t round = schedule_sent(&s->o.rules.schedule, 0, step);
    struct interval i = {s->interval.length_ms, now_ms(s), 0, 0};
    if (!i.length_ms)
        return ERR_OK;
    if (round)
        TRY(site_round_tokens(s->o.site, 0, round - 1, &i.began_tokens));
    if (round < schedule_rounds(&s->o.rules.schedule, 0))
        TRY(site_round_tokens(s->o.site, 0, round, &i.ended_tokens));
    s->interval = i;
    return ERR_OK;
}

/* The tokens that this site has counted by the step it moves to, on every rank. */
static enum err tokens_moved(struct exchange *s, struct exchange_now *n)
{
    if (!s->interval.length_ms) {
        n->tokens = (uint64_t)n->step * n->batch_tokens;
        return ERR_OK;
    }
    TRY(exchange_agree(s, exchange_lead(s) ? interval_begin(s, n->step) : ERR_OK));
    if (exchange_lead(s) && s->interval.began_tokens)
        n->tokens = s->interval.began_tokens;
    return s->o.coll->ops->broadcast_host(s->o.coll, &n->tokens, sizeof n->tokens, 0);
}

static void look_at_clock(struct exchange *s, const struct exchange_now *n)
{
    struct stepper_event *e = &s->event;
    e->over = interval_over(&s->interval, now_ms(s), n->tokens);
    e->trained = interval_steps(&s->interval, n->tokens, n->batch_tokens);
}

static enum err trainer_move(struct exchange *s, struct exchange_now *n, int64_t step)
{
    if (exchange_lead(s))
        log_event(LOG_WARN, "moved",
                  "from_step=%" PRId64 " to_step=%" PRId64
                  " why=\"the run continued without this site\"",
                  n->step, step);
    TRY(exchange_agree(s, forget_starts(s)));
    n->step = step;
    TRY(tokens_moved(s, n));
    s->t.moved(s->t.self, n);
    return ERR_OK;
}

static enum err steps_skip(struct exchange *s, struct exchange_now *n, int64_t step)
{
    if (exchange_lead(s))
        log_event(LOG_DETAIL, "round_over",
                  "step=%" PRId64 " made=%" PRId64 " skipped=%" PRId64 " recorded=%d", step,
                  s->event.trained, step - n->step, s->interval.ended_tokens > 0);
    n->step = s->event.step = step;
    s->t.moved(s->t.self, n);
    return ERR_OK;
}

static enum err stored_wait(struct exchange *s)
{
    return exchange_agree(s, s->o.site ? site_wait_stored(s->o.site) : ERR_OK);
}

static enum err action_run(struct exchange *s, struct exchange_now *n,
                           const struct stepper_action *a)
{
    switch (a->verb) {
    case STEPPER_CHECK:
        return exchange_agree(s, s->o.site ? site_failed(s->o.site) : ERR_OK);
    case STEPPER_WAIT:
        return round_wait(s, a);
    case STEPPER_COPY:
        return s->t.gather(s->t.self, &s->o.rules.fragments->f[a->fragment], s->gathered);
    case STEPPER_APPLY:
        return round_apply(s, a);
    case STEPPER_DROP:
        return round_drop(s, a);
    case STEPPER_TAKE:
        return take_recorded(s, a->fragment, a->round, a->alpha);
    case STEPPER_SUBMIT:
        return round_submit(s, n, a);
    case STEPPER_EAGER:
        return go_eager(s, a);
    case STEPPER_POSTPONE:
        tell_postponed(s, a);
        return ERR_OK;
    case STEPPER_MOVE:
        return trainer_move(s, n, a->step);
    case STEPPER_SKIP:
        return steps_skip(s, n, a->step);
    case STEPPER_STORE:
        return stored_wait(s);
    case STEPPER_MARK:
        return exchange_agree(s, mark_write(s, n->step, &s->event));
    case STEPPER_SAVE:
        return s->t.checkpoint(s->t.self);
    }
    return ERR_OK;
}

static bool verb_changes_local(enum stepper_verb v)
{
    return v == STEPPER_APPLY || v == STEPPER_TAKE || v == STEPPER_EAGER;
}

/* Which aggregators do not answer, as the holders of the fragments see it. */
static enum err silence_look(struct exchange *s, struct stepper_event *e)
{
    unsigned count = s->o.rules.schedule.fragments;
    double silent[ROUND_FRAGMENTS_MAX] = {0};
    enum err found = ERR_OK;
    for (unsigned f = 0; found == ERR_OK && f < count; f++)
        if (holds(s, f) && stepper_asks(&s->stepper, e, f)) {
            found = site_unreachable(s->o.site, f, &e->unreachable[f]);
            silent[f] = e->unreachable[f];
        }
    TRY(exchange_agree(s, found));
    if (!sharded(s))
        return ERR_OK;
    TRY(s->o.coll->ops->all_reduce_host(s->o.coll, silent, count));
    for (unsigned f = 0; f < count; f++)
        e->unreachable[f] = silent[f] > 0;
    return ERR_OK;
}

/* Of s->event: what the lead sees, on every rank. */
static enum err event_fill(struct exchange *s, const struct exchange_now *n)
{
    struct stepper_event *e = &s->event;
    bool any =
        s->interval.length_ms && (e->phase == STEPPER_AFTER_STEP || e->phase == STEPPER_RESUME);
    memset(e->unreachable, 0, sizeof e->unreachable);
    for (unsigned f = 0; f < s->o.rules.schedule.fragments; f++)
        any = any || stepper_may_ask(&s->stepper, e, f);
    if (!any)
        return ERR_OK;
    e->now_ms = now_ms(s);
    if (exchange_lead(s))
        look_at_clock(s, n);
    if (sharded(s)) /* what the holders ask depends on the lead's clock */
        TRY(s->o.coll->ops->broadcast_host(s->o.coll, e, sizeof *e, 0));
    TRY(silence_look(s, e));
    return sharded(s) ? ERR_OK : s->o.coll->ops->broadcast_host(s->o.coll, e, sizeof *e, 0);
}

/* One event, on every rank. */
static enum err event_run(struct exchange *s, struct exchange_now *n, enum stepper_phase phase,
                          int64_t at)
{
    bool changed = false;
    s->event.phase = phase;
    s->event.step = at;
    TRY(event_fill(s, n));
    stepper_step(&s->stepper, &s->event, &s->update);
    for (unsigned i = 0; i < s->update.count; i++) {
        TRY(action_run(s, n, &s->update.action[i]));
        changed = changed || verb_changes_local(s->update.action[i].verb);
    }
    if (changed)
        s->t.mixed(s->t.self);
    return ERR_OK;
}

/* ---- what the trainer calls ---- */

/* A site keeps the outer states that a restart from its oldest checkpoint would repeat, and no
 * more: that checkpoint contains every round that was applied before its step. */
enum err exchange_saved(struct exchange *s, int64_t oldest_step)
{
    if (sharded(s))
        TRY(s->o.coll->ops->broadcast_host(s->o.coll, &oldest_step, sizeof oldest_step, 0));
    for (unsigned f = 0; f < s->o.rules.schedule.fragments; f++)
        if (holds(s, f))
            TRY(site_prune(s->o.site, f,
                           schedule_applied(&s->o.rules.schedule, f, oldest_step - 1)));
    return ERR_OK;
}

/* A checkpoint between two steps. That of a stop request has its mark (STEPPER_MARK). */
static enum err mark_postponed(struct exchange *s, int64_t at)
{
    struct stepper_event e = {.phase = STEPPER_AFTER_STEP, .step = at};
    uint64_t postponed[ROUND_FRAGMENTS_MAX];
    bool marked = s->event.phase == STEPPER_STOP;
    return !marked && stepper_postponed(&s->stepper, &e, postponed) ? mark_write(s, at, &e)
                                                                    : ERR_OK;
}

enum err exchange_saving(struct exchange *s, const struct exchange_now *n)
{
    TRY(stored_wait(s));
    return exchange_agree(s, mark_postponed(s, n->step));
}

static enum err prepare_site(struct exchange *s, int64_t at)
{
    if (!s->o.site)
        return ERR_OK;
    if (outer_state_begun(s->o.replica))
        return site_prepare(s->o.site, NULL);
    if (at > 0)
        return err_set(
            ERR_CONFIG,
            "%s has step %lld of a run without rounds, and the rounds would begin again "
            "at step 0; use the run.dir that belongs to it, or a new one, with run.init_from "
            "to start from its parameters",
            s->t.checkpoints, (long long)at);
    struct arena scratch = arena_make(0);
    float *initial = arena_array(&scratch, s->t.elements, sizeof *initial);
    enum err e = initial ? s->t.initial(s->t.self, initial) : ERR_MEMORY;
    if (e == ERR_OK)
        e = site_prepare(s->o.site, initial);
    arena_free(&scratch);
    return e;
}

/* Rounds by time: is the end of every round that is repeated on record? */
static enum err intervals_recorded(struct exchange *s, bool *lost)
{
    uint64_t tokens = 1;
    for (uint64_t r = stepper_needs(&s->stepper, &s->event, 0); tokens && r < s->event.state[0];
         r++)
        TRY(site_round_tokens(s->o.site, 0, r, &tokens));
    *lost = !tokens;
    return ERR_OK;
}

/* Where the directory holds the whole run, nothing was prepared. */
static enum err start_site(struct exchange *s, int64_t at)
{
    struct stepper_event *e = &s->event;
    if (!s->o.site)
        return ERR_OK;
    if (site_prepared(s->o.site))
        TRY(site_start(s->o.site, NULL));
    s->o.rules.schedule = s->o.replica->schedule;
    stepper_reschedule(&s->stepper, &s->o.rules.schedule);
    for (unsigned f = 0; f < s->o.rules.schedule.fragments; f++) {
        if (!holds(s, f))
            continue;
        e->state[f] = s->o.replica->state[f].round;
        uint64_t r = stepper_needs(&s->stepper, e, f);
        while (!e->lost && r < e->state[f])
            e->lost = outer_state_load_theta(s->o.replica, f, ++r, theta_memory(s)) != ERR_OK;
    }
    if (!exchange_lead(s))
        return ERR_OK;
    if (s->interval.length_ms && !e->lost)
        TRY(intervals_recorded(s, &e->lost));
    return interval_begin(s, at - 1);
}

/* What each holder has found, on every rank. Round numbers are exact in double. */
static enum err found_share(struct exchange *s)
{
    struct stepper_event *e = &s->event;
    unsigned count = s->o.rules.schedule.fragments;
    double found[ROUND_FRAGMENTS_MAX + 1] = {0};
    if (!sharded(s))
        return s->o.coll->ops->broadcast_host(s->o.coll, e, sizeof *e, 0);
    for (unsigned f = 0; f < count; f++)
        found[f] = holds(s, f) ? (double)e->state[f] : 0;
    found[count] = e->lost;
    TRY(s->o.coll->ops->all_reduce_host(s->o.coll, found, count + 1));
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, e, sizeof *e, 0)); /* with the lead's mark */
    for (unsigned f = 0; f < count; f++)
        e->state[f] = (uint64_t)found[f];
    e->lost = found[count] > 0;
    return ERR_OK;
}

static enum err prepare_wait(void *self)
{
    const struct exchange_waits *w = self;
    return prepare_site(w->s, w->at);
}

static enum err start_wait(void *self)
{
    const struct exchange_waits *w = self;
    return start_site(w->s, w->at);
}

enum err exchange_start(struct exchange *s, struct exchange_now *n)
{
    struct exchange_waits w = {.s = s, .at = n->step};
    s->event = (struct stepper_event){.step = n->step};
    TRY(marks_take(s, n->step));
    TRY(exchange_agree(s, exchange_together(s, &(struct exchange_call){prepare_wait, &w})));
    TRY(exchange_agree(s, exchange_together(s, &(struct exchange_call){start_wait, &w})));
    TRY(found_share(s));
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, &s->o.rules.schedule, sizeof s->o.rules.schedule,
                                       0));
    stepper_reschedule(&s->stepper,
                       &s->o.rules.schedule); /* with the former values of train.steps */
    TRY(exchange_reschedule(s));
    TRY(event_run(s, n, STEPPER_RESUME, n->step));
    return exchange_agree(s, exchange_lead(s) ? interval_begin(s, n->step) : ERR_OK);
}

/* The wait was given up, the steps' work is not. before: the step's rounds are not done. */
static enum err stop_here(struct exchange *s, struct exchange_now *n, bool before)
{
    s->event.before = before;
    TRY(event_run(s, n, STEPPER_STOP, n->step));
    return err_set(ERR_STOPPED,
                   "stopped after step %" PRId64 " of %" PRId64
                   ", while waiting for a round; saved in %s; start again with the same command",
                   n->step, s->o.rules.schedule.steps, s->t.checkpoints);
}

enum err exchange_update(struct exchange *s, struct exchange_now *n)
{
    enum err e = event_run(s, n, STEPPER_BEFORE_UPDATE, n->step + 1);
    return e == ERR_STOPPED ? stop_here(s, n, false) : e;
}

bool exchange_due(const struct exchange *s, int64_t step)
{
    return stepper_due(&s->stepper, step);
}

enum err exchange_step(struct exchange *s, struct exchange_now *n)
{
    uint64_t round;
    enum err e = event_run(s, n, STEPPER_AFTER_STEP, n->step);
    if (e == ERR_STOPPED)
        return stop_here(s, n, true);
    TRY(e);
    TRY(event_run(s, n, STEPPER_MOVED, n->step));
    bool began = s->interval.length_ms && schedule_due(&s->o.rules.schedule, n->step, 0, &round);
    return began ? exchange_agree(s, exchange_lead(s) ? interval_begin(s, n->step) : ERR_OK)
                 : ERR_OK;
}

bool exchange_merged(const struct exchange *s, int64_t at)
{
    uint64_t round;
    if (s->o.rules.schedule.overlap || s->o.rules.schedule.draw.share > 0)
        return schedule_ends(&s->o.rules.schedule, at);
    for (unsigned f = 0; f < s->o.rules.fragments->parts; f++)
        if (at > 0 && !schedule_due(&s->o.rules.schedule, at, f, &round))
            return false;
    return true;
}

/* A strict run has at each step the states of its schedule, also when a restart makes the step
 * again; in quorum mode a round may come later than its step. */
static uint64_t state_known(const struct exchange *s, unsigned f, int64_t at)
{
    return s->o.rules.strict ? schedule_applied(&s->o.rules.schedule, f, at) : s->stepper.state[f];
}

uint64_t exchange_outer_rounds(const struct exchange *s, int64_t at)
{
    return state_known(s, 0, at);
}

enum err exchange_put_outer(struct exchange *s, int64_t at, bool newest)
{
    for (unsigned f = 0; f < s->o.rules.fragments->parts; f++) {
        uint64_t round = newest ? stepper_outer_state(&s->stepper, f, at) : state_known(s, f, at);
        TRY(take_recorded(s, f, round, 0));
    }
    s->t.mixed(s->t.self);
    return ERR_OK;
}
