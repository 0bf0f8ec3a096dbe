/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: fine-tuning starts from random parameters, or from those of a model
 * that computes something else; or each rank of a host takes memory for all parts of a checkpoint
 * while it looks at its digest. */
#include "tests/inner/setup.h"
#include "inner/train/start.h"
#include "inner/train/train.h"

#define BODY                                                                                       \
    "--model.vocab_size", "50", "--model.layers", "2", "--model.d_model", "32",                    \
        "--model.max_seq_len", "16", "--model.causal", "false", "--model.norm_place", "post",      \
        "--model.embed_norm", "true", "--model.token_types", "2", "--model.pooler", "true",        \
        "--train.seq_len", "16", "--train.batch_tokens", "16"
#define MASKED   BODY, "--data.objective", "mlm", "--model.head", "mlm", "--model.heads", "2"
#define LABELLED BODY, "--data.objective", "labels", "--run.seed", "3"
static struct arena arena;
static struct table masked;
static float *stored[3];

/* A checkpoint of the masked model in DIR/inner. */
static int setup(void **state)
{
    if (scratch_open(state))
        return -1;
    static const char *const words[] = {MASKED, NULL};
    const struct settings *s = setup_settings(&arena, words);
    const struct config_table keys = keys_inner((struct settings *)(uintptr_t)s);
    struct checkpoint_part parts[3] = {{.name = "params"}, {.name = "m"}, {.name = "v"}};
    char *pinned;
    assert_int_equal(table_make(&masked, s, &arena), ERR_OK);
    assert_int_equal(config_canonical(&keys, 1, &arena, &pinned), ERR_OK);
    for (int k = 0; k < 3; k++) {
        parts[k].size_bytes = masked.elements * sizeof(float);
        parts[k].data = stored[k] = arena_array(&arena, masked.elements, sizeof(float));
        setup_random(&masked, stored[k], 0.1 * (k + 1));
    }
    const struct checkpoint_meta meta = {.model = table_digest(&masked), .settings = pinned};
    assert_int_equal(file_mkdirs(scratch("run/inner")), ERR_OK);
    assert_int_equal(checkpoint_save(scratch("run/inner"), &meta, parts, 3, 1), ERR_OK);
    return 0;
}

static enum err start(struct start *x, struct table *t, const char *const *words)
{
    const struct settings *s = setup_settings(&arena, words);
    err_clear();
    assert_int_equal(table_make(t, s, &arena), ERR_OK);
    return start_open(x, s, t, scratch("run"), &arena);
}

static const float *values(const struct start *x, int slab, size_t count)
{
    float *out = arena_array(&arena, count, sizeof *out);
    assert_int_equal(start_read(x, slab, 0, out, count / 2), ERR_OK);
    assert_int_equal(start_read(x, slab, count / 2, out + count / 2, count - count / 2), ERR_OK);
    return out;
}

static void test_same_model(void **state)
{
    static const char *const words[] = {MASKED, NULL};
    struct start x;
    struct table t;
    (void)state;
    assert_int_equal(start(&x, &t, words), ERR_OK);
    assert_string_equal(x.fresh, "");
    for (int k = 0; k < 3; k++)
        assert_memory_equal(values(&x, k, t.elements), stored[k], t.elements * sizeof(float));
    /* step 0 of another run has the moments, too */
    const struct settings *s = setup_settings(&arena, words);
    assert_int_equal(train_begin_from(s, &t, &x, scratch("again"), &arena), ERR_OK);
    start_close(&x);
    assert_int_equal(start_open(&x, s, &t, scratch("again"), &arena), ERR_OK);
    for (int k = 0; k < 3; k++)
        assert_memory_equal(values(&x, k, t.elements), stored[k], t.elements * sizeof(float));
    start_close(&x);
}

/* A slab of 10 MB and moments of the same size, with an arena that has room for less than a quarter
 * of one. */
static void test_pieces(void **state)
{
    static const char *const words[] = {"--model.vocab_size",
                                        "40000",
                                        "--model.layers",
                                        "1",
                                        "--model.d_model",
                                        "64",
                                        "--model.heads",
                                        "1",
                                        NULL};
    const struct settings *s = setup_settings(&arena, words);
    struct arena small = arena_make((size_t)2 << 20);
    struct table t;
    struct start x;
    (void)state;
    assert_int_equal(table_make(&t, s, &arena), ERR_OK);
    assert_true(t.elements * sizeof(float) > 4 * small.cap_bytes);
    float *slab = arena_array(&arena, t.elements, sizeof *slab);
    setup_random(&t, slab, 0.1);
    const struct start from = start_of(slab);
    assert_int_equal(train_begin_from(s, &t, &from, scratch("large/inner"), &small), ERR_OK);
    if (start_open(&x, s, &t, scratch("large"), &small))
        fail_msg("%s", err_message());
    assert_memory_equal(values(&x, 0, t.elements), slab, t.elements * sizeof(float));
    for (int k = 1; k < 3; k++) {
        const float *moment = values(&x, k, t.elements);
        for (size_t i = 0; i < t.elements; i++)
            if (moment[i] != 0)
                fail_msg("slab %d, value %zu: %g", k, i, (double)moment[i]);
    }
    start_close(&x);
    arena_free(&small);
}

/* The body and the pooler are the checkpoint's, the head of the classes is the seed's. */
static void test_other_heads(void **state)
{
    static const char *const words[] = {LABELLED,          "--model.heads", "2",
                                        "--model.classes", "[5]",           NULL};
    struct start x;
    struct table t;
    size_t equal = 0;
    (void)state;
    if (start(&x, &t, words))
        fail_msg("%s", err_message());
    assert_string_equal(x.fresh, "classes.0.weight, classes.0.bias");
    assert_false(x.there[1] || x.there[2]);
    const float *parameters = values(&x, 0, t.elements);
    float *seed = arena_array(&arena, t.elements, sizeof *seed);
    table_init(&t, 3, seed);
    for (size_t i = 0; i < t.count; i++) {
        const struct tensor *now = &t.tensors[i], *was = table_find(&masked, now->name);
        const float *want = was ? stored[0] + was->offset : seed + now->offset;
        assert_memory_equal(parameters + now->offset, want, now->count * sizeof(float));
        equal += was != NULL;
    }
    assert_int_equal(equal, t.count - 2);
    start_close(&x);
}

static void test_other_body(void **state)
{
    static const char *const heads[] = {LABELLED,          "--model.heads", "4",
                                        "--model.classes", "[5]",           NULL},
                             *const layers[] = {LABELLED, "--model.layers",  "3",   "--model.heads",
                                                "2",      "--model.classes", "[5]", NULL};
    struct start x;
    struct table t;
    (void)state;
    /* equal tensors, other attention */
    assert_int_equal(start(&x, &t, heads), ERR_MISMATCH);
    start_close(&x);
    assert_non_null(strstr(err_message(), "model.heads: 4 here, 2 there"));
    assert_int_equal(start(&x, &t, layers), ERR_MISMATCH);
    assert_non_null(strstr(err_message(), "model.layers: 3 here, 2 there"));
    start_close(&x);
}

static int teardown(void **state)
{
    arena_free(&arena);
    return scratch_close(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_model),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_other_heads),
        cmocka_unit_test(test_other_body),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
