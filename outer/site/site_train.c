#include "outer/site/site_train_own.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/base/log.h"

double site_train_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool site_train_lead(const struct site_train *s)
{
    return s->o.coll->rank == 0;
}

enum err site_train_agree(const struct site_train *s, enum err mine)
{
    int32_t status = (int32_t)mine;
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, &status, sizeof status));
    if (site_train_lead(s) || status == ERR_OK)
        return mine;
    return err_set((enum err)status, "the lead of this site stopped: %s",
                   err_text((enum err)status));
}

struct parts { /* bytes of each buffer; 0: none */
    size_t fragment, gathered, host, local;
};

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
    return (struct parts){.fragment = bytes,
                          .gathered = delayed ? bytes : 0,
                          .host = o->beside || o->coll->rank ? 0 : bytes,
                          .local = o->evaluate ? local_elements * sizeof(float) : 0};
}

struct outer_memory site_train_memory(const struct site_train_options *o, size_t local_elements,
                                      bool here)
{
    struct parts p = parts_of(o, local_elements);
    size_t device = p.fragment + p.gathered, host = p.host + p.local;
    return (struct outer_memory){here ? 0 : device, here ? device + host : host};
}

enum err site_train_open(struct site_train *s, const struct site_train_options *o,
                         size_t local_elements)
{
    struct parts p = parts_of(o, local_elements);
    *s = (struct site_train){.o = *o, .arena = dev_arena(o->dev)};
    TRY(dev_alloc(o->dev, (void **)&s->fragment, p.fragment));
    TRY(dev_alloc(o->dev, (void **)&s->gathered, p.gathered));
    if (p.host)
        TRY_ALLOC(s->host = arena_alloc(&s->arena, p.host));
    if (p.local)
        TRY_ALLOC(s->local = arena_alloc(&s->arena, p.local));
    return ERR_OK;
}

