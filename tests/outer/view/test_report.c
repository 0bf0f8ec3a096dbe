/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this fails: the report's data. It would count an exchange or a refused start
 * twice, call an outage sending, hide what it should show, need directories that are gone, or let
 * a name become a script. What the page makes of the data: tests/e2e/page.sh.
 */
#include "inner/config/json.h"
#include "outer/view/live.h"
#include "outer/view/page_data.h"
#include "outer/view/page_report.h"
#include "outer/view/sheet.h"
#include "tests/outer/view/place.h"

static enum err read_one(struct place *p, struct report_run **run, size_t *count)
{
    const char *const dirs[] = {p->dir};
    return report_data_read(run, count, dirs, 1, &p->arena);
}

/* The page of these runs, and its data. */
static const char *page_of(struct place *p, struct report_run *run, size_t count, struct json *data)
{
    static const char mark[] = "id=\"data\">";
    uint8_t *page;
    size_t size;
    assert_int_equal(page_report_write(p->page, run, count, NULL), ERR_OK);
    assert_int_equal(file_read(p->page, 1 << 24, &p->arena, &page, &size), ERR_OK);
    const char *text = (const char *)page, *from = strstr(text, mark);
    assert_non_null(from);
    from += strlen(mark);
    const char *end = strstr(from, "</script>");
    assert_non_null(end);
    assert_int_equal(json_read_most(data, "data", from, (size_t)(end - from), 1 << 20, &p->arena),
                     ERR_OK);
    return text;
}

static const struct json *at(const struct json *j, const char *list, size_t i)
{
    const struct json *found = json_find(j, list);
    assert_non_null(found);
    assert_true(found->kind == JSON_LIST && i < found->count);
    return &found->items[i];
}

static double number_of(const struct json *j, const char *key)
{
    const struct json *found = json_find(j, key);
    assert_non_null(found);
    return found->kind == JSON_WHOLE || found->kind == JSON_DECIMAL ? found->number : NAN;
}

static const char *text_of(const struct json *j, const char *key)
{
    const struct json *found = json_find(j, key);
    assert_non_null(found);
    assert_int_equal(found->kind, JSON_WORDS);
    return found->text;
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
    assert_int_equal(run->rounds.count, 2);
    assert_true(run->rounds.list[0].up == 100 && run->rounds.list[1].up == 50);
    assert_int_equal(run->lives.starts, 2);
    assert_int_equal(run->role, REPORT_SITE);
    assert_string_equal(run->name, "site a");
}

static size_t count_of(const char *text, const char *words)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, words)) != NULL; p += strlen(words))
        n++;
    return n;
}

/* With any names a page has its own two scripts, and reads as text without them. */
static void page_stands_alone(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    struct json data;
    size_t count;
    place_append(p, "{\"kind\":\"start\",\"t\":10,\"run\":\"</script><script>x<!--\",\"site\":"
                    "\"\\\"a'<b>\",\"aggregator\":\"h:1\",\"config\":\"a: <b>\\u000a\\\\\","
                    "\"command\":\"</noscript><img>\",\"step\":0,\"steps\":2}\n"
                    "{\"kind\":\"step\",\"t\":11,\"step\":1,\"loss\":5}\n"
                    "{\"kind\":\"step\",\"t\":12,\"step\":2,\"loss\":null}\n"
                    "{\"kind\":\"eval\",\"t\":12,\"step\":2,\"loss\":4.25}\n");
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    const char *text = page_of(p, run, count, &data);
    assert_int_equal(count_of(text, "<script"), 2);
    assert_int_equal(count_of(text, "</script"), 2);
    assert_int_equal(count_of(text, "</noscript>"), 1);
    assert_null(strstr(text, "<!--"));
    assert_null(strstr(text, "<img"));
    assert_null(strstr(text, "page.js"));
    assert_int_equal(count_of(text, "://"), 1); /* the name of SVG */
    assert_non_null(strstr(text, "content=\"default-src 'none'; img-src data:;"));
    assert_non_null(strstr(text, "http://www.w3.org/2000/svg"));
    assert_string_equal(text_of(&data, "run"), "</script><script>x<!--");
    const struct json *site = at(&data, "sites", 0);
    assert_string_equal(text_of(site, "name"), "\"a'<b>");
    assert_string_equal(text_of(site, "config"), "a: <b>\n\\");
    assert_string_equal(text_of(site, "command"), "</noscript><img>");
    assert_int_equal(at(site, "losses", 1)->items[1].kind, JSON_NOTHING);
    const char *plain = strstr(text, "<noscript><pre>");
    assert_non_null(plain);
    assert_non_null(strstr(plain, "run &lt;/script&gt;&lt;script&gt;x&lt;!--"));
    assert_non_null(strstr(plain, "site &quot;a'&lt;b&gt;: eval loss 4.2500 at start"));
}

