/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger's arithmetic and its file. Broken, it would show bytes that never were, hide bytes
 * that a kill took, or call a damaged file a sum. What a link books is held against the kernel in
 * test_link_ledger.c.
 */
#include <inttypes.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/rng.h"
#include "outer/record/ledger_read.h"
#include "outer/record/relayed.h"
#include "tests/inner/scratch.h"

/* ---- the model ---- */

static void records_are_cut_as_openssl_cuts_them(void **state)
{
    (void)state;
    static const struct {
        uint64_t message, records;
    } cases[] = {
        {0, 1}, {16284 - 14, 1}, {16284 - 13, 2}, {2 * 16284 - 14, 2}, {2 * 16284 - 13, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ledger_side s = {0};
        ledger_message(&s, cases[i].message, 0);
        assert_int_equal(s.tls, cases[i].records * 22); /* header 5, content type 1, tag 16 */
        assert_int_equal(s.http2, 9);
        assert_int_equal(s.grpc, cases[i].message + 5);
        assert_int_equal(ledger_sum(&s), cases[i].message + 5 + 9 + cases[i].records * 22);
    }
}

static void a_prediction_is_the_sum_of_its_chunks(void **state)
{
    (void)state;
    /* 3 bytes in chunks of 2: {total=3 (2), crc (5), length (2), data 2}, {offset=2 (2), total (2),
     * crc (5), length (2), 1} */
    struct ledger_side s = ledger_predict(3, 2);
    assert_int_equal(s.payload, 3);
    assert_int_equal(s.grpc, 2 + 5 + 2 + 5 + 2 + 2 + 5 + 2 + 5);
    assert_int_equal(s.http2, 18);
    assert_int_equal(s.tls, 44);
    s = ledger_predict(0, 1 << 20);
    assert_int_equal(ledger_sum(&s), 0);
}

static void every_kind_has_one_name(void **state)
{
    (void)state;
    for (int i = 0; i < LEDGER_WHATS; i++) {
        enum ledger_what what = LEDGER_WHATS;
        assert_true(ledger_find(ledger_name((enum ledger_what)i), &what));
        assert_int_equal(what, i);
    }
    enum ledger_what what;
    assert_false(ledger_find("nonsense", &what));
}

/* ---- the file ---- */

static struct arena arena;
static struct ledger_book book;

static const char *scratch_file(const char *directory)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", scratch(directory), LEDGER_FILE);
    return path;
}

static void begin(const char *replica)
{
    assert_int_equal(file_mkdirs(scratch(replica)), ERR_OK);
    usleep(2000); /* two processes of a directory never begin in one millisecond: that is a copy */
    assert_int_equal(ledger_book_open(&book,
                                      &(struct ledger_book_options){.directory = scratch(replica),
                                                                    .run = "test",
                                                                    .replica = replica},
                                      &arena),
                     ERR_OK);
}

static void contribute(const char *site, uint64_t round, uint64_t total, uint64_t sent, bool done)
{
    struct ledger_row row = {.what = LEDGER_CONTRIBUTION,
                             .round = round,
                             .calls = 1,
                             .broken = !done,
                             .total = total,
                             .done = done,
                             .up = {.payload = sent, .grpc = 7, .http2 = 9, .tls = 22}};
    snprintf(row.site, sizeof row.site, "%s", site);
    ledger_book_add(&book, &row);
}

static void kernel(uint64_t up, uint64_t down)
{
    struct ledger_row row = {
        .what = LEDGER_SOCKET, .round = LEDGER_NO_ROUND, .up.socket = up, .down.socket = down};
    ledger_book_add(&book, &row);
}

static struct ledger_member read_of(const char *replica)
{
    struct ledger_member m;
    if (ledger_read(&m, scratch(replica), NULL, &arena) != ERR_OK)
        fail_msg("%s", err_message());
    return m;
}

/* As a kill leaves it: no end, and what waited for its turn is gone. */
static void killed(void)
{
    jsonl_close(&book.record);
    free(book.rows);
}

