/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRID_H
#define GRID_H
/* Quantisation on the shared grid and to bf16, one value or one sum at a time, for C and CUDA C.
 * Exact set: no libm, no contraction (compile with -ffp-contract=off, --fmad=false), so every
 * device gives the same bits.
 *
 * Why residual = z - q*step never rounds. step = 2^e, |q| <= 127, so q*step is exact. Let u be one
 * unit in z's last place; |z| < 2^24 steps, so u <= step, and z - q*step is a multiple of u.
 * - q = 0: residual = z.
 * - Rounded, q != 0: |residual| <= step/2 <= |z|, and each multiple of u that is no larger than z
 *   is a float.
 * - Saturated: q*step lies between 0 and z, so |residual| < |z|, the same.
 * From 2^24 steps on u may exceed step and the difference could round: such a value gets q = 0.
 */
#include "kernels/base/bf16.h"

#define GRID_EMPTY     (-128)      /* no exponent: a block that is not sent */
#define GRID_TOO_LARGE 0x4b800000u /* bits of 2^24; NaN and infinity are above */
#define GRID_NEAREST   0x1.8p23f   /* adding and subtracting it rounds |x| < 2^22 to nearest even */
#define GRID_CODE_BAD  255

/* 2^e for -100 <= e <= 100, 0 for an empty block: z * 0 gives q = 0 and residual z without a
 * branch. */
SCALAR float grid_step(int e)
{
    return e == GRID_EMPTY ? 0.0f : float_of_bits((uint32_t)(e + 127) << 23);
}

/* 1 / grid_step, exact. */
SCALAR float grid_inverse(int e)
{
    return e == GRID_EMPTY ? 0.0f : float_of_bits((uint32_t)(127 - e) << 23);
}

/* clamp(rne(z / step), -Q, Q) as a float; 0 from 2^24 steps on. The clamp comes first: Q is whole,
 * so the order does not matter, and the sum with GRID_NEAREST stays in its range. The mask instead
 * of a condition keeps the loop free of branches. */
SCALAR float grid_round(float z, float inverse, float q_max)
{
    float x = z * inverse;
    uint32_t sent = (float_bits(x) & 0x7fffffffu) < GRID_TOO_LARGE ? 0xffffffffu : 0;
    float y = x > q_max ? q_max : x;
    y = y < -q_max ? -q_max : y;
    y = float_of_bits(float_bits(y) & sent);
    return (y + GRID_NEAREST) - GRID_NEAREST;
}

/* The block code of a sum of 256 squares. Squares of floats are exact in double and at least
 * 2^-298, so the sum is 0, normal, or not finite because a value was not. */
SCALAR uint8_t grid_code(double sum)
{
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    int exponent = (int)(bits >> 52) & 0x7ff; /* without the sign, which a NaN may have */
    if (exponent == 0x7ff)
        return GRID_CODE_BAD;
    if (exponent == 0)
        return 0;
    int code = exponent - 1023 - 8 + 128; /* 8: mean of 256 */
    return (uint8_t)(code < 1 ? 1 : code > 254 ? 254 : code);
}

/* bf16 nearest even, but the largest finite one instead of infinity: the rest stays in the
 * residual. */
SCALAR uint16_t grid_bf16(float z)
{
    uint32_t h = bf16_round(z);
    uint32_t overflow = (h & 0x7fffu) == 0x7f80u && (float_bits(z) & 0x7fffffffu) < 0x7f800000u;
    return (uint16_t)(h - overflow);
}

#endif
