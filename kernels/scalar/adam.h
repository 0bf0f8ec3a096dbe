#ifndef ADAM_H
#define ADAM_H
/* The element updates of AdamW and LAMB, written once for C and CUDA C. Fast set: a few roundings
 * of f32. */
#include "kernels/scalar/bf16.h"
#ifdef __CUDACC__
#define SCALAR_SQRT(x) sqrtf(x)
#else
#define SCALAR_SQRT(x) __builtin_sqrtf(x)
#endif

struct adam_scalars {
    float beta1, beta2, eps;
    float inverse1, inverse2; /* 1 / bias1, 1 / bias2: divisions once per call, not per element */
    float weight_decay;       /* 0 where the range is exempt */
    float gscale;             /* multiplies the gradient */
};

/* Moments in place; returns u = mh / (sqrt(vh) + eps) + lambda p.
 * AdamW (Loshchilov & Hutter 2019): p -= lr u. LAMB (You et al. 2020): p -= lr ratio u. */
SCALAR float adam_update(float *m, float *v, float p, const struct adam_scalars *s)
{
    return *m * s->inverse1 / (SCALAR_SQRT(*v * s->inverse2) + s->eps) + s->weight_decay * p;
}

SCALAR void adam_moments(float *m, float *v, float g, const struct adam_scalars *s)
{
    g *= s->gscale;
    *m = s->beta1 * *m + (1.0f - s->beta1) * g;
    *v = s->beta2 * *v + (1.0f - s->beta2) * g * g;
}

#endif
