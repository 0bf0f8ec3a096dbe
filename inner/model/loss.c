/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/model/loss.h"
#include "inner/config/keys.h"

const struct loss loss_rows[MODEL_LOSS_ROWS] = {
#define X(NAME, name, unit, learned) {name, unit, learned},
    LOSS_LIST(X)
#undef X
};

bool loss_any(enum model_loss_kind row, const struct settings *s, const struct loader *l)
{
    const bool any[MODEL_LOSS_ROWS] = {[MODEL_LOSS_TOKEN] = l->token_targets,
                                       [MODEL_LOSS_SEQUENCE] = l->sequence_targets,
                                       [MODEL_LOSS_STANDARD] = s->train_standardization_weight > 0};
    ASSERT(row < MODEL_LOSS_ROWS);
    return any[row];
}
