/* SPDX-License-Identifier: Apache-2.0 */
/* The memory-bound ops of the fast set: norms, embedding, elements, sums. Each reads its inputs
 * once and writes its outputs once, 16 bytes at a time where shapes and pointers allow (VEC), one
 * value at a time otherwise. Sums have a fixed order, so every op repeats bit for bit on one kind
 * of GPU. Error bounds are those of kernels/cpu/ops.c.
 */
#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/launch.cuh"

enum { BLOCK_MAX = 1024 };

/* ---- norms: a block holds rows in registers, a thread COLUMNS pieces of VEC columns of each ----
 * Piece j of thread t begins at column (j blockDim.x + t) VEC. The wider the rows, the more pieces
 * a thread has and the fewer rows a block: registers stay the same. */
/* NORM_THREADS: with 96 registers each a processor holds 640, five warps in each quarter.
 * NORM_WIDE: with four pieces a thread has 128 registers; 16,384 columns of bf16 are 512 threads.
 * NORM_SPREAD: from this on two or four pieces, so that a processor holds two blocks. */
enum { NORM_COLUMNS = 4, NORM_THREADS = 640, NORM_WIDE = 512, NORM_SPREAD = 320 };

static constexpr int norm_most(int columns)
{
    return columns == 1 ? NORM_THREADS : columns == 2 ? NORM_SPREAD : NORM_WIDE;
}

static constexpr int norm_blocks(int columns)
{
    return columns == 2 ? NORM_THREADS / NORM_SPREAD : 1;
}

/* Rows of a block. */
static constexpr __host__ __device__ int norm_rows(int columns)
{
    return NORM_COLUMNS / columns;
}

static constexpr __host__ __device__ int norm_bwd_rows(int columns)
{
    return columns == 1 ? 2 : 1;
}

struct norm_fwd_args {
    void *y, *sum;
    float *mean, *rstd;
    const void *x, *residual;
    const float *gain, *bias;
    float eps;
    size_t rows, C;
    bool layer;
    struct dev_dropout branch;
};

/* ROWS sums over the block, in all threads. Two buffers alternate: one __syncthreads for each call.
 */
template <int ROWS>
static __device__ __forceinline__ void norm_sums(float *x, float (*held)[ROWS][WARP], int *turn)
{
    float(*now)[WARP] = held[*turn];
    *turn ^= 1;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float s = warp_sum(x[r]);
        if (threadIdx.x % WARP == 0)
            now[r][threadIdx.x / WARP] = s;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float s = now[r][0];
        for (unsigned w = 1; w < blockDim.x / WARP; w++)
            s += now[r][w];
        x[r] = s;
    }
}

template <int VEC> static __device__ __forceinline__ size_t norm_column(int piece)
{
    return ((size_t)piece * blockDim.x + threadIdx.x) * VEC;
}

/* What a row's norm is taken of, out of x and residual; kept in sum. */
template <typename T, int VEC, bool BRANCH>
static __device__ __forceinline__ void norm_join(float *v, const struct norm_fwd_args &a,
                                                 const T *x, const T *residual, size_t row,
                                                 size_t column)
{
    size_t at = row * a.C + column;
#pragma unroll
    for (int k = 0; k < VEC; k++)
        v[k] = widen(x[k]);
    if (BRANCH)
        drop_apply<VEC>(v, drop_of(a.branch, row), (uint32_t)column);
    if (a.residual) {
#pragma unroll
        for (int k = 0; k < VEC; k++)
            v[k] = rounded<T>(v[k] + widen(residual[k])); /* as backward will read it */
    } else if (BRANCH) {
#pragma unroll
        for (int k = 0; k < VEC; k++)
            v[k] = rounded<T>(v[k]);
    }
    if (BRANCH)
        store<T, VEC>((T *)a.sum + at, v);
    else if (a.sum && (a.residual || a.sum != a.x))
        store<T, VEC>((T *)a.sum + at, v);
}

template <typename T, int VEC, int COLUMNS, bool BRANCH>
static __global__ void __launch_bounds__(norm_most(COLUMNS), norm_blocks(COLUMNS))
    norm_fwd(const struct norm_fwd_args a)
{
    enum { ROWS = norm_rows(COLUMNS) };
    __shared__ float held[2][ROWS][WARP];
    int turn = 0;
    size_t row = (size_t)blockIdx.x * ROWS;
    float v[ROWS][COLUMNS][VEC], mean[ROWS], square[ROWS], C = (float)a.C;
    T x[ROWS][COLUMNS][VEC], residual[ROWS][COLUMNS][VEC];
#pragma unroll
    for (int r = 0; r < ROWS; r++) /* all rows are on their way before the first is stored */
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            size_t column = norm_column<VEC>(j), at = (row + r) * a.C + column;
            if (column < a.C && row + r < a.rows)
                fetch<T, VEC>(x[r][j], (const T *)a.x + at);
            if (column < a.C && row + r < a.rows && a.residual)
                fetch<T, VEC>(residual[r][j], (const T *)a.residual + at);
        }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        mean[r] = 0;
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            size_t column = norm_column<VEC>(j);
#pragma unroll
            for (int k = 0; k < VEC; k++)
                v[r][j][k] = 0;
            if (column < a.C && row + r < a.rows)
                norm_join<T, VEC, BRANCH>(v[r][j], a, x[r][j], residual[r][j], row + r, column);
