/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/diloco/stepper.h"
#include <string.h>
#include "kernels/base/mutant.h"
#include "outer/protocol/mutant.h"

enum { ASK_EVERY_MS = 1000 }; /* a call to an aggregator that is away may take long */

void stepper_open(struct stepper *s, const struct stepper_options *o)
{
    unsigned slots = o->schedule.overlap ? schedule_slots(&o->schedule) : o->holders;
    ASSERT(o->schedule.overlap || !o->before_update);
    ASSERT(!o->timed || (o->strict && !o->schedule.overlap && o->schedule.fragments == 1));
    *s = (struct stepper){.o = *o, .slots = slots ? slots : 1};
    s->o.before_update = o->before_update && !WITHOUT(BEFORE_UPDATE);
}

void stepper_reschedule(struct stepper *s, const struct schedule *amended)
{
    s->o.schedule = *amended;
}

static struct stepper_action *action_add(struct stepper_update *u, enum stepper_verb verb,
                                         unsigned fragment, uint64_t round)
{
    struct stepper_action *a = &u->action[u->count++];
    ASSERT(u->count <= STEPPER_ACTIONS_MAX);
    *a = (struct stepper_action){.verb = verb, .fragment = fragment, .round = round};
    return a;
}

static bool is_blocking(const struct stepper *s)
{
    return s->o.schedule.overlap == 0;
}

/* The round in flight is to be applied by `step`. */
static bool apply_due(const struct stepper *s, int64_t step, unsigned f)
{
    return s->in_flight[f] && schedule_apply(&s->o.schedule, f, s->in_flight[f] - 1) <= step;
}

static bool any_in_flight(const struct stepper *s)
{
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        if (s->in_flight[f])
            return true;
    return false;
}

/* A round to submit after `step`: it ends there, or was postponed. */
static bool round_due(const struct stepper *s, int64_t step, unsigned f, uint64_t *round)
{
    if (step > 0 && schedule_due(&s->o.schedule, step, f, round))
        return true;
    *round = s->postponed[f] - 1;
    return s->postponed[f] > 0;
}

/* One-round delay: a round is submitted before the one before it is applied, at the same step. */
static bool submitted_first(const struct stepper *s, int64_t step, unsigned f)
{
    uint64_t round;
    return schedule_delayed(&s->o.schedule, f) && round_due(s, step, f, &round);
}

/* Fragments with a round to submit after `step`, in the order in which every site comes to them. A
 * blocking site that waited for a later round while it owes an earlier one would wait for sites
 * that wait for it. */
static unsigned due_in_order(const struct stepper *s, int64_t step,
                             unsigned order[ROUND_FRAGMENTS_MAX])
{
    int64_t planned[ROUND_FRAGMENTS_MAX];
    unsigned count = 0;
    uint64_t round;
    for (unsigned f = 0; f < s->o.schedule.fragments; f++) {
        if (!round_due(s, step, f, &round))
            continue;
        planned[f] = schedule_step(&s->o.schedule, f, round);
        unsigned at = count++;
        for (; at && planned[order[at - 1]] > planned[f]; at--)
            order[at] = order[at - 1];
        order[at] = f;
    }
    return count;
}

/* ---- postponing, in quorum mode ---- */

/* The step by which the round must be submitted (blocking) or applied (overlapped):
 * outer.max_local_steps_offline after the planned one, and before the fragment's next submit. */
static int64_t postpone_until(const struct stepper *s, unsigned f, uint64_t round)
{
    const struct schedule *c = &s->o.schedule;
    int64_t planned = schedule_apply(c, f, round), last = planned + s->o.max_local_steps_offline;
    if (schedule_last(c, f, round))
        return planned;
    int64_t next = schedule_step(c, f, round + 1) - is_blocking(s);
    return last < next ? last : next;
}

/* A later round that can wait no longer takes those before it along. */
static bool blocking_may_ask(const struct stepper *s, int64_t step, unsigned fragment)
{
    unsigned order[ROUND_FRAGMENTS_MAX], count = due_in_order(s, step, order), i = 0;
    uint64_t round;
    while (i < count && order[i] != fragment)
        i++;
    for (unsigned k = i; k < count; k++)
        if (!round_due(s, step, order[k], &round) || step >= postpone_until(s, order[k], round))
            return false;
    return i < count;
}

