/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a replica has other settings for a round than the others, a step
 * belongs to two rounds or to none, or a key is amended that must not be. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "inner/config/keys.h"
#include "outer/config/amend.h"
#include "outer/config/sync_config.h"
#include "outer/diloco/replan.h"

struct scene {
    struct settings s;
    struct outer_settings o;
    struct keys_base base;
    struct schedule x;
    struct amendments list;
    struct arena a;
};

static void scene_open(struct scene *t, int64_t steps, int64_t every, unsigned fragments,
                       int64_t overlap)
{
    *t = (struct scene){.a = arena_make(0)};
    const struct config_table tables[] = {keys_inner(&t->s), keys_outer(&t->o)};
    assert_int_equal(config_load(tables, 2, NULL, 0, NULL, &t->a), ERR_OK);
    t->s.train_steps = steps;
    t->o.outer_sync_every = every;
    t->o.outer_fragments = fragments;
    t->o.outer_overlap_steps = overlap;
    t->o.outer_lr = 0.7;
    t->base = (struct keys_base){&t->s, &t->o};
    t->x = schedule_streaming(steps, every, fragments, 1, CODEC_INT8);
    t->x.overlap = overlap;
}

static struct schedule now(const struct scene *t)
{
    struct schedule s = t->x;
    assert_int_equal(amend_schedule(&t->base, &s, &t->list), ERR_OK);
    return s;
}

static enum err asked(const struct scene *t, const char *text, uint64_t round)
{
    struct schedule s = now(t);
    struct amendment one = {.round = round, .by = digest_of("op", 2)};
    snprintf(one.text, sizeof one.text, "%s", text);
    return amend_check(&t->base, &s, &t->list, &one);
}

static void amended(struct scene *t, const char *text, uint64_t round)
{
    struct amendment one = {.round = round, .by = digest_of("op", 2)};
    snprintf(one.text, sizeof one.text, "%s", text);
    if (asked(t, text, round) != ERR_OK)
        fail_msg("%s from round %u on: %s", text, (unsigned)round, err_message());
    amendments_add(&t->list, &one);
}

static void refused(const struct scene *t, const char *text, uint64_t round, const char *words)
{
    assert_int_not_equal(asked(t, text, round), ERR_OK);
    if (!strstr(err_message(), words))
        fail_msg("%s: \"%s\" does not say: %s", text, err_message(), words);
    err_clear();
}

/* Every function of the schedule agrees with a list of sends, made step by step from the meaning of
 * an amendment: after the border fragment 0 is due each `every` steps, fragment i of P at i / P of
 * it; and all of them after the last step. */
static void check_steps(const struct scene *t)
{
    struct schedule s = now(t);
    int64_t border = 0, every = t->o.outer_sync_every, steps = t->s.train_steps, last_at[8] = {0};
    uint64_t sent[8] = {0};
    unsigned P = s.fragments;
    uint32_t k = 0;
    for (int64_t step = 1; step <= steps; step++) {
        uint64_t round;
        int64_t before = step - 1, at = step - border;
        for (; k < t->list.count && t->list.list[k].round == sent[0] &&
               (sent[0] ? last_at[0] == before : !before);
             k++) {
            const struct amendment *one = &t->list.list[k];
            long long value = 0;
            if (sscanf(one->text, "outer.every=%lld", &value) == 1 && value != every) {
                every = value;
                border = before;
            } else if (sscanf(one->text, "train.steps=%lld", &value) == 1) {
                steps = value;
            }
            at = step - border;
        }
        for (unsigned f = 0; f < P; f++) {
            int64_t place = f * (every / P), first = border && f ? place : every + place;
            bool due = step == steps || (at >= first && (at - first) % every == 0);
            assert_int_equal(schedule_due(&s, step, f, &round), due);
            if (!due)
                continue;
            assert_int_equal(round, sent[f]);
            assert_int_equal(schedule_step(&s, f, sent[f]), step);
            assert_int_equal(schedule_last(&s, f, sent[f]), step == steps);
            sent[f]++;
            last_at[f] = step;
            assert_int_equal(schedule_sent(&s, f, step), sent[f]);
        }
    }
    assert_int_equal(s.steps, steps);
    for (unsigned f = 0; f < P; f++)
        assert_int_equal(schedule_rounds(&s, f), sent[f]);
    for (int64_t step = 0, next; step < steps; step = next) {
        next = schedule_next(&s, step);
        assert_true(next > step);
    }
}

