/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a width that is promised to hold a sum does not. Oracles: the
 * closed form in Python (tests/reproduce/reference/chunking.py), and the simulation of
 * tests/kernels/test_narrow.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "outer/plan/accumulator.h"

static struct accumulator sum(int bits, int product, size_t n, size_t chunk)
{
    return (struct accumulator){bits, product, n, chunk};
}

static void closed_form(void **state)
{
    static const struct {
        int bits, product;
        size_t n;
        double lost;
    } want[] = {{6, 5, 768, 16.9695},  {7, 5, 768, 1.32791},     {8, 5, 8192, 68.0104},
                {9, 5, 8192, 2.72852}, {10, 10, 8192, 0.772306}, {12, 10, 65536, 1.12989}};
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct accumulator a = sum(want[i].bits, want[i].product, want[i].n, 0);
        double lost = accumulator_lost(&a);
        if (!(fabs(lost / want[i].lost - 1) < 1e-3))
            fail_msg("%d bits, %zu terms: %g lost, wanted %g", a.bits, a.n, lost, want[i].lost);
    }
}

static void more_bits_and_chunks_lose_less(void **state)
{
    (void)state;
    for (size_t n = 64; n <= 16384; n *= 4)
        for (int bits = 4; bits < 12; bits++) {
            const struct accumulator a = sum(bits, 5, n, 0), more = sum(bits + 1, 5, n, 0),
                                     chunks = sum(bits, 5, n, ACCUMULATOR_CHUNK);
            assert_true(accumulator_lost(&more) <= accumulator_lost(&a));
            assert_true(accumulator_lost(&chunks) <= accumulator_lost(&a) + 1e-3);
            assert_true(accumulator_least(chunks) <= accumulator_least(a));
        }
    const struct accumulator wide = sum(ACCUMULATOR_BITS_MAX, 5, 4096, 0);
    assert_true(accumulator_retention(&wide) == 1);
    assert_int_equal(accumulator_least(sum(0, 5, 8192, 0)), 9); /* 8 bits lose 68, 9 lose 2.7 */
}

/* The normative figures: fp16 and bf16, 8,192 terms. */
static void simulated_error(void **state)
{
    (void)state;
    const struct accumulator fp16 = sum(10, 10, 8192, 0), fp16_chunks = sum(10, 10, 8192, 64),
                             bf16 = sum(7, 7, 8192, 0);
    assert_true(fabs(accumulator_error(&fp16, false) + 6.3) < 0.3);
    assert_true(fabs(accumulator_error(&fp16_chunks, false) + 8.9) < 0.3);
    assert_true(fabs(accumulator_error(&fp16_chunks, true) + 9.6) < 0.3);
    assert_true(fabs(accumulator_error(&bf16, false) + 3.3) < 0.3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_form),
        cmocka_unit_test(more_bits_and_chunks_lose_less),
        cmocka_unit_test(simulated_error),
    };
    return cmocka_run_group_tests_name("accumulator", tests, NULL, NULL);
}
