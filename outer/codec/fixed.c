/* SPDX-License-Identifier: Apache-2.0 */
/* fixed: wide fixed point, for full-precision rounds whose contributions have to add up under masks
 * (docs/formats.md): whole numbers of steps of 2^-24, in [-Q, Q], stored plus Q: 28 bits per value
 * and 9 per block, at most count*7/2 + count/256*9/8 bytes, 28.04 bits per value. Summable: the
 * aggregate of 4 sites takes 30 bits, of 16 sites 32.
 *   |z| <= Q steps:   nearest, ties to even; at most half a step is lost, 2^-25
 *   up to twice that: saturated at MOST
 *   beyond:           not sent: 0
 * The residual is z - value, without rounding in each case, as in grid.h: half a step is a multiple
 * of z's last place; a saturated value has 24 bits, and so has the difference. A value of 1 and
 * more is its own whole number of steps: nothing of it is lost.
 *
 * Why 2^-24 and Q = 2^27 - 1. Neither may depend on data of the round, which would tell something
 * of one site. The step is the distance of the f32 numbers from 1/2 to 1: a parameter of that size
 * cannot follow a finer step. 8 is above what weight * (outer - local) can be in training: AdamW
 * and LAMB move a parameter by about the learning rate in a step, so by less than 1 in H <= 1000
 * steps, and a site's weight is of the order of its share. 2^27 - 1 is the largest Q with which
 * sums of 16 sites fill words of 32 bits.
 *
 * The work is the host's: a full-precision round is one in hundreds. A device with memory of its
 * own copies through codec_work.bytes. */
#include <string.h>
#include "outer/codec/bits.h"
#include "outer/codec/codec_work.h"

enum {
    BITS = 28,
    Q_MAX = (1 << (BITS - 1)) - 1,
    PIECE = 1 << 16 /* values for which codec_work.bytes has room */
};
#define STEP     0x1p-24f
#define PER_STEP 0x1p24f
#define MOST     0x1.fffffep26f /* the largest f32 that is not above Q */
#define NO_HALF  0x1p23f        /* from here on an f32 has no fraction */

static size_t fixed_piece(const struct codec_work *w)
{
    return w->here || w->piece < PIECE ? w->piece : PIECE;
}

/* ---- writing ---- */

/* The whole number of steps; 0 where x is not finite. Magnitudes as bits, which order as they do:
 * selecting integers keeps the loop free of branches. */
static inline int32_t fixed_steps(float x)
{
    int32_t bits = (int32_t)float_bits(x * PER_STEP), minus = bits >> 31, size = bits & INT32_MAX;
    float rounded = (float_of_bits((uint32_t)size) + NO_HALF) - NO_HALF;
    int32_t whole = size < (int32_t)float_bits(NO_HALF) ? (int32_t)float_bits(rounded) : size;
    int32_t most = whole <= (int32_t)float_bits(2 * MOST) ? (int32_t)float_bits(MOST) : 0;
    whole = whole <= (int32_t)float_bits(MOST) ? whole : most;
    return ((int32_t)float_of_bits((uint32_t)whole) ^ minus) - minus;
}

/* Is anything sent? residual may be z. */
static bool fixed_block_encode(uint8_t *block, float *residual, const float *z)
{
    int64_t q[DEV_BLOCK];
    int32_t steps[DEV_BLOCK], any = 0;
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        steps[i] = fixed_steps(z[i]);
        any |= steps[i];
        residual[i] = z[i] - (float)steps[i] * STEP;
    }
    for (size_t i = 0; i < DEV_BLOCK; i++)
        q[i] = steps[i] + Q_MAX;
    if (any)
        bits_pack(block, q, DEV_BLOCK, BITS);
    return any;
}

/* Leaves out the blocks of a piece that are not present. */
static void out_close(struct codec_out *o, const uint8_t *present, size_t blocks)
{
    const uint8_t *made = o->end;
    for (size_t b = 0; b < blocks; b++, o->block++, made += o->block_bytes) {
        o->present[o->block / 8] |= (uint8_t)(present[b] << o->block % 8);
        if (!present[b])
            continue;
        if (made != o->end)
            memmove(o->end, made, o->block_bytes);
        o->end += o->block_bytes;
    }
}