#pragma unroll
            for (int k = 0; k < VEC; k++)
                mean[r] += v[r][j][k];
        }
    }
    if (a.layer)
        norm_sums<ROWS>(mean, held, &turn);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        mean[r] = a.layer ? mean[r] / C : 0.0f;
        square[r] = 0;
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
            for (int k = 0; k < VEC; k++) {
                float d = v[r][j][k] - mean[r];
                square[r] += norm_column<VEC>(j) < a.C ? d * d : 0.0f;
            }
    }
    norm_sums<ROWS>(square, held, &turn);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        square[r] = 1.0f / sqrtf(square[r] / C + a.eps);
        if (threadIdx.x == 0 && row + r < a.rows) {
            a.rstd[row + r] = square[r];
            if (a.layer)
                a.mean[row + r] = mean[r];
        }
    }
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        size_t column = norm_column<VEC>(j);
        float gain[VEC], bias[VEC];
        if (column >= a.C)
            continue;
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            gain[k] = a.gain[column + k];
            bias[k] = a.bias ? a.bias[column + k] : 0.0f;
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (row + r >= a.rows)
                continue;
#pragma unroll
            for (int k = 0; k < VEC; k++)
                v[r][j][k] = (v[r][j][k] - mean[r]) * square[r] * gain[k] + bias[k];
            store<T, VEC>((T *)a.y + (row + r) * a.C + column, v[r][j]);
        }
    }
}

/* Rows too long for registers (above 16,384 columns of bf16, 8,192 of f32, or 640 that cannot be
 * read 16 bytes at a time): a block for each row, whose threads read it three times. */
template <typename T, bool BRANCH>
static __global__ void norm_fwd_long(const struct norm_fwd_args a)
{
    __shared__ float held[2][WARP];
    size_t row = blockIdx.x, at = row * a.C;
    const T *kept = BRANCH || a.residual ? (const T *)a.sum : (const T *)a.x;
    float mean = 0, square = 0, C = (float)a.C, v;
    for (size_t i = threadIdx.x; i < a.C; i += THREADS) {
        T x = ((const T *)a.x)[at + i], residual = a.residual ? ((const T *)a.residual)[at + i] : x;
        norm_join<T, 1, BRANCH>(&v, a, &x, &residual, row, i);
        mean += v;
    }
    mean = a.layer ? block_sum(mean, held[0]) / C : 0.0f;
    for (size_t i = threadIdx.x; i < a.C; i += THREADS) {
        v = widen(kept[at + i]) - mean;
        square += v * v;
    }
    float rstd = 1.0f / sqrtf(block_sum(square, held[1]) / C + a.eps);
    if (threadIdx.x == 0) {
        a.rstd[row] = rstd;
        if (a.layer)
            a.mean[row] = mean;
    }
    for (size_t i = threadIdx.x; i < a.C; i += THREADS) {
        v = (widen(kept[at + i]) - mean) * rstd * a.gain[i];
        narrow((T *)a.y + at + i, v + (a.bias ? a.bias[i] : 0.0f));
    }
}

/* How the registers of a block hold C columns: COLUMNS (0: they do not) and its threads. */
struct norm_shape {
    int columns;
    unsigned threads;
};

static struct norm_shape norm_shape(size_t C, size_t vec)
{
    static const int columns[] = {1, 2, 4};
    size_t threads = 0;
    for (int i = 0; i < (vec > 1 ? 3 : 1); i++) {
        threads = ((C + vec * columns[i] - 1) / (vec * columns[i]) + WARP - 1) / WARP * WARP;
        size_t most = vec == 1 ? NORM_THREADS : columns[i] < 4 ? NORM_SPREAD : NORM_WIDE;
        if (threads <= most)
            return {columns[i], (unsigned)threads};
    }
    return {0, 0};
}

/* Blocks that a multiprocessor holds. */
static size_t norm_resident(struct norm_shape s)
{
    return (size_t)(norm_most(s.columns) * norm_blocks(s.columns)) / s.threads;
}

/* run(T, VEC, COLUMNS): the kernel for rows in registers. */
#define NORM_BY_TYPE(c, wide, shape, run)                                                          \
    do {                                                                                           \
        bool f32_ = (c)->dev.model_type == DTYPE_F32;                                              \
        if (f32_ && !(wide))                                                                       \
            run(float, 1, 1);                                                                      \
        else if (!(wide))                                                                          \
            run(uint16_t, 1, 1);                                                                   \
        else if (f32_ && (shape).columns == 1)                                                     \
            run(float, 4, 1);                                                                      \
        else if (f32_ && (shape).columns == 2)                                                     \
            run(float, 4, 2);                                                                      \
        else if (f32_)                                                                             \
            run(float, 4, 4);                                                                      \
        else if ((shape).columns == 1)                                                             \
            run(uint16_t, 8, 1);                                                                   \
        else if ((shape).columns == 2)                                                             \
            run(uint16_t, 8, 2);                                                                   \
        else                                                                                       \
            run(uint16_t, 8, 4);                                                                   \
    } while (0)

