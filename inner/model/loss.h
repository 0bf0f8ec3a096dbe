/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOSS_H
#define LOSS_H
/* The losses of a model, a row each. A pass adds the sum of each loss, in nats, to an array
 * (MODEL_LOSSES); the ranks of a site add these arrays up, and a step divides a sum by the targets
 * of its row. The loss that is reported is the sum of the means of the rows that are `learned`.
 */
#include "inner/data/loader.h"
#include "kernels/dev.h"

/* X(NAME, name in records, enum loss_unit: the targets that divide its sum, learned). */
#define LOSS_LIST(X)                                                                               \
    X(TOKEN, "loss_token", LOSS_OF_TARGETS, true)                                                  \
    X(SEQUENCE, "loss_sequence", LOSS_OF_SEQUENCES, true)                                          \
    X(STANDARD, "loss_standard", LOSS_OF_TARGETS, false)

/* TOKEN: of tokens (targets >= 0). SEQUENCE: of sequences (labels >= 0), with model.pooler; with
 * model.classifier_heads the mean over the heads that are left. STANDARD: with
 * train.standardization_weight, the standardization losses of a training pass, of which each counts
 * as if every target had it: times train.standardization_weight, the targets (of tokens; of
 * sequences where tokens have none) and grad_scale. The enumerators after the rows are sums that a
 * method reads (inner/methods/heads.c). */
enum model_loss_kind {
#define X(NAME, name, unit, learned) MODEL_LOSS_##NAME,
    LOSS_LIST(X)
#undef X
        MODEL_LOSS_ROWS,
    MODEL_LOSS_ORTHOGONAL =
        MODEL_LOSS_ROWS, /* with model.classifier_heads: weighted as STANDARD is */
    MODEL_LOSS_HEADS,    /* each head's own sum over sequences */
    MODEL_LOSSES = MODEL_LOSS_HEADS + DEV_HEADS_MAX
};
enum loss_unit { LOSS_OF_TARGETS, LOSS_OF_SEQUENCES };
struct loss {
    const char *name;
    enum loss_unit unit;
    bool learned; /* part of the reported loss; else a figure next to it */
};
extern const struct loss loss_rows[MODEL_LOSS_ROWS];
/* Whether a step on this text may have the loss of a row. */
bool loss_any(enum model_loss_kind row, const struct settings *s, const struct loader *l);

#endif
