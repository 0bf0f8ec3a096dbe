/* SPDX-License-Identifier: Apache-2.0 */
/* Every order of events of the protocol core and of the trainers' side together: breadth-first
 * search of round (outer/protocol/round.h) with three sites, each driven by its stepper
 * (outer/diloco/stepper.h), over two rounds of one fragment (three where
 * a round is applied as the next one leaves, in quorum mode); in strict and in quorum mode,
 * blocking, overlapped, before the update, with the one-round delay. test_states.c has every order
 * of the messages alone. A site's process may end between any two of its actions, or be asked to
 * stop in a wait; it saves a checkpoint after any step or none; the aggregator may end before and
 * after its commit point. Parameters are values of a hash: what they were made of, and in which
 * order.
 *
 * A model of the executor (outer/site/exchange.c, site.c) stands around the two: a contribution
 * is durable before it is sent, a state before it is applied; of a checkpoint every contribution is
 * stored.
 *
 * In every state: what a site sends for a round is what it sent first; no contribution is sent
 * again that is not stored; what is summed is what its site has stored; a delta is taken against
 * the state that its steps began at; no site is refused, halted or called a conflict. In strict
 * mode the parameters of a site after each step, and of every committed state, are those of the run
 * without faults. And from every state, if nothing fails any more, the run ends (I9).
 *
 *   test_stepper_states                the suite: at most the default number of states of each
 * configuration test_stepper_states --states N     at most N of each test_stepper_states --all all
 * of them test_mutants_stepper_states --mutant NAME
 *
 * The last line sums up: "120000 states, 0 violations". Exit 1: a violation, with the events that
 * lead to it.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "outer/diloco/stepper.h"
#include "tests/sim/search_core.h"

enum { STEPS_MAX = 4, LIST_MAX = 9, ROUNDS_MAX = 3 };
enum { SUITE_STATES = 6000, FAULTS_MAX = 2, CALM_STEPS = 400 };

struct configuration {
    const char *name;
    int64_t every, overlap;
    bool strict, before_update;
    int64_t offline;
    unsigned rounds;
};
static const struct configuration configurations[] = {
    {"strict blocking", 1, 0, true, false, 0, ROUNDS},
    {"strict overlap", 2, 1, true, false, 0, ROUNDS},
    {"strict before_update", 2, 1, true, true, 0, ROUNDS},
    {"strict delay", 1, 1, true, false, 0, ROUNDS},
    {"quorum blocking", 1, 0, false, false, 0, ROUNDS},
    {"quorum blocking offline", 2, 0, false, false, 1, ROUNDS},
    {"quorum overlap", 2, 1, false, false, 0, ROUNDS},
    {"quorum overlap offline", 2, 1, false, false, 1, ROUNDS},
    {"quorum delay", 1, 1, false, false, 0, ROUNDS_MAX},
    {"quorum before_update offline", 2, 1, false, true, 1, ROUNDS},
};
enum { CONFIGURATIONS = sizeof configurations / sizeof configurations[0] };

/* What a site does when its list of actions is carried out. */
enum then { THEN_NONE, THEN_UPDATE, THEN_MOVED, THEN_REST, THEN_DOWN };

struct todo { /* an action, without what the model does not use */
    uint64_t round, base;
    uint8_t verb, copied, resend, mixes, step;
    uint8_t unused[3];
};
struct site {
    /* durable */
    uint64_t theta[ROUNDS_MAX + 1], box[ROUNDS_MAX], saved_local;
    uint8_t state, term, incarnation, saved_step, saved_before, saved_base, saved_postponed;
    /* its process */
    uint8_t up, step, then, at, count, away, marked, waiting; /* waiting: round + 1, unstored */
    uint8_t slot, rested;    /* slot: round + 1 that is submitted and not reaped */
    uint8_t base, copy_base; /* the state that the local parameters were last mixed with */
    uint8_t undone, before, unused[2]; /* before: of STOP */
    uint8_t hello_term; /* the last one in which a hello was answered well, of any process */
    uint64_t local, copy, gradient, payload; /* payload: of `waiting` */
    uint64_t in_flight, postponed, applied, asked_ms;
    int64_t sent_step;
    struct todo list[LIST_MAX];
    uint64_t mixed;
};
struct model {
    /* durable at the aggregator */
    uint64_t theta[ROUNDS_MAX + 1], accepted[SITES];
    uint8_t term, round;
    /* its process */
    uint8_t sealed, seal_set, late;
    uint8_t faults; /* of all processes */
    uint8_t unused[2];
    struct site site[SITES];
    struct core core;
};

