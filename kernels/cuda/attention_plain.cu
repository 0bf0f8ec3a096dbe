/* SPDX-License-Identifier: Apache-2.0 */
/* Attention for what attention.cu does not take (f32; head dimensions that are no multiple of 8, or
 * above 128, up to 256), and what both share. A warp for each row of a head: right, repeatable and
 * slow. |err| <= 1e-5 of the largest value in f32.
 */
#include "kernels/cuda/launch.cuh"

enum { WARPS = 4, EACH = 8, HD_MAX = EACH * WARP };

struct plain_args {
    const void *qkv, *dout, *in;
    void *out;
    const int32_t *cu;
    float *lse;
    const float *dots;
    int sequences, T, HD, C, KVH, group, causal; /* group: heads that share keys and values */
    int reach;                                   /* dev_attention_reach */
    float scale;
};
struct row {
    int token, begin, end, head; /* its sequence is begin .. end */
};

/* The row of this warp; token -1: none. Warps run over tokens first, heads are blockIdx.y. */
static __device__ __forceinline__ struct row row_of(const struct plain_args &a)
{
    struct row r = {(int)(thread_index() / WARP), 0, 0, (int)blockIdx.y};
    if (r.token >= a.T)
        return {-1, 0, 0, 0};
    int low = 0, high = a.sequences; /* cu[low] <= token < cu[high] */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (a.cu[middle] <= r.token)
            low = middle;
        else
            high = middle;
    }
    while (a.cu[low + 1] <= r.token) /* empty sequences */
        low++;
    r.begin = a.cu[low];
    r.end = a.cu[low + 1];
    return r;
}

/* Keys begin .. end that the query r.token sees; queries begin .. end that see the key r.token. */
static __device__ __forceinline__ struct row keys_seen(const struct plain_args &a, struct row r)
{
    r.begin = max(r.begin, r.token - a.reach);
    r.end = min(r.end, r.token + (a.causal ? 0 : a.reach) + 1);
    return r;
}

static __device__ __forceinline__ struct row queries_seeing(const struct plain_args &a,
                                                            struct row r)
{
    r.begin = a.causal ? r.token : max(r.begin, r.token - a.reach);
    r.end = min(r.end, r.token + a.reach + 1);
    return r;
}

/* Lane holds columns lane, lane + 32, ... of a head's row. */
template <typename T>
static __device__ __forceinline__ void head_load(float *to, const void *x, size_t at, int HD)
{
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        to[i] = lane + i * WARP < HD ? widen(((const T *)x)[at + lane + i * WARP]) : 0.0f;
}

template <typename T>
static __device__ __forceinline__ void head_store(void *x, size_t at, const float *from, int HD)
{
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + i * WARP < HD)
            narrow((T *)x + at + lane + i * WARP, from[i]);
}

static __device__ __forceinline__ float dot(const float *a, const float *b)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        sum += a[i] * b[i];
    return warp_sum(sum);
}

/* Where a token's q of a head, or its k (0) or v (1) number `shared`, begins in qkv. */
static __device__ __forceinline__ size_t at_q(const struct plain_args &a, int token, int head)
{
    return (size_t)token * (a.C + 2 * a.KVH * a.HD) + (size_t)head * a.HD;
}

static __device__ __forceinline__ size_t at_kv(const struct plain_args &a, int token, int part,
                                               int shared)
{
    return at_q(a, token, 0) + a.C + (size_t)(part * a.KVH + shared) * a.HD;
}

template <typename T> static __global__ void plain_fwd(const struct plain_args a)
{
    const struct row r = keys_seen(a, row_of(a));
    if (r.token < 0)
        return;
    float q[EACH], x[EACH], o[EACH], top = -INFINITY, sum = 0;
    head_load<T>(q, a.qkv, at_q(a, r.token, r.head), a.HD);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        o[i] = 0;
    int shared = r.head / a.group;
    for (int key = r.begin; key < r.end; key++) {
        head_load<T>(x, a.qkv, at_kv(a, key, 0, shared), a.HD);
        float s = dot(q, x) * a.scale, high = fmaxf(top, s);
        float shrink = expf(top - high), p = expf(s - high);
        top = high;
        sum = sum * shrink + p;
        head_load<T>(x, a.qkv, at_kv(a, key, 1, shared), a.HD);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            o[i] = o[i] * shrink + p * x[i];
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        o[i] /= sum;
    head_store<T>(a.out, (size_t)r.token * a.C + (size_t)r.head * a.HD, o, a.HD);
    if (threadIdx.x % WARP == 0)
        a.lse[(size_t)r.head * a.T + r.token] = top + logf(sum);
}

/* *to = the larger of itself and x: the same result in any order. Floats of 0 and above are
 * in the order of their bits as signed integers, those below 0 in the reverse order as unsigned
 * ones.
 */
static __device__ __forceinline__ void raise(float *to, float x)
{
    x += 0.0f; /* -0 becomes 0 */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x >= 0)
        atomicMax((int *)to, (int)bits);
    else
        atomicMin((unsigned *)to, (unsigned)bits);
}

