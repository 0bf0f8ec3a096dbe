/* SPDX-License-Identifier: Apache-2.0 */
/* LAMB (You et al. 2020). Formulas: kernels/scalar/opt_lamb.h. A tensor's norms must be known
 * before it may change, so there are two passes. */
#include "inner/optim/optim.h"

/* AdamW's step is LAMB's with a ratio of 1, bit for bit, so one kind of range does for both: 1-bit
 * LAMB sends all of them in one buffer. */
static void group(const struct optim *o, const struct optim_part *x, struct opt_group *group)
{
    optim_beside_group(o, x, group);
    group->trust = group->trust && group->kind != OPTIM_BESIDE;
    group->kind = 0;
}

static enum err step(struct optim *o, const struct dev_optim *a)
{
    TRY(optim_reduce(o, OPT_REDUCE_LAMB, a));
    return optim_update(o, OPT_UPDATE_LAMB, a);
}

/* Reads p, m, v, g, writes m, v; then reads p, m, v, writes p. */
const struct optim_method optim_lamb = {.name = "lamb",
                                        .first = true,
                                        .second = true,
                                        .sums = true,
                                        .bytes = 40,
                                        .group = group,
                                        .step = step};
