/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a forgotten term of the gradient trains worse, silently; sequences
 * packed together see each other; the start-up table promises what is not so. Oracle: gpt64.h and
 * finite differences of it. */
#include "tests/inner/setup.h"
#include "tests/inner/params.h"
#include "tests/inner/gpt64.h"
#include "inner/train/work.h"

static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

#define SMALL                                                                                      \
    "--model.vocab_size", "37", "--model.layers", "2", "--model.heads", "2", "--model.d_model",    \
        "16", "--model.max_seq_len", "16", "--data.tokenizer", "external"

#define LLAMA                                                                                      \
    SMALL, "--model.norm", "rms", "--model.positions", "rope", "--model.activation", "swiglu",     \
        "--model.bias", "false", "--model.tie_embeddings", "false", "--model.heads", "4",          \
        "--model.kv_heads", "2", "--model.norm_eps", "1e-3", "--model.rope_theta", "100"

struct under_test {
    struct settings *s;
    struct table t;
    struct dev *d;
    struct model *m;
    struct batch b;
    float *p; /* host copy */
    double *p64;
};

/* Types, labels of most sequences, and targets at every third position: those of an encoder. */
static void encoder_targets(struct batch *b, const struct settings *s)
{
    size_t tasks = s->model_classes.count ? s->model_classes.count : 1;
    for (size_t i = 0; i < b->tokens_count; i++) {
        b->types[i] = s->model_token_types ? (int32_t)(i / 3 % (size_t)s->model_token_types) : 0;
        if (i % 3)
            b->targets[i] = -1;
    }
    for (size_t i = 0; i < b->sequences; i++) {
        b->tasks[i] = (int32_t)(i % tasks);
        b->labels[i] = i == 1 ? -1 : (int32_t)(i / 3);
    }
}

static void build(struct under_test *u, const char *const *words, const int *lengths,
                  const char *type)
{
    u->s = setup_settings(&arena, words);
    assert_int_equal(table_make(&u->t, u->s, &arena), ERR_OK);
    u->d = setup_device(type, 2);
    setup_batch(&u->b, &arena, lengths, u->s->model_vocab_size, 3);
    u->b.step = 7, u->b.site = 2; /* read by dropout alone */
    for (size_t i = 0; i < u->b.sequences; i++)
        u->b.numbers[i] = (uint32_t)(9 - 2 * i);
    if (!u->s->model_causal)
        encoder_targets(&u->b, u->s);
    assert_int_equal(model_open(&u->m, u->d,
                                &(struct model_options){u->s, &u->t, u->b.tokens_count, true},
                                &arena),
                     ERR_OK);
    u->p = arena_array(&arena, u->t.elements, sizeof *u->p);
    u->p64 = arena_array(&arena, u->t.elements, sizeof *u->p64);
    setup_random(&u->t, u->p, 0.25);
    for (size_t i = 0; i < u->t.elements; i++)
        u->p64[i] = (double)u->p[i];
    u->d->ops->copy(u->d, model_params(u->m), u->p, u->t.elements * sizeof *u->p);
    model_params_changed(u->m);
}

static void drop(struct under_test *u)
{
    model_close(u->m);
    dev_close(u->d);
}

static const int packed[] = {7, 1, 11, 5, 0};

/* ---- against float64 ---- */
/* d loss / d p[at], central; the error of h = 1e-5 in float64 is about 1e-9 of the loss. */
static double difference(struct under_test *u, size_t at)
{
    double h = 1e-5, was = u->p64[at], up, down;
    u->p64[at] = was + h;
    up = gpt64_loss(u->s, &u->t, u->p64, &u->b, NULL);
    u->p64[at] = was - h;
    down = gpt64_loss(u->s, &u->t, u->p64, &u->b, NULL);
    u->p64[at] = was;
    return (up - down) / (2 * h);
}

/* Some elements of one tensor; all of a short one. */
/* A sample of small elements has the noise of the tensor's in bf16: its norm is taken as that of as
 * many average elements at least. */
static double bf16_floor(const struct under_test *u, const struct tensor *x, const float *grads,
                         size_t samples)
{
    double square = 0;
    for (size_t j = 0; j < x->count && u->d->model_type == DTYPE_BF16; j++)
        square += (double)grads[x->offset + j] * (double)grads[x->offset + j];
    return square / (double)(x->shape[0] * x->shape[1]) * (double)samples;
}

static void check_tensor(struct under_test *u, const struct tensor *x, const float *grads,
                         double scale, double bound)
{
    size_t count = (size_t)(x->shape[0] * x->shape[1]), stride = count / 12 + 1;
    double error = 0, size = 0;
    if (!depth_learns(u->s, u->b.step, x->layer)) {
        for (size_t j = 0; j < x->count; j++)
            assert_true(grads[x->offset + j] == 0);
        return;
    }
    for (size_t j = 0; j < count; j += stride) {
        double want = scale * difference(u, x->offset + j), got = (double)grads[x->offset + j];
        error += (want - got) * (want - got);
        size += want * want;
    }
    assert_true(size > 0 || u->s->train_layer_drop > 0); /* left out: the gradient is 0 */
    size = fmax(size, bf16_floor(u, x, grads, (count + stride - 1) / stride));
    if (!(sqrt(error) <= bound * sqrt(size)))
        fail_msg("gradient of %s: off by %.3g of its norm %.3g, bound %.1g", x->name,
                 sqrt(error / size), sqrt(size), bound);
}

static void check_gradients(const char *const *words, const char *type, double bound)
{
    struct under_test u;
    build(&u, words, packed, type);
    double sum, want = gpt64_loss(u.s, &u.t, u.p64, &u.b, NULL);
    struct model_loss loss;
    assert_int_equal(model_step(u.m, &u.b, 0.125f, NULL, &loss), ERR_OK);
    assert_int_equal(loss.count[MODEL_LOSS_TOKEN], batch_targets(&u.b));
    assert_int_equal(loss.count[MODEL_LOSS_SEQUENCE], u.s->model_pooler ? batch_labels(&u.b) : 0);
    sum = loss.sum[MODEL_LOSS_TOKEN] + loss.sum[MODEL_LOSS_SEQUENCE] +
          (loss.sum[MODEL_LOSS_STANDARD] + loss.sum[MODEL_LOSS_ORTHOGONAL]) / 0.125;
    if (!(fabs(sum - want) <= bound * want))
        fail_msg("loss %.8f, float64 says %.8f", sum, want);
    float *grads = arena_array(&arena, u.t.elements, sizeof *grads);
    u.d->ops->copy(u.d, grads, model_grads(u.m), u.t.elements * sizeof *grads);
    for (size_t i = 0; i < u.t.count; i++)
        check_tensor(&u, &u.t.tensors[i], grads, 0.125, bound);
    drop(&u);
}

static void gpt2_block(void **state)
{
    (void)state;
    check_gradients((const char *[]){SMALL, NULL}, "f32", 2e-5);
}

static void rms_erf_without_biases(void **state)
{
    (void)state;
    check_gradients((const char *[]){SMALL, "--model.norm", "rms", "--model.activation", "gelu_erf",
                                     "--model.bias", "false", "--model.causal", "false",
                                     "--model.d_ff", "40", NULL},
                    "f32", 2e-5);
}

static void llama_block(void **state)
{
    (void)state;
    check_gradients((const char *[]){LLAMA, NULL}, "f32", 2e-5);
}

static void llama_block_in_bf16(void **state)
{
    (void)state;
    check_gradients((const char *[]){LLAMA, NULL}, "bf16", 5e-2);
}

