/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if the exact set is wrong: members disagree about the outer state, or training leaks
 * away in rounding. References are slow loops in double or in bits; products of two floats are
 * exact in double, and a sum of two floats rounded to double and then to float is the float sum.
 * Random inputs: stream RNG_TEST, seed in each test.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "kernels/dev.h"
#include "kernels/base/bf16.h"

enum { COUNT = 37 * DEV_BLOCK, BLOCKS = COUNT / DEV_BLOCK };
static struct dev one = {.threads = 1};
static const struct dev_ops *op; /* of the level under test */
static float z[COUNT], a[COUNT], b[COUNT], c[COUNT], out[COUNT], residual[COUNT];
static int32_t q[COUNT], q2[COUNT];
static uint8_t codes[BLOCKS];
static uint32_t slots[BLOCKS];

/* Sign, any exponent in [low, high], random mantissa. */
static float draw(uint64_t seed, uint64_t i, int low, int high)
{
    uint32_t r[4];
    rng_block(seed, RNG_TEST, i, r);
    double m = 1 + (double)r[0] * 0x1p-32;
    int e = low + (int)(r[1] % (uint32_t)(high - low + 1));
    return (float)ldexp(r[2] & 1 ? -m : m, e);
}

static void fill(float *x, uint64_t seed, int low, int high)
{
    for (size_t i = 0; i < COUNT; i++)
        x[i] = draw(seed, i, low, high);
}

/* The power of two that is nearest to 8, 4 or 2 RMS / Q; of a sign to the RMS. */
static double step_of(size_t i, enum dev_form form)
{
    double clip = form == DEV_INT8   ? 8 / 127.0
                  : form == DEV_INT4 ? 4 / 7.0
                  : form == DEV_INT2 ? 2
                                     : 1;
    int code = codes[i / DEV_BLOCK];
    return code ? exp2(round(log2(clip) + (code - 128 + 0.5) / 2)) : 0;
}

static void make_grid(uint64_t seed)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        codes[i] = (uint8_t)(98 + rng_below(seed, RNG_TEST, i, 60));
        slots[i] = (uint32_t)i;
    }
    codes[0] = 0;
    codes[1] = 1;
    codes[2] = 254;
}

static void delta_rounds_each_operation(void **state)
{
    (void)state;
    fill(a, 1, -20, 4);
    fill(b, 2, -20, 4);
    fill(c, 3, -30, 4);
    float weight = 0.3f;
    memcpy(residual, c, sizeof c);
    op->outer_delta(&one, residual,
                    &(struct dev_delta){.outer = a,
                                        .local = b,
                                        .residual = residual,
                                        .weight = weight,
                                        .count = COUNT}); /* z aliases residual */
    for (size_t i = 0; i < COUNT; i++) {
        float delta = (float)((double)a[i] - (double)b[i]);
        float weighted = (float)((double)weight * (double)delta);
        float want = (float)((double)weighted + (double)c[i]);
        assert_memory_equal(&residual[i], &want, 4);
    }
}

static void block_code_is_log2_of_the_mean_square(void **state)
{
    (void)state;
    uint8_t code[BLOCKS];
    fill(z, 4, -3, 3);
    memset(z, 0, DEV_BLOCK * sizeof *z); /* all zero */
    z[DEV_BLOCK + 5] = NAN;
    z[2 * DEV_BLOCK + 255] = -INFINITY;
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        z[3 * DEV_BLOCK + i] = i == 77 ? 0x1p-149f : 0;  /* smallest denormal: clamps to 1 */
        z[4 * DEV_BLOCK + i] = 3.4028235e38f;            /* clamps to 254 */
        z[5 * DEV_BLOCK + i] = i & 1 ? 0.5f : -0.5f;     /* mean square 1/4 exactly: code 126 */
        z[6 * DEV_BLOCK + i] = i < 255 ? 0.5f : 0.4999f; /* just below: code 125 */
        z[7 * DEV_BLOCK + i] = i ? -0.0f : 1.0f;         /* 1/256: code 120 */
    }
    op->block_code(&one, code, z, COUNT);
    static const uint8_t want[8] = {0, 255, 255, 1, 254, 126, 125, 120};
    assert_memory_equal(code, want, 8);
    for (size_t k = 8; k < BLOCKS; k++) {
        long double sum = 0;
        for (size_t i = 0; i < DEV_BLOCK; i++)
            sum += (long double)z[k * DEV_BLOCK + i] * z[k * DEV_BLOCK + i];
        assert_int_equal(code[k], ilogbl(sum / DEV_BLOCK) + 128);
    }
}

