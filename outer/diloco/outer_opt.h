/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OUTER_OPT_H
#define OUTER_OPT_H
/* Outer optimizers: what a replica does with the mean delta of a round. Deterministic, exact set,
 * host or device memory of d. The settings are pinned: every replica takes the same step. The list
 * of optimizers and their formulas: kernels/scalar/outer_opt.h.
 */
#include "outer/diloco/anneal.h"
#include "outer/diloco/merge.h"

#define OUTER_INTERPOLATION 0.9 /* default of outer.interpolation */
#define OUTER_LR_MAX        100 /* most of outer.lr */

struct outer_opt_row { /* of an optimizer, all that the outer loop knows of it */
    const char *
        slab[OUTER_SLABS]; /* names of the arrays that it keeps in addition to theta; NULL: fewer */
    bool squares;          /* the last slab is a mean of squares: it begins at eps^2, others at 0 */
    bool momentum;         /* outer.momentum and what the rounds change of it apply to slab 0 */
    bool cycle; /* the step depends on the round's place in a cycle of outer.nesterov_period rounds
                 */
    bool interpolates; /* theta lies between an iterate and its average: outer.interpolation */
    float rate;        /* default of outer.lr; 0: the published rate of outer/config/tuning.h */
    bool fixed;        /* the rate is always `rate` */
};
struct outer_opt {
    enum outer_opt_kind kind;
    float lr, mu;          /* as used: a fixed rate, and mu 0 without a momentum; both before
                              annealing */
    unsigned delay;        /* rounds of a cycle; 1 without one */
    float beta2, eps;      /* of a mean of squares */
    float interpolation;   /* share of the average in theta */
    bool ends;             /* the run, with this round: then theta is the average */
    enum merge_kind merge; /* how contributions become the mean that it takes */
    float length_max;      /* of the mean, merge edit; 0: no bound */
    struct anneal anneal;
};
struct outer_opt_state {              /* of one run of parameters, in place */
    float *theta, *slab[OUTER_SLABS]; /* NULL where the optimizer keeps fewer */
};

const struct outer_opt_row *outer_opt_row(enum outer_opt_kind kind);
/* An optimizer with a cycle gets delay 1, one with squares beta2 and eps of the paper: set them.
 * ERR_CONFIG: lr or mu not finite or out of range.
 */
enum err outer_opt_make(struct outer_opt *o, enum outer_opt_kind kind, float lr, float mu) MUST;
unsigned outer_opt_slabs(const struct outer_opt *o); /* how many, in addition to theta */
float outer_opt_initial(const struct outer_opt *o, unsigned slab); /* value of a slab in state 0 */
/* Does the round begin with a slab 0 of zeros? After anneal_restarts, and after a last round whose
 * theta is the average. Without a momentum never. */
bool outer_opt_restarts(const struct outer_opt *o, const struct schedule *s, unsigned fragment,
                        uint64_t round);
size_t outer_opt_bytes(const struct outer_opt *o); /* per parameter, theta included */
void outer_opt_step(struct dev *d, const struct outer_opt *o, const struct outer_opt_state *s,
                    const float *mean, uint64_t round, size_t count);

#endif
