/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: training with fp8 products on a GPU is other arithmetic than its
 * emulation on the CPU, or the library refuses a shape. Linear layers, classifier and logits of the
 * device with device.matmul_precision = fp8_hybrid against the CPU's emulation, whose operands are
 * the same numbers, so that only the order of the sums differs. Shapes of multiples of 16, and of
 * none. */
#include "tests/kernels/check.h"
#include "tests/cuda/cuda_test.h"
#include <math.h>

static struct dev *gpu, *cpu;

struct size {
    size_t T, K, N;
};

enum { MOST = 48 * 64, RESULTS = 5 };

/* Values with the bits of bf16, so that both types of model have the same operands; sizes from 2^-9
 * to 2^12, far from E4M3's range. */
static void draw(double *x, uint64_t stream, size_t n, int power)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (double)bf16_float(bf16_round(ldexpf(rng_normal(stream, RNG_TEST, i), power)));
}

struct results {
    double x[RESULTS][MOST]; /* y, dx, dw, dbias, pre */
};

static void read_back(struct dev *d, double *to, const void *x, enum dtype type, size_t n)
{
    static uint8_t host[MOST * 4];
    d->ops->copy(d, host, x, n * dtype_size(type));
    if (dev_sync(d) != ERR_OK)
        fail_msg("%s", err_message());
    for (size_t i = 0; i < n; i++)
        to[i] = type == DTYPE_F32 ? (double)((float *)host)[i]
                                  : (double)bf16_float(((uint16_t *)host)[i]);
}

static void layer(struct dev *d, const struct size *s, enum dev_act act, struct results *r)
{
    static double x[MOST], w[MOST], dy[MOST], bias[MOST], dw[MOST];
    enum dtype type = d->model_type;
    draw(x, 1, s->T * s->K, 12), draw(w, 2, s->N * s->K, -9), draw(dy, 3, s->T * s->N, -20);
    draw(bias, 4, s->N, 0), draw(dw, 5, s->N * s->K, -8);
    struct dev_linear a = {.x = upload(d, x, s->T * s->K, type),
                           .w = upload(d, w, s->N * s->K, type),
                           .bias = upload(d, bias, s->N, DTYPE_F32),
                           .T = s->T,
                           .K = s->K,
                           .N = s->N,
                           .act = act,
                           .pre = act ? room(d, s->T * s->N * sizeof(float)) : NULL};
    struct dev_linear_grad g = {.dy = upload(d, dy, s->T * s->N, type),
                                .dx = room(d, s->T * s->K * sizeof(float)),
                                .dw = upload(d, dw, s->N * s->K, DTYPE_F32),
                                .dbias = room(d, s->N * sizeof(float))};
    void *y = room(d, s->T * s->N * sizeof(float));
    d->ops->zero(d, g.dbias, s->N * sizeof(float));
    d->ops->linear_fwd(d, y, &a);
    d->ops->linear_bwd(d, &a, &g);
    read_back(d, r->x[0], y, type, s->T * s->N);
    read_back(d, r->x[1], g.dx, type, s->T * s->K);
    read_back(d, r->x[2], g.dw, DTYPE_F32, s->N * s->K);
    read_back(d, r->x[3], g.dbias, DTYPE_F32, s->N);
    if (act)
        read_back(d, r->x[4], a.pre, type, s->T * s->N);
    check_done(d);
}

static void compare(const char *what, const double *got, const double *want, size_t n, double part)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= part * most))
            fail_msg("%s: element %zu is %.9g, wanted %.9g", what, i, got[i], want[i]);
}

/* A Hopper GPU's FP8 products keep some 14 bits of a sum (DeepSeek-V3, 2412.19437, 3.3.2). */
static double sums_bound(double emulated, double hardware)
{
    return strcmp(gpu->kind, "cuda") == 0 ? hardware : emulated;
}

static const struct size sizes[] = {
    {32, 48, 64}, {16, 16, 16}, {7, 33, 20}, {1, 5, 3}, {40, 64, 30}};

static void layers(const char *type, double part)
{
    static struct results got, want;
    const enum dev_act acts[] = {DEV_ACT_NONE, DEV_ACT_GELU_TANH};
    assert_int_equal(cuda_test_open_fp8(&gpu, type), ERR_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int k = 0; k < 2; k++) {
            const struct size *s = &sizes[i];
            layer(gpu, s, acts[k], &got);
            layer(cpu, s, acts[k], &want);
            part = fmax(part, sums_bound(0, 0x1p-11));
            compare("y", got.x[0], want.x[0], s->T * s->N, part);
            compare("dx", got.x[1], want.x[1], s->T * s->K, part);
            compare("dw", got.x[2], want.x[2], s->N * s->K, sums_bound(1e-6, 0x1p-11));
            compare("dbias", got.x[3], want.x[3], s->N, 1e-6);
            if (acts[k])
                compare("pre", got.x[4], want.x[4], s->T * s->N, part);
        }
    dev_close(gpu);
}

