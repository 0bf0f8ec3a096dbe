/* What breaks if the outer optimizer is wrong: convergence, silently. Steps are compared with
 * float64. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "outer/nesterov.h"

enum { COUNT = 1024 };
static struct dev *dev;
static float theta[COUNT], momentum[COUNT], mean[COUNT], local[COUNT], zero[COUNT];

static void start(void)
{
    for (size_t i = 0; i < COUNT; i++) {
        theta[i] = rng_normal(1, RNG_TEST, i);
        local[i] = theta[i] + 0.01f * rng_normal(2, RNG_TEST, i);
        momentum[i] = 0;
    }
    dev->ops->delta(dev, mean, theta, local, zero, 1.0f, COUNT);
}

/* Base loop of DiLoCo: from rest the first step moves by lr * (1 + mu) * mean. */
static void first_step_of_nesterov(void **state)
{
    (void)state;
    struct nesterov o;
    assert_int_equal(nesterov_make(&o, "nesterov", 0.7f, 0.9f), ERR_OK);
    assert_true(nesterov_momentum(&o));
    start();
    nesterov_step(dev, &o, theta, momentum, mean, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        double before = (double)rng_normal(1, RNG_TEST, i),
               want = before - 0.7 * 1.9 * (double)mean[i];
        assert_true(fabs((double)theta[i] - want) <= 1e-7 * fabs(before) + 1e-8);
        assert_true(momentum[i] == mean[i]);
    }
}

static void ten_steps_follow_float64(void **state)
{
    (void)state;
    static double x[COUNT], u[COUNT];
    struct nesterov o;
    assert_int_equal(nesterov_make(&o, "nesterov", 0.7f, 0.9f), ERR_OK);
    start();
    for (size_t i = 0; i < COUNT; i++) {
        x[i] = (double)theta[i];
        u[i] = 0;
    }
    for (uint64_t t = 0; t < 10; t++) {
        for (size_t i = 0; i < COUNT; i++)
            mean[i] = 0.01f * rng_normal(3 + t, RNG_TEST, i);
        nesterov_step(dev, &o, theta, momentum, mean, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            u[i] = 0.9 * u[i] + (double)mean[i];
            x[i] -= 0.7 * ((double)mean[i] + 0.9 * u[i]);
            assert_true(fabs((double)theta[i] - x[i]) < 2e-6);
            assert_true(fabs((double)momentum[i] - u[i]) < 1e-7);
        }
    }
}

/* One site, average: theta - (theta - local) is local up to one rounding of the delta. sgd with lr
 * 1 is the same. */
static void one_site_gets_its_parameters_back(void **state)
{
    (void)state;
    static const char *const names[] = {"average", "sgd"};
    for (int k = 0; k < 2; k++) {
        struct nesterov o;
        assert_int_equal(nesterov_make(&o, names[k], k ? 1.0f : 0.3f, 0.9f), ERR_OK);
        assert_false(nesterov_momentum(&o));
        assert_true(o.lr == 1.0f && o.mu == 0.0f);
        start();
        nesterov_step(dev, &o, theta, NULL, mean, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            assert_true(fabsf(theta[i] - local[i]) <= 0x1p-24f * fabsf(local[i]));
    }
}

static void wrong_settings_are_refused(void **state)
{
    (void)state;
    struct nesterov o;
    assert_int_equal(nesterov_make(&o, "adam", 0.7f, 0.9f), ERR_CONFIG);
    assert_int_equal(nesterov_make(&o, "sgd", -1, 0.9f), ERR_CONFIG);
    assert_int_equal(nesterov_make(&o, "sgd", INFINITY, 0.9f), ERR_CONFIG);
    assert_int_equal(nesterov_make(&o, "nesterov", NAN, 0.9f), ERR_CONFIG);
    assert_int_equal(nesterov_make(&o, "nesterov", 0.7f, 1), ERR_CONFIG);
    assert_int_equal(nesterov_make(&o, "nesterov", 0.7f, NAN), ERR_CONFIG);
}

int main(void)
{
    struct dev_options options = {.kind = "cpu", .model_type = "f32", .threads = 2};
    if (dev_open(&dev, &options) != ERR_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_step_of_nesterov),
        cmocka_unit_test(ten_steps_follow_float64),
        cmocka_unit_test(one_site_gets_its_parameters_back),
        cmocka_unit_test(wrong_settings_are_refused),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    dev_close(dev);
    return failures;
}
