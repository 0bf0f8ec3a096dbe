/* SPDX-License-Identifier: Apache-2.0 */
/* Who computes attention on a GPU, on the emulated device with a stand-in for cuDNN that works in
 * float64 (fake_cudnn.c): the rule and its record, what is measured and when, tables and layouts of
 * dense and ragged batches, and results against the CPU's with each kernel that is kept. If these
 * are wrong, a run trains with a kernel that is slower, wrong or other than the one it began with.
 */
#include "tests/kernels/check.h"
#include "tests/cuda/cuda_test.h"
#include "tests/cuda/fake_cudnn.h"
#include "kernels/cuda/choice.h"
#include "kernels/cuda/cuda.h"

/* ---- the rule ---- */
static void the_rule(void **state)
{
    (void)state;
    static const struct {
        struct choice_trial t;
        enum choice want;
    } cases[] = {
        {{2, 1, 0.001, 0.01, true}, CHOICE_CUDNN}, {{1, 2, 0.001, 0.01, true}, CHOICE_OWN},
        {{1, 0.98, 0, 0.01, true}, CHOICE_OWN},    {{1, 0.96, 0, 0.01, true}, CHOICE_CUDNN},
        {{2, 1, 0.02, 0.01, true}, CHOICE_OWN},    {{2, 1, 0.001, 0.01, false}, CHOICE_OWN},
        {{2, 1, INFINITY, 1, true}, CHOICE_OWN},   {{2, 1, NAN, 1, true}, CHOICE_OWN},
        {{0, 0, 0, 0.01, true}, CHOICE_OWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(choice_of(&cases[i].t), cases[i].want);
}

static void the_record(void **state)
{
    (void)state;
    char record[64] = "";
    const struct choice_shape a = {64, 12, 12, 1024, true, false},
                              b = {64, 12, 4, 1024, true, false},
                              c = {64, 12, 12, 1024, false, true},
                              d = {4, 12, 12, 1024, true, false};
    assert_int_equal(choice_find(record, &a, false), CHOICE_NONE);
    assert_true(choice_keep(record, sizeof record, &a, false, CHOICE_CUDNN));
    assert_string_equal(record, "64x12/12x1024c:c?;");
    assert_int_equal(choice_find(record, &a, true), CHOICE_NONE);
    assert_true(choice_keep(record, sizeof record, &a, true, CHOICE_OWN));
    assert_true(choice_keep(record, sizeof record, &c, true, CHOICE_CUDNN));
    assert_string_equal(record, "64x12/12x1024c:co;64x12/12x1024r:?c;");
    assert_int_equal(choice_find(record, &a, false), CHOICE_CUDNN);
    assert_int_equal(choice_find(record, &a, true), CHOICE_OWN);
    assert_int_equal(choice_find(record, &b, false), CHOICE_NONE);
    assert_int_equal(choice_find(record, &c, true), CHOICE_CUDNN);
    assert_int_equal(choice_find(record, &d, false), CHOICE_NONE); /* a tail of a's name */
    assert_true(choice_keep(record, sizeof record, &b, false, CHOICE_OWN));
    assert_int_equal(strlen(record), 53);
    assert_false(choice_keep(record, sizeof record, &d, false, CHOICE_OWN)); /* full */
    assert_int_equal(strlen(record), 53);
    assert_true(
        choice_keep(record, sizeof record, &b, true, CHOICE_OWN)); /* known: there is room */
    static const char *const nonsense[] = {"64x12/12x1024c:", "64x12/12x1024c:c",
                                           "64x12/12x1024c:zz;", ";;;", "64x12/12x1024c"};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++)
        assert_int_equal(choice_find(nonsense[i], &a, false), CHOICE_NONE);
}

/* ---- the ops ---- */
struct batch_case {
    const int32_t *cu;
    size_t sequences, NH, KVH, HD;
    bool causal;
};
static const int32_t dense[] = {0, 128, 256, 384}, ragged[] = {0, 5, 5, 70, 131},
                     same[] = {0, 40, 80, 120};
static const struct batch_case usual = {dense, 2, 1, 1, 8, true};
static struct dev *device, *cpu;

static void open_devices(const char *mode)
{
    assert_int_equal(cuda_test_open_attention(&device, "bf16", mode), ERR_OK);
    assert_int_equal(dev_open(&cpu, &(struct dev_options){.kind = "cpu", .model_type = "bf16"}),
                     ERR_OK);
    emulate_log();
    fake_cudnn.plans = fake_cudnn.runs = 0;
}

static int levers(void **state) /* before and after each test */
{
    (void)state;
    fake_cudnn = (struct fake_cudnn){.us = -2.5};
    return 0;
}

static int close_devices(void **state)
{
    dev_close(device);
    dev_close(cpu);
    device = cpu = NULL;
    return levers(state);
}

struct results {
    double *out, *lse, *dqkv;
    size_t outs, lses, dqkvs;
};

/* Forward and backward; the host's copies live until check_done. */
static struct results pass(struct dev *d, const struct batch_case *b)
{
    size_t T = (size_t)b->cu[b->sequences], row = (b->NH + 2 * b->KVH) * b->HD, C = b->NH * b->HD;
    check_index = 0;
    struct dev_attention a = {.qkv =
                                  upload(d, numbers(T * row, 1, DTYPE_BF16), T * row, DTYPE_BF16),
                              .cu_seqlens = upload_ints(d, b->cu, b->sequences + 1),
                              .cu_seqlens_host = b->cu,
                              .sequences = b->sequences,
                              .T = T,
                              .NH = b->NH,
                              .KVH = b->KVH,
                              .HD = b->HD,
                              .causal = b->causal,
                              .scale = (float)(1 / sqrt((double)b->HD)),
                              .lse = room(d, b->NH * T * 4)};
    void *out = room(d, T * C * 2), *dqkv = room(d, T * row * 2);
    void *dout = upload(d, numbers(T * C, 1, DTYPE_BF16), T * C, DTYPE_BF16);
    d->ops->attention_fwd(d, out, &a);
    d->ops->attention_bwd(d, dqkv, dout, out, &a);
    assert_int_equal(dev_sync(d), ERR_OK);
    return (struct results){download(d, out, T * C, DTYPE_BF16),
                            download(d, a.lse, b->NH * T, DTYPE_F32),
                            download(d, dqkv, T * row, DTYPE_BF16),
                            T * C,
                            b->NH * T,
                            T * row};
}

static void give_back(struct dev *d)
{
    while (check_held_count)
        dev_free(d, check_held[--check_held_count]);
}

/* Of either kernel: as the CPU's. */
static void right(const struct batch_case *b)
{
    struct results got = pass(device, b);
    give_back(device);
    struct results want = pass(cpu, b);
    near_doubles("out", got.out, want.out, want.outs, 0.008, 1e-30);
    near_doubles("lse", got.lse, want.lse, want.lses, 1e-5, 1e-30);
    near_doubles("dqkv", got.dqkv, want.dqkv, want.dqkvs, 0.016, 1e-30);
    check_done(cpu);
}

static void cudnn_is_right(void **state)
{
    (void)state;
    static const struct batch_case cases[] = {
        {dense, 2, 2, 2, 16, true},  {dense, 2, 2, 1, 8, false}, {ragged, 4, 1, 1, 32, true},
        {ragged, 4, 4, 2, 8, false}, {same, 3, 3, 3, 8, true},
    };
    open_devices("cudnn"); /* what it says then is lost: see emulate_log in open_devices */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        right(&cases[i]);
        assert_int_equal(fake_cudnn.runs, 2 * (i + 1));
    }
    assert_string_equal(device->chosen, ""); /* nothing was measured */
}

