/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers, logits and the fused classifier against plain loops in double and finite
 * differences. If these are wrong nothing trains. Also: small exact numbers must come out exactly
 * from the library, and a repeated call gives the same bytes. */
#include "tests/kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul.h"

struct linear {
    size_t T, K, N;
    enum dev_act act;
    double *x, *w, *bias, *dy; /* bias NULL: none */
    double *pre, *y;
    enum dev_act front; /* of the layer before: x = act(before + shift), shift a bias of it */
    double *before, *shift;
};

static double act_of(enum dev_act act, double x)
{
    if (act == DEV_ACT_GELU_TANH)
        return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    if (act == DEV_ACT_GELU_ERF)
        return 0.5 * x * (1 + erf(x * 0.70710678118654752));
    if (act == DEV_ACT_TANH)
        return tanh(x);
    return x;
}

static double linear_loss(const void *ctx)
{
    const struct linear *l = ctx;
    double loss = 0; /* of x w^T + bias: the activation of y is the layer's after, in backward */
    for (size_t i = 0; l->front && i < l->T * l->K; i++)
        l->x[i] = act_of(l->front, l->before[i] + l->shift[i % l->K]);
    for (size_t t = 0; t < l->T; t++)
        for (size_t n = 0; n < l->N; n++) {
            double sum = l->bias ? l->bias[n] : 0;
            for (size_t k = 0; k < l->K; k++)
                sum += l->x[t * l->K + k] * l->w[n * l->K + k];
            l->pre[t * l->N + n] = sum;
            l->y[t * l->N + n] = act_of(l->act, sum);
            loss += l->dy[t * l->N + n] * sum;
        }
    return loss;
}

static struct linear linear_make(struct dev *d, size_t T, size_t K, size_t N, enum dev_act act,
                                 bool bias)
{
    enum dtype type = d->model_type;
    return (struct linear){.T = T,
                           .K = K,
                           .N = N,
                           .act = act,
                           .x = numbers(T * K, 1, type),
                           .w = numbers(N * K, 1 / sqrt((double)K), type),
                           .bias = bias ? numbers(N, 1, DTYPE_F32) : NULL,
                           .dy = numbers(T * N, 1, type),
                           .pre = doubles(T * N),
                           .y = doubles(T * N)};
}

static void linear_case(struct dev *d, struct linear l)
{
    enum dtype type = d->model_type;
    size_t TN = l.T * l.N;
    struct dev_linear a = {.x = upload(d, l.x, l.T * l.K, type),
                           .w = upload(d, l.w, l.N * l.K, type),
                           .bias = l.bias ? upload(d, l.bias, l.N, DTYPE_F32) : NULL,
                           .T = l.T,
                           .K = l.K,
                           .N = l.N,
                           .act = l.act,
                           .pre = l.act ? room(d, TN * dtype_size(type)) : NULL};
    double *half = doubles(l.N * l.K + l.N);
    for (size_t i = 0; i < l.N * l.K + l.N; i++)
        half[i] = 0.5; /* dw and dbias are added to */
    float *dw = upload(d, half, l.N * l.K, DTYPE_F32), *dbias = upload(d, half, l.N, DTYPE_F32);
    void *y = room(d, TN * dtype_size(type)), *dx = room(d, l.T * l.K * dtype_size(type));
    struct dev_linear_grad g = {
        .dy = upload(d, l.dy, TN, type), .dx = dx, .dw = dw, .dbias = l.bias ? dbias : NULL};
    d->ops->linear_fwd(d, y, &a);
    linear_loss(&l);
    near("y", d, y, type, l.y, TN, bound(d, 2e-6, 0.006));
    if (l.act)
        near("pre", d, a.pre, type, l.pre, TN,
             bound(d, 2e-6, 0.006)); /* a GPU rounds the bias, too */
    d->ops->linear_bwd(d, &a, &g);
    near_slope("dx", d, dx, type, 0, linear_loss, &l, l.x, l.T * l.K, bound(d, 4e-6, 0.01));
    near_slope("dw", d, dw, DTYPE_F32, 0.5, linear_loss, &l, l.w, l.N * l.K, bound(d, 4e-6, 0.01));
    if (l.bias)
        near_slope("dbias", d, dbias, DTYPE_F32, 0.5, linear_loss, &l, l.bias, l.N,
                   bound(d, 4e-6, 0.01));
    double *kept = download(d, dx, l.T * l.K, type),
           *dw_kept = download(d, dw, l.N * l.K, DTYPE_F32);
    g.dw = g.dbias = NULL; /* frozen */
    d->ops->linear_bwd(d, &a, &g);
    near("dx of a frozen layer", d, dx, type, kept, l.T * l.K, 0);
    near("dw of a frozen layer", d, dw, DTYPE_F32, dw_kept, l.N * l.K, 0);
}

