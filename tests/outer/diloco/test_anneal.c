/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: two replicas take steps of different lengths in one round, or a
 * replay does. The outer rate against the library's cosine, the outer momentum against the bits of
 * tests/golden/momentum, and what stays when a run grows or is amended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "outer/diloco/anneal.h"

static void shapes(void **state)
{
    (void)state;
    struct anneal a = {.end = 0.25};
    assert_true(anneal_share(&a, 1) == 1);
    a.kind = ANNEAL_LINEAR;
    assert_true(anneal_share(&a, 0) == 1 && anneal_share(&a, 0.5) == 0.625 &&
                anneal_share(&a, 1) == 0.25);
    a.kind = ANNEAL_COSINE;
    for (int i = 0; i <= 1000; i++) {
        double x = i / 1000.0, want = 0.25 + 0.375 * (1 + cos(3.14159265358979323846 * x));
        assert_true(fabs(anneal_share(&a, x) - want) <= 1e-15);
    }
}

static void a_round_has_one_rate_for_ever(void **state)
{
    (void)state;
    const struct anneal a = {.kind = ANNEAL_LINEAR, .end = 0.5}, none = {.end = 0.5};
    struct schedule s = schedule_streaming(100, 10, 2, 1, CODEC_INT8), longer = s;
    assert_true(anneal_rate(&a, 1, &s, 0, 0) == 0.95f);  /* step 10 */
    assert_true(anneal_rate(&a, 1, &s, 1, 0) == 0.925f); /* step 15 */
    assert_true(anneal_rate(&a, 1, &s, 0, 9) == 0.5f);
    assert_true(anneal_rate(&none, 0.7f, &s, 0, 9) == 0.7f);
    longer.ends.count = 1;
    longer.ends.steps[0] = 100;
    longer.steps = 200;
    for (unsigned f = 0; f < 2; f++)
        for (uint64_t t = 0; t < schedule_rounds(&s, f); t++)
            assert_true(anneal_rate(&a, 0.7f, &s, f, t) == anneal_rate(&a, 0.7f, &longer, f, t));
    assert_true(anneal_rate(&a, 1, &longer, 0, 10) == 0.725f); /* step 110 of 200 */
    assert_true(anneal_restarts(&a, &longer, 0, 10));
    assert_false(anneal_restarts(&none, &longer, 0, 10));
}

static void restarts(void **state)
{
    (void)state;
    const struct anneal a = {.restart = 3};
    struct schedule s = schedule_streaming(100, 10, 1, 1, CODEC_INT8);
    for (uint64_t t = 0; t < 10; t++)
        assert_int_equal(anneal_restarts(&a, &s, 0, t), t == 3 || t == 6 || t == 9);
}

struct run { /* a line of values.txt */
    double start, mu, end;
    unsigned warmup, cooldown, every, fragments, steps, former, after, other, longer;
};

static bool run_read(FILE *f, struct run *r)
{
    return fscanf(f, "%lf %lf %lf %u %u %u %u %u %u %u %u %u", &r->start, &r->mu, &r->end,
                  &r->warmup, &r->cooldown, &r->every, &r->fragments, &r->steps, &r->former,
                  &r->after, &r->other, &r->longer) == 12;
}

static struct anneal anneal_of(const struct run *r)
{
    return (struct anneal){.warmup = r->warmup,
                           .cooldown = r->cooldown,
                           .momentum_start = (float)r->start,
                           .momentum_end = (float)r->end};
}

static struct schedule schedule_of(const struct run *r)
{
    struct schedule s = schedule_streaming(r->steps, r->every, r->fragments, 1, CODEC_INT8);
    if (r->former)
        s.ends.steps[s.ends.count++] = r->former;
    if (r->after)
        schedule_amend(&s, &(struct schedule_change){
                               .after = r->after, .every = r->other, .steps = r->longer});
    return s;
}

static void momentum_has_the_bits_of_the_fractions(void **state)
{
    (void)state;
    FILE *f = fopen("tests/golden/momentum/values.txt", "r");
    struct run r;
    unsigned cases = 0;
    assert_non_null(f);
    for (; run_read(f, &r); cases++) {
        struct anneal a = anneal_of(&r);
        struct schedule s = schedule_of(&r);
        for (unsigned p = 0; p < r.fragments; p++)
            for (uint64_t t = 0; t < schedule_rounds(&s, p); t++) {
                unsigned fragment, round, bits;
                float m = anneal_momentum(&a, (float)r.mu, &s, p, t), want;
                assert_int_equal(fscanf(f, "%u %u %x", &fragment, &round, &bits), 3);
                memcpy(&want, &bits, sizeof want);
                assert_true(fragment == p && round == t);
                if (memcmp(&m, &want, sizeof m) != 0)
                    fail_msg("case %u fragment %u round %u: %.9g, wanted %.9g", cases, p, round,
                             (double)m, (double)want);
            }
    }
    assert_int_equal(cases, 9);
    fclose(f);
}

/* What is known of a committed round later changes nothing of it: an amendment after its step, a
 * run that continues. */
static void a_round_has_one_momentum_for_ever(void **state)
{
    (void)state;
    const struct run r = {0.1, 0.9, 0.2, 5, 6, 12, 3, 120, 0, 84, 6, 300};
    struct run plain = r;
    plain.after = 0;
    const struct anneal a = anneal_of(&r);
    struct schedule s = schedule_of(&plain), amended = schedule_of(&r), longer = s;
    longer.ends.steps[longer.ends.count++] = 120;
    longer.steps = 240;
    for (unsigned p = 0; p < 3; p++)
        for (uint64_t t = 0; t < schedule_rounds(&s, p); t++) {
            float m = anneal_momentum(&a, 0.9f, &s, p, t);
            assert_true(m == anneal_momentum(&a, 0.9f, &longer, p, t));
            if (schedule_step(&s, p, t) <= 84)
                assert_true(m == anneal_momentum(&a, 0.9f, &amended, p, t));
        }
    assert_true(anneal_momentum(&a, 0.9f, &s, 0, 9) == 0.2f);
    assert_true(anneal_momentum(&a, 0.9f, &longer, 0, 10) == 0.9f); /* the same again after it */
}

static void rounds_are_counted(void **state)
{
    (void)state;
    struct schedule s = schedule_streaming(95, 10, 1, 1, CODEC_INT8); /* 10 rounds */
    struct anneal a = {.warmup = 4, .cooldown = 6};
    assert_int_equal(anneal_check(&a, &s), ERR_OK);
    a.cooldown = 7;
    assert_int_equal(anneal_check(&a, &s), ERR_CONFIG);
    assert_non_null(
        strstr(err_message(), "are 11 rounds, and the run has 10 with train.steps = 95"));
    err_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(a_round_has_one_rate_for_ever),
        cmocka_unit_test(restarts),
        cmocka_unit_test(momentum_has_the_bits_of_the_fractions),
        cmocka_unit_test(a_round_has_one_momentum_for_ever),
        cmocka_unit_test(rounds_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
