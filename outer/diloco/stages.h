/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STAGES_H
#define STAGES_H
/* What train.stages (inner/model/depth.h) means for the outer loop: in each round a part of the
 * values is held, because nothing learns there, and after a round that ends a stage the model
 * grows. Both are the same on every replica. A held value has no delta: theta and the arrays of the
 * outer optimizer keep their bits, the residual waits, and its blocks are not sent. Growth copies
 * theta and the block codes: the next round needs a grid. A stage ends where a round ends
 * (outer/config), and the parameters are one fragment, which is the slab. So it is where a round
 * exchanges a drawn share of the values (draw.h): the others are held. Pure.
 */
#include "inner/model/depth.h"
#include "outer/diloco/schedule.h"

struct stages_options { /* NULL: no stages */
    const struct settings *settings;
    const struct table *table;
    size_t drawn; /* outer.sync_fraction: values of the fragment; 0: nothing is drawn */
};
struct stages {
    struct stages_options o;
    struct dev_range *ranges;  /* [table.count], or for a drawn share */
    struct depth_copy *copies; /* [table.count] */
};

enum err stages_open(struct stages *x, const struct stages_options *o, struct arena *perm) MUST;
/* Values that are held in this round, at x->ranges. */
size_t stages_held(const struct stages *x, const struct schedule *s, unsigned fragment,
                   uint64_t round);
/* The copies that the model grows by after this round, at x->copies. */
size_t stages_growth(const struct stages *x, const struct schedule *s, unsigned fragment,
                     uint64_t round);
/* Into the schedule: the values that take part in the rounds of each stage. */
enum err stages_schedule(struct schedule *s, const struct settings *settings,
                         const struct table *table, struct arena *perm) MUST;

#endif
