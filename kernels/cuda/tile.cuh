/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TILE_CUH
#define TILE_CUH
/* Shared by the .cu files: launches, loads and stores of four values or of 16 bytes, sums over
 * warps and blocks in a fixed order. tests/cuda/emulate.h can replace the CUDA runtime: it runs the
 * same kernels on the host, one fiber for each thread, and tests their logic without a GPU.
 * Therefore launches, dynamic shared memory and PTX use the macros and wrappers of this file. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifndef CUDA_EMULATED
#include <cuda_runtime.h>
#endif

/* The C headers, in C++. stdnoreturn.h defines nothing there. */
#define noreturn [[noreturn]]
extern "C" {
#include "kernels/cuda/cuda.h"
}
#undef noreturn
#include "kernels/base/bf16.h"

enum { WARP = 32 };
#define WARP_ALL 0xffffffffu

#ifndef CUDA_EMULATED
#define LAUNCH(c, kernel, grid, threads, shared, ...)                                              \
    do {                                                                                           \
        cuda_set_device(c);                                                                        \
        kernel<<<(grid), (threads), (shared), (cudaStream_t)(c)->dev.stream>>>(__VA_ARGS__);       \
        cuda_check_launch((c), #kernel);                                                           \
    } while (0)
#define SHARED_BYTES(name) extern __shared__ __align__(128) unsigned char name[]
/* A kernel with more than 48 KiB of dynamic shared memory must request it once for each GPU. */
#define SHARED_ALLOW(c, kernel, bytes)                                                             \
    do {                                                                                           \
        cuda_set_device(c);                                                                        \
        (void)cudaFuncSetAttribute((const void *)(kernel),                                         \
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes));     \
    } while (0)
#endif

/* 2^x, relative error 2^-22, for -126 < x; smaller results become 0. The hardware's instruction:
 * exp2f would add code for denormals that a softmax does not need. */
#ifndef CUDA_EMULATED
static __device__ __forceinline__ float exp2_hardware(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Two floats as bf16, low in the low half. */
static __device__ __forceinline__ uint32_t pair(float low, float high)
{
    uint32_t p;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(high), "f"(low));
    return p;
}
#endif
#define LOG2E 1.44269504f
#define LN2   0.693147181f

static inline unsigned blocks_for(size_t count, size_t each)
{
    size_t blocks = (count + each - 1) / each;
    ASSERT(blocks < ((size_t)1 << 31));
    return (unsigned)blocks;
}

static __device__ __forceinline__ size_t thread_index(void)
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* ---- four f32 values at element i; wide: all pointers of the kernel are 16-byte aligned ---------
 */
struct four {
    float x[4];
};

static inline bool aligned16(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

static __device__ __forceinline__ four get4(const float *p, size_t i, size_t count, bool wide)
{
    four f;
    if (wide && i + 4 <= count) {
        float4 v = *(const float4 *)(p + i);
        f.x[0] = v.x, f.x[1] = v.y, f.x[2] = v.z, f.x[3] = v.w;
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++)
            f.x[k] = i + k < count ? p[i + k] : 0.0f;
    }
    return f;
}

static __device__ __forceinline__ void put4(float *p, size_t i, size_t count, bool wide, four f)
{
    if (wide && i + 4 <= count) {
        *(float4 *)(p + i) = make_float4(f.x[0], f.x[1], f.x[2], f.x[3]);
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (i + k < count)
                p[i + k] = f.x[k];
    }
}

/* ---- VEC values of the model type: T is float or uint16_t (bf16). VEC values are 16 bytes, or 1
 * ---- */
static __device__ __forceinline__ float widen(float x)
{
    return x;
}
static __device__ __forceinline__ float widen(uint16_t x)
{
    return bf16_float(x);
}
static __device__ __forceinline__ void narrow(float *to, float x)
{
    *to = x;
}
static __device__ __forceinline__ void narrow(uint16_t *to, float x)
{
    *to = (uint16_t)pair(x, 0.0f);
}

/* As they lie in memory: half the registers of bf16 that is widened. */
template <typename T, int VEC> static __device__ __forceinline__ void fetch(T *to, const T *from)
{
    if (VEC == 1) {
        to[0] = *from;
    } else {
        uint4 raw = *(const uint4 *)from;
        memcpy(to, &raw, sizeof raw);
    }
}

template <typename T, int VEC> static __device__ __forceinline__ void put(T *to, const T *from)
{
    if (VEC == 1) {
        *to = from[0];
    } else {
        uint4 raw;
        memcpy(&raw, from, sizeof raw);
        *(uint4 *)to = raw;
    }
}

template <typename T, int VEC> static __device__ __forceinline__ void load(float *to, const T *from)
{
    T v[VEC];
    fetch<T, VEC>(v, from);
#pragma unroll
    for (int k = 0; k < VEC; k++)
        to[k] = widen(v[k]);
}

template <typename T, int VEC>
static __device__ __forceinline__ void store(T *to, const float *from)
{
    if (VEC == 1) {
        narrow(to, *from);
    } else {
        uint32_t v[4];
        uint4 raw;
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (sizeof(T) == 2)
                v[k] = pair(from[2 * k % VEC], from[(2 * k + 1) % VEC]);
            else
                memcpy(&v[k], from + k % VEC, sizeof v[k]);
        memcpy(&raw, v, sizeof raw);
        *(uint4 *)to = raw;
    }
}

/* The value after rounding to the model type. */
template <typename T> static __device__ __forceinline__ float rounded(float x)
{
    T held;
    narrow(&held, x);
    return widen(held);
}

/* ---- sums in a fixed order ---- */
static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int half = WARP / 2; half; half /= 2)
        x += __shfl_xor_sync(WARP_ALL, x, half);
    return x; /* the same bits in all lanes: a + b = b + a */
}

static __device__ __forceinline__ double warp_sum(double x)
{
#pragma unroll
    for (int half = WARP / 2; half; half /= 2)
        x += __shfl_xor_sync(WARP_ALL, x, half);
    return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int half = WARP / 2; half; half /= 2)
        x = fmaxf(x, __shfl_xor_sync(WARP_ALL, x, half));
    return x;
}

/* Sum over the block; every thread gets it. held: one T for each warp (32), reused by the next call
 * only after another __syncthreads. blockDim.x is a multiple of 32. */
template <typename T> static __device__ __forceinline__ T block_sum(T x, T *held)
{
    x = warp_sum(x);
    if (threadIdx.x % WARP == 0)
        held[threadIdx.x / WARP] = x;
    __syncthreads();
    T sum = held[0];
    for (unsigned w = 1; w < blockDim.x / WARP; w++)
        sum += held[w];
    return sum;
}

#endif
