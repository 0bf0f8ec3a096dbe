/* SPDX-License-Identifier: Apache-2.0 */
/* Which step sends which round. If this breaks, sites wait for one another at different steps, or
 * the prediction of bytes is wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "outer/diloco/schedule.h"

static struct schedule plan(int64_t steps, int64_t every, unsigned fragments, uint64_t whole)
{
    return schedule_streaming(steps, every, fragments, whole, CODEC_INT8);
}

/* Written down by hand: H = 100, P = 2: fragment 1 starts at 150 (Streaming DiLoCo 2.2), and all at
 * the end. */
static void test_by_hand(void **state)
{
    (void)state;
    static const struct {
        int64_t step;
        unsigned fragment;
        uint64_t round;
    } expected[] = {{100, 0, 0}, {150, 1, 0}, {200, 0, 1}, {250, 1, 1}, {280, 0, 2}, {280, 1, 2}};
    struct schedule s = plan(280, 100, 2, 1);
    size_t k = 0;
    for (int64_t step = 0; step <= 300; step++)
        for (unsigned f = 0; f < 2; f++) {
            uint64_t round;
            if (!schedule_due(&s, step, f, &round))
                continue;
            assert_true(k < 6);
            assert_int_equal(step, expected[k].step);
            assert_int_equal(f, expected[k].fragment);
            assert_int_equal(round, expected[k].round);
            k++;
        }
    assert_int_equal(k, 6);
    assert_int_equal(schedule_next(&s, 0), 100);
    assert_int_equal(schedule_next(&s, 100), 150);
    assert_int_equal(schedule_next(&s, 250), 280);
    assert_int_equal(schedule_next(&s, 280), 0);
}

/* H = 10, three slices sent 2, 5 and 10 steps into every period, one of them three times as often.
 */
static void test_own_beats(void **state)
{
    (void)state;
    struct schedule s = {
        .steps = 24, .fragments = 4, .full_precision_rounds = 1, .full_precision = CODEC_BF16};
    s.period[0] =
        (struct schedule_period){.p = {.every = 10, .offset = 2 - 10}, .codec = CODEC_INT4};
    s.period[1] =
        (struct schedule_period){.p = {.every = 10, .offset = 5 - 10}, .codec = CODEC_INT4};
    s.period[2] = (struct schedule_period){.p = {.every = 10, .offset = 0}, .codec = CODEC_INT4};
    s.period[3] = (struct schedule_period){.p = {.every = 3, .offset = 0}, .codec = CODEC_BF16};
    static const int64_t sent[4][10] = {
        {2, 12, 22, 24}, {5, 15, 24}, {10, 20, 24}, {3, 6, 9, 12, 15, 18, 21, 24}};
    static const uint64_t rounds[4] = {4, 3, 3, 8};
    for (unsigned f = 0; f < 4; f++) {
        assert_int_equal(schedule_rounds(&s, f), rounds[f]);
        for (uint64_t r = 0; r < rounds[f]; r++)
            assert_int_equal(schedule_step(&s, f, r), sent[f][r]);
    }
    for (int64_t step = 0; step < 24; step++) {
        int64_t next = step + 1;
        uint64_t round;
        while (!schedule_due(&s, next, 0, &round) && !schedule_due(&s, next, 1, &round) &&
               !schedule_due(&s, next, 2, &round) && !schedule_due(&s, next, 3, &round))
            next++;
        assert_int_equal(schedule_next(&s, step), next);
    }
    assert_int_equal(schedule_reached(&s, (uint64_t[]){1, 0, 0, 0}), 2);
    assert_true(schedule_uses(&s, CODEC_INT4) && schedule_uses(&s, CODEC_BF16));
    assert_false(schedule_uses(&s, CODEC_F32) || schedule_uses(&s, CODEC_INT8));
}

/* Rounds of a fragment are 0, 1, 2, ... without a gap, the last one at the last step, no step
 * twice, and the functions agree with one another. */
