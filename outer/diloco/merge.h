/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MERGE_H
#define MERGE_H
/* How the contributions of a round become the one delta that the outer optimizer takes:
 * outer.merge. Exact set: the same bits on every replica and device. One row of MERGE_LIST for
 * each.
 * - mean: sum(w D) / sum(w).
 * - radial: radial-directional averaging of Decoupled DiLoCo (2604.21428). Of each tensor the
 *   length and the direction are averaged apart, so that deltas that point apart do not shorten
 *   the step: r = sum(w |D|) / sum(w), d = sum(w D / |D|), delta = r d / |d|. Embeddings, and what
 *   is no tensor, have the mean.
 * - clipped: the mean of deltas whose norms are at most the median (Templar, Covenant).
 * - edit: EDiT's pseudo gradient penalty (2412.07210): anomalous sites left out, weights
 *   softmax(-|D|), the length of their mean at most outer.edit_norm.
 * A site sends z = w D + residual, so |z| is taken for w |D|, and z / |z| for D / |D|. Of clipped
 * and edit the aggregator makes factors (shares.h), which the manifest has; here they are applied,
 * and the mean's length is bounded.
 */
#include "outer/codec/codec.h"

/* X(ENUMERATOR, name): outer.merge = name. */
#define MERGE_LIST(X)                                                                              \
    X(MERGE_MEAN, mean) X(MERGE_RADIAL, radial) X(MERGE_CLIPPED, clipped) X(MERGE_EDIT, edit)
enum merge_kind {
#define X(value, name) value,
    MERGE_LIST(X)
#undef X
};

/* Does the merge read each contribution? A codec that sums, and downlink compression, hide them. */
bool merge_reads_each(enum merge_kind kind);

struct merge_input {
    struct codec_aggregate aggregate;
    const float *weights; /* [aggregate.n] of the sites included, in site order */
    const float *factors; /* the same, by which each contribution is multiplied, one rounding;
                             NULL: by 1 */
    float length_max;     /* edit: L2 norm of the mean, at most; 0: no bound */
    float *values;        /* scratch (device, call->count); NULL where no contribution is read */
};
/* As codec.mean, of which the mean has mean and next_grid; the other merges and factors change the
 * mean: sum(factor z) / sum(w). The codec is gathered where the merge reads each contribution or
 * there are factors. ERR_PROTO: it is not. */
enum err merge_apply(enum merge_kind kind, const struct codec *c, const struct codec_call *call,
                     float *mean, uint8_t *next_grid, const struct merge_input *in) MUST;

#endif
