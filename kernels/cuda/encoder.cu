/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that only encoders and their training methods use: rows collected and put back, dropout, the
 * standardization loss. Each reads its inputs and writes its outputs once, the loss reads x three
 * times (the second time out of the L2 cache). Sums have a fixed order. Error bounds:
 * kernels/cpu/encoder.c.
 */
#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/scalar/standard.h"

/* ---- rows: a block for each ---- */
template <typename T, int VEC>
static __global__ void gather(T *y, const T *x, const struct dev_rows a)
{
    int32_t row = a.rows[blockIdx.x], length = row >= 0 && a.lengths ? a.lengths[blockIdx.x] : 1;
    for (size_t i = threadIdx.x * (size_t)VEC; i < a.C; i += blockDim.x * (size_t)VEC) {
        float v[VEC], next[VEC];
#pragma unroll
        for (int k = 0; k < VEC; k++)
            v[k] = 0;
        if (row >= 0)
            load<T, VEC>(v, x + (size_t)row * a.C + i);
        for (int32_t j = 1; j < length; j++) {
            load<T, VEC>(next, x + (size_t)(row + j) * a.C + i);
#pragma unroll
            for (int k = 0; k < VEC; k++)
                v[k] += next[k];
        }
#pragma unroll
        for (int k = 0; k < VEC; k++)
            v[k] = length > 1 ? v[k] / (float)length : v[k];
        store<T, VEC>(y + blockIdx.x * a.C + i, v);
    }
}

template <typename T, int VEC>
static __global__ void scatter(T *dx, const T *dy, const struct dev_rows a)
{
    int32_t row = a.rows[blockIdx.x], length = a.lengths ? a.lengths[blockIdx.x] : 1;
    if (row < 0)
        return;
    for (size_t i = threadIdx.x * (size_t)VEC; i < a.C; i += blockDim.x * (size_t)VEC) {
        float share[VEC], v[VEC];
        load<T, VEC>(share, dy + blockIdx.x * a.C + i);
#pragma unroll
        for (int k = 0; k < VEC; k++)
            share[k] = length > 1 ? rounded<T>(share[k] / (float)length) : share[k];
        for (int32_t j = 0; j < length; j++) {
            T *at = dx + (size_t)(row + j) * a.C + i;
#pragma unroll
            for (int k = 0; k < VEC; k++)
                v[k] = 0;
            if (a.add)
                load<T, VEC>(v, at);
#pragma unroll
            for (int k = 0; k < VEC; k++)
                v[k] += share[k];
            store<T, VEC>(at, v);
        }
    }
}

extern "C" void cuda_rows_gather(struct dev *d, void *y, const void *x, const struct dev_rows *a)
{
    struct cuda *c = cuda_of(d);
    if (!a->R)
        return;
#define RUN(type, vec)                                                                             \
    LAUNCH(c, (gather<type, vec>), blocks_for(a->R, 1), threads_for(a->C / (vec)), 0, (type *)y,   \
           (const type *)x, *a)
    BY_TYPE(c, a->C % wide_count(c) == 0 && aligned16(y) && aligned16(x), RUN);
#undef RUN
}

extern "C" void cuda_rows_scatter(struct dev *d, void *dx, const void *dy, const struct dev_rows *a)
{
    struct cuda *c = cuda_of(d);
    if (!a->add)
        d->ops->zero(d, dx, a->T * a->C * dtype_size(d->model_type));
    if (!a->R)
        return;
#define RUN(type, vec)                                                                             \
    LAUNCH(c, (scatter<type, vec>), blocks_for(a->R, 1), threads_for(a->C / (vec)), 0, (type *)dx, \
           (const type *)dy, *a)
    BY_TYPE(c, a->C % wide_count(c) == 0 && aligned16(dx) && aligned16(dy), RUN);
#undef RUN
}

/* ---- dropout: a block for each row ---- */
template <typename T, int VEC>
static __global__ void dropout(T *y, const T *x, const struct dev_dropout a, size_t C)
{
    const struct drop d = drop_of(a, blockIdx.x);
    for (size_t i = threadIdx.x * (size_t)VEC; i < C; i += blockDim.x * (size_t)VEC) {
        float v[VEC];
        load<T, VEC>(v, x + blockIdx.x * C + i);
        drop_apply<VEC>(v, d, (uint32_t)i);
        store<T, VEC>(y + blockIdx.x * C + i, v);
    }
}

