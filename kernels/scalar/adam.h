#ifndef ADAM_H
#define ADAM_H
/* The element updates of AdamW and LAMB, written once for C and CUDA C. Fast set: a few roundings
 * of f32. */
#include "kernels/base/bf16.h"
#ifdef __CUDACC__
#define SCALAR_SQRT(x)   sqrtf(x)
#define SCALAR_SQRT64(x) sqrt(x)
#else
#define SCALAR_SQRT(x)   __builtin_sqrtf(x)
#define SCALAR_SQRT64(x) __builtin_sqrt(x)
#endif

struct adam_scalars {
    float beta1, beta2, eps;
    float inverse1, inverse2; /* 1 / bias1, 1 / bias2: divisions once per call, not per element */
    float weight_decay;       /* 0 where the range is exempt */
    float gscale;             /* multiplies the gradient */
};

/* Multiplies the gradient: the global clip, or NaN where the gradient's sum of squares or the loss
 * is not finite (x - x is 0 for finite x only), and then no update happens. */
SCALAR float adam_gscale(double sumsq, double loss, float max_norm)
{
    float norm = (float)SCALAR_SQRT64(sumsq),
          scale = max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0f;
    return sumsq - sumsq == 0 && loss - loss == 0 ? scale : (float)(sumsq - sumsq + (loss - loss));
}

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
