/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of 256 values in the forms in which they go on the wire, and streams of integers, on the
 * GPU (dev.h, exact set): the bits of kernels/cpu/blocks.c, by the same formulas
 * (kernels/scalar/forms.h), compiled like exact.cu.
 *
 * Encoding, half a warp holds a block: lane j has z[j], z[16 + j], ..., so that it is the CPU's
 * lane j of the sum of squares that makes the block's code, and z is read once. A load is 64 bytes
 * side by side for each half-warp, 16 of them under way at a time; values of up to 8 bits meet in
 * shared memory and leave it 16 values to a lane. Decoding, a warp takes a block, a lane 4 values
 * side by side twice. Floors at 4.3 TB/s, for 10^9 values: encode 8 bytes and the form's
 * (int4: 8.5, 2.0 ms), decode 4 and the form's (int4: 4.5, 1.05 ms), 8 where it adds.
 */
#include "kernels/cuda/tile.cuh"
#include "kernels/base/rng.h"
#include "kernels/scalar/forms.h"
#include "kernels/base/philox.h"

enum { THREADS = 256, LANES = 16, EACH = DEV_BLOCK / LANES, BLOCKS = THREADS / LANES };
enum { GROUP = 8, BITS_MAX = 18, BITS_PAIR = 16 };

/* ---- encode ---- */

/* Of a half-warp; all its lanes get the same bits, for a + b = b + a: those of the CPU's lane 0. */
static __device__ __forceinline__ double half_sum(double x)
{
#pragma unroll
    for (int half = LANES / 2; half; half /= 2)
        x += __shfl_xor_sync(WARP_ALL, x, half);
    return x;
}

static __device__ __forceinline__ uint32_t half_max(uint32_t x)
{
#pragma unroll
    for (int half = LANES / 2; half; half /= 2) {
        uint32_t y = __shfl_xor_sync(WARP_ALL, x, half);
        x = y > x ? y : x;
    }
    return x;
}

static __device__ __forceinline__ uint32_t half_or(uint32_t x)
{
#pragma unroll
    for (int half = LANES / 2; half; half /= 2)
        x |= __shfl_xor_sync(WARP_ALL, x, half);
    return x;
}

/* Element e gets word e % 4 of counter e / 4: a lane computes 4 of the block's 64 counters. The
 * rows lie 272 words apart, so that the two half-warps of a warp read different banks. */
enum { RANDOM_ROW = DEV_BLOCK + LANES };
static __device__ __forceinline__ void random_words(uint32_t *row, const struct dev_encode &a,
                                                    size_t block)
{
    unsigned j = threadIdx.x % LANES;
#pragma unroll
    for (unsigned i = 0; i < DEV_BLOCK / 4 / LANES; i++) {
        unsigned c = i * LANES + j;
        uint32_t words[4];
        philox(a.seed, a.stream, (a.first + block) * (DEV_BLOCK / 4) + c, words);
#pragma unroll
        for (unsigned k = 0; k < 4; k++)
            row[4 * c + k] = words[k];
    }
}

/* 16 values of 8 bits -> of BITS, low bits first, to where the block's values begin. */
template <int BITS>
static __device__ __forceinline__ void put_joined(uint8_t *out, const uint8_t *u, bool words_only)
{
    enum { WORDS = BITS / 2 ? BITS / 2 : 1 }; /* 1 bit: half a word */
    unsigned j = threadIdx.x % LANES;
    uint32_t joined[WORDS] = {0};
    uint4 raw = *(const uint4 *)(u + j * EACH);
    uint8_t v[EACH];
    memcpy(v, &raw, sizeof v);
#pragma unroll
    for (int k = 0; k < EACH; k++)
        joined[k * BITS / 32] |= (uint32_t)v[k] << k * BITS % 32;
    if (BITS == 8) {
        ((uint4 *)out)[j] = raw;
    } else if (BITS == 4) {
        uint32_t *to = (uint32_t *)out + 2 * j; /* DEV_E3M0: 4-byte aligned */
        if (words_only) {
            to[0] = joined[0];
            to[1] = joined[WORDS - 1];
        } else {
            uint2 two = make_uint2(joined[0], joined[WORDS - 1]);
            *(uint2 *)to = two;
        }
    } else if (BITS == 2) {
        ((uint32_t *)out)[j] = joined[0];
    } else {
        ((uint16_t *)out)[j] = (uint16_t)joined[0];
    }
}

