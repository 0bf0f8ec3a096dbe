/* SPDX-License-Identifier: Apache-2.0 */
/* The published values of other accountants (O1 to O16 of tests/golden/privacy/README.md),
 * monotony, and the noise for an epsilon. If this breaks, an epsilon that is printed is not the one
 * of the mechanism. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/base/rng.h"
#include "outer/budget/accountant.h"
#include "outer/budget/gaussian.h"
#include "outer/budget/pld.h"
#include "outer/budget/rdp.h"

enum { ORDERS_MAX = 60000 };
static double orders[ORDERS_MAX], rdp[ORDERS_MAX];

/* The document's line of an oracle holds the value: "| O1 | case | published | value |". */
static void in_document(const char *id, double value)
{
    char line[600], head[16], text[32];
    bool found = false;
    FILE *f = fopen("tests/golden/privacy/README.md", "r");
    assert_non_null(f);
    snprintf(head, sizeof head, "| %s |", id);
    snprintf(text, sizeof text, " %.9g |", value);
    while (!found && fgets(line, sizeof line, f))
        found = strncmp(line, head, strlen(head)) == 0 && strstr(line, text);
    fclose(f);
    if (!found)
        fail_msg("tests/golden/privacy/README.md: no line \"%s ...%s\"", head, text);
}

/* Within half a unit of the last published digit, or 1e-9, of the value. */
static void matches(const char *id, double value, double published, double unit)
{
    if (!(fabs(value - published) <= unit / 2 + 1e-9 * fabs(published)))
        fail_msg("%s: %.15g, published %.15g", id, value, published);
}

static size_t orders_range(size_t count, double from, double to, double step)
{
    for (long i = 0; from + (double)i * step <= to + step / 2; i++)
        orders[count++] = from + (double)i * step;
    return count;
}

static double epsilon_rdp(const struct sampled_steps *s, size_t settings, size_t count,
                          double delta, double best)
{
    double order, e;
    rdp_compose(rdp, orders, count, s, settings);
    e = rdp_epsilon(orders, rdp, count, delta, &order);
    if (best > 0)
        assert_true(fabs(order - best) < 1e-9);
    return e;
}

static double epsilon_shipped(struct sampled_steps s, double delta, double best)
{
    struct accountant a;
    assert_int_equal(accountant_epsilon(&a, &s, 1, delta), ERR_OK);
    assert_true(a.order == best);
    return a.epsilon[ACCOUNTANT_RDP];
}

/* The orders of TF-Privacy and dp-accounting. */
static size_t orders_tf(void)
{
    size_t n = orders_range(orders_range(0, 1.1, 10.9, 0.1), 11, 63, 1);
    for (double o = 128; o <= 1024; o *= 2)
        orders[n++] = o;
    return n;
}

static void test_rdp_oracles(void **state)
{
    (void)state;
    const struct sampled_steps o1 = {0.04, 1.5, 2250}, o2[] = {{1e-5, 1, 10}, {1e-4, 3, 4}},
                               o3 = {150. / 60000, 1.3, 6000}, o4 = {1e-3, 1, 30000};
    size_t n = orders_range(orders_range(0, 1.1, 10.9, 0.1), 12, 63, 1);
    double e = epsilon_rdp(&o1, 1, n, 1e-5, 3.9);
    matches("O1", e, 7.32911117143, 1e-10); /* Opacus rounds elsewhere in its eleventh digit */
    matches("O1", e, 7.32911117148, 0);
    in_document("O1", e);

    n = orders_range(0, 2, 32, 1);
    e = epsilon_rdp(o2, 2, n, 1e-5, 23);
    matches("O2", e, 0.336, 1e-3);
    matches("O2", e, 0.336344063393, 0);
    in_document("O2", e);

    e = epsilon_rdp(&o3, 1, orders_tf(), 1e-5, 19);
    matches("O3", e, 0.7242234026109595, 0);
    in_document("O3", e);
    e = epsilon_rdp(&o4, 1, orders_tf(), 1e-7, 13);
    matches("O4", e, 1.4154988495444842, 0);
    in_document("O4", e);

    n = orders_range(0, 2, 32, 1);
    for (size_t i = 0; i < n; i++)
        rdp[i] = 1.1;
    double order;
    e = rdp_epsilon(orders, rdp, n, 1e-5, &order);
    matches("O6", e, 1.32783806176, 1e-11);
    matches("O6", e, 1.327838061755, 0);
    assert_true(order == 32);
    in_document("O6", e);
}

