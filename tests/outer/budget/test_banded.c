/* SPDX-License-Identifier: Apache-2.0 */
/* Banded matrix factorisation compared with dense matrices in NumPy (tests/golden/privacy), and the
 * gain over independent noise at one epsilon. If this breaks, correlated noise is accounted
 * wrongly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <cmocka.h>
#include "outer/budget/accountant.h"
#include "outer/budget/banded.h"
#include "outer/budget/gaussian.h"

static void test_beside_numpy(void **state)
{
    (void)state;
    FILE *f = fopen("tests/golden/privacy/banded.txt", "r");
    long n, bands, times, separation;
    double error, sensitivity, got;
    unsigned rows = 0;
    assert_non_null(f);
    while (fscanf(f, "%ld %ld %ld %ld %lf %lf", &n, &bands, &times, &separation, &error,
                  &sensitivity) == 6) {
        assert_int_equal(banded_error(&got, bands, n), ERR_OK);
        assert_true(fabs(got / error - 1) < 1e-9);
        got = banded_sensitivity(bands, n, times, separation);
        assert_true(fabs(got / sensitivity - 1) < 1e-9);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 11);
}

/* Root mean square error at (8, 1e-6), 2000 steps: cyclic Poisson with q = 1/100. */
static double error_at(int64_t bands)
{
    double noise, error;
    struct sampled_steps s = banded_cyclic(bands, 0.01, 1, 2000);
    assert_int_equal(accountant_noise(&noise, &(struct accountant_goal){s.q, s.steps, 1e-6, 8,
                                                                        .spent_count = 0}),
                     ERR_OK);
    assert_int_equal(banded_error(&error, bands, 2000), ERR_OK);
    return noise * banded_column(bands) * error;
}

static void test_gain(void **state)
{
    (void)state;
    double independent = error_at(1), some = error_at(32), all = error_at(100);
    print_message("independent %.4g, 32 bands %.4g, 100 bands %.4g\n", independent, some, all);
    assert_true(independent / some > 1.45 && independent / some < 1.55);
    /* 100 bands: no amplification is left; each unit in 20 releases of one Gaussian. */
    double c[100], sum = 0;
    banded_coefficients(c, 100);
    for (int i = 0; i < 100; i++)
        sum += c[i] * c[i];
    double error, noise = sqrt(20) / gaussian_mu(8, 1e-6);
    assert_int_equal(banded_error(&error, 100, 2000), ERR_OK);
    assert_true(fabs(all / (noise * sqrt(sum) * error) - 1) < 1e-9);
}

/* The same data in a fixed order, each unit every 100th step, no amplification: bands of up to 100
 * steps cost nothing but a column's norm. */
static void test_gain_fixed_order(void **state)
{
    (void)state;
    double mu = gaussian_mu(8, 1e-6), last = INFINITY;
    for (int64_t bands = 1; bands <= 64; bands *= 2) {
        double error;
        assert_int_equal(banded_error(&error, bands, 2000), ERR_OK);
        double total = banded_sensitivity(bands, 2000, 20, 100) / mu * error;
        assert_true(total < last);
        last = total;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beside_numpy),
        cmocka_unit_test(test_gain),
        cmocka_unit_test(test_gain_fixed_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
