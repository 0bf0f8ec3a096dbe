/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SWIGLU_H
#define SWIGLU_H
/* The gated unit of Llama's MLP, silu(gate) up with silu(x) = x / (1 + e^-x) (Shazeer 2020,
 * 2002.05202), and its slopes, element by element, in a form that vectorises. Included by C and by
 * CUDA C. Fast set.
 */
#include "kernels/scalar/gelu.h"

/* The logistic function; relative error <= 4e-7 where it is above 1e-38. */
SCALAR float logistic(float x)
{
    return 1.0f / (1.0f + exp_fast(-x));
}

/* |err| <= 5e-7 |gate up|. */
SCALAR float swiglu(float gate, float up)
{
    return gate * logistic(gate) * up;
}

/* dy into the gradients of gate and up. */
SCALAR void swiglu_slopes(float *dgate, float *dup, float dy, float gate, float up)
{
    float s = logistic(gate);
    *dup = dy * gate * s;
    *dgate = dy * up * s * (1.0f + gate * (1.0f - s));
}

#endif
