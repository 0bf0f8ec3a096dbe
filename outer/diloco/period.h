/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PERIOD_H
#define PERIOD_H
/* The steps after which one fragment is sent, but for the last step of the run: a function of the
 * configuration alone. Rounds count from 0.
 * - Every H steps, from an offset on: a fragment's place among the others. The first rounds end at
 *   offset + H, offset + 2 H, ...
 * - Several times in a period (DreamDDP's fill-in, 2502.11058): also more[i] steps after each of
 *   these.
 * - With growing intervals (local steps of 0/1 Adam, 2202.06009): `rounds` rounds of H steps, then
 *   as many of factor H, and so on up to `most` steps, which is kept.
 */
#include <stdbool.h>
#include <stdint.h>

enum { PERIOD_MORE_MAX = 15 };

struct period_growth {
    int64_t rounds, factor, most; /* rounds 0: intervals do not grow */
};
struct period {
    int64_t every, offset;       /* offset > -every: negative where the first period is shorter */
    struct period_growth growth; /* not together with `more` */
    unsigned more_count;
    int64_t more[PERIOD_MORE_MAX]; /* ascending, 1..every-1 */
};

/* Step that ends the round. */
int64_t period_step(const struct period *p, uint64_t round);
/* Rounds that end by `step`. */
uint64_t period_rounds(const struct period *p, int64_t step);
bool period_ends(const struct period *p, int64_t step); /* a round at this step */
/* Steps from the round before, and for the first one from where that would have been. */
int64_t period_length(const struct period *p, uint64_t round);
int64_t period_shortest(const struct period *p); /* of any round */

#endif
