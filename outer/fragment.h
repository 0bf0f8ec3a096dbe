#ifndef FRAGMENT_H
#define FRAGMENT_H
/* Which tensors are synchronised together: P lists of ranges over the slab. Strided as in Streaming
 * DiLoCo (2501.18512): block i goes to fragment i mod P; embeddings and the final norm are balanced
 * onto the smallest, largest tensor first. Pure.
 */
#include "inner/model/table.h"
#include "outer/round.h"

struct fragment {
    struct dev_range *ranges; /* whole tensors with their gaps, ascending; decay unused */
    size_t range_count;
    size_t elements;   /* multiple of 256: sum over ranges */
    size_t parameters; /* without gaps */
};
struct fragments {
    struct fragment f[ROUND_FRAGMENTS_MAX];
    unsigned count;
};

/* ERR_CONFIG: more fragments than the model can fill. */
enum err fragment_make(struct fragments *out, const struct table *t, unsigned count,
                       struct arena *perm) MUST;
/* slab <-> contiguous copy of one fragment, through the device's copy. */
void fragment_gather(struct dev *d, float *out, const float *slab, const struct fragment *f);
void fragment_scatter(struct dev *d, float *slab, const float *in, const struct fragment *f);

#endif
