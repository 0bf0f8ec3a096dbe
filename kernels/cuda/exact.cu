/* SPDX-License-Identifier: Apache-2.0 */
/* The exact set on the GPU (dev.h): the bits of kernels/cpu/exact.c. Formulas come from the same
 * kernels/scalar headers; this file is compiled with --fmad=false and nvcc's defaults
 * -ftz=false -prec-div=true (IEEE division, denormals kept), so each written operation rounds once.
 * Why each op cannot differ from the CPU's stands at it. tests/cuda/test_cuda_exact.c compares
 * bytes; tests/cuda/fma.sh looks for contracted operations in its PTX.
 */
#include "kernels/cuda/tile.cuh"
#include "kernels/scalar/grid.h"
#include "kernels/scalar/narrow.h"
#include "kernels/base/rng.h"
#include "kernels/scalar/outer.h"
#include "kernels/base/philox.h"

enum { THREADS = 256, LANES = 16, GROUP = 8 };

/* Element by element, one thread for four values: order cannot matter, roundings are written out.
 */
#define LAUNCH4(c, kernel, ...)                                                                    \
    do {                                                                                           \
        if (count)                                                                                 \
            LAUNCH(c, kernel, blocks_for(count, THREADS * 4), THREADS, 0, __VA_ARGS__);            \
    } while (0)

static __global__ void delta(float *z, const struct dev_delta a, bool wide)
{
    size_t i = thread_index() * 4, count = a.count;
    if (i < count) {
        four o = get4(a.outer, i, count, wide), l = get4(a.local, i, count, wide);
        four r = get4(a.residual, i, count, wide);
#pragma unroll
        for (int k = 0; k < 4; k++)
            o.x[k] = outer_delta(o.x[k], l.x[k], r.x[k], a.weight);
        put4(z, i, count, wide, o);
    }
}

extern "C" void cuda_outer_delta(struct dev *d, float *z, const struct dev_delta *a)
{
    size_t count = a->count;
    bool wide =
        aligned16(z) && aligned16(a->outer) && aligned16(a->local) && aligned16(a->residual);
    LAUNCH4(cuda_of(d), delta, z, *a, wide);
}

/* Half a warp for each block of 256. Thread j computes lane j of the CPU: it adds the squares of
 * z[j], z[16+j], ... in that order, then lanes 8 + 8, 4 + 4, 2 + 2, 1 + 1, the same pairs; lane 0
 * has the sum. A square of a float is exact in double. Shuffles have width 16, so the two
 * half-warps stay separate. All 32 lanes must call, also where `real` is false. less NULL: z
 * itself. */
static __device__ __forceinline__ double block_squares(const float *z, const float *less, bool real)
{
    double sum = 0;
    if (real) {
#pragma unroll
        for (int i = 0; i < DEV_BLOCK; i += LANES) {
            double v = (double)(less ? z[i] - less[i] : z[i]);
            sum += v * v;
        }
    }
#pragma unroll
    for (int half = LANES / 2; half; half /= 2)
        sum += __shfl_down_sync(WARP_ALL, sum, half, LANES);
    return sum;
}

static __global__ void block_code(uint8_t *code, const float *z, size_t blocks)
{
    size_t block = thread_index() / LANES;
    unsigned j = threadIdx.x % LANES;
    double sum = block_squares(z + block * DEV_BLOCK + j, NULL, block < blocks);
    if (block < blocks && j == 0)
        code[block] = grid_code(sum);
}

extern "C" void cuda_block_code(struct dev *d, uint8_t *code, const float *z, size_t count)
{
    size_t blocks = count / DEV_BLOCK;
    if (blocks)
        LAUNCH(cuda_of(d), block_code, blocks_for(blocks * LANES, THREADS), THREADS, 0, code, z,
               blocks);
}

/* Bits only, and one exact subtraction. */
static __global__ void round_bf16(uint16_t *h, float *residual, const float *z, size_t count,
                                  bool wide)
{
    size_t i = thread_index() * 4;
    if (i < count) {
        four x = get4(z, i, count, wide);
        uint16_t r[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            r[k] = grid_bf16(x.x[k]);
            x.x[k] = x.x[k] - bf16_float(r[k]);
        }
        if (wide && i + 4 <= count) {
            *(ushort4 *)(h + i) = make_ushort4(r[0], r[1], r[2], r[3]);
        } else {
            for (int k = 0; k < 4 && i + k < count; k++)
                h[i + k] = r[k];
        }
        put4(residual, i, count, wide, x);
    }
}