static void consistent(const struct schedule *s)
{
    int64_t next = schedule_next(s, 0);
    uint64_t rounds[4] = {0}, round;
    for (int64_t step = 1; step <= s->steps; step++) {
        bool any = false;
        for (unsigned f = 0; f < s->fragments; f++) {
            if (!schedule_due(s, step, f, &round))
                continue;
            any = true;
            assert_int_equal(round, rounds[f]++);
            assert_int_equal(schedule_step(s, f, round), step);
        }
        if (any) {
            assert_int_equal(step, next);
            next = schedule_next(s, step);
        }
        /* Nothing is left over: the trainer may continue exactly from here. */
        assert_true(schedule_reached(s, rounds) <= step);
        assert_true(!any || schedule_reached(s, rounds) == step);
    }
    for (unsigned f = 0; f < s->fragments; f++) {
        assert_int_equal(schedule_rounds(s, f), rounds[f]);
        assert_true(rounds[f] >= 1);
        assert_int_equal(schedule_step(s, f, rounds[f] - 1), s->steps);
    }
    assert_int_equal(next, 0);
}

/* With any configuration; intervals that grow, and two sends in a period. */
static void test_consistent(void **state)
{
    (void)state;
    for (int64_t steps = 1; steps < 60; steps++)
        for (unsigned fragments = 1; fragments <= 4; fragments *= 2)
            for (int64_t every = fragments; every <= 16; every += fragments) {
                struct schedule s = plan(steps, every, fragments, 1), grown = s, twice = s;
                for (unsigned f = 0; f < fragments; f++) {
                    grown.period[f].p.growth = (struct period_growth){2, 2, 3 * every};
                    if (every > 1)
                        twice.period[f].p.more[twice.period[f].p.more_count++] = every / 2;
                }
                consistent(&s);
                consistent(&grown);
                consistent(&twice);
            }
}

/* Two rounds each of 5, 10 and 20 steps, then 40: nine rounds in 200 steps, and one more at the
 * end. A round's weight counts against its own length, and bytes are those of ten rounds. */
static void test_growing(void **state)
{
    (void)state;
    const size_t elements = 1024;
    static const int64_t sent[] = {5, 10, 20, 30, 50, 70, 110, 150, 190, 200},
                         length[] = {5, 5, 10, 10, 20, 20, 40, 40, 40, 40};
    struct schedule s = plan(200, 5, 1, 1);
    s.period[0].p.growth = (struct period_growth){2, 2, 40};
    assert_int_equal(schedule_rounds(&s, 0), 10);
    for (uint64_t t = 0; t < 10; t++) {
        assert_int_equal(schedule_step(&s, 0, t), sent[t]);
        assert_int_equal(schedule_length(&s, 0, t), length[t]);
    }
    uint64_t full = codec_get(CODEC_BF16)->payload_max(codec_get(CODEC_BF16), elements),
             own =
                 codec_get(s.period[0].codec)->payload_max(codec_get(s.period[0].codec), elements);
    assert_int_equal(schedule_upload_bytes(&s, &elements), 2 * full + 8 * own);
}

/* H = 10, P = 2; 12 steps, then 26, then 40: the rounds of the former last steps stay, and the last
 * two have the codec of a last round. */
static void test_grown(void **state)
{
    (void)state;
    static const int64_t sent[2][7] = {{10, 12, 20, 26, 30, 40}, {12, 15, 25, 26, 35, 40}};
    struct schedule s = plan(40, 10, 2, 1), before = plan(26, 10, 2, 1);
    s.ends.count = 2;
    s.ends.steps[0] = 12;
    s.ends.steps[1] = 26;
    before.ends.count = 1;
    before.ends.steps[0] = 12;
    s.overlap = before.overlap = 10;
    s.eager = before.eager = true;
    for (unsigned f = 0; f < 2; f++) {
        assert_int_equal(schedule_rounds(&s, f), 6);
        assert_int_equal(schedule_rounds(&before, f), 4);
        for (uint64_t r = 0; r < 6; r++) {
            bool last = r == 5 || sent[f][r] == 12 || sent[f][r] == 26;
            uint64_t round;
            assert_int_equal(schedule_step(&s, f, r), sent[f][r]);
            assert_true(schedule_due(&s, sent[f][r], f, &round));
            assert_int_equal(round, r);
            assert_int_equal(schedule_last(&s, f, r), last);
            assert_int_equal(schedule_codec(&s, f, r, 0), last || !r ? CODEC_BF16 : CODEC_INT8);
            assert_int_equal(schedule_eager(&s, f, r), !last);
            assert_int_equal(schedule_apply(&s, f, r), last ? sent[f][r] : sent[f][r + 1]);
            /* Nothing is in flight when the first round after a last step is sent. */
            bool after = r && schedule_last(&s, f, r - 1);
            assert_int_equal(schedule_base(&s, f, r), r && !after ? r - 1 : r);
            if (r < 4) {
                assert_int_equal(schedule_step(&before, f, r), sent[f][r]);
                assert_int_equal(schedule_apply(&before, f, r), schedule_apply(&s, f, r));
                assert_int_equal(schedule_codec(&before, f, r, 0), schedule_codec(&s, f, r, 0));
            }
        }
        uint64_t round;
        assert_false(schedule_due(&s, 13, f, &round));
        assert_false(schedule_last(&s, f, 6));
    }
    static const int64_t next[] = {10, 12, 15, 20, 25, 26, 30, 35, 40, 0};
    int64_t step = 0;
    for (unsigned i = 0; i < sizeof next / sizeof *next; i++)
        assert_int_equal(step = schedule_next(&s, step), next[i]);
    assert_true(schedule_ends(&s, 12) && schedule_ends(&s, 40) && !schedule_ends(&s, 20));
    assert_int_equal(schedule_reached(&s, (uint64_t[]){4, 4}), 26);
}