static const struct configuration *now;
static struct schedule schedule;
static uint64_t calm_local[SITES][STEPS_MAX + 1], calm_theta[ROUNDS_MAX + 1]; /* 0: not known yet */

/* ---- values ---- */

enum { VALUE_START = 1, VALUE_TRAINED, VALUE_MIXED, VALUE_DELTA, VALUE_THETA };

static uint64_t value(unsigned what, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t h = search_mixed(what + 0x9e3779b97f4a7c15u);
    h = search_mixed(h ^ search_mixed(a + 1));
    h = search_mixed(h + search_mixed(b + 2));
    h = search_mixed(h ^ search_mixed(c + 3));
    return h + (h == 0);
}

static struct digest digest_made(unsigned kind, uint64_t x)
{
    struct digest d = {{0}};
    if (x)
        memcpy(d.bytes, &x, sizeof x);
    d.bytes[31] = (uint8_t)(x ? kind : 0);
    return d;
}

static struct digest manifest_of(const uint64_t *theta, unsigned round)
{
    return digest_made(1, round ? theta[round] : 0);
}

static struct digest state_of(const uint64_t *theta, unsigned round)
{
    return digest_made(2, theta[round]);
}

/* ---- the aggregator ---- */

static void seal(struct model *m, const struct set *set)
{
    unsigned count = 0;
    if (m->sealed)
        violate("sealed twice");
    m->sealed = 1;
    m->seal_set = 0;
    for (unsigned i = 0; i < SITES; i++) {
        if (!set_has(set, i))
            continue;
        m->seal_set |= (uint8_t)(1 << i);
        count++;
        if (!m->accepted[i])
            violate("a set with a contribution that is not recorded");
        else if (m->accepted[i] != m->site[i].box[m->round])
            violate("what is summed is not what the site has stored");
        if (m->site[i].hello_term != m->term)
            violate("a site counts that has not said hello in this term");
    }
    if (count < live.quorum)
        violate("a set without the majority of the configured sites");
}

static void step_core(struct model *m, struct round_event *e, struct round_update *u)
{
    core_step(e, m->late, u);
    if (u->accept)
        memcpy(&m->accepted[e->site], e->offer.payload.bytes, sizeof m->accepted[0]);
    if (u->outcome == ROUND_RECEIPT && !m->accepted[e->site])
        violate("a receipt of what is not recorded");
    if (u->seal)
        seal(m, &u->seal_set);
}

static void aggregator_start(struct model *m)
{
    struct round_update u;
    struct digest manifest = manifest_of(m->theta, m->round), state = state_of(m->theta, m->round);
    m->term++;
    m->sealed = m->seal_set = m->late = 0;
    core_begin(&m->core, m->term, now->strict, m->round, &manifest, &state);
    for (unsigned i = 0; i < SITES; i++) {
        struct round_event e = {.kind = ROUND_RESTORED,
                                .site = i,
                                .round = m->round,
                                .offer.payload = digest_made(3, m->accepted[i]),
                                .offer.payload_bytes = 1,
                                .offer.weight = 1};
        if (m->accepted[i])
            step_core(m, &e, &u);
    }
    core_keep(&m->core);
}

static void commit_point(struct model *m)
{
    uint64_t theta = value(VALUE_THETA, m->theta[m->round], m->seal_set, 0);
    for (unsigned i = 0; i < SITES; i++)
        if (m->seal_set >> i & 1)
            theta = value(VALUE_THETA, theta, i, m->accepted[i]);
    m->theta[++m->round] = theta;
    memset(m->accepted, 0, sizeof m->accepted);
    m->sealed = m->seal_set = m->late = 0;
    if (!calm_theta[m->round])
        calm_theta[m->round] = theta;
    if (now->strict && calm_theta[m->round] != theta)
        violate("a committed state differs from the run without faults");
}

/* ---- a site's calls ---- */

static struct round_event event(const struct model *m, unsigned i, enum round_event_kind kind)
{
    const struct site *s = &m->site[i];
    return (struct round_event){.kind = kind,
                                .site = i,
                                .incarnation = s->incarnation,
                                .instance = 10 * (i + 1) + s->incarnation,
                                .term = s->term,
                                .round = s->state,
                                .parent = manifest_of(s->theta, s->state),
                                .state = state_of(s->theta, s->state),
                                .hello.has_state = true,
                                .past.kept = true,
                                .past.parent = manifest_of(m->theta, s->state),
                                .past.state = state_of(m->theta, s->state),
                                .offer.payload_bytes = 1,
                                .offer.payload_max = 1,
                                .offer.weight = 1};
}

