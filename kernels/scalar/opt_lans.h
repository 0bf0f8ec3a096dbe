/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPT_LANS_H
#define OPT_LANS_H
/* LANS (Zheng et al. 2020, 2006.13484): the gradient of each tensor is divided by its norm, and the
 * step is a mean of two normalized directions, r of the first moment and c of the gradient itself
 * (Nesterov's look ahead). Part of opt.h. */

/* Sum: squares of g. Without block normalization the pass does not run and the sum stays 0. */
SCALAR struct opt_terms opt_lans_norm_reduce(float p, float *m, float *v, float g,
                                             const struct opt_scalars *k)
{
    (void)p, (void)m, (void)v;
    g *= k->gscale;
    struct opt_terms t = {{g * g, 0, 0, 0}};
    return t;
}

/* Makes gscale g = q, where q = g / (||g|| + eps), or g where the norm is 0. */
SCALAR void opt_lans_normalize(struct opt_scalars *k, const double sums[OPT_SUMS])
{
    if (sums[0] > 0 && !WITHOUT(LANS_NORM))
        k->gscale = (float)(k->gscale / (SCALAR_SQRT64(sums[0]) + k->eps));
}

struct opt_lans_directions {
    float r, c;
};
SCALAR struct opt_lans_directions opt_lans_of(float p, float m, float v, float q,
                                              const struct opt_scalars *k)
{
    float root = SCALAR_SQRT(v * k->inverse2) + k->eps, decay = k->weight_decay * p;
    struct opt_lans_directions d = {m * k->inverse1 / root + decay, q / root + decay};
    return d;
}

/* Sums: squares of p, of r and of c. */
SCALAR struct opt_terms opt_lans_reduce(float p, float *m, float *v, float g,
                                        const struct opt_scalars *k)
{
    opt_adam_moments(m, v, g, k);
    struct opt_lans_directions d = opt_lans_of(p, *m, *v, g * k->gscale, k);
    struct opt_terms t = {{p * p, d.r * d.r, d.c * d.c, 0}};
    return t;
}

SCALAR void opt_lans_prepare(struct opt_scalars *k, const double sums[OPT_SUMS])
{
    opt_lans_normalize(k, sums);
    k->step[0] = k->lr * k->beta1 * opt_ratio(k, sums[1], sums[2]);
    k->step[1] = k->lr * (1.0f - k->beta1) * opt_ratio(k, sums[1], sums[3]);
}

/* p -= lr (beta1 ratio(p, r) r + (1 - beta1) ratio(p, c) c) */
SCALAR void opt_lans_update(float *p, float *m, float *v, float g, const struct opt_scalars *k)
{
    struct opt_lans_directions d = opt_lans_of(*p, *m, *v, g * k->gscale, k);
    *p -= k->step[0] * d.r + k->step[1] * d.c;
}

#endif
