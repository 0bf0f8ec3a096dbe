/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OUTER_AVERAGE_H
#define OUTER_AVERAGE_H
/* theta = theta - mean: the average of the sites' parameters (FedAvg, 1602.05629). Part of
 * outer_opt.h. */

SCALAR float outer_average_step(float theta, float *unused, float *unused_too, float mean,
                                const struct outer_scalars *k)
{
    (void)unused, (void)unused_too, (void)k;
    return theta - mean;
}

#endif
