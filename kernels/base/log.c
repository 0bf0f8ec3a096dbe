#include "kernels/base/log.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/clock.h"

enum { LOG_LINE_MAX = 4096, LOG_PREFIX_MAX = 256 };

/* Guards the variables after it and the sink's calls. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink *sink;
static void *sink_self;
static enum log_level level_min = LOG_DETAIL;
static char prefix[LOG_PREFIX_MAX];

/* One write per line, so that lines of several processes on one terminal do not mix. */
static void log_stderr(const char *line)
{
    uint64_t now = clock_wall_ms();
    fprintf(stderr, "t=%" PRIu64 ".%03" PRIu64 " %s\n", now / 1000, now % 1000, line);
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
    pthread_mutex_lock(&lock);
    if (level >= level_min) {
        const char *mark = level == LOG_ERROR  ? "level=error "
                           : level == LOG_WARN ? "level=warn "
                                               : "";
        snprintf(line, sizeof line, "%s%sev=%s%s%s", prefix, mark, event, *values ? " " : "",
                 values);
        if (sink)
            sink(sink_self, level, line);
        else if (level != LOG_DETAIL)
            log_stderr(line);
    }
    pthread_mutex_unlock(&lock);
}

const char *log_quote(char *buf, size_t size, const char *s)
{
    if (*s && !strpbrk(s, " \t\r\n\"\\="))
        return s;
    size_t used = 0;
    if (size < 3)
        return "\"\"";
    buf[used++] = '"';
    for (; *s && used + 3 < size; s++) { /* room for an escape, the closing quote, the end */
        char c = *s == '\n' ? 'n' : *s == '\r' ? 'r' : *s == '\t' ? 't' : *s;
        if (c != *s || c == '"' || c == '\\')
            buf[used++] = '\\';
        buf[used++] = c;
    }
    buf[used++] = '"';
    buf[used] = 0;
    return buf;
}
