/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EMULATE_H
#define EMULATE_H
/* A stand-in for the CUDA runtime, included before the .cu files (-include) when they are
 * compiled by the host's C++ compiler: the same kernels run on the CPU, one fiber for each CUDA
 * thread, one block after another. So the kernels' indexing, masks, fragments, barriers and
 * formulas are tested on machines without a GPU. It says nothing about speed, registers, the
 * compiler of CUDA or the memory model.
 *
 * A warp runs as far ahead of the others as barriers allow, lowest warp first in every other launch
 * and highest first in the rest; blocks run in an order of chance; cp.async arrives only when it is
 * waited for; lanes of a warp must meet in the same operation. Bounds, alignment and races of every
 * access: emulate_memory.h.
 */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <tuple>
#include "tests/cuda/fake_cuda.h"

#define CUDA_EMULATED
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static /* the build renames its section: emulate_memory.cc */

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) int4 {
    int32_t x, y, z, w;
};
struct alignas(8) ushort4 {
    uint16_t x, y, z, w;
};
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return {x, y};
}
static inline int4 make_int4(int x, int y, int z, int w)
{
    return {x, y, z, w};
}
static inline ushort4 make_ushort4(uint16_t x, uint16_t y, uint16_t z, uint16_t w)
{
    return {x, y, z, w};
}

enum emulate_op {
    EMULATE_SHUFFLE = 1,
    EMULATE_MATCH,
    EMULATE_SYNCWARP,
    EMULATE_LDMATRIX,
    EMULATE_MMA
};

extern struct uint3 *emulate_thread; /* of the fiber that runs */
extern struct uint3 emulate_block;
extern struct dim3 emulate_block_size, emulate_grid_size;
extern unsigned char *emulate_shared;
#define threadIdx                      (*emulate_thread)
#define blockIdx                       emulate_block
#define blockDim                       emulate_block_size
#define gridDim                        emulate_grid_size
#define SHARED_BYTES(name)             unsigned char *name = emulate_shared
#define SHARED_ALLOW(c, kernel, bytes) emulate_shared_allow((const void *)(kernel), (bytes))

typedef void emulate_kernel(void *arguments);
struct emulate_call {
    emulate_kernel *run;
    void *arguments;
    size_t argument_bytes;
    const void *kernel;
    struct dim3 grid, block;
    size_t shared;
};
void emulate_launch(const struct emulate_call *call);
void emulate_shared_allow(const void *kernel, size_t bytes);
/* Every lane brings `bytes` (at most 32) and gets what all 32 brought; `op` must be the same in
 * all. */
const unsigned char *emulate_meet(enum emulate_op op, const void *mine, size_t bytes);
enum { EMULATE_SLOT = 32 };
int emulate_barrier_or(int mine); /* __syncthreads_or */
void emulate_copy(void *to, const void *from, bool real);
void emulate_commit(void);
void emulate_wait(int left);