template <bool BRANCH>
static void norm_fwd_run(struct cuda *c, const struct norm_fwd_args &a, struct norm_shape s,
                         bool wide)
{
#define RUN(type, vec, columns)                                                                    \
    LAUNCH(c, (norm_fwd<type, vec, columns, BRANCH>), blocks_for(a.rows, norm_rows(columns)),      \
           s.threads, 0, a)
    if (s.columns)
        NORM_BY_TYPE(c, wide, s, RUN);
    else if (c->dev.model_type == DTYPE_F32)
        LAUNCH(c, (norm_fwd_long<float, BRANCH>), blocks_for(a.rows, 1), THREADS, 0, a);
    else
        LAUNCH(c, (norm_fwd_long<uint16_t, BRANCH>), blocks_for(a.rows, 1), THREADS, 0, a);
#undef RUN
}

extern "C" void cuda_norm_fwd(struct dev *d, void *y, const void *x, const void *residual,
                              const struct dev_norm_args *n)
{
    struct cuda *c = cuda_of(d);
    struct norm_fwd_args a = {y,       n->sum,  n->mean, n->rstd, x,    residual,
                              n->gain, n->bias, n->eps,  n->T,    n->C, n->kind == DEV_NORM_LAYER,
                              {}};
    ASSERT(n->sum || (!residual && !n->branch));
    if (n->branch)
        a.branch = *n->branch;
    bool wide = n->C % wide_count(c) == 0 && aligned16(y) && aligned16(n->sum) && aligned16(x) &&
                aligned16(residual);
    struct norm_shape shape = norm_shape(n->C, wide ? wide_count(c) : 1);
    if (!n->T)
        return;
    if (n->kind == DEV_NORM_NONE) {
        ASSERT(!y || y == n->sum);
        cuda_norm_none_fwd(c, x, residual, n);
        return;
    }
    if (n->branch)
        norm_fwd_run<true>(c, a, shape, wide);
    else
        norm_fwd_run<false>(c, a, shape, wide);
}

struct norm_bwd_args {
    void *dx;
    const void *dy, *dsum, *sum;
    const float *mean, *rstd, *gain;
    float *partial; /* (gridDim.x, 2, C): dgain, dbias of this block's rows */
    size_t rows, C;
    bool layer;
    void *dbranch;
    struct dev_dropout branch;
};

/* With h = (v - mean) rstd and e = dy gain: dx = dsum + rstd (e - mean(e) - h mean(e h)). */
template <typename T, int VEC, int COLUMNS, bool BRANCH>
static __global__ void __launch_bounds__(norm_most(COLUMNS), norm_blocks(COLUMNS))
    norm_bwd(const struct norm_bwd_args a)
{
    /* Not KEPT: after the sums the row comes again, from the L1 cache. The sums over rows of a
     * thread's columns take its registers. */
    enum { ROWS = norm_bwd_rows(COLUMNS), KEPT = COLUMNS < 4 };
    __shared__ float held[2][2 * ROWS][WARP];
    int turn = 0;
    float C = (float)a.C, gain[COLUMNS][VEC], dgain[COLUMNS][VEC], dbias[COLUMNS][VEC];
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            size_t column = norm_column<VEC>(j);
            gain[j][k] = COLUMNS == 1 && column < a.C ? a.gain[column + k] : 0.0f;
            dgain[j][k] = dbias[j][k] = 0;
        }
    for (size_t row = (size_t)blockIdx.x * ROWS; row < a.rows; row += (size_t)gridDim.x * ROWS) {
        T x[ROWS][COLUMNS][VEC], dy[ROWS][COLUMNS][VEC], dsum[ROWS][COLUMNS][VEC];
        float mean[ROWS], rstd[ROWS], sums[2 * ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                size_t column = norm_column<VEC>(j), at = (row + r) * a.C + column;
#pragma unroll
                for (int k = 0; k < VEC; k++)
                    x[r][j][k] = dy[r][j][k] = dsum[r][j][k] = 0;
                if (row + r < a.rows && column < a.C) {
                    fetch<T, VEC>(x[r][j], (const T *)a.sum + at);
                    fetch<T, VEC>(dy[r][j], (const T *)a.dy + at);
                    if (a.dsum && KEPT)
                        fetch<T, VEC>(dsum[r][j], (const T *)a.dsum + at);
                }
            }
#pragma unroll
        for (int r = 0; r < ROWS; r++) { /* after the rows, which do not wait for them */
            bool real = row + r < a.rows;
            rstd[r] = real ? a.rstd[row + r] : 0.0f;
            mean[r] = a.layer && real ? a.mean[row + r] : 0.0f;
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            sums[r] = sums[ROWS + r] = 0;
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                size_t column = norm_column<VEC>(j);
                if (COLUMNS > 1) /* it has no registers of its own */
#pragma unroll
                    for (int k = 0; k < VEC; k++)
                        gain[j][k] = column < a.C ? a.gain[column + k] : 0.0f;
#pragma unroll
                for (int k = 0; k < VEC; k++) {
                    float d = widen(dy[r][j][k]), e = d * gain[j][k];
                    float h = (widen(x[r][j][k]) - mean[r]) * rstd[r];
                    sums[r] += e;
                    sums[ROWS + r] += e * h;
                    dgain[j][k] += d * h;
                    dbias[j][k] += d;
                }
            }
        }
        norm_sums<2 * ROWS>(sums, held, &turn);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float e_mean = a.layer ? sums[r] / C : 0.0f, eh_mean = sums[ROWS + r] / C;
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                size_t column = norm_column<VEC>(j), at = (row + r) * a.C + column;
                float out[VEC];
                if (column >= a.C || row + r >= a.rows)
                    continue;
                if (!KEPT) {
                    fetch<T, VEC>(x[r][j], (const T *)a.sum + at);
                    fetch<T, VEC>(dy[r][j], (const T *)a.dy + at);
                    if (a.dsum)
                        fetch<T, VEC>(dsum[r][j], (const T *)a.dsum + at);
                }
                if (COLUMNS > 1)