static uint32_t bits_at(const uint8_t *stream, size_t i, unsigned bits)
{
    uint32_t v = 0;
    for (unsigned k = 0; k < bits; k++)
        v |= (uint32_t)(stream[(i * bits + k) / 8] >> (i * bits + k) % 8 & 1) << k;
    return v;
}

/* Every exponent from far below the step to far above 2^24 steps, ties included, for each Q. */
static void integers_keep_every_bit(void **state)
{
    (void)state;
    static const int q_max[3] = {127, 7, 1};
    static const unsigned bits[3] = {8, 4, 2};
    static uint8_t stream[COUNT], own[BLOCKS], present[BLOCKS], code[BLOCKS];
    make_grid(5);
    for (int k = 0; k < 3; k++) {
        enum dev_form form = (enum dev_form)(DEV_INT8 + k);
        fill(z, 6 + (uint64_t)k, -30, 30);
        /* Near the grid: k/4 steps, ties and all. */
        for (size_t i = 3 * DEV_BLOCK; i < 20 * DEV_BLOCK; i++) {
            int64_t quarter = (int64_t)rng_below(9, RNG_TEST, i, 1200) - 600;
            z[i] = (float)((double)quarter * 0.25 * step_of(i, form) * (i / DEV_BLOCK != 19));
        }
        z[0] = 0x1p-149f;
        z[DEV_BLOCK] = 3.4028235e38f;
        z[DEV_BLOCK + 1] = -0.0f;
        z[3 * DEV_BLOCK] =
            (float)(0x1.fffffep23 * step_of(3 * DEV_BLOCK, form)); /* last that is sent */
        z[3 * DEV_BLOCK + 1] =
            (float)(-0x1p24 * step_of(3 * DEV_BLOCK, form)); /* first that is not */
        struct dev_encode e = {.form = form, .count = COUNT, .grid = codes};
        memcpy(residual, z, sizeof z);
        op->block_code(&one, code, z, COUNT);
        e.code = own;
        e.present = present;
        op->block_encode(&one, stream, residual, residual, &e);
        assert_memory_equal(own, code, BLOCKS);
        for (size_t i = 0; i < COUNT; i++) {
            double step = step_of(i, form), x = step > 0 ? (double)z[i] / step : 0, want = 0;
            if (fabs(x) < 0x1p24)
                want = fmin(fmax(nearbyint(x), -q_max[k]), q_max[k]);
            q[i] = (int32_t)bits_at(stream, i, bits[k]) - q_max[k];
            assert_true((double)q[i] == want);
            assert_true((double)residual[i] == (double)z[i] - want * step); /* exact in double */
            assert_true((float)((double)residual[i] + want * step) == z[i]);
        }
        assert_int_equal(q[3 * DEV_BLOCK], q_max[k]);
        assert_int_equal(q[3 * DEV_BLOCK + 1], 0);
        for (size_t block = 0; block < BLOCKS; block++) {
            bool any = false;
            for (size_t i = block * DEV_BLOCK; i < (block + 1) * DEV_BLOCK; i++)
                any |= q[i] != 0;
            assert_int_equal(present[block], any);
        }
        assert_int_equal(present[0] + present[19], 0); /* an empty grid, a block of zeros */
    }
}

/* Sums of integers and of signs, from slots in another order and from none; a sum that is too large
 * shows, wherever it is. */
