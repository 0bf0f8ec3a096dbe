/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads as words of a ring. What would break: a round with masks that steps to another state
 * than the plain one, or words that tell which blocks a site sends. The plain codecs are the
 * reference: mean and next grid of the unmasked sum are theirs, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/base/rng.h"
#include "outer/codec/bits.h"
#include "outer/masks/masked.h"
#include "tests/outer/masks/cast.h"

enum { SITES = 64, BLOCKS_MAX = 197, PAYLOAD_MAX = 1200 * BLOCKS_MAX };
static struct dev *dev;
static struct codec_work *work;
static float z[BLOCKS_MAX * DEV_BLOCK], plain[BLOCKS_MAX * DEV_BLOCK],
    summed[BLOCKS_MAX * DEV_BLOCK];
static uint8_t payload[SITES][PAYLOAD_MAX], grid[BLOCKS_MAX], next_plain[BLOCKS_MAX],
    next_summed[BLOCKS_MAX];
static struct codec_payload payloads[CODEC_SITES_MAX];

static const enum codec_kind kinds[] = {CODEC_INT8, CODEC_INT4, CODEC_INT2, CODEC_SIGN,
                                        CODEC_FIXED};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Of a block: sent by all, by one, by none; by two, whose integers add up to 0; or drawn. */
enum { ALL, ONE, NONE, CANCELS, DRAWN };

static float value_of(uint64_t seed, unsigned site, size_t i)
{
    size_t block = i / DEV_BLOCK, what = (block + seed) % 8;
    float x = (float)((int32_t)rng_u32(seed + site, RNG_TEST, i) >> 8) * 0x1p-32f;
    x *= (float)(1 << block % 9);
    if (what == NONE || (what == ONE && site != block % 2) || (what == CANCELS && site > 1))
        return 0;
    if (what == CANCELS)
        return (float)((int32_t)rng_u32(seed, RNG_TEST, i) >> 8) * (site ? -0x1p-32f : 0x1p-32f);
    return what >= DRAWN && rng_below(seed, RNG_TEST, block * SITES + site, 3) ? 0 : x;
}

static void payloads_make(const struct codec *c, uint64_t seed, unsigned n, size_t blocks)
{
    for (size_t b = 0; b < blocks; b++)
        grid[b] = (uint8_t)(b % 13 == 12 ? 0 : 104 + 2 * (b % 9) + rng_below(seed, RNG_TEST, b, 5));
    for (unsigned s = 0; s < n; s++) {
        struct codec_call call = {.work = work, .grid = grid, .count = blocks * DEV_BLOCK};
        for (size_t i = 0; i < call.count; i++)
            z[i] = value_of(seed, s, i);
        payloads[s].data = payload[s];
        assert_int_equal(c->encode(c, &call, payload[s], &payloads[s].size_bytes, z, z), ERR_OK);
        assert_int_equal(c->check(c, &call, NULL, payload[s], payloads[s].size_bytes), ERR_OK);
    }
}

/* Masks that cancel in the sum over all n: site i adds those of j > i, and subtracts the others. */
static void masks_put(uint8_t *words, const struct mask_layout *l, uint64_t seed, unsigned site,
                      unsigned n)
{
    struct cipher_key keys[SITES];
    struct mask_term terms[SITES];
    size_t count = 0;
    for (unsigned j = 0; j < n; j++) {
        unsigned low = j < site ? j : site, high = j < site ? site : j;
        if (j == site)
            continue;
        keys[count] = cast_secret(seed, "pair", low * SITES + high);
        terms[count] = (struct mask_term){&keys[count], j < site};
        count++;
    }
    assert_int_equal(mask_apply(words, l, terms, count, 1), ERR_OK);
}

/* Several threads only where there is more than one group of blocks. */
static int threads_of(const struct mask_layout *l, unsigned i)
{
    return l->part[0].count > 64 ? 1 + (int)(i % 3) : 1;
}

