/* Linear layers, the fused classifier, logits: products of matmul.c and the passes around them. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul.h"
#include <omp.h>

/* The three products of a linear layer, dense rows. y (T,N) = x (T,K) w (N,K)^T + bias. */
static void product_fwd(struct cpu *c, void *y, enum dtype out, const void *x, const void *w,
                        const float *bias, size_t T, size_t N, size_t K)
{
    struct product p = {.a = x, .b = w, .c = y, .bias = bias, .b_t = true, .out = out};
    p.in = c->dev.model_type;
    p.M = T, p.N = N, p.K = K;
    p.lda = K, p.ldb = K, p.ldc = N;
    matmul_run(c, &p);
}

/* dx (T,K) = dy (T,N) w (N,K) */
static void product_dx(struct cpu *c, void *dx, const void *dy, const void *w, size_t T, size_t N,
                       size_t K)
{
    struct product p = {.a = dy, .b = w, .c = dx};
    p.in = p.out = c->dev.model_type;
    p.M = T, p.N = K, p.K = N;
    p.lda = N, p.ldb = K, p.ldc = K;
    matmul_run(c, &p);
}

/* dw (N,K) += dy (T,N)^T x (T,K) */
static void product_dw(struct cpu *c, float *dw, const void *dy, const void *x, size_t T, size_t N,
                       size_t K)
{
    struct product p = {
        .a = dy, .b = x, .c = dw, .a_t = true, .accumulate = true, .out = DTYPE_F32};
    p.in = c->dev.model_type;
    p.M = N, p.N = K, p.K = T;
    p.lda = N, p.ldb = K, p.ldc = K;
    matmul_run(c, &p);
}

/* y: bound of matmul.h, then act: 4e-7 max(1, |pre|), rounded to the model type. pre is rounded to
 * the model type before act, as backward sees it. */
void cpu_linear_fwd(struct dev *d, void *y, const struct dev_linear *a)
{
    struct cpu *c = cpu_of(d);
    enum dtype type = d->model_type;
    bool act = a->act != DEV_ACT_NONE;
    ASSERT(!act || a->pre);
    product_fwd(c, act ? a->pre : y, type, a->x, a->w, a->bias, a->T, a->N, a->K);
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

/* to (N) += the threads' partial sums, in thread order. */
static void add_partials(struct cpu *c, float *to, const float *partial, size_t N)
{
    for (int i = 0; i < c->dev.threads; i++)
        c->rows->accumulate(to, partial + (size_t)i * N, DTYPE_F32, N);
}

/* dy (T,N) *= act'(pre), dbias (N) += column sums: one pass. dy is only read with act NONE. */
static void act_backward(struct cpu *c, void *dy, float *dbias, const void *pre, enum dev_act act,
                         size_t T, size_t N)
{
    enum dtype type = c->dev.model_type;
    size_t threads = (size_t)c->dev.threads;
    float *partial = cpu_scratch(c, 0, threads * N * sizeof *partial);
    if (!partial)
        return;
    memset(partial, 0, threads * N * sizeof *partial);
#pragma omp parallel num_threads(c->dev.threads)
    {
        int i = omp_get_thread_num(), n = omp_get_num_threads();
        size_t begin = cpu_part(T, i, n, 1), end = cpu_part(T, i + 1, n, 1);
        size_t offset = begin * N * dtype_size(type);
        c->rows->act_bwd((char *)dy + offset, dbias ? partial + (size_t)i * N : NULL,
                         pre ? (const char *)pre + offset : NULL, act, type, end - begin, N);
    }
    if (dbias)
        add_partials(c, dbias, partial, N);
}

/* dx, dw: bound of matmul.h with K = N and K = T. dbias, pre_dbias: |err| <= T 2^-24 sum of what
 * they add. With an act dx is rounded to the model type before act' as well as behind it. */
void cpu_linear_bwd(struct dev *d, const struct dev_linear *a, const struct dev_linear_grad *g)
{
    struct cpu *c = cpu_of(d);
    ASSERT(g->act == DEV_ACT_NONE || (g->pre && g->dx));
    if (g->dbias)
        act_backward(c, (void *)(uintptr_t)g->dy, g->dbias, NULL, DEV_ACT_NONE, a->T, a->N);
    if (g->dx)
        product_dx(c, g->dx, g->dy, a->w, a->T, a->N, a->K);
    if (g->act != DEV_ACT_NONE)
        act_backward(c, g->dx, g->pre_dbias, g->pre, g->act, a->T, a->K);
    product_dw(c, g->dw, g->dy, a->x, a->T, a->N, a->K);
}

void cpu_logits(struct dev *d, float *logits, const void *x, const void *w, size_t T, size_t C,
                size_t V)
{
    product_fwd(cpu_of(d), logits, DTYPE_F32, x, w, NULL, T, V, C);
}

static void classify_rows(struct cpu *c, const struct dev_classifier *a, float *logits, char *grad,
                          size_t width, size_t first, size_t rows)
{
    enum dtype type = c->dev.model_type;
#pragma omp parallel for num_threads(c->dev.threads) schedule(static)
    for (size_t r = 0; r < rows; r++)
        a->losses[first + r] =
            c->rows->xent(grad ? grad + r * width * dtype_size(type) : NULL, type,
                          logits + r * width, a->V, width, a->targets[first + r], a->grad_scale);
}

/* losses: |err| <= 2e-6 (1 + |logit|) in f32. Logits are f32 whatever the model type; their
 * gradient is in the model type. Rows V .. VP of the table take no part: only the columns up to V,
 * rounded up to whole cache lines, are computed, and what is beyond V gets gradient 0. */
void cpu_classifier(struct dev *d, const struct dev_classifier *a)
{
    struct cpu *c = cpu_of(d);
    enum dtype type = d->model_type;
    size_t width = dev_logit_width(a->V, a->VP),
           chunk = dev_logit_rows(DEV_LOGITS_CPU, a->T, width);
    size_t logit_bytes = (chunk * width * sizeof(float) + 63) / 64 * 64;
    size_t grad_bytes = a->dx && type == DTYPE_BF16 ? chunk * width * sizeof(uint16_t) : 0;
    float *logits = cpu_scratch(c, 0, logit_bytes + grad_bytes);
    if (!logits)
        return;
    char *grad = a->dx ? (char *)logits + (grad_bytes ? logit_bytes : 0) : NULL; /* f32: in place */
    for (size_t first = 0; first < a->T; first += chunk) {
        size_t rows = a->T - first < chunk ? a->T - first : chunk, C = a->C;
        const void *x = (const char *)a->x + first * C * dtype_size(type);
        product_fwd(c, logits, DTYPE_F32, x, a->w, NULL, rows, width, C);
        classify_rows(c, a, logits, grad, width, first, rows);
        if (!a->dx)
            continue;
        product_dx(c, (char *)a->dx + first * C * dtype_size(type), grad, a->w, rows, width, C);
        product_dw(c, a->dw, grad, x, rows, width, C);
    }
}
