/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: replicas exchange different values, some values are never
 * exchanged, or all sites' copies of a value stay apart for longer than the share says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "outer/diloco/draw.h"

enum { BLOCKS = 400, ELEMENTS = BLOCKS * DEV_BLOCK, ROUNDS = 20000, DRAWN = 40 };
static struct dev_range ranges[BLOCKS];
static const struct draw tenth = {0.1, 7};

/* One byte a block, from ranges that ascend and do not touch. */
static void seen(uint8_t in[BLOCKS], size_t n)
{
    size_t behind = 0;
    memset(in, 0, BLOCKS);
    assert_true(n <= draw_ranges_max(ELEMENTS));
    for (size_t i = 0; i < n; i++) {
        assert_true(ranges[i].count && ranges[i].count % DEV_BLOCK == 0 &&
                    ranges[i].offset % DEV_BLOCK == 0 && (!i || ranges[i].offset > behind));
        behind = ranges[i].offset + ranges[i].count;
        assert_true(behind <= ELEMENTS);
        memset(in + ranges[i].offset / DEV_BLOCK, 1, ranges[i].count / DEV_BLOCK);
    }
}

static void drawn_and_held_are_all(void **state)
{
    (void)state;
    uint8_t in[BLOCKS], out[BLOCKS];
    for (uint64_t round = 0; round < 200; round++) {
        unsigned drawn = 0;
        seen(in, draw_ranges(&tenth, round, ELEMENTS, true, ranges));
        seen(out, draw_ranges(&tenth, round, ELEMENTS, false, ranges));
        for (size_t b = 0; b < BLOCKS; b++) {
            assert_true(in[b] != out[b]);
            drawn += in[b];
        }
        assert_int_equal(drawn, DRAWN);
    }
    assert_int_equal(draw_values(&tenth, ELEMENTS), DRAWN * DEV_BLOCK);
}

static void at_least_one_and_at_most_all(void **state)
{
    (void)state;
    const struct draw few = {1e-6, 7}, most = {0.999, 7};
    assert_int_equal(draw_values(&few, ELEMENTS), DEV_BLOCK);
    assert_int_equal(draw_ranges(&few, 3, ELEMENTS, true, ranges), 1);
    assert_int_equal(draw_values(&most, ELEMENTS), ELEMENTS);
    assert_int_equal(draw_ranges(&most, 3, ELEMENTS, false, ranges), 0);
}

/* Every block with the probability of the share, each pair with that of a set without repetition,
 * the next round independent of this one: within 5.5 standard deviations of the binomial
 * distribution, of 400 and 399 blocks. */
static void near(const char *what, unsigned count, double p)
{
    double sd = sqrt(ROUNDS * p * (1 - p)), off = fabs(count - ROUNDS * p) / sd;
    if (off > 5.5)
        fail_msg("%s: %u times, %.1f standard deviations from %g", what, count, off, ROUNDS * p);
}

static void distribution(void **state)
{
    (void)state;
    static unsigned single[BLOCKS], pair[BLOCKS], again[BLOCKS];
    uint8_t in[BLOCKS], before[BLOCKS] = {0};
    const double p = (double)DRAWN / BLOCKS;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        seen(in, draw_ranges(&tenth, round, ELEMENTS, true, ranges));
        for (size_t b = 0; b < BLOCKS; b++) {
            single[b] += in[b];
            pair[b] += b && in[b] && in[b - 1];
            again[b] += round && in[b] && before[b];
        }
        memcpy(before, in, sizeof before);
    }
    for (size_t b = 0; b < BLOCKS; b++) {
        near("a block", single[b], p);
        near("a block in two rounds", again[b], p * p);
        if (b)
            near("two neighbours", pair[b], p * (DRAWN - 1) / (BLOCKS - 1));
    }
}

static void seeds_and_rounds_differ(void **state)
{
    (void)state;
    const struct draw other = {0.1, 8};
    uint8_t a[BLOCKS], b[BLOCKS];
    seen(a, draw_ranges(&tenth, 5, ELEMENTS, true, ranges));
    seen(b, draw_ranges(&tenth, 5, ELEMENTS, true, ranges));
    assert_memory_equal(a, b, BLOCKS);
    seen(b, draw_ranges(&other, 5, ELEMENTS, true, ranges));
    assert_memory_not_equal(a, b, BLOCKS);
    seen(b, draw_ranges(&tenth, 6, ELEMENTS, true, ranges));
    assert_memory_not_equal(a, b, BLOCKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawn_and_held_are_all), cmocka_unit_test(at_least_one_and_at_most_all),
        cmocka_unit_test(distribution), cmocka_unit_test(seeds_and_rounds_differ)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
