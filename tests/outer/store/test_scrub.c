/* SPDX-License-Identifier: Apache-2.0 */
/* The scrub: a flipped bit anywhere in a file with a digest is found, an intact file never is; what
 * is damaged goes to the row's repair, and is an alarm where there is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "outer/protocol/manifest.h"
#include "outer/store/journal.h"
#include "outer/store/scrub.h"
#include "outer/store/store.h"

enum {
    BYTES = 70001
}; /* of a section, an aggregate, a payload; more than one piece is elsewhere */

static char root[64];
static struct env *env;
static uint8_t data[BYTES];
static char payload_path[SCRUB_PATH_MAX];
static struct scrub_file asked; /* of the last repair */
static char asked_path[SCRUB_PATH_MAX];
static unsigned repairs;
static bool mends;

static enum err visit_none(void *self, const struct journal_record *r)
{
    (void)self, (void)r;
    return ERR_OK;
}

static void whole_record(const char *path, const char *kind, size_t n)
{
    struct file_part part = {data, n};
    struct record_section sections[] = {{.parts = &part, .part_count = 1}, {.part_count = 0}};
    struct record_form form = {.kind = kind};
    assert_int_equal(store_write(env, path, &form, sections, 2), ERR_OK);
}

static void write_all(void)
{
    uint8_t bytes[MANIFEST_BYTES_MAX];
    struct file_part part = {data, BYTES};
    struct manifest m;
    struct journal j;
    char hex[65];
    manifest_clear(&m);
    m.aggregate = digest_of(data, BYTES);
    m.aggregate_bytes = BYTES;
    m.round = 6;
    m.parent = m.aggregate;
    m.roster_version = 1;
    m.site_count = 1;
    m.sites[0] = (struct manifest_entry){.included = true,
                                         .payload = m.aggregate,
                                         .payload_bytes = BYTES,
                                         .weight = 1,
                                         .norm = 1,
                                         .factor = 1,
                                         .data_cursor = 9};
    struct file_part encoded = {bytes, manifest_encode(&m, bytes)};
    struct record_section section = {.parts = &encoded, .part_count = 1};
    struct record_form form = {.kind = "manifest"};
    whole_record("frag/0/7/state", "state", BYTES);
    whole_record("empty", "begun", 0);
    assert_int_equal(store_write(env, "frag/0/7/MANIFEST", &form, &section, 1), ERR_OK);
    assert_int_equal(env->ops->write(env, "frag/0/7/aggregate", &part, 1), ERR_OK);
    digest_hex(&m.aggregate, hex);
    snprintf(payload_path, sizeof payload_path, "spool/0/7/a.%s", hex);
    assert_int_equal(env->ops->write(env, payload_path, &part, 1), ERR_OK);
    assert_int_equal(env->ops->write(env, "spool/0/7/a.part", &part, 1), ERR_OK);
    assert_int_equal(env->ops->remove(env, "journal"), ERR_OK);
    assert_int_equal(journal_open(&j, env, "journal", visit_none, NULL), ERR_OK);
    for (uint64_t i = 0; i < 9; i++) {
        struct journal_record r = {.kind = JOURNAL_COMMIT, .round = i};
        assert_int_equal(journal_append(&j, &r), ERR_OK);
    }
}

static enum err mend(void *self, const struct scrub_file *f)
{
    (void)self;
    asked = *f;
    snprintf(asked_path, sizeof asked_path, "%s", f->path);
    repairs++;
    if (!mends)
        return err_set(ERR_CORRUPT, "not in this test");
    write_all();
    return ERR_OK;
}

static const struct scrub_row rows[] = {
    {"journal", SCRUB_JOURNAL, mend, "none"},
    {"empty", SCRUB_RECORD, mend, "none"},
    {"frag/#/#/state", SCRUB_RECORD, mend, "none"},
    {"frag/#/#/MANIFEST", SCRUB_RECORD, mend, "none"},
    {"frag/#/#/aggregate", SCRUB_AGGREGATE, mend, "none"},
    {"spool/#/#/*", SCRUB_NAMED, mend, "none"},
    {"not/there/*", SCRUB_RECORD, mend, "none"},
};
static const struct scrub_options options = {
    .rows = rows, .row_count = sizeof rows / sizeof *rows, .every_ms = 1, .bytes_per_s = 1 << 20};

static struct scrub_counts scrubbed(void)
{
    struct scrub_counts c;
    repairs = 0;
    assert_int_equal(scrub_pass(env, &options, &c), ERR_OK);
    return c;
}

