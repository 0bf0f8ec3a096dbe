/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if a codec is wrong: sites and aggregator disagree about a round, or training leaks
 * away between delta and outer step. References: a bit reader and sums in integers and double,
 * written here; digests of whole payloads in tests/golden/codec, equal for gcc and clang, every
 * processor and thread count. `test_codec --digests` prints them.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/digest.h"
#include "kernels/base/level.h"
#include "kernels/base/rng.h"
#include "outer/codec/codec_work.h"

enum {
    COUNT = 257 * DEV_BLOCK,
    PIECE = 256 * DEV_BLOCK, /* so that there is a second, short piece */
    BLOCKS = COUNT / DEV_BLOCK,
    SITES = 5,
    HEAD = BLOCKS + (BLOCKS + 7) / 8, /* codes, bits of what is present */
    PAYLOAD_MAX = HEAD + 4 * COUNT,
    AGGREGATE_MAX = SITES * (PAYLOAD_MAX + 8)
};
/* By number on the wire. bits: of a value, one way; bits4: of a value in the aggregate of 4, both
 * at most and without the block codes and what says which blocks are there. worst: the residual's
 * energy against z's on a grid that fits; steps are up to 0.088 RMS (int8), 0.71 (int4) and 2.8
 * (int2) and the error step^2 / 12 while they are small; plus some clipping. e3m0: 0.048 of a value
 * that is anywhere between 3/4 and 3/2 of its level. evil: last bytes of a payload that are
 * refused. */
static const struct {
    const char *name;
    double bits, bits4, worst;
    const char *evil[2];
} table[] = {
    {"f32", 32, 128, 0, {"\0\0\x80\x7f", "\x01\0\x80\xff"}}, /* inf, NaN */
    {"bf16", 16, 64, 2e-5, {"\x80\x7f\0\0", "\x81\xff\0\0"}},
    {"int8", 8, 10, 1e-3, {"\xff\0\0\0", "\0\0\0\xff"}},       /* 128 */
    {"int4", 4, 6, 0.06, {"\x0f\0\0\0", "\0\0\0\xf0"}},        /* 8, low and high half */
    {"int2", 2, 4, 0.8, {"\x03\0\0\0", "\0\0\0\xc0"}},         /* 2, first and last */
    {"e3m0", 4.125, 16.5, 0.06, {"\x88\0\0\0", "\0\0\0\x80"}}, /* -0 */
    {"fp8_e4m3", 8, 32, 1e-3, {"\x7f\0\0\0", "\0\0\0\x80"}},   /* NaN, -0 */
    {"fp8_e5m2", 8, 32, 4e-3, {"\x7c\0\0\0", "\0\0\0\x80"}},   /* infinity, -0 */
    /* 6 chunks and a quarter: 6 * 651 + 172 bits. An index beyond the end, a bit after the last.
     */
    {"topk",
     (510 * 8 + 1) / 25600.0,
     (4 * 510 * 8 + 1) / 25600.0,
     0.6,
     {"\xff\xff\xff\xff", "\0\0\0\x80"}},
    {"sign", 1, 3, 0.55, {NULL, NULL}}, /* any bits are signs */
    /* One chunk of 7: 16 blocks of 4 bits; of 4 sites the same 16 of 6 bits. */
    {"csc", 4 * 0.16, 6 * 0.16, 0.97, {"\x0f\0\0\0", "\0\0\0\xf0"}},
    {"fp8_sr", 8, 32, 8e-3, {"\x7c\0\0\0", "\0\0\0\x80"}},
    /* 2^27; 2^26 + 1, of 27 bits. */
    {"fixed", 28, 30, 1e-12, {"\0\0\0\xff", "\0\0\0\xc0"}},
};
enum { CODECS = sizeof table / sizeof *table };
_Static_assert((int)CODECS == (int)CODEC_COUNT, "a row per codec");
static const char GOLDEN[] = "tests/golden/codec/digests.txt";

static struct dev *dev;
static struct codec_work *work;
static float z[SITES][COUNT], residual[SITES][COUNT], out[COUNT];
static uint8_t payload[SITES][PAYLOAD_MAX], aggregate[AGGREGATE_MAX];
static struct codec_payload payloads[SITES];
static uint8_t grid[BLOCKS], next[BLOCKS];

/* isa: NULL, the processor's best */
static void device(int threads, const char *isa)
{
    codec_close(work);
    dev_close(dev);
    struct dev_options o = {.kind = "cpu", .model_type = "f32", .threads = threads, .isa = isa};
    assert_int_equal(dev_open(&dev, &o), ERR_OK);
    assert_int_equal(codec_open(&work, dev), ERR_OK);
    assert_true(work->piece >= PIECE);
    work->piece = PIECE;
}

/* Values of about 2^-9 with a spread of scales per block, and the blocks that break things: all
 * zero, denormal, huge, one value only, negative zero. */
static void make_inputs(uint64_t seed)
{
    for (size_t s = 0; s < SITES; s++) {
        for (size_t i = 0; i < COUNT; i++) {
            float scale = (float)ldexp(1, (int)(i / DEV_BLOCK % 13) - 15);
            z[s][i] = rng_normal(seed + s, RNG_TEST, i) * scale;
        }
        for (size_t i = 0; i < DEV_BLOCK; i++) {
            uint32_t r = rng_u32(seed + s, RNG_TEST, COUNT + i);
            z[s][0 * DEV_BLOCK + i] = 0;
            z[s][1 * DEV_BLOCK + i] = (float)(r & 1023) * 0x1p-149f;
            z[s][2 * DEV_BLOCK + i] = (float)r * (r & 1 ? 0x1p95f : -0x1p95f);
            z[s][3 * DEV_BLOCK + i] = i == 100 + s ? -0.01f : 0;
            z[s][4 * DEV_BLOCK + i] = -0.0f;
            /* Steps and 2^24 steps, on the dot. */
            z[s][5 * DEV_BLOCK + i] = (float)ldexp(1, (int)(i % 40) - 30);
        }
    }
    for (size_t b = 0; b < BLOCKS; b++) /* near the truth, sometimes far off, sometimes empty */
        grid[b] = (uint8_t)(b % 11 == 10 ? 0 : 98 + 2 * (b % 13) + rng_below(seed, RNG_TEST, b, 8));
    grid[0] = 77;
    grid[1] = 1;
    grid[2] = 254;
}

static void encode_all(const struct codec *c)
{
    for (size_t s = 0; s < SITES; s++) {
        payloads[s].data = payload[s];
        memcpy(residual[s], z[s], sizeof z[s]);
        codec_seed(work, 1, (unsigned)s, 2, 3);
        assert_int_equal(c->encode(c,
                                   &(struct codec_call){.work = work, .grid = grid, .count = COUNT},
                                   payload[s], &payloads[s].size_bytes, residual[s], residual[s]),
                         ERR_OK);
        assert_true(payloads[s].size_bytes <= c->payload_max(c, COUNT));
        assert_int_equal(c->check(c, &(struct codec_call){.count = COUNT}, NULL, payload[s],
                                  payloads[s].size_bytes),
                         ERR_OK);
    }
}

/* What a payload says of its size: the squares of its values as they decode, or as the block codes
 * claim them where that is more; to what f32 sums of 256 lose. */
