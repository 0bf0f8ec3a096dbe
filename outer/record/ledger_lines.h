/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_LINES_H
#define LEDGER_LINES_H
/* The fields of a ledger's lines (ledger_book.h), written and read in one place. The writer has
 * begun the line, with its kind and number, and ends it. take_: false where a field is missing or
 * is no whole number that a double holds exactly.
 */
#include "outer/record/jsonl.h"
#include "outer/record/ledger_rows.h"

enum { LEDGER_FOLDED_VERSION = 2 }; /* `v` of the lines that a fold wrote */

#define LEDGER_NUMBER_MAX                                                                          \
    9007199254740992ULL /* 2^53: a double holds every whole number up to it                        \
                         */

struct ledger_life { /* a process, or all of them up to a fold */
    char run[LEDGER_SITE_MAX], replica[LEDGER_SITE_MAX]; /* replica: a site, or "aggregator" */
    uint64_t index, aggregators;                         /* of several aggregators; 0: not said */
    /* A fold: its lines, this one too; the number of the last row before it; the processes. */
    uint64_t rows, row, lives, unfinished, running, missing;
    double begun;
};

void ledger_put_life(struct jsonl *r, const struct ledger_life *life);
void ledger_put_round(struct jsonl *r, uint32_t fragment, uint64_t round); /* none: nothing */
void ledger_put_flow(struct jsonl *r, const struct ledger_row *row);
void ledger_put_socket(struct jsonl *r, const struct ledger_row *row);
/* site "": of every site */
void ledger_put_predicted(struct jsonl *r, const char *site, uint32_t fragment, uint64_t round,
                          uint64_t up, uint64_t down);
void ledger_put_sum(struct jsonl *r, const struct ledger_sum *sum);

bool ledger_sum_fits(const struct ledger_sum *sum); /* no number above LEDGER_NUMBER_MAX */

bool ledger_take_count(const struct jsonl_row *row, const char *key, uint64_t *value);
bool ledger_take_life(const struct jsonl_row *row, struct ledger_life *life);   /* of one process */
bool ledger_take_folded(const struct jsonl_row *row, struct ledger_life *life); /* the rest */
bool ledger_take_round(const struct jsonl_row *row, struct ledger_row *to);
bool ledger_take_flow(const struct jsonl_row *row, struct ledger_row *to);
bool ledger_take_socket(const struct jsonl_row *row, struct ledger_row *to);
bool ledger_take_predicted(const struct jsonl_row *row, struct ledger_row *up,
                           struct ledger_row *down);
bool ledger_take_sum(const struct jsonl_row *row, struct ledger_sum *sum);

#endif
