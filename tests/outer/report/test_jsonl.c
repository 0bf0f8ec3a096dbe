/* metrics.jsonl is what the live table, the report and people's plots read. Broken, it would lose
 * or invent steps after a crash, or stop the reader at a line of another version; and the report
 * would count an exchange twice.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "outer/report/jsonl.h"
#include "outer/report/report.h"

struct place {
    char dir[64], path[128], page[128];
    struct arena arena;
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    snprintf(p->dir, sizeof p->dir, "/tmp/atoll-record-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->path, sizeof p->path, "%s/%s", p->dir, RECORD_FILE);
    snprintf(p->page, sizeof p->page, "%s/report.html", p->dir);
    p->arena = arena_make(0);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    assert_int_equal(file_remove_tree(p->dir), ERR_OK);
    arena_free(&p->arena);
    free(p);
    return 0;
}

static void append(const struct place *p, const char *text)
{
    FILE *f = fopen(p->path, "a");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

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
    append(p, "{\"v\":1,\"kind\":\"step\",\"step\":1}\n{\"v\":1,\"kind\":\"st");
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

/* A reader beside the writer sees whole lines only, and the rest later. */
static void reader_follows(void **state)
{
    struct place *p = *state;
    struct jsonl_reader reader;
    struct jsonl_row row;
    append(p, "{\"kind\":\"step\",\"step\":1}\n{\"kind\":\"step\",");
    assert_true(jsonl_reader_open(&reader, p->path));
    assert_true(jsonl_next(&reader, &row));
    assert_false(jsonl_next(&reader, &row));
    append(p, "\"step\":2}\n");
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

/* After a restart steps and rounds repeat: the later line counts, an exchange that was only
 * replayed does not. */
static void replay_counts_once(void **state)
{
    struct place *p = *state;
    struct report_run run;
    append(p, "{\"kind\":\"start\",\"t\":10,\"site\":\"a\",\"aggregator\":\"h:1\",\"step\":0,"
              "\"steps\":4}\n"
              "{\"kind\":\"step\",\"t\":11,\"step\":1,\"loss\":5}\n"
              "{\"kind\":\"step\",\"t\":12,\"step\":2,\"loss\":4}\n"
              "{\"kind\":\"round\",\"t\":12,\"step\":2,\"fragment\":0,\"round\":0,\"up\":100,"
              "\"replayed\":0}\n"
              "{\"kind\":\"step\",\"t\":13,\"step\":3,\"loss\":9}\n"
              "{\"kind\":\"start\",\"t\":20,\"site\":\"a\",\"aggregator\":\"h:1\",\"step\":1,"
              "\"steps\":4}\n"
              "{\"kind\":\"step\",\"t\":21,\"step\":2,\"loss\":4}\n"
              "{\"kind\":\"round\",\"t\":21,\"step\":2,\"fragment\":0,\"round\":0,\"up\":0,"
              "\"replayed\":1}\n"
              "{\"kind\":\"step\",\"t\":22,\"step\":3,\"loss\":3}\n"
              "{\"kind\":\"step\",\"t\":23,\"step\":4,\"loss\":2}\n"
              "{\"kind\":\"round\",\"t\":23,\"step\":4,\"fragment\":0,\"round\":1,\"up\":50,"
              "\"replayed\":0}\n"
              "{\"kind\":\"of the future\",\"t\":24}\n");
    assert_int_equal(report_data_read(&run, p->dir, &p->arena), ERR_OK);
    assert_int_equal(run.loss.count, 4);
    assert_true(run.loss.y[1] == 4 && run.loss.y[2] == 3 && run.loss.y[3] == 2);
    assert_int_equal(run.round_count, 2);
    assert_true(run.rounds[0].up == 100 && run.rounds[1].up == 50);
    assert_int_equal(run.starts, 2);
    assert_false(run.alone);
    assert_string_equal(run.name, "site a");
}

static void page_stands_alone(void **state)
{
    struct place *p = *state;
    struct report_run run;
    uint8_t *page;
    size_t size;
    append(
        p,
        "{\"kind\":\"start\",\"t\":10,\"run\":\"<script>x</"
        "script>\",\"site\":\"a\",\"aggregator\":\"h:1\",\"config\":"
        "\"a: <b>\",\"step\":0,\"steps\":2}\n{\"kind\":\"step\",\"t\":11,\"step\":1,\"loss\":5}\n"
        "{\"kind\":\"step\",\"t\":12,\"step\":2,\"loss\":null}\n{\"kind\":\"eval\",\"t\":12,"
        "\"step\":2,\"loss\":4.25}\n");
    assert_int_equal(report_data_read(&run, p->dir, &p->arena), ERR_OK);
    assert_int_equal(report_write(p->page, &run, 1, NULL, &p->arena), ERR_OK);
    assert_int_equal(file_read(p->page, 1 << 24, &p->arena, &page, &size), ERR_OK);
    const char *text = (const char *)page;
    assert_null(strstr(text, "<script"));
    assert_null(strstr(text, "http"));
    assert_null(strstr(text, "nan")); /* no coordinate is not a number */
    assert_null(strstr(text, "inf\""));
    assert_non_null(strstr(text, "4.25"));
    assert_non_null(strstr(text, "&lt;script&gt;"));
    assert_non_null(strstr(text, "a: &lt;b&gt;"));
}

/* The gauges of the outer step: drawn where the record has some, gaps where it has null, and no
 * section for a record from before there were any. */
static void gauges_are_drawn(void **state)
{
    struct place *p = *state;
    struct report_run run;
    uint8_t *page;
    size_t size;
    append(p, "{\"kind\":\"start\",\"t\":10,\"site\":\"a\",\"aggregator\":\"h:1\",\"step\":0,"
              "\"steps\":4}\n"
              "{\"kind\":\"step\",\"t\":11,\"step\":1,\"loss\":5}\n"
              "{\"kind\":\"step\",\"t\":12,\"step\":2,\"loss\":4}\n"
              "{\"kind\":\"round\",\"t\":12,\"step\":2,\"fragment\":0,\"round\":0}\n");
    assert_int_equal(report_data_read(&run, p->dir, &p->arena), ERR_OK);
    assert_true(isnan(run.rounds[0].metrics[REPORT_RHO]));
    assert_int_equal(report_write(p->page, &run, 1, NULL, &p->arena), ERR_OK);
    assert_int_equal(file_read(p->page, 1 << 24, &p->arena, &page, &size), ERR_OK);
    assert_null(strstr((const char *)page, "The outer step"));
    append(p, "{\"kind\":\"round\",\"t\":13,\"step\":4,\"fragment\":0,\"round\":1,\"gain\":2.25,"
              "\"rho\":null,\"agreement\":-0.5,\"residual_ratio\":12.5}\n");
    assert_int_equal(report_data_read(&run, p->dir, &p->arena), ERR_OK);
    assert_true(run.rounds[1].metrics[REPORT_GAIN] == 2.25);
    assert_true(run.rounds[1].metrics[REPORT_AGREEMENT] == -0.5);
    assert_true(run.rounds[1].metrics[REPORT_RESIDUAL] == 12.5);
    assert_int_equal(report_write(p->page, &run, 1, NULL, &p->arena), ERR_OK);
    assert_int_equal(file_read(p->page, 1 << 24, &p->arena, &page, &size), ERR_OK);
    assert_non_null(strstr((const char *)page, "The outer step"));
    assert_non_null(strstr((const char *)page, ">agreement<"));
    assert_null(strstr((const char *)page, ">rho<")); /* nothing to draw */
    assert_null(strstr((const char *)page, "nan"));
}

/* The counters of an emulated network, whose names are the user's; no table of what is none. */
static void an_emulated_network_is_shown(void **state)
{
    struct place *p = *state;
    struct report_run run;
    uint8_t *page;
    size_t size;
    char path[300];
    append(p, "{\"kind\":\"start\",\"t\":10,\"site\":\"a\",\"step\":0,\"steps\":2}\n");
    assert_int_equal(report_data_read(&run, p->dir, &p->arena), ERR_OK);
    assert_int_equal(report_write(p->page, &run, 1, p->path, &p->arena), ERR_INPUT);
    assert_non_null(strstr(err_message(), "no record of an emulated network"));
    snprintf(path, sizeof path, "%s/wan.jsonl", p->dir);
    assert_int_equal(report_write(p->page, &run, 1, path, &p->arena), ERR_INPUT);
    assert_false(file_exists(p->page));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"kind\":\"network\",\"t\":1,\"source\":\"<oce>an\",\"seed\":7,\"relay\":0}\n"
          "{\"kind\":\"direction\",\"t\":1,\"from\":\"a\",\"to\":\"<b>\",\"packets\":1001,"
          "\"bytes\":1002,"
          "\"arrived\":1003,\"queue\":1004,\"lost\":1005,\"outage\":1006,\"twice\":1007,\"late\":"
          "1008,"
          "\"queue_peak\":1009}\n"
          "{\"kind\":\"missed\",\"t\":1,\"place\":\"a\",\"packets\":31}\n",
          f);
    fclose(f);
    assert_int_equal(report_write(p->page, &run, 1, path, &p->arena), ERR_OK);
    assert_int_equal(file_read(p->page, 1 << 24, &p->arena, &page, &size), ERR_OK);
    assert_non_null(strstr((const char *)page, "&lt;oce&gt;an, seed 7"));
    assert_non_null(strstr((const char *)page, "<tr><td>a</td><td>&lt;b&gt;</td>"));
    for (int i = 1001; i <= 1009; i++) {
        char cell[32];
        snprintf(cell, sizeof cell, "\">%d</td>", i);
        assert_non_null(strstr((const char *)page, cell));
    }
    assert_non_null(strstr((const char *)page, "31 packets of a were missed"));
}

static void no_record_is_said(void **state)
{
    struct place *p = *state;
    struct report_run run;
    assert_int_equal(report_data_read(&run, p->dir, &p->arena), ERR_INPUT);
    assert_non_null(strstr(err_message(), RECORD_FILE));
    append(p, "nothing of ours\n");
    assert_int_equal(report_data_read(&run, p->dir, &p->arena), ERR_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(values_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(torn_line_is_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(held_lines_come_together, setup, teardown),
        cmocka_unit_test_setup_teardown(reader_follows, setup, teardown),
        cmocka_unit_test(bad_lines_are_refused),
        cmocka_unit_test_setup_teardown(replay_counts_once, setup, teardown),
        cmocka_unit_test_setup_teardown(page_stands_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(gauges_are_drawn, setup, teardown),
        cmocka_unit_test_setup_teardown(an_emulated_network_is_shown, setup, teardown),
        cmocka_unit_test_setup_teardown(no_record_is_said, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