/* Forms of at most 8 bits. */
template <enum dev_form FORM>
static __global__ void __launch_bounds__(THREADS)
    encode_small(uint8_t *out, float *residual, const float *z, const struct dev_encode a)
{
    size_t blocks = a.count / DEV_BLOCK;
    constexpr bool RANDOM = FORM == DEV_E5M2_RANDOM;
    constexpr int BITS = FORM == DEV_SIGN                       ? 1
                         : FORM == DEV_INT2                     ? 2
                         : FORM == DEV_INT4 || FORM == DEV_E3M0 ? 4
                                                                : 8;
    __shared__ uint4 held16[BLOCKS][DEV_BLOCK / 16];
    __shared__ uint32_t random[RANDOM ? BLOCKS : 1][RANDOM_ROW];
    size_t block = thread_index() / LANES;
    unsigned j = threadIdx.x % LANES, row = threadIdx.x / LANES;
    uint8_t *held = (uint8_t *)held16[row];
    bool real = block < blocks;
    float x[EACH];
    double sum = 0;
    uint32_t most = 0, said = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        x[i] = real ? z[block * DEV_BLOCK + i * LANES + j] : 0.0f;
    if (RANDOM)
        random_words(random[RANDOM ? row : 0], a, block);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        double v = (double)x[i];
        uint32_t size = float_bits(x[i]) & 0x7fffffffu;
        sum += v * v;
        most = size > most ? size : most;
    }
    uint8_t own = grid_code(half_sum(sum));
    if (FORM == DEV_E3M0)
        most = half_max(most);
    struct form_scale s = form_scale(FORM, own, real && a.grid ? a.grid[block] : 0, most);
    __syncwarp(); /* random */
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        struct form_sent v = {form_none(FORM), 0.0f};
        if (s.sent) {
            v = form_send(FORM, x[i], &s, RANDOM ? random[RANDOM ? row : 0][i * LANES + j] : 0);
            x[i] = x[i] - v.value;
        }
        said |= v.u ^ form_none(FORM);
        held[i * LANES + j] = (uint8_t)v.u;
        if (real)
            residual[block * DEV_BLOCK + i * LANES + j] = x[i];
    }
    said = half_or(said);
    __syncwarp();
    if (!real)
        return;
    uint8_t *to = out + block * form_bytes(FORM);
    if (FORM == DEV_E3M0 && j == 0)
        *(uint32_t *)to = s.sent ? most : 0;
    put_joined<BITS>(to + (FORM == DEV_E3M0 ? FORM_SCALE_BYTES : 0), held, FORM == DEV_E3M0);
    if (j == 0) {
        a.code[block] = own;
        a.present[block] = FORM == DEV_SIGN ? s.sent : said != 0;
    }
}

/* DEV_F32, DEV_BF16: T is float or uint16_t. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    encode_large(T *out, float *residual, const float *z, const struct dev_encode a)
{
    size_t blocks = a.count / DEV_BLOCK;
    size_t block = thread_index() / LANES;
    unsigned j = threadIdx.x % LANES;
    bool real = block < blocks;
    float x[EACH];
    double sum = 0;
    uint32_t said = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        x[i] = real ? z[block * DEV_BLOCK + i * LANES + j] : 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        size_t at = block * DEV_BLOCK + i * LANES + j;
        double v = (double)x[i];
        uint16_t h = grid_bf16(x[i]);
        sum += v * v;
        said |= sizeof(T) == 4 ? float_bits(x[i]) : h;
        if (!real)
            continue;
        if (sizeof(T) == 4) {
            ((float *)out)[at] = x[i];
            residual[at] = 0;
        } else {
            ((uint16_t *)out)[at] = h;
            residual[at] = x[i] - bf16_float(h);
        }
    }
    sum = half_sum(sum);
    said = half_or(said);
    if (real && j == 0) {
        a.code[block] = grid_code(sum);
        a.present[block] = said != 0;
    }
}

#define SMALL_FORMS(X)                                                                             \
    X(DEV_INT8)                                                                                    \
    X(DEV_INT4) X(DEV_INT2) X(DEV_SIGN) X(DEV_E3M0) X(DEV_E4M3) X(DEV_E5M2) X(DEV_E5M2_RANDOM)

extern "C" void cuda_block_encode(struct dev *d, uint8_t *out, float *residual, const float *z,
                                  const struct dev_encode *a)
{
    size_t blocks = a->count / DEV_BLOCK;
    unsigned grid = blocks_for(blocks, BLOCKS);
    ASSERT(aligned16(out));
    if (!blocks)
        return;
    switch (a->form) {
#define X(form)                                                                                    \
    case form:                                                                                     \
        LAUNCH(cuda_of(d), encode_small<form>, grid, THREADS, 0, out, residual, z, *a);            \
        break;
        SMALL_FORMS(X)
#undef X
    case DEV_BF16:
        LAUNCH(cuda_of(d), encode_large<uint16_t>, grid, THREADS, 0, (uint16_t *)out, residual, z,
               *a);
        break;
    default:
        LAUNCH(cuda_of(d), encode_large<float>, grid, THREADS, 0, (float *)out, residual, z, *a);
    }
}

/* ---- decode ---- */

