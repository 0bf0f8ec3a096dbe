/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers, the fused classifier, logits: matrix products by matmul.c and the passes around
 * them.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul.h"
#include <omp.h>

/* The three matrix products of a linear layer. y (T,N) of type `out`, rows `stride` apart, = x w^T
 * + bias. */
static void linear_y(struct cpu *c, void *y, size_t stride, enum dtype out,
                     const struct dev_linear *a)
{
    struct product p = {.a = a->x, .b = a->w, .c = y, .bias = a->bias, .b_t = true, .out = out};
    p.in = c->dev.model_type;
    p.M = a->T, p.N = a->N, p.K = a->K;
    p.lda = a->K, p.ldb = a->K, p.ldc = stride;
    matmul_run(c, &p);
}

/* Bound of matmul.h; of an optimizer, so never narrow. */
void cpu_matmul(struct dev *d, const struct dev_matmul *a)
{
    struct product p = {.a = a->a, .b = a->b, .c = a->c, .a_t = a->a_t, .b_t = a->b_t};
    p.in = d->model_type, p.out = a->out;
    p.M = a->M, p.N = a->N, p.K = a->K;
    p.lda = a->a_t ? a->M : a->K, p.ldb = a->b_t ? a->K : a->N, p.ldc = a->N;
    matmul_library(cpu_of(d), &p);
}

struct size {
    size_t T, N, K;
};

struct rows_of { /* a matrix whose rows lie `stride` elements apart */
    const void *x;
    size_t stride;
};

/* dx (T,K) = dy (T,N) w (N,K) */
static void linear_dx(struct cpu *c, void *dx, struct rows_of dy, const void *w, struct size s)
{
    struct product p = {.a = dy.x, .b = w, .c = dx};
    p.in = p.out = c->dev.model_type;
    p.M = s.T, p.N = s.K, p.K = s.N;
    p.lda = dy.stride, p.ldb = s.K, p.ldc = s.K;
    p.gradient = true;
    matmul_run(c, &p);
}

/* dw (N,K) += dy (T,N)^T x (T,K) */
static void dw_product(struct cpu *c, float *dw, struct rows_of dy, struct rows_of x, struct size s)
{
    struct product p = {
        .a = dy.x, .b = x.x, .c = dw, .a_t = true, .accumulate = true, .out = DTYPE_F32};
    p.in = c->dev.model_type;
    p.M = s.N, p.N = s.K, p.K = s.T;
    p.lda = dy.stride, p.ldb = x.stride, p.ldc = s.K;
    p.gradient = true;
    matmul_run(c, &p);
}

/* Against more than NARROW columns reading costs little, and copying gains nothing. */
enum { NARROW = 256, COPY_BYTES = 512 << 10, COPY_ROWS = 64 };

/* Rows first .. first + rows of a dense matrix, copied into buf if `stride` is not dense. */
static struct rows_of rows_apart(struct cpu *c, float *buf, const struct rows_of *dense,
                                 size_t stride, size_t first, size_t rows)
{
    size_t columns = dense->stride, size = dtype_size(c->dev.model_type);
    const char *from = (const char *)dense->x + first * columns * size;
    if (stride == columns)
        return (struct rows_of){from, columns};
#pragma omp parallel for num_threads(c->dev.threads) schedule(static)
    for (size_t r = 0; r < rows; r++)
        memcpy(buf + r * stride, from + r * columns * size, columns * size);
    return (struct rows_of){buf, stride};
}

/* Rows that share cache sets (dev_rows_apart) are copied in runs that fit in L2, whose products are
 * added in order. */
static void linear_dw(struct cpu *c, float *dw, const void *dy, const void *x, struct size s)
{
    enum dtype type = c->dev.model_type;
    const struct rows_of dense[2] = {{dy, s.N}, {x, s.K}};
    size_t of_dy = s.K <= NARROW ? dev_rows_apart(type, s.N) : s.N,
           of_x = s.N <= NARROW ? dev_rows_apart(type, s.K) : s.K,
           copied = (of_dy > s.N ? of_dy : 0) + (of_x > s.K ? of_x : 0), run = s.T;
    float *buf = NULL;
    if (copied) {
        run = COPY_BYTES / sizeof *buf / copied / COPY_ROWS * COPY_ROWS;
        run = run < COPY_ROWS ? COPY_ROWS : run;
        buf = cpu_scratch(c, 0, run * copied * sizeof *buf);
        if (!buf)
            return;
    }
    for (size_t first = 0; first < s.T; first += run) {
        size_t rows = s.T - first < run ? s.T - first : run;
        float *second = of_dy > s.N ? buf + rows * of_dy : buf;
        dw_product(c, dw, rows_apart(c, buf, &dense[0], of_dy, first, rows),
                   rows_apart(c, second, &dense[1], of_x, first, rows),
                   (struct size){rows, s.N, s.K});
    }
}