/* What the live page has, a report has too: nothing is said in two ways. */
static void a_report_has_what_the_live_page_has(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    struct json whole, live;
    size_t count, size;
    char *text = NULL;
    place_append(p, "{\"kind\":\"start\",\"t\":10,\"run\":\"r\",\"site\":\"a\",\"aggregator\":"
                    "\"h:1\",\"step\":0,\"steps\":4,\"rounds\":2}\n"
                    "{\"kind\":\"health\",\"t\":10,\"certificate_days\":12}\n"
                    "{\"kind\":\"step\",\"t\":11,\"step\":1,\"loss\":5,\"tokens\":8,\"step_ms\":"
                    "1000}\n"
                    "{\"kind\":\"round\",\"t\":12,\"step\":2,\"fragment\":0,\"round\":0,\"up\":7,"
                    "\"down\":9,\"included\":2,\"sites\":2,\"rho\":0.5}\n");
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    page_of(p, run, count, &whole);
    const struct report_follow f = {.runs = run, .count = count};
    FILE *out = open_memstream(&text, &size);
    page_data_live(out, &f, 12);
    fclose(out);
    assert_int_equal(json_read(&live, "live", text, size, &p->arena), ERR_OK);
    const struct json *one = at(&live, "sites", 0), *all = at(&whole, "sites", 0);
    for (size_t i = 0; i < one->count; i++) {
        const struct json *x = &one->items[i];
        bool rounds = strcmp(x->key, "last_rounds") == 0;
        const struct json *y = json_find(all, rounds ? "rounds_all" : x->key);
        if (!y)
            print_error("%s is not in the report\n", x->key);
        assert_non_null(y);
        assert_int_equal(x->kind, y->kind);
        if (x->kind == JSON_WHOLE || x->kind == JSON_DECIMAL)
            assert_true(x->number == y->number);
    }
    one = at(one, "last_rounds", 0);
    for (size_t i = 0; i < one->count; i++)
        assert_true(one->items[i].number ==
                    json_find(at(all, "rounds_all", 0), one->items[i].key)->number);
    free(text);
}

/* The outer metrics: of each round, null where the record has none. */
static void outer_metrics_are_known(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    struct json data;
    size_t count;
    place_append(p, "{\"kind\":\"start\",\"t\":10,\"site\":\"a\",\"aggregator\":\"h:1\",\"step\":0,"
                    "\"steps\":4}\n"
                    "{\"kind\":\"step\",\"t\":11,\"step\":1,\"loss\":5}\n"
                    "{\"kind\":\"step\",\"t\":12,\"step\":2,\"loss\":4}\n"
                    "{\"kind\":\"round\",\"t\":12,\"step\":2,\"fragment\":0,\"round\":0}\n"
                    "{\"kind\":\"round\",\"t\":13,\"step\":4,\"fragment\":0,\"round\":1,\"gain\":"
                    "2.25,\"rho\":null,\"agreement\":-0.5,\"residual_ratio\":12.5}\n");
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    assert_true(isnan(run->rounds.list[0].metrics[REPORT_RHO]));
    page_of(p, run, count, &data);
    const struct json *first = at(at(&data, "sites", 0), "rounds_all", 0),
                      *second = at(at(&data, "sites", 0), "rounds_all", 1);
    assert_true(isnan(number_of(first, "gain")) && isnan(number_of(first, "agreement")));
    assert_true(number_of(second, "gain") == 2.25 && number_of(second, "agreement") == -0.5);
    assert_true(number_of(second, "residual_ratio") == 12.5);
    assert_true(isnan(number_of(second, "rho")));
}

