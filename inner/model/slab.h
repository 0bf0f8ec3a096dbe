/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SLAB_H
#define SLAB_H
/* The holder of a model's parameters. Code that reads or writes parameters gathers a range of the
 * slab before (model_gather) and releases it after (model_scatter). Passes gather one unit at a
 * time; the optimizer, checkpoints, digests and outer rounds gather the ranges that they work on. A
 * unit is a contiguous range of the table: the embeddings, one layer, or the last norm with the
 * heads.
 *
 * With slab_whole each rank holds the whole slab, and both functions do nothing. With another
 * holder passes must run op by op, because a recorded graph repeats the ops but not the calls of
 * the holder.
 */
#include "inner/model/table.h"

struct slab_holder { /* no member is NULL */
    void *self;
    /* From now on the elements of `r` are those of the model, for this rank. All ranks call, in one
     * order. Ranges may be held several times at once, and overlap. */
    void (*gather)(void *self, float *slab, struct dev_range r);
    /* The range is no longer read here. written: its elements have changed, on every rank alike. */
    void (*scatter)(void *self, float *slab, struct dev_range r, bool written);
};
extern const struct slab_holder slab_whole;

/* The unit of a layer, as struct tensor counts them: -1 embeddings, then the layers, then the rest.
 * With its gaps. */
struct dev_range slab_range(const struct table *t, int layer);
struct dev_range slab_all(const struct table *t);

#endif
