/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORMS_H
#define FORMS_H
/* The wire formats of a block of 256 values, one value at a time, for C and CUDA C; the codecs in
 * outer/codec/ describe them. Exact set. `form` is a constant wherever these functions are inlined,
 * so no loop has a condition on it; masks replace branches.
 *
 * Why residual = z - value never rounds. DEV_INT*: grid.h. DEV_E4M3, DEV_E5M2: the difference is no
 * larger than z and a multiple of the last place of z. DEV_E3M0: z is between 1/2 and 3/2 of the
 * decoded value (level 1: from 1/2 up; Sterbenz). DEV_SIGN: z -+ step is a float where |z| >=
 * step/2; below, it is rounded to a multiple of 2^-24 steps.
 */
#include <stdbool.h>
#include <stddef.h>
#include "kernels/scalar/grid.h"
#include "kernels/scalar/types.h"

/* Bits of a value in a form of at most 8. */
SCALAR unsigned form_bits(enum dev_form form)
{
    return form == DEV_SIGN                       ? 1
           : form == DEV_INT2                     ? 2
           : form == DEV_INT4 || form == DEV_E3M0 ? 4
                                                  : 8;
}

enum { FORM_SCALE_BYTES = 4 }; /* of a block of DEV_E3M0, before its values */

SCALAR size_t form_bytes(enum dev_form form)
{
    return form == DEV_F32 ? 4 * DEV_BLOCK
           : form == DEV_BF16
               ? 2 * DEV_BLOCK
               : DEV_BLOCK / 8 * form_bits(form) + (form == DEV_E3M0 ? FORM_SCALE_BYTES : 0);
}

SCALAR int form_q_max(enum dev_form form)
{
    return form == DEV_INT8 ? 127 : form == DEV_INT4 ? 7 : 1;
}

/* The code of 0, by form; DEV_SIGN has none. */
SCALAR uint32_t form_none(enum dev_form form)
{
    return form == DEV_INT8 || form == DEV_INT4 || form == DEV_INT2 ? (uint32_t)form_q_max(form)
                                                                    : 0;
}

/* Every byte of such a block. */
SCALAR uint8_t form_nothing(enum dev_form form)
{
    return (uint8_t)(form == DEV_INT4 ? 0x77 : form == DEV_INT2 ? 0x55 : form_none(form));
}

/* step = c * RMS / Q with c = 8, 4, 2 for Q = 127, 7, 1 (docs/architecture.md 7): the clip c is far
 * above the RMS because clipping hurts and rounding does not. A code says that the mean square lies
 * in [2^k, 2^(k+1)), k = code - 128; its middle gives log2 RMS = (k + 1/2) / 2. log2(c/Q) = -3.989,
 * -0.807, 1. The nearest whole number to their sum is ceil(k/2) - 4, - 1, + 1: for even and odd k
 * alike the fractions are .26 and .76, .44 and .94, .25 and .75. */
SCALAR int form_exponent(uint8_t code, int q_max)
{
    int clip = q_max == 127 ? -4 : q_max == 7 ? -1 : 1;
    int half_up = (code + 1) / 2 - 64; /* ceil((code - 128) / 2) */
    return code ? half_up + clip : GRID_EMPTY;
}

/* Step of the form: DEV_SIGN uses the RMS itself, half of the step of DEV_INT2. */
SCALAR int form_step(enum dev_form form, uint8_t code)
{
    int e = form_exponent(code, form_q_max(form));
    return form == DEV_SIGN && e != GRID_EMPTY ? e - 1 : e;
}

/* ---- floats of 8 bits: m bits of mantissa (Micikevicius et al. 2022, 2209.05433) ---- */

#define FORM_FP8_BIAS(m)  ((m) == 3 ? 7 : 15) /* 1 is (bias << m) */
#define FORM_FP8_MAX(m)   ((m) == 3 ? 0x7eu : 0x7bu)
#define FORM_FP8_BELOW(m) ((m) == 3 ? 8 : 15) /* the block is scaled below 2^this */

SCALAR int form_mantissa(enum dev_form form)
{
    return form == DEV_E4M3 ? 3 : 2;
}

