#include "outer/site/site_train.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/site/site_marks.h"

static bool is_lead(const struct site_train *s)
{
    return s->o.coll->rank == 0;
}

/* Every rank learns how the lead fared before any rank waits for data. */
enum err site_train_agree(const struct site_train *s, enum err mine)
{
    int32_t status = (int32_t)mine;
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, &status, sizeof status));
    if (is_lead(s) || status == ERR_OK)
        return mine;
    return err_set((enum err)status, "the lead of this site stopped: %s",
                   err_text((enum err)status));
}

/* Of the lead; elsewhere 0. */
static uint64_t now_ms(const struct site_train *s)
{
    return s->o.env ? s->o.env->ops->now_ms(s->o.env) : 0;
}

static double ms_since(const struct site_train *s, uint64_t begin_ms)
{
    return (double)(now_ms(s) - begin_ms);
}

/* ---- open and close ---- */

struct parts { /* bytes of each buffer; 0: none */
    size_t fragment, gathered, host, local;
};

/* Blocking, the lead works in the memory of the site's one slot. */
static bool borrows(const struct site_train_options *o)
{
    return o->coll->rank == 0 && o->schedule.overlap == 0;
}

static struct parts parts_of(const struct site_train_options *o, size_t local_elements)
{
    size_t largest = 0;
    bool delayed = false;
    for (unsigned f = 0; f < o->fragments->count; f++) {
        size_t n = o->fragments->f[f].elements;
        largest = n > largest ? n : largest;
        delayed = delayed || schedule_delayed(&o->schedule, f);
    }
    size_t bytes = largest * sizeof(float);
    return (struct parts){.fragment = borrows(o) && o->beside ? 0 : bytes,
                          .gathered = delayed ? bytes : 0,
                          .host = o->beside || o->coll->rank || borrows(o) ? 0 : bytes,
                          .local = o->evaluate ? local_elements * sizeof(float) : 0};
}

struct outer_memory site_train_memory(const struct site_train_options *o, size_t local_elements,
                                      bool here)
{
    struct parts p = parts_of(o, local_elements);
    size_t device = p.fragment + p.gathered, host = p.host + p.local;
    return (struct outer_memory){here ? 0 : device, here ? device + host : host};
}

static enum err clock_check(const struct site_train_options *o)
{
    if (!o->every_ms || clock_mono_there())
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED,
                   "outer.every_s = %g needs a clock that is never set back (CLOCK_MONOTONIC), and "
                   "this system has none; the nearest is outer.every_s = 0 at all sites: rounds "
                   "of outer.every steps",
                   1e-3 * (double)o->every_ms);
}

enum err site_train_open(struct site_train *s, const struct site_train_options *o,
                         size_t local_elements)
{
    struct parts p = parts_of(o, local_elements);
    *s = (struct site_train){.o = *o, .arena = dev_arena(o->dev)};
    s->interval.length_ms = o->every_ms;
    TRY(clock_check(o));
    stepper_open(&s->stepper,
                 &(struct stepper_options){.schedule = o->schedule,
                                           .strict = o->strict,
                                           .timed = o->every_ms > 0,
                                           .before_update = o->before_update,
                                           .max_local_steps_offline = o->max_local_steps_offline,
                                           .mix = (float)o->mix});
    if (p.fragment)
        TRY(dev_alloc(o->dev, (void **)&s->own_fragment, p.fragment));
    TRY(dev_alloc(o->dev, (void **)&s->gathered, p.gathered));
    if (p.host)
        TRY_ALLOC(s->host = arena_alloc(&s->arena, p.host));
    if (o->schedule.draw.share > 0)
        TRY_ALLOC(s->drawn = arena_array(&s->arena, draw_ranges_max(o->fragments->f[0].elements),
                                         sizeof *s->drawn));
    if (p.local)
        TRY_ALLOC(s->local = arena_alloc(&s->arena, p.local));
    s->fragment = s->own_fragment;
    if (borrows(o))
        *(o->beside ? &s->fragment : &s->host) = site_blocking_memory(o->site);
    return ERR_OK;
}

