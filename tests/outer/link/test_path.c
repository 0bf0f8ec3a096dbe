/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: connections that push each other out of a queue, one connection
 * where its buffers or its losses hold a tenth of the path, or a pace that stays below the path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include "outer/link/path.h"

#define MIB (1024.0 * 1024.0)

/* 1 Gbit/s is 120 MB/s of payload, 100 ms: 12 MB are in flight. One connection of cubic with 0.1 %
 * loss has 1.054 (0.1 / 0.001)^0.75 or sqrt(1.5 / 0.001) packets of 1448 bytes in flight: 0.56 MB/s
 * (RFC 9438, Mathis et al. 1997). */
static const struct row {
    const char *what;
    struct path_facts f;
    unsigned streams;
    bool paced;
    enum path_reason reason;
} rows[] = {
    {"BBR, not measured", {.congestion = "bbr", .buffer_bytes = 64 * MIB}, 1, false, PATH_UNKNOWN},
    {"a later BBR", {.congestion = "bbr3"}, 1, false, PATH_UNKNOWN},
    {"cubic, not measured",
     {.congestion = "cubic", .buffer_bytes = 64 * MIB},
     16,
     false,
     PATH_UNKNOWN},
    {"nothing known", {.congestion = ""}, 16, false, PATH_UNKNOWN},
    {"BBR, large buffers",
     {.congestion = "bbr",
      .buffer_bytes = 64 * MIB,
      .rtt_s = 0.1,
      .rate = 120e6,
      .mean = 100e6,
      .streams = 1},
     1,
     true,
     PATH_FULL},
    {"BBR does not slow down at lost packets",
     {.congestion = "bbr",
      .buffer_bytes = 64 * MIB,
      .rtt_s = 0.1,
      .rate = 120e6,
      .mean = 90e6,
      .loss = 0.001,
      .streams = 1},
     1,
     true,
     PATH_FULL},
    {"BBR, 4 MiB of buffers, one connection is full of it: 25 MB/s",
     {.congestion = "bbr",
      .buffer_bytes = 4 * MIB,
      .rtt_s = 0.1,
      .rate = 24e6,
      .mean = 22e6,
      .streams = 1},
     2,
     false,
     PATH_BUFFERS},
    {"eight of them are not",
     {.congestion = "bbr",
      .buffer_bytes = 4 * MIB,
      .rtt_s = 0.1,
      .rate = 120e6,
      .mean = 100e6,
      .streams = 8},
     8,
     true,
     PATH_FULL},
    {"more than sixteen there are not",
     {.congestion = "bbr",
      .buffer_bytes = MIB,
      .rtt_s = 0.1,
      .rate = 90e6,
      .mean = 90e6,
      .streams = 16},
     16,
     false,
     PATH_BUFFERS},
    {"cubic without loss on a long path: a part for each window",
     {.congestion = "cubic",
      .buffer_bytes = 64 * MIB,
      .rtt_s = 0.1,
      .rate = 120e6,
      .mean = 60e6,
      .streams = 16},
     16,
     true,
     PATH_WINDOWS},
    {"cubic whose connections overflowed a queue: 2 % in one burst",
     {.congestion = "cubic",
      .buffer_bytes = 64 * MIB,
      .rtt_s = 0.1,
      .rate = 120e6,
      .mean = 30e6,
      .loss = 0.02,
      .streams = 4},
     16,
     true,
     PATH_WINDOWS},
    {"cubic on a path that holds 0.6 MB: three",
     {.congestion = "cubic",
      .buffer_bytes = 64 * MIB,
      .rtt_s = 0.05,
      .rate = 12e6,
      .mean = 11e6,
      .streams = 16},
     3,
     true,
     PATH_WINDOWS},
    {"cubic with random loss: 0.56 MB/s each",
     {.congestion = "cubic",
      .buffer_bytes = 64 * MIB,
      .rtt_s = 0.1,
      .rate = 3e6,
      .mean = 0.6e6,
      .loss = 0.001,
      .streams = 1},
     16,
     false,
     PATH_LOSS},
    {"sixteen of them",
     {.congestion = "cubic",
      .buffer_bytes = 64 * MIB,
      .rtt_s = 0.1,
      .rate = 12e6,
      .mean = 8.5e6,
      .loss = 0.001,
      .streams = 16},
     16,
     false,
     PATH_LOSS},
    {"the same loss on a slow path, where few connections are enough",
     {.congestion = "reno",
      .buffer_bytes = 64 * MIB,
      .rtt_s = 0.1,
      .rate = 1.2e6,
      .mean = 1.1e6,
      .loss = 0.001,
      .streams = 16},
     4,
     true,
     PATH_FULL},
    {"the same hall",
     {.congestion = "cubic",
      .buffer_bytes = 4 * MIB,
      .rtt_s = 0.0002,
      .rate = 1.2e9,
      .mean = 1e9,
      .streams = 16},
     1,
     true,
     PATH_FULL},
};

