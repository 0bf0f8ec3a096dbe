/* SPDX-License-Identifier: Apache-2.0 */
/* Masks and words. What would break: sums that are not the sums of the integers, in a bit; masked
 * words that are not uniform; results that depend on the number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "outer/codec/bits.h"
#include "tests/outer/masks/cast.h"

static void test_ring(void **state)
{
    (void)state;
    static const struct {
        unsigned sites;
        uint64_t q;
        unsigned bits;
    } of[] = {{8, 1, 5},          {64, 1, 8},         {8, 7, 7},
              {64, 7, 10},        {8, 127, 11},       {64, 127, 14},
              {1, 1, 2},          {1, INT64_MAX, 64}, {2, INT64_MAX / 2, 64},
              {2, 1ull << 62, 0}, {3, UINT64_MAX, 0}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        assert_int_equal(mask_bits(of[i].sites, of[i].q), of[i].bits);
    for (unsigned bits = 8; bits <= 64; bits++)
        for (unsigned n = 1; n <= 64; n++) {
            uint64_t q = ((1ull << (bits - 1)) - 1) / n;
            assert_int_equal(mask_bits(n, q) <= bits, 1); /* the largest that fits */
            assert_true(mask_bits(n, q + 1) > bits || mask_bits(n, q + 1) == 0);
        }
}

