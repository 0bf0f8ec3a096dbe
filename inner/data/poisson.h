/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POISSON_H
#define POISSON_H
/* Poisson sampling, as the accountant of privacy has it: each record is in the batch of a step with
 * probability q = expected / records, independently of all others. The size of a batch varies
 * (binomial) and nothing truncates it: the records come one by one, so that no list of them is
 * kept. The draws are a secret function of the step's key.
 */
#include <stdbool.h>
#include "kernels/base/chacha.h"

struct poisson {
    struct chacha draws;
    uint64_t records, next;
    uint64_t limit; /* q in units of 2^-64, rounded down */
};
/* 0 < expected < records. */
struct poisson poisson_begin(const uint8_t key[CHACHA_KEY_BYTES], uint64_t records,
                             uint64_t expected);
/* One coin of that probability. */
bool poisson_coin(struct poisson *p);
/* The next record of the batch, in ascending order; false: no more. */
bool poisson_next(struct poisson *p, uint64_t *record);

#endif