/* What the aggregator has once masks are off: here they cancel. calloc; of two vectors. */
static uint8_t *summed_words(const struct codec *c, const struct mask_layout *l, uint64_t seed,
                             unsigned n, bool masks)
{
    uint8_t *sum = calloc(2, l->size_bytes), *words = sum + l->size_bytes;
    assert_non_null(sum);
    for (unsigned s = 0; s < n; s++) {
        memset(words, 0xa5, l->size_bytes);
        masked_pack(words, l, c, payload[s], threads_of(l, s));
        assert_true(mask_padding_holds(l, words));
        if (masks)
            masks_put(words, l, seed, s, n);
        mask_sum(sum, words, l, 1);
    }
    return sum;
}

static bool cancels(uint64_t seed, size_t blocks)
{
    for (size_t b = 0; b < blocks; b++)
        if ((b + seed) % 8 == CANCELS)
            return true;
    return false;
}

/* One round of n sites, with and without masks. */
static void round_is_the_plain_one(const struct codec *c, uint64_t seed, unsigned n, size_t blocks,
                                   bool masks)
{
    struct codec_call call = {.work = work, .grid = grid, .count = blocks * DEV_BLOCK};
    struct mask_layout l;
    size_t most = c->aggregate_max(c, call.count, n), size, plain_size;
    uint8_t *aggregate = malloc(2 * most), *reference = aggregate + most;
    float weight = 0.5f + (float)n / 3;
    payloads_make(c, seed, n, blocks);
    assert_int_equal(masked_layout(&l, c, call.count, n + (unsigned)(seed % 3)), ERR_OK);
    uint8_t *sum = summed_words(c, &l, seed, n, masks);
    assert_int_equal(masked_aggregate(aggregate, &size, c, &l, sum, n, threads_of(&l, n)), ERR_OK);
    assert_int_equal(c->aggregate(c, &call, reference, &plain_size, payloads, n), ERR_OK);
    assert_true(size <= plain_size);
    if (c->kind == CODEC_SIGN || !cancels(seed, blocks)) {
        assert_int_equal(size, plain_size);
        assert_memory_equal(aggregate, reference, size);
    }
    assert_int_equal(c->mean(c, &call, summed, next_summed,
                             &(struct codec_aggregate){aggregate, size, n, weight}),
                     ERR_OK);
    assert_int_equal(c->mean(c, &call, plain, next_plain,
                             &(struct codec_aggregate){reference, plain_size, n, weight}),
                     ERR_OK);
    assert_memory_equal(summed, plain, call.count * sizeof *plain);
    assert_memory_equal(next_summed, next_plain, blocks);
    free(sum);
    free(aggregate);
}

static void test_sums_are_the_plain_ones(void **state)
{
    (void)state;
    static const size_t blocks[] = {1, 2, 7, 63, 64, 65, 131, BLOCKS_MAX};
    for (unsigned k = 0; k < KINDS; k++) {
        const struct codec *c = codec_get(kinds[k]);
        for (unsigned n = 2; n <= SITES; n++) {
            round_is_the_plain_one(c, n, n, 1, true);
            if (n < 12 || n % 13 == 12)
                round_is_the_plain_one(c, n, n, 11, true);
        }
        for (unsigned i = 0; i < sizeof blocks / sizeof *blocks; i++) {
            round_is_the_plain_one(c, 100 + i, 1, blocks[i], false);
            round_is_the_plain_one(c, 100 + i, 2 + i, blocks[i], true);
        }
    }
}

