/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAN_PRIVATE_H
#define PLAN_PRIVATE_H
/* What differential privacy leaves of the signal, in closed form. Norms are over all values that
 * get noise; every contribution is as long as clipping allows, and all point one way: real ones are
 * shorter and differ, so the true signal is less. Pure; any thread.
 */
#include <stdint.h>

/* Of a step of DP-SGD: the norm of the sum of `expected` clipped gradients over the norm of the
 * noise in `values` parameters, of noise multiplier `noise`. Over T steps it grows by sqrt(T). */
double plan_private_signal(double expected, double noise, double values);
/* The noise multiplier for (epsilon, delta) without amplification: data in a fixed order, each
 * record at most once in floor(1/q) steps. */
double plan_private_unamplified(double q, int64_t steps, double epsilon, double delta);

/* Privacy of a whole site's participation: noise on the sum of the sites' contributions, each
 * clipped to one norm. All sites are in every round, so nothing is amplified. */
struct plan_site_level {
    double noise; /* noise multiplier, relative to one site's norm, exact */
    double ratio; /* X: norm of the noise over the largest norm of the sum of all sites */
    double sites; /* how many it takes for X = 1 */
};
struct plan_site_level plan_site_level(int64_t rounds, double sites, double values, double epsilon,
                                       double delta);

#endif