static void what_is_booked_comes_back(void **state)
{
    (void)state;
    begin("a");
    struct ledger_row poll = {.what = LEDGER_POLL,
                              .round = 3,
                              .calls = 1,
                              .up = {.grpc = 60, .http2 = 9, .tls = 22},
                              .down = {.grpc = 30}};
    contribute("", 3, 1000, 1000, true);
    ledger_book_add(&book, &poll);
    ledger_book_add(&book, &poll);
    kernel(1100, 50);
    ledger_book_add(&book, &poll);
    kernel(10, 5);
    ledger_book_predict(&book, "", 0, 3, 1000, 2000);
    ledger_book_close(&book);
    struct ledger_member m = read_of("a");
    assert_string_equal(m.name, "a");
    assert_string_equal(m.run, "test");
    assert_int_equal(m.lives.count, 1);
    assert_int_equal(m.lives.unfinished, 0);
    assert_int_equal(m.count, 3);
    assert_int_equal(m.rows[0].what, LEDGER_POLL);
    assert_string_equal(m.rows[0].site, "a");
    assert_int_equal(m.rows[0].calls, 3);
    assert_int_equal(ledger_sum(&m.rows[0].up), 3 * 91);
    assert_int_equal(ledger_sum(&m.rows[0].down), 90);
    assert_int_equal(m.rows[1].predicted, 1000);
    assert_true(m.rows[1].done && m.rows[1].total == 1000 && m.rows[1].up.payload == 1000);
    assert_int_equal(m.rows[2].up.socket, 1110);
    assert_int_equal(m.rows[2].down.socket, 55);
    assert_true(m.up.counted == 1000 && m.up.predicted == 1000 && m.up.total == 1000 &&
                m.up.transfers == 1);
    assert_true(!m.up.resent && !m.up.lost && !m.up.wrong && !m.up.unpredicted && !m.up.incomplete);
}

/* counted - resent + lost = total = predicted, after any kill and any resent byte. */
static void kills_are_booked(void **state)
{
    (void)state;
    begin("b");
    contribute("", 0, 1000, 1000, true);
    ledger_book_predict(&book, "", 0, 0, 1000, 0);
    contribute("", 1, 1000, 700, false); /* cut: of these, 400 had arrived */
    contribute("", 1, 1000, 600, true);
    ledger_book_predict(&book, "", 0, 1, 1000, 0);
    killed();
    begin("b");
    contribute("", 2, 1000, 300, true); /* 700 went out before the kill, their row did not */
    ledger_book_predict(&book, "", 0, 2, 1000, 0);
    contribute("", 3, 1000, 100, false); /* never finished */
    ledger_book_predict(&book, "", 0, 4, 1000,
                        0); /* accepted before the kill, and nothing of it booked */
    ledger_book_close(&book);
    struct ledger_member m = read_of("b");
    assert_int_equal(m.lives.count, 2);
    assert_int_equal(m.lives.unfinished, 1);
    assert_false(m.lives.running);
    assert_int_equal(m.up.counted, 1000 + 1300 + 300);
    assert_int_equal(m.up.resent, 300);
    assert_int_equal(m.up.lost, 700);
    assert_int_equal(m.up.total, 3000);
    assert_int_equal(m.up.predicted, 3000);
    assert_int_equal(m.up.wrong, 0);
    assert_int_equal(m.up.absent, 1);
    assert_int_equal(m.up.absent_bytes, 1000);
    assert_int_equal(m.up.incomplete, 1);
    assert_int_equal(m.up.incomplete_bytes, 100);
}

static void another_size_is_wrong(void **state)
{
    (void)state;
    begin("c");
    contribute("", 0, 1000, 1000, true);
    ledger_book_predict(&book, "", 0, 0, 1001, 0);
    contribute("", 1, 1000, 999, true); /* no process was killed: a byte is missing */
    ledger_book_predict(&book, "", 0, 1, 1000, 0);
    contribute("", 2, 1000, 1000, true);
    ledger_book_predict(&book, "", 0, 2, 1000, 0);
    ledger_book_close(&book);
    struct ledger_member m = read_of("c");
    assert_int_equal(m.up.wrong, 2);
    assert_false(ledger_good(&m, &m.rows[0]));
    assert_false(ledger_good(&m, &m.rows[1]));
    assert_true(ledger_good(&m, &m.rows[2]));
}

