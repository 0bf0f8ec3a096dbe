/* SPDX-License-Identifier: Apache-2.0 */
/* The layer-wise schedule compared with an exhaustive search. If this breaks, exchanges wait that
 * could hide. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <cmocka.h>
#include "kernels/base/rng.h"
#include "outer/plan/dreamddp.h"

enum { LAYERS = 10 };

/* What training waits in one iteration that exchanges layers first..end-1: they go out one after
 * the other, none before its gradient is there. */
static double waits(const struct dreamddp_layer *l, unsigned layers, unsigned first, unsigned end)
{
    double ready = 0, queue = 0, total = 0;
    for (unsigned i = 0; i < layers; i++)
        total += l[i].backward_s;
    for (unsigned i = 0; i < end; i++) {
        ready += l[i].backward_s;
        if (i >= first)
            queue = fmax(queue, ready) + l[i].exchange_s;
    }
    return fmax(0, queue - total);
}

/* Least wait of all ways to cut layers first.. into at most `left` runs. */
static double exhaustive(const struct dreamddp_layer *l, unsigned layers, unsigned first,
                         unsigned left)
{
    double best = INFINITY;
    if (first == layers)
        return 0;
    if (left == 0)
        return INFINITY;
    for (unsigned end = first + 1; end <= layers; end++)
        best = fmin(best, waits(l, layers, first, end) + exhaustive(l, layers, end, left - 1));
    return best;
}

static void test_as_good_as_exhaustive(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct dreamddp_layer l[LAYERS];
        unsigned at[LAYERS], iterations = 1 + (unsigned)(seed % 6);
        double wait, scale = 0.2 * (double)(1 + seed % 7); /* from hidden with ease to hopeless */
        for (unsigned i = 0; i < LAYERS; i++)
            l[i] = (struct dreamddp_layer){rng_unit(seed, RNG_TEST, 2 * i),
                                           scale * rng_unit(seed, RNG_TEST, 2 * i + 1)};
        assert_int_equal(dreamddp_place(l, LAYERS, iterations, at, &wait), ERR_OK);
        double again = 0;
        for (unsigned first = 0, end; first < LAYERS; first = end) {
            for (end = first; end < LAYERS && at[end] == at[first]; end++)
                ;
            assert_true(first == 0 ? at[0] == 0 : at[first] == at[first - 1] + 1);
            assert_true(at[first] < iterations);
            again += waits(l, LAYERS, first, end);
        }
        assert_true(fabs(again - wait) < 1e-9);
        assert_true(fabs(wait - exhaustive(l, LAYERS, 0, iterations)) < 1e-9);
    }
}

/* What training waits in one iteration that exchanges layers 0..again-1 and first..end-1. */
static double waits_filled(const struct dreamddp_layer *l, unsigned layers, unsigned again,
                           unsigned first, unsigned end)
{
    double ready = 0, queue = 0, total = 0;
    for (unsigned i = 0; i < layers; i++)
        total += l[i].backward_s;
    for (unsigned i = 0; i < end; i++) {
        ready += l[i].backward_s;
        if (i < again || i >= first)
            queue = fmax(queue, ready) + l[i].exchange_s;
    }
    return fmax(0, queue - total);
}

/* Every model of 1 to 10 layers, every exchange time of a grid on it: fill-in changes no wait, and
 * one layer more would not have ended before the first scheduled one was ready. */
static void test_fill_in_waits_for_nothing(void **state)
{
    (void)state;
    static const double times[] = {0, 0.25, 0.5, 1, 2};
    unsigned long added = 0, cases = 0;
    for (unsigned layers = 1; layers <= LAYERS; layers++)
        for (unsigned code = 0; code < 625; code++)
            for (unsigned iterations = 1; iterations <= layers; iterations++) {
                struct dreamddp_layer l[LAYERS];
                unsigned at[LAYERS], again[LAYERS], pattern = code;
                double wait;
                for (unsigned i = 0; i < layers; i++, pattern = pattern / 5 + pattern % 5 * 125)
                    l[i] =
                        (struct dreamddp_layer){0.5 + 0.25 * (double)(i % 3), times[pattern % 5]};
                assert_int_equal(dreamddp_place(l, layers, iterations, at, &wait), ERR_OK);
                dreamddp_fill(l, layers, at, iterations, again);
                for (unsigned first = 0, end; first < layers; first = end) {
                    double until = 0, queue = 0, ready = 0;
                    unsigned n = again[at[first]];
                    for (end = first; end < layers && at[end] == at[first]; end++)
                        ;
                    assert_true(n <= first);
                    assert_true(waits_filled(l, layers, n, first, end) ==
                                waits(l, layers, first, end));
                    for (unsigned i = 0; i <= first; i++)
                        until += l[i].backward_s;
                    for (unsigned i = 0; i <= n && i < first; i++) {
                        ready += l[i].backward_s;
                        queue = fmax(queue, ready) + l[i].exchange_s;
                        assert_int_equal(queue <= until, i < n);
                    }
                    added += n;
                }
                for (unsigned i = at[layers - 1] + 1; i < iterations; i++)
                    assert_int_equal(again[i], 0);
                cases++;
            }
    assert_true(added > cases); /* it adds exchanges: more than one for each schedule */
}

static void test_one_iteration_takes_all(void **state)
{
    (void)state;
    struct dreamddp_layer l[3] = {{1, 1}, {1, 1}, {1, 1}};
    unsigned at[3];
    double wait;
    assert_int_equal(dreamddp_place(l, 3, 1, at, &wait), ERR_OK);
    assert_true(at[0] == 0 && at[1] == 0 && at[2] == 0);
    assert_true(wait == 1); /* ready at 1, 2, 3; sent by 2, 3, 4; backward ends at 3 */
    assert_int_equal(dreamddp_place(l, 3, 3, at, &wait), ERR_OK);
    assert_true(wait ==
                1); /* the last gradient is ready when nothing is left to hide its exchange */
    l[1].exchange_s =
        2; /* all at once would wait for 5 - 3; the second iteration hides nothing of l[2] */
    assert_int_equal(dreamddp_place(l, 3, 3, at, &wait), ERR_OK);
    assert_true(wait == 2);
    l[0].exchange_s = 2; /* 3, then 2 more: alone each waits 0, 1, 1 */
    assert_int_equal(dreamddp_place(l, 3, 3, at, &wait), ERR_OK);
    assert_true(at[0] == 0 && at[1] == 1 && at[2] == 2 && wait == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_good_as_exhaustive),
                                       cmocka_unit_test(test_fill_in_waits_for_nothing),
                                       cmocka_unit_test(test_one_iteration_takes_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