/* v or z + v, divided: two roundings at most, in this order. */
static __device__ __forceinline__ void put_values(float *z, const float *v,
                                                  const struct dev_decode &a)
{
    float4 *to = (float4 *)z;
    float4 x = make_float4(v[0], v[1], v[2], v[3]);
    if (a.add) {
        float4 y = *to;
        x = make_float4(y.x + x.x, y.y + x.y, y.z + x.z, y.w + x.w);
    }
    if (a.divisor != 1)
        x = make_float4(x.x / a.divisor, x.y / a.divisor, x.z / a.divisor, x.w / a.divisor);
    *to = x;
}

/* Four values of a gathered block; i: index of the first. */
template <enum dev_form FORM>
static __device__ __forceinline__ void get_relayed(float *v, const uint8_t *in, unsigned i,
                                                   uint8_t own)
{
    if (FORM == DEV_F32) {
        float4 x = *(const float4 *)(in + i * 4);
        v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
    } else if (FORM == DEV_BF16) {
        ushort4 x = *(const ushort4 *)(in + i * 2);
        v[0] = bf16_float(x.x), v[1] = bf16_float(x.y), v[2] = bf16_float(x.z),
        v[3] = bf16_float(x.w);
    } else if (FORM == DEV_E3M0) {
        float scale = float_of_bits(*(const uint32_t *)in);
        uint32_t u = *(const uint16_t *)(in + FORM_SCALE_BYTES + i / 2);
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = form_value(FORM, u >> 4 * k & 15, scale);
    } else {
        float scale = form_fp8_scale(FORM, own);
        uint32_t u = *(const uint32_t *)(in + i);
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = form_value(FORM, u >> 8 * k & 255, scale);
    }
}

enum { PAIR = 2, LANE_VALUES = 4 }; /* a lane's loads: 2 of 4 values, a warp's width apart */

template <enum dev_form FORM>
static __global__ void __launch_bounds__(THREADS)
    decode_relayed(float *z, const uint8_t *in, struct dev_decode a, size_t blocks)
{
    size_t block = thread_index() / WARP;
    if (block >= blocks)
        return;
    uint32_t slot = a.slot[block];
    uint8_t own = FORM == DEV_E4M3 || FORM == DEV_E5M2 ? a.code[block] : 0;
#pragma unroll
    for (unsigned r = 0; r < PAIR; r++) {
        unsigned i = (r * WARP + threadIdx.x % WARP) * LANE_VALUES;
        float v[LANE_VALUES] = {0};
        if (slot != DEV_ABSENT)
            get_relayed<FORM>(v, in + slot * form_bytes(FORM), i, own);
        put_values(z + block * DEV_BLOCK + i, v, a);
    }
}

/* Value i of a block; at most 18 bits, so that it lies in two words, the second of which is in the
 * block where it is needed. */
template <int BITS>
static __device__ __forceinline__ uint32_t get_bits(const uint32_t *words, unsigned i)
{
    unsigned bit = i * BITS, word = bit / 32, shift = bit % 32;
    uint64_t two = words[word];
    if (shift + BITS > 32)
        two |= (uint64_t)words[word + 1] << 32;
    return (uint32_t)(two >> shift) & ((1u << BITS) - 1);
}

