/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if the planner is wrong: a run that was promised to train 95 % of its time and waits
 * for half of it. The formulas are held against tables that others published, against the
 * schedule's exact bytes, and against the search itself.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "outer/plan/plan.h"
#include "outer/plan/plan_tables.h"
#include "tests/outer/toy.h"

static struct tensor tensors[TOY_TENSORS_MAX];
static struct table table;

/* ---- the published bandwidth tables ---- */

/* Both papers simulated on bandwidths of 10^(-1 + 4k/49) Gbit/s, k = 0..49, and printed the first
 * that reaches a utilisation: neighbours differ by 21 %, which is the accuracy of their tables. */
static const double grid_step = 4.0 / 49;

static int grid_index(double gbit)
{
    return (int)lround((log10(gbit) + 1) / grid_step);
}

/* Utilisation by plan_predict when H steps of `steps_s` in all carry `fragments` exchanges of
 * exchange_s each, of which hidden_s overlap training. Overlap counts whole steps, so one step of
 * the task takes hidden_s. The exchange is all encoding; the link is as fast as a search may
 * assume.
 */
static double utilisation_of(double steps_s, unsigned fragments, double exchange_s, double hidden_s)
{
    int64_t every = llround(steps_s / hidden_s);
    struct schedule s = {
        .steps = 10 * every, .overlap = 1, .fragments = fragments, .full_precision = CODEC_BF16};
    size_t elements[ROUND_FRAGMENTS_MAX];
    struct plan_result r;
    const struct plan_task t = {
        .sites = 2,
        .step_s = hidden_s,
        .parameters = 1e9,
        .link = {.up_bps = LINE_RATE_MAX, .down_bps = LINE_RATE_MAX, .streams = 1},
        .outer.encode_s = exchange_s};
    assert_true(fabs((double)every * hidden_s - steps_s) < 1e-9 * steps_s);
    for (unsigned f = 0; f < fragments; f++) {
        s.period[f] = (struct schedule_period){.p = {.every = every}, .codec = CODEC_F32};
        elements[f] = 1;
    }
    plan_predict(&t, &s, elements, &r);
    return r.steady;
}

/* The first grid bandwidth with which `gbits` in all, in P exchanges, leave this share of H steps.
 */
static int first_index(double steps_s, unsigned fragments, double gbits, double hidden_s,
                       double share)
{
    for (int k = 0; k < 60; k++) {
        double s = gbits / fragments / pow(10, -1 + k * grid_step);
        if (utilisation_of(steps_s, fragments, s, hidden_s) >= share - 1e-9)
            return k;
    }
    return 60;
}

struct row {
    double parameters_g, step_s;
    unsigned fragments; /* 3 layers each */
    double gbit[5];
};
static const double shares[5] = {0.5, 0.8, 0.9, 0.95, 0.99};

/* How many entries are off by one grid point; none may be off by more. */
static int off(const struct row *rows, size_t count, int every, double bits, bool fragments,
               double overlap)
{
    int n = 0;
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < 5; k++) {
            unsigned p = fragments ? rows[i].fragments : 1;
            double hidden = (overlap + 2.0 / 3) *
                            rows[i].step_s; /* and the backward pass continues meanwhile */
            int got = first_index(every * rows[i].step_s, p, bits * rows[i].parameters_g, hidden,
                                  shares[k]);
            int want = grid_index(rows[i].gbit[k]);
            assert_in_range(got + 1, want, want + 2);
            n += got != want;
        }
    return n;
}

/* 2501.18512, table 4: H = 100; 13.4 bits on the wire for each parameter fit all 15 entries, 3.6
 * for the codec of 4. */
static void streaming_diloco_table_4(void **state)
{
    (void)state;
    static const struct row diloco[] = {{1, 0.1, 8, {1.4, 6.2, 13.3, 23.3, 86.8}},
                                        {10, 0.8, 16, {1.7, 7.5, 16, 33.9, 104.8}},
                                        {100, 4.9, 36, {3.0, 11, 23.3, 49.4, 184}}};
    static const struct row streaming[] = {{1, 0.1, 8, {0.4, 0.9, 1.7, 2.0, 3.0}},
                                           {10, 0.8, 16, {0.4, 0.9, 1.4, 1.4, 1.7}},
                                           {100, 4.9, 36, {0.5, 0.9, 1.1, 1.1, 1.4}}};
    assert_int_equal(off(diloco, 3, 100, 13.4, false, 0), 0);
    assert_in_range(off(streaming, 3, 100, 3.6, true, 1), 0, 1);
}

