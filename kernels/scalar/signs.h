/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIGNS_H
#define SIGNS_H
/* One bit and a scale for values: the ops sign_encode and sign_decode of kernels/dev.h. */
#include "kernels/base/bf16.h"

/* Root mean square of `count` values. */
SCALAR float sign_scale(double squares, double count)
{
    return count > 0 ? (float)SCALAR_SQRT64(squares / count) : 0.0f;
}

/* Plus the scale for a bit 1, minus the scale for 0. */
SCALAR float sign_value(uint32_t bit, float scale)
{
    return float_of_bits(float_bits(scale) ^ (bit ^ 1u) << 31);
}

SCALAR bool sign_stopped(const float *stop)
{
    return stop && *stop != *stop;
}

#endif
