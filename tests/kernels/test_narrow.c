/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a prediction for narrow accumulators is about other arithmetic than
 * it says, stochastic rounding has a bias. Oracles: the compiler's _Float16, forms.h (E5M2),
 * bf16.h, and the published sums of ones. `test_narrow figures` prints what the rows chunking and
 * fp8 of tests/reproduce tell, as JSON. */
#include "tests/kernels/check.h"
#include <math.h>
#include "kernels/base/rng.h"
#include "kernels/scalar/forms.h"
#include "kernels/scalar/narrow.h"

static const struct narrow fp16 = {5, 10}, bf16 = {8, 7}, e5m2 = {5, 2}, e4m3 = {4, 3},
                           f32 = {8, 23};

/* Any bit pattern, so that all exponents occur. */
static float any_float(uint64_t i)
{
    return float_of_bits(rng_u32(11, RNG_TEST, i));
}

static bool same(float a, float b)
{
    return float_bits(a) == float_bits(b) || (a != a && b != b);
}

static void rounds_as_hardware_does(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 2000000; i++) {
        float x = any_float(i);
        if (i % 2) /* within fp16's range, subnormals included */
            x = ldexpf((float)(int32_t)rng_u32(12, RNG_TEST, i), (int)(i % 61) - 60);
        assert_true(same(narrow_round(x, bf16), bf16_float(bf16_round(x))) || x != x ||
                    fabsf(x) < 0x1p-126f);
        assert_true(same(narrow_round(x, f32), x));
        for (int m = 1; m <= 23; m += 11)
            assert_true(x != x ||
                        same(narrow_shorten(x, m), narrow_round(x, (struct narrow){8, m})));
#ifdef __FLT16_MAX__
        assert_true(same(narrow_round(x, fp16), (float)(_Float16)x));
#endif
    }
    assert_true(narrow_round(65519.0f, fp16) == 65504.0f && isinf(narrow_round(65520.0f, fp16)));
    assert_true(narrow_round(-0x1p-25f, fp16) == 0 && signbit(narrow_round(-0x1p-25f, fp16)));
    assert_true(narrow_round(0x1.8p-25f, fp16) == 0x1p-24f);
    assert_true(narrow_round(1.125f, e5m2) == 1.0f && narrow_round(1.375f, e5m2) == 1.5f);
    assert_true(narrow_round(17.0f, e4m3) == 16.0f && narrow_round(19.0f, e4m3) == 20.0f);
}

/* All finite codes of E5M2 are numbers of the form, at both signs, and stay as they are. */
static void finite_codes_stay(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0x7c; code++)
        for (int sign = -1; sign <= 1; sign += 2) {
            float x = (float)sign * form_fp8_float(code, 2);
            assert_true(narrow_round(x, e5m2) == x);
            for (uint64_t i = 0; i < 16; i++)
                assert_true(narrow_stochastic(x, e5m2, rng_u32(3, RNG_TEST, i)) == x);
        }
}

/* The mean of many draws in standard errors of it; 1e9: x is not between them. */
static double bias_in_sigmas(float x, struct narrow f, int draws)
{
    double sum = 0, squares = 0;
    float low = INFINITY, high = -INFINITY;
    for (int i = 0; i < draws; i++) {
        float y = narrow_stochastic(x, f, rng_u32(float_bits(x), RNG_TEST, (uint64_t)i));
        double off = (double)y - (double)x;
        sum += off, squares += off * off;
        low = fminf(low, y), high = fmaxf(high, y);
    }
    double mean = sum / draws, variance = squares / draws - mean * mean;
    if (low > x || high < x)
        return 1e9;
    return variance > 0 ? fabs(mean) / sqrt(variance / draws) : fabs(mean) > 0 ? 1e9 : 0;
}

static const float drawn[] = {1.1f,       -3.3f,       0.7f,       1000.1f,
                              0x1.3p-15f, -0x1.9p-16f, 0x1.1p-17f, 56000.0f};
enum { DRAWN = sizeof drawn / sizeof *drawn };

/* Six values: a bias of a hundredth of a step would be 10 sigmas at the lower draws. */
static void stochastic_rounding_has_no_bias(void **state)
{
    (void)state;
    for (size_t i = 0; i < DRAWN; i++) {
        double off = bias_in_sigmas(drawn[i], e5m2, 100000);
        if (off > 4)
            fail_msg("%g: %.1f sigmas", (double)drawn[i], off);
    }
    assert_true(narrow_stochastic(1e9f, e5m2, 0xffffffffu) == 57344.0f);
    assert_true(isinf(narrow_stochastic(INFINITY, e5m2, 1)));
}

