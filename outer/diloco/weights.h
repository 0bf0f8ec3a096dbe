/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIGHTS_H
#define WEIGHTS_H
/* The weight of a contribution in its round, in units of what a site of site.batch_scale 1 has over
 * a full round: outer.weights.
 * - tokens: its tokens.
 * - equal: 1.
 * - tokens2_per_step: tokens^2 / steps (Decoupled DiLoCo, 2604.21428): tokens, and once more the
 *   tokens of a step, since the deltas of larger batches are less noisy. Pure.
 */
#include <stdint.h>

/* X(ENUMERATOR, name): outer.weights = name. */
#define WEIGHTS_LIST(X)                                                                            \
    X(WEIGHTS_TOKENS, tokens)                                                                      \
    X(WEIGHTS_EQUAL, equal)                                                                        \
    X(WEIGHTS_TOKENS2_PER_STEP, tokens2_per_step)
enum weights_kind {
#define X(value, name) value,
    WEIGHTS_LIST(X)
#undef X
};

struct weights_round {
    double share;   /* site.batch_scale */
    int64_t steps;  /* that the site trained for */
    int64_t length; /* steps of a full round */
};
double weights_of(enum weights_kind kind, const struct weights_round *r);
/* The largest weight of a site of this share, over the periods that a contribution may cover: two
 * (a fragment's first round begins with the run, its later ones at its offset) and the steps that a
 * site may train offline. share 0: no bound. */
float weights_max(enum weights_kind kind, double share, int64_t length,
                  int64_t max_local_steps_offline);

#endif
