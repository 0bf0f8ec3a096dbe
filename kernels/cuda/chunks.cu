/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of 4096 values on the GPU (dev.h, exact set): the bits of kernels/cpu/chunks.c, compiled
 * like exact.cu.
 *
 * The largest values: a thread block holds a chunk in registers and halves an interval of
 * magnitudes until exactly k lie above, or the bound is the k-th itself; which values these are
 * does not depend on the way there. Their places become bits, so that they come out in order of
 * index. What is sent for them is a sum in that order, so a second kernel has a thread for each
 * chunk; it reads what the first left in scratch memory with neighbours side by side. Floor at 4.3
 * TB/s: 4 bytes a value, and 2 for the 32-byte sectors of one value in 64: 1.4 ms for 10^9; 10 more
 * or less halvings of 16 comparisons each make the first kernel's arithmetic as long as its loads.
 */
#include "kernels/cuda/tile.cuh"
#include "kernels/scalar/chunks.h"

enum { THREADS = 256, WARPS = THREADS / WARP, LANES = 16, EACH = DEV_CHUNK / THREADS, FOUR = 4 };
enum { WORDS = DEV_CHUNK / 32, MOST = DEV_CHUNK_MOST };
#define NOWHERE (-1) /* below every magnitude */

static __device__ __forceinline__ size_t chunk_size(size_t at, size_t count)
{
    return count - at < DEV_CHUNK ? count - at : (size_t)DEV_CHUNK;
}

/* Half a warp for each chunk: thread j is the CPU's lane j; then lane after lane. */
static __global__ void __launch_bounds__(THREADS)
    chunk_l1(double *norms, const float *z, size_t count)
{
    size_t at = thread_index() / LANES * DEV_CHUNK;
    unsigned j = threadIdx.x % LANES;
    double sum = 0, all = 0;
    if (at < count) {
        size_t end = at + chunk_size(at, count);
#pragma unroll 16
        for (size_t i = at + j; i < end; i += LANES)
            sum += (double)float_of_bits(float_bits(z[i]) & 0x7fffffffu);
    }
#pragma unroll
    for (int lane = 0; lane < LANES; lane++)
        all += __shfl_down_sync(WARP_ALL, sum, lane, LANES);
    if (at < count && j == 0)
        norms[at / DEV_CHUNK] = all;
}

extern "C" void cuda_chunk_l1(struct dev *d, double *norms, const float *z, size_t count)
{
    if (count)
        LAUNCH(cuda_of(d), chunk_l1, blocks_for(count, (size_t)DEV_CHUNK * THREADS / LANES),
               THREADS, 0, norms, z, count);
}

/* Sum over the block, in every thread. held: two rows that alternate. */
static __device__ __forceinline__ unsigned count_all(unsigned x, unsigned held[2][WARPS],
                                                     unsigned turn)
{
#pragma unroll
    for (int half = WARP / 2; half; half /= 2)
        x += __shfl_xor_sync(WARP_ALL, x, half);
    if (threadIdx.x % WARP == 0)
        held[turn % 2][threadIdx.x / WARP] = x;
    __syncthreads();
    unsigned sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        sum += held[turn % 2][w];
    return sum;
}

static __device__ __forceinline__ unsigned count_from(const int32_t *size, int32_t bound)
{
    unsigned n = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        n += size[i] >= bound;
    return n;
}

/* Between which magnitudes the k-th largest lies: k reach at, none reaches high. 64 groups of 64
 * values have a largest each, and k <= 64. */
struct interval {
    uint32_t at, high;
};
static __device__ __forceinline__ struct interval interval_of(const int32_t *size)
{
    __shared__ int32_t ends[2][WARPS];
    int32_t most = NOWHERE;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        most = max(most, size[i]);
    most = max(most, __shfl_xor_sync(WARP_ALL, most, 1));
    most = max(most, __shfl_xor_sync(WARP_ALL, most, 2)); /* of 4 threads: a group */
    int32_t least = most;
#pragma unroll
    for (int step = 4; step < WARP; step *= 2) {
        least = min(least, __shfl_xor_sync(WARP_ALL, least, step));
        most = max(most, __shfl_xor_sync(WARP_ALL, most, step));
    }
    if (threadIdx.x % WARP == 0) {
        ends[0][threadIdx.x / WARP] = least;
        ends[1][threadIdx.x / WARP] = most;
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        least = min(least, ends[0][w]);
        most = max(most, ends[1][w]);
    }
    struct interval v = {(uint32_t)max(least, 0), (uint32_t)most + 1};
    return v;
}

