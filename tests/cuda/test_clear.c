/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned memory is cleared by several threads. If this fails, arenas in pinned memory begin with
 * bytes of an earlier use, or a byte after the block is overwritten. */
#include "kernels/cuda/clear.h"
#include <stdlib.h>
#include "kernels/dev.h"
#include "tests/cuda/cuda_test.h"
#include "tests/kernels/check.h"

enum { PAGE = 4096, MIB = 1 << 20, GUARD = 64 };

/* Every byte is in one part, and parts begin at pages. */
static void test_parts(void **state)
{
    static const size_t sizes[] = {0,    1,        7,     4095,    4096,
                                   4097, 3 * 4096, 12345, MIB - 1, 5 * MIB + 3};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int parts = 1; parts <= 17; parts++) {
            size_t at = 0, most = 0, least = SIZE_MAX;
            for (int i = 0; i < parts; i++) {
                struct clear_part x = clear_part(sizes[s], i, parts);
                assert_int_equal(x.begin, at);
                assert_true(x.begin % PAGE == 0 || x.begin == sizes[s]);
                most = x.bytes > most ? x.bytes : most;
                least = x.bytes < least ? x.bytes : least;
                at += x.bytes;
            }
            assert_int_equal(at, sizes[s]);
            assert_true(most - least < 2 * PAGE);
        }
    struct clear_part last = clear_part(SIZE_MAX / 2 + 1, 63, 64);
    assert_true(last.begin + last.bytes == SIZE_MAX / 2 + 1);
}

static void clear_one(size_t bytes, int threads)
{
    unsigned char *p = malloc(bytes + 2 * GUARD);
    assert_non_null(p);
    memset(p, 0xa5, bytes + 2 * GUARD);
    clear_bytes(p + GUARD, bytes, threads);
    size_t left = 0, beyond = 0;
    for (size_t i = 0; i < bytes; i++)
        left += p[GUARD + i] != 0;
    for (size_t i = 0; i < GUARD; i++)
        beyond += p[i] != 0xa5 || p[GUARD + bytes + i] != 0xa5;
    free(p);
    assert_int_equal(left, 0);
    assert_int_equal(beyond, 0);
}

static void test_clear(void **state)
{
    static const size_t sizes[] = {
        0, 1, 3, 4095, MIB - 1, MIB, 2 * MIB + 1, 3 * MIB + 4097, 16 * MIB + 5};
    static const int threads[] = {0, 1, 2, 3, 7, 64, 1000};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
            clear_one(sizes[s], threads[t]);
}

/* A device without a number of threads clears with all that it may use. */
static void test_threads(void **state)
{
    (void)state;
    assert_int_equal(clear_threads(3), 3);
    assert_int_equal(clear_threads(0), dev_threads());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts), cmocka_unit_test(test_clear),
                                       cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
