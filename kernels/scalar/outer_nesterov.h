/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OUTER_NESTEROV_H
#define OUTER_NESTEROV_H
/* Nesterov's momentum, the outer optimizer of DiLoCo (2311.08105): buf = mu*buf + mean; theta =
 * theta - lr*(mean + mu*buf). Part of outer_opt.h. */

SCALAR float outer_nesterov_ahead(float theta, float buf, float mean, const struct outer_scalars *k)
{
    float ahead = k->mu * buf;
    float direction = mean + ahead;
    float step = k->lr * direction;
    return theta - step;
}

SCALAR float outer_nesterov_step(float theta, float *buf, float *unused, float mean,
                                 const struct outer_scalars *k)
{
    (void)unused;
    float kept = k->mu * *buf;
    *buf = kept + mean;
    return outer_nesterov_ahead(theta, *buf, mean, k);
}

#endif
