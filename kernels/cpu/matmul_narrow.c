/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products in narrow arithmetic, emulated (struct dev_emulation): for the study of widths,
 * some hundred times slower than the library's. Bits are the same at every thread count where sums
 * are narrow, too.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul.h"
#include <omp.h>
#include "kernels/scalar/fp8.h"
#include "kernels/scalar/narrow.h"

static const struct narrow e5m2 = {5, 2};
static const float e5m2_most = 57344;

struct operand {
    const float *x;
    size_t rows, columns, stride; /* of op(x) */
    bool transposed, saturated;   /* saturated: E5M2 without a scale */
    int form;                     /* of scalar/fp8.h, with a scale */
};

static float operand_at(const struct operand *o, size_t i, size_t j)
{
    return o->transposed ? o->x[j * o->stride + i] : o->x[i * o->stride + j];
}

/* Of all magnitudes; bits, so that NaN is the largest. */
static float operand_largest(const struct cpu *c, const struct operand *o)
{
    uint32_t most = 0;
#pragma omp parallel for num_threads(c->dev.threads) schedule(static) reduction(max : most)
    for (size_t i = 0; i < o->rows; i++)
        for (size_t j = 0; j < o->columns; j++) {
            uint32_t size = float_bits(operand_at(o, i, j)) & 0x7fffffffu;
            most = size > most ? size : most;
        }
    return float_of_bits(most);
}

static float operand_round(float x, const struct operand *o, int k)
{
    if (o->form)
        return fp8_value(fp8_code(x, fp8_scale(k), o->form), o->form) * fp8_scale(-k);
    x = x > e5m2_most ? e5m2_most : x < -e5m2_most ? -e5m2_most : x;
    return narrow_round(x, e5m2);
}

/* to (rows, columns) = op(x), rounded. */
static void operand_read(struct cpu *c, float *to, const struct operand *o)
{
    int k = o->form ? fp8_exponent(operand_largest(c, o), o->form) : 0;
#pragma omp parallel for num_threads(c->dev.threads) schedule(static)
    for (size_t i = 0; i < o->rows; i++)
        for (size_t j = 0; j < o->columns; j++) {
            float x = operand_at(o, i, j);
            to[i * o->columns + j] = o->form || o->saturated ? operand_round(x, o, k) : x;
        }
}

struct sums { /* of one row of the result */
    float *part, *total;
    size_t n;
    int bits;
};

static void parts_add(const struct sums *s)
{
    float *part = s->part, *total = s->total;
#pragma omp simd
    for (size_t j = 0; j < s->n; j++) {
        total[j] = narrow_shorten(total[j] + part[j], s->bits);
        part[j] = 0;
    }
}

/* total = the row a (K) times b (K, n). */
static void row_multiply(const struct sums *s, const float *a, const float *b, size_t K,
                         size_t chunk)
{
    float *part = s->part;
    memset(s->part, 0, s->n * sizeof *s->part);
    memset(s->total, 0, s->n * sizeof *s->total);
    for (size_t k = 0; k < K; k++) {
        const float *row = b + k * s->n;
        float x = a[k];
#pragma omp simd
        for (size_t j = 0; j < s->n; j++)
            part[j] = narrow_shorten(part[j] + x * row[j], s->bits);
        if ((chunk && (k + 1) % chunk == 0) || k + 1 == K)
            parts_add(s); /* one level: 0 + part */
    }
}

static void row_write(const struct product *p, size_t i, const float *total)
{
    float *to = (float *)p->c + i * p->ldc;
    for (size_t j = 0; j < p->N; j++)
        to[j] = total[j] + (p->accumulate ? to[j] : p->bias ? p->bias[j] : 0.0f);
}

static void multiply(struct cpu *c, const struct product *p, const float *a, const float *b,
                     float *room)
{
    const struct dev_emulation *e = &c->emulation;
#pragma omp parallel num_threads(c->dev.threads)
    {
        float *mine = room + 2 * p->N * (size_t)omp_get_thread_num();
        const struct sums s = {mine, mine + p->N, p->N, e->accumulator};
#pragma omp for schedule(static)
        for (size_t i = 0; i < p->M; i++) {
            row_multiply(&s, a + i * p->K, b, p->K, e->chunk);
            row_write(p, i, s.total);
        }
    }
}

static void matmul_narrow(struct cpu *c, const struct product *p)
{
    const bool saturated = c->emulation.fp8 == DEV_FP8_E5M2,
               hybrid = c->emulation.fp8 == DEV_FP8_HYBRID;
    const int form = hybrid ? FP8_E4M3 : FP8_NONE,
              gradient = hybrid && p->gradient ? FP8_E5M2 : form;
    const struct operand left = {p->a, p->M, p->K, p->lda, p->a_t, saturated, gradient},
                         right = {p->b, p->K, p->N, p->ldb, p->b_t, saturated, form};
    size_t a_count = p->M * p->K, b_count = p->K * p->N;
    float *a =
        cpu_scratch(c, 1, (a_count + b_count + 2 * p->N * (size_t)c->dev.threads) * sizeof *a);
    ASSERT(p->in == DTYPE_F32 && p->out == DTYPE_F32);
    if (!a)
        return;
    operand_read(c, a, &left);
    operand_read(c, a + a_count, &right);
    if (c->emulation.accumulator) {
        multiply(c, p, a, a + a_count, a + a_count + b_count);
        return;
    }
    struct product rounded = *p;
    rounded.a = a, rounded.b = a + a_count;
    rounded.lda = p->K, rounded.ldb = p->N;
    rounded.a_t = rounded.b_t = false;
    matmul_library(c, &rounded);
}

void matmul_run(struct cpu *c, const struct product *p)
{
    bool narrow = c->emulation.fp8 || c->emulation.accumulator;
    if (!narrow)
        matmul_library(c, p);
    else if (!c->dev.failed)
        matmul_narrow(c, p);
}
