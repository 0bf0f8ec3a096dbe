/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: 0/1 Adam is not Adam where its codec loses nothing, the ranks sum
 * at other steps than planned, a sum that the caller needs does not come, a step that is not finite
 * changes something. Its arithmetic with several ranks: tests/reproduce/reference/zeroone.py. */
#include "tests/inner/setup.h"
#include <math.h>
#include "inner/optim/optim.h"

enum { ELEMENTS = 512, STEPS = 40, FREEZE = 10 };
static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

static struct settings *settings_of(const char *local_max, const char *local_grow,
                                    const char *variance_grow)
{
    return setup_settings(&arena, (const char *[]){"--train.optimizer",
                                                   "adamw",
                                                   "--train.compress",
                                                   "zeroone",
                                                   "--train.steps",
                                                   "40",
                                                   "--train.compress_start",
                                                   "0.25",
                                                   "--train.warmup_steps",
                                                   "4",
                                                   "--train.lr",
                                                   "0.01",
                                                   "--train.max_grad_norm",
                                                   "0.5",
                                                   "--train.local_max",
                                                   local_max,
                                                   "--train.local_grow",
                                                   local_grow,
                                                   "--train.variance_grow",
                                                   variance_grow,
                                                   NULL});
}

/* ---- one rank, with the codec or without ---- */
static void no_encode(struct dev *d, uint8_t *bits, const struct dev_sign_encode *a)
{
    (void)d, (void)bits, (void)a;
}

static void no_decode(struct dev *d, float *x, const struct dev_sign_decode *a)
{
    (void)d, (void)x, (void)a;
}

struct rank {
    const struct settings *s;
    struct tensor tensors[2];
    struct table t;
    struct dev *d;
    struct coll *c;
    struct optim o;
    struct dev_ops ops;
    float params[ELEMENTS], grads[ELEMENTS];
};

static void begin(struct rank *r, const struct settings *s, bool identity)
{
    *r = (struct rank){.s = s};
    for (size_t i = 0; i < 2; i++)
        r->tensors[i] = (struct tensor){.shape = {16, 16},
                                        .count = 256,
                                        .offset = 256 * i,
                                        .group = i ? TABLE_VECTOR : TABLE_MATRIX,
                                        .layer = -1};
    r->t = (struct table){
        .tensors = r->tensors, .count = 2, .parameters = ELEMENTS, .elements = ELEMENTS};
    r->d = setup_device("f32", 1);
    assert_int_equal(coll_self_open(&r->c), ERR_OK);
    r->ops = *r->d->ops;
    if (identity) {
        r->ops.sign_encode = no_encode;
        r->ops.sign_decode = no_decode;
    }
    r->d->ops = &r->ops;
    if (optim_open(&r->o, r->d, r->c, s, &r->t, &arena))
        fail_msg("%s", err_message());
    for (size_t i = 0; i < ELEMENTS; i++)
        r->params[i] = rng_normal(1, 0, i);
}

static void end(struct rank *r)
{
    optim_close(&r->o);
    coll_close(r->c);
    dev_close(r->d);
}

/* Element 3 never has a gradient. */
static void step_by(struct rank *r, int step, float scale)
{
    const double stats[STEP_STATS] = {[STEP_TARGETS] = 2};
    const struct optim_slabs x = {r->params, r->grads, NULL};
    for (size_t i = 0; i < ELEMENTS; i++)
        r->grads[i] = i == 3 ? 0 : scale * rng_normal(2, (uint64_t)step, i);
    memcpy(r->o.buffers.stats, stats, sizeof stats);
    assert_int_equal(optim_step_slabs(&r->o, &x, step), ERR_OK);
}

/* ---- Adam with a frozen second moment ---- */
struct adam {
    float p[ELEMENTS], m[ELEMENTS], v[ELEMENTS];
    int squares;
};

/* AdamW's own pass; beta2 = 1 leaves the second moment as it is. */
static void adam_step(struct adam *x, struct rank *r, int step, bool full)
{
    const struct settings *s = r->s;
    struct opt_group groups[2] = {table_group(&r->tensors[0]), table_group(&r->tensors[1])};
    const struct dev_range ranges[2] = {{0, 256}, {256, 256}};
    x->squares += full;
    for (int i = 0; i < 2; i++) {
        groups[i].inverse1 = 1.0f / (float)(1.0 - pow(s->train_beta1, step + 1));
        groups[i].inverse2 = 1.0f / (float)(1.0 - pow(s->train_beta2, x->squares));
    }
    for (size_t i = 0; i < ELEMENTS; i++)
        r->grads[i] = i == 3 ? 0 : rng_normal(2, (uint64_t)step, i);
    r->d->ops->range_update(r->d, OPT_UPDATE_ADAMW,
                            &(struct dev_optim){.p = x->p,
                                                .m = x->m,
                                                .v = x->v,
                                                .g = r->grads,
                                                .gscale = r->o.buffers.gscale,
                                                .k = {.lr = (float)optim_lr(s, step),
                                                      .beta1 = (float)s->train_beta1,
                                                      .beta2 = full ? (float)s->train_beta2 : 1,
                                                      .eps = (float)s->train_eps,
                                                      .weight_decay = (float)s->train_weight_decay},
                                                .ranges = ranges,
                                                .groups = groups,
                                                .n = 2});
}