/* The aggregator's: a prediction holds for every site; what stands at one end is found at the
 * other. */
static void sites_are_told_apart(void **state)
{
    (void)state;
    begin("aggregator");
    contribute("b", 5, 64, 64, true);
    contribute("a", 5, 64, 64, true);
    ledger_book_predict(&book, "", 0, 5, 64, 80);
    contribute("a", 6, 64, 64, true);
    contribute("b", 7, 60, 60,
               true); /* what does not change is not sent: sizes of a round differ */
    contribute("a", 7, 64, 64, true);
    ledger_book_predict(&book, "", 0, 7, 0, 80);
    ledger_book_predict(&book, "a", 0, 7, 64, 0);
    ledger_book_predict(&book, "b", 0, 7, 61, 0);
    ledger_book_close(&book);
    struct ledger_member m = read_of("aggregator");
    assert_int_equal(m.count, 5);
    assert_true(m.rows[3].predicted == 64 && m.rows[4].predicted == 61);
    assert_true(ledger_good(&m, &m.rows[3]) && !ledger_good(&m, &m.rows[4]));
    assert_true(m.rows[0].predicted == 64 && m.rows[1].predicted == 64 && m.rows[2].predicted == 0);
    assert_string_equal(m.rows[0].site, "a");
    assert_int_equal(m.up.transfers, 5);
    assert_int_equal(m.up.unpredicted, 1);
    struct ledger_row key = {.what = LEDGER_CONTRIBUTION, .round = 5, .site = "b"};
    assert_ptr_equal(ledger_row_of(&m, &key), &m.rows[1]);
    key.round = 8;
    assert_null(ledger_row_of(&m, &key));
}

static void begin_aggregator(const char *directory, unsigned index, unsigned of)
{
    assert_int_equal(file_mkdirs(scratch(directory)), ERR_OK);
    usleep(2000);
    assert_int_equal(ledger_book_open(&book,
                                      &(struct ledger_book_options){.directory = scratch(directory),
                                                                    .run = "test",
                                                                    .replica = "aggregator",
                                                                    .index = index,
                                                                    .aggregators = of},
                                      &arena),
                     ERR_OK);
}

/* A transfer that only the site has on record: lost with an aggregator that was killed; a
 * difference where the aggregator wrote all it knew. */
static void a_kill_explains_a_row_that_one_end_lacks(void **state)
{
    (void)state;
    struct ledger_row row = {.what = LEDGER_CONTRIBUTION,
                             .site = "a",
                             .round = 5,
                             .calls = 1,
                             .total = 64,
                             .done = true};
    for (int predicted = 0; predicted < 2; predicted++) {
        const char *directory = predicted ? "ends-predicted" : "ends";
        begin_aggregator(directory, 0, 1);
        contribute("a", 4, 64, 64, true);
        if (predicted)
            ledger_book_predict(&book, "a", 0, 5, 64, 0);
        killed();
        struct ledger_member m = read_of(directory);
        assert_int_equal(m.lives.unfinished, 1);
        row.round = 5;
        assert_true(ledger_ends_agree(&m, &row));
        row.round = 4;
        assert_true(ledger_ends_agree(&m, &row));
        row.total = 65; /* booked, and another size: no kill explains it */
        assert_false(ledger_ends_agree(&m, &row));
        row.total = 64;
        unlink(scratch_file(directory));
        begin_aggregator(directory, 0, 1);
        if (predicted)
            ledger_book_predict(&book, "a", 0, 5, 64, 0);
        ledger_book_close(&book);
        m = read_of(directory);
        assert_int_equal(m.lives.unfinished, 0);
        row.round = 5;
        assert_false(ledger_ends_agree(&m, &row));
        row.done = false;
        assert_true(ledger_ends_agree(&m, &row));
        row.done = true;
    }
}