extern "C" void cuda_round_bf16(struct dev *d, uint16_t *h, float *residual, const float *z,
                                size_t count)
{
    bool wide = aligned16(h) && aligned16(residual) && aligned16(z);
    LAUNCH4(cuda_of(d), round_bf16, h, residual, z, count, wide);
}

static __device__ __forceinline__ void store_raw(uint16_t *to, const uint16_t *eight)
{
    uint4 raw;
    memcpy(&raw, eight, sizeof raw);
    *(uint4 *)to = raw;
}

/* Integers, and the bits of one float each. */
static __global__ void round_stochastic(uint16_t *h, const float *z, struct dev_random r,
                                        size_t count, bool wide)
{
    size_t i = thread_index() * GROUP;
    uint32_t bits[4];
    uint16_t made[GROUP];
    philox(r.seed, RNG_ROUND | r.step << 32, (r.first + i) / GROUP, bits);
#pragma unroll
    for (int half = 0; half < GROUP; half += 4) {
        four x = get4(z, i + half, count, wide);
#pragma unroll
        for (int k = half; k < half + 4; k++)
            made[k] = bf16_stochastic(x.x[k - half], bits[k / 2] >> k % 2 * 16 & 0xffff);
    }
    if (wide && i + GROUP <= count) {
        store_raw(h + i, made);
    } else {
        for (int k = 0; k < GROUP && i + k < count; k++)
            h[i + k] = made[k];
    }
}

extern "C" void cuda_round_stochastic(struct dev *d, uint16_t *h, const float *z,
                                      const struct dev_random *r, size_t count)
{
    ASSERT(r->first % GROUP == 0);
    if (count)
        LAUNCH(cuda_of(d), round_stochastic, blocks_for(count, THREADS * GROUP), THREADS, 0, h, z,
               *r, count, aligned16(h) && aligned16(z));
}

/* A thread for each block of random bits; integers, and sums and products of floats that the CPU
 * writes the same way. */
static __global__ void round_narrow(float *x, uint16_t *model, const struct dev_narrow a,
                                    size_t count)
{
    size_t block = a.first / 4 + thread_index();
    const struct narrow form = {a.exponent, a.mantissa};
    uint32_t bits[4] = {0, 0, 0, 0};
    if (a.gscale && *a.gscale != *a.gscale)
        return;
    if (a.stochastic)
        philox(a.seed, RNG_MASTER | a.step << 32, block, bits);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        size_t element = 4 * block + k;
        if (element < a.first || element >= a.first + count)
            continue;
        size_t i = element - a.first;
        x[i] = narrow_either(x[i], form, a.stochastic, bits[k]);
        if (model)
            model[i] = bf16_round(x[i]);
    }
}

extern "C" void cuda_round_narrow(struct dev *d, float *x, uint16_t *model,
                                  const struct dev_narrow *a, size_t count)
{
    if (count) /* a block more, where the first element is within one */
        LAUNCH(cuda_of(d), round_narrow, blocks_for(count + 4, THREADS * 4), THREADS, 0, x, model,
               *a, count);
}

static __global__ void bf16_to_f32(float *z, const uint16_t *h, size_t count, bool wide)
{
    size_t i = thread_index() * 4;
    if (i < count) {
        four x;
        if (wide && i + 4 <= count) {
            ushort4 v = *(const ushort4 *)(h + i);
            x.x[0] = bf16_float(v.x), x.x[1] = bf16_float(v.y);
            x.x[2] = bf16_float(v.z), x.x[3] = bf16_float(v.w);
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++)
                x.x[k] = i + k < count ? bf16_float(h[i + k]) : 0.0f;
        }
        put4(z, i, count, wide, x);
    }
}

extern "C" void cuda_bf16_to_f32(struct dev *d, float *z, const uint16_t *h, size_t count)
{
    LAUNCH4(cuda_of(d), bf16_to_f32, z, h, count, aligned16(z) && aligned16(h));
}

/* The rows of outer_opt.h, which write every rounding as its own statement. */
template <int KIND> struct outer_rule;
#define ROW(X, value, name, slabs_, ...)                                                           \
    template <> struct outer_rule<value> {                                                         \
        enum { slabs = slabs_ };                                                                   \
        static __device__ __forceinline__ float step(float theta, float *a, float *b, float mean,  \
                                                     const struct outer_scalars *k)                \
        {                                                                                          \
            return outer_##name##_step(theta, a, b, mean, k);                                      \
        }                                                                                          \
    };
OUTER_OPT_ROWS(ROW, )
#undef ROW