/* Every payload has as many words, and a block that is not sent the words of zeros. */
static void test_absence_does_not_show(void **state)
{
    (void)state;
    enum { BLOCKS = 5 };
    for (unsigned k = 0; k < KINDS; k++) {
        const struct codec *c = codec_get(kinds[k]);
        struct mask_layout l;
        int64_t q[BLOCKS * DEV_BLOCK];
        assert_int_equal(masked_layout(&l, c, BLOCKS * DEV_BLOCK, 8), ERR_OK);
        assert_int_equal(l.parts, c->kind == CODEC_SIGN ? 3 : 2);
        assert_int_equal(l.part[0].bits, 11);
        assert_int_equal(l.part[0].count, BLOCKS);
        assert_int_equal(l.part[l.parts - 1].bits,
                         c->kind == CODEC_SIGN ? 4 : mask_bits(8, (uint64_t)c->q_max));
        assert_int_equal(l.part[l.parts - 1].count, BLOCKS * DEV_BLOCK);
        struct codec_call call = {.work = work, .grid = grid, .count = BLOCKS * DEV_BLOCK};
        uint8_t *words = calloc(1, l.size_bytes);
        size_t size;
        memset(grid, 120, BLOCKS);
        for (size_t i = 0; i < call.count; i++)
            z[i] = i / DEV_BLOCK % 2 ? 0.25f : 0;
        assert_int_equal(c->encode(c, &call, payload[0], &size, z, z), ERR_OK);
        masked_pack(words, &l, c, payload[0], 2);
        bits_unpack(q, words, BLOCKS, l.part[0].bits);
        for (size_t b = 0; b < BLOCKS; b++)
            assert_int_equal(q[b], b % 2 ? 124 : 120); /* 1/16 is 2^-4: 128 - 4 */
        bits_unpack(q, words + l.start[l.parts - 1], call.count, l.part[l.parts - 1].bits);
        for (size_t i = 0; i < call.count; i++)
            assert_int_equal(q[i] == 0, i / DEV_BLOCK % 2 == 0);
        free(words);
    }
}

static void refused(const struct codec *c, const struct mask_layout *l, const uint8_t *sum,
                    unsigned n, size_t block)
{
    static uint8_t aggregate[1 << 20];
    char text[32];
    size_t size;
    for (int threads = 1; threads < 4; threads++) {
        assert_int_equal(masked_aggregate(aggregate, &size, c, l, sum, n, threads), ERR_PROTO);
        snprintf(text, sizeof text, "block %zu that %u", block / 64 * 64, n);
        assert_non_null(strstr(err_message(), text));
    }
}

/* Adds x to one word. */
static void word_add(uint8_t *sum, const struct mask_layout *l, unsigned part, size_t i, int64_t x)
{
    int64_t q[DEV_BLOCK] = {0};
    uint8_t *words = calloc(1, l->size_bytes);
    size_t first = i / 64 * 64, count = l->part[part].count - first;
    q[i - first] = x;
    bits_pack(words + l->start[part] + first / 8 * l->part[part].bits, q, count < 64 ? count : 64,
              l->part[part].bits);
    mask_sum(sum, words, l, 1);
    free(words);
}

/* A site that masked wrongly: a mask is left, an integer is beyond Q, a code is 255. */
static void test_wrong_sums_are_refused(void **state)
{
    (void)state;
    enum { N = 5, BLOCKS = 131 };
    for (unsigned k = 0; k < KINDS; k++) {
        const struct codec *c = codec_get(kinds[k]);
        struct mask_layout l;
        unsigned last = c->kind == CODEC_SIGN ? 2 : 1;
        static uint8_t aggregate[1 << 20];
        size_t size, at = 70 * DEV_BLOCK + 3;
        payloads_make(c, 9, N, BLOCKS);
        for (unsigned s = 1; s < N; s++) /* all as the first, so that the sums are known */
            memcpy(payload[s], payload[0], PAYLOAD_MAX);
        assert_int_equal(masked_layout(&l, c, BLOCKS * DEV_BLOCK, N + 1), ERR_OK);
        uint8_t *sum = summed_words(c, &l, 9, N, false);
        int64_t q[BLOCKS * DEV_BLOCK], most = c->kind == CODEC_SIGN ? N : N * (int64_t)c->q_max;
        bits_unpack(q, sum + l.start[last], BLOCKS * DEV_BLOCK, l.part[last].bits);
        int64_t now = c->kind == CODEC_SIGN ? q[at] & ((1 << l.part[last].bits) - 1) : q[at];
        if (c->kind == CODEC_SIGN) { /* 70 is not there: a plus of a block that is not sent */
            word_add(sum, &l, 1, 70, N);
            now = 0;
        }
        word_add(sum, &l, last, at, most - now);
        assert_int_equal(masked_aggregate(aggregate, &size, c, &l, sum, N, 1), ERR_OK);
        word_add(sum, &l, last, at, 1);
        refused(c, &l, sum, N, 70);
        word_add(sum, &l, last, at, -1);
        if (c->kind != CODEC_SIGN) {
            word_add(sum, &l, last, at, -2 * most);
            assert_int_equal(masked_aggregate(aggregate, &size, c, &l, sum, N, 1), ERR_OK);
            word_add(sum, &l, last, at, -1);
            refused(c, &l, sum, N, 70);
            word_add(sum, &l, last, at, 1 + most);
        } else {
            word_add(sum, &l, 1, 70, 1);
            refused(c, &l, sum, N, 70);
            word_add(sum, &l, 1, 70, -2); /* more pluses than signs */
            refused(c, &l, sum, N, 70);
            word_add(sum, &l, 1, 70, 1);
        }
        word_add(sum, &l, 0, 128, 254 * N - N * (int64_t)payload[0][128]);
        assert_int_equal(masked_aggregate(aggregate, &size, c, &l, sum, N, 1), ERR_OK);
        word_add(sum, &l, 0, 128, 1);
        refused(c, &l, sum, N, 128);
        word_add(sum, &l, 0, 128, -1);
        masks_put(sum, &l, 9, 0, 2); /* a mask that no other site takes off */
        refused(c, &l, sum, N, 0);
        free(sum);
    }
}

