/* What breaks if this fails: the report. It would count an exchange or a refused start twice, call
 * an outage sending, clip what it should show, or need directories that nobody has.
 */
#include "outer/report/report.h"
#include "outer/report/report_table.h"
#include "tests/outer/report/place.h"

static enum err read_one(struct place *p, struct report_run **run, size_t *count)
{
    const char *const dirs[] = {p->dir};
    return report_data_read(run, count, dirs, 1, &p->arena);
}

/* After a restart steps and rounds repeat: the later line counts, an exchange that was only
 * replayed does not. */
static void replay_counts_once(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    size_t count;
    place_append(p, "{\"kind\":\"start\",\"t\":10,\"site\":\"a\",\"aggregator\":\"h:1\",\"step\":0,"
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
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    assert_int_equal(run->series[REPORT_LOSS].count, 4);
    assert_true(run->series[REPORT_LOSS].y[1] == 4 && run->series[REPORT_LOSS].y[2] == 3 &&
                run->series[REPORT_LOSS].y[3] == 2);
    assert_int_equal(run->round_count, 2);
    assert_true(run->rounds[0].up == 100 && run->rounds[1].up == 50);
    assert_int_equal(run->starts, 2);
    assert_int_equal(run->role, REPORT_SITE);
    assert_string_equal(run->name, "site a");
}

static void page_stands_alone(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    size_t count;
    uint8_t *page;
    size_t size;
    place_append(
        p,
        "{\"kind\":\"start\",\"t\":10,\"run\":\"<script>x</"
        "script>\",\"site\":\"a\",\"aggregator\":\"h:1\",\"config\":"
        "\"a: <b>\",\"step\":0,\"steps\":2}\n{\"kind\":\"step\",\"t\":11,\"step\":1,\"loss\":5}\n"
        "{\"kind\":\"step\",\"t\":12,\"step\":2,\"loss\":null}\n{\"kind\":\"eval\",\"t\":12,"
        "\"step\":2,\"loss\":4.25}\n");
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    assert_int_equal(report_write(p->page, run, count, NULL, &p->arena), ERR_OK);
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

/* The outer metrics: drawn where the record has some, gaps where it has null, and no
 * section for a record from before there were any. */
static void outer_metrics_are_drawn(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    size_t count;
    uint8_t *page;
    size_t size;
    place_append(p, "{\"kind\":\"start\",\"t\":10,\"site\":\"a\",\"aggregator\":\"h:1\",\"step\":0,"
                    "\"steps\":4}\n"
                    "{\"kind\":\"step\",\"t\":11,\"step\":1,\"loss\":5}\n"
                    "{\"kind\":\"step\",\"t\":12,\"step\":2,\"loss\":4}\n"
                    "{\"kind\":\"round\",\"t\":12,\"step\":2,\"fragment\":0,\"round\":0}\n");
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    assert_true(isnan(run->rounds[0].metrics[REPORT_RHO]));
    assert_int_equal(report_write(p->page, run, count, NULL, &p->arena), ERR_OK);
    assert_int_equal(file_read(p->page, 1 << 24, &p->arena, &page, &size), ERR_OK);
    assert_null(strstr((const char *)page, "The outer step"));
    place_append(p,
                 "{\"kind\":\"round\",\"t\":13,\"step\":4,\"fragment\":0,\"round\":1,\"gain\":2.25,"
                 "\"rho\":null,\"agreement\":-0.5,\"residual_ratio\":12.5}\n");
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    assert_true(run->rounds[1].metrics[REPORT_GAIN] == 2.25);
    assert_true(run->rounds[1].metrics[REPORT_AGREEMENT] == -0.5);
    assert_true(run->rounds[1].metrics[REPORT_RESIDUAL] == 12.5);
    assert_int_equal(report_write(p->page, run, count, NULL, &p->arena), ERR_OK);
    assert_int_equal(file_read(p->page, 1 << 24, &p->arena, &page, &size), ERR_OK);
    assert_non_null(strstr((const char *)page, "The outer step"));
    assert_non_null(strstr((const char *)page, ">Agreement<"));
    assert_null(strstr((const char *)page, ">rho<")); /* nothing to draw */
    assert_null(strstr((const char *)page, "nan"));
}

/* The counters of an emulated network, whose names are the user's; no table of what is none. */
static void an_emulated_network_is_shown(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    size_t count;
    uint8_t *page;
    size_t size;
    char path[300];
    place_append(p, "{\"kind\":\"start\",\"t\":10,\"site\":\"a\",\"step\":0,\"steps\":2}\n");
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    assert_int_equal(report_write(p->page, run, count, p->path, &p->arena), ERR_INPUT);
    assert_non_null(strstr(err_message(), "no record of an emulated network"));
    snprintf(path, sizeof path, "%s/wan.jsonl", p->dir);
    assert_int_equal(report_write(p->page, run, count, path, &p->arena), ERR_INPUT);
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
    assert_int_equal(report_write(p->page, run, count, path, &p->arena), ERR_OK);
    assert_int_equal(file_read(p->page, 1 << 24, &p->arena, &page, &size), ERR_OK);
    assert_non_null(strstr((const char *)page, "&lt;oce&gt;an, seed 7"));
    assert_non_null(strstr((const char *)page, ">a</td><td data-l=\"to\">&lt;b&gt;</td>"));
    for (int i = 1001; i <= 1009; i++) {
        char cell[32];
        snprintf(cell, sizeof cell, "\">1,%03d</td>", i - 1000);
        assert_non_null(strstr((const char *)page, cell));
    }
    assert_non_null(strstr((const char *)page, "31 packets of a were missed"));
}

static void no_record_is_said(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    size_t count;
    assert_int_equal(read_one(p, &run, &count), ERR_INPUT);
    assert_non_null(strstr(err_message(), RECORD_FILE));
    place_append(p, "nothing of ours\n");
    assert_int_equal(read_one(p, &run, &count), ERR_INPUT);
}

static size_t count_of(const char *text, const char *words)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, words)) != NULL; p += strlen(words))
        n++;
    return n;
}

