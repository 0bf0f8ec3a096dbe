/* SPDX-License-Identifier: Apache-2.0 */
/* One loader for all commands. If this breaks, a command starts with a configuration that another
 * one refuses, or a process calculates with other fragments, rates or memory than the run has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "outer/config/run.h"
#include "tests/inner/scratch.h"

#define MODEL "--model.layers 4 --model.d_model 32 --model.heads 2 --train.steps 1000 "

static struct run run;
static char words_text[1024];

/* Opens `run` with these arguments ("--outer.sync_every 50 ..."). */
static enum err opened(struct run_source source, const char *arguments)
{
    static char *words[64];
    struct args args = {.setting = words};
    snprintf(words_text, sizeof words_text, "%s", arguments);
    for (char *w = strtok(words_text, " "); w; w = strtok(NULL, " "))
        words[args.setting_count++] = w;
    source.args = &args;
    run_close(&run);
    return run_open(&run, &source);
}

static enum err opened_as(enum run_role role, const char *arguments)
{
    return opened((struct run_source){.role = role}, arguments);
}

static void test_every_role_checks_every_rule(void **state)
{
    (void)state;
    for (int role = RUN_SITE; role <= RUN_PLAN; role++) {
        assert_int_equal(opened_as((enum run_role)role, "--outer.partition slices --outer.sites a"),
                         ERR_CONFIG);
        assert_says("outer.slices has 0 entries");
        /* both tables in one message */
        assert_int_equal(opened_as((enum run_role)role,
                                   "--outer.sites a --model.heads 3 --train.seq_len 256 "
                                   "--outer.sync_every 10 --outer.fragments 4"),
                         ERR_CONFIG);
        assert_says("model.heads");
        assert_says("train.seq_len");
        assert_says("outer.sync_every");
        /* the rules hold, but the model cannot be cut so */
        assert_int_equal(opened_as((enum run_role)role,
                                   MODEL "--outer.sites a --outer.partition slices --outer.slices "
                                         "embed-1@10,3-final@50"),
                         ERR_CONFIG);
    }
}

static void test_roles_need(void **state)
{
    (void)state;
    assert_int_equal(opened_as(RUN_MODEL, MODEL), ERR_OK);
    assert_int_equal(opened_as(RUN_SITE, MODEL), ERR_OK);
    assert_int_equal(opened_as(RUN_AGGREGATOR, MODEL), ERR_CONFIG);
    assert_says("list the names of all sites of the run");
    assert_int_equal(opened_as(RUN_PLAN, MODEL), ERR_CONFIG);
    assert_says("--sites N");
    assert_int_equal(opened_as(RUN_SITE, MODEL "--outer.sites a,b --site.aggregator h:1"),
                     ERR_CONFIG);
    assert_says("site.name is missing");
    assert_int_equal(opened_as(RUN_AGGREGATOR, MODEL "--outer.sites a,b --site.aggregator h:1"),
                     ERR_OK);
    assert_int_equal(
        opened_as(RUN_SITE, MODEL "--outer.sites a,b --site.name b --site.aggregator h:1"), ERR_OK);
    assert_int_equal(run.index, 1);
    /* Sites that an operator adds: the pinned settings are the run's, the number is the name's. */
    char *identity = strdup(run.identity);
    assert_int_equal(
        opened_as(RUN_SITE, MODEL "--outer.sites a,b --site.name c --site.aggregator h:1"), ERR_OK);
    int number = run.index;
    assert_string_equal(run.identity, identity);
    free(identity);
    assert_in_range(number, ROUND_SITES_MAX, (1 << 24) - 1); /* inner/data/loader.c shifts it */
    assert_int_equal(
        opened_as(RUN_SITE, MODEL "--outer.sites a,b --site.name d --site.aggregator h:1"), ERR_OK);
    assert_int_not_equal(run.index, number);
    assert_int_equal(opened_as(RUN_SITE, MODEL "--outer.sites a --site.aggregator h:1"), ERR_OK);
    assert_string_equal(run.o.site_name, "a"); /* the only one */
    assert_int_equal(opened((struct run_source){.role = RUN_PLAN, .sites = 3}, MODEL), ERR_OK);
    assert_int_equal(run.o.outer_sites.count, 3);
    assert_string_equal(run.o.outer_sites.items[2], "s2");
}