void site_train_close(struct site_train *s)
{
    dev_free(s->o.dev, s->own_fragment);
    dev_free(s->o.dev, s->gathered);
    arena_free(&s->arena);
    *s = (struct site_train){0};
}

uint64_t site_train_rounds(const struct schedule *s, int64_t step)
{
    uint64_t ended = 0;
    for (unsigned f = 0; f < s->fragments; f++)
        ended += schedule_sent(s, f, step);
    return ended;
}

/* ---- local parameters ---- */

/* The slab that holds a fragment: the parameters, with the fragment's ranges gathered, or a moment.
 */
static float *local_gather(struct train *t, const struct fragment *f)
{
    if (f->state == FRAGMENT_PARAMETERS)
        return model_gather_ranges(t->model, f->ranges, f->range_count);
    float *moment = t->optim->state[f->state == FRAGMENT_FIRST ? OPTIM_FIRST : OPTIM_SECOND].shard;
    ASSERT(moment); /* outer.first_every, second_every are refused where there is no moment */
    return moment;
}

static void local_scatter(struct train *t, const struct fragment *f, bool written)
{
    if (f->state == FRAGMENT_PARAMETERS)
        model_scatter_ranges(t->model, f->ranges, f->range_count, written);
}

/* The local values of a fragment, out of the slab it is part of: to memory of the trainer's device.
 */
static void collect(struct site_train *s, struct train *t, float *out, unsigned f)
{
    const struct fragment *part = &s->o.fragments->f[f];
    t->dev->ops->gather_ranges(t->dev, out, local_gather(t, part), part->ranges, part->range_count);
    local_scatter(t, part, false);
}

/* The same to memory of the replica's device; copied: what `gathered` holds instead. */
static enum err gather(struct site_train *s, struct train *t, float *out, unsigned f, bool copied)
{
    size_t bytes = s->o.fragments->f[f].elements * sizeof *out;
    if (!copied)
        collect(s, t, s->host ? s->fragment : out, f);
    if (copied || s->host)
        t->dev->ops->copy(t->dev, out, copied ? s->gathered : s->fragment, bytes);
    return dev_sync(t->dev);
}

/* Where the lead's replica leaves theta. */
static float *theta_memory(const struct site_train *s)
{
    return s->host ? s->host : s->fragment;
}

/* The lead's theta (memory of the replica's device, or the host's) -> s->fragment of every rank ->
 * the slab: local = alpha * local + (1 - alpha) * theta. A second moment is a mean of squares; what
 * a codec's rounding takes below zero would be a root of a negative number. */
static enum err take_theta(struct site_train *s, struct train *t, unsigned f, const float *theta,
                           float alpha)
{
    const struct fragment *part = &s->o.fragments->f[f];
    size_t bytes = part->elements * sizeof *theta;
    struct dev_lerp b = {part->ranges, part->range_count, alpha, part->state == FRAGMENT_SECOND};
    if (is_lead(s) && theta != s->fragment)
        t->dev->ops->copy(t->dev, s->fragment, theta, bytes);
    TRY(dev_sync(t->dev));
    TRY(s->o.coll->ops->broadcast(s->o.coll, s->fragment, bytes));
    t->dev->ops->lerp_ranges(t->dev, local_gather(t, part), s->fragment, &b);
    local_scatter(t, part, true);
    return dev_sync(t->dev);
}

/* A round of a drawn share changes these values alone: the others go on from where they are. A site
 * that has missed a round, or whose parameters are damaged, takes all. */
static enum err take_drawn(struct site_train *s, struct train *t, uint64_t round,
                           const float *theta, float alpha)
{
    const struct fragment *part = &s->o.fragments->f[0];
    size_t bytes = part->elements * sizeof *theta;
    size_t n = draw_ranges(&s->o.schedule.draw, round, part->elements, true, s->drawn);
    ASSERT(part->range_count == 1 && part->ranges[0].offset == 0);
    if (is_lead(s) && theta != s->fragment)
        t->dev->ops->copy(t->dev, s->fragment, theta, bytes);
    TRY(dev_sync(t->dev));
    TRY(s->o.coll->ops->broadcast(s->o.coll, s->fragment, bytes));
    float *params = model_gather_ranges(t->model, s->drawn, n);
    for (size_t i = 0; i < n; i++)
        t->dev->ops->lerp_ranges(t->dev, params, s->fragment + s->drawn[i].offset,
                                 &(struct dev_lerp){&s->drawn[i], 1, alpha, false});
    model_scatter_ranges(t->model, s->drawn, n, true);
    return dev_sync(t->dev);
}