/* A start that is refused is no training: neither its time nor its configuration's. */
static void a_refused_start_is_no_wall_time(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    size_t count;
    place_append(p,
                 "{\"kind\":\"start\",\"t\":100,\"site\":\"a\",\"aggregator\":\"h:1\",\"step\":0}\n"
                 "{\"kind\":\"eval\",\"t\":101,\"step\":0,\"loss\":5.5}\n"
                 "{\"kind\":\"step\",\"t\":102,\"step\":1,\"loss\":5}\n"
                 "{\"kind\":\"step\",\"t\":128,\"step\":2,\"loss\":4}\n"
                 "{\"kind\":\"eval\",\"t\":129,\"step\":2,\"loss\":4.5}\n"
                 "{\"kind\":\"start\",\"t\":164,\"site\":\"a\",\"aggregator\":\"h:1\",\"step\":2}\n"
                 "{\"kind\":\"stop\",\"t\":164,\"step\":2,\"reason\":\"mismatch\"}\n");
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    assert_true(run->first_t == 100 && run->last_t == 129);
}

/* Two evaluations are a line from the first to the last, both inside the axes. */
static void two_evaluations_are_not_clipped(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    uint8_t *page;
    size_t size, count;
    place_append(p,
                 "{\"kind\":\"start\",\"t\":10,\"site\":\"a\",\"aggregator\":\"h:1\",\"step\":0}\n"
                 "{\"kind\":\"eval\",\"t\":10,\"step\":0,\"loss\":5.6}\n"
                 "{\"kind\":\"step\",\"t\":11,\"step\":1,\"loss\":5}\n"
                 "{\"kind\":\"eval\",\"t\":12,\"step\":100,\"loss\":2.9}\n");
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    assert_int_equal(report_write(p->page, run, count, NULL, &p->arena), ERR_OK);
    assert_int_equal(file_read(p->page, 1 << 24, &p->arena, &page, &size), ERR_OK);
    const char *plot = strstr((const char *)page, "<title>Eval loss by step");
    assert_non_null(plot);
    for (int i = 0; i < 2; i++) { /* points lie below the top margin and above the bottom one */
        plot = strstr(plot, " cy=\"");
        double y = plot ? strtod(plot + 5, NULL) : -1;
        assert_true(y >= 26 && y <= 300 - 38);
        plot += 5;
    }
}

