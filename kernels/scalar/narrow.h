/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NARROW_H
#define NARROW_H
/* Arithmetic of floats with few bits, emulated on f32, for the study of narrow accumulators and
 * operands: Sakr et al. 2019 (1901.06588), Wang et al. 2018 (1812.08011). A number has a sign, e
 * bits of exponent with bias 2^(e-1) - 1, and m bits of mantissa, with subnormals and infinities as
 * in IEEE 754: (5, 10) is fp16, (8, 7) bf16, (6, 9) the fp16 of Wang et al., (5, 2) fp8 E5M2,
 * (8, 23) f32. 2 <= e <= 8, 1 <= m <= 23. Slow: no hardware computes so.
 */
#include <stdbool.h>
#include <stddef.h>
#include "kernels/base/bf16.h"
#include "kernels/base/mutant.h"

struct narrow {
    int exponent, mantissa; /* bits */
};
enum { NARROW_F32_EXPONENT = 8, NARROW_F32_MANTISSA = 23 };

/* 2^k for a normal float. */
SCALAR float narrow_power(int k)
{
    return float_of_bits((uint32_t)(127 + k) << 23);
}

/* The bits of the largest finite number. */
SCALAR uint32_t narrow_most(struct narrow f)
{
    uint32_t exponent = 127u + (1u << (f.exponent - 1)) - 1u;
    return exponent << 23 | (0x7fffffu & ~((1u << (23 - f.mantissa)) - 1u));
}

/* A magnitude below the smallest normal number lies on a grid of equal steps 2^-narrow_deep. */
SCALAR int narrow_deep(struct narrow f)
{
    return (1 << (f.exponent - 1)) - 2 + f.mantissa;
}

SCALAR bool narrow_tiny(uint32_t size, struct narrow f)
{
    int least = 2 - (1 << (f.exponent - 1)); /* exponent of the smallest normal number */
    return f.exponent < NARROW_F32_EXPONENT && size < (uint32_t)(127 + least) << 23;
}

/* Nearest, ties to even; too large a value becomes infinite, NaN stays NaN. With 8 bits of exponent
 * numbers below 2^-126 keep the steps of f32. */
SCALAR float narrow_round(float x, struct narrow f)
{
    uint32_t size = float_bits(x) & 0x7fffffffu, sign = float_bits(x) & 0x80000000u,
             low = (1u << (23 - f.mantissa)) - 1u;
    if (size >= 0x7f800000u)
        return x;
    if (narrow_tiny(size, f)) {
        float magic = narrow_power(23 - narrow_deep(f)); /* its last place is one step */
        size = float_bits((float_of_bits(size) + magic) - magic);
    } else {
        size += (low >> 1) + (low ? size >> (23 - f.mantissa) & 1u : 0u);
        size &= ~low;
    }
    return float_of_bits(sign | (size > narrow_most(f) ? 0x7f800000u : size));
}

/* narrow_round of a form with 8 bits of exponent, without a branch. */
SCALAR float narrow_shorten(float x, int mantissa)
{
    uint32_t u = float_bits(x), low = (1u << (23 - mantissa)) - 1u;
    u += (low >> 1) + (u >> (23 - mantissa) & 1u & low);
    return float_of_bits(u & ~low);
}

/* One of the two neighbours of x, with the probabilities that make the mean x; never infinite: what
 * lies beyond the largest number becomes that number. random: 32 uniform bits. */
SCALAR float narrow_stochastic(float x, struct narrow f, uint32_t random)
{
    uint32_t size = float_bits(x) & 0x7fffffffu, sign = float_bits(x) & 0x80000000u,
             low = (1u << (23 - f.mantissa)) - 1u;
    if (WITHOUT(STOCHASTIC_ROUNDING))
        return narrow_round(x, f);
    if (size >= 0x7f800000u)
        return x;
    if (narrow_tiny(size, f)) {
        /* two factors: 2^deep may be too large for a float */
        float steps = float_of_bits(size) * narrow_power(narrow_deep(f) / 2) *
                      narrow_power(narrow_deep(f) - narrow_deep(f) / 2);
        float down = (float)(int32_t)steps;
        down += (float)(random >> 8) * 0x1p-24f < steps - down ? 1.0f : 0.0f;
        size = float_bits(down * narrow_power(-narrow_deep(f)));
    } else {
        size = (size + (random & low)) & ~low;
    }
    return float_of_bits(sign | (size > narrow_most(f) ? narrow_most(f) : size));
}

SCALAR float narrow_either(float x, struct narrow f, bool stochastic, uint32_t random)
{
    return stochastic ? narrow_stochastic(x, f, random) : narrow_round(x, f);
}

/* How a sum is accumulated: `chunk` terms at a time in `inner`, the chunks' sums in `outer`; chunk
 * 0: all terms in `inner`. */
struct narrow_sum {
    struct narrow inner, outer;
    size_t chunk;
};

/* The sum of x[i] y[i] (y NULL: of x[i]), in order, rounded after every addition. The product and
 * the addition before that rounding are those of f32. */
SCALAR float narrow_dot(const float *x, const float *y, size_t n, struct narrow_sum how)
{
    float sum = 0;
    size_t chunk = how.chunk && !WITHOUT(CHUNKED_SUM) ? how.chunk : n;
    for (size_t i = 0; i < n; i += chunk) {
        float part = 0;
        size_t end = n - i < chunk ? n : i + chunk;
        for (size_t j = i; j < end; j++)
            part = narrow_round(part + (y ? x[j] * y[j] : x[j]), how.inner);
        sum = how.chunk ? narrow_round(sum + part, how.outer) : part;
    }
    return sum;
}

#endif