bool stepper_may_ask(const struct stepper *s, const struct stepper_event *e, unsigned f)
{
    bool applies = e->phase == (s->o.before_update ? STEPPER_BEFORE_UPDATE : STEPPER_AFTER_STEP);
    if (s->o.strict || !s->o.max_local_steps_offline || !applies)
        return false;
    if (is_blocking(s))
        return blocking_may_ask(s, e->step, f);
    return apply_due(s, e->step, f) && e->step < postpone_until(s, f, s->in_flight[f] - 1);
}

bool stepper_asks(const struct stepper *s, const struct stepper_event *e, unsigned f)
{
    bool waits = false;
    for (unsigned k = 0; k < s->o.schedule.fragments; k++)
        waits = waits || (s->postponed[k] && (k == f || !MUTANT(OVERTAKEN)));
    return stepper_may_ask(s, e, f) && !(waits && e->now_ms - s->asked_ms < ASK_EVERY_MS);
}

static void action_postpone(const struct stepper *s, const struct stepper_event *e,
                            struct stepper_update *u, unsigned f, uint64_t round)
{
    struct stepper_action *a = action_add(u, STEPPER_POSTPONE, f, round);
    a->steps = e->step - schedule_apply(&s->o.schedule, f, round);
    a->left = postpone_until(s, f, round) - e->step;
}

/* ---- what lands ---- */

static void action_apply(struct stepper *s, struct stepper_update *u, unsigned f, float alpha)
{
    action_add(u, STEPPER_APPLY, f, s->in_flight[f] - 1)->alpha = alpha;
    s->in_flight[f] = 0;
}

/* All waits come before the first change: a stop request leaves the step as it was. */
static void apply_landing(struct stepper *s, const struct stepper_event *e,
                          struct stepper_update *u)
{
    bool later[ROUND_FRAGMENTS_MAX] = {false};
    if (any_in_flight(s))
        action_add(u, STEPPER_CHECK, 0, 0);
    for (unsigned f = 0; f < s->o.schedule.fragments; f++) {
        if (!apply_due(s, e->step, f))
            continue;
        later[f] = stepper_may_ask(s, e, f) && e->unreachable[f];
        if (later[f])
            action_postpone(s, e, u, f, s->in_flight[f] - 1);
        else
            action_add(u, STEPPER_WAIT, f, s->in_flight[f] - 1);
    }
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        if (apply_due(s, e->step, f) && !later[f] && !submitted_first(s, e->step, f))
            action_apply(s, u, f, s->o.mix);
}

/* ---- submissions ---- */

static struct stepper_action *action_submit(struct stepper *s, struct stepper_update *u, unsigned f,
                                            uint64_t round)
{
    struct stepper_action *a = action_add(u, STEPPER_SUBMIT, f, round);
    a->base = MUTANT(DELTA_NEWEST) ? round : schedule_base(&s->o.schedule, f, round);
    s->in_flight[f] = round + 1;
    return a;
}

/* Steps that go into this round's delta: since the fragment was last submitted. */
static int64_t local_steps(const struct stepper *s, const struct stepper_event *e, unsigned f,
                           uint64_t round)
{
    if (s->o.timed)
        return e->trained;
    int64_t planned = round ? schedule_step(&s->o.schedule, f, round - 1) : 0;
    return e->step - (s->sent_step[f] > planned ? s->sent_step[f] : planned);
}

/* One-round delay: the round before is applied after the local parameters were copied and before
 * they are mixed with it. When there is none (round 0 leaves, or the one after a former last step,
 * or the first one after a move), the parameters are mixed with the newest state instead, as after
 * every other round (DiLoCoX, 2506.21263): the next delta is taken against that one. Eager
 * (2502.12996): from an estimate. */