static void steps_of_amended_periods(void **state)
{
    (void)state;
    static struct scene t;
    for (unsigned P = 1; P <= 4; P *= 2) {
        scene_open(&t, 400, 20, P, 0);
        check_steps(&t);
        amended(&t, "outer.lr=0.5", 1); /* the periods stay where they are */
        check_steps(&t);
        amended(&t, "outer.every=32", 3);
        check_steps(&t);
        amended(&t, "train.steps=500", 4);
        amended(&t, "outer.lr=0.3", 4);
        check_steps(&t);
        amended(&t, "outer.every=8", 5);
        check_steps(&t);
        amended(&t, "outer.every=40", 5); /* the later one of a border counts */
        check_steps(&t);
        amended(&t, "train.steps=301", 6);
        check_steps(&t);
        arena_free(&t.a);
    }
}

static void from_the_first_round_on(void **state)
{
    (void)state;
    static struct scene t;
    scene_open(&t, 100, 20, 1, 0);
    amended(&t, "outer.every=30", 0);
    struct schedule s = now(&t);
    assert_int_equal(schedule_step(&s, 0, 0), 30);
    assert_int_equal(schedule_step(&s, 0, 3), 100);
    arena_free(&t.a);
}

static void rates_of_rounds(void **state)
{
    (void)state;
    static struct scene t;
    scene_open(&t, 400, 20, 2, 0);
    amended(&t, "outer.lr=0.5", 3); /* border: step 60 */
    amended(&t, "outer.lr=0.25", 6);
    struct schedule s = now(&t);
    for (unsigned f = 0; f < 2; f++)
        for (uint64_t round = 0; round < schedule_rounds(&s, f); round++) {
            const struct schedule_change *c = schedule_changed(&s, f, round);
            int64_t step = schedule_step(&s, f, round);
            double lr = c ? (double)c->lr : -1;
            assert_true(lr == (step > 120 ? 0.25 : step > 60 ? 0.5 : -1));
        }
    arena_free(&t.a);
}

/* Of each fragment after the border; full-precision rounds keep the forms that they have. */
static void codecs_of_rounds(void **state)
{
    (void)state;
    static struct scene t;
    scene_open(&t, 400, 20, 2, 0);
    t.x.period[1].moments = true;       /* as if it were a fragment of moments */
    amended(&t, "outer.codec=int4", 3); /* border: step 60 */
    amended(&t, "outer.lr=0.5", 4);
    amended(&t, "outer.codec=f32", 10);
    struct schedule s = now(&t);
    for (uint64_t round = 0; round < 20; round++) {
        enum codec_kind codec = round < 3 ? CODEC_INT8 : round < 10 ? CODEC_INT4 : CODEC_F32;
        bool full = (round == 0 || round == 19) && codec != CODEC_F32;
        assert_int_equal(schedule_codec(&s, 0, round, 0), full ? CODEC_BF16 : codec);
        assert_int_equal(schedule_codec(&s, 1, round, 0),
                         full || round == 19 ? CODEC_BF16 : CODEC_INT8);
    }
    assert_int_equal(schedule_codec(&s, 0, 20, 0), CODEC_F32); /* after the last one */
    assert_true(schedule_uses(&s, CODEC_F32) && schedule_uses(&s, CODEC_INT4));
    assert_false(schedule_uses(&s, CODEC_INT2) || schedule_uses(&t.x, CODEC_F32));
    arena_free(&t.a);
}

