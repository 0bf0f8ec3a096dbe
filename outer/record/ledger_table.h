/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_TABLE_H
#define LEDGER_TABLE_H
/* Rows of a ledger added up as the lines of a table, and whether they are as predicted. */
#include "outer/record/ledger_read.h"

enum ledger_by {
    LEDGER_BY_LAYER,
    LEDGER_BY_SITE,
    LEDGER_BY_ROUND,
    LEDGER_BY_FRAGMENT,
    LEDGER_BY_CALL,
    LEDGER_BY_HOUR,
    LEDGER_BYS
};

struct ledger_line { /* of a table: rows added up */
    char label[96];
    uint64_t calls, broken, wrong, connections, resent_by_tcp;
    struct ledger_flow {
        uint64_t predicted, total;  /* payload of complete transfers */
        struct ledger_side counted; /* everything */
        struct ledger_side model;   /* what complete transfers of that payload take */
    } up, down;
};

extern const char *const ledger_by_name[LEDGER_BYS];
/* Lines of a replica's table, in the order of `by`. */
enum err ledger_lines_make(const struct ledger_member *m, enum ledger_by by, struct arena *a,
                           struct ledger_line **lines, size_t *count) MUST;
/* ERR_DIFFERS: the first transfer that is not as predicted, or not the same at both ends. What
 * cannot be checked is said on stderr. */
enum err ledger_check(const struct ledger_member *members, size_t count) MUST;

#endif
