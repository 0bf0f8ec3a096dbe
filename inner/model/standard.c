/* SPDX-License-Identifier: Apache-2.0 */
/* The standardization loss (Collins, Balle, Shlens 2019, 1903.00925) of the inputs of attention and
 * MLP: over the tokens of a micro-batch each channel is drawn to mean 0 and variance 1, which norms
 * would enforce. It needs no pass of its own: loss and gradient are made where the gradient of that
 * input is complete. Nothing of it remains in evaluation.
 */
#include "inner/model/model_own.h"
#include "kernels/base/mutant.h"

static const float variance_min = 1e-5f; /* below it the logarithm continues as its tangent */

static void standard_configure(struct model *m, const struct model_options *o)
{
    m->standard.weight = o->train ? (float)o->settings->train_standardization_weight : 0;
}

static void standard_reserve_batch(struct layout *l, struct model *m, size_t T)
{
    (void)T;
    m->standard.scale =
        m->standard.weight > 0 ? layout_reserve(l, sizeof *m->standard.scale) : NULL;
}

/* Gradients are sums over targets, divided by their number later: so is this one. */
static void standard_stage(struct model *m, const struct batch *b, const struct upload *u,
                           float grad_scale)
{
    if (!m->standard.scale)
        return;
    size_t targets = batch_targets(b);
    targets = targets || !m->sequence.tasks ? targets : batch_labels(b);
    *(float *)staged(m, u, m->standard.scale) = m->standard.weight * grad_scale * (float)targets;
}

static void standard_branch_bwd(struct model *m, void *dx, const void *x, size_t T)
{
    const struct dev_standard a = {
        .T = T, .C = m->form.C, .floor = variance_min, .weight = m->standard.scale};
    if (!m->standard.scale || WITHOUT(STANDARD_TERM))
        return;
    m->dev->ops->standard(m->dev, dx, m->standard.loss, x, &a);
    block_profile(m, PROFILE_NORM_BWD);
}

static void standard_begin(struct model *m, double *loss)
{
    if (loss) /* NULL: the backward of a part adds to the sum of its forward */
        m->standard.loss = loss + MODEL_LOSS_STANDARD;
}

static void standard_end(struct model *m)
{
    (void)m;
}

const struct model_addition addition_standard = {standard_configure,  standard_reserve_batch,
                                                 standard_stage,      standard_begin,
                                                 standard_branch_bwd, standard_end};
