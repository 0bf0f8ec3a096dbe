/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCRUB_H
#define SCRUB_H
/* The scrub: a thread that reads a directory's files again and compares them with their digests, so
 * that damage at rest is found while another copy exists, and not when the file is needed
 * (docs/protocol.md 5, row 20). It reads with checked reads in pieces at a bounded rate, past the
 * page cache where the system allows, and holds no lock of its owner while it reads. What it finds
 * twice is handed to the row's repair; what cannot be repaired is an alarm with the file's name.
 * Nothing is removed here.
 *
 * Counts, and ev=scrub in the log: one line for each damaged file, one for each pass.
 */
#include "outer/store/env.h"

enum { SCRUB_PATH_MAX = 256, SCRUB_TEXT_MAX = 256 };

enum scrub_check {                  /* where the digests are */
                   SCRUB_RECORD,    /* in the file: kernels/base/record.h */
                   SCRUB_AGGREGATE, /* in the file MANIFEST of its directory; without one there is
                                       none */
                   SCRUB_NAMED,     /* after the last dot of its name, 64 hexadecimal digits; other
                                       names: none */
                   SCRUB_JOURNAL    /* in its records: journal.h */
};
struct scrub_file { /* a damaged one */
    const char *path;
    uint64_t number[2]; /* of the numbers in the pattern, in order */
};
/* By the scrub's thread, with no lock held. ERR_OK: it is whole again. ERR_INPUT with no message
 * wanted: it is not needed any more, or not yet in force. Any other error: it is as it was, and the
 * message says why; `advice` is then what a person can do. */
typedef enum err scrub_repair(void *self, const struct scrub_file *f);
struct scrub_row {
    const char
        *pattern; /* path; a component # is a number; one that ends in * matches by its beginning */
    enum scrub_check check;
    scrub_repair *repair; /* NULL: nothing here can */
    const char *advice;   /* of the alarm */
};
struct scrub_options {
    const struct scrub_row *rows; /* borrowed */
    /* Is the file this process's to check? NULL: every file is. By the scrub's thread. */
    bool (*wanted)(void *self, const struct scrub_file *f);
    size_t row_count;
    uint64_t every_ms;    /* from the begin of a pass to the begin of the next */
    uint64_t bytes_per_s; /* read at most */
    void *self;           /* of these */
};
struct scrub_counts {
    uint64_t passes;                    /* ended */
    uint64_t files, bytes;              /* read, in all passes */
    uint64_t damaged, repaired, alarms; /* an alarm is counted again by each pass */
    uint64_t ended_ms;                  /* the last pass, env's now_ms */
};
struct scrub; /* opaque */

/* The first pass begins SCRUB_FIRST_MS after the start, or every_ms where that is less. */
enum { SCRUB_FIRST_MS = 600000 };
enum err scrub_open(struct scrub **s, struct env *w, const struct scrub_options *o) MUST;
void scrub_close(struct scrub *s); /* waits for its thread; NULL is fine */
void scrub_counts(struct scrub *s, struct scrub_counts *out); /* any thread; NULL: all 0 */
/* "  scrub: 2 passes, 14 files, 3.1 MiB read, ...", for a status. */
void scrub_text(char *out, size_t size, const struct scrub_counts *c, uint64_t now_ms);
/* By a repair that waits for another thread: up to `ms`; true: the scrub is being closed. */
bool scrub_wait(struct scrub *s, uint64_t ms);
/* One pass in the caller's thread, without waiting between files and pieces; for tests and tools.
 */
enum err scrub_pass(struct env *w, const struct scrub_options *o, struct scrub_counts *out) MUST;

#endif