template <typename T>
static __global__ void plain_largest(float *largest, const struct plain_args a)
{
    const struct row r = keys_seen(a, row_of(a));
    if (r.token < 0)
        return;
    float q[EACH], x[EACH], top = -INFINITY;
    head_load<T>(q, a.qkv, at_q(a, r.token, r.head), a.HD);
    for (int key = r.begin; key < r.end; key++) {
        head_load<T>(x, a.qkv, at_kv(a, key, 0, r.head / a.group), a.HD);
        top = fmaxf(top, dot(q, x) * a.scale);
    }
    if (threadIdx.x % WARP == 0)
        raise(largest, top);
}

/* dots (NH, T) = sum over a head's columns of dout out. `lanes` neighbouring lanes, a power of two
 * up to a warp, take a row of a head; a warp WARP / lanes tokens of one head, blockIdx.y. */
template <typename T, int VEC>
static __global__ void plain_dots(float *dots, const struct plain_args a, int lanes)
{
    size_t token = thread_index() / lanes, lane = threadIdx.x % (unsigned)lanes;
    size_t at = token * a.C + (size_t)blockIdx.y * a.HD;
    float sum = 0;
    for (int i = (int)lane * VEC; token < (size_t)a.T && i < a.HD; i += lanes * VEC) {
        float x[VEC], y[VEC];
        load<T, VEC>(x, (const T *)a.dout + at + i);
        load<T, VEC>(y, (const T *)a.in + at + i);
#pragma unroll
        for (int k = 0; k < VEC; k++)
            sum += x[k] * y[k];
    }
    for (int half = lanes / 2; half; half /= 2)
        sum += __shfl_xor_sync(WARP_ALL, sum, half);
    if (lane == 0 && token < (size_t)a.T)
        dots[(size_t)blockIdx.y * a.T + token] = sum;
}

template <typename T> static __global__ void plain_bwd_queries(const struct plain_args a)
{
    const struct row r = keys_seen(a, row_of(a));
    if (r.token < 0)
        return;
    float q[EACH], dout[EACH], k[EACH], v[EACH], dq[EACH];
    head_load<T>(q, a.qkv, at_q(a, r.token, r.head), a.HD);
    head_load<T>(dout, a.dout, (size_t)r.token * a.C + (size_t)r.head * a.HD, a.HD);
    size_t at = (size_t)r.head * a.T + r.token;
    float lse = a.lse[at], dots = a.dots[at];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        dq[i] = 0;
    int shared = r.head / a.group;
    for (int key = r.begin; key < r.end; key++) {
        head_load<T>(k, a.qkv, at_kv(a, key, 0, shared), a.HD);
        head_load<T>(v, a.qkv, at_kv(a, key, 1, shared), a.HD);
        float ds = expf(dot(q, k) * a.scale - lse) * (dot(dout, v) - dots) * a.scale;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            dq[i] += ds * k[i];
    }
    head_store<T>(a.out, at_q(a, r.token, r.head), dq, a.HD);
}