static void sums_divide_once(void **state)
{
    (void)state;
    enum { BIAS = 32512, SITES = 500 };
    static uint8_t stream[COUNT * 2];
    static uint16_t signs[BLOCKS];
    make_grid(5);
    for (size_t block = 0; block < BLOCKS; block++) {
        slots[block] = block % 7 == 3 ? DEV_ABSENT : (uint32_t)(BLOCKS - 1 - block);
        signs[block] = (uint16_t)rng_below(14, RNG_TEST, block, SITES);
    }
    for (int sign = 0; sign < 2; sign++)
        for (float divisor = 1; divisor < 4; divisor += 0.7f) {
            uint32_t over = 0;
            struct dev_decode v = {.form = sign ? DEV_SIGN : DEV_INT8,
                                   .count = COUNT,
                                   .slot = slots,
                                   .code = codes,
                                   .bits = sign ? 9 : 16,
                                   .bias = BIAS,
                                   .signs = signs,
                                   .overflow = &over,
                                   .divisor = divisor};
            for (size_t i = 0; i < COUNT; i++) {
                uint32_t m = sign ? signs[BLOCKS - 1 - i / DEV_BLOCK] : 2 * BIAS;
                q[i] = (int32_t)rng_below(12, RNG_TEST, i, m + 1) - (sign ? 0 : BIAS);
            }
            op->pack(&one, stream, q, sign ? 0 : BIAS, v.bits, COUNT);
            op->block_decode(&one, out, stream, &v);
            for (size_t i = 0; i < COUNT; i++) {
                size_t block = i / DEV_BLOCK;
                double sum =
                    slots[block] == DEV_ABSENT ? 0 : q[slots[block] * DEV_BLOCK + i % DEV_BLOCK];
                if (sign && slots[block] != DEV_ABSENT)
                    sum = 2 * sum - signs[block];
                float want = (float)(sum * step_of(i, v.form) / (double)divisor);
                assert_true(out[i] == want);
            }
            assert_int_equal(over, 0);
            size_t bad = 11 * DEV_BLOCK + 77, from = slots[11] * DEV_BLOCK + 77;
            q[from] = sign ? signs[bad / DEV_BLOCK] + 1 : BIAS + 1;
            op->pack(&one, stream, q, sign ? 0 : BIAS, v.bits, COUNT);
            op->block_decode(&one, out, stream, &v);
            assert_int_equal(over, 1);
        }
}

static void blocks_are_gathered(void **state)
{
    (void)state;
    static uint32_t from[COUNT], to[COUNT];
    static const size_t bytes[] = {32, 132, 1024};
    for (size_t i = 0; i < COUNT; i++)
        from[i] = rng_u32(3, RNG_TEST, i);
    for (size_t i = 0; i < 3; i++) {
        memset(to, 0, sizeof to);
        for (size_t block = 0; block < BLOCKS; block++)
            slots[block] = (uint32_t)(block * 5 % BLOCKS);
        op->block_gather(&one, (uint8_t *)to, (const uint8_t *)from, slots, bytes[i], BLOCKS - 1);
        for (size_t block = 0; block < BLOCKS - 1; block++)
            assert_memory_equal((uint8_t *)to + block * bytes[i],
                                (uint8_t *)from + slots[block] * bytes[i], bytes[i]);
        assert_int_equal(to[(BLOCKS - 1) * bytes[i] / 4], 0);
    }
}

static void bf16_is_nearest_even(void **state)
{
    (void)state;
    static uint16_t h[COUNT];
    fill(z, 13, -140, 127);
    static const float special[] = {0.0f,           -0.0f,       0x1.01p0f,       0x1.03p0f,
                                    0x1.010002p0f,  0x1p-149f,   -0x1.8p-134f,    3.4028235e38f,
                                    -3.4028235e38f, 0x1.fep127f, 0x1.fefffep127f, 0x1.ffp127f};
    memcpy(z, special, sizeof special);
    memcpy(residual, z, sizeof z);
    op->round_bf16(&one, h, residual, residual, COUNT);
    op->bf16_to_f32(&one, out, h, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        int e;
        frexp((double)z[i], &e);
        double unit = ldexp(1, e - 8 < -133 ? -133 : e - 8); /* bf16: 8 bits, least exponent -133 */
        double want = nearbyint((double)z[i] / unit) * unit;
        if (fabs(want) > 0x1.fep127)
            want = copysign(0x1.fep127, want);
        assert_true((double)out[i] == want);
        assert_true((double)residual[i] == (double)z[i] - want);
    }
}

