/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a model that does not learn, a resumed run that is another run,
 * accumulation or a second rank that changes the gradient, a diverged step that reaches other
 * sites, memory that was not promised. */
#include "tests/inner/train/run.h"
#include "tests/inner/params.h"
#include <math.h>
#include <stdatomic.h>
#include "inner/model/depth.h"
#include "kernels/base/log.h"
#include "kernels/cpu/cpu.h"

#ifdef SANITIZED
enum { SHADOWED = 1 }; /* the sanitizers' memory is not ours to promise */
#else
enum { SHADOWED = 0 };
#endif
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

/* A shard that a bigram cannot explain: each id follows from the two before it. */
static int make_text(void **state)
{
    enum { TOKENS = 6000 };
    static uint16_t ids[TOKENS];
    unsigned a = 1, b = 2;
    if (scratch_open(state))
        return -1;
    for (int i = 0; i < TOKENS; i++) {
        unsigned next = (a * 7 + b * 3 + a * b) % 23;
        ids[i] = (uint16_t)next;
        a = b;
        b = next;
    }
    setup_shard(ids, TOKENS);
    return 0;
}

#define TINY                                                                                       \
    "--model.vocab_size", "23", "--data.tokenizer", "external", "--model.layers", "2",             \
        "--model.heads", "2", "--model.d_model", "32", "--model.max_seq_len", "16",                \
        "--train.seq_len", "16", "--train.batch_tokens", "256", "--train.warmup_steps", "4",       \
        "--train.checkpoint_every", "0", "--device.dtype", "f32"

static void begin(struct run *r, const char *dir, const char *const *words)
{
    if (run_open(r, setup_settings(&arena, words), dir, &arena))
        fail_msg("%s", err_message());
    r->t.given.stop = &stop;
}

/* ---- a hook that records ---- */
struct seen {
    double loss[64], norm[64], eval_first, eval_last;
    int steps, updates, evals, savings, saves, starts;
    int stop_after;   /* raise the flag in this step; 0: never */
    int poison_after; /* put a NaN into the parameters after this step */
    int refuse_after; /* let no update follow this step */
    float put;        /* before the update of step 2, in place of the first gain; 0: nothing */
};

static enum err seen_start(void *self, struct train *t)
{
    struct seen *s = self;
    s->starts++;
    return t->model ? ERR_OK : ERR_INTERNAL;
}

/* Once for every step, the parameters being those of the step before. */
static enum err seen_update(void *self, struct train *t)
{
    struct seen *s = self;
    if (t->step != s->steps || s->updates != s->steps)
        return ERR_INTERNAL;
    if (s->refuse_after && t->step == s->refuse_after)
        return err_set(ERR_STOPPED, "refused");
    if (s->put > 0 && t->step == 1) {
        model_params(t->model)[table_find(&t->table, "norm.weight")->offset] = s->put;
        model_params_changed(t->model);
    }
    s->updates++;
    return ERR_OK;
}

/* A change of the parameters must be said. */
static bool seen_due(void *self, const struct train *t, int64_t step)
{
    struct seen *s = self;
    (void)t;
    return s->poison_after && step == s->poison_after;
}

static enum err seen_step(void *self, struct train *t, const struct train_report *r)
{
    struct seen *s = self;
    s->norm[s->steps] = (double)r->norm;
    s->loss[s->steps++] = r->loss;
    if (r->step == s->stop_after)
        stop = 1;
    if (r->step == s->poison_after) {
        model_params(t->model)[table_find(&t->table, "norm.weight")->offset] = NAN;
        model_params_changed(t->model);
    }
    return ERR_OK;
}

static enum err seen_eval(void *self, struct train *t, const struct train_eval *e)
{
    struct seen *s = self;
    (void)t;
    if (!s->evals++)
        s->eval_first = e->loss;
    s->eval_last = e->loss;
    return ERR_OK;
}

static enum err seen_saving(void *self, struct train *t)
{
    struct seen *s = self;
    s->savings++;
    return t->saved.step < t->step ? ERR_OK : ERR_INTERNAL;
}

static enum err seen_saved(void *self, struct train *t)
{
    struct seen *s = self;
    if (++s->saves != s->savings)
        return ERR_INTERNAL;
    return t->saved.step == t->step ? ERR_OK : ERR_INTERNAL;
}

static struct train_hook hook_of(struct seen *s)
{
    return (struct train_hook){s,         seen_start, seen_update, seen_due,
                               seen_step, seen_eval,  seen_saving, seen_saved};
}

/* ---- learning ---- */
static void learns(const char *optimizer, const char *lr)
{
    struct run r;
    struct seen s = {0};
    struct train_hook h = hook_of(&s);
    begin(&r, optimizer,
          (const char *[]){TINY, "--train.steps", "60", "--train.optimizer", optimizer,
                           "--train.lr", lr, "--train.eval_every", "20", NULL});
    if (train_run(&r.t, &h))
        fail_msg("%s", err_message());
    assert_int_equal(s.steps, 60);
    assert_int_equal(s.evals, 4); /* start, 20, 40, end */
    assert_int_equal(s.saves, 1);
    assert_true(fabs(s.eval_first - log(23)) < 0.05);
    if (!(s.eval_last < 1.2))
        fail_msg("%s: held-out loss went from %.3f to %.3f only", optimizer, s.eval_first,
                 s.eval_last);
    run_close(&r);
}

static void adamw_learns(void **state)
{
    (void)state;
    learns("adamw", "0.01");
}

static void lamb_learns(void **state)
{
    (void)state;
    learns("lamb", "0.1");
}

static void qhadam_learns(void **state)
{
    (void)state;
    learns("qhadam", "0.01");
}

