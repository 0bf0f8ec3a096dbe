/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if the model of a link is wrong: every figure that was measured over an emulated
 * network. Virtual time; departures are checked against closed forms, chance against the binomial
 * distribution. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "outer/wan/flow.h"

enum { MANY = 200000 };
static const int64_t MS = 1000000, SECOND = 1000000000;
static struct flow_counters count;

static struct flow open_flow(struct flow_settings set)
{
    struct flow f;
    memset(&count, 0, sizeof count);
    flow_open(&f, &set, &count);
    return f;
}

/* Five standard deviations of a binomial count. */
static void assert_share(uint64_t hits, uint64_t of, double share)
{
    double expected = (double)of * share, spread = 5 * sqrt(expected * (1 - share)) + 1e-9;
    if (fabs((double)hits - expected) > spread)
        fail_msg("%llu of %llu, expected %.1f +- %.1f", (unsigned long long)hits,
                 (unsigned long long)of, expected, spread);
}

static void packets_leave_one_behind_the_other(void **state)
{
    (void)state;
    struct flow f = open_flow(
        (struct flow_settings){.rate_bps = 8000000, .delay_ns = 10 * MS, .queue_bytes = 100000});
    /* 1 byte per microsecond */
    assert_int_equal(flow_offer(&f, 0, 1000).due_ns, 11 * MS);
    assert_int_equal(flow_offer(&f, 0, 500).due_ns, 11 * MS + 500000);
    assert_int_equal(flow_offer(&f, MS, 1500).due_ns, 13 * MS);
    assert_int_equal(flow_backlog_bytes(&f, MS), 2000);
    assert_int_equal(flow_backlog_bytes(&f, 3 * MS), 0);
    assert_int_equal(flow_offer(&f, 50 * MS, 1000).due_ns, 61 * MS); /* idle before: no credit */
    assert_int_equal(count.queue_peak_bytes, 2000);
}

/* The remainder of each division is kept: n packets take floor(n bits / rate). */
static void a_rate_that_does_not_divide_is_exact(void **state)
{
    (void)state;
    const uint64_t rate = 7000003;
    struct flow f = open_flow((struct flow_settings){.rate_bps = rate, .queue_bytes = 1 << 30});
    for (uint64_t n = 1; n <= 10000; n++) {
        uint64_t wanted = n * 1500 * 8 * 1000000000 / rate;
        assert_int_equal(flow_offer(&f, 0, 1500).due_ns, (int64_t)wanted);
    }
}

/* 1000 bytes a millisecond, then a quarter of it: what is queued before the change and leaves
 * after it has the later rate. */
static void a_rate_that_changes(void **state)
{
    (void)state;
    struct flow_settings set = {
        .rate_bps = 8000000, .later_bps = 2000000, .later_ns = 10 * MS, .queue_bytes = 1 << 20};
    struct flow f = open_flow(set);
    assert_int_equal(flow_offer(&f, 7 * MS, 1000).due_ns, 8 * MS);
    assert_int_equal(flow_offer(&f, 7 * MS, 2000).due_ns, 10 * MS);
    assert_int_equal(flow_backlog_bytes(&f, 7 * MS), 3000);
    assert_int_equal(flow_offer(&f, 7 * MS, 500).due_ns, 12 * MS);
    assert_int_equal(flow_backlog_bytes(&f, 7 * MS), 3500);
    assert_int_equal(flow_backlog_bytes(&f, 11 * MS), 250);
    assert_int_equal(flow_carry(&f, 20 * MS, 1000), 24 * MS);
}

static void a_bucket_fills_in_pauses(void **state)
{
    (void)state;
    struct flow f = open_flow(
        (struct flow_settings){.rate_bps = 8000000, .burst_bytes = 3000, .queue_bytes = 1 << 20});
    for (int i = 0; i < 3; i++)
        assert_int_equal(flow_offer(&f, 10 * MS, 1000).due_ns,
                         10 * MS); /* the bucket's 3000 bytes at once */
    assert_int_equal(flow_offer(&f, 10 * MS, 1000).due_ns, 11 * MS);
    assert_int_equal(flow_offer(&f, 12 * MS, 1000).due_ns, 12 * MS); /* refilled by 1000 since */
    assert_int_equal(flow_offer(&f, 12 * MS, 1000).due_ns, 13 * MS);
}

