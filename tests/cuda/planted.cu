/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with one bug each, for the emulator: planted.sh runs each in a process of its own and
 * compares what the emulator says. Without a name it lists them. If one goes unseen, a bug of that
 * kind in kernels/cuda goes unseen until it runs on a GPU.
 */
#include <stdio.h>
#include "kernels/cuda/tile.cuh"
#include "tests/cuda/emulate_memory.h"

enum { THREADS = 64, COPY = 8 }; /* bf16 values of one cp.async */

static __global__ void sound(float *x)
{
    __shared__ float held[THREADS];
    held[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = held[THREADS - 1 - threadIdx.x];
}

static __global__ void no_barrier(float *x)
{
    __shared__ float held[THREADS];
    held[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = held[THREADS - 1 - threadIdx.x];
}

static __global__ void no_barrier_before_reuse(float *x)
{
    __shared__ float held[THREADS];
    held[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float y = held[THREADS - 1 - threadIdx.x];
    held[threadIdx.x] = y;
}

static __global__ void no_syncwarp(float *x)
{
    __shared__ float held[THREADS];
    held[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = held[threadIdx.x ^ 1] + warp_sum(1.0f); /* a shuffle orders no memory */
}

static __global__ void waits_for_too_few(uint16_t *x)
{
    SHARED_BYTES(shared);
    uint16_t *own = (uint16_t *)shared + threadIdx.x * COPY;
    copy_async(own, x + threadIdx.x * COPY, true);
    copy_commit();
    copy_wait<1>();
    x[threadIdx.x * COPY] = own[0];
    copy_wait<0>();
}

static __global__ void waits_without_barrier(uint16_t *x)
{
    SHARED_BYTES(shared);
    uint16_t *all = (uint16_t *)shared;
    copy_async(all + threadIdx.x * COPY, x + threadIdx.x * COPY, true);
    copy_commit();
    copy_wait<0>();
    x[threadIdx.x * COPY] = all[(threadIdx.x ^ 1) * COPY];
}

static __global__ void loads_into_what_is_read(uint16_t *x)
{
    SHARED_BYTES(shared);
    uint16_t *all = (uint16_t *)shared;
    all[threadIdx.x * COPY] = 1;
    __syncthreads();
    uint16_t y = all[(threadIdx.x ^ 1) * COPY];
    copy_async(all + threadIdx.x * COPY, x + threadIdx.x * COPY, true);
    copy_commit();
    copy_wait<0>();
    x[threadIdx.x * COPY] = y;
}

static __global__ void leaves_a_copy(uint16_t *x)
{
    SHARED_BYTES(shared);
    copy_async((uint16_t *)shared + threadIdx.x * COPY, x + threadIdx.x * COPY, true);
    copy_commit();
}

static __global__ void past_the_end(float *x)
{
    x[threadIdx.x + 1] = 1;
}

static __global__ void past_shared(float *x)
{
    SHARED_BYTES(shared);
    x[threadIdx.x] = ((float *)shared)[threadIdx.x * COPY];
}

static __global__ void not_aligned(float *x)
{
    *(float4 *)(x + 1) = make_float4(0, 0, 0, 0);
}

static __global__ void blocks_share(float *x)
{
    x[threadIdx.x] = (float)blockIdx.x;
}

static __global__ void lanes_part(float *x)
{
    if (threadIdx.x % 2)
        x[threadIdx.x] = warp_sum(1.0f);
}

static __global__ void shifts_too_far(float *x)
{
    x[threadIdx.x] = (float)(1u << (threadIdx.x + 1));
}

#define PLANTED(X)                                                                                 \
    X(no_barrier, emulate_run(NULL, no_barrier, 1, THREADS, 0, x))                                 \
    X(no_barrier_before_reuse, emulate_run(NULL, no_barrier_before_reuse, 1, THREADS, 0, x))       \
    X(no_syncwarp, emulate_run(NULL, no_syncwarp, 1, THREADS, 0, x))                               \
    X(waits_for_too_few, emulate_run(NULL, waits_for_too_few, 1, WARP, 1024, (uint16_t *)x))       \
    X(waits_without_barrier,                                                                       \
      emulate_run(NULL, waits_without_barrier, 1, WARP, 1024, (uint16_t *)x))                      \
    X(loads_into_what_is_read,                                                                     \
      emulate_run(NULL, loads_into_what_is_read, 1, WARP, 1024, (uint16_t *)x))                    \
    X(leaves_a_copy, emulate_run(NULL, leaves_a_copy, 1, WARP, 1024, (uint16_t *)x))               \
    X(past_the_end, emulate_run(NULL, past_the_end, 1, 2 * THREADS, 0, x))                         \
    X(past_shared, emulate_run(NULL, past_shared, 1, THREADS, 1024, x))                            \
    X(not_aligned, emulate_run(NULL, not_aligned, 1, 1, 0, x))                                     \
    X(blocks_share, emulate_run(NULL, blocks_share, 2, THREADS, 0, x))                             \
    X(lanes_part, emulate_run(NULL, lanes_part, 1, THREADS, 0, x))                                 \
    X(shifts_too_far, emulate_run(NULL, shifts_too_far, 1, THREADS, 0, x))                         \
    X(host_memory, emulate_run(NULL, sound, 1, THREADS, 0, on_host))                               \
    X(freed_memory, (fake_give(x), LAUNCH_SOUND(1)))                                               \
    X(no_blocks, LAUNCH_SOUND(0))                                                                  \
    X(shared_not_asked_for, emulate_run(NULL, sound, 1, THREADS, 49 << 10, x))
#define LAUNCH_SOUND(grid) emulate_run(NULL, sound, (grid), THREADS, 0, x)

int main(int count, char **names)
{
    enum { BYTES = 2 * THREADS * sizeof(float) };
    /* No variables outside of main: their section is that of shared memory. */
    float on_host[THREADS] = {}, *x = (float *)fake_take(BYTES, true);
    LAUNCH_SOUND(1); /* nothing to see */
    cudaStreamSynchronize(NULL);
#define X(name, run)                                                                               \
    if (count < 2)                                                                                 \
        puts(#name);                                                                               \
    else if (strcmp(names[1], #name) == 0)                                                         \
        run;
    PLANTED(X)
#undef X
    cudaStreamSynchronize(NULL);
    return 0;
}
