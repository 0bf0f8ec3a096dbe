/* What breaks if the bounds are wrong: one site ends or poisons a run, or an honest one is refused.
 * docs/protocol.md 3.10.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <math.h>
#include <cmocka.h>
#include "outer/protocol/bounds.h"

static struct manifest round_of(uint64_t round, const float *norms, uint32_t sites)
{
    struct manifest m = {.round = round, .site_count = sites};
    for (uint32_t i = 0; i < sites; i++)
        m.sites[i] = (struct manifest_entry){.site = i, .included = true, .norm = norms[i]};
    return m;
}

static void the_norm_is_over_the_weight(void **state)
{
    (void)state;
    assert_true(bounds_norm(1024, 256, 1) == 2);
    assert_true(bounds_norm(1024, 256, 0.5f) == 4);
    assert_true(bounds_norm(1024, 256, 100) == 0.02f);
    assert_true(isinf(bounds_norm(1e90, 256, 1)));
}

/* Of two the honest one, of three the middle one, of five rounds the middle one. */
static void less_than_half_cannot_raise_the_median(void **state)
{
    (void)state;
    struct bounds_history h = {.count = 0};
    assert_true(bounds_median(&h) == 0);
    struct manifest m = round_of(0, (const float[]){2, 1e30f}, 2);
    bounds_add(&h, &m);
    assert_true(bounds_median(&h) == 2);
    m = round_of(1, (const float[]){1e30f, 4, 3}, 3);
    bounds_add(&h, &m);
    m = round_of(2, (const float[]){9, 9}, 2);
    bounds_add(&h, &m);
    assert_true(bounds_median(&h) == 4);
    m = round_of(3, (const float[]){0, 0}, 2); /* nobody moved: that says nothing */
    bounds_add(&h, &m);
    m = round_of(4, (const float[]){7, 8}, 2); /* aborted: nobody is included */
    m.sites[0].included = m.sites[1].included = false;
    bounds_add(&h, &m);
    assert_true(bounds_median(&h) == 4);
}

static void the_history_is_of_eight_rounds(void **state)
{
    (void)state;
    struct bounds_history h = {.count = 0};
    for (uint64_t t = 0; t < 20; t++) {
        float norm = t < 12 ? 1 : (float)(t + 1);
        struct manifest m = round_of(t, &norm, 1);
        bounds_add(&h, &m);
    }
    assert_true(bounds_median(&h) == 16); /* 13 ... 20 */
}

static void the_bound(void **state)
{
    (void)state;
    struct bounds_history h = {.count = 0};
    assert_true(bounds_norm_max(&h, 1000, 0.25f) == 250);
    assert_true(bounds_norm_max(&h, 1000, 0) == 1000);
    assert_true(isinf(bounds_norm_max(&h, 0, 1)));
    struct manifest m = round_of(0, (const float[]){0.125f}, 1);
    bounds_add(&h, &m);
    assert_true(bounds_norm_max(&h, 1000, 0.25f) == 125);
    assert_true(bounds_norm_max(&h, 1000, 500) == 500); /* small first steps of a warm-up */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_norm_is_over_the_weight),
        cmocka_unit_test(less_than_half_cannot_raise_the_median),
        cmocka_unit_test(the_history_is_of_eight_rounds),
        cmocka_unit_test(the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
