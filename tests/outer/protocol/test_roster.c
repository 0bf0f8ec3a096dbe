/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: replicas of one run disagree about which sites a round has; an
 * aggregator leaves a site out, or takes one in, without an operator's act that says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "outer/protocol/roster.h"

static struct digest boss(void)
{
    return digest_of("boss", 4);
}

static struct manifest_change change_of(enum manifest_act act, uint32_t site)
{
    return (struct manifest_change){(uint8_t)act, site, boss()};
}

/* A manifest of the next round under this roster. */
static struct manifest manifest_under(const struct roster *r)
{
    struct manifest m = {.run = "test", .round = 3, .parent = digest_of("p", 1)};
    roster_put(r, &m);
    for (uint32_t i = 0; i < r->count; i++)
        if (set_has(&r->members, i))
            m.sites[m.site_count++] = (struct manifest_entry){.site = i, .reason = ROUND_ABORTED};
    for (uint32_t i = 0; i < m.added; i++)
        snprintf(m.names[i], sizeof m.names[i], "later-%u", (unsigned)i);
    return m;
}

static bool passes(const struct manifest *m)
{
    uint8_t bytes[MANIFEST_BYTES_MAX];
    struct manifest back;
    return manifest_decode(&back, bytes, manifest_encode(m, bytes));
}

/* As long as nothing was changed a manifest has the bytes that it had before there were changes. */
static void a_first_roster_adds_no_byte(void **state)
{
    (void)state;
    struct roster r;
    uint8_t bytes[MANIFEST_BYTES_MAX];
    roster_begin(&r, 3);
    struct manifest m = manifest_under(&r);
    size_t head = 8 + 2 + 4 + 32 + 4 + 4 + 8 + 3 * 32 + 4 + 2 * 32 + 8 + 1 + 4, entry = 63;
    size_t envelope = 3 * 8 + 64;
    assert_int_equal(m.roster_version, 1);
    assert_int_equal(manifest_encode(&m, bytes), head + 3 * entry + envelope);
    assert_memory_equal(bytes, "atollM4", 8);
    assert_true(roster_follows(&r, &m));
}

static void manifests_tell_the_roster(void **state)
{
    (void)state;
    struct roster r, back;
    const char *const first[] = {"a", "b"};
    roster_begin(&r, 2);
    struct manifest_change changes[] = {change_of(MANIFEST_ADD, 2), change_of(MANIFEST_REMOVE, 0),
                                        change_of(MANIFEST_ADD, 3), change_of(MANIFEST_ADD, 0)};
    for (unsigned i = 0; i < 4; i++) {
        struct roster before = r;
        uint8_t bytes[MANIFEST_BYTES_MAX], again[MANIFEST_BYTES_MAX];
        struct manifest m, read;
        roster_change(&r, &changes[i]);
        m = manifest_under(&r);
        size_t n = manifest_encode(&m, bytes);
        assert_memory_equal(bytes, "atollM5", 8);
        assert_true(manifest_decode(&read, bytes, n));
        assert_int_equal(manifest_encode(&read, again), n);
        assert_memory_equal(bytes, again, n);
        roster_of(&back, 2, &read);
        assert_memory_equal(&back.members, &r.members, sizeof r.members);
        assert_int_equal(back.version, i + 2);
        assert_int_equal(back.count, r.count);
        assert_true(roster_follows(&before, &read)); /* the first one under it */
        assert_true(roster_follows(&r, &read));      /* and the next ones */
        assert_false(roster_follows(&r, &(struct manifest){.roster_version = 1, .site_count = 2}));
        assert_string_equal(manifest_name(&read, first, 1), "b");
        assert_string_equal(manifest_name(&read, first, 2), "later-0");
        assert_int_equal(manifest_site(&read, 0) != NULL, i == 0 || i == 3);
    }
    assert_int_equal(r.count, 4); /* site 0 has its index again */
}

/* Each of these is a manifest that an honest aggregator never makes. */
static void what_no_act_says_is_refused(void **state)
{
    (void)state;
    struct roster r, two;
    roster_begin(&r, 3);
    two = r;
    struct manifest_change c = change_of(MANIFEST_REMOVE, 1);
    roster_change(&two, &c);
    struct manifest m = manifest_under(&r);
    m.site_count = 2; /* left out without a word */
    assert_false(roster_follows(&r, &m));
    m = manifest_under(&two);
    m.roster_version = 3; /* a version is skipped */
    assert_false(roster_follows(&r, &m));
    m = manifest_under(&two);
    m.sites[1].site = 1; /* the act names another site than the one that is gone */
    assert_false(roster_follows(&r, &m));
    m = manifest_under(&two);
    m.change.site = 2;
    assert_false(roster_follows(&r, &m));
    assert_false(passes(&m)); /* site 2 is said to be removed, and has an entry */
    m = manifest_under(&two);
    m.change.by = digest_of("other", 5); /* later: the version was another one's act */
    assert_false(roster_follows(&two, &m));
    m.change.by = (struct digest){0};
    assert_false(passes(&m));
    m = manifest_under(&two);
    m.change.act = 3;
    assert_false(passes(&m));
    m = manifest_under(&two);
    m.initial = 2; /* an entry after all indices */
    assert_false(passes(&m));
    c = change_of(MANIFEST_ADD, 3);
    roster_change(&two, &c);
    m = manifest_under(&two);
    assert_true(passes(&m));
    strcpy(m.names[0], "c.d");
    assert_false(passes(&m));
    strcpy(m.names[0], "");
    assert_false(passes(&m));
    c = change_of(MANIFEST_ADD, 4);
    roster_change(&two, &c);
    m = manifest_under(&two);
    strcpy(m.names[1], m.names[0]);
    assert_false(passes(&m));
}

/* The largest one there is: every index given, as many added as can be, the longest names. */
static void the_largest_manifest(void **state)
{
    (void)state;
    struct roster r;
    static struct manifest m;
    uint8_t bytes[MANIFEST_BYTES_MAX];
    roster_begin(&r, ROUND_SITES_MAX - MANIFEST_ADDED_MAX);
    for (unsigned i = r.count; i < ROUND_SITES_MAX; i++) {
        struct manifest_change c = change_of(MANIFEST_ADD, i);
        roster_change(&r, &c);
    }
    m = manifest_under(&r);
    for (unsigned i = 0; i < m.added; i++)
        snprintf(m.names[i], sizeof m.names[i], "%063u", i);
    static struct manifest back;
    assert_true(manifest_decode(&back, bytes, manifest_encode(&m, bytes)));
    assert_int_equal(back.site_count, ROUND_SITES_MAX);
    assert_string_equal(back.names[MANIFEST_ADDED_MAX - 1], m.names[MANIFEST_ADDED_MAX - 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_roster_adds_no_byte),
        cmocka_unit_test(manifests_tell_the_roster),
        cmocka_unit_test(what_no_act_says_is_refused),
        cmocka_unit_test(the_largest_manifest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
