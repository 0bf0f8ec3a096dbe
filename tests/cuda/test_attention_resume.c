/* SPDX-License-Identifier: Apache-2.0 */
/* A run that chooses its attention kernel and the algorithms of its products by the clock, stopped
 * and resumed when the clock says otherwise, has the bits of the run that was not stopped: on the
 * emulated device, whose cuDNN (fake_cudnn.c) rounds elsewhere than our kernels do, and whose
 * cuBLASLt (fake_lt.cc) rounds each sum by its odd algorithms. */
#include "tests/inner/setup.h"
#include "tests/inner/params.h"
#include <stdatomic.h>
#include "inner/train/train.h"
#include "tests/cuda/cuda_test.h"
#include "tests/cuda/fake_cudnn.h"
#include "tests/cuda/fake_lt.h"

enum { FAST = -3, SLOW = 1000 }; /* microseconds of cuDNN, as fake_cudnn.h counts */
static struct arena arena;
static atomic_int stop;

static const char *const words[] = {"--model.vocab_size",
                                    "23",
                                    "--data.tokenizer",
                                    "external",
                                    "--model.layers",
                                    "1",
                                    "--model.heads",
                                    "2",
                                    "--model.d_model",
                                    "16",
                                    "--model.max_seq_len",
                                    "128",
                                    "--train.seq_len",
                                    "128",
                                    "--train.batch_tokens",
                                    "128",
                                    "--train.warmup_steps",
                                    "1",
                                    "--train.steps",
                                    "3",
                                    "--train.lr",
                                    "0.01",
                                    "--device.dtype",
                                    "bf16",
                                    "--train.eval_every",
                                    "0",
                                    "--train.checkpoint_every",
                                    "0",
                                    NULL};

struct outcome {
    enum err e;
    float *params;
    size_t elements;
    char chosen[1280];
};

/* One process: two steps, or one when it is told to stop. */
static struct outcome run(const char *dir, double us, int stop_at_once)
{
    struct outcome o = {0};
    static struct train t;
    struct dev *d;
    struct coll *c;
    struct settings *s = setup_settings(&arena, words);
    const char **items = arena_array(&arena, 1, sizeof *items);
    items[0] = arena_printf(&arena, "%s/text.bin", scratch_root);
    s->data_train = (struct config_list){items, 1};
    fake_cudnn.us = us;
    stop = stop_at_once;
    assert_int_equal(cuda_test_open_attention(&d, "bf16", "auto"), ERR_OK);
    assert_int_equal(coll_open(&c, "cpu"), ERR_OK);
    if (train_open(
            &t,
            &(struct train_options){s, d, c, 0, arena_printf(&arena, "%s/%s", scratch_root, dir)},
            &arena))
        fail_msg("%s", err_message());
    t.given.stop = &stop;
    o.e = train_run(&t, NULL);
    o.elements = t.table.elements;
    o.params = arena_array(&arena, o.elements, sizeof *o.params);
    d->ops->copy(d, o.params, model_params(t.model), o.elements * sizeof *o.params);
    memcpy(o.chosen, d->chosen, sizeof o.chosen);
    train_close(&t);
    coll_close(c);
    dev_close(d);
    return o;
}

static bool same(const struct outcome *a, const struct outcome *b)
{
    return !memcmp(a->params, b->params, a->elements * sizeof *a->params);
}

static void resumed_is_not_measured_again(void **state)
{
    (void)state;
    struct outcome whole = run("whole", FAST, 0), slow = run("slow", SLOW, 0),
                   first = run("parts", FAST, 1), rest = run("parts", SLOW, 0);
    assert_int_equal(whole.e, ERR_OK);
    assert_int_equal(first.e, ERR_STOPPED);
    assert_int_equal(rest.e, ERR_OK);
    assert_non_null(strstr(whole.chosen, "8x2/2x128c:cc;"));
    assert_non_null(strstr(slow.chosen, "8x2/2x128c:oo;"));
    assert_string_equal(rest.chosen, whole.chosen);
    assert_false(same(&whole, &slow)); /* or this test could not fail */
    assert_true(same(&whole, &rest));
}

static struct outcome run_products(const char *dir, double second_us, int stop_at_once)
{
    fake_lt.offered = 2;
    fake_lt.us[0] = 50;
    fake_lt.us[1] = second_us;
    struct outcome o = run(dir, SLOW, stop_at_once);
    fake_lt.offered = 0;
    fake_lt.us[0] = fake_lt.us[1] = 0;
    return o;
}

/* Each product of the step is in the record, and a resumed run takes what it says. */
static void products_are_not_measured_again(void **state)
{
    (void)state;
    struct outcome whole = run_products("p_whole", 5, 0), slow = run_products("p_slow", 500, 0),
                   first = run_products("p_parts", 5, 1), rest = run_products("p_parts", 500, 0);
    assert_int_equal(first.e, ERR_STOPPED);
    assert_int_equal(rest.e, ERR_OK);
    size_t products = 0;
    for (const char *at = whole.chosen; (at = strstr(at, ";p")); at++)
        products++;
    assert_in_range(products, 12, 40); /* qkv, proj, up, down, classifier: forward, dx, dw */
    assert_string_equal(rest.chosen, whole.chosen);
    assert_string_not_equal(slow.chosen, whole.chosen);
    assert_false(same(&whole, &slow)); /* or this test could not fail */
    assert_true(same(&whole, &rest));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(resumed_is_not_measured_again),
                                       cmocka_unit_test(products_are_not_measured_again)};
    arena = arena_make(0);
    return cmocka_run_group_tests(tests, setup_squares, scratch_close);
}
