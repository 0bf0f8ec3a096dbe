/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: something reads parameters without having asked for them. Where
 * ranks hold a part of the slab each, it reads what is not there. Here a holder shows the values of
 * a range only while it is gathered, and NaN else: every pass and a whole run give the same bits as
 * with the whole slab. */
#include "tests/inner/train/run.h"
#include "tests/inner/params.h"
#include <math.h>

static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

/* ---- a holder that hides ---- */
struct hidden {
    float *kept;
    unsigned *held; /* how many times an element is gathered now */
    size_t elements;
};

static void hidden_gather(void *self, float *slab, struct dev_range r)
{
    struct hidden *h = self;
    for (size_t i = r.offset; i < r.offset + r.count; i++)
        if (h->held[i]++ == 0)
            slab[i] = h->kept[i];
}

static void hidden_scatter(void *self, float *slab, struct dev_range r, bool written)
{
    struct hidden *h = self;
    for (size_t i = r.offset; i < r.offset + r.count; i++) {
        assert_true(h->held[i] > 0);
        if (written)
            h->kept[i] = slab[i];
        if (--h->held[i] == 0)
            slab[i] = NAN;
    }
}

static struct hidden *hide(struct model *m, const struct table *t)
{
    struct hidden *h = arena_alloc(&arena, sizeof *h);
    *h = (struct hidden){.kept = arena_array(&arena, t->elements, sizeof *h->kept),
                         .held = arena_array(&arena, t->elements, sizeof *h->held),
                         .elements = t->elements};
    float *slab = model_params(m);
    memcpy(h->kept, slab, t->elements * sizeof *slab);
    for (size_t i = 0; i < t->elements; i++)
        slab[i] = NAN;
    model_hold(m, &(struct slab_holder){h, hidden_gather, hidden_scatter});
    return h;
}

static void nothing_is_held(const struct hidden *h)
{
    for (size_t i = 0; i < h->elements; i++)
        assert_int_equal(h->held[i], 0);
}

/* ---- units ---- */
#define COMMON                                                                                     \
    "--model.vocab_size", "70", "--model.layers", "3", "--model.heads", "2", "--model.d_model",    \
        "32", "--model.max_seq_len", "48", "--train.seq_len", "48", "--train.batch_tokens", "384", \
        "--data.tokenizer", "external", "--device.dtype", "f32"
