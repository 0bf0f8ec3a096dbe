/* SPDX-License-Identifier: Apache-2.0 */
/* The one-run audit compared with the paper's formula in SciPy (tests/golden/privacy). If this
 * breaks, an audit accuses a sound mechanism or clears a broken one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <cmocka.h>
#include "kernels/base/rng.h"
#include "outer/budget/audit.h"

static void test_beside_scipy(void **state)
{
    (void)state;
    FILE *f = fopen("tests/golden/privacy/audit.txt", "r");
    long m, r, v;
    double epsilon, delta, p, p_value, bound;
    unsigned rows = 0, above = 0;
    assert_non_null(f);
    while (fscanf(f, "%ld %ld %ld %lf %lf %lf %lf %lf", &m, &r, &v, &epsilon, &delta, &p, &p_value,
                  &bound) == 8) {
        const struct audit a = {m, r, v};
        double got = audit_p_value(&a, epsilon, delta), lower = audit_epsilon(&a, delta, 1 - p);
        if (!(fabs(got - p_value) <= 1e-9 * p_value + 1e-300 && fabs(lower - bound) < 1e-8))
            fail_msg("%ld %ld %ld at %g: p %.12g not %.12g, bound %.12g not %.12g", m, r, v,
                     epsilon, got, p_value, lower, bound);
        rows++;
        above += bound > 0;
    }
    fclose(f);
    assert_int_equal(rows, 120);
    assert_true(above > 30);
}

/* The auditor of randomised response with a known epsilon: the bound is above it in no more runs
 * than the confidence allows, and comes near. */
static void test_randomised_response(void **state)
{
    (void)state;
    enum { RUNS = 400, M = 500 };
    const double truth = 1, right = 1 / (1 + exp(-truth));
    unsigned above = 0;
    double sum = 0;
    for (uint64_t run = 0; run < RUNS; run++) {
        struct audit a = {M, M, 0};
        for (uint64_t i = 0; i < M; i++)
            a.correct += rng_unit(77 + run, RNG_TEST, i) < right;
        double bound = audit_epsilon(&a, 0, 0.95);
        above += bound > truth;
        sum += bound / RUNS;
    }
    print_message("%u of %d bounds above the truth, mean %.3f\n", above, RUNS, sum);
    assert_true(above <= 32); /* 20 expected; 4.4 of them a deviation */
    assert_true(sum > 0.75);
}

static void test_no_guess_says_nothing(void **state)
{
    (void)state;
    const struct audit none = {100, 0, 0}, all = {100000, 100000, 100000};
    assert_true(audit_epsilon(&none, 1e-5, 0.95) == 0);
    double bound = audit_epsilon(&all, 0, 0.95); /* q^r = 0.05 */
    assert_true(fabs(bound + log(expm1(-log(0.05) / 1e5))) < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beside_scipy),
        cmocka_unit_test(test_randomised_response),
        cmocka_unit_test(test_no_guess_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