/* Through the activation of the layer before: dx is the gradient of what it was applied to. */
static void front_case(struct dev *d, struct linear l, enum dev_act front, bool bias)
{
    enum dtype type = d->model_type;
    size_t TK = l.T * l.K, NK = l.N * l.K;
    double *half = doubles(NK + l.K);
    for (size_t i = 0; i < NK + l.K; i++)
        half[i] = 0.5;
    l.front = front;
    l.before = numbers(TK, 1.5, type);
    l.shift = doubles(l.K);
    linear_loss(&l); /* makes x */
    struct dev_linear a = {
        .x = upload(d, l.x, TK, type), .w = upload(d, l.w, NK, type), .T = l.T, .K = l.K, .N = l.N};
    void *dx = room(d, TK * dtype_size(type)), *dy = upload(d, l.dy, l.T * l.N, type);
    struct dev_linear_grad g = {.dy = dy,
                                .dx = dx,
                                .dw = upload(d, half, NK, DTYPE_F32),
                                .act = front,
                                .pre = upload(d, l.before, TK, type),
                                .pre_dbias = bias ? upload(d, half, l.K, DTYPE_F32) : NULL};
    d->ops->linear_bwd(d, &a, &g);
    near("dy is only read", d, dy, type, l.dy, l.T * l.N, 0);
    near_slope("d before", d, dx, type, 0, linear_loss, &l, l.before, TK, bound(d, 4e-6, 0.01));
    near_slope("dw", d, g.dw, DTYPE_F32, 0.5, linear_loss, &l, l.w, NK, bound(d, 4e-6, 0.01));
    if (bias)
        near_slope("pre_dbias", d, g.pre_dbias, DTYPE_F32, 0.5, linear_loss, &l, l.shift, l.K,
                   bound(d, 4e-6, 0.01));
}

static void check_linear(struct dev *d)
{
    front_case(d, linear_make(d, 37, 50, 24, DEV_ACT_NONE, false), DEV_ACT_GELU_TANH, true);
    front_case(d, linear_make(d, 1, 7, 5, DEV_ACT_NONE, false), DEV_ACT_GELU_TANH, false);
    front_case(d, linear_make(d, 61, 64, 23, DEV_ACT_NONE, false), DEV_ACT_GELU_ERF, true);
    front_case(d, linear_make(d, 6, 40, 2, DEV_ACT_NONE, false), DEV_ACT_TANH, true);

    linear_case(d, linear_make(d, 6, 33, 40, DEV_ACT_TANH, true));
    linear_case(d, linear_make(d, 1, 5, 7, DEV_ACT_NONE, true));
    linear_case(d, linear_make(d, 13, 17, 31, DEV_ACT_NONE, false));
    linear_case(d, linear_make(d, 37, 96, 50, DEV_ACT_GELU_TANH, true));
    linear_case(d, linear_make(d, 61, 23, 64, DEV_ACT_GELU_ERF, true));
    check_done(d);
}

/* Multiples of 1/64 below 4: every sum is exact in f32, in any order, so equality is memcmp with a
 * loop. */
static void check_exact(struct dev *d)
{
    enum dtype type = d->model_type;
    size_t T = 67, K = 130, N = 45;
    double *x = doubles(T * K), *w = doubles(N * K), *y = doubles(T * N);
    for (size_t i = 0; i < T * K; i++)
        x[i] = ((double)rng_below(1, RNG_TEST, i, 255) - 127) / 64;
    for (size_t i = 0; i < N * K; i++)
        w[i] = ((double)rng_below(2, RNG_TEST, i, 255) - 127) / 64;
    for (size_t t = 0; t < T; t++)
        for (size_t n = 0; n < N; n++)
            for (size_t k = 0; k < K; k++)
                y[t * N + n] += x[t * K + k] * w[n * K + k];
    float *logits = room(d, T * N * sizeof *logits);
    struct dev_linear a = {
        .x = upload(d, x, T * K, type), .w = upload(d, w, N * K, type), .T = T, .K = K, .N = N};
    d->ops->logits(d, logits, &a);
    near("logits", d, logits, DTYPE_F32, y, T * N, 0);
    for (size_t i = 0; i < T * N; i++)
        y[i] += (double)(i % N) / 8;
    double *bias = doubles(N);
    for (size_t i = 0; i < N; i++)
        bias[i] = (double)i / 8;
    a.bias = upload(d, bias, N, DTYPE_F32);
    d->ops->logits(d, logits, &a);
    near("logits with a bias", d, logits, DTYPE_F32, y, T * N, 0);
}

