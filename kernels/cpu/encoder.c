/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that only encoders and their training methods use: rows collected and put back, dropout, the
 * standardization loss. Rows are cut among threads; the loss cuts columns, so that each channel's
 * sums have one order at any thread count.
 */
#include "kernels/cpu/cpu.h"
#include <math.h>
#include "kernels/scalar/standard.h"
#include <omp.h>

static const char *row_in(const void *base, enum dtype type, size_t row, size_t C)
{
    return (const char *)base + row * C * dtype_size(type);
}

static char *row_out(void *base, enum dtype type, size_t row, size_t C)
{
    return (char *)base + row * C * dtype_size(type);
}

static bool runs_inside(const struct dev_rows *a, size_t r)
{
    return a->rows[r] < 0 || (size_t)a->rows[r] + (size_t)(a->lengths ? a->lengths[r] : 1) <= a->T;
}

/* Summed in float32 in the order of the rows. */
static void gather_means(struct dev *d, void *y, const void *x, const struct dev_rows *a)
{
    struct cpu *c = cpu_of(d);
    enum dtype type = d->model_type;
    float *buf = cpu_scratch(c, 0, 2 * (size_t)d->threads * a->C * sizeof *buf);
    if (!buf)
        return;
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t r = 0; r < a->R; r++) {
        float *sum = buf + 2 * (size_t)omp_get_thread_num() * a->C, *row = sum + a->C;
        ASSERT(runs_inside(a, r));
        memset(sum, 0, a->C * sizeof *sum);
        for (int32_t i = 0; a->rows[r] >= 0 && i < a->lengths[r]; i++) {
            c->rows->convert(row, DTYPE_F32, row_in(x, type, (size_t)(a->rows[r] + i), a->C), type,
                             a->C);
            c->rows->add(sum, sum, row, DTYPE_F32, a->C);
        }
        for (size_t i = 0; a->rows[r] >= 0 && i < a->C; i++)
            sum[i] /= (float)a->lengths[r];
        c->rows->convert(row_out(y, type, r, a->C), type, sum, DTYPE_F32, a->C);
    }
}

/* Exact; a mean is within (length + 1) 2^-24 of its terms' mean size, and one rounding to the model
 * type. */
void cpu_rows_gather(struct dev *d, void *y, const void *x, const struct dev_rows *a)
{
    if (a->lengths) {
        gather_means(d, y, x, a);
        return;
    }
    enum dtype type = d->model_type;
    size_t bytes = a->C * dtype_size(type);
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t r = 0; r < a->R; r++) {
        char *to = row_out(y, type, r, a->C);
        ASSERT(runs_inside(a, r));
        if (a->rows[r] < 0)
            memset(to, 0, bytes);
        else
            memcpy(to, row_in(x, type, (size_t)a->rows[r], a->C), bytes);
    }
}

/* Each row of a run gets its share of the gradient. */
static void scatter_means(struct dev *d, void *dx, const void *dy, const struct dev_rows *a)
{
    struct cpu *c = cpu_of(d);
    enum dtype type = d->model_type;
    size_t bytes = a->C * dtype_size(type);
    float *buf = cpu_scratch(c, 0, 2 * (size_t)d->threads * a->C * sizeof *buf);
    if (!buf)
        return;
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t r = 0; r < a->R; r++) {
        float *share = buf + 2 * (size_t)omp_get_thread_num() * a->C;
        void *rounded = share + a->C;
        if (a->rows[r] < 0)
            continue;
        ASSERT(runs_inside(a, r));
        c->rows->convert(share, DTYPE_F32, row_in(dy, type, r, a->C), type, a->C);
        for (size_t i = 0; i < a->C; i++)
            share[i] /= (float)a->lengths[r];
        c->rows->convert(rounded, type, share, DTYPE_F32, a->C);
        for (int32_t i = 0; i < a->lengths[r]; i++) {
            char *to = row_out(dx, type, (size_t)(a->rows[r] + i), a->C);
            if (a->add)
                c->rows->add(to, to, rounded, type, a->C);
            else
                memcpy(to, rounded, bytes);
        }
    }
}

