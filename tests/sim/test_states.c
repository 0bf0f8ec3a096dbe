/* SPDX-License-Identifier: Apache-2.0 */
/* Every order of events: breadth-first search of the protocol core (outer/protocol/round.h) with
 * three sites and two rounds of one fragment, in strict and in quorum mode. Between any two events
 * a site's process or the aggregator's may end; messages arrive late, twice, in another order; a
 * contribution is stored after its round was sealed, committed, or begun again. States are
 * remembered by a 128-bit hash.
 *
 * In every state: a receipt is of what is in the journal; a set is sealed once, of accepted
 * contributions, of a majority of the configured sites (strict: all), each of which has said hello
 * in this term; a site adopts only what follows on its own state; no site is refused, halted or
 * called a conflict, since no site lies. And from every state, if nothing fails any more, all sites
 * come to the last round (I9).
 *
 *   test_states                  the suite: at most the default number of states of each mode
 *   test_states --states N       at most N of each mode
 *   test_states --all            all of them
 *   test_mutants_states --mutant NAME   over the core with that bug in it
 *
 * The last line sums up: "120000 states, 0 violations". Exit 1: a violation, with the events that
 * lead to it.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "tests/sim/search_core.h"

enum { SUITE_STATES = 60000, CALM_STEPS = 200 };
enum { CRASHES_MAX = 2, RESTARTS_MAX = 1 }; /* of the aggregator; of each site */

struct upload { /* a stream that the aggregator's process has accepted the offer of */
    uint8_t open, round, term, incarnation;
};
struct site {
    uint8_t state;       /* states adopted */
    uint8_t set[ROUNDS]; /* who was in them, as this site's manifests say */
    uint8_t term, incarnation;
    uint8_t made;       /* rounds with a stored contribution, as bits */
    uint8_t hello_term; /* the last term in which a hello was answered well */
};
struct model {
    /* durable at the aggregator */
    uint8_t term, round, set[ROUNDS];
    uint8_t journal; /* sites whose contribution to the round in flight is recorded */
    /* its process */
    uint8_t sealed, seal_set, late; /* late: the deadline has passed */
    struct upload upload[SITES];
    uint8_t crashes;
    struct site site[SITES];
    struct core core;
};

static bool strict;

/* ---- digests: of who was in the rounds before ---- */

static struct digest manifest_of(const uint8_t *set, unsigned round)
{
    struct digest d = {{0}};
    for (unsigned t = 0; t < round; t++)
        d.bytes[t] = (uint8_t)(0x80 | set[t]);
    return d;
}

static struct digest state_of(const uint8_t *set, unsigned round)
{
    struct digest d = manifest_of(set, round);
    d.bytes[31] = 1;
    return d;
}

static struct digest payload_of(const struct site *s, unsigned site, unsigned round)
{
    struct digest d = manifest_of(s->set, round);
    d.bytes[30] = (uint8_t)(site + 1);
    return d;
}

/* ---- the aggregator ---- */

static void seal(struct model *m, const struct round_update *u)
{
    uint8_t set = 0;
    unsigned count = 0;
    if (!u->seal)
        return;
    if (m->sealed)
        violate("sealed twice");
    for (unsigned i = 0; i < SITES; i++) {
        if (!set_has(&u->seal_set, i))
            continue;
        set |= (uint8_t)(1 << i);
        count++;
        if (m->site[i].hello_term != m->term)
            violate("a site counts that has not said hello in this term");
    }
    if (set & ~m->journal)
        violate("a set with a contribution that is not recorded");
    if (count < live.quorum)
        violate("a set without the majority of the configured sites");
    m->sealed = 1;
    m->seal_set = set;
}

static void step(struct model *m, struct round_event *e, struct round_update *u)
{
    core_step(e, m->late, u);
    if (u->accept) {
        m->journal |= (uint8_t)(1 << e->site);
        if (e->round != m->round)
            violate("a contribution to another round is accepted");
    }
    if (u->outcome == ROUND_RECEIPT && e->kind != ROUND_RESTORED && !(m->journal >> e->site & 1))
        violate("a receipt of what is not recorded");
    seal(m, u);
}

