/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPT_MUON_H
#define OPT_MUON_H
/* Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) for matrices: momentum, whose
 * singular values a Newton-Schulz iteration then moves to about 1. beta1 is the momentum's decay.
 * Part of opt.h.
 *
 * An iteration is x <- (a I + b A + c A^2) x with A = x x^T, from x = u / (||u|| + eps).
 */
#define MUON_EPS 1e-7
struct opt_polynomial { /* of an iteration */
    float a, b, c;
};

/* Nesterov's form: the update is what the momentum will be if the next gradient is the same. */
SCALAR float opt_muon_direction(float m, float g, const struct opt_scalars *k)
{
    return k->gscale * g + k->beta1 * m;
}

/* Sum: squares of u. */
SCALAR struct opt_terms opt_muon_reduce(float p, float *m, float *v, float g,
                                        const struct opt_scalars *k)
{
    (void)p, (void)v;
    *m = k->beta1 * *m + k->gscale * g;
    float u = opt_muon_direction(*m, g, k);
    struct opt_terms t = {{u * u, 0, 0, 0}};
    return t;
}

/* 1 / (||u|| + eps) */
SCALAR float opt_muon_inverse(double square)
{
    return (float)(1 / (SCALAR_SQRT64(square) + MUON_EPS));
}

/* An element of a I + b A + c A^2. */
SCALAR float opt_muon_polynomial(struct opt_polynomial p, float a, float square, bool diagonal)
{
    return (diagonal ? p.a : 0.0f) + (p.b * a + p.c * square);
}

/* g: of the orthogonal matrix, which has replaced the gradient. */
SCALAR void opt_muon_update(float *p, float *m, float *v, float g, const struct opt_scalars *k)
{
    (void)m, (void)v;
    *p -= k->step[0] * (g + k->weight_decay * *p);
}

#endif