/* Exact; with `add` or a run's share up to one rounding, with both two. */
void cpu_rows_scatter(struct dev *d, void *dx, const void *dy, const struct dev_rows *a)
{
    const struct rows *rows = cpu_of(d)->rows;
    enum dtype type = d->model_type;
    size_t bytes = a->C * dtype_size(type);
    if (!a->add)
        d->ops->zero(d, dx, a->T * bytes);
    if (a->lengths) {
        scatter_means(d, dx, dy, a);
        return;
    }
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t r = 0; r < a->R; r++) {
        if (a->rows[r] < 0)
            continue;
        ASSERT(runs_inside(a, r));
        char *to = row_out(dx, type, (size_t)a->rows[r], a->C);
        if (a->add)
            rows->add(to, to, row_in(dy, type, r, a->C), type, a->C);
        else
            memcpy(to, row_in(dy, type, r, a->C), bytes);
    }
}

/* Exact up to the factor's rounding and one of the model type; which elements are 0 is exact. */
void cpu_dropout(struct dev *d, void *y, const void *x, const struct dev_dropout *a, size_t T,
                 size_t C)
{
    struct cpu *c = cpu_of(d);
    enum dtype type = d->model_type;
    float *buf = cpu_scratch(c, 0, (size_t)d->threads * C * sizeof *buf);
    if (!buf)
        return;
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t t = 0; t < T; t++) {
        float *row = buf + (size_t)omp_get_thread_num() * C;
        c->rows->convert(row, DTYPE_F32, row_in(x, type, t, C), type, C);
        c->rows->dropout(row, a, t, C);
        c->rows->convert(row_out(y, type, t, C), type, row, DTYPE_F32, C);
    }
}

/* ---- standardization loss ---- */
enum { STRIP = 64 }; /* channels at a time: a row of them is a few cache lines */

struct strip {
    struct cpu *c;
    const struct dev_standard *a;
    const char *x; /* its first channel of the first row */
    char *dx;      /* or NULL */
    size_t count;
};

static const float *strip_row(const struct strip *s, float *buf, const char *base, size_t t)
{
    enum dtype type = s->c->dev.model_type;
    s->c->rows->convert(buf, DTYPE_F32, row_in(base, type, t, s->a->C), type, s->count);
    return buf;
}

static void strip_moments(const struct strip *s, double *mean, double *variance)
{
    float v[STRIP];
    memset(mean, 0, STRIP * sizeof *mean);
    memset(variance, 0, STRIP * sizeof *variance);
    for (size_t t = 0; t < s->a->T; t++) {
        strip_row(s, v, s->x, t);
        for (size_t i = 0; i < s->count; i++)
            mean[i] += (double)v[i];
    }
    for (size_t i = 0; i < s->count; i++)
        mean[i] /= (double)s->a->T;
    for (size_t t = 0; t < s->a->T; t++) {
        strip_row(s, v, s->x, t);
        for (size_t i = 0; i < s->count; i++)
            variance[i] += ((double)v[i] - mean[i]) * ((double)v[i] - mean[i]);
    }
    for (size_t i = 0; i < s->count; i++)
        variance[i] /= (double)s->a->T;
}

/* dx += weight (mean + (1 - 1/variance) (x - mean)) / T. */
static void strip_gradient(const struct strip *s, const double *mean, const double *variance)
{
    enum dtype type = s->c->dev.model_type;
    float v[STRIP], g[STRIP], middle[STRIP], slope[STRIP];
    double floor = (double)s->a->floor, share = (double)*s->a->weight / (double)s->a->T;
    for (size_t i = 0; i < s->count; i++) {
        middle[i] = (float)mean[i];
        slope[i] = (float)standard_slope(variance[i], floor);
    }
    for (size_t t = 0; t < s->a->T; t++) {
        strip_row(s, v, s->x, t);
        strip_row(s, g, s->dx, t);
        for (size_t i = 0; i < s->count; i++)
            g[i] += (float)share * (middle[i] + slope[i] * (v[i] - middle[i]));
        s->c->rows->convert(row_out(s->dx, type, t, s->a->C), type, g, DTYPE_F32, s->count);
    }
}