static void test_squares(void **state)
{
    (void)state;
    for (int k = 0; k < CODEC_COUNT; k++) {
        const struct codec *c = codec_get((enum codec_kind)k);
        make_inputs(5);
        for (size_t s = 0; s < SITES; s++) /* the squares of huge values: below */
            memset(z[s] + 2 * DEV_BLOCK, 0, DEV_BLOCK * sizeof *z[s]);
        encode_all(c);
        for (size_t s = 0; s < SITES; s++) {
            double squares, want = 0;
            assert_int_equal(c->check(c, &(struct codec_call){.grid = grid, .count = COUNT},
                                      &squares, payload[s], payloads[s].size_bytes),
                             ERR_OK);
            assert_int_equal(
                c->decode(c, &(struct codec_call){.work = work, .grid = grid, .count = COUNT}, out,
                          payload[s], payloads[s].size_bytes),
                ERR_OK);
            for (size_t b = 0; b < BLOCKS; b++) {
                double block = 0, claim = k == CODEC_TOPK || !payload[s][b]
                                              ? 0
                                              : ldexp(DEV_BLOCK, payload[s][b] - 128);
                for (size_t i = 0; i < DEV_BLOCK; i++)
                    block += (double)out[b * DEV_BLOCK + i] * (double)out[b * DEV_BLOCK + i];
                want += block > claim ? block : claim;
            }
            if (fabs(squares / want - 1) > 1e-5)
                fail_msg("%s, site %zu: %g, not %g", c->name, s, squares, want);
        }
    }
}

/* Values that f32 can hold and whose squares it cannot; and a code without values. */
static void test_squares_of_lies(void **state)
{
    (void)state;
    static const uint8_t no_grid[1] = {0};
    enum { BITS = 1, BYTES = 1 + BITS + 2 * DEV_BLOCK };
    uint8_t bytes[BYTES] = {128, 1};
    const struct codec *c = codec_get(CODEC_BF16);
    double squares;
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        bytes[2 + 2 * i] = 0x7f; /* 3.39e38 */
        bytes[3 + 2 * i] = 0x7f;
    }
    assert_int_equal(c->check(c, &(struct codec_call){.grid = no_grid, .count = DEV_BLOCK},
                              &squares, bytes, BYTES),
                     ERR_OK);
    assert_true(isinf(squares));
    bytes[0] = 254;
    bytes[1] = 0;
    assert_int_equal(
        c->check(c, &(struct codec_call){.grid = no_grid, .count = DEV_BLOCK}, &squares, bytes, 2),
        ERR_OK);
    assert_true(squares == ldexp(DEV_BLOCK, 254 - 128));
}

static uint32_t bits_from(const uint8_t *stream, size_t at, unsigned bits)
{
    uint32_t v = 0;
    for (unsigned k = 0; k < bits; k++)
        v |= (uint32_t)(stream[(at + k) / 8] >> (at + k) % 8 & 1) << k;
    return v;
}

static uint32_t bits_at(const uint8_t *stream, size_t i, unsigned bits)
{
    return bits_from(stream, i * bits, bits);
}

static unsigned width(const struct codec *c, unsigned n)
{
    return (unsigned)ceil(log2(2.0 * n * c->q_max + 1));
}

/* An 8-bit float with m bits of mantissa, in units of scale. */
static double fp8(uint8_t u, int m, int bias, double scale)
{
    int exponent = u >> m & ((128 >> m) - 1), mantissa = u & ((1 << m) - 1);
    double size =
        exponent ? ldexp(mantissa + (1 << m), exponent - bias - m) : ldexp(mantissa, 1 - bias - m);
    return (u & 0x80 ? -size : size) * scale;
}

/* Asked for value after value of a site: a chunk is read when its first is wanted, where the one
 * before ended. */
static double topk_value(size_t s, size_t i)
{
    static double chunk[SITES][4096];
    static size_t end[SITES];
    if (i % 4096 == 0) {
        size_t n = COUNT - i < 4096 ? COUNT - i : 4096, k = n / 64, at = 0, bit = i ? end[s] : 0;
        memset(chunk[s], 0, sizeof chunk[s]);
        uint32_t upper = bits_from(payload[s], bit, 9),
                 less = upper ? bits_from(payload[s], bit + 9, 4) : 15;
        double level[2] = {0, ldexp(8 + upper % 8, (int)(upper / 8) - 47)};
        if (less < 15)
            level[0] = ldexp(8 + (upper - 2 * less) % 8, (int)((upper - 2 * less) / 8) - 47);
        size_t two = bit + 13;
        bit = upper ? two + 2 * k : bit + 9;
        for (size_t j = 0; upper && j < k; j++) {
            uint32_t what = bits_from(payload[s], two + 2 * j, 2);
            for (; bits_from(payload[s], bit, 1); bit++)
                at += 32;
            at += bits_from(payload[s], bit + 1, 5);
            bit += 6;
            assert_true(at < n);
            chunk[s][at++] = what & 2 ? -level[what & 1] : level[what & 1];
        }
        end[s] = bit;
    }
    return chunk[s][i % 4096];
}

/* The bytes of the block of value i; NULL: it is not there. Asked for value after value. */
static const uint8_t *block_of(size_t s, size_t i, size_t block_bytes)
{
    static const uint8_t *block[SITES];
    if (i % DEV_BLOCK == 0) {
        block[s] = payload[s] + HEAD;
        for (size_t k = 0; k < i / DEV_BLOCK; k++)
            block[s] += bits_at(payload[s] + BLOCKS, k, 1) * block_bytes;
    }
    return bits_at(payload[s] + BLOCKS, i / DEV_BLOCK, 1) ? block[s] : NULL;
}

/* What site s's payload says about value i, without the code under test. */
static double value_of(const struct codec *c, size_t s, size_t i)
{
    static const double block_bytes[] = {1024, 512, 256, 128, 64,  132, 256,
                                         256,  0,   32,  128, 256, 896};
    if (c->kind == CODEC_TOPK)
        return topk_value(s, i);
    const uint8_t *values = block_of(s, i, (size_t)block_bytes[c->kind]);
    size_t k = i % DEV_BLOCK;
    if (!values)
        return 0;
    if (c->kind == CODEC_FIXED)
        return ldexp((double)bits_at(values, k, 28) - ((1 << 27) - 1), -24);
    if (c->summable) {
        int e = form_exponent(grid[i / DEV_BLOCK], c->q_max);
        double step = e == GRID_EMPTY ? 0 : ldexp(1, e);
        if (c->kind == CODEC_SIGN) /* half of int2's: the RMS itself */
            return bits_at(values, k, 1) ? step / 2 : -step / 2;
        return ((double)bits_at(values, k, width(c, 1)) - c->q_max) * step;
    }
    switch (c->kind) {
    case CODEC_E3M0: {
        uint32_t nibble = bits_at(values + 4, k, 4), scale = bits_at(values, 0, 32);
        float largest;
        memcpy(&largest, &scale, 4);
        double size = nibble % 8 ? ldexp((double)largest, (int)(nibble % 8) - 7) : 0;
        return nibble & 8 ? -size : size;
    }
    case CODEC_FP8_E4M3:
        return fp8(values[k], 3, 7, ldexp(1, (int)floor(payload[s][i / DEV_BLOCK] / 2.0) - 67));
    case CODEC_FP8_E5M2:
    case CODEC_FP8_SR:
        return fp8(values[k], 2, 15, ldexp(1, (int)floor(payload[s][i / DEV_BLOCK] / 2.0) - 74));
    default:
        break;
    }
    uint32_t u = c->kind == CODEC_F32 ? bits_at(values, k, 32) : bits_at(values, k, 16) << 16;
    float f;
    memcpy(&f, &u, 4);
    return (double)f;
}

static void names_and_sizes(void **state)
{
    (void)state;
    for (int k = 0; k < CODECS; k++) {
        const struct codec *c = codec_get((enum codec_kind)k);
        assert_string_equal(c->name, table[k].name);
        size_t head = c->kind == CODEC_TOPK ? 0 : 100 + 13; /* a bit per block fills 13 bytes */
        assert_int_equal(c->payload_max(c, 25600), head + (size_t)(25600 * table[k].bits / 8));
        assert_int_equal(c->aggregate_max(c, 25600, 4), (c->kind == CODEC_SIGN ? 400 + 13
                                                         : c->summable         ? 200 + 13
                                                                               : 4 * (8 + head)) +
                                                            (size_t)(25600 * table[k].bits4 / 8));
    }
    assert_null(codec_get(CODEC_COUNT));
    const struct codec *c = codec_get(CODEC_INT8);
    assert_int_equal(c->aggregate_max(c, 256, 256), 3 + 256 * 16 / 8);
    assert_int_equal(c->aggregate_max(c, 256, 257), 5 + 256 * 16 / 8);
    assert_int_equal(c->aggregate_max(c, 256, CODEC_SITES_MAX), 5 + 256 * 18 / 8);
}