static void packed_streams_are_bits_in_order(void **state)
{
    (void)state;
    static uint8_t stream[COUNT / 8 * 18 + 1], want[COUNT / 8 * 18];
    for (unsigned bits = 1; bits <= 18; bits++) {
        int32_t bias = 1 << (bits - 1);
        size_t size = COUNT / 8 * bits;
        memset(want, 0, sizeof want);
        for (size_t i = 0; i < COUNT; i++) {
            uint32_t value = rng_u32(bits, RNG_TEST, i) & ((1u << bits) - 1);
            q[i] = (int32_t)value - bias;
            for (unsigned k = 0; k < bits; k++)
                want[(i * bits + k) / 8] |= (uint8_t)((value >> k & 1) << (i * bits + k) % 8);
        }
        stream[size] = 0xa5;
        op->pack(&one, stream, q, bias, bits, COUNT);
        assert_memory_equal(stream, want, size);
        assert_int_equal(stream[size], 0xa5);
        make_grid(1); /* slots */
        op->unpack(&one, q2, stream,
                   &(struct dev_unpack){
                       .slot = slots, .bias = bias, .bits = bits, .add = false, .count = COUNT});
        assert_memory_equal(q2, q, sizeof q);
        op->unpack(&one, q2, stream,
                   &(struct dev_unpack){
                       .slot = slots, .bias = bias, .bits = bits, .add = true, .count = COUNT});
        for (size_t i = 0; i < COUNT; i++)
            assert_int_equal(q2[i], 2 * q[i]);
        for (size_t block = 0; block < BLOCKS; block++)
            slots[block] = block % 3 == 1 ? DEV_ABSENT : (uint32_t)(block / 2);
        for (int add = 1; add >= 0; add--) {
            op->unpack(&one, q2, stream,
                       &(struct dev_unpack){
                           .slot = slots, .bias = bias, .bits = bits, .add = add, .count = COUNT});
            for (size_t i = 0; i < COUNT; i++) {
                size_t block = i / DEV_BLOCK;
                int32_t value = block % 3 == 1 ? 0 : q[block / 2 * DEV_BLOCK + i % DEV_BLOCK];
                assert_int_equal(q2[i], value + (add ? 2 * q[i] : 0));
            }
        }
    }
}

static void outer_step_rounds_each_operation(void **state)
{
    (void)state;
    float lr = 0.7f, mu = 0.9f;
    fill(a, 20, -8, 2); /* theta */
    fill(b, 21, -8, 2); /* momentum */
    fill(c, 22, -8, 2); /* mean */
    memcpy(out, a, sizeof a);
    memcpy(residual, b, sizeof b);
    const struct outer_scalars k = {.lr = lr, .mu = mu};
    op->outer_step(&one, OUTER_OPT_MOMENTUM,
                   &(struct dev_outer_step){out, {residual}, c, k, COUNT});
    for (size_t i = 0; i < COUNT; i++) {
        float kept = (float)((double)mu * (double)b[i]), buf = (float)((double)kept + (double)c[i]);
        float ahead = (float)((double)mu * (double)buf),
              way = (float)((double)c[i] + (double)ahead);
        float step = (float)((double)lr * (double)way),
              theta = (float)((double)a[i] - (double)step);
        assert_true(residual[i] == buf && out[i] == theta);
    }
    memcpy(out, a, sizeof a);
    op->outer_step(&one, OUTER_OPT_SGD, &(struct dev_outer_step){out, {NULL}, c, k, COUNT});
    op->axpy(&one, b, c, -1.3f, COUNT);
    memcpy(residual, c, sizeof c);
    op->div_scalar(&one, residual, 3.0f, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        float step = (float)((double)lr * (double)c[i]);
        assert_true(out[i] == (float)((double)a[i] - (double)step));
        assert_true(residual[i] == (float)((double)c[i] / 3.0));
        float scaled = (float)((double)-1.3f * (double)c[i]), before = draw(21, i, -8, 2);
        assert_true(b[i] == (float)((double)before + (double)scaled));
    }
}

/* Mean of many draws of x = low + p * step, low a bf16: within four sigma of x, always one of the
 * two neighbours. */
static void unbiased(float low, double p)
{
    enum { DRAWS = 1 << 18 };
    static float same[DRAWS];
    static uint16_t h[DRAWS];
    float high = bf16_float((uint16_t)((float_bits(low) >> 16) + 1));
    float x = (float)((double)low + p * ((double)high - (double)low));
    double up = 0, want = ((double)x - (double)low) / ((double)high - (double)low);
    for (size_t i = 0; i < DRAWS; i++)
        same[i] = x;
    op->round_stochastic(&one, h, same, &(struct dev_random){5, 6, 0}, DRAWS);
    for (size_t i = 0; i < DRAWS; i++) {
        assert_true(bf16_float(h[i]) == low || bf16_float(h[i]) == high);
        up += bf16_float(h[i]) == high;
    }
    double sigma = sqrt(want * (1 - want) / DRAWS);
    if (fabs(up / DRAWS - want) > 4 * sigma)
        fail_msg("%g rounds up in %.5f of the cases, wanted %.5f", (double)x, up / DRAWS, want);
}