/* The rounds whose steps are after the border; none is applied after its fragment's next send. */
static void overlaps_of_rounds(void **state)
{
    (void)state;
    static struct scene t;
    scene_open(&t, 400, 20, 2, 8);
    amended(&t, "outer.overlap_steps=3", 3); /* border: step 60 */
    amended(&t, "outer.overlap_steps=9", 6);
    amended(&t, "outer.every=40", 6);
    amended(&t, "outer.overlap_steps=19", 7);
    struct schedule s = now(&t);
    for (unsigned f = 0; f < 2; f++)
        for (uint64_t round = 0; round + 1 < schedule_rounds(&s, f); round++) {
            int64_t step = schedule_step(&s, f, round), tau = step > 160   ? 19
                                                              : step > 120 ? 9
                                                              : step > 60  ? 3
                                                                           : 8;
            assert_int_equal(schedule_apply(&s, f, round), step + tau);
            assert_int_equal(schedule_applied(&s, f, step + tau - 1), round);
            assert_int_equal(schedule_applied(&s, f, step + tau), round + 1);
        }
    assert_int_equal(schedule_slots(&s), 1);
    refused(&t, "outer.overlap_steps=21", 8, "slots");
    refused(&t, "outer.overlap_steps=0", 8, "blocking exchange");
    refused(&t, "outer.overlap_steps=40", 8, "one-round delay");
    t.o.outer_mode = OUTER_MODE_QUORUM;
    t.o.outer_max_local_steps_offline =
        1; /* by the configuration 8 + 1 steps in flight: one slot */
    refused(&t, "outer.overlap_steps=20", 8, "slots");
    arena_free(&t.a);
    scene_open(&t, 400, 20, 4, 8);
    amended(&t, "outer.overlap_steps=2", 0);
    s = now(&t);
    assert_int_equal(schedule_slots(&s), 2); /* which a later one may need */
    amended(&t, "outer.overlap_steps=9", 2);
    arena_free(&t.a);
    scene_open(&t, 400, 20, 1, 0);
    refused(&t, "outer.overlap_steps=5", 2, "blocking exchange");
    arena_free(&t.a);
    scene_open(&t, 400, 20, 1, 20);
    refused(&t, "outer.overlap_steps=5", 2, "one-round delay");
    arena_free(&t.a);
}

static void codecs_that_are_refused(void **state)
{
    (void)state;
    static struct scene t;
    scene_open(&t, 400, 20, 1, 0);
    refused(&t, "outer.codec=int3", 2, "allowed is");
    amended(&t, "outer.codec=topk", 3);
    refused(&t, "outer.codec=int8", 5, "acts as momentum");
    amended(&t, "outer.codec=csc", 5);
    arena_free(&t.a);
    scene_open(&t, 400, 20, 1, 0);
    t.o.outer_merge = MERGE_RADIAL;
    t.o.outer_codec = CODEC_FP8_E4M3;
    refused(&t, "outer.codec=int8", 2, "outer.merge = radial");
    arena_free(&t.a);
    scene_open(&t, 400, 20, 1, 0);
    t.o.outer_downlink_compression_from = 2;
    t.o.outer_codec = CODEC_FIXED;
    refused(&t, "outer.codec=e3m0", 2, "outer.downlink_compression_from");
    t.o.outer_codec = CODEC_INT8; /* its full-precision rounds are passed on */
    amended(&t, "outer.codec=e3m0", 2);
    arena_free(&t.a);
    scene_open(&t, 400, 20, 1, 0);
    const char *sites[] = {"a", "b", "c"};
    t.o.outer_sites.items = sites;
    t.o.outer_sites.count = 3;
    t.o.privacy_secure = PRIVACY_SECURE_SUM;
    t.o.outer_weights = WEIGHTS_EQUAL;
    t.o.outer_full_precision = CODEC_FIXED;
    refused(&t, "outer.codec=e3m0", 2, "privacy.secure = sum needs outer.codec");
    amended(&t, "outer.codec=int4", 2);
    arena_free(&t.a);
}

/* The horizon of the outer rate's schedule is the train.steps that was in force. */
static void ends_of_steps(void **state)
{
    (void)state;
    static struct scene t;
    scene_open(&t, 200, 20, 1, 0);
    amended(&t, "train.steps=300", 3);
    struct schedule s = now(&t);
    assert_int_equal(schedule_end_of(&s, 60), 200);
    assert_int_equal(schedule_end_of(&s, 61), 300);
    assert_int_equal(schedule_end_of(&s, 300), 300);
    arena_free(&t.a);
}

static void settings_of_rounds_and_steps(void **state)
{
    (void)state;
    static struct scene t;
    struct settings s;
    struct outer_settings o;
    scene_open(&t, 400, 20, 1, 0);
    amended(&t, "train.lr=0.01", 2);
    amended(&t, "train.decay=none", 2);
    amended(&t, "train.steps=500", 4);
    assert_int_equal(amend_settings(&s, &o, &t.base, &t.list, 1, &t.a), ERR_OK);
    assert_memory_equal(&s, &t.s, sizeof s);
    assert_memory_equal(&o, &t.o, sizeof o);
    assert_int_equal(amend_settings(&s, &o, &t.base, &t.list, 2, &t.a), ERR_OK);
    assert_true(s.train_lr == 0.01 && s.train_lr_schedule == TRAIN_LR_SCHEDULE_NONE &&
                s.train_steps == 400);
    struct schedule x = now(&t);
    for (int64_t step = 0; step < 500; step++) {
        s = t.s;
        s.train_batch_tokens = 77; /* the site's own */
        assert_int_equal(amend_train(&s, &t.base, &x, &t.list, step, &t.a), ERR_OK);
        assert_true(s.train_lr == (step < 40 ? t.s.train_lr : 0.01));
        assert_int_equal(s.train_steps, step < 80 ? 400 : 500);
        assert_int_equal(s.train_batch_tokens, 77);
    }
    arena_free(&t.a);
}

