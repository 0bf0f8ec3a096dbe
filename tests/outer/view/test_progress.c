/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this fails: what a person sees while it trains. A row fits the window and never
 * loses its state; a resized window keeps no stale copy; log lines are sentences; waiting times
 * count; the time left leaves outages out. The screen is a pseudo-terminal whose other end is read
 * by a small terminal that wraps long lines again when it is resized, as today's terminals do.
 */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/base/log.h"
#include "outer/view/progress.h"

enum { LINES = 64, LINE_BYTES = 1024 };

static const struct progress_line sample = {.site = "a",
                                            .step = 61,
                                            .steps = 740,
                                            .loss = 3.25,
                                            .tokens_per_second = 91886,
                                            .round = 3,
                                            .rounds = 37,
                                            .bytes_up = 2900000,
                                            .bytes_down = 999,
                                            .predicted_up = 2900000,
                                            .predicted_down = 999,
                                            .sync_seconds = 12,
                                            .eta_seconds = 3723};

static const char *format(const struct progress_line *l, int width, double state_s)
{
    static struct progress_row row;
    const struct progress_layout o = {.width = width, .name_width = 1, .state_s = state_s};
    progress_format(&row, l, &o);
    return row.text;
}

static void row_says_all(void **state)
{
    (void)state;
    struct progress_line l = sample;
    assert_string_equal(format(&l, 0, 0),
                        "a | step 61/740 | loss 3.2500 | 3/37 rounds | next sync 12.0 s | ETA "
                        "1:02:03 | 91.9k tok/s | up 2.9 MB | down 999 B, as predicted");
    l.bytes_up = 3100000;
    assert_non_null(strstr(format(&l, 0, 0), "up 3.1 MB | down 999 B, predicted 2.9 MB and 999 B"));
    l.predicted_up = l.predicted_down = 0; /* the aggregator's rows */
    assert_null(strstr(format(&l, 0, 0), "predicted"));
    l.loss = NAN;
    l.eta_seconds = -1;
    assert_null(strstr(format(&l, 0, 0), "loss"));
    assert_null(strstr(format(&l, 0, 0), "ETA"));
}

/* The numbers go in the order of their weight. */
static void numbers_fit_the_width(void **state)
{
    (void)state;
    assert_string_equal(format(&sample, 60, 0),
                        "a | step 61/740 | loss 3.2500 | 3/37 rounds | ETA 1:02:03");
    assert_string_equal(format(&sample, 50, 0), "a | step 61/740 | loss 3.2500 | 3/37 rounds");
    assert_string_equal(
        format(&sample, 80, 0),
        "a | step 61/740 | loss 3.2500 | 3/37 rounds | next sync 12.0 s | ETA 1:02:03");
    assert_string_equal(format(&sample, 100, 0),
                        "a | step 61/740 | loss 3.2500 | 3/37 rounds | next sync 12.0 s | ETA "
                        "1:02:03 | 91.9k tok/s");
    assert_non_null(strstr(format(&sample, 120, 0), "up 2.9 MB | down 999 B"));
    assert_non_null(strstr(format(&sample, 200, 0), "as predicted"));
}

static void state_is_never_cut(void **state)
{
    static const char *const states[] = {"waiting for b",
                                         "aggregator unreachable for 43 s, retrying in 28.4 s",
                                         "aggregator unreachable for 43 s, retrying in 28.4 s: "
                                         "failed to connect to all addresses; last error: "
                                         "UNKNOWN: ipv4:127.0.0.1:7443: connection refused"};
    static const char *const seen[] = {"waiting for b",
                                       "aggregator unreachable for 43 s, retrying in 28.4 s",
                                       "aggregator unreachable for 43 s, retrying in 28.4 s"};
    (void)state;
    for (int width = 60; width <= 300; width++)
        for (int i = 0; i < 3; i++) {
            struct progress_line l = sample;
            snprintf(l.state, sizeof l.state, "%s", states[i]);
            const char *text = format(&l, width, 0);
            assert_true((int)strlen(text) <= width);
            assert_ptr_equal(strstr(text, seen[i]), text + 4);
            assert_null(strstr(text, "next sync"));
            if (width >= 80)
                assert_non_null(strstr(text, "step 61/740"));
        }
    struct progress_line l = sample;
    snprintf(l.state, sizeof l.state, "%s", states[1]);
    assert_string_equal(format(&l, 24, 0), "a | aggregator unreac...");
}