static enum err take_recorded(struct site_train *s, struct train *t, unsigned f, uint64_t round,
                              float alpha)
{
    float *theta = theta_memory(s);
    TRY(site_train_agree(s, is_lead(s) ? site_theta(s->o.site, f, round, theta) : ERR_OK));
    return take_theta(s, t, f, theta, alpha);
}

/* ---- marks of checkpoints ---- */

/* Digest of the local parameters. */
static enum err parameters_digest(struct site_train *s, struct train *t, struct digest *out)
{
    enum { PIECE = 1 << 20 };
    struct arena scratch = arena_make(0);
    struct digest_stream d;
    float *piece;
    TRY_ALLOC(piece = arena_array(&scratch, PIECE, sizeof *piece));
    digest_open(&d);
    for (unsigned f = 0; f < s->o.fragments->count; f++) {
        collect(s, t, s->fragment, f);
        for (size_t at = 0, n = s->o.fragments->f[f].elements; at < n; at += PIECE) {
            size_t bytes = (n - at < PIECE ? n - at : PIECE) * sizeof *piece;
            t->dev->ops->copy(t->dev, piece, s->fragment + at, bytes);
            digest_add(&d, piece, bytes);
        }
    }
    arena_free(&scratch);
    TRY(dev_sync(t->dev));
    *out = digest_close(&d);
    return ERR_OK;
}

/* Of the checkpoint that is written at this event. Lead. */
static enum err mark_write(struct site_train *s, struct train *t, const struct stepper_event *e)
{
    struct site_mark mark = {.step = (uint64_t)t->step, .before = e->before};
    (void)stepper_postponed(&s->stepper, e, mark.postponed);
    TRY(parameters_digest(s, t, &mark.parameters));
    return site_marks_add(s->o.env, &mark);
}

/* Of the checkpoint that was loaded, into the event. Lead. */
static enum err mark_read(struct site_train *s, struct train *t, struct stepper_event *e)
{
    struct site_marks marks;
    struct digest parameters;
    if (!s->o.schedule.overlap && !s->o.max_local_steps_offline)
        return ERR_OK;
    enum err read = site_marks_read(&marks, s->o.env);
    if (read == ERR_CORRUPT)
        return err_set(read,
                       "%s/id/marks: damaged; it says which checkpoints have rounds left to do: "
                       "restore it, or remove it and the newest checkpoint in %s",
                       s->o.env->root, t->given.checkpoint_dir);
    TRY(read);
    if (!site_marks_step(&marks, (uint64_t)t->step))
        return ERR_OK;
    TRY(parameters_digest(s, t, &parameters));
    const struct site_mark *mark = site_marks_find(&marks, (uint64_t)t->step, &parameters);
    if (mark) {
        e->before = mark->before;
        memcpy(e->postponed, mark->postponed, sizeof e->postponed);
    }
    return ERR_OK;
}

/* ---- actions of the stepper ---- */

/* Training stands still from begin_ms until now; in ms. */
static double idled(struct site_train *s, uint64_t begin_ms)
{
    double ms = ms_since(s, begin_ms);
    s->pace.idle_ms += ms;
    return ms;
}

/* Until now, when the next submission begins. */
static struct wire_pace pace_of(struct site_train *s, unsigned fragment, uint64_t at_ms)
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