static void a_full_queue_drops_the_last(void **state)
{
    (void)state;
    struct flow f = open_flow((struct flow_settings){.rate_bps = 8000000, .queue_bytes = 5000});
    for (int i = 0; i < 5; i++)
        assert_int_equal(flow_offer(&f, 0, 1000).copies, 1);
    assert_int_equal(flow_offer(&f, 0, 1000).copies, 0);
    assert_int_equal(flow_offer(&f, 999999, 1000).copies, 0); /* 4001 bytes are left */
    assert_int_equal(flow_offer(&f, MS, 1000).due_ns, 6 * MS);
    assert_int_equal(count.dropped[FLOW_QUEUE], 2);
    assert_int_equal(count.queue_peak_bytes, 5000);
    assert_int_equal(flow_offer(&f, 100 * MS, 60000).copies,
                     1); /* larger than the queue, but nothing waits */
}

static uint64_t schedule(struct flow *f, unsigned char *lost, int n)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        lost[i] = flow_offer(f, i, 1000).copies == 0;
        sum += lost[i];
    }
    return sum;
}

static void loss_is_a_repeatable_share(void **state)
{
    (void)state;
    static unsigned char first[MANY], second[MANY];
    struct flow_settings set = {.loss = 0.001, .seed = 5, .direction = 3};
    struct flow f = open_flow(set);
    assert_share(schedule(&f, first, MANY), MANY, 0.001);
    assert_share(count.dropped[FLOW_LOSS], MANY, 0.001);
    f = open_flow(set);
    schedule(&f, second, MANY);
    assert_memory_equal(first, second, MANY);
    set.direction = 4;
    f = open_flow(set);
    schedule(&f, second, MANY);
    assert_memory_not_equal(first, second, MANY);
    set.direction = 3;
    set.seed = 6;
    f = open_flow(set);
    schedule(&f, second, MANY);
    assert_memory_not_equal(first, second, MANY);
}

/* Gilbert: the share stays, the runs have their mean length. Runs are fewer than packets, so the
 * share spreads wider by about sqrt(2 x run length). */
static void loss_comes_in_runs(void **state)
{
    (void)state;
    static unsigned char lost[MANY];
    struct flow f = open_flow((struct flow_settings){.loss = 0.02, .loss_run = 8, .seed = 1});
    uint64_t sum = schedule(&f, lost, MANY), runs = 0;
    for (int i = 0; i < MANY; i++)
        runs += lost[i] && (i == 0 || !lost[i - 1]);
    assert_true(fabs((double)sum / MANY - 0.02) < 5 * sqrt(0.02 * 2 * 8 / MANY));
    assert_true(fabs((double)sum / (double)runs - 8) < 5 * 8 / sqrt((double)runs));
    f = open_flow((struct flow_settings){.loss = 1, .loss_run = 8, .seed = 1});
    assert_int_equal(schedule(&f, lost, 1000), 1000);
}

static void outages_cut_what_leaves_in_them(void **state)
{
    (void)state;
    const struct flow_window windows[] = {{2 * SECOND, 3 * SECOND}, {5 * SECOND, 6 * SECOND}};
    struct flow f = open_flow((struct flow_settings){
        .outages = windows, .outage_count = 2, .outage_every_ns = 10 * SECOND});
    const struct {
        int64_t at, end;
    } cases[] = {{0, 0},
                 {2 * SECOND - 1, 2 * SECOND - 1},
                 {2 * SECOND, 3 * SECOND},
                 {3 * SECOND - 1, 3 * SECOND},
                 {3 * SECOND, 3 * SECOND},
                 {5 * SECOND + 7, 6 * SECOND},
                 {9 * SECOND, 9 * SECOND},
                 {12 * SECOND, 13 * SECOND},
                 {36 * SECOND, 36 * SECOND},
                 {45 * SECOND, 46 * SECOND}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(flow_outage_end(&f, cases[i].at), cases[i].end);
        assert_int_equal(flow_offer(&f, cases[i].at, 1000).copies, cases[i].end == cases[i].at);
    }
    assert_int_equal(count.dropped[FLOW_OUTAGE], 5);
    /* offered before, but on the wire when it begins */
    f = open_flow((struct flow_settings){
        .rate_bps = 8000, .queue_bytes = 9000, .outages = windows, .outage_count = 2});
    assert_int_equal(flow_offer(&f, SECOND + SECOND / 2, 1000).copies, 0);
    assert_int_equal(flow_offer(&f, 12 * SECOND, 1000).copies, 1); /* not periodic */
}