static void stochastic_rounding_is_unbiased(void **state)
{
    (void)state;
    const float low[] = {1.0f, -0.0078125f, 3.0e8f, 0x1p-130f, 1.9921875f};
    const double p[] = {0, 0.5, 0.25, 0.9, 0x1p-10};
    for (size_t i = 0; i < sizeof low / sizeof *low; i++)
        for (size_t k = 0; k < sizeof p / sizeof *p; k++)
            unbiased(bf16_float(bf16_round(low[i])), p[k]);
    float special[] = {INFINITY, -INFINITY, 3.4028234e38f, -3.4028234e38f, NAN, 0, -0.0f, 1};
    uint16_t h[8];
    for (uint64_t step = 0; step < 100; step++) {
        op->round_stochastic(&one, h, special, &(struct dev_random){1, step, 0}, 8);
        assert_true(bf16_float(h[0]) == INFINITY && bf16_float(h[1]) == -INFINITY);
        assert_true(h[2] == 0x7f7f && h[3] == 0xff7f); /* finite stays finite */
        assert_true(isnan(bf16_float(h[4])));
        assert_true(h[5] == 0 && h[6] == 0x8000 && h[7] == 0x3f80);
    }
}

/* A part of the slab rounds as it does within the whole; another step, seed: other bits. */
static void stochastic_rounding_knows_the_element(void **state)
{
    (void)state;
    static uint16_t all[COUNT], part[COUNT];
    fill(a, 41, -12, 8);
    op->round_stochastic(&one, all, a, &(struct dev_random){1, 2, 16}, COUNT);
    op->round_stochastic(&one, part, a, &(struct dev_random){1, 2, 16}, 1000);
    op->round_stochastic(&one, part + 1000, a + 1000, &(struct dev_random){1, 2, 1016},
                         COUNT - 1000);
    assert_memory_equal(all, part, sizeof all);
    op->round_stochastic(&one, part, a, &(struct dev_random){1, 3, 16}, COUNT);
    assert_memory_not_equal(all, part, sizeof all);
    op->round_stochastic(&one, part, a, &(struct dev_random){2, 2, 16}, COUNT);
    assert_memory_not_equal(all, part, sizeof all);
}

/* The form of master weights. Oracle: a value between low and low + step, step 2^-9 of its power of
 * two, in doubles; the draws are those of 2^18 elements. */
static void masters_are_unbiased(void **state)
{
    (void)state;
    enum { DRAWS = 1 << 18 };
    static float x[DRAWS];
    const float low[] = {1.0f, -0.0625f, 0x1.55p-3f, 0x1p-30f, 0x1p-34f, 0};
    const double p[] = {0, 0.5, 0.25, 0.9, 0x1p-10};
    for (size_t i = 0; i < sizeof low / sizeof *low; i++)
        for (size_t k = 0; k < sizeof p / sizeof *p; k++) {
            int power = fabsf(low[i]) < 0x1p-30f ? -30 : ilogb((double)low[i]);
            double side = low[i] < 0 ? -1 : 1, step = side * ldexp(1, power - 9), up = 0;
            float value = (float)((double)low[i] + p[k] * step),
                  high = (float)((double)low[i] + step);
            for (size_t n = 0; n < DRAWS; n++)
                x[n] = value;
            op->round_narrow(&one, x, NULL, &(struct dev_narrow){6, 9, true, 5, 6, 0, NULL}, DRAWS);
            for (size_t n = 0; n < DRAWS; n++) {
                assert_true(x[n] == low[i] || x[n] == high);
                up += x[n] == high;
            }
            if (fabs(up / DRAWS - p[k]) > 4 * sqrt(p[k] * (1 - p[k]) / DRAWS))
                fail_msg("%g rounds up in %.5f of the cases, wanted %.5f", (double)value,
                         up / DRAWS, p[k]);
            for (size_t n = 0; n < 3; n++)
                x[n] = value;
            op->round_narrow(&one, x, NULL, &(struct dev_narrow){6, 9, false, 5, 6, 0, NULL}, 3);
            double even = fmod(fabs((double)low[i] / step), 2) != 0 ? 1 : 0;
            assert_true(x[2] == (p[k] + even * 0x1p-40 > 0.5 ? high : low[i]));
        }
}

/* A part from any element on rounds as it does within the whole, and so does the bf16 copy; another
 * step, seed: other bits; a gradient that is not finite changes nothing. */