static void the_choice(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct path_choice c = path_choose(&rows[i].f);
        if (c.streams != rows[i].streams || (c.pace > 0) != rows[i].paced ||
            c.reason != rows[i].reason)
            fail_msg("%s: %u connections, pace %g, reason %d", rows[i].what, c.streams, c.pace,
                     c.reason);
        if (c.pace > 0)
            assert_true(c.pace == rows[i].f.rate);
    }
}

static const struct path_facts bbr = {.congestion = "bbr", .buffer_bytes = 64 * MIB},
                               cubic = {.congestion = "cubic", .buffer_bytes = 64 * MIB};

static struct path_sample sample(double bytes, double rate)
{
    return (struct path_sample){
        .bytes = bytes, .seconds = bytes / rate + 0.1, .rate = rate, .rtt_s = 0.1, .streams = 1};
}

static void learn(struct path *p, double bytes, double rate)
{
    struct path_sample s = sample(bytes, rate);
    path_learn(p, &s);
}

/* A transfer in slow start ends at a rate of its own, not the path's. */
static void a_short_transfer_says_nothing(void **state)
{
    (void)state;
    struct path p;
    path_open(&p, &bbr, 0);
    learn(&p, 1 * MIB, 5e6);
    assert_int_equal(p.now.reason, PATH_UNKNOWN);
    assert_true(p.now.pace == 0);
    learn(&p, 64 * MIB, 120e6);
    assert_int_equal(p.now.reason, PATH_FULL);
    learn(&p, 64 * MIB, 120e6);
    assert_true(p.now.pace > 120e6 && p.now.pace < 1.06 * 120e6);
    learn(&p, 1 * MIB, 5e6); /* nor does it take anything back */
    assert_true(p.now.pace > 120e6);
}

/* What it was paced at is what it reached: the path may be faster. */
static void the_pace_follows_a_path_that_becomes_faster(void **state)
{
    (void)state;
    struct path p;
    int transfers = 0;
    path_open(&p, &bbr, 0);
    learn(&p, 64 * MIB, 12e6);
    for (; p.facts.rate < 119e6 && transfers < 20; transfers++)
        learn(&p, 64 * MIB, fmin(120e6, p.now.pace));
    assert_true(transfers <= 6);
    learn(&p, 64 * MIB, 120e6);
    assert_true(p.now.pace < 1.06 * 120e6); /* and ends there */
}

/* As measured with 0.1 % loss: BBR left its start-up phase at 283 of 1,000 Mbit/s, and probes with
 * 1.25 times its rate about twice in a transfer. A pace below that would hold it there. */
static void bbr_has_room_until_it_is_no_faster(void **state)
{
    (void)state;
    struct path p;
    double rate = 35.4e6;
    path_open(&p, &bbr, 0);
    for (int i = 0; i < 4; i++) {
        learn(&p, 64 * MIB, rate);
        assert_true(p.now.pace >= 1.25 * 1.25 * rate);
        rate = fmin(fmin(1.25 * 1.25 * rate, p.now.pace), 120e6);
    }
    assert_true(rate == 120e6);
    learn(&p, 64 * MIB, 120e6);
    learn(&p, 64 * MIB, 120e6);
    assert_true(p.now.pace < 1.06 * 120e6);
}

static void and_one_that_becomes_slower(void **state)
{
    (void)state;
    struct path p;
    path_open(&p, &bbr, 0);
    learn(&p, 64 * MIB, 120e6);
    for (int i = 0; i < PATH_WINDOW; i++)
        learn(&p, 64 * MIB, 12e6);
    assert_true(p.now.pace < 1.06 * 12e6);
}

/* Samples of transfers over 1 Gbit/s and 100 ms, cubic, as they were measured: without loss (64 MiB
 * down) and with 0.1 % (16 MiB up), with one connection and more. A window that is small for a
 * while is no path that has become slow. */
