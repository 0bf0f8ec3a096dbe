/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a record the clip leaves. */
#include <math.h>
#include "inner/model/clip_own.h"

double clip_factor(const struct clip *c, double norm)
{
    if (!isfinite(norm))
        return 0;
    return norm > c->o.norm ? c->o.norm / norm : 1;
}
