/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: our BERT is not BERT, our ALBERT not ALBERT, our ModernBERT not
 * ModernBERT. Oracle: tests/golden/bert, albert, modernbert (transformers and torch in float64, on
 * padded sequences; here they are packed). */
#include "tests/cuda/cuda_test.h"
#include "tests/inner/params.h"
#include "tests/inner/golden.h"
#include "tests/inner/setup.h"
#include <math.h>
#include "inner/io/safetensors.h"
#include "inner/optim/optim.h"

#define BERT                                                                                       \
    "--model.norm_place", "post", "--model.embed_norm", "true", "--model.token_types", "2",        \
        "--model.head", "mlm", "--model.pooler", "true", "--model.norm_eps", "1e-12",              \
        "--model.d_ff", "40"
static const struct golden {
    const char *dir, *words[40];
} bert = {"tests/golden/bert", {BERT, "--model.layers", "2", "--model.activation", "gelu_erf"}},
  albert = {"tests/golden/albert",
            {BERT, "--model.layers", "3", "--model.activation", "gelu", "--model.embedding_size",
             "8", "--model.share_layers", "true"}},
  modernbert = {"tests/golden/modernbert",
                {"--model.embed_norm",
                 "true",
                 "--model.head",
                 "mlm",
                 "--model.d_ff",
                 "24",
                 "--model.layers",
                 "4",
                 "--model.activation",
                 "geglu",
                 "--model.positions",
                 "rope",
                 "--model.sliding_window",
                 "6",
                 "--model.global_attn_every",
                 "3",
                 "--model.rope_theta",
                 "1000",
                 "--model.rope_theta_local",
                 "100",
                 "--model.bias",
                 "false"}},
  *golden;
static struct arena arena;

static int reset(const struct golden *g)
{
    golden = g;
    arena_reset(&arena);
    err_clear();
    return 0;
}

static int set_bert(void **state)
{
    (void)state;
    return reset(&bert);
}

static int set_albert(void **state)
{
    (void)state;
    return reset(&albert);
}

static int set_modernbert(void **state)
{
    (void)state;
    return reset(&modernbert);
}

static double *values(const char *name, size_t *count)
{
    return golden_values(&arena, golden->dir, name, count);
}

enum { V = 48, STEPS = 10 };

static void fill(int32_t *to, const char *name, int step, size_t expected)
{
    size_t count;
    const double *x = values(arena_printf(&arena, "%s%d", name, step), &count);
    assert_int_equal(count, expected);
    for (size_t i = 0; i < count; i++)
        to[i] = (int32_t)x[i];
}

/* Packed, without the padding; and filled up, as an objective does. */
static void fill_batch(struct batch *b, int step)
{
    size_t count, T;
    const double *lengths = values("lengths", &count);
    if (!b->tokens)
        assert_int_equal(batch_open(b, &arena, 64, 8), ERR_OK);
    batch_clear(b);
    for (size_t i = 0; i < count; i++)
        batch_append(b, (size_t)lengths[i]);
    T = b->tokens_count;
    fill(b->tokens, "tokens", step, T);
    fill(b->types, "types", step, T);
    fill(b->targets, "targets", step, T);
    fill(b->labels, "labels", step, count);
    batch_fill_up(b, 0);
}

struct encoder {
    struct settings *s;
    struct table t;
    struct dev *d;
    struct model *m;
    struct batch b;
};

/* A slab from a file with our names; every tensor once. */
static float *slab_of(const struct table *t, const char *name)
{
    struct safetensors file;
    float *slab = arena_array(&arena, t->elements, sizeof *slab);
    if (safetensors_open(&file, &arena,
                         arena_printf(&arena, "%s/%s.safetensors", golden->dir, name)))
        fail_msg("%s", err_message());
    assert_int_equal(file.count, t->count);
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        const struct safetensors_tensor *y = safetensors_find(&file, x->name);
        if (!y || y->size_bytes != (size_t)(x->shape[0] * x->shape[1]) * sizeof *slab)
            fail_msg("%s: missing, or of another size", x->name);
        memcpy(slab + x->offset, y->data, y->size_bytes);
    }
    safetensors_close(&file);
    return slab;
}

