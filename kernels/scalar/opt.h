/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPT_H
#define OPT_H
/* Inner optimizers as formulas of one element, written once for C and CUDA C, and the lists of
 * them. The backends run a formula over ranges of the slabs (range_reduce and range_update in
 * kernels/dev.h); which formulas make up an optimizer's step is said by its method
 * (inner/optim/method.h). Fast set: a few roundings of f32 for each element.
 *
 * A new optimizer NAME is a row in each list that it needs, kernels/scalar/opt_NAME.h with its
 * formulas, included below, and inner/optim/NAME.c with its method.
 */
#include <stdbool.h>
#include "kernels/base/bf16.h"
#include "kernels/base/mutant.h"

/* X(VALUE, name): train.optimizer = name; its method is optim_name, in NAME.c of inner/optim. */
#define OPTIM_LIST(X)                                                                              \
    X(OPTIM_LAMB, lamb)                                                                            \
    X(OPTIM_ADAMW, adamw)                                                                          \
    X(OPTIM_QHADAM, qhadam)                                                                        \
    X(OPTIM_LANS, lans)                                                                            \
    X(OPTIM_MUON, muon)                                                                            \
    X(OPTIM_MERIT, merit)                                                                          \
    X(OPTIM_CAME, came)

/* Passes that make sums over each range: X(NAME, name, prepare, first, count, writes).
 *     struct opt_terms opt_name_reduce(float p, float *m, float *v, float g, k)
 * returns an element's part of `count` sums, which become the range's sums first .. first + count;
 * prepare(k, sums) sees the sums that earlier passes have made; writes: OPT_M, OPT_V where the pass
 * changes these slabs. p: parameter; m, v: first and second moment, or any float that stays as it
 * is where the method keeps no such slab; g: gradient, not yet times gscale. */
#define OPT_REDUCE_LIST(X)                                                                         \
    X(LAMB, lamb, opt_plain, 0, 2, OPT_M | OPT_V)                                                  \
    X(LANS_NORM, lans_norm, opt_plain, 0, 1, 0)                                                    \
    X(LANS, lans, opt_lans_normalize, 1, 3, OPT_M | OPT_V)                                         \
    X(MUON, muon, opt_plain, 0, 1, OPT_M)                                                          \
    X(MOMENTUM, momentum, opt_plain, 0, 0, OPT_M)                                                  \
    X(MOMENT, moment, opt_plain, 0, 1, 0)                                                          \
    X(SCALED, scaled, opt_plain, 0, 0, OPT_M)                                                      \
    X(UNSCALED, unscaled, opt_plain, 0, 0, OPT_M | OPT_V)                                          \
    X(DIRECTIONS, directions, opt_plain, 0, 2, 0)                                                  \
    X(LOCAL, local, opt_plain, 0, 0, OPT_M | OPT_V)                                                \
    X(MEAN, mean, opt_plain, 0, 0, OPT_M)

/* Passes that update the parameters: X(NAME, name, prepare, writes).
 *     void opt_name_update(float *p, float *m, float *v, float g, k) */
#define OPT_UPDATE_LIST(X)                                                                         \
    X(ADAMW, adamw, opt_plain, OPT_M | OPT_V)                                                      \
    X(LAMB, lamb, opt_lamb_prepare, 0)                                                             \
    X(QHADAM, qhadam, opt_plain, OPT_M | OPT_V)                                                    \
    X(LANS, lans, opt_lans_prepare, 0)                                                             \
    X(MUON, muon, opt_plain, 0)                                                                    \
    X(FROZEN, frozen, opt_plain, 0)                                                                \
    X(SUMMED, summed, opt_plain, OPT_M)                                                            \
    X(RESTORED, restored, opt_plain, 0)

/* Passes over matrices: X(NAME, name, prepare, how, line, sum, count, writes).
 *     struct opt_terms opt_name_terms(float p, float *m, float *v, float g, const struct opt_cross
 *                                     *c, k)
 * returns `count` terms of an element, two with OPT_MAX, else one. how: OPT_MEAN, OPT_MAX: over
 * each row and each column; OPT_TOTAL: over the matrix alone. With the first two float
 * opt_name_line(float before, float now, k) is the new value of a line (row or column), line ..
 * line + count being the values that it sets. sum .. sum + count: the sums, or maxima, of the terms
 * (OPT_TOTAL) or of the rows' lines. */
#define OPT_MATRIX_REDUCE_LIST(X)                                                                  \
    X(MERIT, merit, opt_plain, OPT_MAX, 0, 0, 2, OPT_M | OPT_V)                                    \
    X(CAME_SQUARE, came_square, opt_plain, OPT_MEAN, 0, 0, 1, 0)                                   \
    X(CAME_SIZE, came_size, opt_came_mean, OPT_TOTAL, 0, 1, 1, 0)                                  \
    X(CAME_DOUBT, came_doubt, opt_came_limit, OPT_MEAN, 1, 2, 1, OPT_M)

/* Passes over matrices that update the parameters: X(NAME, name, prepare).
 *     float opt_name_move(float p, float m, float v, const struct opt_cross *c, k)
 * returns the new p. void opt_name_cross(float line[OPT_LINES]) makes of the values of a line what
 * `move` gets of it: once for a line, where a division for each element would cost as much as the
 * rest. */
#define OPT_MATRIX_UPDATE_LIST(X)                                                                  \
    X(MERIT, merit, opt_merit_prepare)                                                             \
    X(CAME, came, opt_came_prepare)

