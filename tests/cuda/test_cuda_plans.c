/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of matrix products on the emulated device: with more shapes than are kept nothing fails,
 * results stay right, the shape that is used all the time keeps its plan, the one that was not used
 * for longest is planned again, and what is dropped is freed. If this is wrong, a run whose batches
 * differ in size ends after 512 shapes, or plans its products in every step.
 */
#include "tests/kernels/check.h"
#include "tests/cuda/cuda_test.h"
#include "tests/cuda/fake_lt.h"
#include "kernels/cuda/cuda.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(old_plans_go)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