/* The counters of an emulated network, whose names are the user's; no table of what is none. */
static void an_emulated_network_is_shown(void **state)
{
    static const char *const key[] = {"packets", "bytes", "arrived", "queue",     "lost",
                                      "outage",  "twice", "late",    "queue_peak"};
    struct place *p = *state;
    struct report_run *run;
    struct json data;
    size_t count, size;
    char path[300], *text = NULL;
    place_append(p, "{\"kind\":\"start\",\"t\":10,\"site\":\"a\",\"step\":0,\"steps\":2}\n");
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    assert_int_equal(page_report_write(p->page, run, count, p->path), ERR_INPUT);
    assert_non_null(strstr(err_message(), "no record of an emulated network"));
    snprintf(path, sizeof path, "%s/wan.jsonl", p->dir);
    assert_int_equal(page_report_write(p->page, run, count, path), ERR_INPUT);
    assert_false(file_exists(p->page));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 2; i++)
        fputs("{\"kind\":\"network\",\"t\":1,\"source\":\"<oce>an\",\"seed\":7,\"relay\":0}\n"
              "{\"kind\":\"direction\",\"t\":1,\"from\":\"a\",\"to\":\"<b>\",\"packets\":1001,"
              "\"bytes\":1002,\"arrived\":1003,\"queue\":1004,\"lost\":1005,\"outage\":1006,"
              "\"twice\":1007,\"late\":1008,\"queue_peak\":1009}\n"
              "{\"kind\":\"missed\",\"t\":1,\"place\":\"a\",\"packets\":31}\n",
              f);
    fclose(f);
    assert_int_equal(page_report_write(p->page, run, count, path), ERR_OK);
    const struct report_follow follow = {.runs = run, .count = count};
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(page_data_whole(&(struct json_write){.out = out}, &follow, path), ERR_OK);
    fclose(out);
    assert_int_equal(json_read(&data, "data", text, size, &p->arena), ERR_OK);
    const struct json *network = at(&data, "wan", 1), *row = at(network, "rows", 0);
    assert_int_equal(json_find(&data, "wan")->count, 2);
    assert_string_equal(text_of(network, "source"), "<oce>an");
    assert_true(number_of(network, "seed") == 7);
    assert_string_equal(text_of(row, "from"), "a");
    assert_string_equal(text_of(row, "to"), "<b>");
    for (int i = 0; i < 9; i++)
        assert_true(number_of(row, key[i]) == 1001 + i);
    row = at(network, "rows", 1);
    assert_true(number_of(row, "packets") == 31);
    assert_string_equal(text_of(row, "place"), "a");
    free(text);
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
    assert_true(run->lives.first_t == 100 && run->lives.last_t == 129);
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
    const double *ms = run->rounds.list[0].ms;
    assert_true(ms[REPORT_OUTAGE] == 36000 && ms[REPORT_SEND] == 0 && ms[REPORT_WAIT] == 1500);
    ms = run->rounds.list[1].ms;
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
    struct json data;
    size_t count;
    place_append(p, aggregator_record);
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    assert_int_equal(count, 3);
    assert_int_equal(run[0].role, REPORT_AGGREGATOR);
    assert_int_equal(run[0].rounds.count, 2);
    assert_true(run[0].rounds.list[1].waited_ms == 5000);
    assert_string_equal(run[2].name, "site b");
    assert_int_equal(run[2].role, REPORT_SEEN);
    assert_true(run[2].rounds.list[1].up == 60 && run[2].rounds.list[1].down == 70);
    assert_true(report_last(&run[2].series[REPORT_LOSS]) == 3);
    assert_true(report_last(&run[2].series[REPORT_BYTES_UP]) == 160);
    page_of(p, run, count, &data);
    const struct json *last = at(at(&data, "aggregators", 0), "rounds_all", 1);
    assert_true(number_of(last, "waited_s") == 5 && number_of(last, "included") == 1 &&
                number_of(last, "sites") == 2);
    assert_string_equal(text_of(at(&data, "sites", 1), "name"), "b");
    assert_string_equal(text_of(at(&data, "sites", 1), "role"), "seen");

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

/* A full-precision round among hundreds is shown by itself; what is alike is one mean. */
static void full_precision_rounds_are_seen(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    struct json data;
    size_t count, rounds = 0;
    place_append(
        p, "{\"kind\":\"start\",\"t\":10,\"site\":\"a\",\"aggregator\":\"h:1\",\"step\":0}\n");
    for (int i = 0; i < 400; i++) {
        char line[256];
        int bytes = i == 0 || i == 123 ? 1685000 : 851000;
        snprintf(line, sizeof line,
                 "{\"kind\":\"round\",\"t\":%d,\"step\":%d,\"fragment\":0,\"round\":%d,\"up\":%d,"
                 "\"up_predicted\":%d,\"down\":%d,\"down_predicted\":%d,\"included\":%d}\n",
                 11 + i, i + 1, i, bytes, bytes, bytes, bytes, i == 2 ? 1 : 2);
        place_append(p, line);
    }
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    page_of(p, run, count, &data);
    const struct json *list = json_find(at(&data, "sites", 0), "rounds_all");
    assert_true(list->count > 100 && list->count < 200);
    for (size_t i = 0; i < list->count; i++) {
        const struct json *x = &list->items[i];
        double from = number_of(x, "from"), n = number_of(x, "count");
        bool full = from == 0 || from == 123;
        assert_true(from == (double)rounds && number_of(x, "to") == from + n - 1);
        assert_true(full ? n == 1 : n <= 3);
        assert_true(number_of(x, "up_bytes") == (full ? 1685000 : 851000));
        assert_true(number_of(x, "down_bytes_predicted") == (full ? 1685000 : 851000));
        assert_true(number_of(x, "included") == (from <= 2 && from + n > 2 ? 1 : 2));
        rounds += (size_t)n;
    }
    assert_int_equal(rounds, 400);
}

