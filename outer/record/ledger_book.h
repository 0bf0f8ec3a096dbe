/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_BOOK_H
#define LEDGER_BOOK_H
/* ledger.jsonl in a run directory: what went over the link, row by row, of a site or of the
 * aggregator with all its sites. One flat JSON object per line (jsonl.h), each with its number in
 * its process, `n`, by kind:
 *   life       a process began: run, replica (a site's name, or "aggregator")
 *   flow       calls about one thing, added up since the last row about it: what, site, fragment,
 *              round, calls, broken, total, done; bytes up and down by layer: payload, grpc, http2,
 *              tls
 *              No fragment and round: of none, or of one far from those whose payload moves, as a
 *              peer may name any. A transfer without them moved nothing.
 *   socket     what the kernel's counters moved on since the last one: site, up, down, resent
 *   predicted  payload of one site's transfers of a round: fragment, round, up, down
 *   end        the process ended in order: nothing of it is missing
 * A complete transfer's row is written at once, small calls and transfers that broke off, added up,
 * with the next one or five seconds later; what a killed process had not written is lost with it,
 * which shows as a life without an end. A restart continues in the same file.
 *
 * A file that has grown to twice its size is folded (ledger_fold.h). It then begins with lines of
 * `v` 2, numbered from 1 without a gap:
 *   life       all processes so far: t and begun (the last one's and the first one's begin), rows
 *              (lines of the fold), row (`n` of the last row that is in it; the process continues
 *              from there), lives, unfinished, running, missing
 *   kept       rounds of `fragment` before `round` are folded
 *   sum        of rows of one site, kind, fragment (none: of no round) and period (t: its begin;
 *              hours: 1 or 24): the numbers of struct ledger_sum, those that are not 0. No site:
 *              predictions of rounds without a transfer
 *   flow, predicted   rows of newer rounds, added up
 */
#include <pthread.h>
#include "outer/link/ledger.h"
#include "outer/record/jsonl.h"

#define LEDGER_FILE "ledger.jsonl"

enum {
    LEDGER_ROUNDS_KEPT = 256
}; /* rounds whose payload this process can be asked for: more than are in flight */

struct ledger_book {
    pthread_mutex_t mutex; /* guards all below */
    struct jsonl record;
    bool open;
    char site[LEDGER_SITE_MAX]; /* of rows that name none: the site's own */
    struct ledger_row *rows;    /* not written yet */
    size_t count, room;
    double written; /* when, seconds */
    struct ledger_round {
        uint32_t fragment;
        uint64_t round, up, down; /* payload */
    } rounds[LEDGER_ROUNDS_KEPT];
    uint64_t written_rows; /* by this process: `n` of the last one */
    const char *path;
    uint64_t keep, least, fold_bytes; /* fold_bytes: the file is folded when it has that size */
    size_t round_count;               /* ever; the last ones are there */
};

struct ledger_book_options {
    const char *directory; /* exists */
    const char *run;
    const char *replica;         /* a site's name, or "aggregator" */
    unsigned index, aggregators; /* of an aggregator: its number, and how many there are */
    uint64_t rounds;     /* outer.history_rounds: transfers of that many rounds may still come */
    uint64_t fold_bytes; /* tests: the least growth between two folds; 0: the usual one */
};
enum err ledger_book_open(struct ledger_book *b, const struct ledger_book_options *o,
                          struct arena *perm) MUST;
void ledger_book_add(void *book, const struct ledger_row *row); /* a ledger_sink */
/* site "": of every site of the round. 0: not said. */
void ledger_book_predict(struct ledger_book *b, const char *site, uint32_t fragment, uint64_t round,
                         uint64_t up, uint64_t down);
/* Payload that this process moved for a round; what else was on the link meanwhile is not in it. */
struct ledger_round ledger_book_round(struct ledger_book *b, uint32_t fragment, uint64_t round);
void ledger_book_close(struct ledger_book *b); /* writes the end; accepts a zeroed struct */

#endif
