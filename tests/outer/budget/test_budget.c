/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a cap that lets steps through, a claim for other steps than those
 * that are charged, a list of charges that is added up wrongly. The epsilons themselves are those
 * of test_accountant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/base/file.h"
#include "outer/budget/banded.h"
#include "outer/budget/budget.h"

static const double DELTA = 1e-5;

static struct private_charge charge(double noise)
{
    static uint8_t number;
    number++;
    return (struct private_charge){.step = number - 1,
                                   .tag = {{number}},
                                   .records = 1000,
                                   .expected = 10,
                                   .noise = noise,
                                   .clip = 1,
                                   .unit = "sequence",
                                   .unit_sequences = 1,
                                   .bands = 1,
                                   .sampling = "poisson"};
}

static void add(struct budget *b, double noise, int64_t steps)
{
    struct private_charge c = charge(noise);
    for (int64_t i = 0; i < steps; i++) {
        c.step = b->steps;
        assert_int_equal(budget_add(b, &c), ERR_OK);
    }
}

static double epsilon_of(const struct budget *b, const struct budget_plan *p)
{
    struct accountant a;
    assert_int_equal(budget_epsilon(&a, b, p), ERR_OK);
    return a.epsilon[a.holds];
}

/* Charged and planned steps of equal settings are one setting: the accountant's own value for all
 * of them. */
static void charges_are_what_the_accountant_composes(void **state)
{
    (void)state;
    struct budget b = {.count = 0};
    const struct private_charge more = charge(1.1);
    const struct sampled_steps one = {0.01, 1.1, 1000},
                               two[2] = {{0.01, 1.1, 1000}, {0.01, 2, 300}};
    struct accountant a;
    add(&b, 1.1, 400);
    assert_true(b.count == 1 && b.steps == 400 && b.next == 400);
    assert_int_equal(accountant_epsilon(&a, &one, 1, DELTA), ERR_OK);
    assert_true(epsilon_of(&b, &(struct budget_plan){&more, 600, DELTA}) == a.epsilon[a.holds]);
    add(&b, 1.1, 600);
    assert_true(epsilon_of(&b, &(struct budget_plan){NULL, 0, DELTA}) == a.epsilon[a.holds]);
    add(&b, 2, 300);
    assert_true(b.count == 2 && b.settings[1].steps == 300);
    assert_int_equal(accountant_epsilon(&a, two, 2, DELTA), ERR_OK);
    assert_true(epsilon_of(&b, &(struct budget_plan){NULL, 0, DELTA}) == a.epsilon[a.holds]);
    struct private_charge counted = charge(2);
    counted.counted = 77; /* of a manifest */
    assert_int_equal(budget_add(&b, &counted), ERR_OK);
    assert_true(b.steps == 1377 && b.settings[1].counted == 77 && b.next == 1300);
    struct budget none = {.count = 0};
    assert_true(epsilon_of(&none, &(struct budget_plan){NULL, 0, DELTA}) == 0);
    assert_true(epsilon_of(&none, &(struct budget_plan){&more, 0, DELTA}) == 0);
}

/* The number of steps that a cap allows is the largest: with it epsilon is within, with one more it
 * is not. */
static void a_cap_allows_the_most_steps(void **state)
{
    (void)state;
    static const struct {
        int64_t spent;
        double noise, cap;
    } cases[] = {{0, 0.8, 3}, {50, 0.8, 4}, {300, 1.5, 3}, {10, 0.6, 1.2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct budget b = {.count = 0};
        const struct private_charge more = charge(0.7);
        int64_t left;
        add(&b, cases[i].noise, cases[i].spent);
        struct budget_plan p = {&more, 100000, DELTA};
        assert_int_equal(budget_left(&left, &b, &p, cases[i].cap), ERR_OK);
        print_message("cap %g after %lld steps: %lld more\n", cases[i].cap,
                      (long long)cases[i].spent, (long long)left);
        p.steps = left;
        assert_true(left == 0 || epsilon_of(&b, &p) <= cases[i].cap);
        p.steps = left + 1;
        assert_true(epsilon_of(&b, &p) > cases[i].cap);
        if (left) { /* fewer are planned than the cap allows */
            p.steps = left - 1;
            assert_int_equal(budget_left(&left, &b, &p, cases[i].cap), ERR_OK);
            assert_int_equal(left, p.steps);
        }
    }
}

/* The noise for what is left of a claim: kept with it, and missed with 1 % less. */
static void noise_is_for_what_is_left(void **state)
{
    (void)state;
    struct budget b = {.count = 0}, spent = {.count = 0};
    struct private_charge more = charge(0);
    struct budget_plan p = {&more, 500, DELTA};
    double whole, rest;
    assert_int_equal(budget_noise(&whole, &b, &p, 2), ERR_OK);
    more.noise = whole;
    assert_true(epsilon_of(&b, &p) <= 2 && epsilon_of(&b, &p) > 1.99);
    char text[32];
    snprintf(text, sizeof text, "%.5g", whole);
    assert_true(strtod(text, NULL) == whole); /* a person can repeat it */
    add(&spent, whole * 0.97, 200);
    p.steps = 300;
    if (budget_noise(&rest, &spent, &p, 2))
        fail_msg("%s", err_message());
    assert_true(rest > whole);
    more.noise = rest;
    assert_true(epsilon_of(&spent, &p) <= 2);
    more.noise = rest * 0.99;
    assert_true(epsilon_of(&spent, &p) > 2);
    assert_int_equal(budget_noise(&rest, &spent, &p, 0.5), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "charged already"));
}

