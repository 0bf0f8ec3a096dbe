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

/* DiLoCo (2311.08105), outer Nesterov: buf = mu*buf + mean; theta = theta - lr*(mean + mu*buf). */
SCALAR float outer_momentum(float buf, float mean, float mu)
{
    float kept = mu * buf;
    return kept + mean;
}

SCALAR float outer_nesterov(float theta, float buf, float mean, float lr, float mu)
{
    float ahead = mu * buf;
    float direction = mean + ahead;
    float step = lr * direction;
    return theta - step;
}

SCALAR float outer_sgd(float theta, float mean, float lr)
{
    float step = lr * mean;
    return theta - step;
}

/* Delayed Nesterov (2401.09135) in a cycle of N rounds: x = mean/N of a round is accumulated over
 * the cycle. theta takes outer_sgd of x; in the last round outer_nesterov of x, with the momentum
 * of the accumulated sum. The first round overwrites the sum, so that N = 1 has the bits of
 * outer_nesterov. */
SCALAR float outer_accumulate(float accumulated, float x, bool first)
{
    return first ? x : accumulated + x;
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
