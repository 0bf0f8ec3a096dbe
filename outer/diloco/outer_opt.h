#ifndef OUTER_OPT_H
#define OUTER_OPT_H
/* Outer optimizers: what a replica does with the mean delta of a round. Deterministic, exact set,
 * host or device memory of d. The settings are pinned: every replica takes the same step.
 * - nesterov: buf = mu*buf + mean, theta = theta - lr*(mean + mu*buf). DiLoCo, 2311.08105.
 * - sgd: theta = theta - lr*mean.
 * - delayed_nesterov: nesterov on the mean of N rounds, without waiting for it: every round
 *   theta = theta - lr*mean/N, every N-th the momentum's part as well. N = 1 is nesterov to the
 * bit. 2401.09135. The place in the cycle follows from the round's number.
 * - average: theta = theta - mean, the average of the sites' parameters (FedAvg); lr is 1.
 */
#include "outer/diloco/anneal.h"
#include "outer/diloco/merge.h"

/* X(ENUMERATOR, name): outer.optimizer = name. */
#define OUTER_OPT_LIST(X)                                                                          \
    X(OUTER_OPT_MOMENTUM, nesterov)                                                                \
    X(OUTER_OPT_DELAYED, delayed_nesterov)                                                         \
    X(OUTER_OPT_SGD, sgd)                                                                          \
    X(OUTER_OPT_AVERAGE, average)
enum outer_opt_kind {
#define X(value, name) value,
    OUTER_OPT_LIST(X)
#undef X
};

struct outer_opt {
    enum outer_opt_kind kind;
    float lr, mu;          /* as used: average has 1 and 0, sgd has mu 0; both before
                              annealing */
    unsigned delay;        /* N of delayed_nesterov, else 1 */
    enum merge_kind merge; /* how contributions become the mean that it takes */
    float length_max;      /* of the mean, merge edit; 0: no bound */
    struct anneal anneal;
};
struct outer_opt_state { /* of one run of parameters, in place; NULL where the optimizer keeps none
                          */
    float *theta, *momentum, *gathered;
};

/* delayed_nesterov gets delay 1: set it. ERR_CONFIG: lr or mu not finite or out of range. */
enum err outer_opt_make(struct outer_opt *o, enum outer_opt_kind kind, float lr, float mu) MUST;
/* Does it keep a momentum, and what a cycle has gathered, of theta's size? */
bool outer_opt_momentum(const struct outer_opt *o);
bool outer_opt_gathers(const struct outer_opt *o);
size_t outer_opt_bytes(const struct outer_opt *o); /* per parameter, theta included */
void outer_opt_step(struct dev *d, const struct outer_opt *o, const struct outer_opt_state *s,
                    const float *mean, uint64_t round, size_t count);

#endif
