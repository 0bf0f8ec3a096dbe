/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a record that moves the sum further than privacy.clip, so that the
 * noise is too small for it and every claim is false. Ghost norms are compared with a pass for each
 * record, for every kind of parameter of every family. */
#include "tests/inner/setup.h"
#include "tests/inner/params.h"
#include <math.h>
#include "inner/model/clip.h"

static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

enum { SEQUENCE = 48, RECORDS = 6 };
#define COMMON                                                                                     \
    "--model.vocab_size", "70", "--model.layers", "3", "--model.heads", "2", "--model.d_model",    \
        "32", "--model.max_seq_len", "48", "--train.seq_len", "48", "--train.batch_tokens", "384", \
        "--data.tokenizer", "external", "--device.dtype", "f32"
static const char *const gpt[] = {COMMON, NULL}, *const untied[] = {COMMON,
                                                                    "--model.tie_embeddings",
                                                                    "false",
                                                                    "--train.dropout",
                                                                    "0.2",
                                                                    NULL},
                         *const llama[] = {COMMON,   "--model.positions",
                                           "rope",   "--model.norm",
                                           "rms",    "--model.activation",
                                           "swiglu", "--model.bias",
                                           "false",  "--model.tie_embeddings",
                                           "false",  "--model.kv_heads",
                                           "1",      "--train.activation_checkpointing",
                                           "block",  NULL};
#define ENCODER                                                                                    \
    COMMON, "--model.causal", "false", "--data.objective", "mlm", "--data.pairs", "sop",           \
        "--model.norm_place", "post", "--model.embed_norm", "true", "--model.token_types", "2",    \
        "--model.head", "mlm", "--model.pooler", "true", "--model.activation", "gelu_erf"
static const char *const bert[] = {ENCODER, NULL},
                         *const dropped[] = {ENCODER, "--train.dropout", "0.1", NULL},
                         *const albert[] = {ENCODER, "--model.share_layers",
                                            "true",  "--model.embedding_size",
                                            "24",    NULL},
                         *const albert_recomputed[] = {ENCODER, "--model.share_layers",
                                                       "true",  "--model.embedding_size",
                                                       "24",    "--train.activation_checkpointing",
                                                       "block", NULL},
                         *const modern[] = {COMMON,  "--model.causal",
                                            "false", "--data.objective",
                                            "mlm",   "--model.embed_norm",
                                            "true",  "--model.positions",
                                            "rope",  "--model.sliding_window",
                                            "8",     "--model.global_attn_every",
                                            "2",     "--model.activation",
                                            "geglu", "--model.bias",
                                            "false", "--model.head",
                                            "mlm",   "--model.pooler",
                                            "true",  "--model.pooler_norm",
                                            "true",  "--model.pooling",
                                            "mean",  NULL};
/* Labelled texts: no token has a target. */
#define CLASSES                                                                                    \
    COMMON, "--model.causal", "false", "--data.objective", "labels", "--model.pooler", "true",     \
        "--model.embed_norm", "true"
static const char
    *const bert_labels[] = {CLASSES,    "--model.norm_place",
                            "post",     "--model.token_types",
                            "2",        "--model.activation",
                            "gelu_erf", "--model.classes",
                            "3",        NULL},
           *const modern_labels[] = {CLASSES, "--model.positions", "rope",  "--model.activation",
                                     "geglu", "--model.bias",      "false", "--model.pooler_norm",
                                     "true",  "--model.pooling",   "mean",  "--model.classes",
                                     "3",     "--train.dropout",   "0.1",   NULL},
           *const two_tasks[] = {CLASSES, "--model.norm_place", "post", "--model.head",
                                 "mlm",   "--model.classes",    "3,5",  NULL};
static const struct family {
    const char *name;
    const char *const *words;
} families[] = {{"gpt", gpt},
                {"gpt, untied, dropout", untied},
                {"llama, recomputed", llama},
                {"bert", bert},
                {"bert, dropout", dropped},
                {"albert", albert},
                {"albert, recomputed", albert_recomputed},
                {"modernbert", modern},
                {"bert, classes", bert_labels},
                {"modernbert, classes", modern_labels},
                {"two tasks of classes", two_tasks}};
enum { FAMILIES = sizeof families / sizeof *families };

struct fixture {
    struct settings *s;
    struct table table;
    struct dev *d;
    struct model *m;
    struct batch b;
};