/* Sums of codes of 4 bytes, and the widest words. */
static void test_many_sites(void **state)
{
    (void)state;
    static const unsigned counts[] = {256, 257, CODEC_SITES_MAX};
    for (unsigned k = 0; k < KINDS; k++)
        for (unsigned i = 0; i < 3; i++) {
            const struct codec *c = codec_get(kinds[k]);
            unsigned n = counts[i];
            struct codec_call call = {.work = work, .grid = grid, .count = 3 * DEV_BLOCK};
            static uint8_t made[2][1 << 14];
            struct mask_layout l;
            size_t sizes[2];
            payloads_make(c, 8, SITES, 3);
            for (unsigned s = SITES; s < n; s++)
                payloads[s] = payloads[s % SITES];
            assert_int_equal(masked_layout(&l, c, call.count, n), ERR_OK);
            uint8_t *sum = calloc(2, l.size_bytes), *words = sum + l.size_bytes;
            for (unsigned s = 0; s < n; s++) {
                masked_pack(words, &l, c, payloads[s].data, 1);
                mask_sum(sum, words, &l, 1);
            }
            assert_int_equal(masked_aggregate(made[0], &sizes[0], c, &l, sum, n, 1), ERR_OK);
            assert_int_equal(c->aggregate(c, &call, made[1], &sizes[1], payloads, n), ERR_OK);
            assert_int_equal(sizes[0], sizes[1]);
            assert_memory_equal(made[0], made[1], sizes[0]);
            free(sum);
        }
}

static void test_other_codecs_are_refused(void **state)
{
    (void)state;
    struct mask_layout l;
    for (int k = 0; k < CODEC_COUNT; k++) {
        const struct codec *c = codec_get((enum codec_kind)k);
        bool may = false;
        for (unsigned i = 0; i < KINDS; i++)
            may = may || kinds[i] == c->kind;
        assert_int_equal(masked_layout(&l, c, DEV_BLOCK, 8), may ? ERR_OK : ERR_CONFIG);
        if (!may)
            assert_non_null(strstr(err_message(), c->name));
    }
    assert_int_equal(masked_layout(&l, codec_get(CODEC_FIXED), (size_t)1 << 36, 64), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "more fragments"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_the_plain_ones),
        cmocka_unit_test(test_absence_does_not_show),
        cmocka_unit_test(test_wrong_sums_are_refused),
        cmocka_unit_test(test_many_sites),
        cmocka_unit_test(test_other_codecs_are_refused),
    };
    struct dev_options o = {.kind = "cpu", .model_type = "f32", .threads = 1};
    if (dev_open(&dev, &o) != ERR_OK || codec_open(&work, dev) != ERR_OK)
        return 1;
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    codec_close(work);
    dev_close(dev);
    return failures;
}
