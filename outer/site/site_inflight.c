/* SPDX-License-Identifier: Apache-2.0 */
/* In-flight slots: a slot carries out one round of one fragment at a time. With overlap each slot
 * has a thread; blocking, the caller itself carries the round out, in site_complete. The slots'
 * states are guarded by site->post; everything else a round touches, by site->mutex (site_own.h).
 */
#include <stdio.h>
#include <string.h>
#include "outer/site/site_own.h"
#include "outer/protocol/mutant.h"

enum { LOOK_MS = 500 }; /* how often a waiting caller passes on what the slots say */

static void post_lock(struct site *s)
{
    s->env->ops->lock(s->env, s->inflight.post);
}

static void post_unlock(struct site *s)
{
    s->env->ops->unlock(s->env, s->inflight.post);
}

/* With post locked: the state machine. From each state to those after it. */
static void slot_enter(struct site_slot *l, enum site_slot_state next)
{
#define TO(state) (1u << SLOT_##state)
    static const unsigned after[] = {
        [SLOT_FREE] = TO(ACQUIRED),
        [SLOT_ACQUIRED] = TO(SUBMITTED),
        [SLOT_SUBMITTED] = TO(STORED) | TO(FAILED) | TO(COMPLETE) | TO(REPORTING),
        [SLOT_FAILED] = TO(FREE),
        [SLOT_STORED] = TO(COMPLETE) | TO(REPORTING),
        [SLOT_REPORTING] = TO(COMPLETE) | TO(REAPED),
        [SLOT_COMPLETE] = TO(FREE),
        [SLOT_REAPED] = TO(FREE),
    };
#undef TO
    ASSERT(after[l->flight.state] & 1u << next);
    l->flight.state = next;
    l->site->env->ops->signal(l->site->env, l->site->inflight.post);
}

static bool slot_running(const struct site_slot *l)
{
    return l->flight.state == SLOT_SUBMITTED || l->flight.state == SLOT_STORED;
}

static bool slot_complete(const struct site_slot *l)
{
    return l->flight.state == SLOT_COMPLETE || l->flight.state == SLOT_REPORTING ||
           l->flight.state == SLOT_FAILED;
}

/* ---- carrying out a round: the slot's thread, or the caller ---- */

/* With the mutex locked. What the caller is told in addition to theta. */
static void slot_describe(struct site_slot *l, bool replayed, uint64_t begun_ms)
{
    struct site *s = l->site;
    const struct site_submission *w = &l->flight.submission;
    struct manifest m;
    l->flight.completion =
        (struct site_completion){.times = l->times,
                                 .replayed = replayed,
                                 .skipped = l->skipped,
                                 .reached = s->replica->state[w->fragment].round,
                                 .flight_ms = (double)(s->env->ops->now_ms(s->env) - begun_ms),
                                 .metrics = metrics_read(&s->own.metrics[w->fragment], w->round)};
    if (outer_state_manifest(s->replica, w->fragment, w->round, &m) == ERR_OK) {
        l->flight.completion.included = manifest_included(&m);
        l->flight.completion.sites = m.site_count;
        l->flight.completion.up_bytes = site_sent_bytes(s, &m);
        l->flight.completion.down_bytes = m.aggregate_bytes;
    }
}

static void slot_finish(struct site_slot *l, enum err e, bool reports)
{
    post_lock(l->site);
    l->flight.e = e;
    snprintf(l->flight.why, sizeof l->flight.why, "%s", e == ERR_OK ? "" : err_message());
    slot_enter(l, reports                                            ? SLOT_REPORTING
                  : e != ERR_OK && l->flight.state == SLOT_SUBMITTED ? SLOT_FAILED
                                                                     : SLOT_COMPLETE);
    post_unlock(l->site);
}

/* The caller has theta and trains on: what goes wrong now it hears at its next step. */
static void slot_reported(struct site_slot *l, enum err e)
{
    struct site *s = l->site;
    post_lock(s);
    if (s->inflight.failed == ERR_OK && e != ERR_OK && e != ERR_STOPPED) {
        s->inflight.failed = e;
        snprintf(s->inflight.why, sizeof s->inflight.why, "%s", err_message());
    }
    slot_enter(l, l->flight.state == SLOT_REAPED ? SLOT_FREE : SLOT_COMPLETE);
    post_unlock(s);
}

