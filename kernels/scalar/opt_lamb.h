/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPT_LAMB_H
#define OPT_LAMB_H
/* LAMB (You et al. 2020, 1904.00962; docs/methods.md 3.1): Adam's direction u, and a step of
 * lr ||p|| / ||u|| for each tensor. Part of opt.h. */

/* Sums: squares of p and of u. The update recomputes u from m and v: reading 8 bytes costs less
 * than writing and reading 4 more. */
SCALAR struct opt_terms opt_lamb_reduce(float p, float *m, float *v, float g,
                                        const struct opt_scalars *k)
{
    opt_adam_moments(m, v, g, k);
    float u = opt_adam_direction(p, *m, *v, k);
    struct opt_terms t = {{p * p, u * u, 0, 0}};
    return t;
}

SCALAR void opt_lamb_prepare(struct opt_scalars *k, const double sums[OPT_SUMS])
{
    k->step[0] = WITHOUT(LAMB_RATIO) ? k->lr : k->lr * opt_trust(k, sums[0], sums[1]);
}

SCALAR void opt_lamb_update(float *p, float *m, float *v, float g, const struct opt_scalars *k)
{
    (void)g;
    *p -= k->step[0] * opt_adam_direction(*p, *m, *v, k);
}

#endif
