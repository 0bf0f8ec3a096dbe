/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLL_UNITS_H
#define COLL_UNITS_H
/* Who holds which part of a slab (train.zero_stage). A unit is a contiguous range of the table of
 * tensors that is gathered and scattered together: the embeddings, one layer, the head. Rank r
 * holds part r of every unit, and its parts lie one after another in its shard. So (unit, rank)
 * names a range of the slab and a range of a shard, and an element of the slab has one place.
 *
 * A unit is cut near equal parts, where its pieces allow it: at multiples of `grain` elements
 * after the start of a piece. A piece with a grain of its own length is not cut. What one unit
 * gives a rank too few the next ones give it more. A part may be empty. Every rank computes the
 * same map. Pure: no device, no ranks.
 */
#include "kernels/base/arena.h"
#include "kernels/base/err.h"
#include "kernels/dev.h"

struct unit_piece {
    size_t offset, count, grain; /* elements of the slab */
};
struct unit_cut {
    const struct dev_range *units; /* (unit_count), rising, without gaps from element 0 on */
    size_t unit_count;
    const struct unit_piece *pieces; /* (piece_count), the same; none lies in two units */
    size_t piece_count;
    int ranks;
};
struct unit_map {
    int ranks;
    size_t count; /* of units */
    size_t elements;
    size_t *cuts;  /* (count, ranks + 1) elements of the slab where the parts of a unit begin */
    size_t *bases; /* (ranks, count + 1) elements of a shard where its parts begin; its length */
};
struct unit_place {
    int rank;
    size_t unit, at; /* at: element of the rank's shard */
};

enum err unit_map_make(struct unit_map *m, const struct unit_cut *c, struct arena *a) MUST;
/* Of another slab that belongs to the same units: cuts (count, ranks + 1), which the map keeps. */
enum err unit_map_of_cuts(struct unit_map *m, size_t *cuts, size_t count, int ranks,
                          struct arena *a) MUST;
struct dev_range unit_range(const struct unit_map *m, size_t unit); /* of the slab */
struct dev_range unit_part(const struct unit_map *m, size_t unit, int rank);
size_t unit_base(const struct unit_map *m, size_t unit, int rank); /* of the part, in the shard */
/* (ranks + 1) where the parts of a unit begin in the slab. */
const size_t *unit_cuts(const struct unit_map *m, size_t unit);
size_t unit_shard(const struct unit_map *m, int rank); /* elements of a rank's shard */
size_t unit_shard_most(const struct unit_map *m);      /* of the rank that has most */
size_t unit_most(const struct unit_map *m);            /* elements of the largest unit */
size_t unit_of(const struct unit_map *m, size_t at);   /* of an element of the slab */
/* What a rank holds of a range that lies in this unit, or around it: elements of its shard; *at:
 * where they begin in the slab. */
struct dev_range unit_own(const struct unit_map *m, size_t unit, int rank, struct dev_range r,
                          size_t *at);
/* Empty units are skipped. */
struct unit_place unit_place_of(const struct unit_map *m, size_t at);
/* Elements that a rank sends when all units are gathered, or scattered, once: its own part to each
 * other rank; of each unit what belongs to other ranks. */
size_t unit_gather_up(const struct unit_map *m, int rank);
size_t unit_scatter_up(const struct unit_map *m, int rank);

#endif
