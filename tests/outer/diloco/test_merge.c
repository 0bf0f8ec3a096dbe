/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if a merge is wrong: every replica takes the same wrong step. Radial-directional
 * averaging against float64 from the paper's formula, its borders, and the weights of unequal
 * sites. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "outer/diloco/merge.h"
#include "outer/diloco/weights.h"

enum { EMBEDDING, LONG, SHORT, TENSORS, SITES = 3, COUNT = 1024, BLOCKS = COUNT / DEV_BLOCK };
static const struct tensor_range ranges[TENSORS] = {
    {0, 256, 4, 64, true}, {256, 300, 3, 100, false}, {768, 200, 200, 1, false}};
static const struct tensor_view view = {ranges, TENSORS};
static struct dev *dev;
static struct codec_work *work;
static float z[SITES][COUNT], mean[COUNT], spare[COUNT];

/* Deltas of three sites, each times its weight, as they are sent. */
static void values_make(const float *weights)
{
    memset(z, 0, sizeof z);
    for (unsigned s = 0; s < SITES; s++)
        for (unsigned t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < ranges[t].count; i++)
                z[s][ranges[t].first + i] = weights[s] * (float)(s + 1) *
                                            (0.01f * rng_normal(7, RNG_TEST, i + 1000 * t) +
                                             0.02f * rng_normal(8 + s, RNG_TEST, i + 1000 * t));
}

static const float *scaled_by; /* factors; NULL: none */
static float length_max;

static enum err merged(enum merge_kind kind, enum codec_kind codec, const float *weights,
                       unsigned sites)
{
    const struct codec *c = codec_get(codec);
    static uint8_t grid[BLOCKS], next[BLOCKS], bytes[SITES][8 * COUNT], sum[SITES * 8 * COUNT];
    struct codec_payload p[SITES];
    struct codec_call call = {.work = work, .grid = grid, .count = COUNT, .view = &view};
    struct merge_input in = {.aggregate = {.data = sum, .n = sites},
                             .weights = weights,
                             .values = spare,
                             .factors = scaled_by,
                             .length_max = length_max};
    for (unsigned s = 0; s < sites; s++) {
        p[s] = (struct codec_payload){.data = bytes[s]};
        assert_int_equal(c->encode(c, &call, bytes[s], &p[s].size_bytes, spare, z[s]), ERR_OK);
        in.aggregate.weight_sum += weights[s];
    }
    assert_int_equal(c->aggregate(c, &call, sum, &in.aggregate.size_bytes, p, sites), ERR_OK);
    return merge_apply(kind, c, &call, mean, next, &in);
}

/* Equations of 2604.21428 in float64, of one tensor. */
static void radial64(double *out, const struct tensor_range *r, const float *weights)
{
    double length = 0, sum = 0, own = 0;
    memset(out, 0, r->count * sizeof *out);
    for (unsigned s = 0; s < SITES; s++) {
        double w = (double)weights[s], squares = 0;
        for (size_t i = 0; i < r->count; i++)
            squares += pow((double)z[s][r->first + i] / w, 2);
        length += w * sqrt(squares);
        sum += w;
        for (size_t i = 0; i < r->count; i++)
            out[i] += w * (double)z[s][r->first + i] / w / sqrt(squares);
    }
    for (size_t i = 0; i < r->count; i++)
        own += out[i] * out[i];
    for (size_t i = 0; i < r->count; i++)
        out[i] *= length / sum / sqrt(own);
}

static void radial_is_the_papers(void **state)
{
    (void)state;
    static const float weights[SITES] = {1, 4, 0.5f};
    double want[COUNT];
    values_make(weights);
    assert_int_equal(merged(MERGE_RADIAL, CODEC_F32, weights, SITES), ERR_OK);
    for (unsigned t = LONG; t <= SHORT; t++) {
        radial64(want, &ranges[t], weights);
        for (size_t i = 0; i < ranges[t].count; i++)
            assert_true(fabs((double)mean[ranges[t].first + i] - want[i]) <=
                        1e-6 * fabs(want[i]) + 1e-8);
    }
    for (size_t i = 0; i < ranges[EMBEDDING].count; i++) { /* the mean */
        double x = ((double)z[0][i] + (double)z[1][i] + (double)z[2][i]) / 5.5;
        assert_true(fabs((double)mean[i] - x) <= 1e-6 * fabs(x) + 1e-8);
    }
    for (size_t i = ranges[LONG].first + ranges[LONG].count; i < ranges[SHORT].first; i++)
        assert_true(mean[i] == 0);
}