static struct link_counters since(const struct link_counters *now, const struct link_counters *then)
{
    return (struct link_counters){
        .payload_up = now->payload_up - then->payload_up,
        .payload_down = now->payload_down - then->payload_down,
        .messages_up = now->messages_up - then->messages_up,
        .messages_down = now->messages_down - then->messages_down,
        .wire_up = now->wire_up > then->wire_up ? now->wire_up - then->wire_up : 0,
        .wire_down = now->wire_down > then->wire_down ? now->wire_down - then->wire_down : 0};
}

static void tell_round(struct site_train *s, const struct stepper_action *a,
                       const struct site_completion *done, double mix_ms)
{
    unsigned f = a->fragment;
    struct link_counters now;
    struct site_train_round r = {.step = s->event.step,
                                 .fragment = f,
                                 .included = done->included,
                                 .sites = done->sites ? done->sites : s->o.site_count,
                                 .round = a->round,
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
    s->pace.flight_ms += done->flight_ms;
    s->pace.flights++;
    r.seconds = 1e-3 * (r.gather_ms + r.exposed_ms + r.mix_ms);
    s->o.link->ops->counters(s->o.link, &now);
    r.counted = since(&now, &s->counted);
    s->counted = now;
    s->gather_ms[f] = s->exposed_ms[f] = 0;
    s->o.rounded(s->o.self, &r);
}

enum err site_train_reschedule(struct site_train *s)
{
    TRY(s->o.rescheduled(s->o.self, &s->o.schedule, &s->schedule_version));
    s->stepper.o.schedule = s->o.schedule;
    return ERR_OK;
}

/* Reaps on the lead; every rank learns what the stepper must know. */
static enum err reap(struct site_train *s, const struct stepper_action *a, const float **theta,
                     struct site_completion *done, float *alpha)
{
    *done = (struct site_completion){0};
    enum err e = is_lead(s) ? site_reap(s->o.site, a->fragment, theta, done) : ERR_OK;
    TRY(site_train_agree(s, e));
    if (is_lead(s))
        done->schedule_version = site_schedule_version(s->o.site);
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, done, sizeof *done));
    if (done->schedule_version != s->schedule_version)
        TRY(site_train_reschedule(s));
    *alpha = stepper_reaped(&s->stepper, a, done->reached, done->skipped);
    return ERR_OK;
}

static enum err apply(struct site_train *s, struct train *t, const struct stepper_action *a)
{
    uint64_t begin = now_ms(s);
    struct site_completion done;
    const float *theta = NULL;
    float alpha;
    TRY(reap(s, a, &theta, &done, &alpha));
    bool next = !done.skipped && (done.replayed || done.reached == a->round + 1);
    TRY(next && schedule_draws(&s->o.schedule, a->fragment, a->round)
            ? take_drawn(s, t, a->round, theta, alpha)
            : take_theta(s, t, a->fragment, theta, alpha));
    if (is_lead(s))
        tell_round(s, a, &done, idled(s, begin));
    return ERR_OK;
}

static enum err drop(struct site_train *s, const struct stepper_action *a)
{
    struct site_completion done;
    const float *theta;
    float alpha;
    s->gather_ms[a->fragment] = s->exposed_ms[a->fragment] = 0;
    return reap(s, a, &theta, &done, &alpha);
}

static double weight_of(const struct site_train *s, const struct stepper_action *a)
{
    return weights_of(
        s->o.weights,
        &(struct weights_round){.share = s->o.share,
                                .steps = a->steps,
                                .length = schedule_length(&s->o.schedule, a->fragment, a->round)});
}

static enum err submit_lead(struct site_train *s, struct train *t, const struct stepper_action *a)
{
    unsigned f = a->fragment;
    uint64_t begin = now_ms(s);
    struct site_submission w = {.fragment = f,
                                .round = a->round,
                                .base = a->base,
                                .late = (uint64_t)a->late,
                                .resend = a->resend,
                                .from_start = a->from_start,
                                .data_cursor = t->tokens,
                                .charged = train_charged(t),
                                .step = t->step,
                                .loss = s->report.loss,
                                .tokens_per_second = s->report.tokens_per_second,
                                .pace = pace_of(s, f, begin),
                                .tokens = t->tokens};
    float *local;
    s->weight[f] = weight_of(s, a);
    s->trained[f] = a->steps;
    w.weight = (float)s->weight[f];
    TRY(site_acquire(s->o.site, f, &local));
    if (a->resend) /* nothing is gathered: its contribution is stored */
        w = (struct site_submission){.fragment = f,
                                     .round = a->round,
                                     .base = a->base,
                                     .resend = true,
                                     .step = schedule_step(&s->o.schedule, f, a->round),
                                     .loss = NAN,
                                     .tokens_per_second = NAN};
    else
        TRY(gather(s, t, local, f, a->copied));
    site_submit(s->o.site, &w);
    s->gather_ms[f] += idled(s, begin);
    return ERR_OK;
}