/* Sums of integers, or of signs. int to float rounds to nearest even on both sides; the product is
 * exact; the division is IEEE. */
template <int BITS>
static __global__ void __launch_bounds__(THREADS)
    decode_sums(float *z, const uint8_t *in, struct dev_decode a, size_t blocks)
{
    size_t block = thread_index() / WARP;
    if (block >= blocks)
        return;
    uint32_t slot = a.slot[block];
    const uint32_t *words = (const uint32_t *)in + (size_t)slot * (DEV_BLOCK / 32 * BITS);
    int32_t times = a.form == DEV_SIGN ? 2 : 1, bias = a.form == DEV_SIGN ? a.signs[block] : a.bias,
            over = 0;
    float step = grid_step(form_step(a.form, a.code[block]));
#pragma unroll
    for (unsigned r = 0; r < PAIR; r++) {
        unsigned i = (r * WARP + threadIdx.x % WARP) * LANE_VALUES;
        float v[LANE_VALUES] = {0};
        if (slot != DEV_ABSENT)
#pragma unroll
            for (unsigned k = 0; k < LANE_VALUES; k++) {
                int32_t q = (int32_t)get_bits<BITS>(words, i + k) * times - bias;
                over |= q > bias;
                v[k] = (float)q * step;
            }
        put_values(z + block * DEV_BLOCK + i, v, a);
    }
    if (over)
        atomicOr((unsigned *)a.overflow, 1u);
}

#define RELAYED_FORMS(X) X(DEV_F32) X(DEV_BF16) X(DEV_E3M0) X(DEV_E4M3)
/* The widths, so that shifts and offsets are constants in each kernel. */
#define WIDTHS(X)                                                                                  \
    X(1)                                                                                           \
    X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18)

static void sums_launch(struct cuda *c, float *z, const uint8_t *in, const struct dev_decode *a,
                        size_t blocks)
{
    ASSERT(a->bits >= 1 && a->bits <= BITS_MAX && !a->add);
    switch (a->bits) {
#define X(width)                                                                                   \
    case width:                                                                                    \
        LAUNCH(c, decode_sums<width>, blocks_for(blocks, THREADS / WARP), THREADS, 0, z, in, *a,   \
               blocks);                                                                            \
        break;
        WIDTHS(X)
#undef X
    }
}

extern "C" void cuda_block_decode(struct dev *d, float *z, const uint8_t *in,
                                  const struct dev_decode *a)
{
    size_t blocks = a->count / DEV_BLOCK;
    unsigned grid = blocks_for(blocks, THREADS / WARP);
    ASSERT(aligned16(z) && aligned16(in));
    if (!blocks)
        return;
    switch (a->form) {
#define X(form)                                                                                    \
    case form:                                                                                     \
        LAUNCH(cuda_of(d), decode_relayed<form>, grid, THREADS, 0, z, in, *a, blocks);             \
        break;
        RELAYED_FORMS(X)
#undef X
    case DEV_E5M2:
    case DEV_E5M2_RANDOM:
        LAUNCH(cuda_of(d), decode_relayed<DEV_E5M2>, grid, THREADS, 0, z, in, *a, blocks);
        break;
    default:
        sums_launch(cuda_of(d), z, in, a, blocks);
    }
}

/* ---- streams ---- */

/* Word by word, counted in 32 bits: a division of 64 is a long sequence. */
static __global__ void block_gather(uint32_t *out, const uint32_t *in, const uint32_t *index,
                                    unsigned words, unsigned count)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        out[i] = in[(size_t)index[i / words] * words + i % words];
}

extern "C" void cuda_block_gather(struct dev *d, uint8_t *out, const uint8_t *in,
                                  const uint32_t *index, size_t size_bytes, size_t blocks)
{
    size_t count = blocks * (size_bytes / 4);
    ASSERT(size_bytes % 4 == 0 && count <= UINT32_MAX - THREADS);
    if (count)
        LAUNCH(cuda_of(d), block_gather, blocks_for(count, THREADS), THREADS, 0, (uint32_t *)out,
               (const uint32_t *)in, index, (unsigned)(size_bytes / 4), (unsigned)count);
}

/* Integers: a warp for each block of 256, a lane for each group of 8 values, which is `bits` bytes.
 * The stream is put together in shared memory and leaves it as words. */