static void muon_learns(void **state)
{
    (void)state;
    learns("muon", "0.01");
}

static void came_learns(void **state)
{
    (void)state;
    learns("came", "0.005");
}

/* ---- resume ---- */
struct final {
    float *params, *m, *v; /* v: further state, where it is kept, at its tensors' offsets */
};

static struct final copy_final(struct run *r)
{
    size_t bytes = r->t.table.elements * sizeof(float);
    struct final f = {arena_alloc(&arena, bytes), arena_alloc(&arena, bytes),
                      arena_alloc(&arena, bytes)};
    r->d->ops->copy(r->d, f.params, model_params(r->t.model), bytes);
    r->d->ops->copy(r->d, f.m, r->t.optim->state[OPTIM_FIRST].shard, bytes);
    memset(f.v, 0, bytes);
    if (r->t.optim->state[OPTIM_SECOND].elements)
        r->d->ops->copy(r->d, f.v, r->t.optim->state[OPTIM_SECOND].shard, bytes);
    const float *more = r->t.optim->state[OPTIM_MORE].shard;
    for (size_t k = 0; more && k < r->t.table.count; k++) {
        const struct tensor *x = &r->t.table.tensors[k];
        size_t floats = r->t.optim->method->more(x);
        r->d->ops->copy(r->d, f.v + x->offset, more, floats * sizeof *more);
        more += floats;
    }
    return f;
}

/* Ten steps in one process, or five and five in two. */
static void resumes(const char *type, const char *optimizer, const char *rounding,
                    const char *dropout, const char *layer_drop, const char *masters)
{
    const char *const words[] = {TINY,
                                 "--train.steps",
                                 "10",
                                 "--train.max_grad_norm",
                                 strcmp(optimizer, "lans") ? "1" : "0",
                                 "--device.dtype",
                                 type,
                                 "--train.optimizer",
                                 optimizer,
                                 "--train.rounding",
                                 rounding,
                                 "--train.dropout",
                                 dropout,
                                 "--model.layers",
                                 "4",
                                 "--train.layer_drop",
                                 layer_drop,
                                 "--train.layer_drop_rate",
                                 "10",
                                 "--train.master_weights",
                                 masters,
                                 NULL};
    char dir[2][64];
    struct final f[2];
    struct run r;
    for (int i = 0; i < 2; i++)
        snprintf(dir[i], sizeof dir[i], "%s-%s-%s-%s-%s-%s-%s", i ? "halves" : "whole", type,
                 optimizer, rounding, dropout, layer_drop, masters);
    begin(&r, dir[0], words);
    assert_int_equal(train_run(&r.t, NULL), ERR_OK);
    f[0] = copy_final(&r);
    size_t bytes = r.t.table.elements * sizeof(float);
    run_close(&r);

    struct seen s = {.stop_after = 4}; /* noticed when step 5 is done */
    struct train_hook h = hook_of(&s);
    begin(&r, dir[1], words);
    assert_int_equal(train_run(&r.t, &h), ERR_STOPPED);
    assert_int_equal(r.t.step, 5);
    assert_int_equal(s.saves, 1);
    run_close(&r);
    stop = 0;
    begin(&r, dir[1], words);
    assert_int_equal(train_run(&r.t, &h), ERR_OK);
    assert_int_equal(s.starts, 2);
    assert_int_equal(s.steps, 10);
    assert_int_equal(r.t.tokens, 10 * 256);
    f[1] = copy_final(&r);
    run_close(&r);
    assert_memory_equal(f[0].params, f[1].params, bytes);
    assert_memory_equal(f[0].m, f[1].m, bytes);
    assert_memory_equal(f[0].v, f[1].v, bytes);
}

static void resumed_run_is_the_same_run(void **state)
{
    (void)state;
    resumes("f32", "lamb", "nearest", "0", "0", "f32");
    resumes("bf16", "adamw", "nearest", "0.1", "0", "f32");
    resumes("bf16", "lamb", "stochastic", "0", "0", "f32");
    resumes("f32", "adamw", "nearest", "0", "0.7", "f32");
    resumes("bf16", "lamb", "nearest", "0.1", "0.7", "f32");
    resumes("f32", "qhadam", "nearest", "0", "0", "f32");
    resumes("bf16", "lans", "nearest", "0", "0", "f32");
    resumes("f32", "muon", "nearest", "0", "0", "f32");
    resumes("bf16", "muon", "stochastic", "0.1", "0.7", "f32");
    resumes("bf16", "merit", "nearest", "0", "0.7", "f32");
    resumes("f32", "came", "nearest", "0.1", "0.7", "f32");
    resumes("f32", "adamw", "nearest", "0", "0.7", "fp16_stochastic");
    resumes("bf16", "lamb", "nearest", "0.1", "0", "fp16_stochastic");
}

/* ---- layers that are left out ---- */
#define DROP                                                                                       \
    TINY, "--model.layers", "5", "--train.layer_drop", "0.8", "--train.layer_drop_rate", "10",     \
        "--train.lr_schedule", "none"

static struct final state_after(const char *dir, const char *const *words, struct table *t)
{
    struct run r;
    begin(&r, dir, words);
    if (train_run(&r.t, NULL))
        fail_msg("%s", err_message());
    struct final f = copy_final(&r);
    assert_int_equal(table_make(t, r.s, &arena), ERR_OK);
    run_close(&r);
    return f;
}

static bool keeps_second(const char *optimizer, const struct tensor *x)
{
    return strcmp(optimizer, "muon") || x->group != TABLE_HIDDEN;
}

