/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STEPPER_H
#define STEPPER_H
/* What a site's trainer does at each step, pure: no clock, file, socket or thread. An event goes in
 * (a phase of a step, the time, which aggregators do not answer), a list of actions comes out; an
 * executor carries them out in order: the trainer (outer/site/exchange.c), the chaos simulator
 * (tests/sim), the capacity simulator (outer/sim), the tests. All ranks of a site run the same
 * stepper on the same events.
 *
 * DiLoCo (2311.08105) Algorithm 1, blocking, for one site: lines 4 to 8 are the inner steps between
 * two events. AFTER_STEP of the H-th gives SUBMIT (lines 11, 12: theta - local goes to the
 * aggregator), WAIT (line 14 runs on every replica) and APPLY with alpha 0 (line 3 of the next
 * round: local = theta). Streaming DiLoCo (2501.18512) Algorithm 2: SUBMIT at one step, WAIT and
 * APPLY with alpha = outer.update_alpha `overlap` steps later. Blocking is overlap 0.
 * Rounds by time (A-EDiT, 2412.07210): a round may end before its last step. SKIP counts the steps
 * that are left as done, and the round is sent as at its last step.
 *
 * Golden traces: tests/golden/stepper.
 */
#include "outer/diloco/schedule.h"

enum stepper_phase {
    STEPPER_RESUME,        /* a checkpoint of `step` was loaded, or nothing has been trained */
    STEPPER_BEFORE_UPDATE, /* gradients of `step` are there, its update is not made yet */
    STEPPER_AFTER_STEP,
    STEPPER_MOVED, /* after the actions of AFTER_STEP: have the others continued without this site?
                    */
    STEPPER_STOP   /* asked to stop while waiting */
};
struct stepper_event {
    enum stepper_phase phase;
    int64_t step;
    uint64_t now_ms;
    /* RESUME, STOP: the parameters are from before the rounds of `step`. With overlap a checkpoint
     * is from after them, unless its mark says otherwise. */
    bool before;
    /* RESUME: rounds + 1 that were postponed beyond `step` when the checkpoint was written
     * (stepper_postponed); 0: none. */
    uint64_t postponed[ROUND_FRAGMENTS_MAX];
    /* RESUME: a state that the repeated steps need is not recorded (stepper_needs). */
    bool lost;
    /* With rounds by time (interval.h). AFTER_STEP: the round ends here. AFTER_STEP, RESUME: steps
     * that were made since the round before was sent. */
    bool over;
    int64_t trained;
    uint64_t state[ROUND_FRAGMENTS_MAX];   /* RESUME: rounds committed at this site */
    bool unreachable[ROUND_FRAGMENTS_MAX]; /* where stepper_asks */
};
enum stepper_verb {
    STEPPER_CHECK,  /* has a round in flight failed? */
    STEPPER_WAIT,   /* until the fragment's round in flight is committed here */
    STEPPER_COPY,   /* the local parameters are what SUBMIT sends; actions before it change them */
    STEPPER_APPLY,  /* reap the round: local = alpha * local + (1 - alpha) * theta */
    STEPPER_DROP,   /* reap the round and leave the local parameters */
    STEPPER_TAKE,   /* recorded state `round`, or the newest: local = alpha * local + ... */
    STEPPER_SUBMIT, /* base - local goes to the aggregator */
    STEPPER_EAGER,  /* local = the site's own estimate of the state that the round will make */
    STEPPER_POSTPONE, /* the aggregator does not answer: train on, `left` steps at most */
    STEPPER_MOVE,     /* `step` steps are done now; no stored eager start is valid */
    STEPPER_SKIP,     /* `step` steps count as done: those up to there are not made */
    STEPPER_STORE,    /* until every submitted contribution is durable */
    STEPPER_MARK,     /* stored with the checkpoint: what RESUME has to be told of it */
    STEPPER_SAVE      /* a checkpoint of this step */
};
struct stepper_action {
    enum stepper_verb verb;
    unsigned fragment;
    uint64_t round;
    uint64_t base; /* SUBMIT: state whose theta the delta is taken against */
    int64_t step;  /* MOVE, SKIP */
    int64_t steps; /* SUBMIT: local steps in the delta. POSTPONE: since the round was due */
    int64_t left;  /* POSTPONE: steps that it may still wait */
    int64_t late;  /* SUBMIT: steps since the round was due */
    float alpha;
    bool copied;     /* SUBMIT: sends what COPY took */
    bool from_start; /* SUBMIT: the local steps began at the eager start of the round before */
    bool resend;     /* SUBMIT: its contribution was stored before a restart */
};
/* At most: CHECK, then WAIT, APPLY, COPY, APPLY or TAKE, SUBMIT, EAGER, WAIT, APPLY each. SKIP:
 * only with one fragment and no overlap. */