extern "C" void cuda_dropout(struct dev *d, void *y, const void *x, const struct dev_dropout *a,
                             size_t T, size_t C)
{
    struct cuda *c = cuda_of(d);
    if (!T)
        return;
#define RUN(type, vec)                                                                             \
    LAUNCH(c, (dropout<type, vec>), blocks_for(T, 1), threads_for(C / (vec)), 0, (type *)y,        \
           (const type *)x, *a, C)
    BY_TYPE(c, C % wide_count(c) == 0 && aligned16(y) && aligned16(x), RUN);
#undef RUN
}

/* ---- no norm: a block for each row ---- */
struct none_args {
    void *to, *also;    /* forward: sum, NULL; backward: dx, dbranch or NULL */
    const void *a, *b;  /* NULL: 0. forward: x, residual; backward: dy, dsum */
    bool before, after; /* the branch is applied to a; to what goes to `also` */
    struct dev_dropout branch;
    size_t C;
};

template <typename T, int VEC> static __global__ void none(const struct none_args a)
{
    struct drop d = {};
    if (a.before || a.after)
        d = drop_of(a.branch, blockIdx.x);
    for (size_t i = threadIdx.x * (size_t)VEC; i < a.C; i += blockDim.x * (size_t)VEC) {
        size_t at = blockIdx.x * a.C + i;
        float v[VEC], w[VEC];
#pragma unroll
        for (int k = 0; k < VEC; k++)
            v[k] = w[k] = 0;
        if (a.a)
            load<T, VEC>(v, (const T *)a.a + at);
        if (a.before)
            drop_apply<VEC>(v, d, (uint32_t)i);
        if (a.b)
            load<T, VEC>(w, (const T *)a.b + at);
#pragma unroll
        for (int k = 0; k < VEC; k++)
            v[k] += w[k];
        store<T, VEC>((T *)a.to + at, v);
        if (!a.after)
            continue;
        drop_apply<VEC>(v, d, (uint32_t)i);
        store<T, VEC>((T *)a.also + at, v);
    }
}

static void none_run(struct cuda *c, const struct none_args &a, size_t T)
{
    bool aligned = aligned16(a.to) && aligned16(a.also) && aligned16(a.a) && aligned16(a.b);
#define RUN(type, vec)                                                                             \
    LAUNCH(c, (none<type, vec>), blocks_for(T, 1), threads_for(a.C / (vec)), 0, a)
    BY_TYPE(c, a.C % wide_count(c) == 0 && aligned, RUN);
#undef RUN
}

extern "C" void cuda_norm_none_fwd(struct cuda *c, const void *x, const void *residual,
                                   const struct dev_norm_args *n)
{
    struct none_args a = {n->sum, NULL, x, residual, n->branch != NULL, false, {}, n->C};
    if (n->branch)
        a.branch = *n->branch;
    if (n->sum && (n->branch || residual || n->sum != x))
        none_run(c, a, n->T);
}

extern "C" void cuda_norm_none_bwd(struct cuda *c, const struct dev_norm_args *n,
                                   const struct dev_norm_grad *g)
{
    struct none_args a = {g->dx, g->dbranch, g->dy, g->dsum, false, n->branch != NULL, {}, n->C};
    if (n->branch)
        a.branch = *n->branch;
    none_run(c, a, n->T);
}

/* ---- bias of few rows of logits ---- */
static __global__ void bias_f32(float *x, const float *bias, size_t N)
{
    size_t i = thread_index();
    if (i < N)
        x[blockIdx.y * N + i] += bias[i];
}

extern "C" void cuda_bias_f32(struct cuda *c, float *x, const float *bias, size_t rows, size_t N)
{
    dim3 grid(blocks_for(N, THREADS), 1);
    for (size_t first = 0; first < rows; first += 32768, x += 32768 * N) { /* of the grid's y */
        grid.y = (unsigned)(rows - first < 32768 ? rows - first : 32768);
        LAUNCH(c, bias_f32, grid, THREADS, 0, x, bias, N);
    }
}

/* ---- token types: few rows of many summands, so columns are cut among threads, rows among runs of
 * TYPES_ROWS, and the runs' sums are added in order ---- */
enum { TYPES_ROWS = 256 };

template <typename T>
static __global__ void types_sums(float *partial, const T *dx, const int32_t *types, size_t rows,
                                  size_t C, int count)
{
    size_t column = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t begin = (size_t)blockIdx.y * TYPES_ROWS, end = begin + TYPES_ROWS;
    float sum[DEV_TYPES_MAX];
    if (column >= C)
        return;
#pragma unroll
    for (int n = 0; n < DEV_TYPES_MAX; n++)
        sum[n] = 0;
    for (size_t r = begin; r < end && r < rows; r++) {
        float v = widen(dx[r * C + column]);
        int32_t type = types[r];
#pragma unroll
        for (int n = 0; n < DEV_TYPES_MAX; n++)
            sum[n] += n == type ? v : 0.0f;
    }
#pragma unroll
    for (int n = 0; n < DEV_TYPES_MAX; n++)
        if (n < count)
            partial[((size_t)blockIdx.y * count + n) * C + column] = sum[n];
}