/* Fragment f is at aggregator f % n. */
static void aggregators_are_told_apart(void **state)
{
    (void)state;
    struct ledger_row row = {.what = LEDGER_CONTRIBUTION,
                             .site = "a",
                             .round = 5,
                             .calls = 1,
                             .total = 64,
                             .done = true};
    struct ledger_member m[2];
    for (unsigned i = 0; i < 2; i++) {
        const char *directory = i ? "agg-1" : "agg-0";
        begin_aggregator(directory, i, 2);
        ledger_book_close(&book);
        m[i] = read_of(directory);
    }
    assert_string_equal(m[0].name, "aggregator 0");
    assert_string_equal(m[1].name, "aggregator 1");
    for (row.fragment = 0; row.fragment < 4; row.fragment++)
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(ledger_ends_agree(&m[i], &row), row.fragment % 2 != i);
}

/* Copies the file, its line `twice` two times and line `none` not at all; from 1. */
static void edit(const char *directory, int twice, int none)
{
    char line[1000], path[300];
    assert_int_equal(file_mkdirs(scratch(directory)), ERR_OK);
    snprintf(path, sizeof path, "%s/%s", scratch(directory), LEDGER_FILE);
    FILE *from = fopen(scratch_file("numbered"), "r"), *to = fopen(path, "w");
    assert_true(from && to);
    for (int i = 1; fgets(line, sizeof line, from); i++)
        for (int n = (i != none) + (i == twice); n > 0; n--)
            fputs(line, to);
    fclose(from);
    fclose(to);
}

/* One row twice would be added twice; one taken out is a gap, which explains what is missing. */
static void rows_are_numbered(void **state)
{
    (void)state;
    struct ledger_member m;
    begin("numbered"); /* 1 */
    for (uint64_t round = 0; round < 2; round++)
        contribute("", round, 1000, 1000, true); /* 2, 3 */
    contribute("", 3, 1000, 400, false);         /* 4, written with the next one */
    contribute("", 2, 1000, 1000, true);         /* 5 */
    contribute("", 3, 1000, 600, true);          /* 6 */
    ledger_book_close(&book);
    begin("numbered"); /* 8: again from 1 */
    contribute("", 4, 1000, 1000, true);
    ledger_book_close(&book);
    m = read_of("numbered");
    assert_true(m.lives.missing == 0 && m.up.total == 5000 && m.up.wrong == 0);
    for (int line = 1; line <= 10; line++) {
        edit("twice", line, 0);
        assert_int_equal(ledger_read(&m, scratch("twice"), NULL, &arena), ERR_CORRUPT);
        assert_says("rows are there twice");
    }
    edit("gap", 0, 4);
    m = read_of("gap");
    assert_true(m.lives.missing == 1 && m.lives.unfinished == 0 && m.up.wrong == 0 &&
                m.up.lost == 400);
}

/* ---- bad input ---- */

static void refuse(const char *text, enum err code, const char *words)
{
    struct ledger_member m;
    char path[300];
    assert_int_equal(file_mkdirs(scratch("bad")), ERR_OK);
    snprintf(path, sizeof path, "%s/%s", scratch("bad"), LEDGER_FILE);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    enum err e = ledger_read(&m, scratch("bad"), NULL, &arena);
    if (e != code || !strstr(err_message(), words) || !strstr(err_message(), LEDGER_FILE))
        fail_msg("%s, wanted %s with \"%s\": %s; of:\n%s", err_name(e), err_name(code), words,
                 err_message(), text);
}

#define LIFE "{\"v\":1,\"kind\":\"life\",\"t\":1,\"run\":\"test\",\"replica\":\"a\"}\n"
#define FLOW(numbers)                                                                              \
    "{\"v\":1,\"kind\":\"flow\",\"t\":1,\"what\":\"poll\",\"site\":\"a\"," numbers "}\n"
