/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CSV_H
#define CSV_H
/* Comma-separated values, RFC 4180, as Python's csv and pandas read them: a field in quotes may
 * hold commas, line breaks, which stay as they are, and quotes, each written twice; a quote further
 * on in a field is a letter like others. A record ends with \n, \r\n or \r. Pure; one owner.
 */
#include "inner/data/tokenizer/buffer.h"
#include "kernels/base/arena.h"

enum { CSV_RECORD_BYTES_MAX = 1 << 20 };

struct csv {
    const char *text;
    size_t size_bytes;
    size_t at, line;       /* where the next record begins; the first line is 1 */
    struct buffer scratch; /* its owner frees it */
};

/* The record at c->at, which moves after it. fields: the first `most` ones, UTF-8 without a zero
 * byte, in `a`. count: all of them; 0: a blank line. ERR_INPUT names the field. */
enum err csv_read(struct csv *c, struct arena *a, const char **fields, size_t most,
                  size_t *count) MUST;

#endif