/* train.local_max = 1 and a codec that loses nothing: after each step the bits of Adam, whose
 * second moment sees the full sums alone. */
static void without_loss_it_is_adam(void **state)
{
    static struct rank r;
    static struct adam x;
    (void)state;
    begin(&r, settings_of("1", "0.25", "3"), true);
    memcpy(x.p, r.params, sizeof x.p);
    for (int step = 0; step < STEPS; step++) {
        step_by(&r, step, 1);
        adam_step(&x, &r, step, step < FREEZE && (step < 3 || step == 4 || step == 6 || step == 8));
        assert_false(r.o.kept->apart);
        assert_memory_equal(r.params, x.p, sizeof x.p);
        assert_memory_equal(r.o.state[OPTIM_FIRST].shard, x.m, sizeof x.m);
    }
    end(&r);
}

/* ---- schedules ---- */
/* The published counters, but that both count from the begin of their phase. */
static void the_schedule_is_that_of_counters(void **state)
{
    const char *const max[] = {"1", "4", "16"}, *const grow[] = {"0.05", "0.2", "1e-6"},
                      *const full[] = {"1", "3", "16"};
    (void)state;
    for (int k = 0; k < 27; k++) {
        const struct settings *s = settings_of(max[k % 3], grow[k / 3 % 3], full[k / 9]);
        int64_t since = 0, apart = 1, done = 0, squares = 0, last = FREEZE;
        int64_t stage = llround(s->train_local_grow * STEPS), longest = 0;
        for (int64_t step = 0; step < FREEZE; step++) {
            bool due = ++since == apart;
            assert_int_equal(compress_sums(s, step), due);
            assert_false(compress_rests(s, step));
            since = due ? 0 : since;
            squares += due;
            assert_int_equal(compress_second(s, step + 1), squares);
            if (due && ++done == s->train_variance_grow) {
                apart *= 2;
                done = 0;
            }
        }
        for (int64_t step = FREEZE, interval = 1; step < STEPS; step++) {
            int64_t local = step - FREEZE;
            if (local && (!stage || local % stage == 0) && interval < s->train_local_max)
                interval *= 2;
            interval = stage || !local ? interval : s->train_local_max;
            assert_false(compress_sums(s, step));
            assert_int_equal(compress_rests(s, step), (local + 1) % interval != 0);
            assert_int_equal(compress_second(s, step + 1), squares);
            if (compress_rests(s, step))
                continue;
            longest = step + 1 - last > longest ? step + 1 - last : longest;
            last = step + 1;
        }
        assert_true(longest <= s->train_local_max);
    }
}

/* A caller that reads the parameters gets a sum, and the schedule continues as before. */
static void a_sum_comes_when_it_is_needed(void **state)
{
    static struct rank r;
    (void)state;
    begin(&r, settings_of("8", "1e-6", "3"), false);
    for (int step = 0; step < STEPS; step++) {
        bool rests = step > FREEZE && (step - FREEZE + 1) % 8 != 0;
        r.o.together = step == 13 || step == STEPS - 1;
        step_by(&r, step, 1);
        assert_int_equal(r.o.kept->apart, rests && !r.o.together);
        for (size_t i = 0; i < ELEMENTS; i++)
            assert_true(isfinite(r.params[i]));
        assert_true(((float *)r.o.state[OPTIM_FIRST].shard)[3] == 0);
    }
    end(&r);
}

/* In every kind of step. */
static void a_step_that_is_not_finite_changes_nothing(void **state)
{
    static struct rank r;
    static float params[ELEMENTS], m[ELEMENTS];
    (void)state;
    begin(&r, settings_of("4", "1e-6", "3"), false);
    for (int step = 0; step < 24; step++) {
        memcpy(params, r.params, sizeof params);
        memcpy(m, r.o.state[OPTIM_FIRST].shard, sizeof m);
        if (step == 23 || step == 5 || step == 6 || step == 15)
            step_by(&r, step, NAN);
        else {
            step_by(&r, step, 1);
            continue;
        }
        assert_memory_equal(params, r.params, sizeof params);
        assert_memory_equal(m, r.o.state[OPTIM_FIRST].shard, sizeof m);
    }
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_loss_it_is_adam, reset),
        cmocka_unit_test_setup(the_schedule_is_that_of_counters, reset),
        cmocka_unit_test_setup(a_sum_comes_when_it_is_needed, reset),
        cmocka_unit_test_setup(a_step_that_is_not_finite_changes_nothing, reset),
    };
    arena = arena_make(0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
