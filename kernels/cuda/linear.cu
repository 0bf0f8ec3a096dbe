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
    size_t rows = a.rows, N = a.N, stride = a.stride;
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
                fetch<T, VEC>(from[i], dy + r * stride + column);
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
                store<T, VEC>(dy + r * stride + column, g);
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
    size_t N = a->N, stride = a->stride ? a->stride : N;
    struct cuda_act_bwd args = *a;
    args.stride = stride;
    size_t full = f32 ? 4 : 8,
           vec = (N | stride) % full == 0 && aligned16(a->dy) && aligned16(a->pre) ? full : 1;
    size_t strips = blocks_for(N, WARP * vec),
           runs = ((size_t)c->gpu.processors * 8 + strips - 1) / strips;
    size_t most = (a->rows + 2 * ACT_WARPS - 1) / (2 * ACT_WARPS);
    runs = runs < most ? runs : most;
    float *partial = NULL;
    if (a->dbias && !(partial = (float *)cuda_scratch(c, CUDA_SLOT_OP, runs * N * sizeof *partial)))
        return;
    dim3 grid((unsigned)strips, (unsigned)runs);
#define RUN(T, VEC)                                                                                \
    LAUNCH(c, (act_bwd<T, VEC>), grid, ACT_WARPS *WARP, 0, (T *)a->dy, partial, args)
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

/* ---- cross-entropy: a block for each row; two passes over it, the second from the L2 cache ----
 * A multiprocessor holds one block if rows are long: 132 rows of 50257 logits are 27 MB, which stay
 * in the L2 cache of an H100 (50 MB) until the second pass. With four blocks they would be 106 MB.
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

/* VEC f32 values in T: 16 bytes of f32, 8 of bf16. */
template <typename T, int VEC>
static __device__ __forceinline__ void store_part(T *to, const float *v)
{
    if (VEC == 4 && sizeof(T) == 2) {
        *(ushort4 *)to = make_ushort4(bf16_round(v[0]), bf16_round(v[VEC / 4]),
                                      bf16_round(v[VEC / 2]), bf16_round(v[VEC - 1]));
    } else {
        store<T, VEC>(to, v);
    }
}

/* VEC logits from column i on, plus bias, in units of log2; -INFINITY beyond column V. */
template <int VEC>
static __device__ __forceinline__ void xent_load(float *v, const struct cuda_xent &a,
                                                 const float *x, size_t i)
{
#pragma unroll
    for (int k = 0; k < VEC; k++)
        v[k] = -INFINITY;
    if (VEC > 1 && i + VEC <= a.V)
        load<float, VEC>(v, x + i);
    else
        for (int k = 0; k < VEC && i + k < a.V; k++)
            v[k] = x[i + k];
    if (a.bias)
        for (int k = 0; k < VEC && i + k < a.V; k++)
            v[k] += a.bias[i + k];
#pragma unroll
    for (int k = 0; k < VEC; k++)
        v[k] *= LOG2E;
}

template <typename T, int VEC>
static __global__ void __launch_bounds__(XENT_THREADS)
    xent(T *grad, size_t grad_stride, const struct cuda_xent a)
{
    __shared__ float held[2][WARP];
    size_t row = blockIdx.x;
    size_t V = a.V, width = a.width;
    float *x = a.logits + row * width, grad_scale = a.grad_scale;
    const float *bias = a.bias;
    int32_t target = a.targets[row];
    struct softmax s = {-INFINITY, 0};
    float at_target = target < 0 ? 0.0f : x[target] + (bias ? bias[target] : 0.0f);
    size_t stride = blockDim.x * (size_t)VEC;
    /* Two fetches a turn: one block alone must keep the memory busy. */
    for (size_t i = threadIdx.x * (size_t)VEC; i < V; i += 2 * stride) {
        float v[2][VEC];
        xent_load<VEC>(v[0], a, x, i);
        xent_load<VEC>(v[1], a, x, i + stride);
        softmax_add(&s, v[0], VEC);
        softmax_add(&s, v[1], VEC);
    }
    s = softmax_block(s, held);
    if (threadIdx.x == 0)
        a.losses[row] = target < 0 ? 0.0f : logf(s.sum) + s.top * LN2 - at_target;
    if (!grad)
        return;
    float factor = target < 0 ? 0.0f : grad_scale / s.sum;
    size_t steps = (width + stride - 1) / stride;
    /* From the last column to the first: the last logits read are still in the cache. Value i of a
     * bf16 gradient overwrites logit (width + i) / 2 >= i, so all threads must have read the logits
     * of this step and later ones before one of these is written. */
    for (size_t n = steps; n-- > 0;) {
        size_t i = n * stride + threadIdx.x * (size_t)VEC;
        bool mine = i < width; /* a multiple of VEC */
        float v[VEC];
        if (mine)
            load<float, VEC>(v, x + i);
        if (sizeof(T) == 2)
            __syncthreads();
        if (!mine)
            continue;
        if (bias)
            for (int k = 0; k < VEC && i + k < V; k++)
                v[k] += bias[i + k];
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            v[k] = i + k < V ? exp2_hardware(v[k] * LOG2E - s.top) * factor : 0.0f;
            if (i + k == (size_t)target) /* no position where target < 0 */
                v[k] -= grad_scale;
        }
        store_part<T, VEC>(grad + row * grad_stride + i, v);
    }
}

extern "C" void cuda_xent(struct cuda *c, const struct cuda_xent *a)
{
    bool f32 = c->dev.model_type == DTYPE_F32;
    const struct cuda_xent_grad grad = cuda_xent_grad(c, a->logits, a->width);
    bool wide = a->width % 4 == 0 && aligned16(a->logits);
    /* More than half of a multiprocessor's shared memory, which the kernel does not use: so only
     * one block is resident. */
    bool alone = a->width >= XENT_LONG;
    size_t shared = alone ? c->gpu.shared_bytes / 2 + 1024 : 0;
#define RUN(T, VEC)                                                                                \
    SHARED_ALLOW(c, (xent<T, VEC>), shared);                                                       \
    LAUNCH(c, (xent<T, VEC>), blocks_for(a->rows, 1), alone ? XENT_THREADS : THREADS, shared,      \
           a->gradient ? (T *)grad.at : NULL, grad.stride, *a)
    if (f32 && wide) {
        RUN(float, 4);
    } else if (f32) {
        RUN(float, 1);
    } else if (wide) {
        RUN(uint16_t, 4);
    } else {
        RUN(uint16_t, 1);
    }
#undef RUN
}