static void aggregator_start(struct model *m)
{
    struct round_event e;
    struct round_update u;
    struct digest manifest = manifest_of(m->set, m->round), state = state_of(m->set, m->round);
    m->term = (uint8_t)(m->term + 1);
    m->sealed = m->seal_set = m->late = 0;
    memset(m->upload, 0, sizeof m->upload);
    core_begin(&m->core, m->term, strict, m->round, &manifest, &state);
    for (unsigned i = 0; i < SITES; i++)
        if (m->journal >> i & 1) {
            e = (struct round_event){.kind = ROUND_RESTORED,
                                     .site = i,
                                     .round = m->round,
                                     .offer.payload = payload_of(&m->site[i], i, m->round),
                                     .offer.payload_bytes = 1,
                                     .offer.weight = 1};
            step(m, &e, &u);
        }
    core_keep(&m->core);
}

/* ---- what can happen ---- */

enum act {
    ACT_HELLO,
    ACT_OFFER,     /* of the present round */
    ACT_OFFER_OLD, /* a copy of the round before, from the process before it too */
    ACT_STORED,
    ACT_POLL,
    ACT_REPORT,
    ACT_RESTART, /* of a site */
    ACT_COMMIT,
    ACT_CRASH,       /* of the aggregator */
    ACT_CRASH_AFTER, /* right after the commit point */
    ACT_LATE,        /* the deadline passes */
    ACTS
};
static const char *const act_names[] = {"hello", "offer",       "offer_old", "stored",
                                        "poll",  "report",      "restart",   "commit",
                                        "crash", "crash_after", "late"};

static struct round_event event(const struct model *m, unsigned i, enum round_event_kind kind)
{
    const struct site *s = &m->site[i];
    return (struct round_event){.kind = kind,
                                .site = i,
                                .incarnation = s->incarnation,
                                .instance = 10 * (i + 1) + s->incarnation,
                                .term = s->term,
                                .round = s->state,
                                .parent = manifest_of(s->set, s->state),
                                .state = state_of(s->set, s->state),
                                .hello.has_state = true,
                                .past.kept = true,
                                .past.parent = manifest_of(m->set, s->state),
                                .past.state = state_of(m->set, s->state),
                                .offer.payload_bytes = 1,
                                .offer.payload_max = 1,
                                .offer.weight = 1};
}

static bool do_hello(struct model *m, unsigned i)
{
    struct site *s = &m->site[i];
    struct round_event e = event(m, i, ROUND_HELLO);
    struct round_update u;
    step(m, &e, &u);
    if (u.outcome != ROUND_CURRENT && u.outcome != ROUND_BEHIND)
        return false;
    e.kind = ROUND_BIND;
    s->term = s->hello_term = m->term;
    step(m, &e, &u);
    return true;
}

static bool offer(struct model *m, unsigned i, const struct round_event *from)
{
    struct round_event e = *from;
    struct round_update u;
    e.offer.payload = payload_of(&m->site[i], i, (unsigned)e.round);
    e.parent = manifest_of(m->site[i].set, (unsigned)e.round);
    step(m, &e, &u);
    if (u.outcome == ROUND_RESUME)
        m->upload[i] =
            (struct upload){1, (uint8_t)e.round, (uint8_t)e.term, (uint8_t)e.incarnation};
    return true;
}

static bool do_offer(struct model *m, unsigned i, bool old)
{
    struct site *s = &m->site[i];
    struct round_event e = event(m, i, ROUND_OFFER);
    if (s->state >= ROUNDS + old || (old && !s->state))
        return false;
    e.round -= old;
    e.incarnation -= old && s->incarnation > 1;
    e.instance -= old && s->incarnation > 1;
    if (!old)
        s->made |= (uint8_t)(1 << s->state);
    return offer(m, i, &e);
}

static bool do_stored(struct model *m, unsigned i)
{
    struct upload up = m->upload[i];
    struct round_event e = event(m, i, ROUND_STORED);
    struct round_update u;
    if (!up.open)
        return false;
    m->upload[i] = (struct upload){0};
    e.round = up.round;
    e.term = up.term;
    e.instance -= e.incarnation - up.incarnation;
    e.incarnation = up.incarnation;
    e.offer.payload = payload_of(&m->site[i], i, up.round);
    e.parent = manifest_of(m->site[i].set, up.round);
    step(m, &e, &u);
    return true;
}

static bool do_poll(struct model *m, unsigned i)
{
    struct site *s = &m->site[i];
    struct round_event e = event(m, i, ROUND_POLL);
    struct round_update u;
    if (s->state >= ROUNDS)
        return false;
    step(m, &e, &u);
    if (u.outcome != ROUND_COMMIT)
        return u.outcome == ROUND_REBIND ? do_hello(m, i) : false;
    struct digest own = manifest_of(s->set, s->state), theirs = manifest_of(m->set, s->state);
    if (s->state >= m->round || !digest_equal(&own, &theirs))
        violate("a site adopts what does not follow on its state");
    if (m->set[s->state] >> i & 1 && !(s->made >> s->state & 1))
        violate("a site is in a round to which it has made nothing");
    s->set[s->state] = m->set[s->state];
    s->state++;
    return true;
}

