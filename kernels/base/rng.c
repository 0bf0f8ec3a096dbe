/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/rng.h"
#include <math.h>
#include <string.h>
#include "kernels/base/philox.h"

void rng_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    philox(seed, stream, index, out);
}

uint32_t rng_u32(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t b[4];
    rng_block(seed, stream, index, b);
    return b[0];
}

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t b[4];
    rng_block(seed, stream, index, b);
    return (uint64_t)b[1] << 32 | b[0];
}

uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)rng_u64(seed, stream, index) * n >> 64);
}

static double unit(uint64_t u)
{
    return (double)(u >> 11) * 0x1p-53;
}

double rng_unit(uint64_t seed, uint64_t stream, uint64_t index)
{
    return unit(rng_u64(seed, stream, index));
}

/* ln x for x in (0, 1], normal. Own, as is cos below: libm's results change with its version and
 * with the processor, and every member must start from the same bits. x = m 2^e, ln m = 2
 * atanh((m-1)/(m+1)); |s| < 0.1716, so the 12 terms leave less than 1e-18. */
static double natural_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xFFFFFFFFFFFFFu) | (uint64_t)1023 << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    double s = (m - 1) / (m + 1), s2 = s * s, sum = 0;
    for (int k = 23; k >= 1; k -= 2)
        sum = sum * s2 + 1.0 / k;
    return e * 0.6931471805599453 + 2 * s * sum;
}

/* cos(2 pi u) for u in [0, 1), a multiple of 2^-53: the quarter turns are taken off exactly, then
 * Taylor to r^18. */
static double cos_turn(double u)
{
    int quarter = (int)(4 * u + 0.5);
    double r = (u - 0.25 * quarter) * 6.283185307179586, r2 = r * r;
    double c = 0, s = 0;
    for (int k = 18; k >= 2; k -= 2) {
        c = (1 + c) * (-r2 / (k * (k - 1)));
        s = (1 + s) * (-r2 / (k * (k + 1)));
    }
    c = 1 + c;
    s = r * (1 + s);
    double by_quarter[4] = {c, -s, -c, s};
    return by_quarter[quarter & 3];
}

float rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t b[4];
    rng_block(seed, stream, index, b);
    double u1 = 1 - unit((uint64_t)b[1] << 32 | b[0]); /* (0, 1] */
    double u2 = unit((uint64_t)b[3] << 32 | b[2]);
    return (float)(sqrt(-2 * natural_log(u1)) * cos_turn(u2));
}
