/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPT_ZEROONE_H
#define OPT_ZEROONE_H
/* 0/1 Adam (Lu et al. 2023, 2202.06009). Part of opt.h. */

/* A step with the mean gradient g of all ranks, which the second moment does not see. */
SCALAR void opt_summed_update(float *p, float *m, float *v, float g, const struct opt_scalars *k)
{
    *m = k->beta1 * *m + (1.0f - k->beta1) * g;
    *p -= k->step[0] * opt_adam_direction(*p, *m, *v, k);
}

/* A local step: the first moment with the gradient of this rank alone, and v, the mean of the first
 * moments since the last sum of the ranks. p: the second moment; where it is 0 the gradient has
 * been 0 as far as is known, and counts as 0. Makes no sums. */
SCALAR struct opt_terms opt_local_reduce(float p, float *m, float *v, float g,
                                         const struct opt_scalars *k)
{
    struct opt_terms none = {{0, 0, 0, 0}};
    float own = p > 0 ? g * k->gscale * k->ranks : 0.0f;
    *m = k->beta1 * *m + (1.0f - k->beta1) * own;
    *v = (1.0f - k->weight) * *v + k->weight * *m;
    return none;
}

/* The first moment becomes g, the mean of local steps. Makes no sums. */
SCALAR struct opt_terms opt_mean_reduce(float p, float *m, float *v, float g,
                                        const struct opt_scalars *k)
{
    struct opt_terms none = {{0, 0, 0, 0}};
    (void)p, (void)v, (void)k;
    *m = g;
    return none;
}

/* AdamW's update from moments that are final, of the parameters g in place of p. */
SCALAR void opt_restored_update(float *p, float *m, float *v, float g, const struct opt_scalars *k)
{
    float start = WITHOUT(ZEROONE_RESTORE) ? *p : g;
    *p = start - k->step[0] * opt_adam_direction(start, *m, *v, k);
}

#endif
