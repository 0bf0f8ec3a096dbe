/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ROUND_BENCH_H
#define ROUND_BENCH_H
/* What a round costs this machine's processors and disk: one round after the other between the
 * production site and aggregator in one thread, on the real model's fragments, on real files below
 * `directory`, without a network between them. The other sites contribute what the first one does.
 * What atoll probe measures for atoll plan and atoll sim.
 */
#include "outer/config/sync_config.h"
#include "outer/link/line.h"

enum { ROUND_BENCH_SITES = 64 };
struct round_bench {
    const struct sync_config *exchange;
    const struct table *table;
    struct dev *dev; /* of the outer arithmetic */
    const char *directory;
    unsigned sites; /* that contribute; at most ROUND_BENCH_SITES */
    float error_feedback_decay;
    uint64_t seed;
};
/* Means of a few rounds of the largest fragment in its own codec, for a value: a disk is slow now
 * and then. */
enum err round_bench_measure(const struct round_bench *r, struct exchange_cost *out) MUST;

#endif