static bool do_report(struct model *m, unsigned i)
{
    struct round_event e = event(m, i, ROUND_REPORT);
    struct round_update u;
    step(m, &e, &u);
    return true;
}

static bool do_restart(struct model *m, unsigned i)
{
    if (m->site[i].incarnation > RESTARTS_MAX)
        return false;
    m->site[i].incarnation++;
    return true;
}

static void commit_point(struct model *m)
{
    m->set[m->round++] = m->seal_set;
    m->journal = m->sealed = m->seal_set = m->late = 0;
}

static bool do_commit(struct model *m)
{
    struct round_event e = {.kind = ROUND_COMMITTED};
    struct round_update u;
    if (!m->sealed)
        return false;
    commit_point(m);
    e.round = m->round;
    e.parent = manifest_of(m->set, m->round);
    e.state = state_of(m->set, m->round);
    step(m, &e, &u);
    return true;
}

static bool do_crash(struct model *m, bool after)
{
    if (m->crashes == CRASHES_MAX || (after && !m->sealed))
        return false;
    m->crashes++;
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
    step(m, &e, &u);
    return true;
}

/* Of struct search_model. */
static bool act(void *state, unsigned number, unsigned i)
{
    struct model *m = state;
    enum act a = number;
    bool done = false;
    core_load(&m->core, m->term, strict);
    switch (a) {
    case ACT_HELLO:
        done = do_hello(m, i);
        break;
    case ACT_OFFER:
    case ACT_OFFER_OLD:
        done = do_offer(m, i, a == ACT_OFFER_OLD);
        break;
    case ACT_STORED:
        done = do_stored(m, i);
        break;
    case ACT_POLL:
        done = do_poll(m, i);
        break;
    case ACT_REPORT:
        done = do_report(m, i);
        break;
    case ACT_RESTART:
        done = do_restart(m, i);
        break;
    case ACT_COMMIT:
        done = do_commit(m);
        break;
    case ACT_CRASH:
    case ACT_CRASH_AFTER:
        return do_crash(m, a == ACT_CRASH_AFTER);
    case ACT_LATE:
        done = do_late(m);
        break;
    case ACTS:
        break;
    }
    core_keep(&m->core);
    return done;
}

/* ---- from here on nothing fails ---- */

static bool ended(const struct model *m)
{
    bool all = m->round == ROUNDS;
    for (unsigned i = 0; i < SITES; i++)
        all = all && m->site[i].state == ROUNDS;
    return all;
}

static void check_ends(const void *from)
{
    struct model m;
    memcpy(&m, from, sizeof m);
    for (unsigned k = 0; k < CALM_STEPS && !ended(&m) && !*why; k++) {
        for (unsigned i = 0; i < SITES; i++) {
            core_load(&m.core, m.term, strict);
            if (!live.s[i].bound || m.site[i].hello_term != m.term)
                (void)act(&m, ACT_HELLO, i);
            (void)act(&m, ACT_OFFER, i);
            (void)act(&m, ACT_STORED, i);
        }
        (void)act(&m, ACT_LATE, 0);
        (void)act(&m, ACT_COMMIT, 0);
        for (unsigned i = 0; i < SITES; i++)
            (void)act(&m, ACT_POLL, i);
    }
    if (!ended(&m))
        violate("from here on the run does not end");
}

/* ---- the search ---- */

int main(int argc, char **argv)
{
    static const struct search_model model = {
        sizeof(struct model), act_names, ACTS, ACT_COMMIT, SITES, act, check_ends};
    size_t limit = search_limit(argc, argv, SUITE_STATES), all = 0;
    struct search found = {0};
    bool ok = true;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int mode = 0; mode < 2 && ok; mode++) {
        struct model first;
        size_t states = 0;
        strict = mode;
        const char *name = strict ? "strict" : "quorum";
        memset(&first, 0, sizeof first);
        for (unsigned i = 0; i < SITES; i++)
            first.site[i].incarnation = 1;
        aggregator_start(&first);
        ok = search_run(&found, &model, name, &first, limit, &states);
        all += states;
        printf("mode=%s states=%zu waiting=%zu crashes_max=%d\n", name, states,
               found.queued - states, CRASHES_MAX);
    }
    search_end(&found);
    printf("%zu states, %d violations\n", all, !ok);
    return ok ? 0 : 1;
}