static void test_layout(void **state)
{
    (void)state;
    struct mask_layout l;
    struct mask_part two[] = {{10, 7}, {13, 100}};
    assert_int_equal(mask_layout_make(&l, two, 2), ERR_OK);
    assert_int_equal(l.start[1], 64);
    assert_int_equal(l.size_bytes, 64 + 192); /* 162.5 bytes */
    uint8_t words[256] = {0};
    assert_true(mask_padding_holds(&l, words));
    words[8] = 0x3f; /* 70 bits */
    assert_true(mask_padding_holds(&l, words));
    words[8] = 0x40;
    assert_false(mask_padding_holds(&l, words));
    words[8] = 0;
    words[63] = 1;
    assert_false(mask_padding_holds(&l, words));
    words[63] = 0;
    words[255] = 1;
    assert_false(mask_padding_holds(&l, words));
    const struct mask_part bad[] = {{0, 1}, {65, 1}, {8, 0}, {64, 1ull << 36}, {8, SIZE_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(mask_layout_make(&l, &bad[i], 1), ERR_CONFIG);
    assert_int_equal(mask_layout_make(&l, two, 0), ERR_CONFIG);
    assert_int_equal(mask_layout_make(&l, two, MASK_PARTS_MAX + 1), ERR_CONFIG);
}

static int64_t random_word(uint64_t seed, uint64_t i, unsigned bits)
{
    uint64_t r = rng_u64(seed, RNG_TEST, i) << (64 - bits);
    return (int64_t)r >> (64 - bits);
}

static uint64_t bits_at(const uint8_t *words, size_t at, unsigned bits)
{
    uint64_t v = 0;
    for (unsigned k = 0; k < bits; k++)
        v |= (uint64_t)(words[(at + k) / 8] >> (at + k) % 8 & 1) << k;
    return v;
}

static uint64_t keep(unsigned bits)
{
    return bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
}

/* Word by word, bit by bit: PRG(seed) of the layout. */
static uint64_t mask_word(const uint8_t *stream, const struct mask_layout *l, unsigned part,
                          size_t i)
{
    return bits_at(stream + l->start[part], i * l->part[part].bits, l->part[part].bits);
}

/* Every width, added, subtracted and summed, against one word at a time; on 1 and 3 threads. */
static void test_words_add(void **state)
{
    (void)state;
    for (unsigned bits = 1; bits <= 64; bits++) {
        struct mask_part parts[] = {{bits, 5000}, {65 - bits, 333}};
        struct mask_layout l;
        struct cipher_key seed[2] = {cast_secret(bits, "seed", 0), cast_secret(bits, "seed", 1)};
        struct mask_term terms[2] = {{&seed[0], false}, {&seed[1], true}};
        assert_int_equal(mask_layout_make(&l, parts, 2), ERR_OK);
        uint8_t *words = calloc(6, l.size_bytes), *stream = words + l.size_bytes;
        uint8_t *three = stream + 2 * l.size_bytes, *plain = three + l.size_bytes,
                *sum = plain + l.size_bytes;
        for (unsigned p = 0; p < 2; p++) {
            int64_t q[5000];
            for (size_t i = 0; i < parts[p].count; i++)
                q[i] = random_word(bits + 100, i, parts[p].bits);
            bits_pack(words + l.start[p], q, parts[p].count, parts[p].bits);
        }
        memcpy(three, words, l.size_bytes);
        memcpy(plain, words, l.size_bytes);
        memcpy(sum, words, l.size_bytes);
        for (unsigned k = 0; k < 2; k++) {
            struct cipher_stream s = {0};
            assert_int_equal(cipher_stream_open(&s, &seed[k], 0), ERR_OK);
            cipher_stream_read(&s, stream + k * l.size_bytes, l.size_bytes);
            cipher_stream_close(&s);
        }
        assert_int_equal(mask_apply(words, &l, terms, 2, 1), ERR_OK);
        assert_int_equal(mask_apply(three, &l, terms, 2, 3), ERR_OK);
        assert_memory_equal(words, three, l.size_bytes);
        assert_true(mask_padding_holds(&l, words));
        mask_sum(sum, words, &l, 1);
        assert_true(mask_padding_holds(&l, sum));
        for (unsigned p = 0; p < 2; p++)
            for (size_t i = 0; i < parts[p].count; i++) {
                uint64_t q = mask_word(plain, &l, p, i), y = mask_word(words, &l, p, i);
                assert_int_equal(y, (q + mask_word(stream, &l, p, i) -
                                     mask_word(stream + l.size_bytes, &l, p, i)) &
                                        keep(parts[p].bits));
                assert_int_equal(mask_word(sum, &l, p, i), (q + y) & keep(parts[p].bits));
            }
        free(words);
    }
}

/* A vector of many pieces, and more terms than streams are open at a time: off again is nothing. */
static void test_large(void **state)
{
    (void)state;
    enum { TERMS = 150 };
    struct mask_part part = {13, 300001};
    struct mask_layout l;
    struct cipher_key seeds[TERMS];
    struct mask_term on[TERMS], off[TERMS];
    assert_int_equal(mask_layout_make(&l, &part, 1), ERR_OK);
    uint8_t *words = calloc(3, l.size_bytes), *other = words + l.size_bytes;
    for (unsigned i = 0; i < TERMS; i++) {
        seeds[i] = cast_secret(1, "large", i);
        on[i] = (struct mask_term){&seeds[i], i % 3 == 0};
        off[TERMS - 1 - i] = (struct mask_term){&seeds[i], i % 3 != 0};
    }
    assert_int_equal(mask_apply(words, &l, on, TERMS, 1), ERR_OK);
    assert_int_equal(mask_apply(other, &l, on, TERMS, 4), ERR_OK);
    assert_memory_equal(words, other, l.size_bytes);
    assert_memory_not_equal(words, words + 2 * l.size_bytes, 64);
    assert_int_equal(mask_apply(words, &l, off, TERMS, 2), ERR_OK);
    assert_memory_equal(words, words + 2 * l.size_bytes, l.size_bytes);
    free(words);
}

static double chi_square(const uint64_t *counts, size_t bins, uint64_t total)
{
    double x = 0, expected = (double)total / (double)bins;
    for (size_t i = 0; i < bins; i++)
        x += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
    return x;
}

/* Words of a site that has nothing but zeros, under one mask: uniform, and neighbours independent.
 * Bounds: the normal approximation of chi-square at 6 standard deviations. */
static void test_uniform(void **state)
{
    (void)state;
    for (unsigned bits = 3; bits <= 11; bits += 2) {
        enum { COUNT = 1 << 19 };
        struct mask_part part = {bits, COUNT};
        struct mask_layout l;
        struct cipher_key seed = cast_secret(2, "uniform", bits);
        struct mask_term term = {&seed, bits % 4 == 1};
        size_t bins = (size_t)1 << bits, pairs = (size_t)1 << (bits < 6 ? 2 * bits : 12);
        uint64_t *counts = calloc(bins + pairs, sizeof *counts);
        int64_t *q = calloc(COUNT, sizeof *q);
        assert_int_equal(mask_layout_make(&l, &part, 1), ERR_OK);
        uint8_t *words = calloc(1, l.size_bytes);
        assert_int_equal(mask_apply(words, &l, &term, 1, 2), ERR_OK);
        bits_unpack(q, words, COUNT, bits);
        unsigned half = bits < 6 ? bits : 6;
        for (size_t i = 0; i < COUNT; i++) {
            counts[(uint64_t)q[i] & (bins - 1)]++;
            if (i)
                counts[bins + (((uint64_t)q[i - 1] & keep(half)) << half |
                               ((uint64_t)q[i] & keep(half)))]++;
        }
        double one = chi_square(counts, bins, COUNT);
        double two = chi_square(counts + bins, pairs, COUNT - 1);
        assert_true(one < (double)bins + 6 * sqrt(2 * (double)bins));
        assert_true(two < (double)pairs + 6 * sqrt(2 * (double)pairs));
        assert_true(one > (double)bins - 6 * sqrt(2 * (double)bins)); /* nor too even */
        free(words);
        free(q);
        free(counts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),      cmocka_unit_test(test_layout),
        cmocka_unit_test(test_words_add), cmocka_unit_test(test_large),
        cmocka_unit_test(test_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