struct build {
    const char *type, *checkpointing, *optimizer, *trust_per;
};
static const struct build plain = {"f32", "none", "adamw", "tensor"};

static void build_with(struct encoder *e, const struct build *b)
{
    *e = (struct encoder){0};
    const char *words[96] = {"--model.vocab_size",
                             "48",
                             "--model.d_model",
                             "16",
                             "--model.heads",
                             "2",
                             "--model.max_seq_len",
                             "16",
                             "--model.causal",
                             "false",
                             "--train.seq_len",
                             "16",
                             "--data.tokenizer",
                             "external",
                             "--train.steps",
                             "10",
                             "--train.lr",
                             "0.01",
                             "--train.warmup_steps",
                             "3",
                             "--train.max_grad_norm",
                             "0.3",
                             "--train.optimizer",
                             b->optimizer,
                             "--train.trust_per",
                             b->trust_per,
                             "--train.activation_checkpointing",
                             b->checkpointing};
    size_t n = 0;
    while (words[n])
        n++;
    memcpy(words + n, golden->words, sizeof golden->words);
    e->s = setup_settings(&arena, words);
    assert_int_equal(table_make(&e->t, e->s, &arena), ERR_OK);
    assert_int_equal(cuda_test_open(&e->d, b->type), ERR_OK);
    assert_int_equal(
        model_open(&e->m, e->d, &(struct model_options){e->s, &e->t, 64, true}, &arena), ERR_OK);
    e->d->ops->copy(e->d, model_params(e->m), slab_of(&e->t, "model"),
                    e->t.elements * sizeof(float));
    model_params_changed(e->m);
    fill_batch(&e->b, 0);
}

static void build(struct encoder *e)
{
    build_with(e, &plain);
}

static const float *here(const struct encoder *e, const float *slab)
{
    float *copy = arena_array(&arena, e->t.elements, sizeof *copy);
    e->d->ops->copy(e->d, copy, slab, e->t.elements * sizeof *copy);
    assert_int_equal(dev_sync(e->d), ERR_OK);
    return copy;
}

static void drop(struct encoder *e)
{
    model_close(e->m);
    dev_close(e->d);
}

static void check_sum(double got, const char *name, size_t count)
{
    size_t n;
    double want = 0, *losses = values(name, &n);
    assert_int_equal(n, count);
    for (size_t i = 0; i < n; i++)
        want += losses[i];
    if (fabs(got - want) > 1e-6 * want)
        fail_msg("%s: sum %.9f, should be %.9f", name, got, want);
}

/* Many rows at once are each row: the last ones of the batch, out of order. */
static void check_rows(struct encoder *e, const double *want, size_t count)
{
    size_t positions[MODEL_LOGIT_ROWS];
    float *logits = arena_array(&arena, MODEL_LOGIT_ROWS * V, sizeof *logits);
    struct model_loss loss;
    size_t n = count < MODEL_LOGIT_ROWS ? count : MODEL_LOGIT_ROWS;
    for (size_t i = 0; i < n; i++)
        positions[i] = count - 1 - i;
    assert_int_equal(model_eval(e->m, &e->b, &loss), ERR_OK);
    assert_int_equal(model_eval_logits(e->m, &e->b, positions, n, logits), ERR_OK);
    for (size_t i = 0; i < n * V; i++)
        assert_true(fabs((double)logits[i] - want[positions[i / V] * V + i % V]) < 4e-6);
}