#define ENCODER COMMON, "--model.causal", "false", "--model.token_types", "2", "--model.head", "mlm"
#define POST    ENCODER, "--model.norm_place", "post", "--model.embed_norm", "true"
static const char *const *const shapes[] = {
    (const char *const[]){COMMON, NULL},
    (const char *const[]){COMMON, "--model.tie_embeddings", "false", "--train.dropout", "0.2",
                          NULL},
    (const char *const[]){COMMON, "--model.positions", "rope", "--model.norm", "rms",
                          "--model.activation", "swiglu", "--model.bias", "false",
                          "--train.activation_checkpointing", "block", NULL},
    (const char *const[]){POST, "--model.pooler", "true", NULL},
    (const char *const[]){POST, "--model.share_layers", "true", "--model.embedding_size", "24",
                          "--train.activation_checkpointing", "block", NULL},
    (const char *const[]){ENCODER, "--model.pooler", "true", "--model.pooler_norm", "true",
                          "--model.classes", "3", "--model.classifier_heads", "3", NULL}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void units_cut_the_table(void **state)
{
    (void)state;
    for (size_t k = 0; k < SHAPES; k++) {
        const struct settings *s = setup_settings(&arena, shapes[k]);
        struct table t;
        size_t at = 0;
        assert_int_equal(table_make(&t, s, &arena), ERR_OK);
        for (int layer = -1; layer <= (int)table_layers(s); layer++) {
            struct dev_range r = slab_range(&t, layer);
            assert_int_equal(r.offset, at);
            assert_true(r.count > 0 || layer == (int)table_layers(s));
            at += r.count;
        }
        assert_int_equal(at, t.elements);
    }
}

/* ---- passes ---- */
struct passed {
    struct model_loss loss[2]; /* of a step, of an evaluation */
    float *grads, *logits;
};

static void pass(struct passed *x, const struct settings *s, const struct table *t, bool hides)
{
    static const int lengths[] = {20, 17, 9, 0};
    struct dev *d = setup_device("f32", 2);
    struct model *m;
    struct batch b;
    setup_batch(&b, &arena, lengths, s->model_vocab_size, 3);
    for (size_t i = 0; i < b.sequences; i++)
        b.labels[i] = s->model_pooler ? (int32_t)(i % 2) : -1;
    const struct model_options o = {s, t, b.tokens_count, true};
    assert_int_equal(model_open(&m, d, &o, &arena), ERR_OK);
    setup_random(t, model_params(m), 0.25);
    struct hidden *h = hides ? hide(m, t) : NULL;
    size_t left;
    assert_int_equal(model_find_heads(m, &left), ERR_OK);
    assert_int_equal(model_step(m, &b, 1, NULL, &x->loss[0]), ERR_OK);
    x->grads = arena_array(&arena, t->elements, sizeof *x->grads);
    memcpy(x->grads, model_grads(m), t->elements * sizeof *x->grads);
    assert_int_equal(model_eval(m, &b, &x->loss[1]), ERR_OK);
    x->logits = arena_array(&arena, (size_t)s->model_vocab_size, sizeof *x->logits);
    assert_int_equal(model_logits_at(m, &b, 5, x->logits), ERR_OK);
    float classes[8];
    if (s->model_pooler)
        assert_int_equal(model_class_logits(m, &b, 1, 0, classes), ERR_OK);
    assert_true(!s->model_pooler || isfinite(classes[0]));
    if (h)
        nothing_is_held(h);
    model_close(m);
    dev_close(d);
}

static void a_pass_reads_what_it_has_gathered(void **state)
{
    (void)state;
    for (size_t k = 0; k < SHAPES; k++) {
        const struct settings *s = setup_settings(&arena, shapes[k]);
        struct table t;
        struct passed x[2];
        assert_int_equal(table_make(&t, s, &arena), ERR_OK);
        pass(&x[0], s, &t, false);
        pass(&x[1], s, &t, true);
        assert_true(isfinite(x[0].loss[0].sum[MODEL_LOSS_TOKEN]));
        assert_memory_equal(x[0].loss, x[1].loss, sizeof x[0].loss);
        assert_memory_equal(x[0].grads, x[1].grads, t.elements * sizeof(float));
        assert_memory_equal(x[0].logits, x[1].logits, (size_t)s->model_vocab_size * sizeof(float));
    }
}

/* ---- runs ---- */
#define TINY                                                                                       \
    "--model.vocab_size", "23", "--data.tokenizer", "external", "--model.layers", "4",             \
        "--model.heads", "2", "--model.d_model", "32", "--model.max_seq_len", "16",                \
        "--train.seq_len", "16", "--train.batch_tokens", "64", "--train.warmup_steps", "2",        \
        "--train.checkpoint_every", "3", "--train.eval_every", "4", "--train.eval_tokens", "64",   \
        "--train.steps", "8", "--device.dtype", "f32"

static float *trained(const char *dir, const char *const *words, bool hides, struct table *t)
{
    struct run r;
    if (run_open(&r, setup_settings(&arena, words), dir, &arena))
        fail_msg("%s", err_message());
    struct hidden *h = hides ? hide(r.t.model, &r.t.table) : NULL;
    if (train_run(&r.t, NULL))
        fail_msg("%s", err_message());
    assert_int_equal(table_make(t, r.s, &arena), ERR_OK);
    float *out = arena_array(&arena, t->elements, sizeof *out);
    memcpy(out, h ? h->kept : model_params(r.t.model), t->elements * sizeof *out);
    if (h)
        nothing_is_held(h);
    run_close(&r);
    return out;
}

static const char *const *const runs[] = {
    (const char *const[]){TINY, NULL},
    (const char *const[]){TINY, "--train.optimizer", "adamw", "--train.stages",
                          "1@0.25,2@0.25,4@0.5", NULL},
    (const char *const[]){TINY, "--train.modules", "3", "--train.pipeline", "stale", NULL}};

static void a_run_reads_what_it_has_gathered(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
        struct table t;
        char dir[2][32];
        for (int i = 0; i < 2; i++)
            snprintf(dir[i], sizeof dir[i], "run-%zu-%d", k, i);
        const float *whole = trained(dir[0], runs[k], false, &t),
                    *hidden = trained(dir[1], runs[k], true, &t);
        assert_true(isfinite(whole[0]));
        assert_memory_equal(whole, hidden, t.elements * sizeof *whole);
        const float *again = trained(dir[0], runs[k], true, &t); /* from its last checkpoint */
        assert_memory_equal(whole, again, t.elements * sizeof *whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(units_cut_the_table, reset),
        cmocka_unit_test_setup(a_pass_reads_what_it_has_gathered, reset),
        cmocka_unit_test_setup(a_run_reads_what_it_has_gathered, reset),
    };
    int failed = cmocka_run_group_tests(tests, setup_squares, scratch_close);
    arena_free(&arena);
    return failed;
}
