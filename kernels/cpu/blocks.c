/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding and decoding of blocks of 256 values in the wire formats, and bit-packed integers, on
 * the CPU (dev.h, exact set): formulas from kernels/scalar, loops here. One block at a time, so
 * that a second loop over a block reads from L1. Blocks are independent: the bits are the same at
 * every thread count.
 */
#include "kernels/base/rng.h"
#include "kernels/cpu/exact.h"
#include "kernels/scalar/forms.h"
#include "kernels/base/philox.h"

enum {
    BITS_MAX = 18,
    BITS_PAIR = 16,
    GROUP = 8
}; /* 8 values begin and end on a byte at any width */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "packed streams are little-endian");
#define INLINE static inline __attribute__((always_inline)) /* with constants for arguments */

/* ---- streams of integers ---- */

/* One block. A group of 8 values is `bits` bytes: two words of 4 values, joined and stored as 16
 * bytes. The next group overwrites the excess bytes, so the group is written to a padded buffer
 * first. `bits` is a constant wherever this is inlined. */
INLINE void block_pack(uint8_t *out, const int32_t *q, int32_t bias, const unsigned bits)
{
    uint8_t stream[DEV_BLOCK * BITS_PAIR / 8 + 16];
    for (size_t g = 0; g < DEV_BLOCK / GROUP; g++) {
        uint64_t low = 0, high = 0;
        for (unsigned i = 0; i < GROUP / 2; i++) {
            low |= (uint64_t)(uint32_t)(q[g * GROUP + i] + bias) << i * bits;
            high |= (uint64_t)(uint32_t)(q[g * GROUP + 4 + i] + bias) << i * bits;
        }
        uint64_t words[2] = {low, high};
        if (bits < BITS_PAIR) {
            words[0] = low | high << 4 * bits;
            words[1] = high >> (64 - 4 * bits);
        }
        memcpy(stream + g * bits, words, sizeof words);
    }
    memcpy(out, stream, DEV_BLOCK / GROUP * bits);
}

/* Widths that two words do not hold: value by value; the next value overwrites the excess bytes. */
INLINE void block_pack_wide(uint8_t *out, const int32_t *q, int32_t bias, const unsigned bits)
{
    uint8_t stream[DEV_BLOCK * BITS_MAX / 8 + 4] = {0};
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        uint32_t word;
        memcpy(&word, stream + i * bits / 8, sizeof word);
        word |= (uint32_t)(q[i] + bias) << i * bits % 8;
        memcpy(stream + i * bits / 8, &word, sizeof word);
    }
    memcpy(out, stream, DEV_BLOCK / GROUP * bits);
}

/* One block. Value i of a group starts at bit i*bits; a load of 4 bytes from there holds it whole.
 */
INLINE void block_unpack(int32_t *q, const uint8_t *in, int32_t bias, const unsigned bits,
                         const bool add)
{
    uint8_t stream[DEV_BLOCK * BITS_MAX / 8 + 4];
    memcpy(stream, in, DEV_BLOCK / GROUP * bits);
    memset(stream + DEV_BLOCK / GROUP * bits, 0, 4);
    for (size_t g = 0; g < DEV_BLOCK / GROUP; g++)
        for (unsigned i = 0; i < GROUP; i++) {
            uint32_t word;
            memcpy(&word, stream + g * bits + i * bits / 8, sizeof word);
            int32_t value = (int32_t)(word >> i * bits % 8 & ((1u << bits) - 1)) - bias;
            q[g * GROUP + i] = add ? q[g * GROUP + i] + value : value;
        }
}

/* The widths, so that shifts and offsets are constants in each loop. */
#define WIDTHS(X)                                                                                  \
    X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16)
#define WIDTHS_WIDE(X) X(17) X(18)

