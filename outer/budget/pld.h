/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLD_H
#define PLD_H
/* Privacy loss distribution of composed Poisson-sampled Gaussian steps (Koskela, Jalko, Honkela
 * 2020, 1906.03049; Koskela, Honkela 2021, 2102.12412): both directions, a unit added and a unit
 * removed, each composed for itself, the larger delta of both (Zhu, Dong, Wang 2022, 2106.08567,
 * theorem 11). The result is an upper bound, at most a fraction above the truth:
 *   - Discretisation: the mass between two grid points goes to both so that the masses under P and
 *     under Q stay (Doroshenko et al. 2022, 2207.04380, connect the dots). That pair dominates.
 *   - Composition: FFT of the distribution tilted by exp(lambda loss), lambda from the Chernoff
 *     bound, so that rounding is relative to delta. What wraps around is bounded by Chernoff and
 *     added, as are the bound on the FFT's rounding and a bound on the masses' own error.
 * Takes 8 to 100 MB and 0.1 to 3 s. Any thread.
 */
#include <stddef.h>
#include "kernels/base/err.h"
#include "outer/budget/sampled.h"

/* ERR_MEMORY. Steps with q = 0 count for nothing. noise >= SAMPLED_NOISE_MIN. */
enum err pld_delta(double *delta, const struct sampled_steps *s, size_t settings,
                   double epsilon) MUST;
enum err pld_epsilon(double *epsilon, const struct sampled_steps *s, size_t settings,
                     double delta) MUST;

#endif