/* Each of Llama's settings on its own, in GPT-2's block. */
static void parts_of_llama(void **state)
{
    (void)state;
    static const char *const parts[][2] = {{"--model.positions", "rope"},
                                           {"--model.positions", "none"},
                                           {"--model.activation", "swiglu"},
                                           {"--model.kv_heads", "1"},
                                           {"--model.tie_embeddings", "false"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        check_gradients((const char *[]){SMALL, parts[i][0], parts[i][1], NULL}, "f32", 2e-5);
}

static void layer_norm_without_biases(void **state)
{
    (void)state;
    check_gradients((const char *[]){SMALL, "--model.bias", "false", NULL}, "f32", 2e-5);
}

/* bf16 keeps 8 bits: a coarse bound, still far below what a wrong term would give. */
static void gpt2_block_in_bf16(void **state)
{
    (void)state;
    check_gradients((const char *[]){SMALL, NULL}, "bf16", 5e-2);
}

#define ENCODER                                                                                    \
    SMALL, "--model.causal", "false", "--model.embed_norm", "true", "--model.head", "mlm",         \
        "--model.token_types", "3"
#define BERT ENCODER, "--model.norm_place", "post", "--model.pooler", "true"
#define MODERN                                                                                     \
    ENCODER, "--model.layers", "4", "--model.activation", "geglu", "--model.positions", "rope",    \
        "--model.sliding_window", "4", "--model.global_attn_every", "3",                           \
        "--model.rope_theta_local", "100", "--model.bias", "false"

static void bert_block(void **state)
{
    (void)state;
    check_gradients((const char *[]){BERT, "--model.activation", "gelu_erf", NULL}, "f32", 2e-5);
    check_gradients((const char *[]){BERT, NULL}, "bf16", 8e-2); /* few targets, five norms */
}

static void albert_block(void **state)
{
    (void)state;
    check_gradients((const char *[]){BERT, "--model.layers", "3", "--model.share_layers", "true",
                                     "--model.embedding_size", "8", NULL},
                    "f32", 2e-5);
}

static void modernbert_block(void **state)
{
    (void)state;
    check_gradients((const char *[]){MODERN, NULL}, "f32", 2e-5);
    check_gradients((const char *[]){MODERN, NULL}, "bf16", 8e-2);
}

/* Each of the encoders' settings next to others than in the three families. */
static void parts_of_encoders(void **state)
{
    (void)state;
    static const char *const parts[][6] = {
        {"--model.norm_place", "none"},
        {"--model.norm_place", "none", "--model.pooler", "true"},
        {"--model.norm_place", "post", "--model.norm", "rms"},
        {"--model.embed_norm", "true", "--model.share_layers", "true"},
        {"--model.embedding_size", "24", "--model.head", "mlm"},
        {"--model.embedding_size", "8", "--model.pooler", "true"},
        {"--model.tie_embeddings", "false", "--model.head", "mlm"},
        {"--model.head", "plain", "--model.pooler", "true"},
        {"--model.pooler", "true", "--model.classes", "3,70"},
        {"--model.pooler", "true", "--model.classes", "3", "--model.pooler_norm", "true"},
        {"--model.pooler", "true", "--model.classes", "3,70", "--model.pooling", "mean"},
        {"--model.sliding_window", "6", "--model.causal", "true"},
        {"--model.kv_heads", "1", "--model.norm_place", "post"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        check_gradients((const char *[]){SMALL, "--model.causal", "false", "--model.head", "mlm",
                                         parts[i][0], parts[i][1], parts[i][2], parts[i][3],
                                         parts[i][4], parts[i][5], NULL},
                        "f32", 1e-4);
}

/* ---- dropout ---- */
#define DROPOUT "--train.dropout", "0.25"

/* The oracle draws the same masks; with other masks the loss and every gradient would be others. */
static void dropout_in_every_block(void **state)
{
    (void)state;
    check_gradients((const char *[]){SMALL, DROPOUT, NULL}, "f32", 2e-5);
    check_gradients((const char *[]){LLAMA, DROPOUT, NULL}, "f32", 2e-5);
    check_gradients((const char *[]){BERT, DROPOUT, NULL}, "f32", 2e-5);
    check_gradients((const char *[]){BERT, DROPOUT, "--model.layers", "3", "--model.share_layers",
                                     "true", "--model.embedding_size", "8", NULL},
                    "f32", 2e-5);
    check_gradients((const char *[]){MODERN, DROPOUT, NULL}, "f32", 2e-5);
    check_gradients((const char *[]){ENCODER, DROPOUT, "--model.norm_place", "none", NULL}, "f32",
                    1e-4);
    check_gradients((const char *[]){SMALL, DROPOUT, NULL}, "bf16", 8e-2);
    check_gradients((const char *[]){BERT, DROPOUT, NULL}, "bf16", 8e-2);
    check_gradients((const char *[]){LLAMA, DROPOUT, NULL}, "bf16", 8e-2);
}

/* The sequences of a batch as two micro-batches: each keeps its number. */
static void dropout_is_the_same_in_any_micro_batch(void **state)
{
    (void)state;
    struct under_test u;
    struct model_loss whole, loss;
    double parts = 0;
    build(&u, (const char *[]){SMALL, DROPOUT, NULL}, packed, "f32");
    size_t bytes = u.t.elements * sizeof(float);
    float *once = arena_alloc(&arena, bytes);
    assert_int_equal(model_step(u.m, &u.b, 1, NULL, &whole), ERR_OK);
    u.d->ops->copy(u.d, once, model_grads(u.m), bytes);
    model_grads_zero(u.m);
    for (size_t i = 0; i < u.b.sequences; i++) {
        struct batch one = u.b;
        size_t begin = (size_t)u.b.cu_seqlens[i], count = (size_t)u.b.cu_seqlens[i + 1] - begin;
        int32_t cu[2] = {0, (int32_t)count};
        one.tokens += begin, one.targets += begin, one.positions += begin, one.types += begin;
        one.labels += i, one.tasks += i, one.numbers += i;
        one.cu_seqlens = cu, one.tokens_count = count, one.sequences = 1;
        assert_int_equal(model_step(u.m, &one, 1, NULL, &loss), ERR_OK);
        parts += loss.sum[MODEL_LOSS_TOKEN];
    }
    assert_true(fabs(parts - whole.sum[MODEL_LOSS_TOKEN]) < 1e-5 * parts);
    for (size_t i = 0; i < u.t.elements; i++)
        assert_true(fabsf(model_grads(u.m)[i] - once[i]) <= 1e-4f * (1 + fabsf(once[i])));
    drop(&u);
}

/* Evaluation has no dropout, before and after a step with it; other steps and sites have other
 * masks; over many steps the mean of a value after dropout is the value: 400 losses of a model
 * that is nearly linear there are within four standard errors of the loss without. */
static void dropout_is_unbiased_and_not_in_evaluation(void **state)
{
    (void)state;
    enum { DRAWS = 400 };
    struct under_test u, plain;
    struct model_loss without, before, after, drawn;
    double sum = 0, square = 0;
    build(&plain, (const char *[]){SMALL, NULL}, packed, "f32");
    assert_int_equal(model_eval(plain.m, &plain.b, &without), ERR_OK);
    drop(&plain);
    build(&u, (const char *[]){SMALL, "--train.dropout", "0.002", NULL}, packed, "f32");
    assert_int_equal(model_eval(u.m, &u.b, &before), ERR_OK);
    for (int i = 0; i < DRAWS; i++) {
        u.b.step = (uint64_t)i / 2;
        u.b.site = (uint32_t)i % 2;
        assert_int_equal(model_step(u.m, &u.b, 1, NULL, &drawn), ERR_OK);
        sum += drawn.sum[MODEL_LOSS_TOKEN];
        square += drawn.sum[MODEL_LOSS_TOKEN] * drawn.sum[MODEL_LOSS_TOKEN];
    }
    assert_int_equal(model_eval(u.m, &u.b, &after), ERR_OK);
    assert_memory_equal(&without, &before, sizeof before);
    assert_memory_equal(&without, &after, sizeof after);
    double mean = sum / DRAWS, deviation = sqrt(square / DRAWS - mean * mean);
    assert_true(deviation > 1e-3 * mean);
    if (fabs(mean - without.sum[0]) > 4 * deviation / sqrt(DRAWS))
        fail_msg("mean %.6f, deviation %.6f, without %.6f", mean, deviation, without.sum[0]);
    drop(&u);
}

/* ---- layer dropping ---- */
#define LAYER_DROP                                                                                 \
    "--model.layers", "6", "--train.layer_drop", "0.6", "--train.layer_drop_rate", "10"

/* Each gate as often as it should be, over steps; layer 0 and step 0 without. */
static void gates_are_a_function_of_seed_step_and_layer(void **state)
{
    (void)state;
    enum { STEPS = 4000 };
    struct settings *s = setup_settings(&arena, (const char *[]){SMALL, LAYER_DROP, NULL});
    for (size_t l = 0; l < 6; l++) {
        double p = 1 - (double)l / 6 * 0.6, ran = 0;
        for (uint64_t step = 100; step < 100 + STEPS; step++)
            ran += depth_runs(s, step, l);
        assert_true(depth_runs(s, 0, l) && depth_scale(s, 0, l) == 1);
        assert_true(fabs((double)depth_scale(s, 100, l) * p - 1) < 1e-6);
        assert_true(fabs(ran / STEPS - p) <= 4 * sqrt(p * (1 - p) / STEPS));
    }
}

static void dropped_layers_have_no_gradient(void **state)
{
    (void)state;
    struct settings *s = setup_settings(&arena, (const char *[]){SMALL, LAYER_DROP, NULL});
    size_t run = 0;
    for (size_t l = 0; l < 6; l++)
        run += depth_runs(s, 7, l);
    assert_true(run > 1 && run < 6);
    check_gradients((const char *[]){SMALL, LAYER_DROP, NULL}, "f32", 1e-4);
    check_gradients((const char *[]){LLAMA, LAYER_DROP, DROPOUT, NULL}, "f32", 1e-4);
    check_gradients((const char *[]){ENCODER, LAYER_DROP, "--model.norm_place", "none", NULL},
                    "f32", 3e-4);
}

/* At step 0 every layer runs, with factor 1. */
static void kept_layers_are_the_plain_model(void **state)
{
    (void)state;
    static const char *const types[] = {"f32", "bf16"};
    for (int i = 0; i < 2; i++) {
        struct under_test u[2];
        struct model_loss loss[2];
        build(&u[0], (const char *[]){LLAMA, "--model.layers", "6", NULL}, packed, types[i]);
        build(&u[1], (const char *[]){LLAMA, LAYER_DROP, NULL}, packed, types[i]);
        u[1].b.step = 0;
        for (int j = 0; j < 2; j++)
            assert_int_equal(model_step(u[j].m, &u[j].b, 1, NULL, &loss[j]), ERR_OK);
        assert_memory_equal(&loss[0], &loss[1], sizeof *loss);
        assert_memory_equal(model_grads(u[0].m), model_grads(u[1].m),
                            u[0].t.elements * sizeof(float));
        u[1].b.step = 7;
        assert_int_equal(model_eval(u[1].m, &u[1].b, &loss[1]), ERR_OK);
        assert_int_equal(model_eval(u[0].m, &u[0].b, &loss[0]), ERR_OK);
        assert_memory_equal(&loss[0], &loss[1], sizeof *loss);
        drop(&u[0]);
        drop(&u[1]);
    }
}

/* Step 7 of 400 lies in the second stage: of six layers four run, and the upper two learn. */
#define STAGES "--model.layers", "6", "--train.stages", "2@0.01,4@0.09,6@0.4,6@0.5"

/* ---- multiverse heads ---- */
#define HEADS                                                                                      \
    ENCODER, "--model.pooler", "true", "--model.classes", "3", "--model.classifier_heads", "4",    \
        "--train.heads_orthogonal", "0.2"

static void heads_have_the_gradient_of_their_mean(void **state)
{
    (void)state;
    check_gradients((const char *[]){HEADS, NULL}, "f32", 1e-4);
    check_gradients((const char *[]){HEADS, NULL}, "bf16", 8e-2);
}

/* A head of zeros has left: it has no loss and no gradient, and the prediction is the mean of the
 * others' probabilities. */
static void a_head_that_left_has_no_part(void **state)
{
    (void)state;
    struct under_test u;
    struct model_loss loss, again;
    size_t left;
    float logits[3], one[4][3];
    build(&u, (const char *[]){HEADS, NULL}, packed, "f32");
    const struct tensor *w = table_find(&u.t, "classes.0.2.weight"),
                        *bias = table_find(&u.t, "classes.0.2.bias");
    memset(model_params(u.m) + w->offset, 0, w->count * sizeof(float));
    memset(model_params(u.m) + bias->offset, 0, bias->count * sizeof(float));
    assert_int_equal(model_step(u.m, &u.b, 1, NULL, &again), ERR_OK); /* not looked at yet */
    assert_true(again.sum[MODEL_LOSS_HEADS + 2] > 0);
    assert_int_equal(model_find_heads(u.m, &left), ERR_OK);
    assert_int_equal(left, 3);
    assert_false(model_has_head(u.m, 2));
    model_grads_zero(u.m);
    assert_int_equal(model_step(u.m, &u.b, 1, NULL, &loss), ERR_OK);
    double mean = 0;
    for (int i = 0; i < 4; i++)
        mean += loss.sum[MODEL_LOSS_HEADS + i] / 3;
    assert_true(loss.sum[MODEL_LOSS_HEADS + 2] == 0);
    assert_true(fabs(mean / loss.sum[MODEL_LOSS_SEQUENCE] - 1) < 1e-6);
    for (size_t i = 0; i < w->count; i++)
        assert_true(model_grads(u.m)[w->offset + i] == 0);
    /* Each head alone, the others gone, and then the three. */
    float *saved = arena_array(&arena, u.t.elements, sizeof *saved);
    memcpy(saved, model_params(u.m), u.t.elements * sizeof *saved);
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4 && i != 2; j++) {
            char name[TABLE_NAME_MAX] = "classes.0.weight";
            if (j)
                snprintf(name, sizeof name, "classes.0.%d.weight", j);
            const struct tensor *x = table_find(&u.t, name);
            if (j != i)
                memset(model_params(u.m) + x->offset, 0, x->count * sizeof(float));
        }
        assert_int_equal(model_find_heads(u.m, &left), ERR_OK);
        assert_int_equal(model_class_logits(u.m, &u.b, 0, 0, one[i]), ERR_OK);
        memcpy(model_params(u.m), saved, u.t.elements * sizeof *saved);
    }
    assert_int_equal(model_find_heads(u.m, &left), ERR_OK);
    assert_int_equal(model_class_logits(u.m, &u.b, 0, 0, logits), ERR_OK);
    double sum = 0;
    for (int c = 0; c < 3; c++) {
        double want =
            (exp((double)one[0][c]) + exp((double)one[1][c]) + exp((double)one[3][c])) / 3;
        assert_true(fabs(exp((double)logits[c]) - want) < 1e-6);
        sum += exp((double)logits[c]);
    }
    assert_true(fabs(sum - 1) < 1e-6);
    drop(&u);
}

/* ---- standardization loss ---- */
#define STANDARD "--model.norm_place", "none", "--train.standardization_weight", "0.3"

/* Against central differences in float64, for every tensor. */
static void the_standardization_loss_has_its_gradient(void **state)
{
    (void)state;
    check_gradients((const char *[]){SMALL, STANDARD, NULL}, "f32", 1e-4);
    check_gradients((const char *[]){ENCODER, STANDARD, "--model.pooler", "true", NULL}, "f32",
                    1e-4);
    check_gradients((const char *[]){SMALL, STANDARD, DROPOUT, "--model.layers", "3",
                                     "--train.layer_drop", "0.6", "--train.layer_drop_rate", "10",
                                     NULL},
                    "f32", 1e-4);
    check_gradients((const char *[]){SMALL, STANDARD, "--model.layers", "3", "--train.stages",
                                     "1@0.01,2@0.49,3@0.5", NULL},
                    "f32", 1e-4);
    check_gradients((const char *[]){SMALL, STANDARD, NULL}, "bf16", 8e-2);
}

/* Not in evaluation, and weight 0 is the model without it, bit for bit. */
static void the_standardization_loss_is_trainings_alone(void **state)
{
    (void)state;
    struct under_test u[2];
    struct model_loss loss[2];
    build(&u[0], (const char *[]){SMALL, "--model.norm_place", "none", NULL}, packed, "f32");
    build(&u[1], (const char *[]){SMALL, STANDARD, NULL}, packed, "f32");
    for (int i = 0; i < 2; i++)
        assert_int_equal(model_eval(u[i].m, &u[i].b, &loss[i]), ERR_OK);
    assert_memory_equal(&loss[0], &loss[1], sizeof *loss);
    for (int i = 0; i < 2; i++)
        assert_int_equal(model_step(u[i].m, &u[i].b, 1, NULL, &loss[i]), ERR_OK);
    assert_true(loss[0].sum[MODEL_LOSS_TOKEN] == loss[1].sum[MODEL_LOSS_TOKEN]);
    assert_true(loss[0].sum[MODEL_LOSS_STANDARD] == 0 && loss[1].sum[MODEL_LOSS_STANDARD] > 0);
    drop(&u[0]);
    drop(&u[1]);
}

/* ---- progressive stacking ---- */
static void a_stage_is_a_function_of_the_step(void **state)
{
    (void)state;
    static const struct {
        uint64_t step;
        int layers, first, after; /* after: of the model after this number of steps */
        bool grows;
    } want[] = {{0, 2, 0, 2, false},   {3, 2, 0, 2, false},   {4, 4, 2, 2, true},
                {5, 4, 2, 4, false},   {39, 4, 2, 4, false},  {40, 6, 4, 4, true},
                {41, 6, 4, 6, false},  {199, 6, 4, 6, false}, {200, 6, 0, 6, false},
                {399, 6, 0, 6, false}, {400, 6, 0, 6, false}};
    const struct settings *s = setup_settings(&arena, (const char *[]){SMALL, STAGES, NULL});
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        uint64_t step = want[i].step;
        struct depth_stage x = depth_stage_of(s, step);
        assert_int_equal(x.layers, want[i].layers);
        assert_int_equal(x.first, want[i].first);
        assert_int_equal(depth_layers_after(s, (int64_t)step), want[i].after);
        assert_int_equal(depth_grows(s, step), want[i].grows);
        for (int l = -1; l <= 6; l++) {
            bool learns = l == 6 || (l < 0 ? !x.first : l < x.layers && l >= x.first);
            assert_int_equal(depth_learns(s, step, l), learns);
            assert_int_equal(depth_runs(s, step, (size_t)(l < 0 ? 0 : l)), l < x.layers);
        }
    }
    assert_int_equal(depth_updates(s, 0, 400, -1), 4 + 200);
    assert_int_equal(depth_updates(s, 0, 400, 0), 4 + 200);
    assert_int_equal(depth_updates(s, 0, 400, 3), 36 + 200);
    assert_int_equal(depth_updates(s, 10, 250, 3), 30 + 50);
    assert_int_equal(depth_updates(s, 0, 41, 5), 1);
    assert_int_equal(depth_updates(s, 0, 400, 6), 400);
    assert_true(depth_warmup(s, 0) == 1 && depth_warmup(s, 3) == 1); /* the run's own */
    assert_true(depth_warmup(s, 40) == 1.0 / 40 && depth_warmup(s, 79) == 1);
    assert_true(depth_warmup(s, 4) == 1.0 / 36); /* a stage shorter than train.warmup_steps */
}

/* New layers copy the top layers below them, in order; more than there are, again from there. */
static void growth_copies_the_top_layers(void **state)
{
    (void)state;
    static const char *const stages[] = {"2@0.01,4@0.09,6@0.4,6@0.5", "2@0.01,3@0.09,6@0.9",
                                         "1@0.01,6@0.99"};
    static const int steps[] = {40, 4, 4}, first[] = {4, 2, 1};
    static const int source[][6] = {{0, 0, 0, 0, 2, 3}, {0, 0, 1}, {0, 0, 0, 0, 0, 0}};
    for (int k = 0; k < 3; k++) {
        const struct settings *s =
            setup_settings(&arena, (const char *[]){LLAMA, "--model.layers", "6", "--train.stages",
                                                    stages[k], NULL});
        struct table t;
        assert_int_equal(table_make(&t, s, &arena), ERR_OK);
        struct depth_copy *c = arena_array(&arena, t.count, sizeof *c);
        struct depth_stage x = depth_stage_of(s, (uint64_t)steps[k]);
        assert_int_equal(x.first, first[k]);
        size_t n = depth_growth(s, &t, (uint64_t)steps[k], c), seen = 0;
        for (size_t i = 0; i < t.count; i++) {
            const struct tensor *to = &t.tensors[i];
            char name[TABLE_NAME_MAX];
            if (to->layer < x.first || to->layer >= x.layers)
                continue;
            snprintf(name, sizeof name, "layers.%d%s", source[k][to->layer],
                     to->name + strlen("layers.N"));
            const struct tensor *from = table_find(&t, name);
            for (size_t j = 0; j < n; j++)
                if (c[j].to == to->offset) {
                    assert_int_equal(c[j].from, from->offset);
                    assert_int_equal(c[j].count, to->count);
                    seen++;
                }
        }
        assert_int_equal(seen, n);
        assert_int_equal(n % (size_t)(x.layers - x.first), 0);
        assert_true(n > 0);
        assert_int_equal(depth_growth(s, &t, (uint64_t)steps[k] + 1, c), 0);
    }
}

/* The gradients of what learns are those of the shorter model, all others 0: pre and post norms,
 * tied and mlm heads. */
static void a_stage_has_the_gradients_of_its_layers(void **state)
{
    (void)state;
    check_gradients((const char *[]){SMALL, STAGES, NULL}, "f32", 1e-4);
    check_gradients((const char *[]){LLAMA, STAGES, DROPOUT, NULL}, "f32", 1e-4);
    check_gradients((const char *[]){BERT, STAGES, NULL}, "f32", 1e-4);
    check_gradients((const char *[]){SMALL, "--model.layers", "6", "--train.stages",
                                     "2@0.01,4@0.005,4@0.1,6@0.885", NULL},
                    "f32", 1e-4); /* all four layers and the embeddings learn */
}

/* What the ops of a pass cost: the GEMMs' multiplications, and the calls of attention. */
static struct {
    double linear, attention;
    void (*linear_bwd)(struct dev *d, const struct dev_linear *fwd,
                       const struct dev_linear_grad *a);
    void (*attention_bwd)(struct dev *d, void *dqkv, const void *dout, const void *out,
                          const struct dev_attention *a);
} cost;

static void count_linear_bwd(struct dev *d, const struct dev_linear *fwd,
                             const struct dev_linear_grad *a)
{
    double one = (double)fwd->T * (double)fwd->K * (double)fwd->N;
    cost.linear += (a->dx ? one : 0) + (a->dw ? one : 0);
    cost.linear_bwd(d, fwd, a);
}

static void count_attention_bwd(struct dev *d, void *dqkv, const void *dout, const void *out,
                                const struct dev_attention *a)
{
    cost.attention++;
    cost.attention_bwd(d, dqkv, dout, out, a);
}

static void cost_of_step(uint64_t step, double *linear, double *attention)
{
    struct under_test u;
    struct model_loss loss;
    build(&u, (const char *[]){SMALL, STAGES, NULL}, packed, "f32");
    struct dev_ops counted = *u.d->ops;
    cost.linear = cost.attention = 0;
    cost.linear_bwd = counted.linear_bwd;
    cost.attention_bwd = counted.attention_bwd;
    counted.linear_bwd = count_linear_bwd;
    counted.attention_bwd = count_attention_bwd;
    u.d->ops = &counted;
    u.b.step = step;
    assert_int_equal(model_step(u.m, &u.b, 1, NULL, &loss), ERR_OK);
    *linear = cost.linear;
    *attention = cost.attention;
    drop(&u);
}

/* Two of six layers learn in the stages at 7 and 50, six from 200 on: a third of the backward. */
static void the_backward_costs_what_learns(void **state)
{
    (void)state;
    double linear[3], attention[3];
    static const uint64_t steps[] = {7, 50, 200};
    for (int i = 0; i < 3; i++)
        cost_of_step(steps[i], &linear[i], &attention[i]);
    for (int i = 0; i < 2; i++) {
        assert_true(linear[2] > 0 && fabs(3 * linear[i] / linear[2] - 1) < 1e-12);
        assert_true(attention[i] == 2 && attention[2] == 6);
    }
}

/* One stage with all layers is the plain model. */
static void one_stage_is_the_plain_model(void **state)
{
    (void)state;
    struct under_test u[2];
    struct model_loss loss[2];
    build(&u[0], (const char *[]){LLAMA, "--model.layers", "6", NULL}, packed, "bf16");
    build(&u[1], (const char *[]){LLAMA, "--model.layers", "6", "--train.stages", "6@1", NULL},
          packed, "bf16");
    for (int j = 0; j < 2; j++)
        assert_int_equal(model_step(u[j].m, &u[j].b, 1, NULL, &loss[j]), ERR_OK);
    assert_memory_equal(&loss[0], &loss[1], sizeof *loss);
    assert_memory_equal(model_grads(u[0].m), model_grads(u[1].m), u[0].t.elements * sizeof(float));
    drop(&u[0]);
    drop(&u[1]);
}

/* An evaluation has the layers that its parameters have after them. */
static void an_evaluation_has_the_layers_so_far(void **state)
{
    (void)state;
    struct under_test u;
    struct model_loss loss;
    static const int64_t finished[] = {4, 5, 400};
    static const uint64_t like[] = {0, 7, 200}; /* a step of that depth, for the oracle */
    build(&u, (const char *[]){BERT, STAGES, NULL}, packed, "f32");
    for (int i = 0; i < 3; i++) {
        model_set_finished(u.m, finished[i]);
        assert_int_equal(model_eval(u.m, &u.b, &loss), ERR_OK);
        struct batch b = u.b;
        b.step = like[i];
        double want = gpt64_loss(u.s, &u.t, u.p64, &b, NULL),
               got = loss.sum[MODEL_LOSS_TOKEN] + loss.sum[MODEL_LOSS_SEQUENCE];
        assert_true(fabs(got / want - 1) < 1e-4);
    }
    drop(&u);
}

/* The largest scaled score of each call of attention_fwd, in double. */
static struct {
    double largest[8];
    size_t calls;
    void (*attention_fwd)(struct dev *d, void *out, const struct dev_attention *a);
} scores;

static void watch_attention_fwd(struct dev *d, void *out, const struct dev_attention *a)
{
    size_t group = a->NH / a->KVH, stride = (a->NH + 2 * a->KVH) * a->HD;
    double largest = -INFINITY;
    for (size_t s = 0; s < a->sequences; s++)
        for (int32_t i = a->cu_seqlens_host[s]; i < a->cu_seqlens_host[s + 1]; i++)
            for (int32_t j = a->cu_seqlens_host[s]; j <= i; j++)
                for (size_t h = 0; h < a->NH; h++) {
                    const float *q = (const float *)a->qkv + (size_t)i * stride + h * a->HD;
                    const float *k =
                        (const float *)a->qkv + (size_t)j * stride + (a->NH + h / group) * a->HD;
                    double sum = 0;
                    for (size_t c = 0; c < a->HD; c++)
                        sum += (double)q[c] * (double)k[c];
                    largest = fmax(largest, sum / sqrt((double)a->HD));
                }
    scores.largest[scores.calls++] = largest;
    scores.attention_fwd(d, out, a);
}

/* Of both evaluations together, layer by layer; training adds nothing and keeps its bits. */
static void an_evaluation_finds_the_largest_attention_logits(void **state)
{
    (void)state;
    struct under_test u[2];
    struct model_loss loss[2], trained[2];
    float largest[2];
    build(&u[0], (const char *[]){LLAMA, NULL}, packed, "f32");
    build(&u[1], (const char *[]){LLAMA, "--train.eval_attention", "true", NULL}, packed, "f32");
    struct dev_ops watched = *u[1].d->ops;
    scores.calls = 0;
    scores.attention_fwd = watched.attention_fwd;
    watched.attention_fwd = watch_attention_fwd;
    u[1].d->ops = &watched;
    assert_int_equal(model_attention_begin(u[1].m), ERR_OK);
    assert_int_equal(model_attention_largest(u[1].m, largest), ERR_OK);
    assert_true(isinf(largest[0]) && isinf(largest[1]));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(model_eval(u[i].m, &u[i].b, &loss[i]), ERR_OK);
        assert_int_equal(model_step(u[i].m, &u[i].b, 1, NULL, &trained[i]), ERR_OK);
    }
    assert_memory_equal(&loss[0], &loss[1], sizeof *loss);
    assert_memory_equal(&trained[0], &trained[1], sizeof *trained);
    assert_memory_equal(model_grads(u[0].m), model_grads(u[1].m), u[0].t.elements * sizeof(float));
    for (size_t i = 0; i < u[1].b.tokens_count; i++) /* scores.calls 4, 5 */
        u[1].b.tokens[i] = (u[1].b.tokens[i] + 5) % 37;
    assert_int_equal(model_eval(u[1].m, &u[1].b, &loss[1]), ERR_OK);
    assert_int_equal(model_attention_largest(u[1].m, largest), ERR_OK);
    assert_int_equal(scores.calls, 6);
    for (size_t i = 0; i < 2; i++) {
        double want = fmax(scores.largest[i], scores.largest[4 + i]);
        assert_true(scores.largest[i] != scores.largest[4 + i]);
        assert_true(fabs((double)largest[i] / want - 1) < 1e-6);
    }
    drop(&u[0]);
    drop(&u[1]);
}