static void hello(struct model *m, unsigned i)
{
    struct site *s = &m->site[i];
    struct round_event e = event(m, i, ROUND_HELLO);
    struct round_update u;
    step_core(m, &e, &u);
    if (u.outcome != ROUND_CURRENT && u.outcome != ROUND_BEHIND)
        return;
    e.kind = ROUND_BIND;
    s->term = s->hello_term = m->term;
    step_core(m, &e, &u);
}

/* One committed state, if there is a next one. */
static bool adopt(struct model *m, unsigned i)
{
    struct site *s = &m->site[i];
    struct round_event e = event(m, i, ROUND_POLL);
    struct round_update u;
    step_core(m, &e, &u);
    if (u.outcome == ROUND_REBIND)
        hello(m, i);
    if (u.outcome != ROUND_COMMIT)
        return u.outcome == ROUND_REBIND;
    if (s->state >= m->round || s->theta[s->state] != m->theta[s->state])
        violate("a site adopts what does not follow on its state");
    s->theta[s->state + 1] = m->theta[s->state + 1];
    s->state++;
    return true;
}

/* The contribution in flight: offered, and its bytes arrive. */
static bool send(struct model *m, unsigned i)
{
    struct site *s = &m->site[i];
    struct round_event e = event(m, i, ROUND_OFFER);
    struct round_update u;
    if (!s->slot || s->slot - 1 != s->state || !s->box[s->state] || m->sealed)
        return false;
    e.offer.payload = digest_made(3, s->box[s->state]);
    step_core(m, &e, &u);
    if (u.outcome == ROUND_REBIND) {
        hello(m, i);
        return true;
    }
    if (u.outcome != ROUND_RESUME)
        return false;
    e.kind = ROUND_STORED;
    step_core(m, &e, &u);
    return true;
}

/* ---- a site's process ---- */

static struct stepper stepper_load(const struct site *s)
{
    struct stepper t;
    stepper_open(&t, &(struct stepper_options){.schedule = schedule,
                                               .strict = now->strict,
                                               .before_update = now->before_update,
                                               .max_local_steps_offline = now->offline,
                                               .mix = 0.5f});
    t.in_flight[0] = s->in_flight;
    t.postponed[0] = s->postponed;
    t.undone[0] = s->undone;
    t.state[0] = s->applied;
    t.sent_step[0] = s->sent_step;
    t.asked_ms = s->asked_ms;
    t.mixed = s->mixed != 0;
    return t;
}

static void stepper_keep(struct site *s, const struct stepper *t)
{
    s->in_flight = t->in_flight[0];
    s->postponed = t->postponed[0];
    s->undone = (uint8_t)t->undone[0];
    s->applied = t->state[0];
    s->sent_step = t->sent_step[0];
    s->asked_ms = t->asked_ms;
    s->mixed = t->mixed;
}

static void ask(struct site *s, const struct stepper_event *e, enum then then)
{
    struct stepper t = stepper_load(s);
    struct stepper_update u;
    stepper_step(&t, e, &u);
    stepper_keep(s, &t);
    ASSERT(u.count <= LIST_MAX);
    memset(s->list, 0, sizeof s->list);
    for (unsigned k = 0; k < u.count; k++) {
        const struct stepper_action *a = &u.action[k];
        s->list[k] = (struct todo){.round = a->round,
                                   .base = a->base,
                                   .verb = (uint8_t)a->verb,
                                   .copied = a->copied,
                                   .resend = a->resend,
                                   .mixes = a->alpha > 0,
                                   .step = (uint8_t)a->step};
    }
    s->at = 0;
    s->count = (uint8_t)u.count;
    s->then = (uint8_t)then;
}

static void ask_step(struct site *s, enum stepper_phase phase, unsigned step, enum then then)
{
    struct stepper_event e = {.phase = phase, .step = step, .now_ms = 1000u * (step + 1)};
    e.unreachable[0] = s->away;
    ask(s, &e, then);
}