static void exponents_are_the_nearest_powers_of_two(void **state)
{
    (void)state;
    static const double clip[] = {8, 4, 2};
    static const int q_max[] = {127, 7, 1};
    for (int k = 0; k < 3; k++)
        for (unsigned code = 0; code < 255; code++) {
            int e = form_exponent((uint8_t)code, q_max[k]);
            double rms = pow(2, ((double)code - 128 + 0.5) / 2),
                   want = round(log2(clip[k] * rms / q_max[k]));
            assert_true(code ? e == want : e == GRID_EMPTY);
        }
}

/* I3: nothing is lost and nothing is rounded. */
static void decode_plus_residual_is_z(void **state)
{
    (void)state;
    make_inputs(100);
    for (int k = 0; k < CODECS; k++) {
        const struct codec *c = codec_get((enum codec_kind)k);
        encode_all(c);
        for (size_t s = 0; s < SITES; s++) {
            assert_int_equal(
                c->decode(c, &(struct codec_call){.work = work, .grid = grid, .count = COUNT}, out,
                          payload[s], payloads[s].size_bytes),
                ERR_OK);
            for (size_t i = 0; i < COUNT; i++) {
                assert_true((double)out[i] == value_of(c, s, i));
                float sum = out[i] + residual[s][i];
                assert_true((double)sum == (double)out[i] + (double)residual[s][i]);
                assert_true(fabs((double)sum - (double)z[s][i]) <=
                            (c->kind == CODEC_SIGN ? ldexp(fabs((double)out[i]), -25) : 0));
            }
        }
    }
}

/* On a grid that fits every codec keeps what it should: the residual's energy against z's. */
static void error_is_what_the_bits_allow(void **state)
{
    (void)state;
    make_inputs(200);
    for (int k = 0; k < CODECS; k++) {
        const struct codec *c = codec_get((enum codec_kind)k);
        dev->ops->block_code(dev, grid, z[0], COUNT);
        size_t size;
        assert_int_equal(c->encode(c,
                                   &(struct codec_call){.work = work, .grid = grid, .count = COUNT},
                                   payload[0], &size, residual[0], z[0]),
                         ERR_OK);
        double kept = 0, whole = 0;
        for (size_t i = 6 * DEV_BLOCK; i < COUNT; i++) {
            kept += (double)residual[0][i] * (double)residual[0][i];
            whole += (double)z[0][i] * (double)z[0][i];
        }
        assert_true(kept <= table[k].worst * whole);
    }
}

static void codes_say_the_scale(void **state)
{
    (void)state;
    make_inputs(300);
    for (int k = 0; k < CODECS; k++) {
        const struct codec *c = codec_get((enum codec_kind)k);
        if (c->kind == CODEC_TOPK || c->kind == CODEC_CSC) /* has none; has those of the next z */
            continue;
        encode_all(c);
        assert_int_equal(payload[0][0], 77); /* all zero: no opinion, the grid's code */
        assert_int_equal(payload[0][1], 1);
        assert_int_equal(payload[0][2], 254);
        assert_int_equal(payload[0][4], grid[4]); /* negative zeros are zeros */
        for (size_t b = 6; b < BLOCKS; b++) {
            double sum = 0;
            for (size_t i = 0; i < DEV_BLOCK; i++)
                sum += (double)z[0][b * DEV_BLOCK + i] * (double)z[0][b * DEV_BLOCK + i];
            assert_int_equal(payload[0][b], ilogb(sum / DEV_BLOCK) + 128);
        }
    }
}

/* Is x the f32 that is nearest to sum / weight? Products of f32, and how far they are from the
 * sum, are exact. */
static void is_nearest(float x, double sum, double weight)
{
    double off = fabs((double)x * weight - sum);
    double up = fabs((double)nextafterf(x, INFINITY) * weight - sum);
    double down = fabs((double)nextafterf(x, -INFINITY) * weight - sum);
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    assert_true(off < up || (off == up && bits % 2 == 0));
    assert_true(off < down || (off == down && bits % 2 == 0));
}

/* The mean of value i. Sums of fixed are whole numbers of up to 38 bits: f32 does not hold them. */
static void is_mean(const struct codec *c, size_t i, unsigned n, float weight)
{
    double sum = value_of(c, 0, i);
    for (unsigned s = 1; s < n; s++)
        sum = c->kind == CODEC_FIXED ? sum + value_of(c, s, i)
                                     : (double)(float)(sum + value_of(c, s, i));
    if (c->kind == CODEC_FIXED)
        is_nearest(out[i], sum, (double)weight);
    else
        assert_true(out[i] == (float)(sum / (double)weight));
}

/* I4 and the mean, for 1 to 5 sites. */
static void aggregate_is_the_exact_sum(void **state)
{
    (void)state;
    make_inputs(400);
    float weight = 2.3f;
    for (int k = 0; k < CODECS; k++) {
        const struct codec *c = codec_get((enum codec_kind)k);
        encode_all(c);
        for (unsigned n = 1; n <= SITES; n++) {
            size_t size;
            assert_int_equal(c->aggregate(c, &(struct codec_call){.work = work, .count = COUNT},
                                          aggregate, &size, payloads, n),
                             ERR_OK);
            assert_true(size <= c->aggregate_max(c, COUNT, n));
            assert_int_equal(
                c->mean(c, &(struct codec_call){.work = work, .grid = grid, .count = COUNT}, out,
                        next, &(struct codec_aggregate){aggregate, size, n, weight}),
                ERR_OK);
            for (size_t i = 0; i < COUNT; i++)
                is_mean(c, i, n, weight);
            if (c->kind == CODEC_TOPK) {
                assert_memory_equal(next, grid, BLOCKS);
                continue;
            }
            for (size_t b = 0; b < BLOCKS; b++) {
                unsigned codes = 0;
                for (unsigned s = 0; s < n; s++)
                    codes += payload[s][b];
                assert_int_equal(next[b], (unsigned)floor((double)codes / n + 0.5));
                if (c->summable)
                    assert_int_equal(aggregate[2 * b] + 256 * aggregate[2 * b + 1], codes);
            }
        }
    }
}

static void sums_do_not_depend_on_order(void **state)
{
    (void)state;
    static uint8_t other[AGGREGATE_MAX];
    static struct codec_payload turned[SITES];
    make_inputs(500);
    for (int k = 0; k < CODECS; k++) {
        const struct codec *c = codec_get((enum codec_kind)k);
        if (!c->summable)
            continue;
        encode_all(c);
        for (size_t s = 0; s < SITES; s++)
            turned[s] = payloads[(s + 2) % SITES];
        size_t size, again;
        assert_int_equal(c->aggregate(c, &(struct codec_call){.work = work, .count = COUNT},
                                      aggregate, &size, payloads, SITES),
                         ERR_OK);
        assert_int_equal(c->aggregate(c, &(struct codec_call){.work = work, .count = COUNT}, other,
                                      &again, turned, SITES),
                         ERR_OK);
        assert_int_equal(size, again);
        assert_memory_equal(aggregate, other, size);
    }
}