/* While the aggregator was away the site did not send. */
static void an_outage_is_no_sending(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    size_t count;
    place_append(
        p, "{\"kind\":\"start\",\"t\":10,\"site\":\"a\",\"aggregator\":\"h:1\",\"step\":0}\n"
           "{\"kind\":\"step\",\"t\":11,\"step\":1,\"loss\":5}\n"
           "{\"kind\":\"notice\",\"t\":12,\"text\":\"aggregator unreachable for 0 s, retrying\"}\n"
           "{\"kind\":\"notice\",\"t\":42,\"text\":\"aggregator unreachable for 30 s, retrying\"}\n"
           "{\"kind\":\"notice\",\"t\":48,\"text\":\"aggregator reached again\"}\n"
           "{\"kind\":\"round\",\"t\":50,\"step\":1,\"fragment\":0,\"round\":0,\"send_ms\":30500,"
           "\"wait_ms\":7000,\"compute_ms\":1000,\"exposed_ms\":37500}\n"
           "{\"kind\":\"round\",\"t\":60,\"step\":2,\"fragment\":0,\"round\":1,\"send_ms\":500,"
           "\"wait_ms\":300,\"compute_ms\":1000,\"exposed_ms\":800}\n");
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    const double *ms = run->rounds[0].ms;
    assert_true(ms[REPORT_OUTAGE] == 36000 && ms[REPORT_SEND] == 0 && ms[REPORT_WAIT] == 1500);
    ms = run->rounds[1].ms;
    assert_true(ms[REPORT_OUTAGE] == 0 && ms[REPORT_SEND] == 500);
    struct report_cost c = report_cost(run);
    assert_true(c.share[REPORT_COMPUTING] == report_compute_share(run));
    assert_true(fabs(c.share[REPORT_WAITING] - 37800.0 / 50000) < 1e-9); /* from t = 10 to 60 */
    assert_true(fabs(c.step_s - 1) < 1e-9 && c.hidden_s == 0);
}

static const char aggregator_record[] =
    "{\"kind\":\"start\",\"t\":10,\"run\":\"r\",\"role\":\"aggregator\",\"aggregators\":1,"
    "\"sites\":2,\"site_names\":\"a,b\",\"steps\":40}\n"
    "{\"kind\":\"round\",\"t\":12,\"fragment\":0,\"round\":0,\"included\":2,\"sites\":2,"
    "\"waited_ms\":1500,\"up\":200,\"down\":300,\"momentum_norm\":2.5}\n"
    "{\"kind\":\"site\",\"t\":12,\"site\":\"a\",\"fragment\":0,\"round\":0,\"step\":20,"
    "\"loss\":3.5,\"tokens\":40,\"up_total\":100,\"down_total\":300}\n"
    "{\"kind\":\"site\",\"t\":13,\"site\":\"b\",\"fragment\":0,\"round\":0,\"step\":20,"
    "\"loss\":3.25,\"tokens\":40,\"up_total\":100,\"down_total\":300}\n"
    "{\"kind\":\"round\",\"t\":20,\"fragment\":0,\"round\":1,\"included\":1,\"sites\":2,"
    "\"waited_ms\":5000,\"up\":60,\"down\":70,\"momentum_norm\":2.75}\n"
    "{\"kind\":\"site\",\"t\":21,\"site\":\"b\",\"fragment\":0,\"round\":1,\"step\":40,"
    "\"loss\":3,\"tokens\":80,\"up_total\":160,\"down_total\":370}\n";

