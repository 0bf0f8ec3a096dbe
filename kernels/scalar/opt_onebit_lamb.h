/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPT_ONEBIT_LAMB_H
#define OPT_ONEBIT_LAMB_H
/* 1-bit LAMB (Li et al. 2022, 2104.06069) after the freeze of v. Part of opt.h. k->lr of the
 * passes scaled and unscaled: what the first moment of a range is multiplied by before it is
 * sent. */

/* Sum: squares of m. */
SCALAR struct opt_terms opt_moment_reduce(float p, float *m, float *v, float g,
                                          const struct opt_scalars *k)
{
    (void)p, (void)v, (void)g, (void)k;
    struct opt_terms t = {{*m * *m, 0, 0, 0}};
    return t;
}

/* What this rank sends, in place of its gradient, m: lr (beta1 p + (1 - beta1) gradient), where
 * p is the first moment. */
SCALAR struct opt_terms opt_scaled_reduce(float p, float *m, float *v, float g,
                                          const struct opt_scalars *k)
{
    struct opt_terms none = {{0, 0, 0, 0}};
    (void)v;
    *m = (WITHOUT(LAMB_SCALES) ? 1.0f : k->lr) *
         (k->beta1 * p + (1.0f - k->beta1) * (g * k->gscale * k->ranks));
    return none;
}

/* g: the mean over the ranks. m becomes the first moment; v, the fresh second moment, takes in the
 * gradient that the change of m stands for. Sums: none. */
SCALAR struct opt_terms opt_unscaled_reduce(float p, float *m, float *v, float g,
                                            const struct opt_scalars *k)
{
    struct opt_terms none = {{0, 0, 0, 0}};
    float next = WITHOUT(LAMB_SCALES) ? g : g / k->lr,
          gradient = (next - k->beta1 * *m) / (1.0f - k->beta1);
    (void)p;
    *v = k->beta2 * *v + (1.0f - k->beta2) * gradient * gradient;
    *m = next;
    return none;
}

/* Sums: squares of Adam's direction, without and with the weight decay. */
SCALAR struct opt_terms opt_directions_reduce(float p, float *m, float *v, float g,
                                              const struct opt_scalars *k)
{
    (void)g;
    float u = opt_adam_direction(p, *m, *v, k), a = u - k->weight_decay * p;
    struct opt_terms t = {{a * a, u * u, 0, 0}};
    return t;
}

#endif
