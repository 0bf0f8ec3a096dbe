/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DRAW_H
#define DRAW_H
/* SPARTA: a round exchanges a share of the parameters, drawn again for each round. Drawn are blocks
 * of 256 values, the same number in every round, every set of that size with the same probability:
 * a function of seed and round, so all replicas draw the same. Pure.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/dev.h"

struct draw {
    double share; /* outer.sync_fraction; 0: every value in every round */
    uint64_t seed;
};

/* Values that a round draws, of `elements` (a multiple of 256): at least one block. */
size_t draw_values(const struct draw *d, size_t elements);
/* The values that are drawn, or with `drawn` false those that are not, as ascending ranges that do
 * not touch; at most draw_ranges_max(elements). */
size_t draw_ranges(const struct draw *d, uint64_t round, size_t elements, bool drawn,
                   struct dev_range *out);
size_t draw_ranges_max(size_t elements);

#endif
