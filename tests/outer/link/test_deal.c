/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a transfer that waits seconds for the block of its slowest
 * connection while the others are idle, or one whose last blocks are never taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include "outer/link/deal.h"

enum { COUNT = PATH_STREAMS_MAX };
static const double BLOCK = 1 << 20, STEP_S = 0.001;

/* Congestion windows (kB) of 16 connections after a queue had overflowed (100 ms, cubic, 64 blocks
 * of 1 MiB), and after random losses (16 blocks). */
static const double overflow[COUNT] = {1292, 1297, 756, 705, 707, 359, 219, 175,
                                       220,  211,  178, 195, 220, 210, 216, 1332},
                    losses[COUNT] = {249,  320, 84,  195, 520, 1070, 1070, 169,
                                     1222, 180, 570, 500, 172, 646,  1072, 54};

/* Virtual time until all blocks have arrived. Connection i carries rates[i]; `known`: the deal has
 * learnt that before; `all`: no connection is refused. */
static double transfer(const double *rates, unsigned blocks, bool known, bool all)
{
    struct deal d;
    double left[COUNT] = {0}, none[COUNT] = {0}, now = 1;
    unsigned open = blocks, arrived = 0;
    deal_begin(&d, all ? NULL : known ? rates : none, COUNT, 0);
    for (unsigned i = 0; i < COUNT; i++)
        deal_join(&d, i);
    for (; arrived < blocks && now < 1000; now += STEP_S)
        for (unsigned i = 0; i < COUNT; i++) {
            if (left[i] > 0) {
                left[i] -= rates[i] * STEP_S;
                if (left[i] > 0)
                    continue;
                arrived++;
                deal_done(&d, i, BLOCK, BLOCK, now);
            }
            if (open && deal_takes(&d, i, open, BLOCK, now)) {
                open--;
                left[i] = BLOCK;
                deal_took(&d, i, BLOCK, now);
            }
        }
    return now - 1;
}

static void all_end_at_about_the_same_time(void **state)
{
    (void)state;
    static const struct {
        const double *windows;
        unsigned blocks;
    } rows[] = {{overflow, 64}, {losses, 16}};
    for (int r = 0; r < 2; r++) {
        double rates[COUNT], sum = 0, fastest = 0;
        for (int i = 0; i < COUNT; i++) {
            rates[i] = rows[r].windows[i] * 1e3 / 0.1;
            sum += rates[i];
            fastest = fmax(fastest, rates[i]);
        }
        double floor_s = rows[r].blocks * BLOCK / sum;
        double dealt = transfer(rates, rows[r].blocks, true, false);
        double taken = transfer(rates, rows[r].blocks, true, true);
        double learnt = transfer(rates, rows[r].blocks, false, false);
        assert_true(dealt >= floor_s);
        assert_true(dealt < floor_s + 2 * BLOCK / fastest); /* no more than the last block */
        assert_true(dealt < 0.85 * taken);
        assert_true(learnt < 1.01 * taken); /* not worse while nothing is known */
    }
}

/* What was fast before has stalled: those that were refused take over. */
static void a_stalled_one_is_not_waited_for(void **state)
{
    (void)state;
    struct deal d;
    const double rates[COUNT] = {100e6, 1e6};
    deal_begin(&d, rates, 2, 0);
    deal_join(&d, 0);
    deal_join(&d, 1);
    assert_true(deal_takes(&d, 0, 8, BLOCK, 1));
    deal_took(&d, 0, BLOCK, 1);
    assert_false(deal_takes(&d, 1, 7, BLOCK, 1.01));
    assert_true(deal_takes(&d, 1, 7, BLOCK, 2));
    deal_done(&d, 0, BLOCK, BLOCK, 2.1);
    double learnt[COUNT];
    deal_end(&d, learnt);
    assert_true(fabs(learnt[0] - BLOCK / 1.1) < 1);
    assert_true(learnt[1] == 1e6); /* carried nothing: nothing learnt */
}

static void the_last_one_is_never_refused(void **state)
{
    (void)state;
    struct deal d;
    const double rates[COUNT] = {100e6, 1e3};
    deal_begin(&d, rates, 2, 0.2);
    deal_join(&d, 0);
    deal_join(&d, 1);
    assert_false(deal_takes(&d, 1, 1, BLOCK, 1));
    deal_leave(&d, 0);
    assert_true(deal_takes(&d, 1, 1, BLOCK, 1));
}

/* An upload's other streams join and end a round trip away from the first. */
static void what_joins_late_takes_less(void **state)
{
    (void)state;
    struct deal d;
    const double rates[COUNT] = {100e6, 100e6};
    deal_begin(&d, rates, 2, 0.2);
    deal_join(&d, 0);
    deal_join(&d, 1);
    assert_false(deal_takes(&d, 1, 19, BLOCK, 1)); /* the first sends 19 blocks in 0.2 s */
    assert_true(deal_takes(&d, 1, 24, BLOCK, 1));
    deal_begin(&d, NULL, 2, 0.2); /* a given number of connections */
    assert_true(deal_takes(&d, 1, 1, BLOCK, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_end_at_about_the_same_time),
        cmocka_unit_test(a_stalled_one_is_not_waited_for),
        cmocka_unit_test(the_last_one_is_never_refused),
        cmocka_unit_test(what_joins_late_takes_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