/* y: bound of matmul.h, then act: 4e-7 max(1, |pre|), rounded to the model type. pre is rounded to
 * the model type before act, as backward sees it. */
void cpu_linear_fwd(struct dev *d, void *y, const struct dev_linear *a)
{
    struct cpu *c = cpu_of(d);
    enum dtype type = d->model_type;
    bool act = a->act != DEV_ACT_NONE;
    ASSERT(!act || a->pre);
    linear_y(c, act ? a->pre : y, a->N, type, a);
    if (!act)
        return;
    size_t count = a->T * a->N, size = dtype_size(type);
#pragma omp parallel num_threads(d->threads)
    {
        int i = omp_get_thread_num(), n = omp_get_num_threads();
        size_t begin = cpu_part(count, i, n, 512), end = cpu_part(count, i + 1, n, 512);
        c->rows->act_fwd((char *)y + begin * size, (const char *)a->pre + begin * size, a->act,
                         type, end - begin);
    }
}

/* to (N) += the partial sums of the threads, in thread order. */
static void add_partials(struct cpu *c, float *to, const float *partial, size_t N)
{
    for (int i = 0; i < c->dev.threads; i++)
        c->rows->accumulate(to, partial + (size_t)i * N, DTYPE_F32, N);
}

/* Threads take runs of the r->rows rows; r->dbias += their column sums, added in thread order.
 * partial: (threads, N) of scratch memory. */
static void act_backward_in(struct cpu *c, const struct rows_act *r, float *partial)
{
    size_t threads = (size_t)c->dev.threads, T = r->rows, N = r->N;
    memset(partial, 0, threads * N * sizeof *partial);
#pragma omp parallel num_threads(c->dev.threads)
    {
        int i = omp_get_thread_num(), n = omp_get_num_threads();
        size_t begin = cpu_part(T, i, n, 1), end = cpu_part(T, i + 1, n, 1);
        size_t offset = begin * (r->stride ? r->stride : N) * dtype_size(r->type);
        struct rows_act own = *r;
        own.dy = (char *)r->dy + offset;
        own.pre = r->pre ? (const char *)r->pre + offset : NULL;
        own.dbias = r->dbias ? partial + (size_t)i * N : NULL;
        own.rows = end - begin;
        c->rows->act_bwd(&own);
    }
    if (r->dbias)
        add_partials(c, r->dbias, partial, N);
}

static void act_backward(struct cpu *c, const struct rows_act *r)
{
    float *partial = cpu_scratch(c, 0, (size_t)c->dev.threads * r->N * sizeof *partial);
    if (partial)
        act_backward_in(c, r, partial);
}

/* dx, dw: bound of matmul.h with K = N and K = T. dbias, pre_dbias: |err| <= T 2^-24 sum of what
 * they add. With an act dx is rounded to the model type before act' as well as after it. */
void cpu_linear_bwd(struct dev *d, const struct dev_linear *a, const struct dev_linear_grad *g)
{
    struct cpu *c = cpu_of(d);
    const struct size s = {a->T, a->N, a->K};
    const struct rows_act bias = {.dy = (void *)(uintptr_t)g->dy, /* read: no act */
                                  .dbias = g->dbias,
                                  .act = DEV_ACT_NONE,
                                  .type = d->model_type,
                                  .rows = a->T,
                                  .N = a->N};
    const struct rows_act act = {.dy = g->dx,
                                 .dbias = g->pre_dbias,
                                 .pre = g->pre,
                                 .act = g->act,
                                 .type = d->model_type,
                                 .rows = a->T,
                                 .N = a->K};
    ASSERT(g->act == DEV_ACT_NONE || (g->pre && g->dx));
    if (g->dbias)
        act_backward(c, &bias);
    if (g->dx)
        linear_dx(c, g->dx, (struct rows_of){g->dy, a->N}, a->w, s);
    if (g->act != DEV_ACT_NONE)
        act_backward(c, &act);
    if (g->dw)
        linear_dw(c, g->dw, g->dy, a->x, s);
}

