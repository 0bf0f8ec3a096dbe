/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: the noise that a claim of privacy rests on. A key stream that is
 * not ChaCha20, a distribution that is not the discrete Gaussian. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/gauss.h"

/* RFC 8439, 2.3.2. */
static void a_block_is_the_rfcs(void **state)
{
    static const uint8_t nonce[CHACHA_NONCE_BYTES] = {0, 0, 0, 9, 0, 0, 0, 0x4a, 0, 0, 0, 0},
                         expected[CHACHA_BLOCK_BYTES] = {
                             0x10, 0xf1, 0xe7, 0xe4, 0xd1, 0x3b, 0x59, 0x15, 0x50, 0x0f, 0xdd,
                             0x1f, 0xa3, 0x20, 0x71, 0xc4, 0xc7, 0xd1, 0xf4, 0xc7, 0x33, 0xc0,
                             0x68, 0x03, 0x04, 0x22, 0xaa, 0x9a, 0xc3, 0xd4, 0x6c, 0x4e, 0xd2,
                             0x82, 0x64, 0x46, 0x07, 0x9f, 0xaa, 0x09, 0x14, 0xc2, 0xd7, 0x05,
                             0xd9, 0x8b, 0x02, 0xa2, 0xb5, 0x12, 0x9c, 0xd1, 0xde, 0x16, 0x4e,
                             0xb9, 0xcb, 0xd0, 0x83, 0xe8, 0xa2, 0x50, 0x3c, 0x4e};
    uint8_t key[CHACHA_KEY_BYTES], out[CHACHA_BLOCK_BYTES];
    (void)state;
    for (int i = 0; i < CHACHA_KEY_BYTES; i++)
        key[i] = (uint8_t)i;
    chacha_block(key, 1, nonce, out);
    assert_memory_equal(out, expected, sizeof out);
}

/* The bits are those of the blocks, in order, however they are cut; another number is another
 * stream. */
static void a_stream_is_its_blocks(void **state)
{
    static const uint8_t key[CHACHA_KEY_BYTES] = {1, 2, 3};
    const uint8_t nonce[CHACHA_NONCE_BYTES] = {[4] = 7};
    uint8_t blocks[2 * CHACHA_BLOCK_BYTES], got[2 * CHACHA_BLOCK_BYTES] = {0};
    struct chacha c = chacha_stream(key, 7), other = chacha_stream(key, 8);
    (void)state;
    chacha_block(key, 0, nonce, blocks);
    chacha_block(key, 1, nonce, blocks + CHACHA_BLOCK_BYTES);
    for (unsigned at = 0, turn = 0; at < 8 * sizeof got; turn++) {
        unsigned bits = turn * 7 % 64 + 1;
        bits = bits < 8 * sizeof got - at ? bits : (unsigned)(8 * sizeof got) - at;
        uint64_t x = chacha_bits(&c, bits);
        for (unsigned i = 0; i < bits; i++, at++)
            got[at / 8] |= (uint8_t)((x >> i & 1) << at % 8);
    }
    assert_memory_equal(got, blocks, sizeof got);
    assert_true(chacha_bits(&other, 64) != chacha_bits(&c, 64));
}

static void below_is_uniform(void **state)
{
    enum { N = 11, DRAWS = 110000 };
    static const uint8_t key[CHACHA_KEY_BYTES] = {4};
    struct chacha c = chacha_stream(key, 1);
    double count[N] = {0}, chi = 0;
    (void)state;
    for (int i = 0; i < DRAWS; i++)
        count[chacha_below(&c, N)]++;
    for (int i = 0; i < N; i++)
        chi += pow(count[i] - DRAWS / N, 2) / (DRAWS / N);
    assert_true(chi < 29.6); /* 10 degrees of freedom, 0.001 */
    assert_int_equal(chacha_below(&c, 1), 0);
}

/* Chi-square against the probabilities themselves, so not against a rounded Gaussian: at sigma 1
 * the two differ in the third digit. */
static void small_samples_have_the_probabilities(void **state)
{
    enum { REACH = 4, CELLS = 2 * REACH + 1, DRAWS = 400000 };
    static const uint8_t key[CHACHA_KEY_BYTES] = {5};
    (void)state;
    for (uint64_t sigma = 1; sigma <= 3; sigma++) {
        struct chacha c = chacha_stream(key, sigma);
        double count[CELLS] = {0}, p[CELLS], all = 0, chi = 0, s = (double)sigma, inside = 0;
        for (int x = -200; x <= 200; x++)
            all += exp(-x * x / (2 * s * s));
        for (int i = 0; i < DRAWS; i++) {
            int64_t x = gauss_sample(&c, sigma);
            if (x >= -REACH && x <= REACH)
                count[x + REACH]++;
        }
        for (int x = -REACH; x <= REACH; x++) {
            p[x + REACH] = exp(-x * x / (2 * s * s)) / all;
            chi += pow(count[x + REACH] - DRAWS * p[x + REACH], 2) / (DRAWS * p[x + REACH]);
            inside += p[x + REACH];
        }
        double outside = DRAWS;
        for (int i = 0; i < CELLS; i++)
            outside -= count[i];
        if (1 - inside > 1e-4)
            chi += pow(outside - DRAWS * (1 - inside), 2) / (DRAWS * (1 - inside));
        if (chi > 29.6) /* at most 9 degrees of freedom; 0.001 for 10 */
            fail_msg("sigma %g: chi-square %g", s, chi);
    }
}

/* Mean, variance, kurtosis and tails at the widths that noise has. */
static void wide_samples_have_the_moments(void **state)
{
    enum { DRAWS = 400000 };
    static const uint64_t sigmas[] = {1000, 1 << 24, GAUSS_SIGMA_MAX};
    static const uint8_t key[CHACHA_KEY_BYTES] = {6};
    (void)state;
    for (size_t k = 0; k < sizeof sigmas / sizeof *sigmas; k++) {
        struct chacha c = chacha_stream(key, k);
        double one = 0, two = 0, four = 0, beyond = 0, begin = clock_mono_s();
        for (int i = 0; i < DRAWS; i++) {
            double z = (double)gauss_sample(&c, sigmas[k]) / (double)sigmas[k];
            one += z, two += z * z, four += z * z * z * z;
            beyond += fabs(z) > 1.959963985;
        }
        print_message("sigma 2^%.1f: %.0f ns a sample\n", log2((double)sigmas[k]),
                      (clock_mono_s() - begin) / DRAWS * 1e9);
        double n = DRAWS; /* limits: four standard errors */
        assert_true(fabs(one / n) < 4 / sqrt(n));
        assert_true(fabs(two / n - 1) < 4 * sqrt(2 / n));
        assert_true(fabs(four / n - 3) < 4 * sqrt(96 / n));
        assert_true(fabs(beyond / n - 0.05) < 4 * sqrt(0.05 * 0.95 / n));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_the_rfcs),
        cmocka_unit_test(a_stream_is_its_blocks),
        cmocka_unit_test(below_is_uniform),
        cmocka_unit_test(small_samples_have_the_probabilities),
        cmocka_unit_test(wide_samples_have_the_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
