/* SPDX-License-Identifier: Apache-2.0 */
/* What of a transfer has arrived, against a byte map kept next to it; and the pace of one, in
 * virtual time. What breaks here is a contribution that is sent twice, or never, after a cut.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "outer/wire/blocks.h"
#include "outer/link/bucket.h"
#include "outer/link/pace.h"

static const uint64_t totals[] = {1,
                                  BLOCKS_UNIT - 1,
                                  BLOCKS_UNIT,
                                  BLOCKS_UNIT + 1,
                                  (uint64_t)BLOCKS_UNIT *BLOCKS_MAX,
                                  (uint64_t)BLOCKS_UNIT *BLOCKS_MAX + 1,
                                  12345678901,
                                  (uint64_t)1 << 50,
                                  UINT64_MAX / 2};

/* Every byte in exactly one block, none too long, no more blocks than there may be. */
static void the_cut(void **state)
{
    (void)state;
    struct blocks b;
    blocks_make(&b, 0);
    assert_int_equal(b.count, 0);
    assert_int_equal(blocks_first(&b), 0);
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
        uint64_t end = 0;
        blocks_make(&b, totals[i]);
        assert_in_range(b.count, 1, BLOCKS_MAX);
        for (uint32_t k = 0; k < b.count; k++) {
            assert_true(blocks_start(&b, k) == end && end % BLOCKS_UNIT == 0);
            assert_true(blocks_bytes(&b, k) > 0);
            assert_int_equal(blocks_at(&b, end), k);
            assert_int_equal(blocks_at(&b, end + blocks_bytes(&b, k) - 1), k);
            end += blocks_bytes(&b, k);
        }
        assert_true(end == totals[i] && blocks_valid(&b));
        assert_true(blocks_sum(&b) == 0 && blocks_first(&b) == 0);
        blocks_fill(&b, totals[i] / 3);
        assert_true(blocks_sum(&b) == totals[i] / 3 && blocks_first(&b) == totals[i] / 3);
        blocks_fill(&b, totals[i]);
        assert_true(blocks_sum(&b) == totals[i] && blocks_first(&b) == totals[i] &&
                    blocks_valid(&b));
        b.stored[b.count - 1]++;
        assert_false(blocks_valid(&b));
        b.stored[b.count - 1]--;
        b.count++;
        assert_false(blocks_valid(&b));
    }
}

enum {
    UNIT = 65536,
    TOTAL = 5 * BLOCKS_UNIT / UNIT + 3
}; /* the model counts units of 64 KiB, all chunks are of whole ones */

/* Random chunks, in and out of order; next to it a map of units. */
static void against_a_map(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct blocks b;
        bool map[TOTAL] = {false};
        unsigned fresh = 0;
        blocks_make(&b, (uint64_t)TOTAL * UNIT);
        for (uint64_t turn = 0; turn < 400; turn++) {
            unsigned from = (unsigned)rng_below(seed, RNG_TEST, 3 * turn, TOTAL + 1);
            unsigned n = (unsigned)rng_below(seed, RNG_TEST, 3 * turn + 1, 20);
            if (rng_below(seed, RNG_TEST, 3 * turn + 2,
                          2)) /* mostly what an orderly sender would do */
                from = (unsigned)(blocks_first(&b) / UNIT);
            unsigned known = 0;
            bool inside = n && from + n <= TOTAL, follows = inside;
            for (unsigned i = from; inside && i < from + n; i++) {
                unsigned block = i / (BLOCKS_UNIT / UNIT) * (BLOCKS_UNIT / UNIT);
                known += map[i];
                follows = follows && !map[i] && (i == block || i > from || map[i - 1]);
            }
            enum blocks_fit expected = inside && known == n ? BLOCKS_KNOWN
                                       : follows            ? BLOCKS_NEW
                                                            : BLOCKS_GAP;
            enum blocks_fit fit = blocks_fits(&b, (uint64_t)from * UNIT, (uint64_t)n * UNIT);
            if (fit != expected)
                fail_msg("seed %llu turn %llu: %u units at %u: %d, not %d",
                         (unsigned long long)seed, (unsigned long long)turn, n, from, (int)fit,
                         (int)expected);
            if (fit != BLOCKS_NEW)
                continue;
            blocks_add(&b, (uint64_t)from * UNIT, (uint64_t)n * UNIT);
            memset(map + from, true, n);
            fresh += n;
            assert_int_equal(blocks_sum(&b), (uint64_t)fresh * UNIT);
            assert_true(blocks_valid(&b));
        }
        unsigned first = 0;
        while (first < TOTAL && map[first])
            first++;
        assert_int_equal(blocks_first(&b), (uint64_t)first * UNIT);
    }
}

