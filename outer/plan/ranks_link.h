/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RANKS_LINK_H
#define RANKS_LINK_H
/* Time of the collectives between the ranks of a site: the alpha-beta formulas of Shi et al. 2021
 * (2005.13247), fitted to measured times. Pure. alpha: seconds of a hop; beta: seconds per byte of
 * a hop.
 */
#include "outer/config/measured.h"

enum { RANKS_LINK_FIRST = 4096, RANKS_LINK_TIMES = 15 }; /* 4 KiB, 8 KiB .. 64 MiB */
/* X(NAME, "key of plan.*"): in place over all ranks; each rank's part to all; sums of which each
 * rank receives its part (train.zero_stage). */
#define RANKS_OPS(X)                                                                               \
    X(ALL_REDUCE, "all_reduce_s")                                                                  \
    X(ALL_GATHER, "all_gather_s") X(REDUCE_SCATTER, "reduce_scatter_s")
enum ranks_op {
#define X(NAME, key) RANKS_##NAME,
    RANKS_OPS(X)
#undef X
        RANKS_OP_COUNT
};
struct ranks_times { /* seconds[i] for RANKS_LINK_FIRST * 2^i bytes of the whole buffer */
    unsigned count;  /* 0: not measured; else RANKS_LINK_TIMES */
    double seconds[RANKS_LINK_TIMES];
};
struct ranks_fit {
    double alpha_s, beta_s;
    double worst; /* largest |predicted / measured - 1| over the fitted times */
};
struct ranks_link {
    int ranks; /* that were measured; 0: none, and `fit` is of the vendor */
    enum plan_algorithm algorithm;
    struct ranks_times times[RANKS_OP_COUNT];
    struct ranks_fit fit[RANKS_OP_COUNT];
    /* Ranks of a machine, and what a hop of a rank to another machine takes. More ranks work in two
     * levels, inside each machine and between them. 0: all ranks are alike. */
    int machine_ranks;
    double net_alpha_s, net_beta_s;
};

double ranks_link_bytes(unsigned i); /* of times.seconds[i] */
/* Seconds of `bytes` over `ranks` ranks by the formula. 1 rank: 0. */
double ranks_link_formula(enum ranks_op op, enum plan_algorithm a, int ranks, double bytes,
                          const struct ranks_fit *f);
/* Least squares of the relative error over the measured times. ranks >= 2, t->count >= 2. */
struct ranks_fit ranks_link_fit(enum ranks_op op, enum plan_algorithm a, int ranks,
                                const struct ranks_times *t);
/* The measured times, interpolated in the logarithm of the bytes, times the formula's ratio of the
 * two numbers of ranks; the formula alone where nothing was measured. */
double ranks_link_seconds(const struct ranks_link *l, enum ranks_op op, int ranks, double bytes);

#endif
