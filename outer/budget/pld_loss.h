/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLD_LOSS_H
#define PLD_LOSS_H
/* The privacy loss of one Poisson-sampled Gaussian step, in units of the clipping norm. With N_m
 * the normal density of mean m and standard deviation `noise`, and r(x) = (1-q) + q N_1(x)/N_0(x):
 *   unit removed: P = (1-q) N_0 + q N_1, Q = N_0, loss  log r(x), rising in x
 *   unit added:   P = N_0, Q = (1-q) N_0 + q N_1, loss -log r(x), falling in x
 * Part of pld.h. Pure.
 */
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/arena.h"
#include "outer/budget/sampled.h"

enum pld_direction { PLD_REMOVE, PLD_ADD, PLD_DIRECTIONS };

struct pld_moments { /* of the loss under P tilted by exp(lambda loss) */
    double k;        /* log E_P[exp(lambda loss)] */
    double mean, variance;
};
/* tail: standard deviations beyond which outcomes are left out, where losses are high. */
struct pld_moments pld_loss_moments(enum pld_direction d, const struct sampled_steps *s,
                                    double lambda, double tail);

struct pld_atoms { /* one step's loss on the grid, tilted */
    struct pld_atom {
        int64_t index; /* loss = index * grid */
        double mass;   /* P-mass * exp(lambda loss - log_total); the masses add up to 1 */
    } * atom;
    size_t count;
    double log_total; /* log of the sum of P-mass * exp(lambda loss) */
    double infinite;  /* P-mass of outcomes whose loss counts as infinite, not in the atoms */
};
/* tail: standard deviations beyond which the mass counts as infinite loss, where losses are high,
 * or is rounded up, where they are low. */
enum err pld_loss_atoms(struct pld_atoms *out, enum pld_direction d, const struct sampled_steps *s,
                        double lambda, double grid, double tail, struct arena *a) MUST;

#endif
