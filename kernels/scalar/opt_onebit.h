/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPT_ONEBIT_H
#define OPT_ONEBIT_H
/* 1-bit Adam (Tang et al. 2021, 2102.02888) after the freeze of v: what a rank puts into the first
 * moment, and the update with the mean of it. Part of opt.h. */

/* m = beta1 m + (1 - beta1) g, with the gradient of this rank alone: a sum over its targets, which
 * gscale divides by those of all ranks. Makes no sums. */
SCALAR struct opt_terms opt_momentum_reduce(float p, float *m, float *v, float g,
                                            const struct opt_scalars *k)
{
    struct opt_terms none = {{0, 0, 0, 0}};
    (void)p, (void)v;
    *m = k->beta1 * *m + (1.0f - k->beta1) * (g * k->gscale * k->ranks);
    return none;
}

/* AdamW's update from moments that are final. */
SCALAR void opt_frozen_update(float *p, float *m, float *v, float g, const struct opt_scalars *k)
{
    (void)g;
    *p -= k->step[0] * opt_adam_direction(*p, *m, *v, k);
}

#endif