/* Alike: the mean. Opposed, of equal weight: no direction. One site without a delta of a tensor: it
 * shortens the step and does not turn it. */
static void borders(void **state)
{
    (void)state;
    static const float one[SITES] = {1, 1, 1};
    values_make(one);
    memcpy(z[1], z[0], sizeof z[0]);
    assert_int_equal(merged(MERGE_RADIAL, CODEC_F32, one, 2), ERR_OK);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(fabsf(mean[i] - z[0][i]) <= 1e-6f * fabsf(z[0][i]));
    for (size_t i = 0; i < COUNT; i++)
        z[1][i] = -z[0][i];
    assert_int_equal(merged(MERGE_RADIAL, CODEC_F32, one, 2), ERR_OK);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(mean[i] == 0);
    memset(z[1], 0, sizeof z[1]);
    assert_int_equal(merged(MERGE_RADIAL, CODEC_F32, one, 2), ERR_OK);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(fabsf(mean[i] - z[0][i] / 2) <= 1e-6f * fabsf(z[0][i]));
    memset(z, 0, sizeof z);
    assert_int_equal(merged(MERGE_RADIAL, CODEC_F32, one, SITES), ERR_OK);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(mean[i] == 0);
}

/* Deltas that point apart: the mean is short, the radial delta is not. */
static void radial_keeps_the_length(void **state)
{
    (void)state;
    static const float one[SITES] = {1, 1, 1};
    for (enum codec_kind k = CODEC_F32; k < CODEC_COUNT; k++) {
        const struct tensor_range *r = &ranges[LONG];
        double length[2] = {0, 0}, own = 0;
        if (codec_get(k)->summable || k == CODEC_TOPK)
            continue;
        for (unsigned kind = 0; kind < 2; kind++) {
            values_make(one);
            memcpy(z[1], z[0], sizeof z[0]); /* lengths alike */
            for (size_t i = 0; i < COUNT; i += 2)
                z[1][i] = -z[1][i]; /* at right angles, nearly */
            assert_int_equal(merged((enum merge_kind)kind, k, one, 2), ERR_OK);
            for (size_t i = 0; i < r->count; i++)
                length[kind] += pow((double)mean[r->first + i], 2);
        }
        for (size_t i = 0; i < r->count; i++)
            own += pow((double)z[0][r->first + i], 2);
        assert_true(length[MERGE_MEAN] < 0.75 * own);
        assert_true(length[MERGE_RADIAL] > 1.7 * length[MERGE_MEAN]);
        if (k != CODEC_E3M0) /* whose levels are a factor of two apart */
            assert_true(fabs(length[MERGE_RADIAL] / own - 1) < 0.1);
    }
}

/* sum(factor z) / sum(w), each product rounded once; the sum of a summable codec hides them. A
 * factor leaves a direction as it is, and shortens what it adds to the length. */
static void factors_scale_contributions(void **state)
{
    (void)state;
    static const float weights[SITES] = {1, 4, 0.5f}, factors[SITES] = {1, 0x1p-5f, 0.5f},
                       ones[SITES] = {1, 1, 1};
    static float plain[COUNT];
    double want[COUNT];
    values_make(weights);
    scaled_by = factors;
    assert_int_equal(merged(MERGE_MEAN, CODEC_INT8, weights, SITES), ERR_PROTO);
    assert_int_equal(merged(MERGE_MEAN, CODEC_F32, weights, SITES), ERR_OK);
    for (size_t i = 0; i < COUNT; i++) {
        float x = z[0][i] * factors[0] + z[1][i] * factors[1];
        assert_true(mean[i] == (x + z[2][i] * factors[2]) / 5.5f);
    }
    assert_int_equal(merged(MERGE_RADIAL, CODEC_F32, weights, SITES), ERR_OK);
    double length = 0, sum = 0;
    radial64(want, &ranges[LONG], weights);
    for (unsigned s = 0; s < SITES; s++) {
        double squares = 0;
        for (size_t i = 0; i < ranges[LONG].count; i++)
            squares += pow((double)z[s][ranges[LONG].first + i], 2);
        length += (double)factors[s] * sqrt(squares);
        sum += sqrt(squares);
    }
    for (size_t i = 0; i < ranges[LONG].count; i++)
        assert_true(fabs((double)mean[ranges[LONG].first + i] - want[i] * length / sum) <=
                    2e-6 * fabs(want[i]) + 1e-8);
    scaled_by = NULL;
    for (enum codec_kind k = CODEC_F32; k < CODEC_COUNT; k++) { /* as sent: the codec's own mean */
        if (codec_get(k)->summable)
            continue;
        assert_int_equal(merged(MERGE_MEAN, k, weights, SITES), ERR_OK);
        memcpy(plain, mean, sizeof plain);
        scaled_by = ones;
        assert_int_equal(merged(MERGE_MEAN, k, weights, SITES), ERR_OK);
        scaled_by = NULL;
        for (size_t i = 0; i < COUNT; i++)
            assert_true(mean[i] == plain[i]);
    }
}

