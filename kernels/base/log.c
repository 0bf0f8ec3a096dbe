/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/log.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "kernels/base/clock.h"
#include "kernels/base/err.h"
#include "kernels/base/plain.h"

enum { LOG_LINE_MAX = 4096, LOG_PREFIX_MAX = 256 };

/* Guards the variables after it and the sink's calls. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink *sink;
static void *sink_self;
static enum log_level level_min = LOG_DETAIL;
static char prefix[LOG_PREFIX_MAX];

const char *log_time(uint64_t wall_ms, char out[LOG_TIME_MAX])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm parts;
    char day[LOG_TIME_MAX - 6] = "";
    if (gmtime_r(&seconds, &parts))
        strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out, LOG_TIME_MAX, "%s.%03uZ", day, (unsigned)(wall_ms % 1000));
    return out;
}

/* One write per line, so that lines of several processes on one terminal do not mix. */
static void log_stderr(const char *line)
{
    char time[LOG_TIME_MAX];
    fprintf(stderr, "ts=%s %s\n", log_time(clock_wall_ms(), time), line);
}

void log_to(log_sink *s, void *self)
{
    pthread_mutex_lock(&lock);
    sink = s;
    sink_self = self;
    pthread_mutex_unlock(&lock);
}

void log_prefix(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&lock);
    vsnprintf(prefix, sizeof prefix, format, arguments);
    pthread_mutex_unlock(&lock);
    va_end(arguments);
}

void log_min(enum log_level level)
{
    pthread_mutex_lock(&lock);
    level_min = level;
    pthread_mutex_unlock(&lock);
}

bool log_wanted(enum log_level level)
{
    pthread_mutex_lock(&lock);
    bool wanted = level >= level_min;
    pthread_mutex_unlock(&lock);
    return wanted;
}

static bool is_nan(const char *value, size_t n)
{
    return (n == 3 && strncmp(value, "nan", n) == 0) || (n == 4 && strncmp(value, "-nan", n) == 0);
}

/* Takes fields whose value is nan out of "a=1 b=nan c=\"x\"". */
static void unknown_drop(char *values)
{
    char *to = values;
    bool quoted = false;
    for (const char *at = values; *at;) {
        size_t key = strcspn(at, "= \"");
        const char *value = at + key + (at[key] == '=');
        bool nan = !quoted && (at == values || at[-1] == ' ') && at[key] == '=' &&
                   is_nan(value, strcspn(value, " "));
        if (nan) {
            at += strcspn(at, " ");
            at += *at == ' ';
            continue;
        }
        quoted ^= *at == '"' && (at == values || at[-1] != '\\');
        *to++ = *at++;
    }
    while (to > values && to[-1] == ' ')
        to--;
    *to = 0;
}

static const char *level_name(enum log_level level)
{
    return level == LOG_ERROR   ? "error"
           : level == LOG_WARN  ? "warn"
           : level == LOG_DEBUG ? "debug"
                                : "info";
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
    char values[LOG_LINE_MAX - LOG_PREFIX_MAX];
    char line[LOG_LINE_MAX + LOG_PREFIX_MAX];
    va_list arguments;
    if (!log_wanted(level))
        return;
    va_start(arguments, format);
    vsnprintf(values, sizeof values, format, arguments);
    va_end(arguments);
    plain_make(values, false); /* what no caller quoted */
    unknown_drop(values);
    pthread_mutex_lock(&lock);
    if (level >= level_min) {
        snprintf(line, sizeof line, "%slevel=%s ev=%s%s%s", prefix, level_name(level), event,
                 *values ? " " : "", values);
        if (sink)
            sink(sink_self, level, line);
        else if (level != LOG_DETAIL)
            log_stderr(line);
    }
    pthread_mutex_unlock(&lock);
}

static bool quotes_needed(const char *s)
{
    if (!*s || strpbrk(s, " \"\\="))
        return true;
    for (; *s; s += plain_length(s))
        if (plain_control(s))
            return true;
    return false;
}

