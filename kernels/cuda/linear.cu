/* SPDX-License-Identifier: Apache-2.0 */
/* The passes around the matrix products: bias and activation where the library has no fused
 * product, the gradient of the activation with the bias gradient, and the fused cross-entropy.
 * Error bounds: kernels/cpu/linear.c.
 */
#include "kernels/cuda/tile.cuh"
#include "kernels/scalar/gelu.h"

enum { THREADS = 256, XENT_THREADS = 1024, XENT_LONG = 16384 };

static __device__ __forceinline__ float act_of(enum dev_act act, float x)
{
    return act == DEV_ACT_GELU_TANH  ? gelu_tanh(x)
           : act == DEV_ACT_GELU_ERF ? gelu_erf(x)
           : act == DEV_ACT_TANH     ? tanh_fast(x)
                                     : x;
}

static __device__ __forceinline__ float act_slope(enum dev_act act, float x)
{
    return act == DEV_ACT_GELU_TANH ? gelu_tanh_slope(x)
           : act == DEV_ACT_TANH    ? tanh_slope(x)
                                    : gelu_erf_slope(x);
}

/* One row for each thread block: bias stays in the L1 cache. */
template <typename T, int VEC>
static __global__ void bias_act(T *y, T *x, const float *bias, enum dev_act act, size_t N)
{
    size_t row = blockIdx.x * N;
    for (size_t n = threadIdx.x * (size_t)VEC; n < N; n += blockDim.x * (size_t)VEC) {
        float v[VEC];
        load<T, VEC>(v, x + row + n);
        if (bias) {
#pragma unroll
            for (int k = 0; k < VEC; k++)
                v[k] = rounded<T>(v[k] + bias[n + k]); /* as backward sees it */
            store<T, VEC>(x + row + n, v);
        }
        if (act == DEV_ACT_NONE)
            continue;
#pragma unroll
        for (int k = 0; k < VEC; k++)
            v[k] = act_of(act, v[k]);
        store<T, VEC>(y + row + n, v);
    }
}

extern "C" void cuda_bias_act(struct cuda *c, const struct cuda_bias_act *a)
{
    bool f32 = c->dev.model_type == DTYPE_F32;
    bool wide = a->N % (f32 ? 4 : 8) == 0 && aligned16(a->y) && aligned16(a->x);
#define RUN(T, VEC)                                                                                \
    LAUNCH(c, (bias_act<T, VEC>), blocks_for(a->rows, 1), THREADS, 0, (T *)a->y, (T *)a->x,        \
           a->bias, a->act, a->N)
    if (f32 && wide)
        RUN(float, 4);
    else if (f32)
        RUN(float, 1);
    else if (wide)
        RUN(uint16_t, 8);
    else
        RUN(uint16_t, 1);
#undef RUN
}

/* A block takes a strip of 32 VEC columns and a run of rows, a warp every eighth of them; the
 * warps' column sums are added in order, then the runs' (cuda_add_partials). */
enum { ACT_WARPS = 8 };

template <typename T, int VEC>
static __global__ void act_bwd(T *dy, float *partial, const struct cuda_act_bwd a)
{
    const T *pre = (const T *)a.pre;
    enum dev_act act = a.act;
    size_t rows = a.rows, N = a.N;
    __shared__ float held[ACT_WARPS][WARP * VEC];
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    size_t column = (blockIdx.x * (size_t)WARP + lane) * VEC;
    size_t each = (rows + gridDim.y - 1) / gridDim.y, begin = blockIdx.y * each;
    size_t end = begin + each < rows ? begin + each : rows;
    float sum[VEC];
#pragma unroll
    for (int k = 0; k < VEC; k++)
        sum[k] = 0;
    for (size_t first = begin + warp; column < N && first < end; first += 2 * ACT_WARPS) {
        T from[2][VEC] = {}, x[2][VEC] = {};
#pragma unroll
        for (int i = 0; i < 2; i++) { /* both rows before the first is stored */
            size_t r = first + i * ACT_WARPS;
            if (r < end)
                fetch<T, VEC>(from[i], dy + r * N + column);
            if (r < end && act != DEV_ACT_NONE)
                fetch<T, VEC>(x[i], pre + r * N + column);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            size_t r = first + i * ACT_WARPS;
            float g[VEC];
            if (r >= end)
                break;
#pragma unroll
            for (int k = 0; k < VEC; k++)
                g[k] = widen(from[i][k]);
            if (act != DEV_ACT_NONE) {
#pragma unroll
                for (int k = 0; k < VEC; k++)
                    g[k] *= act_slope(act, widen(x[i][k]));
                store<T, VEC>(dy + r * N + column, g);
            }
#pragma unroll
            for (int k = 0; k < VEC; k++)
                sum[k] += g[k];
        }
    }
    if (!partial)
        return;
#pragma unroll
    for (int k = 0; k < VEC; k++)
        held[warp][lane * VEC + k] = sum[k];
    __syncthreads();
    size_t first = blockIdx.x * (size_t)WARP * VEC;
    for (unsigned i = threadIdx.x; i < WARP * VEC; i += ACT_WARPS * WARP) {
        float total = held[0][i];
        for (int w = 1; w < ACT_WARPS; w++)
            total += held[w][i];
        if (first + i < N)
            partial[blockIdx.y * N + first + i] = total;
    }
}