static struct narrow_sum plain(struct narrow f)
{
    return (struct narrow_sum){.inner = f};
}

static struct narrow_sum chunks(struct narrow f, struct narrow outer)
{
    return (struct narrow_sum){f, outer, 64};
}

enum { ONES = 32768 };

static float sum_of_ones(struct narrow_sum how)
{
    static float ones[ONES];
    for (size_t i = 0; i < ONES; i++)
        ones[i] = 1;
    return narrow_dot(ones, NULL, ONES, how);
}

static void ones_are_lost_without_chunks(void **state)
{
    (void)state;
    assert_true(sum_of_ones(plain(fp16)) == 2048.0f);
    assert_true(sum_of_ones(chunks(fp16, fp16)) == 32768.0f);
    assert_true(sum_of_ones(plain(bf16)) == 256.0f);
    assert_true(sum_of_ones(plain(f32)) == 32768.0f);
    assert_true(sum_of_ones((struct narrow_sum){{6, 9}, {6, 9}, 64}) == 32768.0f);
}

/* log2 of rms(sum - exact) / rms(exact) over sums of n products of two normals, each product
 * rounded to the bits of the form, at most 10. */
static double sum_error(struct narrow_sum how, size_t n, int draws)
{
    static float x[8192], y[8192];
    const struct narrow product = {8, how.inner.mantissa < 10 ? how.inner.mantissa : 10};
    double wrong = 0, all = 0;
    for (int d = 0; d < draws; d++) {
        double exact = 0;
        for (size_t i = 0; i < n; i++) {
            uint64_t at = (uint64_t)d * n + i;
            x[i] = narrow_round(rng_normal(1, RNG_TEST, at) * rng_normal(2, RNG_TEST, at), product);
            y[i] = 1;
            exact += (double)x[i];
        }
        double off = (double)narrow_dot(x, y, n, how) - exact;
        wrong += off * off, all += exact * exact;
    }
    return log2(sqrt(wrong / all));
}

/* The table of chunked sums; our own simulation in Python gave these figures. */
static const struct figure {
    const char *name;
    struct narrow form;
    int levels; /* 1: plain; 2: chunks of 64; 3: with f32 outside */
    double bits;
} figures[] = {{"fp16_plain", {5, 10}, 1, -6.3}, {"fp16_chunks", {5, 10}, 2, -8.9},
               {"fp16_f32", {5, 10}, 3, -9.6},   {"bf16_plain", {8, 7}, 1, -3.3},
               {"bf16_chunks", {8, 7}, 2, -5.9}, {"bf16_f32", {8, 7}, 3, -6.7}};
enum { FIGURES = sizeof figures / sizeof *figures };

static double figure_now(const struct figure *f, int draws)
{
    struct narrow_sum how = f->levels == 1   ? plain(f->form)
                            : f->levels == 2 ? chunks(f->form, f->form)
                                             : chunks(f->form, f32);
    return sum_error(how, 8192, draws);
}

static void chunks_save_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < FIGURES; i++) {
        double now = figure_now(&figures[i], 100);
        if (!(fabs(now - figures[i].bits) < 0.4))
            fail_msg("%s: 2^%.2f, wanted 2^%.1f", figures[i].name, now, figures[i].bits);
    }
}

/* y (T,N) = x w^T + bias of the device, and dw, against narrow_dot, bit for bit. */
enum { T = 7, K = 150, N = 33 };

static float operand(float x, bool fp8)
{
    return fp8 ? narrow_round(x, e5m2) : x;
}

