/* SPDX-License-Identifier: Apache-2.0 */
/* Signs with a scale on the GPU (dev.h, exact set): the bits of kernels/cpu/signs.c, because sums
 * have its order and this file is compiled with --fmad=false. sign_encode reads its inputs twice; a
 * thread handles the eight values of a byte.
 */
#include "kernels/cuda/tile.cuh"
#include "kernels/scalar/signs.h"

enum { THREADS = 256, LANES = 16, BLOCKS = DEV_RUN / DEV_BLOCK };

static __device__ __forceinline__ float read_value(const struct dev_sign_encode &a, size_t i,
                                                   bool *used)
{
    *used = !a.mask || a.mask[i] != 0;
    return *used ? (a.error ? a.x[i] + a.error[i] : a.x[i]) : 0.0f;
}

/* One run of a range for each thread block: 16 threads for each 256 values, as block_squares of
 * exact.cu has them. */
static __global__ void run_sums(const struct dev_sign_encode a, size_t runs)
{
    __shared__ double squares[BLOCKS], counts[BLOCKS];
    const struct dev_range range = a.ranges[blockIdx.y];
    size_t begin = range.offset + (size_t)blockIdx.x * DEV_RUN, end = range.offset + range.count;
    if (begin >= end || sign_stopped(a.stop))
        return;
    unsigned lane = threadIdx.x % LANES;
    for (unsigned b = threadIdx.x / LANES; b < BLOCKS; b += THREADS / LANES) {
        double sum = 0, count = 0;
        for (size_t k = lane; k < DEV_BLOCK; k += LANES) {
            size_t i = begin + b * DEV_BLOCK + k;
            bool used = false;
            double v = i < end ? (double)read_value(a, i, &used) : 0;
            sum += v * v;
            count += used;
        }
#pragma unroll
        for (int half = LANES / 2; half; half /= 2) {
            sum += __shfl_down_sync(WARP_ALL, sum, half, LANES);
            count += __shfl_down_sync(WARP_ALL, count, half, LANES);
        }
        if (lane == 0) {
            squares[b] = sum;
            counts[b] = count;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        struct dev_sign_sum sum = {0, 0};
        for (unsigned b = 0; b < BLOCKS; b++) {
            sum.squares += squares[b];
            sum.count += counts[b];
        }
        a.sums[blockIdx.y * runs + blockIdx.x] = sum;
    }
}

static __global__ void range_scales(const struct dev_sign_encode a, size_t runs)
{
    size_t r = thread_index();
    if (r >= a.n || sign_stopped(a.stop))
        return;
    struct dev_sign_sum sum = {0, 0};
    for (size_t i = 0; i < (a.ranges[r].count + DEV_RUN - 1) / DEV_RUN; i++) {
        sum.squares += a.sums[r * runs + i].squares;
        sum.count += a.sums[r * runs + i].count;
    }
    a.scales[r] = sign_scale(sum.squares, sum.count);
}

static __global__ void encode(uint8_t *bits, const struct dev_sign_encode a)
{
    const struct dev_range range = a.ranges[blockIdx.y];
    size_t begin = range.offset + thread_index() * 8, end = range.offset + range.count;
    if (begin >= end || sign_stopped(a.stop))
        return;
    float scale = a.scales[blockIdx.y];
    unsigned byte = 0;
    for (unsigned j = 0; j < 8; j++) {
        bool used = false;
        float z = begin + j < end ? read_value(a, begin + j, &used) : 0.0f;
        byte |= (unsigned)(z >= 0) << j;
        if (a.error && begin + j < end)
            a.error[begin + j] = used ? z - (z >= 0 ? scale : -scale) : 0.0f;
    }
    bits[begin / 8] = (uint8_t)byte;
}

extern "C" void cuda_sign_encode(struct dev *d, uint8_t *bits, const struct dev_sign_encode *a)
{
    size_t runs = (a->longest + DEV_RUN - 1) / DEV_RUN;
    if (a->n == 0 || runs == 0)
        return;
    dim3 sums(blocks_for(runs, 1), blocks_for(a->n, 1)),
        bytes(blocks_for(a->longest, 8 * THREADS), blocks_for(a->n, 1));
    LAUNCH(cuda_of(d), run_sums, sums, THREADS, 0, *a, runs);
    LAUNCH(cuda_of(d), range_scales, blocks_for(a->n, THREADS), THREADS, 0, *a, runs);
    LAUNCH(cuda_of(d), encode, bytes, THREADS, 0, bits, *a);
}

static __global__ void decode(float *x, const struct dev_sign_decode a)
{
    const struct dev_range range = a.ranges[blockIdx.y];
    size_t begin = range.offset + thread_index() * 8, end = range.offset + range.count;
    if (begin >= end || sign_stopped(a.stop))
        return;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (size_t p = 0; p < a.parts; p++) {
        unsigned byte = a.bits[p * a.bits_stride + begin / 8];
        float scale = a.scales[p * a.scales_stride + blockIdx.y];
#pragma unroll
        for (unsigned j = 0; j < 8; j++)
            sum[j] += sign_value(byte >> j & 1u, scale);
    }
    for (unsigned j = 0; j < 8 && begin + j < end; j++)
        x[begin + j] = !a.mask || a.mask[begin + j] != 0 ? sum[j] / (float)a.parts : 0.0f;
}

extern "C" void cuda_sign_decode(struct dev *d, float *x, const struct dev_sign_decode *a)
{
    if (a->n == 0 || a->longest == 0)
        return;
    dim3 grid(blocks_for(a->longest, 8 * THREADS), blocks_for(a->n, 1));
    LAUNCH(cuda_of(d), decode, grid, THREADS, 0, x, *a);
}
