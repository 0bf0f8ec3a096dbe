/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.jsonl is what the live table, the report and people's plots read. Broken, it would lose
 * or invent steps after a crash, or stop the reader at a line of another version.
 */
#include "tests/outer/view/place.h"

static void values_come_back(void **state)
{
    struct place *p = *state;
    struct jsonl r;
    struct jsonl_reader reader;
    struct jsonl_row row;
    assert_int_equal(jsonl_open(&r, p->path, &p->arena), ERR_OK);
    jsonl_begin(&r, "step");
    jsonl_int(&r, "step", INT64_C(-9007199254740993));
    jsonl_real(&r, "loss", 2.5);
    jsonl_real(&r, "nan", NAN);
    jsonl_text(&r, "text", "a \"quoted\"\\ line\nand\ttab {x}, [y]");
    jsonl_end(&r);
    jsonl_close(&r);
    assert_true(jsonl_reader_open(&reader, p->path));
    assert_true(jsonl_next(&reader, &row));
    assert_true(jsonl_is(&row, "step"));
    assert_string_equal(jsonl_string(&row, "step"), "-9007199254740993");
    assert_true(jsonl_number(&row, "loss") == 2.5);
    assert_true(isnan(jsonl_number(&row, "nan")));
    assert_true(isnan(jsonl_number(&row, "absent")));
    assert_string_equal(jsonl_string(&row, "text"), "a \"quoted\"\\ line\nand\ttab {x}, [y]");
    assert_true(jsonl_number(&row, "v") == RECORD_VERSION);
    assert_false(jsonl_next(&reader, &row));
    jsonl_reader_close(&reader);
}

/* A crash in the middle of a line: the next process cuts it and appends whole lines only. */
static void torn_line_is_cut(void **state)
{
    struct place *p = *state;
    struct jsonl r;
    struct jsonl_reader reader;
    struct jsonl_row row;
    place_append(p, "{\"v\":1,\"kind\":\"step\",\"step\":1}\n{\"v\":1,\"kind\":\"st");
    assert_int_equal(jsonl_open(&r, p->path, &p->arena), ERR_OK);
    jsonl_begin(&r, "step");
    jsonl_int(&r, "step", 2);
    jsonl_end(&r);
    jsonl_close(&r);
    assert_true(jsonl_reader_open(&reader, p->path));
    assert_true(jsonl_next(&reader, &row));
    assert_true(jsonl_number(&row, "step") == 1);
    assert_true(jsonl_next(&reader, &row));
    assert_true(jsonl_number(&row, "step") == 2);
    assert_false(jsonl_next(&reader, &row));
    assert_int_equal(reader.skipped, 0);
    jsonl_reader_close(&reader);
}

/* Held lines come together or not at all; one that is too long takes none of the others along. */
static void held_lines_come_together(void **state)
{
    struct place *p = *state;
    struct jsonl r;
    struct jsonl_reader reader;
    struct jsonl_row row;
    char *longer = malloc(RECORD_LINE_MAX + 1);
    memset(longer, 'x', RECORD_LINE_MAX);
    longer[RECORD_LINE_MAX] = 0;
    assert_int_equal(jsonl_open(&r, p->path, &p->arena), ERR_OK);
    jsonl_hold(&r);
    for (int i = 1; i <= 2; i++) {
        jsonl_begin(&r, "step");
        jsonl_int(&r, "step", i);
        jsonl_end(&r);
        jsonl_begin(&r, "long");
        jsonl_text(&r, "text", longer);
        jsonl_end(&r);
    }
    assert_true(jsonl_reader_open(&reader, p->path));
    assert_false(jsonl_next(&reader, &row));
    jsonl_release(&r);
    for (int i = 1; i <= 2; i++) {
        assert_true(jsonl_next(&reader, &row));
        assert_true(jsonl_number(&row, "step") == i);
    }
    assert_false(jsonl_next(&reader, &row));
    assert_int_equal(reader.skipped, 0);
    jsonl_reader_close(&reader);
    jsonl_close(&r);
    free(longer);
}

/* A reader next to the writer sees whole lines only, and the rest later. */
static void reader_follows(void **state)
{
    struct place *p = *state;
    struct jsonl_reader reader;
    struct jsonl_row row;
    place_append(p, "{\"kind\":\"step\",\"step\":1}\n{\"kind\":\"step\",");
    assert_true(jsonl_reader_open(&reader, p->path));
    assert_true(jsonl_next(&reader, &row));
    assert_false(jsonl_next(&reader, &row));
    place_append(p, "\"step\":2}\n");
    assert_true(jsonl_next(&reader, &row));
    assert_true(jsonl_number(&row, "step") == 2);
    jsonl_reader_close(&reader);
}

static void bad_lines_are_refused(void **state)
{
    (void)state;
    const char *const bad[] = {
        "",      "{",          "{\"a\"}",        "{\"a\":}",    "{\"a\":1",
        "[1]",   "{\"a\":{}}", "{\"a\":[1]}",    "{\"a\":\"b}", "{\"a\":\"\\",
        "{a:1}", "{\"a\":1,}", "{\"a\":\"\\u00", "nonsense"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char line[64];
        struct jsonl_row row;
        snprintf(line, sizeof line, "%s", bad[i]);
        assert_false(jsonl_parse(&row, line));
    }
}

/* A record may hold any number: no cast of it is undefined. */
static void numbers_of_records_are_no_casts(void **state)
{
    char when[40] = "x";
    (void)state;
    assert_int_equal(jsonl_whole(NAN), 0);
    assert_int_equal(jsonl_whole(INFINITY), 9007199254740992);
    assert_int_equal(jsonl_whole(-1e300), -9007199254740992);
    assert_int_equal(jsonl_whole(1.9), 1);
    const double none[] = {NAN, INFINITY, -INFINITY, 1e300, -1, 0, 1e11};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        jsonl_date(when, sizeof when, "%Y-%m-%d", none[i]);
        assert_string_equal(when, "");
    }
    jsonl_date(when, sizeof when, "%Y-%m-%d", 1800000000);
    assert_string_equal(when, "2027-01-15");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(values_come_back, place_open, place_close),
        cmocka_unit_test_setup_teardown(torn_line_is_cut, place_open, place_close),
        cmocka_unit_test_setup_teardown(held_lines_come_together, place_open, place_close),
        cmocka_unit_test_setup_teardown(reader_follows, place_open, place_close),
        cmocka_unit_test(numbers_of_records_are_no_casts),
        cmocka_unit_test(bad_lines_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