static enum err wait_lead(struct site_train *s, const struct stepper_action *a)
{
    uint64_t begin = now_ms(s);
    enum err e = site_complete(s->o.site, a->fragment);
    s->exposed_ms[a->fragment] += idled(s, begin);
    return e;
}

static enum err go_eager(struct site_train *s, struct train *t, const struct stepper_action *a)
{
    uint64_t begin = now_ms(s);
    const float *start = NULL;
    enum err e = is_lead(s) ? site_eager(s->o.site, a->fragment, &start) : ERR_OK;
    s->exposed_ms[a->fragment] += idled(s, begin);
    TRY(site_train_agree(s, e));
    return take_theta(s, t, a->fragment, start, 0);
}

static void tell_postponed(const struct site_train *s, const struct stepper_action *a)
{
    if (is_lead(s) && a->steps == 0)
        log_event(LOG_WARN, "train_on",
                  "fragment=%u round=%" PRIu64 " at_most_steps=%" PRId64
                  " reason=\"aggregator unreachable\"",
                  a->fragment, a->round, a->left);
}

static enum err forget_starts(struct site_train *s)
{
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        TRY(site_moved(s->o.site, f));
    return ERR_OK;
}

/* ---- rounds by time ---- */

static uint64_t batch_of(const struct train *t)
{
    return (uint64_t)t->settings->train_batch_tokens;
}

/* What is trained from here on is for the round after those that end by `step`. Lead. */
static enum err interval_begin(struct site_train *s, int64_t step)
{
    uint64_t round = schedule_sent(&s->o.schedule, 0, step);
    struct interval i = {s->interval.length_ms, now_ms(s), 0, 0};
    if (!i.length_ms)
        return ERR_OK;
    if (round)
        TRY(site_round_tokens(s->o.site, 0, round - 1, &i.began_tokens));
    if (round < schedule_rounds(&s->o.schedule, 0))
        TRY(site_round_tokens(s->o.site, 0, round, &i.ended_tokens));
    s->interval = i;
    return ERR_OK;
}

/* The tokens that this site has counted by the step it moves to, on every rank. */
static enum err tokens_moved(struct site_train *s, struct train *t)
{
    if (!s->interval.length_ms) {
        t->tokens = (uint64_t)t->step * batch_of(t);
        return ERR_OK;
    }
    TRY(site_train_agree(s, is_lead(s) ? interval_begin(s, t->step) : ERR_OK));
    if (is_lead(s) && s->interval.began_tokens)
        t->tokens = s->interval.began_tokens;
    return s->o.coll->ops->broadcast_host(s->o.coll, &t->tokens, sizeof t->tokens);
}

static void look_at_clock(struct site_train *s, const struct train *t)
{
    struct stepper_event *e = &s->event;
    e->over = interval_over(&s->interval, now_ms(s), t->tokens);
    e->trained = interval_steps(&s->interval, t->tokens, batch_of(t));
}

static enum err move(struct site_train *s, struct train *t, int64_t step)
{
    if (is_lead(s))
        log_event(LOG_WARN, "moved",
                  "from_step=%" PRId64 " to_step=%" PRId64
                  " reason=\"the run went on without this site\"",
                  t->step, step);
    TRY(site_train_agree(s, is_lead(s) ? forget_starts(s) : ERR_OK));
    t->step = step;
    return tokens_moved(s, t);
}

