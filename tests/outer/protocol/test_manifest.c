/* SPDX-License-Identifier: Apache-2.0 */
/* Canonical bytes of the record that commits a round. If these break, replicas chain to different
 * digests for one round, or a damaged record passes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/base/rng.h"
#include "outer/protocol/manifest.h"

static struct digest digest_made(uint8_t first)
{
    struct digest d;
    for (unsigned i = 0; i < sizeof d.bytes; i++)
        d.bytes[i] = (uint8_t)(first + i);
    return d;
}

static struct manifest example(uint32_t sites)
{
    struct manifest m = {.run = "night",
                         .config = digest_made(1),
                         .roster_version = 1,
                         .fragment = 2,
                         .round = 7,
                         .parent = digest_made(2),
                         .state_before = digest_made(3),
                         .state_after = digest_made(4),
                         .codec = 2,
                         .grid = digest_made(5),
                         .aggregate = digest_made(6),
                         .aggregate_bytes = 12345,
                         .residual_ratio = 41,
                         .site_count = sites,
                         .term = 4,
                         .instance = 99,
                         .unix_ms = 1700000000000};
    for (uint32_t i = 0; i < sites; i++)
        m.sites[i] = (struct manifest_entry){.site = i,
                                             .included = true,
                                             .payload = digest_made((uint8_t)(9 + i)),
                                             .payload_bytes = 77 + i,
                                             .weight = 1.5f,
                                             .norm = 0.25f,
                                             .data_cursor = 1000 + i,
                                             .residual_ratio = (uint8_t)((100 + i) % 255)};
    if (sites > 2)
        m.sites[1] = (struct manifest_entry){.site = 1, .reason = ROUND_LATE};
    return m;
}

/* decode(encode(m)) = m and encode(decode(b)) = b, for the smallest and the largest. */
static void test_round_trip(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 3, ROUND_SITES_MAX};
    for (size_t i = 0; i < 3; i++) {
        struct manifest m = example(counts[i]), back;
        uint8_t bytes[MANIFEST_BYTES_MAX], again[MANIFEST_BYTES_MAX];
        size_t n = manifest_encode(&m, bytes);
        assert_true(manifest_decode(&back, bytes, n));
        assert_int_equal(manifest_encode(&back, again), n);
        assert_memory_equal(bytes, again, n);
        assert_string_equal(back.run, m.run);
        assert_int_equal(back.residual_ratio, 41);
        assert_int_equal(back.sites[counts[i] - 1].data_cursor, m.sites[counts[i] - 1].data_cursor);
        assert_int_equal(back.sites[counts[i] - 1].residual_ratio, (100 + counts[i] - 1) % 255);
    }
}

/* Of sites with a privacy budget; without one the bytes are those of a manifest that has never
 * heard of it. */
static void test_charges(void **state)
{
    (void)state;
    struct manifest m = example(3), back;
    uint8_t bytes[MANIFEST_BYTES_MAX], without[MANIFEST_BYTES_MAX];
    size_t n_without = manifest_encode(&m, without);
    m.sites[1].charged = 1ull << 40;
    m.sites[2].charged = 7;
    size_t n = manifest_encode(&m, bytes);
    assert_int_equal(n, n_without + 1 + 3 * 8);
    assert_true(manifest_decode(&back, bytes, n));
    assert_true(back.sites[0].charged == 0 && back.sites[1].charged == 1ull << 40 &&
                back.sites[2].charged == 7);
    assert_true(manifest_decode(&back, without, n_without));
    assert_true(back.sites[0].charged == 0 && back.sites[1].charged == 0);
    /* The part alone, and nothing in it: another text of the same record. */
    size_t part = n - (3 * 8 + 64) - 3 * 8;
    memset(bytes + part, 0, 3 * 8);
    assert_false(manifest_decode(&back, bytes, n));
}

/* Every body byte is under the digest, no envelope byte is: a round committed again keeps its
 * digest. */