#define LAYERS                                                                                     \
    "\"up\":0,\"up_grpc\":0,\"up_http2\":0,\"up_tls\":0,\"down\":0,\"down_grpc\":0,\"down_"        \
    "http2\":0,\"down_tls\":0"

static void bad_files_are_refused(void **state)
{
    (void)state;
    struct ledger_member m;
    assert_int_equal(ledger_read(&m, scratch("nowhere"), NULL, &arena), ERR_INPUT);
    assert_says("run.dir");
    refuse("", ERR_INPUT, "empty");
    refuse("\x7f"
           "ELF\x01\x02 nonsense\n",
           ERR_INPUT, "no ledger");
    refuse("{\"v\":1,\"kind\":\"start\",\"t\":1}\n", ERR_INPUT, "no ledger");
    refuse(LIFE "{\"v\":1,\"kind\":\"flow\",\"t\":1,\"wh\n" LIFE, ERR_CORRUPT, "line 2");
    refuse(LIFE FLOW("\"calls\":1,\"broken\":0," LAYERS) "\x01\x02\n", ERR_CORRUPT, "line 3");
    refuse(LIFE FLOW("\"calls\":1,\"broken\":0"), ERR_CORRUPT, "line 2");
    refuse(LIFE FLOW("\"calls\":-1,\"broken\":0," LAYERS), ERR_CORRUPT, "line 2");
    refuse(LIFE FLOW("\"calls\":1.5,\"broken\":0," LAYERS), ERR_CORRUPT, "line 2");
    refuse(LIFE FLOW("\"calls\":1e300,\"broken\":0," LAYERS), ERR_CORRUPT, "line 2");
    refuse(LIFE FLOW("\"fragment\":99999999999,\"round\":1,\"calls\":1,\"broken\":0," LAYERS),
           ERR_CORRUPT, "line 2");
    refuse(LIFE "{\"v\":1,\"kind\":\"predicted\",\"t\":1,\"round\":1,\"up\":5}\n", ERR_CORRUPT,
           "line 2");
    refuse(LIFE "{\"v\":1,\"kind\":\"socket\",\"t\":1,\"site\":\"a\",\"up\":5}\n", ERR_CORRUPT,
           "line 2");
    refuse(LIFE "{\"v\":1,\"kind\":\"other\",\"t\":1}\n", ERR_CORRUPT, "no known kind");
    refuse("{\"v\":3,\"kind\":\"life\",\"t\":1,\"run\":\"test\",\"replica\":\"a\"}\n", ERR_INPUT,
           "version");
    refuse(LIFE "{\"v\":1,\"kind\":\"life\",\"t\":1,\"run\":\"test\",\"replica\":\"b\"}\n",
           ERR_INPUT, "two ledgers");
    refuse(LIFE FLOW("\"calls\":1,\"broken\":0," LAYERS)
               LIFE FLOW("\"calls\":1,\"broken\":0," LAYERS),
           ERR_CORRUPT, "line 3: a process that has begun already"); /* the file twice */
    refuse("{\"v\":1,\"kind\":\"life\",\"t\":1,\"run\":\"test\",\"replica\":\"aggregator\","
           "\"index\":2,\"aggregators\":2}\n",
           ERR_INPUT, "no ledger");
    refuse("{\"v\":1,\"kind\":\"life\",\"t\":1,\"run\":\"test\"}\n", ERR_INPUT, "no ledger");
}