static void slot_run(struct site_slot *l)
{
    struct site *s = l->site;
    const struct site_submission *w = &l->flight.submission;
    site_lock(s);
    uint64_t begun_ms = s->env->ops->now_ms(s->env);
    bool replayed = s->replica->state[w->fragment].round > w->round;
    bool last = schedule_last(&s->replica->schedule, w->fragment, w->round);
    l->flight.completion = (struct site_completion){0};
    enum err e = site_round_run(l, w);
    if (e == ERR_OK)
        slot_describe(l, replayed, begun_ms);
    /* A recorded state was reported before the restart, except perhaps the last one: the aggregator
     * ends when all sites have reported the last round, and this process when it is complete. */
    bool reports = e == ERR_OK && (last || !replayed), after = reports && !last && l->thread;
    if (reports && !after) {
        e = site_report_on(l, w);
        e = e == ERR_STOPPED ? ERR_OK : e; /* a wish to stop is the trainer's to obey */
    }
    slot_finish(l, e, after);
    if (after)
        slot_reported(l, site_report_on(l, w));
    site_unlock(s);
}

static void slot_thread(void *self)
{
    struct site_slot *l = self;
    struct site *s = l->site;
    post_lock(s);
    while (!s->inflight.closing) {
        if (l->flight.state != SLOT_SUBMITTED) {
            s->env->ops->wait(s->env, s->inflight.post, UINT32_MAX);
            continue;
        }
        post_unlock(s);
        slot_run(l);
        post_lock(s);
    }
    post_unlock(s);
}

void site_slot_stored(struct site_slot *l)
{
    post_lock(l->site);
    slot_enter(l, SLOT_STORED);
    post_unlock(l->site);
}

void site_slot_notice(struct site_slot *l, const char *text)
{
    struct site *s = l->site;
    post_lock(s);
    snprintf(s->inflight.notice, sizeof s->inflight.notice, "%s", text);
    post_unlock(s);
}

/* ---- the caller ---- */

/* With post locked; the callback is called without. */
static void pass_notice(struct site *s)
{
    char text[SITE_TEXT_MAX];
    memcpy(text, s->inflight.notice, sizeof text);
    s->inflight.notice[0] = 0;
    if (!*text || !s->o->notice)
        return;
    post_unlock(s);
    s->o->notice(s->o->notice_self, text);
    post_lock(s);
}

static void slots_wait(struct site *s)
{
    s->env->ops->wait(s->env, s->inflight.post, LOOK_MS);
    pass_notice(s);
}

/* With post locked: the slot in which the caller has a round of this fragment. */
static struct site_slot *fragment_slot(struct site *s, unsigned fragment)
{
    for (unsigned i = 0; i < s->inflight.slots; i++) {
        struct site_slot *l = &s->inflight.slot[i];
        if (l->flight.state != SLOT_FREE && l->flight.state != SLOT_REAPED &&
            l->flight.submission.fragment == fragment)
            return l;
    }
    return NULL;
}

static struct site_slot *slot_free(struct site *s)
{
    for (unsigned i = 0; i < s->inflight.slots; i++)
        if (s->inflight.slot[i].flight.state == SLOT_FREE)
            return &s->inflight.slot[i];
    return NULL;
}

static enum err slots_failed(struct site *s)
{
    if (s->inflight.failed != ERR_OK)
        return err_set(s->inflight.failed, "%s", s->inflight.why);
    for (unsigned i = 0; i < s->inflight.slots; i++) {
        const struct site_slot *l = &s->inflight.slot[i];
        if (slot_complete(l) && l->flight.e != ERR_OK && l->flight.e != ERR_STOPPED)
            return err_set(l->flight.e, "%s", l->flight.why);
    }
    return ERR_OK;
}

enum err site_failed(struct site *s)
{
    post_lock(s);
    pass_notice(s);
    enum err e = slots_failed(s);
    post_unlock(s);
    return e;
}

