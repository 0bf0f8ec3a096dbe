/* SPDX-License-Identifier: Apache-2.0 */
/* The memory-bound ops: divides rows and elements among threads and calls the inner loops of
 * rows.c.
 */
#include "kernels/cpu/cpu.h"
#include <omp.h>

enum {
    CHUNK = DEV_RUN
}; /* elements: 64 KiB of f32. Sums are computed per chunk and added in chunk order */

static const void *at(const void *base, enum dtype type, size_t offset)
{
    return (const char *)base + offset * dtype_size(type);
}

static void *at_out(void *base, enum dtype type, size_t offset)
{
    return (char *)base + offset * dtype_size(type);
}

/* Sum of the rows of three tables in f32, rounded once. */
static void embed_typed(struct cpu *c, void *row, const struct dev_embed *a, size_t t, float *buf)
{
    enum dtype type = c->dev.model_type;
    size_t C = a->C;
    memset(buf, 0, C * sizeof *buf);
    c->rows->accumulate(buf, at(a->wte, type, (size_t)a->tokens[t] * C), type, C);
    if (a->wpe)
        c->rows->accumulate(buf, at(a->wpe, type, (size_t)a->positions[t] * C), type, C);
    c->rows->accumulate(buf, at(a->wtt, type, (size_t)a->types[t] * C), type, C);
    c->rows->convert(row, type, buf, DTYPE_F32, C);
}

/* Exact up to one rounding of the model type, and of f32 with types. */
void cpu_embed_fwd(struct dev *d, void *x, const struct dev_embed *a)
{
    struct cpu *c = cpu_of(d);
    enum dtype type = d->model_type;
    float *buf = a->wtt ? cpu_scratch(c, 0, (size_t)d->threads * a->C * sizeof *buf) : NULL;
    if (a->wtt && !buf)
        return;
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t t = 0; t < a->T; t++) {
        const void *token = at(a->wte, type, (size_t)a->tokens[t] * a->C);
        void *row = at_out(x, type, t * a->C);
        if (a->wtt)
            embed_typed(c, row, a, t, buf + (size_t)omp_get_thread_num() * a->C);
        else if (a->wpe)
            c->rows->add(row, token, at(a->wpe, type, (size_t)a->positions[t] * a->C), type, a->C);
        else
            memcpy(row, token, a->C * dtype_size(type));
    }
}

/* Threads own columns, so every row adds in order of t at any thread count. |err| <= n 2^-24
 * sum|dx|, n = rows added. */
void cpu_embed_bwd(struct dev *d, const struct dev_embed *a, const struct dev_embed_grad *g)
{
    const int32_t *tokens = a->tokens, *positions = a->positions, *types = a->types;
    size_t T = a->T, C = a->C;
    const struct rows *rows = cpu_of(d)->rows;
    enum dtype type = d->model_type;
    ASSERT(!g->dwtt || a->types_count <= DEV_TYPES_MAX);
    for (size_t t = 0; t < T; t++) {
        ASSERT(tokens[t] >= 0 && (size_t)tokens[t] < a->VP);
        ASSERT(!g->dwtt || (types[t] >= 0 && (size_t)types[t] < a->types_count));
    }
#pragma omp parallel num_threads(d->threads)
    {
        int i = omp_get_thread_num(), n = omp_get_num_threads();
        size_t begin = cpu_part(C, i, n, 32), count = cpu_part(C, i + 1, n, 32) - begin;
        for (size_t t = 0; t < T && count; t++) {
            const void *row = at(g->dx, type, t * C + begin);
            if (g->dwte)
                rows->accumulate(g->dwte + (size_t)tokens[t] * C + begin, row, type, count);
            if (g->dwpe)
                rows->accumulate(g->dwpe + (size_t)positions[t] * C + begin, row, type, count);
            if (g->dwtt)
                rows->accumulate(g->dwtt + (size_t)types[t] * C + begin, row, type, count);
        }
    }
}

/* y: |err| <= 4e-6 (1 + |y|) in f32, plus the model type's rounding of sum and y. */
void cpu_norm_fwd(struct dev *d, void *y, const void *x, const void *residual,
                  const struct dev_norm_args *a)
{
    struct cpu *c = cpu_of(d);
    struct rows_norm n = {.a = a, .type = d->model_type, .y = y, .x = x, .residual = residual};
    ASSERT(a->sum || (!residual && !a->branch));
    ASSERT(a->kind != DEV_NORM_NONE || !y || y == a->sum);
    float *buf = cpu_scratch(c, 0, (size_t)d->threads * 2 * a->C * sizeof *buf);
    if (!buf)
        return;
#pragma omp parallel num_threads(d->threads)
    {
        int i = omp_get_thread_num(), count = omp_get_num_threads();
        c->rows->norm_fwd(&n, cpu_part(a->T, i, count, 1), cpu_part(a->T, i + 1, count, 1),
                          buf + (size_t)i * 2 * a->C);
    }
}

/* dx: |err| <= 1e-5 (1 + |dx|) in f32 for inputs of order 1; dgain, dbias: |err| <= T 2^-24
 * sum|terms|. Each thread sums its rows, then the threads' sums are added in order. */