/* A step changes no bit of the parameters and moments of a layer that it leaves out. */
static void a_dropped_layer_keeps_its_state(const char *optimizer)
{
    enum { STEPS = 7 };
    struct final f[STEPS + 1];
    struct table t;
    size_t kept = 0, changed = 0;
    for (int i = 1; i <= STEPS; i++) {
        const char *const words[] = {DROP,
                                     "--train.optimizer",
                                     optimizer,
                                     "--train.warmup_steps",
                                     "0",
                                     "--train.steps",
                                     arena_printf(&arena, "%d", i),
                                     NULL};
        f[i] = state_after(arena_printf(&arena, "drop-%s-%d", optimizer, i), words, &t);
        const struct settings *s = setup_settings(&arena, words);
        for (size_t k = 0; i > 1 && k < t.count; k++) {
            size_t at = t.tensors[k].offset, bytes = t.tensors[k].count * sizeof(float);
            bool learns = depth_learns(s, (uint64_t)i - 1, t.tensors[k].layer);
            assert_int_equal(memcmp(f[i].params + at, f[i - 1].params + at, bytes) != 0, learns);
            assert_int_equal(memcmp(f[i].m + at, f[i - 1].m + at, bytes) != 0, learns);
            assert_int_equal(memcmp(f[i].v + at, f[i - 1].v + at, bytes) != 0,
                             learns && keeps_second(optimizer, &t.tensors[k]));
            kept += !learns;
            changed += learns;
        }
    }
    assert_true(kept > 20 && changed > 20);
}

static void dropped_layers_keep_their_state(void **state)
{
    (void)state;
    a_dropped_layer_keeps_its_state("adamw");
    a_dropped_layer_keeps_its_state("lamb");
    a_dropped_layer_keeps_its_state("muon");
    a_dropped_layer_keeps_its_state("merit");
}

/* Adam's bias correction of a layer counts the steps in which it has run. */
static void a_layer_counts_its_own_updates(void **state)
{
    (void)state;
    enum { LAYER = 4 };
    struct final f[2];
    struct table t;
    const struct settings *s = setup_settings(&arena, (const char *[]){DROP, NULL});
    int step = 0, updates = 0;
    do /* the first step in which it runs after one in which it did not */
        updates += depth_learns(s, (uint64_t)step++, LAYER);
    while (updates == step || !depth_learns(s, (uint64_t)step, LAYER));
    for (int i = 0; i < 2; i++)
        f[i] =
            state_after(arena_printf(&arena, "own-%d", i),
                        (const char *[]){DROP, "--train.optimizer", "adamw", "--train.weight_decay",
                                         "0", "--train.warmup_steps", "0", "--train.steps",
                                         arena_printf(&arena, "%d", step + i), NULL},
                        &t);
    size_t at = table_find(&t, "layers.4.attn.proj.weight")->offset;
    for (size_t i = at; i < at + 100; i++) {
        double m = (double)f[1].m[i] / (1 - pow(s->train_beta1, updates + 1)),
               v = (double)f[1].v[i] / (1 - pow(s->train_beta2, updates + 1)),
               moved = (double)f[0].params[i] - (double)f[1].params[i],
               want = s->train_lr * m / (sqrt(v) + s->train_eps);
        assert_true(fabs(moved - want) < 1e-3 * fabs(want) + 1e-8);
    }
}

/* A rate that has dropped no layer yet: every gate is open and every factor is 1. */
static void layers_that_are_kept_are_the_plain_run(void **state)
{
    (void)state;
    struct final f[2];
    struct table t;
    for (int i = 0; i < 2; i++)
        f[i] = state_after(i ? "kept" : "plain",
                           (const char *[]){TINY, "--model.layers", "5", "--train.steps", "4",
                                            "--train.layer_drop", i ? "0.5" : "0",
                                            "--train.layer_drop_rate", "0", NULL},
                           &t);
    assert_memory_equal(f[0].params, f[1].params, t.elements * sizeof(float));
    assert_memory_equal(f[0].v, f[1].v, t.elements * sizeof(float));
}

/* ---- progressive stacking ---- */
/* Steps 0-2: one layer; 3-5: two; 6-8: four; 9-11: all learn. */
#define STACK                                                                                      \
    TINY, "--model.layers", "4", "--train.stages", "1@0.25,2@0.25,4@0.25,4@0.25", "--train.steps", \
        "12", "--train.warmup_steps", "2"

/* Runs until `stop` steps are finished. */
static struct final stacked_until(const char *dir, const char *optimizer, int until,
                                  struct table *t)
{
    const char *const words[] = {STACK, "--train.optimizer", optimizer, NULL};
    struct seen h = {.stop_after = until - 1};
    struct train_hook hook = hook_of(&h);
    struct run r;
    begin(&r, dir, words);
    enum err e = train_run(&r.t, &hook);
    assert_int_equal(e, until < 12 ? ERR_STOPPED : ERR_OK);
    assert_int_equal(r.t.step, until);
    struct final f = copy_final(&r);
    assert_int_equal(table_make(t, r.s, &arena), ERR_OK);
    run_close(&r);
    stop = 0;
    return f;
}

/* Frozen tensors keep every bit, and layers that are not there yet those of the seed; what learns
 * changes; new layers begin as copies, with moments that know nothing. */