static void logits_of_the_last_position(void **state)
{
    (void)state;
    struct under_test u;
    build(&u, (const char *[]){SMALL, NULL}, packed, "f32");
    double *want = arena_array(&arena, u.b.tokens_count * 37, sizeof *want);
    float got[37];
    gpt64_loss(u.s, &u.t, u.p64, &u.b, want);
    for (size_t i = 0; i < u.b.sequences; i++) {
        assert_int_equal(model_logits(u.m, &u.b, i, got), ERR_OK);
        for (size_t v = 0; v < 37; v++)
            assert_true(fabs((double)got[v] - want[(size_t)(u.b.cu_seqlens[i + 1] - 1) * 37 + v]) <
                        1e-4);
    }
    drop(&u);
}

/* ---- packing, accumulation ---- */
static void loss_alone(struct under_test *u, size_t i, double sums[MODEL_LOSSES])
{
    struct batch one;
    size_t begin = (size_t)u->b.cu_seqlens[i], count = (size_t)u->b.cu_seqlens[i + 1] - begin;
    struct model_loss loss;
    assert_int_equal(batch_open(&one, &arena, count, 1), ERR_OK);
    memcpy(one.tokens, u->b.tokens + begin, count * sizeof *one.tokens);
    memcpy(one.targets, u->b.targets + begin, count * sizeof *one.targets);
    memcpy(one.positions, u->b.positions + begin, count * sizeof *one.positions);
    memcpy(one.types, u->b.types + begin, count * sizeof *one.types);
    one.labels[0] = u->b.labels[i];
    one.tasks[0] = u->b.tasks[i];
    one.cu_seqlens[1] = (int32_t)count;
    one.tokens_count = count;
    one.sequences = 1;
    assert_int_equal(model_eval(u->m, &one, &loss), ERR_OK);
    for (size_t kind = 0; kind < MODEL_LOSSES; kind++)
        sums[kind] += loss.sum[kind];
}

