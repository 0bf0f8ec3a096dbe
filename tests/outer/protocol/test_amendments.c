/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: replicas of one run disagree about the settings of a round, or a
 * manifest with amendments does not survive its encoding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "outer/protocol/manifest.h"

static struct amendment one_of(const char *text, uint64_t round)
{
    struct amendment one = {.round = round, .by = digest_of("op", 2)};
    snprintf(one.text, sizeof one.text, "%s", text);
    return one;
}

static struct manifest manifest_of(unsigned count)
{
    struct manifest m = {
        .run = "test", .round = 3, .parent = digest_of("p", 1), .roster_version = 1};
    m.sites[m.site_count++] = (struct manifest_entry){.site = 0, .reason = ROUND_ABORTED};
    for (unsigned i = 0; i < count; i++) {
        char text[64];
        snprintf(text, sizeof text, "outer.every=%u", 10 + i);
        struct amendment one = one_of(text, 4 + i / 2);
        amendments_add(&m.amendments, &one);
    }
    return m;
}

static void texts(void **state)
{
    (void)state;
    static const char *const good[] = {"outer.every=200", "data.train=[{glob: a-*.bin, weight: 2}]",
                                       "a.b=c=d"};
    static const char *const bad[] = {
        "",        "outer.sync_every", "outer.every=", "=3",
        "every=3", ".every=3",         "outer.=3",     "Outer.every=3",
        "a.b=\n",  "outer .every=3",   "a.b=\xff"};
    char longest[AMENDMENT_TEXT_MAX + 1] = "a.b=";
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(amendments_text(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(amendments_text(bad[i]));
    memset(longest + 4, 'x', sizeof longest - 5);
    assert_false(amendments_text(longest));
    longest[AMENDMENT_TEXT_MAX - 1] = 0;
    assert_true(amendments_text(longest));
}

static void manifests_carry_them(void **state)
{
    (void)state;
    static uint8_t bytes[MANIFEST_BYTES_MAX], again[MANIFEST_BYTES_MAX];
    static struct manifest m, back;
    for (unsigned count = 0; count <= AMENDMENTS_MAX; count += count < 3 ? 1 : 61) {
        m = manifest_of(count);
        size_t n = manifest_encode(&m, bytes);
        assert_true(manifest_decode(&back, bytes, n));
        assert_int_equal(back.amendments.count, count);
        assert_true(amendments_agree(&m.amendments, &back.amendments));
        assert_int_equal(manifest_encode(&back, again), n);
        assert_memory_equal(bytes, again, n);
        struct digest d = manifest_digest(&m), e = manifest_digest(&back);
        assert_true(digest_equal(&d, &e));
        for (size_t cut = 1; cut < n; cut += 7)
            assert_false(manifest_decode(&back, bytes, n - cut));
    }
    m = manifest_of(0); /* nothing more than a manifest of before */
    manifest_encode(&m, bytes);
    assert_memory_equal(bytes, "atollM4", 8);
}

static void the_digest_covers_them(void **state)
{
    (void)state;
    static struct manifest m, other;
    m = manifest_of(3);
    for (int what = 0; what < 4; what++) {
        other = m;
        struct amendment *last = &other.amendments.list[2];
        if (what == 0)
            last->text[strlen(last->text) - 1] ^= 1;
        else if (what == 1)
            last->round++;
        else if (what == 2)
            last->by.bytes[31] ^= 1;
        else
            other.amendments.count--;
        struct digest d = manifest_digest(&m), e = manifest_digest(&other);
        assert_false(digest_equal(&d, &e));
        assert_int_equal(amendments_agree(&m.amendments, &other.amendments), what == 3);
    }
}

static void what_no_aggregator_writes_is_refused(void **state)
{
    (void)state;
    static uint8_t bytes[MANIFEST_BYTES_MAX];
    static struct manifest m, back;
    for (int what = 0; what < 3; what++) {
        m = manifest_of(3);
        if (what == 0)
            m.amendments.list[2].round = 1; /* before the one before it */
        else if (what == 1)
            m.amendments.list[1].by = (struct digest){{0}};
        else
            m.amendments.list[1].text[0] = ' ';
        assert_false(amendments_good(&m.amendments));
        assert_false(manifest_decode(&back, bytes, manifest_encode(&m, bytes)));
    }
}

static void in_force_for_a_round(void **state)
{
    (void)state;
    struct amendments a = {.count = 0};
    const struct amendment list[] = {one_of("outer.every=20", 5), one_of("outer.lr=0.4", 5),
                                     one_of("outer.every=30", 9)};
    for (size_t i = 0; i < 3; i++)
        amendments_add(&a, &list[i]);
    assert_int_equal(amendments_in_force(&a, 4), 0);
    assert_int_equal(amendments_in_force(&a, 5), 2);
    assert_int_equal(amendments_in_force(&a, 8), 2);
    assert_int_equal(amendments_in_force(&a, 9), 3);
    assert_int_equal(amendments_in_force(&a, UINT64_MAX), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(manifests_carry_them),
        cmocka_unit_test(the_digest_covers_them),
        cmocka_unit_test(what_no_aggregator_writes_is_refused),
        cmocka_unit_test(in_force_for_a_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
