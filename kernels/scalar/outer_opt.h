/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OUTER_OPT_LIST_H
#define OUTER_OPT_LIST_H
/* Outer optimizers: the list of them, and the formulas of one parameter, written once for C and
 * CUDA C. Exact set: every operation rounds once, in the order written.
 *
 * A new optimizer NAME is a row of OUTER_OPT_ROWS and kernels/scalar/outer_NAME.h with
 *     float outer_NAME_step(float theta, float *a, float *b, float mean,
 *                           const struct outer_scalars *k)
 * included below. It returns the new theta; mean: the mean delta of the round; a, b: the values of
 * the method's slabs, or a float that counts for nothing where it keeps fewer.
 */
#include <stdbool.h>
#include "kernels/base/bf16.h"

enum { OUTER_SLABS = 2 }; /* most slabs of a method */

/* R(X, VALUE, name, slabs, ...): outer.optimizer = name; how many slabs of theta's size it keeps;
 * the members of struct outer_opt_row (outer/diloco/outer_opt.h). */
#define OUTER_OPT_ROWS(R, X)                                                                       \
    R(X, OUTER_OPT_MOMENTUM, nesterov, 1, .momentum = true, .slab = {"momentum"})                  \
    R(X, OUTER_OPT_DELAYED, delayed_nesterov, 2, .momentum = true, .cycle = true,                  \
      .slab = {"momentum", "gathered"})                                                            \
    R(X, OUTER_OPT_SGD, sgd, 0, .momentum = false)                                                 \
    R(X, OUTER_OPT_AVERAGE, average, 0, .rate = 1, .fixed = true)                                  \
    R(X, OUTER_OPT_ADAM, adam, 2, .momentum = true, .squares = true, .rate = 0.01f,                \
      .slab = {"momentum", "squares"})                                                             \
    R(X, OUTER_OPT_PRIMAL, primal, 1, .momentum = true, .interpolates = true, .slab = {"offset"})
/* X(VALUE, name) */
#define OUTER_OPT_PAIR(X, value, name, ...) X(value, name)
#define OUTER_OPT_LIST(X)                   OUTER_OPT_ROWS(OUTER_OPT_PAIR, X)
#define OUTER_OPT_ONE(value, name)          +1
enum outer_opt_kind {
#define X(value, name) value,
    OUTER_OPT_LIST(X)
#undef X
};
enum { OUTER_OPT_KINDS = OUTER_OPT_LIST(OUTER_OPT_ONE) };

struct outer_scalars { /* of one step */
    float lr, mu;
    float fraction;   /* 1/N in a cycle of N rounds */
    bool first, last; /* round of the cycle; both when N is 1 */
    float beta2, eps;
    float interpolation, interpolation_next; /* share of the average in theta, before and after */
};

#include "kernels/scalar/outer_nesterov.h"
#include "kernels/scalar/outer_delayed_nesterov.h"
#include "kernels/scalar/outer_sgd.h"
#include "kernels/scalar/outer_average.h"
#include "kernels/scalar/outer_adam.h"
#include "kernels/scalar/outer_primal.h"

#endif