static void masters_know_the_element(void **state)
{
    (void)state;
    static uint16_t copy[COUNT], again[COUNT];
    const float stop = NAN, go = 0.5f;
    struct dev_narrow r = {6, 9, true, 1, 2, 17, &go};
    fill(a, 41, -12, 8);
    memcpy(b, a, sizeof a);
    op->round_narrow(&one, b, copy, &r, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(copy[i], bf16_round(b[i]));
    for (size_t cut = 1; cut < COUNT; cut = 3 * cut + 1) {
        struct dev_narrow rest = r;
        rest.first += cut;
        memcpy(c, a, sizeof a);
        op->round_narrow(&one, c, again, &r, cut);
        op->round_narrow(&one, c + cut, again + cut, &rest, COUNT - cut);
        assert_memory_equal(b, c, sizeof b);
        assert_memory_equal(copy, again, sizeof copy);
    }
    op->round_narrow(&one, c, NULL, &r, COUNT); /* a second time */
    assert_memory_equal(b, c, sizeof b);
    for (int k = 0; k < 2; k++) {
        struct dev_narrow other = r;
        other.step += k == 0, other.seed += k == 1;
        memcpy(c, a, sizeof a);
        op->round_narrow(&one, c, NULL, &other, COUNT);
        assert_memory_not_equal(b, c, sizeof b);
    }
    r.gscale = &stop;
    memcpy(c, a, sizeof a);
    op->round_narrow(&one, c, again, &r, COUNT);
    assert_memory_equal(a, c, sizeof a);
}

/* All ops at a thread count into one long record. */
static void run_all(int threads, uint8_t *record, size_t size)
{
    struct dev d = {.threads = threads};
    static uint8_t code[BLOCKS], stream[COUNT * 4], forms[DEV_FORMS][COUNT * 4];
    static double norms[3];
    static struct dev_chunk chunks[3];
    uint32_t over = 0;
    float scale = 0;
    struct dev_sign_sum sums[1 + COUNT / DEV_RUN];
    const struct dev_range all = {0, COUNT - 5};
    static uint8_t sign_bits[COUNT / 8];
    static uint16_t h[COUNT], s[COUNT];
    struct {
        const void *data;
        size_t size;
    } parts[] = {{out, sizeof out},
                 {residual, sizeof residual},
                 {q, sizeof q},
                 {q2, sizeof q2},
                 {code, sizeof code},
                 {stream, COUNT / 8 * 9},
                 {forms, sizeof forms},
                 {norms, sizeof norms},
                 {chunks, sizeof chunks},
                 {h, sizeof h},
                 {c, sizeof c},
                 {s, sizeof s},
                 {b, sizeof b},
                 {z, sizeof z},
                 {sign_bits, sizeof sign_bits},
                 {&scale, sizeof scale}};
    make_grid(31);
    fill(a, 32, -12, 8);
    fill(b, 33, -12, 8);
    fill(c, 34, -12, 8);
    op->outer_delta(&d, z,
                    &(struct dev_delta){
                        .outer = a, .local = b, .residual = c, .weight = 0.37f, .count = COUNT});
    op->block_code(&d, code, z, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        q[i] = (int32_t)rng_below(35, RNG_TEST, i, 255) - 127;
    op->pack(&d, stream, q, 255, 9, COUNT);
    op->unpack(
        &d, q2, stream,
        &(struct dev_unpack){.slot = slots, .bias = 254, .bits = 9, .add = false, .count = COUNT});
    op->unpack(
        &d, q2, stream,
        &(struct dev_unpack){.slot = slots, .bias = 254, .bits = 9, .add = true, .count = COUNT});
    for (int f = 0; f < DEV_FORMS; f++) {
        static const unsigned bits[DEV_FORMS] = {0, 0, 8, 4, 2, 1};
        static const int32_t bias[DEV_FORMS] = {0, 0, 127, 7, 1};
        static uint8_t present[BLOCKS];
        static uint16_t signs[BLOCKS];
        const struct dev_encode e = {.form = (enum dev_form)f,
                                     .count = COUNT,
                                     .grid = codes,
                                     .seed = 5,
                                     .stream = 6,
                                     .first = 7,
                                     .code = code,
                                     .present = present};
        for (size_t i = 0; i < BLOCKS; i++)
            signs[i] = 1;
        op->block_encode(&d, forms[f], residual, z, &e);
        const struct dev_decode v = {(enum dev_form)f,
                                     COUNT,
                                     slots,
                                     code,
                                     bits[f],
                                     bias[f],
                                     signs,
                                     &over,
                                     f < DEV_INT8 || f > DEV_SIGN,
                                     f % 2 ? 1.0f : 3.0f};
        op->block_decode(&d, out, forms[f], &v);
    }
    op->chunk_l1(&d, norms, z, COUNT);
    op->chunk_topk(&d, chunks, residual, z, COUNT);
    op->chunk_add(&d, out, chunks, COUNT);
    op->round_bf16(&d, h, z, z, COUNT);
    op->round_stochastic(&d, s, a, &(struct dev_random){3, 4, 40}, COUNT);
    op->bf16_to_f32(&d, a, h, COUNT);
    op->round_narrow(&d, a, h, &(struct dev_narrow){6, 5, true, 3, 4, 7, NULL}, COUNT);
    op->axpy(&d, out, a, 0.77f, COUNT);
    op->div_scalar(&d, out, 7.0f, COUNT);
    for (unsigned kind = 0; kind < OUTER_OPT_KINDS; kind++) {
        for (size_t i = 0; i < COUNT; i++)
            z[i] = fabsf(z[i]); /* may be a mean of squares */
        for (int k = 0; k < 4; k++) {
            const struct outer_scalars scalars = {0.7f,  0.9f,  0.25f, k % 2, k / 2,
                                                  0.99f, 0.01f, 0.8f,  1};
            op->outer_step(&d, kind, &(struct dev_outer_step){b, {c, z}, out, scalars, COUNT});
        }
    }
    op->sign_encode(&d, sign_bits,
                    &(struct dev_sign_encode){.x = b,
                                              .error = c,
                                              .mask = a,
                                              .ranges = &all,
                                              .n = 1,
                                              .longest = COUNT,
                                              .scales = &scale,
                                              .sums = sums});
    op->sign_decode(&d, z,
                    &(struct dev_sign_decode){.ranges = &all,
                                              .n = 1,
                                              .longest = COUNT,
                                              .parts = 1,
                                              .bits = sign_bits,
                                              .scales = &scale});
    size_t used = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert_true(used + parts[i].size <= size);
        memcpy(record + used, parts[i].data, parts[i].size);
        used += parts[i].size;
    }
}

/* Over three runs and a part: the sum in long double, and the same bits for every thread count. */
static void squares_are_of_the_difference(void **state)
{
    (void)state;
    enum { N = 3 * DEV_RUN + 5 * DEV_BLOCK, RUNS = 4 };
    static float x[N], y[N];
    for (size_t i = 0; i < N; i++) {
        x[i] = draw(41, i, -20, 4);
        y[i] = i % 3 ? draw(42, i, -20, 4) : x[i];
    }
    for (int less = 0; less < 2; less++) {
        double sums[RUNS + 1] = {0, 0, 0, 0, 7}, again[RUNS];
        op->sumsq_diff(&one, sums, x, less ? y : NULL, N);
        assert_true(sums[RUNS] == 7);
        for (size_t r = 0; r < RUNS; r++) {
            long double want = 0;
            for (size_t i = r * DEV_RUN; i < N && i < (r + 1) * DEV_RUN; i++) {
                float off = less ? x[i] - y[i] : x[i];
                want += (long double)off * (long double)off;
            }
            assert_true(fabsl((long double)sums[r] - want) <= 1e-13L * want && want > 0);
        }
        for (int threads = 2; threads < 6; threads++) {
            op->sumsq_diff(&(struct dev){.threads = threads}, again, x, less ? y : NULL, N);
            assert_memory_equal(again, sums, sizeof again);
        }
    }
}

/* What is sent and what is kept: one value off by its last place shows, anywhere; not within slack.
 */
static void apart_sees_one_value(void **state)
{
    (void)state;
    fill(a, 51, -12, 8);
    fill(b, 52, -12, 8);
    for (size_t i = 0; i < COUNT; i++)
        z[i] = a[i] + b[i];
    uint32_t apart = 0;
    op->check_residual(&one, &apart,
                       &(struct dev_residual_check){
                           .sent = a, .residual = b, .z = z, .tolerance = 0, .count = COUNT});
    assert_int_equal(apart, 0);
    for (size_t i = 0; i < COUNT; i += 997) {
        float was = z[i];
        for (int k = 0; k < 3; k++) {
            z[i] = k == 0 ? nextafterf(was, INFINITY) : k == 1 ? NAN : -INFINITY;
            apart = 0;
            op->check_residual(
                &one, &apart,
                &(struct dev_residual_check){
                    .sent = a, .residual = b, .z = z, .tolerance = 0, .count = COUNT});
            assert_int_equal(apart, 1);
        }
        z[i] = was + 0.25f * fabsf(a[i]);
        apart = 0;
        op->check_residual(
            &one, &apart,
            &(struct dev_residual_check){
                .sent = a, .residual = b, .z = z, .tolerance = 0.2f, .count = COUNT});
        assert_int_equal(apart, fabsf(was - z[i]) > 0.2f * fabsf(a[i]));
        apart = 0;
        op->check_residual(
            &one, &apart,
            &(struct dev_residual_check){
                .sent = a, .residual = b, .z = z, .tolerance = 0.3f, .count = COUNT});
        assert_int_equal(apart, 0);
        z[i] = was;
        apart = 1; /* stays */
        op->check_residual(&one, &apart,
                           &(struct dev_residual_check){
                               .sent = a, .residual = b, .z = z, .tolerance = 0, .count = COUNT});
        assert_int_equal(apart, 1);
    }
}

static void sample_takes_every_so_many(void **state)
{
    (void)state;
    fill(a, 61, -12, 8);
    memset(out, 0, sizeof out);
    op->copy_strided(&one, out, a, 37, 256);
    for (size_t i = 0; i < 257; i++)
        assert_true(out[i] == (i < 256 ? a[37 * i] : 0));
}

/* 70 ranges with gaps, of lengths that differ; three roundings each, and alpha 0 does not look at
 * the slab. */
static void ranges_go_out_and_come_back(void **state)
{
    (void)state;
    enum { N = 70 };
    static const float alphas[] = {0, 0.5f, 0.3f};
    struct dev_range ranges[N];
    size_t total = 0;
    for (size_t i = 0; i < N; total += ranges[i++].count)
        ranges[i] = (struct dev_range){.offset = i * 128 + i % 3, .count = 1 + i * 37 % 125};
    fill(a, 71, -12, 4);
    fill(b, 72, -12, 4);
    b[5] = NAN;
    memset(out, 0, sizeof out);
    op->gather_ranges(&one, out, a, ranges, N);
    for (size_t k = 0; k < 2 * sizeof alphas / sizeof *alphas; k++) {
        struct dev_lerp blend = {ranges, N, alphas[k / 2], k % 2};
        size_t at = 0;
        memcpy(c, a, sizeof c);
        c[ranges[2].offset] = NAN;
        memcpy(z, c, sizeof z);
        op->lerp_ranges(&one, z, b, &blend);
        for (size_t r = 0; r < N; r++)
            for (size_t i = ranges[r].offset; i < ranges[r].offset + ranges[r].count; i++, at++) {
                float in = k % 2 && !(b[at] > 0) ? 0 : b[at];
                volatile float kept = blend.alpha * c[i], taken = (1 - blend.alpha) * in;
                float want = blend.alpha > 0 ? kept + taken : in;
                assert_true(out[at] == a[i] && (z[i] == want || (isnan(z[i]) && isnan(want))));
                c[i] = z[i];
            }
        assert_int_equal(at, total);
        assert_memory_equal(z, c, sizeof z); /* the gaps */
    }
    assert_true(out[total] == 0);
}

static void thread_count_changes_no_bit(void **state)
{
    (void)state;
    static uint8_t first[COUNT * 84], other[COUNT * 84];
    static const int threads[] = {2, 3, 7};
    run_all(1, first, sizeof first);
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        run_all(threads[i], other, sizeof other);
        assert_memory_equal(first, other, sizeof first);
    }
}

