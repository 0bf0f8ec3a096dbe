/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: the amplification by sampling that an accountant claims. The draws
 * are tested against independent coins of probability q: how often each record comes, how often
 * each pair comes together, how the size of the batch varies, and whether a step says anything of
 * the next. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "inner/data/poisson.h"

enum { RECORDS = 60, STEPS = 40000 };

static void key_of(uint64_t step, uint8_t key[CHACHA_KEY_BYTES])
{
    memset(key, 0x5a, CHACHA_KEY_BYTES);
    memcpy(key, &step, sizeof step);
}

/* A chi-square value as a normal one (Wilson & Hilferty 1931). */
static double chi_z(double chi, double freedom)
{
    double v = 2 / (9 * freedom);
    return (cbrt(chi / freedom) - (1 - v)) / sqrt(v);
}

static void inclusions_are_independent_coins(void **state)
{
    static const uint64_t expected[] = {1, 6, 30, 59};
    (void)state;
    for (size_t e = 0; e < sizeof expected / sizeof *expected; e++) {
        static double alone[RECORDS], together[RECORDS][RECORDS];
        static bool in[RECORDS], before[RECORDS];
        double q = (double)expected[e] / RECORDS, size = 0, square = 0, again = 0;
        memset(alone, 0, sizeof alone);
        memset(together, 0, sizeof together);
        memset(before, 0, sizeof before);
        for (uint64_t step = 0; step < STEPS; step++) {
            uint8_t key[CHACHA_KEY_BYTES];
            uint64_t r, last = 0, count = 0;
            key_of(step, key);
            struct poisson p = poisson_begin(key, RECORDS, expected[e]);
            memset(in, 0, sizeof in);
            while (poisson_next(&p, &r)) {
                assert_true(r < RECORDS && (!count || r > last));
                in[r] = true;
                last = r;
                count++;
            }
            for (int i = 0; i < RECORDS; i++) {
                alone[i] += in[i];
                again += in[i] && before[i];
                for (int j = 0; in[i] && j < i; j++)
                    together[i][j] += in[j];
            }
            memcpy(before, in, sizeof in);
            size += (double)count;
            square += pow((double)count - (double)expected[e], 2);
        }
        double chi = 0, pairs = 0, variance = q * (1 - q);
        for (int i = 0; i < RECORDS; i++)
            chi += pow(alone[i] - STEPS * q, 2) / (STEPS * variance);
        for (int i = 0; i < RECORDS; i++)
            for (int j = 0; j < i; j++) { /* covariances around the known q */
                double c = together[i][j] - q * (alone[i] + alone[j]) + STEPS * q * q;
                pairs += c * c / (STEPS * variance * variance);
            }
        double steps = STEPS, n = RECORDS, cells = steps * n;
        assert_true(fabs(chi_z(chi, n)) < 4);
        assert_true(fabs(chi_z(pairs, n * (n - 1) / 2)) < 4.5);
        assert_true(fabs(size / steps - (double)expected[e]) < 4 * sqrt(n * variance / steps));
        /* The variance of a binomial, and of its estimate: fourth moment (3 + (1 - 6 v) / (n v))
         * of a normalised one. */
        double spread = (2 + (1 - 6 * variance) / (n * variance)) / steps;
        assert_true(fabs(square / steps / (n * variance) - 1) < 4 * sqrt(spread));
        assert_true(fabs(again - cells * q * q) < 5 * sqrt(cells * q * q * (1 - q * q) * 2));
    }
}

/* The same key draws the same batch, another key another one. */
static void a_batch_is_its_keys(void **state)
{
    uint8_t key[CHACHA_KEY_BYTES];
    uint64_t a = 0, b = 0, differ = 0;
    (void)state;
    for (int turn = 0; turn < 2; turn++) {
        key_of(7, key);
        struct poisson p = poisson_begin(key, 1000, 500), q = poisson_begin(key, 1000, 500);
        key_of(8, key);
        struct poisson other = poisson_begin(key, 1000, 500);
        for (bool more = true; more;) {
            more = poisson_next(&p, &a);
            assert_int_equal(poisson_next(&q, &b), more);
            assert_true(!more || a == b);
            more = more && poisson_next(&other, &b);
            differ += more && a != b;
        }
    }
    assert_true(differ > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inclusions_are_independent_coins),
        cmocka_unit_test(a_batch_is_its_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
