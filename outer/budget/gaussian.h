/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GAUSSIAN_H
#define GAUSSIAN_H
/* Exact privacy of the Gaussian mechanism without sampling. T releases with noise of standard
 * deviation z_t times the sensitivity are together one Gaussian with mu = sqrt(sum 1/z_t^2) (Dong,
 * Roth, Su 2019, 1905.02383, composition). Then
 *     delta(eps) = Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu)
 * (Balle, Wang 2018, 1805.06530, theorem 8). Pure; any thread. Relative error of delta: below 1e-10
 * for mu >= 1e-6 and delta >= 1e-300.
 */

/* Phi(-x) / phi(x), x >= -37. */
double gaussian_mills(double x);
/* log Phi(-x), any x. */
double gaussian_log_tail(double x);

/* mu > 0, epsilon >= 0 -> smallest delta. */
double gaussian_delta(double mu, double epsilon);
/* mu > 0, 0 < delta < 1 -> smallest epsilon, 0 or more. */
double gaussian_epsilon(double mu, double delta);
/* epsilon >= 0, 0 < delta < 1 -> largest mu. The noise multiplier of T steps is sqrt(T) / mu. */
double gaussian_mu(double epsilon, double delta);

#endif
