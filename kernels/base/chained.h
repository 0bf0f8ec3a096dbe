/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHAINED_H
#define CHAINED_H
/* A durable list of text lines that stands for a promise: a line that is missing, altered or moved,
 * and a list that is empty or older than it was, are noticed by each reader.
 *
 *   LIST       for each entry "TEXT number=N chain=HEX crc=XXXXXXXX". N: counts lines from 1.
 *              chain: SHA-256 of (chain of the line before, TEXT, a zero byte); zeros before the
 *              first. crc: CRC-32C of all before " crc="
 *   LIST.head  "number=N chain=HEX crc=XXXXXXXX" of the newest line, written once that is durable,
 * and of the line before: line N in bytes (N modulo 2) x 128, blanks before its end
 *
 * So the list always has the line that the head names; what follows it is of a crash between the
 * two writes, and only there a line can be torn. Lines of programs before this format have TEXT and
 * crc alone. They are read where they stand before the first numbered line, and it covers them. A
 * rewrite of both files is not noticed by them: a position that is also kept elsewhere is compared
 * (chained_options.known).
 *
 * One writer for each path. A reader may run at the same time.
 */
#include "kernels/base/digest.h"
#include "kernels/base/durable.h"

enum { CHAINED_TEXT_MAX = 400 };
#define CHAINED_HEAD ".head"

struct chained_at { /* a line; number 0: before the first one */
    uint64_t number;
    struct digest chain;
};
/* text: n bytes and a zero, without number, chain and crc. *good false: no entry of this list. */
typedef enum err chained_visit(void *self, const char *text, size_t n, bool *good);
struct chained_options {
    const char *what; /* for messages: "charge of this site" */
    const char *lost; /* what is then not known: "the budget that was spent is not known" */
    chained_visit *visit;
    void *self;
    struct chained_at known; /* a line that the list must have; number 0: none */
    const char *known_by;    /* "the checkpoint of step 40" */
};
struct chained {
    struct disk *disk;
    const char *path, *head; /* of the arena of open */
    struct chained_at last;
    bool failed; /* an append failed: the file is not appended to again */
};

/* Reads the list, or makes an empty one where there is none. Removes a torn last line; writes the
 * head of a list that is longer than it, or of a former program. begun: the list had entries, so
 * that missing (ERR_INPUT) or empty is damage. ERR_CORRUPT: it is not whole; the message names file
 * and line, and what to do. a: for the life of the list. */
enum err chained_open(struct chained *c, struct disk *d, const char *path, bool begun,
                      const struct chained_options *o, struct arena *a) MUST;
/* The same checks without a change: of a list that another process may write. ERR_INPUT: missing.
 */
enum err chained_read(struct chained_at *last, struct disk *d, const char *path,
                      const struct chained_options *o) MUST;
/* Durable on return. */
enum err chained_append(struct chained *c, const char *text) MUST;

#endif