static void stages_freeze_and_grow(const char *optimizer)
{
    enum { STEPS = 12 };
    struct final f[STEPS + 1];
    struct table t;
    const struct settings *s = setup_settings(&arena, (const char *[]){STACK, NULL});
    for (int i = 2; i <= STEPS; i++) /* a stop is seen in the step after it is asked for */
        f[i] = stacked_until(arena_printf(&arena, "stack-%s-%d", optimizer, i), optimizer, i, &t);
    for (int i = 3; i <= STEPS; i++)
        for (size_t k = 0; k < t.count; k++) {
            size_t at = t.tensors[k].offset, bytes = t.tensors[k].count * sizeof(float);
            bool learns = depth_learns(s, (uint64_t)i - 1, t.tensors[k].layer);
            assert_int_equal(memcmp(f[i].params + at, f[i - 1].params + at, bytes) != 0, learns);
            assert_int_equal(memcmp(f[i].m + at, f[i - 1].m + at, bytes) != 0, learns);
            assert_int_equal(memcmp(f[i].v + at, f[i - 1].v + at, bytes) != 0,
                             learns && keeps_second(optimizer, &t.tensors[k]));
        }
    /* After its first step, at rate lr / 2, layer 1 is layer 0 but for that step. */
    const struct tensor *from = table_find(&t, "layers.0.mlp.up.weight"),
                        *to = table_find(&t, "layers.1.mlp.up.weight");
    double moved = 0, apart = 0;
    for (size_t i = 0; i < to->count; i++) {
        moved = fmax(moved, fabs((double)f[4].params[to->offset + i] -
                                 (double)f[3].params[from->offset + i]));
        apart = fmax(apart, fabs((double)f[3].params[to->offset + i] -
                                 (double)f[3].params[from->offset + i]));
    }
    assert_true(moved > 0 && moved < 0.3 * apart);
    for (size_t i = 0; i < to->count; i++)
        assert_true(f[3].m[to->offset + i] == 0 && f[3].v[to->offset + i] == 0);
}

static void a_stage_freezes_and_grows(void **state)
{
    (void)state;
    stages_freeze_and_grow("adamw");
    stages_freeze_and_grow("lamb");
    stages_freeze_and_grow("muon");
}

/* In the middle of a stage, at its border, and one step after it. */
static void a_stacked_run_resumes_bit_for_bit(void **state)
{
    (void)state;
    struct table t;
    struct final whole = stacked_until("stack-whole", "adamw", 12, &t);
    for (int at = 5; at <= 9; at++) {
        const char *dir = arena_printf(&arena, "stack-part-%d", at);
        stacked_until(dir, "adamw", at, &t);
        struct run r;
        begin(&r, dir, (const char *[]){STACK, "--train.optimizer", "adamw", NULL});
        assert_int_equal(train_run(&r.t, NULL), ERR_OK);
        struct final f = copy_final(&r);
        run_close(&r);
        assert_memory_equal(whole.params, f.params, t.elements * sizeof(float));
        assert_memory_equal(whole.m, f.m, t.elements * sizeof(float));
        assert_memory_equal(whole.v, f.v, t.elements * sizeof(float));
    }
}

static void a_stacked_run_keeps_its_steps(void **state)
{
    (void)state;
    struct table t;
    struct run r;
    stacked_until("stack-more", "adamw", 5, &t);
    begin(&r, "stack-more",
          (const char *[]){STACK, "--train.optimizer", "adamw", "--train.steps", "24", NULL});
    assert_int_equal(train_run(&r.t, NULL), ERR_MISMATCH);
    assert_says("train.stages divides these");
    run_close(&r);
}

static void a_compressed_run_keeps_its_steps(void **state)
{
    (void)state;
    struct run r;
    begin(&r, "compressed-more",
          (const char *[]){TINY, "--train.steps", "10", "--train.optimizer", "adamw",
                           "--train.compress", "onebit", "--train.compress_start", "0.5", NULL});
    assert_int_equal(train_resume(&r.t), ERR_OK);
    assert_int_equal(train_checkpoint(&r.t), ERR_OK);
    run_close(&r);
    begin(&r, "compressed-more",
          (const char *[]){TINY, "--train.steps", "20", "--train.optimizer", "adamw",
                           "--train.compress", "onebit", "--train.compress_start", "0.5", NULL});
    assert_int_equal(train_run(&r.t, NULL), ERR_MISMATCH);
    assert_says("train.compress_start is a share of these");
    run_close(&r);
}

static void checkpoint_of_another_run_is_refused(void **state)
{
    (void)state;
    struct run r;
    begin(&r, "other", (const char *[]){TINY, "--train.steps", "10", NULL});
    assert_int_equal(train_resume(&r.t), ERR_OK);
    assert_int_equal(train_checkpoint(&r.t), ERR_OK);
    run_close(&r);
    begin(&r, "other", (const char *[]){TINY, "--train.steps", "10", "--train.lr", "0.5", NULL});
    assert_int_equal(train_run(&r.t, NULL), ERR_MISMATCH);
    assert_says("train.lr");
    run_close(&r);
}

static char said[4000];
static void hear(void *self, enum log_level level, const char *line)
{
    (void)self;
    if (level == LOG_WARN)
        snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", line);
}

/* `first` ids of a text of its own, in more.bin. */
static void write_more(unsigned first)
{
    static uint8_t data[SHARD_HEADER_BYTES + 2 * 900];
    struct bytes_writer w = bytes_writer(data, sizeof data);
    bytes_put_u32(&w, SHARD_MAGIC_U16);
    bytes_put_u32(&w, SHARD_VERSION_U16);
    bytes_put_u32(&w, 900);
    w.at = data + SHARD_HEADER_BYTES;
    for (unsigned i = 0; i < 900; i++)
        bytes_put_u16(&w, (uint16_t)(i < 3 ? first : i % 23));
    scratch_write("more.bin", data, sizeof data);
}

static enum err resume_with(const char *train, bool fixed, const char *fetch)
{
    struct run r;
    *said = 0;
    log_to(hear, NULL);
    begin(&r, "text",
          (const char *[]){TINY, "--train.steps", "10", "--data.train", train, "--data.fetch",
                           fetch, NULL});
    r.t.given.text_fixed = fixed;
    enum err e = train_resume(&r.t);
    if (!e)
        assert_int_equal(r.t.step, 3);
    run_close(&r);
    log_to(NULL, NULL);
    return e;
}