enum err site_acquire(struct site *s, unsigned fragment, float **local)
{
    struct site_slot *l;
    post_lock(s);
    ASSERT(!fragment_slot(s, fragment)); /* at most one round of a fragment is in flight */
    while (!(l = slot_free(s)))
        slots_wait(s); /* one slot for each round in flight: this one only has to report yet */
    slot_enter(l, SLOT_ACQUIRED);
    site_outage_clear(l);
    l->flight.submission = (struct site_submission){.fragment = fragment};
    *local = l->local;
    post_unlock(s);
    return ERR_OK;
}

void site_submit(struct site *s, const struct site_submission *w)
{
    post_lock(s);
    struct site_slot *l = fragment_slot(s, w->fragment);
    ASSERT(l);
    l->flight.submission = *w;
    slot_enter(l, SLOT_SUBMITTED);
    post_unlock(s);
}

static bool all_stored(const struct site *s)
{
    for (unsigned i = 0; i < s->inflight.slots; i++)
        if (s->inflight.slot[i].flight.state == SLOT_SUBMITTED && s->inflight.slot[i].thread)
            return false;
    return true;
}

/* A contribution that waited, for the public keys of other sites, when the site was asked to stop:
 * what it is made of has been trained on. */
static enum err slots_given_up(const struct site *s)
{
    for (unsigned i = 0; i < s->inflight.slots; i++)
        if (s->inflight.slot[i].flight.state == SLOT_FAILED)
            return err_set(s->inflight.slot[i].flight.e, "%s", s->inflight.slot[i].flight.why);
    return ERR_OK;
}

enum err site_wait_stored(struct site *s)
{
    post_lock(s);
    enum err e = slots_failed(s);
    while (e == ERR_OK && !MUTANT(SAVED_UNSTORED) && !all_stored(s)) {
        slots_wait(s);
        e = slots_failed(s);
    }
    if (e == ERR_OK && !MUTANT(STOPPED_UNSTORED))
        e = slots_given_up(s);
    post_unlock(s);
    return e;
}

enum err site_eager(struct site *s, unsigned fragment, const float **start)
{
    post_lock(s);
    const struct site_slot *l = fragment_slot(s, fragment);
    ASSERT(l && l->eager.start);
    while (l->flight.state == SLOT_SUBMITTED)
        slots_wait(s);
    /* Failed after it was stored: the start is good, the failure is heard at the next step. */
    enum err e =
        l->flight.state == SLOT_FAILED ? err_set(l->flight.e, "%s", l->flight.why) : ERR_OK;
    *start = l->eager.start;
    post_unlock(s);
    return e;
}

static bool in_flight_unreachable(struct site *s, unsigned fragment)
{
    post_lock(s);
    const struct site_slot *l = fragment_slot(s, fragment);
    bool yes = l && slot_running(l) && l->outage.failures;
    post_unlock(s);
    return yes;
}

static enum err blocking_unreachable(struct site_slot *l, unsigned fragment, bool *unreachable)
{
    struct site *s = l->site;
    if (s->o->strict)
        return ERR_OK;
    TRY(site_outbox_load(l, fragment, s->replica->state[fragment].round));
    if (l->box.valid)
        return ERR_OK;
    (void)site_head(l, fragment);
    enum err e = site_hello_once(l, true);
    *unreachable = e == ERR_LINK;
    return e == ERR_LINK ? ERR_OK : e;
}

enum err site_unreachable(struct site *s, unsigned fragment, bool *unreachable)
{
    *unreachable = false;
    if (s->inflight.slot != s->own.main) {
        *unreachable = in_flight_unreachable(s, fragment);
        return ERR_OK;
    }
    site_lock(s);
    enum err e = blocking_unreachable(s->own.main, fragment, unreachable);
    site_unlock(s);
    return e;
}

float *site_blocking_memory(struct site *s)
{
    return s->own.main->local;
}

void site_carry_out(struct site *s)
{
    struct site_slot *l = s->inflight.slot;
    post_lock(s);
    bool due = s->inflight.slots == 1 && !l->thread && l->flight.state == SLOT_SUBMITTED;
    post_unlock(s);
    if (due)
        slot_run(l);
}

