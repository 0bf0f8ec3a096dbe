/* SPDX-License-Identifier: Apache-2.0 */
/* Products with operands in 8 bits (device.matmul_precision = fp8_hybrid, scalar/fp8.h): both
 * operands are rounded into scratch memory, each with the scale of its largest value, and
 * multiplied by cuBLASLt with sums in f32. The library wants rows along K for both operands, and K,
 * N and its addresses multiples of 16: operands are transposed where they lie the other way, and
 * padded by zeros; a result whose rows are no such multiple passes through scratch memory.
 *
 * The same operands as in the emulation of kernels/cpu/matmul_narrow.c; sums in another order.
 */
#include "kernels/cuda/tile.cuh"
#include "kernels/scalar/fp8.h"

/* HEAD_BYTES: two largest values, then, each at a multiple of SCALE_BYTES, the inverse scales of a
 * and b: cuBLASLt refuses scales that are not 16-byte aligned (12.9 and later; at 8 and 12 bytes
 * the first product failed on an H200). */
enum { THREADS = 256, TILE = 32, EACH = 16, HEAD_BYTES = 256, SCALE_BYTES = 64 };

struct operand { /* op(x) (rows, K) */
    const void *x;
    size_t rows, K, stride;
    bool transposed; /* x is stored (K, rows) */
    int form;
    uint32_t *largest; /* bits of the largest magnitude */
    float *inverse;    /* 2^-k of its scale */
    uint8_t *codes;    /* (rows, padded) */
    size_t padded;
};

