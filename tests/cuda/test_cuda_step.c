/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: the GPU idles while the host reads a loss, a step that is not
 * finite changes parameters that are sent to other sites, a run that is read late is another run,
 * memory is taken that the start-up table does not name. On a GPU, and with its kernels emulated,
 * where the host may not touch pinned memory that a copy still uses (emulate.cc).
 */
#include "tests/inner/setup.h"
#include "tests/inner/params.h"
#include <math.h>
#include <stdatomic.h>
#include "inner/train/train_tune.h"
#include "tests/cuda/cuda_test.h"

static struct arena arena;
static atomic_int stop;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    stop = 0;
    return 0;
}

/* Two micro-batches to a step. */
#define TINY                                                                                       \
    "--model.vocab_size", "23", "--data.tokenizer", "external", "--model.layers", "1",             \
        "--model.heads", "1", "--model.d_model", "16", "--model.max_seq_len", "8",                 \
        "--train.seq_len", "8", "--train.batch_tokens", "32", "--train.micro_batch_tokens", "16",  \
        "--train.warmup_steps", "0", "--train.lr_schedule", "none", "--train.checkpoint_every",    \
        "0", "--device.kind", "cuda"

struct seen {
    int steps;
    int64_t due;         /* the one step that is wanted at once; 0: none */
    int64_t poison;      /* before this step's update a parameter becomes NaN; 0: never */
    int64_t stop;        /* asked for at this step; 0: never */
    uint64_t drains[64]; /* of the device, when step() was called */
    double loss[64];
};

struct run {
    struct settings *s;
    struct dev *d;
    struct coll *c;
    struct train t;
    struct seen seen;
};

static enum err nothing(void *self, struct train *t)
{
    (void)self, (void)t;
    return ERR_OK;
}

static enum err on_update(void *self, struct train *t)
{
    static const float bad = NAN;
    struct seen *s = self;
    if (s->poison && t->step == s->poison - 1) {
        t->dev->ops->copy(t->dev,
                          model_params(t->model) + table_find(&t->table, "norm.weight")->offset,
                          &bad, sizeof bad);
        model_params_changed(t->model);
    }
    return ERR_OK;
}

static bool on_due(void *self, const struct train *t, int64_t step)
{
    struct seen *s = self;
    (void)t;
    return step == s->due;
}

static enum err on_step(void *self, struct train *t, const struct train_report *r)
{
    struct seen *s = self;
    if (r->step != ++s->steps || t->step != r->step || !(r->step_seconds > 0) || !(r->norm > 0))
        return err_set(ERR_INTERNAL, "step %lld told as %d", (long long)t->step, s->steps);
    s->drains[s->steps] = t->dev->sync_count;
    s->loss[s->steps] = r->loss;
    stop = s->stop == r->step;
    return ERR_OK;
}

static enum err on_eval(void *self, struct train *t, const struct train_eval *e)
{
    (void)self, (void)t, (void)e;
    return ERR_OK;
}

static enum err on_saved(void *self, struct train *t)
{
    (void)self, (void)t;
    return ERR_OK;
}

static void begin(struct run *r, const char *type, const char *const *words)
{
    static int runs;
    *r = (struct run){.s = setup_settings(&arena, words)};
    const char **items = arena_array(&arena, 1, sizeof *items);
    items[0] = arena_printf(&arena, "%s/text.bin", scratch_root);
    r->s->data_train = (struct config_list){items, 1};
    if (r->s->device_matmul_precision == DEVICE_MATMUL_FP8_HYBRID)
        assert_int_equal(cuda_test_open_fp8(&r->d, type), ERR_OK);
    else
        assert_int_equal(cuda_test_open(&r->d, type), ERR_OK);
    assert_int_equal(coll_self_open(&r->c), ERR_OK);
    if (train_open(&r->t,
                   &(struct train_options){r->s, r->d, r->c, 0,
                                           arena_printf(&arena, "%s/run-%d", scratch_root, runs++)},
                   &arena))
        fail_msg("%s", err_message());
    assert_true(r->t.running.ahead);
    r->t.given.stop = &stop;
}

