/* SPDX-License-Identifier: Apache-2.0 */
/* CAME (Luo et al. 2023). Formulas: kernels/scalar/opt_came.h. In place of a second moment it keeps
 * two values of each row and of each column, which are its further state. */
#include "inner/optim/optim.h"

static enum err step(struct optim *o, const struct dev_optim *a)
{
    optim_matrix_reduce(o, OPT_MATRIX_REDUCE_CAME_SQUARE, a);
    optim_matrix_reduce(o, OPT_MATRIX_REDUCE_CAME_SIZE, a);
    optim_matrix_reduce(o, OPT_MATRIX_REDUCE_CAME_DOUBT, a);
    return optim_matrix_update(o, OPT_MATRIX_UPDATE_CAME, a);
}

/* Reads g; reads g; reads m, g, writes m; then reads p, m, writes p. */
const struct optim_method optim_came = {.name = "came",
                                        .first = true,
                                        .more = optim_lines,
                                        .whole = true,
                                        .sums = true,
                                        .matrices = true,
                                        .workspace = optim_matrices_bytes,
                                        .bytes = 32,
                                        .step = step};
