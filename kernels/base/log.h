#ifndef LOG_H
#define LOG_H
/* One event per line, logfmt, to a sink. A line is "t=12.345 " + the prefix ("site=a rank=0 ") +
 * the event. The default sink is stderr with t in seconds since 1970; simulations and tests set
 * their own sink and add virtual time: a sink gets the line without t. Above LOG_INFO the line
 * holds level=warn or level=error. Thread-safe. Values with blanks are quoted by the caller through
 * %s of log_quote().
 */
#include <stdbool.h>
#include <stddef.h>

/* DETAIL: written to a log file at log.level info; not written to stderr. */
enum log_level { LOG_DEBUG, LOG_DETAIL, LOG_INFO, LOG_WARN, LOG_ERROR };

typedef void log_sink(void *self, enum log_level level, const char *line); /* line has no newline */

void log_to(log_sink *sink, void *self); /* NULL: stderr */
void log_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_min(enum log_level level); /* lowest level passed to the sink; default LOG_DETAIL */
/* log_event(LOG_INFO, "round_close", "round=%u sites=%u", r, n)  ->  "ev=round_close round=41
 * sites=3" */
bool log_wanted(enum log_level level); /* true: `level` is at least log_min; for callers whose text
                                          is expensive */
void log_event(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Quotes s for a logfmt value into buf when it needs it; returns buf or s. */
const char *log_quote(char *buf, size_t size, const char *s);

#endif