static void largest_sums_fit(void **state)
{
    (void)state;
    static uint8_t largest[2 + DEV_BLOCK], sum[5 + DEV_BLOCK / 8 * 18];
    static const unsigned counts[] = {
        256, 259, CODEC_SITES_MAX}; /* 16 bits and 2 bytes, 17 and 4, 18 and 4 */
    struct codec_payload many[CODEC_SITES_MAX];
    uint8_t code = 136; /* int8: step 2^0, int4: 2^3, int2: 2^5 */
    static const struct {
        enum codec_kind kind;
        uint8_t all;
        int step;
    } cases[] = {{CODEC_INT8, 254, 1}, {CODEC_INT4, 0xee, 8}, {CODEC_INT2, 0xaa, 32}};
    for (size_t i = 0; i < CODEC_SITES_MAX; i++)
        many[i].data = largest; /* a payload of one block tells its own size */
    for (int j = 0; j < 9; j++) {
        unsigned n = counts[j / 3];
        int k = j % 3;
        const struct codec *c = codec_get(cases[k].kind);
        memset(largest, cases[k].all, sizeof largest);
        largest[0] = 254;
        largest[1] = 1;
        size_t size;
        assert_int_equal(c->aggregate(c, &(struct codec_call){.work = work, .count = DEV_BLOCK},
                                      sum, &size, many, n),
                         ERR_OK);
        assert_int_equal(size, c->aggregate_max(c, DEV_BLOCK, n));
        assert_int_equal(
            c->mean(c, &(struct codec_call){.work = work, .grid = &code, .count = DEV_BLOCK}, out,
                    &code, &(struct codec_aggregate){sum, size, n, 1}),
            ERR_OK);
        for (size_t i = 0; i < DEV_BLOCK; i++)
            assert_true(out[i] == (float)((int)n * c->q_max * cases[k].step));
        assert_int_equal(code, 254);
        code = 136;
    }
}

static void malformed_payloads_are_refused(void **state)
{
    (void)state;
    make_inputs(600);
    for (int k = 0; k < CODECS; k++) {
        const struct codec *c = codec_get((enum codec_kind)k);
        encode_all(c);
        size_t size = payloads[0].size_bytes;
        for (size_t cut = 0; cut < size; cut += cut < size - 999 ? 997 : 1)
            assert_int_equal(
                c->check(c, &(struct codec_call){.count = COUNT}, NULL, payload[0], cut),
                ERR_PROTO);
        assert_int_equal(
            c->check(c, &(struct codec_call){.count = COUNT}, NULL, payload[0], size + 1),
            ERR_PROTO);
        for (int e = 0; e < 2 && table[k].evil[e]; e++) {
            uint8_t was[4];
            memcpy(was, payload[0] + size - 4, 4);
            memcpy(payload[0] + size - 4, table[k].evil[e], 4);
            assert_int_equal(
                c->check(c, &(struct codec_call){.count = COUNT}, NULL, payload[0], size),
                ERR_PROTO);
            memcpy(payload[0] + size - 4, was, 4);
        }
        if (c->kind == CODEC_TOPK)
            continue;
        payload[0][BLOCKS - 1] = 255;
        assert_int_equal(c->check(c, &(struct codec_call){.count = COUNT}, NULL, payload[0], size),
                         ERR_PROTO);
        assert_non_null(strstr(err_message(), "256 has block exponent 255"));
        payload[0][BLOCKS - 1] = 254;
        assert_int_equal(c->check(c, &(struct codec_call){.count = COUNT}, NULL, payload[0], size),
                         ERR_OK);
        payload[0][HEAD - 1] |= 2; /* 257 blocks: their last bit is the lowest of its byte */
        assert_int_equal(c->check(c, &(struct codec_call){.count = COUNT}, NULL, payload[0], size),
                         ERR_PROTO);
        assert_non_null(strstr(err_message(), "a bit for block 257 of 257"));
    }
}

/* What does not change costs its code and its bit, at every place; and a block that is there has
 * something to say. */
static void unchanged_blocks_are_not_sent(void **state)
{
    (void)state;
    for (int k = 0; k < CODECS; k++) {
        const struct codec *c = codec_get((enum codec_kind)k);
        if (c->kind == CODEC_TOPK || c->kind == CODEC_CSC)
            continue;
        size_t block = (size_t)(table[k].bits * DEV_BLOCK / 8);
        for (int frozen = 0; frozen < 4; frozen++) { /* the first, the last, each second, all */
            size_t changed = 0;
            for (size_t s = 0; s < 3; s++)
                for (size_t i = 0; i < COUNT; i++) {
                    size_t b = i / DEV_BLOCK;
                    bool still = frozen == 0   ? b < 100
                                 : frozen == 1 ? b > 200
                                 : frozen == 2 ? b % 2
                                               : true;
                    z[s][i] = still ? 0 : rng_normal(30 + s, RNG_TEST, i);
                    changed += s == 0 && !still && i % DEV_BLOCK == 0;
                }
            memset(grid, 128, sizeof grid);
            encode_all(c);
            assert_int_equal(payloads[0].size_bytes, HEAD + changed * block);
            size_t size;
            assert_int_equal(c->aggregate(c, &(struct codec_call){.work = work, .count = COUNT},
                                          aggregate, &size, payloads, 3),
                             ERR_OK);
            if (c->kind == CODEC_SIGN)
                assert_int_equal(size, HEAD + 3 * BLOCKS + changed * DEV_BLOCK / 8 * 2);
            else if (c->summable)
                assert_int_equal(size, HEAD + BLOCKS + changed * DEV_BLOCK / 8 * width(c, 3));
            assert_int_equal(
                c->mean(c, &(struct codec_call){.work = work, .grid = grid, .count = COUNT}, out,
                        next, &(struct codec_aggregate){aggregate, size, 3, 3}),
                ERR_OK);
            for (size_t i = 0; i < COUNT; i++)
                is_mean(c, i, 3, 3);
        }
        if (c->kind == CODEC_SIGN)
            continue;
        memset(payload[0] + BLOCKS, 0, HEAD - BLOCKS);
        payload[0][BLOCKS] = 4; /* block 2, and it is empty */
        memset(payload[0] + HEAD,
               c->q_max == 127 ? 0x7f
               : c->q_max == 7 ? 0x77
               : c->q_max == 1 ? 0x55
                               : 0,
               block);
        for (size_t i = 0; c->kind == CODEC_FIXED && i < block; i += 7) /* twice 2^27 - 1 */
            memcpy(payload[0] + HEAD + i, "\xff\xff\xff\xf7\xff\xff\x7f", 7);
        assert_int_equal(
            c->check(c, &(struct codec_call){.count = COUNT}, NULL, payload[0], HEAD + block),
            ERR_PROTO);
        assert_non_null(strstr(err_message(), "an all-zero block is sent, block 2"));
    }
}

/* fixed: nearest, ties to even; saturated; not sent. value + residual = z in each case, and a sum
 * has one rounding, at 1 and at 1024 sites. */
static void fixed_steps_are_the_nearest(void **state)
{
    (void)state;
    static const struct {
        float z;
        int32_t q;
    } cases[] = {{0x1p-24f, 1},
                 {0x1.8p-24f, 2}, /* a tie, to even */
                 {0x1.4p-23f, 2}, /* 2.5 */
                 {0x1p-25f, 0},
                 {-0x1p-25f, 0},
                 {-0x1.000002p-25f, -1},
                 {0x1p-149f, 0},
                 {-0.1f, -1677722}, /* -1677721.6 */
                 {-1.5f, -3 * (1 << 23)},
                 {0x1.fffffep2f, (1 << 27) - 8}, /* the largest below 8 */
                 {8, (1 << 27) - 8},
                 {-13.75f, -(1 << 27) + 8},
                 {0x1.fffffep3f, (1 << 27) - 8}, /* twice the largest */
                 {16, 0},
                 {-1e30f, 0}};
    enum { CASES = sizeof cases / sizeof *cases, N = DEV_BLOCK };
    const struct codec *c = codec_get(CODEC_FIXED);
    uint8_t codes[1] = {0};
    struct codec_call call = {.work = work, .grid = codes, .count = N};
    size_t size;
    for (uint64_t t = 0; t < 2000; t++) {
        for (size_t i = 0; i < N; i++) /* from far below a step to far beyond Q */
            z[0][i] = i < CASES ? cases[i].z
                                : ldexpf((float)(rng_unit(71, RNG_TEST, t * N + i) * 2 - 1),
                                         (int)(i % 60) - 45);
        assert_int_equal(c->encode(c, &call, payload[0], &size, residual[0], z[0]), ERR_OK);
        assert_int_equal(c->check(c, &call, NULL, payload[0], size), ERR_OK);
        assert_int_equal(c->decode(c, &call, out, payload[0], size), ERR_OK);
        for (size_t i = 0; i < N; i++) {
            double want = nearbyint(ldexp((double)z[0][i], 24)), most = (1 << 27) - 8;
            want = fabs(want) <= most ? want : fabs(want) <= 2 * most ? copysign(most, want) : 0;
            assert_true((double)out[i] == ldexp(i < CASES ? cases[i].q : want, -24));
            assert_true((double)out[i] + (double)residual[0][i] == (double)z[0][i]);
        }
    }
}

