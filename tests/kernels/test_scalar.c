/* SPDX-License-Identifier: Apache-2.0 */
/* The scalar formulas against libm in double: if exp or GELU drift, every activation does. */
#include "tests/kernels/check.h"
#include "kernels/scalar/opt.h"
#include "kernels/scalar/swiglu.h"

static void exp_holds_its_bound(void **state)
{
    (void)state;
    for (int i = -87 * 4096; i <= 88 * 4096; i++) {
        float x = (float)i / 4096.0f;
        assert_true(fabs((double)exp_fast(x) / exp((double)x) - 1) <= 2e-7);
    }
    assert_true(exp_fast(0.0f) == 1.0f);
    for (int i = -126 * 4096; i <= 126 * 4096; i++) {
        float x = (float)i / 4096.0f;
        assert_true(fabs((double)exp2_fast(x) / exp2((double)x) - 1) <= 3e-7);
    }
    assert_true(exp2_fast(-1e30f) < 1.3e-38f);
    assert_true(isnan(exp_fast(NAN)) && isnan(exp2_fast(NAN)));
    assert_true(exp_fast(-1e30f) < 1.3e-38f && exp_fast(-INFINITY) >= 0.0f);
    assert_true(exp_fast(1e30f) > 2e38f);
}

static double tanh_form(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

static double erf_form(double x)
{
    return 0.5 * x * (1 + erf(x * 0.70710678118654752));
}

static void gelu_holds_its_bound(void **state)
{
    (void)state;
    for (int i = -15 * 1024; i <= 15 * 1024; i++) {
        float x = (float)i / 1024.0f;
        double y = (double)x, h = 1e-5, large = fmax(1, fabs(y));
        assert_true(fabs((double)gelu_tanh(x) - tanh_form(y)) <= 3e-7 * large);
        assert_true(fabs((double)gelu_erf(x) - erf_form(y)) <= 2e-7 * large);
        double tanh_slope = (tanh_form(y + h) - tanh_form(y - h)) / (2 * h);
        double erf_slope =
            0.5 * (1 + erf(y * 0.70710678118654752)) + 0.39894228040143268 * y * exp(-0.5 * y * y);
        assert_true(fabs((double)gelu_tanh_slope(x) - tanh_slope) <= 3e-6);
        assert_true(fabs((double)gelu_erf_slope(x) - erf_slope) <= 4e-7);
    }
    assert_true(isnan(gelu_tanh(NAN)) && isnan(gelu_erf(NAN)) && isnan(gelu_erf_slope(NAN)));
    for (float x = 16; x < 1e30f; x *= 3) { /* the cube overflows; the value must not */
        assert_true(gelu_tanh(x) == x && fabsf(gelu_tanh(-x)) <= 1e-28f * x);
        assert_true(gelu_tanh_slope(x) == 1.0f && fabsf(gelu_tanh_slope(-x)) <= 1e-25f);
        assert_true(gelu_erf(x) == x && gelu_erf_slope(x) == 1.0f);
        assert_true(fabsf(gelu_erf(-x)) <= 1e-22f && fabsf(gelu_erf_slope(-x)) <= 1e-21f);
    }
}

static void tanh_holds_its_bound(void **state)
{
    (void)state;
    for (int i = -12 * 4096; i <= 12 * 4096; i++) {
        float x = (float)i / 4096.0f;
        double y = tanh((double)x);
        assert_true(fabs((double)tanh_fast(x) - y) <= 5e-7 * fabs(y));
        assert_true(fabs((double)tanh_slope(x) - (1 - y * y)) <= 1e-6);
    }
    assert_true(tanh_fast(1e-30f) == 1e-30f && tanh_fast(1e30f) == 1 && tanh_fast(-1e30f) == -1);
    assert_true(tanh_fast(INFINITY) == 1 && isnan(tanh_fast(NAN)) && isnan(tanh_slope(NAN)));
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void swiglu_holds_its_bound(void **state)
{
    (void)state;
    for (int i = -90 * 1024; i <= 90 * 1024; i++) {
        float x = (float)i / 1024.0f, dgate, dup;
        double y = (double)x, h = 1e-5, slope = (silu(y + h) - silu(y - h)) / (2 * h);
        assert_true(fabs((double)swiglu(x, 3) - 3 * silu(y)) <= 5e-7 * 3 * fabs(silu(y)) + 1e-36);
        swiglu_slopes(&dgate, &dup, 0.5f, x, 3);
        assert_true(fabs((double)dup - 0.5 * silu(y)) <= 5e-7 * fabs(silu(y)) + 1e-36);
        assert_true(fabs((double)dgate - 1.5 * slope) <= 2e-6);
    }
    assert_true(isnan(swiglu(NAN, 1)) && isnan(swiglu(1, NAN)));
    for (float x = 100; x < 1e30f; x *= 3) {
        float dgate, dup;
        assert_true(swiglu(x, 2) == 2 * x && fabsf(swiglu(-x, 2)) <= 1e-37f * x);
        swiglu_slopes(&dgate, &dup, 1, x, 2);
        assert_true(dgate == 2 && dup == x);
        swiglu_slopes(&dgate, &dup, 1, -x, 2);
        assert_true(fabsf(dgate) <= 1e-37f * x && fabsf(dup) <= 1e-37f * x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_holds_its_bound),
        cmocka_unit_test(gelu_holds_its_bound),
        cmocka_unit_test(tanh_holds_its_bound),
        cmocka_unit_test(swiglu_holds_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
