#ifndef ANNEAL_H
#define ANNEAL_H
/* The outer learning rate over a run (outer.lr_schedule, outer.lr_end), and the rounds that begin
 * with an empty momentum (outer.momentum_restart). Functions of configuration and round alone, the
 * same at every replica and in every replay. The rate of a round follows from the step that ends it
 * over the last step: of the run, or where train.steps has grown since, the last step that the run
 * had when the round was committed. Behind a former last step the annealing begins again, with an
 * empty momentum.
 */
#include "outer/diloco/schedule.h"

/* X(ENUMERATOR, name): outer.lr_schedule = name. Share of the rate at progress x in 0..1, e the
 * share at the end: 1; 1 - (1 - e) x; e + (1 - e) (1 + cos(pi x)) / 2. */
#define ANNEAL_LIST(X)                                                                             \
    X(ANNEAL_CONSTANT, constant) X(ANNEAL_LINEAR, linear) X(ANNEAL_COSINE, cosine)
enum anneal_kind {
#define X(value, name) value,
    ANNEAL_LIST(X)
#undef X
};

struct anneal {
    enum anneal_kind kind;
    double end;       /* share of the rate at the last step */
    uint64_t restart; /* rounds between two empty momenta; 0: none */
};

/* No library function: its last bit would depend on the machine. */
double anneal_share(const struct anneal *a, double progress);
float anneal_rate(const struct anneal *a, float lr, const struct schedule *s, unsigned fragment,
                  uint64_t round);
/* Does the round begin with an empty momentum? Round 0 does, with or without. */
bool anneal_restarts(const struct anneal *a, const struct schedule *s, unsigned fragment,
                     uint64_t round);

#endif