/* One label each, of the tasks in turn, and no other target. */
static void make_labels(struct fixture *f)
{
    size_t tasks = f->s->model_classes.count;
    for (size_t t = 0; t < f->b.tokens_count; t++)
        f->b.targets[t] = -1;
    for (size_t i = 0; i < RECORDS; i++) {
        f->b.tasks[i] = (int32_t)(i % tasks);
        f->b.labels[i] = (int32_t)(i * 7 % 3) + (i % tasks ? 2 : 0);
    }
}

/* With short ones the products of rows are cheaper than those of matrices. */
static const int long_ones[RECORDS] = {48, 17, 40, 2, 33, 9}, short_ones[] = {5, 8, 40, 2, 9, 2};

/* Records of different lengths, with ids that repeat; encoders hide few of them, and one record
 * none; a last sequence fills up. */
static void make_batch(struct fixture *f, const int lengths[RECORDS])
{
    int all[RECORDS + 2] = {0};
    bool mlm = !f->s->model_causal;
    memcpy(all, lengths, RECORDS * sizeof *lengths);
    all[RECORDS] = mlm ? 43 : 0;
    setup_batch(&f->b, &arena, all, 13, 3);
    for (size_t i = 0; i < f->b.sequences; i++) {
        f->b.labels[i] = mlm && i % 2 == 0 ? (int32_t)(i / 2 % 2) : -1;
        f->b.numbers[i] = (uint32_t)(7 * i + 1);
        for (int32_t t = f->b.cu_seqlens[i]; t < f->b.cu_seqlens[i + 1]; t++) {
            f->b.types[t] = f->s->model_token_types && t % 3 == 0;
            if (mlm && (t % 5 || i == 4))
                f->b.targets[t] = -1;
        }
    }
    if (!mlm)
        return;
    f->b.filled = 43;
    f->b.labels[RECORDS] = -1;
    for (int32_t t = f->b.cu_seqlens[RECORDS]; t < f->b.cu_seqlens[RECORDS + 1]; t++) {
        f->b.targets[t] = -1;
        f->b.positions[t] = 0;
    }
    if (f->s->model_classes.count)
        make_labels(f);
}

static void open_fixture(struct fixture *f, const char *const *words, int threads)
{
    f->s = setup_settings(&arena, words);
    struct config_rules r = {.length = 0};
    keys_check(&r, f->s);
    if (config_rules_report(&r))
        fail_msg("%s", err_message());
    assert_int_equal(table_make(&f->table, f->s, &arena), ERR_OK);
    f->d = setup_device("f32", threads);
    const struct model_options o = {f->s, &f->table, 256, true};
    assert_int_equal(model_open(&f->m, f->d, &o, &arena), ERR_OK);
    setup_random(&f->table, model_params(f->m), 0.15);
    make_batch(f, long_ones);
}

static void close_fixture(struct fixture *f)
{
    model_close(f->m);
    dev_close(f->d);
}

static struct clip *open_clip(struct fixture *f, enum privacy_clipping how, double norm)
{
    struct clip *c;
    const struct clip_options o = {how, f->m, &f->table, RECORDS, 3, SEQUENCE, norm};
    assert_int_equal(clip_open(&c, &o, &arena), ERR_OK);
    return c;
}

/* The clipped sum of one way, and the norms. cut NULL: a record is a sequence. */
static float *clipped_cut(struct fixture *f, enum privacy_clipping how, double norm,
                          const struct clip_cut *cut, double *norms)
{
    struct clip *c = open_clip(f, how, norm);
    size_t bytes = f->table.elements * sizeof(float);
    float *sum = arena_alloc(&arena, bytes);
    model_grads_zero(f->m);
    if (clip_accumulate(c, &f->b, cut, norms))
        fail_msg("%s", err_message());
    memcpy(sum, model_grads(f->m), bytes);
    clip_close(c);
    return sum;
}

static float *clipped(struct fixture *f, enum privacy_clipping how, double norm, double *norms)
{
    return clipped_cut(f, how, norm, NULL, norms);
}

static double norm_of(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += pow((double)a[i] - (b ? (double)b[i] : 0), 2);
    return sqrt(sum);
}

static double middle_of(const double *norms)
{
    double sum = 0;
    for (int i = 0; i < RECORDS; i++)
        sum += norms[i] / RECORDS;
    return sum;
}

