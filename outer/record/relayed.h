/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAYED_H
#define RELAYED_H
/* Rows of the byte ledger of a process that has no ledger file: another rank of a site, whose rows
 * the lead writes. Rows about one thing are added up until they are taken.
 */
#include <pthread.h>
#include "outer/link/ledger.h"

enum { RELAYED_MAX = 64 };
struct relayed_rows {
    pthread_mutex_t mutex; /* guards all below */
    bool open;
    unsigned count;
    struct ledger_row rows[RELAYED_MAX];
};

void relayed_open(struct relayed_rows *r);
void relayed_close(struct relayed_rows *r); /* a zeroed one is fine */
/* A ledger_sink. Without room, a row is added to one of the same kind without a round. */
void relayed_add(void *relay, const struct ledger_row *row);
/* The rows so far -> out, which are forgotten here. Returns how many. */
unsigned relayed_take(struct relayed_rows *r, struct ledger_row out[RELAYED_MAX]);

#endif
