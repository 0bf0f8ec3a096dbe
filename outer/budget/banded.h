/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BANDED_H
#define BANDED_H
/* Correlated noise: banded matrix factorisation (Choquette-Choo et al. 2023, 2306.08153). The noise
 * added to the n steps' sums is C^-1 z, z independent with standard deviation sigma times the
 * clipping norm. C is lower triangular, Toeplitz, with `bands` diagonals c_0 = 1, c_1, ...: the
 * first coefficients of (1-x)^(-1/2), the square root of the prefix sum A (Kalinin, Lampert 2024,
 * 2405.13763). bands = 1: independent noise. Pure; any thread.
 *
 * What is accounted needs that two participations of a unit are at least `bands` steps apart: their
 * columns of C do not overlap.
 *   - Fixed order, k participations at least b apart: one Gaussian with mu = sensitivity / sigma.
 *   - Cyclic Poisson sampling (2306.08153, privacy amplification): the data are in `bands` parts;
 * step i samples part i mod bands with probability bands * q, q the mean rate. As private as ceil(n
 * / bands) steps of DP-SGD with that rate and noise sigma / |c|.
 */
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/err.h"
#include "kernels/scalar/banded.h"
#include "outer/budget/sampled.h"

enum { BANDED_STEPS_MAX = 1 << 20 };

/* Largest norm of the sum of a unit's columns: at most `participations`, `separation` >= bands
 * steps apart, among n steps. */
double banded_sensitivity(int64_t bands, int64_t n, int64_t participations, int64_t separation);
/* Root mean square of the noise in the n prefix sums of the noisy sums, for sigma = 1: the error of
 * the model's state, in clipping norms. ERR_MEMORY. */
enum err banded_error(double *rms, int64_t bands, int64_t n) MUST;
/* DP-SGD steps that account for cyclic Poisson sampling with mean rate q; noise is relative to |c|.
 * bands * q must be at most 1. */
struct sampled_steps banded_cyclic(int64_t bands, double q, double noise, int64_t n);

#endif
