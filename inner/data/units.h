/* SPDX-License-Identifier: Apache-2.0 */
#ifndef UNITS_H
#define UNITS_H
/* The records of a private site: which windows of a loader belong to one unit, so that sampling and
 * clipping treat them as one. A unit is a window (privacy.unit = sequence), the windows of a
 * document (document), or those of all documents of an owner (owner). Units without a window do not
 * count: no step can hold them.
 *
 * Documents are those of an index (indexed.h). A marker id in a shard without an index says as
 * much, but text may hold that id as well, and would then fall apart into several units.
 */
#include "inner/data/loader.h"

struct units {
    uint64_t count;  /* > 0 */
    uint64_t *first; /* (count + 1): unit u has the places first[u] .. first[u + 1] - 1; NULL: u */
    uint64_t *windows; /* at each place; NULL: place i has window i */
};
/* ERR_INPUT: a shard does not say where its documents are, or whose. */
enum err units_open(struct units *u, const struct loader *l, enum privacy_unit unit,
                    struct arena *perm) MUST;
uint64_t units_windows(const struct units *u, uint64_t unit); /* how many; > 0 */
uint64_t units_window(const struct units *u, uint64_t unit, uint64_t i);

#endif