/* The mean of an edit is no longer than it may be, and points where it pointed. */
static void the_mean_is_bounded(void **state)
{
    (void)state;
    static const float weights[SITES] = {1, 1, 1}, factors[SITES] = {1.5f, 0, 1.5f};
    double squares = 0, bounded = 0, dot = 0;
    static float plain[COUNT];
    values_make(weights);
    scaled_by = factors;
    assert_int_equal(merged(MERGE_EDIT, CODEC_F32, weights, SITES), ERR_OK);
    memcpy(plain, mean, sizeof plain);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(plain[i] == (1.5f * z[0][i] + 1.5f * z[2][i]) / 3);
    length_max = 100;
    assert_int_equal(merged(MERGE_EDIT, CODEC_F32, weights, SITES), ERR_OK);
    assert_memory_equal(mean, plain, sizeof mean);
    length_max = 0.25f;
    assert_int_equal(merged(MERGE_EDIT, CODEC_F32, weights, SITES), ERR_OK);
    scaled_by = NULL;
    length_max = 0;
    for (size_t i = 0; i < COUNT; i++) {
        squares += pow((double)plain[i], 2);
        bounded += pow((double)mean[i], 2);
        dot += (double)plain[i] * (double)mean[i];
    }
    assert_true(sqrt(squares) > 0.5);
    assert_true(fabs(sqrt(bounded) - 0.25) < 1e-6);
    assert_true(dot / sqrt(squares * bounded) > 1 - 1e-6);
}

static void weights_of_unequal_sites(void **state)
{
    (void)state;
    const struct weights_round late = {.share = 3, .steps = 75, .length = 50},
                               full = {.share = 1, .steps = 50, .length = 50};
    assert_true(weights_of(WEIGHTS_TOKENS, &full) == 1);
    assert_true(weights_of(WEIGHTS_TOKENS, &late) == 4.5);
    assert_true(weights_of(WEIGHTS_EQUAL, &late) == 1);
    /* tokens^2 / steps: 225^2 / 75 = 675 against 50^2 / 50 = 50 */
    assert_true(weights_of(WEIGHTS_TOKENS2_PER_STEP, &late) == 13.5);
    assert_true(weights_of(WEIGHTS_TOKENS2_PER_STEP, &full) == 1);
    assert_true(weights_max(WEIGHTS_TOKENS, 100, 50, 0) == 200);
    assert_true(weights_max(WEIGHTS_TOKENS, 100, 50, 100) == 400);
    assert_true(weights_max(WEIGHTS_EQUAL, 100, 50, 100) == 1);
    assert_true(weights_max(WEIGHTS_TOKENS2_PER_STEP, 100, 50, 100) == 40000);
    assert_true(isinf(weights_max(WEIGHTS_TOKENS, 0, 50, 0)));
    assert_true(isfinite(weights_max(WEIGHTS_TOKENS2_PER_STEP, 100, 1, 1000000000)));
}

static int open_all(void **state)
{
    (void)state;
    assert_int_equal(
        dev_open(&dev, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 2}),
        ERR_OK);
    assert_int_equal(codec_open(&work, dev), ERR_OK);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    codec_close(work);
    dev_close(dev);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(radial_is_the_papers),    cmocka_unit_test(borders),
        cmocka_unit_test(radial_keeps_the_length), cmocka_unit_test(factors_scale_contributions),
        cmocka_unit_test(the_mean_is_bounded),     cmocka_unit_test(weights_of_unequal_sites),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
