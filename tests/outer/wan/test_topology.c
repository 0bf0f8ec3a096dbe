/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if topologies are misread: an experiment runs over another network than its author
 * wrote down. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include "outer/wan/topology.h"

static struct arena arena;
static struct topology t;

static enum err parse(const char *text, const char *names)
{
    arena_reset(&arena);
    return topology_parse(&t, "net.yaml", text, strlen(text), names, &arena);
}

static const struct flow_settings *flow(const char *from, const char *to)
{
    int f = topology_place(&t, from), g = topology_place(&t, to);
    assert_true(f >= 0 && g >= 0);
    return &t.flows[(unsigned)f * t.places + (unsigned)g];
}

static void nearer_sections_win(void **state)
{
    (void)state;
    static const char text[] = "wan:\n  sites: [a, b, c]\n  seed: 7\n"
                               "link:\n  rate_mbit: 100\n  delay_ms: 20\n  queue_ms: 10\n"
                               "a<>b:\n  delay_ms: 5\n  queue_bytes: 777\n"
                               "b>a:\n  rate_mbit: 2.5\n  later_s: 7.5\n  later_rate_mbit: 1.25\n  "
                               "queue_ms: 4\n  loss_percent: 0.1\n  outages: [1-2, 3.5-4]\n"
                               "run:\n  b: echo {site}\n";
    assert_int_equal(parse(text, NULL), ERR_OK);
    assert_int_equal(t.places, 3);
    assert_int_equal(flow("a", "c")->delay_ns, 20000000);
    assert_int_equal(flow("a", "c")->queue_bytes, 125000); /* 10 ms of 100 Mbit/s */
    assert_int_equal(flow("a", "b")->rate_bps, 100000000);
    assert_int_equal(flow("a", "b")->delay_ns, 5000000);
    assert_int_equal(flow("a", "b")->queue_bytes, 777);
    assert_int_equal(flow("b", "a")->rate_bps, 2500000);
    assert_int_equal(flow("b", "a")->delay_ns, 5000000);
    assert_int_equal(flow("b", "a")->queue_bytes,
                     1250); /* its own queue_ms over the pair's queue_bytes */
    assert_true(flow("b", "a")->loss == 0.001 && flow("a", "b")->loss == 0);
    assert_int_equal(flow("b", "a")->outage_count, 2);
    assert_int_equal(flow("b", "a")->outages[1].from_ns, 3500000000);
    assert_int_equal(flow("b", "a")->later_bps, 1250000);
    assert_int_equal(flow("b", "a")->later_ns, 7500000000);
    assert_int_equal(flow("b", "a")->seed, 7);
    assert_int_not_equal(flow("b", "a")->direction, flow("a", "b")->direction);
    assert_string_equal(t.command[1], "echo {site}");
    assert_string_equal(t.command[0], "");
}

static void names_can_be_given(void **state)
{
    (void)state;
    static const char text[] = "wan:\n  sites: a, b\nlink:\n  delay_ms: 9\na>b:\n  delay_ms: 1\n";
    assert_int_equal(parse(text, "x,y, z"), ERR_OK);
    assert_int_equal(t.places, 3);
    assert_int_equal(flow("x", "y")->delay_ns, 1000000);
    assert_int_equal(flow("y", "x")->delay_ns, 9000000);
    assert_int_equal(flow("x", "z")->delay_ns, 9000000);
}