void LEVEL_NAME(cpu_pack)(struct dev *d, uint8_t *out, const int32_t *q, int32_t bias,
                          unsigned bits, size_t count)
{
    ASSERT(bits >= 1 && bits <= BITS_MAX);
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t b = 0; b < count / DEV_BLOCK; b++)
        switch (bits) {
#define X(width)                                                                                   \
    case width:                                                                                    \
        block_pack(out + b * (DEV_BLOCK / 8) * width, q + b * DEV_BLOCK, bias, width);             \
        break;
            WIDTHS(X)
#undef X
#define X(width)                                                                                   \
    case width:                                                                                    \
        block_pack_wide(out + b * (DEV_BLOCK / 8) * width, q + b * DEV_BLOCK, bias, width);        \
        break;
            WIDTHS_WIDE(X)
#undef X
        }
}

static void unpack_any(int32_t *q, const uint8_t *in, int32_t bias, unsigned bits, bool add)
{
    switch (bits) {
#define X(width)                                                                                   \
    case width:                                                                                    \
        block_unpack(q, in, bias, width, add);                                                     \
        break;
        WIDTHS(X)
        WIDTHS_WIDE(X)
#undef X
    }
}

void LEVEL_NAME(cpu_unpack)(struct dev *d, int32_t *q, const uint8_t *in,
                            const struct dev_unpack *a)
{
    const uint32_t *slot = a->slot;
    unsigned bits = a->bits;
    int32_t bias = a->bias;
    bool add = a->add;
    size_t count = a->count;
    ASSERT(bits >= 1 && bits <= BITS_MAX);
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t b = 0; b < count / DEV_BLOCK; b++) {
        if (slot[b] != DEV_ABSENT)
            unpack_any(q + b * DEV_BLOCK, in + (size_t)slot[b] * (DEV_BLOCK / 8) * bits, bias, bits,
                       add);
        else if (!add)
            memset(q + b * DEV_BLOCK, 0, DEV_BLOCK * sizeof *q);
    }
}

/* ---- encode ---- */

/* Element e of the fragment gets word e % 4 of counter e / 4 (philox). All counters of a block run
 * through the rounds together, so that the loops vectorise. */
static inline void random_words(uint32_t random[DEV_BLOCK], uint64_t seed, uint64_t stream,
                                size_t block)
{
    enum { N = DEV_BLOCK / 4 };
    philox_word c[4][N];
    uint64_t first = (uint64_t)block * N;
    for (uint32_t i = 0; i < N; i++) {
        c[0][i] = (uint32_t)first + i; /* no carry: first is a multiple of N */
        c[1][i] = (uint32_t)(first >> 32);
        c[2][i] = (uint32_t)stream;
        c[3][i] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        struct philox_key k = philox_key(seed, round);
        for (size_t i = 0; i < N; i++)
            philox_round(&c[0][i], &c[1][i], &c[2][i], &c[3][i], k);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < 4; k++)
            random[4 * i + k] = (uint32_t)c[k][i];
}

/* Magnitudes compare as integers; a NaN is above infinity. */
static inline uint32_t largest(const float *z)
{
    int32_t most = 0;
#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        int32_t size = (int32_t)(float_bits(z[i]) & 0x7fffffffu);
        most = size > most ? size : most;
    }
    return (uint32_t)most;
}

/* Values of 8 bits -> of `bits`, low bits first. */
INLINE void block_join(uint8_t *out, const uint8_t *u, const unsigned bits)
{
    if (bits == 4)
        for (size_t i = 0; i < DEV_BLOCK / 2; i++)
            out[i] = (uint8_t)(u[2 * i] | u[2 * i + 1] << 4);
    if (bits == 2)
        for (size_t i = 0; i < DEV_BLOCK / 4; i++)
            out[i] =
                (uint8_t)(u[4 * i] | u[4 * i + 1] << 2 | u[4 * i + 2] << 4 | u[4 * i + 3] << 6);
    if (bits == 1)
        for (size_t i = 0; i < DEV_BLOCK / 8; i++) {
            uint64_t eight; /* bytes 0 or 1: byte k ends up as bit 56 + k, without carries */
            memcpy(&eight, u + 8 * i, sizeof eight);
            out[i] = (uint8_t)(eight * 0x0102040810204080u >> 56);
        }
}

struct block_codes {
    uint8_t own, grid;      /* block code; code of the grid */
    const uint32_t *random; /* (DEV_BLOCK): DEV_E5M2_RANDOM */
};

