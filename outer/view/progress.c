/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/view/progress.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/base/signals.h"

enum {
    LOG_LOOK_MS = 1000,
    TICK_MS = 500,
    FRAMES_PER_SECOND = 8,
    COLUMNS_UNKNOWN = 120,
    COLUMNS_MIN = 20
};

/* Guards the screen and all of a struct progress: log lines come from any thread, and the ticker
 * draws. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Of a signal handler, for the ticker; and whether there is one. */
static _Atomic(const char *) interrupted;
static atomic_bool ticks;

/* Of the window now: a person may have resized it. */
static int window_columns(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= COLUMNS_MIN ? w.ws_col
                                                                                : COLUMNS_UNKNOWN;
}

/* Removes the rows from the screen. A window that has become narrower has wrapped them: then a row
 * takes several lines. */
static void screen_erase(struct progress *p)
{
    int columns = window_columns(), lines = 0;
    for (unsigned i = 0; i < p->drawn; i++)
        lines += p->widths[i] > columns ? (p->widths[i] + columns - 1) / columns : 1;
    if (lines)
        fprintf(stderr, "\x1b[%dA\r\x1b[J", lines);
    p->drawn = 0;
}

static void row_print(const struct progress *p, const struct progress_row *r)
{
    if (p->color)
        fprintf(stderr, "\x1b[1;36m%.*s\x1b[0;33m%.*s\x1b[0m%s\n", r->name, r->text,
                r->state - r->name, r->text + r->name, r->text + r->state);
    else
        fprintf(stderr, "%s\n", r->text);
}

static void screen_draw(struct progress *p)
{
    struct progress_layout layout = {.width = window_columns() - 1};
    double now = clock_mono_s();
    for (unsigned i = 0; i < p->count; i++) {
        int n = (int)strlen(p->lines[i].site);
        layout.name_width = n > layout.name_width ? n : layout.name_width;
    }
    p->drawn = 0;
    for (unsigned i = 0; i < p->count; i++) {
        struct progress_row row;
        if (!p->lines[i].site[0]) /* nothing was ever said of it */
            continue;
        layout.state_s = now - p->changed[i];
        layout.row_s = now - p->updated[i];
        progress_format(&row, &p->lines[i], &layout);
        p->widths[p->drawn++] = (int)strlen(row.text);
        row_print(p, &row);
    }
    p->drawn_at = now;
}

static void screen_redraw(struct progress *p)
{
    screen_erase(p);
    screen_draw(p);
    fflush(stderr);
}

static void print_above(struct progress *p, const char *text)
{
    screen_erase(p);
    fprintf(stderr, "%s\n", text);
    screen_draw(p);
    fflush(stderr);
}

void progress_say(struct progress *p, const char *text)
{
    pthread_mutex_lock(&lock);
    if (p->open && p->live)
        print_above(p, text);
    pthread_mutex_unlock(&lock);
}

void progress_look(struct progress *p, unsigned index, struct progress_line *line, double *state_s)
{
    pthread_mutex_lock(&lock);
    *line = p->lines[index];
    *state_s = clock_mono_s() - p->changed[index];
    pthread_mutex_unlock(&lock);
}

/* What a signal handler left to say. */
static void interrupted_print(struct progress *p)
{
    const char *sentence = atomic_exchange(&interrupted, NULL);
    if (sentence)
        print_above(p, sentence);
}

void progress_interrupt(const char *sentence, bool ends)
{
    if (atomic_load(&ticks) && !ends) {
        atomic_store(&interrupted, sentence);
        return;
    }
    /* printf is not for signal handlers */
    if (write(STDERR_FILENO, sentence, strlen(sentence)) < 0 || write(STDERR_FILENO, "\n", 1) < 0)
        return;
}