static void check_alone(const char *const *words)
{
    struct under_test u;
    build(&u, words, packed, "f32");
    struct model_loss together;
    double apart[MODEL_LOSSES] = {0};
    assert_int_equal(model_eval(u.m, &u.b, &together), ERR_OK);
    for (size_t i = 0; i < u.b.sequences; i++)
        loss_alone(&u, i, apart);
    for (size_t kind = 0; kind < MODEL_LOSSES; kind++)
        assert_true(fabs(together.sum[kind] - apart[kind]) <= 1e-6 * together.sum[kind]);
    drop(&u);
}

static void packed_sequences_do_not_see_each_other(void **state)
{
    (void)state;
    check_alone((const char *[]){SMALL, NULL});
    check_alone((const char *[]){BERT, NULL});
    check_alone((const char *[]){MODERN, NULL});
}

static void gradients_add_up_and_padding_stays_zero(void **state)
{
    (void)state;
    struct under_test u;
    build(&u, (const char *[]){SMALL, NULL}, packed, "f32");
    size_t bytes = u.t.elements * sizeof(float), count;
    float *once = arena_alloc(&arena, bytes);
    double sum;
    assert_int_equal(setup_step(u.m, &u.b, 1.0f, NULL, &sum, &count), ERR_OK);
    u.d->ops->copy(u.d, once, model_grads(u.m), bytes);
    assert_int_equal(setup_step(u.m, &u.b, 1.0f, NULL, &sum, &count), ERR_OK);
    const float *twice = model_grads(u.m);
    for (size_t i = 0; i < u.t.elements; i++)
        assert_true(fabsf(twice[i] - 2 * once[i]) <= 1e-4f * (1 + fabsf(once[i])));
    for (size_t i = 0; i < u.t.count; i++) {
        const struct tensor *x = &u.t.tensors[i];
        size_t end = i + 1 < u.t.count ? u.t.tensors[i + 1].offset : u.t.elements;
        for (size_t j = x->offset + (size_t)(x->shape[0] * x->shape[1]); j < end; j++)
            assert_true(twice[j] == 0);
    }
    drop(&u);
}