/* Measured once, on the first batch; the number of sequences is not part of the shape. */
static void auto_keeps_the_faster(void **state)
{
    (void)state;
    struct batch_case fewer = usual;
    open_devices("auto");
    assert_true(device->autotune);
    right(&usual);
    assert_string_equal(device->chosen, "8x1/1x128c:cc;");
    int runs = fake_cudnn.runs;
    right(&usual);
    assert_int_equal(fake_cudnn.runs, runs + 2);
    fewer.sequences = 1;
    right(&fewer);
    assert_int_equal(fake_cudnn.runs, runs + 4);
    assert_string_equal(device->chosen, "8x1/1x128c:cc;");
    assert_int_equal(fake_cudnn.plans, 4);
}

static void slower_is_not_used(void **state)
{
    (void)state;
    fake_cudnn.us = 1000;
    open_devices("auto");
    right(&usual);
    assert_string_equal(device->chosen, "8x1/1x128c:oo;");
    assert_non_null(strstr(emulate_log(), "kept=own"));
    int runs = fake_cudnn.runs;
    right(&usual);
    assert_int_equal(fake_cudnn.runs, runs);
}

/* Not used, and said so; what came out is right anyway. */
static void distrusted(const char *record)
{
    open_devices("auto");
    right(&usual);
    assert_string_equal(device->chosen, record);
    assert_non_null(strstr(emulate_log(), "not used"));
}