/* 2503.09799, table 6: 10 G parameters, 0.8 s; another simulation, in which 10.8 bits fit best. */
static void scaling_laws_table_6(void **state)
{
    (void)state;
    static const struct {
        int every;
        double gbit[3];
    } rows[] = {{10, {49.4, 152.6, 222.3}},
                {50, {11.0, 41.0, 126.5}},
                {100, {6.2, 23.3, 86.8}},
                {300, {2.0, 9.1, 41.0}}};
    static const double share[3] = {0.8, 0.95, 0.99};
    int n = 0;
    for (size_t i = 0; i < 4; i++)
        for (int k = 0; k < 3; k++) {
            int got = first_index(rows[i].every * 0.8, 1, 108, 0.8 * 2 / 3, share[k]),
                want = grid_index(rows[i].gbit[k]);
            assert_in_range(got + 1, want, want + 2);
            n += got != want;
        }
    assert_in_range(n, 0, 2);
}

/* ---- the tables of losses ---- */

static void value_is(struct plan_value v, double want, bool extrapolated)
{
    if (fabs(v.value - want) > 1e-9 || v.extrapolated != extrapolated)
        fail_msg("%g%s, expected %g%s", v.value, v.extrapolated ? " extrapolated" : "", want,
                 extrapolated ? " extrapolated" : "");
}

static void tables_return_their_points(void **state)
{
    (void)state;
    double high;
    value_is(plan_loss_sites(35e6, 8), 3.9, false);
    value_is(plan_loss_sites(1.3e9, 4), 0.5, false);
    value_is(plan_loss_sites(10e9, 2), -0.19, false);
    value_is(plan_loss_sites(10e9, 8), 1.1, true);
    value_is(plan_loss_sites(1e6, 2), 0.7, true);
    value_is(plan_loss_sites(335e6, 16), 3.1, true); /* the slope from 4 to 8 continues */
    value_is(plan_loss_sites(sqrt(90e6 * 180e6), 2), 0.4, false); /* half way in the logarithm */
    value_is(plan_loss_every(30, &high), 0, false);
    assert_true(fabs(high) < 1e-9);
    value_is(plan_loss_every(100, &high), 0.7, false);
    assert_true(fabs(high - 3.0) < 0.01);
    assert_true(plan_loss_every(1000, &high).extrapolated);
    assert_true(plan_loss_every(1000, &high).value > plan_loss_every(500, &high).value);
    assert_true(fabs(plan_steps_factor(1) - 1.224) < 0.001);
    assert_true(plan_steps_factor(0) == 1);
}

/* Of tests/bench/loss.csv: the loss over the synchronous run, in percent, lies within the promised
 * range; one seed, so 0.5 % next to it is noise. */