/* A series of any length is bounded; its ends are exact, the rest are means of what is known. */
static void series_are_means(void **state)
{
    enum { STEPS = 2100, SHOWN = 700 };
    struct place *p = *state;
    struct report_run *run;
    struct json data;
    size_t count;
    FILE *f = fopen(p->path, "w");
    fputs("{\"kind\":\"start\",\"t\":0,\"site\":\"a\",\"aggregator\":\"h:1\",\"step\":0}\n", f);
    for (int i = 0; i < STEPS; i++)
        fprintf(f, "{\"kind\":\"step\",\"t\":%d,\"step\":%d,\"loss\":%s}\n", i + 1, i,
                i == 5  ? "null"
                : i % 2 ? "3"
                        : "1");
    fclose(f);
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    page_of(p, run, count, &data);
    const struct json *list = json_find(at(&data, "sites", 0), "losses");
    assert_true(list->count > SHOWN / 2 && list->count <= SHOWN + 1);
    assert_true(list->items[0].items[1].number == 1); /* of step 0 */
    assert_true(list->items[1].items[0].number == 4 &&
                fabs(list->items[1].items[1].number - 5.0 / 3) < 1e-9);
    assert_true(list->items[2].items[0].number == 8 && list->items[2].items[1].number == 2);
    const struct json *last = &list->items[list->count - 1];
    assert_true(last->items[0].number == STEPS - 1 && last->items[1].number == 3);
}

/* The oldest and the newest events, newest first, and how many are between them. */
static void events_have_both_ends(void **state)
{
    struct place *p = *state;
    struct report_run *run;
    struct json data;
    size_t count;
    place_append(p, "{\"kind\":\"start\",\"t\":1,\"site\":\"a\",\"aggregator\":\"h:1\"}\n");
    for (int i = 2; i <= 100; i++) {
        char line[96];
        snprintf(line, sizeof line, "{\"kind\":\"notice\",\"t\":%d,\"text\":\"event %d\"}\n", i, i);
        place_append(p, line);
    }
    assert_int_equal(read_one(p, &run, &count), ERR_OK);
    page_of(p, run, count, &data);
    assert_int_equal(json_find(&data, "events")->count, 60);
    assert_true(number_of(&data, "events_left_out") == 40);
    assert_string_equal(text_of(at(&data, "events", 0), "text"), "event 100");
    assert_string_equal(text_of(at(&data, "events", 29), "text"), "event 71");
    assert_string_equal(text_of(at(&data, "events", 30), "text"), "event 30");
    assert_string_equal(text_of(at(&data, "events", 59), "text"), "started");
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
        assert_string_equal(sheet_digits(out, cases[i].value), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(replay_counts_once, place_open, place_close),
        cmocka_unit_test_setup_teardown(page_stands_alone, place_open, place_close),
        cmocka_unit_test_setup_teardown(outer_metrics_are_known, place_open, place_close),
        cmocka_unit_test_setup_teardown(an_emulated_network_is_shown, place_open, place_close),
        cmocka_unit_test_setup_teardown(no_record_is_said, place_open, place_close),
        cmocka_unit_test_setup_teardown(a_refused_start_is_no_wall_time, place_open, place_close),
        cmocka_unit_test_setup_teardown(series_are_means, place_open, place_close),
        cmocka_unit_test_setup_teardown(events_have_both_ends, place_open, place_close),
        cmocka_unit_test_setup_teardown(a_report_has_what_the_live_page_has, place_open,
                                        place_close),
        cmocka_unit_test_setup_teardown(an_outage_is_no_sending, place_open, place_close),
        cmocka_unit_test_setup_teardown(the_aggregator_alone_shows_its_sites, place_open,
                                        place_close),
        cmocka_unit_test_setup_teardown(full_precision_rounds_are_seen, place_open, place_close),
        cmocka_unit_test_setup_teardown(digits_have_separators, place_open, place_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