static enum err skip(struct site_train *s, struct train *t, int64_t step)
{
    if (is_lead(s))
        log_event(LOG_DETAIL, "round_over",
                  "step=%" PRId64 " made=%" PRId64 " skipped=%" PRId64 " recorded=%d", step,
                  s->event.trained, step - t->step, s->interval.ended_tokens > 0);
    t->step = s->event.step = step;
    return ERR_OK;
}

static enum err stored(struct site_train *s)
{
    return site_train_agree(s, is_lead(s) ? site_wait_stored(s->o.site) : ERR_OK);
}

static enum err act(struct site_train *s, struct train *t, const struct stepper_action *a)
{
    bool lead = is_lead(s);
    switch (a->verb) {
    case STEPPER_CHECK:
        return site_train_agree(s, lead ? site_failed(s->o.site) : ERR_OK);
    case STEPPER_WAIT:
        return site_train_agree(s, lead ? wait_lead(s, a) : ERR_OK);
    case STEPPER_COPY:
        collect(s, t, s->gathered, a->fragment);
        return ERR_OK;
    case STEPPER_APPLY:
        return apply(s, t, a);
    case STEPPER_DROP:
        return drop(s, a);
    case STEPPER_TAKE:
        return take_recorded(s, t, a->fragment, a->round, a->alpha);
    case STEPPER_SUBMIT:
        return site_train_agree(s, lead ? submit_lead(s, t, a) : ERR_OK);
    case STEPPER_EAGER:
        return go_eager(s, t, a);
    case STEPPER_POSTPONE:
        tell_postponed(s, a);
        return ERR_OK;
    case STEPPER_MOVE:
        return move(s, t, a->step);
    case STEPPER_SKIP:
        return skip(s, t, a->step);
    case STEPPER_STORE:
        return stored(s);
    case STEPPER_MARK:
        return site_train_agree(s, lead ? mark_write(s, t, &s->event) : ERR_OK);
    case STEPPER_SAVE:
        return t->saved.step == t->step ? ERR_OK : train_checkpoint(t);
    }
    return ERR_OK;
}

static bool changes(enum stepper_verb v)
{
    return v == STEPPER_APPLY || v == STEPPER_TAKE || v == STEPPER_EAGER;
}

/* Of s->event: what the lead sees, on every rank. */
static enum err look(struct site_train *s, const struct train *t)
{
    struct stepper_event *e = &s->event;
    bool any =
        s->interval.length_ms && (e->phase == STEPPER_AFTER_STEP || e->phase == STEPPER_RESUME);
    memset(e->unreachable, 0, sizeof e->unreachable);
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        any = any || stepper_may_ask(&s->stepper, e, f);
    if (!any)
        return ERR_OK;
    enum err found = ERR_OK;
    e->now_ms = now_ms(s);
    if (is_lead(s))
        look_at_clock(s, t);
    for (unsigned f = 0; is_lead(s) && found == ERR_OK && f < s->o.schedule.fragments; f++)
        if (stepper_asks(&s->stepper, e, f))
            found = site_unreachable(s->o.site, f, &e->unreachable[f]);
    TRY(site_train_agree(s, found));
    return s->o.coll->ops->broadcast_host(s->o.coll, e, sizeof *e);
}

/* One event, on every rank. */
static enum err step(struct site_train *s, struct train *t, enum stepper_phase phase, int64_t at)
{
    bool changed = false;
    s->event.phase = phase;
    s->event.step = at;
    TRY(look(s, t));
    stepper_step(&s->stepper, &s->event, &s->update);
    for (unsigned i = 0; i < s->update.count; i++) {
        TRY(act(s, t, &s->update.action[i]));
        changed = changed || changes(s->update.action[i].verb);
    }
    if (changed)
        model_params_changed(t->model);
    return ERR_OK;
}

/* ---- what the training loop calls ---- */

/* A site keeps the outer states that a restart from its oldest checkpoint would repeat, and no
 * more: what is applied before that step, that checkpoint has for certain. */
