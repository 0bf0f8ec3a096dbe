#include "outer/report/progress.h"
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include "kernels/base/log.h"

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards the screen: log lines come from any thread */

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double progress_smooth(double before, double value)
{
    return isfinite(before) ? before + 0.1 * (value - before) : value;
}

void progress_bytes(char *out, size_t size, double bytes)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    size_t i = 0;
    while (bytes >= 999.5 && i + 1 < sizeof unit / sizeof *unit) {
        bytes /= 1000;
        i++;
    }
    snprintf(out, size, i == 0 || bytes >= 99.95 ? "%.0f %s" : "%.1f %s", bytes, unit[i]);
}

void progress_duration(char *out, size_t size, double seconds)
{
    if (!(seconds >= 0) || seconds > 1e8) {
        snprintf(out, size, "-");
        return;
    }
    long s = lround(seconds);
    if (s >= 3600)
        snprintf(out, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, size, "%ld:%02ld", s / 60, s % 60);
}

static void predicted_text(char *out, size_t size, const struct progress_line *l)
{
    char up[32], down[32];
    progress_bytes(up, sizeof up, (double)l->predicted_up);
    progress_bytes(down, sizeof down, (double)l->predicted_down);
    if (l->predicted_up || l->predicted_down)
        snprintf(out, size, " (predicted %s, %s)", up, down);
}

void progress_format(char out[PROGRESS_TEXT_MAX], const struct progress_line *l)
{
    char up[32], down[32], eta[32], rate[32] = "-", loss[32] = "-", sync[48] = "",
                                    predicted[96] = "";
    progress_bytes(up, sizeof up, (double)l->bytes_up);
    progress_bytes(down, sizeof down, (double)l->bytes_down);
    progress_duration(eta, sizeof eta, l->eta_seconds);
    if (isfinite(l->loss))
        snprintf(loss, sizeof loss, "%.4f", l->loss);
    if (isfinite(l->tokens_per_second))
        snprintf(rate, sizeof rate, l->tokens_per_second < 9999.5 ? "%.0f" : "%.1fk",
                 l->tokens_per_second < 9999.5 ? l->tokens_per_second
                                               : l->tokens_per_second / 1000);
    int n = snprintf(out, PROGRESS_TEXT_MAX, "%-10s | step %5lld/%lld | loss %s | %s tok/s",
                     l->site, (long long)l->step, (long long)l->steps, loss, rate);
    if (l->bytes_up != l->predicted_up || l->bytes_down != l->predicted_down)
        predicted_text(predicted, sizeof predicted, l);
    else if (l->bytes_up)
        snprintf(predicted, sizeof predicted, " as predicted");
    if (l->rounds && n > 0 && n < PROGRESS_TEXT_MAX) {
        if (l->state[0])
            snprintf(sync, sizeof sync, " | %.44s", l->state);
        else if (l->sync_seconds >= 0)
            snprintf(sync, sizeof sync, " | sync in %.1f s", l->sync_seconds);
        n += snprintf(out + n, (size_t)(PROGRESS_TEXT_MAX - n),
                      " | round %llu/%llu | up %s | down %s%s%s", (unsigned long long)l->round,
                      (unsigned long long)l->rounds, up, down, predicted, sync);
    } else if (l->state[0] && n > 0 && n < PROGRESS_TEXT_MAX) {
        n += snprintf(out + n, (size_t)(PROGRESS_TEXT_MAX - n), " | %s", l->state);
    }
    if (n > 0 && n < PROGRESS_TEXT_MAX && l->eta_seconds >= 0)
        snprintf(out + n, (size_t)(PROGRESS_TEXT_MAX - n), " | ETA %s", eta);
}

static int columns(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 120;
}

static void erase(struct progress *p)
{
    for (unsigned i = 0; i < p->drawn; i++)
        fputs("\x1b[1A\x1b[2K", stderr);
    p->drawn = 0;
}

static void draw(struct progress *p)
{
    int width = columns() - 1;
    p->drawn = 0;
    for (unsigned i = 0; i < p->count; i++) {
        char text[PROGRESS_TEXT_MAX];
        if (!p->lines[i].site[0]) /* nothing was ever said of it */
            continue;
        p->drawn++;
        progress_format(text, &p->lines[i]);
        const char *bar = strchr(text, '|');
        int name = bar ? (int)(bar - text) : 0;
        if (p->color)
            fprintf(stderr, "\x1b[1;36m%.*s\x1b[0m%.*s\n", name, text, width - name, text + name);
        else
            fprintf(stderr, "%.*s\n", width, text);
    }
    p->drawn_at = seconds_now();
}

/* The log's sink: t= in front, as the log's own sink does. */
static void sink(void *self, enum log_level level, const char *line)
{
    struct progress *p = self;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    pthread_mutex_lock(&lock);
    if (p->log) {
        fprintf(p->log, "t=%lld.%03ld %s\n", (long long)now.tv_sec, now.tv_nsec / 1000000, line);
        fflush(p->log);
    }
    bool shown = level >= (p->log && p->live ? LOG_WARN : LOG_INFO);
    if (shown) {
        if (p->live)
            erase(p);
        fprintf(stderr, "t=%lld.%03ld %s\n", (long long)now.tv_sec, now.tv_nsec / 1000000, line);
        if (p->live)
            draw(p);
    }
    pthread_mutex_unlock(&lock);
}

enum err progress_open(struct progress *p, const char *mode, unsigned count, const char *log_path)
{
    *p = (struct progress){.count = count < PROGRESS_LINES_MAX ? count : PROGRESS_LINES_MAX};
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    bool terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    p->live = strcmp(mode, "live") == 0 || (strcmp(mode, "auto") == 0 && terminal);
    p->quiet = strcmp(mode, "none") == 0;
    p->color = p->live && !(no_color && *no_color);
    if (log_path && !(p->log = fopen(log_path, "ae")))
        return err_set(ERR_IO, "%s: cannot open the log file: %s", log_path, strerror(errno));
    for (unsigned i = 0; i < p->count; i++)
        p->lines[i] = (struct progress_line){
            .loss = NAN, .tokens_per_second = NAN, .sync_seconds = -1, .eta_seconds = -1};
    p->open = true;
    if (p->live && log_path)
        fprintf(stderr, "log  %s\n", log_path);
    log_to(sink, p);
    return ERR_OK;
}

void progress_update(struct progress *p, unsigned index, const struct progress_line *line)
{
    enum { FRAMES_PER_SECOND = 8 };
    if (!p->open || index >= p->count)
        return;
    pthread_mutex_lock(&lock);
    p->lines[index] = *line;
    double now = seconds_now();
    if (p->live && now - p->drawn_at >= 1.0 / FRAMES_PER_SECOND) {
        erase(p);
        draw(p);
        fflush(stderr);
    } else if (!p->live && !p->quiet && line->step > 0 &&
               (now - p->printed[index] >= PROGRESS_SPARSE_S || line->step == line->steps)) {
        char text[PROGRESS_TEXT_MAX];
        progress_format(text, line);
        if (strcmp(text, p->said[index]) != 0)
            fprintf(stderr, "%s\n", text);
        memcpy(p->said[index], text, sizeof text);
        p->printed[index] = now;
    }
    pthread_mutex_unlock(&lock);
}

void progress_close(struct progress *p)
{
    if (!p->open)
        return;
    log_to(NULL, NULL);
    pthread_mutex_lock(&lock);
    if (p->live) {
        erase(p);
        draw(p);
        fflush(stderr);
    }
    if (p->log)
        fclose(p->log);
    p->open = false;
    pthread_mutex_unlock(&lock);
}