static void test_rdp_of_orders(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        double alpha, published, unit, value;
    } rows[] = {{"O5a", 5, 2.18075656e-3, 1e-11, 2.18075656231e-3},
                {"O5b", 50, 2.38460375e-2, 1e-10, 2.38460375387e-2},
                {"O5c", 100, 167.416308, 1e-6, 167.416307548}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double value = 50 * rdp_step(0.01, 2.5, rows[i].alpha);
        matches(rows[i].id, value, rows[i].published, rows[i].unit);
        matches(rows[i].id, value, rows[i].value, 0);
        in_document(rows[i].id, value);
    }
    double e = rdp_step(0.01, 1.1, 2);
    matches("O14", e, 1.2851008160516e-4, 0);
    matches("O14", e, log1p(1e-4 * expm1(1 / 1.21)), 0);
    in_document("O14", e);
}

/* dp-accounting's fractional orders take the absolute value of each binomial. It publishes values
 * that are too high; the sums with the signs are ours. */
static void test_lost_sign(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        double alpha, published, value;
    } rows[] = {{"O5d", 1.5, 6.70579741e-4, 6.50070897e-4},
                {"O5e", 2.5, 1.08548710e-3, 1.08541806e-3}};
    for (size_t i = 0; i < 2; i++) {
        double value = 50 * rdp_step(0.01, 2.5, rows[i].alpha);
        matches(rows[i].id, value, rows[i].value, 1e-8 * rows[i].value);
        assert_true(value < rows[i].published);
        in_document(rows[i].id, value);
    }
    const struct sampled_steps o12 = {0.01, 0.7, 120};
    double e = epsilon_rdp(&o12, 1, orders_tf(), 1e-5, 0), pld;
    matches("O12", e, 3.239192194, 1e-9);
    assert_true(e < 3.2392676);
    in_document("O12", e);
    assert_int_equal(pld_epsilon(&pld, &o12, 1, 1e-5), ERR_OK);
    assert_true(fabs(pld - 2.4612381) < 2e-5);
    in_document("O12p", round(pld * 1e5) / 1e5);
    const struct sampled_steps o13 = {0.2, 0.5, 3};
    double delta;
    assert_int_equal(pld_delta(&delta, &o13, 1, 1), ERR_OK);
    assert_true(fabs(delta - 0.15594) < 1e-3);
    in_document("O13", round(delta * 1e5) / 1e5);
}

static void test_gaussian_oracles(void **state)
{
    (void)state;
    const struct sampled_steps o7 = {1, 4.530877117, 1}, o8 = {1, 0.7, 2}, o9 = {1, 0.35, 2},
                               o10 = {1, 1, 5};
    double e = epsilon_rdp(&o7, 1, orders_range(0, 1.001, 60, 0.001), 1e-6, 0);
    matches("O7", e, 1, 1e-9);
    matches("O7", e, 1.000000000268, 0);
    in_document("O7", e);

    static const struct {
        const char *rdp_id, *id;
        double delta, rdp, rdp_unit, rdp_value, pld, pld_unit, exact;
    } rows[] = {{"O8", "O8x", 1e-5, 10.8602036, 1e-7, 10.860203574, 10.1224946, 1e-7, 10.122494584},
                {"O9", "O9x", 1e-5, 26.2880374, 1e-7, 26.288037360, 24.7160779, 1e-7, 24.716077860},
                {"O10", "O10x", 1e-6, 13.376, 1e-3, 13.376379163, 12.595, 1e-3, 12.595246736}};
    const struct sampled_steps *s[] = {&o8, &o9, &o10};
    for (size_t i = 0; i < 3; i++) {
        double mu = sqrt((double)s[i]->steps) / s[i]->noise;
        e = epsilon_rdp(s[i], 1, orders_tf(), rows[i].delta, 0);
        matches(rows[i].rdp_id, e, rows[i].rdp, rows[i].rdp_unit);
        matches(rows[i].rdp_id, e, rows[i].rdp_value, 1e-9);
        in_document(rows[i].rdp_id, e);
        e = gaussian_epsilon(mu, rows[i].delta);
        matches(rows[i].id, e, rows[i].pld, rows[i].pld_unit);
        matches(rows[i].id, e, rows[i].exact, 1e-9);
        in_document(rows[i].id, e);
    }
    for (double mu = 1e-7; mu < 3; mu *= 2) /* nothing cancels where mu is small */
        assert_true(fabs(gaussian_delta(mu, 0) / erf(mu / sqrt(8)) - 1) < 1e-12);
    e = gaussian_delta(1, 1); /* sqrt(3) / sqrt(3) */
    matches("O11", e, 0.126936, 1e-5 / 5);
    matches("O11", e, 0.126936737507, 0);
    in_document("O11", e);
}