static void fixed_sums_are_rounded_once(void **state)
{
    (void)state;
    static uint8_t sum[5 + DEV_BLOCK / 8 * 38];
    static const unsigned counts[] = {1, 16, 17, 256, 257, CODEC_SITES_MAX};
    static const unsigned widths[] = {28, 32, 33, 36, 37, 38};
    const struct codec *c = codec_get(CODEC_FIXED);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        unsigned n = counts[k], head = n <= 256 ? 3 : 5;
        size_t size = head + DEV_BLOCK / 8 * widths[k];
        int64_t most = (int64_t)n * ((1 << 27) - 1);
        uint8_t code = 9;
        struct codec_call call = {.work = work, .grid = &code, .count = DEV_BLOCK};
        assert_int_equal(c->aggregate_max(c, DEV_BLOCK, n), size);
        for (uint64_t t = 0; t < 400; t++) {
            int64_t q[DEV_BLOCK];
            float weight = ldexpf((float)(1 + rng_unit(72, RNG_TEST, t)), (int)(t % 60) - 30);
            for (size_t i = 0; i < DEV_BLOCK; i++)
                q[i] = i < 2 ? (i ? most : -most)
                             : (int64_t)rng_u64(73, RNG_TEST, t * DEV_BLOCK + i) % (most + 1);
            memset(sum, 0, sizeof sum);
            sum[head - 1] = 1;
            for (size_t i = 0; i < DEV_BLOCK; i++)
                for (unsigned b = 0; b < widths[k]; b++)
                    sum[head + (i * widths[k] + b) / 8] |=
                        (uint8_t)(((uint64_t)(q[i] + most) >> b & 1) << (i * widths[k] + b) % 8);
            assert_int_equal(
                c->mean(c, &call, out, &code, &(struct codec_aggregate){sum, size, n, weight}),
                ERR_OK);
            for (size_t i = 0; i < DEV_BLOCK; i++)
                is_nearest(out[i], ldexp((double)q[i], -24), (double)weight);
            sum[size - 1] = 255; /* a sum of all ones bits, or about that */
            sum[size - 2] = 255;
            sum[size - 3] = 255;
            sum[size - 4] = 255;
            sum[size - 5] = 255;
            assert_int_equal(
                c->mean(c, &call, out, &code, &(struct codec_aggregate){sum, size, n, weight}),
                ERR_PROTO);
        }
    }
}

/* One input, one byte string: the scale of e3m0 is the block's largest magnitude, and a value has
 * it. */
static void scales_that_no_block_has_are_refused(void **state)
{
    (void)state;
    static const uint32_t scales[] = {0x7f800000, 0x7fc00000, 0xbf800000,
                                      0x80000000, 1,          0x0d7fffff};
    const struct codec *c = codec_get(CODEC_E3M0);
    uint8_t one[2 + 4 + DEV_BLOCK / 2] = {100, 1, 0, 0, 0x80, 0x3f, 0xf1};
    assert_int_equal(c->check(c, &(struct codec_call){.count = DEV_BLOCK}, NULL, one, sizeof one),
                     ERR_OK);
    one[6] = 0xe1; /* no value at the top */
    assert_int_equal(c->check(c, &(struct codec_call){.count = DEV_BLOCK}, NULL, one, sizeof one),
                     ERR_PROTO);
    one[6] = 0xf1;
    memset(one + 2, 0, 4); /* values without a scale */
    assert_int_equal(c->check(c, &(struct codec_call){.count = DEV_BLOCK}, NULL, one, sizeof one),
                     ERR_PROTO);
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        memcpy(one + 2, &scales[i], 4);
        assert_int_equal(
            c->check(c, &(struct codec_call){.count = DEV_BLOCK}, NULL, one, sizeof one),
            ERR_PROTO);
    }
}

/* 64 of 4096 and 4 of 256, by counting who is larger, or as large and before; what they are sent
 * as; and that a chunk with too few values, or too wide ones, still loses nothing. */
static void topk_takes_the_largest(void **state)
{
    (void)state;
    enum { N = 4096 + 256 };
    const struct codec *c = codec_get(CODEC_TOPK);
    for (int kind = 0; kind < 6; kind++) {
        for (size_t i = 0; i < N; i++) {
            float x = rng_normal(77, RNG_TEST, i);
            bool few = rng_below(78, RNG_TEST, i, kind == 2 ? 150 : 40) == 0;
            int wide = (int)(i % 23) * (kind == 3 ? 1 : kind == 4 ? 4 : 10) - 100;
            z[0][i] = kind == 0   ? x
                      : kind == 1 ? (float)((int)(x * 2)) /* many of a size */
                      : kind == 2 ? (few ? x : 0)
                                  : (few ? (float)ldexp((double)x, wide) : 0);
        }
        size_t size;
        assert_int_equal(c->encode(c, &(struct codec_call){.work = work, .grid = grid, .count = N},
                                   payload[0], &size, residual[0], z[0]),
                         ERR_OK);
        assert_int_equal(c->check(c, &(struct codec_call){.count = N}, NULL, payload[0], size),
                         ERR_OK);
        assert_int_equal(c->decode(c, &(struct codec_call){.work = work, .grid = grid, .count = N},
                                   out, payload[0], size),
                         ERR_OK);
        double missed = 0, whole = 0;
        for (size_t i = 0; i < N; i++) {
            size_t from = i / 4096 * 4096, end = from ? N : 4096, before = 0;
            for (size_t j = from; j < end; j++)
                before +=
                    fabsf(z[0][j]) > fabsf(z[0][i]) || (fabsf(z[0][j]) == fabsf(z[0][i]) && j < i);
            bool largest = before < (end - from) / 64;
            assert_true((double)residual[0][i] == (double)z[0][i] - (double)out[i]);
            if (kind < 2)
                assert_true((out[i] != 0) == largest);
            assert_true(out[i] == 0 || (largest && (out[i] > 0) == (z[0][i] > 0)));
            if (largest) {
                missed += pow((double)residual[0][i], 2);
                whole += pow((double)z[0][i], 2);
            }
        }
        if (kind < 2) /* two magnitudes of Lloyd: 0.004 of Gaussian tails before they are rounded */
            assert_true(missed < (kind == 0 ? 0.007 : 0.012) * whole);
    }
}

/* What is too small to be split from a step is rounded, what is too large is not sent, and signs of
 * sites that have them add up next to sites that have none. */