enum opt_reduce {
#define X(NAME, name, prepare, first, count, writes) OPT_REDUCE_##NAME,
    OPT_REDUCE_LIST(X)
#undef X
        OPT_REDUCES
};
enum opt_update {
#define X(NAME, name, prepare, writes) OPT_UPDATE_##NAME,
    OPT_UPDATE_LIST(X)
#undef X
        OPT_UPDATES
};
enum opt_matrix_reduce {
#define X(NAME, name, prepare, how, line, sum, count, writes) OPT_MATRIX_REDUCE_##NAME,
    OPT_MATRIX_REDUCE_LIST(X)
#undef X
        OPT_MATRIX_REDUCES
};
enum opt_matrix_update {
#define X(NAME, name, prepare) OPT_MATRIX_UPDATE_##NAME,
    OPT_MATRIX_UPDATE_LIST(X)
#undef X
        OPT_MATRIX_UPDATES
};
enum opt_how { OPT_MEAN, OPT_MAX, OPT_TOTAL };
enum { OPT_LINES = 2 };        /* values of a row or column */
enum { OPT_M = 1, OPT_V = 2 }; /* the slabs of the first and the second moment */
enum { OPT_SUMS = 4 };         /* most sums of a range */

/* What a step does with one range: factors on the settings, and whether the range takes part. */
struct opt_group {
    float lr;                 /* times the learning rate */
    float decay;              /* times the weight decay; 0: none */
    float inverse1, inverse2; /* 1 / (1 - beta^t) after t updates of the range, or 1 without bias
                                 correction */
    bool trust;               /* a trust ratio applies; false: it is 1 */
    bool active;   /* false: the pass changes neither p nor the moments, and makes no sums */
    unsigned kind; /* of range: a pass runs on one kind; 0 where the method has one kind only */
};
struct opt_scalars { /* of one step */
    float lr, beta1, beta2, beta3, eps, weight_decay;
    float rest1, rest2, rest3;  /* 1 - beta, rounded once: exact where beta is near 1 */
    float trust_min, trust_max; /* bounds of a trust ratio */
    float qh_weight;            /* of the first moment in a step of qhadam */
    float update_clip;          /* largest root mean square of came's direction */
    float ranks;  /* times the gradient of a rank alone, where the ranks' are not summed */
    float weight; /* of this step in the mean of the first moments of local steps */
    /* Of a range; the backends fill them in. */
    float inverse1, inverse2;
    float gscale;  /* multiplies the gradient */
    float step[2]; /* step sizes, by prepare */
    bool trust;
    float rows, columns; /* of a matrix */
    float mean[2];       /* by prepare: of values 0 and 1 over the rows' lines */
};
struct opt_cross { /* values of the row and of the column of an element */
    float row[OPT_LINES], column[OPT_LINES];
};
struct opt_terms { /* what one element adds to the sums of a pass */
    float x[OPT_SUMS];
};
struct opt_sums { /* of one range */
    double x[OPT_SUMS];
};

/* Multiplies the gradient, which is a sum over targets: the mean over targets, and the global clip
 * (max_norm <= 0: none). sumsq, loss: sums of squares of the gradient and of losses. NaN where one
 * of them is not finite (x - x is 0 for finite x only), and then no update happens. */
SCALAR float opt_gscale(double sumsq, double loss, double targets, float max_norm)
{
    double mean = targets > 0 ? 1 / targets : 0;
    float norm = (float)(SCALAR_SQRT64(sumsq) * mean),
          clip = max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0f;
    return sumsq - sumsq == 0 && loss - loss == 0 ? (float)((double)clip * mean)
                                                  : (float)(sumsq - sumsq + (loss - loss));
}

SCALAR struct opt_scalars opt_of_range(struct opt_scalars k, struct opt_group group, float gscale)
{
    k.lr *= group.lr;
    k.weight_decay *= group.decay;
    k.inverse1 = group.inverse1;
    k.inverse2 = group.inverse2;
    k.trust = group.trust;
    k.gscale = gscale;
    return k;
}

/* Whether a pass over ranges of `kind` runs on this one. */
SCALAR bool opt_takes_part(const struct opt_group *group, unsigned kind)
{
    return group->active && group->kind == kind;
}

/* prepare of a pass that needs no sums. */
SCALAR void opt_plain(struct opt_scalars *k, const double sums[OPT_SUMS])
{
    (void)sums;
    k->step[0] = k->step[1] = k->lr;
}

/* ||p|| / ||u|| from squares of both; 1 for exempt ranges and where either norm is 0. */
SCALAR float opt_ratio(const struct opt_scalars *k, double p2, double u2)
{
    return k->trust && p2 > 0 && u2 > 0 ? (float)SCALAR_SQRT64(p2 / u2) : 1.0f;
}

/* The same within its bounds, which an exempt range does not have. */
SCALAR float opt_trust(const struct opt_scalars *k, double p2, double u2)
{
    float ratio = opt_ratio(k, p2, u2);
    if (!k->trust || !(p2 > 0) || !(u2 > 0))
        return ratio;
    ratio = ratio < k->trust_min ? k->trust_min : ratio;
    return ratio > k->trust_max ? k->trust_max : ratio;
}

#include "kernels/scalar/opt_adamw.h"
#include "kernels/scalar/opt_lamb.h"
#include "kernels/scalar/opt_qhadam.h"
#include "kernels/scalar/opt_lans.h"
#include "kernels/scalar/opt_muon.h"
#include "kernels/scalar/opt_merit.h"
#include "kernels/scalar/opt_came.h"
#include "kernels/scalar/opt_onebit.h"
#include "kernels/scalar/opt_onebit_lamb.h"
#include "kernels/scalar/opt_zeroone.h"

#endif