static void test_digest_covers_body_only(void **state)
{
    (void)state;
    struct manifest m = example(3), other;
    uint8_t bytes[MANIFEST_BYTES_MAX];
    size_t n = manifest_encode(&m, bytes), envelope = 3 * 8 + 64;
    struct digest d = manifest_digest(&m);
    other = m;
    other.term++;
    other.instance++;
    other.unix_ms++;
    other.signature[0] ^= 1;
    struct digest same = manifest_digest(&other);
    assert_true(digest_equal(&d, &same));
    struct digest body = digest_of(bytes, n - envelope);
    assert_true(digest_equal(&d, &body));
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 0x10;
        if (manifest_decode(&other, bytes, n)) {
            struct digest changed = manifest_digest(&other);
            assert_int_equal(digest_equal(&d, &changed), i >= n - envelope);
        }
        bytes[i] ^= 0x10;
    }
}

/* No site is included: the state stays, and there is no aggregate. */
static struct manifest aborted(uint32_t sites)
{
    struct manifest m = example(sites);
    m.state_after = m.state_before;
    m.aggregate = (struct digest){0};
    m.aggregate_bytes = 0;
    for (uint32_t i = 0; i < sites; i++) {
        m.sites[i].included = false;
        m.sites[i].reason = ROUND_ABORTED;
    }
    return m;
}

static void test_an_aborted_round(void **state)
{
    (void)state;
    struct manifest m = aborted(3), back;
    uint8_t bytes[MANIFEST_BYTES_MAX];
    size_t n = manifest_encode(&m, bytes);
    assert_true(manifest_decode(&back, bytes, n));
    assert_true(manifest_aborted(&back));
    assert_int_equal(back.sites[0].reason, ROUND_ABORTED);
    assert_true(back.sites[0].norm == 0.25f);
    m = example(3);
    assert_false(manifest_aborted(&m));
}

static void refuse(const struct manifest *m)
{
    uint8_t bytes[MANIFEST_BYTES_MAX];
    struct manifest out;
    assert_false(manifest_decode(&out, bytes, manifest_encode(m, bytes)));
    assert_int_equal(out.site_count, 0);
}

/* A rollback: of an aborted round that an operator ordered, to a state before it, which is the
 * aggregate. */
static void test_a_rollback(void **state)
{
    (void)state;
    struct manifest good = aborted(3), m, back;
    uint8_t bytes[MANIFEST_BYTES_MAX];
    good.ordered_by = digest_made(40);
    good.rolled_back = true;
    good.rolled_to = 5;
    good.state_after = good.aggregate = digest_made(50);
    good.aggregate_bytes = 99;
    size_t n = manifest_encode(&good, bytes);
    assert_true(manifest_decode(&back, bytes, n));
    assert_true(back.rolled_back && manifest_aborted(&back));
    assert_int_equal(back.rolled_to, 5);
    assert_true(digest_equal(&back.ordered_by, &good.ordered_by));
    m = good;
    m.ordered_by = (struct digest){0};
    refuse(&m);
    m = good;
    m.rolled_to = m.round;
    refuse(&m);
    m = good;
    m.rolled_back = false; /* an aggregate of an aborted round */
    refuse(&m);
    m = example(3);
    m.ordered_by = digest_made(40); /* of a round that was applied */
    refuse(&m);
}

/* Factors travel only where one of them is not 1: without, the bytes are as before there were any.
 */
static void test_factors(void **state)
{
    (void)state;
    struct manifest m = example(3), back;
    uint8_t plain[MANIFEST_BYTES_MAX], bytes[MANIFEST_BYTES_MAX];
    float factors[ROUND_SITES_MAX];
    size_t n = manifest_encode(&m, plain);
    assert_memory_equal(plain, "atollM4", 8);
    assert_false(manifest_factors(&m, factors));
    assert_true(factors[0] == 1 && factors[1] == 1);
    m.scaled = true;
    m.sites[0].factor = 1;
    m.sites[1].factor = 1; /* absent */
    m.sites[2].factor = 0x1p-7f;
    struct digest scaled = manifest_digest(&m);
    assert_int_equal(manifest_encode(&m, bytes), n + 1 + 3 * 4);
    assert_true(manifest_decode(&back, bytes, n + 1 + 3 * 4));
    struct digest again = manifest_digest(&back);
    assert_true(digest_equal(&scaled, &again));
    assert_true(manifest_factors(&back, factors));
    assert_true(factors[0] == 1 && factors[1] == 0x1p-7f);
    m.sites[2].factor = 1;
    refuse(&m); /* says nothing */
    m.sites[2].factor = -0.5f;
    refuse(&m);
    m.sites[2].factor = NAN;
    refuse(&m);
    m.sites[2].factor = 0.5f;
    m.sites[1].factor = 0.5f; /* of a site that is not there */
    refuse(&m);
    m.sites[1].factor = 1;
    m.sites[0].factor = m.sites[2].factor = 0; /* no site is left */
    refuse(&m);
}