static void past_the_end(void **state)
{
    (void)state;
    struct blocks b;
    blocks_make(&b, 100);
    assert_int_equal(blocks_fits(&b, 0, 100), BLOCKS_NEW);
    assert_int_equal(blocks_fits(&b, 0, 101), BLOCKS_GAP);
    assert_int_equal(blocks_fits(&b, 0, UINT64_MAX), BLOCKS_GAP);
    assert_int_equal(blocks_fits(&b, 1, UINT64_MAX), BLOCKS_GAP);
    assert_int_equal(blocks_fits(&b, 100, 1), BLOCKS_GAP);
    assert_int_equal(blocks_fits(&b, UINT64_MAX, 1), BLOCKS_GAP);
    assert_int_equal(blocks_fits(&b, 0, 0), BLOCKS_GAP);
}

/* 1 Mbit/s for a minute in chunks of the size that the pace asks for, with a pause of 10 s that
 * earns nothing. */
static void pace_keeps_to_its_rate(void **state)
{
    (void)state;
    struct pace p = {.bytes_per_s = 125000};
    size_t chunk = pace_chunk_bytes(&p, 1 << 20);
    uint64_t now_ns = 77, sent = 0, start_ns = now_ns;
    assert_int_equal(chunk, 16384);
    while (now_ns < start_ns + 60000000000) {
        if (sent > 1000000 && now_ns < start_ns + 15000000000)
            now_ns += 10000000000;
        now_ns += pace_wait_ns(&p, now_ns, chunk);
        sent += chunk;
    }
    assert_in_range(sent, 50 * 125000 - 3 * chunk, 50 * 125000 + 3 * chunk);
    p = (struct pace){0};
    assert_int_equal(pace_wait_ns(&p, 5, 1 << 30), 0);
    assert_int_equal(pace_chunk_bytes(&p, 1 << 20), 1 << 20);
    p.bytes_per_s = 4 << 20;
    assert_int_equal(pace_chunk_bytes(&p, 1 << 20), 1 << 19);
    p.bytes_per_s = 1 << 30;
    assert_int_equal(pace_chunk_bytes(&p, 1 << 20), 1 << 20);
}

/* A caller at the rate is never refused, one without a pause gets burst and rate, and after a pause
 * a burst again, no more however long the pause was. */
static void a_bucket_gives_its_rate_and_its_burst(void **state)
{
    (void)state;
    enum { PER_S = 100, BURST = 250 };
    const uint64_t s = 1000000000, each = s / PER_S;
    struct bucket b = {0};
    uint64_t now = 12345;
    unsigned n = 0;
    for (unsigned i = 0; i < 10000; i++, now += each)
        assert_true(bucket_take(&b, now, PER_S, BURST));
    for (unsigned pauses = 0; pauses < 2; pauses++) {
        now += 1000 * s;
        n = 0;
        for (unsigned i = 0; i < 1000; i++)
            n += bucket_take(&b, now, PER_S, BURST);
        assert_int_equal(n, BURST);
    }
    n = 0;
    for (unsigned ms = 0; ms < 10000; ms++)
        n += bucket_take(&b, now + ms * (s / 1000), PER_S, BURST);
    assert_in_range(n, 10 * PER_S - 1, 10 * PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cut),
        cmocka_unit_test(against_a_map),
        cmocka_unit_test(past_the_end),
        cmocka_unit_test(pace_keeps_to_its_rate),
        cmocka_unit_test(a_bucket_gives_its_rate_and_its_burst),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