/* A launch evaluates its arguments, as CUDA does, then runs the kernel with copies of them. */
template <typename... P> struct emulate_arguments {
    struct emulate_call call;
    void (*kernel)(P...);
    std::tuple<P...> values;
};
template <typename... P> static void emulate_body(void *arguments)
{
    emulate_arguments<P...> *a = (emulate_arguments<P...> *)arguments;
    std::apply(a->kernel, a->values);
}
template <typename... P> static void emulate_run_now(void *self)
{
    emulate_arguments<P...> *a = (emulate_arguments<P...> *)self;
    a->call.arguments = a;
    emulate_launch(&a->call);
}
template <typename... P, typename... A>
static void emulate_run(void *stream, void (*kernel)(P...), struct dim3 grid, struct dim3 block,
                        size_t shared, A... values)
{
    typedef emulate_arguments<P...> arguments;
    const arguments a = {
        {emulate_body<P...>, NULL, sizeof(arguments), (const void *)kernel, grid, block, shared},
        kernel,
        std::tuple<P...>(values...)};
    fake_enqueue((cudaStream_t)stream, emulate_run_now<P...>, &a, sizeof a, 0);
}
#define LAUNCH(c, kernel, grid, threads, shared, ...)                                              \
    do {                                                                                           \
        cuda_set_device(c);                                                                        \
        emulate_run((c)->dev.stream, kernel, (grid), (threads), (shared), __VA_ARGS__);            \
        cuda_check_launch((c), #kernel);                                                           \
    } while (0)

static inline void __syncthreads(void)
{
    emulate_barrier_or(0);
}
static inline int __syncthreads_or(int x)
{
    return emulate_barrier_or(x);
}
static inline void __syncwarp(void)
{
    emulate_meet(EMULATE_SYNCWARP, NULL, 0);
}

template <typename T> static T emulate_shuffle(T x, unsigned from)
{
    T got;
    const unsigned char *all = emulate_meet(EMULATE_SHUFFLE, &x, sizeof x);
    memcpy(&got, all + from % 32 * EMULATE_SLOT, sizeof got);
    return got;
}
template <typename T> static T __shfl_xor_sync(unsigned, T x, int mask)
{
    return emulate_shuffle(x, threadIdx.x % 32 ^ (unsigned)mask);
}
template <typename T> static T __shfl_down_sync(unsigned, T x, int delta, int width = 32)
{
    unsigned lane = threadIdx.x % 32;
    bool inside = lane % (unsigned)width + (unsigned)delta < (unsigned)width;
    return emulate_shuffle(x, inside ? lane + (unsigned)delta : lane);
}
template <typename T> static T __shfl_up_sync(unsigned, T x, unsigned delta)
{
    unsigned lane = threadIdx.x % 32;
    return emulate_shuffle(x, lane < delta ? lane : lane - delta);
}
template <typename T> static T __shfl_sync(unsigned, T x, unsigned lane)
{
    return emulate_shuffle(x, lane);
}
static inline unsigned __match_any_sync(unsigned, unsigned x)
{
    const unsigned char *all = emulate_meet(EMULATE_MATCH, &x, sizeof x);
    unsigned same = 0;
    for (unsigned l = 0; l < 32; l++) {
        unsigned y;
        memcpy(&y, all + l * EMULATE_SLOT, sizeof y);
        same |= (unsigned)(x == y) << l;
    }
    return same;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int max(int a, int b)
{
    return a > b ? a : b;
}
static inline int min(int a, int b)
{
    return a < b ? a : b;
}
unsigned atomicAdd(unsigned *p, unsigned x);
unsigned atomicOr(unsigned *p, unsigned x);
int atomicMax(int *p, int x);
unsigned atomicMin(unsigned *p, unsigned x);
unsigned atomicMax(unsigned *p, unsigned x);
static inline float exp2_hardware(float x)
{
    return x < -126.0f ? 0.0f : exp2f(x);
}

/* ---- the PTX that attention.cu uses ---- */
static inline void emulate_matrices(uint32_t *to, const void *row, bool transposed)
{
    const unsigned char *all = emulate_meet(EMULATE_LDMATRIX, &row, sizeof row);
    unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (unsigned m = 0; m < 4; m++) {
        uint16_t half[2];
        for (unsigned i = 0; i < 2; i++) {
            unsigned r = transposed ? 2 * t + i : g, column = transposed ? g : 2 * t + i;
            const uint16_t *at;
            memcpy(&at, all + (m * 8 + r) * EMULATE_SLOT, sizeof at);
            half[i] = at[column];
        }
        to[m] = half[0] | (uint32_t)half[1] << 16;
    }
}
static inline void ldmatrix(uint32_t *to, const void *row)
{
    emulate_matrices(to, row, false);
}
static inline void ldmatrix_transposed(uint32_t *to, const void *row)
{
    emulate_matrices(to, row, true);
}

static inline float emulate_half(const unsigned char *all, unsigned lane, unsigned word,
                                 unsigned half)
{
    uint16_t h;
    uint32_t bits;
    float x;
    memcpy(&h, all + lane * EMULATE_SLOT + word * 4 + half * 2, sizeof h);
    bits = (uint32_t)h << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline void mma(float *c, const uint32_t *a, const uint32_t *b)
{
    uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const unsigned char *all = emulate_meet(EMULATE_MMA, mine, sizeof mine);
    unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (unsigned i = 0; i < 4; i++) {
        unsigned lower = i / 2, column = 2 * t + i % 2; /* row g + 8 lower */
        for (unsigned k = 0; k < 16; k++)
            c[i] += emulate_half(all, g * 4 + k % 8 / 2, k / 8 * 2 + lower, k % 2) *
                    emulate_half(all, column * 4 + k % 8 / 2, 4 + k / 8, k % 2);
    }
}
static inline void copy_async(void *to, const void *from, bool real)
{
    emulate_copy(to, from, real);
}
static inline void copy_commit(void)
{
    emulate_commit();
}
template <int left> static void copy_wait(void)
{
    emulate_wait(left);
}
static inline uint32_t emulate_round(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (u + 0x7fffu + (u >> 16 & 1)) >> 16;
}
static inline uint32_t pair(float low, float high)
{
    return emulate_round(low) | emulate_round(high) << 16;
}

#endif