extern "C" void cuda_act_bwd(struct cuda *c, const struct cuda_act_bwd *a)
{
    bool f32 = c->dev.model_type == DTYPE_F32;
    size_t N = a->N;
    size_t full = f32 ? 4 : 8,
           vec = N % full == 0 && aligned16(a->dy) && aligned16(a->pre) ? full : 1;
    size_t strips = blocks_for(N, WARP * vec),
           runs = ((size_t)c->gpu.processors * 8 + strips - 1) / strips;
    size_t most = (a->rows + 2 * ACT_WARPS - 1) / (2 * ACT_WARPS);
    runs = runs < most ? runs : most;
    float *partial = NULL;
    if (a->dbias && !(partial = (float *)cuda_scratch(c, CUDA_SLOT_OP, runs * N * sizeof *partial)))
        return;
    dim3 grid((unsigned)strips, (unsigned)runs);
#define RUN(T, VEC) LAUNCH(c, (act_bwd<T, VEC>), grid, ACT_WARPS *WARP, 0, (T *)a->dy, partial, *a)
    if (f32 && vec > 1)
        RUN(float, 4);
    else if (f32)
        RUN(float, 1);
    else if (vec > 1)
        RUN(uint16_t, 8);
    else
        RUN(uint16_t, 1);
#undef RUN
    if (a->dbias)
        cuda_add_partials(c, a->dbias, partial, runs, N);
}

/* ---- cross-entropy: a block for each row, which it reads once ----
 * The first pass leaves the row in shared memory for the second, in the type of the logits: a row
 * of 50304 bf16 is 101 KB, so an H100's multiprocessor holds two. Of a longer row (128256: 257 KB)
 * one block keeps what fits; the rest comes again from the L2 cache, 4 MB of all blocks together.
 */
struct softmax { /* running maximum (of log2 units) and sum of 2^(x - top) */
    float top, sum;
};

static __device__ __forceinline__ void softmax_add(struct softmax *s, const float *x, int n)
{
    float top = s->top;
    for (int k = 0; k < n; k++)
        top = fmaxf(top, x[k]);
    if (top == -INFINITY)
        return;
    float sum = s->sum * exp2_hardware(s->top - top);
    for (int k = 0; k < n; k++)
        sum += exp2_hardware(x[k] - top);
    *s = {top, sum};
}

/* Over the block: the largest top, and the sums brought to it, added in a fixed order. */
static __device__ __forceinline__ struct softmax softmax_block(struct softmax s,
                                                               float (*held)[WARP])
{
    float top = warp_max(s.top);
    if (threadIdx.x % WARP == 0)
        held[0][threadIdx.x / WARP] = top;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / WARP; w++)
        top = fmaxf(top, held[0][w]);
    float sum = s.top == -INFINITY ? 0.0f : s.sum * exp2_hardware(s.top - top);
    return {top, block_sum(sum, held[1])};
}

/* VEC logits, column i the first, plus bias, in units of log2; -INFINITY beyond column V. */
template <typename T, int VEC>
static __device__ __forceinline__ void xent_units(float *v, const struct cuda_xent &a, const T *raw,
                                                  size_t i)
{
#pragma unroll
    for (int k = 0; k < VEC; k++)
        v[k] = widen(raw[k]);
    if (a.bias)
        for (int k = 0; k < VEC && i + k < a.V; k++)
            v[k] += a.bias[i + k];
#pragma unroll
    for (int k = 0; k < VEC; k++)
        v[k] = i + k < a.V ? v[k] * LOG2E : -INFINITY;
}

