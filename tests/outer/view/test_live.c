/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this fails: what a person sees of a run that continues. It would differ from what
 * a report says afterwards, grow without an end, show the loss of a site with privacy, or count
 * lost time as work.
 */
#include "outer/record/feed.h"
#include "outer/view/live.h"
#include "outer/view/page_data.h"
#include "inner/config/json.h"
#include "tests/outer/view/place.h"

static const char record[] =
    "{\"kind\":\"start\",\"t\":100,\"run\":\"r\",\"site\":\"a\",\"aggregator\":\"h:1\","
    "\"step\":0,\"steps\":40,\"rounds\":4}\n"
    "{\"kind\":\"health\",\"t\":100,\"certificate_days\":12,\"disk_free_bytes\":5e9,"
    "\"clock_offset_s\":0.25,\"clock_error_s\":1,\"clock_aggregator_s\":-3}\n"
    "{\"kind\":\"step\",\"t\":101,\"step\":1,\"loss\":5,\"norm\":2,\"tokens\":8,"
    "\"tokens_per_second\":8,\"step_ms\":1000,\"next_sync\":10}\n"
    "{\"kind\":\"step\",\"t\":102,\"step\":2,\"loss\":4,\"norm\":1,\"tokens\":16,"
    "\"tokens_per_second\":8,\"step_ms\":1000,\"next_sync\":10}\n"
    "{\"kind\":\"notice\",\"t\":103,\"text\":\"aggregator unreachable for 1 s\"}\n"
    "{\"kind\":\"notice\",\"t\":105,\"text\":\"aggregator reached again\"}\n"
    "{\"kind\":\"round\",\"t\":107,\"step\":2,\"fragment\":0,\"round\":0,\"included\":2,"
    "\"sites\":2,\"replayed\":0,\"up\":70,\"down\":30,\"compute_ms\":2000,\"encode_ms\":500,"
    "\"store_ms\":500,\"send_ms\":3000,\"wait_ms\":1000,\"fetch_ms\":0,\"apply_ms\":0,"
    "\"exposed_ms\":5000}\n"
    "{\"kind\":\"notice\",\"t\":108,\"text\":\"waiting for b\"}\n";
static const char again[] =
    "{\"kind\":\"start\",\"t\":120,\"run\":\"r\",\"site\":\"a\",\"aggregator\":\"h:1\","
    "\"step\":1,\"steps\":40,\"rounds\":4}\n"
    "{\"kind\":\"step\",\"t\":125,\"step\":2,\"loss\":4,\"tokens\":16,\"tokens_per_second\":8,"
    "\"step_ms\":1000,\"next_sync\":10}\n"
    "{\"kind\":\"step\",\"t\":126,\"step\":3,\"loss\":3,\"tokens\":24,\"tokens_per_second\":8,"
    "\"step_ms\":1000,\"next_sync\":10}\n";

static char *text_of(struct place *p, void (*live)(FILE *, const struct report_follow *, double),
                     const struct report_follow *f, double now)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    live(out, f, now);
    assert_int_equal(fclose(out), 0);
    char *kept = arena_string(&p->arena, text, size);
    free(text);
    return kept;
}

static void follow(struct place *p, struct report_follow *f)
{
    const char **dirs = arena_array(&p->arena, 1, sizeof *dirs);
    dirs[0] = p->dir;
    report_follow_open(f, dirs, 1, &p->arena);
    assert_int_equal(report_follow_read(f), ERR_OK);
}

static double number_of(struct place *p, const char *text, const char *list, const char *key)
{
    struct json j;
    assert_int_equal(json_read(&j, "live", text, strlen(text), &p->arena), ERR_OK);
    const struct json *at = json_find(&j, list);
    assert_non_null(at);
    at = json_find(at->kind == JSON_LIST ? &at->items[0] : at, key);
    assert_non_null(at);
    return at->kind == JSON_WHOLE || at->kind == JSON_DECIMAL || at->kind == JSON_FLAG ? at->number
                                                                                       : NAN;
}

/* Byte by byte, with lines cut anywhere: the same as read at once. */
static void following_is_reading(void **state)
{
    struct place *p = *state;
    struct report_follow f, whole;
    const char *const dirs[] = {p->dir};
    char one[2] = "";
    report_follow_open(&f, dirs, 1, &p->arena);
    assert_int_equal(report_follow_read(&f), ERR_OK); /* nothing is there yet */
    assert_int_equal(f.count, 0);
    for (const char *c = record; *c; c++) {
        *one = *c;
        place_append(p, one);
        if ((c - record) % 37 == 0)
            assert_int_equal(report_follow_read(&f), ERR_OK);
    }
    assert_int_equal(report_follow_read(&f), ERR_OK);
    follow(p, &whole);
    assert_string_equal(text_of(p, page_data_live, &f, 110),
                        text_of(p, page_data_live, &whole, 110));
    assert_string_equal(text_of(p, live_metrics, &f, 110), text_of(p, live_metrics, &whole, 110));
    report_follow_close(&f);
    report_follow_close(&whole);
}