/* Mean square below 2^(code - 127), so no value reaches 2^(ceil((code - 127) / 2) + 4). The codes
 * at the ends say less. */
SCALAR int form_below(uint8_t code)
{
    return (code + 2) / 2 - 64 + 4;
}

/* Below the smallest normal the steps are equal, 2^(1 - bias - m). */
SCALAR float form_fp8_least(int m)
{
    return float_of_bits((uint32_t)(127 + 1 - FORM_FP8_BIAS(m) - m) << 23);
}

SCALAR float form_fp8_float(uint32_t u, int m)
{
    uint32_t size = u & 0x7f;
    float small = (float)(int32_t)size * form_fp8_least(m);
    float normal = float_of_bits((size + ((127u - (uint32_t)FORM_FP8_BIAS(m)) << m)) << (23 - m));
    uint32_t tiny = 0 - (uint32_t)((int32_t)size < 1 << m);
    uint32_t x = (float_bits(small) & tiny) | (float_bits(normal) & ~tiny);
    return float_of_bits(x | (u & 0x80) << 24);
}

/* The code was at its end, or x not finite: 0, not sent. And no -0. */
SCALAR uint32_t form_fp8_sent(uint32_t u, float x, int m)
{
    u &= 0 - (uint32_t)((int32_t)u <= (int32_t)FORM_FP8_MAX(m));
    return u | ((float_bits(x) >> 31) << 7 & (0 - (uint32_t)((int32_t)u > 0)));
}

SCALAR uint32_t form_fp8_round(float x, int m)
{
    uint32_t size = float_bits(x) & 0x7fffffffu;
    float bound = form_fp8_least(m) * (float)(1 << m), inverse = 1 / form_fp8_least(m);
    uint32_t tiny = 0 - (uint32_t)((int32_t)size < (int32_t)float_bits(bound));
    uint32_t even = size + ((1u << (22 - m)) - 1) + (size >> (23 - m) & 1);
    uint32_t normal = (even >> (23 - m)) - ((127u - (uint32_t)FORM_FP8_BIAS(m)) << m);
    float few = (float_of_bits(size & tiny) * inverse + GRID_NEAREST) - GRID_NEAREST;
    return form_fp8_sent(((uint32_t)(int32_t)few & tiny) | (normal & ~tiny), x, m);
}

/* r21 / 2^21 in [0, 1): E5M2's neighbour above where it carries. A value below half the smallest
 * step is not sent: z less a whole step could round. */
SCALAR uint32_t form_fp8_random(float x, uint32_t r21)
{
    uint32_t size = float_bits(x) & 0x7fffffffu;
    float bound = form_fp8_least(2) * 4, inverse = 1 / form_fp8_least(2);
    uint32_t tiny = 0 - (uint32_t)((int32_t)size < (int32_t)float_bits(bound));
    uint32_t normal = ((size + r21) >> 21) - ((127u - (uint32_t)FORM_FP8_BIAS(2)) << 2);
    float few = float_of_bits(size & tiny) * inverse;
    uint32_t there = 0 - (uint32_t)((int32_t)float_bits(few) >= (int32_t)float_bits(0.5f));
    uint32_t up = (uint32_t)(int32_t)(few + (float)(int32_t)r21 * 0x1p-21f) & there;
    return form_fp8_sent((up & tiny) | (normal & ~tiny), x, 2);
}

/* ---- floats of 4 bits (Streaming DiLoCo, 2501.18512): sign (8) and one of seven levels ---- */

enum { FORM_LEVELS = 7 };
#define FORM_SCALE_LEAST 0x0d800000u /* bits of 2^-100: below, levels would round */
#define FORM_INFINITE    0x7f800000u

SCALAR float form_level_value(uint32_t nibble, float s)
{
    uint32_t level = nibble & FORM_LEVELS, there = 0 - (uint32_t)(level > 0);
    uint32_t size = float_bits(s * float_of_bits((127 - FORM_LEVELS + level) << 23)) & there;
    return float_of_bits(size | (nibble & 8) << 28);
}

/* How many bounds a magnitude exceeds: 1/2 of level 1, and 3/4 of each level from 2 on. Those are
 * 3/4 s times a power of two, whose bits are a whole number of exponents apart, so a subtraction
 * and a shift count them. half, most: bits of s/2^7 and 3/4 s. */
