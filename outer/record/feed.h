/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FEED_H
#define FEED_H
/* The records of an aggregator for an observer elsewhere, in pieces: of each kind the fields of one
 * table, so that nothing else leaves (no configuration, no paths, no command line). The newest
 * FEED_BYTES leave whole. What is older is thinned: of about FEED_CHUNKS chunks the last record of
 * each site (step, loss, state) and of the machine's health, and the sums of the rounds (kind
 * skipped: rounds, up, down). So an observer of a long run has its curves and its counts, and a
 * piece reads 2 MiB at most. */
#include "outer/record/jsonl.h"

enum { FEED_BYTES = 256 << 10, FEED_CHUNKS = 120, FEED_LAST_MAX = 512 };

struct feed_kind;
struct feed_last { /* the last record of a kind and a site in the chunk that is read */
    const struct feed_kind *kind;
    char site[64];
    long end; /* of its line */
};
struct feed {
    struct jsonl_reader reader;
    struct feed_last last[FEED_LAST_MAX];
    unsigned last_count;
};

/* Whole lines of at most `size` bytes together, 0 ended. at: 0, or *next of the last piece; *next =
 * at: nothing is there yet. ERR_INPUT: there is no such place in the records. */
enum err feed_piece(struct feed *f, const char *path, uint64_t at, char *text, size_t size,
                    uint64_t *next) MUST;
void feed_close(struct feed *f); /* accepts a zeroed struct */

#endif
