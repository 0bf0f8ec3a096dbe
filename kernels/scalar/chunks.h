/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHUNKS_H
#define CHUNKS_H
/* Codes of the largest values of a chunk of 4096 (outer/codec/topk.c): two magnitudes, by Lloyd's
 * iteration, for C and CUDA C. Exact set: sums in double, in order of index.
 *
 * A magnitude is the mean above or below the middle between the two, rounded to 3 bits of mantissa,
 * and at most twice the smallest of its group. So each value is between half of its magnitude and
 * 2^15 of it (else the group sends 0), and the residual is exact: no larger than z or than the
 * magnitude, and a multiple of the last place of z.
 */
#include <stdbool.h>
#include <stddef.h>
#include "kernels/base/bf16.h"
#include "kernels/scalar/types.h"

enum { CHUNK_ROUNDS = 6, CHUNK_CODES = 512, CHUNK_NO_LOWER = 15 };
#define CHUNK_INFINITE 0x7f800000u
#define CHUNK_SHIFT    ((127u - 44) << 3) /* the exponent of code 0 is -44 */

/* Orders as the floats do; NaN above infinity. */
SCALAR int32_t chunk_magnitude(float z)
{
    return (int32_t)(float_bits(z) & 0x7fffffffu);
}

/* k magnitudes, one every `stride`. */
struct chunk_sizes {
    const float *size;
    size_t stride, k;
};
struct chunk_group {
    double sum, smallest, largest;
    unsigned count;
};

SCALAR void chunk_join(struct chunk_group *g, double x)
{
    g->smallest = g->count && g->smallest < x ? g->smallest : x;
    g->largest = g->largest > x ? g->largest : x;
    g->sum += x;
    g->count++;
}

/* Sums of the values below the bound, and of those at or above it. */
SCALAR void chunk_part(struct chunk_group g[2], const struct chunk_sizes *s, double bound)
{
    struct chunk_group none = {0, 0, 0, 0};
    g[0] = g[1] = none;
    for (size_t i = 0; i < s->k; i++) {
        double x = (double)float_of_bits(float_bits(s->size[i * s->stride]) & 0x7fffffffu);
        if (x >= bound)
            chunk_join(&g[1], x);
        else
            chunk_join(&g[0], x);
    }
}

/* A float's upper bits but the sign, rounded or cut to 3 of the mantissa. */
SCALAR int32_t chunk_code_of(double size, bool nearest)
{
    uint32_t bits = float_bits((float)size);
    return (int32_t)((bits + (nearest ? 1u << 19 : 0)) >> 20) - (int32_t)CHUNK_SHIFT;
}

SCALAR float chunk_level(int32_t code)
{
    return float_of_bits(((uint32_t)code + CHUNK_SHIFT) << 20);
}

/* 0 where there is no code, or the group is too wide for an exact residual. */
SCALAR int32_t chunk_group_code(const struct chunk_group *g)
{
    if (!g->count)
        return 0;
    double most = 2 * g->smallest;
    int32_t code = chunk_code_of(g->sum / g->count, true);
    code = code < CHUNK_CODES ? code : CHUNK_CODES - 1;
    if (code > 0 && (double)chunk_level(code) > most)
        code = chunk_code_of(most, false);
    return code > 0 && g->largest <= 0x1p15 * (double)chunk_level(code) ? code : 0;
}

struct chunk_levels {
    double bound; /* from here on a magnitude is of the upper level */
    uint16_t upper, less;
};

/* Two levels after a fixed number of rounds. */
SCALAR struct chunk_levels chunk_levels(const struct chunk_sizes *s)
{
    struct chunk_group g[2];
    struct chunk_levels l = {0, 0, CHUNK_NO_LOWER};
    chunk_part(g, s, 0);
    l.bound = (g[1].smallest + g[1].largest) / 2;
    for (int i = 0; i < CHUNK_ROUNDS; i++) {
        chunk_part(g, s, l.bound);
        if (!g[0].count || !g[1].count)
            break;
        l.bound = (g[0].sum / g[0].count + g[1].sum / g[1].count) / 2;
    }
    chunk_part(g, s, l.bound);
    int32_t lower = chunk_group_code(&g[0]), upper = chunk_group_code(&g[1]);
    int32_t less = (upper - lower + 1) / 2; /* rounds the lower one down */
    l.upper = (uint16_t)upper;
    if (lower > 0 && lower <= upper && less < CHUNK_NO_LOWER && 2 * less < upper)
        l.less = (uint16_t)less;
    return l;
}

/* Code of a value: level and sign; 4096 times that is added to its index. */
SCALAR uint16_t chunk_two(float z, const struct chunk_levels *l)
{
    bool upper = (double)float_of_bits(float_bits(z) & 0x7fffffffu) >= l->bound;
    bool minus = (upper || l->less != CHUNK_NO_LOWER) && float_bits(z) >> 31;
    return (uint16_t)(upper + 2 * minus);
}

/* Decoded value of a code. upper > 0. */
SCALAR float chunk_value(uint32_t two, uint32_t upper, uint32_t less)
{
    float size = two & 1                  ? chunk_level((int32_t)upper)
                 : less == CHUNK_NO_LOWER ? 0.0f
                                          : chunk_level((int32_t)(upper - 2 * less));
    return two & 2 ? -size : size;
}

#endif