/* A shard that came, went or was replaced moves every example: said with both totals, and refused
 * where a restart must repeat the run. What an operator has written differently is meant. */
static void other_files_at_a_restart_are_noticed(void **state)
{
    (void)state;
    struct seen s = {.stop_after = 2};
    struct train_hook h = hook_of(&s);
    struct run r;
    const char *one = arena_printf(&arena, "%s", scratch("text.bin")),
               *all = arena_printf(&arena, "%s", scratch("[tm]*e*.bin")),
               *both = arena_printf(&arena, "%s,%s", one, scratch("more.bin"));
    assert_int_equal(file_remove(scratch("more.bin")), ERR_OK);
    begin(&r, "text", (const char *[]){TINY, "--train.steps", "10", "--data.train", all, NULL});
    assert_int_equal(train_run(&r.t, &h), ERR_STOPPED);
    run_close(&r);
    stop = 0;
    assert_int_equal(resume_with(all, true, ""), ERR_OK);
    assert_null(strstr(said, "at the checkpoint of step"));
    assert_int_equal(resume_with(one, true, ""), ERR_OK); /* written differently, the same file */
    assert_null(strstr(said, "at the checkpoint of step"));
    write_more(1);
    assert_int_equal(resume_with(all, false, ""), ERR_OK);
    assert_non_null(strstr(said,
                           "2 shards with 6900 tokens, at the checkpoint of step 3 they were 1 "
                           "with 6000"));
    assert_int_equal(resume_with(all, true, ""), ERR_MISMATCH);
    assert_says("2 shards with 6900 tokens");
    assert_says("bring the files back, or name the new ones in data.train");
    assert_int_equal(resume_with(both, true, ""), ERR_OK);
    assert_non_null(strstr(said, "at the checkpoint of step"));
    assert_int_equal(resume_with(all, true, "true"), ERR_OK);
    assert_non_null(strstr(said, "at the checkpoint of step"));
    /* A file of the same size. */
    begin(&r, "text2", (const char *[]){TINY, "--train.steps", "10", "--data.train", all, NULL});
    s = (struct seen){.stop_after = 2};
    assert_int_equal(train_run(&r.t, &h), ERR_STOPPED);
    run_close(&r);
    stop = 0;
    write_more(2);
    begin(&r, "text2", (const char *[]){TINY, "--train.steps", "10", "--data.train", all, NULL});
    r.t.given.text_fixed = true;
    assert_int_equal(train_resume(&r.t), ERR_MISMATCH);
    assert_says("names, sizes, first ids, labels or owners differ");
    run_close(&r);
    assert_int_equal(file_remove(scratch("more.bin")), ERR_OK);
}

/* ---- before the update ---- */
/* What the hook puts in has no part in the gradients, and the step's update is taken from there. */
static void a_hook_comes_before_the_update(void **state)
{
    (void)state;
    const float put[] = {2, 3};
    struct final f[2];
    struct run r;
    float moved[2];
    for (int i = 0; i < 2; i++) {
        struct seen s = {.put = put[i]};
        struct train_hook h = hook_of(&s);
        begin(&r, i ? "three" : "two",
              (const char *[]){TINY, "--train.steps", "2", "--train.optimizer", "adamw", NULL});
        assert_int_equal(train_run(&r.t, &h), ERR_OK);
        assert_int_equal(s.updates, 2);
        f[i] = copy_final(&r);
        moved[i] = f[i].params[table_find(&r.t.table, "norm.weight")->offset] - put[i];
        if (i)
            assert_memory_equal(f[0].m, f[1].m, r.t.table.elements * sizeof(float));
        run_close(&r);
    }
    assert_true(fabsf(moved[0]) > 1e-5f);
    assert_true(fabsf(moved[0] - moved[1]) < 1e-6f); /* gains do not decay */
}

static void a_step_that_is_given_up_changes_nothing(void **state)
{
    (void)state;
    struct final f[2];
    struct run r;
    size_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        struct seen s = {.refuse_after = i ? 3 : 0};
        struct train_hook h = hook_of(&s);
        begin(&r, i ? "refused" : "ended",
              (const char *[]){TINY, "--train.warmup_steps", "2", "--train.steps", i ? "6" : "3",
                               "--train.lr_schedule", "none", NULL});
        assert_int_equal(train_run(&r.t, &h), i ? ERR_STOPPED : ERR_OK);
        assert_int_equal(r.t.step, 3);
        assert_int_equal(s.steps, 3);
        f[i] = copy_final(&r);
        bytes = r.t.table.elements * sizeof(float);
        run_close(&r);
    }
    assert_memory_equal(f[0].params, f[1].params, bytes);
    assert_memory_equal(f[0].m, f[1].m, bytes);
}

/* ---- gradients ---- */
/* 16 sequences at once or 4 x 4: sums in another order. f32 gradients of magnitude g: n additions
 * lose at most about n 2^-24 of the sum of magnitudes; 1e-5 of the norm is 20 times what is seen.
 */
