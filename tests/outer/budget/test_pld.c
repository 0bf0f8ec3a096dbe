/* SPDX-License-Identifier: Apache-2.0 */
/* The privacy loss distribution compared with dp-accounting, with the exact Gaussian, and the
 * transform with its definition. If this breaks, epsilon is not an upper bound, or a loose one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <cmocka.h>
#include "kernels/base/rng.h"
#include "outer/budget/fft.h"
#include "outer/budget/gaussian.h"
#include "outer/budget/pld.h"
#include "outer/budget/rdp.h"

/* pld.txt: q, noise, steps, delta, epsilon optimistic, epsilon pessimistic, then the same of delta
 * at an epsilon. Ours is not below the optimistic value and not above the pessimistic one. */
static void test_beside_dp_accounting(void **state)
{
    (void)state;
    FILE *f = fopen("tests/golden/privacy/pld.txt", "r");
    struct sampled_steps s;
    double delta, low, high, at, low_delta, high_delta, e, d;
    long steps;
    unsigned rows = 0;
    assert_non_null(f);
    while (fscanf(f, "%lf %lf %ld %lf %lf %lf %lf %lf %lf", &s.q, &s.noise, &steps, &delta, &low,
                  &high, &at, &low_delta, &high_delta) == 9) {
        s.steps = steps;
        assert_int_equal(pld_epsilon(&e, &s, 1, delta), ERR_OK);
        assert_int_equal(pld_delta(&d, &s, 1, at), ERR_OK);
        if (!(e >= low && e <= high * (1 + 1e-4)))
            fail_msg("q %g noise %g steps %ld: epsilon %.9g, not in %.9g .. %.9g", s.q, s.noise,
                     steps, e, low, high);
        if (!(d >= low_delta && d <= high_delta * (1 + 1e-3)))
            fail_msg("q %g noise %g steps %ld: delta %.9g, not in %.9g .. %.9g", s.q, s.noise,
                     steps, d, low_delta, high_delta);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 60);
}

/* Without sampling the exact value is known: never below it, by little above. */
static void test_above_exact(void **state)
{
    (void)state;
    double worst = 0;
    for (uint64_t i = 0; i < 60; i++) {
        double a = rng_unit(5, RNG_TEST, 3 * i), b = rng_unit(5, RNG_TEST, 3 * i + 1);
        struct sampled_steps s = {1, 0.3 * pow(300, a), (int64_t)pow(10, 4 * b)};
        double mu = sqrt((double)s.steps) / s.noise, e, d;
        double delta = pow(10, -1 - 14 * rng_unit(5, RNG_TEST, 3 * i + 2));
        double exact = gaussian_epsilon(mu, delta);
        if (mu > 30 || exact == 0)
            continue;
        assert_int_equal(pld_epsilon(&e, &s, 1, delta), ERR_OK);
        assert_int_equal(pld_delta(&d, &s, 1, exact), ERR_OK);
        assert_true(e >= exact && d >= delta * (1 - 1e-9));
        worst = fmax(worst, e / exact - 1);
    }
    print_message("largest excess over exact: %.2g\n", worst);
    assert_true(worst < 1e-4);
}

/* Every delta of RDP is an upper bound too, so PLD's must not be above it by more than its own
 * excess; rates from rare to all, one step to 50,000. */
static void test_below_rdp(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 40; i++) {
        struct sampled_steps s = {pow(10, -5 * rng_unit(6, RNG_TEST, 3 * i)),
                                  0.3 * pow(30, rng_unit(6, RNG_TEST, 3 * i + 1)),
                                  (int64_t)pow(10, 4.7 * rng_unit(6, RNG_TEST, 3 * i + 2))};
        double rdp[RDP_ORDERS], order, e;
        rdp_compose(rdp, rdp_orders, RDP_ORDERS, &s, 1);
        assert_int_equal(pld_epsilon(&e, &s, 1, 1e-6), ERR_OK);
        assert_true(e <= rdp_epsilon(rdp_orders, rdp, RDP_ORDERS, 1e-6, &order));
    }
}

static void test_published(void **state)
{
    (void)state;
    const struct sampled_steps o8 = {1, 0.7, 2}, o12 = {0.01, 0.7, 120}, o13 = {0.2, 0.5, 3};
    double v;
    assert_int_equal(pld_epsilon(&v, &o8, 1, 1e-5), ERR_OK);
    assert_true(fabs(v - 10.1224946) < 2e-5 && v >= 10.122494584);
    assert_int_equal(pld_epsilon(&v, &o12, 1, 1e-5), ERR_OK);
    assert_true(fabs(v - 2.4612381) < 2e-5);
    assert_int_equal(pld_delta(&v, &o13, 1, 1), ERR_OK);
    assert_true(fabs(v - 0.15594) < 1e-3);
}

static void test_nothing_sampled(void **state)
{
    (void)state;
    const struct sampled_steps none[] = {{0, 1, 100}, {0.5, 1, 0}};
    double v;
    assert_int_equal(pld_epsilon(&v, none, 2, 1e-5), ERR_OK);
    assert_true(v == 0);
    assert_int_equal(pld_delta(&v, none, 2, 0), ERR_OK);
    assert_true(v == 0);
}

static void test_transform(void **state)
{
    (void)state;
    enum { N = 64 };
    double x[2 * N], y[2 * N], twiddle[N], squares = 0, errors = 0;
    for (uint64_t i = 0; i < 2 * N; i++)
        x[i] = y[i] = rng_unit(9, RNG_TEST, i) - 0.5;
    fft_twiddle(twiddle, N);
    fft_forward(y, N, twiddle);
    for (int k = 0; k < N; k++) {
        double re = 0, im = 0;
        for (int j = 0; j < N; j++) {
            double angle = -2 * M_PI * ((j * k) % N) / N;
            re += x[2 * j] * cos(angle) - x[2 * j + 1] * sin(angle);
            im += x[2 * j] * sin(angle) + x[2 * j + 1] * cos(angle);
        }
        assert_true(fabs(re - y[2 * k]) < 1e-13 && fabs(im - y[2 * k + 1]) < 1e-13);
    }
    fft_inverse(y, N, twiddle);
    for (int i = 0; i < 2 * N; i++) {
        squares += x[i] * x[i];
        errors += (x[i] - y[i]) * (x[i] - y[i]);
    }
    assert_true(sqrt(errors / squares) < 2 * fft_error(6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beside_dp_accounting),
        cmocka_unit_test(test_above_exact),
        cmocka_unit_test(test_below_rdp),
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_nothing_sampled),
        cmocka_unit_test(test_transform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
