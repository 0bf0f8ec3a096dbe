/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of matrix products on the emulated device: with more shapes than are kept nothing fails,
 * results stay right, the shape that is used all the time keeps its plan, the one that was not used
 * for longest is planned again, and what is dropped is freed. If this is wrong, a run whose batches
 * differ in size ends after 512 shapes, or plans its products in every step. Memory that is freed
 * is no longer counted, and it is freed on its device. Pinned memory begins with zeros. Algorithms
 * are measured while the device tunes and at no other time, recorded, and taken from the record
 * after that: if not, a resumed run or another rank has other bits, or gradients are added many
 * times.
 */
#include "tests/kernels/check.h"
#include <math.h>
#include "tests/cuda/cuda_test.h"
#include "tests/cuda/fake_cudnn.h"
#include "tests/cuda/fake_lt.h"
#include "kernels/cuda/choice.h"
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

/* The runtime gives memory with other bytes in it, here as there. */
static void pinned_memory_is_clear(void **state)
{
    (void)state;
    enum { BYTES = (5 << 20) + 3 };
    struct dev *d;
    unsigned char *p, any = 0;
    const struct dev_options o = {
        .kind = "cuda", .model_type = "f32", .attention = "own", .threads = 4};
    assert_int_equal(atoll_cuda_module(NULL)->open(&d, 0, &o), ERR_OK);
    assert_int_equal(cuda_of(d)->gpu.clearing, 4);
    assert_int_equal(d->ops->host_alloc(d, (void **)&p, BYTES), ERR_OK);
    for (size_t i = 0; i < BYTES; i++)
        any |= p[i];
    assert_int_equal(any, 0);
    d->ops->host_free(d, p);
    dev_close(d);
}

/* ---- algorithms by measurement ---- */
static void the_record_of_products(void **state)
{
    (void)state;
    char record[64] = "64x12/12x1024c:oc;";
    const struct choice_product p = {CHOICE_ALGORITHM, 0x89abcdefu}, g = {CHOICE_SLOPE, p.shape};
    assert_int_equal(choice_product_find(record, p), -1);
    assert_true(choice_product_keep(record, sizeof record, p, 0x123));
    assert_true(choice_product_keep(record, sizeof record, g, 1));
    assert_string_equal(record, "64x12/12x1024c:oc;p89abcdef0123;g89abcdef0001;");
    assert_int_equal(choice_product_find(record, p), 0x123);
    assert_int_equal(choice_product_find(record, g), 1);
    assert_int_equal(choice_find(record, &(struct choice_shape){64, 12, 12, 1024, true, false}, 1),
                     CHOICE_CUDNN);
    assert_true(choice_product_keep(record, sizeof record, (struct choice_product){'p', 1}, 2));
    char full[sizeof record];
    strcpy(full, record);
    assert_false(choice_product_keep(record, sizeof record, (struct choice_product){'p', 2}, 2));
    assert_string_equal(record, full);
    static const char *const damaged[] = {"p89abcdef012;",   "p89abcdef01234;", "p89abcdef0123",
                                          "xp89abcdef0123;", "p89abcdefzzzz;",  "p89abcde"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++)
        if (choice_product_find(damaged[i], p) != (i == 2 ? 0x123 : -1))
            fail_msg("%s", damaged[i]);
    assert_int_equal(choice_fastest((const double[]){10, 9.8, 9.75}, 3), 0);
    assert_int_equal(choice_fastest((const double[]){10, 9.6, 9.5, INFINITY}, 4), 2);
    assert_int_equal(choice_fastest((const double[]){INFINITY, INFINITY, 3}, 3), 2);
    assert_int_equal(choice_fastest((const double[]){1}, 1), 0);
}

enum { ROWS = 6, IN = 16, OUT = 8 };
static struct dev *tuned;
static void *x, *w, *y, *pre;
static float *dw, *dbias, *pre_dbias;