static void signs_are_of_what_a_step_fits(void **state)
{
    (void)state;
    enum { N = 4 * DEV_BLOCK };
    const struct codec *c = codec_get(CODEC_SIGN);
    uint8_t codes[4] = {128, 128, 0, 128}; /* a step is 1 */
    for (size_t s = 0; s < 3; s++) {
        for (size_t i = 0; i < N; i++) {
            z[s][i] = ldexpf(rng_normal(50 + s, RNG_TEST, i), -(int)(i % 60));
            z[s][i] += i == 0 ? 16 : 0;
            if (i / DEV_BLOCK == 1)
                z[s][i] = s == 0 ? ldexpf(1, 23) : s == 1 ? 0 : -1;
        }
        assert_int_equal(c->encode(c, &(struct codec_call){.work = work, .grid = codes, .count = N},
                                   payload[s], &payloads[s].size_bytes, residual[s], z[s]),
                         ERR_OK);
        payloads[s].data = payload[s];
        assert_int_equal(payload[s][4], s == 2 ? 11 : 9); /* not block 1; block 2 has no step */
        assert_int_equal(payloads[s].size_bytes, 5 + (s == 2 ? 3 : 2) * 32);
        for (size_t i = 0; i < N; i++) {
            bool sent = i / DEV_BLOCK != 2 && (i / DEV_BLOCK != 1 || s == 2);
            float v = sent ? (signbit(z[s][i]) ? -1.0f : 1.0f) : 0;
            assert_true(residual[s][i] == z[s][i] - v);
            if (fabsf(z[s][i]) >= 0.5f)
                assert_true(residual[s][i] + v == z[s][i]);
        }
    }
    size_t size;
    uint8_t after[4];
    assert_int_equal(c->aggregate(c, &(struct codec_call){.work = work, .count = N}, aggregate,
                                  &size, payloads, 3),
                     ERR_OK);
    assert_int_equal(size, 8 + 8 + 1 + 3 * 64);
    assert_memory_equal(aggregate + 8, "\3\0\1\0\0\0\3\0\13", 9);
    assert_int_equal(c->mean(c, &(struct codec_call){.work = work, .grid = codes, .count = N}, out,
                             after, &(struct codec_aggregate){aggregate, size, 3, 2}),
                     ERR_OK);
    for (size_t i = 0; i < N; i++) {
        float sum = 0;
        for (size_t s = 0; s < 3; s++)
            sum += z[s][i] < 0 ? -1 : 1;
        assert_true(out[i] == (i / DEV_BLOCK == 1 ? -0.5f : i / DEV_BLOCK == 2 ? 0 : sum / 2));
    }
}

/* csc: the round's set follows from the grid alone: the tenth of the chunks with the largest sums
 * of block RMS, the lower of equals; all of int4 in them, all of the residual in the others. */
static void the_grid_chooses_the_chunks(void **state)
{
    (void)state;
    const struct codec *c = codec_get(CODEC_CSC), *whole = codec_get(CODEC_INT4);
    static const size_t chosen[2][2] = {{3, 16}, {0, 1}};
    for (int equal = 0; equal < 2; equal++) {
        struct codec_call call = {.work = work, .grid = grid, .count = COUNT};
        double squares;
        size_t size, large;
        for (size_t i = 0; i < COUNT; i++) /* the largest values are at unexpected places */
            z[0][i] = rng_normal(60, RNG_TEST, i) * (i / 4096 == 5 ? 500 : i / 4096 == 16 ? 90 : 1);
        memset(grid, 128, sizeof grid);
        if (!equal) {
            memset(grid + 3 * 16, 132, 16); /* 16 blocks of RMS 4 */
            grid[16 * 16] = 141;            /* the last chunk is of one block, RMS 90.5 */
        }
        assert_int_equal(whole->encode(whole, &call, payload[1], &large, residual[1], z[0]),
                         ERR_OK);
        assert_int_equal(c->encode(c, &call, payload[0], &size, residual[0], z[0]), ERR_OK);
        assert_int_equal(c->check(c, &call, &squares, payload[0], size), ERR_OK);
        assert_int_equal(size, HEAD + (equal ? 32 : 17) * DEV_BLOCK / 2);
        for (size_t i = 0; i < COUNT; i++) {
            bool sent = i / 4096 == chosen[equal][0] || i / 4096 == chosen[equal][1];
            assert_true(residual[0][i] == (sent ? residual[1][i] : z[0][i]));
        }
        assert_int_equal(c->check(c, &(struct codec_call){.count = COUNT}, NULL, payload[1], large),
                         ERR_PROTO);
        assert_non_null(strstr(err_message(), "17 chunks, at most 2"));
        grid[7 * 16] = 160;
        assert_int_equal(c->check(c, &call, &squares, payload[0], size), ERR_PROTO);
        assert_non_null(strstr(err_message(), "of no chunk of the round's set"));
    }
}

/* Codes say what a site expects to send next: this round's delta, and next to it all of z where
 * nothing of it is sent. */
static void codes_are_of_the_next_round(void **state)
{
    (void)state;
    const struct codec *c = codec_get(CODEC_CSC);
    struct codec_call call = {.work = work, .grid = grid, .count = COUNT, .carries = true};
    size_t size;
    memset(grid, 128, sizeof grid);
    memset(grid + 2 * 16, 140, 2 * 16); /* chunks 2 and 3 */
    for (size_t i = 0; i < COUNT; i++) {
        residual[0][i] = rng_normal(61, RNG_TEST, i);
        z[0][i] = residual[0][i] + (float)(1 + i / DEV_BLOCK % 5) * rng_normal(62, RNG_TEST, i);
        out[i] = residual[0][i];
    }
    assert_int_equal(c->encode(c, &call, payload[0], &size, residual[0], z[0]), ERR_OK);
    for (size_t b = 0; b < BLOCKS; b++) {
        double sum = 0;
        for (size_t i = b * DEV_BLOCK; i < (b + 1) * DEV_BLOCK; i++) {
            float expected = z[0][i] - out[i];
            expected += b / 16 == 2 || b / 16 == 3 ? 0 : z[0][i];
            sum += (double)expected * (double)expected;
        }
        assert_int_equal(payload[0][b], ilogb(sum / DEV_BLOCK) + 128);
    }
}

/* Deltas that stay: no chunk waits for longer than its size against the others' says, and the two
 * sites choose the same chunks in every round. */
static void every_chunk_has_its_turn(void **state)
{
    (void)state;
    enum { ROUNDS = 24, CHUNKS = 17 };
    const struct codec *c = codec_get(CODEC_CSC);
    unsigned sent[CHUNKS] = {0};
    memset(residual, 0, sizeof residual);
    memset(grid, 128, sizeof grid);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct codec_call call = {.work = work, .grid = grid, .count = COUNT, .carries = true};
        size_t size;
        for (size_t s = 0; s < 2; s++) {
            for (size_t i = 0; i < COUNT; i++)
                z[s][i] = residual[s][i] +
                          (i / 4096 == 4 ? 8.0f : 1.0f) * rng_normal(63 + s, RNG_TEST, i);
            payloads[s].data = payload[s];
            assert_int_equal(
                c->encode(c, &call, payload[s], &payloads[s].size_bytes, residual[s], z[s]),
                ERR_OK);
        }
        for (size_t b = 0; b < BLOCKS; b += 16) {
            bool there = payload[0][BLOCKS + b / 8] >> b % 8 & 1;
            assert_int_equal(there, payload[1][BLOCKS + b / 8] >> b % 8 & 1);
            sent[b / 16] += there;
        }
        assert_int_equal(c->aggregate(c, &call, aggregate, &size, payloads, 2), ERR_OK);
        assert_true(size <= c->aggregate_max(c, COUNT, 2));
        assert_int_equal(
            c->mean(c, &call, out, next, &(struct codec_aggregate){aggregate, size, 2, 2}), ERR_OK);
        memcpy(grid, next, sizeof grid);
    }
    for (unsigned k = 0; k < CHUNKS - 1; k++) /* the last is of one block: it may wait longer */
        assert_true(k == 4 ? sent[k] >= 6 : sent[k] >= 1);
}

/* E[SR(y)] = y within 4.5 sigma, values between 1 and 4 smallest steps and normal ones; the same
 * round makes the same bytes, another one others. */
