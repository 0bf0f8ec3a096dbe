/* SPDX-License-Identifier: Apache-2.0 */
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
#include <stdio.h>
#include <string.h>
#include "outer/protocol/bounds.h"
#include "tests/sim/mutants.h"

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
    struct bounds_history h = {.next = 0};
    assert_true(bounds_median(&h) == 0);
    struct manifest m = round_of(0, (const float[]){2, 1e30f}, 2);
    bounds_add(&h, &m);
    assert_true(bounds_median(&h) == 2);
    m = round_of(1, (const float[]){1e30f, 4, 3}, 3);
    bounds_add(&h, &m);
    m = round_of(2, (const float[]){9, 9}, 2);
    bounds_add(&h, &m);
    assert_true(bounds_median(&h) == 4);
    m = round_of(3, (const float[]){0, 0}, 2); /* no site moved: that says nothing */
    bounds_add(&h, &m);
    m = round_of(4, (const float[]){7, 8}, 2); /* aborted: no site is included */
    m.sites[0].included = m.sites[1].included = false;
    bounds_add(&h, &m);
    assert_true(bounds_median(&h) == 4);
}

static void the_history_is_of_eight_rounds(void **state)
{
    (void)state;
    struct bounds_history h = {.next = 0};
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
    struct bounds_history h = {.next = 0};
    assert_true(bounds_norm_max(&h, 1000, 0.25f) == 250);
    assert_true(bounds_norm_max(&h, 1000, 0) == 1000);
    assert_true(isinf(bounds_norm_max(&h, 0, 1)));
    struct manifest m = round_of(0, (const float[]){0.125f}, 1);
    bounds_add(&h, &m);
    assert_true(bounds_norm_max(&h, 1000, 0.25f) == 125);
    assert_true(bounds_norm_max(&h, 1000, 500) == 500); /* small first steps of a warm-up */
}

/* A site a thousand times as loud as the others counts as much as the bound lets it, and the factor
 * is exact. In the first round the round itself says what is usual, of two sites the quieter one.
 */
static void a_norm_beyond_the_clip_is_scaled(void **state)
{
    (void)state;
    struct bounds_history h = {.next = 0};
    struct manifest m = round_of(0, (const float[]){1, 2, 1000}, 3);
    bounds_clip(&h, 0, &m);
    assert_false(m.scaled);
    bounds_clip(&h, 4, &m); /* up to 8: 8/1000 is between 2^-7 and 2^-6 */
    assert_true(m.scaled && m.sites[0].factor == 1 && m.sites[1].factor == 1);
    assert_true(m.sites[2].factor == 0x1p-7f);
    bounds_clip(&h, 500, &m);
    assert_true(!m.scaled && m.sites[2].factor == 1);
    m = round_of(0, (const float[]){1, 16}, 2);
    bounds_clip(&h, 4, &m); /* a ratio that is a power of two is itself the factor */
    assert_true(m.scaled && m.sites[0].factor == 1 && m.sites[1].factor == 0.25f);
    m = round_of(0, (const float[]){0, 0}, 2);
    bounds_clip(&h, 4, &m);
    assert_false(m.scaled);
    m = round_of(1, (const float[]){8, 8}, 2);
    bounds_add(&h, &m);
    m = round_of(2, (const float[]){1, 16}, 2); /* the running median is the larger one */
    bounds_clip(&h, 2, &m);
    assert_false(m.scaled);
    m.sites[1].included = false;
    m.sites[1].norm = 1e30f;
    bounds_clip(&h, 2, &m);
    assert_true(!m.scaled && m.sites[1].factor == 1);
    m = round_of(3, (const float[]){64, 64, 1024},
                 3); /* this round's own median is the larger one */
    bounds_clip(&h, 2, &m);
    assert_true(m.sites[0].factor == 1 && m.sites[1].factor == 1 && m.sites[2].factor == 0.125f);
}

/* A restart reads the manifests that are kept: it must not remember less than the process before.
 */
static void the_history_is_no_longer_than_what_is_kept(void **state)
{
    (void)state;
    struct bounds_history h = {.rounds = 2}, again = {.rounds = 2};
    for (uint64_t t = 0; t < 5; t++) {
        float norm = (float)(t + 1);
        struct manifest m = round_of(t, &norm, 1);
        m.sites[0].included = t != 3; /* aborted: takes a place anyway */
        bounds_add(&h, &m);
        if (t >= 3)
            bounds_add(&again, &m);
    }
    assert_true(bounds_median(&h) == 5 && bounds_median(&again) == 5);
}

/* --mutant NAME: over the outer loop with that bug in it (tests/sim/mutants.sh). */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_norm_is_over_the_weight),
        cmocka_unit_test(less_than_half_cannot_raise_the_median),
        cmocka_unit_test(the_history_is_of_eight_rounds),
        cmocka_unit_test(the_bound),
        cmocka_unit_test(a_norm_beyond_the_clip_is_scaled),
        cmocka_unit_test(the_history_is_no_longer_than_what_is_kept),
    };
    if (!mutant_arguments(argc, argv, cmocka_set_test_filter))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
