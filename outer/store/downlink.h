/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DOWNLINK_H
#define DOWNLINK_H
/* Downlink compression. From outer.downlink_compression_from sites in a round on, the aggregator
 * does not send the list of payloads of a gathered codec. It sums the contributions and encodes the
 * sum with the same codec. What that encoding loses is the aggregator's residual, which is added to
 * the next sum: error feedback on the downlink (DoubleSqueeze, 1905.05957). The aggregate is then
 * one payload, of the weighted sum, in the form that codec.h gives an aggregate of one.
 * schedule_compresses_downlink says, on every replica, in which rounds.
 *
 * z = sum of the contributions (f32, site order) + residual;  decode(aggregate) + residual' = z, as
 * for a site's payload. The residual is part of the aggregator's state and made durable by the
 * commit; a round that is committed again is made from the same durable bytes. A residual reset
 * discards and books it, as it does the sites' residuals. Host memory: `next` and `mean` of the
 * replica.
 */
#include "outer/store/outer_state.h"

/* After outer_state_own_keep. Checked payloads of n sites -> aggregate (room for aggregate_max of
 * one); the residual of `next` becomes residual'. ERR_DIVERGED: the sum is not finite. */
struct downlink_input {
    const struct codec_payload *payloads;
    unsigned n;
};
enum err downlink_sum(struct outer_state *m, unsigned fragment, uint8_t *aggregate,
                      size_t *size_bytes, const struct downlink_input *in,
                      struct arena *scratch) MUST;
/* After outer_state_apply: codec_residual_ratio of the residual of `next` and of what the round
 * applied, for the manifest. 0 without downlink compression. */
enum err downlink_residual_ratio(struct outer_state *m, unsigned fragment,
                                 const struct manifest *manifest, uint8_t *residual_ratio) MUST;

#endif
