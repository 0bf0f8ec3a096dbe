/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ACCUMULATOR_H
#define ACCUMULATOR_H
/* How many bits of mantissa the accumulator of a long sum needs: the variance retention ratio of
 * Sakr et al. 2019 (1901.06588) in closed form, and sums simulated with kernels/scalar/narrow.h.
 * Pure but for the random numbers, which are a function of the arguments.
 */
#include <stdbool.h>
#include <stddef.h>

enum { ACCUMULATOR_BITS_MAX = 23, ACCUMULATOR_CHUNK = 64 };
#define ACCUMULATOR_LOST_MAX 3.9 /* log 50 */

struct accumulator { /* of a sum of n products of `product` bits of mantissa */
    int bits, product;
    size_t n;
    size_t chunk; /* terms of a part, whose sums are then added in as many bits; 0: one level */
};
/* Variance of the rounded sum over that of the exact one; 1: nothing is lost. */
double accumulator_retention(const struct accumulator *a);
/* n (1 - retention), less than ACCUMULATOR_LOST_MAX is allowed. */
double accumulator_lost(const struct accumulator *a);
/* Fewest bits with which that is allowed; bits of *a are ignored. */
int accumulator_least(struct accumulator a);
/* Root mean square error of simulated sums of products of two standard normals over that of the
 * exact sums, log2. wide: the outer level is f32. */
double accumulator_error(const struct accumulator *a, bool wide);

#endif
