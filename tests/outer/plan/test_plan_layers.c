/* SPDX-License-Identifier: Apache-2.0 */
/* From measured layer times to slices that a run takes as they are. If this breaks, `atoll plan
 * --layers` prints a configuration that is refused, or one that leaves layers out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "outer/plan/plan_layers.h"

static struct run p;

static enum err made(struct plan_layers *l, const char *ms, const char *every, double bps)
{
    const char *words[] = {"--model.layers",     "4",  "--model.d_model", "32",
                           "--model.heads",      "2",  "--outer.sites",   "a,b",
                           "--plan.layers_ms",   ms,   "--plan.step_s",   "1",
                           "--outer.sync_every", every};
    struct args args = {.setting_count = sizeof words / sizeof *words,
                        .setting = (char **)(uintptr_t)words};
    struct line link = {.up_bps = bps, .down_bps = bps, .rtt_s = 0.01, .streams = 1};
    run_close(&p);
    TRY(run_open(&p, &(struct run_source){RUN_PLAN, .args = &args}));
    return plan_layers_make(l, &p, &link);
}

/* Every layer once, in steps that rise with the backward pass, each text one that the configuration
 * reads back. */
static void covers(const struct plan_layers *l, int64_t every)
{
    int next = 4; /* the final norm's gradient is the first to be ready */
    for (unsigned i = 0; i < l->count; i++) {
        struct fragment_slice again;
        char text[PLAN_LAYERS_TEXT];
        plan_layers_text(&l->slice[i], 4, text, sizeof text);
        assert_true(fragment_slice_parse(&again, text, 4, every));
        assert_true(again.first == l->slice[i].first && again.last == l->slice[i].last);
        assert_true(again.at == l->slice[i].at && again.more_count == l->slice[i].more_count);
        assert_memory_equal(again.more, l->slice[i].more, again.more_count * sizeof *again.more);
        assert_int_equal(l->slice[i].last, next);
        assert_true(i == 0 || l->slice[i].at > l->slice[i - 1].at ||
                    (l->slice[i].at == l->slice[i - 1].at && l->more)); /* cut by fill-in */
        next = l->slice[i].first - 1;
    }
    assert_int_equal(next, -2);
}

static void test_slices(void **state)
{
    (void)state;
    struct plan_layers l;
    assert_int_equal(made(&l, "1,2,2,2,2,1", "30", 1e9), ERR_OK);
    covers(&l, 30);
    assert_int_equal(l.span, 5);
    assert_int_equal(
        l.count,
        1); /* a line so fast that all of it fits under one slot but for what is ready last */
    assert_true(l.wait_s < 0.02);
    assert_int_equal(made(&l, "1,2,2,2,2,1", "30", 2e4), ERR_OK);
    covers(&l, 30);
    assert_true(l.count > 2 && l.wait_s > 1); /* a line that cannot hide it */
    int64_t every, longest = 0;
    struct line link = {.up_bps = 2e4, .down_bps = 2e4, .rtt_s = 0.01, .streams = 1};
    assert_int_equal(plan_layers_every(&every, &p, &link), ERR_OK);
    assert_int_equal(p.o.outer_sync_every, 30);
    assert_true(every > 30 && every % 30 == 0);
    for (int64_t n = 30; n <= every; n += 30) { /* the first that waits little enough */
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)n);
        assert_int_equal(made(&l, "1,2,2,2,2,1", text, 2e4), ERR_OK);
        longest = l.wait_s <= PLAN_LAYERS_WAIT * (double)n ? n : longest;
        assert_true(n == every ? longest == every : longest == 0);
    }
    link.up_bps = link.down_bps = 100;
    assert_int_equal(plan_layers_every(&every, &p, &link), ERR_OK);
    assert_int_equal(every, 0);
    assert_int_equal(made(&l, "1,2,2,2,2,1", "2", 2e4), ERR_OK);
    covers(&l, 2);
    assert_true(l.span == 1 && l.count <= 2);
}

/* Slots of one step are filled in with layers whose gradients are ready before the slot's own. */
static void test_fill_in(void **state)
{
    (void)state;
    struct plan_layers l;
    unsigned more = 0;
    assert_int_equal(made(&l, "1,2,2,2,2,1", "6", 2e6), ERR_OK);
    covers(&l, 6);
    assert_int_equal(l.span, 1);
    for (unsigned i = 0; i < l.count; i++)
        more += l.slice[i].more_count;
    assert_true(more == l.more && more > 0);
    assert_int_equal(made(&l, "1,2,2,2,2,1", "12", 2e6), ERR_OK);
    assert_true(l.span == 2 && l.more == 0); /* would replace updates */
}

static void test_refused(void **state)
{
    (void)state;
    struct plan_layers l;
    assert_int_equal(made(&l, "1,2,2,2,1", "30", 1e9), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "5 entries; a model of 4 layers has 6"));
    assert_int_equal(made(&l, "1,2,x,2,2,1", "30", 1e9), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "\"x\" is no time"));
    assert_int_equal(made(&l, "0,0,0,0,0,0", "30", 1e9), ERR_CONFIG);
    assert_int_equal(made(&l, "1,2,-1,2,2,1", "30", 1e9), ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slices),
                                       cmocka_unit_test(test_fill_in),
                                       cmocka_unit_test(test_refused)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    run_close(&p);
    return failed;
}
