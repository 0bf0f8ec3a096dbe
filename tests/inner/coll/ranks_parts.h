/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RANKS_PARTS_H
#define RANKS_PARTS_H
#include "inner/coll/coll.h"
/* `ranks parts DTYPE`: gathers and scatters of parts. */
enum err ranks_parts(struct coll *c, const char *device, const char *type) MUST;
#endif
