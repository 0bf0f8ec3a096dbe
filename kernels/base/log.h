/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOG_H
#define LOG_H
/* One event per line, logfmt, to a sink. A line is "ts=2026-11-28T04:39:21.671Z " + the prefix
 * ("site=a rank=0 ") + "level=info " + the event. The default sink is stderr; simulations and tests
 * set their own sink and add virtual time: a sink gets the line without ts. Values with blanks are
 * quoted by the caller through %s of log_quote(). A number that is not known (nan) has no field.
 * Thread-safe.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* DETAIL: written to a log file at log.level info; not written to stderr. */
enum log_level { LOG_DEBUG, LOG_DETAIL, LOG_INFO, LOG_WARN, LOG_ERROR };

typedef void log_sink(void *self, enum log_level level, const char *line); /* line has no newline */

void log_to(log_sink *sink, void *self); /* NULL: stderr */
void log_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_min(enum log_level level); /* lowest level passed to the sink; default LOG_DETAIL */
/* log_event(LOG_INFO, "round_close", "round=%u sites=%u", r, n)  ->  "level=info
 * ev=round_close round=41 sites=3" */
bool log_wanted(enum log_level level); /* true: `level` is at least log_min; for callers whose text
                                          is expensive */
void log_event(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A time as lines have it: RFC 3339, UTC, milliseconds. */
enum { LOG_TIME_MAX = 32 };
const char *log_time(uint64_t wall_ms, char out[LOG_TIME_MAX]);
/* Quotes s for a logfmt value into buf when it needs it; returns buf or s. Control characters
 * become \n, \r, \t, \xNN. log_event replaces those of values that were not quoted. */
const char *log_quote(char *buf, size_t size, const char *s);

/* The limiter of lines that a peer can cause as often as it likes. A key is what happens and who
 * causes it; in each window of LOG_LIMIT_MS it has a few lines, and the others are counted. The
 * owner gives zeroed memory for the keys, and its lock guards them. */
enum { LOG_LIMIT_MS = 30000, LOG_LIMIT_KEYS_MIN = 64 };
struct log_limit {
    struct log_limit_key {
        uint64_t hash, since_ms;
        unsigned lines, suppressed; /* logged in the window; not logged since the last line */
        char what[40], who[200];
    } * keys;     /* the last one: all for which there is no room */
    size_t count; /* at least 2; a few for each peer */
};
/* May this line be logged? lines: of this key in a window. *suppressed, when true: lines of the key
 * that were not logged since the last one. */
bool log_limit_pass(struct log_limit *l, const char *what, const char *who, unsigned lines,
                    uint64_t now_ms, unsigned *suppressed);
/* ev=suppressed for each key whose window is over and that has uncounted lines. */
void log_limit_flush(struct log_limit *l, uint64_t now_ms);

#endif