static void exchange_one(struct stepper *s, const struct stepper_event *e, struct stepper_update *u,
                         unsigned f, uint64_t round)
{
    const struct schedule *c = &s->o.schedule;
    bool first = submitted_first(s, e->step, f), eager = schedule_eager(c, f, round);
    bool landing = first && apply_due(s, e->step, f);
    int64_t steps = local_steps(s, e, f, round);
    if (first)
        action_add(u, STEPPER_COPY, f, round);
    if (landing)
        action_apply(s, u, f, s->o.mix);
    else if (first && !eager)
        action_add(u, STEPPER_TAKE, f, round)->alpha = s->o.mix;
    struct stepper_action *a = action_submit(s, u, f, round);
    a->steps = steps;
    a->late = e->step - schedule_step(c, f, round);
    a->copied = first;
    a->from_start = c->eager && landing;
    s->sent_step[f] = e->step;
    s->postponed[f] = 0;
    if (eager)
        action_add(u, STEPPER_EAGER, f, round);
}

/* A round that is applied at the step at which it was submitted: every blocking round, and the last
 * one of each fragment. Nothing hides it, and nothing was trained meanwhile. */
static void action_finish(struct stepper *s, struct stepper_update *u, unsigned f)
{
    action_add(u, STEPPER_WAIT, f, s->in_flight[f] - 1);
    action_apply(s, u, f, 0);
}

/* Blocking, quorum: from the first round that cannot be exchanged now, all that are due wait. */
static bool postpone_due(struct stepper *s, const struct stepper_event *e, unsigned f)
{
    bool asked = stepper_asks(s, e, f);
    if (!stepper_may_ask(s, e, f) || (asked && !e->unreachable[f]))
        return false;
    s->asked_ms = asked ? e->now_ms : s->asked_ms;
    return true;
}

/* Has the rank that holds fragment f one of these in flight? Blocking, it has one slot. */
static bool holder_busy(const struct stepper *s, const unsigned *in_flight, unsigned count,
                        unsigned f)
{
    unsigned ranks = s->o.holders ? s->o.holders : 1;
    if (!is_blocking(s))
        return false;
    for (unsigned i = 0; i < count; i++)
        if (in_flight[i] % ranks == f % ranks)
            return true;
    return false;
}

static void submit_due(struct stepper *s, const struct stepper_event *e, struct stepper_update *u)
{
    unsigned order[ROUND_FRAGMENTS_MAX], count = due_in_order(s, e->step, order);
    unsigned ending[ROUND_FRAGMENTS_MAX], begin = 0, end = 0;
    bool later = false;
    for (unsigned i = 0; i < count; i++) {
        unsigned f = order[i];
        uint64_t round;
        (void)round_due(s, e->step, f, &round);
        later = (later && !MUTANT(OVERTAKEN)) || (is_blocking(s) && postpone_due(s, e, f));
        if (later) {
            action_postpone(s, e, u, f, round);
            s->postponed[f] = MUTANT(OWED_FORGOTTEN) ? 0 : round + 1;
            continue;
        }
        /* All are finished then, so that the next ones are carried out side by side, too. */
        bool busy = holder_busy(s, ending + begin, end - begin, f);
        while (begin < end && (busy || end - begin == s->slots))
            action_finish(s, u, ending[begin++]);
        exchange_one(s, e, u, f, round);
        if (apply_due(s, e->step, f))
            ending[end++] = f;
    }
    while (begin < end)
        action_finish(s, u, ending[begin++]);
}

/* Rounds by time: the step that ends the round, if it is over. */
static int64_t action_skip(const struct stepper *s, const struct stepper_event *e,
                           struct stepper_update *u)
{
    int64_t end = s->o.timed && e->over ? schedule_next(&s->o.schedule, e->step - 1) : e->step;
    if (end > e->step)
        action_add(u, STEPPER_SKIP, 0, 0)->step = end;
    return end;
}

static void step_ended(struct stepper *s, const struct stepper_event *e, struct stepper_update *u)
{
    struct stepper_event there = *e;
    there.step = action_skip(s, e, u);
    if (!s->o.before_update)
        apply_landing(s, &there, u);
    submit_due(s, &there, u);
}

/* ---- restart and moves ---- */