static void weights_of_sources(void **state)
{
    (void)state;
    static struct scene t;
    static struct loader_changes c;
    const char *two[] = {"a", "b"}, *weights[] = {"3", "1"};
    scene_open(&t, 400, 20, 1, 0);
    refused(&t, "data.weights=1,0", 2, "a weight is a number above 0");
    refused(&t, "data.weights=1,x", 2, "a weight is a number above 0");
    refused(&t, "data.weights=[]", 2, "a weight is a number above 0");
    amended(&t, "data.weights=0.7,0.2,0.1", 2);
    t.s.data_train = (struct config_list){two, 2}; /* of this configuration nothing is known */
    amended(&t, "data.weights=1,3", 2);
    amended(&t, "outer.every=40", 3);
    amended(&t, "data.weights=1,7", 5);
    struct schedule x = now(&t);
    assert_int_equal(amend_data(&c, &t.base, &x, &t.list), ERR_OK);
    assert_int_equal(c.count, 3);
    assert_true(c.list[0].step == 40 && c.list[0].count == 3 && c.list[0].weights[1] == 0.2);
    assert_true(c.list[1].step == 40 && c.list[1].count == 2 && c.list[1].weights[1] == 3);
    assert_true(c.list[2].step == 140 && c.list[2].weights[0] == 1 && c.list[2].weights[1] == 7);
    arena_free(&t.a);
    scene_open(&t, 400, 20, 1, 0);
    t.s.data_train = (struct config_list){two, 2};
    t.s.data_weights = (struct config_list){weights, 2};
    amended(&t, "data.weights=1,3", 2);
    refused(&t, "data.weights=1,1,1", 3, "has 3 items and data.train 2");
    arena_free(&t.a);
    scene_open(&t, 400, 20, 1, 0);
    t.s.privacy_unit = PRIVACY_UNIT_SEQUENCE;
    refused(&t, "data.weights=1,3", 2, "data.weights with privacy.unit");
    arena_free(&t.a);
}

static void warned(struct scene *t, const char *text, uint64_t round, const char *words)
{
    struct amendment one = {.round = round, .by = digest_of("op", 2)};
    char out[1024];
    snprintf(one.text, sizeof one.text, "%s", text);
    assert_int_equal(amend_warning(out, sizeof out, &t->base, &t->list, &one), ERR_OK);
    if (*words ? !strstr(out, words) : *out)
        fail_msg("%s: \"%s\", wanted: \"%s\"", text, out, words);
    amended(t, text, round);
}

/* What a configuration with the amended settings is warned of at a start; not again what the
 * settings before are warned of. */
static void warnings_as_at_a_start(void **state)
{
    (void)state;
    static struct scene t;
    static const char *weights[] = {"3", "1"}, *files[] = {"a", "b"};
    scene_open(&t, 400, 20, 1, 0);
    t.o.outer_lr = 0.4;
    warned(&t, "train.lr=0.001", 2, "");
    warned(&t, "outer.lr=1.9", 2, "outer.lr = 1.9 with momentum 0.9 over 20 steps");
    warned(&t, "train.lr=0.002", 2, "");
    warned(&t, "outer.lr=0.4", 2, "");
    warned(&t, "outer.codec=topk", 3, "a codec whose residual acts as a momentum");
    warned(&t, "outer.codec=csc", 4, "");
    warned(&t, "data.weights=1,3", 5, "a site whose mixture has not 2 sources keeps its weights");
    arena_free(&t.a);
    scene_open(&t, 400, 20, 1, 0);
    t.s.data_train = (struct config_list){files, 2};
    t.s.data_weights = t.s.data_anneal_weights = (struct config_list){weights, 2};
    t.s.data_anneal_from = 300;
    warned(&t, "data.weights=1,3", 5, "");
    warned(&t, "train.steps=300", 5, "no step is trained with data.anneal_weights");
    arena_free(&t.a);
    scene_open(&t, 400, 20, 1, 0);
    t.o.outer_optimizer = OUTER_OPT_SGD; /* no momentum besides */
    warned(&t, "outer.codec=topk", 3, "");
    arena_free(&t.a);
}