static void site_down(struct site *s)
{
    struct site after = {.state = s->state,
                         .term = s->term,
                         .incarnation = s->incarnation,
                         .saved_step = s->saved_step,
                         .saved_before = s->saved_before,
                         .saved_base = s->saved_base,
                         .saved_postponed = s->saved_postponed,
                         .saved_local = s->saved_local,
                         .hello_term = s->hello_term};
    memcpy(after.theta, s->theta, sizeof after.theta);
    memcpy(after.box, s->box, sizeof after.box);
    memcpy(s, &after, sizeof after);
}

static void site_submit(struct site *s, unsigned i, const struct todo *a)
{
    s->slot = (uint8_t)(a->round + 1);
    if (a->base > s->state)
        violate("a delta is taken against a state that is not there");
    if (s->state > a->round)
        return; /* its state is on record: nothing is sent */
    if (a->resend) {
        if (!s->box[a->round])
            violate("a contribution is to be sent again that is not stored");
        return;
    }
    if (a->base != (a->copied ? s->copy_base : s->base))
        violate("a delta is taken against another state than its steps began at");
    uint64_t payload = value(VALUE_DELTA, i, a->copied ? s->copy : s->local, s->theta[a->base]);
    if (!s->box[a->round]) {
        s->waiting = s->slot;
        s->payload = payload;
    } else if (now->strict && s->box[a->round] != payload) {
        violate("what is trained again differs from what was stored");
    }
}

static void site_reap(struct site *s, const struct todo *a)
{
    struct stepper t = stepper_load(s);
    struct stepper_action action = {.alpha = a->mixes ? 0.5f : 0};
    if (s->slot != a->round + 1)
        violate("a round is reaped that is not in flight");
    if (a->verb == STEPPER_APPLY)
        s->base = (uint8_t)(a->round + 1);
    if (a->verb == STEPPER_APPLY)
        s->local = a->mixes ? value(VALUE_MIXED, s->local, s->theta[a->round + 1], 0)
                            : s->theta[a->round + 1];
    (void)stepper_reaped(&t, &action, s->state, false);
    stepper_keep(s, &t);
    s->slot = 0;
    s->waiting = 0;
}

static void site_take(struct site *s, const struct todo *a)
{
    s->base = a->round < s->state ? (uint8_t)a->round : s->state;
    uint64_t theta = s->theta[s->base];
    s->local = a->mixes ? value(VALUE_MIXED, s->local, theta, 0) : theta;
}

static void save(struct site *s, enum stepper_phase phase)
{
    struct stepper t = stepper_load(s);
    struct stepper_event e = {.phase = phase, .step = s->step, .before = s->before};
    uint64_t postponed[ROUND_FRAGMENTS_MAX];
    bool any = stepper_postponed(&t, &e, postponed);
    bool recorded = phase != STEPPER_STOP || s->marked;
    s->saved_step = s->step;
    s->saved_before = s->before && s->marked;
    s->saved_postponed = any && recorded ? (uint8_t)postponed[0] : 0;
    s->saved_local = s->local;
    s->saved_base = s->base;
}

/* False: the action waits. */
static bool site_act(struct site *s, unsigned i, const struct todo *a)
{
    switch ((enum stepper_verb)a->verb) {
    case STEPPER_CHECK:
    case STEPPER_POSTPONE:
    case STEPPER_EAGER:
    case STEPPER_SKIP:
        return true;
    case STEPPER_WAIT:
        return s->state > a->round;
    case STEPPER_STORE:
        return !s->waiting;
    case STEPPER_COPY:
        s->copy = s->local;
        s->copy_base = s->base;
        return true;
    case STEPPER_DROP:
        if (s->state <= a->round)
            return false;
        site_reap(s, a);
        return true;
    case STEPPER_APPLY:
        site_reap(s, a);
        return true;
    case STEPPER_TAKE:
        site_take(s, a);
        return true;
    case STEPPER_SUBMIT:
        site_submit(s, i, a);
        return true;
    case STEPPER_MOVE:
        s->step = a->step;
        return true;
    case STEPPER_MARK:
        s->marked = 1;
        return true;
    case STEPPER_SAVE:
        save(s, STEPPER_STOP);
        return true;
    }
    return true;
}

static void site_rest(struct site *s, unsigned i)
{
    s->rested = 1;
    s->away = s->at = s->count = s->then = 0;
    s->gradient = s->copy = s->copy_base = 0;
    memset(s->list, 0, sizeof s->list);
    if (!calm_local[i][s->step])
        calm_local[i][s->step] = s->local;
    if (now->strict && calm_local[i][s->step] != s->local)
        violate("a site's parameters differ from those of the run without faults");
}

