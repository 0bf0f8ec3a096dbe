/* SPDX-License-Identifier: Apache-2.0 */
/* Passes of the inner optimizers (scalar/opt.h): divides ranges into chunks among threads and calls
 * the inner loops of rows.c. |err| of an update <= 1e-6 (|p| + lr (|u| + 1)) with u the direction;
 * with a trust ratio <= 1e-5 of the same, because its norms have relative error 1e-5.
 */
#include "kernels/cpu/cpu.h"
#include <math.h>
#include <omp.h>

enum { CHUNK = DEV_RUN }; /* elements: 64 KiB of f32. Sums are made per chunk and added in order */

static bool is_stopped(const struct dev_optim *a)
{
    return a->gscale && *a->gscale != *a->gscale;
}

static struct opt_scalars scalars_of(const struct dev_optim *a, size_t r)
{
    return opt_of_range(a->k, a->groups[r], a->gscale ? *a->gscale : 1.0f);
}

static size_t chunks_of(const struct dev_range *range)
{
    return (range->count + CHUNK - 1) / CHUNK;
}

/* Chunk c of range r; returns its length. Where a method has no slab, the loops read p in its
 * place and never write it. */
static size_t chunk_at(struct rows_optim *to, const struct dev_optim *a, size_t r, size_t c)
{
    const struct dev_range *range = &a->ranges[r];
    size_t i = range->offset + c * CHUNK, second = a->second ? a->second[r] + c * CHUNK : i;
    *to = (struct rows_optim){.p = a->p + i,
                              .m = (a->m ? a->m : a->p) + i,
                              .v = a->v ? a->v + second : a->p + i,
                              .g = a->g + i,
                              .model = a->model ? (uint16_t *)a->model + i : NULL};
    return c + 1 < chunks_of(range) ? CHUNK : range->count - c * CHUNK;
}

static const struct {
    void (*prepare)(struct opt_scalars *k, const double sums[OPT_SUMS]);
    size_t first, count;
} reduces[OPT_REDUCES] = {
#define X(NAME, name, prepare, first, count, writes) {prepare, first, count},
    OPT_REDUCE_LIST(X)
#undef X
};

static void (*const update_prepares[OPT_UPDATES])(struct opt_scalars *k,
                                                  const double sums[OPT_SUMS]) = {
#define X(NAME, name, prepare, writes) prepare,
    OPT_UPDATE_LIST(X)
#undef X
};

static void sums_of(double out[OPT_SUMS], const struct dev_optim *a, size_t r)
{
    for (size_t j = 0; j < OPT_SUMS; j++)
        out[j] = a->sums ? a->sums[j * a->sums_stride + r] : 0;
}

/* The sums of range r by this rule, chunk by chunk in order. */
static void reduce_range(struct cpu *c, enum opt_reduce rule, const struct dev_optim *a, size_t r,
                         struct opt_sums *partial)
{
    struct opt_scalars k = scalars_of(a, r);
    size_t chunks = chunks_of(&a->ranges[r]);
    double sums[OPT_SUMS];
    sums_of(sums, a, r);
    reduces[rule].prepare(&k, sums);
#pragma omp parallel for num_threads(c->dev.threads) schedule(static) if (chunks > 1)
    for (size_t i = 0; i < chunks; i++) {
        struct rows_optim run;
        size_t count = chunk_at(&run, a, r, i);
        partial[i] = c->rows->range_reduce(rule, &run, &k, count);
    }
    for (size_t j = 0; j < reduces[rule].count; j++) {
        double sum = 0;
        for (size_t i = 0; i < chunks; i++)
            sum += partial[i].x[j];
        a->sums[(reduces[rule].first + j) * a->sums_stride + r] = sum;
    }
}

void cpu_range_reduce(struct dev *d, enum opt_reduce rule, const struct dev_optim *a)
{
    struct cpu *c = cpu_of(d);
    size_t longest = 0;
    for (size_t r = 0; r < a->n; r++)
        longest = a->ranges[r].count > longest ? a->ranges[r].count : longest;
    struct opt_sums *partial =
        is_stopped(a) ? NULL : cpu_scratch(c, 0, (longest / CHUNK + 1) * sizeof *partial);
    for (size_t r = 0; partial && r < a->n; r++)
        if (opt_takes_part(&a->groups[r], a->kind))
            reduce_range(c, rule, a, r, partial);
}