enum err site_train_saved(struct site_train *s, int64_t oldest_step)
{
    if (!is_lead(s))
        return ERR_OK;
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        TRY(site_prune(s->o.site, f, schedule_applied(&s->o.schedule, f, oldest_step - 1)));
    return ERR_OK;
}

/* A checkpoint between two steps. That of a stop request has its mark (STEPPER_MARK). */
static enum err mark_postponed(struct site_train *s, struct train *t)
{
    struct stepper_event e = {.phase = STEPPER_AFTER_STEP, .step = t->step};
    uint64_t postponed[ROUND_FRAGMENTS_MAX];
    bool marked = s->event.phase == STEPPER_STOP;
    return !marked && stepper_postponed(&s->stepper, &e, postponed) ? mark_write(s, t, &e) : ERR_OK;
}

enum err site_train_saving(struct site_train *s, struct train *t)
{
    TRY(stored(s));
    return site_train_agree(s, is_lead(s) ? mark_postponed(s, t) : ERR_OK);
}

static enum err start_site(struct site_train *s, struct train *t)
{
    if (outer_state_begun(s->o.replica)) {
        TRY(outer_state_load(s->o.replica));
        /* Ended: no call is needed, and the aggregator may have gone. */
        return site_ended(s->o.site) ? ERR_OK : site_start(s->o.site, NULL);
    }
    if (t->step > 0)
        return err_set(ERR_CONFIG,
                       "%s has step %lld of a run without rounds, and the rounds would begin anew "
                       "at step 0; use another run.dir, with run.from to start from its parameters",
                       t->given.checkpoint_dir, (long long)t->step);
    struct arena scratch = arena_make(0);
    float *initial = arena_array(&scratch, t->table.elements, sizeof *initial);
    enum err e = initial ? ERR_OK : ERR_MEMORY;
    if (e == ERR_OK && s->o.initial)
        e = s->o.initial(s->o.self, initial);
    else if (e == ERR_OK)
        table_init(&t->table, (uint64_t)t->settings->run_seed, initial);
    if (e == ERR_OK)
        e = site_start(s->o.site, initial);
    arena_free(&scratch);
    return e;
}

/* Rounds by time: is the end of every round that is repeated on record? */
static enum err intervals_recorded(struct site_train *s, bool *lost)
{
    uint64_t tokens = 1;
    for (uint64_t r = stepper_needs(&s->stepper, &s->event, 0); tokens && r < s->event.state[0];
         r++)
        TRY(site_round_tokens(s->o.site, 0, r, &tokens));
    *lost = !tokens;
    return ERR_OK;
}

static enum err start_lead(struct site_train *s, struct train *t)
{
    struct stepper_event *e = &s->event;
    TRY(mark_read(s, t, e));
    TRY(start_site(s, t));
    s->stepper.o.schedule = s->o.schedule = s->o.replica->schedule;
    for (unsigned f = 0; f < s->o.schedule.fragments; f++) {
        e->state[f] = s->o.replica->state[f].round;
        uint64_t r = stepper_needs(&s->stepper, e, f);
        while (!e->lost && r < e->state[f])
            e->lost = outer_state_load_theta(s->o.replica, f, ++r, theta_memory(s)) != ERR_OK;
    }
    if (s->interval.length_ms && !e->lost)
        TRY(intervals_recorded(s, &e->lost));
    return interval_begin(s, t->step - 1);
}

enum err site_train_start(struct site_train *s, struct train *t)
{
    s->event = (struct stepper_event){.step = t->step};
    s->report = (struct train_report){.step = t->step, .loss = NAN};
    TRY(site_train_agree(s, is_lead(s) ? start_lead(s, t) : ERR_OK));
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, &s->event, sizeof s->event));
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, &s->o.schedule, sizeof s->o.schedule));
    s->stepper.o.schedule = s->o.schedule; /* with the former values of train.steps */
    TRY(site_train_reschedule(s));
    TRY(step(s, t, STEPPER_RESUME, t->step));
    return site_train_agree(s, is_lead(s) ? interval_begin(s, t->step) : ERR_OK);
}