/* A bound that k magnitudes reach and fewer pass: those above it are sent, and of those that equal
 * it as many as are missing. */
static __device__ __forceinline__ int32_t bound_of(const int32_t *size, unsigned k)
{
    __shared__ unsigned held[2][WARPS];
    struct interval v = interval_of(size);
    for (unsigned turn = 0; v.high - v.at > 1; turn++) {
        uint32_t middle = (v.at + v.high) / 2;
        unsigned n = count_all(count_from(size, (int32_t)middle), held, turn);
        if (n >= k)
            v.at = middle;
        else
            v.high = middle;
        if (n == k)
            break;
    }
    return (int32_t)v.at;
}

/* Of the bits set in 4 words a lane, those before this lane's; *all: in the warp. */
static __device__ __forceinline__ unsigned bits_before(const uint32_t *word, unsigned *all)
{
    unsigned mine = 0, sum = 0;
#pragma unroll
    for (int w = 0; w < FOUR; w++)
        mine += __popc(word[w]);
    sum = mine;
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        unsigned before = __shfl_up_sync(WARP_ALL, sum, step);
        sum += threadIdx.x % WARP >= (unsigned)step ? before : 0;
    }
    *all = __shfl_sync(WARP_ALL, sum, WARP - 1);
    return sum - mine;
}

/* One warp: places above the bound, and equal ones by lowest index until there are k -> indices. */
static __device__ __forceinline__ void places(uint16_t *index, const uint32_t *above,
                                              const uint32_t *equal, unsigned k)
{
    uint32_t a[FOUR], e[FOUR];
    unsigned lane = threadIdx.x % WARP, all, none;
#pragma unroll
    for (int w = 0; w < FOUR; w++) {
        a[w] = above[lane * FOUR + w];
        e[w] = equal[lane * FOUR + w];
    }
    bits_before(a, &all);
    unsigned before = bits_before(e, &none), wanted = k - all;
#pragma unroll
    for (int w = 0; w < FOUR; w++)
        for (; e[w]; e[w] &= e[w] - 1, before++)
            if (before < wanted)
                a[w] |= e[w] & (0 - e[w]);
    unsigned at = bits_before(a, &all);
#pragma unroll
    for (int w = 0; w < FOUR; w++)
        for (uint32_t left = a[w]; left; left &= left - 1)
            index[at++] = (uint16_t)(lane * FOUR * 32 + w * 32 + __ffs((int)left) - 1);
}

/* made: the indices; value (MOST rows of `chunks`): the values. residual = z where they differ. */
static __global__ void __launch_bounds__(THREADS)
    chunk_select(struct dev_chunk *made, float *value, float *residual, const float *z,
                 size_t count, bool wide)
{
    __shared__ uint32_t above[WORDS], equal[WORDS];
    __shared__ uint16_t index[MOST];
    size_t chunk = blockIdx.x, chunks = gridDim.x, first = chunk * DEV_CHUNK;
    size_t n = chunk_size(first, count);
    unsigned k = (unsigned)(n / DEV_CHUNK_SHARE);
    int32_t size[EACH];
    if (threadIdx.x < WORDS)
        above[threadIdx.x] = equal[threadIdx.x] = 0;
#pragma unroll
    for (unsigned r = 0; r < EACH / FOUR; r++) {
        unsigned i = (r * THREADS + threadIdx.x) * FOUR; /* n is a multiple of 4 */
        four x = {{0, 0, 0, 0}};
        if (i < n)
            x = get4(z + first, i, n, wide);
        if (i < n && residual != z)
            put4(residual + first, i, n, wide, x);
#pragma unroll
        for (unsigned j = 0; j < FOUR; j++)
            size[r * FOUR + j] = i < n ? chunk_magnitude(x.x[j]) : NOWHERE;
    }
    int32_t bound = bound_of(size, k); /* has a barrier: the words are empty */
#pragma unroll
    for (unsigned r = 0; r < EACH; r++) {
        unsigned i = (r / FOUR * THREADS + threadIdx.x) * FOUR + r % FOUR;
        if (size[r] > bound)
            atomicOr((unsigned *)&above[i / 32], 1u << i % 32);
        if (size[r] == bound)
            atomicOr((unsigned *)&equal[i / 32], 1u << i % 32);
    }
    __syncthreads();
    if (threadIdx.x >= WARP)
        return;
    places(index, above, equal, k);
    __syncwarp();
    for (unsigned i = threadIdx.x; i < k; i += WARP) {
        made[chunk].value[i] = index[i];
        value[i * chunks + chunk] = z[first + index[i]];
    }
}