static void stochastic_rounding_has_no_bias(void **state)
{
    (void)state;
    enum { N = DEV_BLOCK, TRIES = 4000 };
    static double sum[N];
    const struct codec *c = codec_get(CODEC_FP8_SR);
    uint8_t codes[1] = {128}, before[400];
    size_t size;
    for (size_t i = 0; i < N; i++) {
        float x = 1 + (float)rng_unit(70, RNG_TEST, i);
        sum[i] = 0;
        z[0][i] = i == 0 ? 20 : ldexpf(x, i % 2 ? -26 + (int)(i % 4) / 2 : -3 - (int)(i % 9));
    }
    for (uint64_t t = 0; t < TRIES; t++) {
        codec_seed(work, 7, 3, 5, t);
        assert_int_equal(c->encode(c, &(struct codec_call){.work = work, .grid = codes, .count = N},
                                   payload[0], &size, residual[0], z[0]),
                         ERR_OK);
        assert_int_equal(c->decode(c, &(struct codec_call){.work = work, .grid = codes, .count = N},
                                   out, payload[0], size),
                         ERR_OK);
        for (size_t i = 0; i < N; i++) {
            assert_true((double)z[0][i] - (double)residual[0][i] == (double)out[i]);
            sum[i] += (double)out[i];
        }
    }
    /* Mean square 400/256: code 128, scale 2^(65 - 64 + 4 - 15); the smallest step is 2^-16 of it.
     */
    for (size_t i = 1; i < N; i++) {
        double x = (double)z[0][i], unit = fmax(ldexp(0.25, ilogb(x)), ldexp(1, -16 - 10));
        double share = x / unit - floor(x / unit);
        assert_true(fabs(sum[i] / TRIES - x) <= 4.5 * unit * sqrt(share * (1 - share) / TRIES));
    }
    memcpy(before, payload[0], size);
    codec_seed(work, 7, 3, 5, TRIES - 1);
    assert_int_equal(c->encode(c, &(struct codec_call){.work = work, .grid = codes, .count = N},
                               payload[0], &size, residual[0], z[0]),
                     ERR_OK);
    assert_memory_equal(before, payload[0], size);
    codec_seed(work, 7, 3, 5, TRIES);
    assert_int_equal(c->encode(c, &(struct codec_call){.work = work, .grid = codes, .count = N},
                               payload[0], &size, residual[0], z[0]),
                     ERR_OK);
    assert_true(memcmp(before, payload[0], size) != 0);
}

static void malformed_aggregates_are_refused(void **state)
{
    (void)state;
    make_inputs(700);
    for (int k = 0; k < CODECS; k++) {
        const struct codec *c = codec_get((enum codec_kind)k);
        unsigned n = 3;
        size_t size;
        encode_all(c);
        assert_int_equal(c->aggregate(c, &(struct codec_call){.work = work, .count = COUNT},
                                      aggregate, &size, payloads, n),
                         ERR_OK);
        assert_int_equal(c->mean(c,
                                 &(struct codec_call){.work = work, .grid = grid, .count = COUNT},
                                 out, next, &(struct codec_aggregate){aggregate, size + 1, n, 3}),
                         ERR_PROTO);
        assert_int_equal(c->mean(c,
                                 &(struct codec_call){.work = work, .grid = grid, .count = COUNT},
                                 out, next, &(struct codec_aggregate){aggregate, size - 1, n, 3}),
                         ERR_PROTO);
        assert_int_equal(c->mean(c,
                                 &(struct codec_call){.work = work, .grid = grid, .count = COUNT},
                                 out, next, &(struct codec_aggregate){aggregate, 0, 0, 3}),
                         ERR_PROTO);
        assert_int_equal(c->mean(c,
                                 &(struct codec_call){.work = work, .grid = grid, .count = COUNT},
                                 out, next, &(struct codec_aggregate){aggregate, size, n, 0}),
                         ERR_PROTO);
        assert_int_equal(c->mean(c,
                                 &(struct codec_call){.work = work, .grid = grid, .count = COUNT},
                                 out, next, &(struct codec_aggregate){aggregate, size, n, NAN}),
                         ERR_PROTO);
        if (c->kind == CODEC_SIGN)
            aggregate[4 * BLOCKS - 2]--; /* as many pluses as there were signs, and one sign less */
        else if (c->summable)
            memset(aggregate + size - 4, 255, 4); /* a sum of all ones bits */
        else
            memcpy(aggregate + size - 4, table[k].evil[0], 4);
        assert_int_equal(c->mean(c,
                                 &(struct codec_call){.work = work, .grid = grid, .count = COUNT},
                                 out, next, &(struct codec_aggregate){aggregate, size, n, 3}),
                         ERR_PROTO);
        assert_int_equal(c->aggregate(c, &(struct codec_call){.work = work, .count = COUNT},
                                      aggregate, &size, payloads, n),
                         ERR_OK);
        if (c->summable)
            memcpy(aggregate + 2 * 7, "\xfb\x02", 2); /* one more than 3 * 254 */
        else
            aggregate[0]++; /* the first payload's size */
        assert_int_equal(c->mean(c,
                                 &(struct codec_call){.work = work, .grid = grid, .count = COUNT},
                                 out, next, &(struct codec_aggregate){aggregate, size, n, 3}),
                         ERR_PROTO);
    }
}

static void infinite_deltas_are_not_sent(void **state)
{
    (void)state;
    make_inputs(800);
    static const float evil[] = {INFINITY, -INFINITY, NAN};
    for (int k = 0; k < CODECS; k++)
        for (int e = 0; e < 3; e++) {
            const struct codec *c = codec_get((enum codec_kind)k);
            float before = z[0][COUNT - 3];
            z[0][COUNT - 3] = evil[e];
            size_t size;
            assert_int_equal(
                c->encode(c, &(struct codec_call){.work = work, .grid = grid, .count = COUNT},
                          payload[0], &size, residual[0], z[0]),
                ERR_DIVERGED);
            assert_non_null(strstr(err_message(), "block 256"));
            z[0][COUNT - 3] = before;
        }
}

/* Several rounds with feedback on a constant delta: what arrives over the rounds approaches what
 * was trained, and trained = included + residual + discarded holds to the last bit. */
/* Against log2 of the C library, and at its ends. */
static void residual_ratio_is_the_logarithm(void **state)
{
    (void)state;
    assert_int_equal(codec_residual_ratio(0, 0), 0);
    assert_int_equal(codec_residual_ratio(0, 5), 0);
    assert_int_equal(codec_residual_ratio(1e-60, 0), CODEC_RATIO_MAX);
    assert_int_equal(codec_residual_ratio(1e300, 1e-300), CODEC_RATIO_MAX);
    assert_int_equal(codec_residual_ratio(1e-50, 1e300), 1);
    for (uint64_t i = 0; i < 1000; i++) {
        double delta = exp(10 * (double)rng_normal(21, RNG_TEST, 2 * i)),
               left = exp(10 * (double)rng_normal(21, RNG_TEST, 2 * i + 1));
        double code = floor(log2(left / delta)) + 128;
        assert_int_equal(codec_residual_ratio(left, delta), fmin(fmax(code, 1), CODEC_RATIO_MAX));
    }
}

/* One value that is alone in its block and far above the others, and nothing else: not rows that
 * move as a whole, not blocks that hold little or one parameter, not what the scale of a run is. */
static void spikes_are_seen(void **state)
{
    (void)state;
    enum { N = 64 * DEV_BLOCK };
    static float x[N], rest[N];
    static uint8_t bytes[64 + 8 + 4 * N], none[64];
    size_t size;
    float value = 0;
    const struct codec *c = codec_get(CODEC_BF16);
    for (int scale = -50; scale <= 25; scale += 25)
        for (int spike = -1; spike < N; spike += 1021)
            for (int large = 0; large < 2; large++) {
                for (size_t i = 0; i < N; i++) {
                    size_t block = i / DEV_BLOCK;
                    float rate = block % 9 == 8 ? 0.002f
                                 : block == 5   ? 700
                                                : 1; /* rare rows; gains */
                    x[i] = ldexpf(rate * rng_normal(31, RNG_TEST, i), scale);
                    if (block == 7 || (block == 9 && i % DEV_BLOCK > 0)) /* frozen; one parameter */
                        x[i] = 0;
                }
                if (spike >= 0)
                    x[spike] = ldexpf(large ? -40000 : 900, scale);
                bool seen = spike >= 0 && large && spike / DEV_BLOCK != 5;
                assert_int_equal(
                    c->encode(c, &(struct codec_call){.work = work, .grid = none, .count = N},
                              bytes, &size, rest, x),
                    ERR_OK);
                assert_int_equal(codec_spike(work, bytes, x, N, &value), seen ? (size_t)spike : N);
                if (seen)
                    assert_true(value == x[spike]);
            }
    memset(x, 0, sizeof x);
    assert_int_equal(c->encode(c, &(struct codec_call){.work = work, .grid = none, .count = N},
                               bytes, &size, rest, x),
                     ERR_OK);
    assert_int_equal(codec_spike(work, bytes, x, N, &value), N);
    x[3] = 1; /* nothing to compare it with */
    assert_int_equal(c->encode(c, &(struct codec_call){.work = work, .grid = none, .count = N},
                               bytes, &size, rest, x),
                     ERR_OK);
    assert_int_equal(codec_spike(work, bytes, x, N, &value), N);
}

