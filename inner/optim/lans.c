/* SPDX-License-Identifier: Apache-2.0 */
/* LANS (Zheng et al. 2020). Formulas: kernels/scalar/opt_lans.h. A tensor's gradient is divided by
 * its norm, so one more pass before LAMB's two makes that norm. */
#include "inner/optim/optim.h"

static enum err step(struct optim *o, const struct dev_optim *a)
{
    if (o->settings->train_normalize)
        TRY(optim_reduce(o, OPT_REDUCE_LANS_NORM, a));
    TRY(optim_reduce(o, OPT_REDUCE_LANS, a));
    TRY(optim_update(o, OPT_UPDATE_LANS, a));
    return optim_beside_update(o, a);
}

/* Reads g; reads p, m, v, g, writes m, v; then reads p, m, v, g, writes p. */
const struct optim_method optim_lans = {.name = "lans",
                                        .first = true,
                                        .second = true,
                                        .sums = true,
                                        .bytes = 48,
                                        .group = optim_beside_group,
                                        .step = step};
