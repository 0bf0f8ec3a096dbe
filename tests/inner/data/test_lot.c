/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a step holds other units than those that are accounted, and every
 * claim about them is false. */
#include "tests/inner/scratch.h"
#include <math.h>
#include "inner/data/lot.h"

static void key_of(uint64_t number, uint8_t key[CHACHA_KEY_BYTES])
{
    memset(key, 7, CHACHA_KEY_BYTES);
    memcpy(key, &number, sizeof number);
}

/* Step `step` of a site whose units have one window each, or those of `first`. */
static struct lot lot_of(enum privacy_sampling how, const struct units *u, uint64_t expected,
                         uint64_t bands, uint64_t step)
{
    static uint8_t key[CHACHA_KEY_BYTES], bin_key[CHACHA_KEY_BYTES];
    struct lot_sizes sizes = {.records = u->count, .expected = expected, .bands = bands};
    struct lot l;
    sizes.bins = lot_bins(how, &sizes);
    assert_int_equal(lot_check(how, &sizes), ERR_OK);
    key_of(step, key);
    key_of(UINT64_MAX, bin_key);
    lot_begin(
        &l,
        &(struct lot_options){
            .how = how, .sizes = sizes, .units = u, .index = step, .key = key, .bin_key = bin_key});
    return l;
}

/* ---- windows of a unit ---- */
/* 2 of 5 windows: each of the ten pairs as often, in one unit as in the other, and independently.
 */
static void a_unit_has_some_of_its_windows(void **state)
{
    enum { STEPS = 20000 };
    static uint64_t first[] = {0, 5, 10, 12, 15};
    const struct units u = {.count = 4, .first = first};
    double pairs[2][25] = {{0}}, together = 0;
    (void)state;
    for (uint64_t step = 0; step < STEPS; step++) {
        uint64_t w[2][4];
        struct lot l = lot_of(PRIVACY_SAMPLING_POISSON, &u, 1, 1, step);
        for (uint64_t unit = 0; unit < 2; unit++) {
            assert_int_equal(lot_windows(&l, unit, 2, w[unit]), 2);
            assert_true(w[unit][0] < w[unit][1] && w[unit][0] >= 5 * unit &&
                        w[unit][1] < 5 * unit + 5);
            pairs[unit][(w[unit][0] - 5 * unit) * 5 + w[unit][1] - 5 * unit]++;
        }
        together += w[0][0] == w[1][0] - 5 && w[0][1] == w[1][1] - 5;
        assert_int_equal(lot_windows(&l, 2, 2, w[0]), 2);
        assert_true(w[0][0] == 10 && w[0][1] == 11);
        assert_int_equal(lot_windows(&l, 3, 4, w[0]), 3);
    }
    for (int unit = 0; unit < 2; unit++) {
        double chi = 0;
        int choices = 0;
        for (int i = 0; i < 25; i++) {
            choices += pairs[unit][i] > 0;
            chi += i % 5 > i / 5 ? pow(pairs[unit][i] - STEPS / 10, 2) / (STEPS / 10.0) : 0;
        }
        assert_int_equal(choices, 10);
        assert_true(chi < 34); /* 9 degrees of freedom: 1e-4 */
    }
    assert_true(fabs(together - STEPS / 10.0) < 4 * sqrt(STEPS * 0.1 * 0.9));
}

/* ---- poisson ---- */
/* Each unit comes with probability expected / units, with any number of windows. */
static void units_are_sampled_as_such(void **state)
{
    enum { STEPS = 20000 };
    static uint64_t first[] = {0, 1, 9, 10, 30, 31};
    const struct units u = {.count = 5, .first = first};
    double in[5] = {0}, both = 0;
    (void)state;
    for (uint64_t step = 0; step < STEPS; step++) {
        bool is[5] = {false};
        struct lot l = lot_of(PRIVACY_SAMPLING_POISSON, &u, 2, 1, step);
        for (uint64_t unit; lot_next(&l, &unit);)
            is[unit] = true;
        for (int i = 0; i < 5; i++)
            in[i] += is[i];
        both += is[1] && is[3];
    }
    for (int i = 0; i < 5; i++)
        assert_true(fabs(in[i] - 0.4 * STEPS) < 4 * sqrt(STEPS * 0.4 * 0.6));
    assert_true(fabs(both - 0.16 * STEPS) < 4 * sqrt(STEPS * 0.16 * 0.84));
}

/* ---- balls in bins ---- */
/* A unit is in one of `bins` successive steps, and returns after exactly as many; bins are uniform
 * and independent. */