/* The wait was given up, the steps' work is not. before: the step's rounds are not done. */
static enum err stop_here(struct site_train *s, struct train *t, bool before)
{
    s->event.before = before;
    TRY(step(s, t, STEPPER_STOP, t->step));
    return err_set(ERR_STOPPED,
                   "stopped after step %" PRId64 " of %" PRId64
                   ", while waiting for a round; saved in %s; start again with the same command",
                   t->step, (int64_t)t->settings->train_steps, t->given.checkpoint_dir);
}

enum err site_train_update(struct site_train *s, struct train *t)
{
    enum err e = step(s, t, STEPPER_BEFORE_UPDATE, t->step + 1);
    return e == ERR_STOPPED ? stop_here(s, t, false) : e;
}

bool site_train_due(const struct site_train *s, int64_t step)
{
    return stepper_due(&s->stepper, step);
}

enum err site_train_step(struct site_train *s, struct train *t, const struct train_report *r)
{
    uint64_t round;
    s->report = *r;
    enum err e = step(s, t, STEPPER_AFTER_STEP, t->step);
    if (e == ERR_STOPPED)
        return stop_here(s, t, true);
    TRY(e);
    TRY(step(s, t, STEPPER_MOVED, t->step));
    bool began = s->interval.length_ms && schedule_due(&s->o.schedule, t->step, 0, &round);
    return began ? site_train_agree(s, is_lead(s) ? interval_begin(s, t->step) : ERR_OK) : ERR_OK;
}

bool site_train_merged(const struct site_train *s, int64_t at)
{
    uint64_t round;
    if (s->o.schedule.overlap || s->o.schedule.draw.share > 0)
        return schedule_ends(&s->o.schedule, at);
    for (unsigned f = 0; f < s->o.fragments->parts; f++)
        if (at > 0 && !schedule_due(&s->o.schedule, at, f, &round))
            return false;
    return true;
}

typedef uint64_t state_of(const struct site_train *s, unsigned f, int64_t step);

/* Runs `work` on these states of the fragments. */
static enum err work_on(struct site_train *s, struct train *t, state_of *which,
                        enum err (*work)(void *self, struct train *t), void *self)
{
    const struct dev_range all = slab_all(&t->table);
    size_t bytes = all.count * sizeof(float);
    ASSERT(s->local);
    t->dev->ops->copy(t->dev, s->local, model_gather(t->model, all), bytes);
    model_scatter(t->model, all, false);
    TRY(dev_sync(t->dev));
    for (unsigned f = 0; f < s->o.fragments->parts; f++)
        TRY(take_recorded(s, t, f, which(s, f, t->step), 0));
    model_params_changed(t->model);
    TRY(work(self, t));
    t->dev->ops->copy(t->dev, model_gather(t->model, all), s->local, bytes);
    model_scatter(t->model, all, true);
    model_params_changed(t->model);
    return dev_sync(t->dev);
}

static uint64_t state_now(const struct site_train *s, unsigned f, int64_t step)
{
    return stepper_outer_state(&s->stepper, f, step);
}

static enum err evaluate(void *self, struct train *t)
{
    return train_evaluate(t, self);
}

enum err site_train_eval(struct site_train *s, struct train *t, struct train_eval *e, bool *same)
{
    *same = site_train_merged(s, t->step) || !s->local;
    return *same ? ERR_OK : work_on(s, t, state_now, evaluate, e);
}

/* A strict run has at each step the states of its schedule, also when a restart makes the step
 * again; in quorum mode a round may come later than its step. */
static uint64_t state_known(const struct site_train *s, unsigned f, int64_t step)
{
    return s->o.strict ? schedule_applied(&s->o.schedule, f, step) : s->stepper.state[f];
}

uint64_t site_train_outer_rounds(const struct site_train *s, const struct train *t)
{
    return state_known(s, 0, t->step);
}

enum err site_train_outer(struct site_train *s, struct train *t,
                          enum err (*work)(void *self, struct train *t), void *self)
{
    if (s->o.strict && site_train_merged(s, t->step))
        return work(self, t);
    return work_on(s, t, state_known, work, self);
}