enum err site_complete(struct site *s, unsigned fragment)
{
    post_lock(s);
    struct site_slot *l = fragment_slot(s, fragment);
    ASSERT(l);
    if (!l->thread && l->flight.state == SLOT_SUBMITTED) {
        post_unlock(s);
        slot_run(l);
        post_lock(s);
    }
    enum err e = ERR_OK;
    while (e == ERR_OK && !slot_complete(l)) {
        slots_wait(s);
        /* The other sites may wait for the contribution that failed, and never come to this one. */
        e = slots_failed(s);
    }
    if (slot_complete(l))
        e = l->flight.e == ERR_OK ? ERR_OK : err_set(l->flight.e, "%s", l->flight.why);
    post_unlock(s);
    return e;
}

enum err site_reap(struct site *s, unsigned fragment, const float **theta,
                   struct site_completion *done)
{
    enum err e = site_complete(s, fragment);
    post_lock(s);
    struct site_slot *l = fragment_slot(s, fragment);
    if (slot_complete(l)) /* else another round has failed */
        slot_enter(l, l->flight.state == SLOT_REPORTING ? SLOT_REAPED : SLOT_FREE);
    *theta = l->local;
    *done = l->flight.completion;
    post_unlock(s);
    return e;
}

/* ---- open and close ---- */

static enum err local_alloc(struct site_slot *l, size_t elements, struct arena *perm)
{
    struct dev *d = l->site->replica->dev;
    if (!d->host_memory)
        return dev_alloc(d, (void **)&l->local, elements * sizeof *l->local);
    TRY_ALLOC(l->local = arena_array(perm, elements, sizeof *l->local));
    return ERR_OK;
}

/* Overlapped slots, or main. */
enum err site_slots_open(struct site *s, struct arena *perm)
{
    const struct outer_state_options *o = &s->replica->o;
    unsigned threads = site_slot_count(&o->schedule, s->o->max_local_steps_offline);
    size_t elements = shards_largest(&o->shards, o->fragments);
    TRY(s->env->ops->mutex_open(s->env, &s->inflight.post));
    s->inflight.slot = s->own.main;
    s->inflight.slots = 1;
    if (!threads)
        return local_alloc(s->own.main, elements, perm);
    s->inflight.slots = 0;
    TRY_ALLOC(s->inflight.slot = arena_array(perm, threads, sizeof *s->inflight.slot));
    for (; s->inflight.slots < threads; s->inflight.slots++) {
        struct site_slot *l = &s->inflight.slot[s->inflight.slots];
        TRY(site_slot_make(l, s, perm));
        TRY(local_alloc(l, elements, perm));
        if (o->schedule.eager)
            TRY(site_eager_open(l, elements, perm));
        TRY(s->env->ops->thread_start(s->env, &l->thread, slot_thread, l));
    }
    return ERR_OK;
}

/* A slot that is complete may still be reporting, and the last round has no later report. */
void site_slots_drain(struct site *s)
{
    if (!s->inflight.post || s->inflight.closing)
        return;
    post_lock(s);
    for (unsigned i = 0; i < s->inflight.slots; i++)
        while (s->inflight.slot[i].flight.state == SLOT_REPORTING ||
               s->inflight.slot[i].flight.state == SLOT_REAPED)
            slots_wait(s);
    post_unlock(s);
}

void site_slots_end(struct site *s)
{
    if (!s->inflight.post || s->inflight.closing)
        return;
    post_lock(s);
    s->inflight.closing = true;
    s->env->ops->signal(s->env, s->inflight.post);
    post_unlock(s);
    for (unsigned i = 0; i < s->inflight.slots; i++)
        if (s->inflight.slot[i].thread)
            s->env->ops->thread_join(s->env, s->inflight.slot[i].thread);
}

/* The one that could not be opened comes after the last. */
void site_slots_free(struct site *s)
{
    struct dev *d = s->replica->dev;
    site_slot_memory_free(s->own.main);
    for (unsigned i = 0;
         s->inflight.slot && s->inflight.slot != s->own.main && i < s->inflight.slots; i++)
        site_slot_memory_free(&s->inflight.slot[i]);
    unsigned made = site_slot_count(&s->replica->o.schedule, s->o->max_local_steps_offline);
    for (unsigned i = 0; i < (made ? made : 1) && s->inflight.slot && !d->host_memory; i++) {
        dev_free(d, s->inflight.slot[i].local);
        s->inflight.slot[i].local = NULL;
    }
    s->env->ops->mutex_close(s->env, s->inflight.post);
    s->inflight.post = NULL;
}