/* A trainer at step 0 whose fragments are at different rounds must not skip a round that is still
 * to be sent. */
static void test_reached_skips_no_open_round(void **state)
{
    (void)state;
    struct schedule s = plan(280, 100, 2, 1);
    assert_int_equal(schedule_reached(&s, (uint64_t[]){0, 0}), 0);
    assert_int_equal(schedule_reached(&s, (uint64_t[]){1, 0}), 100);
    assert_int_equal(schedule_reached(&s, (uint64_t[]){2, 0}),
                     149); /* fragment 1 still owes its round at 150 */
    assert_int_equal(schedule_reached(&s, (uint64_t[]){3, 3}), 280);
}

static void test_codec_and_bytes(void **state)
{
    (void)state;
    struct schedule s = plan(280, 100, 2, 1);
    const size_t elements[2] = {2560, 512};
    assert_int_equal(schedule_codec(&s, 0, 0, 0), CODEC_BF16);
    assert_int_equal(schedule_codec(&s, 0, 1, 0), CODEC_INT8);
    assert_int_equal(schedule_codec(&s, 0, 2, 0), CODEC_BF16);
    /* One code and one bit per 256 values; bf16 2 bytes, int8 1 byte a value; two full-precision
     * rounds and one int8 each; before each relayed payload 8 bytes of size. */
    uint64_t up = 0, down = 0;
    for (unsigned f = 0; f < 2; f++) {
        uint64_t n = elements[f], bits = (n / 256 + 7) / 8, whole = n / 256 + bits + 2 * n;
        up += 2 * whole + n / 256 + bits + n;
        down += 2 * 3 * (whole + 8) + 2 * (n / 256) + bits +
                n * 10 / 8; /* 3 sites: relayed; sums in 10 bits (2*3*127+1 <= 1024) */
    }
    assert_int_equal(schedule_upload_bytes(&s, elements), up);
    assert_int_equal(schedule_download_bytes(&s, elements, 3), down);
    s.period[1].codec = CODEC_F32;
    assert_int_equal(schedule_codec(&s, 1, 0, 0), CODEC_F32);
}

/* From this number of sites on what does not add comes down as one payload; what adds comes as it
 * did. */
static void test_compressed_downlink_bytes(void **state)
{
    (void)state;
    struct schedule s = plan(280, 100, 1, 1);
    const uint64_t n = 2560, whole = 10 + 2 + 2 * n, sums = 2 * 10 + 2;
    s.downlink_compression_from = 4;
    assert_int_equal(schedule_payloads(&s, CODEC_TOPK, 3), 3);
    assert_int_equal(schedule_payloads(&s, CODEC_TOPK, 4), 1);
    assert_int_equal(schedule_payloads(&s, CODEC_INT8, 4), 4);
    assert_int_equal(schedule_payloads_max(&s, CODEC_TOPK, 3), 3); /* quorum: 3 of 9 may be there */
    assert_int_equal(schedule_payloads_max(&s, CODEC_TOPK, 9), 3);
    assert_int_equal(schedule_bytes(&s, CODEC_BF16, n, 3).down, 3 * (8 + whole));
    assert_int_equal(schedule_bytes(&s, CODEC_BF16, n, 4).down, 8 + whole);
    assert_int_equal(schedule_bytes(&s, CODEC_BF16, n, 4).up, whole);
    assert_int_equal(schedule_bytes(&s, CODEC_INT8, n, 4).down, sums + n * 10 / 8);
    s.downlink_compression_from = 0;
    assert_int_equal(schedule_payloads(&s, CODEC_TOPK, 1000), 1000);
}