/* An evaluation model keeps one layer's activations and must not mix them up. */
static void check_evaluation(const char *const *words)
{
    struct under_test u;
    struct model *eval;
    struct model_loss a, b;
    build(&u, words, packed, "f32");
    size_t T = u.b.tokens_count;
    assert_int_equal(model_open(&eval, u.d, &(struct model_options){u.s, &u.t, T, false}, &arena),
                     ERR_OK);
    u.d->ops->copy(u.d, model_params(eval), u.p, u.t.elements * sizeof *u.p);
    assert_int_equal(model_eval(u.m, &u.b, &a), ERR_OK);
    assert_int_equal(model_eval(eval, &u.b, &b), ERR_OK);
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(model_plan(&(struct model_options){u.s, &u.t, T, false}, DTYPE_F32).activations *
                    2 <
                model_plan(&(struct model_options){u.s, &u.t, T, true}, DTYPE_F32).activations);
    model_close(eval);
    drop(&u);
}

static void evaluation_needs_less_and_agrees(void **state)
{
    (void)state;
    check_evaluation((const char *[]){SMALL, "--model.layers", "5", NULL});
    check_evaluation((const char *[]){BERT, "--model.layers", "6", NULL});
    check_evaluation((const char *[]){MODERN, "--model.layers", "6", NULL});
}