static enum err fixed_encode(const struct codec *c, const struct codec_call *call, uint8_t *payload,
                             size_t *size_bytes, float *residual, const float *z)
{
    struct codec_work *w = call->work;
    size_t count = call->count, blocks = codec_blocks(count), piece = fixed_piece(w);
    struct codec_out out = codec_out_open(payload + blocks, codec_block_bytes(c), blocks);
    for (size_t at = 0; at < count; at += piece) {
        size_t n = count - at < piece ? count - at : piece;
        TRY(codec_codes(w, payload + codec_blocks(at), z + at, n));
        const float *from = (const void *)codec_seen(w, z + at, n * sizeof *z);
        float *left = w->here ? residual + at : (float *)(void *)w->bytes;
        TRY(dev_sync(w->d));
#pragma omp parallel for num_threads(w->d->threads) schedule(static)
        for (size_t b = 0; b < codec_blocks(n); b++)
            w->present[b] = fixed_block_encode(out.end + b * out.block_bytes, left + b * DEV_BLOCK,
                                               from + b * DEV_BLOCK);
        out_close(&out, w->present, codec_blocks(n));
        if (!w->here)
            w->d->ops->copy(w->d, residual + at, left, n * sizeof *left);
    }
    *size_bytes = (size_t)(out.end - payload);
    return codec_finish(w, payload, call->grid, blocks);
}

/* ---- reading ---- */

/* The integers of a block: sums of n. false: one is beyond what n integers can be. */
static bool block_read(int64_t q[DEV_BLOCK], const uint8_t *block, unsigned bits, unsigned n)
{
    int64_t keep = (int64_t)((1ull << bits) - 1), bias = (int64_t)n * Q_MAX, over = 0;
    bits_unpack(q, block, DEV_BLOCK, bits);
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        q[i] = (q[i] & keep) - bias;
        over |= bias - q[i];
    }
    return over >= 0;
}

static const char *fixed_block_wrong(const uint8_t *block)
{
    int64_t q[DEV_BLOCK], any = 0;
    if (!block_read(q, block, BITS, 1))
        return "an integer above 2^27 - 1";
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        any |= q[i];
        if ((int64_t)(float)q[i] != q[i])
            return "an integer of more than 24 bits";
    }
    return any ? NULL : "an all-zero block is sent";
}

/* A part of the blocks for each thread, from a multiple of 8 on. */
struct part {
    size_t first, end;
};

static struct part fixed_part(size_t blocks, int thread, int threads)
{
    size_t share = (blocks + (size_t)threads - 1) / (size_t)threads, first;
    share = (share + 7) / 8 * 8;
    first = share * (size_t)thread < blocks ? share * (size_t)thread : blocks;
    return (struct part){first, blocks - first < share ? blocks : first + share};
}

/* Block `at` and those after it come next; in->block: a multiple of 8. */
static void in_seek(struct codec_in *in, size_t at)
{
    in->next += codec_present_count(in->present, in->block, at) * in->block_bytes;
    in->block = at;
}

/* The next block; NULL: it is absent. */
static const uint8_t *in_next(struct codec_in *in)
{
    const uint8_t *block = in->next;
    if (!codec_is_present(in->present, in->block++))
        return NULL;
    in->next += in->block_bytes;
    return block;
}

/* At most 256 * 2^54 steps squared. */
static double fixed_block_squares(const uint8_t *block)
{
    int64_t q[DEV_BLOCK], sum = 0;
    bool good = block_read(q, block, BITS, 1);
    ASSERT(good); /* checked before */
    for (size_t i = 0; i < DEV_BLOCK; i++)
        sum += q[i] * q[i];
    return (double)sum * (double)STEP * (double)STEP;
}