/* Full-precision rounds in fixed add up, too: then nothing is left to compress. */
static void test_full_precision_in_fixed(void **state)
{
    (void)state;
    struct schedule s = plan(1000, 100, 1, 2);
    s.downlink_compression_from = 4;
    assert_false(schedule_compresses_any(&s, 3));
    assert_true(schedule_compresses_any(&s, 4) && !schedule_uses(&s, CODEC_FIXED));
    s.full_precision = CODEC_FIXED;
    for (uint64_t r = 0; r < 10; r++)
        assert_int_equal(schedule_codec(&s, 0, r, 0), r < 2 || r == 9 ? CODEC_FIXED : CODEC_INT8);
    assert_true(schedule_uses(&s, CODEC_FIXED) && !schedule_uses(&s, CODEC_BF16));
    assert_false(schedule_compresses_any(&s, 4));
    s.period[0].codec = CODEC_TOPK;
    assert_true(schedule_compresses_any(&s, 4));
    static const enum codec_kind keep[] = {CODEC_F32, CODEC_BF16, CODEC_FIXED};
    for (int k = 0; k < 3; k++) {
        s.period[0].codec = keep[k];
        assert_int_equal(schedule_codec(&s, 0, 0, 0), keep[k]);
    }
}

/* A round after one that left too much over is whole; nothing else changes, and 0 never does. */
static void test_residual_ratio_makes_full_precision(void **state)
{
    (void)state;
    struct schedule s = plan(1000, 100, 1, 1);
    for (unsigned residual_ratio = 0; residual_ratio <= CODEC_RATIO_MAX; residual_ratio++)
        assert_int_equal(schedule_codec(&s, 0, 4, (uint8_t)residual_ratio), CODEC_INT8);
    s.residual_reset = codec_residual_ratio(4 * 4, 1);
    assert_int_equal(schedule_codec(&s, 0, 4, codec_residual_ratio(3.9 * 3.9, 1)), CODEC_INT8);
    assert_int_equal(schedule_codec(&s, 0, 4, codec_residual_ratio(4.1 * 4.1, 1)), CODEC_BF16);
    assert_int_equal(schedule_codec(&s, 0, 4, CODEC_RATIO_MAX), CODEC_BF16);
    /* The last round empties a residual only while that is no longer than twice the delta, */
    uint64_t last = schedule_rounds(&s, 0) - 1;
    s.residual_reset = 0;
    assert_int_equal(schedule_codec(&s, 0, last, codec_residual_ratio(1.9 * 1.9, 1)), CODEC_BF16);
    assert_int_equal(schedule_codec(&s, 0, last, codec_residual_ratio(2.1 * 2.1, 1)), CODEC_INT8);
    s.residual_reset = codec_residual_ratio(4 * 4, 1); /* unless it is forgotten */
    assert_int_equal(schedule_codec(&s, 0, last, codec_residual_ratio(3 * 3, 1)), CODEC_INT8);
    assert_int_equal(schedule_codec(&s, 0, last, codec_residual_ratio(4.1 * 4.1, 1)), CODEC_BF16);
    s.residual_reset = 0; /* Masked contributions tell nothing: sign leaves the most. */
    s.masked_sites = 3;
    assert_int_equal(schedule_codec(&s, 0, last, 0), CODEC_BF16);
    s.period[0].codec = CODEC_SIGN;
    assert_int_equal(schedule_codec(&s, 0, last, 0), CODEC_SIGN);
    s.masked_sites = 0;
    assert_int_equal(schedule_codec(&s, 0, last, 0), CODEC_BF16);
    s.period[0].codec = CODEC_F32;
    s.residual_reset = codec_residual_ratio(4 * 4, 1);
    assert_int_equal(schedule_codec(&s, 0, 4, CODEC_RATIO_MAX), CODEC_F32);
    s.residual_reset = 0;
    assert_true(!schedule_discards(&s, 1) && schedule_discards(&s, 0.5f));
    s.clips = true;
    assert_true(schedule_discards(&s, 1));
    s.clips = false;
    s.residual_reset = 1;
    assert_true(schedule_discards(&s, 1));
}