/* ---- what is final, what is recomputed ---- */
struct told {
    struct under_test *u;
    float *seen; /* gradients as they were when they were called final */
    size_t from, calls;
};

static void on_final(void *self, size_t from)
{
    struct told *t = self;
    assert_true(from <= t->from);
    t->u->d->ops->copy(t->u->d, t->seen + from, model_grads(t->u->m) + from,
                       (t->from - from) * sizeof *t->seen);
    t->calls += from < t->from;
    t->from = from;
}

static void check_final(const char *const *words, size_t calls)
{
    struct under_test u;
    double sum;
    size_t count;
    build(&u, words, packed, "f32");
    struct told told = {.u = &u, .from = u.t.elements};
    const struct model_grad_hook ready = {&told, on_final};
    told.seen = arena_array(&arena, u.t.elements, sizeof *told.seen);
    assert_int_equal(setup_step(u.m, &u.b, 1.0f, NULL, &sum, &count), ERR_OK); /* += on these */
    assert_int_equal(setup_step(u.m, &u.b, 1.0f, &ready, &sum, &count), ERR_OK);
    assert_int_equal(told.from, 0);
    assert_int_equal(told.calls, calls);
    assert_memory_equal(told.seen, model_grads(u.m), u.t.elements * sizeof *told.seen);
    drop(&u);
}

static void final_gradients_do_not_change(void **state)
{
    (void)state;
    size_t plain = 1 + 2 * 6 + 1; /* final norm, each block's six parts, tables */
    check_final((const char *[]){SMALL, NULL}, plain);
    check_final((const char *[]){LLAMA, NULL}, plain);
    /* Pooler, norm and dense of the mlm head, blocks, norm of the embeddings, tables; ALBERT: one
     * block after its last use, projection of the embeddings. */
    check_final((const char *[]){BERT, NULL}, 1 + 2 + 2 * 6 + 1 + 1);
    check_final(
        (const char *[]){BERT, "--model.share_layers", "true", "--model.embedding_size", "8", NULL},
        1 + 2 + 6 + 1 + 1 + 1);
    check_final((const char *[]){MODERN, NULL}, 2 + 1 + 4 * 6 - 1 + 1 + 1);
}

static size_t taken_bytes;
static enum err (*alloc_plain)(struct dev *d, void **p, size_t bytes);

static enum err alloc_counted(struct dev *d, void **p, size_t bytes)
{
    taken_bytes += bytes;
    return alloc_plain(d, p, bytes);
}

/* Loss and gradients; what the device was asked for is what the plan says. */
static double step_with(const char *const *words, const char *type, float **grads,
                        size_t *activations)
{
    struct under_test u;
    struct model *m;
    double loss;
    size_t count;
    build(&u, words, packed, type);
    struct model_memory plan =
        model_plan(&(struct model_options){u.s, &u.t, u.b.tokens_count, true}, u.d->model_type);
    struct dev_ops counted = *u.d->ops;
    const struct dev_ops *plain = u.d->ops;
    taken_bytes = 0;
    alloc_plain = plain->alloc;
    counted.alloc = alloc_counted;
    u.d->ops = &counted;
    assert_int_equal(
        model_open(&m, u.d, &(struct model_options){u.s, &u.t, u.b.tokens_count, true}, &arena),
        ERR_OK);
    assert_int_equal(taken_bytes,
                     plan.parameters + plan.params_bf16 + plan.gradients + plan.activations);
    u.d->ops = plain;
    model_close(m);
    *activations = plan.activations;
    assert_int_equal(setup_step(u.m, &u.b, 1.0f, NULL, &loss, &count), ERR_OK);
    assert_int_equal(setup_step(u.m, &u.b, 1.0f, NULL, &loss, &count), ERR_OK);
    *grads = arena_array(&arena, u.t.elements, sizeof **grads);
    memcpy(*grads, model_grads(u.m), u.t.elements * sizeof **grads);
    drop(&u);
    return loss;
}

#define RECOMPUTE(model, how)                                                                      \
    (const char *[])                                                                               \
    {                                                                                              \
        model, "--model.layers", "5", "--train.activation_checkpointing", how, NULL                \
    }

#define LLAMA_DROPOUT LLAMA, DROPOUT
#define BERT_DROPOUT  BERT, DROPOUT
#define GPT_DROP      SMALL, DROPOUT, "--train.layer_drop", "0.6", "--train.layer_drop_rate", "10"

static void same_bits(const char *const *none, const char *const *block, const char *type)
{
    float *kept, *again;
    size_t all, few;
    struct table t;
    double a = step_with(none, type, &kept, &all), b = step_with(block, type, &again, &few);
    assert_true(a == b);
    struct settings *settings = setup_settings(&arena, none);
    assert_int_equal(table_make(&t, settings, &arena), ERR_OK);
    assert_memory_equal(kept, again, t.elements * sizeof *kept);
    assert_true(few * (settings->model_causal ? 2 : 1) < all); /* the heads' are not recomputed */
}

static void recomputed_activations_give_the_same_bits(void **state)
{
    (void)state;
    const char *const types[] = {"f32", "bf16"};
    for (int i = 0; i < 2; i++) {
        same_bits(RECOMPUTE(SMALL, "none"), RECOMPUTE(SMALL, "block"), types[i]);
        same_bits(RECOMPUTE(LLAMA, "none"), RECOMPUTE(LLAMA, "block"), types[i]);
        same_bits(RECOMPUTE(LLAMA_DROPOUT, "none"), RECOMPUTE(LLAMA_DROPOUT, "block"), types[i]);
        same_bits(RECOMPUTE(BERT_DROPOUT, "none"), RECOMPUTE(BERT_DROPOUT, "block"), types[i]);
        same_bits(RECOMPUTE(GPT_DROP, "none"), RECOMPUTE(GPT_DROP, "block"), types[i]);
        same_bits(RECOMPUTE(BERT, "none"), RECOMPUTE(BERT, "block"), types[i]);
        same_bits(RECOMPUTE(MODERN, "none"), RECOMPUTE(MODERN, "block"), types[i]);
    }
}

/* ---- passes that repeat ---- */
static uint64_t keys[16];
static size_t key_count;

static void repeat_seen(struct dev *d, const struct dev_graph *r)
{
    (void)d;
    keys[key_count++] = r->key;
    r->run(r->self);
}

/* A device may replay what it has recorded under a key, so a key says all that the ops depend on.
 */
static void a_pass_is_named_by_all_it_depends_on(void **state)
{
    (void)state;
    static const int other[] = {7, 2, 10, 5, 0}; /* as many tokens and sequences, cut elsewhere */
    struct under_test u;
    struct batch b, c;
    double sum;
    size_t count;
    build(&u, (const char *[]){SMALL, NULL}, packed, "f32");
    setup_batch(&b, &arena, packed, u.s->model_vocab_size, 4); /* other tokens, same layout */
    setup_batch(&c, &arena, other, u.s->model_vocab_size, 3);
    struct dev_ops seen = *u.d->ops;
    seen.graph_run = repeat_seen;
    u.d->ops = &seen;
    key_count = 0;
    assert_int_equal(setup_step(u.m, &u.b, 0.5f, NULL, &sum, &count), ERR_OK); /* 0, 1 */
    assert_int_equal(setup_step(u.m, &b, 0.5f, NULL, &sum, &count), ERR_OK);   /* 2, 3 */
    assert_int_equal(setup_step(u.m, &b, 0.25f, NULL, &sum, &count), ERR_OK);  /* 4, 5 */
    assert_int_equal(setup_step(u.m, &c, 0.5f, NULL, &sum, &count), ERR_OK);   /* 6, 7 */
    assert_int_equal(setup_eval(u.m, &u.b, &sum, &count), ERR_OK);             /* 8 */
    assert_int_equal(key_count, 9);
    assert_true(keys[0] == keys[2] && keys[1] == keys[3]);
    static const size_t different[] = {0, 1, 4, 6, 7, 8};
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < i; j++)
            assert_true(keys[different[i]] != keys[different[j]]);
    drop(&u);
}

