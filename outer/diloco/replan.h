#ifndef REPLAN_H
#define REPLAN_H
/* outer.replan: how long a round must be for training to have its share of the time, from what one
 * round took. What training waits for an exchange does not depend on the steps of the round, so
 * waiting / (steps + waiting) falls with them. Pure; the result is recorded as an amendment, so a
 * run with the recorded amendments needs no clock.
 */
#include <stdint.h>

/* Share of the time that training must have; and what a longer round is planned for: a line that
 * became slower in the middle of a round is measured in part only, and one amendment should do. The
 * longest round is that of plan_search. */
#define REPLAN_SHARE 0.95
#define REPLAN_AIM   0.97
enum { REPLAN_EVERY_MAX = 1000, REPLAN_CALM = 3 /* rounds in a row before a round gets shorter */ };

struct replan_round {
    double round_s, step_s; /* from the commit before to this one; a step of the slowest site */
    int64_t steps;          /* that the round had */
    int64_t every, least;   /* outer.every in force; as configured */
    unsigned fragments;     /* outer.every is a multiple of them */
};
/* Share of the time that was spent in steps. */
double replan_share(const struct replan_round *r);
/* The least outer.every that is planned to reach the share; at least as configured. `every` where
 * the round has its share and could not be half as long. */
int64_t replan_every(const struct replan_round *r);

#endif