static void refusals_with_their_reasons(void **state)
{
    (void)state;
    static struct scene t;
    scene_open(&t, 400, 20, 1, 4);
    refused(&t, "model.layers=3", 2, "changes the shape");
    refused(&t, "outer.sites=a,b", 2, "roster add");
    refused(&t, "outer.fragments=2", 2, "cuts the outer state");
    refused(&t, "outer.optimizer=sgd", 2, "arrays");
    refused(&t, "serve.listen=x", 2, "each process's own");
    refused(&t, "privacy.noise=1", 2, "promised");
    refused(&t, "outer.evry=3", 2, "the nearest is outer.sync_every");
    refused(&t, "outer.every=0", 2, "allowed is");
    refused(&t, "outer.every=many", 2, "allowed is");
    refused(&t, "outer.every=4", 2, "outer.overlap_steps");
    refused(&t, "outer.every=30", 20, "the run has 20 rounds");
    refused(&t, "train.steps=40", 2, "before the border");
    refused(&t, "train.lr=-1", 2, "allowed is");
    refused(&t, "outer.lr=1e-400", 2, "out of range"); /* not 0, "the published rate" */
    refused(&t, "outer.lr=1e-60", 2, "out of range");  /* as a float it is 0 */
    refused(&t, "outer.lr=1e400", 2, "out of range");
    refused(&t, "train.warmup=900", 2, "longer than");
    arena_free(&t.a);
    scene_open(&t, 400, 20, 4, 0);
    t.o.outer_sync_interval_s = 3;
    t.o.outer_fragments = 1;
    refused(&t, "outer.every=32", 2, "rounds end by time");
    arena_free(&t.a);
    scene_open(&t, 400, 20, 4, 0);
    refused(&t, "outer.every=30", 2, "fragments");
    arena_free(&t.a);
}

/* Every key is amendable, or says why it is not. */
static void every_key_has_an_answer(void **state)
{
    (void)state;
    struct settings s;
    struct outer_settings o;
    const struct config_table tables[] = {keys_inner(&s), keys_outer(&o)};
    unsigned can = 0;
    bool known;
    for (unsigned i = 0; i < 2; i++)
        for (size_t k = 0; k < tables[i].count; k++) {
            char key[96];
            snprintf(key, sizeof key, "%s.%s", tables[i].keys[k].section, tables[i].keys[k].name);
            const char *why = amend_refusal(key, &known);
            assert_true(known);
            can += !why;
            assert_true(!why || strlen(why) > 20);
            bool own = !strcmp(key, "data.weights");             /* each site has its sources */
            assert_true(why || own || tables[i].keys[k].pinned); /* the same everywhere */
        }
    assert_int_equal(can, 15);
    assert_null(amend_refusal("outer.nothing", &known));
    assert_false(known);
}

/* Rounds of `every` steps of 0.5 s with these exchanges, half of each the upload, which training
 * waits for: the answer to the last upload alone. */
static int64_t replanned(int64_t every, int64_t least, unsigned fragments, const double *exchange_s,
                         unsigned count)
{
    struct replan p = {0};
    struct replan_plan plan = {0};
    for (unsigned i = 1; i < count; i++) {
        struct replan_round r = {.trained_s = 0.5 * (double)every,
                                 .waited_s = exchange_s[i - 1],
                                 .exchange_s = exchange_s[i - 1],
                                 .upload_s = exchange_s[i] / 2,
                                 .steps = every,
                                 .every = every,
                                 .least = least,
                                 .fragments = fragments};
        plan = replan_step(&p, &r);
        assert_true(i + 1 == count || plan.every == every);
        assert_true(fabs(plan.share - r.trained_s / (r.trained_s + r.waited_s)) < 1e-12);
    }
    return plan.every;
}
#define REPLANNED(every, least, fragments, ...)                                                    \
    replanned(every, least, fragments, (const double[]){__VA_ARGS__},                              \
              sizeof(const double[]){__VA_ARGS__} / sizeof(double))

