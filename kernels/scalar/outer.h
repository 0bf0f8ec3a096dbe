/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OUTER_H
#define OUTER_H
/* The outer loop's element formulas, for C and CUDA C. Exact set: every operation rounds once, in
 * the order written. */
#include "kernels/base/bf16.h"

/* z = weight * delta + residual; delta = outer - local. */
SCALAR float outer_delta(float outer, float local, float residual, float weight)
{
    float delta = outer - local;
    float weighted = weight * delta;
    return weighted + residual;
}

SCALAR float outer_axpy(float acc, float x, float scale)
{
    float scaled = scale * x;
    return acc + scaled;
}

/* Local parameters when a commit is applied (Streaming DiLoCo, 2501.18512, eq. 4); beta = 1 -
 * alpha. */
SCALAR float outer_lerp(float local, float theta, float alpha, float beta, bool positive)
{
    float outer = positive && !(theta > 0) ? 0 : theta;
    float kept = alpha * local;
    float taken = beta * outer;
    return alpha > 0 ? kept + taken : outer;
}

/* |sent + residual - z| <= tolerance * |sent|; false where a value is NaN. */
SCALAR bool outer_residual_exact(float sent, float kept, float z, float slack)
{
    float whole = sent + kept;
    float off = float_of_bits(float_bits(whole - z) & 0x7fffffffu);
    float size = float_of_bits(float_bits(sent) & 0x7fffffffu);
    float most = slack * size;
    return off <= most;
}

#endif