static void flip(const char *path, size_t bit)
{
    char full[SCRUB_PATH_MAX + 80];
    uint8_t byte;
    snprintf(full, sizeof full, "%s/%s", root, path);
    int fd = open(full, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte = (uint8_t)(byte ^ (1u << bit % 8));
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
    close(fd);
}

static size_t size_of(const char *path)
{
    struct file_map m;
    assert_int_equal(env->ops->map(env, path, &m), ERR_OK);
    size_t n = m.size_bytes;
    env->ops->unmap(env, &m);
    return n;
}

static void test_intact(void **state)
{
    (void)state;
    write_all();
    struct scrub_counts c = scrubbed();
    assert_int_equal(c.damaged, 0);
    assert_int_equal(repairs, 0);
    assert_int_equal(c.files, 7);
    assert_true(c.bytes > 3 * BYTES);
    assert_int_equal(c.passes, 1);
}

/* Every bit of the small files, and bits all over the large ones. */
static void test_each_bit(void **state)
{
    (void)state;
    write_all();
    const char *const paths[] = {
        "journal",   "empty", "frag/0/7/state", "frag/0/7/MANIFEST", "frag/0/7/aggregate",
        payload_path};
    mends = false;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        size_t bits = 8 * size_of(paths[i]), step = bits < 6000 ? 7 : bits / 61;
        for (size_t bit = 0; bit < bits; bit += step) {
            flip(paths[i], bit);
            struct scrub_counts c = scrubbed();
            if (c.damaged != 1 || c.alarms != 1 || c.repaired || strcmp(asked_path, paths[i]) != 0)
                fail_msg("%s, bit %zu: %llu damaged, %s asked for", paths[i], bit,
                         (unsigned long long)c.damaged, asked_path);
            flip(paths[i], bit);
        }
    }
    assert_int_equal(scrubbed().damaged, 0);
    assert_int_equal(asked.number[1], 7);
}

static void test_repaired(void **state)
{
    (void)state;
    write_all();
    mends = true;
    flip("frag/0/7/state", 8 * (BYTES / 2));
    struct scrub_counts c = scrubbed();
    assert_int_equal(c.damaged, 1);
    assert_int_equal(c.repaired, 1);
    assert_int_equal(c.alarms, 0);
    assert_int_equal(scrubbed().damaged, 0);
    mends = false;
}

/* A file that is cut, and one that is longer. */
static void test_length(void **state)
{
    char full[200];
    (void)state;
    write_all();
    snprintf(full, sizeof full, "%s/frag/0/7/aggregate", root);
    assert_int_equal(truncate(full, BYTES - 1), 0);
    assert_int_equal(scrubbed().damaged, 1);
    write_all();
    snprintf(full, sizeof full, "%s/frag/0/7/state", root);
    assert_int_equal(truncate(full, (off_t)size_of("frag/0/7/state") + 1), 0);
    assert_int_equal(scrubbed().damaged, 1);
    assert_int_equal(truncate(full, 5), 0);
    assert_int_equal(scrubbed().damaged, 1);
}

/* At 1 KiB/s a pass over these files takes minutes: closing does not wait for it. */
static void test_pace_and_close(void **state)
{
    struct scrub *s;
    struct scrub_counts c;
    struct scrub_options slow = options;
    (void)state;
    write_all();
    slow.bytes_per_s = 1024;
    uint64_t began = env->ops->now_ms(env);
    assert_int_equal(scrub_open(&s, env, &slow), ERR_OK);
    do {
        usleep(20000);
        scrub_counts(s, &c);
    } while (!c.bytes && env->ops->now_ms(env) - began < 20000);
    usleep(300000);
    scrub_counts(s, &c);
    scrub_close(s);
    uint64_t took = env->ops->now_ms(env) - began;
    assert_true(c.bytes > 0 && c.bytes <= BYTES + took * 1024 / 1000 + 65536);
    assert_int_equal(c.passes, 0);
    assert_true(took < 20000);
    scrub_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_intact),         cmocka_unit_test(test_each_bit),
        cmocka_unit_test(test_repaired),       cmocka_unit_test(test_length),
        cmocka_unit_test(test_pace_and_close),
    };
    snprintf(root, sizeof root, "/tmp/test_scrub.XXXXXX");
    if (!mkdtemp(root) || env_posix_open(&env, root) != ERR_OK)
        return 1;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * i + i / 256);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    env_posix_close(env);
    return file_remove_tree(root) == ERR_OK ? failed : 1;
}