static void some_come_twice_some_late(void **state)
{
    (void)state;
    struct flow f = open_flow((struct flow_settings){
        .duplicate = 0.1, .reorder = 0.05, .reorder_ns = 7 * MS, .delay_ns = MS});
    uint64_t twice = 0, late = 0;
    for (int i = 0; i < MANY; i++) {
        struct flow_answer a = flow_offer(&f, i * 1000, 100);
        assert_in_range(a.copies, 1, 2);
        twice += a.copies == 2;
        late += a.due_ns == i * 1000 + 8 * MS;
        assert_true(a.due_ns == i * 1000 + MS || a.due_ns == i * 1000 + 8 * MS);
    }
    assert_share(twice, MANY, 0.1);
    assert_share(late, MANY, 0.05);
    assert_int_equal(count.duplicated, twice);
    assert_int_equal(count.reordered, late);
}

/* Packets close together: none overtakes, and that must not cut off the distribution's lower
 * half. */
static void jitter_has_its_distribution(void **state)
{
    (void)state;
    const struct {
        enum flow_jitter kind;
        double mean_ms;
    } cases[] = {{FLOW_NORMAL, 50}, {FLOW_UNIFORM, 50}, {FLOW_EXPONENTIAL, 55}};
    for (size_t c = 0; c < 3; c++) {
        struct flow f = open_flow((struct flow_settings){
            .delay_ns = 50 * MS, .jitter_ns = 5e6, .jitter = cases[c].kind, .seed = 9});
        double sum = 0, squares = 0;
        int64_t last = 0;
        for (int i = 0; i < MANY; i++) { /* 400 s: 10,000 slots */
            int64_t at = i * 2 * MS, due = flow_offer(&f, at, 100).due_ns;
            double way = (double)(due - at) / 1e6;
            assert_true(due >= last);
            last = due;
            sum += way;
            squares += way * way;
        }
        double mean = sum / MANY, sd = sqrt(squares / MANY - mean * mean);
        if (fabs(mean - cases[c].mean_ms) > 0.5 || fabs(sd - 5) > 0.5)
            fail_msg("distribution %zu: mean %.2f sd %.2f", c, mean, sd);
    }
}

static void streams_wait_where_packets_are_dropped(void **state)
{
    (void)state;
    const struct flow_window window = {SECOND, 2 * SECOND};
    struct flow f = open_flow((struct flow_settings){.rate_bps = 8000000,
                                                     .queue_bytes = 1000,
                                                     .delay_ns = MS,
                                                     .loss = 1,
                                                     .outages = &window,
                                                     .outage_count = 1});
    assert_int_equal(flow_carry(&f, 0, 10000), 11 * MS);
    assert_int_equal(flow_carry(&f, 0, 10000), 21 * MS);
    assert_int_equal(flow_carry(&f, SECOND, 1000), 2 * SECOND + MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packets_leave_one_behind_the_other),
        cmocka_unit_test(a_rate_that_does_not_divide_is_exact),
        cmocka_unit_test(a_rate_that_changes),
        cmocka_unit_test(a_bucket_fills_in_pauses),
        cmocka_unit_test(a_full_queue_drops_the_last),
        cmocka_unit_test(loss_is_a_repeatable_share),
        cmocka_unit_test(loss_comes_in_runs),
        cmocka_unit_test(outages_cut_what_leaves_in_them),
        cmocka_unit_test(some_come_twice_some_late),
        cmocka_unit_test(jitter_has_its_distribution),
        cmocka_unit_test(streams_wait_where_packets_are_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