/* dw of rows that share cache sets and are copied in runs (dev_rows_apart): 300 rows are more than
 * one run. Exact sums, as above. */
static void check_runs(struct dev *d, size_t K, size_t N)
{
    enum dtype type = d->model_type;
    size_t T = 300;
    double *x = doubles(T * K), *dy = doubles(T * N), *dw = doubles(N * K);
    for (size_t i = 0; i < T * K; i++)
        x[i] = ((double)rng_below(3, RNG_TEST, i, 63) - 31) / 64;
    for (size_t i = 0; i < T * N; i++)
        dy[i] = ((double)rng_below(4, RNG_TEST, i, 63) - 31) / 64;
    for (size_t t = 0; t < T; t++)
        for (size_t n = 0; n < N; n++)
            for (size_t k = 0; k < K; k++)
                dw[n * K + k] += dy[t * N + n] * x[t * K + k];
    struct dev_linear a = {.x = upload(d, x, T * K, type), .T = T, .K = K, .N = N};
    struct dev_linear_grad g = {.dy = upload(d, dy, T * N, type),
                                .dw = upload(d, doubles(N * K), N * K, DTYPE_F32)};
    d->ops->linear_bwd(d, &a, &g);
    near("dw", d, g.dw, DTYPE_F32, dw, N * K, 0);
    check_done(d);
}

static void check_strides(struct dev *d)
{
    check_runs(d, 8, 512);
    check_runs(d, 512, 8);
    check_runs(d, 264, 512); /* too wide: not copied */
}

static void check_repeats(struct dev *d)
{
    enum dtype type = d->model_type;
    struct linear l = linear_make(d, 301, 96, 130, DEV_ACT_GELU_TANH, true);
    size_t TN = l.T * l.N, size = dtype_size(type), NK = l.N * l.K;
    struct dev_linear a = {.x = upload(d, l.x, l.T * l.K, type),
                           .w = upload(d, l.w, NK, type),
                           .bias = upload(d, l.bias, l.N, DTYPE_F32),
                           .T = l.T,
                           .K = l.K,
                           .N = l.N,
                           .act = l.act,
                           .pre = room(d, TN * size)};
    float *grads[2];
    void *y[2];
    for (int i = 0; i < 2; i++) {
        y[i] = room(d, TN * size);
        grads[i] = room(d, (NK + l.N) * sizeof(float));
        d->ops->linear_fwd(d, y[i], &a);
        d->ops->linear_bwd(d, &a,
                           &(struct dev_linear_grad){.dy = upload(d, l.dy, TN, type),
                                                     .dw = grads[i],
                                                     .dbias = grads[i] + NK});
    }
    same_bytes(d, y[0], y[1], TN * size);
    same_bytes(d, grads[0], grads[1], (NK + l.N) * sizeof(float));
}

struct classifier {
    size_t T, C, V, VP;
    double *x, *w, *losses;
    const int32_t *targets;
    double grad_scale;
    double *bias; /* NULL: none */
};

static double classifier_loss(const void *ctx)
{
    const struct classifier *c = ctx;
    double total = 0, *logit = malloc(c->V * sizeof *logit);
    for (size_t t = 0; t < c->T; t++) {
        double top = -1e300, sum = 0;
        for (size_t v = 0; v < c->V; v++) {
            logit[v] = c->bias ? c->bias[v] : 0;
            for (size_t k = 0; k < c->C; k++)
                logit[v] += c->x[t * c->C + k] * c->w[v * c->C + k];
            top = fmax(top, logit[v]);
        }
        for (size_t v = 0; v < c->V; v++)
            sum += exp(logit[v] - top);
        c->losses[t] = c->targets[t] < 0 ? 0 : top + log(sum) - logit[c->targets[t]];
        total += c->losses[t];
    }
    free(logit);
    return total * c->grad_scale;
}

