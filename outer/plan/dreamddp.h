#ifndef DREAMDDP_H
#define DREAMDDP_H
/* DreamDDP (2502.11058): which layers are exchanged after which step of a period, so that the
 * exchange hides under the backward pass (or, over a WAN, under the steps until the next slice is
 * due). The published search places layers in the order their gradients become ready; an iteration
 * takes layers while their exchange fits under its backward pass, and the first that does not fit
 * goes where the sum of waits is smaller. Memoised: O(layers^2 * iterations). Pure.
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

#endif
