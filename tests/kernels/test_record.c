/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if the record format is wrong: a damaged file that is believed, a file of another
 * version that is called damaged, memory taken on the word of a damaged head. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <cmocka.h>
#include <string.h>
#include "tests/fuzz/record_sample.h"

static struct arena arena;
static const char *names[] = {"theta", "", "momentum"};

static struct sample sample(void)
{
    struct sample s = {.u8 = 7,
                       .yes = true,
                       .u32 = 0x01020304,
                       .u64 = 1ull << 40,
                       .f32 = 0.5f,
                       .name = "site-a",
                       .count = 3,
                       .list = names};
    for (unsigned i = 0; i < sizeof s.digest.bytes; i++)
        s.digest.bytes[i] = (uint8_t)i;
    return s;
}

/* Sections "abc" (in two parts) and "xxxxx", in one piece of memory of the exact size. */
static uint8_t *made(size_t *size, bool digest_known)
{
    struct sample s = sample();
    struct record_form form = {"test", sample_fields, &s};
    static const struct file_part abc[] = {{"a", 1}, {"bc", 2}}, x = {"xxxxx", 5};
    struct record_section sections[] = {{.parts = abc, .part_count = 2},
                                        {.parts = &x, .part_count = 1}};
    struct file_part *parts;
    size_t count, at = 0;
    if (digest_known)
        sections[0].digest = digest_of("abc", 3);
    assert_int_equal(record_make(&form, sections, 2, &parts, &count, &arena), ERR_OK);
    for (size_t i = *size = 0; i < count; i++)
        *size += parts[i].size_bytes;
    uint8_t *data = arena_alloc(&arena, *size);
    assert_non_null(data);
    for (size_t i = 0; i < count; at += parts[i++].size_bytes)
        memcpy(data + at, parts[i].data, parts[i].size_bytes);
    return data;
}

static enum err opened(struct record *r, struct sample *s, const char *kind, const void *data,
                       size_t size)
{
    struct record_form form = {kind, sample_fields, s};
    return record_open(r, &form, "dir/file", data, size, &arena);
}

static int reset(void **state)
{
    (void)state;
    arena_free(&arena);
    arena = arena_make(0);
    return 0;
}

/* The bytes were made and digested by a program of ten lines in Python, from record.h alone. */
static void the_bytes_are_the_documented_ones(void **state)
{
    (void)state;
    char hex[65];
    size_t n, k;
    uint8_t *data = made(&n, false);
    assert_int_equal(n, 264);
    struct digest d = digest_of(data, n);
    digest_hex(&d, hex);
    assert_string_equal(hex, "1116b8c7dfb06e413a3c494191d7ce1b0c3539bb6307f1cf6cd6dcac9c716370");
    uint8_t *again = made(&k, true);
    assert_int_equal(n, k);
    assert_memory_equal(data, again, n);
}

static void what_was_written_comes_back(void **state)
{
    (void)state;
    struct record r;
    struct sample s = {0}, want = sample();
    size_t n;
    uint8_t *data = made(&n, false);
    char a[2], bc[2], short_of[4];
    const struct file_part to[] = {{a, 1}, {bc, 2}}, other = {short_of, 4};
    assert_int_equal(opened(&r, &s, "test", data, n), ERR_OK);
    assert_true(s.u8 == want.u8 && s.yes && s.u32 == want.u32 && s.u64 == want.u64);
    assert_true(s.f32 == want.f32 && digest_equal(&s.digest, &want.digest) && s.count == 3);
    assert_string_equal(s.name, "site-a");
    for (unsigned i = 0; i < 3; i++)
        assert_string_equal(s.list[i], names[i]);
    assert_int_equal(r.section_count, 2);
    assert_true(record_intact(&r, 0) && record_intact(&r, 1) && !record_intact(&r, 2));
    assert_true(record_take(&r, 0, to, 2));
    assert_true(a[0] == 'a' && bc[0] == 'b' && bc[1] == 'c');
    assert_false(record_take(&r, 0, &other, 1)); /* of another size */
    assert_false(record_take(&r, 2, &other, 1));
}

static void any_flipped_byte_is_found(void **state)
{
    (void)state;
    struct record r;
    size_t n;
    uint8_t *data = made(&n, false);
    for (size_t at = 0; at < n; at++) {
        struct sample s = {0};
        data[at] ^= 4;
        enum err e = opened(&r, &s, "test", data, n);
        bool intact = e == ERR_OK && record_intact(&r, 0) && record_intact(&r, 1);
        if (intact || (e != ERR_CORRUPT && at < n - 8) || (e != ERR_OK && at >= n - 8))
            fail_msg("byte %zu: %d", at, (int)e);
        data[at] ^= 4;
    }
    for (size_t size = 0; size < n; size++) {
        struct sample s = {0};
        uint8_t *cut = arena_alloc(&arena, size + !size);
        assert_non_null(cut);
        memcpy(cut, data, size);
        assert_int_equal(opened(&r, &s, "test", cut, size), ERR_CORRUPT);
    }
    uint8_t *longer = arena_alloc(&arena, n + 1);
    struct sample s = {0};
    assert_non_null(longer);
    memcpy(longer, data, n);
    assert_int_equal(opened(&r, &s, "test", longer, n + 1), ERR_CORRUPT);
    assert_string_equal(err_message(), "dir/file: damaged");
}