#pragma unroll
                    for (int k = 0; k < VEC; k++)
                        gain[j][k] = a.gain[column + k];
#pragma unroll
                for (int k = 0; k < VEC; k++) {
                    float h = (widen(x[r][j][k]) - mean[r]) * rstd[r];
                    out[k] = widen(dsum[r][j][k]) +
                             rstd[r] * (widen(dy[r][j][k]) * gain[j][k] - e_mean - h * eh_mean);
                }
                store<T, VEC>((T *)a.dx + at, out);
                if (BRANCH) {
                    drop_apply<VEC>(out, drop_of(a.branch, row + r), (uint32_t)column);
                    store<T, VEC>((T *)a.dbranch + at, out);
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        size_t column = norm_column<VEC>(j);
        float *own = a.partial + (size_t)blockIdx.x * 2 * a.C + column;
#pragma unroll
        for (int k = 0; k < VEC && column < a.C; k++) {
            own[k] = dgain[j][k];
            own[a.C + k] = dbias[j][k];
        }
    }
}

/* The same for rows that registers do not hold; each thread has columns of its own in `partial`. */
template <typename T, bool BRANCH>
static __global__ void norm_bwd_long(const struct norm_bwd_args a)
{
    __shared__ float held[2][2][WARP];
    float *own = a.partial + (size_t)blockIdx.x * 2 * a.C, C = (float)a.C;
    int turn = 0;
    for (size_t i = threadIdx.x; i < a.C; i += THREADS)
        own[i] = own[a.C + i] = 0;
    for (size_t row = blockIdx.x; row < a.rows; row += gridDim.x, turn ^= 1) {
        size_t at = row * a.C;
        float rstd = a.rstd[row], mean = a.layer ? a.mean[row] : 0.0f, e_sum = 0, eh_sum = 0;
        for (size_t i = threadIdx.x; i < a.C; i += THREADS) {
            float dy = widen(((const T *)a.dy)[at + i]);
            float h = (widen(((const T *)a.sum)[at + i]) - mean) * rstd;
            e_sum += dy * a.gain[i];
            eh_sum += dy * a.gain[i] * h;
            own[i] += dy * h;
            own[a.C + i] += dy;
        }
        float e_mean = block_sum(e_sum, held[turn][0]) / C;
        float eh_mean = block_sum(eh_sum, held[turn][1]) / C;
        e_mean = a.layer ? e_mean : 0.0f;
        for (size_t i = threadIdx.x; i < a.C; i += THREADS) {
            float dy = widen(((const T *)a.dy)[at + i]);
            float h = (widen(((const T *)a.sum)[at + i]) - mean) * rstd;
            float out = a.dsum ? widen(((const T *)a.dsum)[at + i]) : 0.0f;
            out += rstd * (dy * a.gain[i] - e_mean - h * eh_mean);
            narrow((T *)a.dx + at + i, out);
            if (BRANCH) {
                drop_apply<1>(&out, drop_of(a.branch, row), (uint32_t)i);
                narrow((T *)a.dbranch + at + i, out);
            }
        }
    }
}

/* The first N columns of partial (parts, stride): a thread adds a run of parts of one column, the
 * runs of eight threads are added in order. The sums of the first `split` columns go to `to`, the
 * others to `more`. */
struct parts_sums {
    float *to, *more;
    const float *partial;
    size_t parts, stride, split, N;
};
enum { PARTS_RUNS = 8 };
static __global__ void parts_add(const struct parts_sums a)
{
    __shared__ float held[PARTS_RUNS][WARP];
    unsigned lane = threadIdx.x % WARP, run = threadIdx.x / WARP;
    size_t column = (size_t)blockIdx.x * WARP + lane;
    size_t each = (a.parts + PARTS_RUNS - 1) / PARTS_RUNS, begin = run * each;
    size_t end = begin + each < a.parts ? begin + each : a.parts;
    float sum = 0;
    if (column < a.N)
#pragma unroll 8
        for (size_t p = begin; p < end; p++)
            sum += a.partial[p * a.stride + column];
    held[run][lane] = sum;
    __syncthreads();
    if (run || column >= a.N)
        return;
    for (int r = 1; r < PARTS_RUNS; r++)
        sum += held[r][lane];
    float *to = column < a.split ? a.to + column : a.more + (column - a.split);
    *to += sum;
}

static void parts_add_run(struct cuda *c, const struct parts_sums &a)
{
    LAUNCH(c, parts_add, blocks_for(a.N, WARP), PARTS_RUNS * WARP, 0, a);
}

extern "C" void cuda_add_partials(struct cuda *c, float *to, const float *partial, size_t parts,
                                  size_t N)
{
    parts_add_run(c, {to, NULL, partial, parts, N, N, N});
}

