/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if the outer optimizer is wrong: convergence, silently. Steps are compared with
 * float64. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "outer/diloco/outer_opt.h"

enum { COUNT = 1024 };
static struct dev *dev;
static float theta[COUNT], momentum[COUNT], mean[COUNT], local[COUNT], zero[COUNT];
static const struct outer_opt_state state_of = {theta, {momentum}};

static void start(void)
{
    for (size_t i = 0; i < COUNT; i++) {
        theta[i] = rng_normal(1, RNG_TEST, i);
        local[i] = theta[i] + 0.01f * rng_normal(2, RNG_TEST, i);
        momentum[i] = 0;
    }
    dev->ops->outer_delta(
        dev, mean,
        &(struct dev_delta){
            .outer = theta, .local = local, .residual = zero, .weight = 1.0f, .count = COUNT});
}

/* Base loop of DiLoCo: from rest the first step moves by lr * (1 + mu) * mean. */
static void first_step_of_nesterov(void **state)
{
    (void)state;
    struct outer_opt o;
    assert_int_equal(outer_opt_make(&o, OUTER_OPT_MOMENTUM, 0.7f, 0.9f), ERR_OK);
    assert_int_equal(outer_opt_slabs(&o), 1);
    start();
    outer_opt_step(dev, &o, &state_of, mean, 0, COUNT);
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
    struct outer_opt o;
    assert_int_equal(outer_opt_make(&o, OUTER_OPT_MOMENTUM, 0.7f, 0.9f), ERR_OK);
    start();
    for (size_t i = 0; i < COUNT; i++) {
        x[i] = (double)theta[i];
        u[i] = 0;
    }
    for (uint64_t t = 0; t < 10; t++) {
        for (size_t i = 0; i < COUNT; i++)
            mean[i] = 0.01f * rng_normal(3 + t, RNG_TEST, i);
        outer_opt_step(dev, &o, &state_of, mean, t, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            u[i] = 0.9 * u[i] + (double)mean[i];
            x[i] -= 0.7 * ((double)mean[i] + 0.9 * u[i]);
            assert_true(fabs((double)theta[i] - x[i]) < 2e-6);
            assert_true(fabs((double)momentum[i] - u[i]) < 1e-7);
        }
    }
}

/* 2401.09135, as published, in float64: every round theta -= lr*g/N; every N-th, with avg the mean
 * of the N: buf = mu*buf + avg and theta -= lr*mu*buf in addition. */
static void delayed_follows_float64(void **state)
{
    (void)state;
    static double x[COUNT], u[COUNT], sum[COUNT];
    static float gathered[COUNT];
    enum { N = 4 };
    struct outer_opt o;
    assert_int_equal(outer_opt_make(&o, OUTER_OPT_DELAYED, 0.7f, 0.9f), ERR_OK);
    assert_true(outer_opt_slabs(&o) == 2 && outer_opt_bytes(&o) == 12);
    o.delay = N;
    start();
    for (size_t i = 0; i < COUNT; i++) {
        x[i] = (double)theta[i];
        u[i] = sum[i] = 0;
        gathered[i] = 99; /* what an earlier cycle left */
    }
    for (uint64_t t = 0; t < 5 * N; t++) {
        for (size_t i = 0; i < COUNT; i++)
            mean[i] = 0.01f * rng_normal(40 + t, RNG_TEST, i);
        outer_opt_step(dev, &o, &(struct outer_opt_state){theta, {momentum, gathered}}, mean, t,
                       COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            x[i] -= 0.7 * (double)mean[i] / N;
            sum[i] += (double)mean[i];
            if (t % N == N - 1) {
                u[i] = 0.9 * u[i] + sum[i] / N;
                x[i] -= 0.7 * 0.9 * u[i];
                sum[i] = 0;
            }
            assert_true(fabs((double)theta[i] - x[i]) < 2e-6);
            assert_true(fabs((double)momentum[i] - u[i]) < 1e-7);
        }
    }
}

/* 2512.17131, as published, in float64: the iterate, its average and the point between them, with a
 * momentum that changes. */
static void primal_follows_float64(void **state)
{
    (void)state;
    static double y[COUNT], x[COUNT], z[COUNT];
    struct outer_opt o;
    assert_int_equal(outer_opt_make(&o, OUTER_OPT_PRIMAL, 3.0f, 0.9f), ERR_OK);
    assert_true(outer_opt_slabs(&o) == 1 && outer_opt_bytes(&o) == 8);
    o.interpolation = 0.75f;
    start();
    for (size_t i = 0; i < COUNT; i++)
        x[i] = y[i] = z[i] = (double)theta[i];
    for (uint64_t t = 0; t < 20; t++) {
        o.mu = 0.3f + 0.03f * (float)t;
        o.ends = t == 19;
        for (size_t i = 0; i < COUNT; i++)
            mean[i] = 0.01f * rng_normal(3 + t, RNG_TEST, i);
        outer_opt_step(dev, &o, &state_of, mean, t, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            z[i] -= 3.0 * (double)mean[i];
            x[i] = (double)o.mu * x[i] + (1 - (double)o.mu) * z[i];
            y[i] = t < 19 ? 0.75 * x[i] + 0.25 * z[i] : x[i];
            assert_true(fabs((double)theta[i] - y[i]) < 4e-6);
            assert_true(fabs((double)momentum[i] - (z[i] - x[i])) < 1e-6);
        }
    }
}