/* keep: columns that the shared memory holds, a multiple of VEC. A thread reads there only what it
 * wrote. */
template <typename T, int VEC>
static __global__ void __launch_bounds__(XENT_THREADS) xent(const struct cuda_xent a, size_t keep)
{
    enum { AHEAD = VEC > 1 ? 4 : 1 }; /* fetches under way: few threads keep the memory busy */
    __shared__ float held[2][WARP];
    SHARED_BYTES(shared);
    T *kept = (T *)shared, *x = (T *)a.logits + blockIdx.x * a.width;
    size_t V = a.V, width = a.width, first = threadIdx.x * (size_t)VEC;
    size_t stride = blockDim.x * (size_t)VEC;
    int32_t target = a.targets[blockIdx.x];
    struct softmax s = {-INFINITY, 0};
    float at_target = target < 0 ? 0.0f : widen(x[target]) + (a.bias ? a.bias[target] : 0.0f);
    for (size_t i = first; i < V; i += AHEAD * stride) {
        T raw[AHEAD][VEC];
#pragma unroll
        for (int n = 0; n < AHEAD; n++)
            if (i + n * stride < V)
                fetch<T, VEC>(raw[n], x + i + n * stride);
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            size_t at = i + n * stride;
            float v[VEC];
            if (at >= V)
                break;
            if (at < keep)
                put<T, VEC>(kept + at, raw[n]);
            xent_units<T, VEC>(v, a, raw[n], at);
            softmax_add(&s, v, VEC);
        }
    }
    s = softmax_block(s, held);
    if (threadIdx.x == 0)
        a.losses[blockIdx.x] = target < 0 ? 0.0f : logf(s.sum) + s.top * LN2 - at_target;
    if (!a.gradient)
        return;
    float factor = target < 0 ? 0.0f : a.grad_scale / s.sum;
    /* From the last column to the first: what is not kept was read last. */
    for (size_t n = (width + stride - 1) / stride; n-- > 0;) {
        size_t i = n * stride + first;
        T raw[VEC];
        float v[VEC];
        if (i >= width) /* a multiple of VEC */
            continue;
#pragma unroll
        for (int k = 0; k < VEC; k++)
            v[k] = -INFINITY;
        if (i < V) {
            fetch<T, VEC>(raw, i < keep ? kept + i : x + i);
            xent_units<T, VEC>(v, a, raw, i);
        }
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            v[k] = i + k < V ? exp2_hardware(v[k] - s.top) * factor : 0.0f;
            if (i + k == (size_t)target) /* no position where target < 0 */
                v[k] -= a.grad_scale;
        }
        store<T, VEC>(x + i, v);
    }
}

extern "C" void cuda_xent(struct cuda *c, const struct cuda_xent *a)
{
    size_t each = dtype_size(a->type), full = 16 / each;
    bool wide = a->width % full == 0 && aligned16(a->logits);
    /* A multiprocessor's shared memory, without what the system and this kernel take of it. */
    size_t whole = c->gpu.shared_bytes - 2048, half = c->gpu.shared_bytes / 2 - 2048;
    size_t room = a->width * each <= half ? half : whole, keep = room / each / full * full;
    keep = !a->gradient ? 0 : keep < a->width ? keep : a->width;
    size_t shared = (keep * each + 15) / 16 * 16;
    unsigned threads = a->width < XENT_LONG || !a->gradient ? THREADS
                       : room == half                       ? XENT_THREADS / 2
                                                            : XENT_THREADS;
#define RUN(T, VEC)                                                                                \
    SHARED_ALLOW(c, (xent<T, VEC>), shared);                                                       \
    LAUNCH(c, (xent<T, VEC>), blocks_for(a->rows, 1), threads, shared, *a, keep)
    if (a->type == DTYPE_F32 && wide) {
        RUN(float, 4);
    } else if (a->type == DTYPE_F32) {
        RUN(float, 1);
    } else if (wide) {
        RUN(uint16_t, 8);
    } else {
        RUN(uint16_t, 1);
    }
#undef RUN
}
