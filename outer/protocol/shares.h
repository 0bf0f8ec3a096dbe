/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SHARES_H
#define SHARES_H
/* How much each contribution counts where outer.merge weighs by norms: factors for the sites that a
 * manifest includes, from the norms in it. Pure; the aggregator calls it, the manifest tells all
 * replicas.
 * - shares_median: outer.merge clipped, the median-norm clip of Templar and Covenant. A norm above
 *   this round's lower median is scaled to it.
 * - shares_edit: outer.merge edit, the pseudo gradient penalty of EDiT (2412.07210, section 3.3)
 * but for the clip of the mean, which merge.h has. g = L2 norm of a site's delta; each site has a
 *   moving mean and variance of its g. Anomalous is g > mean + 3 deviations, after a warm-up;
 *   anomalous sites count nothing, the others softmax(-g). The moving values of the round are in
 *   its manifest, so the next round and a restart find them there.
 */
#include "outer/protocol/manifest.h"

struct shares_edit {
    size_t elements; /* values of a contribution: its L2 norm is norm * sqrt(elements) */
    uint32_t warmup; /* rounds of a site before it can be anomalous */
};

void shares_median(struct manifest *m);
/* before: the manifest of the round before; NULL in round 0. False: all contributions are
 * anomalous. Then the round is to be aborted without giving them back (EDiT's rollback): m includes
 * no site, and has factor 0 for each. */
bool shares_edit(struct manifest *m, const struct manifest *before, const struct shares_edit *o);
/* Of a round that is aborted for another reason: the moving values stay. */
void shares_keep(struct manifest *m, const struct manifest *before);

#endif
