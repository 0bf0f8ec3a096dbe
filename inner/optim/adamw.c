/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW (Loshchilov & Hutter 2019). Formulas: kernels/scalar/opt_adamw.h. */
#include "inner/optim/method.h"

static enum err step(struct optim *o, const struct dev_optim *a)
{
    return optim_update(o, OPT_UPDATE_ADAMW, a);
}

/* Reads p, m, v, g, writes p, m, v. */
const struct optim_method optim_adamw = {
    .name = "adamw", .first = true, .second = true, .bytes = 28, .step = step};