static void classifier_case(struct dev *d, size_t T, size_t C, size_t V, size_t VP, bool biased)
{
    enum dtype type = d->model_type;
    double f32 = biased ? 1e-5 : 4e-6; /* the logits are twice as large */
    int32_t *targets = arena_array(&check_host, T, sizeof *targets);
    for (size_t t = 0; t < T; t++)
        targets[t] = t % 5 == 3 ? -1 : (int32_t)rng_below(3, RNG_TEST, t, V);
    struct classifier c = {.T = T,
                           .C = C,
                           .V = V,
                           .VP = VP,
                           .x = numbers(T * C, 2, type),
                           .w = numbers(VP * C, 1, type),
                           .losses = doubles(T),
                           .targets = targets,
                           .grad_scale = 0.25,
                           .bias = biased ? numbers(VP, 2, DTYPE_F32) : NULL};
    float *dbias = biased ? room(d, VP * sizeof *dbias) : NULL;
    float *losses = room(d, T * sizeof *losses), *dw = room(d, VP * C * sizeof *dw);
    void *dx = room(d, T * C * dtype_size(type));
    struct dev_classifier a = {.x = upload(d, c.x, T * C, type),
                               .w = upload(d, c.w, VP * C, type),
                               .targets = upload_ints(d, targets, T),
                               .T = T,
                               .C = C,
                               .V = V,
                               .VP = VP,
                               .grad_scale = 0.25f,
                               .losses = losses,
                               .dx = dx,
                               .dw = dw,
                               .bias = biased ? upload(d, c.bias, VP, DTYPE_F32) : NULL,
                               .dbias = dbias};
    d->ops->classifier(d, &a);
    classifier_loss(&c);
    /* Logits are f32 for both types; a sure prediction loses nearly 0. */
    near_doubles("losses", download(d, losses, T, DTYPE_F32), c.losses, T, 4e-6, 1);
    near_slope("dx", d, dx, type, 0, classifier_loss, &c, c.x, T * C, bound(d, f32, 0.01));
    near_slope("dw", d, dw, DTYPE_F32, 0, classifier_loss, &c, c.w, VP * C, bound(d, f32, 0.01));
    near("dw of the padding", d, dw + V * C, DTYPE_F32, doubles((VP - V) * C), (VP - V) * C, 0);
    if (biased) {
        near_slope("dbias", d, dbias, DTYPE_F32, 0, classifier_loss, &c, c.bias, V,
                   bound(d, f32, 0.01));
        near("dbias of the padding", d, dbias + V, DTYPE_F32, doubles(VP - V), VP - V, 0);
    }
    float *alone = room(d, T * sizeof *alone);
    double *kept = download(d, dx, T * C, type);
    a.losses = alone;
    a.dw = a.dbias = NULL; /* frozen */
    d->ops->classifier(d, &a);
    near("dx of a frozen table", d, dx, type, kept, T * C, 0);
    a.dx = NULL;
    d->ops->classifier(d, &a);
    same_bytes(d, losses, alone, T * sizeof *alone);
}

static void check_classifier(struct dev *d)
{
    for (int biased = 0; biased < 2; biased++) {
        classifier_case(d, biased ? 4 : 1, 3, 2, 2, biased);
        classifier_case(d, 5, 24, 2, 64, biased); /* two classes of a few sequences */
        classifier_case(d, 3, 24, 3, 3, biased);
        classifier_case(d, 17, 19, 37, 48, biased);
        classifier_case(d, 40, 32, 257, 384, biased);
        classifier_case(d, 7, 16, 500, 512, biased); /* rows of logits that lie apart */
        check_done(d);
    }
}

/* Chunks: a vocabulary so wide that 600 rows do not fit one chunk gives what the rows give alone.
 */