template <bool BRANCH>
static void norm_bwd_run(struct cuda *c, const struct norm_bwd_args &a, unsigned blocks,
                         struct norm_shape s, bool wide)
{
#define RUN(type, vec, columns)                                                                    \
    LAUNCH(c, (norm_bwd<type, vec, columns, BRANCH>), blocks, s.threads, 0, a)
    if (s.columns)
        NORM_BY_TYPE(c, wide, s, RUN);
    else if (c->dev.model_type == DTYPE_F32)
        LAUNCH(c, (norm_bwd_long<float, BRANCH>), blocks, THREADS, 0, a);
    else
        LAUNCH(c, (norm_bwd_long<uint16_t, BRANCH>), blocks, THREADS, 0, a);
#undef RUN
}

extern "C" void cuda_norm_bwd(struct dev *d, const struct dev_norm_args *n,
                              const struct dev_norm_grad *g)
{
    struct cuda *c = cuda_of(d);
    bool wide = n->C % wide_count(c) == 0 && aligned16(g->dx) && aligned16(g->dy) &&
                aligned16(g->dsum) && aligned16(n->sum) && aligned16(g->dbranch);
    struct norm_shape shape = norm_shape(n->C, wide ? wide_count(c) : 1);
    ASSERT(!n->branch == !g->dbranch);
    if (!n->T)
        return;
    if (n->kind == DEV_NORM_NONE) {
        cuda_norm_none_bwd(c, n, g);
        return;
    }
    size_t rows = shape.columns ? (size_t)norm_bwd_rows(shape.columns) : 1;
    size_t blocks = (n->T + rows - 1) / rows;
    size_t most = (size_t)c->gpu.processors * (shape.columns ? norm_resident(shape) : 3);
    blocks = blocks < most ? blocks : most;
    float *partial = (float *)cuda_scratch(c, CUDA_SLOT_OP, blocks * 2 * n->C * sizeof *partial);
    if (!partial)
        return;
    struct norm_bwd_args a = {g->dx,
                              g->dy,
                              g->dsum,
                              n->sum,
                              n->mean,
                              n->rstd,
                              n->gain,
                              partial,
                              n->T,
                              n->C,
                              n->kind == DEV_NORM_LAYER,
                              g->dbranch,
                              {}};
    if (n->branch)
        a.branch = *n->branch;
    if (n->branch)
        norm_bwd_run<true>(c, a, (unsigned)blocks, shape, wide);
    else
        norm_bwd_run<false>(c, a, (unsigned)blocks, shape, wide);
    if (!g->dgain)
        return;
    size_t N = n->bias ? 2 * n->C : n->C; /* gain's columns, then bias's */
    parts_add_run(c, {g->dgain, g->dbias, partial, blocks, 2 * n->C, n->C, N});
}

/* ---- embedding ---- */
template <typename T, int VEC> static __global__ void embed_fwd(T *x, const struct dev_embed a)
{
    size_t t = blockIdx.x, C = a.C;
    const T *token = (const T *)a.wte + (size_t)a.tokens[t] * C;
    const T *position = a.wpe ? (const T *)a.wpe + (size_t)a.positions[t] * C : NULL;
    const T *of_type = a.wtt ? (const T *)a.wtt + (size_t)a.types[t] * C : NULL;
    for (size_t i = threadIdx.x * (size_t)VEC; i < C; i += blockDim.x * (size_t)VEC) {
        float v[VEC], p[VEC];
        load<T, VEC>(v, token + i);
        if (position) {
            load<T, VEC>(p, position + i);
#pragma unroll
            for (int k = 0; k < VEC; k++)
                v[k] += p[k];
        }
        if (of_type) {
            load<T, VEC>(p, of_type + i);
#pragma unroll
            for (int k = 0; k < VEC; k++)
                v[k] += p[k];
        }
        store<T, VEC>(x + t * C + i, v);
    }
}

extern "C" void cuda_embed_fwd(struct dev *d, void *x, const struct dev_embed *a)
{
    struct cuda *c = cuda_of(d);
    bool wide = a->C % wide_count(c) == 0 && aligned16(x) && aligned16(a->wte) &&
                aligned16(a->wpe) && aligned16(a->wtt);
    if (!a->T)
        return;
#define RUN(type, vec)                                                                             \
    LAUNCH(c, (embed_fwd<type, vec>), blocks_for(a->T, 1), threads_for((a->C + vec - 1) / vec), 0, \
           (type *)x, *a)
    BY_TYPE(c, wide, RUN);
#undef RUN
}

/* Backward sorts the positions of the batch by token, stably, so that the rows of one token add up
 * in the order of the batch, without float atomics: a radix sort of 8 bits a pass. A block takes
 * SORT_TILE items, each of its warps a run of them. Integer counts may use atomics: their sum has
 * no order. */
enum { DIGITS = 256, SORT_WARPS = 8, SORT_RUN = 128, SORT_TILE = SORT_WARPS * SORT_RUN };

struct sort_pass {
    const int32_t *keys_in, *order_in; /* order_in NULL: 0, 1, 2, ... */
    int32_t *keys, *order;
    uint32_t *counts; /* (DIGITS, blocks) */
    size_t count;
    int shift;
};

static __device__ __forceinline__ unsigned sort_digit(const struct sort_pass &s, size_t i)
{
    return (unsigned)(s.keys_in[i] >> s.shift) & (DIGITS - 1);
}