/* Each thread runs backwards over its part, so that what a reduce left in its cache is read first.
 */
static void update_range(struct cpu *c, enum opt_update rule, const struct dev_optim *a, size_t r)
{
    struct opt_scalars k = scalars_of(a, r);
    size_t chunks = chunks_of(&a->ranges[r]);
    double sums[OPT_SUMS];
    sums_of(sums, a, r);
    update_prepares[rule](&k, sums);
#pragma omp parallel num_threads(c->dev.threads) if (chunks > 1)
    {
        int t = omp_get_thread_num(), n = omp_get_num_threads();
        size_t begin = cpu_part(chunks, t, n, 1), i = cpu_part(chunks, t + 1, n, 1);
        while (i-- > begin) {
            struct rows_optim run;
            size_t count = chunk_at(&run, a, r, i);
            c->rows->range_update(rule, &run, &k, count);
        }
    }
}

void cpu_range_update(struct dev *d, enum opt_update rule, const struct dev_optim *a)
{
    for (size_t r = a->n; r-- > 0 && !is_stopped(a);)
        if (opt_takes_part(&a->groups[r], a->kind))
            update_range(cpu_of(d), rule, a, r);
}

/* |err| <= 4e-7 |x| plus the result's rounding, and the norm's 1e-5. */
void cpu_muon_input(struct dev *d, void *x, const struct dev_optim *a, size_t r)
{
    enum { TILE = 1024 };
    struct cpu *c = cpu_of(d);
    size_t n = a->ranges[r].count, size = dtype_size(d->model_type);
    const float *g = a->g + a->ranges[r].offset, *m = a->m + a->ranges[r].offset;
    const struct opt_scalars k = scalars_of(a, r);
    float inverse = opt_muon_inverse(a->sums[r]);
#pragma omp parallel for num_threads(c->dev.threads) schedule(static)
    for (size_t i = 0; i < n; i += TILE) {
        float tile[TILE];
        size_t count = n - i < TILE ? n - i : TILE;
#pragma omp simd
        for (size_t j = 0; j < count; j++)
            tile[j] = inverse * opt_muon_direction(m[i + j], g[i + j], &k);
        c->rows->convert((char *)x + i * size, d->model_type, tile, DTYPE_F32, count);
    }
}

/* |err| <= 4e-7 (1 + |x| + |s|) plus the result's rounding. */
void cpu_muon_polynomial(struct dev *d, void *s, const void *x, const struct opt_polynomial *p,
                         size_t n)
{
    enum { TILE = 1024 };
    struct cpu *c = cpu_of(d);
    enum dtype type = d->model_type;
    size_t size = dtype_size(type), count = n * n;
#pragma omp parallel for num_threads(c->dev.threads) schedule(static)
    for (size_t i = 0; i < count; i += TILE) {
        float first[TILE], square[TILE];
        size_t tile = count - i < TILE ? count - i : TILE;
        c->rows->convert(first, DTYPE_F32, (const char *)x + i * size, type, tile);
        c->rows->convert(square, DTYPE_F32, (const char *)s + i * size, type, tile);
        for (size_t j = 0; j < tile; j++)
            square[j] = opt_muon_polynomial(*p, first[j], square[j], (i + j) % (n + 1) == 0);
        c->rows->convert((char *)s + i * size, type, square, DTYPE_F32, tile);
    }
}

void cpu_range_moments(struct dev *d, float *largest, const struct dev_moments *a)
{
    for (size_t r = 0; r < a->n; r++) {
        const float *v = a->v + a->ranges[r].offset, *fresh = a->fresh + a->ranges[r].offset;
        float most = 0;
#pragma omp parallel for simd num_threads(d->threads) reduction(max : most)
        for (size_t i = 0; i < a->ranges[r].count; i++) {
            float ratio = (sqrtf(v[i]) + a->eps) / (sqrtf(fresh[i]) + a->eps);
            most = ratio > most ? ratio : most;
        }
        largest[r] = most;
    }
}
