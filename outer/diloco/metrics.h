/* SPDX-License-Identifier: Apache-2.0 */
#ifndef METRICS_H
#define METRICS_H
/* Numbers of a round that say how the outer loop fares: the cosine of momentum and mean delta, the
 * agreement of successive deltas and of sites, the norm of the residual. For people and the log
 * only: nothing is decided by them, and they are not part of the exact set.
 *
 * All but `residual_ratio` come from a sample of at most METRICS_SAMPLE values of a fragment, in
 * even steps: a cosine then has a standard error of 0.4 %, and a fragment takes at most 512 KiB,
 * since the mean before last and the site's own delta have to be remembered. Nothing of it survives
 * a restart; a value that is not known then is NaN.
 */
#include <stdint.h>
#include "kernels/base/arena.h"

enum { METRICS_SAMPLE = 1 << 16 };

/* buf: the momentum before the round; D: the mean delta of the sites. */
struct outer_metrics {
    double gain;           /* A = 1 + mu + mu^2 * aligned: of the applied step along D */
    double aligned;        /* c = <buf, D> / |D|^2 */
    double transverse;     /* r = |buf - c*D| / |D| */
    double rho;            /* cosine of D and the D of the round before */
    double agreement;      /* cosine of the site's own delta and D */
    double residual_ratio; /* |residual'| / |own weighted delta| */
};
struct outer_metrics_state { /* of one fragment */
    size_t count, stride;
    float *own, *last;              /* count each */
    uint64_t own_round, last_round; /* + 1; 0: none */
    double own_residual_ratio;
    uint64_t round; /* of the reading, + 1; 0: none */
    struct outer_metrics reading;
};

size_t metrics_bytes(size_t elements);
enum err metrics_open(struct outer_metrics_state *g, size_t elements, struct arena *perm) MUST;
/* Host memory, as everything here. z and mean are the sample: every `stride`th value of the
 * fragment, `count` of them; residual and momentum are whole. z - residual is the site's weighted
 * delta of this round. */
void metrics_own(struct outer_metrics_state *g, uint64_t round, const float *z,
                 const float *residual);
void metrics_residual_ratio(struct outer_metrics_state *g, double residual_ratio);
/* momentum: before the step; NULL without one. mu NaN: the step has another form than gain's; then
 * NULL is for a state that is no sum of deltas. */
void metrics_round(struct outer_metrics_state *g, uint64_t round, const float *mean,
                   const float *momentum, double mu);
/* NaN where nothing is known of that round. */
struct outer_metrics metrics_read(const struct outer_metrics_state *g, uint64_t round);

#endif
