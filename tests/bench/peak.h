/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PEAK_H
#define PEAK_H
/* What the processor can do in f32, measured: the figure that GFLOP/s of a step are a share of. */

/* GFLOP/s of `threads` threads in a loop of fused multiply-adds on registers, the best of several
 * passes; 0 where the processor has none that this file knows. */
double peak_fma(int threads);

#endif
