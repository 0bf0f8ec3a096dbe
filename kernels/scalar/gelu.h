#ifndef GELU_H
#define GELU_H
/* exp and the two GELUs of the field, element by element, in forms that vectorise: no branch, no
 * table, no libm call. Included by C and by CUDA C. Fast set; bounds measured by
 * tests/kernels/test_scalar.c.
 */
#include "kernels/scalar/bf16.h"

/* e^x; relative error <= 2e-7 for -87 <= x <= 88. Below, the argument is held at -87.3 (1.2e-38,
 * the smallest normal number); above, at 88.7. Adding 1.5 * 2^23 leaves round(x / ln 2) in the low
 * mantissa bits: a compiler that reassociates (fast-math) would delete it. Polynomial: Taylor to
 * degree 7 on |r| <= ln(2)/2, truncation 5e-9. ln 2 is split so that n times its first part is
 * exact. */
SCALAR float exp_fast(float x)
{
    const float magic = 12582912.0f;
    x = x < -87.3f ? -87.3f : x;
    x = x > 88.7f ? 88.7f : x;
    float shifted = x * 1.44269504f + magic;
    float n = shifted - magic;
    float r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    /* 2^n in two factors: n = 128 (x near 88.7) has no single one. */
    int32_t i = (int32_t)(float_bits(shifted) - float_bits(magic));
    int32_t half = i >> 1;
    return p * float_of_bits((uint32_t)(half + 127) << 23) *
           float_of_bits((uint32_t)(i - half + 127) << 23);
}

/* x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3): GPT-2's GELU, Hendrycks & Gimpel 2016.
 * (1 + tanh u)/2 is the logistic function of 2u. |err| <= 3e-7 max(1, |x|). */
SCALAR float gelu_tanh(float x)
{
    float u2 = x * (1.59576912f + 0.0713548163f * x * x);
    return x / (1.0f + exp_fast(-u2));
}

/* |err| <= 3e-6. Beyond |x| = 12 the slope is 0 or 1 to all digits, and x^3 would in the end
 * overflow. */
SCALAR float gelu_tanh_slope(float x)
{
    x = x < -12.0f ? -12.0f : x;
    x = x > 12.0f ? 12.0f : x;
    float x2 = x * x;
    float s = 1.0f / (1.0f + exp_fast(-x * (1.59576912f + 0.0713548163f * x2)));
    return s + x * s * (1.0f - s) * (1.59576912f + 0.214064449f * x2);
}

/* Phi(x), the standard normal distribution function, |err| <= 3e-7: Abramowitz & Stegun 7.1.26. */
SCALAR float normal_cdf(float x, float *density)
{
    float a = x < 0.0f ? -x : x;
    float t = 1.0f / (1.0f + 0.3275911f * 0.707106781f * a);
    float e = exp_fast(-0.5f * x * x);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float upper = 0.5f * p * t * e; /* 1 - Phi(|x|) */
    *density = 0.398942280f * e;
    return x < 0.0f ? upper : 1.0f - upper;
}

/* x Phi(x): BERT's GELU. |err| <= 4e-7 max(1, |x|). */
SCALAR float gelu_erf(float x)
{
    float density;
    return x * normal_cdf(x, &density);
}

/* |err| <= 1e-6. */
SCALAR float gelu_erf_slope(float x)
{
    float density;
    float phi = normal_cdf(x, &density);
    return phi + x * density;
}

#endif
