/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEAL_H
#define DEAL_H
/* Which connection takes the next block of a transfer, so that all end at about the same time: a
 * block that a slow connection has taken no other can finish. The blocks that are left are dealt in
 * thought, each to the connection that would finish it first, by the rates so far; a connection
 * takes a block if one is dealt to it. Pure: the caller has the lock and the clock (seconds).
 */
#include <stdbool.h>
#include "outer/link/path.h"

struct deal_line {                  /* a connection */
    double rate;                    /* bytes per second; 0: unknown, as fast as the others */
    unsigned takes;                 /* workers that still take blocks for it */
    double busy;                    /* bytes taken and not finished */
    double bytes, begun_s, ended_s; /* finished; first taken; last finished */
};
struct deal {
    struct deal_line line[PATH_STREAMS_MAX];
    unsigned count; /* of connections; 0: every block is taken */
    double late_s;  /* what all but the first lose at the begin and the end */
};

struct deal_rates { /* of a link, bytes per second of each connection */
    double up[PATH_STREAMS_MAX], down[PATH_STREAMS_MAX];
};

/* rates: of earlier transfers, PATH_STREAMS_MAX of them; 0: unknown. NULL: no connection is
 * refused. */
void deal_begin(struct deal *d, const double *rates, unsigned count, double late_s);
/* Each worker of connection i before the first one asks, and when it takes no more. */
void deal_join(struct deal *d, unsigned i);
void deal_leave(struct deal *d, unsigned i);
/* May connection i take a block, where `blocks` of `bytes` are left? If not, it asks again a
 * little later, as long as blocks are left: the others may turn out slower. */
enum { DEAL_AGAIN_MS = 20 };
bool deal_takes(const struct deal *d, unsigned i, unsigned blocks, double bytes, double now_s);
void deal_took(struct deal *d, unsigned i, double bytes, double now_s);
/* `carried` of the bytes that it took have arrived, the others go back. */
void deal_done(struct deal *d, unsigned i, double bytes, double carried, double now_s);
/* Writes what was learnt. */
void deal_end(const struct deal *d, double *rates);

#endif