/* The control character of n bytes as \n, \r, \t or \xNN (8 characters at most). */
static size_t control_quote(char *out, const char *s, size_t n)
{
    const char *at = strchr("\nn\rr\tt", *s);
    if (at)
        return (size_t)snprintf(out, 9, "\\%c", at[1]);
    return (size_t)snprintf(out, 9, n == 2 ? "\\x%02x\\x%02x" : "\\x%02x", (unsigned char)s[0],
                            (unsigned char)s[n - 1]);
}

const char *log_quote(char *buf, size_t size, const char *s)
{
    enum { LONGEST = 8 }; /* of one character, escaped */
    if (!quotes_needed(s))
        return s;
    size_t used = 0;
    if (size < 3)
        return "\"\"";
    buf[used++] = '"';
    while (*s) {
        char piece[LONGEST + 1];
        size_t control = plain_control(s), length = control ? control : plain_length(s), n = length;
        memcpy(piece, s, length);
        if (control)
            n = control_quote(piece, s, control);
        else if (*s == '"' || *s == '\\')
            n = (size_t)snprintf(piece, sizeof piece, "\\%c", *s);
        if (used + n + 2 >= size) /* the closing quote and the end */
            break;
        memcpy(buf + used, piece, n);
        used += n;
        s += length;
    }
    buf[used++] = '"';
    buf[used] = 0;
    return buf;
}

/* ---- lines that peers cause ---- */

static uint64_t key_hash(const char *what, const char *who) /* FNV-1a */
{
    uint64_t h = 0xcbf29ce484222325;
    for (const char *p = what; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3;
    h *= 0x100000001b3;
    for (const char *p = who; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3;
    return h;
}

static bool window_over(const struct log_limit_key *k, uint64_t now_ms)
{
    return now_ms < k->since_ms || now_ms - k->since_ms >= LOG_LIMIT_MS;
}

/* The key's entry, near its hash; a new one takes the place of one whose window is over. When there
 * is none, the key shares the last entry. */
static struct log_limit_key *key_of(const struct log_limit *l, const char *what, const char *who,
                                    uint64_t now_ms)
{
    enum { NEAR = 16 };
    uint64_t hash = key_hash(what, who);
    size_t room = l->count - 1;
    struct log_limit_key *unused = NULL;
    for (size_t i = 0; i < NEAR && i < room; i++) {
        struct log_limit_key *k = &l->keys[(hash + i) % room];
        if (k->lines && k->hash == hash && strncmp(k->who, who, sizeof k->who - 1) == 0)
            return k;
        if (!unused && (!k->lines || (window_over(k, now_ms) && !k->suppressed)))
            unused = k;
    }
    if (!unused)
        return &l->keys[room];
    *unused = (struct log_limit_key){.hash = hash, .since_ms = now_ms};
    snprintf(unused->what, sizeof unused->what, "%s", what);
    snprintf(unused->who, sizeof unused->who, "%s", who);
    return unused;
}

bool log_limit_pass(struct log_limit *l, const char *what, const char *who, unsigned lines,
                    uint64_t now_ms, unsigned *suppressed)
{
    ASSERT(l->count >= 2);
    struct log_limit_key *k = key_of(l, what, who, now_ms);
    if (k->lines && window_over(k, now_ms))
        k->lines = 0;
    if (!k->lines)
        k->since_ms = now_ms;
    if (k->lines >= lines) {
        k->suppressed++;
        return false;
    }
    k->lines++;
    *suppressed = k->suppressed;
    k->suppressed = 0;
    return true;
}

void log_limit_flush(struct log_limit *l, uint64_t now_ms)
{
    char quoted[2 * sizeof l->keys->who];
    for (size_t i = 0; i < l->count; i++) {
        struct log_limit_key *k = &l->keys[i];
        if (!k->suppressed || !window_over(k, now_ms))
            continue;
        log_event(LOG_WARN, "suppressed", "of=%s peer=%s lines=%u", *k->what ? k->what : "others",
                  log_quote(quoted, sizeof quoted, k->who), k->suppressed);
        k->suppressed = 0;
    }
}