uint64_t stepper_outer_state(const struct stepper *s, unsigned fragment, int64_t step)
{
    return is_blocking(s) ? UINT64_MAX : schedule_applied(&s->o.schedule, fragment, step);
}

/* Steps whose rounds the checkpoint is sure to have: a blocking one may be from either side. */
static int64_t rounds_done(const struct stepper *s, int64_t step, bool before)
{
    return is_blocking(s) || before ? step - 1 : step;
}

uint64_t stepper_needs(const struct stepper *s, const struct stepper_event *e, unsigned f)
{
    uint64_t done = schedule_applied(&s->o.schedule, f, rounds_done(s, e->step, e->before));
    return e->postponed[f] && e->postponed[f] - 1 < done ? e->postponed[f] - 1 : done;
}

static uint64_t round_undone(const struct stepper *s, unsigned f)
{
    return s->postponed[f] ? s->postponed[f] : s->in_flight[f];
}

bool stepper_postponed(const struct stepper *s, const struct stepper_event *e,
                       uint64_t postponed[ROUND_FRAGMENTS_MAX])
{
    bool any = false;
    memset(postponed, 0, ROUND_FRAGMENTS_MAX * sizeof *postponed);
    for (unsigned f = 0; f < s->o.schedule.fragments && !MUTANT(POSTPONED_FORGOTTEN); f++) {
        uint64_t round = e->phase == STEPPER_STOP ? s->undone[f] : round_undone(s, f);
        if (!round ||
            schedule_apply(&s->o.schedule, f, round - 1) > rounds_done(s, e->step, e->before))
            continue;
        postponed[f] = round;
        any = true;
    }
    return any;
}

/* Can the steps from here on be repeated with the recorded states, so that a restart ends with the
 * same bits? */
static bool steps_repeatable(const struct stepper *s, const struct stepper_event *e)
{
    for (unsigned f = 0; f < s->o.schedule.fragments; f++) {
        /* Older than the checkpoint: an adopted snapshot, or files put back. */
        if (e->state[f] < stepper_needs(s, e, f))
            return false;
        /* The others have continued: nothing that is repeated could still be submitted. */
        if (!s->o.strict && e->state[f] > schedule_sent(&s->o.schedule, f, e->step))
            return false;
    }
    return !e->lost;
}

/* What the next delta is taken against: nothing is in flight after a move, so no later step puts it
 * in. */
static uint64_t moved_state(const struct stepper *s, unsigned f, int64_t step)
{
    const struct schedule *c = &s->o.schedule;
    uint64_t next = s->state[f];
    if (is_blocking(s) || next >= schedule_rounds(c, f))
        return stepper_outer_state(s, f, step);
    return schedule_base(c, f, next);
}

static void action_move(struct stepper *s, struct stepper_update *u, int64_t step)
{
    const struct schedule *c = &s->o.schedule;
    for (unsigned f = 0; f < c->fragments; f++) {
        if (s->in_flight[f])
            action_add(u, STEPPER_DROP, f, s->in_flight[f] - 1);
        s->in_flight[f] = s->postponed[f] = 0;
        s->sent_step[f] = step;
    }
    action_add(u, STEPPER_MOVE, 0, 0)->step = step;
    for (unsigned f = 0; f < c->fragments; f++)
        action_add(u, STEPPER_TAKE, f, moved_state(s, f, step));
}

/* The round in flight at the checkpoint is sent again, from the outbox. */
static void action_resend(struct stepper *s, const struct stepper_event *e,
                          struct stepper_update *u)
{
    const struct schedule *c = &s->o.schedule;
    uint64_t round;
    for (unsigned f = 0; f < c->fragments; f++) {
        bool flies = schedule_flying(c, f, rounds_done(s, e->step, e->before), &round);
        if (flies && s->o.before_update && !MUTANT(UPDATE_FIRST))
            flies = schedule_apply(c, f, round) > e->step;
        if (e->postponed[f])
            round = e->postponed[f] - 1;
        if (flies || e->postponed[f])
            action_submit(s, u, f, round)->resend = true;
    }
}

