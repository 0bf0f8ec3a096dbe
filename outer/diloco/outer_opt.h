#ifndef OUTER_OPT_H
#define OUTER_OPT_H
/* Outer optimizers: what a member does with the mean delta of a round. Deterministic, exact set,
 * host or device memory of d. The settings are pinned: every member takes the same step.
 * - nesterov: buf = mu*buf + mean, theta = theta - lr*(mean + mu*buf). DiLoCo, 2311.08105.
 * - sgd: theta = theta - lr*mean.
 * - delayed_nesterov: nesterov on the mean of N rounds, without waiting for it: every round
 *   theta = theta - lr*mean/N, every N-th the momentum's part as well. N = 1 is nesterov to the
 * bit. 2401.09135. The place in the cycle follows from the round's number.
 * - average: theta = theta - mean, the average of the sites' parameters (FedAvg); lr is 1.
 */
#include "kernels/dev.h"

enum nesterov_kind { NESTEROV_MOMENTUM, NESTEROV_SGD, NESTEROV_AVERAGE, NESTEROV_DELAYED };

struct nesterov {
    enum nesterov_kind kind;
    float lr, mu;   /* as used: average has 1 and 0, sgd has mu 0 */
    unsigned delay; /* N of delayed_nesterov, else 1 */
};
struct nesterov_state { /* of one run of parameters, in place; NULL where the optimizer keeps none
                         */
    float *theta, *momentum, *gathered;
};

/* name: nesterov, delayed_nesterov (with delay 1: set it), sgd, average. ERR_CONFIG: unknown name,
 * lr or mu not finite or out of range. */
enum err nesterov_make(struct nesterov *o, const char *name, float lr, float mu) MUST;
/* Does it keep a momentum, and what a cycle has gathered, of theta's size? */
bool nesterov_momentum(const struct nesterov *o);
bool nesterov_gathers(const struct nesterov *o);
size_t nesterov_bytes(const struct nesterov *o); /* per parameter, theta included */
void nesterov_step(struct dev *d, const struct nesterov *o, const struct nesterov_state *s,
                   const float *mean, uint64_t round, size_t count);

#endif
