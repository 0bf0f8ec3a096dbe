/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OUTER_ADAM_H
#define OUTER_ADAM_H
/* FedAdam: Adam on the mean delta (Reddi et al. 2020, Adaptive Federated Optimization, 2003.00295,
 * Algorithm 2; there Delta is -mean, and tau is eps). Without a bias correction, as published;
 * squares begin at eps^2, the least that it allows.
 *     m = mu*m + (1 - mu)*mean
 *     v = beta2*v + (1 - beta2)*mean^2
 *     theta = theta - lr*m / (sqrt(v) + eps)
 * A square root and a quotient are rounded once, as IEEE 754 has them. Part of outer_opt.h.
 */

SCALAR float outer_adam_step(float theta, float *m, float *v, float mean,
                             const struct outer_scalars *k)
{
    float rest1 = 1.0f - k->mu, rest2 = 1.0f - k->beta2;
    float kept1 = k->mu * *m, kept2 = k->beta2 * *v;
    float square = mean * mean;
    float fresh1 = rest1 * mean, fresh2 = rest2 * square;
    *m = kept1 + fresh1;
    *v = kept2 + fresh2;
    float root = SCALAR_SQRT(*v);
    float size = root + k->eps;
    float direction = *m / size;
    float step = k->lr * direction;
    return theta - step;
}

#endif
