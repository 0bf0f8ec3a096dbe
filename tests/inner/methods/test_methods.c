/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a checkpoint of a run with a method cannot be read, or does not
 * have the method's averages; a run continues with another train.steps although its finished steps
 * would have been different; a record names a loss that the step does not have. */
#include "tests/inner/setup.h"
#include "inner/methods/methods.h"

static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

#define PLAIN "--train.steps", "100"
#define HEADS                                                                                      \
    PLAIN, "--model.causal", "false", "--model.pooler", "true", "--model.classes", "3",            \
        "--model.classifier_heads", "4"
#define STAGES        PLAIN, "--model.layers", "4", "--train.stages", "2@0.5,4@0.5"
#define SETTINGS(...) setup_settings(&arena, (const char *const[]){__VA_ARGS__, NULL})

/* The layout is that of checkpoints that exist. */
static void a_checkpoint_holds_what_the_settings_ask_for(void **state)
{
    struct method_kept kept[METHODS_MAX];
    (void)state;
    assert_int_equal(methods_kept(NULL, SETTINGS(PLAIN), kept), 0);
    assert_int_equal(methods_kept(NULL, SETTINGS(STAGES), kept), 0);
    assert_int_equal(methods_kept(NULL, SETTINGS(HEADS), kept), 1);
    assert_string_equal(kept[0].name, "heads");
    assert_int_equal(kept[0].bytes, (1 + 2 * KEYS_HEADS_MAX) * sizeof(double));
}

static void stages_hold_for_the_steps_that_they_divide(void **state)
{
    struct settings *s = SETTINGS(STAGES), before = *s;
    (void)state;
    before.train_steps = 80;
    assert_int_equal(methods_lengthened(&before, s, "DIR"), ERR_MISMATCH);
    assert_non_null(strstr(err_message(), "DIR was made with train.steps = 80, and train.stages "
                                          "divides these; with train.steps = 100"));
    s = SETTINGS(HEADS);
    before = *s;
    before.train_steps = 80;
    assert_int_equal(methods_lengthened(&before, s, "DIR"), ERR_OK);
}

static void a_loss_is_there_where_its_targets_are(void **state)
{
    struct settings *s = SETTINGS(PLAIN);
    struct loader text = {.token_targets = true};
    (void)state;
    assert_true(loss_any(MODEL_LOSS_TOKEN, s, &text) && !loss_any(MODEL_LOSS_SEQUENCE, s, &text));
    assert_false(loss_any(MODEL_LOSS_STANDARD, s, &text));
    text = (struct loader){.sequence_targets = true};
    s->train_standardization_weight = 0.1;
    assert_true(!loss_any(MODEL_LOSS_TOKEN, s, &text) && loss_any(MODEL_LOSS_SEQUENCE, s, &text));
    assert_true(loss_any(MODEL_LOSS_STANDARD, s, &text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_checkpoint_holds_what_the_settings_ask_for, reset),
        cmocka_unit_test_setup(stages_hold_for_the_steps_that_they_divide, reset),
        cmocka_unit_test_setup(a_loss_is_there_where_its_targets_are, reset)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