static void products_are(struct dev *d, struct narrow_sum how, bool fp8)
{
    static float x[T * K], w[N * K], dy[T * N], bias[N], left[1000], right[1000];
    float *y = NULL, *dw = NULL;
    for (uint64_t i = 0; i < N * K; i++) {
        w[i] = rng_normal(1, RNG_TEST, i);
        x[i % (T * K)] = rng_normal(2, RNG_TEST, i);
        dy[i % (T * N)] = rng_normal(3, RNG_TEST, i);
        bias[i % N] = rng_normal(4, RNG_TEST, i);
    }
    assert_int_equal(dev_alloc(d, (void **)&y, sizeof(float) * T * N), ERR_OK);
    assert_int_equal(dev_alloc(d, (void **)&dw, sizeof(float) * N * K), ERR_OK);
    const struct dev_linear a = {.x = x, .w = w, .bias = bias, .T = T, .K = K, .N = N};
    d->ops->linear_fwd(d, y, &a);
    d->ops->linear_bwd(d, &a, &(struct dev_linear_grad){.dy = dy, .dw = dw});
    assert_int_equal(dev_sync(d), ERR_OK);
    for (size_t t = 0; t < T; t++)
        for (size_t n = 0; n < N; n++) {
            for (size_t k = 0; k < K; k++) {
                left[k] = operand(x[t * K + k], fp8);
                right[k] = operand(w[n * K + k], fp8);
            }
            assert_true(y[t * N + n] == narrow_dot(left, right, K, how) + bias[n]);
        }
    for (size_t n = 0; n < N; n++)
        for (size_t k = 0; k < K; k++) {
            for (size_t t = 0; t < T; t++) {
                left[t] = operand(dy[t * N + n], fp8);
                right[t] = operand(x[t * K + k], fp8);
            }
            assert_true(dw[n * K + k] == narrow_dot(left, right, T, how));
        }
    dev_free(d, y);
    dev_free(d, dw);
}

static void the_device_emulates(void **state)
{
    static const struct {
        struct dev_emulation e;
        struct narrow_sum how;
    } cases[] = {{{false, 7, 0}, {{8, 7}, {8, 7}, 0}},
                 {{false, 5, 64}, {{8, 5}, {8, 5}, 64}},
                 {{true, 9, 64}, {{8, 9}, {8, 9}, 64}}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int threads = 1; threads <= 3; threads++) {
            struct dev *d;
            struct dev_options o = {
                .kind = "cpu", .model_type = "f32", .threads = threads, .emulation = cases[i].e};
            assert_int_equal(dev_open(&d, &o), ERR_OK);
            products_are(d, cases[i].how, cases[i].e.fp8);
            dev_close(d);
        }
}

/* With fp8 operands alone the library adds: the products of E5M2 have 6 bits and so are exact. */
static void fp8_operands(void **state)
{
    enum { FEW = 8 };
    float x[FEW], w[FEW], *y = NULL;
    struct dev *d;
    struct dev_options o = {
        .kind = "cpu", .model_type = "f32", .threads = 1, .emulation = {.fp8 = true}};
    double want = 0;
    (void)state;
    for (uint64_t i = 0; i < FEW; i++) {
        x[i] = rng_normal(1, RNG_TEST, i) * (i == 3 ? 1e6f : 1);
        w[i] = rng_normal(2, RNG_TEST, i);
        float large = fminf(fmaxf(x[i], -57344.0f), 57344.0f);
        want += (double)narrow_round(large, e5m2) * (double)narrow_round(w[i], e5m2);
    }
    assert_int_equal(dev_open(&d, &o), ERR_OK);
    assert_int_equal(dev_alloc(d, (void **)&y, sizeof *y), ERR_OK);
    d->ops->linear_fwd(d, y, &(struct dev_linear){.x = x, .w = w, .T = 1, .K = FEW, .N = 1});
    assert_int_equal(dev_sync(d), ERR_OK);
    assert_true(fabs((double)*y - want) <= 1e-6 * fabs(want));
    dev_free(d, y);
    dev_close(d);
}

/* The values of a form by its definition: `top` the power of two of the largest, `m` bits of
 * mantissa, the largest 1.75 times that power. */
static double nearest_of_form(double x, int least, int top, int m)
{
    double best = 0, size = fabs(x);
    for (int e = least; e <= top; e++)
        for (int k = e == least ? -(1 << m) : 0; k < 1 << m; k++) {
            double y = ldexp((1 << m) + k, e - m), off = fabs(y - size) - fabs(best - size);
            if (y > ldexp(1.75, top) || off > 0 || (off >= 0 && (k & 1)))
                continue;
            best = y;
        }
    return x < 0 ? -best : best;
}

static void form_read(double *to, const float *x, size_t n, bool gradient)
{
    int least = gradient ? -14 : -6, top = gradient ? 15 : 8, m = gradient ? 2 : 3;
    double largest = 0, scale = 1;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)x[i]));
    while (largest * scale > ldexp(1.75, top))
        scale /= 2;
    while (largest * scale * 2 <= ldexp(1.75, top))
        scale *= 2;
    for (size_t i = 0; i < n; i++)
        to[i] = nearest_of_form((double)x[i] * scale, least, top, m) / scale;
}

/* E4M3 for weights and activations, E5M2 for gradients, each with its scale: forward, gradient of
 * the input, of the weights. Small values fall below the forms' least. */