static void accumulates(const char *dropout)
{
    const char *micro[] = {"0", "64"};
    struct final f[2];
    struct run r;
    size_t n = 0;
    for (int i = 0; i < 2; i++) {
        begin(&r, arena_printf(&arena, "%s-%s", i ? "micro" : "macro", dropout),
              (const char *[]){TINY, "--train.steps", "4", "--train.warmup_steps", "0",
                               "--train.micro_batch_tokens", micro[i], "--train.dropout", dropout,
                               NULL});
        assert_int_equal(r.t.data.micro_sequences, i ? 4 : 16);
        assert_int_equal(train_run(&r.t, NULL), ERR_OK);
        f[i] = copy_final(&r);
        n = r.t.table.elements;
        run_close(&r);
    }
    double off = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        off += pow((double)f[0].m[i] - (double)f[1].m[i], 2);
        size += pow((double)f[0].m[i], 2);
    }
    assert_true(size > 0);
    if (sqrt(off) > 1e-5 * sqrt(size))
        fail_msg("first moments differ by %.3g of their norm", sqrt(off / size));
}

static void accumulation_changes_nothing(void **state)
{
    (void)state;
    accumulates("0");
    accumulates("0.1");
}

/* Each window twice, the second time without targets. */
static void append_twice(const struct loader *l, uint64_t window, uint64_t example, struct batch *b)
{
    size_t at = b->tokens_count;
    (void)window;
    objective_causal.append(l, loader_order(l, example / 2), example, b);
    for (size_t i = at; example % 2 && i < b->tokens_count; i++)
        b->targets[i] = -1;
}

/* The loss and the gradient are means over targets, with any tokens of a step: twice the
 * tokens with the same targets make the same step. */
static void a_step_is_the_mean_over_its_targets(void **state)
{
    (void)state;
    struct objective twice = objective_causal;
    twice.append = append_twice;
    const char *tokens[] = {"256", "512"};
    struct seen s[2] = {{.steps = 0}, {.steps = 0}};
    struct final f[2];
    struct run r;
    for (int i = 0; i < 2; i++) {
        struct train_hook h = hook_of(&s[i]);
        begin(&r, i ? "targets-2" : "targets-1",
              (const char *[]){TINY, "--train.steps", "3", "--train.max_grad_norm", "0.5",
                               "--train.warmup_steps", "0", "--train.batch_tokens", tokens[i],
                               NULL});
        if (i)
            r.t.data.loader->options.objective = &twice;
        assert_int_equal(train_run(&r.t, &h), ERR_OK);
        f[i] = copy_final(&r);
        run_close(&r);
    }
    for (int i = 0; i < 3; i++) {
        assert_true(fabs(s[1].loss[i] / s[0].loss[i] - 1) < 1e-6);
        assert_true(fabs(s[1].norm[i] / s[0].norm[i] - 1) < 1e-5);
    }
    for (size_t i = 0; i < 1000; i++)
        assert_true(fabsf(f[0].m[i] - f[1].m[i]) < 1e-6f);
}

/* Every third position has a target, and every second sequence a label. */
static void append_both(const struct loader *l, uint64_t window, uint64_t example, struct batch *b)
{
    size_t at = b->tokens_count;
    objective_causal.append(l, window, example, b);
    for (size_t i = at; i < b->tokens_count; i++)
        b->targets[i] = (i - at) % 3 ? -1 : b->targets[i];
    b->labels[b->sequences - 1] = example % 2 ? 1 : -1;
}

static void count_both(const struct loader *l, uint64_t window, uint64_t example,
                       struct target_counts *c)
{
    (void)window;
    c->token += (l->options.sequence + 2) / 3;
    c->sequence += example % 2;
}

/* The sum of the losses is divided by the targets of tokens; a sequence's loss is weighted, so that
 * the same division makes its mean over the step of the site, with any micro-batch. */
static void losses_of_both_kinds_have_one_divisor(void **state)
{
    (void)state;
    struct objective both = objective_causal;
    both.append = append_both;
    both.count = count_both;
    const char *micro[] = {"0", "32"};
    double loss[2];
    for (int i = 0; i < 2; i++) {
        struct seen s = {.steps = 0};
        struct train_hook h = hook_of(&s);
        struct run r;
        begin(&r, i ? "both-2" : "both-1",
              (const char *[]){TINY, "--train.steps", "1", "--train.warmup_steps", "0",
                               "--train.micro_batch_tokens", micro[i], NULL});
        r.t.data.loader->options.objective = &both;
        r.t.data.loader->sequence_targets = true;
        assert_int_equal(train_run(&r.t, &h), ERR_OK);
        /* 16 sequences of 16: 6 targets each, 8 labels */
        assert_true(r.t.data.batch->sequence_weight == 96.0f / 8);
        assert_true(r.t.running.stats[STEP_TARGETS] == 96);
        loss[i] = s.loss[0];
        run_close(&r);
    }
    assert_true(fabs(loss[0] - loss[1]) < 1e-5);
    assert_true(fabs(loss[0] - log(23)) < 0.3); /* a mean: the parameters are as they began */
}

/* ---- what goes wrong ---- */
static void a_diverged_step_reaches_no_hook(void **state)
{
    (void)state;
    struct run r;
    struct seen s = {.poison_after = 3};
    struct train_hook h = hook_of(&s);
    begin(&r, "nan", (const char *[]){TINY, "--train.steps", "10", NULL});
    assert_int_equal(train_run(&r.t, &h), ERR_DIVERGED);
    assert_says("step 4");
    assert_int_equal(s.steps, 3);
    assert_int_equal(r.t.step, 3);
    run_close(&r);
}

static void batch_must_divide_among_ranks(void **state)
{
    (void)state;
    struct run r;
    struct coll two;
    r.s = setup_settings(&arena, (const char *[]){TINY, "--train.batch_tokens", "272", NULL});
    r.d = setup_device("f32", 1);
    assert_int_equal(coll_open(&r.c, "cpu"), ERR_OK);
    two = *r.c;
    two.size = 2;
    assert_int_equal(
        train_open(&r.t, &(struct train_options){r.s, r.d, &two, 0, "nowhere"}, &arena),
        ERR_CONFIG);
    assert_says("272");
    dev_close(r.d);
}

