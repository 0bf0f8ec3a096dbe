/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ACCOUNTANT_H
#define ACCOUNTANT_H
/* Epsilon of training with Poisson-sampled Gaussian noise, by every method that applies; each is an
 * upper bound, so the smallest one holds. Unit and clipping norm are the caller's; adjacency is one
 * unit more or less. The formulas: docs/privacy-methods.md. Any thread; takes up to some seconds
 * (pld.h).
 */
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/err.h"
#include "outer/budget/sampled.h"

enum accountant_method { ACCOUNTANT_EXACT, ACCOUNTANT_PLD, ACCOUNTANT_RDP, ACCOUNTANT_METHODS };
extern const char *const accountant_name[ACCOUNTANT_METHODS]; /* "exact", "PLD", "RDP" */

struct accountant {
    double epsilon[ACCOUNTANT_METHODS]; /* NAN: does not apply (exact: where a q is below 1) */
    double order;                       /* best RDP order */
    enum accountant_method holds;       /* the smallest */
    /* Without amplification: data dealt in a fixed order, each unit at most once in floor(1/q)
     * steps, so ceil(steps / floor(1/q)) times; exact. */
    double unamplified;
    int64_t participations; /* of one unit, all settings together */
};

/* settings: 1 to SAMPLED_SETTINGS_MAX, composed. 0 < delta < 1. ERR_CONFIG names a setting that is
 * out of range; ERR_MEMORY. */
enum err accountant_epsilon(struct accountant *out, const struct sampled_steps *s, size_t settings,
                            double delta) MUST;
struct accountant_goal {
    double q;      /* of the steps whose noise is asked for */
    int64_t steps; /* 1 or more */
    double delta, epsilon;
    const struct sampled_steps *spent; /* (spent_count) that are composed with them; may be none */
    size_t spent_count;                /* less than SAMPLED_SETTINGS_MAX */
};
/* Smallest noise multiplier, within a relative 1e-6 for q = 1 and 1e-4 otherwise, with which all of
 * it has an epsilon of at most `epsilon`. ERR_CONFIG: no noise within
 * SAMPLED_NOISE_MIN..SAMPLED_NOISE_MAX does. */
enum err accountant_noise(double *noise, const struct accountant_goal *g) MUST;

#endif