static void what_is_shown_is_what_happened(void **state)
{
    struct place *p = *state;
    struct report_follow f;
    place_append(p, record);
    follow(p, &f);
    const char *json = text_of(p, page_data_live, &f, 110),
               *prom = text_of(p, live_metrics, &f, 110);
    assert_non_null(strstr(json, "\"state\":\"waiting for b\""));
    assert_true(number_of(p, json, "sites", "state_s") == 2);
    assert_true(number_of(p, json, "sites", "up_bytes") == 70);
    assert_true(number_of(p, json, "sites", "rounds") == 1);
    assert_true(number_of(p, json, "sites", "next_sync_s") == 0); /* 8 steps of 1 s from 102 on */
    assert_true(number_of(p, json, "sites", "loss") == 4);
    assert_true(number_of(p, json, "sites", "certificate_days") == 12);
    assert_non_null(strstr(prom, "# TYPE atoll_step gauge\natoll_step{run=\"r\",site=\"a\"} 2\n"));
    assert_non_null(strstr(prom, "\natoll_training{run=\"r\",site=\"a\"} 0\n"));
    assert_non_null(strstr(prom, "\natoll_certificate_remaining_seconds{run=\"r\",site=\"a\"} "
                                 "1036800\n"));
    assert_non_null(strstr(prom, "\natoll_clock_offset_seconds{run=\"r\",site=\"a\"} -3\n"));
    assert_non_null(strstr(prom, "\natoll_clock_correction_seconds{run=\"r\",site=\"a\"} 0.25"));
    assert_null(strstr(prom, "nan"));
    const char *text = text_of(p, live_text, &f, 110);
    assert_non_null(strstr(text, "waiting for b"));
    assert_non_null(strstr(text, "1/4 rounds"));
    report_follow_close(&f);
}

/* A certificate that has expired is not one of which nothing is known: alerts fire on a number. */
static void an_expired_certificate_is_shown(void **state)
{
    struct place *p = *state;
    struct report_follow f;
    place_append(p, record);
    place_append(p, "{\"kind\":\"health\",\"t\":109,\"certificate_days\":-1}\n");
    follow(p, &f);
    assert_non_null(strstr(text_of(p, live_metrics, &f, 110),
                           "\natoll_certificate_remaining_seconds{run=\"r\",site=\"a\"} -86400\n"));
    assert_non_null(strstr(text_of(p, live_text, &f, 110), "its certificate has EXPIRED"));
    assert_true(number_of(p, text_of(p, page_data_live, &f, 110), "sites", "certificate_days") ==
                -1);
    report_follow_close(&f);
}

/* 5 s stood still: 2 s of the 3 s of sending were an outage. A killed process: from its last record
 * to the first new step, and the step that is repeated. */
static void time_is_spent_on(void **state)
{
    struct place *p = *state;
    struct report_follow f;
    double s[REPORT_SPENTS], all;
    place_append(p, record);
    place_append(p, again);
    follow(p, &f);
    report_spent(&f.runs[0], s, &all);
    assert_true(all == 26);
    assert_true(s[REPORT_SPENT_COMPUTE] == 3);
    assert_true(s[REPORT_SPENT_OUTAGE] == 2);
    assert_true(s[REPORT_SPENT_WAIT] == 1);
    assert_true(s[REPORT_SPENT_EXCHANGE] == 2);
    assert_true(s[REPORT_SPENT_RESTART] == 125 - 107); /* 17 s away and in start-up, 1 s again */
    assert_true(s[REPORT_SPENT_OTHER] == 26 - 3 - 2 - 1 - 2 - 18);
    report_follow_close(&f);
}

/* Demo and page, a report's too, say one compute share of one run. */
static void one_compute_share(void **state)
{
    struct place *p = *state;
    struct report_follow f;
    struct json j;
    place_append(p, record);
    place_append(p, again);
    follow(p, &f);
    double share = report_compute_share(&f.runs[0]);
    assert_true(share == 3.0 / 26);
    assert_true(report_cost(&f.runs[0]).share[REPORT_COMPUTING] == share); /* the demo's table */
    const char *text = text_of(p, page_data_live, &f, 130);
    assert_int_equal(json_read(&j, "live", text, strlen(text), &p->arena), ERR_OK);
    const struct json *spent = json_find(&json_find(&j, "sites")->items[0], "spent_s");
    assert_true(json_find(spent, "compute")->number / json_find(spent, "all")->number == share);
    report_follow_close(&f);
}