/* H = 4, P = 4, tau = 2, by hand: fragment f sends at f + 4, f + 8, ...; two are in flight. The
 * round at 10 of fragment 2 would be applied at 12, and is; the one at 11 of fragment 3 at 13,
 * after the end: at the last step. */
static void test_overlap_by_hand(void **state)
{
    (void)state;
    struct schedule s = plan(12, 4, 4, 1);
    s.overlap = 2;
    assert_int_equal(schedule_apply(&s, 0, 0), 6);
    assert_int_equal(schedule_apply(&s, 3, 0), 9);
    assert_int_equal(schedule_apply(&s, 2, 1), 12);
    assert_int_equal(schedule_apply(&s, 3, 1), 12);
    assert_int_equal(schedule_apply(&s, 0, 2), 12);
    assert_int_equal(schedule_flights(&s), 2);
    assert_int_equal(schedule_base(&s, 0, 3), 3);
    s.overlap = 4;
    assert_true(schedule_delayed(&s, 0));
    assert_int_equal(schedule_apply(&s, 0, 0), 8);
    assert_int_equal(schedule_flights(&s), 4);
    assert_int_equal(schedule_base(&s, 0, 0), 0);
    assert_int_equal(schedule_base(&s, 0, 1), 0);
    assert_int_equal(schedule_base(&s, 0, 3), 2);
    s.overlap = 0;
    assert_int_equal(schedule_apply(&s, 0, 0), 4);
    assert_int_equal(schedule_flights(&s), 0);
    assert_false(schedule_delayed(&s, 0));
}

/* With any configuration: an apply is never before its send, nor after the next one, nor later
 * than planned; at most one round of a fragment flies; all are applied at the end. */
static void test_overlap_consistent(void **state)
{
    (void)state;
    for (int64_t steps = 1; steps < 40; steps++)
        for (unsigned fragments = 1; fragments <= 4; fragments *= 2)
            for (int64_t every = fragments; every <= 12; every += fragments)
                for (int64_t tau = 0; tau <= every; tau++) {
                    struct schedule s = plan(steps, every, fragments, 1);
                    s.overlap = tau;
                    unsigned most = 0;
                    for (int64_t step = 0; step <= steps; step++) {
                        unsigned flying = 0;
                        for (unsigned f = 0; f < fragments; f++) {
                            uint64_t sent = 0, applied = 0;
                            for (uint64_t r = 0; r < schedule_rounds(&s, f); r++) {
                                int64_t at = schedule_step(&s, f, r);
                                int64_t apply = schedule_apply(&s, f, r);
                                bool last = r + 1 == schedule_rounds(&s, f);
                                assert_true(apply >= at && apply <= at + tau && apply <= steps);
                                assert_true(last ? apply == steps
                                                 : apply <= schedule_step(&s, f, r + 1));
                                assert_true(last || apply == at + tau ||
                                            apply == schedule_step(&s, f, r + 1));
                                sent += at <= step;
                                applied += apply <= step;
                            }
                            assert_int_equal(schedule_sent(&s, f, step), sent);
                            assert_int_equal(schedule_applied(&s, f, step), applied);
                            assert_true(sent == applied || sent == applied + 1);
                            flying += (unsigned)(sent - applied);
                        }
                        most = flying > most ? flying : most;
                        assert_true(step < steps || flying == 0);
                    }
                    assert_int_equal(schedule_flights(&s), most);
                    assert_int_equal(schedule_slots(&s), tau && !most ? 1 : most);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_own_beats),
        cmocka_unit_test(test_consistent),
        cmocka_unit_test(test_growing),
        cmocka_unit_test(test_grown),
        cmocka_unit_test(test_reached_skips_no_open_round),
        cmocka_unit_test(test_codec_and_bytes),
        cmocka_unit_test(test_compressed_downlink_bytes),
        cmocka_unit_test(test_overlap_by_hand),
        cmocka_unit_test(test_overlap_consistent),
        cmocka_unit_test(test_full_precision_in_fixed),
        cmocka_unit_test(test_residual_ratio_makes_full_precision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