static void head_digest_right(uint8_t *data, size_t head)
{
    struct digest d = digest_of(data, head - sizeof d);
    memcpy(data + head - sizeof d, d.bytes, sizeof d);
}

/* Intact, and yet no writer's: never believed, also with a right digest. */
static void what_no_writer_writes_is_damaged(void **state)
{
    (void)state;
    enum { HEAD = 256, FIELDS = 32, BOOL_AT = FIELDS + 1, NAME_AT = FIELDS + 50 + 4 };
    static const struct {
        size_t at;
        uint8_t value;
    } cases[] = {{BOOL_AT, 2},
                 {NAME_AT + 2, 0},
                 {NAME_AT - 4, 200},
                 {NAME_AT - 1, 255},
                 {HEAD - 33, 1},
                 {12, 200},
                 {12, 1},
                 {14, 1},
                 {24, 'T'},
                 {28, 'x'},
                 {NAME_AT + 6, 255},
                 {NAME_AT + 9, 9},
                 {NAME_AT + 6, 2}};
    struct record r;
    size_t n;
    uint8_t *data = made(&n, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sample s = {0};
        uint8_t was = data[cases[i].at];
        assert_int_not_equal(was, cases[i].value);
        data[cases[i].at] = cases[i].value;
        head_digest_right(data, HEAD);
        if (opened(&r, &s, "test", data, n) != ERR_CORRUPT)
            fail_msg("case %zu", i);
        data[cases[i].at] = was;
    }
    head_digest_right(data, HEAD);
    struct sample s = {0};
    assert_int_equal(opened(&r, &s, "test", data, n), ERR_OK);
    assert_int_equal(opened(&r, &s, "current", data, n), ERR_CORRUPT); /* another kind's place */
}

static void no_fields(struct record_cursor *c, void *self)
{
    (void)c;
    (void)self;
}

/* A reader in pieces does not know the fields' size, so it looks for the table. The last bytes of
 * the two digests (0x55 of nothing, 15 of the text) with the zeros after them look like two sizes
 * whose sum is that of the file. */
static void a_digest_is_no_table(void **state)
{
    (void)state;
    enum { TEXT = 100, EMPTY_LAST = 0x55 };
    char text[TEXT + 1];
    struct digest d = {.bytes = {0}};
    for (unsigned i = 0; d.bytes[31] != TEXT - EMPTY_LAST; i++) {
        snprintf(text, sizeof text, "%0100u", i);
        d = digest_of(text, TEXT);
    }
    const struct record_form form = {"test", no_fields, NULL};
    const struct file_part parts_of[] = {{text, TEXT}, {"", 0}};
    struct record_section sections[] = {{.parts = &parts_of[0], .part_count = 1},
                                        {.parts = &parts_of[1], .part_count = 1}};
    struct file_part *parts;
    struct record r;
    size_t count, size = 0;
    assert_int_equal(record_make(&form, sections, 2, &parts, &count, &arena), ERR_OK);
    for (size_t i = 0; i < count; i++)
        size += parts[i].size_bytes;
    size_t head = record_head_bytes(parts[0].data, size);
    assert_int_equal(head, size - TEXT);
    assert_int_equal(parts[0].size_bytes, head);
    assert_true(record_head_sections(parts[0].data, head, size, &r, &arena));
    assert_int_equal(r.section_count, 2);
    assert_int_equal(r.sections[0].size_bytes, TEXT);
    assert_int_equal(r.sections[1].size_bytes, 0);
    assert_true(digest_equal(&r.sections[0].digest, &d));
}

static void another_version_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const before[] = {"atollS1", "atollO1", "atollE1",  "atollI3",
                                         "atollM3", "atollM4", "ATOLLCKP", "round 7\nmanifest 00"};
    struct record r;
    struct sample s = {0};
    size_t n;
    uint8_t *data = made(&n, false);
    data[8] = 3;
    head_digest_right(data, 256);
    assert_int_equal(opened(&r, &s, "test", data, n), ERR_MISMATCH);
    assert_non_null(strstr(err_message(), "dir/file: state of version 3; this program reads "
                                          "version 2: start a new run directory"));
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        assert_int_equal(opened(&r, &s, "test", before[i], strlen(before[i])), ERR_MISMATCH);
        assert_non_null(strstr(err_message(), "state of version 1;"));
    }
}

static void memory_is_the_callers_arena(void **state)
{
    (void)state;
    struct record r;
    struct sample s = {0};
    size_t n;
    uint8_t *data = made(&n, false);
    struct record_form form = {"test", sample_fields, &s};
    struct arena small = arena_make(64);
    assert_int_equal(record_open(&r, &form, "f", data, n, &small), ERR_MEMORY);
    arena_free(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_bytes_are_the_documented_ones, reset),
        cmocka_unit_test_setup(what_was_written_comes_back, reset),
        cmocka_unit_test_setup(any_flipped_byte_is_found, reset),
        cmocka_unit_test_setup(what_no_writer_writes_is_damaged, reset),
        cmocka_unit_test_setup(a_digest_is_no_table, reset),
        cmocka_unit_test_setup(another_version_is_refused_by_name, reset),
        cmocka_unit_test_setup(memory_is_the_callers_arena, reset),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
