/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: runs start with an outer learning rate that is not published,
 * or replicas pin different ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "outer/config/sync_config.h"
#include "outer/config/tuning.h"

static const char *names[32];
static const struct settings decoder = {
    .train_optimizer = OPTIM_LAMB, .data_objective = DATA_OBJECTIVE_CAUSAL, .model_tensors = ""};

static struct outer_settings settings(enum outer_opt_kind optimizer, size_t sites, int64_t every,
                                      double lr)
{
    return (struct outer_settings){.outer_optimizer = optimizer,
                                   .outer_codec = CODEC_F32,
                                   .outer_sites = {names, sites},
                                   .outer_sync_every = every,
                                   .outer_nesterov_period = 1,
                                   .outer_lr = lr,
                                   .outer_momentum = 0.9};
}

/* The rows of 2503.09799, figure 7, and the end of 2311.08105. */
static void the_table_is_the_published_one(void **state)
{
    (void)state;
    static const struct {
        unsigned sites;
        double lr;
    } rows[] = {{1, 0.4}, {2, 0.6}, {4, 0.6}, {8, 0.8}, {64, 0.8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(fabs(tuning_table(rows[i].sites, 30) - rows[i].lr) < 1e-12);
        assert_true(fabs(tuning_table(rows[i].sites, 500) - fmax(rows[i].lr, 0.7)) < 1e-12);
        assert_true(fabs(tuning_table(rows[i].sites, 5000) - fmax(rows[i].lr, 0.7)) < 1e-12);
    }
    for (unsigned sites = 1; sites < 20; sites++) /* rising with both */
        for (int64_t every = 30; every < 600; every++) {
            assert_true(tuning_table(sites, every) <= tuning_table(sites + 1, every) + 1e-12);
            assert_true(tuning_table(sites, every) <= tuning_table(sites, every + 1) + 1e-12);
        }
}

static void rho_is_the_published_one(void **state)
{
    (void)state;
    assert_true(fabs(tuning_rho(16) - 0.98) < 1e-12 && fabs(tuning_rho(64) - 0.93) < 1e-12);
    assert_true(fabs(tuning_rho(256) - 0.73) < 1e-12 && tuning_rho(1) == 1);
    assert_true(tuning_rho(100000) == tuning_rho(256));
}

/* eta_eff is the sum of what one delta does through the momentum, for deltas that decay by rho. */
static void effective_is_the_sum_of_a_decaying_kernel(void **state)
{
    (void)state;
    double mu = 0.9, rho = 0.8, sum = 1, weight = mu;
    for (int k = 0; k < 400; k++, weight *= mu * rho)
        sum += weight;
    assert_true(fabs(tuning_effective(0.7, mu, rho) - 0.7 * sum) < 1e-9);
}

static void unset_takes_the_table_and_is_pinned(void **state)
{
    (void)state;
    struct outer_settings o = settings(OUTER_OPT_MOMENTUM, 2, 30, 0);
    struct tuning t = tuning_resolve(&o);
    assert_true(t.from_table && !t.far && fabs(o.outer_lr - 0.6) < 1e-9 && o.outer_lr == t.lr);
    struct tuning again = tuning_of(&o);
    assert_true(!again.from_table && again.lr == t.lr);
    struct outer_opt n;
    assert_int_equal(sync_config_optimizer(&n, &o), ERR_OK);
    assert_true(n.lr == 0.6f);
    o = settings(OUTER_OPT_AVERAGE, 2, 30, 0);
    assert_true(tuning_resolve(&o).lr == 1 && o.outer_lr == 1);
    o = settings(OUTER_OPT_ADAM, 2, 30, 0); /* the default of its row, with any number of sites */
    assert_true(tuning_of(&o).lr == 0.01 && tuning_of(&o).from_table && !tuning_of(&o).far);
    o.outer_lr = 3;
    assert_true(tuning_of(&o).lr == 3 && tuning_of(&o).right_lr == 0.01 && !tuning_of(&o).far);
    o = settings(OUTER_OPT_SGD, 2, 30, 0); /* as far a step would want a rate of 4 */
    assert_true(tuning_resolve(&o).lr == 1);
    o = settings(OUTER_OPT_SGD, 2, 30, 0.5);
    assert_true(tuning_resolve(&o).lr == 0.5);
    o = settings(OUTER_OPT_PRIMAL, 2, 30, 0); /* as far as 0.6 of Nesterov's momentum .9 */
    assert_true(tuning_of(&o).lr == 6 && !tuning_of(&o).own && !tuning_of(&o).far);
    o.outer_lr = 9;
    assert_true(tuning_of(&o).far && tuning_of(&o).right_lr == 6);
    struct outer_settings delayed = settings(OUTER_OPT_DELAYED, 4, 5, 0);
    delayed.outer_nesterov_period = 6; /* a cycle sums over 30 steps */
    assert_true(fabs(tuning_of(&delayed).lr - 0.6) < 1e-9);
}

/* A rate of 1 that falls to 0.4 is 0.7 in the mean, and ended 1 % lower than that one (row
 * outer-rounds). */
static void a_falling_rate_counts_by_its_mean(void **state)
{
    (void)state;
    struct outer_settings o = settings(OUTER_OPT_MOMENTUM, 2, 20, 1),
                          mean = settings(OUTER_OPT_MOMENTUM, 2, 20, 0.7f);
    o.outer_min_lr_ratio = 0.4;
    assert_true(tuning_of(&o).far);
    o.outer_lr_schedule = ANNEAL_LINEAR;
    assert_true(fabs(tuning_of(&o).effective - tuning_of(&mean).effective) < 1e-6);
    assert_false(tuning_of(&o).far);
    o.outer_lr_schedule = ANNEAL_COSINE;
    assert_false(tuning_of(&o).far);
}

/* What was published of 0.7/0.9 at two sites: +0.5 % of loss at H = 24, +9 % at H = 2. */
static void small_rounds_are_warned_of(void **state)
{
    (void)state;
    static const int64_t fine[] = {24, 30, 100, 500}, small[] = {1, 2, 4, 8};
    char text[512];
    for (size_t i = 0; i < 4; i++) {
        struct outer_settings o = settings(OUTER_OPT_MOMENTUM, 2, fine[i], 0.7);
        struct tuning t = tuning_of(&o);
        tuning_warning(&t, text, sizeof text);
        assert_false(t.far || *text);
        o.outer_sync_every = small[i];
        t = tuning_of(&o);
        tuning_warning(&t, text, sizeof text);
        assert_true(t.far);
        assert_non_null(strstr(text, "would be right"));
        o.outer_lr = t.right_lr; /* and the remedy is one */
        assert_false(tuning_of(&o).far);
        assert_true(fabs(tuning_of(&o).effective / t.reference - 1) < 0.02);
        o.outer_lr = 0;
        assert_false(tuning_resolve(&o).far);
        o = settings(OUTER_OPT_SGD, 2, small[i], 1);
        assert_false(tuning_of(&o).far);
    }
}

/* Two sites, 0.2 M parameters: 3.13 at the rate for the mean, 2.68 at 0.15, and 2.71 of the mean.
 */
static void radial_takes_a_lower_rate(void **state)
{
    (void)state;
    char text[512];
    struct outer_settings mean = settings(OUTER_OPT_MOMENTUM, 2, 20, 0), o = mean;
    o.outer_merge = MERGE_RADIAL;
    struct tuning t = tuning_resolve(&o), other = tuning_resolve(&mean);
    assert_true(fabs(t.lr - 0.3 * other.lr) < 0.01 && t.lr >= 0.12 && t.lr <= 0.2);
    o.outer_lr = other.lr;
    t = tuning_of(&o);
    tuning_warning(&t, text, sizeof text);
    assert_true(t.far);
    assert_non_null(strstr(text, "outer.lr = 0.16 would be right"));
    o = settings(OUTER_OPT_SGD, 2, 20, 0); /* nothing adds up */
    o.outer_merge = MERGE_RADIAL;
    assert_true(tuning_resolve(&o).lr == 1);
}

/* 10.8 M parameters, Nesterov 0.7/0.9: sign +9.7 %, csc +38 %; a residual is momentum enough. */
static void momentum_on_a_residual_is_warned_of(void **state)
{
    (void)state;
    static const enum codec_kind most[] = {CODEC_SIGN, CODEC_CSC, CODEC_TOPK},
                                 little[] = {CODEC_F32, CODEC_INT4, CODEC_INT2};
    char text[512];
    for (size_t i = 0; i < 3; i++) {
        struct outer_settings o = settings(OUTER_OPT_MOMENTUM, 2, 30, 0);
        o.outer_codec = most[i];
        struct tuning t = tuning_of(&o);
        tuning_warning(&t, text, sizeof text);
        assert_non_null(strstr(text, "outer.optimizer = sgd"));
        assert_int_equal(tuning_optimizer(&o), OUTER_OPT_SGD);
        o.outer_optimizer = OUTER_OPT_SGD;
        t = tuning_of(&o);
        tuning_warning(&t, text, sizeof text);
        assert_string_equal(text, "");
        o.outer_optimizer = OUTER_OPT_AVERAGE;
        assert_int_equal(tuning_optimizer(&o), OUTER_OPT_AVERAGE);
        o = settings(OUTER_OPT_MOMENTUM, 2, 30, 0);
        o.outer_codec = little[i];
        assert_int_equal(tuning_optimizer(&o), OUTER_OPT_MOMENTUM);
        t = tuning_of(&o);
        tuning_warning(&t, text, sizeof text);
        assert_string_equal(text, "");
    }
}

/* Row outer-rounds: 0.6 at 15 rounds; at 50 and 150 a momentum that grows. Below 10 nothing was
 * measured. */
static void momentum_follows_the_rounds(void **state)
{
    (void)state;
    static const int64_t few[] = {10, 15, 24, 30}, many[] = {31, 90, 91, 100000};
    struct outer_settings o = settings(OUTER_OPT_MOMENTUM, 2, 20, 0);
    char text[512], warmup[128];
    for (size_t i = 0; i < 4; i++) {
        struct tuning_momentum f = tuning_momentum(&decoder, &o, few[i]),
                               m = tuning_momentum(&decoder, &o, many[i]);
        assert_true(f.measured && f.mu == 0.6 && f.lr == 1 && f.warmup == 0);
        assert_true(m.measured && m.mu == 0.9 && m.lr == 1 && m.start == 0.3);
        assert_true(m.falls && !f.falls);
        assert_int_equal(m.warmup, many[i] / 3);
        tuning_momentum_text(&decoder, &o, few[i], text, sizeof text);
        assert_non_null(strstr(text, "0.6 and outer.lr = 1"));
        snprintf(warmup, sizeof warmup,
                 "outer.momentum_warmup = %lld, outer.lr = 1, outer.lr_schedule = linear (",
                 (long long)many[i] / 3);
        for (int low = 0; low < 2; low++) {
            o.outer_momentum = low ? 0.6 : 0.9;
            tuning_momentum_text(&decoder, &o, many[i], text, sizeof text);
            assert_non_null(strstr(text, warmup));
        }
        tuning_momentum_text(&decoder, &o, few[i], text, sizeof text);
        assert_string_equal(text, "");
        o.outer_momentum = 0.9;
        o.outer_momentum_warmup = many[i] / 4; /* it grows already */
        tuning_momentum_text(&decoder, &o, many[i], text, sizeof text);
        assert_string_equal(text, "");
        o.outer_momentum_warmup = 0;
    }
    tuning_momentum_text(&decoder, &o, 9, text, sizeof text);
    assert_string_equal(text, "");
    for (unsigned sites = 2; sites <= 16; sites *= 2) { /* row distance-sites */
        o.outer_sites.count = sites;
        assert_true(tuning_momentum(&decoder, &o, 150).lr == (sites == 4 ? 0.7 : 1));
        assert_true(tuning_momentum(&decoder, &o, 150).falls == (sites == 2));
        assert_true(tuning_momentum(&decoder, &o, 150).mu == 0.9);
    }
    o.outer_sites.count = 3;
    assert_false(tuning_momentum(&decoder, &o, 150).falls);
    o.outer_sites.count = 2;
    o.outer_sync_every = 19;
    assert_false(tuning_momentum(&decoder, &o, 150).falls);
    o.outer_sync_every = 20;
    o.outer_merge = MERGE_RADIAL; /* not measured: the configured momentum, the table's rate */
    o.outer_momentum = 0.8;
    struct tuning_momentum other = tuning_momentum(&decoder, &o, 50);
    assert_true(!other.measured && other.mu == 0.8 && other.lr == 0);
    o.outer_merge = MERGE_MEAN;
    o.outer_optimizer = OUTER_OPT_ADAM; /* not measured */
    tuning_momentum_text(&decoder, &o, 50, text, sizeof text);
    assert_string_equal(text, "");
}

static void constant(const struct settings *s, struct outer_settings o)
{
    static const int64_t few[] = {31, 50, 90}, many[] = {91, 150, 500};
    char text[512];
    for (size_t i = 0; i < 3; i++) {
        struct tuning_momentum f = tuning_momentum(s, &o, few[i]),
                               m = tuning_momentum(s, &o, many[i]);
        assert_true(f.measured && f.mu == 0.6 && f.lr == 1 && f.warmup == 0);
        assert_true(m.measured && m.mu == 0.9 && m.warmup == 0);
        assert_true((m.lr == 0) == (o.outer_sync_every >= TUNING_SHORT_EVERY));
        tuning_momentum_text(s, &o, few[i], text, sizeof text);
        assert_non_null(strstr(text, "0.6 and outer.lr = 1"));
        o.outer_momentum = 0.6;
        tuning_momentum_text(s, &o, many[i], text, sizeof text);
        assert_non_null(strstr(text, "outer.momentum = 0.9"));
        o.outer_momentum = 0.9;
    }
}

/* Where the growth was not measured, or ended higher: other optimizers, encoders, models of other
 * trainers, short rounds, one site, a cooldown. */
static void momentum_is_constant_elsewhere(void **state)
{
    (void)state;
    const struct outer_settings two = settings(OUTER_OPT_MOMENTUM, 2, 20, 0);
    struct settings s = decoder;
    s.train_optimizer = OPTIM_ADAMW;
    constant(&s, two);
    s = decoder;
    s.data_objective = DATA_OBJECTIVE_MLM;
    constant(&s, two);
    s = decoder;
    s.model_tensors = "tensors.json";
    constant(&s, two);
    constant(&decoder, settings(OUTER_OPT_MOMENTUM, 2, 5, 0));
    constant(&decoder, settings(OUTER_OPT_MOMENTUM, 1, 20, 0));
    struct outer_settings cooled = two;
    cooled.outer_momentum_cooldown = 5;
    constant(&decoder, cooled);
}

/* Constant: 0.26 at 6 steps, 0.5 at 20; growing: 0.35, 0.7. The default of outer.lr is 0.5 at 6. */
static void short_rounds_want_a_lower_rate(void **state)
{
    (void)state;
    char text[512];
    struct outer_settings o = settings(OUTER_OPT_MOMENTUM, 2, 6, 0);
    struct settings adamw = decoder;
    adamw.train_optimizer = OPTIM_ADAMW;
    o.outer_momentum = 0.9;
    assert_true(fabs(tuning_momentum(&adamw, &o, 500).lr - 0.26) < 1e-9);
    assert_true(fabs(tuning_momentum(&decoder, &o, 500).lr - 0.35) < 1e-9);
    o.outer_sites.count = 8;
    assert_true(fabs(tuning_momentum(&decoder, &o, 500).lr - 0.35) < 1e-9);
    o.outer_sites.count = 2;
    assert_int_equal(tuning_momentum(&decoder, &o, 500).warmup, 166);
    tuning_resolve(&o);
    tuning_momentum_text(&adamw, &o, 500, text, sizeof text);
    assert_non_null(strstr(text, "0.26 is near the best"));
    o.outer_lr_schedule = ANNEAL_LINEAR; /* 0.5 to 0.05: 0.275 in the mean */
    o.outer_min_lr_ratio = 0.1;
    tuning_momentum_text(&adamw, &o, 500, text, sizeof text);
    assert_string_equal(text, "");
    o.outer_lr_schedule = ANNEAL_CONSTANT;
    o.outer_lr = 0.3;
    tuning_momentum_text(&adamw, &o, 500, text, sizeof text);
    assert_string_equal(text, "");
    o.outer_sync_every = 11; /* halfway between log 6 and log 20 */
    assert_true(fabs(tuning_momentum(&adamw, &o, 500).lr - 0.38) < 1e-9);
    assert_true(fabs(tuning_momentum(&decoder, &o, 500).lr - 0.53) < 1e-9);
    o.outer_sync_every = 1; /* not measured: not below what was */
    assert_true(fabs(tuning_momentum(&decoder, &o, 500).lr - 0.26) < 1e-9);
    o.outer_sync_every = 20; /* the momentum grows at any rate */
    o.outer_lr = 2;
    assert_true(tuning_momentum(&decoder, &o, 500).lr == 1);
    tuning_momentum_text(&decoder, &o, 500, text, sizeof text);
    assert_null(strstr(text, "near the best"));
    o.outer_sync_every = 6;
    o.outer_optimizer = OUTER_OPT_ADAM;
    tuning_momentum_text(&decoder, &o, 500, text, sizeof text);
    assert_string_equal(text, "");
}

/* Row distance-left: five of twenty steps, 150 rounds. */
static void overlapped_rounds_are_not_mixed(void **state)
{
    (void)state;
    char text[512];
    struct outer_settings o = settings(OUTER_OPT_MOMENTUM, 2, 20, 0);
    o.outer_update_alpha = -1;
    assert_false(tuning_unmixed(&o, 150)); /* nothing overlaps */
    o.outer_overlap_steps = 5;
    assert_true(tuning_unmixed(&o, 150));
    tuning_overlap_text(&o, 150, text, sizeof text);
    assert_non_null(strstr(text, "outer.update_alpha = 0.5 mixes 150 rounds"));
    assert_false(tuning_unmixed(&o, 50)); /* not measured */
    tuning_overlap_text(&o, 50, text, sizeof text);
    assert_string_equal(text, "");
    o.outer_update_alpha = 0;
    tuning_overlap_text(&o, 150, text, sizeof text);
    assert_string_equal(text, "");
    o.outer_update_alpha = -1;
    o.outer_overlap_steps = 20; /* the one-round delay does not mix */
    assert_false(tuning_unmixed(&o, 150));
    tuning_overlap_text(&o, 150, text, sizeof text);
    assert_string_equal(text, "");
}

static void the_layers_alone_are_for_decoders(void **state)
{
    (void)state;
    struct settings s = {.train_optimizer = OPTIM_LAMB,
                         .data_objective = DATA_OBJECTIVE_CAUSAL,
                         .train_trust_layers = TRAIN_TRUST_LAYERS_ALL};
    assert_true(tuning_trust_hidden(&s));
    s.data_objective = DATA_OBJECTIVE_MLM;
    assert_false(tuning_trust_hidden(&s));
    s.data_objective = DATA_OBJECTIVE_CAUSAL;
    s.train_trust_all = true;
    assert_false(tuning_trust_hidden(&s));
    s.train_trust_all = false;
    s.train_trust_layers = TRAIN_TRUST_LAYERS_HIDDEN;
    assert_false(tuning_trust_hidden(&s));
    s.train_trust_layers = TRAIN_TRUST_LAYERS_ALL;
    s.train_optimizer = OPTIM_ADAMW;
    assert_false(tuning_trust_hidden(&s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_the_published_one),
        cmocka_unit_test(rho_is_the_published_one),
        cmocka_unit_test(effective_is_the_sum_of_a_decaying_kernel),
        cmocka_unit_test(unset_takes_the_table_and_is_pinned),
        cmocka_unit_test(radial_takes_a_lower_rate),
        cmocka_unit_test(momentum_follows_the_rounds),
        cmocka_unit_test(momentum_is_constant_elsewhere),
        cmocka_unit_test(short_rounds_want_a_lower_rate),
        cmocka_unit_test(overlapped_rounds_are_not_mixed),
        cmocka_unit_test(the_layers_alone_are_for_decoders),
        cmocka_unit_test(a_falling_rate_counts_by_its_mean),
        cmocka_unit_test(small_rounds_are_warned_of),
        cmocka_unit_test(momentum_on_a_residual_is_warned_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
