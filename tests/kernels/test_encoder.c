/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of encoders against plain loops in double: rows collected and put back, dropout, the
 * standardization loss. If these are wrong, a masked token learns from another one's row, or two
 * ranks cut other elements than one would. */
#include "tests/kernels/check.h"

/* ---- rows ---- */
static void rows_case(struct dev *d, size_t T, size_t C, size_t R)
{
    enum dtype type = d->model_type;
    int32_t *rows = arena_array(&check_host, R + 1, sizeof *rows);
    double *x = numbers(T * C, 1, type), *y = doubles(R * C), *dy = numbers(R * C, 1, type);
    double *dx = doubles(T * C), *sum = numbers(T * C, 1, type);
    void *to = upload(d, sum, T * C, type);
    for (size_t r = 0; r < R; r++) {
        rows[r] = r % 4 == 3 ? -1 : (int32_t)((r * 7 + 2) % T); /* 7 and T have no common factor */
        for (size_t i = 0; rows[r] >= 0 && i < C; i++) {
            size_t at = (size_t)rows[r] * C + i;
            y[r * C + i] = x[at];
            dx[at] = dy[r * C + i];
            sum[at] = held_by(type, sum[at] + dy[r * C + i]);
        }
    }
    struct dev_rows a = {.rows = upload_ints(d, rows, R), .R = R, .T = T, .C = C};
    void *got = room(d, (R + 1) * C * dtype_size(type)), *out = upload(d, x, T * C, type);
    void *from = upload(d, dy, R * C, type);
    d->ops->rows_gather(d, got, out, &a);
    near("gathered", d, got, type, y, R * C, 0);
    d->ops->rows_scatter(d, out, from, &a); /* with any former content */
    near("scattered", d, out, type, dx, T * C, 0);
    a.add = true;
    d->ops->rows_scatter(d, to, from, &a);
    near("added", d, to, type, sum, T * C, 0);
}

/* R runs one after the other; each fourth is left out. */
static void runs_case(struct dev *d, size_t C, size_t R, size_t longest)
{
    enum dtype type = d->model_type;
    int32_t *rows = arena_array(&check_host, R + 1, sizeof *rows), *lengths = rows, T = 0;
    lengths = arena_array(&check_host, R + 1, sizeof *lengths);
    for (size_t r = 0; r < R; r++) {
        lengths[r] = (int32_t)(1 + r * 5 % longest);
        rows[r] = r % 4 == 3 ? -1 : T;
        T += lengths[r];
    }
    size_t TC = (size_t)T * C;
    double *x = numbers(TC, 1, type), *y = doubles(R * C), *dy = numbers(R * C, 1, type);
    double *dx = doubles(TC), *sum = numbers(TC, 1, type);
    void *to = upload(d, sum, TC, type), *out = upload(d, x, TC, type);
    for (size_t r = 0; r < R; r++)
        for (size_t i = 0; rows[r] >= 0 && i < (size_t)lengths[r] * C; i++) {
            size_t at = (size_t)rows[r] * C + i, pooled = r * C + i % C;
            y[pooled] += x[at] / lengths[r];
            dx[at] = held_by(type, dy[pooled] / lengths[r]);
            sum[at] += dx[at];
        }
    struct dev_rows a = {.rows = upload_ints(d, rows, R),
                         .lengths = upload_ints(d, lengths, R),
                         .R = R,
                         .T = (size_t)T,
                         .C = C};
    double off = type == DTYPE_F32 ? 2e-6 : 0.01;
    void *got = room(d, (R + 1) * C * dtype_size(type)), *from = upload(d, dy, R * C, type);
    d->ops->rows_gather(d, got, out, &a);
    near("means", d, got, type, y, R * C, off);
    d->ops->rows_scatter(d, out, from, &a);
    near("shares", d, out, type, dx, TC, off);
    a.add = true;
    d->ops->rows_scatter(d, to, from, &a);
    near("shares added", d, to, type, sum, TC, off);
}

static void check_rows(struct dev *d)
{
    runs_case(d, 33, 9, 7);
    runs_case(d, 64, 5, 200);
    runs_case(d, 16, 1, 1);
    rows_case(d, 1, 3, 1);
    rows_case(d, 37, 33, 20);
    rows_case(d, 101, 64, 101);
    rows_case(d, 5, 16, 0);
}

