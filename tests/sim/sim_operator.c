/* SPDX-License-Identifier: Apache-2.0 */
/* An operator of the run (docs/protocol.md 3.13). Which rounds are aborted or rolled back
 * follows from the seed alone, and each is closed as soon as its first contribution is accepted, so
 * that the run without faults has the same acts at the same rounds (I1). Quarantines come at any
 * time.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "tests/sim/sim_own.h"

enum { EVERY_MS = 30000, KEPT_OUT_MS = 40000, AGAIN_MS = 1000, ONE_IN = 9 };
static const char operator_name[] = "atoll://sim/operator/op";

enum order { ORDER_NONE, ORDER_ABORT, ORDER_ROLLBACK };

/* A rollback goes one state back: an aggregator keeps two. */
static bool rollback_fits(const struct sim *s, uint64_t round)
{
    return round > 0 && !s->o.overlap && 2 % s->o.delay == 0;
}

static enum order order_of(const struct sim *s, unsigned f, uint64_t round)
{
    bool any = s->o.operates && s->o.sites > 1;
    uint64_t drawn = rng_below(s->o.seed, RNG_TEST, 10000 + f * SIM_ROUNDS_MAX + round, 2 * ONE_IN);
    if (!any || drawn > 1)
        return ORDER_NONE;
    return drawn && rollback_fits(s, round) ? ORDER_ROLLBACK : ORDER_ABORT;
}

bool sim_operator_orders(const struct sim *s, unsigned f, uint64_t round)
{
    return order_of(s, f, round) != ORDER_NONE;
}

/* False: no aggregator, or a full disk. */
static bool operate(struct sim_aggregator *a, struct wire_operate *m)
{
    struct link_sim_server *server = &a->server;
    struct wire_answer answer = {.outcome = ROUND_NONE};
    if (!server->up || server->stopped || a->env.disk.dead)
        return false;
    server->service.operate(server->service.self, operator_name, m, &answer);
    link_sim_work(server);
    return answer.outcome == ROUND_CURRENT;
}

/* Of masked rounds some are closed once they are sealed: sites may have signed and answered. */
static bool too_early(const struct sim_aggregator *a, unsigned f, uint64_t round)
{
    const struct sim *s = a->sim;
    char path[64];
    size_t size;
    snprintf(path, sizeof path, "spool/%u/%" PRIu64 "/seal", f, round);
    bool late = rng_below(s->o.seed, RNG_TEST, 12000 + f * SIM_ROUNDS_MAX + round, 2);
    return s->o.masked && late && !env_faulty_look(&a->env, path, &size);
}

void sim_operator_acts(struct sim_aggregator *a)
{
    struct sim *s = a->sim;
    for (unsigned f = 0; s->o.operates && f < s->o.fragments; f++) {
        uint64_t round = a->replica.state[f].round;
        enum order order = order_of(s, f, round);
        if (order == ORDER_NONE || round >= schedule_rounds(&s->schedule, f) ||
            too_early(a, f, round))
            continue;
        struct wire_operate m = {.act = order == ORDER_ABORT ? WIRE_ABORT : WIRE_ROLLBACK,
                                 .fragment = f,
                                 .round = round,
                                 .to = round ? round - 1 : 0};
        if (s->acting)
            return;
        s->acting = true; /* the work() of this call looks here again */
        (void)operate(a, &m);
        s->acting = false;
    }
}

/* ---- quarantine ---- */

static void keep_out(struct sim *s, struct sim_node *n)
{
    struct wire_operate m = {.act = WIRE_QUARANTINE};
    snprintf(m.site, sizeof m.site, "%s", n->name);
    if (!sim_strikes(&s->clock, 1, "quarantine by the operator", n->name))
        return;
    s->r->quarantined += operate(&s->aggregator[0], &m); /* without an answer too it may be so */
    sim_sleep(&s->clock, s->clock.now_ms + sim_below(&s->clock, KEPT_OUT_MS), NULL);
    m.act = WIRE_READMIT;
    while (!s->finished && !operate(&s->aggregator[0], &m))
        sim_sleep(&s->clock, s->clock.now_ms + AGAIN_MS, NULL);
}

/* An aggregator that has lost its journal has the quarantines of the newest manifests: those that
 * have ended since, too. */
static void readmit_all(struct sim *s)
{
    for (unsigned i = 0; i < s->o.sites; i++) {
        struct wire_operate m = {.act = WIRE_READMIT};
        snprintf(m.site, sizeof m.site, "%s", s->node[i].name);
        if (!s->node[i].liar && !s->node[i].done)
            (void)operate(&s->aggregator[0], &m);
    }
}

static void operator_task(void *self)
{
    struct sim *s = self;
    while (!s->finished) {
        sim_sleep(&s->clock, s->clock.now_ms + 1 + sim_below(&s->clock, EVERY_MS), NULL);
        if (s->clock.now_ms >= s->calm_ms) {
            readmit_all(s);
            continue;
        }
        struct sim_node *n = &s->node[sim_below(&s->clock, s->o.sites)];
        if (!n->liar && !n->done)
            keep_out(s, n);
    }
}

void sim_operator_start(struct sim *s)
{
    if (s->o.operates && s->o.faults)
        sim_start(&s->clock, operator_task, s);
}