static void ghost_norms_are_the_slow_ones(void **state)
{
    (void)state;
    for (int k = 0; k < FAMILIES; k++) {
        struct fixture f;
        double slow[RECORDS], ghost[RECORDS], first[RECORDS];
        reset(NULL);
        open_fixture(&f, families[k].words, 2);
        clipped(&f, PRIVACY_CLIPPING_PER_EXAMPLE, 1, first);
        double norm = middle_of(first); /* some are clipped, some are not */
        float *a = clipped(&f, PRIVACY_CLIPPING_PER_EXAMPLE, norm, slow),
              *b = clipped(&f, PRIVACY_CLIPPING_GHOST, norm, ghost);
        int longer = 0;
        double worst = 0;
        for (int i = 0; i < RECORDS; i++) {
            worst = fmax(worst, fabs(ghost[i] / slow[i] - 1));
            longer += slow[i] > norm;
        }
        double apart = norm_of(a, b, f.table.elements) / norm_of(a, NULL, f.table.elements);
        print_message("%-22s norms within %.1e, sums within %.1e\n", families[k].name, worst,
                      apart);
        assert_true(longer > 0 && longer < RECORDS);
        assert_true(worst < 1e-5);
        assert_true(apart < 1e-5);
        close_fixture(&f);
    }
}

/* ---- records of several sequences ---- */
static const size_t cut_first[] = {0, 2, 3, RECORDS};
static const struct clip_cut cut = {cut_first, 3};

/* The gradient of a record in double: that of each sequence by itself, in the weights that its
 * record has. */
static double *record_gradient(struct fixture *f, size_t record)
{
    size_t first = cut.first[record], end = cut.first[record + 1], targets = 0, labels = 0;
    double *sum = arena_array(&arena, f->table.elements, sizeof *sum), loss[MODEL_LOSSES];
    for (int32_t t = f->b.cu_seqlens[first]; t < f->b.cu_seqlens[end]; t++)
        targets += f->b.targets[t] >= 0;
    for (size_t i = first; i < end; i++)
        labels += f->b.labels[i] >= 0;
    for (size_t i = first; i < end; i++) {
        struct batch one;
        assert_int_equal(batch_open(&one, &arena, SEQUENCE, 1), ERR_OK);
        batch_clear(&one);
        batch_take(&one, &f->b, i);
        for (int kind = 0; kind < 2; kind++) { /* tokens, then the label */
            struct batch part = one;
            part.targets = arena_array(&arena, SEQUENCE, sizeof *part.targets);
            part.labels = arena_array(&arena, 1, sizeof *part.labels);
            for (size_t t = 0; t < one.tokens_count; t++)
                part.targets[t] = kind == 0 ? one.targets[t] : -1;
            *part.labels = kind == 1 ? *one.labels : -1;
            part.sequence_weight = 1;
            if (!batch_targets(&part) && !batch_labels(&part))
                continue;
            model_grads_zero(f->m);
            assert_int_equal(model_accumulate(f->m, &part, 1, NULL, loss), ERR_OK);
            for (size_t e = 0; e < f->table.elements; e++)
                sum[e] += (double)model_grads(f->m)[e] / (double)(kind ? labels : targets);
        }
    }
    return sum;
}

static void check_records(struct fixture *f, const char *name)
{
    double norms[3], want[3], worst = 0, apart[2], middle = 0;
    const double *records[3];
    double *sum = arena_array(&arena, f->table.elements, sizeof *sum);
    for (size_t r = 0; r < 3; r++) {
        double square = 0;
        records[r] = record_gradient(f, r);
        for (size_t e = 0; e < f->table.elements; e++)
            square += records[r][e] * records[r][e];
        want[r] = sqrt(square);
        middle += want[r] / 3;
    }
    for (size_t r = 0; r < 3; r++)
        for (size_t e = 0; e < f->table.elements; e++)
            sum[e] += records[r][e] * fmin(1, middle / want[r]);
    for (int how = 0; how < 2; how++) {
        double rest = 0, size = 0;
        const float *got = clipped_cut(f, (enum privacy_clipping)how, middle, &cut, norms);
        for (size_t r = 0; r < 3; r++)
            worst = fmax(worst, fabs(norms[r] / want[r] - 1));
        for (size_t e = 0; e < f->table.elements; e++) {
            rest += pow((double)got[e] - sum[e], 2);
            size += sum[e] * sum[e];
        }
        apart[how] = sqrt(rest / size);
    }
    print_message("%-22s norms within %.1e, sums within %.1e, %.1e\n", name, worst, apart[0],
                  apart[1]);
    assert_true(worst < 1e-5 && apart[0] < 1e-5 && apart[1] < 1e-5);
}