/* The aggregator's directory alone is a report of all sites; a site's own directory comes first. */
static void the_aggregator_alone_shows_its_sites(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    uint8_t *page;
    size_t size, count;
    place_append(p, aggregator_record);
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    assert_int_equal(count, 3);
    assert_int_equal(run[0].role, REPORT_AGGREGATOR);
    assert_int_equal(run[0].round_count, 2);
    assert_true(run[0].rounds[1].waited_ms == 5000);
    assert_string_equal(run[2].name, "site b");
    assert_int_equal(run[2].role, REPORT_SEEN);
    assert_true(run[2].rounds[1].up == 60 && run[2].rounds[1].down == 70);
    assert_true(report_last(&run[2].series[REPORT_LOSS]) == 3);
    assert_true(report_last(&run[2].series[REPORT_BYTES_UP]) == 160);
    assert_int_equal(report_write(p->page, run, count, NULL, &p->arena), ERR_OK);
    assert_int_equal(file_read(p->page, 1 << 24, &p->arena, &page, &size), ERR_OK);
    assert_non_null(strstr((const char *)page, "round 1: 5.0 s, 1 of 2 sites"));
    assert_null(strstr((const char *)page, "nan"));

    char dir[96], path[128];
    snprintf(dir, sizeof dir, "%s/b", p->dir);
    snprintf(path, sizeof path, "%s/b/%s", p->dir, RECORD_FILE);
    assert_int_equal(file_mkdirs(dir), ERR_OK);
    FILE *f = fopen(path, "w");
    fputs("{\"kind\":\"start\",\"t\":10,\"site\":\"b\",\"aggregator\":\"h:1\",\"step\":0}\n"
          "{\"kind\":\"step\",\"t\":11,\"step\":1,\"loss\":7}\n",
          f);
    fclose(f);
    const char *const dirs[] = {p->dir, dir}; /* in any order */
    assert_int_equal(report_data_read(&run, &count, dirs, 2, &p->arena), ERR_OK);
    assert_int_equal(count, 3);
    assert_string_equal(run[0].name, "site b");
    assert_int_equal(run[0].role, REPORT_SITE);
    assert_int_equal(run[0].series[REPORT_LOSS].count, 1);
    assert_string_equal(run[2].name, "site a");
}

/* A full-precision round among hundreds has a bar of its own, and its own height. */
static void full_precision_rounds_are_seen(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    uint8_t *page;
    size_t size, count;
    place_append(
        p, "{\"kind\":\"start\",\"t\":10,\"site\":\"a\",\"aggregator\":\"h:1\",\"step\":0}\n");
    for (int i = 0; i < 400; i++) {
        char line[256];
        int bytes = i == 0 || i == 123 ? 1685000 : 851000;
        snprintf(line, sizeof line,
                 "{\"kind\":\"round\",\"t\":%d,\"step\":%d,\"fragment\":0,\"round\":%d,\"up\":%d,"
                 "\"up_predicted\":%d,\"down\":%d,\"down_predicted\":%d}\n",
                 11 + i, i + 1, i, bytes, bytes, bytes, bytes);
        place_append(p, line);
    }
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    assert_int_equal(report_write(p->page, run, count, NULL, &p->arena), ERR_OK);
    assert_int_equal(file_read(p->page, 1 << 24, &p->arena, &page, &size), ERR_OK);
    assert_non_null(strstr((const char *)page, "round 123: up 1,685,000 B counted"));
    assert_non_null(strstr((const char *)page, "round 0: up 1,685,000 B counted"));
    assert_non_null(strstr((const char *)page, "rounds 1 to 3: up 851,000 B counted"));
    size_t bars = count_of((const char *)page, ": up ");
    assert_true(bars > 100 && bars < 200);
}

static void digits_have_separators(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},           {999, "999"},
                 {1000, "1,000"},    {-1234567, "-1,234,567"},
                 {12345, "12,345"},  {1e12, "1,000,000,000,000"},
                 {100000, "100,000"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[32];
        assert_string_equal(table_digits(out, cases[i].value), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(replay_counts_once, place_open, place_close),
        cmocka_unit_test_setup_teardown(page_stands_alone, place_open, place_close),
        cmocka_unit_test_setup_teardown(outer_metrics_are_drawn, place_open, place_close),
        cmocka_unit_test_setup_teardown(an_emulated_network_is_shown, place_open, place_close),
        cmocka_unit_test_setup_teardown(no_record_is_said, place_open, place_close),
        cmocka_unit_test_setup_teardown(a_refused_start_is_no_wall_time, place_open, place_close),
        cmocka_unit_test_setup_teardown(two_evaluations_are_not_clipped, place_open, place_close),
        cmocka_unit_test_setup_teardown(an_outage_is_no_sending, place_open, place_close),
        cmocka_unit_test_setup_teardown(the_aggregator_alone_shows_its_sites, place_open,
                                        place_close),
        cmocka_unit_test_setup_teardown(full_precision_rounds_are_seen, place_open, place_close),
        cmocka_unit_test_setup_teardown(digits_have_separators, place_open, place_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
