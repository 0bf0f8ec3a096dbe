/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OUTER_DELAYED_NESTEROV_H
#define OUTER_DELAYED_NESTEROV_H
/* Delayed Nesterov (2401.09135): Nesterov on the mean of N rounds, without waiting for it. x =
 * mean/N of a round is gathered over the cycle. Every round theta = theta - lr*x; in the last one
 * of a cycle the momentum takes what was gathered, and theta = theta - lr*(x + mu*buf). The first
 * round overwrites what was gathered, so that N = 1 has the bits of outer_nesterov.h. Part of
 * outer_opt.h. */

SCALAR float outer_delayed_nesterov_step(float theta, float *buf, float *gathered, float mean,
                                         const struct outer_scalars *k)
{
    float x = k->fraction * mean;
    *gathered = k->first ? x : *gathered + x;
    float kept = k->mu * *buf, step = k->lr * x;
    *buf = k->last ? kept + *gathered : *buf;
    return k->last ? outer_nesterov_ahead(theta, *buf, x, k) : theta - step;
}

#endif
