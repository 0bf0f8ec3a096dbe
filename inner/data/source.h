/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SOURCE_H
#define SOURCE_H
/* A file that `atoll data` reads: plain text, one field of JSON lines, one column of CSV, each also
 * as .gz and .zst; or ids that another program's tokenizer made. What a file is its name says, else
 * its first line. Without a tokenizer a byte of text is an id. What is wrong with a file is found
 * when it is opened. What a file expands to lies on disk (kernels/base/spill.h), so that memory
 * does not grow with it.
 */
#include <stdbool.h>
#include "inner/data/owners.h"
#include "kernels/base/spill.h"

struct source_options {
    const char *field; /* of JSON lines, which need it, and of CSV: has the text; NULL: "text" */
    const char *owner; /* of JSON lines and CSV: says whose the text is; NULL: not asked for */
    const char *ids;   /* "npy", "uint16", "uint32"; NULL: text */
    bool raw;          /* the bytes of any file, text or not; only without `documents` */
    bool csv;          /* CSV is what is neither .txt nor JSON lines, and not only .csv */
    bool documents;    /* text: find the documents, and refuse what is not UTF-8 */
    bool whole_files;  /* a plain file is one document; false: a blank line ends one */
    const char *directory; /* for what is expanded; made if missing */
};
struct source_document { /* bytes of its text, without the line ends after it */
    uint64_t start, end;
};
struct source {
    const char *path; /* borrowed */
    struct file_map map;
    const uint8_t *data;
    uint64_t count;    /* ids */
    unsigned id_bytes; /* of an id in `data`, little-endian: 1 is text */
    uint32_t largest_id;
    const struct source_document *documents; /* in order; NULL: not asked for */
    size_t document_count;
    const struct owner *owners; /* of the documents; NULL: not asked for */
    /* Contents of a compressed file; texts of JSON lines and CSV; the two arrays. */
    struct spill unpacked, lines, places, names;
};

/* ERR_INPUT: missing, empty, damaged, of another kind than the options say, no text (named), not
 * UTF-8 (with line and byte), a negative id. ERR_FULL: the disk has no room for what it expands to.
 */
enum err source_open(struct source *s, const char *path, const struct source_options *o) MUST;
void source_close(struct source *s); /* a zeroed or partly opened source is fine */
uint32_t source_id(const struct source *s, uint64_t i);
/* All files of the operands: those of a directory are taken in order of their names, and so are the
 * ones of its directories. `listed[i]`: it was found in a directory. */
enum err source_list(const char *const *operands, size_t count, struct arena *a, char ***paths,
                     bool **listed, size_t *path_count) MUST;

#endif