/* Up to where it waits, or the step is done. */
static void site_work(struct site *s, unsigned i)
{
    while (s->up && !s->rested) {
        if (s->at < s->count) {
            struct todo a = s->list[s->at];
            if (!site_act(s, i, &a))
                return;
            s->at++;
            continue;
        }
        switch ((enum then)s->then) {
        case THEN_UPDATE:
            s->local = value(VALUE_TRAINED, s->local, s->gradient, 0);
            s->step++;
            ask_step(s, STEPPER_AFTER_STEP, s->step, THEN_MOVED);
            break;
        case THEN_MOVED:
            ask_step(s, STEPPER_MOVED, s->step, THEN_REST);
            break;
        case THEN_DOWN:
            site_down(s);
            break;
        case THEN_NONE:
        case THEN_REST:
            site_rest(s, i);
            break;
        }
    }
}

/* ---- what can happen ---- */

enum act {
    ACT_START,
    ACT_TRAIN,      /* a step, and what the stepper says of it */
    ACT_TRAIN_AWAY, /* the same, and the aggregator does not answer */
    ACT_SAVE,       /* a checkpoint between two steps */
    ACT_STORE,      /* the contribution becomes durable */
    ACT_SEND,
    ACT_POLL,
    ACT_STOP, /* asked to stop in a wait */
    ACT_KILL,
    ACT_COMMIT,
    ACT_CRASH,       /* of the aggregator */
    ACT_CRASH_AFTER, /* right after the commit point */
    ACT_LATE,        /* the deadline passes */
    ACTS
};
static const char *const act_names[] = {"start", "train",       "train_away", "save", "store",
                                        "send",  "poll",        "stop",       "kill", "commit",
                                        "crash", "crash_after", "late"};

static bool do_start(struct model *m, unsigned i)
{
    struct site *s = &m->site[i];
    if (s->up)
        return false;
    s->incarnation++;
    hello(m, i);
    while (s->state < m->round && !*why)
        (void)adopt(m, i);
    s->up = 1;
    s->step = s->saved_step;
    s->local = s->saved_local;
    s->base = s->saved_base;
    struct stepper_event e = {.phase = STEPPER_RESUME,
                              .step = s->step,
                              .before = s->saved_before,
                              .postponed = {s->saved_postponed},
                              .state = {s->state}};
    ask(s, &e, THEN_REST);
    return true;
}

static bool do_train(struct model *m, unsigned i, bool away)
{
    struct site *s = &m->site[i];
    if (!s->rested || s->step == schedule.steps || (away && !now->offline))
        return false;
    s->rested = 0;
    s->away = away;
    s->gradient = value(VALUE_TRAINED, s->local, i, s->step);
    ask_step(s, STEPPER_BEFORE_UPDATE, s->step + 1u, THEN_UPDATE);
    return true;
}

static bool do_save(struct site *s)
{
    if (!s->rested || s->waiting || s->saved_step == s->step)
        return false;
    s->before = s->marked = 0;
    save(s, STEPPER_AFTER_STEP);
    return true;
}

static bool do_store(struct site *s)
{
    if (!s->waiting)
        return false;
    s->box[s->waiting - 1] = s->payload;
    s->waiting = 0;
    s->payload = 0;
    return true;
}

static bool do_stop(struct model *m, struct site *s)
{
    bool waits = s->up && s->at < s->count && s->list[s->at].verb == STEPPER_WAIT;
    if (!waits || m->faults == FAULTS_MAX)
        return false;
    m->faults++;
    struct stepper_event e = {
        .phase = STEPPER_STOP, .step = s->step, .before = s->then != THEN_UPDATE};
    s->marked = 0;
    s->before = e.before;
    ask(s, &e, THEN_DOWN);
    return true;
}

static bool do_kill(struct model *m, struct site *s)
{
    if (!s->up || m->faults == FAULTS_MAX)
        return false;
    m->faults++;
    site_down(s);
    return true;
}

static bool do_commit(struct model *m)
{
    struct round_event e = {.kind = ROUND_COMMITTED};
    struct round_update u;
    if (!m->sealed)
        return false;
    commit_point(m);
    e.round = m->round;
    e.parent = manifest_of(m->theta, m->round);
    e.state = state_of(m->theta, m->round);
    step_core(m, &e, &u);
    return true;
}

