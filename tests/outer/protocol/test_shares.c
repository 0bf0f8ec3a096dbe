/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if shares are wrong: a site's spike turns the outer step, or an honest site counts
 * nothing. EDiT's penalty (2412.07210) against the formulas in float64, round by round.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <cmocka.h>
#include "kernels/base/rng.h"
#include "outer/protocol/shares.h"

enum { SITES = 3, ELEMENTS = 1 << 20, WARMUP = 10 };
static const struct shares_edit settings = {ELEMENTS, WARMUP};

static struct manifest round_of(uint64_t round, const float *norms)
{
    static const float weights[SITES] = {1, 4, 0.5f};
    struct manifest m = {.round = round, .site_count = SITES};
    for (uint32_t i = 0; i < SITES; i++)
        m.sites[i] = (struct manifest_entry){.site = i,
                                             .included = true,
                                             .norm = norms[i],
                                             .weight = weights[i],
                                             .payload = {{1}},
                                             .payload_bytes = 1,
                                             .factor = 1};
    return m;
}

/* What a reader of the paper would write down. */
struct plain {
    double mean[SITES], variance[SITES];
    unsigned rounds[SITES];
};

static bool plain_round(struct plain *p, const double *length, double *share)
{
    bool out[SITES];
    unsigned left = 0;
    double sum = 0;
    for (unsigned i = 0; i < SITES; i++) {
        out[i] = p->rounds[i] >= WARMUP && (length[i] - p->mean[i]) / sqrt(p->variance[i]) > 3;
        left += !out[i];
        sum += out[i] ? 0 : exp(-length[i]);
    }
    for (unsigned i = 0; i < SITES; i++) {
        share[i] = out[i] ? 0 : exp(-length[i]) / sum;
        if (out[i] && left)
            continue;
        if (!p->rounds[i]++)
            p->mean[i] = length[i];
        double off = length[i] - p->mean[i];
        p->mean[i] += 0.02 * off;
        p->variance[i] = 0.98 * (p->variance[i] + 0.02 * off * off);
    }
    return left > 0;
}

/* 200 rounds of noisy norms with spikes of one, of two and of all sites. */
static void edit_is_the_papers(void **state)
{
    (void)state;
    static struct manifest m, before;
    struct plain p = {.mean = {0}};
    unsigned anomalies = 0, rolled_back = 0;
    for (uint64_t t = 0; t < 200; t++) {
        float norms[SITES];
        double length[SITES], share[SITES], sum = 0, total = 0;
        for (uint32_t i = 0; i < SITES; i++) {
            float spike = t > 20 && (t % 31 == 0 || (t % 17 == 0 && i < 2) || t % 13 == i) ? 40 : 1;
            norms[i] = 0.001f * spike * (1 + 0.1f * rng_normal(5 + i, RNG_TEST, t));
            length[i] = (double)norms[i] * 1024;
        }
        m = round_of(t, norms);
        bool some = shares_edit(&m, t ? &before : NULL, &settings);
        assert_int_equal(some, plain_round(&p, length, share));
        rolled_back += !some;
        assert_int_equal(manifest_aborted(&m), !some);
        for (uint32_t i = 0; i < SITES; i++) {
            double got = (double)m.sites[i].factor * (double)m.sites[i].weight / 5.5;
            assert_true(fabs(got - share[i]) <= 1e-4 * share[i] + 1e-12);
            assert_true(fabs((double)m.sites[i].track.mean - p.mean[i]) <= 1e-4 * p.mean[i]);
            assert_true(fabs((double)m.sites[i].track.variance - p.variance[i]) <=
                        1e-3 * p.variance[i] + 1e-9);
            assert_int_equal(m.sites[i].track.rounds, p.rounds[i]);
            anomalies += share[i] == 0;
            sum += share[i];
            total += got;
        }
        assert_true(fabs(total - sum) < 1e-5);
        before = m;
    }
    assert_in_range(anomalies, 20, 200);
    assert_in_range(rolled_back, 1, 20);
}

/* A rollback names who is dropped, and says so in bytes that a replica reads; what is kept when a
 * round is aborted for another reason. */
static void rollbacks_travel(void **state)
{
    (void)state;
    static struct manifest m, before, back;
    static uint8_t bytes[MANIFEST_BYTES_MAX];
    for (uint64_t t = 0; t < 2 * WARMUP; t++) {
        static const float off[3] = {0, 1, -1};
        float x = 0.001f + (t < WARMUP ? 2e-5f : 1e-5f) * off[t % 3];
        m = round_of(t, (const float[]){x, x, x});
        assert_true(shares_edit(&m, t ? &before : NULL, &settings));
        before = m;
    }
    m = round_of(2 * WARMUP, (const float[]){1, 1, 1});
    m.parent = (struct digest){{7}};
    m.sites[1].included = false;
    m.sites[1].reason = ROUND_LATE;
    assert_false(shares_edit(&m, &before, &settings));
    assert_true(manifest_aborted(&m) && m.scaled);
    assert_int_equal(m.sites[0].reason, ROUND_ABORTED);
    assert_true(m.sites[0].factor == 0 && m.sites[2].factor == 0);
    assert_true(m.sites[1].factor == 1 && m.sites[1].reason == ROUND_LATE);
    assert_int_equal(m.sites[1].track.rounds, 2 * WARMUP);
    assert_int_equal(m.sites[0].track.rounds, 2 * WARMUP + 1);
    size_t n = manifest_encode(&m, bytes);
    assert_true(manifest_decode(&back, bytes, n));
    assert_true(back.tracks && back.scaled && back.sites[0].factor == 0);
    assert_true(back.sites[2].track.variance == m.sites[2].track.variance);
    back.sites[0].track.rounds = 0; /* no rounds, but a mean of them */
    assert_false(manifest_decode(&back, bytes, manifest_encode(&back, bytes)));
    shares_keep(&m, &before);
    assert_int_equal(m.sites[0].track.rounds, 2 * WARMUP);
}

/* Who is louder than the median is as loud as the median. */
static void norms_are_at_most_the_median(void **state)
{
    (void)state;
    static struct manifest m;
    m = round_of(0, (const float[]){1, 3, 30});
    shares_median(&m);
    assert_true(m.scaled && m.sites[0].factor == 1 && m.sites[1].factor == 1);
    assert_true(fabsf(30 * m.sites[2].factor - 3) < 1e-6f);
    m = round_of(0, (const float[]){2, 2, 2});
    shares_median(&m);
    assert_false(m.scaled);
    m = round_of(0, (const float[]){0, 0, 5}); /* the median of those that moved */
    shares_median(&m);
    assert_false(m.scaled);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edit_is_the_papers),
        cmocka_unit_test(rollbacks_travel),
        cmocka_unit_test(norms_are_at_most_the_median),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