static enum err fixed_check(const struct codec *c, const struct codec_call *call, double *squares,
                            const uint8_t *payload, size_t size_bytes)
{
    TRY(codec_dense_check_size(c, payload, size_bytes, call->count));
    struct codec_in in = codec_dense_in(c, payload, call->count);
    double sum = 0;
    for (size_t b = 0; b < codec_blocks(call->count); b++) {
        double sent = 0, claimed = codec_code_squares(payload[b]);
        const uint8_t *block = in_next(&in);
        const char *bad = block ? fixed_block_wrong(block) : NULL;
        if (bad)
            return err_set(ERR_PROTO, "encoded values: %s, block %zu", bad, b);
        if (block && squares)
            sent = fixed_block_squares(block);
        sum += sent > claimed ? sent : claimed;
    }
    if (squares)
        *squares = sum;
    return ERR_OK;
}

/* ---- sums ---- */

/* The sums of one thread's blocks. in: of n payloads; `to`: of the whole aggregate. */
static void part_sum(const struct codec_out *to, const struct codec *c,
                     const struct codec_payload *payloads, unsigned n, size_t count,
                     const struct part *p)
{
    struct codec_in in[CODEC_SITES_MAX];
    uint8_t *end = to->end + codec_present_count(to->present, 0, p->first) * to->block_bytes;
    unsigned bits = codec_grid_bits(c, n);
    for (unsigned i = 0; i < n; i++) {
        in[i] = codec_dense_in(c, payloads[i].data, count);
        in_seek(&in[i], p->first);
    }
    for (size_t b = p->first; b < p->end; b++) {
        int64_t sum[DEV_BLOCK], q[DEV_BLOCK];
        if (!codec_is_present(to->present, b)) {
            for (unsigned i = 0; i < n; i++)
                in[i].block++;
            continue;
        }
        for (size_t k = 0; k < DEV_BLOCK; k++)
            sum[k] = (int64_t)n * Q_MAX;
        for (unsigned i = 0; i < n; i++) {
            const uint8_t *block = in_next(&in[i]);
            bool good = !block || block_read(q, block, BITS, 1);
            ASSERT(good); /* checked before */
            for (size_t k = 0; block && k < DEV_BLOCK; k++)
                sum[k] += q[k];
        }
        bits_pack(end, sum, DEV_BLOCK, bits);
        end += to->block_bytes;
    }
}

static enum err fixed_aggregate(const struct codec *c, const struct codec_call *call, uint8_t *to,
                                size_t *size_bytes, const struct codec_payload *payloads,
                                unsigned n)
{
    ASSERT(n >= 1 && n <= CODEC_SITES_MAX);
    size_t count = call->count, blocks = codec_blocks(count), bits = codec_present_bytes(blocks);
    struct codec_out out = codec_out_open(to + codec_grid_code_bytes(n) * blocks,
                                          DEV_BLOCK / 8 * codec_grid_bits(c, n), blocks);
    int threads = call->work->d->threads;
    codec_grid_sum_codes(to, payloads, n, blocks);
    for (unsigned i = 0; i < n; i++)
        for (size_t b = 0; b < bits; b++)
            out.present[b] |= payloads[i].data[blocks + b];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        struct part p = fixed_part(blocks, t, threads);
        part_sum(&out, c, payloads, n, count, &p);
    }
    out.end += codec_present_count(out.present, 0, blocks) * out.block_bytes;
    *size_bytes = (size_t)(out.end - to);
    return ERR_OK;
}

/* sum * 2^-24 / divisor, rounded once: the quotient is rounded to 53 bits and then to 24, and the
 * first rounding never ends in the middle m of two f32, where it could turn the second one. m has
 * 25 bits, m * divisor 49, the sum fewer: where they differ, then by 2^-49 of m * divisor or more,
 * and the first rounding moves the quotient by 2^-53. */
static inline float sum_quotient(int64_t sum, double divisor)
{
    return (float)((double)sum * (double)STEP / divisor);
}

struct sums { /* of n integers each */
    struct codec_in in;
    unsigned bits, n;
    double divisor;
};