/* Any byte changed, any place cut: a sum or a sentence, never a crash. */
static void any_damage_is_survived(void **state)
{
    (void)state;
    static const char good[] = LIFE FLOW("\"fragment\":1,\"round\":2,\"calls\":1,\"broken\":"
                                         "0," LAYERS) "{\"v\":1,\"kind\":\"flow\",\"t\":1,\"what\":"
                                                      "\"contribution\",\"site\":\"a\","
                                                      "\"fragment\":1,"
                                                      "\"round\":2,\"calls\":1,\"broken\":0,"
                                                      "\"total\":9,\"done\":1," LAYERS "}\n"
                                                      "{\"v\":1,\"kind\":\"predicted\",\"t\":1,"
                                                      "\"fragment\":1,\"round\":2,\"up\":9,"
                                                      "\"down\":9}\n"
                                                      "{\"v\":1,\"kind\":\"socket\",\"t\":1,"
                                                      "\"site\":\"a\",\"up\":5,\"down\":5,"
                                                      "\"resent\":0}\n"
                                                      "{\"v\":1,\"kind\":\"end\",\"t\":1}\n";
    char path[300];
    assert_int_equal(file_mkdirs(scratch("hurt")), ERR_OK);
    snprintf(path, sizeof path, "%s/%s", scratch("hurt"), LEDGER_FILE);
    unsigned read = 0, refused = 0;
    for (uint64_t i = 0; i < 4000; i++) {
        char text[sizeof good];
        size_t n = sizeof good - 1;
        memcpy(text, good, sizeof good);
        text[rng_below(1, RNG_JITTER, 3 * i, n)] = (char)rng_below(1, RNG_JITTER, 3 * i + 1, 256);
        if (i % 4 == 0)
            n = rng_below(1, RNG_JITTER, 3 * i + 2, n);
        unlink(path); /* a file cut to nothing is written through when it is closed: slow */
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_int_equal(fwrite(text, 1, n, f), n);
        fclose(f);
        struct ledger_member m;
        struct arena a = arena_make(0);
        enum err e = ledger_read(&m, scratch("hurt"), NULL, &a);
        assert_true(e == ERR_OK || e == ERR_INPUT || e == ERR_CORRUPT);
        read += e == ERR_OK;
        refused += e != ERR_OK;
        arena_free(&a);
    }
    assert_true(read > 100 && refused > 100); /* both ways were taken */
}

static void a_torn_end_is_passed_over(void **state)
{
    (void)state;
    struct ledger_member m;
    char path[300];
    assert_int_equal(file_mkdirs(scratch("torn")), ERR_OK);
    snprintf(path, sizeof path, "%s/%s", scratch("torn"), LEDGER_FILE);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(LIFE FLOW("\"calls\":1,\"broken\":0," LAYERS) "{\"v\":1,\"kind\":\"flow\",\"t\":1,\"wh",
          f);
    fclose(f);
    assert_int_equal(ledger_read(&m, scratch("torn"), NULL, &arena), ERR_OK);
    assert_int_equal(m.count, 1);
    assert_true(m.lives.running && m.lives.unfinished == 1);
    begin("torn-again"); /* of another run than the first one given */
    ledger_book_close(&book);
    snprintf(m.run, sizeof m.run, "other");
    struct ledger_member second;
    assert_int_equal(ledger_read(&second, scratch("torn-again"), &m, &arena), ERR_INPUT);
    assert_says("of one run");
}

static void one_percent(void **state)
{
    (void)state;
    assert_true(ledger_near(1010000, 1000000, 0, 0));
    assert_false(ledger_near(1010001, 1000000, 0, 0));
    assert_false(ledger_near(989999, 1000000, 0, 0));
    assert_true(ledger_near(1014096, 1000000, 0, 1));
    assert_true(ledger_near(2000, 1000, 9900000, 0));
    assert_false(ledger_near(2001, 1000, 9900000, 0));
    assert_true(ledger_ip(1448, 0) == 1500 && ledger_ip(1449, 0) == 1449 + 104 &&
                ledger_ip(1, 2 * 1448) == 1 + 104);
}

/* A peer breaks transfers off, and asks about rounds that do not exist, as often as it likes: that
 * is no row each. What is written in five seconds is bounded. */