/* Each level of x86-64 that this processor has, against the same references. */
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delta_rounds_each_operation),
        cmocka_unit_test(block_code_is_log2_of_the_mean_square),
        cmocka_unit_test(integers_keep_every_bit),
        cmocka_unit_test(sums_divide_once),
        cmocka_unit_test(blocks_are_gathered),
        cmocka_unit_test(bf16_is_nearest_even),
        cmocka_unit_test(stochastic_rounding_is_unbiased),
        cmocka_unit_test(stochastic_rounding_knows_the_element),
        cmocka_unit_test(masters_are_unbiased),
        cmocka_unit_test(masters_know_the_element),
        cmocka_unit_test(packed_streams_are_bits_in_order),
        cmocka_unit_test(outer_step_rounds_each_operation),
        cmocka_unit_test(squares_are_of_the_difference),
        cmocka_unit_test(apart_sees_one_value),
        cmocka_unit_test(sample_takes_every_so_many),
        cmocka_unit_test(ranges_go_out_and_come_back),
        cmocka_unit_test(thread_count_changes_no_bit),
    };
    static const char *const levels[] = {"plain", "v2", "v3", "v4"};
    int failures = 0, tested = 0;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        struct dev_options o = {.kind = "cpu", .isa = levels[i]};
        struct dev *d;
        if (dev_open(&d, &o) != ERR_OK)
            continue;
        op = d->ops;
        failures += cmocka_run_group_tests_name(levels[i], tests, NULL, NULL);
        tested++;
        dev_close(d);
    }
    return tested ? failures : 1;
}
