/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOUNDS_H
#define BOUNDS_H
/* How large a contribution may be (docs/protocol.md 3.10), pure. The norm of a contribution is the
 * root mean square of its values divided by its weight: so it is the RMS of a site's mean delta and
 * does not depend on the site's share of the tokens.
 *
 * The running median: of each of the last rounds the lower median of the included sites' norms, and
 * of these the lower median. Less than half of the sites cannot raise it. The manifests have the
 * norms, so a restart finds the same history, when it looks at no more rounds than are kept
 * (outer.history_rounds): outer.clip rests on that.
 */
#include "outer/protocol/manifest.h"

enum { BOUNDS_ROUNDS = 8 }; /* rounds of history, at most */

struct bounds_history {
    unsigned rounds;             /* of history, 1 to BOUNDS_ROUNDS; 0: BOUNDS_ROUNDS */
    float median[BOUNDS_ROUNDS]; /* of the last rounds, 0 where a round has none; the latest
                                    overwrites the oldest */
    unsigned next;
};

/* sqrt(squares / elements) / weight as f32; infinite where it does not fit. */
float bounds_norm(double squares, size_t elements, float weight);
/* The lower median of the norms above 0 of the sites included; 0: there is none. */
float bounds_round_median(const struct manifest *m);
/* Adds a committed round. It has no median where it was aborted or all its norms are 0. */
void bounds_add(struct bounds_history *h, const struct manifest *m);
/* The running median; 0: no history. */
float bounds_median(const struct bounds_history *h);
/* The largest norm that is accepted: `limit` times the running median, but at least the RMS of the
 * outer parameters; without history `limit` times that RMS, or times 1 where the parameters are 0
 * (moments at their start). Infinite for limit 0: no bound. */
float bounds_norm_max(const struct bounds_history *h, float limit, float theta_rms);
/* outer.clip (docs/protocol.md 3.10): a factor for each site included in m, from the norms there,
 * and m->scaled where one is not 1. A norm up to `clip` times the larger of the running median and
 * this round's lower median has 1, a larger one the largest power of two that brings it there: so
 * that the included and the discarded part are exact in f32. clip 0: no contribution is scaled. */
void bounds_clip(const struct bounds_history *h, float clip, struct manifest *m);

#endif
