/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GELU_H
#define GELU_H
/* exp and the two GELUs of the field, element by element, in forms that vectorise: no branch, no
 * table, no libm call. Included by C and by CUDA C. Fast set; bounds measured by
 * tests/kernels/test_scalar.c.
 */
#include "kernels/base/bf16.h"

/* e^x for -87.3 <= x <= 88.3, meaningless outside; relative error <= 2e-7. Adding 1.5 * 2^23 leaves
 * round(x / ln 2) in the low mantissa bits: a compiler that reassociates (fast-math) would delete
 * it. ln 2 is split so that n times its first part is exact. Polynomial: minimax of degree 6 on |r|
 * <= ln(2)/2, relative 2e-9, found by reweighted least squares. 2^n enters through the exponent's
 * bits. */
SCALAR float exp_inside(float x)
{
    const float magic = 12582912.0f;
    float shifted = x * 1.44269504f + magic;
    float n = shifted - magic;
    float r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float p = 1.38368458e-3f;
    p = p * r + 8.37481581e-3f;
    p = p * r + 4.16682251e-2f;
    p = p * r + 1.66664198e-1f;
    p = p * r + 4.99999911e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return float_of_bits(float_bits(p) + (float_bits(shifted) << 23));
}

/* The same for all x: held at e^-87.3 (1.2e-38, the smallest normal number) and e^88.3 (2.2e38). */
SCALAR float exp_fast(float x)
{
    x = x < -87.3f ? -87.3f : x;
    return exp_inside(x > 88.3f ? 88.3f : x);
}

/* 2^x for -126 <= x <= 126, meaningless outside; relative error <= 3e-7. Same idea, with an exact r
 * and degree 5 (7.5e-8). */
SCALAR float exp2_inside(float x)
{
    const float magic = 12582912.0f;
    float shifted = x + magic;
    float r = x - (shifted - magic);
    float p = 1.32764725e-3f;
    p = p * r + 9.67554189e-3f;
    p = p * r + 5.55071309e-2f;
    p = p * r + 2.40221202e-1f;
    p = p * r + 6.93146944e-1f;
    p = p * r + 1.00000012f;
    return float_of_bits(float_bits(p) + (float_bits(shifted) << 23));
}

/* The same for attention, held at 2^-126 below. */
SCALAR float exp2_fast(float x)
{
    return exp2_inside(x < -126.0f ? -126.0f : x);
}

/* 1 / (1 + e^-y) for -87.3 <= y <= 87.3; |err| <= 2e-7. A GPU takes its instructions for 2^x and
 * 1/x, each within 2 units in the last place: the polynomial and a rounded division are 25
 * instructions more, and as much time as the memory that the GELU's passes move. */
SCALAR float logistic_inside(float y)
{
#ifdef __CUDA_ARCH__
    float e, inverse;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(y * -1.44269504f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + e));
    return inverse;
#else
    return 1.0f / (1.0f + exp_inside(-y));
#endif
}

/* The logistic function of 2u, u = sqrt(2/pi) (x + 0.044715 x^3): (1 + tanh u)/2. |x| is held at 9,
 * where it is 1e-29 from 0 or 1, so that exp needs no clamp of its own; *clamped is x so held. */
SCALAR float gelu_gate(float x, float *clamped)
{
    x = x < -9.0f ? -9.0f : x;
    x = x > 9.0f ? 9.0f : x;
    *clamped = x;
    return logistic_inside(x * (1.59576912f + 0.0713548163f * x * x));
}

/* x/2 (1 + tanh(u)): GPT-2's GELU, Hendrycks & Gimpel 2016. |err| <= 3e-7 max(1, |x|). */
SCALAR float gelu_tanh(float x)
{
    float clamped;
    return x * gelu_gate(x, &clamped);
}

/* |err| <= 3e-6. */
SCALAR float gelu_tanh_slope(float x)
{
    float s = gelu_gate(x, &x);
    return s + x * s * (1.0f - s) * (1.59576912f + 0.214064449f * x * x);
}

/* Phi(-a), the upper tail of the standard normal distribution, for 0 <= a <= 10; |err| <= 2e-7,
 * 1/2 at 0, 1e-24 at 10. log2 of it is a polynomial: minimax of degree 8 for the error of Phi,
 * 2.5e-8, found by reweighted least squares with the value at 0 given. No division, which costs as
 * much as five of its terms. */
SCALAR float normal_tail(float a)
{
    float p = -1.16370006e-6f;
    p = p * a + 2.16012777e-5f;
    p = p * a - 1.12257614e-4f;
    p = p * a - 2.90361320e-4f;
    p = p * a + 7.23150838e-3f;
    p = p * a - 5.25904968e-2f;
    p = p * a - 4.59184259e-1f;
    p = p * a - 1.15110719f;
    p = p * a - 1.0f;
    return exp2_inside(p);
}

/* |x|, held at 10, where Phi is 1e-24 from 0 or 1. */
SCALAR float normal_argument(float x)
{
    float a = float_of_bits(float_bits(x) & 0x7fffffffu);
    return a > 10.0f ? 10.0f : a;
}

/* x Phi(x): BERT's GELU. |err| <= 2e-7 max(1, |x|). */
SCALAR float gelu_erf(float x)
{
    float q = normal_tail(normal_argument(x));
    float held = x < -10.0f ? -10.0f : x;
    return held * (x < 0.0f ? q : 1.0f - q);
}

/* Phi(x) + x density(x), |err| <= 4e-7. Its tail is Phi(-a) - a density(a) = Phi(-a) t(a); t is a
 * polynomial, minimax of degree 8 for the error of the product, 1.6e-7. */
SCALAR float gelu_erf_slope(float x)
{
    float a = normal_argument(x);
    float t = -3.94955578e-6f;
    t = t * a + 6.65185726e-5f;
    t = t * a - 2.59326392e-4f;
    t = t * a - 1.53683642e-3f;
    t = t * a + 2.07399074e-2f;
    t = t * a - 1.09806553e-1f;
    t = t * a - 6.36435628e-1f;
    t = t * a - 7.97898412e-1f;
    t = t * a + 1.0f;
    float tail = normal_tail(a) * t;
    return x < 0.0f ? tail : 1.0f - tail;
}

/* tanh x, relative error <= 5e-7. 1 - e^-2|x| cancels near 0, so below 1/4 it is the odd power
 * series up to x^9, whose next term is below 1e-8 of the sum. */
SCALAR float tanh_fast(float x)
{
    float a = float_of_bits(float_bits(x) & 0x7fffffffu);
    a = a > 9.1f ? 9.1f : a; /* 1 - tanh 9.1 is 2.5e-8 */
    float s = a * a, e = exp_inside(-2.0f * a);
    float p = 0.0218694885f;
    p = p * s - 0.0539682540f;
    p = p * s + 0.133333333f;
    p = p * s - 0.333333333f;
    float small = a + a * s * p, large = (1.0f - e) / (1.0f + e);
    float t = a < 0.25f ? small : large;
    return x < 0.0f ? -t : t;
}

/* |err| <= 1e-6. */
SCALAR float tanh_slope(float x)
{
    float t = tanh_fast(x);
    return 1.0f - t * t;
}

#endif