/* Nothing is claimed for steps that are not sampled, and the unit of the whole is the smallest. */
static void what_is_claimed(void **state)
{
    (void)state;
    struct budget b = {.count = 0};
    struct private_charge more = charge(1), owner = charge(1);
    struct budget_plan p = {&more, 100, DELTA};
    struct accountant a;
    char text[BUDGET_SENTENCE_MAX];
    more.unit = privacy_unit_choices[PRIVACY_UNIT_OWNER].name;
    owner.unit = more.unit;
    assert_int_equal(budget_add(&b, &owner), ERR_OK);
    assert_null(budget_unclaimed(&b, &p));
    assert_string_equal(budget_unit(&b, &p), "owner");
    owner.unit = privacy_unit_choices[PRIVACY_UNIT_SEQUENCE].name;
    assert_int_equal(budget_add(&b, &owner), ERR_OK);
    assert_string_equal(budget_unit(&b, &p), "sequence");
    assert_int_equal(budget_epsilon(&a, &b, &p), ERR_OK);
    budget_sentence(text, &a, &b, &p);
    assert_non_null(strstr(text, "after 102 steps, unit = sequence, accountant = PLD, sampling = "
                                 "Poisson with q = 0.01 (implemented, not assumed)"));
    assert_non_null(strstr(text, "The epsilons of a person with records at several sites add up."));
    owner.records = 2000;
    assert_int_equal(budget_add(&b, &owner), ERR_OK);
    assert_true(budget_rate(&b, &p) == 0);
    budget_sentence(text, &a, &b, &p);
    assert_non_null(strstr(text, "Poisson with several rates"));
    owner.sampling = privacy_sampling_choices[PRIVACY_SAMPLING_FIXED].name;
    assert_int_equal(budget_add(&b, &owner), ERR_OK);
    assert_non_null(strstr(budget_unclaimed(&b, &p), "fixed"));
    struct budget none = {.count = 0};
    assert_null(budget_unclaimed(&none, &p));
    more.noise = 0.04;
    assert_non_null(strstr(budget_unclaimed(&none, &p), "below 0.05"));
}

/* ---- other samplings ---- */
static struct private_charge spaced(const char *sampling, uint64_t bands, uint64_t bins)
{
    struct private_charge c = charge(2);
    c.sampling = sampling;
    c.bands = bands;
    c.bins = bins;
    return c;
}

/* Balls in bins: exact values of as many Gaussians as a record has participations. */
static void balls_are_participations(void **state)
{
    struct private_charge c = spaced("balls", 4, 100), other = c;
    (void)state;
    for (int64_t steps = 99; steps <= 301; steps += 101) {
        struct budget b = {.count = 0};
        struct budget_plan p = {&c, steps, DELTA}, none = {NULL, 0, DELTA};
        struct accountant a;
        char text[BUDGET_SENTENCE_MAX];
        const struct sampled_steps want = {1, 2, (steps + 99) / 100};
        assert_int_equal(accountant_epsilon(&a, &want, 1, DELTA), ERR_OK);
        assert_true(epsilon_of(&b, &p) == a.epsilon[a.holds]);
        for (int64_t i = 0; i < steps; i++)
            assert_int_equal(budget_add(&b, &c), ERR_OK);
        assert_true(epsilon_of(&b, &none) == a.epsilon[a.holds]);
        assert_int_equal(budget_epsilon(&a, &b, &none), ERR_OK);
        budget_sentence(text, &a, &b, &none);
        assert_non_null(strstr(text, "sampling = balls in bins, each record once in 100 steps "
                                     "(implemented; no amplification is claimed); noise "
                                     "correlated over 4 steps. Neighbours"));
    }
    /* The steps ahead continue in the round that has begun: 99 and 1 are one participation. */
    struct budget b = {.count = 0};
    for (int i = 0; i < 99; i++)
        assert_int_equal(budget_add(&b, &c), ERR_OK);
    double one = epsilon_of(&b, &(struct budget_plan){&c, 1, DELTA});
    assert_true(one == epsilon_of(&b, &(struct budget_plan){NULL, 0, DELTA}));
    assert_true(epsilon_of(&b, &(struct budget_plan){&c, 2, DELTA}) > one);
    /* A setting that comes back has rounds of its own. */
    other.noise = 3;
    assert_int_equal(budget_add(&b, &other), ERR_OK);
    assert_int_equal(budget_add(&b, &c), ERR_OK);
    assert_int_equal(b.count, 3);
}