/* The norm of a record is that of the sum over its sequences, with all cross terms; both ways give
 * the clipped sum in double. */
static void records_of_several_sequences(void **state)
{
    (void)state;
    for (int k = 0; k < FAMILIES; k++) {
        struct fixture f;
        reset(NULL);
        open_fixture(&f, families[k].words, 2);
        if (f.s->model_classes.count < 2) { /* of two tasks the rows do not follow each other */
            check_records(&f, families[k].name);
            make_batch(&f, short_ones);
            check_records(&f, families[k].name);
        }
        close_fixture(&f);
    }
}

/* Without a bound in reach the clipped sum is the gradient of the sum of the records' losses. */
static void a_large_clip_is_the_gradient(void **state)
{
    struct fixture f;
    struct model_loss loss;
    double norms[RECORDS];
    (void)state;
    open_fixture(&f, gpt, 2);
    static const int lengths[] = {48, 48, 48, 0};
    setup_batch(&f.b, &arena, lengths, 70, 9); /* one number of targets for all */
    for (size_t i = 0; i < f.b.tokens_count; i++)
        f.b.targets[i] = (int32_t)(i % 70);
    for (int how = 0; how < 2; how++) {
        float *sum = clipped(&f, (enum privacy_clipping)how, 1e6, norms);
        model_grads_zero(f.m);
        assert_int_equal(model_step(f.m, &f.b, 1.0f / 48, NULL, &loss), ERR_OK);
        double size = norm_of(sum, NULL, f.table.elements);
        assert_true(norm_of(sum, model_grads(f.m), f.table.elements) < 1e-5 * size);
    }
    close_fixture(&f);
}

/* One record alone ends with the norm of the bound, to 1e-5, and in its own direction. */
static void a_record_is_no_longer_than_the_clip(void **state)
{
    (void)state;
    for (int k = 0; k < FAMILIES; k++) {
        struct fixture f;
        double norms[RECORDS];
        reset(NULL);
        open_fixture(&f, families[k].words, 1);
        clipped(&f, PRIVACY_CLIPPING_GHOST, 1e6, norms);
        struct batch all = f.b;
        for (size_t i = 0; i < RECORDS; i++) {
            assert_int_equal(batch_open(&f.b, &arena, SEQUENCE, 1), ERR_OK);
            batch_clear(&f.b);
            batch_take(&f.b, &all, i);
            double bound = norms[i] / 1.01, own[1];
            float *sum = clipped(&f, PRIVACY_CLIPPING_GHOST, bound, own);
            double size = norm_of(sum, NULL, f.table.elements);
            if (fabs(size / bound - 1) > 1e-5)
                fail_msg("%s, record %zu: %g, not %g", families[k].name, i, size, bound);
            assert_true(fabs(own[0] / norms[i] - 1) < 1e-5); /* with any other rows in the batch */
        }
        close_fixture(&f);
    }
}

/* The loss of a record by the forward pass alone. */
static double record_loss(struct fixture *f)
{
    struct model_loss loss = {0};
    double mean = 0;
    assert_int_equal(model_eval(f->m, &f->b, &loss), ERR_OK);
    for (int k = MODEL_LOSS_TOKEN; k <= MODEL_LOSS_SEQUENCE; k++)
        mean += loss.count[k] ? loss.sum[k] / (double)loss.count[k] : 0;
    return mean;
}

/* Finite differences: along its clipped gradient the loss of a record changes at the rate of its
 * norm, and along no other direction as fast. So both are right, with any backward pass.
 */
static void a_norm_is_the_slope_of_the_loss(void **state)
{
    const double step = 4e-3;
    (void)state;
    for (int k = 0; k < FAMILIES; k++) {
        struct fixture f;
        double norms[RECORDS], own[1], worst = 0;
        reset(NULL);
        open_fixture(&f, families[k].words, 2);
        if (f.s->train_dropout > 0) { /* the forward pass of an evaluation has none */
            close_fixture(&f);
            continue;
        }
        clipped(&f, PRIVACY_CLIPPING_GHOST, 1e6, norms);
        struct batch all = f.b;
        float *params = model_params(f.m), *start = arena_array(&arena, f.table.elements, 4);
        memcpy(start, params, f.table.elements * sizeof *start);
        for (size_t i = 0; i < RECORDS; i++) {
            double side[2];
            assert_int_equal(batch_open(&f.b, &arena, SEQUENCE, 1), ERR_OK);
            batch_clear(&f.b);
            batch_take(&f.b, &all, i);
            float *u = clipped(&f, PRIVACY_CLIPPING_GHOST, norms[i] / 2, own);
            double length = norm_of(u, NULL, f.table.elements);
            for (int turn = 0; turn < 2; turn++) {
                for (size_t e = 0; e < f.table.elements; e++)
                    params[e] = start[e] + (float)((turn ? -step : step) / length * (double)u[e]);
                model_params_changed(f.m);
                side[turn] = record_loss(&f);
            }
            memcpy(params, start, f.table.elements * sizeof *start);
            worst = fmax(worst, fabs((side[0] - side[1]) / (2 * step) / norms[i] - 1));
        }
        print_message("%-22s slopes within %.1e\n", families[k].name, worst);
        assert_true(worst < 0.01);
        close_fixture(&f);
    }
}