/* The rate in use is pinned, so that a table that changes later refuses old sites. */
static void test_identity_holds_the_rate(void **state)
{
    (void)state;
    assert_int_equal(opened_as(RUN_SITE, MODEL "--outer.sites a,b --site.name a"), ERR_OK);
    assert_true(run.o.outer_lr > 0 && run.o.outer_lr == run.tuning.lr && run.tuning.from_table);
    assert_null(strstr(run.identity, "outer.lr=0\n"));
    assert_non_null(strstr(run.identity, "outer.sites=[a, b]\n"));
}

/* The identity of runs that were begun without the key is what it was. */
static void test_identity_of_full_precision(void **state)
{
    (void)state;
    assert_int_equal(opened_as(RUN_SITE, MODEL "--outer.sites a,b --site.name a"), ERR_OK);
    assert_null(strstr(run.identity, "outer.full_precision="));
    assert_int_equal(opened_as(RUN_SITE, MODEL "--outer.sites a,b --site.name a "
                                               "--outer.full_precision fixed"),
                     ERR_OK);
    assert_non_null(strstr(run.identity, "outer.full_precision=fixed\n"));
}

/* Sites number tokens and classes alike, or the aggregator refuses one. */
static void test_identity_holds_the_vocabulary(void **state)
{
    (void)state;
#define DIGEST "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
    assert_int_equal(opened_as(RUN_SITE, MODEL "--outer.sites a --data.objective labels "
                                               "--model.causal false --data.classes no,yes "
                                               "--data.tokenizer_sha256 " DIGEST),
                     ERR_OK);
    assert_non_null(strstr(run.identity, "data.tokenizer_sha256=" DIGEST "\n"));
    assert_non_null(strstr(run.identity, "data.classes=[no, yes]\n"));
}

/* The identity is of the settings that all sites share; a site trains with its own share. */
static void test_site_settings(void **state)
{
    (void)state;
    assert_int_equal(opened_as(RUN_SITE,
                               MODEL "--outer.sites a,b --site.name a --site.batch_scale 0.5 "
                                     "--site.aggregator h:1 --train.checkpoint_every 0 "
                                     "--outer.sync_every 20 --train.batch_tokens 4096"),
                     ERR_OK);
    struct settings s = run_site_settings(&run);
    assert_int_equal(s.train_batch_tokens, 2048);
    assert_int_equal(s.train_checkpoint_every, 160);
    assert_int_equal(run.s.train_batch_tokens, 4096);
    assert_non_null(strstr(run.identity, "train.batch_tokens=4096\n"));
}

/* 12 bytes per parameter for theta, momentum and residual; 8 more for the discarded residual. */
static void test_state_options(void **state)
{
    (void)state;
    const char *plain = MODEL "--outer.sites a,b",
               *reset = MODEL "--outer.sites a,b --outer.residual_reset 4",
               *decay = MODEL "--outer.sites a,b --outer.error_feedback_decay 0.95";
    assert_int_equal(opened_as(RUN_PLAN, plain), ERR_OK);
    struct outer_state_options site = run_outer_state(&run, true);
    assert_true(site.residuals && !site.discards && !site.compresses_downlink);
    size_t bytes = outer_state_memory(&site, true).host;
    struct outer_state_options aggregator = run_outer_state(&run, false);
    assert_false(aggregator.residuals || aggregator.compresses_downlink || aggregator.discards);
    assert_int_equal(aggregator.keep, 8);
    assert_int_equal(opened_as(RUN_PLAN, reset), ERR_OK);
    site = run_outer_state(&run, true);
    assert_true(site.discards);
    /* one fragment: the state, and the next state */
    assert_int_equal(outer_state_memory(&site, true).host - bytes,
                     2 * 8 * run.sync.fragments.f[0].elements);
    assert_int_equal(opened_as(RUN_PLAN, decay), ERR_OK);
    site = run_outer_state(&run, true);
    assert_true(site.discards);
    assert_int_equal(opened_as(RUN_PLAN,
                               MODEL "--outer.sites a,b --outer.downlink_compression_from 2 "
                                     "--outer.codec topk --outer.residual_reset 4"),
                     ERR_OK);
    aggregator = run_outer_state(&run, false);
    assert_true(aggregator.compresses_downlink && aggregator.discards && !aggregator.residuals);
}