static void what_was_measured_lies_in_the_range(void **state)
{
    (void)state;
    static const struct {
        double parameters, steps, batch;
        unsigned sites, every;
        enum codec_kind codec;
        double percent;
    } rows[] = {
        {0.84e6, 400, 2048, 2, 20, CODEC_F32, 1.9},    {0.84e6, 400, 2048, 2, 20, CODEC_INT4, 1.0},
        {0.84e6, 400, 2048, 2, 50, CODEC_F32, 4.2},    {0.84e6, 400, 2048, 2, 50, CODEC_INT4, 4.7},
        {0.84e6, 400, 2048, 4, 20, CODEC_F32, 4.6},    {0.84e6, 400, 2048, 4, 50, CODEC_INT8, 8.9},
        {10.8e6, 300, 1024, 2, 20, CODEC_F32, 7.0},    {10.8e6, 300, 1024, 2, 20, CODEC_INT2, 7.3},
        {10.8e6, 300, 1024, 2, 20, CODEC_TOPK, 10.7},  {10.8e6, 300, 1024, 2, 50, CODEC_F32, 8.0},
        {10.8e6, 300, 1024, 2, 100, CODEC_INT4, 11.2}, {10.8e6, 300, 1024, 4, 20, CODEC_F32, 13.0},
        {10.8e6, 300, 1024, 2, 20, CODEC_CSC, 16.2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct plan_task t = {.sites = rows[i].sites,
                              .step_s = 1,
                              .parameters = rows[i].parameters,
                              .tokens = rows[i].steps * rows[i].batch * rows[i].sites,
                              .lamb = true,
                              .link = {.up_bps = 1e9, .down_bps = 1e9, .streams = 1}};
        struct schedule s =
            schedule_streaming((int64_t)rows[i].steps, rows[i].every, 1, 1, rows[i].codec);
        size_t elements = (size_t)rows[i].parameters;
        struct plan_result r;
        plan_predict(&t, &s, &elements, &r);
        if (rows[i].percent < r.loss_low - 0.5 || rows[i].percent > r.loss_high + 0.5 ||
            !r.extrapolated)
            fail_msg("row %zu: measured %+.1f %%, promised %+.1f to %+.1f %%", i, rows[i].percent,
                     r.loss_low, r.loss_high);
    }
}

/* 1 G parameters and 20 tokens for each, as published: nothing of what short runs cost is left. */
static void long_runs_are_as_published(void **state)
{
    (void)state;
    double high, low = plan_loss_short(4, 1000, 20, &high).value;
    assert_true(low > 0 && high < 0.1);
    assert_true(plan_loss_short(1, 5, 0.1, &high).value == 0 && high == 0);
    assert_true(plan_loss_short(4, 5, 0, &high).value == 0 && high == 0); /* tokens unknown */
    assert_true(plan_loss_codec(CODEC_TOPK, 160, false, &high).value == 0.5 &&
                fabs(high - 1.03) < 0.01);
    (void)plan_loss_codec(CODEC_TOPK, 160, true, &high);
    assert_true(high > 15);
}

/* ---- predictions ---- */

static struct plan_task task(double mbit, double rtt_s)
{
    return (struct plan_task){
        .sites = 4,
        .step_s = 0.5,
        .parameters = 1e9,
        .link = {.up_bps = mbit * 1e6, .down_bps = mbit * 1e6, .rtt_s = rtt_s, .streams = 1}};
}

/* The bytes are the schedule's, with any number of rounds. */
static void bytes_are_the_schedules(void **state)
{
    (void)state;
    struct plan_task t = task(100, 0.05);
    size_t elements[] = {25600, 51200, 2560, 256};
    for (int c = 0; c < CODEC_COUNT; c++)
        for (int64_t steps = 1; steps < 200; steps += 33)
            for (uint64_t whole = 1; whole < 6; whole += 2) {
                struct schedule s = schedule_streaming(steps, 20, 4, whole, (enum codec_kind)c);
                struct plan_result r;
                plan_predict(&t, &s, elements, &r);
                assert_int_equal(r.up_bytes, schedule_upload_bytes(&s, elements));
                assert_int_equal(r.down_bytes, schedule_download_bytes(&s, elements, 4));
            }
}

/* By hand: one round of 256 MiB f32 each way at 100 Mbit/s, no delay: 3.6 % headers, and nothing
 * else. */
static void time_by_hand(void **state)
{
    (void)state;
    struct plan_task t = task(100, 0);
    size_t elements = 1 << 26;
    struct schedule s = schedule_streaming(1000, 100, 1, 1, CODEC_F32);
    struct plan_result r;
    t.sites = 1;
    plan_predict(&t, &s, &elements, &r);
    double one = (double)(elements * 4 + elements / 256) * 8 / 100e6;
    assert_true(fabs(r.exchange_s / (2 * one) - 1.037) < 0.002);
    assert_true(fabs(r.total_s - (500 + 10 * r.exchange_s)) < 1e-6);
    assert_true(fabs(r.utilisation - 500 / r.total_s) < 1e-12 &&
                fabs(r.steady - r.utilisation) < 1e-12);
    s.overlap = 60; /* 30 s of 43 are hidden */
    struct plan_result o;
    plan_predict(&t, &s, &elements, &o);
    assert_true(fabs(o.exposed_s - (r.exchange_s - 30)) < 1e-6);
    t.aggregator_bps = 10e6; /* its line is ten times slower */
    plan_predict(&t, &s, &elements, &o);
    assert_true(fabs(o.exchange_s / r.exchange_s - 10) < 1e-6);
}

/* Delay, slow start, loss: each takes time, and more of it more. */
static void slower_links_take_longer(void **state)
{
    (void)state;
    struct line l = {.up_bps = 1e9, .down_bps = 1e9, .rtt_s = 0, .streams = 1};
    double last = line_transfer_s(&l, 1e8, true);
    for (double rtt = 0.001; rtt < 1; rtt *= 3) {
        l.rtt_s = rtt;
        double now = line_transfer_s(&l, 1e8, true);
        assert_true(now >= last && now < last + 20 * rtt);
        last = now;
    }
    l.rtt_s = 0.1;
    l.loss = 0.001; /* Mathis: 1448 * 8 / 0.1 * sqrt(1.5 / 0.001) = 4.49 Mbit/s */
    assert_true(fabs(line_rate_bps(&l, 1e9) / 4.486e6 - 1) < 0.001);
    l.streams = 8;
    assert_true(fabs(line_rate_bps(&l, 1e9) / (8 * 4.486e6) - 1) < 0.001);
    assert_true(line_rate_bps(&l, 1e6) == 1e6);
    l.bbr = true;
    assert_true(fabs(line_transfer_s(&l, 1e8, true) - 8 * line_wire_bytes(1e8) / 1e9) < 1e-9);
}

/* A sum that takes 4 s in any case, and 1.5 s for each contribution: from two as from four. */
static void a_sum_has_a_fixed_part(void **state)
{
    (void)state;
    assert_true(line_sum_s(5.5, 7, 2) == 1.5);
    assert_true(line_sum_s(5.5, 10, 4) == 1.5);
    assert_true(line_sum_s(5.5, 5.5, 1) == 5.5);
    assert_true(line_sum_s(0.25, 0.125, 2) == 0.0625); /* noise: never less than nothing */
}

/* What was measured stands in place of rate, loss and slow start: exact where it was, straight
 * between, on from the last. */
static void measured_times_stand(void **state)
{
    (void)state;
    struct line l = {
        .up_bps = 1, .down_bps = 1e9, .rtt_s = 1, .loss = 0.1, .streams = 1, .up = {3, {1, 2, 6}}};
    const struct {
        double kib, seconds;
    } rows[] = {{0, 0},     {32, 0.5}, {64, 1},  {256, 2},
                {160, 1.5}, {1024, 6}, {640, 4}, {1024 + 768, 10}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(fabs(line_transfer_s(&l, 1024 * rows[i].kib, true) - rows[i].seconds) < 1e-9);
    assert_true(line_transfer_s(&l, 1e6, false) > 1); /* the other direction was not measured */
    l.up.count = 1;
    assert_true(fabs(line_transfer_s(&l, 128 << 10, true) - 2) < 1e-9);
}

/* The plan is given up after three rounds in a row, once; a round that fits begins again. */
static void a_plan_that_is_left_is_told_once(void **state)
{
    (void)state;
    struct plan_watch w = {0};
    assert_false(plan_left(&w, 2.0, 1.0, 0.5, 0.5));
    assert_false(plan_left(&w, 0.5, 1.0, 0.5, 0.5));
    assert_false(plan_left(&w, 1.2, 1.0, 0.5, 0.5)); /* within */
    assert_false(plan_left(&w, 1.3, 1.0, 0.5, 0.5));
    assert_false(plan_left(&w, 1.0, 1.0, 0.7, 0.5)); /* the step, too */
    assert_true(plan_left(&w, 1.3, 1.0, 0.5, 0.5));
    assert_false(plan_left(&w, 1.3, 1.0, 0.5, 0.5));
    w = (struct plan_watch){0};
    for (int i = 0; i < 5; i++) /* milliseconds are noise */
        assert_false(plan_left(&w, 0.02, 0.001, 0.5, 0.5));
}

/* ---- the search ---- */

static void the_search_keeps_its_promises(void **state)
{
    (void)state;
    struct plan_task t = task(1, 0.1);
    struct schedule s = schedule_streaming(10000, 50, 1, 1, CODEC_INT8);
    struct plan_option found[PLAN_OPTIONS_MAX], nearest;
    size_t count;
    assert_int_equal(plan_search(&t, &(struct plan_goal){&s, &table, 0.9}, found, &count, &nearest),
                     ERR_OK);
    assert_true(count >= 3);
    for (size_t i = 0; i < count; i++) {
        struct plan_result again;
        struct plan_option *o = &found[i];
        size_t elements[ROUND_FRAGMENTS_MAX];
        struct arena a = arena_make(0);
        struct fragments f;
        struct fragment_plan plan = {
            .kind = FRAGMENT_STRIDED, .count = o->schedule.fragments, .synchronised = {true}};
        assert_int_equal(fragment_make(&f, &table, &plan, &a), ERR_OK);
        for (unsigned k = 0; k < f.count; k++)
            elements[k] = f.f[k].elements;
        plan_predict(&t, &o->schedule, elements, &again);
        assert_true(again.utilisation == o->result.utilisation && again.utilisation >= 0.9);
        assert_int_equal(o->schedule.period[0].p.every % o->schedule.fragments, 0);
        assert_true(o->schedule.overlap < o->schedule.period[0].p.every);
        const struct plan_result *before = i ? &found[i - 1].result : &o->result;
        if (o->result.equal_s < before->equal_s) { /* ties: the fewest bytes come first */
            assert_true(before->equal_s <= 1.1 * o->result.equal_s);
            assert_true(before->up_bytes <= o->result.up_bytes);
        }
        assert_true(i == 0 || o->schedule.period[0].codec != found[i - 1].schedule.period[0].codec);
        arena_free(&a);
    }
    t.link.up_bps = t.link.down_bps =
        1e12; /* a link that costs nothing: short rounds, nothing to hide */
    t.link.rtt_s = 0;
    assert_int_equal(plan_search(&t, &(struct plan_goal){&s, &table, 0.9}, found, &count, &nearest),
                     ERR_OK);
    assert_int_equal(found[0].schedule.overlap, 0);
    assert_true(found[0].schedule.period[0].p.every <= 30);
}

static void impossible_links_have_a_nearest_one(void **state)
{
    (void)state;
    struct plan_task t = task(0.0001, 0.1);
    struct schedule s = schedule_streaming(10000, 50, 1, 1, CODEC_INT8);
    struct plan_option found[PLAN_OPTIONS_MAX], nearest;
    struct line link;
    enum plan_nearest by;
    size_t count;
    assert_int_equal(
        plan_search(&t, &(struct plan_goal){&s, &table, 0.95}, found, &count, &nearest), ERR_OK);
    assert_int_equal(count, 0);
    assert_true(nearest.result.utilisation > 0 && nearest.result.utilisation < 0.95);
    assert_int_equal(plan_nearest_link(&t, &s, &table, 0.95, &link, &by), ERR_OK);
    assert_true(by == PLAN_BY_RATE && link.up_bps > t.link.up_bps && link.rtt_s == t.link.rtt_s);
    t.link = link;
    assert_int_equal(
        plan_search(&t, &(struct plan_goal){&s, &table, 0.95}, found, &count, &nearest), ERR_OK);
    assert_true(count > 0);
    t.link.up_bps *= 0.98;
    t.link.down_bps *= 0.98;
    assert_int_equal(
        plan_search(&t, &(struct plan_goal){&s, &table, 0.95}, found, &count, &nearest), ERR_OK);
    assert_int_equal(count, 0);
    t = task(1000, 36000); /* ten hours there and back: no rate helps */
    assert_int_equal(plan_nearest_link(&t, &s, &table, 0.95, &link, &by), ERR_OK);
    assert_true(by == PLAN_BY_DELAY && link.rtt_s < 36000 && link.rtt_s > 0);
    t = task(0.0001, 100); /* lost packets hold any rate down over such a delay, and no packet is
                              lost too slowly at these rates */
    t.link.loss = 0.1;
    assert_int_equal(plan_nearest_link(&t, &s, &table, 0.95, &link, &by), ERR_OK);
    assert_true(by == PLAN_BY_BOTH && link.rtt_s < 100 && link.up_bps > t.link.up_bps);
    t.link = link;
    assert_int_equal(
        plan_search(&t, &(struct plan_goal){&s, &table, 0.95}, found, &count, &nearest), ERR_OK);
    assert_true(count > 0);
    t = task(1000, 36000);
    t.outer.commit_s = 1; /* for each value: not with a cable of a metre */
    assert_int_equal(plan_nearest_link(&t, &s, &table, 0.95, &link, &by), ERR_OK);
    assert_int_equal(by, PLAN_BY_NO_LINK);
}

/* 7 G parameters in 64 layers on a line that cannot do it, and the nearest that can. The search
 * once took minutes; the test's limit of time is what ends such a one. */
static void a_large_model_is_planned(void **state)
{
    (void)state;
    struct arena a = arena_make(0);
    struct settings s;
    struct config_table keys = keys_inner(&s);
    struct table large;
    struct plan_task t = task(0.01, 0.1);
    struct schedule like = schedule_streaming(100000, 50, 1, 1, CODEC_INT8);
    struct plan_option found[PLAN_OPTIONS_MAX], nearest;
    struct line link;
    enum plan_nearest by;
    size_t count;
    assert_int_equal(config_load(&keys, 1, NULL, 0, NULL, &a), ERR_OK);
    s.model_layers = 64;
    s.model_d_model = 3072;
    s.model_heads = 24;
    assert_int_equal(table_make(&large, &s, &a), ERR_OK);
    assert_in_range(large.parameters, 7000000000, 7600000000);
    t.link.loss = 0.01;
    assert_int_equal(
        plan_search(&t, &(struct plan_goal){&like, &large, 0.95}, found, &count, &nearest), ERR_OK);
    assert_int_equal(count, 0);
    assert_int_equal(plan_nearest_link(&t, &like, &large, 0.95, &link, &by), ERR_OK);
    arena_free(&a);
}

/* The same search by another measure; where the time is equal, a published H. */
static void the_rank_decides(void **state)
{
    (void)state;
    struct plan_task t = task(1000, 0.02);
    struct schedule s = schedule_streaming(10000, 50, 1, 1, CODEC_INT8);
    struct plan_option by[3][PLAN_OPTIONS_MAX], nearest;
    size_t count;
    t.price_gb = 0.05;
    for (int rank = PLAN_RANK_TIME; rank <= PLAN_RANK_LOSS; rank++) {
        t.rank = (enum plan_rank)rank;
        assert_int_equal(
            plan_search(&t, &(struct plan_goal){&s, &table, 0.9}, by[rank], &count, &nearest),
            ERR_OK);
        assert_true(count > 0);
    }
    const struct plan_result *time = &by[PLAN_RANK_TIME][0].result,
                             *cost = &by[PLAN_RANK_COST][0].result,
                             *loss = &by[PLAN_RANK_LOSS][0].result;
    assert_true(cost->cost < time->cost / 3 && cost->cost <= loss->cost);
    assert_true(time->equal_s <= cost->equal_s * 1.11 && time->equal_s <= loss->equal_s * 1.11);
    assert_true(loss->loss_percent <= time->loss_percent + 0.11 * fabs(time->loss_percent));
    int64_t every = by[PLAN_RANK_TIME][0].schedule.period[0].p.every;
    assert_true(every == 30 || every == 50 || every == 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_measured_lies_in_the_range),
        cmocka_unit_test(long_runs_are_as_published),
        cmocka_unit_test(the_rank_decides),
        cmocka_unit_test(streaming_diloco_table_4),
        cmocka_unit_test(scaling_laws_table_6),
        cmocka_unit_test(tables_return_their_points),
        cmocka_unit_test(bytes_are_the_schedules),
        cmocka_unit_test(time_by_hand),
        cmocka_unit_test(slower_links_take_longer),
        cmocka_unit_test(measured_times_stand),
        cmocka_unit_test(a_sum_has_a_fixed_part),
        cmocka_unit_test(a_plan_that_is_left_is_told_once),
        cmocka_unit_test(the_search_keeps_its_promises),
        cmocka_unit_test(impossible_links_have_a_nearest_one),
        cmocka_unit_test(a_large_model_is_planned),
    };
    table = toy_table(tensors, 12);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
