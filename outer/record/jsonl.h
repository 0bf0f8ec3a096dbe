/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JSONL_H
#define JSONL_H
/* metrics.jsonl: what a run did, one flat JSON object per line, appended in one write each; the
 * source of truth for the live rows of `atoll demo`, for `atoll report` and for anything a user
 * plots. Every object has
 *
 *     "v": RECORD_VERSION, "kind": "...", "t": unix seconds
 *
 * docs/metrics.md has every kind and field. Values are numbers, strings, or null for a number that
 * is not finite. A restarted site repeats steps, so a step may come twice: the later line counts. A
 * line cut short by a crash is removed at the next open. One writer; any number of readers, also
 * while it is being written.
 */
#include <stdio.h>
#include "kernels/base/file.h"

#define RECORD_FILE "metrics.jsonl"
enum { RECORD_VERSION = 1, RECORD_FIELDS_MAX = 640, RECORD_LINE_MAX = 1 << 18 };

struct jsonl {            /* the writer; zeroed: closed, everything below does nothing */
    int fd;               /* -1: none, the lines are told alone */
    uint64_t bytes;       /* of the file after the last write */
    bool open, bad, held; /* bad: the object did not fit; held: lines wait for jsonl_release */
    char *line;
    size_t used, begun; /* begun: where the object being written starts */
    /* NULL, or told each whole line, without its newline, before it is written. */
    void (*told)(void *self, const char *line, size_t size);
    void *self;
};

/* path's directory exists. */
enum err jsonl_open(struct jsonl *r, const char *path, struct arena *perm) MUST;
/* No file: each line is told. */
enum err jsonl_open_told(struct jsonl *r, void (*told)(void *self, const char *line, size_t size),
                         void *self, struct arena *perm) MUST;
/* The file of this name is another one now. On an error the writer is closed. */
enum err jsonl_reopen(struct jsonl *r, const char *path) MUST;
void jsonl_close(struct jsonl *r);
void jsonl_begin(struct jsonl *r, const char *kind);
void jsonl_begin_at(struct jsonl *r, unsigned version, const char *kind, uint64_t t_ms);
void jsonl_time(struct jsonl *r, const char *key, double unix_s); /* to the millisecond */
void jsonl_int(struct jsonl *r, const char *key, int64_t value);
void jsonl_real(struct jsonl *r, const char *key, double value);
void jsonl_text(struct jsonl *r, const char *key,
                const char *value); /* UTF-8 or not: bytes below 32 are escaped */
/* Writes the line. A full disk must not stop training: it is logged once and the file continues
 * when there is room. */
void jsonl_end(struct jsonl *r);
/* The lines between the two go into the file in one write, so that a kill takes all of them or
 * none; as long as they fit into the buffer. */
void jsonl_hold(struct jsonl *r);
void jsonl_release(struct jsonl *r);

struct jsonl_row { /* one object; views into the reader's line, valid until the next jsonl_next */
    const char *key[RECORD_FIELDS_MAX], *value[RECORD_FIELDS_MAX];
    size_t count;
};
struct jsonl_reader {
    FILE *file;
    char *line;
    size_t capacity;
    long at;          /* end of the last whole line */
    uint64_t skipped; /* lines that are no flat object: left out */
};

bool jsonl_reader_open(struct jsonl_reader *r, const char *path); /* false: not there (yet) */
void jsonl_reader_close(struct jsonl_reader *r);
/* The next whole line; false at the end of what has been written so far. */
bool jsonl_next(struct jsonl_reader *r, struct jsonl_row *row);
bool jsonl_parse(struct jsonl_row *row, char *line); /* in place; false: not a flat object */
const char *jsonl_string(const struct jsonl_row *row, const char *key); /* "" when absent */
double jsonl_number(const struct jsonl_row *row, const char *key); /* NAN when absent or null */
/* A record's number as a whole one: 0 for what is none, at most 2^53 in size. Records may come from
 * a peer or a person: a cast alone is undefined for other numbers. */
int64_t jsonl_whole(double number);
/* By strftime, in UTC; "" for what is no time. */
void jsonl_date(char *out, size_t size, const char *format, double unix_s);
bool jsonl_is(const struct jsonl_row *row, const char *kind);

#endif