static enum err go(struct run *r)
{
    const struct train_hook hook = {&r->seen, nothing, on_update, on_due,
                                    on_step,  on_eval, nothing,   on_saved};
    return train_run(&r->t, &hook);
}

struct state {
    float *params, *m, *v;
    size_t bytes;
};

static struct state state_of(struct run *r)
{
    size_t bytes = r->t.table.elements * sizeof(float);
    struct state s = {arena_alloc(&arena, bytes), arena_alloc(&arena, bytes),
                      arena_alloc(&arena, bytes), bytes};
    r->d->ops->copy(r->d, s.params, model_params(r->t.model), bytes);
    r->d->ops->copy(r->d, s.m, r->t.optim->state[OPTIM_FIRST].shard, bytes);
    r->d->ops->copy(r->d, s.v, r->t.optim->state[OPTIM_SECOND].shard, bytes);
    return s;
}

static void same(struct state a, struct state b)
{
    assert_memory_equal(a.params, b.params, a.bytes);
    assert_memory_equal(a.m, b.m, a.bytes);
    assert_memory_equal(a.v, b.v, a.bytes);
}

static void end(struct run *r)
{
    train_close(&r->t);
    coll_close(r->c);
    dev_close(r->d);
}

/* In the first step the optimizer uploads its table; from the second on the device is never left
 * without work but where the hook wants the very step, the run's end included. */
static void nothing_waits_inside_a_step(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"adamw", "lamb", "muon"};
    struct run r;
    for (int i = 0; i < 3; i++) {
        begin(
            &r, "bf16",
            (const char *[]){TINY, "--train.steps", "8", "--train.optimizer", optimizers[i], NULL});
        r.seen.due = 5;
        assert_int_equal(go(&r), ERR_OK);
        assert_int_equal(r.seen.steps, 8);
        for (int k = 3; k <= 8; k++) {
            uint64_t waits = r.seen.drains[k] - r.seen.drains[k - 1], want = k == 5 || k == 8;
            if (waits != want)
                fail_msg("step %d: the host waited %d times until the GPU had nothing to do", k,
                         (int)waits);
        }
        end(&r);
    }
}

/* The same bits, read at once or late, with rounding that depends on the step. */
static void read_late_it_is_the_same_run(void **state)
{
    (void)state;
    struct state s[2];
    struct run r[2];
    for (int i = 0; i < 2; i++) {
        begin(&r[i], "bf16",
              (const char *[]){TINY, "--train.steps", "5", "--train.rounding", "stochastic", NULL});
        r[i].t.running.ahead = i;
        assert_int_equal(go(&r[i]), ERR_OK);
        s[i] = state_of(&r[i]);
        end(&r[i]);
    }
    same(s[0], s[1]);
    assert_memory_equal(r[0].seen.loss, r[1].seen.loss, sizeof r[0].seen.loss);
}

/* Step 4 leaves a NaN; step 5 sees it in its loss, when step 6 is under way. Nothing of 5 or 6 is
 * left: what a run of four steps with the same accident has. */
static void what_is_not_finite_changes_nothing(void **state)
{
    (void)state;
    struct state s[2];
    struct run r;
    for (int o = 0; o < 2; o++) {
        for (int i = 0; i < 2; i++) {
            begin(&r, "f32",
                  (const char *[]){TINY, "--train.steps", i ? "4" : "9", "--train.optimizer",
                                   o ? "lamb" : "adamw", NULL});
            r.seen.poison = 4;
            assert_int_equal(go(&r), i ? ERR_OK : ERR_DIVERGED);
            if (!i)
                assert_says("the loss of step 5 is not finite");
            assert_int_equal(r.t.step, 4);
            assert_int_equal(r.t.tokens, 4 * 32);
            assert_int_equal(r.seen.steps, 4);
            s[i] = state_of(&r);
            end(&r);
        }
        same(s[0], s[1]);
    }
}