SCALAR uint32_t form_level(int32_t size, int32_t half, int32_t most)
{
    int32_t above = ((size - most - 1) >> 23) + FORM_LEVELS - 1;
    above &= ~(above >> 31);
    above = above < FORM_LEVELS - 1 ? above : FORM_LEVELS - 1;
    return (uint32_t)(above + (size > half));
}

/* ---- all of them ---- */

struct form_scale {
    float scale,
        inverse; /* the step, or a power of two, and its inverse; DEV_E3M0: the largest magnitude */
    int32_t half, most; /* DEV_E3M0, form_level */
    bool sent;          /* false: the block waits in the residual */
};

/* own: the block's code; grid: the grid's; largest: the block's largest magnitude as bits, which
 * order as magnitudes do (DEV_E3M0 only). */
SCALAR struct form_scale form_scale(enum dev_form form, uint8_t own, uint8_t grid, uint32_t largest)
{
    struct form_scale s = {0, 0, 0, 0, true};
    int e = 0;
    if (form == DEV_E3M0) {
        s.scale = float_of_bits(largest);
        s.half = (int32_t)largest - (FORM_LEVELS << 23);
        s.most = (int32_t)float_bits(0.75f * s.scale);
        s.sent = largest >= FORM_SCALE_LEAST && largest < FORM_INFINITE;
        return s;
    }
    if (form == DEV_E4M3 || form == DEV_E5M2 || form == DEV_E5M2_RANDOM) {
        e = form_below(own) - FORM_FP8_BELOW(form_mantissa(form));
    } else {
        e = form_step(form, grid);
        s.sent = e != GRID_EMPTY;
        if (form == DEV_SIGN) /* no value of 2^23 steps or more */
            s.sent = s.sent && own > 0 && own < 254 && form_below(own) <= e + 23;
    }
    s.scale = grid_step(e);
    s.inverse = grid_inverse(e);
    return s;
}

struct form_sent {
    uint32_t u;  /* on the wire */
    float value; /* decoded value */
};

/* random: 32 bits, for DEV_E5M2_RANDOM. */
SCALAR struct form_sent form_send(enum dev_form form, float x, const struct form_scale *s,
                                  uint32_t random)
{
    struct form_sent v;
    if (form == DEV_E4M3 || form == DEV_E5M2 || form == DEV_E5M2_RANDOM) {
        v.u = form == DEV_E5M2_RANDOM ? form_fp8_random(x * s->inverse, random >> 11)
                                      : form_fp8_round(x * s->inverse, form_mantissa(form));
        v.value = form_fp8_float(v.u, form_mantissa(form)) * s->scale;
    } else if (form == DEV_E3M0) {
        uint32_t bits = float_bits(x),
                 level = form_level((int32_t)(bits & 0x7fffffffu), s->half, s->most);
        v.u = level | ((bits >> 31 << 3) & (0 - (uint32_t)(level > 0)));
        v.value = form_level_value(v.u, s->scale);
    } else if (form == DEV_SIGN) {
        uint32_t bits = float_bits(x);
        v.u = bits >> 31 ^ 1;
        v.value = float_of_bits(float_bits(s->scale) | (bits & 0x80000000u));
    } else {
        float q_max = (float)form_q_max(form), whole = grid_round(x, s->inverse, q_max);
        v.u = (uint32_t)((int32_t)whole + form_q_max(form));
        v.value = whole * s->scale;
    }
    return v;
}

/* Decodes a code of DEV_E4M3, DEV_E5M2*, DEV_E3M0. */
SCALAR float form_value(enum dev_form form, uint32_t u, float scale)
{
    return form == DEV_E3M0 ? form_level_value(u, scale)
                            : form_fp8_float(u, form_mantissa(form)) * scale;
}

/* The power of two of DEV_E4M3 and DEV_E5M2*. */
SCALAR float form_fp8_scale(enum dev_form form, uint8_t own)
{
    return grid_step(form_below(own) - FORM_FP8_BELOW(form_mantissa(form)));
}

#endif
