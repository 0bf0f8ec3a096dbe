/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROGRESS_H
#define PROGRESS_H
/* What a person sees while it trains: one row per site on stderr, updated in place on a terminal,
 * printed sparsely into a pipe or file (at most one per site every PROGRESS_SPARSE_S, and the
 * last). On a terminal a row is fitted to the width of the window: the site's name, its state, then
 * the numbers, of which the less important are left out first. A thread draws the rows twice a
 * second, so that waiting times count and a resized window is drawn again.
 *
 * It is also the log's sink while it is open, so that log lines and rows do not run into each
 * other: on a terminal only warnings and errors are shown, as sentences; elsewhere details are not;
 * every line goes to the log file when there is one. NO_COLOR and TERM=dumb are obeyed. Any thread
 * may log; one thread updates.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "kernels/base/err.h"

enum {
    PROGRESS_LINES_MAX = 64,
    PROGRESS_TEXT_MAX = 768,
    PROGRESS_SPARSE_S = 5,
    PROGRESS_LOG_BYTES =
        64 << 20, /* then log.txt becomes log.txt.1, which becomes log.txt.2, ... */
    PROGRESS_LOG_KEPT = 3,
    PROGRESS_LOG_SPARE = 16 << 20, /* with less free space no line is written to the file: the
                                      journal needs it more */
    PROGRESS_PACES = 9             /* intervals whose median is the pace */
};

struct progress_line {
    char site[64];
    int64_t step, steps;
    double loss, tokens_per_second; /* not finite: not known yet */
    uint64_t round, rounds;         /* committed rounds of all fragments; rounds 0: no outer loop */
    uint64_t bytes_up, bytes_down;  /* payload of the run, of all its processes */
    uint64_t predicted_up, predicted_down; /* what they should be; both 0: not known */
    double sync_seconds, eta_seconds;      /* negative: not known */
    char state[256];                       /* "waiting for b"; "" while it trains */
};
/* The text of a row, cut into the parts that are coloured differently. */
struct progress_row {
    char text[PROGRESS_TEXT_MAX];
    int name, state; /* bytes of the name with its padding; of name and state together */
};
struct progress {
    bool live, quiet, color, open;
    unsigned count, drawn; /* rows; of these on the screen now */
    struct progress_line lines[PROGRESS_LINES_MAX];
    double changed[PROGRESS_LINES_MAX];               /* seconds: when a row's state began */
    double updated[PROGRESS_LINES_MAX];               /* seconds: when its numbers came */
    double printed[PROGRESS_LINES_MAX];               /* when, sparse mode */
    char said[PROGRESS_LINES_MAX][PROGRESS_TEXT_MAX]; /* and what: nothing is printed twice */
    int widths[PROGRESS_LINES_MAX];                   /* columns of the rows on the screen */
    double drawn_at;
    FILE *log; /* every log line; NULL: none */
    char *log_path;
    uint64_t log_bytes, log_most, log_spare; /* in the file; PROGRESS_LOG_BYTES, _SPARE */
    uint64_t log_looked_ms, log_skipped; /* last look at the free space; lines not written since */
    bool log_short;                      /* of space */
    bool ticking, stop;
    pthread_t ticker;
};
/* Seconds of a step, exchanges included and outages left out: the median over the last intervals of
 * equal length. Zeroed: nothing known. */
struct progress_pace {
    double first_s, mark_s, last_s; /* of the first step, of the interval's first, of the last */
    int64_t first, mark, last;
    double intervals[PROGRESS_PACES]; /* seconds per step */
    unsigned count;                   /* intervals so far */
};

/* mode: "auto", "line", "live", "none". log_path NULL: log lines go to stderr only. One at a time.
 */
enum err progress_open(struct progress *p, const char *mode, unsigned count,
                       const char *log_path) MUST;
void progress_close(struct progress *p); /* draws the last state, gives the log back to stderr */
void progress_grow(struct progress *p, unsigned count); /* at least `count` rows from now on */
void progress_update(struct progress *p, unsigned index, const struct progress_line *line);
bool progress_shows(const struct progress *p); /* false: mode none, or closed */
void progress_live_only(struct progress *p);   /* no lines but the rows of a terminal */
/* A line above the rows; nothing where there are none: a log event says it there. */
void progress_say(struct progress *p, const char *text);
/* The row as it is shown. state_s: seconds since its state was said. Any thread. */
void progress_look(struct progress *p, unsigned index, struct progress_line *line, double *state_s);
/* From a signal handler: the sentence goes to stderr, above the rows where there are some. It must
 * stay valid. ends: the process ends before anything is drawn again. */
void progress_interrupt(const char *sentence, bool ends);

/* ---- text; also for tests ---- */
/* A row of at most `width` columns; 0: as long as it gets. name_width: the name is padded to it.
 * state_s: seconds since the state was said; its times count on. */
struct progress_layout {
    int width, name_width;
    double state_s, row_s; /* row_s: seconds since the numbers came */
};
void progress_format(struct progress_row *out, const struct progress_line *line,
                     const struct progress_layout *layout);
/* A log line for a person: "12:40:03 site b: no contribution for 32 s (waiting)". */
void progress_sentence(char *out, size_t size, const char *line, const char *time);
/* Mean over about the last ten values, for a rate that people read; NAN: none before. */
double progress_smooth(double before, double value);
void progress_bytes(char *out, size_t size, double bytes); /* "2.9 MB" */
/* "0:41", "1:02:03", from 100 hours on "4 d 4 h"; "-" when negative. */
void progress_duration(char *out, size_t size, double seconds);
/* Step `step` ended at now_s; every: steps of an interval. A step before the last one starts the
 * pace again.
 */
void progress_pace_step(struct progress_pace *p, int64_t step, int64_t every, double now_s);
double progress_pace_eta(const struct progress_pace *p, int64_t steps); /* -1: not known */

#endif