template <int BITS>
static __global__ void pack(uint8_t *out, const int32_t *q, int32_t bias, size_t blocks)
{
    enum { BYTES = DEV_BLOCK / GROUP * BITS };
    __shared__ uint32_t streams[THREADS / WARP][BYTES / 4];
    size_t block = thread_index() / WARP;
    unsigned lane = threadIdx.x % WARP;
    uint8_t *stream = (uint8_t *)streams[threadIdx.x / WARP];
    if (block < blocks) {
        const int32_t *from = q + block * DEV_BLOCK + lane * GROUP;
        uint64_t low = 0, high = 0;
#pragma unroll
        for (int i = 0; i < GROUP / 2; i++) {
            low |= (uint64_t)(uint32_t)(from[i] + bias) << i * BITS % 64;
            high |= (uint64_t)(uint32_t)(from[4 + i] + bias) << i * BITS % 64;
        }
        uint64_t words[3] = {low, high, 0};
        if (BITS < BITS_PAIR) {
            words[0] = low | high << (4 * BITS) % 64;
            words[1] = high >> ((64 - 4 * BITS) & 63); /* of the branch not taken, too */
        }
        if (BITS > BITS_PAIR) { /* values lie across the words */
            words[0] = words[1] = 0;
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                uint64_t value = (uint32_t)(from[i] + bias);
                words[i * BITS / 64] |= value << i * BITS % 64;
                if (i * BITS % 64 + BITS > 64)
                    words[i * BITS / 64 + 1] |= value >> (64 - i * BITS % 64) % 64;
            }
        }
#pragma unroll
        for (int i = 0; i < BITS; i++)
            stream[lane * BITS + i] = (uint8_t)(words[i / 8] >> i % 8 * 8);
    }
    __syncwarp();
    if (block >= blocks)
        return;
    uint8_t *to = out + block * BYTES;
    if (((uintptr_t)to & 3) == 0)
        for (unsigned i = lane; i < BYTES / 4; i += WARP)
            ((uint32_t *)to)[i] = streams[threadIdx.x / WARP][i];
    else
        for (unsigned i = lane; i < BYTES; i += WARP)
            to[i] = stream[i];
}

template <int BITS>
static __global__ void unpack(int32_t *q, const uint8_t *in, const uint32_t *slots, int32_t bias,
                              bool add, size_t blocks)
{
    size_t block = thread_index() / WARP;
    if (block >= blocks)
        return;
    uint32_t slot = slots[block];
    const uint32_t *words = (const uint32_t *)in + (size_t)slot * (DEV_BLOCK / 32 * BITS);
    int32_t *to = q + block * DEV_BLOCK;
    for (unsigned i = threadIdx.x % WARP; i < DEV_BLOCK;
         i += WARP) { /* neighbours write neighbours */
        int32_t value = slot != DEV_ABSENT ? (int32_t)get_bits<BITS>(words, i) - bias : 0;
        to[i] = add ? to[i] + value : value;
    }
}

extern "C" void cuda_pack(struct dev *d, uint8_t *out, const int32_t *q, int32_t bias,
                          unsigned bits, size_t count)
{
    size_t blocks = count / DEV_BLOCK;
    ASSERT(bits >= 1 && bits <= BITS_MAX);
    if (blocks == 0)
        return;
    switch (bits) {
#define X(width)                                                                                   \
    case width:                                                                                    \
        LAUNCH(cuda_of(d), pack<width>, blocks_for(blocks, THREADS / WARP), THREADS, 0, out, q,    \
               bias, blocks);                                                                      \
        break;
        WIDTHS(X)
#undef X
    }
}

extern "C" void cuda_unpack(struct dev *d, int32_t *q, const uint8_t *in,
                            const struct dev_unpack *a)
{
    size_t blocks = a->count / DEV_BLOCK;
    ASSERT(a->bits >= 1 && a->bits <= BITS_MAX);
    if (blocks == 0)
        return;
    switch (a->bits) {
#define X(width)                                                                                   \
    case width:                                                                                    \
        LAUNCH(cuda_of(d), unpack<width>, blocks_for(blocks, THREADS / WARP), THREADS, 0, q, in,   \
               a->slot, a->bias, a->add, blocks);                                                  \
        break;
        WIDTHS(X)
#undef X
    }
}