static void open_tuned(enum dev_tuning tuning, const char *record)
{
    check_index = 0;
    assert_int_equal(cuda_test_open_attention(&tuned, "bf16", "auto"), ERR_OK);
    assert_int_equal(tuned->autotune, DEV_TUNING_KEPT);
    tuned->autotune = tuning;
    strcpy(tuned->chosen, record);
    x = upload(tuned, numbers(ROWS * IN, 1, DTYPE_BF16), ROWS * IN, DTYPE_BF16);
    w = upload(tuned, numbers(OUT * IN, 1, DTYPE_BF16), OUT * IN, DTYPE_BF16);
    y = upload(tuned, numbers(ROWS * OUT, 1, DTYPE_BF16), ROWS * OUT, DTYPE_BF16);
    pre = upload(tuned, numbers(ROWS * IN, 2, DTYPE_BF16), ROWS * IN, DTYPE_BF16);
    dw = room(tuned, OUT * IN * sizeof *dw);
    dbias = room(tuned, OUT * sizeof *dbias);
    pre_dbias = room(tuned, IN * sizeof *pre_dbias);
    memset(fake_lt.runs, 0, sizeof fake_lt.runs);
    fake_lt.fused = 0;
}

static void close_tuned(void)
{
    assert_int_equal(dev_sync(tuned), ERR_OK);
    check_done(tuned);
    dev_close(tuned);
}

static void forward(void)
{
    tuned->ops->linear_fwd(tuned, y,
                           &(struct dev_linear){.x = x, .w = w, .T = ROWS, .K = IN, .N = OUT});
}

/* dx in place of x's own memory; gradients begin at 0. */
static void backward(void *dx)
{
    const struct dev_linear a = {.x = x, .w = w, .T = ROWS, .K = IN, .N = OUT};
    for (int i = 0; i < 3; i++)
        tuned->ops->zero(tuned,
                         i == 0   ? dw
                         : i == 1 ? dbias
                                  : pre_dbias,
                         (i == 0   ? OUT * IN
                          : i == 1 ? OUT
                                   : IN) *
                             sizeof(float));
    tuned->ops->linear_bwd(tuned, &a,
                           &(struct dev_linear_grad){.dy = y,
                                                     .dx = dx,
                                                     .dw = dw,
                                                     .dbias = dbias,
                                                     .act = DEV_ACT_GELU_TANH,
                                                     .pre = pre,
                                                     .pre_dbias = pre_dbias});
}

static int times(void **state) /* before each: the third is fastest but fails, then the second */
{
    (void)state;
    fake_lt.offered = 4;
    const double us[] = {100, 20, 1, 60};
    memcpy(fake_lt.us, us, sizeof us);
    fake_lt.broken[2] = true;
    return 0;
}

static int reset(void **state)
{
    (void)state;
    int asked = fake_lt.asked, held = fake_lt.held;
    fake_lt = (struct fake_lt){.asked = asked, .held = held};
    return 0;
}

static void the_fastest_is_kept(void **state)
{
    (void)state;
    char record[sizeof tuned->chosen];
    open_tuned(DEV_TUNING_NOW, "");
    forward();
    assert_int_equal(strlen(tuned->chosen), 14);
    assert_int_equal(fake_lt.runs[0], 4);
    assert_int_equal(fake_lt.runs[1], 4 + 1);
    assert_int_equal(fake_lt.runs[3], 4);
    tuned->autotune = DEV_TUNING_KEPT;
    forward();
    forward();
    assert_int_equal(fake_lt.runs[1], 4 + 3);
    strcpy(record, tuned->chosen);
    close_tuned();
    fake_lt.us[1] = 1000; /* another day */
    for (int now = 0; now < 2; now++) {
        open_tuned(now ? DEV_TUNING_NOW : DEV_TUNING_KEPT, record);
        forward();
        assert_int_equal(fake_lt.runs[1], 1);
        assert_int_equal(fake_lt.runs[0], 0);
        assert_string_equal(tuned->chosen, record);
        close_tuned();
    }
}