extern "C" void cuda_types_bwd(struct cuda *c, const struct dev_embed *a,
                               const struct dev_embed_grad *g)
{
    enum { COLUMNS = 64 };
    size_t runs = (a->T + TYPES_ROWS - 1) / TYPES_ROWS, table = a->types_count * a->C;
    float *partial = (float *)cuda_scratch(c, CUDA_SLOT_OP, runs * table * sizeof *partial);
    ASSERT(a->types_count <= DEV_TYPES_MAX);
    if (!partial)
        return;
    dim3 grid(blocks_for(a->C, COLUMNS), (unsigned)runs);
    if (c->dev.model_type == DTYPE_F32)
        LAUNCH(c, types_sums<float>, grid, COLUMNS, 0, partial, (const float *)g->dx, a->types,
               a->T, a->C, (int)a->types_count);
    else
        LAUNCH(c, types_sums<uint16_t>, grid, COLUMNS, 0, partial, (const uint16_t *)g->dx,
               a->types, a->T, a->C, (int)a->types_count);
    cuda_add_partials(c, g->dwtt, partial, runs, table);
}

/* ---- standardization loss ----
 * A block takes 32 channels of STANDARD_ROWS rows and makes their mean and their sum of squares
 * about it; a thread for each channel joins the blocks' in order (Chan, Golub, LeVeque 1983). */
enum { STANDARD_WARPS = 8, STANDARD_ROWS = 256 };

template <typename T>
static __global__ void standard_runs(float *mean, float *square, const T *x, size_t rows, size_t C)
{
    __shared__ float held[2][STANDARD_WARPS][WARP];
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    size_t column = (size_t)blockIdx.x * WARP + lane, begin = (size_t)blockIdx.y * STANDARD_ROWS;
    size_t end = begin + STANDARD_ROWS < rows ? begin + STANDARD_ROWS : rows;
    float middle = 0;
    for (int pass = 0; pass < 2; pass++) {
        float sum = 0;
        if (column < C)
            for (size_t r = begin + warp; r < end; r += STANDARD_WARPS) {
                float v = widen(x[r * C + column]) - middle;
                sum += pass ? v * v : v;
            }
        held[pass][warp][lane] = sum;
        __syncthreads();
        sum = held[pass][0][lane];
        for (int w = 1; w < STANDARD_WARPS; w++)
            sum += held[pass][w][lane];
        if (pass == 0)
            middle = sum / (float)(end - begin);
        if (warp == 0 && column < C)
            (pass ? square : mean)[blockIdx.y * C + column] = pass ? sum : middle;
    }
}

/* term, middle, slope (C): of the loss, and of the gradient middle + slope (x - middle). */
static __global__ void standard_join(double *term, float *middle, float *slope, const float *mean,
                                     const float *square, size_t rows, size_t C, float floor)
{
    size_t i = thread_index();
    double m = 0, s = 0, n = 0;
    if (i >= C)
        return;
    for (size_t begin = 0, run = 0; begin < rows; begin += STANDARD_ROWS, run++) {
        size_t end = begin + STANDARD_ROWS < rows ? begin + STANDARD_ROWS : rows;
        double more = (double)(end - begin);
        double apart = (double)mean[run * C + i] - m;
        m += apart * more / (n + more);
        s += (double)square[run * C + i] + apart * apart * n * more / (n + more);
        n += more;
    }
    term[i] = standard_loss(m, s / n, (double)floor);
    middle[i] = (float)m;
    slope[i] = (float)standard_slope(s / n, (double)floor);
}

static __global__ void standard_sum(double *loss, const double *term, size_t C, const float *weight)
{
    __shared__ double held[WARP];
    double sum = 0;
    for (size_t i = threadIdx.x; i < C; i += THREADS)
        sum += term[i];
    sum = block_sum(sum, held);
    if (threadIdx.x == 0)
        *loss += (double)*weight * sum;
}

template <typename T>
static __global__ void standard_gradient(T *dx, const T *x, const float *middle, const float *slope,
                                         const float *weight, size_t rows, size_t C)
{
    float share = *weight / (float)rows;
    for (size_t i = threadIdx.x; i < C; i += THREADS) {
        size_t at = blockIdx.x * C + i;
        float g = middle[i] + slope[i] * (widen(x[at]) - middle[i]);
        narrow(&dx[at], widen(dx[at]) + share * g);
    }
}