static void classifier_chunks(void **state)
{
    (void)state;
    struct dev_options o = {.kind = "cpu", .model_type = "f32", .threads = CHECK_THREADS};
    struct dev *d;
    assert_int_equal(dev_open(&d, &o), ERR_OK);
    size_t T = 600, C = 8, V = 70001, VP = 70016;
    int32_t *targets = arena_array(&check_host, T, sizeof *targets);
    for (size_t t = 0; t < T; t++)
        targets[t] = (int32_t)(t * 97 % V);
    float *x = upload(d, numbers(T * C, 1, DTYPE_F32), T * C, DTYPE_F32);
    float *w = upload(d, numbers(VP * C, 1, DTYPE_F32), VP * C, DTYPE_F32);
    float *losses = room(d, T * 4), *alone = room(d, T * 4), *dx = room(d, T * C * 4);
    float *dw = room(d, VP * C * 4), *one_dx = room(d, T * C * 4), *sum_dw = room(d, VP * C * 4);
    struct dev_classifier a = {.x = x,
                               .w = w,
                               .targets = upload_ints(d, targets, T),
                               .T = T,
                               .C = C,
                               .V = V,
                               .VP = VP,
                               .grad_scale = 1,
                               .losses = losses,
                               .dx = dx,
                               .dw = dw};
    d->ops->classifier(d, &a);
    for (size_t t = 0; t < T; t += 60) {
        struct dev_classifier part = a;
        part.x = x + t * C;
        part.targets = a.targets + t;
        part.T = 60;
        part.losses = alone + t;
        part.dx = one_dx + t * C;
        part.dw = sum_dw;
        d->ops->classifier(d, &part);
    }
    near("losses", d, losses, DTYPE_F32, download(d, alone, T, DTYPE_F32), T, 1e-6);
    near("dx", d, dx, DTYPE_F32, download(d, one_dx, T * C, DTYPE_F32), T * C, 1e-5);
    near("dw", d, dw, DTYPE_F32, download(d, sum_dw, VP * C, DTYPE_F32), VP * C, 1e-5);
    check_done(d);
    dev_close(d);
}

/* More shapes than are kept: nothing fails, results stay right, the shape that is used all the time
 * is made once, and the one that was not used for longest is rebuilt. */
static void old_products_go(void **state)
{
    (void)state;
    enum { K = 2, MOST = MATMUL_KEPT_MAX + 300 };
    struct dev_options o = {.kind = "cpu", .model_type = "f32", .threads = 1};
    struct dev *d;
    assert_int_equal(dev_open(&d, &o), ERR_OK);
    float *x = room(d, MOST * K * sizeof *x), *y = room(d, MOST * sizeof *y), w[K] = {1, 64};
    for (size_t i = 0; i < MOST * K; i++)
        x[i] = (float)i;
    for (size_t T = 1; T <= MOST; T++) {
        d->ops->logits(d, y, &(struct dev_linear){.x = x, .w = w, .T = T, .K = K, .N = 1});
        for (size_t t = 0; t < T; t += 97)
            assert_true(y[t] == x[2 * t] + 64 * x[2 * t + 1]);
        d->ops->logits(
            d, y, &(struct dev_linear){.x = x, .w = w, .T = 1, .K = K, .N = 1}); /* all the time */
    }
    struct matmul_counts counts = matmul_counts(cpu_of(d)->matmul);
    assert_int_equal(counts.kept, MATMUL_KEPT_MAX);
    assert_int_equal(counts.made, MOST);
    for (size_t T = MOST - MATMUL_KEPT_MAX + 2; T <= MOST; T++) /* those that are still there */
        d->ops->logits(d, y, &(struct dev_linear){.x = x, .w = w, .T = T, .K = K, .N = 1});
    assert_int_equal(matmul_counts(cpu_of(d)->matmul).made, MOST);
    d->ops->logits(d, y, &(struct dev_linear){.x = x, .w = w, .T = 2, .K = K, .N = 1});
    assert_int_equal(matmul_counts(cpu_of(d)->matmul).made, MOST + 1);
    assert_int_equal(dev_sync(d), ERR_OK);
    check_done(d);
    dev_close(d);
}

static void linear_agrees(void **state)
{
    (void)state;
    on_every_device(check_linear);
}

static void products_are_exact(void **state)
{
    (void)state;
    on_every_device(check_exact);
}

static void strided_rows_are_exact(void **state)
{
    (void)state;
    on_every_device(check_strides);
}

static void linear_repeats(void **state)
{
    (void)state;
    on_every_device(check_repeats);
}

static void classifier_agrees(void **state)
{
    (void)state;
    on_every_device(check_classifier);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_agrees),          cmocka_unit_test(products_are_exact),
        cmocka_unit_test(strided_rows_are_exact), cmocka_unit_test(linear_repeats),
        cmocka_unit_test(classifier_agrees),      cmocka_unit_test(classifier_chunks),
        cmocka_unit_test(old_products_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