/* The blocks of one thread, from first on of those that come next. false: a sum is too large. */
static bool part_values(float *x, const struct sums *s, const struct part *p)
{
    struct codec_in in = s->in;
    bool good = true;
    in_seek(&in, in.block + p->first);
    for (size_t b = p->first; b < p->end; b++) {
        int64_t q[DEV_BLOCK] = {0};
        const uint8_t *block = in_next(&in);
        if (block)
            good = block_read(q, block, s->bits, s->n) && good;
        for (size_t i = 0; i < DEV_BLOCK; i++)
            x[b * DEV_BLOCK + i] = sum_quotient(q[i], s->divisor);
    }
    return good;
}

/* All values, device. Waits for it. false: a sum beyond what n integers can be. */
static enum err fixed_values_read(struct codec_work *w, float *z, struct sums *s, size_t count,
                                  bool *good)
{
    size_t piece = fixed_piece(w);
    int threads = w->d->threads, bad = 0;
    for (size_t at = 0; at < count; at += piece) {
        size_t n = count - at < piece ? count - at : piece, blocks = codec_blocks(n);
        float *to = w->here ? z + at : (float *)(void *)w->bytes;
        TRY(dev_sync(w->d));
#pragma omp parallel for num_threads(threads) schedule(static) reduction(| : bad)
        for (int t = 0; t < threads; t++) {
            struct part p = fixed_part(blocks, t, threads);
            bad |= !part_values(to, s, &p);
        }
        in_seek(&s->in, s->in.block + blocks);
        if (!w->here)
            w->d->ops->copy(w->d, z + at, to, n * sizeof *to);
    }
    *good = !bad;
    return dev_sync(w->d);
}

static enum err fixed_mean(const struct codec *c, const struct codec_call *call, float *out,
                           uint8_t *next_grid, const struct codec_aggregate *a)
{
    size_t blocks = codec_blocks(call->count), rest;
    size_t codes = codec_grid_code_bytes(a->n) * blocks, head = codes + codec_present_bytes(blocks);
    bool good;
    TRY(codec_check_mean(a->n, a->weight_sum));
    struct sums s = {.bits = codec_grid_bits(c, a->n), .n = a->n, .divisor = (double)a->weight_sum};
    size_t block = DEV_BLOCK / 8 * s.bits;
    if (a->size_bytes < head)
        return codec_check_size(a->size_bytes, head);
    TRY(codec_in_bytes(a->data + codes, block, blocks, &rest));
    TRY(codec_check_size(a->size_bytes, codes + rest));
    s.in = codec_in_open(a->data, a->data + codes, block, blocks);
    TRY(fixed_values_read(call->work, out, &s, call->count, &good));
    if (!good)
        return err_set(ERR_PROTO, "aggregate: a sum beyond what %u contributions can reach", a->n);
    return codec_grid_mean_codes(next_grid, a->data, a->n, blocks); /* last: may be grid */
}

static enum err fixed_decode(const struct codec *c, const struct codec_call *call, float *z,
                             const uint8_t *payload, size_t size_bytes)
{
    (void)size_bytes;
    struct sums s = {codec_dense_in(c, payload, call->count), codec_grid_bits(c, 1), 1, 1};
    bool good;
    TRY(fixed_values_read(call->work, z, &s, call->count, &good));
    ASSERT(good); /* checked before */
    return ERR_OK;
}

const struct codec fixed_codec = {
    .name = "fixed",
    .kind = CODEC_FIXED,
    .summable = true,
    .full_precision = true,
    .q_max = Q_MAX,
    .dense = &(const struct codec_dense){DEV_FORMS, fixed_block_wrong},
    .state_bytes = codec_no_state,
    .payload_max = codec_dense_max,
    .aggregate_max = codec_grid_max,
    .encode = fixed_encode,
    .check = fixed_check,
    .aggregate = fixed_aggregate,
    .mean = fixed_mean,
    .decode = fixed_decode,
};