static void losses_and_logits(void **state)
{
    (void)state;
    struct encoder e;
    struct model_loss loss;
    float logits[V];
    size_t n, pairs;
    build(&e);
    double *want = values("logits", &n), *want_pairs = values("pair_logits", &pairs);
    assert_int_equal(model_eval(e.m, &e.b, &loss), ERR_OK);
    check_sum(loss.sum[MODEL_LOSS_TOKEN], "losses", loss.count[MODEL_LOSS_TOKEN]);
    check_sum(loss.sum[MODEL_LOSS_SEQUENCE], "sequence_losses", loss.count[MODEL_LOSS_SEQUENCE]);
    for (size_t i = 0; i < n / V; i++) {
        assert_int_equal(model_logits_at(e.m, &e.b, i, logits), ERR_OK);
        for (size_t v = 0; v < V; v++)
            if (!(fabs((double)logits[v] - want[i * V + v]) < 4e-6))
                fail_msg("logit %zu is %.9g, not %.9g", v, (double)logits[v], want[i * V + v]);
    }
    check_rows(&e, want, n / V);
    for (size_t i = 0; i < pairs / 2; i++) {
        assert_int_equal(model_class_logits(e.m, &e.b, i, 0, logits), ERR_OK);
        for (size_t v = 0; v < 2; v++)
            assert_true(fabs((double)logits[v] - want_pairs[2 * i + v]) < 4e-6);
    }
    drop(&e);
}

/* Any number of positions may be masked, all of a full batch too: the head has a row for each. */
static void every_position_is_a_target(void **state)
{
    (void)state;
    struct encoder e;
    struct model_loss loss;
    float logits[V];
    double want = 0;
    build(&e);
    assert_int_equal(e.b.tokens_count, e.b.room.tokens);
    for (size_t i = 0; i < e.b.tokens_count; i++)
        e.b.targets[i] = e.b.tokens[i];
    for (size_t i = 0; i < e.b.tokens_count; i++) {
        double sum = 0;
        assert_int_equal(model_logits_at(e.m, &e.b, i, logits), ERR_OK);
        for (size_t v = 0; v < V; v++)
            sum += exp((double)logits[v]);
        want += log(sum) - (double)logits[e.b.targets[i]];
    }
    assert_int_equal(model_eval(e.m, &e.b, &loss), ERR_OK);
    assert_int_equal(loss.count[MODEL_LOSS_TOKEN], e.b.tokens_count);
    assert_true(fabs(loss.sum[MODEL_LOSS_TOKEN] - want) < 1e-6 * want);
    drop(&e);
}

/* Largest distance of a tensor from what it should be, in units of its root mean square. */
static void compare(const struct table *t, const float *got, const float *want, double bound)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        double square = 0, worst = 0;
        for (size_t j = x->offset; j < x->offset + x->count; j++) {
            square += (double)want[j] * (double)want[j] / (double)x->count;
            worst = fmax(worst, fabs((double)got[j] - (double)want[j]));
        }
        if (!(worst <= bound * sqrt(square)))
            fail_msg("%s: off by %.3g, root mean square %.3g", x->name, worst, sqrt(square));
    }
}

static size_t targets_of(const struct batch *b)
{
    return batch_targets(b);
}

/* The weight of sequence losses with which the sum is divided by the token targets. */
static void set_weight(struct encoder *e)
{
    e->b.sequence_weight = (float)targets_of(&e->b) / (float)batch_labels(&e->b);
}

static void gradients_of(const struct build *b, double bound)
{
    struct encoder e;
    struct model_loss loss;
    build_with(&e, b);
    set_weight(&e);
    assert_int_equal(model_step(e.m, &e.b, 1.0f / (float)targets_of(&e.b), NULL, &loss), ERR_OK);
    compare(&e.t, here(&e, model_grads(e.m)), slab_of(&e.t, "gradients"), bound);
    drop(&e);
}

static void gradients_of_every_tensor(void **state)
{
    (void)state;
    gradients_of(&plain, 1e-5);
    gradients_of(&(struct build){"f32", "block", "adamw", "tensor"}, 1e-5);
}