/* ---- table ---- */
static void table_of_gpt2(void **state)
{
    (void)state;
    struct table t, other;
    const char *const words[] = {"--model.vocab_size",
                                 "50257",
                                 "--model.layers",
                                 "12",
                                 "--model.heads",
                                 "12",
                                 "--model.d_model",
                                 "768",
                                 "--model.max_seq_len",
                                 "1024",
                                 NULL};
    struct settings *s = setup_settings(&arena, words);
    assert_int_equal(table_make(&t, s, &arena), ERR_OK);
    assert_int_equal(t.parameters, 124439808); /* GPT-2 124M, as transformers counts it */
    assert_int_equal(t.count, 2 + 12 * 12 + 2);
    for (size_t i = 0; i < t.count; i++)
        assert_int_equal(t.tensors[i].offset % TABLE_ALIGN, 0);
    assert_int_equal(t.tensors[0].count, 50304 * 768);
    assert_int_equal(table_find(&t, "layers.11.mlp.down.weight")->group, TABLE_HIDDEN);
    assert_int_equal(table_find(&t, "layers.11.norm1.weight")->group, TABLE_VECTOR);
    assert_null(table_find(&t, "layers.12.norm1.weight"));
    struct digest a = table_digest(&t), b;
    s->model_d_ff = 1024;
    assert_int_equal(table_make(&other, s, &arena), ERR_OK);
    b = table_digest(&other);
    assert_false(digest_equal(&a, &b));
}

/* 6 operations for each weight of a product and token: the profile's count, over its classes. */
static void work_is_of(const char *const *words, double weights)
{
    struct settings *s = setup_settings(&arena, words);
    struct table t;
    struct work_step step = {.tokens = 4096, .micro = 4096, .type = DTYPE_BF16, .update_share = 1};
    double flop = 0, heads = (double)(s->model_heads + s->model_kv_heads), turned;
    assert_int_equal(table_make(&t, s, &arena), ERR_OK);
    for (int c = 0; c < PROFILE_COUNT; c++)
        if (c != PROFILE_ATTENTION && c != PROFILE_ATTENTION_BWD)
            flop += work_of(s, &t, &step, (enum profile_class)c).flop;
    assert_true(fabs(flop - 6 * 4096 * weights) < 1e-9 * flop);
    turned = work_of(s, &t, &step, PROFILE_QKV).bytes; /* each head in and out, bf16 */
    s->model_positions = MODEL_POSITIONS_NONE;
    turned -= work_of(s, &t, &step, PROFILE_QKV).bytes;
    assert_true(fabs(turned - 4096.0 * 64 * heads * 4 * (double)s->model_layers) < 1e-6 * turned);
}

/* Llama 3.2 1B and TinyLlama 1.1B, as transformers counts them. */
static void tables_of_llama(void **state)
{
    (void)state;
    struct table t;
#define LLAMA_FAMILY                                                                               \
    "--model.norm", "rms", "--model.positions", "rope", "--model.activation", "swiglu",            \
        "--model.bias", "false", "--model.max_seq_len", "2048", "--data.tokenizer", "external",    \
        "--model.d_model", "2048", "--model.heads", "32"
    const char *const big[] = {LLAMA_FAMILY, "--model.vocab_size",
                               "128256",     "--model.layers",
                               "16",         "--model.kv_heads",
                               "8",          "--model.d_ff",
                               "8192",       NULL};
    const char *const tiny[] = {LLAMA_FAMILY, "--model.vocab_size",     "32000", "--model.layers",
                                "22",         "--model.kv_heads",       "4",     "--model.d_ff",
                                "5632",       "--model.tie_embeddings", "false", NULL};
    assert_int_equal(table_make(&t, setup_settings(&arena, big), &arena), ERR_OK);
    assert_int_equal(t.parameters, 1235814400);
    assert_null(table_find(&t, "wpe.weight"));
    assert_null(table_find(&t, "head.weight"));
    struct settings *s = setup_settings(&arena, tiny);
    assert_int_equal(table_make(&t, s, &arena), ERR_OK);
    assert_int_equal(t.parameters, 1100048384);
    const struct tensor *head = table_find(&t, "head.weight");
    assert_true(head->group == TABLE_MATRIX && head->layer == 22 &&
                head == &t.tensors[t.count - 1]);
    work_is_of(big, 1235814400 - 33 * 2048);
    work_is_of(tiny, 1100048384 - 45 * 2048 - 32000 * 2048);
    s->model_d_ff = 0; /* 8/3 of 2048, up to a multiple of 64 */
    assert_int_equal(table_mlp(s), 5504);
    s->model_d_model = 1536;
    assert_int_equal(table_mlp(s), 4096);
}

#define BERT_FAMILY                                                                                \
    "--model.norm_place", "post", "--model.embed_norm", "true", "--model.token_types", "2",        \
        "--model.head", "mlm", "--model.pooler", "true", "--model.d_model", "768",                 \
        "--model.heads", "12", "--model.layers", "12", "--model.max_seq_len", "512",               \
        "--model.causal", "false"

static size_t parameters_of(const char *const *words)
{
    struct table t;
    assert_int_equal(table_make(&t, setup_settings(&arena, words), &arena), ERR_OK);
    return t.parameters;
}

/* BERT, ALBERT and ModernBERT base, as transformers counts BertForPreTraining, AlbertForPreTraining
 * and ModernBertForMaskedLM. */
static void tables_of_encoders(void **state)
{
    (void)state;
    struct table t;
    const char *const bert[] = {BERT_FAMILY, "--model.vocab_size", "30522", NULL};
    const char *const albert[] = {
        BERT_FAMILY, "--model.vocab_size",   "30000", "--model.embedding_size",
        "128",       "--model.share_layers", "true",  NULL};
    const char *const modern[] = {"--model.embed_norm",
                                  "true",
                                  "--model.head",
                                  "mlm",
                                  "--model.d_model",
                                  "768",
                                  "--model.heads",
                                  "12",
                                  "--model.layers",
                                  "22",
                                  "--model.d_ff",
                                  "1152",
                                  "--model.activation",
                                  "geglu",
                                  "--model.positions",
                                  "rope",
                                  "--model.bias",
                                  "false",
                                  "--model.causal",
                                  "false",
                                  "--model.vocab_size",
                                  "50368",
                                  "--model.sliding_window",
                                  "128",
                                  "--model.global_attn_every",
                                  "3",
                                  NULL};
    assert_int_equal(parameters_of(bert), 110106428);
    assert_int_equal(parameters_of(albert), 11813810);
    assert_int_equal(parameters_of(modern), 149655232);
    struct settings *s = setup_settings(&arena, bert);
    assert_int_equal(table_make(&t, s, &arena), ERR_OK);
    const struct tensor *down = table_find(&t, "layers.3.mlp.down.weight");
    assert_true(down->std == 0.02f && down[2].offset < down[3].offset);
    assert_string_equal(down[2].name, "layers.3.norm2.weight");
    assert_int_equal(table_find(&t, "mlm.bias")->group, TABLE_VECTOR);
    assert_int_equal(table_find(&t, "pair.weight")->layer, 12);
    assert_string_equal(t.tensors[t.count - 1].name, "pair.bias");
    s = setup_settings(&arena, modern);
    assert_int_equal(table_make(&t, s, &arena), ERR_OK);
    assert_null(table_find(&t, "layers.0.norm1.weight"));
    assert_non_null(table_find(&t, "layers.1.norm1.weight"));
}

/* A shared layer is computed L times; the head of masked tokens only at the targets. */
static void work_of_encoders(void **state)
{
    (void)state;
    struct table t;
    const char *const albert[] = {
        BERT_FAMILY, "--model.vocab_size",   "30000", "--model.embedding_size",
        "128",       "--model.share_layers", "true",  NULL};
    struct settings *s = setup_settings(&arena, albert);
    struct work_step step = {
        .tokens = 4096, .micro = 4096, .targets = 600, .type = DTYPE_F32, .update_share = 1};
    assert_int_equal(table_make(&t, s, &arena), ERR_OK);
    double block = 4 * 768.0 * 768 + 2 * 3072.0 * 768;
    double flop = work_of(s, &t, &step, PROFILE_QKV).flop +
                  work_of(s, &t, &step, PROFILE_PROJ).flop +
                  work_of(s, &t, &step, PROFILE_MLP).flop;
    assert_true(fabs(flop - 2 * 4096 * 12 * block) < 1e-9 * flop);
    flop = work_of(s, &t, &step, PROFILE_CLASSIFIER).flop;
    assert_true(fabs(flop - 6 * 600 * (30016.0 * 128 + 768 * 128)) < 1e-9 * flop);
    flop = work_of(s, &t, &step, PROFILE_ATTENTION).flop;
    s->train_seq_len = 512;
    s->model_sliding_window = 128;
    s->model_global_attn_every = 3; /* 4 layers of 512, 8 of 129 */
    double local = work_of(s, &t, &step, PROFILE_ATTENTION).flop;
    assert_true(fabs(local / flop - (4 * 512.0 + 8 * 129) / (12 * 128)) < 1e-9);
    step.sequence = 300; /* shorter ones than train.seq_len */
    local = work_of(s, &t, &step, PROFILE_ATTENTION).flop;
    assert_true(fabs(local / flop - (4 * 300.0 + 8 * 129) / (12 * 128)) < 1e-9);
}

