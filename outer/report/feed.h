#ifndef FEED_H
#define FEED_H
/* The records of an aggregator for somebody far away, in pieces: of each kind the fields of one
 * table, so that nothing else leaves (no configuration, no paths, no command line). The piece at 0
 * is a start record; it skips what is older than FEED_BYTES before the end, and counts the rounds
 * of it as committed before. */
#include "outer/report/jsonl.h"

enum { FEED_BYTES = 512 << 10 };

struct feed {
    struct jsonl_reader reader;
};

/* Whole lines of at most `size` bytes together, 0 ended. at: 0, or *next of the last piece; *next =
 * at: nothing is there yet. ERR_INPUT: there is no such place in the records. */
enum err feed_piece(struct feed *f, const char *path, uint64_t at, char *text, size_t size,
                    uint64_t *next) MUST;
void feed_close(struct feed *f); /* accepts a zeroed struct */

#endif
