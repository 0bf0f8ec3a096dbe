/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RANKS_H
#define RANKS_H
/* The collectives of a site (inner/coll/coll.h) by a caller's broadcast: those that an exchange
 * uses. The others end with ERR_INTERNAL. Memory is the host's. */
#include "inner/coll/coll.h"
#include "outer/library/atoll.h"

struct ranks {
    struct coll coll; /* first */
    int (*broadcast)(void *self, void *bytes, size_t count);
    void *self;
};
/* ERR_CONFIG: rank, ranks and broadcast of the options do not fit each other. */
enum err ranks_open(struct ranks *r, const struct atoll_options *o) MUST;

#endif