/* Weeks of steps take bounded memory; the newest and the oldest are there, in order. */
static void series_are_bounded(void **state)
{
    enum { STEPS = 100000 };
    struct place *p = *state;
    struct report_follow f;
    FILE *out = fopen(p->path, "w");
    fputs("{\"kind\":\"start\",\"t\":0,\"site\":\"a\",\"aggregator\":\"h:1\",\"step\":0}\n", out);
    for (int i = 1; i <= STEPS; i++)
        fprintf(out, "{\"kind\":\"step\",\"t\":%d,\"step\":%d,\"loss\":%d}\n", i, i, STEPS - i);
    fclose(out);
    follow(p, &f);
    const struct report_points *l = &f.runs[0].series[REPORT_LOSS];
    assert_true(l->count <= REPORT_POINTS_MAX && l->count > REPORT_POINTS_MAX / 3);
    assert_true(l->x[0] == 1 && l->x[l->count - 1] == STEPS && l->y[l->count - 1] == 0);
    for (size_t i = 1; i < l->count; i++)
        assert_true(l->x[i] > l->x[i - 1]);
    assert_true(strlen(text_of(p, page_data_live, &f, STEPS)) < 16384);
    report_follow_close(&f);
}

/* No loss of a site with privacy, in any form. */
static void private_losses_are_not_shown(void **state)
{
    struct place *p = *state;
    struct report_follow f;
    place_append(p, "{\"kind\":\"start\",\"t\":1,\"site\":\"a\",\"aggregator\":\"h:1\"}\n"
                    "{\"kind\":\"secure\",\"t\":1,\"text\":\"x\"}\n"
                    "{\"kind\":\"step\",\"t\":2,\"step\":1,\"loss\":4.4375,\"step_ms\":1}\n");
    follow(p, &f);
    const char *json = text_of(p, page_data_live, &f, 3);
    assert_non_null(strstr(json, "\"private\":true"));
    assert_null(strstr(json, "4.4375"));
    assert_null(strstr(json, "\"losses\""));
    assert_null(strstr(text_of(p, live_metrics, &f, 3), "4.4375"));
    assert_null(strstr(text_of(p, live_text, &f, 3), "4.43"));
    report_follow_close(&f);
}

/* The aggregator tells of its sites who is waited for, and for how long. */
static void the_aggregator_names_who_is_waited_for(void **state)
{
    struct place *p = *state;
    struct report_follow f;
    place_append(p, "{\"kind\":\"start\",\"t\":1,\"run\":\"r\",\"role\":\"aggregator\","
                    "\"sites\":2,\"rounds\":9,\"committed\":3}\n"
                    "{\"kind\":\"state\",\"t\":2,\"site\":\"a\",\"text\":\"\",\"waited\":0}\n"
                    "{\"kind\":\"round\",\"t\":3,\"fragment\":0,\"round\":3,\"up\":5}\n"
                    "{\"kind\":\"site\",\"t\":4,\"site\":\"a\",\"fragment\":0,\"round\":3,"
                    "\"step\":20,\"loss\":3.5,\"up_total\":11,\"down_total\":7}\n"
                    "{\"kind\":\"state\",\"t\":5,\"site\":\"b\",\"text\":\"the others wait for "
                    "it\",\"waited\":1}\n");
    follow(p, &f);
    const char *json = text_of(p, page_data_live, &f, 12), *prom = text_of(p, live_metrics, &f, 12);
    assert_true(number_of(p, json, "aggregator", "rounds") == 4);
    assert_true(number_of(p, json, "sites", "up_bytes") == 11);
    assert_non_null(strstr(prom, "\natoll_blocking_others{run=\"r\",site=\"b\"} 1\n"));
    assert_non_null(strstr(prom, "\natoll_state_seconds{run=\"r\",site=\"b\"} 7\n"));
    assert_non_null(strstr(prom, "\natoll_rounds_total{run=\"r\",site=\"aggregator\"} 4\n"));
    /* The aggregator writes of a site once a round: that is not how old the site's record is. */
    assert_non_null(strstr(prom, "\natoll_last_record_timestamp_seconds{run=\"r\","
                                 "site=\"aggregator\"} 3\n"));
    assert_null(strstr(prom, "atoll_last_record_timestamp_seconds{run=\"r\",site=\"a\"}"));
    report_follow_close(&f);
}

