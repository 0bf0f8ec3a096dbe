/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGGREGATE_H
#define AGGREGATE_H
/* From the contributions of a round to its aggregate (docs/formats.md 7). Exact: the aggregator
 * makes it at the commit, a replay makes the same bytes again. The replica is at the round's state.
 */
#include "outer/store/downlink.h"

struct aggregate_bytes {
    uint8_t *data;
    size_t size_bytes;
};
/* Of a summable codec, or where the downlink is compressed (`again`): as long as the model, in
 * memory of `a`. outer_state_own_keep comes before. */
enum err aggregate_sum(struct outer_state *m, unsigned fragment, const struct downlink_input *in,
                       bool again, struct aggregate_bytes *out, struct arena *a) MUST;
/* Of any codec, in memory of `a`: a gathered one is as long as all contributions together. */
enum err aggregate_make(struct outer_state *m, unsigned fragment, const struct downlink_input *in,
                        struct aggregate_bytes *out, struct arena *a) MUST;

#endif
