/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FP8_H
#define FP8_H
/* Operands of matrix products in 8 bits, with one scale for the whole operand: a power of two, so
 * that it loses nothing. Micikevicius et al. 2022 (2209.05433): E4M3 (3 bits of mantissa, up to
 * 448) for weights and activations, E5M2 (2 bits, up to 57344) for gradients. Codes of forms.h, and
 * one for NaN. A value that is not finite becomes NaN, so that a step sees it.
 */
#include "kernels/scalar/forms.h"

enum { FP8_NONE = 0, FP8_E5M2 = 2, FP8_E4M3 = 3 }; /* bits of mantissa */
#define FP8_NAN 0x7fu

/* The largest k with 2^k largest <= the form's largest number, 1.75 x 2^8 or 1.75 x 2^15; 0 where
 * `largest` is 0 or not finite. Below 2^-105 or so values lie under the top of the range. */
SCALAR int fp8_exponent(float largest, int m)
{
    enum { MOST = 120 };
    uint32_t bits = float_bits(largest);
    int k = (m == FP8_E4M3 ? 8 : 15) + 127 - (int)(bits >> 23);
    if (bits == 0 || bits >= 0x7f800000u)
        return 0;
    k -= (bits & 0x7fffffu) > 0x600000u ? 1 : 0;
    return k > MOST ? MOST : k;
}

SCALAR float fp8_scale(int k)
{
    return float_of_bits((uint32_t)(127 + k) << 23);
}

SCALAR uint32_t fp8_code(float x, float scale, int m)
{
    bool finite = (float_bits(x) & 0x7f800000u) != 0x7f800000u;
    return finite ? form_fp8_round(x * scale, m) : FP8_NAN;
}

SCALAR float fp8_value(uint32_t code, int m)
{
    return (code & 0x7fu) == FP8_NAN ? float_of_bits(0x7fc00000u) : form_fp8_float(code, m);
}

#endif