static __global__ void sort_count(const struct sort_pass s)
{
    __shared__ uint32_t counts[DIGITS];
    counts[threadIdx.x] = 0;
    __syncthreads();
    size_t begin = (size_t)blockIdx.x * SORT_TILE;
    for (size_t i = begin + threadIdx.x; i < begin + SORT_TILE && i < s.count; i += DIGITS)
        atomicAdd(&counts[sort_digit(s, i)], 1u);
    __syncthreads();
    s.counts[(size_t)threadIdx.x * gridDim.x + blockIdx.x] = counts[threadIdx.x];
}

/* counts becomes its exclusive prefix sum; one block. */
static __global__ void sort_scan(uint32_t *counts, size_t n)
{
    __shared__ uint32_t sums[2][BLOCK_MAX];
    uint32_t carry = 0;
    for (size_t begin = 0; begin < n; begin += BLOCK_MAX) {
        size_t i = begin + threadIdx.x;
        uint32_t own = i < n ? counts[i] : 0;
        int from = 0;
        sums[0][threadIdx.x] = own;
        __syncthreads();
        for (unsigned step = 1; step < BLOCK_MAX; step *= 2, from ^= 1) {
            uint32_t left = threadIdx.x >= step ? sums[from][threadIdx.x - step] : 0;
            sums[from ^ 1][threadIdx.x] = sums[from][threadIdx.x] + left;
            __syncthreads();
        }
        if (i < n)
            counts[i] = carry + sums[from][threadIdx.x] - own;
        carry += sums[from][BLOCK_MAX - 1];
        __syncthreads();
    }
}

static __global__ void sort_scatter(const struct sort_pass s)
{
    __shared__ uint32_t next[SORT_WARPS][DIGITS]; /* where this warp's next item of a digit goes */
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    size_t begin = (size_t)blockIdx.x * SORT_TILE + warp * SORT_RUN;
    for (unsigned w = 0; w < SORT_WARPS; w++)
        next[w][threadIdx.x] = 0;
    __syncthreads();
    for (size_t i = begin + lane; i < begin + SORT_RUN && i < s.count; i += WARP)
        atomicAdd(&next[warp][sort_digit(s, i)], 1u);
    __syncthreads();
    uint32_t place = s.counts[(size_t)threadIdx.x * gridDim.x + blockIdx.x];
    for (unsigned w = 0; w < SORT_WARPS; w++) {
        uint32_t count = next[w][threadIdx.x];
        next[w][threadIdx.x] = place;
        place += count;
    }
    __syncthreads();
    for (size_t i = begin + lane; i - lane < begin + SORT_RUN; i += WARP) {
        bool real = i < s.count;
        unsigned digit = real ? sort_digit(s, i) : DIGITS + lane; /* never equal to another */
        unsigned same = __match_any_sync(WARP_ALL, digit);
        unsigned before = __popc(same & ((1u << lane) - 1));
        uint32_t to = real ? next[warp][digit] + before : 0;
        __syncwarp();
        if (real) {
            s.keys[to] = s.keys_in[i];
            s.order[to] = s.order_in ? s.order_in[i] : (int32_t)i;
            if (same >> lane == 1) /* the last of its digit */
                next[warp][digit] = to + 1;
        }
        __syncwarp();
    }
}

/* Adds rows order[i], order[i+1], ... of dx to row keys[i] of the table while the key stays the
 * same; a thread block for each run of equal keys. Each warp adds every eighth row, four loads in
 * flight, then the sums of the warps are added in order: of 65,536 tokens 3,000 are a comma, and
 * one row after the other would take milliseconds. */
enum { EMBED_WARPS = 8, EMBED_AHEAD = 4 };
struct embed_grad {
    float *table;
    const void *dx;       /* (count, C) model type */
    const int32_t *keys;  /* (count): row of the table; sorted for the kernels */
    const int32_t *order; /* (count): row of dx of each sorted key */
    size_t count, C;
};

template <typename T, int VEC>
static __device__ __forceinline__ void embed_sum(float *sum, const struct embed_grad &a,
                                                 size_t first, size_t column)
{
    const int32_t *keys = a.keys, *order = a.order;
    const T *dx = (const T *)a.dx;
    size_t count = a.count, C = a.C;
    int32_t key = keys[first];
    bool more = true;
    for (size_t i = first + threadIdx.x / WARP; more; i += EMBED_WARPS * EMBED_AHEAD) {
        float v[EMBED_AHEAD][VEC];
#pragma unroll
        for (int n = 0; n < EMBED_AHEAD; n++) {
            size_t at = i + n * EMBED_WARPS;
#pragma unroll
            for (int k = 0; k < VEC; k++)
                v[n][k] = 0;
            more = at < count && keys[at] == key;
            if (more && column < C)
                load<T, VEC>(v[n], dx + (size_t)order[at] * C + column);
        }
#pragma unroll
        for (int n = 0; n < EMBED_AHEAD; n++)
#pragma unroll
            for (int k = 0; k < VEC; k++)
                sum[k] += v[n][k];
    }
}