/* Cyclic Poisson sampling is as private as banded_cyclic says. */
static void cyclic_steps_are_fewer_and_larger(void **state)
{
    struct private_charge c = spaced("cyclic", 8, 8);
    struct budget b = {.count = 0};
    struct accountant a;
    const struct sampled_steps want = banded_cyclic(8, 0.01, 2, 1001);
    (void)state;
    assert_true(want.steps == 126 && want.q == 0.08);
    assert_int_equal(accountant_epsilon(&a, &want, 1, DELTA), ERR_OK);
    assert_true(epsilon_of(&b, &(struct budget_plan){&c, 1001, DELTA}) == a.epsilon[a.holds]);
    assert_true(budget_rate(&b, &(struct budget_plan){&c, 1001, DELTA}) == 0.08);
    double noise;
    assert_int_equal(budget_noise(&noise, &b, &(struct budget_plan){&c, 1001, DELTA}, 1), ERR_OK);
    c.noise = noise;
    double epsilon = epsilon_of(&b, &(struct budget_plan){&c, 1001, DELTA});
    assert_true(epsilon <= 1 && epsilon > 0.999);
}

/* What a list does not have is charged at the dearest setting that is known, in force or not.
 */
static void the_dearest_setting_is_taken(void **state)
{
    struct budget b = {.count = 0};
    struct private_charge c = charge(1), next = charge(5), out;
    (void)state;
    assert_int_equal(budget_add(&b, &c), ERR_OK);
    c = charge(3);
    assert_int_equal(budget_add(&b, &c), ERR_OK);
    assert_int_equal(budget_dearest(&out, &b, &(struct budget_plan){&next, 30, 1e-5}), ERR_OK);
    assert_true(out.noise == 1);
    next = charge(0.5);
    assert_int_equal(budget_dearest(&out, &b, &(struct budget_plan){&next, 30, 1e-5}), ERR_OK);
    assert_true(out.noise == 0.5);
}

static void a_file_of_charges(void **state)
{
    (void)state;
    char root[] = "/tmp/test_budget.XXXXXX", path[64], key[64];
    struct arena arena = arena_make(0);
    struct private_site site;
    struct budget b;
    assert_non_null(mkdtemp(root));
    snprintf(path, sizeof path, "%s/privacy.charges", root);
    snprintf(key, sizeof key, "%s/privacy.key", root);
    assert_int_equal(budget_read(&b, path, NULL), ERR_OK); /* of a site that has not begun */
    assert_true(b.count == 0 && b.steps == 0);
    const struct private_begun fresh = {.steps = false};
    assert_int_equal(private_open(&site, root, &fresh, &arena), ERR_OK);
    for (int i = 0; i < 70; i++) {
        struct private_charge c = charge(1 + i / 10);
        assert_int_equal(private_charge(&site, &c), ERR_OK);
    }
    const struct private_charge like = charge(7);
    assert_int_equal(private_count(&site, 100, &like), ERR_OK);
    assert_int_equal(budget_read(&b, path, NULL), ERR_OK);
    assert_true(b.count == 7 && b.steps == 100);
    assert_true(b.settings[0].steps == 10 && b.settings[0].charge.noise == 1);
    assert_true(b.settings[6].steps == 40 && b.settings[6].counted == 30);
    for (int i = 0; i < SAMPLED_SETTINGS_MAX; i++) {
        struct private_charge c = charge(20 + i);
        assert_int_equal(private_charge(&site, &c), ERR_OK);
    }
    assert_int_equal(budget_read(&b, path, NULL), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "64 different settings"));
    arena_free(&arena);
    assert_int_equal(file_remove_tree(root), ERR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(charges_are_what_the_accountant_composes),
        cmocka_unit_test(a_cap_allows_the_most_steps),
        cmocka_unit_test(noise_is_for_what_is_left),
        cmocka_unit_test(what_is_claimed),
        cmocka_unit_test(balls_are_participations),
        cmocka_unit_test(cyclic_steps_are_fewer_and_larger),
        cmocka_unit_test(a_file_of_charges),
        cmocka_unit_test(the_dearest_setting_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