/* Another library proposes others: the first is taken, and said so. */
static void a_recorded_algorithm_is_missing(void **state)
{
    (void)state;
    open_tuned(DEV_TUNING_NOW, "");
    forward();
    char record[sizeof tuned->chosen];
    strcpy(record, tuned->chosen);
    record[9] = record[9] == '0' ? '1' : '0'; /* of the algorithm's hash */
    close_tuned();
    open_tuned(DEV_TUNING_KEPT, record);
    emulate_log();
    forward();
    assert_int_equal(fake_lt.runs[0], 1);
    assert_non_null(strstr(emulate_log(), "bits of this run differ"));
    close_tuned();
}

static void not_tuning_is_not_measured(void **state)
{
    (void)state;
    void *dx;
    for (int tuning = DEV_TUNING_NONE; tuning <= DEV_TUNING_NOW; tuning++) {
        open_tuned((enum dev_tuning)tuning, "");
        cuda_of(tuned)->graphs.capturing = tuning == DEV_TUNING_NOW;
        dx = room(tuned, ROWS * IN * 2);
        forward();
        backward(dx);
        cuda_of(tuned)->graphs.capturing = false;
        assert_string_equal(tuned->chosen, "");
        assert_int_equal(fake_lt.runs[0], 3);
        assert_int_equal(fake_lt.runs[1] + fake_lt.fused, 0);
        close_tuned();
    }
}

/* This rank measured one, the lead another: after the broadcast both use the lead's. */
static void the_leads_choice_is_taken(void **state)
{
    (void)state;
    char lead[sizeof tuned->chosen];
    fake_lt.us[3] = 5;
    open_tuned(DEV_TUNING_NOW, "");
    forward();
    strcpy(lead, tuned->chosen);
    close_tuned();
    fake_lt.us[3] = 60;
    open_tuned(DEV_TUNING_NOW, "");
    forward();
    assert_string_not_equal(tuned->chosen, lead);
    strcpy(tuned->chosen, lead);
    tuned->autotune = DEV_TUNING_KEPT;
    int before = fake_lt.runs[3];
    forward();
    assert_int_equal(fake_lt.runs[3], before + 1);
    close_tuned();
}

/* Both ways give the same gradients; the faster one is recorded and followed. */
static void the_slope_goes_where_it_is_faster(void **state)
{
    (void)state;
    double *want[3] = {0};
    const size_t n[3] = {ROWS * IN, IN, OUT * IN};
    for (int fused = 0; fused < 2; fused++) {
        fake_lt.fused_us = fused ? -5 : 500;
        open_tuned(DEV_TUNING_NOW, "");
        void *dx = room(tuned, ROWS * IN * 2);
        backward(dx);
        const char *slope = strchr(tuned->chosen, 'g');
        assert_non_null(slope);
        assert_int_equal(slope[12], fused ? '1' : '0');
        tuned->autotune = DEV_TUNING_KEPT;
        int before = fake_lt.fused;
        backward(dx);
        assert_int_equal(fake_lt.fused - before, fused);
        const void *got[3] = {dx, pre_dbias, dw};
        for (int i = 0; i < 3; i++) {
            double *now = download(tuned, got[i], n[i], i ? DTYPE_F32 : DTYPE_BF16);
            if (fused)
                near_doubles("gradient", now, want[i], n[i], i == 2 ? 1e-5 : 0.012, 1e-30);
            else
                want[i] = memcpy(malloc(n[i] * sizeof(double)), now, n[i] * sizeof(double));
        }
        close_tuned();
    }
    for (int i = 0; i < 3; i++)
        free(want[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_plans_go),
        cmocka_unit_test(freed_memory_is_not_counted),
        cmocka_unit_test(pinned_memory_is_clear),
        cmocka_unit_test(the_record_of_products),
        cmocka_unit_test_setup_teardown(the_fastest_is_kept, times, reset),
        cmocka_unit_test_setup_teardown(a_recorded_algorithm_is_missing, times, reset),
        cmocka_unit_test_setup_teardown(not_tuning_is_not_measured, times, reset),
        cmocka_unit_test_setup_teardown(the_leads_choice_is_taken, times, reset),
        cmocka_unit_test_setup_teardown(the_slope_goes_where_it_is_faster, times, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