template <typename T> static __global__ void fp8_largest(const struct operand o)
{
    __shared__ uint32_t held[THREADS];
    size_t along = o.transposed ? o.rows : o.K, count = o.rows * o.K;
    size_t begin = (size_t)blockIdx.x * THREADS * EACH;
    uint32_t most = 0;
    for (int k = 0; k < EACH; k++) {
        size_t i = begin + (size_t)k * THREADS + threadIdx.x;
        float x = 0;
        if (i < count)
            load<T, 1>(&x, (const T *)o.x + i / along * o.stride + i % along);
        uint32_t size = float_bits(x) & 0x7fffffffu;
        most = size > most ? size : most;
    }
    held[threadIdx.x] = most;
    for (unsigned half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half && held[threadIdx.x + half] > held[threadIdx.x])
            held[threadIdx.x] = held[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        atomicMax((unsigned *)o.largest, held[0]); /* of integers: any order */
}

/* A block for TILE rows and TILE columns of the codes; reads along the rows of x. */
template <typename T> static __global__ void fp8_codes(const struct operand o)
{
    __shared__ uint8_t tile[TILE * (TILE + 1)];
    size_t tiles = (o.padded + TILE - 1) / TILE;
    size_t row = (size_t)blockIdx.x / tiles * TILE, column = (size_t)blockIdx.x % tiles * TILE;
    int k = fp8_exponent(float_of_bits(*o.largest), o.form);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *o.inverse = fp8_scale(-k);
    for (unsigned i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        unsigned slow = i / TILE, fast = i % TILE;
        unsigned r = o.transposed ? fast : slow, c = o.transposed ? slow : fast;
        float x = 0;
        if (row + r < o.rows && column + c < o.K)
            load<T, 1>(&x, (const T *)o.x + (o.transposed ? (column + c) * o.stride + row + r
                                                          : (row + r) * o.stride + column + c));
        tile[r * (TILE + 1) + c] = (uint8_t)fp8_code(x, fp8_scale(k), o.form);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        unsigned r = i / TILE, c = i % TILE;
        if (row + r < o.rows && column + c < o.padded)
            o.codes[(row + r) * o.padded + column + c] = tile[r * (TILE + 1) + c];
    }
}

/* c (rows, N) = or += x (rows, padded). */
template <typename T>
static __global__ void fp8_result(T *c, size_t stride, const T *x, size_t padded, size_t N,
                                  size_t count, bool accumulate)
{
    size_t i = thread_index();
    if (i >= count)
        return;
    float sum, before = 0;
    T *to = c + i / N * stride + i % N;
    load<T, 1>(&sum, x + i / N * padded + i % N);
    if (accumulate)
        load<T, 1>(&before, to);
    sum += before;
    store<T, 1>(to, &sum);
}

template <typename T> static void operand_round(struct cuda *c, const struct operand *o)
{
    size_t tiles = (o->rows + TILE - 1) / TILE * ((o->padded + TILE - 1) / TILE);
    LAUNCH(c, fp8_largest<T>, blocks_for(o->rows * o->K, THREADS * EACH), THREADS, 0, *o);
    LAUNCH(c, fp8_codes<T>, blocks_for(tiles, 1), THREADS, 0, *o);
}

template <typename T>
static void result_copy(struct cuda *c, const struct product *p, const void *x, size_t padded)
{
    LAUNCH(c, fp8_result<T>, blocks_for(p->M * p->N, THREADS), THREADS, 0, (T *)p->c, p->ldc,
           (const T *)x, padded, p->N, p->M * p->N, p->accumulate);
}

static size_t up16(size_t n)
{
    return (n + 15) / 16 * 16;
}

/* Of the scratch memory: scales | codes of a | codes of b | padded result. */
struct room {
    size_t K, N, a_bytes, b_bytes, c_bytes;
};

static struct room room_of(const struct product *p)
{
    size_t each = dtype_size(p->out);
    bool direct = p->N % 16 == 0 && p->ldc * each % 16 == 0 && aligned16(p->c);
    struct room r = {up16(p->K), up16(p->N), 0, 0, 0};
    r.a_bytes = (p->M * r.K + 255) / 256 * 256;
    r.b_bytes = (r.N * r.K + 255) / 256 * 256;
    r.c_bytes = direct ? 0 : p->M * r.N * each;
    return r;
}

static float *scale_at(char *base, int operand)
{
    return (float *)(base + (1 + operand) * SCALE_BYTES);
}

static bool operands_round(struct cuda *c, const struct product *p, const struct room *r,
                           char *base)
{
    int form = p->gradient ? FP8_E5M2 : FP8_E4M3;
    uint32_t *largest = (uint32_t *)base;
    uint8_t *codes = (uint8_t *)base + HEAD_BYTES;
    const struct operand a = {p->a,  p->M, p->K, p->lda, p->a_t, form, largest, scale_at(base, 0),
                              codes, r->K},
                         b = {p->b,
                              p->N,
                              p->K,
                              p->ldb,
                              !p->b_t,
                              FP8_E4M3,
                              largest + 1,
                              scale_at(base, 1),
                              codes + r->a_bytes,
                              r->K};
    c->dev.ops->zero(&c->dev, base, HEAD_BYTES);
    if (r->N > p->N) /* rows of zeros, that the result drops */
        c->dev.ops->zero(&c->dev, codes + r->a_bytes + p->N * r->K, (r->N - p->N) * r->K);
    if (p->in == DTYPE_F32) {
        operand_round<float>(c, &a);
        operand_round<float>(c, &b);
    } else {
        operand_round<uint16_t>(c, &a);
        operand_round<uint16_t>(c, &b);
    }
    return !c->dev.failed;
}

extern "C" bool cuda_fp8_run(struct cuda *c, const struct product *p)
{
    if (p->M == 0 || p->N == 0 || p->K == 0)
        return true;
    const struct room r = room_of(p);
    char *base = c->dev.failed
                     ? NULL
                     : (char *)cuda_scratch(c, CUDA_SLOT_FP8,
                                            HEAD_BYTES + r.a_bytes + r.b_bytes + r.c_bytes);
    if (!base || !operands_round(c, p, &r, base))
        return false;
    char *out = base + HEAD_BYTES + r.a_bytes + r.b_bytes;
    struct product q = *p;
    q.a = base + HEAD_BYTES, q.b = base + HEAD_BYTES + r.a_bytes;
    q.a_t = false, q.b_t = true;
    q.K = q.lda = q.ldb = r.K;
    q.a_form = p->gradient ? FP8_E5M2 : FP8_E4M3, q.b_form = FP8_E4M3;
    q.a_scale = scale_at(base, 0), q.b_scale = scale_at(base, 1);
    if (r.c_bytes) {
        q.c = out;
        q.N = q.ldc = r.N;
        q.accumulate = false;
    }
    if (!cuda_matmul_run(c, &q))
        return false;
    if (r.c_bytes && p->out == DTYPE_F32)
        result_copy<float>(c, p, out, r.N);
    else if (r.c_bytes)
        result_copy<uint16_t>(c, p, out, r.N);
    return true;
}