static void *ticker_main(void *self)
{
    struct progress *p = self;
    const struct timespec tick = {TICK_MS / 1000, TICK_MS % 1000 * 1000000L};
    for (bool stop = false; !stop;) {
        nanosleep(&tick, NULL);
        pthread_mutex_lock(&lock);
        stop = p->stop;
        interrupted_print(p);
        if (!stop && p->drawn && clock_mono_s() - p->drawn_at >= TICK_MS / 1000.0)
            screen_redraw(p);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* Without it the rows stand still in a wait; nothing else is lost. Signals are for other threads.
 */
static void ticker_start(struct progress *p)
{
    sigset_t before;
    signals_block(&before);
    p->ticking = pthread_create(&p->ticker, NULL, ticker_main, p) == 0;
    signals_restore(&before);
    atomic_store(&ticks, p->ticking);
}

static void ticker_stop(struct progress *p)
{
    if (!p->ticking)
        return;
    atomic_store(&ticks, false);
    pthread_mutex_lock(&lock);
    p->stop = true;
    pthread_mutex_unlock(&lock);
    pthread_join(p->ticker, NULL);
    p->ticking = false;
}

/* ---- the log file ---- */

/* A file that cannot be renamed keeps growing. */
static void log_rotate(struct progress *p)
{
    char from[4096], to[4096];
    struct stat st;
    fclose(p->log);
    for (int i = PROGRESS_LOG_KEPT; i > 0; i--) {
        snprintf(to, sizeof to, "%s.%d", p->log_path, i);
        snprintf(from, sizeof from, i > 1 ? "%s.%d" : "%s", p->log_path, i - 1);
        if (rename(from, to) != 0 && errno != ENOENT)
            break;
    }
    p->log = fopen(p->log_path, "ae");
    p->log_bytes = p->log && fstat(fileno(p->log), &st) == 0 ? (uint64_t)st.st_size : 0;
}

static void log_line(struct progress *p, uint64_t now, const char *line)
{
    char time[LOG_TIME_MAX];
    int n = fprintf(p->log, "ts=%s %s\n", log_time(now, time), line);
    fflush(p->log);
    p->log_bytes += n > 0 ? (uint64_t)n : 0;
    if (p->log_bytes >= p->log_most)
        log_rotate(p);
}

/* Looks at the free space once a second. */
static bool log_is_short(struct progress *p)
{
    uint64_t now = clock_mono_ms();
    struct statvfs st; /* file_free_bytes would replace the thread's error message */
    if (p->log_looked_ms && now - p->log_looked_ms < LOG_LOOK_MS)
        return p->log_short;
    p->log_looked_ms = now;
    p->log_short =
        statvfs(p->log_path, &st) == 0 && (uint64_t)st.f_bavail * st.f_frsize < p->log_spare;
    return p->log_short;
}

static void log_file_write(struct progress *p, uint64_t now, const char *line)
{
    char text[96];
    if (log_is_short(p)) {
        if (p->log_skipped++ == 0)
            log_line(p, now, "level=warn ev=log_skips why=\"the disk is nearly full\"");
        return;
    }
    if (p->log_skipped) {
        snprintf(text, sizeof text, "level=warn ev=log_skipped lines=%" PRIu64, p->log_skipped);
        p->log_skipped = 0;
        log_line(p, now, text);
    }
    if (p->log)
        log_line(p, now, line);
}

/* The log's sink: with ts= at the start in the file and where it is not live, as the log's own sink
 * does. */
static void log_sink_write(void *self, enum log_level level, const char *line)
{
    struct progress *p = self;
    uint64_t now = clock_wall_ms();
    time_t seconds = (time_t)(now / 1000);
    pthread_mutex_lock(&lock);
    if (p->log)
        log_file_write(p, now, line);
    if (p->live && level >= (p->log ? LOG_WARN : LOG_INFO)) {
        char text[1024], clock[16] = "";
        struct tm parts;
        if (localtime_r(&seconds, &parts))
            strftime(clock, sizeof clock, "%H:%M:%S", &parts);
        progress_sentence(text, sizeof text, line, clock);
        print_above(p, text);
    } else if (!p->live && level >= LOG_INFO) {
        char time[LOG_TIME_MAX];
        fprintf(stderr, "ts=%s %s\n", log_time(now, time), line);
    }
    pthread_mutex_unlock(&lock);
}

static enum err log_open(struct progress *p, const char *path)
{
    struct stat st;
    if (!path)
        return ERR_OK;
    p->log_most = PROGRESS_LOG_BYTES;
    p->log_spare = PROGRESS_LOG_SPARE;
    p->log = fopen(path, "ae");
    if (!p->log)
        return err_set(ERR_IO, "%s: cannot open the log file: %s", path, strerror(errno));
    if (fstat(fileno(p->log), &st) == 0)
        p->log_bytes = (uint64_t)st.st_size;
    p->log_path = strdup(path);
    if (p->log_path)
        return ERR_OK;
    fclose(p->log);
    p->log = NULL;
    return err_set(ERR_MEMORY, "no memory for the log");
}

enum err progress_open(struct progress *p, const char *mode, unsigned count, const char *log_path)
{
    *p = (struct progress){.count = count < PROGRESS_LINES_MAX ? count : PROGRESS_LINES_MAX};
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    bool terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    p->live = strcmp(mode, "live") == 0 || (strcmp(mode, "auto") == 0 && terminal);
    p->quiet = strcmp(mode, "none") == 0;
    p->color = p->live && !(no_color && *no_color);
    TRY(log_open(p, log_path));
    for (unsigned i = 0; i < PROGRESS_LINES_MAX; i++)
        p->lines[i] = (struct progress_line){
            .loss = NAN, .tokens_per_second = NAN, .sync_seconds = -1, .eta_seconds = -1};
    p->open = true;
    if (p->live && log_path)
        fprintf(stderr, "log  %s\n", log_path);
    log_to(log_sink_write, p);
    if (p->live)
        ticker_start(p);
    return ERR_OK;
}

void progress_live_only(struct progress *p)
{
    p->quiet = p->quiet || !p->live;
}

bool progress_shows(const struct progress *p)
{
    return p->open && !p->quiet;
}

static void sparse_print(struct progress *p, unsigned index, double now)
{
    const struct progress_line *line = &p->lines[index];
    struct progress_row row;
    if (line->step <= 0 ||
        (now - p->printed[index] < PROGRESS_SPARSE_S && line->step != line->steps))
        return;
    progress_format(&row, line, &(struct progress_layout){.name_width = 10});
    if (strcmp(row.text, p->said[index]) != 0)
        fprintf(stderr, "%s\n", row.text);
    memcpy(p->said[index], row.text, sizeof row.text);
    p->printed[index] = now;
}

void progress_grow(struct progress *p, unsigned count)
{
    pthread_mutex_lock(&lock);
    if (count > p->count)
        p->count = count < PROGRESS_LINES_MAX ? count : PROGRESS_LINES_MAX;
    pthread_mutex_unlock(&lock);
}

void progress_update(struct progress *p, unsigned index, const struct progress_line *line)
{
    if (!p->open || index >= p->count)
        return;
    pthread_mutex_lock(&lock);
    double now = clock_mono_s();
    struct progress_line *l = &p->lines[index];
    bool news = strcmp(l->state, line->state) != 0; /* as long as it lasts its time counts on */
    if (news)
        p->changed[index] = now;
    if (l->step != line->step || l->eta_seconds != line->eta_seconds)
        p->updated[index] = now;
    *l = *line;
    if (p->live && (news || now - p->drawn_at >= 1.0 / FRAMES_PER_SECOND))
        screen_redraw(p);
    else if (!p->live && !p->quiet)
        sparse_print(p, index, now);
    pthread_mutex_unlock(&lock);
}

void progress_close(struct progress *p)
{
    if (!p->open)
        return;
    log_to(NULL, NULL);
    ticker_stop(p);
    pthread_mutex_lock(&lock);
    if (p->live)
        screen_redraw(p);
    if (p->log)
        fclose(p->log);
    free(p->log_path);
    p->log = NULL;
    p->log_path = NULL;
    p->open = false;
    pthread_mutex_unlock(&lock);
}