static void rounds_lose_nothing(void **state)
{
    (void)state;
    static double included[COUNT], discarded[COUNT];
    static float delta[COUNT], carried[COUNT];
    make_inputs(900);
    for (int leak = 0; leak < 2; leak++) {
        const struct codec *c = codec_get(CODEC_INT4);
        memset(included, 0, sizeof included);
        memset(discarded, 0, sizeof discarded);
        memset(carried, 0, sizeof carried);
        for (size_t i = 0; i < COUNT; i++) /* multiples of 2^-12, so that z never rounds */
            delta[i] = (float)((int64_t)rng_below(901, RNG_TEST, i, 2001) - 1000) * 0x1p-12f;
        memset(grid, 0, sizeof grid);
        for (int round = 0; round < 8; round++) {
            codec_residual_decay(carried, discarded, leak ? 0.5f : 1.0f, COUNT);
            for (size_t i = 0; i < COUNT; i++)
                z[0][i] = delta[i] + carried[i];
            size_t size;
            assert_int_equal(
                c->encode(c, &(struct codec_call){.work = work, .grid = grid, .count = COUNT},
                          payload[0], &size, carried, z[0]),
                ERR_OK);
            assert_int_equal(
                c->decode(c, &(struct codec_call){.work = work, .grid = grid, .count = COUNT}, out,
                          payload[0], size),
                ERR_OK);
            payloads[0] = (struct codec_payload){payload[0], size};
            assert_int_equal(c->aggregate(c, &(struct codec_call){.work = work, .count = COUNT},
                                          aggregate, &size, payloads, 1),
                             ERR_OK);
            assert_int_equal(
                c->mean(c, &(struct codec_call){.work = work, .grid = grid, .count = COUNT}, out,
                        grid, &(struct codec_aggregate){aggregate, size, 1, 1}),
                ERR_OK);
            double error = 0, whole = 0;
            for (size_t i = 0; i < COUNT; i++) {
                included[i] += (double)out[i];
                assert_true((round + 1) * (double)delta[i] ==
                            included[i] + (double)carried[i] + discarded[i]);
                error += pow(included[i] - (round + 1) * (double)delta[i], 2);
                whole += pow((round + 1) * (double)delta[i], 2);
            }
            if (!leak && round == 7)
                assert_true(error < 0.004 * whole);
        }
    }
}

/* Everything a codec makes, digested: payload, residual, aggregate, mean, next grid. */
static void codec_digests(const struct codec *c, char hex[5][65])
{
    make_inputs(1);
    encode_all(c);
    size_t size;
    assert_int_equal(c->aggregate(c, &(struct codec_call){.work = work, .count = COUNT}, aggregate,
                                  &size, payloads, 3),
                     ERR_OK);
    assert_int_equal(c->mean(c, &(struct codec_call){.work = work, .grid = grid, .count = COUNT},
                             out, next, &(struct codec_aggregate){aggregate, size, 3, 3.7f}),
                     ERR_OK);
    struct digest d[5] = {digest_of(payload[0], payloads[0].size_bytes),
                          digest_of(residual[0], sizeof residual[0]), digest_of(aggregate, size),
                          digest_of(out, sizeof out), digest_of(next, sizeof next)};
    for (int i = 0; i < 5; i++)
        digest_hex(&d[i], hex[i]);
}

static const char *const parts[5] = {"payload", "residual", "aggregate", "mean", "grid"};

static void golden_digests_are(void)
{
    FILE *f = fopen(GOLDEN, "r");
    assert_non_null(f);
    for (int k = 0; k < CODECS; k++) {
        char hex[5][65], name[16], part[16], want[65];
        codec_digests(codec_get((enum codec_kind)k), hex);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(fscanf(f, "%15s %15s %64s", name, part, want), 3);
            assert_string_equal(name, table[k].name);
            assert_string_equal(part, parts[i]);
            assert_string_equal(hex[i], want);
        }
    }
    fclose(f);
}

static void golden_digests_at_every_thread_count(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 7};
    for (size_t t = 0; t < 4; t++) {
        device(threads[t], NULL);
        golden_digests_are();
    }
}

/* A device that has memory of its own takes the ops one after the other; here the CPU's. */
static void golden_digests_of_a_distant_device(void **state)
{
    (void)state;
    device(2, NULL);
    work->here = false;
    golden_digests_are();
}

static void golden_digests_at_lower_levels(void **state)
{
    (void)state;
#if defined(__x86_64__)
    static const char *const isa[LEVEL_COUNT] = {"v2", "v3", "v4"};
#else
    static const char *const isa[LEVEL_COUNT] = {"plain"};
#endif
    for (enum level l = LEVEL_PLAIN; l < level_best(); l++) { /* the best: above */
        device(2, isa[l]);
        golden_digests_are();
    }
}

int main(int argc, char **argv)
{
    device(2, NULL);
    if (argc == 2 && strcmp(argv[1], "--digests") == 0) {
        for (int k = 0; k < CODECS; k++) {
            char hex[5][65];
            codec_digests(codec_get((enum codec_kind)k), hex);
            for (int i = 0; i < 5; i++)
                printf("%s %s %s\n", table[k].name, parts[i], hex[i]);
        }
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_squares),
        cmocka_unit_test(test_squares_of_lies),
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(exponents_are_the_nearest_powers_of_two),
        cmocka_unit_test(decode_plus_residual_is_z),
        cmocka_unit_test(error_is_what_the_bits_allow),
        cmocka_unit_test(codes_say_the_scale),
        cmocka_unit_test(aggregate_is_the_exact_sum),
        cmocka_unit_test(sums_do_not_depend_on_order),
        cmocka_unit_test(largest_sums_fit),
        cmocka_unit_test(malformed_payloads_are_refused),
        cmocka_unit_test(unchanged_blocks_are_not_sent),
        cmocka_unit_test(fixed_steps_are_the_nearest),
        cmocka_unit_test(fixed_sums_are_rounded_once),
        cmocka_unit_test(scales_that_no_block_has_are_refused),
        cmocka_unit_test(topk_takes_the_largest),
        cmocka_unit_test(signs_are_of_what_a_step_fits),
        cmocka_unit_test(the_grid_chooses_the_chunks),
        cmocka_unit_test(codes_are_of_the_next_round),
        cmocka_unit_test(every_chunk_has_its_turn),
        cmocka_unit_test(stochastic_rounding_has_no_bias),
        cmocka_unit_test(malformed_aggregates_are_refused),
        cmocka_unit_test(infinite_deltas_are_not_sent),
        cmocka_unit_test(residual_ratio_is_the_logarithm),
        cmocka_unit_test(spikes_are_seen),
        cmocka_unit_test(rounds_lose_nothing),
        cmocka_unit_test(golden_digests_at_every_thread_count),
        cmocka_unit_test(golden_digests_of_a_distant_device),
        cmocka_unit_test(golden_digests_at_lower_levels),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    codec_close(work);
    dev_close(dev);
    return failures;
}