/* loss: relative error 1e-10; dx: |err| <= 1e-6 of its largest addend, plus one rounding of the
 * model type. */
void cpu_standard(struct dev *d, void *dx, double *loss, const void *x,
                  const struct dev_standard *a)
{
    struct cpu *c = cpu_of(d);
    size_t size = dtype_size(d->model_type);
    double *term = cpu_scratch(c, 0, a->C * sizeof *term), sum = 0;
    ASSERT(a->floor > 0);
    if (!term || !a->T)
        return;
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < a->C; i += STRIP) {
        double mean[STRIP], variance[STRIP];
        struct strip s = {c, a, (const char *)x + i * size, dx ? (char *)dx + i * size : NULL,
                          a->C - i < STRIP ? a->C - i : STRIP};
        strip_moments(&s, mean, variance);
        for (size_t k = 0; k < s.count; k++)
            term[i + k] = standard_loss(mean[k], variance[k], (double)a->floor);
        if (dx)
            strip_gradient(&s, mean, variance);
    }
    for (size_t i = 0; i < a->C; i++)
        sum += term[i];
    *loss += (double)*a->weight * sum;
}

/* ---- orthogonality of classifiers ---- */
/* Of one class: products of the heads' rows, w + i * stride, and the sum of |cos| of the pairs. */
struct cosines {
    double product[DEV_HEADS_MAX][DEV_HEADS_MAX], sum;
};

static double cosine(const struct cosines *k, size_t i, size_t j)
{
    double norms = k->product[i][i] * k->product[j][j];
    return norms > 0 ? k->product[i][j] / sqrt(norms) : 0;
}

static void cosines_make(struct cosines *k, const float *w, const struct dev_orthogonal *a)
{
    k->sum = 0;
    for (size_t i = 0; i < a->heads; i++)
        for (size_t j = 0; j <= i; j++) {
            double dot = 0;
            for (size_t c = 0; c < a->C; c++)
                dot += (double)w[i * a->stride + c] * (double)w[j * a->stride + c];
            k->product[i][j] = k->product[j][i] = dot;
        }
    for (size_t i = 0; i < a->heads; i++)
        for (size_t j = 0; j < i; j++)
            k->sum += fabs(cosine(k, i, j));
}

/* d|cos| / dw_i = sign (w_j / (|w_i| |w_j|) - cos w_i / |w_i|^2): factors of all rows for row i. */
static void cosines_factors(const struct cosines *k, size_t i, size_t heads, double *factor)
{
    factor[i] = 0;
    for (size_t j = 0; j < heads; j++) {
        double x = j == i ? 0 : cosine(k, i, j);
        if (j != i)
            factor[j] = x != 0 ? copysign(1, x) / sqrt(k->product[i][i] * k->product[j][j]) : 0;
        factor[i] -= x != 0 ? fabs(x) / k->product[i][i] : 0;
    }
}

static void orthogonal_class(float *dw, const float *w, const struct dev_orthogonal *a,
                             struct cosines *k)
{
    double factor[DEV_HEADS_MAX], weight = (double)*a->weight;
    cosines_make(k, w, a);
    for (size_t i = 0; i < a->heads; i++) {
        cosines_factors(k, i, a->heads, factor);
        for (size_t c = 0; c < a->C; c++) {
            double sum = 0;
            for (size_t j = 0; j < a->heads; j++)
                sum += factor[j] * (double)w[j * a->stride + c];
            dw[i * a->stride + c] += (float)(weight * sum);
        }
    }
}

/* loss: relative error 1e-12; dw: one rounding to f32 and one of the sum. */
void cpu_orthogonal(struct dev *d, float *dw, double *loss, const float *w,
                    const struct dev_orthogonal *a)
{
    struct cosines k;
    double sum = 0;
    (void)d;
    ASSERT(a->heads <= DEV_HEADS_MAX);
    for (size_t i = 0; i < a->classes; i++) {
        orthogonal_class(dw + i * a->C, w + i * a->C, a, &k);
        sum += k.sum;
    }
    *loss += (double)*a->weight * sum;
}