/* Encodes a block in a form of at most 8 bits a value; false: all codes stand for 0. residual may
 * be z. */
INLINE bool small_encode(const enum dev_form form, uint8_t *out, float *residual, const float *z,
                         const struct block_codes *c)
{
    uint8_t held[DEV_BLOCK], *u = form_bits(form) == 8 ? out : held;
    const struct form_scale s =
        form_scale(form, c->own, c->grid, form == DEV_E3M0 ? largest(z) : 0);
    if (!s.sent) {
        memset(out, form_nothing(form), form_bytes(form));
        if (residual != z)
            memcpy(residual, z, DEV_BLOCK * sizeof *z);
        return false;
    }
    uint32_t said = form == DEV_SIGN; /* DEV_SIGN has no code for 0 */
#pragma omp simd reduction(| : said)
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        struct form_sent v = form_send(form, z[i], &s, form == DEV_E5M2_RANDOM ? c->random[i] : 0);
        u[i] = (uint8_t)v.u;
        said |= v.u ^ form_none(form);
        residual[i] = z[i] - v.value;
    }
    if (form == DEV_E3M0) {
        memcpy(out, &s.scale, FORM_SCALE_BYTES);
        out += FORM_SCALE_BYTES;
    }
    block_join(out, u, form_bits(form));
    return said != 0;
}

static bool large_encode(enum dev_form form, uint8_t *out, float *residual, const float *z)
{
    uint16_t half[DEV_BLOCK];
    uint32_t said = 0;
    if (form == DEV_F32) {
#pragma omp simd reduction(| : said)
        for (size_t i = 0; i < DEV_BLOCK; i++)
            said |= float_bits(z[i]);
        memcpy(out, z, DEV_BLOCK * sizeof *z);
        memset(residual, 0, DEV_BLOCK * sizeof *z);
        return said != 0;
    }
#pragma omp simd reduction(| : said)
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        uint16_t h = grid_bf16(z[i]);
        half[i] = h;
        said |= h;
        residual[i] = z[i] - bf16_float(h);
    }
    memcpy(out, half, sizeof half);
    return said != 0;
}

/* The small forms, each a constant in a loop of its own. */
#define SMALL_FORMS(X)                                                                             \
    X(DEV_INT8)                                                                                    \
    X(DEV_INT4) X(DEV_INT2) X(DEV_SIGN) X(DEV_E3M0) X(DEV_E4M3) X(DEV_E5M2) X(DEV_E5M2_RANDOM)

static bool encode_one(const struct dev_encode *a, uint8_t *out, float *residual, const float *z,
                       size_t block)
{
    uint32_t random[DEV_BLOCK];
    const struct block_codes c = {a->code[block], a->grid ? a->grid[block] : 0, random};
    if (a->form == DEV_E5M2_RANDOM)
        random_words(random, a->seed, a->stream, a->first + block);
    switch (a->form) {
#define X(small)                                                                                   \
    case small:                                                                                    \
        return small_encode(small, out, residual, z, &c);
        SMALL_FORMS(X)
#undef X
    default:
        return large_encode(a->form, out, residual, z);
    }
}

void LEVEL_NAME(cpu_block_encode)(struct dev *d, uint8_t *out, float *residual, const float *z,
                                  const struct dev_encode *a)
{
    size_t n = form_bytes(a->form);
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t b = 0; b < a->count / DEV_BLOCK; b++) {
        const float *from = z + b * DEV_BLOCK;
        a->code[b] = grid_code(exact_block_squares(from, NULL));
        a->present[b] = encode_one(a, out + b * n, residual + b * DEV_BLOCK, from, b);
    }
}

/* ---- decode ---- */

