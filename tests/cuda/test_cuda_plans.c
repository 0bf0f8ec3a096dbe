/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of matrix products on the emulated device: with more shapes than are kept nothing fails,
 * results stay right, the shape that is used all the time keeps its plan, the one that was not used
 * for longest is planned again, and what is dropped is freed. If this is wrong, a run whose batches
 * differ in size ends after 512 shapes, or plans its products in every step. Memory that is freed
 * is no longer counted, and it is freed on its device.
 */
#include "tests/kernels/check.h"
#include "tests/cuda/cuda_test.h"
#include "tests/cuda/fake_lt.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/module.h"

enum { K = 4, MOST = CUDA_PLANS_MAX + 60 };

static void old_plans_go(void **state)
{
    (void)state;
    struct dev *d;
    double rows[MOST * K], weights[K] = {1, 64, 0, 0}, want[MOST];
    for (size_t i = 0; i < MOST * K; i++)
        rows[i] = (double)(i % 1000);
    for (size_t t = 0; t < MOST; t++)
        want[t] = rows[t * K] + 64 * rows[t * K + 1];
    assert_int_equal(cuda_test_open(&d, "f32"), ERR_OK);
    float *x = upload(d, rows, MOST * K, DTYPE_F32), *w = upload(d, weights, K, DTYPE_F32);
    float *y = room(d, MOST * sizeof *y);
    int asked = fake_lt.asked, one = fake_lt.held;
    for (size_t T = 1; T <= MOST; T++) {
        d->ops->logits(d, y, &(struct dev_linear){.x = x, .w = w, .T = T, .K = K, .N = 1});
        if (T == 1)
            one = fake_lt.held - one; /* of a plan */
        if (T % 40 == 0 || T == MOST)
            near("logits", d, y, DTYPE_F32, want, T, 0);
        d->ops->logits(
            d, y, &(struct dev_linear){.x = x, .w = w, .T = 1, .K = K, .N = 1}); /* all the time */
        assert_int_equal(dev_sync(d), ERR_OK);
    }
    assert_int_equal(fake_lt.asked - asked, MOST);
    assert_int_equal(fake_lt.held, CUDA_PLANS_MAX * one);
    for (size_t T = MOST - CUDA_PLANS_MAX + 2; T <= MOST; T++) /* those that are still there */
        d->ops->logits(d, y, &(struct dev_linear){.x = x, .w = w, .T = T, .K = K, .N = 1});
    assert_int_equal(fake_lt.asked - asked, MOST);
    d->ops->logits(d, y, &(struct dev_linear){.x = x, .w = w, .T = 2, .K = K, .N = 1});
    assert_int_equal(fake_lt.asked - asked, MOST + 1);
    assert_int_equal(dev_sync(d), ERR_OK);
    check_done(d);
    dev_close(d);
    assert_int_equal(fake_lt.held, 0);
}

const struct cuda_module *atoll_cuda_module(const struct cuda_host *host);
int fake_device(void); /* of fake_cuda.h */

/* More allocations than the first room for them, freed in another order, while another GPU is
 * current in this thread. */
static void freed_memory_is_not_counted(void **state)
{
    (void)state;
    enum { SLABS = 150 };
    struct dev *d, *other;
    void *slab[SLABS], *far;
    const struct dev_options o = {.kind = "cuda", .model_type = "bf16", .attention = "own"};
    assert_int_equal(setenv("FAKE_GPUS", "2", 1), 0);
    assert_int_equal(atoll_cuda_module(NULL)->open(&d, 0, &o), ERR_OK);
    assert_int_equal(atoll_cuda_module(NULL)->open(&other, 1, &o), ERR_OK);
    size_t before = d->used_bytes;
    for (size_t i = 0; i < SLABS; i++)
        assert_int_equal(dev_alloc(d, &slab[i], 1000 + i), ERR_OK);
    assert_int_equal(d->used_bytes - before, SLABS * 1000 + SLABS * (SLABS - 1) / 2);
    assert_int_equal(dev_alloc(other, &far, 4096), ERR_OK);
    for (size_t i = 0; i < SLABS; i++) {
        size_t left = d->used_bytes, n = i * 77 % SLABS;
        assert_int_equal(dev_sync(other), ERR_OK);
        assert_int_equal(fake_device(), 1);
        dev_free(d, slab[n]);
        assert_int_equal(fake_device(), 0);
        assert_int_equal(left - d->used_bytes, 1000 + n);
    }
    assert_int_equal(d->used_bytes, before);
    dev_free(d, NULL);
    assert_int_equal(other->used_bytes, 4096);
    dev_free(other, far);
    assert_int_equal(other->used_bytes, 0);
    dev_close(d);
    dev_close(other);
    unsetenv("FAKE_GPUS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(old_plans_go),
                                       cmocka_unit_test(freed_memory_is_not_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
