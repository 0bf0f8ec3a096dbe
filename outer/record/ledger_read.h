/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_READ_H
#define LEDGER_READ_H
/* The ledgers of one run, read and added up: of a site, of the aggregator, or of several of them.
 * Everything is checked: a line that is damaged would make every sum wrong, so it is an error with
 * its place, and so is a row that is there twice; only a last line without its end, a kill's, is
 * passed over. Memory: about half a kilobyte for each site, kind of call and fragment of each round
 * that is not folded, and of each hour of older ones.
 *
 * Which members of these structs the files of the ledger write:
 *   ledger_scan.c: aggregator, index, aggregators, lives, count, unfinished, running, begun,
 *     begun_last, missing
 *   ledger_read.c: lives, rows, count, folded, sums, sum_count, kept, kept_count, up, down, wrong,
 *     layers, connections
 *   ledger_book.c: none
 *   ledger_rows.c: none
 *   ledger_lines.c: none
 *   ledger_fold.c: none
 *   ledger_table.c: none
 *   ledger_check.c: none
 */
#include "outer/record/ledger_book.h"
#include "outer/record/ledger_rows.h"

struct ledger_lives {           /* the processes; ledger_scan.c writes it */
    unsigned count, unfinished; /* unfinished: without an end on record */
    bool running;               /* the last one has no end (yet) */
    double begun, begun_last;   /* when the first and the last one began, unix seconds */
    uint64_t missing;           /* rows that found no room on a full disk, or were taken out */
};
struct ledger_folded {       /* older rounds; ledger_read.c writes it */
    struct ledger_sum *sums; /* of them, and of predictions that no row has */
    size_t sum_count;
    struct ledger_kept *kept; /* the first round of a fragment that is not folded */
    size_t kept_count;
};
struct ledger_member { /* one directory */
    const char *directory;
    char name[LEDGER_SITE_MAX]; /* a site's, "aggregator", or of several "aggregator 1" */
    bool aggregator;
    uint64_t index, aggregators; /* of an aggregator: fragment % aggregators == index is its own */
    char run[LEDGER_SITE_MAX];
    struct ledger_lives lives;
    struct ledger_row *rows; /* one for each site, kind of call, fragment and round, in that order;
                                those of no round are one for each hour */
    size_t count;
    struct ledger_folded folded;
    /* Transfers up and down. Exactly: counted - resent + lost = total, and where there is a
     * prediction, predicted_total = predicted. */
    struct ledger_transfers {
#define X(name) uint64_t name;
        LEDGER_COUNTS(X)
#undef X
        uint64_t wrong; /* another size than predicted, or bytes missing that no kill explains */
        struct ledger_side layers; /* of all rows, small calls and connections included */
    } up, down;
    uint64_t connections;
};

/* ERR_INPUT: no ledger, a foreign or newer one, of another run than *first (NULL: any).
 * ERR_CORRUPT: damaged, with its line. */
enum err ledger_read(struct ledger_member *m, const char *directory,
                     const struct ledger_member *first, struct arena *a) MUST;
/* All rows as sums, those that are not folded and those that are: 0 to count - 1. One without a
 * site is of predictions alone. */
size_t ledger_sum_count(const struct ledger_member *m);
struct ledger_sum ledger_sum_at(const struct ledger_member *m, size_t i);
/* Its transfers that are not what they should be. */
uint64_t ledger_wrong(const struct ledger_member *m, const struct ledger_sum *s);
/* Is this transfer's payload what it should be? One row of m with its totals. */
bool ledger_good(const struct ledger_member *m, const struct ledger_row *row);
/* The row of m about the same as this one; NULL: none. */
const struct ledger_row *ledger_row_of(const struct ledger_member *m, const struct ledger_row *row);
/* Both ends of a transfer must have agreed on its size. Another aggregator's fragment, a round that
 * this aggregator has folded, or one whose row it may not have written yet, or lost with a killed
 * process, agrees with anything. */
bool ledger_ends_agree(const struct ledger_member *aggregator, const struct ledger_row *site_row);
/* Is there no row of the aggregator's that this transfer is compared with? Then the two ends agree,
 * since nothing is known. */
bool ledger_ends_unknown(const struct ledger_member *aggregator, const struct ledger_row *site_row);
/* The kernel's bytes of one direction and the layers' sum: may they differ so? 1 %; a
 * ten-thousandth of what went the other way, whose window updates are means; and a few kilobytes
 * for each connection, whose handshake and pings are. */
bool ledger_near(uint64_t layers, uint64_t socket, uint64_t other_way, uint64_t connections);

#endif