/* An amended run is as long as the amendment says, for the aggregator and for its sites. */
static void an_amended_run_has_another_length(void **state)
{
    struct place *p = *state;
    struct report_follow f;
    place_append(
        p, "{\"kind\":\"start\",\"t\":1,\"run\":\"r\",\"role\":\"aggregator\",\"sites\":2,"
           "\"rounds\":80,\"steps\":1600,\"committed\":3}\n"
           "{\"kind\":\"site\",\"t\":2,\"site\":\"a\",\"fragment\":0,\"round\":2,\"step\":60}\n"
           "{\"kind\":\"amendment\",\"t\":3,\"number\":1,\"setting\":\"outer.sync_every=40\","
           "\"from_round\":4,\"rounds\":51,\"steps\":1700,\"share\":0.932,\"trained_s\":200,"
           "\"waited_s\":14.62}\n"
           "{\"kind\":\"site\",\"t\":4,\"site\":\"a\",\"fragment\":0,\"round\":3,\"step\":80}\n");
    follow(p, &f);
    const char *prom = text_of(p, live_metrics, &f, 12);
    assert_non_null(strstr(prom, "\natoll_rounds_planned{run=\"r\",site=\"aggregator\"} 51\n"));
    assert_non_null(strstr(prom, "\natoll_rounds_planned{run=\"r\",site=\"a\"} 51\n"));
    assert_non_null(strstr(prom, "\natoll_steps_planned{run=\"r\",site=\"a\"} 1700\n"));
    assert_non_null(
        strstr(text_of(p, page_data_live, &f, 12),
               "amendment 1: outer.sync_every=40 from round 4 on (outer.replan: training had "
               "93.2 % of the time, 200 s, and waited 14.6 s)"));
    report_follow_close(&f);
}

static enum err take(void *self, const struct jsonl_row *row)
{
    return report_follow_row(self, row);
}

struct far {
    struct report_follow f;
    uint64_t at, bytes, pieces;
};

/* As an observer does: pieces until nothing is new. */
static void far_read(struct place *p, struct feed *feed, struct far *far)
{
    char text[2048], *rest;
    uint64_t next = 0;
    struct jsonl_row row;
    far->f.a = &p->arena;
    for (bool more = true; more; far->at = next, far->pieces++) {
        assert_int_equal(feed_piece(feed, p->path, far->at, text, sizeof text, &next), ERR_OK);
        more = next > far->at;
        far->bytes += strlen(text);
        assert_null(strstr(text, "SECRET"));
        for (char *l = strtok_r(text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest)) {
            assert_true(jsonl_parse(&row, l));
            assert_int_equal(take(&far->f, &row), ERR_OK);
        }
    }
}

static const struct report_run *run_of(const struct report_follow *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->runs[i].name, name) == 0)
            return &f->runs[i];
    fail();
    return NULL;
}

/* Two starts of an aggregator with two sites; site b is away from the 100th round on. */
static void long_record(const struct place *p, int rounds)
{
    FILE *out = fopen(p->path, "w");
    for (int i = 0; i < rounds; i++) {
        if (i == 0 || i == rounds / 3)
            fprintf(
                out,
                "{\"kind\":\"start\",\"t\":%d,\"run\":\"r\",\"role\":\"aggregator\",\"sites\":2,"
                "\"rounds\":90000,\"committed\":%d,\"command\":\"SECRET\",\"config\":"
                "\"SECRET\"}\n",
                i + 1, i + 7);
        fprintf(out,
                "{\"kind\":\"round\",\"t\":%d,\"fragment\":0,\"round\":%d,\"up\":5,\"down\":2,"
                "\"sites\":2,\"with\":\"%0*d\"}\n{\"kind\":\"site\",\"t\":%d,\"site\":\"a\","
                "\"fragment\":0,\"round\":%d,\"step\":%d,\"loss\":%d,\"up_total\":%d,"
                "\"down_total\":3,\"unknown\":\"SECRET\"}\n",
                i + 1, i + 7, i == rounds - 1 ? 3000 : 1, 0, i + 1, i + 7, i, rounds - i, 5 * i);
        if (i < 100)
            fprintf(out,
                    "{\"kind\":\"site\",\"t\":%d,\"site\":\"b\",\"fragment\":0,\"round\":%d,"
                    "\"step\":%d,\"loss\":%d,\"up_total\":%d,\"down_total\":3}\n",
                    i + 1, i + 7, i, i, 5 * i);
        if (i == 100)
            fprintf(out,
                    "{\"kind\":\"state\",\"t\":%d,\"site\":\"b\",\"text\":\"away\","
                    "\"waited\":1}\n",
                    i + 1);
    }
    fclose(out);
}

