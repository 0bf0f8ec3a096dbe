#ifndef SLAB_H
#define SLAB_H
/* Who holds the parameters of a model. All that reads or writes parameters asks for a range of the
 * slab (model_gather), and gives it back (model_scatter): the passes for one unit at a time, the
 * optimizer, checkpoints, digests and outer rounds for the ranges that they work on. A unit is a
 * contiguous range of the table: the embeddings, one layer, or the last norm with the heads.
 *
 * With slab_whole each rank holds the whole slab, and both functions do nothing. Ranks that hold a
 * part of each unit are another row of struct slab_holder. Such a row runs its passes op by op,
 * because a recorded graph repeats ops alone.
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