static void test_shipped_orders(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        struct sampled_steps s;
        double delta, value, order;
    } rows[] = {{"O15a", {0.01, 1.1, 1000}, 1e-5, 1.7252908180, 9},
                {"O15b", {0.001, 0.8, 10000}, 1e-6, 1.7201228859, 8},
                {"O15c", {0.1, 2, 500}, 1e-5, 6.0895031111, 4},
                {"O15d", {0.0625, 4, 2000}, 1e-5, 3.2384265782, 7}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double e = epsilon_shipped(rows[i].s, rows[i].delta, rows[i].order);
        matches(rows[i].id, e, rows[i].value, 1e-10);
        in_document(rows[i].id, e);
    }
}

static void test_exact_noise(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        int64_t steps;
        double epsilon, noise;
    } rows[] = {
        {"O16a", 1, 1, 3.7306},      {"O16b", 1, 3, 1.3906},     {"O16c", 1, 8, 0.6002},
        {"O16d", 100, 1, 37.3063},   {"O16e", 100, 3, 13.9059},  {"O16f", 100, 8, 6.0023},
        {"O16g", 1000, 1, 117.9729}, {"O16h", 1000, 3, 43.9744}, {"O16i", 1000, 8, 18.9809}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double noise;
        assert_int_equal(
            accountant_noise(&noise, &(struct accountant_goal){1, rows[i].steps, 1e-5,
                                                               rows[i].epsilon, .spent_count = 0}),
            ERR_OK);
        matches(rows[i].id, noise, rows[i].noise, 1e-4);
        in_document(rows[i].id, noise);
        double back = gaussian_epsilon(sqrt((double)rows[i].steps) / noise, 1e-5);
        assert_true(back <= rows[i].epsilon && back > rows[i].epsilon * (1 - 1e-9));
    }
}

/* Epsilon falls with noise, rises with steps and rate: every method, 24 random points. */
static void test_monotone(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 24; i++) {
        double u[4];
        for (uint64_t k = 0; k < 4; k++)
            u[k] = rng_unit(31, RNG_TEST, 4 * i + k);
        struct sampled_steps s = {pow(10, -2.5 * u[0]) * 0.8, 0.5 * pow(20, u[1]),
                                  (int64_t)pow(10, 3 * u[2])};
        double delta = pow(10, -4 - 5 * u[3]);
        struct accountant base, noisier, longer, fuller;
        assert_int_equal(accountant_epsilon(&base, &s, 1, delta), ERR_OK);
        struct sampled_steps t = s;
        t.noise *= 1.05;
        assert_int_equal(accountant_epsilon(&noisier, &t, 1, delta), ERR_OK);
        t = s;
        t.steps += 1 + t.steps / 20;
        assert_int_equal(accountant_epsilon(&longer, &t, 1, delta), ERR_OK);
        t = s;
        t.q *= 1.05;
        assert_int_equal(accountant_epsilon(&fuller, &t, 1, delta), ERR_OK);
        for (enum accountant_method m = ACCOUNTANT_PLD; m < ACCOUNTANT_METHODS; m++) {
            bool none = longer.epsilon[m] == 0 || fuller.epsilon[m] == 0; /* delta pays for all */
            assert_true(none || noisier.epsilon[m] == 0 || noisier.epsilon[m] < base.epsilon[m]);
            assert_true(none || longer.epsilon[m] > base.epsilon[m]);
            assert_true(none || fuller.epsilon[m] > base.epsilon[m]);
        }
        assert_true(base.epsilon[ACCOUNTANT_PLD] <= base.epsilon[ACCOUNTANT_RDP]);
        assert_true(base.holds == ACCOUNTANT_PLD && isnan(base.epsilon[ACCOUNTANT_EXACT]));
        assert_true(longer.unamplified >= base.unamplified);
        assert_true(noisier.unamplified < base.unamplified || base.unamplified == 0);
    }
}

