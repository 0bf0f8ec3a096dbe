/* SPDX-License-Identifier: Apache-2.0 */
/* Quasi-hyperbolic Adam, the step of MT-DAO. Formulas: kernels/scalar/opt_qhadam.h. */
#include "inner/optim/method.h"

static enum err step(struct optim *o, const struct dev_optim *a)
{
    return optim_update(o, OPT_UPDATE_QHADAM, a);
}

/* Reads p, m, v, g, writes p, m, v. */
const struct optim_method optim_qhadam = {
    .name = "qhadam", .first = true, .second = true, .bytes = 28, .step = step};
