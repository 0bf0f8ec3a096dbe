/* What breaks if this is wrong: two replicas take steps of different lengths in one round, or a
 * replay does. The outer rate against the library's cosine, and what stays when a run grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include "outer/diloco/anneal.h"

static void shapes(void **state)
{
    (void)state;
    struct anneal a = {.end = 0.25};
    assert_true(anneal_share(&a, 1) == 1);
    a.kind = ANNEAL_LINEAR;
    assert_true(anneal_share(&a, 0) == 1 && anneal_share(&a, 0.5) == 0.625 &&
                anneal_share(&a, 1) == 0.25);
    a.kind = ANNEAL_COSINE;
    for (int i = 0; i <= 1000; i++) {
        double x = i / 1000.0, want = 0.25 + 0.375 * (1 + cos(3.14159265358979323846 * x));
        assert_true(fabs(anneal_share(&a, x) - want) <= 1e-15);
    }
}

static void a_round_has_one_rate_for_ever(void **state)
{
    (void)state;
    const struct anneal a = {.kind = ANNEAL_LINEAR, .end = 0.5}, none = {.end = 0.5};
    struct schedule s = schedule_streaming(100, 10, 2, 1, CODEC_INT8), longer = s;
    assert_true(anneal_rate(&a, 1, &s, 0, 0) == 0.95f);  /* step 10 */
    assert_true(anneal_rate(&a, 1, &s, 1, 0) == 0.925f); /* step 15 */
    assert_true(anneal_rate(&a, 1, &s, 0, 9) == 0.5f);
    assert_true(anneal_rate(&none, 0.7f, &s, 0, 9) == 0.7f);
    longer.end_count = 1;
    longer.ends[0] = 100;
    longer.steps = 200;
    for (unsigned f = 0; f < 2; f++)
        for (uint64_t t = 0; t < schedule_rounds(&s, f); t++)
            assert_true(anneal_rate(&a, 0.7f, &s, f, t) == anneal_rate(&a, 0.7f, &longer, f, t));
    assert_true(anneal_rate(&a, 1, &longer, 0, 10) == 0.725f); /* step 110 of 200 */
    assert_true(anneal_restarts(&a, &longer, 0, 10));
    assert_false(anneal_restarts(&none, &longer, 0, 10));
}

static void restarts(void **state)
{
    (void)state;
    const struct anneal a = {.restart = 3};
    struct schedule s = schedule_streaming(100, 10, 1, 1, CODEC_INT8);
    for (uint64_t t = 0; t < 10; t++)
        assert_int_equal(anneal_restarts(&a, &s, 0, t), t == 3 || t == 6 || t == 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(a_round_has_one_rate_for_ever),
        cmocka_unit_test(restarts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
