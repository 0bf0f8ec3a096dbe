#ifndef DOWNLINK_H
#define DOWNLINK_H
/* The aggregator's own encoding: from outer.downlink_compression_from sites in a round on,
 * contributions of a codec that does not add are not passed on (n payloads down); their sum is
 * encoded once more, with the same codec, and what that loses is the aggregator's residual, which
 * goes into the next such sum: error feedback on the way down too (DoubleSqueeze, 1905.05957). The
 * aggregate is then one payload, of the weighted sum, in the form that codec.h gives an aggregate
 * of one; which rounds are, every replica knows: schedule_compresses_downlink.
 *
 * z = sum of the contributions (f32, site order) + residual;  decode(aggregate) + residual' = z, as
 * for a site's payload. The residual is part of the aggregator's state and made durable by the
 * commit; a round that is committed again is made from the same durable bytes. After a back-off it
 * is forgotten as the sites' are, and booked. Host memory: the replica's spare state and mean.
 */
#include "outer/store/outer_state.h"

/* Before each round: the spare's own parts are the state's. Nothing where nobody re-encodes. */
void downlink_keep(struct outer_state *m, unsigned fragment);
/* Checked payloads of n sites -> aggregate (room for aggregate_max of one); the spare's residual
 * becomes residual'. ERR_DIVERGED: the sum is not finite. */
struct downlink_input {
    const struct codec_payload *payloads;
    unsigned n;
};
enum err downlink_sum(struct outer_state *m, unsigned fragment, uint8_t *aggregate,
                      size_t *size_bytes, const struct downlink_input *in,
                      struct arena *scratch) MUST;
/* After outer_state_apply: codec_residual_ratio of the spare's residual against what the round
 * applied, for the manifest. 0 where nobody re-encodes. */
enum err downlink_residual_ratio(struct outer_state *m, unsigned fragment,
                                 const struct manifest *manifest, uint8_t *residual_ratio) MUST;

#endif