void site_train_close(struct site_train *s)
{
    dev_free(s->o.dev, s->fragment);
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

static float *slab_of(const struct train *t, enum fragment_state state)
{
    float *const slabs[FRAGMENT_STATES] = {model_params(t->model), t->optim.m, t->optim.v};
    return slabs[state];
}

void site_train_collect(struct site_train *s, struct train *t, float *out, unsigned f)
{
    const struct fragment *part = &s->o.fragments->f[f];
    t->dev->ops->collect(t->dev, out, slab_of(t, part->state), part->ranges, part->range_count);
}

enum err site_train_gather(struct site_train *s, struct train *t, float *out, unsigned f)
{
    site_train_collect(s, t, s->host ? s->fragment : out, f);
    if (s->host)
        t->dev->ops->copy(t->dev, out, s->fragment, s->o.fragments->f[f].elements * sizeof *out);
    return dev_sync(t->dev);
}

float *site_train_handed(const struct site_train *s)
{
    return s->host ? s->host : s->fragment;
}

/* A second moment is a mean of squares; what a codec's rounding takes below zero would be a root of
 * a negative number. */
enum err site_train_take(struct site_train *s, struct train *t, unsigned f, const float *theta,
                         float alpha)
{
    const struct fragment *part = &s->o.fragments->f[f];
    size_t bytes = part->elements * sizeof *theta;
    struct dev_blend b = {part->ranges, part->range_count, alpha, part->state == FRAGMENT_SECOND};
    if (site_train_lead(s) && theta != s->fragment)
        t->dev->ops->copy(t->dev, s->fragment, theta, bytes);
    TRY(dev_sync(t->dev));
    TRY(s->o.coll->ops->broadcast(s->o.coll, s->fragment, bytes));
    t->dev->ops->blend(t->dev, slab_of(t, part->state), s->fragment, &b);
    return dev_sync(t->dev);
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

/* Where the local steps of this round began: at its fragment's last merge. */
static int64_t round_begin(const struct site_train *s, unsigned f, uint64_t round)
{
    int64_t planned = round ? schedule_step(&s->o.schedule, f, round - 1) : 0;
    return s->merged_step[f] > planned ? s->merged_step[f] : planned;
}

/* Weight of a contribution: this site's tokens of the round over the nominal ones of a full round.
 */
double site_train_weight(const struct site_train *s, const struct train *t, unsigned f,
                         uint64_t round)
{
    return s->o.share * (double)(t->step - round_begin(s, f, round)) /
           (double)s->o.schedule.beat[f].every;
}

void site_train_tell(struct site_train *s, struct site_train_round *r)
{
    struct link_counters now;
    s->o.link->ops->counters(s->o.link, &now);
    r->counted = since(&now, &s->counted);
    s->counted = now;
    r->sites = s->o.site_count;
    s->o.rounded(s->o.self, r);
}

static void tell(struct site_train *s, struct site_train_round *r)
{
    struct manifest manifest;
    r->times = site_last(s->o.site);
    r->metrics = site_gauge(s->o.site, r->fragment, r->round);
    if (outer_state_manifest(s->o.replica, r->fragment, r->round, &manifest) == ERR_OK) {
        r->included = manifest_included(&manifest);
        r->down_predicted = manifest.aggregate_bytes;
        r->up_predicted = site_sent_bytes(s->o.site, &manifest);
    }
    site_train_tell(s, r);
}

/* The round is merged and durable here: a wish to stop is the training loop's to obey. */
static enum err said(enum err e)
{
    return e == ERR_STOPPED ? ERR_OK : e;
}

/* The lead's part of a round: gather, exchange, tell. What was handed over then is the new outer
 * parameters. */
static enum err exchange(struct site_train *s, struct train *t, const struct train_report *report,
                         unsigned f, uint64_t round)
{
    struct site_train_round r = {.step = t->step,
                                 .fragment = f,
                                 .round = round,
                                 .weight = site_train_weight(s, t, f, round),
                                 .replayed = s->o.replica->state[f].round > round};
    double begin = site_train_now();
    TRY(site_train_gather(s, t, site_train_handed(s), f));
    r.gather_ms = 1e3 * (site_train_now() - begin);
    TRY(site_round(s->o.site, f, round, site_train_handed(s), (float)r.weight, t->tokens));
    r.seconds = site_train_now() - begin;
    r.flight_ms = r.exposed_ms = 1e3 * r.seconds - r.gather_ms; /* training waited for all of it */
    tell(s, &r);
    if (r.replayed &&
        round + 1 < schedule_rounds(&s->o.schedule, f)) /* it was told before the restart */
        return ERR_OK;
    return said(
        site_report(s->o.site, f, t->step, report->loss, report->tokens_per_second, t->tokens));
}

/* Quorum mode: may the round wait for an aggregator that is away, while this site trains on? At
 * most outer.max_local_steps_offline, and not beyond the step where the fragment's next round ends.
 */
static enum err may_postpone(struct site_train *s, const struct train *t, unsigned f,
                             uint64_t round, bool *later)
{
    enum { ASK_EVERY_S = 1 };
    int64_t extra = t->step - schedule_step(&s->o.schedule, f, round);
    int64_t every = s->o.schedule.beat[f].every;
    int64_t room =
        every - 1 < s->o.max_local_steps_offline ? every - 1 : s->o.max_local_steps_offline;
    *later = false;
    if (s->o.strict || extra >= room || t->step == s->o.schedule.steps)
        return ERR_OK;
    *later = extra > 0 && site_train_now() - s->asked < ASK_EVERY_S;
    if (*later)
        return ERR_OK;
    TRY(site_unreachable(s->o.site, f, round, (uint64_t)extra, later));
    s->asked = site_train_now();
    if (*later && extra == 0)
        log_event(LOG_WARN, "train_on",
                  "fragment=%u round=%llu at_most_steps=%lld reason=\"aggregator unreachable\"", f,
                  (unsigned long long)round, (long long)room);
    return ERR_OK;
}

/* The round that ends at this step, or one that was postponed. */
static bool round_now(const struct site_train *s, const struct train *t, unsigned f,
                      uint64_t *round)
{
    if (t->step > 0 && schedule_due(&s->o.schedule, t->step, f, round))
        return true;
    *round = s->postponed[f] - 1;
    return s->postponed[f] > 0;
}

/* One fragment on every rank; *merged false when its round is postponed. */
static enum err one_round(struct site_train *s, struct train *t, const struct train_report *report,
                          unsigned f, uint64_t round, bool *merged)
{
    bool later = false;
    enum err e = ERR_OK;
    if (site_train_lead(s))
        e = may_postpone(s, t, f, round, &later);
    if (site_train_lead(s) && e == ERR_OK && !later)
        e = exchange(s, t, report, f, round);
    TRY(site_train_agree(s, e));
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, &later, sizeof later));
    *merged = !later;
    s->postponed[f] = later ? round + 1 : 0;
    if (later)
        return ERR_OK;
    s->merged_step[f] = t->step;
    return site_train_take(s, t, f, site_train_handed(s), 0);
}

