/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ACCUMULATOR_SUMS_H
#define ACCUMULATOR_SUMS_H
/* `atoll plan accumulator`: the sums of a model's matrix products, and whether an accumulator of so
 * many bits of mantissa holds them (accumulator.h).
 */
#include "outer/config/run.h"

enum { ACCUMULATOR_SUMS_MAX = 16 };
struct accumulator_sums { /* of different lengths */
    struct accumulator_sum {
        size_t n;
        char of[160]; /* what is summed so */
    } s[ACCUMULATOR_SUMS_MAX];
    size_t count;
};
struct accumulator_sums accumulator_sums_of(const struct run *p);
/* On standard output, as text or as one JSON object; product: bits of mantissa of a product. */
void accumulator_sums_print(const struct accumulator_sums *l, int bits, int product, bool json);

#endif
