/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DREAMDDP_H
#define DREAMDDP_H
/* DreamDDP (2502.11058): which layers are exchanged after which step of a period, so that the
 * exchange hides under the backward pass (or, over a WAN, under the steps until the next slice is
 * due). The published search places layers in the order their gradients become ready; an iteration
 * takes layers while their exchange fits under its backward pass, and the first that does not fit
 * goes where the sum of waits is smaller. Memoised: O(layers^2 * iterations). What the line idles
 * until the first scheduled layer of an iteration is ready, fill-in gives to layers that are ready
 * before it: further exchanges that delay no step. Pure.
 */
#include <stddef.h>
#include "kernels/base/arena.h"

struct dreamddp_layer { /* in backward order: 0 is the last layer of the model */
    double backward_s;  /* of its gradient, measured */
    double exchange_s;  /* of its slice: payload over bandwidth, plus latency */
};

/* at[layers]: the iteration of the period, 0..iterations-1, each used by at least one layer up to
 * the last used; never falls along the layers. wait_s: what the exchanges of one period keep
 * training waiting. layers, iterations >= 1. */
enum err dreamddp_place(const struct dreamddp_layer *l, unsigned layers, unsigned iterations,
                        unsigned *at, double *wait_s) MUST;
/* Fill-in, for the iterations that `at` uses. again[iteration]: layers 0..again-1 are exchanged in
 * that iteration too, before its first scheduled layer; the exchanges end by the time when that
 * layer's gradient is ready, so the wait stays. Iterations beyond the last used one: 0. */
void dreamddp_fill(const struct dreamddp_layer *l, unsigned layers, const unsigned *at,
                   unsigned iterations, unsigned *again);

#endif