static void presets_are_good(void **state)
{
    (void)state;
    size_t count;
    const struct topology_preset *all = topology_presets(&count);
    assert_int_equal(count, 5);
    for (size_t i = 0; i < count; i++) {
        arena_reset(&arena);
        if (topology_load(&t, all[i].name, NULL, &arena) != ERR_OK)
            fail_msg("%s: %s", all[i].name, err_message());
        assert_true(topology_place(&t, "a") >= 0 && topology_place(&t, "b") >= 0 &&
                    topology_place(&t, "aggregator") >= 0);
        assert_true(flow("b", "aggregator")->rate_bps > 0 && flow("b", "aggregator")->delay_ns > 0);
    }
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"link:\n  delay_ms: 1\n", "wan.sites must be given"},
        {"wan:\n  sites: [a]\n", "net.yaml:2: wan.sites: 1 places; a network has 2 to 65"},
        {"wan:\n  sites: [a, b, a]\n", "\"a\" is listed twice"},
        {"wan:\n  sites: [a, b c]\n", "\"b c\": allowed are 1 to 63 letters"},
        {"wan:\n  sites: [london, paris]\nlondon<>pari:\n  delay_ms: 1\n",
         "net.yaml:4: london<>pari: \"pari\" is none of wan.sites; the nearest is \"paris\""},
        {"wan:\n  sites: [a, b]\na>a:\n  delay_ms: 1\n", "a>a: a place has no link to itself"},
        {"wan:\n  sites: [a, b]\na<>b:\n  delay_ms: 1\nb<>a:\n  delay_ms: 2\n",
         "b<>a is the same pair as a<>b on line 4"},
        {"wan:\n  sites: [a, b]\na<>b:\n  rate_mbits: 1\n",
         "unknown key a<>b.rate_mbits; the nearest is a<>b.rate_mbit"},
        {"wan:\n  sites: [a, b]\nlnk:\n  rate_mbit: 1\n", "unknown key lnk.rate_mbit"},
        {"wan:\n  sites: [a, b]\na>b:\n  rate_mbit: -5\n",
         "net.yaml:4: a>b.rate_mbit = \"-5\": allowed is a number from 0"},
        {"wan:\n  sites: [a, b]\nlink:\n  rate_mbit: 0.0001\n", "the least is 0.001"},
        {"wan:\n  sites: [a, b]\nlink:\n  loss_percent: 101\n", "from 0 to 100 %"},
        {"wan:\n  sites: [a, b]\nlink:\n  delay_ms: 3\n  jitter_ms: 2\n",
         "net.yaml:5: link.jitter_ms = 2 is too much"},
        {"wan:\n  sites: [a, b]\nlink:\n  reorder_percent: 3\n", "needs reorder_ms"},
        {"wan:\n  sites: [a, b]\nlink:\n  loss_percent: 1\n  loss_run: 0.5\n",
         "a run has at least 1 packet"},
        {"wan:\n  sites: [a, b]\nlink:\n  loss_percent: 90\n  loss_run: 2\n",
         "the least run is 9, the most loss 66.67 %"},
        {"wan:\n  sites: [a, b]\na>b:\n  outages: [30-40, 35-45]\n",
         "net.yaml:4: a>b.outages: 35-45 begins before 30-40 is over; it can begin at 40"},
        {"wan:\n  sites: [a, b]\na>b:\n  rate_mbit: 4\n  later_s: 3\n",
         "a>b.later_s = 3 needs rate_mbit and later_rate_mbit"},
        {"wan:\n  sites: [a, b]\na>b:\n  outages: [40-30]\n",
         "\"40-30\" is not FROM-TO in seconds"},
        {"wan:\n  sites: [a, b]\na>b:\n  outages: [soon]\n", "\"soon\" is not FROM-TO"},
        {"wan:\n  sites: [a, b]\na>b:\n  outages: [5-70]\n  outage_every_s: 60\n",
         "the least is 70"},
        {"wan:\n  sites: [a, b]\nrun:\n  c: ls\n", "unknown key run.c"},
        {"wan:\n  sites: [a, b]\n  mtu: 100\n", "from 576 to 65535"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (parse(cases[i].text, NULL) != ERR_CONFIG || !strstr(err_message(), cases[i].sentence))
            fail_msg("\"%s\": \"%s\" expected, got \"%s\"", cases[i].text, cases[i].sentence,
                     err_message());
    assert_int_equal(parse("wan:\n  sites: [a, b]\n", "x,x"), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "--sites: \"x\" is listed twice"));
    arena_reset(&arena);
    assert_int_equal(topology_load(&t, "satelite", NULL, &arena), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "the nearest preset is satellite"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearer_sections_win),
        cmocka_unit_test(names_can_be_given),
        cmocka_unit_test(presets_are_good),
        cmocka_unit_test(mistakes_are_named),
    };
    arena = arena_make(0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