static void event_resume(struct stepper *s, const struct stepper_event *e, struct stepper_update *u)
{
    for (unsigned f = 0; f < s->o.schedule.fragments; f++) {
        s->state[f] = e->state[f];
        s->undone[f] = e->postponed[f];
        s->postponed[f] = is_blocking(s) ? e->postponed[f] : 0;
    }
    int64_t reached = schedule_reached(&s->o.schedule, s->state);
    struct stepper_event there = *e;
    if (!steps_repeatable(s, e) && reached != e->step) {
        action_move(s, u, reached);
        if (!s->o.strict || MUTANT(MOVED_UNSAVED))
            return;
        action_add(u, STEPPER_SAVE, 0, 0); /* what follows is what a restart from here does */
        there = (struct stepper_event){.phase = STEPPER_RESUME, .step = reached};
    }
    if (!is_blocking(s)) {
        if (!MUTANT(RESENT_NOT))
            action_resend(s, &there, u);
        if (!there.before && !schedule_ends(&s->o.schedule, there.step))
            return; /* the checkpoint is from after this step's rounds */
    }
    if (!s->o.before_update)
        apply_landing(s, &there, u);
    submit_due(s, &there, u);
}

/* Quorum: the others have continued without this site; it continues from their newest state. */
static void others_follow(struct stepper *s, const struct stepper_event *e,
                          struct stepper_update *u)
{
    int64_t reached = schedule_reached(&s->o.schedule, s->state);
    bool waits = false;
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        waits = waits || s->postponed[f];
    if (!s->o.strict && !waits && reached > e->step)
        action_move(s, u, reached);
}

/* At the last step a wait may follow an APPLY. Mixed once, the parameters are neither from before
 * the step's rounds nor from after them: the steps since the last checkpoint are repeated. */
static void event_stop(const struct stepper *s, const struct stepper_event *e,
                       struct stepper_update *u)
{
    action_add(u, STEPPER_STORE, 0, 0);
    if (s->mixed)
        return;
    uint64_t postponed[ROUND_FRAGMENTS_MAX];
    bool mark = stepper_postponed(s, e, postponed) || (!is_blocking(s) && e->before);
    if (mark && !MUTANT(MARK_FORGOTTEN))
        action_add(u, STEPPER_MARK, 0, 0);
    action_add(u, STEPPER_SAVE, 0, 0);
}

void stepper_step(struct stepper *s, const struct stepper_event *e, struct stepper_update *u)
{
    u->count = 0;
    s->mixed = s->mixed && e->phase == STEPPER_STOP;
    for (unsigned f = 0; e->phase != STEPPER_STOP && f < s->o.schedule.fragments; f++)
        s->undone[f] = round_undone(s, f);
    switch (e->phase) {
    case STEPPER_RESUME:
        event_resume(s, e, u);
        break;
    case STEPPER_BEFORE_UPDATE:
        if (s->o.before_update)
            apply_landing(s, e, u);
        break;
    case STEPPER_AFTER_STEP:
        step_ended(s, e, u);
        break;
    case STEPPER_MOVED:
        others_follow(s, e, u);
        break;
    case STEPPER_STOP:
        event_stop(s, e, u);
        break;
    }
}

float stepper_reaped(struct stepper *s, const struct stepper_action *a, uint64_t state,
                     bool skipped)
{
    float alpha = skipped ? 0 : a->alpha;
    s->state[a->fragment] = state;
    s->mixed = s->mixed || alpha > 0;
    return alpha;
}

bool stepper_due(const struct stepper *s, int64_t step)
{
    uint64_t round;
    /* It may have to move to where the others are; the clock may end the round. */
    bool any = !s->o.strict || s->o.timed;
    for (unsigned f = 0; f < s->o.schedule.fragments; f++)
        any = any || round_due(s, step, f, &round) || apply_due(s, step, f);
    return any;
}

int64_t stepper_next(const struct stepper *s, int64_t step)
{
    int64_t next = schedule_next(&s->o.schedule, step);
    for (unsigned f = 0; f < s->o.schedule.fragments; f++) {
        if (!s->in_flight[f])
            continue;
        int64_t at = schedule_apply(&s->o.schedule, f, s->in_flight[f] - 1);
        next = at > step && at < next ? at : next;
    }
    return next;
}
