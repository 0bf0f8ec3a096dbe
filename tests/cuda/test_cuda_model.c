/* SPDX-License-Identifier: Apache-2.0 */
/* The whole model, forward and backward, on the GPU against the CPU in f32: one forgotten argument
 * between the ops shows here. The same test runs with the kernels emulated on this host. The CPU's
 * model is itself checked against float64 and finite differences (tests/inner/model/test_model.c).
 */
#include "tests/inner/setup.h"
#include "tests/inner/params.h"
#include <math.h>
#include "tests/cuda/cuda_test.h"

static struct arena arena;

struct result {
    double loss;
    float *grads;
};

static struct result run(struct dev *d, const struct settings *s, const struct table *t,
                         const struct batch *b)
{
    struct result r;
    struct model *m;
    size_t count, bytes = t->elements * sizeof(float);
    float *p = arena_alloc(&arena, bytes);
    r.grads = arena_alloc(&arena, bytes);
    setup_random(t, p, 0.1);
    assert_int_equal(
        model_open(&m, d, &(struct model_options){s, t, b->tokens_count, true}, &arena), ERR_OK);
    d->ops->copy(d, model_params(m), p, bytes);
    model_params_changed(m);
    assert_int_equal(setup_step(m, b, 0.125f, NULL, &r.loss, &count), ERR_OK);
    d->ops->copy(d, r.grads, model_grads(m), bytes);
    assert_int_equal(dev_sync(d), ERR_OK);
    model_close(m);
    return r;
}

static void near_tensor(const struct tensor *x, const float *want, const float *got, double bound)
{
    double error = 0, size = 0;
    for (size_t i = x->offset; i < x->offset + x->count; i++) {
        double difference = (double)want[i] - (double)got[i];
        error += difference * difference;
        size += (double)want[i] * (double)want[i];
    }
    if (!(sqrt(error) <= bound * sqrt(size) + 1e-12))
        fail_msg("gradient of %s: off by %.3g of its norm, bound %.2g", x->name, sqrt(error / size),
                 bound);
}

static void agree(const char *const *words, const char *type, double loss_bound, double bound)
{
    static const int lengths[] = {7, 1, 11, 16, 5, 0};
    struct settings *s = setup_settings(&arena, words);
    struct table t;
    struct batch b;
    struct dev *gpu, *cpu = setup_device("f32", 1);
    assert_int_equal(table_make(&t, s, &arena), ERR_OK);
    assert_int_equal(cuda_test_open(&gpu, type), ERR_OK);
    setup_batch(&b, &arena, lengths, s->model_vocab_size, 3);
    struct result want = run(cpu, s, &t, &b), got = run(gpu, s, &t, &b),
                  again = run(gpu, s, &t, &b);
    if (!(fabs(got.loss - want.loss) <= loss_bound * want.loss))
        fail_msg("loss %.8f, the CPU says %.8f", got.loss, want.loss);
    for (size_t i = 0; i < t.count; i++)
        near_tensor(&t.tensors[i], want.grads, got.grads, bound);
    assert_true(got.loss == again.loss);
    assert_memory_equal(got.grads, again.grads, t.elements * sizeof(float));
    dev_close(gpu);
    dev_close(cpu);
    arena_reset(&arena);
}

#define SMALL                                                                                      \
    "--model.vocab_size", "37", "--model.layers", "2", "--model.heads", "2", "--model.d_model",    \
        "32", "--model.max_seq_len", "16", "--data.tokenizer", "external"

static void gpt2_in_f32(void **state)
{
    (void)state;
    agree((const char *[]){SMALL, NULL}, "f32", 1e-5, 2e-4);
}

static void gpt2_in_bf16(void **state)
{
    (void)state;
    agree((const char *[]){SMALL, NULL}, "bf16", 1e-2, 6e-2);
}

static void rms_erf_full_in_bf16(void **state)
{
    (void)state;
    agree((const char *[]){SMALL, "--model.norm", "rms", "--model.activation", "gelu_erf",
                           "--model.bias", "false", "--model.causal", "false", NULL},
          "bf16", 1e-2, 6e-2);
}

#define LLAMA                                                                                      \
    SMALL, "--model.norm", "rms", "--model.positions", "rope", "--model.activation", "swiglu",     \
        "--model.bias", "false", "--model.tie_embeddings", "false", "--model.heads", "4",          \
        "--model.kv_heads", "2"

static void llama_in_f32(void **state)
{
    (void)state;
    agree((const char *[]){LLAMA, NULL}, "f32", 1e-5, 2e-4);
}

static void llama_in_bf16(void **state)
{
    (void)state;
    agree((const char *[]){LLAMA, "--train.activation_checkpointing", "block", NULL}, "bf16", 1e-2,
          6e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_in_f32),          cmocka_unit_test(gpt2_in_bf16),
        cmocka_unit_test(rms_erf_full_in_bf16), cmocka_unit_test(llama_in_f32),
        cmocka_unit_test(llama_in_bf16),
    };
    if (cuda_test_missing("bf16"))
        return CUDA_TEST_SKIP;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