enum { STEPPER_ACTIONS_MAX = 8 * ROUND_FRAGMENTS_MAX + 1 };
struct stepper_update {
    unsigned count;
    struct stepper_action action[STEPPER_ACTIONS_MAX];
};
struct stepper_options {
    struct schedule schedule;
    bool strict;
    bool timed;                      /* rounds by time: one fragment, strict, no overlap */
    bool before_update;              /* overlap: a commit is applied before its step's update */
    int64_t max_local_steps_offline; /* quorum: steps that an unreachable aggregator may delay */
    float mix;                       /* alpha of an overlapped APPLY */
    unsigned holders; /* ranks that hold fragments (shards.h): blocking, each carries one round out
                         at a time; 0: 1 */
};
struct stepper {
    struct stepper_options o;
    unsigned slots;                          /* rounds in flight at once, at most */
    uint64_t in_flight[ROUND_FRAGMENTS_MAX]; /* round + 1; 0: none */
    uint64_t postponed[ROUND_FRAGMENTS_MAX]; /* blocking: a due round, + 1, not yet submitted */
    uint64_t undone[ROUND_FRAGMENTS_MAX];    /* round + 1 that was postponed or in flight when this
                                                list was made */
    uint64_t state[ROUND_FRAGMENTS_MAX];     /* of each fragment when it was applied last */
    int64_t sent_step[ROUND_FRAGMENTS_MAX];  /* of its last SUBMIT or MOVE; 0: as scheduled */
    uint64_t asked_ms; /* blocking: when the aggregator's silence was last looked at */
    bool mixed;        /* an action of this list has mixed local parameters with a round's */
};

void stepper_open(struct stepper *s, const struct stepper_options *o);
void stepper_reschedule(struct stepper *s, const struct schedule *amended);
/* All actions of one list are carried out before the next event. After an error only STOP may
 * follow. */
void stepper_step(struct stepper *s, const struct stepper_event *e, struct stepper_update *u);
/* Does the action list of this event depend on whether the aggregator of the fragment answers? The
 * executor looks and sets e->unreachable. stepper_may_ask: at any time of the clock. */
bool stepper_may_ask(const struct stepper *s, const struct stepper_event *e, unsigned fragment);
bool stepper_asks(const struct stepper *s, const struct stepper_event *e, unsigned fragment);
/* The executor has reaped a round (APPLY, DROP): the fragment's state now, and whether the round
 * was skipped because the local values are damaged. Returns alpha: damaged values are not kept. */
float stepper_reaped(struct stepper *s, const struct stepper_action *a, uint64_t state,
                     bool skipped);
/* RESUME: the states after this one, up to the newest, must be recorded. */
uint64_t stepper_needs(const struct stepper *s, const struct stepper_event *e, unsigned fragment);
/* Quorum: a checkpoint is written after the actions of a list, or in place of them (e: STOP). The
 * rounds + 1 that the schedule takes for done by e->step and that are not: MARK must record them,
 * or the steps after a restart would be taken against a state that they do not have. Returns
 * whether there is one. */
bool stepper_postponed(const struct stepper *s, const struct stepper_event *e,
                       uint64_t postponed[ROUND_FRAGMENTS_MAX]);
/* Does AFTER_STEP or MOVED of this step act, or may it? */
bool stepper_due(const struct stepper *s, int64_t step);
/* The next step with an action, where nothing is postponed. */
int64_t stepper_next(const struct stepper *s, int64_t step);
/* The recorded state that is the outer one at this step: with overlap a newer one may be known. */
uint64_t stepper_outer_state(const struct stepper *s, unsigned fragment, int64_t step);

#endif