static void layers_are_those_of_the_emulation(void **state)
{
    (void)state;
    layers("f32", 1e-6);
    layers("bf16", 0x1p-7); /* rounded twice, with the bias between */
}

static void classify(struct dev *d, struct results *r)
{
    enum { T = 19, C = 16, V = 30, VP = 32 };
    static double x[MOST], w[MOST];
    int32_t targets[T];
    enum dtype type = d->model_type;
    draw(x, 6, T * C, 0), draw(w, 7, VP * C, 0);
    for (int i = 0; i < T; i++)
        targets[i] = i % V;
    int32_t *on = room(d, sizeof targets);
    d->ops->copy(d, on, targets, sizeof targets);
    float *losses = room(d, T * sizeof *losses), *dw = room(d, VP * C * sizeof *dw),
          *logits = room(d, T * V * sizeof *logits);
    void *dx = room(d, T * C * sizeof(float));
    d->ops->zero(d, dw, VP * C * sizeof *dw);
    const struct dev_classifier a = {.x = upload(d, x, T * C, type),
                                     .w = upload(d, w, VP * C, type),
                                     .targets = on,
                                     .losses = losses,
                                     .dx = dx,
                                     .dw = dw,
                                     .grad_scale = 1,
                                     .T = T,
                                     .C = C,
                                     .V = V,
                                     .VP = VP};
    d->ops->classifier(d, &a);
    d->ops->logits(d, logits, &(struct dev_linear){.x = a.x, .w = a.w, .T = T, .K = C, .N = V});
    read_back(d, r->x[0], losses, DTYPE_F32, T);
    read_back(d, r->x[1], dx, type, T * C);
    read_back(d, r->x[2], dw, DTYPE_F32, V * C);
    read_back(d, r->x[3], logits, DTYPE_F32, T * V);
    check_done(d);
}

/* The gradient of a logit can lie on the edge between two codes of E5M2, and then the order of the
 * sums before it decides: 2^-3 of a single term. */
static void classifier_is_that_of_the_emulation(void **state)
{
    static struct results got, want;
    (void)state;
    assert_int_equal(cuda_test_open_fp8(&gpu, "f32"), ERR_OK);
    classify(gpu, &got);
    classify(cpu, &want);
    compare("losses", got.x[0], want.x[0], 19, sums_bound(1e-5, 1e-3));
    compare("dx", got.x[1], want.x[1], 19 * 16, 0.02);
    compare("dw", got.x[2], want.x[2], 30 * 16, 0.02);
    compare("logits", got.x[3], want.x[3], 19 * 30, sums_bound(1e-6, 0x1p-11));
    dev_close(gpu);
}

/* A value that is not finite reaches the result, so that the step stops. */
static void not_finite_is_seen(void **state)
{
    enum { T = 16, K = 16, N = 16 };
    static double x[T * K], w[N * K], y[T * N];
    (void)state;
    assert_int_equal(cuda_test_open_fp8(&gpu, "bf16"), ERR_OK);
    struct dev *const both[] = {gpu, cpu};
    for (int i = 0; i < 4; i++) {
        struct dev *d = both[i / 2];
        draw(x, 1, T * K, 0), draw(w, 2, N * K, 0);
        x[3 * K + 5] = i % 2 ? (double)NAN : (double)INFINITY;
        void *to = room(d, sizeof(float) * T * N);
        d->ops->linear_fwd(d, to,
                           &(struct dev_linear){.x = upload(d, x, T * K, d->model_type),
                                                .w = upload(d, w, N * K, d->model_type),
                                                .T = T,
                                                .K = K,
                                                .N = N});
        read_back(d, y, to, d->model_type, T * N);
        for (size_t k = 0; k < T * N; k++)
            assert_true(isnan(y[k]) == (k / N == 3));
        check_done(d);
    }
    dev_close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers_are_those_of_the_emulation),
                                       cmocka_unit_test(classifier_is_that_of_the_emulation),
                                       cmocka_unit_test(not_finite_is_seen)};
    const struct dev_options host = {
        .kind = "cpu", .model_type = "f32", .threads = 2, .emulation = {.fp8 = DEV_FP8_HYBRID}};
    if (cuda_test_open_fp8(&gpu, "f32") == ERR_UNSUPPORTED) {
        printf("SKIPPED: %s\n", err_message());
        return CUDA_TEST_SKIP;
    }
    dev_close(gpu);
    if (dev_open(&cpu, &host))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dev_close(cpu);
    return failed;
}