/* All logits of 65,536 tokens would be 12.3 GiB. */
static void logits_never_exist_whole(void **state)
{
    (void)state;
    for (int gpu = 0; gpu < 2; gpu++) {
        struct table t;
        const char *const words[] = {"--model.vocab_size",
                                     "50257",
                                     "--model.d_model",
                                     "64",
                                     "--device.attention",
                                     "own",
                                     "--device.kind",
                                     gpu ? "cuda" : "cpu",
                                     NULL};
        struct settings *s = setup_settings(&arena, words);
        assert_int_equal(table_make(&t, s, &arena), ERR_OK);
        size_t most = gpu ? 512 << 20 : (64 + 32 + 1) << 20,
               one =
                   model_plan(&(struct model_options){s, &t, 1, true}, DTYPE_BF16).workspace.logits,
               all = model_plan(&(struct model_options){s, &t, 65536, true}, DTYPE_BF16)
                         .workspace.logits;
        assert_true(all <= most && all >= most / 2 && one < all);
    }
    struct table t;
    struct settings *s = setup_settings(&arena, (const char *[]){"--device.kind", "cuda", NULL});
    assert_int_equal(table_make(&t, s, &arena), ERR_OK);
    size_t both = model_plan(&(struct model_options){s, &t, 65536, true}, DTYPE_BF16).workspace.ops;
    s->device_attention = DEVICE_ATTENTION_OWN;
    assert_true(model_plan(&(struct model_options){s, &t, 65536, true}, DTYPE_BF16).workspace.ops <
                both); /* cuDNN's is planned for */
    for (size_t T = 1; T < 3000; T += 7) {
        size_t rows = dev_logit_rows(1 << 20, T, 512 * sizeof(float));
        assert_true(rows <= T && rows * 512 * 4 <= 1 << 20 && rows > 0);
        assert_true((T - 1) / rows == (T - 1) / 512); /* as many chunks as the largest would give */
    }
}

static void initialisation_depends_on_seed_and_element(void **state)
{
    (void)state;
    struct table t;
    struct settings *s = setup_settings(&arena, (const char *[]){NULL});
    assert_int_equal(table_make(&t, s, &arena), ERR_OK);
    float *a = arena_array(&arena, t.elements, sizeof *a),
          *b = arena_array(&arena, t.elements, sizeof *b);
    table_init(&t, 1, a);
    table_init(&t, 1, b);
    assert_memory_equal(a, b, t.elements * sizeof *a);
    table_init(&t, 2, b);
    assert_memory_not_equal(a, b, t.elements * sizeof *a);
    const struct tensor *down = table_find(&t, "layers.0.mlp.down.weight");
    double square = 0;
    for (size_t i = 0; i < down->count; i++)
        square += (double)a[down->offset + i] * (double)a[down->offset + i];
    double std = sqrt(square / (double)down->count), want = 0.02 / sqrt(2 * 4);
    assert_true(fabs(std / want - 1) < 0.02); /* 65536 draws: 0.3 % is one sigma */
    assert_true(a[table_find(&t, "norm.weight")->offset] == 1.0f);
}

/* No value beyond two standard deviations, the others as they are, and the variance of what is
 * left: 1 - 4 phi(2) / (2 Phi(2) - 1) = 0.773741. */
static void initialisation_is_truncated(void **state)
{
    (void)state;
    struct table t;
    struct settings *s =
        setup_settings(&arena, (const char *[]){"--train.init", "truncated", NULL});
    assert_int_equal(table_make(&t, s, &arena), ERR_OK);
    float *a = arena_array(&arena, t.elements, sizeof *a),
          *b = arena_array(&arena, t.elements, sizeof *b);
    table_init(&t, 1, a);
    s->train_init = TRAIN_INIT_NORMAL;
    assert_int_equal(table_make(&t, s, &arena), ERR_OK);
    table_init(&t, 1, b);
    const struct tensor *x = table_find(&t, "layers.0.mlp.up.weight");
    double square = 0;
    size_t drawn_again = 0;
    for (size_t i = x->offset; i < x->offset + x->count; i++) {
        bool beyond = fabsf(b[i]) > 2 * x->std;
        assert_true(fabsf(a[i]) <= 2 * x->std && (beyond || a[i] == b[i]));
        drawn_again += beyond;
        square += (double)a[i] * (double)a[i] / (double)(x->std * x->std);
    }
    assert_true(fabs((double)drawn_again / (double)x->count / 0.0455 - 1) < 0.05);
    assert_true(fabs(square / (double)x->count / 0.773741 - 1) < 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(gpt2_block, reset),
        cmocka_unit_test_setup(rms_erf_without_biases, reset),
        cmocka_unit_test_setup(llama_block, reset),
        cmocka_unit_test_setup(llama_block_in_bf16, reset),
        cmocka_unit_test_setup(parts_of_llama, reset),
        cmocka_unit_test_setup(layer_norm_without_biases, reset),
        cmocka_unit_test_setup(bert_block, reset),
        cmocka_unit_test_setup(albert_block, reset),
        cmocka_unit_test_setup(modernbert_block, reset),
        cmocka_unit_test_setup(parts_of_encoders, reset),
        cmocka_unit_test_setup(gpt2_block_in_bf16, reset),
        cmocka_unit_test_setup(dropout_in_every_block, reset),
        cmocka_unit_test_setup(dropout_is_the_same_in_any_micro_batch, reset),
        cmocka_unit_test_setup(dropout_is_unbiased_and_not_in_evaluation, reset),
        cmocka_unit_test_setup(gates_are_a_function_of_seed_step_and_layer, reset),
        cmocka_unit_test_setup(dropped_layers_have_no_gradient, reset),
        cmocka_unit_test_setup(kept_layers_are_the_plain_model, reset),
        cmocka_unit_test_setup(heads_have_the_gradient_of_their_mean, reset),
        cmocka_unit_test_setup(a_head_that_left_has_no_part, reset),
        cmocka_unit_test_setup(the_standardization_loss_has_its_gradient, reset),
        cmocka_unit_test_setup(the_standardization_loss_is_trainings_alone, reset),
        cmocka_unit_test_setup(a_stage_is_a_function_of_the_step, reset),
        cmocka_unit_test_setup(growth_copies_the_top_layers, reset),
        cmocka_unit_test_setup(a_stage_has_the_gradients_of_its_layers, reset),
        cmocka_unit_test_setup(the_backward_costs_what_learns, reset),
        cmocka_unit_test_setup(one_stage_is_the_plain_model, reset),
        cmocka_unit_test_setup(an_evaluation_has_the_layers_so_far, reset),
        cmocka_unit_test_setup(an_evaluation_finds_the_largest_attention_logits, reset),
        cmocka_unit_test_setup(logits_of_the_last_position, reset),
        cmocka_unit_test_setup(packed_sequences_do_not_see_each_other, reset),
        cmocka_unit_test_setup(gradients_add_up_and_padding_stays_zero, reset),
        cmocka_unit_test_setup(evaluation_needs_less_and_agrees, reset),
        cmocka_unit_test_setup(final_gradients_do_not_change, reset),
        cmocka_unit_test_setup(recomputed_activations_give_the_same_bits, reset),
        cmocka_unit_test_setup(a_pass_is_named_by_all_it_depends_on, reset),
        cmocka_unit_test_setup(table_of_gpt2, reset),
        cmocka_unit_test_setup(tables_of_llama, reset),
        cmocka_unit_test_setup(tables_of_encoders, reset),
        cmocka_unit_test_setup(work_of_encoders, reset),
        cmocka_unit_test_setup(logits_never_exist_whole, reset),
        cmocka_unit_test_setup(initialisation_depends_on_seed_and_element, reset),
        cmocka_unit_test_setup(initialisation_is_truncated, reset),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