/* One rounding of the model type; dbias as in linear_bwd. */
void cpu_activation_bwd(struct dev *d, void *dy, float *dbias, const struct dev_activation *a)
{
    const struct rows_act act = {.dy = dy,
                                 .dbias = dbias,
                                 .pre = a->pre,
                                 .act = a->act,
                                 .type = d->model_type,
                                 .rows = a->T,
                                 .N = a->N};
    act_backward(cpu_of(d), &act);
}

void cpu_logits(struct dev *d, float *logits, const struct dev_linear *a)
{
    linear_y(cpu_of(d), logits, a->N, DTYPE_F32, a);
}

struct chunk {     /* rows first .. first + rows of the classifier, `stride` elements apart */
    float *logits; /* (rows, width) */
    char *grad;    /* (rows, width) model type; NULL: loss only */
    size_t width, stride, first, rows;
};

static void classify_rows(struct cpu *c, const struct dev_classifier *a, const struct chunk *k)
{
    enum dtype type = c->dev.model_type;
#pragma omp parallel for num_threads(c->dev.threads) schedule(static)
    for (size_t r = 0; r < k->rows; r++) {
        const struct rows_xent x = {.grad =
                                        k->grad ? k->grad + r * k->stride * dtype_size(type) : NULL,
                                    .type = type,
                                    .logits = k->logits + r * k->stride,
                                    .V = a->V,
                                    .width = k->width,
                                    .target = a->targets[k->first + r],
                                    .grad_scale = a->grad_scale};
        a->losses[k->first + r] = c->rows->xent(&x);
    }
}

/* losses: |err| <= 2e-6 (1 + |logit|) in f32. Logits are f32 for every model type; their gradient
 * is in the model type. Only the columns up to V, rounded up to whole cache lines, are computed;
 * columns from V on get gradient 0, and rows of the table from there on are not read. */
void cpu_classifier(struct dev *d, const struct dev_classifier *a)
{
    struct cpu *c = cpu_of(d);
    enum dtype type = d->model_type;
    size_t width = dev_logit_width(a->V, a->VP), stride = dev_rows_apart(type, width),
           chunk = dev_logit_rows(DEV_LOGITS_CPU, a->T, width * sizeof(float));
    size_t logit_bytes = (chunk * stride * sizeof(float) + 63) / 64 * 64;
    size_t grad_bytes = a->dx && type == DTYPE_BF16 ? chunk * stride * sizeof(uint16_t) : 0;
    size_t grad_end = logit_bytes + (grad_bytes + 63) / 64 * 64;
    bool dbias = a->dx && a->dbias;
    size_t bias_bytes = dbias ? (size_t)d->threads * width * sizeof(float) : 0;
    float *logits = cpu_scratch(c, 0, grad_end + bias_bytes);
    if (!logits)
        return;
    float *partial = logits + grad_end / sizeof *partial;
    char *grad = a->dx ? (char *)logits + (grad_bytes ? logit_bytes : 0) : NULL; /* f32: in place */
    for (size_t first = 0; first < a->T; first += chunk) {
        size_t rows = a->T - first < chunk ? a->T - first : chunk, C = a->C;
        const void *x = (const char *)a->x + first * C * dtype_size(type);
        const struct size s = {rows, width, C};
        linear_y(c, logits, stride, DTYPE_F32,
                 &(struct dev_linear){
                     .x = x, .w = a->w, .bias = a->bias, .T = rows, .K = C, .N = width});
        classify_rows(c, a, &(struct chunk){logits, grad, width, stride, first, rows});
        if (!a->dx)
            continue;
        const struct rows_of dy = {grad, stride};
        linear_dx(c, (char *)a->dx + first * C * dtype_size(type), dy, a->w, s);
        if (a->dw)
            dw_product(c, a->dw, dy, (struct rows_of){x, C}, s);
        const struct rows_act bias = {.dy = logits,
                                      .dbias = a->dbias,
                                      .type = DTYPE_F32,
                                      .rows = rows,
                                      .N = width,
                                      .stride = stride};
        if (dbias) /* xent left the gradient in `logits`, in f32 */
            act_backward_in(c, &bias, partial);
    }
}