/* ---- dropout ---- */
static void dropout_case(struct dev *d, size_t T, size_t C, float rate, bool scaled)
{
    enum dtype type = d->model_type;
    double *x = numbers(T * C, 1, type), *y = doubles(T * C), scale = scaled ? 1.25 : 1, cut = 0;
    uint64_t *keys = arena_array(&check_host, T, sizeof *keys), *there = room(d, T * sizeof *keys);
    for (size_t t = 0; t < T; t++)
        keys[t] = (uint64_t)(70000 + t % 3) << 32 | (0xfffffff0u + t * 5) % 0xffffffffu;
    d->ops->copy(d, there, keys, T * sizeof *keys);
    struct dev_dropout a = {.rate = rate,
                            .seed = 0x123456789abcdef0u,
                            .place = 4711,
                            .keys = there,
                            .scale = scaled ? upload(d, &scale, 1, DTYPE_F32) : NULL};
    for (size_t i = 0; i < T * C; i++) {
        y[i] = x[i] * dropout_reference(&a, keys[i / C], i % C, (float)scale);
        cut += y[i] == 0;
    }
    double n = (double)(T * C), p = (double)rate;
    assert_true(fabs(cut - n * p) <= 4 * sqrt(n * p * (1 - p)) + 0.5);
    void *in = upload(d, x, T * C, type), *out = room(d, T * C * dtype_size(type));
    d->ops->dropout(d, out, in, &a, T, C);
    double *got = download(d, out, T * C, type);
    near_doubles("dropped", got, y, T * C, bound(d, 2e-7, 0.004), 1e-30);
    for (size_t i = 0; i < T * C; i++)
        assert_true((got[i] == 0) == (y[i] == 0));
    d->ops->dropout(d, in, in, &a, T, C); /* in place */
    near("in place", d, in, type, got, T * C, 0);
}

static void check_dropout(struct dev *d)
{
    dropout_case(d, 1, 1, 0, false);
    dropout_case(d, 13, 64, 0.1f, false);
    dropout_case(d, 7, 133, 0.5f, true);
    dropout_case(d, 3, 1030, 0.25f, false);
    dropout_case(d, 5, 9, 0, true);
}

/* ---- standardization loss ---- */
struct standard {
    size_t T, C;
    double *x, weight, floor;
};

static double standard_reference(const void *ctx)
{
    const struct standard *s = ctx;
    double loss = 0;
    for (size_t i = 0; i < s->C; i++) {
        double mean = 0, v = 0;
        for (size_t t = 0; t < s->T; t++)
            mean += s->x[t * s->C + i] / (double)s->T;
        for (size_t t = 0; t < s->T; t++)
            v += pow(s->x[t * s->C + i] - mean, 2) / (double)s->T;
        double l = v > s->floor ? log(v) : log(s->floor) + (v - s->floor) / s->floor;
        loss += (mean * mean + v - l - 1) / 2;
    }
    return s->weight * loss;
}

static void standard_case(struct dev *d, size_t T, size_t C, double size, double floor)
{
    enum dtype type = d->model_type;
    struct standard s = {T, C, numbers(T * C, size, type), 0.5, (double)(float)floor};
    double got, before = 3, *zero = doubles(T * C);
    for (size_t i = 0; i < T * C; i++)
        s.x[i] = held_by(type, s.x[i] + 0.25 * (double)(i % C % 5));
    double *loss = room(d, sizeof *loss);
    void *x = upload(d, s.x, T * C, type), *dx = upload(d, zero, T * C, type);
    struct dev_standard a = {T, C, (float)floor, upload(d, &s.weight, 1, DTYPE_F32)};
    d->ops->copy(d, loss, &before, sizeof before);
    d->ops->standard(d, dx, loss, x, &a);
    d->ops->standard(d, NULL, loss, x, &a);
    assert_int_equal(dev_sync(d), ERR_OK);
    d->ops->copy(d, &got, loss, sizeof got);
    double want = standard_reference(&s);
    assert_true(fabs(got - before - 2 * want) <= 1e-5 * fabs(want) + 1e-6);
    near_slope("dx", d, dx, type, 0, standard_reference, &s, s.x, T * C, bound(d, 2e-5, 0.004));
}

