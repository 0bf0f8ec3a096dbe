/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/diloco/weights.h"
#include <math.h>

double weights_of(enum weights_kind kind, const struct weights_round *r)
{
    double tokens = r->share * (double)r->steps / (double)r->length;
    if (kind == WEIGHTS_EQUAL)
        return 1;
    return kind == WEIGHTS_TOKENS2_PER_STEP ? r->share * tokens : tokens;
}

float weights_max(enum weights_kind kind, double share, int64_t length,
                  int64_t max_local_steps_offline)
{
    double periods = 2 + (double)max_local_steps_offline / (double)length;
    double most = kind == WEIGHTS_EQUAL              ? 1
                  : kind == WEIGHTS_TOKENS2_PER_STEP ? share * share * periods
                                                     : share * periods;
    return share > 0 ? (float)most : INFINITY;
}