/* Ten steps; the parameters at the end are within what f32 loses in ten updates of 0.01. */
static void ten_steps(const struct build *b)
{
    struct encoder e;
    struct optim o;
    struct coll *alone;
    size_t n;
    double *losses = values(arena_printf(&arena, "%s_losses", b->optimizer), &n),
           *norms = values(arena_printf(&arena, "%s_norms", b->optimizer), &n), square;
    build_with(&e, b);
    assert_int_equal(coll_self_open(&alone), ERR_OK);
    assert_int_equal(optim_open(&o, e.d, alone, e.s, &e.t, &arena), ERR_OK);
    for (int step = 0; step < STEPS; step++) {
        struct model_loss loss;
        fill_batch(&e.b, step);
        set_weight(&e);
        double targets = (double)targets_of(&e.b), mean;
        model_grads_zero(e.m);
        assert_int_equal(model_step(e.m, &e.b, 1, NULL, &loss), ERR_OK);
        const double stats[STEP_STATS] = {[STEP_LOSS] = loss.sum[0], [STEP_TARGETS] = targets};
        e.d->ops->copy(e.d, o.buffers.stats, stats, sizeof stats);
        assert_int_equal(optim_step(&o, e.m, step), ERR_OK);
        e.d->ops->copy(e.d, &square, o.buffers.stats + STEP_SQUARE, sizeof square);
        assert_int_equal(dev_sync(e.d), ERR_OK);
        mean = loss.sum[0] / targets;
        if (loss.count[1])
            mean += loss.sum[1] / (double)loss.count[1];
        if (fabs(mean - losses[step]) > 1e-5 * losses[step])
            fail_msg("step %d: loss %.9f, should be %.9f", step, mean, losses[step]);
        if (fabs(sqrt(square) / targets - norms[step]) > 2e-5 * norms[step])
            fail_msg("step %d: norm %.9f, should be %.9f", step, sqrt(square) / targets,
                     norms[step]);
    }
    compare(&e.t, here(&e, model_params(e.m)), slab_of(&e.t, b->optimizer), 1e-4);
    optim_close(&o);
    drop(&e);
}

static void ten_steps_of_adamw(void **state)
{
    (void)state;
    ten_steps(&plain);
}

/* A trust ratio for each parameter of transformers: q, k and v of BERT and ALBERT are three,
 * ModernBERT's are one, and so are its gate and up. */
static void ten_steps_of_lamb(void **state)
{
    (void)state;
    ten_steps(
        &(struct build){"f32", "none", "lamb", golden == &modernbert ? "tensor" : "projection"});
}

#define EACH(test)                                                                                 \
    cmocka_unit_test_setup(test, set_bert), cmocka_unit_test_setup(test, set_albert),              \
        cmocka_unit_test_setup(test, set_modernbert)

/* --one: ten steps of one encoder with each optimizer. An emulated GPU is slow, its optimizers have
 * tests of their own, and gradients are compared for all three. */
int main(int argc, char **argv)
{
    const struct CMUnitTest of_each[] = {
        EACH(losses_and_logits),
        EACH(every_position_is_a_target),
        EACH(gradients_of_every_tensor),
    };
    const struct CMUnitTest steps[] = {EACH(ten_steps_of_adamw), EACH(ten_steps_of_lamb)};
    const struct CMUnitTest steps_of_one[] = {
        cmocka_unit_test_setup(ten_steps_of_adamw, set_bert),
        cmocka_unit_test_setup(ten_steps_of_lamb, set_modernbert),
    };
    if (cuda_test_missing("f32"))
        return CUDA_TEST_SKIP;
    int failed = cmocka_run_group_tests(of_each, scratch_open, scratch_close);
    failed += argc > 1 && !strcmp(argv[1], "--one")
                  ? cmocka_run_group_tests(steps_of_one, scratch_open, scratch_close)
                  : cmocka_run_group_tests(steps, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