/* Two settings of steps are what one setting of their sum is, for every method. */
static void test_composition(void **state)
{
    (void)state;
    const struct sampled_steps parts[] = {{0.02, 1.2, 300}, {0.02, 1.2, 200}, {0, 3, 50}},
                               whole = {0.02, 1.2, 500}, full[] = {{1, 5, 9}, {1, 10, 64}},
                               same = {1, 1, 1};
    struct accountant a, b;
    assert_int_equal(accountant_epsilon(&a, parts, 3, 1e-6), ERR_OK);
    assert_int_equal(accountant_epsilon(&b, &whole, 1, 1e-6), ERR_OK);
    assert_true(fabs(a.epsilon[ACCOUNTANT_RDP] / b.epsilon[ACCOUNTANT_RDP] - 1) < 1e-12);
    assert_true(fabs(a.epsilon[ACCOUNTANT_PLD] / b.epsilon[ACCOUNTANT_PLD] - 1) < 1e-9);
    assert_int_equal(a.participations, 10);
    assert_true(fabs(a.unamplified / gaussian_epsilon(sqrt(10) / 1.2, 1e-6) - 1) < 1e-12);
    const struct sampled_steps begun = {0.3, 2, 10}; /* at most once in 3 steps: 4 times */
    assert_int_equal(accountant_epsilon(&a, &begun, 1, 1e-6), ERR_OK);
    assert_int_equal(a.participations, 4);
    assert_true(a.unamplified == gaussian_epsilon(1, 1e-6));
    /* 9/25 + 64/100 = 1 */
    assert_int_equal(accountant_epsilon(&a, full, 2, 1e-6), ERR_OK);
    assert_int_equal(accountant_epsilon(&b, &same, 1, 1e-6), ERR_OK);
    assert_int_equal(a.holds, ACCOUNTANT_EXACT);
    for (int m = 0; m < ACCOUNTANT_METHODS; m++)
        assert_true(fabs(a.epsilon[m] / b.epsilon[m] - 1) < (m == ACCOUNTANT_PLD ? 1e-4 : 1e-12));
}

static void test_noise_for_epsilon(void **state)
{
    (void)state;
    static const struct {
        double q;
        int64_t steps;
        double delta, epsilon;
    } rows[] = {{0.01, 1000, 1e-5, 2},
                {0.04, 2250, 1e-5, 8},
                {0.3, 20, 1e-8, 0.5},
                {0.01, 1000, 1e-12, 0.001} /* no order of RDP is high enough */};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double noise;
        struct accountant at, below;
        assert_int_equal(
            accountant_noise(&noise,
                             &(struct accountant_goal){rows[i].q, rows[i].steps, rows[i].delta,
                                                       rows[i].epsilon, .spent_count = 0}),
            ERR_OK);
        struct sampled_steps s = {rows[i].q, noise, rows[i].steps};
        assert_int_equal(accountant_epsilon(&at, &s, 1, rows[i].delta), ERR_OK);
        s.noise *= 1 - 3e-4;
        assert_int_equal(accountant_epsilon(&below, &s, 1, rows[i].delta), ERR_OK);
        assert_true(at.epsilon[at.holds] <= rows[i].epsilon);
        assert_true(below.epsilon[below.holds] > rows[i].epsilon);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct accountant a;
    double noise;
    const struct sampled_steps good = {0.1, 1, 1}, rate = {1.1, 1, 1}, quiet = {0.1, 0.01, 1},
                               nan_rate = {NAN, 1, 1}, negative = {0.1, 1, -1};
    assert_int_equal(accountant_epsilon(&a, &good, 0, 1e-5), ERR_CONFIG);
    assert_int_equal(accountant_epsilon(&a, &good, 1, 0), ERR_CONFIG);
    assert_int_equal(accountant_epsilon(&a, &good, 1, 1), ERR_CONFIG);
    assert_int_equal(accountant_epsilon(&a, &good, 1, NAN), ERR_CONFIG);
    assert_int_equal(accountant_epsilon(&a, &rate, 1, 1e-5), ERR_CONFIG);
    assert_int_equal(accountant_epsilon(&a, &nan_rate, 1, 1e-5), ERR_CONFIG);
    assert_int_equal(accountant_epsilon(&a, &quiet, 1, 1e-5), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "noise multiplier is 0.01"));
    assert_int_equal(accountant_epsilon(&a, &negative, 1, 1e-5), ERR_CONFIG);
    assert_int_equal(
        accountant_noise(&noise, &(struct accountant_goal){0.1, 1, 1e-5, 0, .spent_count = 0}),
        ERR_CONFIG);
    assert_int_equal(accountant_noise(&noise, &(struct accountant_goal){1, 1000000000, 1e-12, 1e-6,
                                                                        .spent_count = 0}),
                     ERR_CONFIG);
    assert_non_null(strstr(err_message(), "allow a larger epsilon"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rdp_oracles),       cmocka_unit_test(test_rdp_of_orders),
        cmocka_unit_test(test_lost_sign),         cmocka_unit_test(test_gaussian_oracles),
        cmocka_unit_test(test_shipped_orders),    cmocka_unit_test(test_exact_noise),
        cmocka_unit_test(test_monotone),          cmocka_unit_test(test_composition),
        cmocka_unit_test(test_noise_for_epsilon), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