static bool do_crash(struct model *m, bool after)
{
    if (m->faults == FAULTS_MAX || (after && !m->sealed))
        return false;
    m->faults++;
    if (after)
        commit_point(m);
    aggregator_start(m);
    return true;
}

static bool do_late(struct model *m)
{
    struct round_event e = {.kind = ROUND_TICK};
    struct round_update u;
    if (m->late || !core_waits())
        return false;
    m->late = 1;
    step_core(m, &e, &u);
    return true;
}

static bool do_site(struct model *m, enum act a, unsigned i)
{
    struct site *s = &m->site[i];
    switch (a) {
    case ACT_START:
        return do_start(m, i);
    case ACT_TRAIN:
    case ACT_TRAIN_AWAY:
        return do_train(m, i, a == ACT_TRAIN_AWAY);
    case ACT_SAVE:
        return do_save(s);
    case ACT_STORE:
        return do_store(s);
    case ACT_SEND:
        return send(m, i);
    case ACT_POLL:
        return s->slot && s->slot - 1 == s->state && adopt(m, i);
    case ACT_STOP:
        return do_stop(m, s);
    default:
        return do_kill(m, s);
    }
}

/* Of struct search_model. */
static bool act(void *state, unsigned number, unsigned i)
{
    struct model *m = state;
    enum act a = number;
    bool done;
    if (a == ACT_CRASH || a == ACT_CRASH_AFTER)
        return do_crash(m, a == ACT_CRASH_AFTER);
    core_load(&m->core, m->term, now->strict);
    if (a < ACT_COMMIT) {
        done = do_site(m, a, i);
        if (done)
            site_work(&m->site[i], i);
    } else {
        done = a == ACT_COMMIT ? do_commit(m) : do_late(m);
    }
    core_keep(&m->core);
    return done;
}

/* ---- from here on nothing fails ---- */

static bool ended(const struct model *m)
{
    bool all = m->round == now->rounds;
    for (unsigned i = 0; i < SITES; i++) {
        const struct site *s = &m->site[i];
        all = all && s->rested && s->step == schedule.steps && s->state == now->rounds && !s->slot;
    }
    return all;
}

static void check_ends(const void *from)
{
    struct model m;
    memcpy(&m, from, sizeof m);
    for (unsigned k = 0; k < CALM_STEPS && !ended(&m) && !*why; k++) {
        for (unsigned i = 0; i < SITES; i++)
            for (enum act a = ACT_START; a <= ACT_POLL; a++)
                if (a != ACT_TRAIN_AWAY && a != ACT_SAVE)
                    (void)act(&m, a, i);
        (void)act(&m, ACT_LATE, 0);
        (void)act(&m, ACT_COMMIT, 0);
    }
    if (!ended(&m))
        violate("from here on the run does not end");
}

/* ---- the search ---- */

static void begin(struct model *first)
{
    memset(first, 0, sizeof *first);
    first->theta[0] = value(VALUE_START, 0, 0, 0);
    for (unsigned i = 0; i < SITES; i++) {
        first->site[i].theta[0] = first->theta[0];
        first->site[i].saved_local = first->theta[0];
    }
    schedule = schedule_streaming(now->every * now->rounds, now->every, 1, 1, CODEC_INT8);
    schedule.overlap = now->overlap;
    memset(calm_local, 0, sizeof calm_local);
    memset(calm_theta, 0, sizeof calm_theta);
    aggregator_start(first);
}

int main(int argc, char **argv)
{
    static const struct search_model model = {
        sizeof(struct model), act_names, ACTS, ACT_COMMIT, SITES, act, check_ends};
    size_t limit = search_limit(argc, argv, SUITE_STATES), all = 0;
    struct search found = {0};
    bool ok = true;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned k = 0; k < CONFIGURATIONS && ok; k++) {
        struct model first;
        size_t states = 0;
        now = &configurations[k];
        begin(&first);
        check_ends(&first); /* without faults: what the others are compared with */
        ok = search_run(&found, &model, now->name, &first, limit, &states);
        all += states;
        printf("mode=\"%s\" states=%zu waiting=%zu faults_max=%d\n", now->name, states,
               found.queued - states, FAULTS_MAX);
    }
    search_end(&found);
    printf("%zu states, %d violations\n", all, !ok);
    return ok ? 0 : 1;
}