/* What was said once stays true while nothing new is said. */
static void times_count_on(void **state)
{
    (void)state;
    struct progress_line l = sample;
    snprintf(l.state, sizeof l.state, "aggregator unreachable for 43 s, retrying in 3.4 s");
    assert_non_null(strstr(format(&l, 0, 2.2), "for 45 s, retrying in 1.2 s |"));
    assert_non_null(strstr(format(&l, 0, 9), "for 52 s, retrying in 0.0 s |"));
    assert_non_null(strstr(format(&l, 0, 9), "ETA 1:02:03 + wait"));
    snprintf(l.state, sizeof l.state, "waiting for b");
    assert_non_null(strstr(format(&l, 0, 0.2), "waiting for b |"));
    assert_non_null(strstr(format(&l, 0, 32.9), "waiting for b, 32 s |"));
    assert_non_null(strstr(format(&l, 0, 0.2), "ETA 1:02:03 |"));
    snprintf(l.state, sizeof l.state, "fetching a snapshot of fragment 2");
    assert_non_null(strstr(format(&l, 0, 9), "fragment 2 |"));
}

static void pace_leaves_outages_out(void **state)
{
    (void)state;
    struct progress_pace p = {0};
    double now = 1000;
    assert_true(progress_pace_eta(&p, 100) < 0);
    progress_pace_step(&p, 0, 10, now);
    for (int64_t step = 1; step <= 50; step++) {
        now += step == 20 || step == 40 ? 60 : 0.5; /* two outages of a minute */
        progress_pace_step(&p, step, 10, now);
        if (step == 5)
            assert_true(fabs(progress_pace_eta(&p, 105) - 50) < 1e-9);
    }
    assert_true(fabs(progress_pace_eta(&p, 150) - 50) < 1e-9);
    for (int64_t step = 51; step <= 150; step++) /* half as fast from here on */
        progress_pace_step(&p, step, 10, now += 1);
    assert_true(fabs(progress_pace_eta(&p, 250) - 100) < 1e-9);
    progress_pace_step(&p, 120, 10, now); /* back at a checkpoint */
    assert_true(progress_pace_eta(&p, 250) < 0);
}

static void log_lines_are_sentences(void **state)
{
    (void)state;
    char out[1024];
    progress_sentence(out, sizeof out,
                      "site=aggregator level=warn ev=waiting fragment=0 round=8 "
                      "text=\"site b: nothing heard for 32 s, round 8 waits for it\"",
                      "12:40:03");
    assert_string_equal(out,
                        "12:40:03 warning: site b: nothing heard for 32 s, round 8 waits for it");
    progress_sentence(out, sizeof out,
                      "site=a rank=0 level=error ev=disk_full file=journal do=\"make room\"", "1");
    assert_string_equal(out, "1 ERROR disk full: file journal; do: make room");
    progress_sentence(out, sizeof out, "site=a level=warn ev=x why=\"he said \\\"no\\\"\"", "1");
    assert_string_equal(out, "1 warning: he said \"no\"");
    progress_sentence(out, sizeof out, "no logfmt", "1"); /* of a library: nothing is lost */
    assert_string_equal(out, "1 no logfmt");
}

/* ---- a terminal ---- */
struct terminal {
    int master, kept;               /* kept: stderr before */
    char line[LINES][LINE_BYTES];   /* logical lines: what ended with a newline */
    int count, at, offset, columns; /* cursor: logical line, and bytes into it */
};

static void terminal_resize(struct terminal *t, int columns)
{
    struct winsize w = {.ws_col = (unsigned short)columns, .ws_row = 40};
    assert_int_equal(ioctl(STDERR_FILENO, TIOCSWINSZ, &w), 0);
    t->columns = columns;
}

static int setup(void **state)
{
    static struct terminal t;
    t = (struct terminal){.master = posix_openpt(O_RDWR | O_NOCTTY), .count = 1};
    int slave = -1;
    if (t.master >= 0 && grantpt(t.master) == 0 && unlockpt(t.master) == 0)
        slave = open(ptsname(t.master), O_RDWR | O_NOCTTY);
    if (slave < 0) {
        fprintf(stderr, "SKIPPED: this machine gives no pseudo-terminal (/dev/pts)\n");
        *state = NULL;
        return 0;
    }
    t.kept = dup(STDERR_FILENO);
    dup2(slave, STDERR_FILENO);
    close(slave);
    setenv("TERM", "xterm", 1);
    fcntl(t.master, F_SETFL, O_NONBLOCK);
    *state = &t;
    return 0;
}