/* A record whose gradient is not finite counts as 0, and the others as ever. */
static void a_record_that_is_not_finite_is_left_out(void **state)
{
    struct fixture f;
    double norms[RECORDS];
    (void)state;
    for (int how = 0; how < 2; how++) {
        reset(NULL);
        open_fixture(&f, gpt, 2);
        const struct tensor *wte = table_find(&f.table, "wte.weight");
        for (int32_t t = f.b.cu_seqlens[2]; t < f.b.cu_seqlens[3]; t++)
            f.b.tokens[t] = 69; /* no other row has it, nor is it a target */
        model_params(f.m)[wte->offset + 69 * 32] = INFINITY;
        float *sum = clipped(&f, (enum privacy_clipping)how, 0.5, norms);
        /* the logit of that id is not finite for any row: all are left out */
        for (int i = 0; i < RECORDS; i++)
            assert_true(!isfinite(norms[i]));
        assert_true(norm_of(sum, NULL, f.table.elements) == 0);
        close_fixture(&f);
    }
    for (int how = 0; how < 2; how++) {
        reset(NULL);
        open_fixture(&f, untied, 2);
        const struct tensor *wte = table_find(&f.table, "wte.weight");
        for (int32_t t = f.b.cu_seqlens[2]; t < f.b.cu_seqlens[3]; t++)
            f.b.tokens[t] = 69;
        model_params(f.m)[wte->offset + 69 * 32] = INFINITY;
        float *sum = clipped(&f, (enum privacy_clipping)how, 0.5, norms);
        for (int i = 0; i < RECORDS; i++)
            assert_int_equal(isfinite(norms[i]) != 0, i != 2);
        double size = norm_of(sum, NULL, f.table.elements);
        assert_true(isfinite(size) && size > 0 && size <= 0.5 * (RECORDS - 1) * (1 + 1e-5));
        close_fixture(&f);
    }
}

/* The sum is added to what is in the slab: micro-batches. */
static void micro_batches_add_up(void **state)
{
    struct fixture f;
    double norms[RECORDS];
    (void)state;
    for (int how = 0; how < 2; how++) {
        reset(NULL);
        open_fixture(&f, albert, 2);
        float *whole = clipped(&f, (enum privacy_clipping)how, 0.7, norms);
        struct clip *c = open_clip(&f, (enum privacy_clipping)how, 0.7);
        struct batch part;
        assert_int_equal(batch_open(&part, &arena, 256, RECORDS), ERR_OK);
        model_grads_zero(f.m);
        for (size_t i = 0; i < RECORDS; i += 2) {
            batch_clear(&part);
            batch_take(&part, &f.b, i);
            batch_take(&part, &f.b, i + 1);
            assert_int_equal(clip_accumulate(c, &part, NULL, NULL), ERR_OK);
        }
        double size = norm_of(whole, NULL, f.table.elements);
        assert_true(norm_of(whole, model_grads(f.m), f.table.elements) < 1e-5 * size);
        clip_close(c);
        close_fixture(&f);
    }
}

int main(void)
{
    arena = arena_make(0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(ghost_norms_are_the_slow_ones, reset),
        cmocka_unit_test_setup(records_of_several_sequences, reset),
        cmocka_unit_test_setup(a_large_clip_is_the_gradient, reset),
        cmocka_unit_test_setup(a_record_is_no_longer_than_the_clip, reset),
        cmocka_unit_test_setup(a_norm_is_the_slope_of_the_loss, reset),
        cmocka_unit_test_setup(a_record_that_is_not_finite_is_left_out, reset),
        cmocka_unit_test_setup(micro_batches_add_up, reset),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