template <int KIND> static __global__ void outer_step(const struct dev_outer_step a, bool wide)
{
    typedef struct outer_rule<KIND> rule;
    size_t i = thread_index() * 4, count = a.count;
    if (i < count) {
        four t = get4(a.theta, i, count, wide), m = get4(a.mean, i, count, wide);
        four x = rule::slabs > 0 ? get4(a.slab[0], i, count, wide) : four();
        four y = rule::slabs > 1 ? get4(a.slab[1], i, count, wide) : four();
#pragma unroll
        for (int k = 0; k < 4; k++)
            t.x[k] = rule::step(t.x[k], &x.x[k], &y.x[k], m.x[k], &a.k);
        put4(a.theta, i, count, wide, t);
        if (rule::slabs > 0)
            put4(a.slab[0], i, count, wide, x);
        if (rule::slabs > 1)
            put4(a.slab[1], i, count, wide, y);
    }
}

extern "C" void cuda_outer_step(struct dev *d, enum outer_opt_kind kind,
                                const struct dev_outer_step *a)
{
    size_t count = a->count;
    bool wide =
        aligned16(a->theta) && aligned16(a->slab[0]) && aligned16(a->slab[1]) && aligned16(a->mean);
    switch (kind) {
#define X(value, name)                                                                             \
    case value:                                                                                    \
        LAUNCH4(cuda_of(d), outer_step<value>, *a, wide);                                          \
        return;
        OUTER_OPT_LIST(X)
#undef X
    }
}

static __global__ void axpy(float *acc, const float *x, float scale, size_t count, bool wide)
{
    size_t i = thread_index() * 4;
    if (i < count) {
        four a = get4(acc, i, count, wide), v = get4(x, i, count, wide);
#pragma unroll
        for (int k = 0; k < 4; k++)
            a.x[k] = outer_axpy(a.x[k], v.x[k], scale);
        put4(acc, i, count, wide, a);
    }
}

extern "C" void cuda_axpy(struct dev *d, float *acc, const float *x, float scale, size_t count)
{
    LAUNCH4(cuda_of(d), axpy, acc, x, scale, count, aligned16(acc) && aligned16(x));
}

static __global__ void div_scalar(float *x, float divisor, size_t count, bool wide)
{
    size_t i = thread_index() * 4;
    if (i < count) {
        four v = get4(x, i, count, wide);
#pragma unroll
        for (int k = 0; k < 4; k++)
            v.x[k] = v.x[k] / divisor;
        put4(x, i, count, wide, v);
    }
}

extern "C" void cuda_div_scalar(struct dev *d, float *x, float divisor, size_t count)
{
    LAUNCH4(cuda_of(d), div_scalar, x, divisor, count, aligned16(x));
}

/* A thread block for each DEV_RUN values; its groups of lanes take blocks of 256 in order, and one
 * thread adds their sums in order. */
static __global__ void sumsq_diff(double *sums, const float *a, const float *b, size_t count)
{
    enum { GROUPS = THREADS / LANES, BLOCKS = DEV_RUN / DEV_BLOCK };
    __shared__ double held[BLOCKS];
    size_t first = (size_t)blockIdx.x * DEV_RUN;
    unsigned group = threadIdx.x / LANES, j = threadIdx.x % LANES;
    for (unsigned k = group; k < BLOCKS; k += GROUPS) {
        size_t at = first + (size_t)k * DEV_BLOCK;
        double sum = block_squares(a + at + j, b ? b + at + j : NULL, at < count);
        if (j == 0)
            held[k] = sum;
    }
    __syncthreads();
    if (threadIdx.x)
        return;
    double sum = 0;
    for (unsigned k = 0; k < BLOCKS && first + (size_t)k * DEV_BLOCK < count; k++)
        sum += held[k];
    sums[blockIdx.x] = sum;
}

extern "C" void cuda_sumsq_diff(struct dev *d, double *sums, const float *a, const float *b,
                                size_t count)
{
    if (count)
        LAUNCH(cuda_of(d), sumsq_diff, blocks_for(count, DEV_RUN), THREADS, 0, sums, a, b, count);
}

/* An integer OR: the order of the blocks cannot matter. */
static __global__ void check_residual(uint32_t *mismatch, const struct dev_residual_check a)
{
    size_t i = thread_index();
    int differs =
        i < a.count && !outer_residual_exact(a.sent[i], a.residual[i], a.z[i], a.tolerance);
    if (__syncthreads_or(differs) && threadIdx.x == 0)
        atomicOr((unsigned *)mismatch, 1u);
}