template <typename T, int VEC>
static __global__ void __launch_bounds__(EMBED_WARPS *WARP) embed_rows(const struct embed_grad a)
{
    __shared__ float held[EMBED_WARPS][VEC][WARP + 1];
    size_t first = blockIdx.x, C = a.C;
    int32_t key = a.keys[first];
    unsigned lane = threadIdx.x % WARP;
    if (first && a.keys[first - 1] == key)
        return;
    for (size_t strip = 0; strip < C; strip += WARP * VEC) {
        float sum[VEC];
#pragma unroll
        for (int k = 0; k < VEC; k++)
            sum[k] = 0;
        embed_sum<T, VEC>(sum, a, first, strip + lane * VEC);
#pragma unroll
        for (int k = 0; k < VEC; k++)
            held[threadIdx.x / WARP][k][lane] = sum[k];
        __syncthreads();
        for (size_t i = threadIdx.x; i < WARP * VEC && strip + i < C; i += EMBED_WARPS * WARP) {
            float total = held[0][i % VEC][i / VEC];
            for (int w = 1; w < EMBED_WARPS; w++)
                total += held[w][i % VEC][i / VEC];
            a.table[(size_t)key * C + strip + i] += total;
        }
        __syncthreads();
    }
}

/* Sorted keys and their order in scratch memory; both valid until the slot's next use. */
static bool sort_keys(struct cuda *c, const int32_t *keys, size_t count, int bits,
                      const int32_t **sorted, const int32_t **order)
{
    unsigned blocks = blocks_for(count, SORT_TILE);
    size_t bytes = (4 * count + (size_t)DIGITS * blocks) * sizeof(int32_t);
    int32_t *buf = (int32_t *)cuda_scratch(c, CUDA_SLOT_OP, bytes);
    if (!buf)
        return false;
    struct sort_pass s = {keys, NULL, buf, buf + count, (uint32_t *)(buf + 4 * count), count, 0};
    for (int pass = 0; s.shift < bits; pass ^= 1, s.shift += 8) {
        s.keys = buf + (pass ? 2 * count : 0);
        s.order = s.keys + count;
        LAUNCH(c, sort_count, blocks, DIGITS, 0, s);
        LAUNCH(c, sort_scan, 1, BLOCK_MAX, 0, s.counts, (size_t)DIGITS * blocks);
        LAUNCH(c, sort_scatter, blocks, SORT_WARPS * WARP, 0, s);
        s.keys_in = s.keys;
        s.order_in = s.order;
    }
    *sorted = s.keys_in;
    *order = s.order_in;
    return true;
}

/* a.keys unsorted, below 2^bits; a.order is not read. */
static void embed_add(struct cuda *c, struct embed_grad a, int bits)
{
    if (!sort_keys(c, a.keys, a.count, bits, &a.keys, &a.order))
        return;
    bool wide = a.C % wide_count(c) == 0 && aligned16(a.dx);
#define RUN(type, vec)                                                                             \
    LAUNCH(c, (embed_rows<type, vec>), blocks_for(a.count, 1), EMBED_WARPS *WARP, 0, a)
    BY_TYPE(c, wide, RUN);
#undef RUN
}

extern "C" void cuda_embed_bwd(struct dev *d, const struct dev_embed *a,
                               const struct dev_embed_grad *g)
{
    struct cuda *c = cuda_of(d);
    int bits = 1;
    while ((a->VP - 1) >> bits)
        bits++;
    if (!a->T)
        return;
    if (g->dwte)
        embed_add(c, {g->dwte, g->dx, a->tokens, NULL, a->T, a->C}, bits);
    if (g->dwpe)
        embed_add(c, {g->dwpe, g->dx, a->positions, NULL, a->T, a->C}, 24); /* 16.7 M positions */
    if (g->dwtt)
        cuda_types_bwd(c, a, g);
}

/* ---- elements ---- */
template <typename T, int VEC>
static __global__ void add(T *y, const T *a, const T *b, size_t count)
{
    size_t i = thread_index() * VEC;
    if (i >= count)
        return;
    float v[VEC], w[VEC];
    load<T, VEC>(v, a + i);
    load<T, VEC>(w, b + i);
#pragma unroll
    for (int k = 0; k < VEC; k++)
        v[k] += w[k];
    store<T, VEC>(y + i, v);
}

extern "C" void cuda_add(struct dev *d, void *y, const void *a, const void *b, size_t count)
{
    struct cuda *c = cuda_of(d);
    bool wide = count % wide_count(c) == 0 && aligned16(y) && aligned16(a) && aligned16(b);
    if (!count)
        return;
#define RUN(type, vec)                                                                             \
    LAUNCH(c, (add<type, vec>), blocks_for(count, THREADS *vec), THREADS, 0, (type *)y,            \
           (const type *)a, (const type *)b, count)
    BY_TYPE(c, wide, RUN);
#undef RUN
}

template <typename T, int VEC> static __global__ void cast(T *out, const float *x, size_t count)
{
    size_t i = thread_index() * VEC;
    if (i >= count)
        return;
    float v[VEC];
    if (VEC == 1) {
        v[0] = x[i];
    } else {
#pragma unroll
        for (int k = 0; k < VEC; k += 4) {
            four f = get4(x, i + k, count, true);
            memcpy(v + k, f.x, sizeof f.x);
        }
    }
    store<T, VEC>(out + i, v);
}