/* A wish at step 3's report is agreed on in step 4, and heard while 5 is under way: that is given
 * up. */
static void a_stop_is_heard_a_step_later(void **state)
{
    (void)state;
    struct state s[2];
    struct run r;
    for (int i = 0; i < 2; i++) {
        begin(&r, "f32", (const char *[]){TINY, "--train.steps", i ? "4" : "9", NULL});
        r.seen.stop = i ? 0 : 3;
        assert_int_equal(go(&r), i ? ERR_OK : ERR_STOPPED);
        assert_int_equal(r.t.step, 4);
        assert_int_equal(r.t.saved.step, 4);
        s[i] = state_of(&r);
        end(&r);
    }
    same(s[0], s[1]);
}

/* What is taken through the device is what the table says, but for the code of kernels. 4 MiB:
 * allowances and rounding of the ops' share. */
static void promised_memory_is_what_is_taken(void **state)
{
    (void)state;
    for (int fp8 = 0; fp8 < 2; fp8++) {
        struct run r;
        begin(&r, "bf16",
              (const char *[]){TINY, "--device.kind", "cuda", "--device.matmul_precision",
                               fp8 ? "fp8_hybrid" : "model", "--train.steps", "1",
                               "--model.vocab_size", "30000", NULL});
        if (go(&r) != ERR_OK)
            fail_msg("%s", err_message());
        const struct train_memory *m = &r.t.memory;
        size_t promised = m->total - m->model.workspace.code - m->graphs;
        if (r.d->used_bytes > promised || r.d->used_bytes + (4 << 20) < promised)
            fail_msg("promised %zu KiB, taken %zu KiB", promised >> 10, r.d->used_bytes >> 10);
        end(&r);
    }
}

/* Profile and the trial of graphs look on: the run's bits do not change, every class is met. */
static void looking_on_changes_nothing(void **state)
{
    (void)state;
    struct state s[2];
    struct run r;
    for (int i = 0; i < 2; i++) {
        begin(&r, "bf16",
              (const char *[]){TINY, "--train.steps", "20", "--device.graphs", i ? "auto" : "off",
                               "--train.profile", i ? "2" : "0", NULL});
        assert_int_equal(go(&r), ERR_OK);
        s[i] = state_of(&r);
        if (i) {
            const struct profile *p = r.t.running.tune->profile;
            assert_true(r.t.running.tune->fastest[0] > 0 && r.t.running.tune->fastest[1] > 0 &&
                        r.t.running.tune->reported && !p->full);
            assert_int_equal(p->steps, 2);
            assert_int_equal(p->calls[PROFILE_MLP], 2 * 2 * 2);
            assert_int_equal(p->calls[PROFILE_NORM_BWD], 2 * 2 * 3);
            assert_int_equal(p->calls[PROFILE_UPDATE], 2);
            for (int c = PROFILE_UPLOAD; c < PROFILE_COUNT; c++)
                assert_true(p->calls[c] && (c == PROFILE_REDUCE || p->seconds[c] > 0));
        }
        end(&r);
    }
    same(s[0], s[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nothing_waits_inside_a_step, reset),
        cmocka_unit_test_setup(read_late_it_is_the_same_run, reset),
        cmocka_unit_test_setup(what_is_not_finite_changes_nothing, reset),
        cmocka_unit_test_setup(a_stop_is_heard_a_step_later, reset),
        cmocka_unit_test_setup(promised_memory_is_what_is_taken, reset),
        cmocka_unit_test_setup(looking_on_changes_nothing, reset),
    };
    if (cuda_test_missing("bf16"))
        return CUDA_TEST_SKIP;
    int failed = cmocka_run_group_tests(tests, setup_squares, scratch_close);
    arena_free(&arena);
    return failed;
}