static void hybrid_operands(void **state)
{
    enum { ROWS = 3, IN = 8, OUT = 5 };
    float x[ROWS * IN], w[OUT * IN], dy[ROWS * OUT], *y = NULL, *dx = NULL, *dw = NULL;
    double fx[ROWS * IN], fw[OUT * IN], fy[ROWS * OUT];
    struct dev *d;
    struct dev_options o = {
        .kind = "cpu", .model_type = "f32", .threads = 2, .emulation = {.fp8 = DEV_FP8_HYBRID}};
    (void)state;
    for (int round = 0; round < 20; round++) {
        for (uint64_t i = 0; i < OUT * IN; i++) {
            uint64_t at = (uint64_t)round * OUT * IN + i;
            w[i] = ldexpf(rng_normal(1, RNG_TEST, at), -(int)(i % 20));
            x[i % (ROWS * IN)] = ldexpf(rng_normal(2, RNG_TEST, at), round * 3 - (int)(i % 15));
            dy[i % (ROWS * OUT)] = ldexpf(rng_normal(3, RNG_TEST, at), -5 * round - (int)(i % 30));
        }
        form_read(fx, x, ROWS * IN, false), form_read(fw, w, OUT * IN, false),
            form_read(fy, dy, ROWS * OUT, true);
        assert_int_equal(dev_open(&d, &o), ERR_OK);
        assert_int_equal(dev_alloc(d, (void **)&y, sizeof(float) * ROWS * OUT), ERR_OK);
        assert_int_equal(dev_alloc(d, (void **)&dx, sizeof x), ERR_OK);
        assert_int_equal(dev_alloc(d, (void **)&dw, sizeof w), ERR_OK);
        const struct dev_linear a = {.x = x, .w = w, .T = ROWS, .K = IN, .N = OUT};
        d->ops->linear_fwd(d, y, &a);
        d->ops->linear_bwd(d, &a, &(struct dev_linear_grad){.dy = dy, .dx = dx, .dw = dw});
        assert_int_equal(dev_sync(d), ERR_OK);
        for (size_t i = 0; i < ROWS * OUT; i++) {
            double sum = 0, size = 0;
            for (size_t k = 0; k < IN; k++) {
                double term = fx[i / OUT * IN + k] * fw[i % OUT * IN + k];
                sum += term, size += fabs(term);
            }
            assert_true(fabs((double)y[i] - sum) <= 1e-6 * size);
        }
        for (size_t i = 0; i < ROWS * IN; i++) {
            double sum = 0, size = 0;
            for (size_t n = 0; n < OUT; n++) {
                double term = fy[i / IN * OUT + n] * fw[n * IN + i % IN];
                sum += term, size += fabs(term);
            }
            assert_true(fabs((double)dx[i] - sum) <= 1e-6 * size);
        }
        for (size_t i = 0; i < OUT * IN; i++) {
            double sum = 0, size = 0;
            for (size_t t = 0; t < ROWS; t++) {
                double term = fy[t * OUT + i / IN] * fx[t * IN + i % IN];
                sum += term, size += fabs(term);
            }
            assert_true(fabs((double)dw[i] - sum) <= 1e-6 * size);
        }
        dev_free(d, y);
        dev_free(d, dx);
        dev_free(d, dw);
        dev_close(d);
    }
}

static int print_figures(void)
{
    double worst = 0;
    for (size_t i = 0; i < DRAWN; i++)
        worst = fmax(worst, bias_in_sigmas(drawn[i], e5m2, 1000000));
    printf("{\"ones_plain\": %g, \"ones_chunks\": %g, \"sigmas\": %.3f",
           (double)sum_of_ones(plain(fp16)), (double)sum_of_ones(chunks(fp16, fp16)), worst);
    for (size_t i = 0; i < FIGURES; i++)
        printf(", \"%s\": %.3f", figures[i].name, figure_now(&figures[i], 400));
    printf("}\n");
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_as_hardware_does),
        cmocka_unit_test(finite_codes_stay),
        cmocka_unit_test(stochastic_rounding_has_no_bias),
        cmocka_unit_test(ones_are_lost_without_chunks),
        cmocka_unit_test(chunks_save_bits),
        cmocka_unit_test(the_device_emulates),
        cmocka_unit_test(fp8_operands),
        cmocka_unit_test(hybrid_operands),
    };
    if (argc == 2 && !strcmp(argv[1], "figures"))
        return print_figures();
    return cmocka_run_group_tests_name("narrow", tests, NULL, NULL);
}