/* All rounds that end at this step, on every rank. */
static enum err rounds_due(struct site_train *s, struct train *t, const struct train_report *report)
{
    bool changed = false, merged;
    uint64_t round;
    if (s->o.schedule.overlap)
        return site_overlap_step(s, t, report);
    for (unsigned f = 0; f < s->o.schedule.fragments; f++) {
        if (!round_now(s, t, f, &round))
            continue;
        TRY(one_round(s, t, report, f, round, &merged));
        changed = changed || merged;
    }
    if (changed)
        model_params_changed(t->model);
    return ERR_OK;
}

/* A site keeps the outer states that a restart from its oldest checkpoint would repeat, and no
 * more: what is applied before that step, that checkpoint has for certain. */
enum err site_train_saved(struct site_train *s, int64_t oldest_step)
{
    if (!site_train_lead(s))
        return ERR_OK;
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        TRY(site_prune(s->o.site, f, schedule_applied(&s->o.schedule, f, oldest_step - 1)));
    return ERR_OK;
}

enum err site_train_saving(struct site_train *s)
{
    enum err e = ERR_OK;
    if (s->o.schedule.overlap)
        e = site_train_agree(s, site_train_lead(s) ? site_stored(s->o.site) : ERR_OK);
    return e;
}

static int64_t reached(const struct site_train *s)
{
    uint64_t rounds[ROUND_FRAGMENTS_MAX];
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        rounds[f] = s->o.schedule.overlap ? s->have[f] : s->o.replica->state[f].round;
    return schedule_reached(&s->o.schedule, rounds);
}

/* Can the steps from t->step on be repeated with the recorded states, so that a restart ends with
 * the same bits? */
static bool repeatable(struct site_train *s, const struct train *t)
{
    const struct schedule *c = &s->o.schedule;
    /* Without overlap a checkpoint may be from before the rounds at its step, or after them. */
    int64_t done = c->overlap && !s->before ? t->step : t->step - 1;
    for (unsigned f = 0; f < c->fragments; f++) {
        uint64_t have = s->o.replica->state[f].round, need = schedule_applied(c, f, done);
        if (have < need) /* older than the checkpoint: an adopted snapshot, or files put back */
            return false;
        if (have > schedule_sent(c, f, t->step) &&
            !s->o.strict) /* the others went on: nothing repeated could still be sent */
            return false;
        for (uint64_t r = need + 1; r <= have; r++)
            if (outer_state_load_theta(s->o.replica, f, r, site_train_handed(s)) != ERR_OK)
                return false;
    }
    return true;
}

/* What the outer parameters are at this step: with overlap they may be known before they are
 * applied.
 */
static uint64_t outer_round(const struct site_train *s, const struct train *t, unsigned f)
{
    return s->o.schedule.overlap ? schedule_applied(&s->o.schedule, f, t->step) : UINT64_MAX;
}

/* The first `count` fragments' outer state becomes the local one; the parameters' come first. */
static enum err take_outer(struct site_train *s, struct train *t, unsigned count)
{
    for (unsigned f = 0; f < count; f++) {
        float *theta = site_train_handed(s);
        enum err e =
            site_train_lead(s) ? site_theta(s->o.site, f, outer_round(s, t, f), theta) : ERR_OK;
        TRY(site_train_agree(s, e));
        TRY(site_train_take(s, t, f, theta, 0));
    }
    model_params_changed(t->model);
    return ERR_OK;
}

/* All rounds of the run are recorded here: what is left to do needs nobody, and the aggregator may
 * have gone. */
static bool ended(const struct site_train *s)
{
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        if (s->o.replica->state[f].round < schedule_rounds(&s->o.schedule, f))
            return false;
    return true;
}

static enum err start_lead(struct site_train *s, struct train *t, int64_t *step)
{
    if (s->o.schedule.overlap)
        TRY(site_overlap_marked(s, t, &s->before));
    if (outer_state_found(s->o.replica)) {
        TRY(outer_state_load(s->o.replica));
        if (ended(s))
            return ERR_OK;
    }
    struct arena scratch = arena_make(0);
    float *initial = arena_array(&scratch, t->table.elements, sizeof *initial);
    enum err e = initial ? ERR_OK : ERR_MEMORY;
    if (e == ERR_OK) {
        table_init(&t->table, (uint64_t)t->settings->run_seed, initial);
        e = site_start(s->o.site, initial);
    }
    arena_free(&scratch);
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        s->have[f] = s->o.replica->state[f].round;
    if (e == ERR_OK && !repeatable(s, t))
        *step = reached(s);
    return e;
}