static int teardown(void **state)
{
    struct terminal *t = *state;
    if (!t)
        return 0;
    dup2(t->kept, STDERR_FILENO);
    close(t->kept);
    close(t->master);
    return 0;
}

static int height(const struct terminal *t, int i)
{
    int n = (int)strlen(t->line[i]);
    return n ? (n + t->columns - 1) / t->columns : 1;
}

/* Up by screen lines, of which a wrapped logical line has several; then to column 0. */
static void cursor_up(struct terminal *t, int n)
{
    int screen = t->offset / t->columns;
    for (int i = 0; i < t->at; i++)
        screen += height(t, i);
    screen = screen > n ? screen - n : 0;
    for (t->at = 0; screen >= height(t, t->at); t->at++)
        screen -= height(t, t->at);
    t->offset = screen * t->columns;
}

static void put(struct terminal *t, char c)
{
    if (c == '\n') {
        assert_true(++t->at < LINES);
        t->count = t->at >= t->count ? t->at + 1 : t->count;
        t->offset = 0;
    } else if (c == '\r') {
        t->offset -= t->offset % t->columns;
    } else {
        char *line = t->line[t->at];
        assert_true(t->offset + 1 < LINE_BYTES && (int)strlen(line) >= t->offset);
        if (!line[t->offset])
            line[t->offset + 1] = 0;
        line[t->offset++] = c;
    }
}

static const char *escape(struct terminal *t, const char *p)
{
    int n = (int)strtol(p + 2, NULL, 10);
    const char *end = p + 2 + strspn(p + 2, "0123456789;");
    if (*end == 'A')
        cursor_up(t, n);
    else if (*end == 'J') {
        t->line[t->at][t->offset] = 0;
        for (int i = t->at + 1; i < t->count; i++)
            t->line[i][0] = 0;
        t->count = t->at + 1;
    } else
        assert_int_equal(*end, 'm');
    return end + 1;
}

/* What has arrived, onto the screen. */
static void look(struct terminal *t)
{
    static char text[1 << 16];
    size_t used = 0;
    for (ssize_t n; (n = read(t->master, text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)n;
    text[used] = 0;
    for (const char *p = text; *p;) {
        if (*p == '\x1b')
            p = escape(t, p);
        else
            put(t, *p++);
    }
}

static int found(const struct terminal *t, const char *words)
{
    int n = 0;
    for (int i = 0; i < t->count; i++)
        n += strstr(t->line[i], words) != NULL;
    return n;
}

/* Patient: machines are busy, and a frame is not drawn at once. */
static void until_found(struct terminal *t, const char *words, int count)
{
    for (int tries = 0; tries < 200; tries++) {
        look(t);
        if (found(t, words) == count)
            return;
        usleep(50000);
    }
    fail_msg("%d times \"%s\", wanted %d", found(t, words), words, count);
}

static void update(struct terminal *t, struct progress *p, const char *state)
{
    struct progress_line l = sample;
    snprintf(l.state, sizeof l.state, "%s", state);
    progress_update(p, 0, &l);
    snprintf(l.site, sizeof l.site, "site-b");
    snprintf(l.state, sizeof l.state, "with %s", strrchr(state, ' '));
    progress_update(p, 1, &l);
    until_found(t, l.state, 1);
}

static void screen_follows_the_window(void **state)
{
    if (!*state)
        skip();
    static const int widths[] = {120, 60, 80, 200, 100, 60, 200};
    struct terminal *t = *state;
    struct progress p;
    terminal_resize(t, 120);
    assert_int_equal(progress_open(&p, "live", 2, NULL), ERR_OK);
    assert_true(p.live);
    log_event(LOG_WARN, "before", "text=\"this stays above\"");
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        char words[64];
        terminal_resize(t, widths[i]);
        snprintf(words, sizeof words, "waiting for site %zu", i);
        update(t, &p, words);
        assert_int_equal(found(t, "| step 61/740"), 2); /* no stale copy of a row */
        assert_int_equal(found(t, "waiting for site"), 1);
        assert_int_equal(found(t, words), 1);
        assert_int_equal(found(t, "this stays above"), 1);
        for (int k = 0; k < t->count; k++)
            assert_true((int)strlen(t->line[k]) <= widths[i] || strstr(t->line[k], "stays"));
    }
    progress_interrupt("finishing this step", false);
    terminal_resize(t, 80);
    until_found(t, "waiting for site 6, ", 1); /* nothing new is said: the thread draws */
    assert_int_equal(found(t, "finishing this step"), 1);
    assert_int_equal(found(t, "| step 61/740"), 2);
    progress_close(&p);
    look(t);
    assert_int_equal(found(t, "| step 61/740"), 2);
    log_event(LOG_WARN, "after", "a=1"); /* as if nothing had been */
    look(t);
    assert_int_equal(found(t, "ev=after"), 1);
}

/* From 100 hours on in days: the hours of a run of weeks say nothing. */
static void durations_are_read_at_a_glance(void **state)
{
    static const struct {
        double seconds;
        const char *text;
    } row[] = {{-1, "-"},
               {NAN, "-"},
               {41.2, "0:41"},
               {3723, "1:02:03"},
               {359999, "99:59:59"},
               {360000, "4 d 4 h"},
               {86400 * 21 - 1, "20 d 23 h"},
               {86400 * 365.0, "365 d 0 h"},
               {2e8, "-"}};
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[32];
        progress_duration(text, sizeof text, row[i].seconds);
        assert_string_equal(text, row[i].text);
    }
}

