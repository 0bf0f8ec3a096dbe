/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a private site adds less noise than it is charged for, correlates
 * it otherwise than the accountant has it, or adds the same noise to two sums. */
#include "tests/inner/setup.h"
#include <math.h>
#include "inner/train/noise.h"

static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

static void make_table(struct table *t)
{
    static const char *const words[] = {"--model.vocab_size",
                                        "23",
                                        "--model.layers",
                                        "2",
                                        "--model.heads",
                                        "2",
                                        "--model.d_model",
                                        "32",
                                        "--model.max_seq_len",
                                        "16",
                                        NULL};
    assert_int_equal(table_make(t, setup_settings(&arena, words), &arena), ERR_OK);
}

static void noise_has_the_scale_that_is_charged(void **state)
{
    static const uint8_t key[CHACHA_KEY_BYTES] = {9};
    struct table t;
    (void)state;
    make_table(&t);
    float *a = arena_array(&arena, t.elements, sizeof *a),
          *b = arena_array(&arena, t.elements, sizeof *b);
    struct noise_scale n = noise_scale_of(1.3, 0.7, t.parameters, 1);
    assert_true(n.sensitivity > 0.7 && n.sensitivity < 0.7 * 1.001);
    assert_true((double)n.sigma * n.grid >= 1.3 * n.sensitivity);
    assert_true((double)n.sigma * n.grid < 1.3 * n.sensitivity * (1 + 1e-6));
    assert_true(n.grid <= 1.3 * 0.7 * 0x1p-24);
    float *c = arena_array(&arena, t.elements, sizeof *c);
    noise_add(a, &t, &n, key, 1);
    noise_add(c, &t, &n, key, 3);
    assert_memory_equal(a, c, t.elements * sizeof *a);
    double one = 0, two = 0, count = (double)t.parameters, sigma = 1.3 * 0.7, inside = 0;
    for (size_t i = 0; i < t.elements; i++) {
        double z = (double)a[i] / sigma;
        one += z, two += z * z;
        inside += a[i] != 0;
    }
    assert_true(fabs(one / count) < 4 / sqrt(count));
    assert_true(fabs(two / count - 1) < 4 * sqrt(2 / count) + 3e-4);
    assert_true(inside > 0.999 * count && inside <= count); /* gaps and padding stay 0 */
    /* Another sum has other noise, down to one step of the grid in one value. */
    b[t.tensors[0].offset] = (float)n.grid;
    noise_add(b, &t, &n, key, 1);
    size_t same = 0;
    for (size_t i = 0; i < t.elements; i++)
        same += a[i] == b[i] && a[i] != 0;
    assert_true((double)same < 0.001 * count);
}

/* ---- correlated noise ---- */
enum { STEPS = 24, BANDS = 5 };

static void key_of(uint64_t step, uint8_t key[CHACHA_KEY_BYTES])
{
    memset(key, 3, CHACHA_KEY_BYTES);
    memcpy(key, &step, sizeof step);
}

static void open_chain(struct noise_chain *x, const struct table *t)
{
    assert_int_equal(noise_chain_open(x, t, BANDS, &arena), ERR_OK);
}

/* The noise of the next step alone. */
static float *step_noise(struct noise_chain *x, const struct noise_scale *n, int threads)
{
    uint8_t key[CHACHA_KEY_BYTES];
    float *slab = arena_array(&arena, x->table->elements, sizeof *slab);
    key_of(x->next, key);
    noise_chain_step(x, slab, n, key, threads);
    return slab;
}

/* (A C^-1)(A C^-1)^T of dense matrices: A sums up, C has binom(2k, k) / 4^k on diagonal k. */
static void wanted_covariance(double K[STEPS][STEPS])
{
    double C[STEPS][STEPS] = {{0}}, B[STEPS][STEPS] = {{0}};
    for (int i = 0; i < STEPS; i++)
        for (int j = 0; j <= i; j++)
            if (i - j < BANDS)
                C[i][j] = exp(lgamma(2 * (i - j) + 1) - 2 * lgamma(i - j + 1)) / pow(4, i - j);
    for (int column = 0; column < STEPS; column++) { /* of C^-1, then of its prefix sums */
        double x[STEPS], sum = 0;
        for (int i = 0; i < STEPS; i++) {
            x[i] = i == column;
            for (int j = 0; j < i; j++)
                x[i] -= C[i][j] * x[j];
            x[i] /= C[i][i];
        }
        for (int i = 0; i < STEPS; i++)
            B[i][column] = sum += x[i];
    }
    for (int i = 0; i < STEPS; i++)
        for (int j = 0; j < STEPS; j++) {
            K[i][j] = 0;
            for (int k = 0; k < STEPS; k++)
                K[i][j] += B[i][k] * B[j][k];
        }
}

/* Of the sums of the noise of the first steps, which is what the parameters have in them: each pair
 * of steps, over all parameters. */
