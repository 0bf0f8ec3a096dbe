/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_ROWS_H
#define LEDGER_ROWS_H
/* Rows of a ledger, added up. Rows of one site, kind of call, fragment and round become one row;
 * those of older rounds become sums by site, kind, fragment and hour. A sum has every figure that a
 * reader makes of rows, so what readers show is the same with and without it. Pure: no file, no
 * clock. Memory: of rows and sums, twice while an array grows; rows are added up whenever their
 * array is full.
 */
#include "kernels/base/arena.h"
#include "outer/link/ledger.h"

#define LEDGER_OLDER (UINT64_MAX - 1) /* the round of a sum of older rounds */
enum {
    LEDGER_ROUNDS_WHOLE = 64, /* the newest rounds of a fragment are not folded; with a larger
                                 outer.history_rounds, that many */
    LEDGER_HOURS_WHOLE = 48   /* sums of days that ended longer ago than this are by day */
};

/* Of transfers. counted: payload of complete ones; counted - resent + lost = total. absent: a
 * prediction and no transfer on record. differ: another size than predicted. cut: bytes are missing
 * that only a killed process or a full disk explains. */
#define LEDGER_COUNTS(X)                                                                           \
    X(transfers)                                                                                   \
    X(counted)                                                                                     \
    X(total)                                                                                       \
    X(resent)                                                                                      \
    X(lost)                                                                                        \
    X(predicted)                                                                                   \
    X(predicted_total)                                                                             \
    X(unpredicted)                                                                                 \
    X(incomplete)                                                                                  \
    X(incomplete_bytes)                                                                            \
    X(absent)                                                                                      \
    X(absent_bytes)                                                                                \
    X(differ)                                                                                      \
    X(cut)
struct ledger_counts {
#define X(name) uint64_t name;
    LEDGER_COUNTS(X)
#undef X
};

struct ledger_sum { /* of one row, or of many */
    /* First. round: LEDGER_NO_ROUND, LEDGER_OLDER, or that of the one row; t_ms: where the period
     * begins. No site: predictions of rounds without a transfer. Its total, predicted and done are
     * not set. */
    struct ledger_row row;
    uint64_t hours; /* of the period: 1 or 24 */
    struct ledger_counts of;
    uint64_t differ_round, cut_round; /* the first such round; 0 where there is none */
    struct ledger_side model;         /* what complete transfers of that payload take */
};

struct ledger_kept { /* rounds of `fragment` before `round` are folded */
    uint32_t fragment;
    uint64_t round;
};

struct ledger_rows {
    struct arena *a;
    uint64_t keep; /* the newest rounds of a fragment that stay rows; 0: nothing is folded */
    struct ledger_row *rows;
    size_t count, room;
    struct ledger_sum *sums;
    size_t sum_count, sum_room;
    struct ledger_kept *kept; /* by fragment */
    size_t kept_count, kept_room;
    uint64_t newest_ms; /* the latest time of any row */
};

enum err ledger_rows_add(struct ledger_rows *t, const struct ledger_row *row) MUST;
enum err ledger_rows_add_sum(struct ledger_rows *t, const struct ledger_sum *sum) MUST;
/* Rounds before `round` are folded. */
enum err ledger_rows_keep(struct ledger_rows *t, uint32_t fragment, uint64_t round) MUST;
uint64_t ledger_rows_kept(const struct ledger_kept *kept, size_t count, uint32_t fragment);
/* All has been added: one row for each key, sorted; folds, with `keep`. A prediction without a site
 * stays a row of its own. */
enum err ledger_rows_end(struct ledger_rows *t) MUST;
/* For a reader, after the end: predictions of all sites become those of each site's row. */
enum err ledger_rows_predict(struct ledger_rows *t) MUST;

/* One row as a sum. late: its round was folded before, so its first bytes may be in a sum. */
struct ledger_sum ledger_sum_of(const struct ledger_row *row, bool late);
/* By kind, fragment, round, site; rows of no round also by hour. */
int ledger_row_compare(const void *a, const void *b);

#endif
