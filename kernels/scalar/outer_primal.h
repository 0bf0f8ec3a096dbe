/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OUTER_PRIMAL_H
#define OUTER_PRIMAL_H
/* Generalized primal averaging (2512.17131) on the mean delta: an iterate z steps, an average x
 * follows it, and a round begins at y between them, which is theta.
 *     z = z - lr*mean;  x = mu*x + (1 - mu)*z;  theta = c*x + (1 - c)*z
 * mu: outer.momentum, c: outer.interpolation, 1 in the last round of the run, which ends at x. Kept
 * is offset = z - x alone; it is 0 at first, where the three are one. With a constant mu and lr, c
 * = mu takes all but the last step of Nesterov's momentum with a rate of lr*(1 - mu). Part of
 * outer_opt.h. */

SCALAR float outer_primal_step(float theta, float *offset, float *unused, float mean,
                               const struct outer_scalars *k)
{
    (void)unused;
    float step = k->lr * mean;
    float moved = *offset - step;
    float next = k->mu * moved;
    float before = k->interpolation * *offset, after = k->interpolation_next * next;
    float averaged = before - after;
    *offset = next;
    float change = step - averaged;
    return theta - change;
}

#endif
