/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SAMPLED_H
#define SAMPLED_H
/* Steps of the Poisson-sampled Gaussian mechanism, the mechanism of DP-SGD: each unit takes part in
 * a step with probability q, independently of all others and of all other steps; its clipped
 * contribution has a norm of at most C; the sum gets Gaussian noise of standard deviation noise *
 * C. Adjacency: one unit more or less.
 */
#include <stdint.h>

struct sampled_steps {
    double q;      /* sampling rate of a step, 0 to 1; 1: no sampling */
    double noise;  /* noise multiplier */
    int64_t steps; /* how many */
};

/* Limits of what is accounted. */
#define SAMPLED_NOISE_MIN 0.05
#define SAMPLED_NOISE_MAX 1e6
#define SAMPLED_STEPS_MAX 1000000000
enum { SAMPLED_SETTINGS_MAX = 64 }; /* different settings in one account */

#endif