extern "C" void cuda_cast(struct dev *d, void *out, const float *x, size_t count)
{
    struct cuda *c = cuda_of(d);
    bool wide = count % wide_count(c) == 0 && aligned16(out) && aligned16(x);
    if (!count)
        return;
#define RUN(type, vec)                                                                             \
    LAUNCH(c, (cast<type, vec>), blocks_for(count, THREADS *vec), THREADS, 0, (type *)out, x, count)
    BY_TYPE(c, wide, RUN);
#undef RUN
}

static __global__ void scale(float *x, float s, size_t count, bool wide)
{
    size_t i = thread_index() * 4;
    if (i >= count)
        return;
    four v = get4(x, i, count, wide);
#pragma unroll
    for (int k = 0; k < 4; k++)
        v.x[k] *= s;
    put4(x, i, count, wide, v);
}

extern "C" void cuda_scale(struct dev *d, float *x, float s, size_t count)
{
    if (count)
        LAUNCH(cuda_of(d), scale, blocks_for(count, THREADS * 4), THREADS, 0, x, s, count,
               aligned16(x));
}

static __global__ void scale_by(float *x, const float *s, size_t count, bool wide)
{
    size_t i = thread_index() * 4;
    float factor = *s;
    if (i >= count || factor == 1)
        return;
    four v = get4(x, i, count, wide);
#pragma unroll
    for (int k = 0; k < 4; k++)
        v.x[k] *= factor;
    put4(x, i, count, wide, v);
}

extern "C" void cuda_scale_by(struct dev *d, float *x, const float *s, size_t count)
{
    if (count)
        LAUNCH(cuda_of(d), scale_by, blocks_for(count, THREADS * 4), THREADS, 0, x, s, count,
               aligned16(x));
}

static __global__ void add_f32(float *to, const float *from, size_t count, bool wide)
{
    size_t i = thread_index() * 4;
    if (i >= count)
        return;
    four a = get4(to, i, count, wide), b = get4(from, i, count, wide);
#pragma unroll
    for (int k = 0; k < 4; k++)
        a.x[k] += b.x[k];
    put4(to, i, count, wide, a);
}

extern "C" void cuda_add_f32(struct cuda *c, float *to, const float *from, size_t count)
{
    LAUNCH(c, add_f32, blocks_for(count, THREADS * 4), THREADS, 0, to, from, count,
           aligned16(to) && aligned16(from));
}

/* ---- sums ---- */
/* Doubles; a block's run of values does not depend on the GPU, so neither does the sum. */
enum { SUM_RUN = 65536 };

static __global__ void sumsq_runs(double *partial, const float *x, size_t count, bool wide)
{
    __shared__ double held[WARP];
    size_t begin = (size_t)blockIdx.x * SUM_RUN, end = begin + SUM_RUN;
    end = end < count ? end : count;
    double sum = 0;
#pragma unroll 4
    for (size_t i = begin + threadIdx.x * 4; i < end; i += THREADS * 4) {
        four v = get4(x, i, end, wide);
#pragma unroll
        for (int k = 0; k < 4; k++)
            sum += (double)v.x[k] * (double)v.x[k];
    }
    sum = block_sum(sum, held);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

static __global__ void sumsq_total(double *out, const double *partial, size_t parts)
{
    __shared__ double held[WARP];
    double sum = 0;
    for (size_t i = threadIdx.x; i < parts; i += THREADS)
        sum += partial[i];
    sum = block_sum(sum, held);
    if (threadIdx.x == 0)
        *out = sum;
}

extern "C" void cuda_sumsq(struct dev *d, double *out, const float *x, size_t count)
{
    struct cuda *c = cuda_of(d);
    size_t parts = (count + SUM_RUN - 1) / SUM_RUN;
    double *partial = (double *)cuda_scratch(c, CUDA_SLOT_OP, (parts + 1) * sizeof *partial);
    if (!partial)
        return;
    if (parts)
        LAUNCH(c, sumsq_runs, (unsigned)parts, THREADS, 0, partial, x, count, aligned16(x));
    LAUNCH(c, sumsq_total, 1, THREADS, 0, out, partial, parts);
}

static __global__ void clip_scale(float *out, const struct dev_clip a)
{
    *out = opt_gscale(*a.sumsq, *a.loss, *a.targets, a.max_norm);
}

extern "C" void cuda_clip_scale(struct dev *d, float *out, const struct dev_clip *a)
{
    LAUNCH(cuda_of(d), clip_scale, 1, 1, 0, out, *a);
}

/* One block: 65,536 losses are 256 KiB, a few us once in a micro-batch. */
enum { ADD_THREADS = 1024 };

static __global__ void sum_add(double *to, const float *x, size_t count, bool wide)
{
    __shared__ double held[WARP];
    double sum = 0;
#pragma unroll 4
    for (size_t i = threadIdx.x * 4; i < count; i += ADD_THREADS * 4) {
        four v = get4(x, i, count, wide);
        sum += ((double)v.x[0] + (double)v.x[1]) + ((double)v.x[2] + (double)v.x[3]);
    }
    sum = block_sum(sum, held);
    if (threadIdx.x == 0)
        *to += sum;
}

extern "C" void cuda_sum_add(struct dev *d, double *sum, const float *x, size_t count)
{
    LAUNCH(cuda_of(d), sum_add, 1, ADD_THREADS, 0, sum, x, count, aligned16(x));
}