/* Values of a form that does not add. */
INLINE void small_decode(const enum dev_form form, float *v, const uint8_t *in, uint8_t own)
{
    uint8_t nibble[DEV_BLOCK];
    const uint8_t *u = in;
    float scale;
    if (form == DEV_E3M0) {
        memcpy(&scale, in, FORM_SCALE_BYTES);
        for (size_t i = 0; i < DEV_BLOCK / 2; i++) {
            nibble[2 * i] = in[FORM_SCALE_BYTES + i] & 15;
            nibble[2 * i + 1] = in[FORM_SCALE_BYTES + i] >> 4;
        }
        u = nibble;
    } else {
        scale = form_fp8_scale(form, own);
    }
#pragma omp simd
    for (size_t i = 0; i < DEV_BLOCK; i++)
        v[i] = form_value(form, u[i], scale);
}

static void bf16_decode(float *v, const uint8_t *in)
{
    uint16_t half[DEV_BLOCK];
    memcpy(half, in, sizeof half);
    for (size_t i = 0; i < DEV_BLOCK; i++)
        v[i] = bf16_float(half[i]);
}

static void relayed_decode(const struct dev_decode *a, float *v, const uint8_t *in, size_t block)
{
    if (!in)
        memset(v, 0, DEV_BLOCK * sizeof *v);
    else if (a->form == DEV_F32)
        memcpy(v, in, DEV_BLOCK * sizeof *v);
    else if (a->form == DEV_BF16)
        bf16_decode(v, in);
    else if (a->form == DEV_E3M0)
        small_decode(DEV_E3M0, v, in, 0);
    else if (a->form == DEV_E4M3)
        small_decode(DEV_E4M3, v, in, a->code[block]);
    else
        small_decode(DEV_E5M2, v, in, a->code[block]);
}

static void finish(float *z, const float *v, bool add, float divisor)
{
    if (add && divisor != 1)
        for (size_t i = 0; i < DEV_BLOCK; i++)
            z[i] = (z[i] + v[i]) / divisor;
    else if (add)
        for (size_t i = 0; i < DEV_BLOCK; i++)
            z[i] = z[i] + v[i];
    else if (divisor != 1)
        for (size_t i = 0; i < DEV_BLOCK; i++)
            z[i] = v[i] / divisor;
}

/* Returns whether a sum exceeds the range that its payloads allow. */
static bool sum_decode(const struct dev_decode *a, float *z, const uint8_t *in, size_t block)
{
    int32_t q[DEV_BLOCK], times = a->form == DEV_SIGN ? 2 : 1, over = 0;
    int32_t bias = a->form == DEV_SIGN ? a->signs[block] : a->bias;
    float step = grid_step(form_step(a->form, a->code[block])), divisor = a->divisor;
    if (!in) {
        memset(z, 0, DEV_BLOCK * sizeof *z);
        return false;
    }
    unpack_any(q, in, 0, a->bits, false);
#pragma omp simd reduction(| : over)
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        int32_t sum = q[i] * times - bias;
        over |= sum > bias;
        z[i] = (float)sum * step;
    }
    finish(z, z, false, divisor);
    return over;
}

void LEVEL_NAME(cpu_block_decode)(struct dev *d, float *z, const uint8_t *in,
                                  const struct dev_decode *a)
{
    bool sums = a->form >= DEV_INT8 && a->form <= DEV_SIGN;
    size_t n = sums ? (size_t)DEV_BLOCK / 8 * a->bits : form_bytes(a->form);
    uint32_t over = 0;
#pragma omp parallel for num_threads(d->threads) schedule(static) reduction(| : over)
    for (size_t b = 0; b < a->count / DEV_BLOCK; b++) {
        const uint8_t *from = a->slot[b] == DEV_ABSENT ? NULL : in + a->slot[b] * n;
        float *to = z + b * DEV_BLOCK, held[DEV_BLOCK];
        if (sums) {
            over |= sum_decode(a, to, from, b);
        } else {
            relayed_decode(a, a->add ? held : to, from, b);
            finish(to, a->add ? held : to, a->add, a->divisor);
        }
    }
    if (over)
        *a->overflow = 1;
}

void LEVEL_NAME(cpu_block_gather)(struct dev *d, uint8_t *out, const uint8_t *in,
                                  const uint32_t *index, size_t size_bytes, size_t blocks)
{
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < blocks; i++)
        memcpy(out + i * size_bytes, in + index[i] * size_bytes, size_bytes);
}
