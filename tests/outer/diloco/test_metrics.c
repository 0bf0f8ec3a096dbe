/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if an outer metric is wrong: a run is tuned by numbers that mean something else.
 * Against float64 over all values, and against deltas whose numbers are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "outer/diloco/metrics.h"

enum { SMALL = 1024, LARGE = 1 << 20 };
static struct arena arena;
static float mean[LARGE], momentum[LARGE], z[LARGE], residual[LARGE];

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static void near(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance))
        fail_msg("%g, %g expected", a, b);
}

static void draw(float *to, uint64_t seed, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = rng_normal(seed, RNG_TEST, i);
}

static const float *sampled(float *to, const float *x, const struct outer_metrics_state *g)
{
    for (size_t i = 0; i < g->count; i++)
        to[i] = x[i * g->stride];
    return to;
}

static void first_round(void **state)
{
    (void)state;
    struct outer_metrics_state g;
    assert_int_equal(metrics_open(&g, SMALL, &arena), ERR_OK);
    draw(mean, 1, SMALL);
    memset(momentum, 0, sizeof momentum);
    metrics_round(&g, 0, mean, momentum, 0.9);
    struct outer_metrics r = metrics_read(&g, 0);
    near(r.gain, 1.9, 1e-12); /* from rest: lr * (1 + mu) */
    near(r.aligned, 0, 0);
    near(r.transverse, 0, 0);
    assert_true(isnan(r.rho) && isnan(r.agreement) && isnan(r.residual_ratio));
    assert_true(isnan(metrics_read(&g, 1).gain)); /* of another round nothing is known */
    memset(mean, 0, sizeof mean);
    metrics_round(&g, 1, mean, momentum, 0.9);
    r = metrics_read(&g, 1);
    assert_true(isnan(r.gain) && isnan(r.aligned) && isnan(r.transverse) && isnan(r.rho));
}

/* Small fragments are looked at whole: the definitions, in float64. */
static void definitions(void **state)
{
    (void)state;
    struct outer_metrics_state g;
    float before[SMALL], own[SMALL];
    size_t n = SMALL;
    assert_int_equal(metrics_open(&g, n, &arena), ERR_OK);
    draw(before, 2, n);
    metrics_round(&g, 3, before, NULL, NAN); /* primal averaging: nothing is known of a momentum */
    struct outer_metrics unknown = metrics_read(&g, 3);
    assert_true(isnan(unknown.gain) && isnan(unknown.aligned) && isnan(unknown.transverse));
    metrics_round(&g, 4, before, NULL, 0);
    near(metrics_read(&g, 4).gain, 1, 0); /* no momentum */
    for (size_t i = 0; i < n; i++) {
        mean[i] = 0.6f * before[i] + 0.5f * rng_normal(3, RNG_TEST, i);
        momentum[i] = 2 * before[i] + rng_normal(4, RNG_TEST, i);
        residual[i] = rng_normal(5, RNG_TEST, i);
        z[i] = residual[i] + mean[i] + rng_normal(6, RNG_TEST, i);
        own[i] = z[i] - residual[i];
    }
    metrics_own(&g, 5, z, residual);
    metrics_residual_ratio(&g, 0.25);
    metrics_round(&g, 5, mean, momentum, 0.9);
    struct outer_metrics r = metrics_read(&g, 5);
    double d2 = dot(mean, mean, n), c = dot(momentum, mean, n) / d2, across = 0;
    for (size_t i = 0; i < n; i++)
        across += pow((double)momentum[i] - c * (double)mean[i], 2);
    near(r.aligned, c, 1e-9);
    near(r.gain, 1 + 0.9 + 0.81 * c, 1e-9);
    near(r.transverse, sqrt(across / d2), 1e-6);
    near(r.rho, dot(mean, before, n) / sqrt(d2 * dot(before, before, n)), 1e-9);
    near(r.agreement, dot(mean, own, n) / sqrt(d2 * dot(own, own, n)), 1e-9);
    near(r.residual_ratio, 0.25, 0);
    metrics_round(&g, 7, mean, momentum, NAN); /* round 6 came as a snapshot; no momentum applied */
    r = metrics_read(&g, 7);
    assert_true(isnan(r.rho) && isnan(r.agreement) && isnan(r.residual_ratio) && isnan(r.gain));
    near(r.aligned, c, 1e-9);
}

/* A sample says what all values say, to a percent. */
static void samples(void **state)
{
    (void)state;
    struct outer_metrics_state g;
    size_t used = arena.used_bytes;
    assert_int_equal(metrics_open(&g, LARGE, &arena), ERR_OK);
    assert_true(g.count <= METRICS_SAMPLE && metrics_bytes(LARGE) <= 512 << 10);
    assert_true(arena.used_bytes - used <= metrics_bytes(LARGE) + 128);
    draw(mean, 7, LARGE);
    for (size_t i = 0; i < LARGE; i++) {
        float x = mean[i];
        z[i] = 0.3f * x + rng_normal(8, RNG_TEST, i);
        momentum[i] = x + 0.5f * rng_normal(9, RNG_TEST, i);
        residual[i] = 0;
    }
    float *sample = arena_array(&arena, g.count, sizeof *sample);
    assert_non_null(sample);
    metrics_round(&g, 0, sampled(sample, z, &g), NULL, 0);
    metrics_own(&g, 1, sampled(sample, momentum, &g), residual);
    metrics_round(&g, 1, sampled(sample, mean, &g), momentum, 0.9);
    struct outer_metrics r = metrics_read(&g, 1);
    near(r.rho, 0.3 / sqrt(1.09), 0.01);
    near(r.agreement, 1 / sqrt(1.25), 0.01);
    near(r.aligned, 1, 0.01);
    near(r.transverse, 0.5, 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_round),
        cmocka_unit_test(definitions),
        cmocka_unit_test(samples),
    };
    arena = arena_make(0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