struct recorded {
    double bytes, seconds, rate, loss;
    unsigned streams;
};
static const struct recorded
    no_loss[] = {{67.2e6, 5.199, 73.5e6, 0.05163, 4},   {67.2e6, 2.124, 106.5e6, 0, 4},
                 {67.2e6, 4.446, 38.1e6, 0, 1},         {67.2e6, 2.004, 69.9e6, 0, 1},
                 {67.2e6, 0.721, 111.0e6, 0, 1},        {67.2e6, 1.666, 46.4e6, 0, 1},
                 {67.2e6, 1.480, 49.3e6, 0, 1},         {67.2e6, 1.542, 115.6e6, 0, 1},
                 {67.2e6, 1.172, 120.7e6, 0.03751, 16}, {67.2e6, 0.712, 121.0e6, 0, 16}},
    loss[] = {{16.8e6, 2.144, 48.4e6, 0.00034, 4}, {16.8e6, 1.831, 31.8e6, 0.00060, 4},
              {16.8e6, 15.348, 3.6e6, 0.00086, 1}, {16.8e6, 4.622, 48.0e6, 0.00095, 12},
              {16.8e6, 8.742, 32.9e6, 0.00121, 7}, {16.8e6, 0.420, 104.3e6, 0.00086, 12},
              {16.8e6, 0.381, 108.5e6, 0.00060, 6}};

static void replay(const struct recorded *r, size_t n)
{
    struct path p;
    double most = 0;
    path_open(&p, &cubic, 0);
    assert_int_equal(p.now.streams, PATH_STREAMS_MAX);
    for (size_t i = 0; i < n; i++) {
        path_learn(&p, &(struct path_sample){.bytes = r[i].bytes,
                                             .seconds = r[i].seconds,
                                             .rate = r[i].rate,
                                             .rtt_s = 0.1,
                                             .loss = r[i].loss,
                                             .streams = r[i].streams});
        most = fmax(most, p.facts.rate);
        if (p.now.streams != PATH_STREAMS_MAX)
            fail_msg("after transfer %zu: %u connections", i, p.now.streams);
        if (p.now.pace > 0 && (p.now.pace < 1.03 * most || p.now.pace > 2 * most))
            fail_msg("after transfer %zu: paced at %g, measured %g", i, p.now.pace, most);
    }
}

static void the_choice_does_not_wander(void **state)
{
    (void)state;
    replay(no_loss, sizeof no_loss / sizeof *no_loss);
    replay(loss, sizeof loss / sizeof *loss);
}

/* Other connections have other windows, so a few fewer are not worth the change. */
static void a_number_stays_until_half_is_enough(void **state)
{
    (void)state;
    struct path p;
    path_open(&p, &cubic, 0);
    learn(&p, 64 * MIB, 26e6); /* 2.6 MB, 10 parts */
    assert_int_equal(p.now.streams, 16);
    path_open(&p, &cubic, 0);
    learn(&p, 64 * MIB, 18e6); /* 7 parts */
    assert_int_equal(p.now.streams, 7);
    learn(&p, 64 * MIB, 26e6);
    assert_int_equal(p.now.streams, 10);
}

static void a_fixed_number_stays(void **state)
{
    (void)state;
    struct path p;
    char text[192];
    path_open(&p, &cubic, 4);
    path_congestion(&p, "bbr");
    learn(&p, 64 * MIB, 120e6);
    assert_int_equal(p.now.streams, 4);
    assert_true(p.now.pace == 0);
    path_text(&p, text, sizeof text);
    assert_string_equal(text, "4 connections with bbr: site.streams gives the number");
}

static void the_reason_is_said(void **state)
{
    (void)state;
    struct path p;
    char text[192];
    path_open(&p, &cubic, 0);
    path_congestion(&p, "bbr"); /* of the sockets, known before anything is measured */
    assert_int_equal(p.now.streams, 1);
    learn(&p, 64 * MIB, 120e6);
    learn(&p, 64 * MIB, 120e6);
    path_text(&p, text, sizeof text);
    assert_string_equal(text, "1 connection with bbr, paced at 998 Mbit/s: it fills the path");
    path_open(&p, &cubic, 0);
    path_text(&p, text, sizeof text);
    assert_string_equal(text, "16 connections with cubic: the path is not measured");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_choice),
        cmocka_unit_test(a_short_transfer_says_nothing),
        cmocka_unit_test(the_pace_follows_a_path_that_becomes_faster),
        cmocka_unit_test(and_one_that_becomes_slower),
        cmocka_unit_test(bbr_has_room_until_it_is_no_faster),
        cmocka_unit_test(the_choice_does_not_wander),
        cmocka_unit_test(a_number_stays_until_half_is_enough),
        cmocka_unit_test(a_fixed_number_stays),
        cmocka_unit_test(the_reason_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
