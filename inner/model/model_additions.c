/* SPDX-License-Identifier: Apache-2.0 */
/* The one place that lists what training adds to the passes of a model. */
#include "inner/model/model_own.h"

static const struct model_addition *const rows[] = {&addition_dropout, &addition_standard};
enum { ROWS = sizeof rows / sizeof *rows };

void additions_configure(struct model *m, const struct model_options *o)
{
    for (size_t i = 0; i < ROWS; i++)
        rows[i]->configure(m, o);
}

void additions_reserve_batch(struct layout *l, struct model *m, size_t T)
{
    for (size_t i = 0; i < ROWS; i++)
        rows[i]->reserve_batch(l, m, T);
}

void additions_stage(struct model *m, const struct batch *b, const struct upload *u,
                     float grad_scale)
{
    for (size_t i = 0; i < ROWS; i++)
        rows[i]->stage(m, b, u, grad_scale);
}

void additions_begin(struct model *m, double *loss)
{
    for (size_t i = 0; i < ROWS; i++)
        rows[i]->begin(m, loss);
}

void additions_branch_bwd(struct model *m, void *dx, const void *x, size_t T)
{
    for (size_t i = 0; i < ROWS; i++)
        rows[i]->branch_bwd(m, dx, x, T);
}

void additions_end(struct model *m)
{
    for (size_t i = 0; i < ROWS; i++)
        rows[i]->end(m);
}
