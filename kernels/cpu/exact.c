/* SPDX-License-Identifier: Apache-2.0 */
/* The exact set on the CPU (dev.h): formulas from kernels/scalar, loops here. A value depends on
 * its own block of 256 alone, in a fixed order, so neither the thread count nor the vector width
 * changes a bit. `omp simd` is correct because outputs alias inputs at the same index at most. Of
 * the device only `threads` is used.
 */
#include "kernels/cpu/exact.h"
#include "kernels/scalar/grid.h"
#include "kernels/scalar/narrow.h"
#include "kernels/base/rng.h"
#include "kernels/scalar/outer.h"
#include "kernels/base/philox.h"

void LEVEL_NAME(cpu_outer_delta)(struct dev *d, float *z, const struct dev_delta *a)
{
    const float *outer = a->outer, *local = a->local, *residual = a->residual;
    float weight = a->weight;
    size_t count = a->count;
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i++)
        z[i] = outer_delta(outer[i], local[i], residual[i], weight);
}

void LEVEL_NAME(cpu_block_code)(struct dev *d, uint8_t *code, const float *z, size_t count)
{
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t b = 0; b < count / DEV_BLOCK; b++)
        code[b] = grid_code(exact_block_squares(z + b * DEV_BLOCK, NULL));
}

void LEVEL_NAME(cpu_round_bf16)(struct dev *d, uint16_t *h, float *residual, const float *z,
                                size_t count)
{
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i++) {
        uint16_t rounded = grid_bf16(z[i]);
        h[i] = rounded;
        residual[i] = z[i] - bf16_float(rounded);
    }
}

void LEVEL_NAME(cpu_round_stochastic)(struct dev *d, uint16_t *h, const float *z,
                                      const struct dev_random *r, size_t count)
{
    ASSERT(r->first % 8 == 0);
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i += 8) {
        uint32_t bits[4];
        philox(r->seed, RNG_ROUND | r->step << 32, (r->first + i) / 8, bits);
        for (size_t k = 0; k < 8 && i + k < count; k++)
            h[i + k] = bf16_stochastic(z[i + k], bits[k / 2] >> k % 2 * 16 & 0xffff);
    }
}

void LEVEL_NAME(cpu_round_narrow)(struct dev *d, float *x, uint16_t *model,
                                  const struct dev_narrow *a, size_t count)
{
    const size_t end = a->first + count;
    const struct narrow form = {a->exponent, a->mantissa};
    if (a->gscale && *a->gscale != *a->gscale)
        return;
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t block = a->first / 4; block < (end + 3) / 4; block++) {
        uint32_t bits[4] = {0};
        if (a->stochastic)
            philox(a->seed, RNG_MASTER | a->step << 32, block, bits);
        for (size_t k = 0; k < 4; k++) {
            size_t element = 4 * block + k;
            if (element < a->first || element >= end)
                continue;
            size_t i = element - a->first;
            x[i] = narrow_either(x[i], form, a->stochastic, bits[k]);
            if (model)
                model[i] = bf16_round(x[i]);
        }
    }
}

void LEVEL_NAME(cpu_bf16_to_f32)(struct dev *d, float *z, const uint16_t *h, size_t count)
{
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i++)
        z[i] = bf16_float(h[i]);
}

#define PARALLEL _Pragma("omp parallel for simd num_threads(d->threads) schedule(static)")
/* The rows of outer_opt.h. A slab that a method does not keep is neither read nor written. */
#define ROW(X, value, name, slabs, ...)                                                            \
    static void outer_##name(const struct dev *d, const struct dev_outer_step *a)                  \
    {                                                                                              \
        float *theta = a->theta, *first = a->slab[0], *second = a->slab[1];                        \
        const float *mean = a->mean;                                                               \
        const struct outer_scalars k = a->k;                                                       \
        size_t count = a->count;                                                                   \
        PARALLEL for (size_t i = 0; i < count; i++)                                                \
        {                                                                                          \
            float x = (slabs) > 0 ? first[i] : 0, y = (slabs) > 1 ? second[i] : 0;                 \
            theta[i] = outer_##name##_step(theta[i], &x, &y, mean[i], &k);                         \
            if ((slabs) > 0)                                                                       \
                first[i] = x;                                                                      \
            if ((slabs) > 1)                                                                       \
                second[i] = y;                                                                     \
        }                                                                                          \
    }
OUTER_OPT_ROWS(ROW, )
#undef ROW

void LEVEL_NAME(cpu_outer_step)(struct dev *d, enum outer_opt_kind kind,
                                const struct dev_outer_step *a)
{
    switch (kind) {
#define X(value, name)                                                                             \
    case value:                                                                                    \
        outer_##name(d, a);                                                                        \
        return;
        OUTER_OPT_LIST(X)
#undef X
    }
}

void LEVEL_NAME(cpu_axpy)(struct dev *d, float *acc, const float *x, float scale, size_t count)
{
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i++)
        acc[i] = outer_axpy(acc[i], x[i], scale);
}

void LEVEL_NAME(cpu_div_scalar)(struct dev *d, float *x, float divisor, size_t count)
{
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i++)
        x[i] = x[i] / divisor;
}

void LEVEL_NAME(cpu_sumsq_diff)(struct dev *d, double *sums, const float *a, const float *b,
                                size_t count)
{
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t r = 0; r < (count + DEV_RUN - 1) / DEV_RUN; r++) {
        size_t end = (r + 1) * DEV_RUN < count ? (r + 1) * DEV_RUN : count;
        double sum = 0;
        for (size_t i = r * DEV_RUN; i < end; i += DEV_BLOCK)
            sum += exact_block_squares(a + i, b ? b + i : NULL);
        sums[r] = sum;
    }
}

void LEVEL_NAME(cpu_check_residual)(struct dev *d, uint32_t *mismatch,
                                    const struct dev_residual_check *a)
{
    const float *sent = a->sent, *residual = a->residual, *z = a->z;
    float tolerance = a->tolerance;
    size_t count = a->count;
    uint32_t any = 0;
#pragma omp parallel for simd num_threads(d->threads) schedule(static) reduction(| : any)
    for (size_t i = 0; i < count; i++)
        any |= (uint32_t)!outer_residual_exact(sent[i], residual[i], z[i], tolerance);
    *mismatch |= any;
}

void LEVEL_NAME(cpu_copy_strided)(struct dev *d, float *out, const float *x, size_t stride,
                                  size_t count)
{
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i++)
        out[i] = x[i * stride];
}

void LEVEL_NAME(cpu_gather_ranges)(struct dev *d, float *out, const float *slab,
                                   const struct dev_range *ranges, size_t n)
{
    for (size_t r = 0; r < n; out += ranges[r++].count) {
        const float *x = slab + ranges[r].offset;
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
        for (size_t i = 0; i < ranges[r].count; i++)
            out[i] = x[i];
    }
}

void LEVEL_NAME(cpu_lerp_ranges)(struct dev *d, float *slab, const float *in,
                                 const struct dev_lerp *b)
{
    float alpha = b->alpha, beta = 1 - alpha;
    bool positive = b->positive;
    for (size_t r = 0; r < b->n; in += b->ranges[r++].count) {
        float *x = slab + b->ranges[r].offset;
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
        for (size_t i = 0; i < b->ranges[r].count; i++)
            x[i] = outer_lerp(x[i], in[i], alpha, beta, positive);
    }
}

#ifdef ISA
void LEVEL_NAME(cpu_exact)(struct dev_ops *ops)
{
#define X(name, arguments) ops->name = LEVEL_NAME(cpu_##name);
    DEV_OPS_EXACT(X)
#undef X
}
#endif