static void sums_have_the_covariance_that_is_accounted(void **state)
{
    struct table t;
    struct noise_chain x;
    static double K[STEPS][STEPS];
    double *sums[STEPS], size, independent = 0, banded = 0;
    (void)state;
    make_table(&t);
    open_chain(&x, &t);
    struct noise_scale n = noise_scale_of(2, 0.5, t.parameters, BANDS);
    double sigma = (double)n.sigma * n.grid, column = 0, c = 1;
    for (int k = 0; k < BANDS; k++, c *= (2 * k - 1.0) / (2 * k))
        column += c * c;
    /* One participation moves the correlated sums by its column of C: z times that is the noise. */
    assert_true(sigma > 2 * 0.5 * sqrt(column) && sigma < 2 * 0.5 * sqrt(column) * 1.001);
    wanted_covariance(K);
    noise_chain_begin(&x, 0);
    size = (double)t.parameters;
    for (int step = 0; step < STEPS; step++) {
        const float *e = step_noise(&x, &n, 1);
        sums[step] = arena_array(&arena, t.elements, sizeof(double));
        for (size_t i = 0; i < t.elements; i++)
            sums[step][i] = (step ? sums[step - 1][i] : 0) + (double)e[i] / sigma;
    }
    for (int a = 0; a < STEPS; a++)
        for (int b = 0; b <= a; b++) {
            double got = 0, spread = sqrt((K[a][a] * K[b][b] + K[a][b] * K[a][b]) / size);
            for (size_t i = 0; i < t.elements; i++)
                got += sums[a][i] * sums[b][i] / size;
            if (fabs(got - K[a][b]) > 5 * spread)
                fail_msg("steps %d and %d: covariance %g, not %g +- %g", a, b, got, K[a][b],
                         spread);
        }
    for (int a = 0; a < STEPS; a++) {
        banded += K[a][a] * column / STEPS;
        independent += (a + 1.0) / STEPS;
    }
    print_message("root mean square of the sums: %.3f independent, %.3f with %d bands\n",
                  sqrt(independent), sqrt(banded), BANDS);
    assert_true(banded < independent);
}

/* After a restart: the same bits from the keys alone, with any number of threads. */
static void a_chain_is_made_again_from_its_keys(void **state)
{
    struct table t;
    struct noise_chain x, y;
    const float *first[STEPS];
    (void)state;
    make_table(&t);
    open_chain(&x, &t);
    open_chain(&y, &t);
    struct noise_scale n = noise_scale_of(1, 1, t.parameters, BANDS);
    noise_chain_begin(&x, 100);
    for (int step = 0; step < STEPS; step++)
        first[step] = step_noise(&x, &n, 1);
    for (int from = 0; from < STEPS; from += 9) {
        uint8_t key[CHACHA_KEY_BYTES];
        noise_chain_begin(&y, 100);
        for (int step = 0; step < from; step++) {
            key_of(y.next, key);
            noise_chain_step(&y, NULL, &n, key, step % 4 ? 1 : 2);
        }
        for (int step = from; step < STEPS; step++)
            assert_memory_equal(step_noise(&y, &n, 1), first[step], t.elements * sizeof(float));
    }
    /* A chain that begins later has nothing of what is before it. */
    noise_chain_begin(&y, 110);
    const float *alone = step_noise(&y, &n, 1);
    double square = 0, both = 0, other = 0, sigma = (double)n.sigma * n.grid;
    for (size_t i = 0; i < t.elements; i++) {
        square += pow((double)alone[i] / sigma, 2);
        both += (double)alone[i] * (double)first[9][i];
        other += pow((double)first[9][i], 2);
    }
    double count = (double)t.parameters;
    assert_true(fabs(square / count - 1) < 5 * sqrt(2 / count));
    assert_true(fabs(both) < 5 * sqrt(square * sigma * sigma * other / count));
}

/* Noise does not depend on the sum: what is released is the rounded sum and it. */
static void noise_is_added_to_the_rounded_sum(void **state)
{
    struct table t;
    struct noise_chain x, y;
    (void)state;
    make_table(&t);
    open_chain(&x, &t);
    open_chain(&y, &t);
    struct noise_scale n = noise_scale_of(1, 1, t.parameters, BANDS);
    for (uint64_t step = 0; step < 8; step++) {
        uint8_t key[CHACHA_KEY_BYTES];
        float *slab = arena_array(&arena, t.elements, sizeof *slab);
        setup_random(&t, slab, 0.3);
        float *sum = arena_array(&arena, t.elements, sizeof *sum);
        memcpy(sum, slab, t.elements * sizeof *sum);
        const float *e = step_noise(&x, &n, 1);
        key_of(step, key);
        noise_chain_step(&y, slab, &n, key, 1);
        for (size_t i = 0; i < t.elements; i++)
            assert_true(fabs((double)slab[i] - (double)e[i] - (double)sum[i]) <=
                        n.grid + 1e-6 * fabs((double)e[i]));
    }
}

int main(void)
{
    arena = arena_make(0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(noise_has_the_scale_that_is_charged, reset),
        cmocka_unit_test_setup(sums_have_the_covariance_that_is_accounted, reset),
        cmocka_unit_test_setup(a_chain_is_made_again_from_its_keys, reset),
        cmocka_unit_test_setup(noise_is_added_to_the_rounded_sum, reset),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