static void wrong_is_not_used(void **state)
{
    (void)state;
    fake_cudnn.wrong = true;
    distrusted("8x1/1x128c:oo;");
}

static void not_a_number_is_not_used(void **state)
{
    (void)state;
    fake_cudnn.naught = true;
    distrusted("8x1/1x128c:oo;");
}

static void restless_is_not_used(void **state)
{
    (void)state;
    fake_cudnn.restless = true;
    distrusted("8x1/1x128c:co;");
}

/* A resumed run and the other ranks follow the record, not the clock. */
static void the_record_is_followed(void **state)
{
    (void)state;
    open_devices("auto");
    strcpy(device->chosen, "8x1/1x128c:oc;");
    right(&usual);
    assert_int_equal(fake_cudnn.runs, 1);
    assert_string_equal(device->chosen, "8x1/1x128c:oc;");
    assert_string_equal(emulate_log(), "");
}

/* While a graph is recorded nothing may be timed. */
static void recording_does_not_measure(void **state)
{
    (void)state;
    open_devices("auto");
    cuda_of(device)->graphs.capturing = true;
    right(&usual);
    assert_int_equal(fake_cudnn.runs, 0);
    assert_string_equal(device->chosen, "");
}

static void own_asks_nobody(void **state)
{
    (void)state;
    open_devices("own");
    assert_false(device->autotune);
    right(&usual);
    assert_int_equal(fake_cudnn.plans, 0);
}

static void no_plan_no_workspace(void **state)
{
    (void)state;
    fake_cudnn.refuses = true;
    open_devices("auto");
    right(&usual);
    assert_non_null(strstr(emulate_log(), "no attention for this shape"));
    assert_string_equal(device->chosen, "");
    close_devices(state);
    fake_cudnn.bytes = (size_t)2 << 30; /* more than the memory table promised */
    open_devices("auto");
    right(&usual);
    assert_int_equal(fake_cudnn.runs, 0);
}

static void asked_for_and_not_there(void **state)
{
    (void)state;
    char note[40];
    fake_cudnn.missing = true;
    open_devices("auto");
    right(&usual);
    cuda_attention_version(cuda_of(device), note, sizeof note);
    assert_string_equal(note, "own");
    cuda_attention_close(cuda_of(device));
    assert_int_equal(cuda_attention_open(cuda_of(device), "cudnn"), ERR_UNSUPPORTED);
    assert_non_null(strstr(err_message(), "device.attention = cudnn: no cuDNN: none at all"));
    cuda_attention_close(cuda_of(device));
    assert_int_equal(cuda_attention_open(cuda_of(device), "fast"), ERR_CONFIG);
    close_devices(state);
    fake_cudnn.refuses = true;
    open_devices("cudnn");
    struct dev_attention a = {
        .sequences = 1, .T = 128, .NH = 1, .KVH = 1, .HD = 8, .cu_seqlens_host = dense};
    device->ops->attention_fwd(device, NULL, &a);
    assert_int_equal(dev_sync(device), ERR_UNSUPPORTED);
    assert_non_null(strstr(err_message(), "device.attention = cudnn"));
}

#define WITH_DEVICES(test) cmocka_unit_test_setup_teardown(test, levers, close_devices)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rule),
        cmocka_unit_test(the_record),
        WITH_DEVICES(cudnn_is_right),
        WITH_DEVICES(auto_keeps_the_faster),
        WITH_DEVICES(slower_is_not_used),
        WITH_DEVICES(wrong_is_not_used),
        WITH_DEVICES(not_a_number_is_not_used),
        WITH_DEVICES(restless_is_not_used),
        WITH_DEVICES(the_record_is_followed),
        WITH_DEVICES(recording_does_not_measure),
        WITH_DEVICES(own_asks_nobody),
        WITH_DEVICES(no_plan_no_workspace),
        WITH_DEVICES(asked_for_and_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