static void test_refuses_what_makes_no_sense(void **state)
{
    (void)state;
    struct manifest m;
#define REFUSE(change)                                                                             \
    m = example(3);                                                                                \
    change;                                                                                        \
    refuse(&m)
    REFUSE(m.parent = (struct digest){0});
    REFUSE(m.round = 0);
    REFUSE(m.fragment = ROUND_FRAGMENTS_MAX);
    REFUSE(m.sites[2].site = 0);
    REFUSE(m.sites[2].site = ROUND_SITES_MAX);
    REFUSE(m.sites[0].weight = 0);
    REFUSE(m.sites[0].weight = -1);
    REFUSE(m.sites[0].weight = NAN);
    REFUSE(m.sites[0].weight = INFINITY);
    REFUSE(m.sites[0].payload = (struct digest){0});
    REFUSE(m.sites[0].payload_bytes = 0);
    REFUSE(m.sites[1].payload_bytes = 1);
    REFUSE(m.sites[0].reason = ROUND_LATE);
    REFUSE(m.sites[1].reason = ROUND_FULL);
    REFUSE(m.sites[1].weight = 1);
    REFUSE(m.sites[1].weight = -0.0f);
    REFUSE(m.sites[0].norm = NAN);
    REFUSE(m.sites[0].norm = INFINITY);
    REFUSE(m.sites[0].norm = -1);
    REFUSE(m.sites[1].norm = 1);
    REFUSE(m.aggregate_bytes = 0); /* a site is included */
    REFUSE(m.aggregate = (struct digest){0});
    m = aborted(3);
    m.aggregate_bytes = 1; /* no site is, and yet there is an aggregate */
    refuse(&m);
    m = aborted(3);
    m.aggregate = digest_made(6);
    refuse(&m);
    REFUSE(m.residual_ratio = 255);
    REFUSE(m.sites[0].residual_ratio = 255);
    REFUSE(m.sites[1].residual_ratio = 1); /* absent: it has said nothing */
#undef REFUSE
}

/* Any cut, any addition; bytes that pass encode again to the same bytes. Seed 1. */
static void test_refuses_other_lengths_and_noise(void **state)
{
    (void)state;
    struct manifest m = example(3), out;
    uint8_t bytes[MANIFEST_BYTES_MAX] = {0}, again[MANIFEST_BYTES_MAX];
    size_t n = manifest_encode(&m, bytes);
    for (size_t cut = 0; cut < n; cut++)
        assert_false(manifest_decode(&out, bytes, cut));
    assert_false(manifest_decode(&out, bytes, n + 1));
    for (uint64_t i = 0; i < 20000; i++) {
        uint8_t noisy[MANIFEST_BYTES_MAX];
        memcpy(noisy, bytes, n);
        noisy[rng_below(1, RNG_TEST, 2 * i, n)] = (uint8_t)rng_u32(1, RNG_TEST, 2 * i + 1);
        if (manifest_decode(&out, noisy, n)) {
            assert_int_equal(manifest_encode(&out, again), n);
            assert_memory_equal(noisy, again, n);
        }
    }
}

static void test_weight_and_count(void **state)
{
    (void)state;
    struct manifest m = example(3);
    assert_int_equal(manifest_included(&m), 2);
    assert_true(manifest_weight(&m) == 3.0f);
    assert_int_equal(manifest_residual_ratio(&m), 102);
    m.sites[2].included = false; /* late: its work is not in the round, nor its word on the next */
    assert_int_equal(manifest_residual_ratio(&m), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_charges),
        cmocka_unit_test(test_digest_covers_body_only),
        cmocka_unit_test(test_refuses_what_makes_no_sense),
        cmocka_unit_test(test_refuses_other_lengths_and_noise),
        cmocka_unit_test(test_weight_and_count),
        cmocka_unit_test(test_an_aborted_round),
        cmocka_unit_test(test_factors),
        cmocka_unit_test(test_a_rollback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
