/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REPLAN_H
#define REPLAN_H
/* outer.replan: how long a round must be for training to have its share of the time, from what the
 * rounds took. What training waits for an exchange does not depend on the steps of the round, so
 * waiting / (steps + waiting) falls with them. Pure; the result is recorded as an amendment, so a
 * run with the recorded amendments needs no clock.
 *
 * One exchange says nothing: an outage ends, and times vary. When a round is sealed, the exchange
 * of the round before is known and of this one the upload. An exchange counts for no more than two
 * uploads confirm, or the exchange before it. So a link that becomes slower is believed two uploads
 * later, a slower download alone one round later still. A round gets shorter after three rounds in
 * which the configured steps would do, or half as many.
 */
#include <stdbool.h>
#include <stdint.h>

/* Share of the time that training must have. Below MISSED a round gets longer at once, else after
 * two in a row. AIM is what another length is planned for, so that one amendment does. Above CALM
 * the configured length is taken again. The longest round is that of plan_search, or TIMES the
 * configured one if that is longer. */
#define REPLAN_SHARE  0.95
#define REPLAN_MISSED 0.943
#define REPLAN_CALM   0.955
#define REPLAN_AIM    0.97
enum {
    REPLAN_EVERY_MAX = 1000,
    REPLAN_TIMES = 4,  /* largest factor of one change, and of the configured length */
    REPLAN_MISSES = 2, /* rounds in a row, above MISSED; in which a round may be shorter: */
    REPLAN_ROUNDS = 3
};

struct replan_round {
    double trained_s, waited_s; /* between the last two contributions: in steps, for rounds */
    double exchange_s;          /* mean of the rounds adopted then, from their submission on */
    double upload_s;            /* of this round's contribution */
    int64_t steps;              /* that were trained in trained_s */
    int64_t every, least;       /* outer.sync_every of the next rounds; as configured */
    unsigned fragments;         /* outer.sync_every is a multiple of them */
};
struct replan {            /* of the rounds before; zero: there are none */
    unsigned known;        /* rounds in a row, at most 2 */
    double upload_s[2];    /* of the round before, and of the one before that */
    double exchange_s;     /* of the latter */
    unsigned missed, calm; /* rounds in a row: without the share; more steps than needed */
    double calm_s;         /* the longest wait in the latter */
};
struct replan_plan {
    int64_t every;   /* as many steps as are planned to give training its share, at least as
                        configured; that of the round: it stays */
    double share;    /* of the time in steps, as measured */
    double waited_s; /* that it is planned for */
    bool longest;    /* training has less than its share, and no round may be longer */
};
/* When a round is sealed. `r` says nothing where its steps are 0: an amendment is pending. */
struct replan_plan replan_step(struct replan *p, const struct replan_round *r);

#endif
