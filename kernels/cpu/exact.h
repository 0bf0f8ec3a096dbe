/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXACT_H
#define EXACT_H
/* The exact set of dev.h, compiled once per level (kernels/base/level.h). The plain build has the
 * names of dev.h, cpu_outer_delta and so on; cpu_exact_v3 and cpu_exact_v4 install the ops of their
 * level. */
#include "kernels/base/level.h"
#include "kernels/dev.h"

/* Sum of squares in double of z, or of z - less: lane j takes z[j], z[16 + j], ... in order; then 8
 * + 8, 4 + 4, 2 + 2, 1 + 1 lanes. */
static inline double exact_block_squares(const float *z, const float *less)
{
    enum { LANES = 16 };
    double lane[LANES] = {0};
    for (size_t i = 0; i < DEV_BLOCK; i += LANES)
#pragma omp simd
        for (size_t j = 0; j < LANES; j++) {
            double x = (double)(less ? z[i + j] - less[i + j] : z[i + j]);
            lane[j] += x * x;
        }
    for (size_t half = LANES / 2; half; half /= 2)
        for (size_t j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

/* Replaces the plain exact ops of a table by the ops of the level. */
void cpu_exact_v3(struct dev_ops *ops);
void cpu_exact_v4(struct dev_ops *ops);

#ifdef ISA
#define X(name, arguments) void LEVEL_NAME(cpu_##name) arguments;
DEV_OPS_EXACT(X)
#undef X
#endif

#endif
