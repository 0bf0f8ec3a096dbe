/* SPDX-License-Identifier: Apache-2.0 */
/* What a Llama block adds to GPT-2's passes over memory: rotary positions and the gated unit. Each
 * reads its inputs once and writes its outputs once, 16 bytes at a time where shapes and pointers
 * allow (VEC), one value at a time otherwise. No sums, so the bits do not depend on the cut. Error
 * bounds are those of kernels/cpu/ops.c.
 */
#include "kernels/cuda/launch.cuh"
#include "kernels/scalar/gated.h"

/* ---- rotary positions: a block for each token, so that its row of the table stays in L1 --------
 */
struct rope_args {
    void *x;
    const float *table;
    const int32_t *positions;
    size_t stride;
    unsigned heads, half;
    float sign;
};

/* VEC values of a table, 16 bytes at a time. */
template <int VEC> static __device__ __forceinline__ void table_load(float *to, const float *from)
{
    enum { EACH = VEC == 1 ? 1 : 4 };
#pragma unroll
    for (int k = 0; k < VEC; k += EACH)
        load<float, EACH>(to + k, from + k);
}

template <typename T, int VEC> static __global__ void rope(const struct rope_args a)
{
    T *row = (T *)a.x + blockIdx.x * a.stride;
    const float *angles = a.table + (size_t)a.positions[blockIdx.x] * (2 * a.half);
    unsigned chunks = a.half / VEC;
    for (unsigned n = threadIdx.x; n < a.heads * chunks; n += blockDim.x) {
        unsigned i = n % chunks * VEC;
        T *at = row + (size_t)(n / chunks) * (2 * a.half) + i;
        float x[VEC], y[VEC], cosine[VEC], sine[VEC];
        load<T, VEC>(x, at);
        load<T, VEC>(y, at + a.half);
        table_load<VEC>(cosine, angles + i);
        table_load<VEC>(sine, angles + a.half + i);
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            float u = x[k], v = y[k], s = a.sign * sine[k];
            x[k] = u * cosine[k] - v * s;
            y[k] = v * cosine[k] + u * s;
        }
        store<T, VEC>(at, x);
        store<T, VEC>(at + a.half, y);
    }
}

extern "C" void cuda_rope(struct dev *d, void *x, const struct dev_rope *r)
{
    struct cuda *c = cuda_of(d);
    size_t half = r->HD / 2, unit = half | r->stride; /* multiples of a power of two: both are */
    struct rope_args a = {x,
                          r->table,
                          r->positions,
                          r->stride,
                          (unsigned)r->heads,
                          (unsigned)half,
                          r->inverse ? -1.0f : 1.0f};
    ASSERT(r->HD % 2 == 0 && r->heads * r->HD <= r->stride);
    if (!r->T)
        return;
#define RUN(type, vec)                                                                             \
    LAUNCH(c, (rope<type, vec>), blocks_for(r->T, 1), threads_for(r->heads *(half / (vec))), 0, a)
    BY_TYPE(c, unit % wide_count(c) == 0 && aligned16(x) && aligned16(r->table), RUN);
#undef RUN
}

/* ---- gated unit: a block for each token --------------------------------------------------------
 */
template <enum dev_gate KIND, typename T, int VEC>
static __global__ void gated_fwd(T *y, const T *x, size_t F)
{
    const T *row = x + blockIdx.x * 2 * F;
    for (size_t i = threadIdx.x * (size_t)VEC; i < F; i += blockDim.x * (size_t)VEC) {
        float gate[VEC], up[VEC];
        load<T, VEC>(gate, row + i);
        load<T, VEC>(up, row + F + i);
#pragma unroll
        for (int k = 0; k < VEC; k++)
            gate[k] = gated(KIND, gate[k], up[k]);
        store<T, VEC>(y + blockIdx.x * F + i, gate);
    }
}

/* dx may be x: a thread reads what it overwrites. */
template <enum dev_gate KIND, typename T, int VEC>
static __global__ void gated_bwd(T *dx, const T *dy, const T *x, size_t F)
{
    size_t row = blockIdx.x * 2 * F;
    for (size_t i = threadIdx.x * (size_t)VEC; i < F; i += blockDim.x * (size_t)VEC) {
        float gate[VEC], up[VEC], d[VEC], dgate[VEC], dup[VEC];
        load<T, VEC>(gate, x + row + i);
        load<T, VEC>(up, x + row + F + i);
        load<T, VEC>(d, dy + blockIdx.x * F + i);
#pragma unroll
        for (int k = 0; k < VEC; k++)
            gated_slopes(KIND, &dgate[k], &dup[k], d[k], gate[k], up[k]);
        store<T, VEC>(dx + row + i, dgate);
        store<T, VEC>(dx + row + F + i, dup);
    }
}

template <enum dev_gate KIND>
static void gated_fwd_run(struct cuda *c, void *y, const void *x, const struct dev_gated *a)
{
#define RUN(type, vec)                                                                             \
    LAUNCH(c, (gated_fwd<KIND, type, vec>), blocks_for(a->T, 1), threads_for(a->F / (vec)), 0,     \
           (type *)y, (const type *)x, a->F)
    BY_TYPE(c, a->F % wide_count(c) == 0 && aligned16(y) && aligned16(x), RUN);
#undef RUN
}

template <enum dev_gate KIND>
static void gated_bwd_run(struct cuda *c, void *dx, const void *dy, const void *x,
                          const struct dev_gated *a)
{
#define RUN(type, vec)                                                                             \
    LAUNCH(c, (gated_bwd<KIND, type, vec>), blocks_for(a->T, 1), threads_for(a->F / (vec)), 0,     \
           (type *)dx, (const type *)dy, (const type *)x, a->F)
    BY_TYPE(c, a->F % wide_count(c) == 0 && aligned16(dx) && aligned16(dy) && aligned16(x), RUN);
#undef RUN
}

extern "C" void cuda_gated_fwd(struct dev *d, void *y, const void *x, const struct dev_gated *a)
{
    struct cuda *c = cuda_of(d);
    if (!a->T)
        return;
    if (a->gate == DEV_GATE_SILU)
        gated_fwd_run<DEV_GATE_SILU>(c, y, x, a);
    else if (a->gate == DEV_GATE_GELU_ERF)
        gated_fwd_run<DEV_GATE_GELU_ERF>(c, y, x, a);
    else
        gated_fwd_run<DEV_GATE_GELU_TANH>(c, y, x, a);
}

extern "C" void cuda_gated_bwd(struct dev *d, void *dx, const void *dy, const void *x,
                               const struct dev_gated *a)
{
    struct cuda *c = cuda_of(d);
    if (!a->T)
        return;
    if (a->gate == DEV_GATE_SILU)
        gated_bwd_run<DEV_GATE_SILU>(c, dx, dy, x, a);
    else if (a->gate == DEV_GATE_GELU_ERF)
        gated_bwd_run<DEV_GATE_GELU_ERF>(c, dx, dy, x, a);
    else
        gated_bwd_run<DEV_GATE_GELU_TANH>(c, dx, dy, x, a);
}
