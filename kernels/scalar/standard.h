/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STANDARD_H
#define STANDARD_H
/* One channel's term of the standardization loss (Collins, Balle, Shlens 2019, 1903.00925, eq. 5),
 * for C and CUDA C: half of mean^2 + variance - log variance - 1, the divergence of N(mean,
 * variance) from N(0, 1). Below `floor` the logarithm continues as its tangent. */
#include "kernels/base/bf16.h"
#include <math.h>

SCALAR double standard_loss(double mean, double variance, double floor)
{
    double logarithm = variance > floor ? log(variance) : log(floor) + (variance - floor) / floor;
    return (mean * mean + variance - logarithm - 1) / 2;
}

/* The gradient of x is mean + slope (x - mean), over the number of rows. */
SCALAR double standard_slope(double variance, double floor)
{
    return 1 - 1 / (variance > floor ? variance : floor);
}

#endif