static void too_much_memory_is_refused_before_it_is_taken(void **state)
{
    (void)state;
    struct train t = {.memory = {.total = (size_t)1 << 62}};
    struct coll one = {.size = 1};
    struct dev d = {.model_type = DTYPE_F32};
    t.settings = setup_settings(&arena, (const char *[]){TINY, NULL});
    t.coll = &one;
    t.dev = &d;
    assert_int_equal(table_make(&t.table, t.settings, &arena), ERR_OK);
    assert_int_equal(train_memory_check(&t), ERR_MEMORY);
    assert_says("train.micro_batch_tokens = 128; or train.activation_checkpointing = block with "
                "train.micro_batch_tokens = "
                "256 would fit");
    one.size = 2;
    assert_int_equal(train_memory_check(&t), ERR_MEMORY);
    assert_says("; or train.zero_stage = 1 with");
    t.settings = setup_settings(&arena, (const char *[]){TINY, "--train.optimizer", "adamw",
                                                         "--train.compress", "onebit", NULL});
    assert_int_equal(train_memory_check(&t), ERR_MEMORY);
    assert_null(strstr(err_message(), "zero_stage")); /* with compressed sums it is refused */
}

/* What compression keeps is opened with the optimizer; the memory of the reducer comes on top, and
 * sums in f32 have none. */
static void compression_takes_its_memory_once(void **state)
{
    (void)state;
    struct run r;
    begin(&r, "compressed-memory",
          (const char *[]){TINY, "--train.optimizer", "adamw", "--train.compress", "onebit",
                           "--train.compress_start", "0.5", NULL});
    assert_true(r.t.memory.grad_reduce >= r.t.table.elements * 4); /* the worker error */
    assert_int_equal(r.t.memory.reducer, 0);
    assert_null(r.t.division.reduce->memory);
    run_close(&r);
}

/* Peak resident memory of this process, bytes. */
static double resident(void)
{
    char line[128];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmHWM:", 6))
            kib = strtod(line + 6, NULL);
    if (f)
        fclose(f);
    return 1024 * kib;
}

static void promised_memory_is_what_is_used(void **state)
{
    (void)state;
    struct run r;
    begin(&r, "memory",
          (const char *[]){TINY, "--model.vocab_size", "6000", "--model.d_model", "128",
                           "--model.max_seq_len", "64", "--train.seq_len", "64",
                           "--train.batch_tokens", "4096", "--train.steps", "2",
                           "--train.warmup_steps", "0", NULL});
    assert_int_equal(train_run(&r.t, NULL), ERR_OK);
    double promised = (double)r.t.memory.total, used = resident(),
           allowed = 0.1 * promised + (64 << 20);
    if (used == 0)
        skip(); /* no /proc here */
    if (!SHADOWED && fabs(used - promised) > allowed)
        fail_msg("promised %.1f MiB, used %.1f MiB", promised / (1 << 20), used / (1 << 20));
    run_close(&r);
}

/* Operands in narrow arithmetic: never more than the table says, and not a fifth less. */
static void narrow_operands_are_promised(void **state)
{
    (void)state;
    const char *const keys[][2] = {{"--device.matmul_precision", "fp8"},
                                   {"--device.matmul_precision", "fp8_hybrid"},
                                   {"--device.accumulator", "20"}};
    for (size_t i = 0; i < 3; i++)
        for (int wide = 0; wide < 2; wide++) { /* the classifier's, or the MLP's */
            struct run r;
            char dir[40];
            snprintf(dir, sizeof dir, "narrow-%zu-%d", i, wide);
            begin(&r, dir,
                  (const char *[]){TINY, keys[i][0], keys[i][1], "--model.vocab_size",
                                   wide ? "300" : "3000", "--model.d_ff", wide ? "640" : "64",
                                   "--train.steps", "1", "--train.warmup_steps", "0",
                                   "--train.checkpoint_every", "0", NULL});
            assert_int_equal(train_run(&r.t, NULL), ERR_OK);
            size_t promised = r.t.memory.model.workspace.gemm,
                   used = ((struct cpu *)r.d)->scratch_bytes[1];
            if (i == 2) /* two rows of sums for each thread, of the widest product */
                promised += 2 * 2 * 3072 * sizeof(float);
            if (used > promised || used < promised / 5 * 4)
                fail_msg("%s: promised %zu KiB, used %zu KiB", keys[i][1], promised >> 10,
                         used >> 10);
            run_close(&r);
            reset(NULL);
        }
}

/* One moment and two values of each row and column: what the table promises, shared out or not. */
static void came_keeps_half_of_adamw(void **state)
{
    (void)state;
    size_t bytes[2][2], lines = 0;
    struct table t;
    for (int i = 0; i < 2; i++) {
        struct settings *s =
            setup_settings(&arena, (const char *[]){"--model.d_model", "256", "--model.layers", "2",
                                                    "--train.zero_stage", "1", "--train.optimizer",
                                                    i ? "came" : "adamw", NULL});
        assert_int_equal(table_make(&t, s, &arena), ERR_OK);
        for (int ranks = 1; ranks <= 2; ranks++)
            assert_int_equal(optim_plan(&bytes[i][ranks - 1], s, &t, ranks), ERR_OK);
    }
    for (size_t k = 0; k < t.count; k++) {
        const struct tensor *x = &t.tensors[k];
        lines += 2 * (size_t)(x->shape[0] + x->shape[1]);
    }
    assert_int_equal(bytes[1][0], 4 * (t.elements + lines));
    assert_true((double)bytes[1][0] < 0.53 * (double)bytes[0][0]);
    assert_true((double)bytes[1][1] < 0.6 * (double)bytes[1][0]);
}