static void rounds_are_planned_again(void **state)
{
    (void)state;
    assert_int_equal(REPLANNED(40, 40, 1, 1, 1, 1, 2, 2), 130); /* 2 / 0.5 * 0.97 / 0.03 = 129.3 */
    assert_int_equal(REPLANNED(40, 40, 8, 1, 1, 1, 2, 2), 136);
    assert_int_equal(REPLANNED(40, 40, 1, 2, 2, 2, 2), 130);        /* it never held */
    assert_int_equal(REPLANNED(40, 40, 1, 1, 1, 1, 9, 1.6), 104);   /* what both uploads confirm */
    assert_int_equal(REPLANNED(40, 40, 1, 1, 1, 1, 60, 60), 160);   /* four times at once */
    assert_int_equal(REPLANNED(400, 40, 1, 4, 4, 4, 60, 60), 1000); /* the longest */
    assert_int_equal(REPLANNED(1800, 1800, 1, 60, 60, 60, 60), 3880); /* of a long one */
    assert_int_equal(REPLANNED(1800, 600, 1, 60, 60, 60, 60), 2400);  /* its longest */
    /* One exchange alone, whenever the next begins; 95.2 %; none that is known before. */
    assert_int_equal(REPLANNED(40, 40, 1, 1, 1, 1, 60, 1, 1, 1), 40);
    assert_int_equal(REPLANNED(40, 40, 1, 1, 1, 1, 1, 60), 40);
    assert_int_equal(REPLANNED(40, 40, 1, 1, 60, 1, 1, 60, 1), 40);
    assert_int_equal(REPLANNED(40, 40, 1, 1, 1, 1, 1, 1, 1, 1), 40);
    assert_int_equal(REPLANNED(40, 40, 1, 2, 2, 2), 40);
    /* 94.8 %: twice. */
    assert_int_equal(REPLANNED(40, 40, 1, 1.1, 1.1, 1.1, 1.1), 40);
    assert_int_equal(REPLANNED(40, 40, 1, 1.1, 1.1, 1.1, 1.1, 1.1), 72);
    /* The line is better again: the most of what three rounds want, or the configured. */
    assert_int_equal(REPLANNED(200, 40, 1, 1, 1.2, 1, 1), 78); /* 1.2 / 0.5 * 0.97 / 0.03 = 77.6 */
    assert_int_equal(REPLANNED(200, 90, 1, 1, 1, 1, 1), 90);
    assert_int_equal(REPLANNED(100, 90, 1, 1, 1, 1, 1), 90);
    assert_int_equal(REPLANNED(200, 40, 1, 1, 1, 1), 200);
    assert_int_equal(REPLANNED(200, 40, 1, 1, 1, 2, 1, 1), 200); /* 2 s: not by half */
    /* A download that becomes slower is believed with the next one. */
    struct replan p = {.known = 2, .upload_s = {1, 1}, .exchange_s = 1.5};
    struct replan_round r = {.trained_s = 20,
                             .waited_s = 3,
                             .exchange_s = 3,
                             .upload_s = 1,
                             .steps = 40,
                             .every = 40,
                             .least = 40,
                             .fragments = 1};
    assert_int_equal(replan_step(&p, &r).every, 97); /* 1.5 / 0.5 * 0.97 / 0.03 = 97 */
    r.steps = 0;                                     /* it is pending */
    assert_int_equal(replan_step(&p, &r).every, 40);
    r.steps = 97, r.every = 97;
    r.trained_s = 48.5;
    assert_int_equal(replan_step(&p, &r).every, 194);
    /* No round may be longer. */
    p = (struct replan){.known = 2, .upload_s = {30, 30}, .exchange_s = 60};
    r = (struct replan_round){500, 60, 60, 30, 1000, 1000, 40, 1};
    struct replan_plan plan = replan_step(&p, &r);
    assert_int_equal(plan.every, 1000);
    assert_true(plan.longest);
    r.least = 300;
    plan = replan_step(&p, &r);
    assert_int_equal(plan.every, 1200);
    assert_false(plan.longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_amended_periods),
        cmocka_unit_test(from_the_first_round_on),
        cmocka_unit_test(rates_of_rounds),
        cmocka_unit_test(codecs_of_rounds),
        cmocka_unit_test(codecs_that_are_refused),
        cmocka_unit_test(overlaps_of_rounds),
        cmocka_unit_test(weights_of_sources),
        cmocka_unit_test(ends_of_steps),
        cmocka_unit_test(settings_of_rounds_and_steps),
        cmocka_unit_test(warnings_as_at_a_start),
        cmocka_unit_test(refusals_with_their_reasons),
        cmocka_unit_test(every_key_has_an_answer),
        cmocka_unit_test(rounds_are_planned_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
