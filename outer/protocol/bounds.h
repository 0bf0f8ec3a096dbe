#ifndef BOUNDS_H
#define BOUNDS_H
/* How large a contribution may be (docs/protocol.md 3.10), pure. The norm of a contribution is the
 * root mean square of its values divided by its weight: so it is the RMS of a site's mean delta,
 * whatever share of the tokens the site has.
 *
 * The running median: of each of the last rounds the lower median of the included sites' norms, and
 * of these the lower median. Less than half of the sites cannot raise it. The manifests have the
 * norms, so a restart finds the same history.
 */
#include "outer/protocol/manifest.h"

enum { BOUNDS_ROUNDS = 8 }; /* rounds of history; fewer where fewer manifests are kept */

struct bounds_history {
    float
        median[BOUNDS_ROUNDS]; /* of rounds with a norm above 0, the latest overwrites the oldest */
    unsigned count, next;
};

/* sqrt(squares / elements) / weight as f32; infinite where it does not fit. */
float bounds_norm(double squares, size_t elements, float weight);
/* Adds a committed round: nothing where it was aborted or all its norms are 0. */
void bounds_add(struct bounds_history *h, const struct manifest *m);
/* The running median; 0: no history. */
float bounds_median(const struct bounds_history *h);
/* The largest norm that is accepted: `limit` times the running median, but at least the RMS of the
 * outer parameters; without history `limit` times that RMS, or times 1 where the parameters are 0
 * (moments at their start). Infinite for limit 0: no bound. */
float bounds_norm_max(const struct bounds_history *h, float limit, float theta_rms);

#endif
