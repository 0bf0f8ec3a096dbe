/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if the journal is wrong: a receipt that a restart forgets, a torn tail that stops a
 * restart, damage that goes unseen. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "outer/store/journal.h"
#include "tests/scratch_place.h"

static char root[64];
static struct env *env;
static struct arena arena;

struct seen {
    struct journal_record r[4096];
    size_t count;
};
static struct seen seen;

static enum err see(void *self, const struct journal_record *r)
{
    struct seen *s = self;
    assert_true(s->count < 4096);
    s->r[s->count++] = *r;
    return ERR_OK;
}

static enum err reopen(struct journal *j)
{
    seen.count = 0;
    return journal_open(j, env, "journal", see, &seen);
}

static struct journal_record record(unsigned i)
{
    struct journal_record r = {
        .kind = i % 3 == 2 ? JOURNAL_COMMIT : JOURNAL_ACCEPT, .fragment = i % 4, .round = i / 3};
    r.digest = digest_of(&i, sizeof i);
    if (r.kind == JOURNAL_ACCEPT) {
        r.site = i % 3;
        r.payload_bytes = 1000 + i;
        r.incarnation = 1ull << 40 | i;
        r.data_cursor = 5 * (uint64_t)i;
        r.weight = 1.0f / (float)(i + 1);
        r.residual_ratio = (uint8_t)(7 * i);
        r.charged = i % 2 ? 11 * (uint64_t)i : 0; /* of a site with a privacy budget */
    }
    return r;
}

static bool same(const struct journal_record *a, const struct journal_record *b)
{
    return a->kind == b->kind && a->fragment == b->fragment && a->site == b->site &&
           a->round == b->round && digest_equal(&a->digest, &b->digest) &&
           a->payload_bytes == b->payload_bytes && a->incarnation == b->incarnation &&
           a->data_cursor == b->data_cursor && a->charged == b->charged &&
           a->residual_ratio == b->residual_ratio && memcmp(&a->weight, &b->weight, 4) == 0;
}

static void see_all(unsigned from, unsigned count)
{
    assert_int_equal(seen.count, count);
    for (unsigned i = 0; i < count; i++) {
        struct journal_record r = record(from + i);
        assert_true(same(&seen.r[i], &r));
    }
}

static void fill(struct journal *j, unsigned from, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct journal_record r = record(from + i);
        assert_int_equal(journal_append(j, &r), ERR_OK);
    }
}

static uint8_t *bytes(size_t *n)
{
    uint8_t *data;
    arena_reset(&arena);
    assert_int_equal(env->ops->read(env, "journal", 1 << 20, &arena, &data, n), ERR_OK);
    return data;
}

/* As a crash leaves it; not durable, it is read again at once. */
static void put(const uint8_t *data, size_t n)
{
    char path[100];
    snprintf(path, sizeof path, "%s/journal", root);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static int fresh(void **state)
{
    (void)state;
    return env->ops->remove(env, "journal") != ERR_OK;
}

static void what_was_appended_comes_back(void **state)
{
    (void)state;
    struct journal j;
    assert_int_equal(reopen(&j), ERR_OK);
    see_all(0, 0);
    fill(&j, 0, 10);
    assert_int_equal(reopen(&j), ERR_OK);
    see_all(0, 10);
    fill(&j, 10, 5);
    assert_int_equal(reopen(&j), ERR_OK);
    see_all(0, 15);
    assert_int_equal(j.cut_bytes, 0);
}

/* A crash may leave any prefix of the last record: cut, and the journal continues after the one
 * before. */
static void any_torn_tail_is_cut(void **state)
{
    (void)state;
    struct journal j;
    assert_int_equal(reopen(&j), ERR_OK);
    fill(&j, 0, 3);
    size_t before = (size_t)j.size_bytes, n;
    fill(&j, 3, 1);
    uint8_t *data = bytes(&n), copy[2048];
    assert_true(n < sizeof copy);
    memcpy(copy, data, n);
    for (size_t keep = before; keep < n; keep++) {
        put(copy, keep);
        assert_int_equal(reopen(&j), ERR_OK);
        see_all(0, 3);
        assert_int_equal(j.cut_bytes, keep - before);
        fill(&j, 3, 2);
        assert_int_equal(reopen(&j), ERR_OK);
        see_all(0, 5);
    }
    /* the length was there before the bytes were */
    memset(copy + before, 0, n - before);
    put(copy, n);
    assert_int_equal(reopen(&j), ERR_OK);
    see_all(0, 3);
    assert_int_equal(j.cut_bytes, n - before);
}

/* Every byte of every record but the last: one flipped bit is found, and never taken for a torn
 * tail. */
static void damage_in_the_middle_halts(void **state)
{
    (void)state;
    struct journal j;
    assert_int_equal(reopen(&j), ERR_OK);
    fill(&j, 0, 4);
    size_t good = (size_t)j.size_bytes, n;
    fill(&j, 4, 2);
    uint8_t *data = bytes(&n), copy[2048];
    memcpy(copy, data, n);
    for (size_t at = 0; at < good; at++) {
        copy[at] ^= 16;
        put(copy, n);
        if (reopen(&j) != ERR_CORRUPT)
            fail_msg("byte %zu", at);
        copy[at] ^= 16;
    }
    assert_non_null(strstr(err_message(), "/journal: record 5 at byte"));
}

static void records_of_another_journal_are_refused(void **state)
{
    (void)state;
    struct journal j;
    size_t n;
    assert_int_equal(reopen(&j), ERR_OK);
    fill(&j, 0, 4);
    uint8_t *data = bytes(&n), copy[2048];
    memcpy(copy, data, n);
    memcpy(copy + n, data, n); /* a repetition: valid records, wrong place in the chain */
    put(copy, 2 * n);
    assert_int_equal(reopen(&j), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "does not follow"));
}

