/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BF16_H
#define BF16_H
/* bfloat16 as 16 bits: the upper half of a float. Conversions only; arithmetic is always f32.
 * Included by C and by CUDA C. Exact: nearest even, NaN stays NaN (quiet), overflow goes to
 * infinity.
 */
#include <stdint.h>
#include <string.h>
#ifndef SCALAR
#ifdef __CUDACC__
#define SCALAR           static inline __host__ __device__
#define SCALAR_SQRT(x)   sqrtf(x)
#define SCALAR_SQRT64(x) sqrt(x)
#else
#define SCALAR           static inline
#define SCALAR_SQRT(x)   __builtin_sqrtf(x)
#define SCALAR_SQRT64(x) __builtin_sqrt(x)
#endif
#endif

SCALAR uint32_t float_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

SCALAR float float_of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

SCALAR float bf16_float(uint16_t h)
{
    return float_of_bits((uint32_t)h << 16);
}

SCALAR uint16_t bf16_round(float x)
{
    uint32_t u = float_bits(x);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t nan = (u >> 16) | 0x40u; /* adding to a NaN's bits could carry into the sign */
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* One of the two neighbours of a finite x, the upper with the probability that makes the mean x;
 * never infinity. random: 16 uniform bits. Anything else as bf16_round. */
SCALAR uint16_t bf16_stochastic(float x, uint32_t random)
{
    uint32_t u = float_bits(x), up = (u + random) >> 16;
    if ((u & 0x7f800000u) == 0x7f800000u)
        return bf16_round(x);
    return (uint16_t)((up & 0x7f80u) == 0x7f80u ? u >> 16 : up);
}

#endif