/* The log file is cut into pieces, none of which loses a line; with little free space it stops, and
 * then says how much is missing. */
static unsigned lines_of(const char *path, const char *words)
{
    char line[512];
    unsigned n = 0;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, words) != NULL && line[strlen(line) - 1] == '\n';
    if (f)
        fclose(f);
    return n;
}

static void the_log_file_is_bounded(void **state)
{
    (void)state;
    char dir[] = "/tmp/atoll-progress-XXXXXX", path[64], piece[80];
    struct progress p;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/log.txt", dir);
    assert_int_equal(progress_open(&p, "none", 1, path), ERR_OK);
    p.log_most = 1500;
    p.log_spare = 0;
    for (int i = 0; i < 150; i++)
        log_event(LOG_DETAIL, "piece", "number=%d", i);
    unsigned found = lines_of(path, "ev=piece");
    for (int i = 1; i <= PROGRESS_LOG_KEPT; i++) {
        struct stat st;
        snprintf(piece, sizeof piece, "%s.%d", path, i);
        assert_int_equal(stat(piece, &st), 0);
        assert_in_range(st.st_size, 1500, 1600);
        found += lines_of(piece, "ev=piece");
    }
    assert_in_range(found, 75, 149); /* pieces beyond the last one are gone */
    snprintf(piece, sizeof piece, "%s.1", path);
    assert_int_equal(lines_of(path, "number=149") + lines_of(piece, "number=149"), 1);
    snprintf(piece, sizeof piece, "%s.%d", path, PROGRESS_LOG_KEPT + 1);
    assert_int_equal(access(piece, F_OK), -1);
    p.log_most = 1 << 20;
    p.log_spare = UINT64_MAX;
    p.log_looked_ms = 0;
    for (int i = 0; i < 7; i++)
        log_event(LOG_DETAIL, "short", "number=%d", i);
    p.log_spare = 0;
    p.log_looked_ms = 0;
    log_event(LOG_DETAIL, "again", "%s", "");
    progress_close(&p);
    assert_int_equal(lines_of(path, "ev=short"), 0);
    assert_int_equal(lines_of(path, "ev=log_skips"), 1);
    assert_int_equal(lines_of(path, "ev=log_skipped lines=7"), 1);
    assert_int_equal(lines_of(path, "ev=again"), 1);
    for (int i = 0; i <= PROGRESS_LOG_KEPT; i++) {
        snprintf(piece, sizeof piece, i ? "%s.%d" : "%s", path, i);
        unlink(piece);
    }
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_read_at_a_glance),
        cmocka_unit_test(row_says_all),
        cmocka_unit_test(numbers_fit_the_width),
        cmocka_unit_test(state_is_never_cut),
        cmocka_unit_test(times_count_on),
        cmocka_unit_test(pace_leaves_outages_out),
        cmocka_unit_test(log_lines_are_sentences),
        cmocka_unit_test(the_log_file_is_bounded),
        cmocka_unit_test_setup_teardown(screen_follows_the_window, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
