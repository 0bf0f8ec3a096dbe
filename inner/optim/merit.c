/* SPDX-License-Identifier: Apache-2.0 */
/* MERIT (Luo et al. 2025). Formulas: kernels/scalar/opt_merit.h. The maxima of rows and columns
 * must be known before a tensor may change, so there are two passes. */
#include "inner/optim/optim.h"

static enum err step(struct optim *o, const struct dev_optim *a)
{
    optim_matrix_reduce(o, OPT_MATRIX_REDUCE_MERIT, a);
    TRY(optim_matrix_update(o, OPT_MATRIX_UPDATE_MERIT, a));
    return optim_beside_update(o, a);
}

/* Reads p, m, v, g, writes m, v; then reads p, m, v, writes p. */
const struct optim_method optim_merit = {.name = "merit",
                                         .first = true,
                                         .second = true,
                                         .whole = true,
                                         .sums = true,
                                         .matrices = true,
                                         .workspace = optim_matrices_bytes,
                                         .bytes = 40,
                                         .group = optim_beside_group,
                                         .step = step};