/* A run that has grown continues from its average: the round after the former last one. */
static void after_a_last_round_primal_restarts(void **state)
{
    (void)state;
    struct outer_opt n, p;
    struct schedule s = schedule_streaming(200, 10, 1, 1, CODEC_INT8);
    s.ends.count = 1;
    s.ends.steps[0] = 100;
    assert_int_equal(outer_opt_make(&n, OUTER_OPT_MOMENTUM, 0.7f, 0.9f), ERR_OK);
    assert_int_equal(outer_opt_make(&p, OUTER_OPT_PRIMAL, 7.0f, 0.9f), ERR_OK);
    for (uint64_t t = 0; t < 20; t++) {
        assert_int_equal(outer_opt_restarts(&p, &s, 0, t), t == 10);
        assert_false(outer_opt_restarts(&n, &s, 0, t));
    }
    n.anneal.restart = 3;
    assert_true(outer_opt_restarts(&n, &s, 0, 6));
    n.kind = OUTER_OPT_SGD;
    assert_false(outer_opt_restarts(&n, &s, 0, 6));
}

/* Interpolation at the momentum: Nesterov's steps with the rate times 1 - mu. */
static void primal_at_the_momentum_is_nesterov(void **state)
{
    (void)state;
    static float other[COUNT], buf[COUNT];
    struct outer_opt n, p;
    assert_int_equal(outer_opt_make(&n, OUTER_OPT_MOMENTUM, 0.7f, 0.9f), ERR_OK);
    assert_int_equal(outer_opt_make(&p, OUTER_OPT_PRIMAL, 7.0f, 0.9f), ERR_OK);
    assert_true(p.interpolation == 0.9f);
    start();
    memcpy(other, theta, sizeof other);
    memset(buf, 0, sizeof buf);
    for (uint64_t t = 0; t < 20; t++) {
        for (size_t i = 0; i < COUNT; i++)
            mean[i] = 0.01f * rng_normal(3 + t, RNG_TEST, i);
        outer_opt_step(dev, &p, &state_of, mean, t, COUNT);
        outer_opt_step(dev, &n, &(struct outer_opt_state){other, {buf}}, mean, t, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            assert_true(fabs((double)theta[i] - (double)other[i]) < 4e-6);
    }
}

/* One step for every N rounds of the same mean, up to the roundings of N steps. */
static void a_cycle_is_one_step_on_its_mean(void **state)
{
    (void)state;
    static float one[COUNT], buf[COUNT], gathered[COUNT];
    struct outer_opt o, d;
    assert_int_equal(outer_opt_make(&o, OUTER_OPT_MOMENTUM, 0.7f, 0.9f), ERR_OK);
    assert_int_equal(outer_opt_make(&d, OUTER_OPT_DELAYED, 0.7f, 0.9f), ERR_OK);
    d.delay = 8;
    start();
    for (size_t i = 0; i < COUNT; i++)
        mean[i] = (float)((int)(i % 129) - 64) / 4096; /* eighths add without rounding */
    memcpy(one, theta, sizeof one);
    memset(buf, 0, sizeof buf);
    for (uint64_t t = 0; t < 16; t++)
        outer_opt_step(dev, &d, &(struct outer_opt_state){theta, {momentum, gathered}}, mean, t,
                       COUNT);
    for (uint64_t t = 0; t < 2; t++)
        outer_opt_step(dev, &o, &(struct outer_opt_state){one, {buf}}, mean, t, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(momentum[i] == buf[i]);
        assert_true(fabsf(theta[i] - one[i]) <= 16 * 0x1p-24f * fmaxf(fabsf(one[i]), 1));
    }
}

/* Bit for bit, negative zeros and all. */
static void a_delay_of_one_is_nesterov(void **state)
{
    (void)state;
    static float one[COUNT], buf[COUNT], gathered[COUNT];
    struct outer_opt o, d;
    assert_int_equal(outer_opt_make(&o, OUTER_OPT_MOMENTUM, 0.7f, 0.9f), ERR_OK);
    assert_int_equal(outer_opt_make(&d, OUTER_OPT_DELAYED, 0.7f, 0.9f), ERR_OK);
    start();
    for (size_t i = 0; i < COUNT; i++)
        momentum[i] = i % 2 ? -0.0f : 0.0f;
    memcpy(one, theta, sizeof one);
    memcpy(buf, momentum, sizeof buf);
    for (uint64_t t = 0; t < 6; t++) {
        for (size_t i = 0; i < COUNT; i++)
            mean[i] = i % 7 == 0 ? -0.0f : 0.01f * rng_normal(60 + t, RNG_TEST, i);
        outer_opt_step(dev, &d, &(struct outer_opt_state){theta, {momentum, gathered}}, mean, t,
                       COUNT);
        outer_opt_step(dev, &o, &(struct outer_opt_state){one, {buf}}, mean, t, COUNT);
        assert_memory_equal(theta, one, sizeof one);
        assert_memory_equal(momentum, buf, sizeof buf);
    }
}

/* tests/golden/outer_adam: float64 of the paper, and the bits of docs/formats.md 8. */
static void adam_is_the_papers(void **state)
{
    (void)state;
    enum { ELEMENTS = 6, ROUNDS = 12 };
    struct outer_opt o;
    float x[3][ELEMENTS], g[ELEMENTS], mu, lr, beta2, eps;
    unsigned cases = 0;
    FILE *f = fopen("tests/golden/outer_adam/values.txt", "r");
    assert_non_null(f);
    while (fscanf(f, " case %f %f %f %f", &lr, &mu, &beta2, &eps) == 4) {
        assert_int_equal(outer_opt_make(&o, OUTER_OPT_ADAM, lr, mu), ERR_OK);
        o.beta2 = beta2;
        o.eps = eps;
        for (unsigned e = 0; e < ELEMENTS; e++) {
            x[0][e] = (float)(0.75 - 0.3 * e);
            for (unsigned i = 0; i < 2; i++)
                x[1 + i][e] = outer_opt_initial(&o, i);
        }
        for (unsigned t = 0; t < ROUNDS; t++) {
            double want[ELEMENTS][3];
            uint32_t bits[ELEMENTS][3], got;
            for (unsigned e = 0, round, element; e < ELEMENTS; e++) {
                assert_int_equal(fscanf(f, "%u %u %f %lf %lf %lf %x %x %x", &round, &element, &g[e],
                                        &want[e][0], &want[e][1], &want[e][2], &bits[e][0],
                                        &bits[e][1], &bits[e][2]),
                                 9);
                assert_true(round == t && element == e);
            }
            outer_opt_step(dev, &o, &(struct outer_opt_state){x[0], {x[1], x[2]}}, g, t, ELEMENTS);
            for (unsigned i = 0; i < 3 * ELEMENTS; i++) {
                unsigned e = i / 3, k = i % 3;
                memcpy(&got, &x[k][e], sizeof got);
                assert_int_equal(got, bits[e][k]);
                assert_true(fabs((double)x[k][e] - want[e][k]) <= 1e-5 * fabs(want[e][k]) + 1e-9);
            }
        }
        cases++;
    }
    fclose(f);
    assert_int_equal(cases, 4);
    assert_true(outer_opt_slabs(&o) == 2 && outer_opt_bytes(&o) == 12);
    assert_string_equal(outer_opt_row(o.kind)->slab[1], "squares");
}

/* One site, average: theta - (theta - local) is local up to one rounding of the delta. sgd with lr
 * 1 is the same. */
static void one_site_gets_its_parameters_back(void **state)
{
    (void)state;
    static const enum outer_opt_kind kinds[] = {OUTER_OPT_AVERAGE, OUTER_OPT_SGD};
    for (int k = 0; k < 2; k++) {
        struct outer_opt o;
        assert_int_equal(outer_opt_make(&o, kinds[k], k ? 1.0f : 0.3f, 0.9f), ERR_OK);
        assert_int_equal(outer_opt_slabs(&o), 0);
        assert_true(o.lr == 1.0f && o.mu == 0.0f);
        start();
        outer_opt_step(dev, &o, &(struct outer_opt_state){.theta = theta}, mean, 0, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            assert_true(fabsf(theta[i] - local[i]) <= 0x1p-24f * fabsf(local[i]));
    }
}

static void wrong_settings_are_refused(void **state)
{
    (void)state;
    struct outer_opt o;
    assert_int_equal(outer_opt_make(&o, OUTER_OPT_SGD, -1, 0.9f), ERR_CONFIG);
    assert_int_equal(outer_opt_make(&o, OUTER_OPT_SGD, INFINITY, 0.9f), ERR_CONFIG);
    assert_int_equal(outer_opt_make(&o, OUTER_OPT_MOMENTUM, NAN, 0.9f), ERR_CONFIG);
    assert_int_equal(outer_opt_make(&o, OUTER_OPT_MOMENTUM, 0.7f, 1), ERR_CONFIG);
    assert_int_equal(outer_opt_make(&o, OUTER_OPT_MOMENTUM, 0.7f, NAN), ERR_CONFIG);
}

int main(void)
{
    struct dev_options options = {.kind = "cpu", .model_type = "f32", .threads = 2};
    if (dev_open(&dev, &options) != ERR_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_step_of_nesterov),
        cmocka_unit_test(ten_steps_follow_float64),
        cmocka_unit_test(delayed_follows_float64),
        cmocka_unit_test(primal_follows_float64),
        cmocka_unit_test(primal_at_the_momentum_is_nesterov),
        cmocka_unit_test(after_a_last_round_primal_restarts),
        cmocka_unit_test(a_cycle_is_one_step_on_its_mean),
        cmocka_unit_test(a_delay_of_one_is_nesterov),
        cmocka_unit_test(adam_is_the_papers),
        cmocka_unit_test(one_site_gets_its_parameters_back),
        cmocka_unit_test(wrong_settings_are_refused),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    dev_close(dev);
    return failures;
}
