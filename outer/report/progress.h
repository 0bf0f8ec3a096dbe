#ifndef PROGRESS_H
#define PROGRESS_H
/* What a person sees while it trains: one line per site on stderr, updated in place on a terminal,
 * printed sparsely into a pipe or file (at most one per site every PROGRESS_SPARSE_S, and the
 * last). It is also the log's sink while it is open, so that log lines and live lines do not run
 * into each other: on a terminal only warnings and errors are shown, elsewhere details are not;
 * every line goes to the log file when there is one. NO_COLOR and TERM=dumb are obeyed. Any thread
 * may log; one thread updates.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "kernels/base/err.h"

enum { PROGRESS_LINES_MAX = 64, PROGRESS_TEXT_MAX = 256, PROGRESS_SPARSE_S = 5 };

struct progress_line {
    char site[64];
    int64_t step, steps;
    double loss, tokens_per_second; /* not finite: not known yet */
    uint64_t round, rounds;         /* finished rounds of all fragments; rounds 0: no outer loop */
    uint64_t bytes_up, bytes_down;
    uint64_t predicted_up, predicted_down; /* what they should be; both 0: not known */
    double sync_seconds, eta_seconds;      /* negative: not known */
    char state[96];                        /* "waiting for b"; "" while it trains */
};
struct progress {
    bool live, quiet, color, open;
    unsigned count, drawn; /* lines; of these on the screen now */
    struct progress_line lines[PROGRESS_LINES_MAX];
    double printed[PROGRESS_LINES_MAX];               /* when, sparse mode */
    char said[PROGRESS_LINES_MAX][PROGRESS_TEXT_MAX]; /* and what: nothing is printed twice */
    double drawn_at;
    FILE *log; /* every log line; NULL: none */
};

/* mode: "auto", "line", "live", "none". log_path NULL: log lines go to stderr only. One at a time.
 */
enum err progress_open(struct progress *p, const char *mode, unsigned count,
                       const char *log_path) MUST;
void progress_close(struct progress *p); /* draws the last state, gives the log back to stderr */
void progress_update(struct progress *p, unsigned index, const struct progress_line *line);
/* Text of a line, without colour; also for tests. */
void progress_format(char out[PROGRESS_TEXT_MAX], const struct progress_line *line);
/* Mean over about the last ten values, for a rate that people read; NAN: none before. */
double progress_smooth(double before, double value);
void progress_bytes(char *out, size_t size, double bytes); /* "2.9 MB" */
void progress_duration(char *out, size_t size,
                       double seconds); /* "0:41", "1:02:03"; "-" when negative */

#endif
