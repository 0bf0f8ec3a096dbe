/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPT_QHADAM_H
#define OPT_QHADAM_H
/* Quasi-hyperbolic Adam (Ma & Yarats 2019, 1810.06801), the step of MT-DAO with one first moment
 * (2510.05361, N = 1): the direction is a mean of the gradient and of a slow first moment, so that
 * a beta1 near 1 remembers far and the step still follows the newest gradient. Part of opt.h. */

/* u = ((1 - w) g + w mh) / (sqrt(vh) + eps) + weight_decay p, p -= lr u; w = 1 is AdamW. */
SCALAR void opt_qhadam_update(float *p, float *m, float *v, float g, const struct opt_scalars *k)
{
    g *= k->gscale;
    *m += k->rest1 * (g - *m);
    *v += k->rest2 * (g * g - *v);
    float w = WITHOUT(QH_WEIGHT) ? 1.0f : k->qh_weight,
          mixed = (1.0f - w) * g + w * (*m * k->inverse1),
          u = mixed / (SCALAR_SQRT(*v * k->inverse2) + k->eps) + k->weight_decay * *p;
    *p -= k->step[0] * u;
}

#endif
