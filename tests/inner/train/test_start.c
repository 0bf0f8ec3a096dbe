/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: fine-tuning starts from random parameters, or from those of a model
 * that computes something else. */
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
    const float *slabs[3];
    assert_int_equal(table_make(&masked, s, &arena), ERR_OK);
    for (int k = 0; k < 3; k++) {
        slabs[k] = stored[k] = arena_array(&arena, masked.elements, sizeof(float));
        setup_random(&masked, stored[k], 0.1 * (k + 1));
    }
    assert_int_equal(train_begin_from(s, &masked, slabs, scratch("run/inner"), &arena), ERR_OK);
    return 0;
}

static enum err start(struct start *x, struct table *t, const char *const *words)
{
    const struct settings *s = setup_settings(&arena, words);
    err_clear();
    assert_int_equal(table_make(t, s, &arena), ERR_OK);
    return start_read(x, s, t, scratch("run"), &arena);
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
        assert_memory_equal(x.slabs[k], stored[k], masked.elements * sizeof(float));
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
    assert_null(x.slabs[1]);
    assert_null(x.slabs[2]);
    float *seed = arena_array(&arena, t.elements, sizeof *seed);
    table_init(&t, 3, seed);
    for (size_t i = 0; i < t.count; i++) {
        const struct tensor *now = &t.tensors[i], *was = table_find(&masked, now->name);
        const float *want = was ? stored[0] + was->offset : seed + now->offset;
        assert_memory_equal(x.slabs[0] + now->offset, want, now->count * sizeof(float));
        equal += was != NULL;
    }
    assert_int_equal(equal, t.count - 2);
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
    assert_non_null(strstr(err_message(), "model.heads: 4 here, 2 there"));
    assert_int_equal(start(&x, &t, layers), ERR_MISMATCH);
    assert_non_null(strstr(err_message(), "model.layers: 3 here, 2 there"));
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
        cmocka_unit_test(test_other_heads),
        cmocka_unit_test(test_other_body),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