extern "C" void cuda_check_residual(struct dev *d, uint32_t *mismatch,
                                    const struct dev_residual_check *a)
{
    if (a->count)
        LAUNCH(cuda_of(d), check_residual, blocks_for(a->count, THREADS), THREADS, 0, mismatch, *a);
}

static __global__ void copy_strided(float *out, const float *x, size_t stride, size_t count)
{
    size_t i = thread_index();
    if (i < count)
        out[i] = x[i * stride];
}

extern "C" void cuda_copy_strided(struct dev *d, float *out, const float *x, size_t stride,
                                  size_t count)
{
    if (count)
        LAUNCH(cuda_of(d), copy_strided, blocks_for(count, THREADS), THREADS, 0, out, x, stride,
               count);
}

/* ---- ranges of a slab and concatenated values: one launch for each RANGES ranges, one row of
 *   blocks for each range. Parts of whole tensors are a few ranges; random parts are tens of
 *   thousands of ranges of 256 values and more: 3 us for 64 of them. */
enum { RANGES = 64, RANGE_BLOCKS = 512 };
struct ranges {
    size_t offset[RANGES], at[RANGES], count[RANGES]; /* in the slab, in the piece */
};

static __global__ void gather_ranges(float *out, const float *slab, const struct ranges r,
                                     bool wide)
{
    size_t count = r.count[blockIdx.y], step = (size_t)gridDim.x * THREADS * 4;
    const float *from = slab + r.offset[blockIdx.y];
    float *to = out + r.at[blockIdx.y];
    for (size_t i = thread_index() * 4; i < count; i += step)
        put4(to, i, count, wide, get4(from, i, count, wide));
}

static __global__ void lerp_ranges(float *slab, const float *in, const struct ranges r,
                                   const struct dev_lerp b, bool wide)
{
    float beta = 1 - b.alpha;
    size_t count = r.count[blockIdx.y], step = (size_t)gridDim.x * THREADS * 4;
    float *x = slab + r.offset[blockIdx.y];
    const float *theta = in + r.at[blockIdx.y];
    for (size_t i = thread_index() * 4; i < count; i += step) {
        four l = get4(x, i, count, wide), t = get4(theta, i, count, wide);
#pragma unroll
        for (int k = 0; k < 4; k++)
            l.x[k] = outer_lerp(l.x[k], t.x[k], b.alpha, beta, b.positive);
        put4(x, i, count, wide, l);
    }
}

/* Fills r with the next ranges, at most RANGES, and returns the grid for them. *at: position in the
 * concatenated values, advanced. */
static struct dim3 ranges_next(struct ranges *r, bool *wide, const struct dev_range *ranges,
                               size_t n, size_t *at)
{
    size_t most = 1, batch = n < RANGES ? n : (size_t)RANGES;
    memset(r, 0, sizeof *r);
    for (size_t i = 0; i < batch; i++) {
        r->offset[i] = ranges[i].offset;
        r->at[i] = *at;
        r->count[i] = ranges[i].count;
        *at += ranges[i].count;
        most = ranges[i].count > most ? ranges[i].count : most;
        *wide = *wide && r->offset[i] % 4 == 0 && r->at[i] % 4 == 0;
    }
    unsigned blocks = blocks_for(most, THREADS * 4);
    return dim3(blocks < RANGE_BLOCKS ? blocks : (unsigned)RANGE_BLOCKS, (unsigned)batch);
}

extern "C" void cuda_gather_ranges(struct dev *d, float *out, const float *slab,
                                   const struct dev_range *ranges, size_t n)
{
    struct ranges r;
    bool wide = aligned16(out) && aligned16(slab);
    for (size_t first = 0, at = 0; first < n; first += RANGES) {
        struct dim3 grid = ranges_next(&r, &wide, ranges + first, n - first, &at);
        LAUNCH(cuda_of(d), gather_ranges, grid, THREADS, 0, out, slab, r, wide);
    }
}

extern "C" void cuda_lerp_ranges(struct dev *d, float *slab, const float *in,
                                 const struct dev_lerp *b)
{
    struct ranges r;
    bool wide = aligned16(slab) && aligned16(in);
    for (size_t first = 0, at = 0; first < b->n; first += RANGES) {
        struct dim3 grid = ranges_next(&r, &wide, b->ranges + first, b->n - first, &at);
        LAUNCH(cuda_of(d), lerp_ranges, grid, THREADS, 0, slab, in, r, *b, wide);
    }
}
