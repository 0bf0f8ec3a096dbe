/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a site that repeats steps ends a round by time at another step than
 * before the restart, or one that trains ends it by a record that is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "outer/diloco/interval.h"

static void clock_decides(void **state)
{
    (void)state;
    const struct interval i = {.length_ms = 600, .began_ms = 1000, .began_tokens = 5000};
    assert_false(interval_over(&i, 1599, 1u << 20));
    assert_true(interval_over(&i, 1600, 5100));
    assert_true(interval_over(&i, 90000, 5100));
}

static void record_decides(void **state)
{
    (void)state;
    const struct interval i = {600, 1000, 5000, 5300};
    assert_false(interval_over(&i, 90000, 5200));
    assert_true(interval_over(&i, 1001, 5300));
}

static void steps_alone(void **state)
{
    (void)state;
    const struct interval i = {.began_tokens = 5000, .ended_tokens = 5300};
    assert_false(interval_over(&i, UINT64_MAX, UINT64_MAX));
}

static void steps_are_counted(void **state)
{
    (void)state;
    const struct interval i = {.length_ms = 600, .began_tokens = 5000};
    assert_int_equal(interval_steps(&i, 5000, 100), 0);
    assert_int_equal(interval_steps(&i, 5300, 100), 3);
    assert_int_equal(interval_steps(&i, 4000, 100), 0); /* a checkpoint from before the round */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clock_decides), cmocka_unit_test(record_decides),
        cmocka_unit_test(steps_alone), cmocka_unit_test(steps_are_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