/* From afar: pieces of whole lines; only fields of the table leave. What is old is thinned, and
 * still there: curves from the first step on, counts, who is away since long. Twice as long a run
 * is not twice as much to send. */
static void a_feed_is_the_records(void **state)
{
    enum { ROUNDS = 12000 };
    struct place *p = *state;
    struct report_follow near;
    struct feed feed = {0};
    struct far far = {.at = 0}, longer = {.at = 0};
    char text[2048];
    uint64_t next = 0;
    assert_int_equal(feed_piece(&feed, p->path, 0, text, sizeof text, &next), ERR_OK);
    assert_true(next == 0 && !*text); /* nothing is there yet */
    long_record(p, ROUNDS);
    far_read(p, &feed, &far);
    follow(p, &near);
    const struct report_run *a = &near.runs[0], *seen = far.f.runs;
    assert_int_equal(far.f.count, 3);
    assert_true(a->now.rounds == 7 + ROUNDS && seen[0].now.rounds == 7 + ROUNDS);
    assert_true(seen[0].now.up == a->now.up && seen[0].now.down == a->now.down);
    assert_true(seen[0].lives.starts == 2);
    for (int i = 1; i < 3; i++) {
        const struct report_now *n = &near.runs[i].now,
                                *o = &run_of(&far.f, near.runs[i].name)->now;
        assert_true(o->rounds == n->rounds && o->step == n->step && o->up == n->up);
        assert_true(o->waited == n->waited);
        assert_string_equal(o->state, n->state);
    }
    assert_string_equal(run_of(&far.f, "site b")->now.state, "away");
    const struct report_points *loss = &run_of(&far.f, "site a")->series[REPORT_LOSS];
    assert_true(loss->count > 120 && loss->x[0] < ROUNDS / 20);
    assert_true(loss->x[loss->count - 1] == ROUNDS - 1);
    for (size_t i = 1; i < loss->count; i++)
        assert_true(loss->x[i] - loss->x[i - 1] < 1.5 * ROUNDS / FEED_CHUNKS);
    for (size_t i = 0; i < loss->count; i++)
        assert_true(loss->y[i] == ROUNDS - loss->x[i]);
    assert_int_equal(feed_piece(&feed, p->path, far.at + 1, text, sizeof text, &next), ERR_INPUT);
    feed_close(&feed);
    report_follow_close(&near);
    long_record(p, 2 * ROUNDS);
    far_read(p, &feed, &longer);
    assert_true(longer.f.runs[0].now.rounds == 7 + 2 * ROUNDS);
    assert_true(longer.bytes > 100000 && longer.bytes < far.bytes + far.bytes / 5);
    feed_close(&feed);
}

/* A line without an end, longer than the tail: the feed waits for its end, and does not turn. */
static void a_feed_waits_for_a_line(void **state)
{
    struct place *p = *state;
    struct feed feed = {0};
    struct far far = {.at = 0};
    FILE *out = fopen(p->path, "w");
    fputs("{\"kind\":\"start\",\"t\":1,\"run\":\"r\",\"role\":\"aggregator\",\"sites\":2}\n", out);
    fprintf(out, "{\"kind\":\"stop\",\"t\":2,\"command\":\"%0*d", FEED_BYTES + 100, 0);
    fclose(out);
    far_read(p, &feed, &far);
    assert_true(far.f.count == 1 && far.at > 0 && far.at < 200);
    place_append(p, "\",\"reason\":\"x\"}\n");
    far_read(p, &feed, &far);
    assert_true(far.at > FEED_BYTES && strcmp(far.f.runs[0].now.state, "stopped") == 0);
    feed_close(&feed);
}

int main(void)
{
#define PLACED(test) cmocka_unit_test_setup_teardown(test, place_open, place_close)
    const struct CMUnitTest tests[] = {
        PLACED(following_is_reading),
        PLACED(what_is_shown_is_what_happened),
        PLACED(an_expired_certificate_is_shown),
        PLACED(time_is_spent_on),
        PLACED(one_compute_share),
        PLACED(series_are_bounded),
        PLACED(private_losses_are_not_shown),
        PLACED(the_aggregator_names_who_is_waited_for),
        PLACED(an_amended_run_has_another_length),
        PLACED(a_feed_is_the_records),
        PLACED(a_feed_waits_for_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