template <typename T>
static void standard_run(struct cuda *c, T *dx, double *loss, const T *x,
                         const struct dev_standard *a)
{
    size_t runs = (a->T + STANDARD_ROWS - 1) / STANDARD_ROWS, C = a->C;
    double *term = (double *)cuda_scratch(c, CUDA_SLOT_OP,
                                          C * sizeof *term + (2 * runs + 2) * C * sizeof(float));
    if (!term)
        return;
    float *middle = (float *)(term + C), *slope = middle + C, *mean = slope + C;
    float *square = mean + runs * C;
    LAUNCH(c, standard_runs<T>, dim3(blocks_for(C, WARP), (unsigned)runs), STANDARD_WARPS * WARP, 0,
           mean, square, x, a->T, C);
    LAUNCH(c, standard_join, blocks_for(C, THREADS), THREADS, 0, term, middle, slope, mean, square,
           a->T, C, a->floor);
    LAUNCH(c, standard_sum, 1, THREADS, 0, loss, term, C, a->weight);
    if (dx)
        LAUNCH(c, standard_gradient<T>, blocks_for(a->T, 1), THREADS, 0, dx, x, middle, slope,
               a->weight, a->T, C);
}

extern "C" void cuda_standard(struct dev *d, void *dx, double *loss, const void *x,
                              const struct dev_standard *a)
{
    struct cuda *c = cuda_of(d);
    ASSERT(a->floor > 0);
    if (!a->T)
        return;
    if (d->model_type == DTYPE_F32)
        standard_run(c, (float *)dx, loss, (const float *)x, a);
    else
        standard_run(c, (uint16_t *)dx, loss, (const uint16_t *)x, a);
}

/* ---- orthogonality of classifiers: a block for each class; products in doubles ---- */
static __device__ double orthogonal_cosine(const double product[DEV_HEADS_MAX][DEV_HEADS_MAX],
                                           int i, int j)
{
    double norms = product[i][i] * product[j][j];
    return norms > 0 ? product[i][j] / sqrt(norms) : 0;
}

static __global__ void orthogonal_class(float *dw, double *term, const float *w,
                                        const struct dev_orthogonal a)
{
    __shared__ double held[WARP];
    __shared__ double product[DEV_HEADS_MAX][DEV_HEADS_MAX], factor[DEV_HEADS_MAX][DEV_HEADS_MAX];
    int heads = (int)a.heads;
    w += blockIdx.x * a.C;
    dw += blockIdx.x * a.C;
    for (int i = 0; i < heads; i++)
        for (int j = 0; j <= i; j++) {
            double dot = 0;
            for (size_t c = threadIdx.x; c < a.C; c += THREADS)
                dot += (double)w[i * a.stride + c] * (double)w[j * a.stride + c];
            dot = block_sum(dot, held);
            if (threadIdx.x == 0)
                product[i][j] = product[j][i] = dot;
            __syncthreads();
        }
    if (threadIdx.x == 0) {
        double sum = 0;
        for (int i = 0; i < heads; i++) {
            factor[i][i] = 0;
            for (int j = 0; j < heads; j++) {
                double x = j == i ? 0 : orthogonal_cosine(product, i, j);
                if (j != i)
                    factor[i][j] =
                        x != 0 ? copysign(1.0, x) / sqrt(product[i][i] * product[j][j]) : 0;
                factor[i][i] -= x != 0 ? fabs(x) / product[i][i] : 0;
                sum += j < i ? fabs(x) : 0;
            }
        }
        term[blockIdx.x] = sum;
    }
    __syncthreads();
    for (size_t c = threadIdx.x; c < a.C; c += THREADS)
        for (int i = 0; i < heads; i++) {
            double sum = 0;
            for (int j = 0; j < heads; j++)
                sum += factor[i][j] * (double)w[j * a.stride + c];
            dw[i * a.stride + c] += (float)((double)*a.weight * sum);
        }
}

extern "C" void cuda_orthogonal(struct dev *d, float *dw, double *loss, const float *w,
                                const struct dev_orthogonal *a)
{
    struct cuda *c = cuda_of(d);
    ASSERT(a->heads <= DEV_HEADS_MAX);
    double *term = (double *)cuda_scratch(c, CUDA_SLOT_OP, a->classes * sizeof *term);
    if (!term)
        return;
    LAUNCH(c, orthogonal_class, blocks_for(a->classes, 1), THREADS, 0, dw, term, w, *a);
    LAUNCH(c, standard_sum, 1, THREADS, 0, loss, term, a->classes, a->weight);
}