/* r.head numbers keys and values: all heads that share them add up here, in order. */
template <typename T> static __global__ void plain_bwd_keys(const struct plain_args a)
{
    const struct row r = queries_seeing(a, row_of(a));
    if (r.token < 0)
        return;
    float k[EACH], v[EACH], q[EACH], dout[EACH], dk[EACH], dv[EACH];
    head_load<T>(k, a.qkv, at_kv(a, r.token, 0, r.head), a.HD);
    head_load<T>(v, a.qkv, at_kv(a, r.token, 1, r.head), a.HD);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        dk[i] = dv[i] = 0;
    for (int head = r.head * a.group; head < (r.head + 1) * a.group; head++)
        for (int query = r.begin; query < r.end; query++) {
            head_load<T>(q, a.qkv, at_q(a, query, head), a.HD);
            head_load<T>(dout, a.dout, (size_t)query * a.C + (size_t)head * a.HD, a.HD);
            size_t at = (size_t)head * a.T + query;
            float p = expf(dot(q, k) * a.scale - a.lse[at]);
            float ds = p * (dot(dout, v) - a.dots[at]) * a.scale;
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                dk[i] += ds * q[i];
                dv[i] += p * dout[i];
            }
        }
    head_store<T>(a.out, at_kv(a, r.token, 0, r.head), dk, a.HD);
    head_store<T>(a.out, at_kv(a, r.token, 1, r.head), dv, a.HD);
}

static struct plain_args args_of(const struct dev_attention *a)
{
    struct plain_args x = {};
    x.qkv = a->qkv;
    x.cu = a->cu_seqlens;
    x.lse = a->lse;
    x.sequences = (int)a->sequences, x.T = (int)a->T, x.HD = (int)a->HD, x.C = (int)(a->NH * a->HD);
    x.KVH = (int)a->KVH, x.group = (int)(a->NH / a->KVH);
    x.causal = a->causal;
    x.reach = (int)dev_attention_reach(a);
    x.scale = a->scale;
    return x;
}

static bool fits(struct cuda *c, const struct dev_attention *a)
{
    if (a->HD <= HD_MAX)
        return true;
    cuda_fail(c, err_set(ERR_UNSUPPORTED,
                         "attention on the GPU takes head dimensions up to %d, this is %zu", HD_MAX,
                         a->HD));
    return false;
}

#define RUN(c, a, heads, kernel, ...)                                                              \
    do {                                                                                           \
        dim3 grid_(blocks_for((a)->T, WARPS), (unsigned)(heads));                                  \
        if ((c)->dev.model_type == DTYPE_F32)                                                      \
            LAUNCH(c, kernel<float>, grid_, WARPS *WARP, 0, __VA_ARGS__);                          \
        else                                                                                       \
            LAUNCH(c, kernel<uint16_t>, grid_, WARPS *WARP, 0, __VA_ARGS__);                       \
    } while (0)

extern "C" void cuda_attention_plain_fwd(struct cuda *c, void *out, const struct dev_attention *a)
{
    struct plain_args x = args_of(a);
    x.out = out;
    if (fits(c, a))
        RUN(c, a, a->NH, plain_fwd, x);
}

extern "C" void cuda_attention_largest(struct dev *d, float *largest, const struct dev_attention *a)
{
    struct cuda *c = cuda_of(d);
    if (a->T && fits(c, a))
        RUN(c, a, a->NH, plain_largest, largest, args_of(a));
}

extern "C" void cuda_attention_dots(struct cuda *c, float *dots, const void *dout, const void *out,
                                    const struct dev_attention *a)
{
    struct plain_args x = args_of(a);
    x.dout = dout;
    x.in = out;
    size_t vec = wide_count(c);
    bool wide = a->HD % vec == 0 && aligned16(dout) && aligned16(out);
    int lanes = 1;
    while (lanes < WARP && lanes * (wide ? vec : 1) < a->HD)
        lanes *= 2;
#define DOTS(type, vec)                                                                            \
    LAUNCH(c, (plain_dots<type, vec>), dim3(blocks_for(lanes * a->T, THREADS), (unsigned)a->NH),   \
           THREADS, 0, dots, x, lanes)
    if (fits(c, a))
        BY_TYPE(c, wide, DOTS);
#undef DOTS
}

extern "C" void cuda_attention_plain_bwd(struct cuda *c, void *dqkv, const void *dout,
                                         const void *out, const float *dots,
                                         const struct dev_attention *a)
{
    struct plain_args x = args_of(a);
    x.out = dqkv;
    x.dout = dout;
    x.in = out;
    x.dots = dots;
    if (!fits(c, a))
        return;
    RUN(c, a, a->NH, plain_bwd_queries, x);
    RUN(c, a, a->KVH, plain_bwd_keys, x);
}
