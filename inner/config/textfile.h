/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEXTFILE_H
#define TEXTFILE_H
/* The text files that people give: settings, JSON, JSON lines, TSV, CSV, plain text. Other programs
 * wrote them, so each reader of one begins here. A byte order mark of UTF-8 is no part of the text.
 * What is no text in UTF-8 is refused by its name: UTF-16 and UTF-32, with mark or without;
 * compressed files, Parquet, Arrow and others by their first bytes; else a file with a zero byte.
 * Whether the rest is UTF-8 is the reader's to check. Pure; nothing is copied. Lines end with \n or
 * \r\n.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/err.h"

struct textfile {
    const char *text;
    size_t size_bytes;
};
struct textfile_line { /* without what ends it */
    const char *text;
    size_t size_bytes;
    uint64_t number; /* the first is 1; a caller begins with 0 */
};

/* ERR_INPUT: `path`, what the file is, and what to do. otherwise: the end of the sentence about a
 * file that is no text ("--bytes takes it as it is"); NULL: none. */
enum err textfile_open(struct textfile *t, const char *path, const void *data, size_t size_bytes,
                       const char *otherwise) MUST;
/* The line at *at, which moves after it. False: the text ends there. */
bool textfile_line(const struct textfile *t, size_t *at, struct textfile_line *line);

#endif