static void learning_rate_follows_the_schedule(void **state)
{
    (void)state;
    struct settings *s =
        setup_settings(&arena, (const char *[]){"--train.steps", "100", "--train.warmup_steps",
                                                "10", "--train.stable_steps", "10", "--train.lr",
                                                "2", "--train.min_lr_ratio", "0.5", NULL});
    double want[][2] = {{0, 0.2}, {4, 1},    {9, 2},   {10, 2}, {19, 2},
                        {20, 2},  {60, 1.5}, {100, 1}, {200, 1}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_true(fabs(optim_lr(s, (int64_t)want[i][0]) - want[i][1]) < 1e-12);
    s->train_lr_schedule = TRAIN_LR_SCHEDULE_LINEAR;
    assert_true(fabs(optim_lr(s, 40) - 1.75) < 1e-12);
    s->train_lr_schedule = TRAIN_LR_SCHEDULE_NONE;
    assert_true(optim_lr(s, 99) == 2);
}

/* DeepSpeed's BERT: eta0 f(t) + floor, f = (t / Tw)^2, then factor^((t - Tw) / K). */
static void learning_rate_decays_exponentially(void **state)
{
    (void)state;
    struct settings *s = setup_settings(
        &arena,
        (const char *[]){"--train.steps", "100", "--train.warmup_steps", "10", "--train.lr", "2",
                         "--train.warmup_shape", "quadratic", "--train.lr_schedule", "exponential",
                         "--train.lr_decay_factor", "0.25", "--train.lr_decay_steps", "20",
                         "--train.min_lr_ratio", "0.5", NULL});
    double want[][2] = {{0, 1.02}, {4, 1.5},  {9, 3},      {10, 3},
                        {20, 2},   {30, 1.5}, {50, 1.125}, {110, 1 + 2.0 / 1024}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_true(fabs(optim_lr(s, (int64_t)want[i][0]) - want[i][1]) < 1e-12);
    s->train_stable_steps = 5;
    assert_true(fabs(optim_lr(s, 15) - 3) < 1e-12);
    assert_true(fabs(optim_lr(s, 25) - 2) < 1e-12);
}

/* LAMB: batches of 4 times the tokens have twice the rate, from the first step of the warm-up on.
 */
static void learning_rate_follows_the_square_root_of_the_batch(void **state)
{
    (void)state;
    struct settings *s = setup_settings(
        &arena, (const char *[]){"--train.steps", "100", "--train.warmup_steps", "10", "--train.lr",
                                 "2", "--train.batch_tokens", "1024", NULL});
    double plain[3];
    for (int i = 0; i < 3; i++)
        plain[i] = optim_lr(s, 4 + 40 * i);
    s->train_lr_batch_tokens = 1024;
    for (int i = 0; i < 3; i++)
        assert_true(optim_lr(s, 4 + 40 * i) == plain[i]);
    s->train_lr_batch_tokens = 256;
    for (int i = 0; i < 3; i++)
        assert_true(fabs(optim_lr(s, 4 + 40 * i) - 2 * plain[i]) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(adamw_learns, reset),
        cmocka_unit_test_setup(lamb_learns, reset),
        cmocka_unit_test_setup(qhadam_learns, reset),
        cmocka_unit_test_setup(muon_learns, reset),
        cmocka_unit_test_setup(came_learns, reset),
        cmocka_unit_test_setup(resumed_run_is_the_same_run, reset),
        cmocka_unit_test_setup(dropped_layers_keep_their_state, reset),
        cmocka_unit_test_setup(a_layer_counts_its_own_updates, reset),
        cmocka_unit_test_setup(layers_that_are_kept_are_the_plain_run, reset),
        cmocka_unit_test_setup(a_stage_freezes_and_grows, reset),
        cmocka_unit_test_setup(narrow_operands_are_promised, reset),
        cmocka_unit_test_setup(a_stacked_run_resumes_bit_for_bit, reset),
        cmocka_unit_test_setup(a_stacked_run_keeps_its_steps, reset),
        cmocka_unit_test_setup(a_compressed_run_keeps_its_steps, reset),
        cmocka_unit_test_setup(a_hook_comes_before_the_update, reset),
        cmocka_unit_test_setup(a_step_that_is_given_up_changes_nothing, reset),
        cmocka_unit_test_setup(checkpoint_of_another_run_is_refused, reset),
        cmocka_unit_test_setup(other_files_at_a_restart_are_noticed, reset),
        cmocka_unit_test_setup(accumulation_changes_nothing, reset),
        cmocka_unit_test_setup(a_step_is_the_mean_over_its_targets, reset),
        cmocka_unit_test_setup(losses_of_both_kinds_have_one_divisor, reset),
        cmocka_unit_test_setup(a_diverged_step_reaches_no_hook, reset),
        cmocka_unit_test_setup(batch_must_divide_among_ranks, reset),
        cmocka_unit_test_setup(too_much_memory_is_refused_before_it_is_taken, reset),
        cmocka_unit_test_setup(compression_takes_its_memory_once, reset),
        cmocka_unit_test_setup(promised_memory_is_what_is_used, reset),
        cmocka_unit_test_setup(came_keeps_half_of_adamw, reset),
        cmocka_unit_test_setup(learning_rate_follows_the_schedule, reset),
        cmocka_unit_test_setup(learning_rate_decays_exponentially, reset),
        cmocka_unit_test_setup(learning_rate_follows_the_square_root_of_the_batch, reset),
    };
    int failed = cmocka_run_group_tests(tests, make_text, scratch_close);
    arena_free(&arena);
    return failed;
}
