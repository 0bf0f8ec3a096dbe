/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/gauss.h"
#include <stdbool.h>
#include "kernels/base/err.h"

__extension__ typedef unsigned __int128 wide;
#define GAUSS_VALUE_MAX (INT64_C(1) << 36)

/* True with probability n / d, n <= d < 2^127: a uniform number of unlimited bits is compared with
 * the bits of n / d, from the first one on; two are needed on average. */
static bool draw_ratio(struct chacha *c, wide n, wide d)
{
    if (n == d)
        return true;
    for (;;) {
        n *= 2;
        bool bit = n >= d, drawn = chacha_bits(c, 1);
        if (bit)
            n -= d;
        if (drawn != bit)
            return bit; /* drawn below: 0 where the ratio has 1 */
        if (n == 0)     /* the rest of the ratio's bits are 0 */
            return false;
    }
}

/* Algorithm 1, first case: true with probability exp(-n/d), n <= d. */
static bool draw_exp_unit(struct chacha *c, wide n, wide d)
{
    uint64_t k = 1;
    while (draw_ratio(c, n, d * k))
        k++;
    return k % 2;
}

/* Any ratio: exp(-n/d) is exp(-1) to the whole part, times exp of the rest. */
static bool draw_exp(struct chacha *c, wide n, wide d)
{
    for (; n > d; n -= d)
        if (!draw_exp_unit(c, 1, 1))
            return false;
    return draw_exp_unit(c, n, d);
}

/* Algorithm 2 with s = 1: probability proportional to exp(-|x| / t). */
static int64_t draw_laplace(struct chacha *c, uint64_t t)
{
    for (;;) {
        uint64_t u = chacha_below(c, t), v = 0;
        if (!draw_exp_unit(c, u, t))
            continue;
        while (draw_exp_unit(c, 1, 1))
            v++;
        ASSERT(v < UINT64_C(1) << 32);
        int64_t x = (int64_t)(u + t * v);
        bool negative = chacha_bits(c, 1);
        if (!negative || x)
            return negative ? -x : x;
    }
}

/* Algorithm 3. */
int64_t gauss_sample(struct chacha *c, uint64_t sigma)
{
    ASSERT(sigma >= 1 && sigma <= GAUSS_SIGMA_MAX);
    wide t = (wide)sigma + 1, square = (wide)sigma * sigma;
    for (;;) {
        int64_t x = draw_laplace(c, (uint64_t)t);
        wide size = (wide)(uint64_t)(x < 0 ? -x : x);
        if (size >= (wide)GAUSS_VALUE_MAX)
            continue;
        /* (|x| - sigma^2 / t)^2 / (2 sigma^2), top and bottom times t^2 */
        wide away = size * t > square ? size * t - square : square - size * t;
        if (draw_exp(c, away * away, 2 * square * t * t))
            return x;
    }
}
