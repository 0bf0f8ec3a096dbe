#ifndef NESTEROV_H
#define NESTEROV_H
/* Outer optimizers: what a member does with the mean delta of a round. Deterministic, exact set,
 * host or device memory of d. The settings are pinned: every member takes the same step.
 * - nesterov: buf = mu*buf + mean, theta = theta - lr*(mean + mu*buf). DiLoCo, 2311.08105.
 * - sgd: theta = theta - lr*mean.
 * - average: theta = theta - mean, the average of the sites' parameters (FedAvg); lr is 1.
 */
#include "kernels/dev.h"

enum nesterov_kind { NESTEROV_MOMENTUM, NESTEROV_SGD, NESTEROV_AVERAGE };

struct nesterov {
    enum nesterov_kind kind;
    float lr, mu; /* as used: average has 1 and 0, sgd has mu 0 */
};

/* name: nesterov, sgd, average. ERR_CONFIG: unknown name, lr or mu not finite or out of range. */
enum err nesterov_make(struct nesterov *o, const char *name, float lr, float mu) MUST;
bool nesterov_momentum(const struct nesterov *o); /* does it keep a momentum of theta's size? */
/* In place; momentum NULL exactly when nesterov_momentum() is false. */
void nesterov_step(struct dev *d, const struct nesterov *o, float *theta, float *momentum,
                   const float *mean, size_t count);

#endif
