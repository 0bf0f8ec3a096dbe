/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OUTER_SGD_H
#define OUTER_SGD_H
/* theta = theta - lr*mean. Part of outer_opt.h. */

SCALAR float outer_sgd_step(float theta, float *unused, float *unused_too, float mean,
                            const struct outer_scalars *k)
{
    (void)unused, (void)unused_too;
    float step = k->lr * mean;
    return theta - step;
}

#endif
