/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GATED_H
#define GATED_H
/* Gated units act(gate) up (Shazeer 2020, 2002.05202) and their slopes, element by element: silu of
 * Llama (swiglu.h), the GELUs of ModernBERT and others. Included by C and by CUDA C; `kind` is a
 * constant where they are inlined into a loop. Fast set.
 */
#include <stdbool.h>
#include "kernels/scalar/swiglu.h"
#include "kernels/scalar/types.h"

/* |err| <= 5e-7 |up| max(1, |gate|). */
SCALAR float gated(const enum dev_gate kind, float gate, float up)
{
    return kind == DEV_GATE_SILU       ? swiglu(gate, up)
           : kind == DEV_GATE_GELU_ERF ? gelu_erf(gate) * up
                                       : gelu_tanh(gate) * up;
}

/* dy into the gradients of gate and up. */
SCALAR void gated_slopes(const enum dev_gate kind, float *dgate, float *dup, float dy, float gate,
                         float up)
{
    if (kind == DEV_GATE_SILU) {
        swiglu_slopes(dgate, dup, dy, gate, up);
        return;
    }
    bool erf_form = kind == DEV_GATE_GELU_ERF;
    *dup = dy * (erf_form ? gelu_erf(gate) : gelu_tanh(gate));
    *dgate = dy * up * (erf_form ? gelu_erf_slope(gate) : gelu_tanh_slope(gate));
}

#endif
