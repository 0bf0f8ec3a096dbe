/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: two sites send different rounds after one step. Every question
 * about a fragment's own steps against a list of them that is written out step by step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "kernels/base/rng.h"
#include "outer/diloco/period.h"

enum { STEPS = 2000, ROUNDS = STEPS };
static int64_t list[ROUNDS], lengths[ROUNDS];
static uint64_t count;

static void list_make(const struct period *p)
{
    int64_t length = p->every, base = p->offset, before = p->offset;
    uint64_t at_length = 0;
    if (p->more_count) /* the last one of the period that would be before */
        before = p->offset + p->more[p->more_count - 1];
    count = 0;
    for (;;) {
        base += length;
        for (unsigned k = 0; k <= p->more_count; k++) {
            int64_t step = base + (k ? p->more[k - 1] : 0);
            if (step > STEPS)
                return;
            lengths[count] = step - before;
            list[count++] = before = step;
        }
        if (p->growth.rounds && ++at_length == (uint64_t)p->growth.rounds) {
            at_length = 0;
            length *= p->growth.factor;
            length = length > p->growth.most ? p->growth.most : length;
        }
    }
}

static void compare(const struct period *p)
{
    uint64_t rounds = 0;
    list_make(p);
    for (uint64_t t = 0; t < count; t++) {
        assert_int_equal(period_step(p, t), list[t]);
        assert_int_equal(period_length(p, t), lengths[t]);
        assert_true(period_length(p, t) >= period_shortest(p));
    }
    for (int64_t step = 0; step <= STEPS; step++) {
        bool ends = rounds < count && list[rounds] == step;
        rounds += ends;
        assert_int_equal(period_rounds(p, step), rounds);
        assert_int_equal(period_ends(p, step), ends);
    }
}

static void plain_and_growing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct period p = {.every = 1 + (int64_t)rng_below(seed, RNG_TEST, 0, 40)};
        p.offset = (int64_t)rng_below(seed, RNG_TEST, 1, (uint64_t)(2 * p.every)) - p.every + 1;
        if (seed % 2)
            p.growth = (struct period_growth){
                1 + (int64_t)rng_below(seed, RNG_TEST, 2, 5),
                2 + (int64_t)rng_below(seed, RNG_TEST, 3, 3),
                p.every + (int64_t)rng_below(seed, RNG_TEST, 4, 10 * (uint64_t)p.every)};
        compare(&p);
    }
}

static void several_in_a_period(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct period p = {.every = 8 + (int64_t)rng_below(seed, RNG_TEST, 0, 40)};
        p.offset = (int64_t)rng_below(seed, RNG_TEST, 1, (uint64_t)p.every) - p.every + 1;
        for (int64_t more = 1; more < p.every && p.more_count < PERIOD_MORE_MAX; more++)
            if (!rng_below(seed, RNG_TEST, 100 + (uint64_t)more, 6))
                p.more[p.more_count++] = more;
        compare(&p);
    }
}

/* The published form: 2 rounds each of 5, 10, 20, then 40 for ever. */
static void grows_as_it_says(void **state)
{
    (void)state;
    const struct period p = {.every = 5, .growth = {2, 2, 40}};
    static const int64_t want[] = {5, 10, 20, 30, 50, 70, 110, 150, 190, 230};
    for (uint64_t t = 0; t < sizeof want / sizeof *want; t++)
        assert_int_equal(period_step(&p, t), want[t]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_and_growing),
        cmocka_unit_test(several_in_a_period),
        cmocka_unit_test(grows_as_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