/* A thread for each chunk. */
static __global__ void __launch_bounds__(THREADS)
    chunk_send(struct dev_chunk *made, float *residual, const float *value, size_t count,
               size_t chunks)
{
    size_t chunk = thread_index();
    if (chunk >= chunks)
        return;
    size_t first = chunk * DEV_CHUNK, k = chunk_size(first, count) / DEV_CHUNK_SHARE;
    struct dev_chunk *c = &made[chunk];
    for (size_t i = 0; i < k; i++)
        if (chunk_magnitude(value[i * chunks + chunk]) >= (int32_t)CHUNK_INFINITE) {
            c->value[0] = c->value[i];
            c->upper = DEV_CHUNK_BAD;
            return;
        }
    struct chunk_sizes s = {value + chunk, chunks, k};
    struct chunk_levels l = chunk_levels(&s);
    c->upper = l.upper;
    c->less = l.less;
    for (size_t i = 0; l.upper && i < k; i++) {
        float x = value[i * chunks + chunk];
        uint16_t two = chunk_two(x, &l), at = c->value[i];
        residual[first + at] = x - chunk_value(two, l.upper, l.less);
        c->value[i] = (uint16_t)(at + two * DEV_CHUNK);
    }
}

extern "C" void cuda_chunk_topk(struct dev *d, struct dev_chunk *made, float *residual,
                                const float *z, size_t count)
{
    struct cuda *c = cuda_of(d);
    size_t chunks = (count + DEV_CHUNK - 1) / DEV_CHUNK;
    float *value =
        count ? (float *)cuda_scratch(c, CUDA_SLOT_OP, chunks * MOST * sizeof *value) : NULL;
    if (!value)
        return;
    LAUNCH(c, chunk_select, blocks_for(chunks, 1), THREADS, 0, made, value, residual, z, count,
           aligned16(z) && aligned16(residual));
    LAUNCH(c, chunk_send, blocks_for(chunks, THREADS), THREADS, 0, made, residual, value, count,
           chunks);
}

/* A thread for each value that is sent: no two have the same place. */
static __global__ void chunk_add(float *z, const struct dev_chunk *chunks, size_t count)
{
    size_t chunk = thread_index() / MOST, i = thread_index() % MOST, first = chunk * DEV_CHUNK;
    if (first >= count || i >= chunk_size(first, count) / DEV_CHUNK_SHARE)
        return;
    const struct dev_chunk *c = &chunks[chunk];
    uint32_t value = c->value[i], upper = c->upper;
    if (upper) {
        float *to = &z[first + value % DEV_CHUNK];
        *to = *to + chunk_value(value / DEV_CHUNK, upper, c->less);
    }
}

extern "C" void cuda_chunk_add(struct dev *d, float *z, const struct dev_chunk *chunks,
                               size_t count)
{
    if (count)
        LAUNCH(cuda_of(d), chunk_add, blocks_for(count, (size_t)DEV_CHUNK_SHARE * THREADS), THREADS,
               0, z, chunks, count);
}