/* Standardised input: nothing is lost. */
static void check_standard(struct dev *d)
{
    standard_case(d, 7, 3, 1, 1e-5);
    standard_case(d, 61, 70, 2, 1e-5);
    standard_case(d, 300, 33, 0.5, 1e-5);
    standard_case(d, 29, 17, 0.1, 1); /* all below the floor */
    double pair[] = {1, -1}, one = 1, got;
    double *loss = room(d, sizeof *loss);
    struct dev_standard a = {2, 1, 1e-5f, upload(d, &one, 1, DTYPE_F32)};
    d->ops->standard(d, NULL, loss, upload(d, pair, 2, d->model_type), &a);
    assert_int_equal(dev_sync(d), ERR_OK);
    d->ops->copy(d, &got, loss, sizeof got);
    assert_true(got == 0);
}

/* ---- orthogonality of classifiers ---- */
struct orthogonal {
    size_t heads, classes, C, stride;
    double *w, weight;
};

static double orthogonal_reference(const void *ctx)
{
    const struct orthogonal *o = ctx;
    double loss = 0;
    for (size_t c = 0; c < o->classes; c++)
        for (size_t i = 0; i < o->heads; i++)
            for (size_t j = 0; j < i; j++) {
                double dot = 0, p = 0, q = 0;
                for (size_t k = 0; k < o->C; k++) {
                    double x = o->w[i * o->stride + c * o->C + k],
                           y = o->w[j * o->stride + c * o->C + k];
                    dot += x * y;
                    p += x * x;
                    q += y * y;
                }
                loss += fabs(dot / sqrt(p * q));
            }
    return o->weight * loss;
}

static void orthogonal_case(struct dev *d, size_t heads, size_t classes, size_t C, size_t stride)
{
    size_t n = (heads - 1) * stride + classes * C;
    struct orthogonal o = {heads, classes, C, stride, numbers(n, 1, DTYPE_F32), 0.5};
    double got, before = 3, *ones = doubles(n);
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    double *loss = room(d, sizeof *loss);
    float *w = upload(d, o.w, n, DTYPE_F32), *dw = upload(d, ones, n, DTYPE_F32);
    struct dev_orthogonal a = {heads, classes, C, stride, upload(d, &o.weight, 1, DTYPE_F32)};
    d->ops->copy(d, loss, &before, sizeof before);
    d->ops->orthogonal(d, dw, loss, w, &a);
    assert_int_equal(dev_sync(d), ERR_OK);
    d->ops->copy(d, &got, loss, sizeof got);
    double want = orthogonal_reference(&o);
    assert_true(fabs(got - before - want) <= 1e-9 * fabs(want));
    near_slope("dw", d, dw, DTYPE_F32, 1, orthogonal_reference, &o, o.w, n, 2e-5);
}

/* Orthogonal heads, and a head of zeros, cost nothing and have no gradient. */
static void check_orthogonal(struct dev *d)
{
    orthogonal_case(d, 2, 3, 33, 128);
    orthogonal_case(d, 5, 2, 300, 600);
    orthogonal_case(d, 16, 4, 7, 40);
    double heads[] = {2, 0, 0, 0, 3, 0, 0, 0, 0}, one = 1, got;
    double *loss = room(d, sizeof *loss), *none = doubles(9);
    float *dw = upload(d, none, 9, DTYPE_F32);
    struct dev_orthogonal a = {3, 1, 3, 3, upload(d, &one, 1, DTYPE_F32)};
    d->ops->orthogonal(d, dw, loss, upload(d, heads, 9, DTYPE_F32), &a);
    assert_int_equal(dev_sync(d), ERR_OK);
    d->ops->copy(d, &got, loss, sizeof got);
    assert_true(got == 0);
    near("dw", d, dw, DTYPE_F32, none, 9, 0);
}

static void orthogonal_agrees(void **state)
{
    (void)state;
    on_every_device(check_orthogonal);
}

static void rows_come_back(void **state)
{
    (void)state;
    on_every_device(check_rows);
}

static void dropout_is_its_key(void **state)
{
    (void)state;
    on_every_device(check_dropout);
}

static void standard_agrees(void **state)
{
    (void)state;
    on_every_device(check_standard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back),
        cmocka_unit_test(dropout_is_its_key),
        cmocka_unit_test(standard_agrees),
        cmocka_unit_test(orthogonal_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