static void a_peer_writes_few_rows(void **state)
{
    enum { CALLS = 20000 };
    (void)state;
    double began = clock_mono_s();
    begin("often");
    for (uint64_t i = 0; i < CALLS; i++) {
        struct ledger_row poll = {.what = LEDGER_POLL, .round = i, .calls = 1};
        struct ledger_row fetch = {
            .what = LEDGER_AGGREGATE, .round = i + 100, .calls = 1, .broken = 1};
        snprintf(poll.site, sizeof poll.site, "often");
        snprintf(fetch.site, sizeof fetch.site, "often");
        ledger_book_add(&book, &fetch);
        contribute("often", 3, 1000, 10, false);
        contribute("often", i + 1000, 1000, 0, false); /* refused */
        ledger_book_add(&book, &poll);
    }
    ledger_book_close(&book);
    FILE *f = fopen(scratch_file("often"), "r");
    size_t lines = 0;
    for (int c; (c = fgetc(f)) != EOF;)
        lines += c == '\n';
    fclose(f);
    size_t windows = 2 + (size_t)((clock_mono_s() - began) / 5);
    assert_true(lines <= 10 * windows);
    struct ledger_member m = read_of("often");
    assert_int_equal(m.up.incomplete_bytes, 10 * CALLS); /* all of it is counted */
    assert_int_equal(m.up.incomplete, 1);
    assert_true(m.down.incomplete == 0 && m.down.wrong == 0);
    uint64_t calls[LEDGER_WHATS] = {0};
    for (size_t i = 0; i < m.count; i++)
        calls[m.rows[i].what] += m.rows[i].calls;
    assert_int_equal(calls[LEDGER_POLL], CALLS);
    assert_int_equal(calls[LEDGER_AGGREGATE], CALLS);
    assert_int_equal(calls[LEDGER_CONTRIBUTION], 2 * CALLS);
}

static uint64_t relayed(const struct ledger_row *rows, unsigned count)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < count; i++)
        sum += rows[i].up.payload + rows[i].calls;
    return sum;
}

/* Another rank's rows on their way to the lead: added up, none is lost, and their number is bounded
 * for any rounds that the calls name. */
static void another_rank_hands_its_rows_over(void **state)
{
    (void)state;
    static struct relayed_rows r;
    struct ledger_row rows[RELAYED_MAX];
    relayed_open(&r);
    for (unsigned i = 0; i < 6; i++)
        relayed_add(&r, &(struct ledger_row){.what = LEDGER_CONTRIBUTION,
                                             .fragment = 1,
                                             .round = i / 3,
                                             .calls = 1,
                                             .up.payload = 10});
    assert_int_equal(relayed_take(&r, rows), 2);
    assert_int_equal(rows[0].round, 0);
    assert_int_equal(rows[1].round, 1);
    assert_int_equal(rows[1].up.payload, 30);
    assert_int_equal(relayed_take(&r, rows), 0);
    for (unsigned i = 0; i < 10000; i++)
        relayed_add(&r, &(struct ledger_row){.what = i % LEDGER_WHATS,
                                             .fragment = i % 63,
                                             .round = i % 7 ? i : LEDGER_NO_ROUND,
                                             .calls = 1,
                                             .up.payload = 2});
    unsigned count = relayed_take(&r, rows);
    assert_in_range(count, 1, RELAYED_MAX);
    assert_int_equal(relayed(rows, count), 30000);
    relayed_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_cut_as_openssl_cuts_them),
        cmocka_unit_test(a_prediction_is_the_sum_of_its_chunks),
        cmocka_unit_test(every_kind_has_one_name),
        cmocka_unit_test(what_is_booked_comes_back),
        cmocka_unit_test(a_peer_writes_few_rows),
        cmocka_unit_test(kills_are_booked),
        cmocka_unit_test(another_size_is_wrong),
        cmocka_unit_test(another_rank_hands_its_rows_over),
        cmocka_unit_test(sites_are_told_apart),
        cmocka_unit_test(a_kill_explains_a_row_that_one_end_lacks),
        cmocka_unit_test(aggregators_are_told_apart),
        cmocka_unit_test(rows_are_numbered),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(any_damage_is_survived),
        cmocka_unit_test(a_torn_end_is_passed_over),
        cmocka_unit_test(one_percent),
    };
    arena = arena_make(0);
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