static void a_ball_is_in_one_bin(void **state)
{
    enum { UNITS = 20000, BINS = 50 };
    static uint64_t at[UNITS], size[BINS];
    const struct units u = {.count = UNITS};
    double chi = 0, neighbours = 0;
    (void)state;
    memset(at, 0xff, sizeof at);
    for (uint64_t step = 0; step < 3 * BINS; step++) {
        struct lot l = lot_of(PRIVACY_SAMPLING_BALLS, &u, UNITS / BINS, 1, step);
        uint64_t count = 0;
        assert_int_equal(l.o.sizes.bins, BINS);
        for (uint64_t unit; lot_next(&l, &unit); count++) {
            assert_true(step >= BINS || at[unit] == UINT64_MAX);
            at[unit] = step < BINS ? step : at[unit];
            assert_int_equal(at[unit], step % BINS);
        }
        size[step % BINS] = step < BINS ? count : size[step % BINS];
        assert_int_equal(count, size[step % BINS]);
    }
    for (int i = 0; i < UNITS; i++) {
        assert_true(at[i] < BINS);
        neighbours += i && at[i] == at[i - 1];
    }
    for (int i = 0; i < BINS; i++)
        chi += pow((double)size[i] - UNITS / BINS, 2) / (UNITS / BINS);
    assert_true(chi < 49 + 4.5 * sqrt(2 * 49.0));
    assert_true(fabs(neighbours - UNITS / (double)BINS) < 4.5 * sqrt(UNITS / (double)BINS));
}

/* ---- cyclic ---- */
/* A unit is in steps of its part alone, there by a coin of bands times the mean rate. */
static void a_part_is_sampled_in_turn(void **state)
{
    enum { UNITS = 600, BANDS = 4, EXPECTED = 30, STEPS = 8000 };
    static double in[UNITS], again[UNITS];
    static int part[UNITS];
    static bool before[UNITS];
    const struct units u = {.count = UNITS};
    double size = 0, parts[BANDS] = {0}, rate = (double)BANDS * EXPECTED / UNITS;
    double turns = STEPS / BANDS;
    (void)state;
    memset(part, -1, sizeof part);
    for (uint64_t step = 0; step < STEPS; step++) {
        struct lot l = lot_of(PRIVACY_SAMPLING_CYCLIC, &u, EXPECTED, BANDS, step);
        bool now[UNITS] = {false};
        for (uint64_t unit; lot_next(&l, &unit); size++) {
            assert_true(part[unit] < 0 || part[unit] == (int)(step % BANDS));
            part[unit] = (int)(step % BANDS);
            in[unit]++;
            now[unit] = true;
        }
        for (int i = 0; i < UNITS; i++)
            if (part[i] == (int)(step % BANDS)) {
                again[i] += now[i] && before[i];
                before[i] = now[i];
            }
    }
    assert_true(fabs(size / STEPS - EXPECTED) < 0.2);
    for (int i = 0; i < UNITS; i++) {
        parts[part[i]]++;
        assert_true(fabs(in[i] - turns * rate) < 5 * sqrt(turns * rate * (1 - rate)));
        assert_true(fabs(again[i] - turns * rate * rate) < 6 * sqrt(turns * rate * rate));
    }
    for (int k = 0; k < BANDS; k++)
        assert_true(fabs(parts[k] - UNITS / BANDS) < 4.5 * sqrt(UNITS / BANDS));
}

/* ---- what is claimed ---- */
static void an_account_is_that_of_the_sampling(void **state)
{
    const struct lot_sizes s = {.records = 1000, .expected = 10, .bands = 8, .bins = 100};
    (void)state;
    struct lot_account a = lot_account(PRIVACY_SAMPLING_POISSON, &s, 301);
    assert_true(a.claimed && a.rate == 0.01 && a.steps == 301);
    a = lot_account(PRIVACY_SAMPLING_BALLS, &s, 301);
    assert_true(a.claimed && a.rate == 1 && a.steps == 4);
    a = lot_account(PRIVACY_SAMPLING_CYCLIC, &s, 301);
    assert_true(a.claimed && a.rate == 0.08 && a.steps == 38);
    assert_false(lot_account(PRIVACY_SAMPLING_FIXED, &s, 301).claimed);
}

static void what_cannot_be_drawn_is_refused(void **state)
{
    static const struct {
        enum privacy_sampling how;
        struct lot_sizes sizes;
        const char *says;
    } cases[] = {
        {PRIVACY_SAMPLING_POISSON, {10, 10, 1, 0}, "a step may not hold all"},
        {PRIVACY_SAMPLING_BALLS, {19, 10, 1, 0}, "there is one bin"},
        {PRIVACY_SAMPLING_BALLS, {79, 10, 8, 0}, "use privacy.bands = 7 or less"},
        {PRIVACY_SAMPLING_CYCLIC, {80, 10, 8, 0}, "use privacy.bands = 7 or less"},
        {PRIVACY_SAMPLING_CYCLIC, {8, 10, 8, 0}, "a step may not hold all"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(lot_check(cases[i].how, &cases[i].sizes), ERR_CONFIG);
        assert_says(cases[i].says);
    }
    assert_int_equal(lot_check(PRIVACY_SAMPLING_BALLS, &(struct lot_sizes){80, 10, 8, 0}), ERR_OK);
    assert_int_equal(lot_check(PRIVACY_SAMPLING_CYCLIC, &(struct lot_sizes){90, 10, 8, 0}), ERR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_has_some_of_its_windows),
        cmocka_unit_test(units_are_sampled_as_such),
        cmocka_unit_test(a_ball_is_in_one_bin),
        cmocka_unit_test(a_part_is_sampled_in_turn),
        cmocka_unit_test(an_account_is_that_of_the_sampling),
        cmocka_unit_test(what_cannot_be_drawn_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
