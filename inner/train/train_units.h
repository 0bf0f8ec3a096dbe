/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRAIN_UNITS_H
#define TRAIN_UNITS_H
/* Slabs that the ranks share out (inner/coll/units.h) <-> whole ones in host memory of the lead,
 * unit by unit through `room`, so that no rank but the lead holds more than a unit. Between two
 * steps. All ranks call. */
#include "inner/train/train.h"

struct units_slab {
    const struct unit_map *map;
    float *shard; /* device */
    /* Device: of the whole slab; or of a unit (room_is_unit), at whose begin each unit is put. */
    float *room;
    bool room_is_unit;
};
enum err units_to_lead(struct train *t, const struct units_slab *x, float *host) MUST;
enum err units_from_lead(struct train *t, const struct units_slab *x, const float *host) MUST;
/* The initial parameters of this rank's shard, from the seed. */
enum err units_from_seed(struct train *t, const struct units_slab *x) MUST;

#endif