/* Every rank goes on at the lead's `step`, with the outer parameters. */
static enum err go_on_at(struct site_train *s, struct train *t, int64_t step, bool *moved)
{
    TRY(s->o.coll->ops->broadcast_host(s->o.coll, &step, sizeof step));
    *moved = step != t->step;
    if (!*moved)
        return ERR_OK;
    if (site_train_lead(s))
        log_event(LOG_WARN, "moved",
                  "from_step=%lld to_step=%lld reason=\"the run went on without this site\"",
                  (long long)t->step, (long long)step);
    TRY(site_overlap_clear(s));
    for (unsigned f = 0; f < s->o.schedule.fragments; f++) {
        TRY(site_train_agree(s, site_train_lead(s) ? site_moved(s->o.site, f) : ERR_OK));
        s->merged_step[f] = step;
    }
    t->step = step;
    t->tokens = (uint64_t)step * (uint64_t)t->settings->train_batch_tokens;
    return take_outer(s, t, s->o.fragments->count);
}

enum err site_train_start(struct site_train *s, struct train *t)
{
    int64_t step = t->step;
    bool moved;
    TRY(site_train_agree(s, site_train_lead(s) ? start_lead(s, t, &step) : ERR_OK));
    TRY(go_on_at(s, t, step, &moved));
    if (moved)
        return ERR_OK;
    if (s->o.schedule.overlap) {
        TRY(s->o.coll->ops->broadcast_host(s->o.coll, &s->before, sizeof s->before));
        TRY(site_overlap_resume(s, t));
        if (!s->before && t->step < s->o.schedule.steps) /* the checkpoint has this step's rounds */
            return ERR_OK;
    }
    return rounds_due(s, t, &(struct train_report){.step = t->step, .loss = NAN});
}

/* The wait was given up, the steps' work is not. */
static enum err stop_here(struct train *t)
{
    if (t->saved_step != t->step)
        TRY(train_checkpoint(t));
    return err_set(ERR_STOPPED, "stopped at step %lld while waiting for a round; it is stored",
                   (long long)t->step);
}

enum err site_train_update(struct site_train *s, struct train *t)
{
    enum err e = s->o.before_update ? site_overlap_update(s, t) : ERR_OK;
    if (e != ERR_STOPPED)
        return e;
    TRY(site_train_saving(s));
    return stop_here(t);
}

bool site_train_due(const struct site_train *s, const struct train *t)
{
    uint64_t round;
    bool any = !s->o.strict; /* it may have to move to where the others are */
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        any = any || schedule_due(&s->o.schedule, t->step, f, &round) ||
              site_overlap_lands(s, t->step, f);
    return any;
}

enum err site_train_step(struct site_train *s, struct train *t, const struct train_report *r)
{
    bool moved;
    enum err e = rounds_due(s, t, r);
    if (e == ERR_STOPPED) {
        TRY(site_train_saving(s));
        if (s->o.schedule.overlap)
            TRY(site_train_agree(s, site_train_lead(s) ? site_overlap_mark(s, t) : ERR_OK));
        return stop_here(t);
    }
    if (e != ERR_OK || s->o.strict)
        return e;
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        if (s->postponed[f])
            return ERR_OK;
    int64_t step = site_train_lead(s) && reached(s) > t->step ? reached(s) : t->step;
    return go_on_at(s, t, step, &moved);
}

/* Do the local parameters equal the outer ones? They do where every fragment has just been merged.
 */
static bool merged_here(const struct site_train *s, int64_t step)
{
    uint64_t round;
    if (s->o.schedule.overlap)
        return step == s->o.schedule.steps;
    for (unsigned f = 0; f < s->o.fragments->parts; f++)
        if (step > 0 && !schedule_due(&s->o.schedule, step, f, &round))
            return false;
    return true;
}

enum err site_train_eval(struct site_train *s, struct train *t, double *loss, size_t *tokens,
                         bool *same)
{
    size_t bytes = t->table.elements * sizeof(float);
    *same = merged_here(s, t->step) || !s->local;
    if (*same)
        return ERR_OK;
    t->dev->ops->copy(t->dev, s->local, model_params(t->model), bytes);
    TRY(dev_sync(t->dev));
    TRY(take_outer(s, t, s->o.fragments->parts));
    TRY(train_evaluate(t, loss, tokens));
    t->dev->ops->copy(t->dev, model_params(t->model), s->local, bytes);
    model_params_changed(t->model);
    return dev_sync(t->dev);
}
