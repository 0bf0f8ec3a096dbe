/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a plan that promises a signal where there is noise alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <cmocka.h>
#include "outer/plan/plan_private.h"
#include "outer/budget/accountant.h"

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%.9g, not %.9g", got, want);
}

/* X = z sqrt(d) / n at 100 rounds and (8, 1e-5), where z = 6.0023: by hand, to three digits. */
static void noise_of_a_whole_site(void **state)
{
    (void)state;
    static const struct {
        double values, x[4], sites;
    } rows[] = {{1e5, {475, 237, 119, 29.7}, 1900},
                {1e7, {4750, 2370, 1190, 297}, 19000},
                {1e8, {15000, 7500, 3750, 938}, 60000},
                {1e9, {47500, 23700, 11900, 2970}, 190000}};
    static const double sites[] = {4, 8, 16, 64};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 4; k++) {
            struct plan_site_level p = plan_site_level(100, sites[k], rows[i].values, 8, 1e-5);
            near(p.noise, 6.00229, 1e-5);
            near(p.ratio / rows[i].x[k], 1, 5e-3);
            near(p.sites / rows[i].sites, 1, 5e-3);
        }
}

/* The accountant's value without amplification, at the noise that was computed for it. */
static void noise_without_amplification(void **state)
{
    (void)state;
    double noise = plan_private_unamplified(0.03, 1000, 3, 1e-6); /* 31 times: 1/q is 33.3 */
    struct sampled_steps s = {0.03, noise, 1000};
    struct accountant a;
    assert_int_equal(accountant_epsilon(&a, &s, 1, 1e-6), ERR_OK);
    assert_int_equal(a.participations, 31);
    near(a.unamplified, 3, 1e-6);
}

static void signal_of_a_step(void **state)
{
    (void)state;
    /* 64 gradients of norm C against noise of standard deviation 0.5 C in 256 values: 64 / 8. */
    near(plan_private_signal(64, 0.5, 256), 8, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise_of_a_whole_site),
        cmocka_unit_test(noise_without_amplification),
        cmocka_unit_test(signal_of_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
