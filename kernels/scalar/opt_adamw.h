/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPT_ADAMW_H
#define OPT_ADAMW_H
/* AdamW (Loshchilov & Hutter 2019, 1711.05101). Part of opt.h. */

SCALAR void opt_adam_moments(float *m, float *v, float g, const struct opt_scalars *k)
{
    g *= k->gscale;
    *m = k->beta1 * *m + (1.0f - k->beta1) * g;
    *v = k->beta2 * *v + (1.0f - k->beta2) * g * g;
}

/* u = mh / (sqrt(vh) + eps) + weight_decay p, mh and vh being m and v without their bias. */
SCALAR float opt_adam_direction(float p, float m, float v, const struct opt_scalars *k)
{
    return m * k->inverse1 / (SCALAR_SQRT(v * k->inverse2) + k->eps) + k->weight_decay * p;
}

/* p -= lr u */
SCALAR void opt_adamw_update(float *p, float *m, float *v, float g, const struct opt_scalars *k)
{
    opt_adam_moments(m, v, g, k);
    *p -= k->step[0] * opt_adam_direction(*p, *m, *v, k);
}

#endif
