/* SPDX-License-Identifier: Apache-2.0 */
/* 10,000 random points compared with arbitrary precision (tests/golden/privacy): delta of the
 * Gaussian mechanism, RDP at integer and fractional orders, one sampled step. If this breaks, a
 * formula loses digits somewhere.
 *
 *     test_privacy_points [--all]     all steps too, for a minute, instead of every fifth
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "outer/budget/gaussian.h"
#include "outer/budget/pld.h"
#include "outer/budget/rdp.h"

static bool all;

static void test_points(void **state)
{
    (void)state;
    FILE *f = fopen("tests/golden/privacy/points.txt", "r");
    char what[8];
    double x[4], worst = 0;
    unsigned gauss = 0, order = 0, step = 0, back = 0;
    assert_non_null(f);
    while (fscanf(f, "%7s", what) == 1) {
        int count = strcmp(what, "gauss") == 0 ? 3 : 4;
        for (int i = 0; i < count; i++)
            assert_int_equal(fscanf(f, "%lf", &x[i]), 1);
        double want = x[count - 1], got;
        if (count == 3) {
            got = gaussian_delta(x[0], x[1]);
            /* And back, where delta determines epsilon and mu to that precision. */
            if (want < 0.5 && want > 1e-100 && x[1] > 1e-3) {
                double e = gaussian_epsilon(x[0], want), mu = gaussian_mu(x[1], want);
                assert_true(fabs(gaussian_delta(x[0], e) / want - 1) < 1e-9);
                assert_true(fabs(e - x[1]) < 1e-9 * fmax(1, x[1]));
                assert_true(fabs(mu / x[0] - 1) < 1e-9);
                back++;
            }
            gauss++;
        } else if (strcmp(what, "order") == 0) {
            got = rdp_step(x[0], x[1], x[2]);
            order++;
        } else {
            const struct sampled_steps s = {x[0], x[1], 1};
            if (step++ % 5 != 0 && !all)
                continue;
            assert_int_equal(pld_delta(&got, &s, 1, x[2]), ERR_OK);
            /* An upper bound, at most 1e-3 and the transform's rounding above. */
            if (!(got >= want * (1 - 1e-12) && got <= want * (1 + 1e-3) + 1e-12))
                fail_msg("step q %g noise %g epsilon %g: %.15g, exact %.15g", x[0], x[1], x[2], got,
                         want);
            continue;
        }
        double error = fabs(got / want - 1);
        worst = fmax(worst, error);
        if (!(error < 1e-9))
            fail_msg("%s %g %g %g: %.15g, exact %.15g", what, x[0], x[1], count == 4 ? x[2] : 0,
                     got, want);
    }
    fclose(f);
    print_message("%u + %u + %u points, %u back; largest relative error %.2g\n", gauss, order, step,
                  back, worst);
    assert_int_equal(gauss + order + step, 10000);
    assert_true(back > 2000);
}

int main(int argc, char **argv)
{
    all = argc > 1 && strcmp(argv[1], "--all") == 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_points)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
