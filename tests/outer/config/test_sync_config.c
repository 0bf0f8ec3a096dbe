/* SPDX-License-Identifier: Apache-2.0 */
/* From settings to the cut and the period of every published exchange. If this breaks, the sites of
 * a run exchange other things, or at other steps, than the configuration says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "outer/config/sync_config.h"
#include "outer/config/tuning.h"

static struct arena arena;

/* The defaults with these arguments ("--outer.sync_every 50 ..."). */
static enum err made(struct sync_config *x, char *arguments)
{
    static struct settings s;
    static struct outer_settings o;
    static struct table t;
    char *words[64];
    int count = 0;
    const struct config_table tables[] = {keys_inner(&s), keys_outer(&o)};
    for (char *w = strtok(arguments, " "); w; w = strtok(NULL, " "))
        words[count++] = w;
    TRY(config_load(tables, 2, NULL, count, words, &arena));
    tuning_resolve(&o);
    TRY(table_make(&t, &s, &arena));
    return sync_config_make(x, &s, &o, &t, &arena);
}

#define MODEL "--model.layers 4 --model.d_model 32 --model.heads 2 --train.steps 1000 "

static void test_streaming(void **state)
{
    (void)state;
    struct sync_config x;
    char a[] = MODEL
        "--outer.sync_every 100 --outer.fragments 2 --outer.codec int4 --outer.overlap_steps 5";
    assert_int_equal(made(&x, a), ERR_OK);
    assert_int_equal(x.fragments.count, 2);
    assert_int_equal(schedule_step(&x.schedule, 0, 0), 100);
    assert_int_equal(schedule_step(&x.schedule, 1, 0), 150); /* Streaming DiLoCo 2.2 */
    assert_int_equal(schedule_apply(&x.schedule, 1, 0), 155);
    assert_int_equal(schedule_codec(&x.schedule, 1, 3, 0), CODEC_INT4);
    assert_int_equal(schedule_codec(&x.schedule, 1, 0, 0), CODEC_BF16);
    char fixed[] = MODEL "--outer.sync_every 100 --outer.codec int4 --outer.full_precision fixed";
    assert_int_equal(made(&x, fixed), ERR_OK);
    assert_int_equal(schedule_codec(&x.schedule, 0, 0, 0), CODEC_FIXED);
    assert_int_equal(schedule_codec(&x.schedule, 0, 1, 0), CODEC_INT4);
}

/* Periods 3H and 6H for the moments, each part at its parameters' step of the period. */
static void test_des_loc(void **state)
{
    (void)state;
    struct sync_config x;
    char a[] = MODEL
        "--outer.sync_every 10 --outer.fragments 2 --outer.codec int8 --outer.optimizer average "
        "--outer.moment1_every 30 --outer.moment2_every 60";
    assert_int_equal(made(&x, a), ERR_OK);
    assert_int_equal(x.fragments.count, 6);
    static const enum fragment_state states[] = {FRAGMENT_PARAMETERS, FRAGMENT_PARAMETERS,
                                                 FRAGMENT_FIRST,      FRAGMENT_FIRST,
                                                 FRAGMENT_SECOND,     FRAGMENT_SECOND};
    static const int64_t first[] = {10, 15, 30, 35, 60, 65}, second[] = {20, 25, 60, 65, 120, 125};
    for (unsigned f = 0; f < 6; f++) {
        assert_int_equal(x.fragments.f[f].state, states[f]);
        assert_int_equal(schedule_step(&x.schedule, f, 0), first[f]);
        assert_int_equal(schedule_step(&x.schedule, f, 1), second[f]);
        assert_int_equal(schedule_codec(&x.schedule, f, 2, 0), f < 2 ? CODEC_INT8 : CODEC_BF16);
    }
}

static void test_slices(void **state)
{
    (void)state;
    struct sync_config x;
    char a[] = MODEL
        "--outer.sync_every 10 --outer.partition slices --outer.slices embed-0@3,1-2@7,3-final@10 "
        "--outer.moment1_every 20";
    assert_int_equal(made(&x, a), ERR_OK);
    assert_int_equal(x.fragments.count, 6);
    assert_int_equal(schedule_step(&x.schedule, 0, 0), 3);
    assert_int_equal(schedule_step(&x.schedule, 1, 0), 7);
    assert_int_equal(schedule_step(&x.schedule, 1, 1), 17);
    assert_int_equal(schedule_step(&x.schedule, 2, 1), 20);
    assert_int_equal(schedule_step(&x.schedule, 3, 0),
                     13); /* the moment's part: 3 steps into its period's end */
    char b[] =
        MODEL "--outer.sync_every 10 --outer.partition slices --outer.slices embed-0@3,2-final@10";
    assert_int_equal(made(&x, b), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "layer 1"));
}

static void test_refused(void **state)
{
    (void)state;
    struct sync_config x;
    char a[] = MODEL "--outer.sync_every 10 --outer.moment1_every 25";
    assert_int_equal(made(&x, a), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "the nearest are 20 and 30"));
    char b[] = MODEL "--outer.sync_every 64 --outer.fragments 32 --outer.partition random "
                     "--outer.moment1_every 64 --outer.moment2_every 64";
    assert_int_equal(made(&x, b), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "96 fragments"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streaming), cmocka_unit_test(test_des_loc),
        cmocka_unit_test(test_slices), cmocka_unit_test(test_refused)};
    arena = arena_make(0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