static bool same_cut(const struct fragments *a, const struct fragments *b)
{
    bool same = a->count == b->count;
    for (unsigned i = 0; same && i < a->count; i++)
        same =
            a->f[i].range_count == b->f[i].range_count &&
            !memcmp(a->f[i].ranges, b->f[i].ranges, a->f[i].range_count * sizeof *a->f[i].ranges);
    return same;
}

static void test_cut_follows_partition(void **state)
{
    (void)state;
    struct fragments f, strided;
    assert_int_equal(opened_as(RUN_PLAN, MODEL "--outer.sites a,b --outer.sync_every 40"), ERR_OK);
    assert_int_equal(sync_config_cut(&strided, &run.s, &run.o, &run.table, 2, &run.perm), ERR_OK);
    struct run first = run;
    run = (struct run){0};
    assert_int_equal(opened_as(RUN_PLAN, MODEL "--outer.sites a,b --outer.sync_every 40 "
                                               "--outer.fragments 2 --outer.partition sequential "
                                               "--outer.moment1_every 80"),
                     ERR_OK);
    assert_int_equal(sync_config_cut(&f, &run.s, &run.o, &run.table, 2, &run.perm), ERR_OK);
    assert_int_equal(f.count, 2); /* of the parameters alone */
    assert_false(same_cut(&f, &strided));
    struct fragments parameters = run.sync.fragments;
    parameters.count = 2;
    assert_true(same_cut(&f, &parameters));
    /* slices have their own count; with another one the cut is strided */
    assert_int_equal(opened_as(RUN_PLAN, MODEL "--outer.sites a,b --outer.sync_every 40 "
                                               "--outer.partition slices "
                                               "--outer.slices embed-0@10,1-2@20,3-final@40"),
                     ERR_OK);
    assert_int_equal(sync_config_cut(&f, &run.s, &run.o, &run.table, 3, &run.perm), ERR_OK);
    assert_true(same_cut(&f, &run.sync.fragments));
    assert_int_equal(sync_config_cut(&f, &run.s, &run.o, &run.table, 2, &run.perm), ERR_OK);
    assert_true(same_cut(&f, &strided));
    run_close(&first);
}

static void test_tls_paths(void **state)
{
    (void)state;
    struct link_tls tls;
    assert_int_equal(opened_as(RUN_MODEL, "--tls.dir keys"), ERR_OK);
    assert_int_equal(run_tls(&run, "b", &tls), ERR_OK);
    assert_string_equal(tls.ca, "keys/ca.pem");
    assert_string_equal(tls.certificate, "keys/b.pem");
    assert_string_equal(tls.key, "keys/b.key");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_role_checks_every_rule),
        cmocka_unit_test(test_roles_need),
        cmocka_unit_test(test_identity_holds_the_rate),
        cmocka_unit_test(test_identity_of_full_precision),
        cmocka_unit_test(test_identity_holds_the_vocabulary),
        cmocka_unit_test(test_site_settings),
        cmocka_unit_test(test_state_options),
        cmocka_unit_test(test_cut_follows_partition),
        cmocka_unit_test(test_tls_paths),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    run_close(&run);
    return failed;
}