static void a_rewrite_keeps_chain_and_bound(void **state)
{
    (void)state;
    struct journal j;
    assert_int_equal(reopen(&j), ERR_OK);
    fill(&j, 0, 20);
    uint64_t sequence = j.sequence, before = j.size_bytes;
    struct journal_record keep[2] = {record(18), record(19)};
    assert_int_equal(journal_rewrite(&j, keep, 2), ERR_OK);
    assert_int_equal(j.sequence, sequence + 3); /* and its head */
    assert_true(j.size_bytes < before / 5);
    fill(&j, 20, 3);
    assert_int_equal(reopen(&j), ERR_OK);
    see_all(18, 5);
    assert_int_equal(j.sequence, sequence + 6);
    assert_int_equal(journal_rewrite(&j, NULL, 0), ERR_OK);
    fill(&j, 0, 1);
    assert_int_equal(reopen(&j), ERR_OK);
    see_all(0, 1);
}

/* Nothing of what was written at once can be torn: damage in a rewritten journal's only record is
 * damage, not an empty journal. */
static void a_damaged_rewrite_halts(void **state)
{
    (void)state;
    struct journal j;
    size_t n;
    assert_int_equal(reopen(&j), ERR_OK);
    fill(&j, 0, 20);
    struct journal_record keep = record(18);
    assert_int_equal(journal_rewrite(&j, &keep, 1), ERR_OK);
    uint8_t *data = bytes(&n), copy[2048];
    memcpy(copy, data, n);
    for (size_t at = 0; at < n; at++) {
        copy[at] ^= 16;
        put(copy, n);
        if (reopen(&j) != ERR_CORRUPT)
            fail_msg("byte %zu", at);
        copy[at] ^= 16;
    }
    assert_non_null(strstr(err_message(), "/journal: record 23 at byte"));
    for (size_t keep_bytes = 0; keep_bytes < n; keep_bytes++) {
        put(copy, keep_bytes);
        assert_int_equal(reopen(&j), ERR_CORRUPT);
    }
    put(copy, n);
    assert_int_equal(reopen(&j), ERR_OK);
    see_all(18, 1);
}

/* A crash tears one record: two bad ones at the end are damage. */
static void two_bad_records_are_no_torn_tail(void **state)
{
    (void)state;
    struct journal j;
    size_t n;
    assert_int_equal(reopen(&j), ERR_OK);
    fill(&j, 0, 3);
    size_t good = (size_t)j.size_bytes;
    fill(&j, 3, 2);
    uint8_t *data = bytes(&n), copy[2048];
    memcpy(copy, data, n);
    memset(copy + good, 0xa5, n - good);
    put(copy, n);
    assert_int_equal(reopen(&j), ERR_CORRUPT);
}

static void another_version_is_refused(void **state)
{
    (void)state;
    struct journal j;
    size_t n;
    assert_int_equal(reopen(&j), ERR_OK);
    size_t head = (size_t)j.size_bytes;
    fill(&j, 0, 2);
    uint8_t *data = bytes(&n), copy[2048];
    memcpy(copy, data, n);
    put(copy + head, n - head); /* version 1 had no head */
    assert_int_equal(reopen(&j), ERR_MISMATCH);
    assert_non_null(strstr(err_message(), "/journal: record 1 is missing, or the journal is of "
                                          "version 1, which this program does not read"));
    copy[49] = 3; /* a later one, intact */
    uint32_t crc = digest_crc32c(digest_crc32c(0, copy, 4), copy + 8, head - 8);
    memcpy(copy + 4, &crc, 4);
    put(copy, n);
    assert_int_equal(reopen(&j), ERR_MISMATCH);
    assert_non_null(strstr(err_message(), "version 3"));
}

/* Nothing is appended to a journal that was taken away. */
static void a_journal_that_is_gone_is_no_new_one(void **state)
{
    (void)state;
    struct journal j;
    struct journal_record r = record(1);
    assert_int_equal(reopen(&j), ERR_OK);
    assert_false(j.found);
    fill(&j, 0, 1);
    assert_int_equal(env->ops->remove(env, "journal"), ERR_OK);
    assert_int_equal(journal_append(&j, &r), ERR_IO);
    assert_false(env->ops->exists(env, "journal"));
    assert_int_equal(reopen(&j), ERR_OK);
    assert_false(j.found);
    assert_int_equal(reopen(&j), ERR_OK);
    assert_true(j.found);
}

static int open_world(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "%s/test_journal.XXXXXX", scratch_place());
    arena = arena_make(0);
    return !mkdtemp(root) || env_posix_open(&env, root) != ERR_OK;
}

static int close_world(void **state)
{
    (void)state;
    env_posix_close(env);
    arena_free(&arena);
    return file_remove_tree(root) != ERR_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_was_appended_comes_back, fresh),
        cmocka_unit_test_setup(any_torn_tail_is_cut, fresh),
        cmocka_unit_test_setup(damage_in_the_middle_halts, fresh),
        cmocka_unit_test_setup(records_of_another_journal_are_refused, fresh),
        cmocka_unit_test_setup(a_rewrite_keeps_chain_and_bound, fresh),
        cmocka_unit_test_setup(a_damaged_rewrite_halts, fresh),
        cmocka_unit_test_setup(two_bad_records_are_no_torn_tail, fresh),
        cmocka_unit_test_setup(another_version_is_refused, fresh),
        cmocka_unit_test_setup(a_journal_that_is_gone_is_no_new_one, fresh),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
