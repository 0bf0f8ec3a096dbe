/* SPDX-License-Identifier: Apache-2.0 */
/* 1-bit Adam (Tang et al. 2021, 2102.02888). Stage 1, train.compress_start of the steps: AdamW.
 * Stage 2:
 *
 *     m_i = beta1 m + (1 - beta1) g_i        g_i: gradient of rank i alone
 *     m   = mean of the m_i in signs         squeeze_mean, with error feedback
 *     x   = x - lr (mh / (sqrt(vh) + eps) + weight_decay x)
 *
 * with v, and the bias correction of v, as they were at the freeze. Where v is 0 the gradient has
 * been 0 in all of stage 1 (rows of tokens that never came, padding): the signs have no 0, and an
 * update of m / eps would be without bound, so such elements are masked: m and their errors are 0.
 */
#include "inner/optim/compress.h"
#include "inner/optim/optim.h"

static bool sums(const struct settings *s, int64_t step)
{
    return step < compress_freeze_steps(s);
}

static enum err step(struct optim *o, const struct dev_optim *a, int64_t step)
{
    struct dev_optim own = *a;
    if (sums(o->settings, step))
        return o->method->step(o, a);
    own.k.ranks = (float)o->coll->size;
    TRY(optim_reduce(o, OPT_REDUCE_MOMENTUM, &own));
    TRY(squeeze_mean(&o->kept->squeeze,
                     &(struct squeeze_args){.x = a->m, .mask = a->v, .stop = a->gscale}));
    return optim_update(o, OPT_UPDATE_FROZEN, a);
}

const struct compress_method compress_onebit_adam = {
    .sums = sums, .second = compress_until_freeze, .step = step};