void cpu_norm_bwd(struct dev *d, const struct dev_norm_args *a, const struct dev_norm_grad *g)
{
    struct cpu *c = cpu_of(d);
    struct rows_norm n = {.a = a,
                          .type = d->model_type,
                          .dx = g->dx,
                          .dbranch = g->dbranch,
                          .dy = g->dy,
                          .dsum = g->dsum};
    ASSERT(!a->branch == !g->dbranch);
    size_t stride = 5 * a->C; /* per thread: dgain, dbias, then 3 rows of work */
    float *buf = cpu_scratch(c, 0, (size_t)d->threads * stride * sizeof *buf);
    if (!buf)
        return;
    for (int i = 0; i < d->threads; i++) /* all threads: OpenMP may start fewer */
        memset(buf + (size_t)i * stride, 0, 2 * a->C * sizeof *buf);
#pragma omp parallel num_threads(d->threads)
    {
        int i = omp_get_thread_num(), count = omp_get_num_threads();
        float *own = buf + (size_t)i * stride;
        c->rows->norm_bwd(&n, own, own + a->C, cpu_part(a->T, i, count, 1),
                          cpu_part(a->T, i + 1, count, 1), own + 2 * a->C);
    }
    for (int i = 0; g->dgain && a->kind != DEV_NORM_NONE && i < d->threads; i++) {
        c->rows->accumulate(g->dgain, buf + (size_t)i * stride, DTYPE_F32, a->C);
        if (a->bias)
            c->rows->accumulate(g->dbias, buf + (size_t)i * stride + a->C, DTYPE_F32, a->C);
    }
}

/* Exact up to one rounding. */
void cpu_add(struct dev *d, void *y, const void *a, const void *b, size_t count)
{
    const struct rows *rows = cpu_of(d)->rows;
    enum dtype type = d->model_type;
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i += CHUNK)
        rows->add(at_out(y, type, i), at(a, type, i), at(b, type, i), type,
                  count - i < CHUNK ? count - i : CHUNK);
}

/* Exact up to 2^-23 of the pair's length, plus one rounding of the model type. */
void cpu_rope(struct dev *d, void *x, const struct dev_rope *r)
{
    const struct rows *rows = cpu_of(d)->rows;
    enum dtype type = d->model_type;
    ASSERT(r->HD % 2 == 0 && r->heads * r->HD <= r->stride);
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t t = 0; t < r->T; t++)
        rows->rope(at_out(x, type, t * r->stride), r->table + (size_t)r->positions[t] * r->HD, type,
                   r->heads, r->HD, r->inverse);
}

/* |err| <= 1e-6 |up| max(1, |gate|) in f32, plus one rounding of the model type. */
void cpu_gated_fwd(struct dev *d, void *y, const void *x, const struct dev_gated *a)
{
    const struct rows *rows = cpu_of(d)->rows;
    enum dtype type = d->model_type;
    size_t F = a->F;
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t t = 0; t < a->T; t++)
        rows->gated_fwd(at_out(y, type, t * F), at(x, type, t * 2 * F), a->gate, type, F);
}

/* |err| <= 4e-6 |dy| max(|gate|, |up|, 1) in f32, plus one rounding of the model type. */
void cpu_gated_bwd(struct dev *d, void *dx, const void *dy, const void *x,
                   const struct dev_gated *a)
{
    const struct rows *rows = cpu_of(d)->rows;
    enum dtype type = d->model_type;
    size_t F = a->F;
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t t = 0; t < a->T; t++)
        rows->gated_bwd(at_out(dx, type, t * 2 * F), at(dy, type, t * F), at(x, type, t * 2 * F),
                        a->gate, type, F);
}

/* Relative error <= count 2^-53. */
void cpu_sumsq(struct dev *d, double *out, const float *x, size_t count)
{
    struct cpu *c = cpu_of(d);
    size_t chunks = (count + CHUNK - 1) / CHUNK;
    double *partial = cpu_scratch(c, 0, (chunks + 1) * sizeof *partial), sum = 0;
    if (!partial)
        return;
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < chunks; i++)
        partial[i] = c->rows->sumsq(x + i * CHUNK, i + 1 < chunks ? CHUNK : count - i * CHUNK);
    for (size_t i = 0; i < chunks; i++)
        sum += partial[i];
    *out = sum;
}

void cpu_clip_scale(struct dev *d, float *out, const struct dev_clip *a)
{
    (void)d;
    *out = opt_gscale(*a->sumsq, *a->loss, *a->targets, a->max_norm);
}

/* Relative error of the added sum <= count 2^-53. */
void cpu_sum_add(struct dev *d, double *sum, const float *x, size_t count)
{
    double all = 0;
    (void)d;
    for (size_t i = 0; i < count; i++)
        all += (double)x[i];
    *sum += all;
}

void cpu_scale(struct dev *d, float *x, float s, size_t count)
{
    const struct rows *rows = cpu_of(d)->rows;
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i += CHUNK)
        rows->scale(x + i, s, count - i < CHUNK ? count - i : CHUNK);
}

void cpu_scale_by(struct dev *d, float *x, const float *s, size_t count)
{
    if (*s != 1)
        cpu_scale(d, x, *s, count);
}

void cpu_cast(struct dev *d, void *out, const float *x, size_t count)
{
    const struct rows *rows = cpu_of(d)->rows;
    enum dtype type = d->model_type;
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i += CHUNK)
        rows->convert(at_out(out, type, i), type, x + i, DTYPE_F32,
                      count - i < CHUNK ? count - i : CHUNK);
}
