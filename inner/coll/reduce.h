/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REDUCE_H
#define REDUCE_H
/* Gradient buckets. The slab of gradients becomes final from its end to its beginning while the
 * backward runs. As soon as the final gradients that are not yet being reduced exceed one bucket,
 * their sum over the ranks begins (GradientFlow's lazy all-reduce, arXiv 1902.06855: one pool in
 * backward order, no copies). With units (train.zero_stage) a unit takes the place of a bucket: as
 * soon as all of it is final, each rank begins to receive the sum of its part.
 *
 * With train.clip_per = bucket each rank clips its own gradients, bucket by bucket, before the
 * sum (Kim et al. 2024, 2402.02447), which needs no norm of the whole: of B buckets, cut from the
 * end of the slab, each has norm clip / sqrt(B) at most as a mean over the rank's targets.
 *
 * Every rank begins the same sums in the same order, independent of its data. Two ranks: the same
 * bits at any bucket size. More: the order of additions may depend on where a bucket begins;
 * |difference| <= (ranks - 1) 2^-23 sum|g|. In bf16 half the bytes cross the network and
 * |error| <= (ranks + 1) 2^-9 sum|g|. One rank: nothing happens. Layers that do not learn at a step
 * (inner/model/depth.h) are not sent.
 */
#include "inner/coll/coll.h"
#include "inner/coll/units.h"
#include "inner/config/keys.h"

struct grad_reduce;
/* Form in which gradients are reduced over the ranks: one file and one row of
 * TRAIN_GRAD_REDUCE_DTYPE (config/keys.h) each. A compressed sum with error feedback keeps its
 * residual in its memory. */
struct reducer {
    const char *name;                 /* train.grad_reduce_dtype */
    enum dtype type;                  /* of the summed values */
    size_t (*bytes)(size_t elements); /* device memory of a rank in addition to the gradients */
    /* Gradients [from, to) are final: converts them and returns the buffer to be summed. */
    void *(*pack)(struct grad_reduce *r, size_t from, size_t to);
    /* After all sums: writes these gradients. NULL: they are in place. */
    void (*unpack)(struct grad_reduce *r, size_t from, size_t to);
};
#define X(VALUE, name) extern const struct reducer reducer_##name;
TRAIN_GRAD_REDUCE_DTYPE(X)
#undef X
const struct reducer *reducer_of(const struct settings *s);

struct grad_units {
    const struct unit_map *map;
    float *shard; /* device: sums of this rank's parts */
    size_t left;  /* units below have not begun; private */
};
struct grad_clip {  /* train.clip_per = bucket */
    float norm;     /* train.max_grad_norm; 0: no clip here */
    double targets; /* of this rank in the step, set before its last backward pass */
    double *norms;  /* device, (2), train_batch.c makes it: a bucket's sum of squares; 1 */
    float *factor;  /* device, train_batch.c makes it: of the bucket */
};
struct grad_reduce {
    struct coll *coll;
    struct dev *dev;
    const struct reducer *reducer;
    float *grads;             /* device, borrowed */
    void *memory;             /* device, borrowed: reducer->bytes(elements) */
    size_t elements;          /* of the slab */
    size_t bucket;            /* elements; 0: one sum after the backward */
    struct grad_units *units; /* NULL: all-reduce */
    /* The parts of the slab that are reduced, in order; equal on all ranks, and the gradients
     * outside them are 0. range_count 0: the whole slab. */
    const struct dev_range *ranges;
    size_t range_count;
    struct grad_clip clip;
    bool local;     /* this step's gradients stay on their rank (train.compress) */
    size_t begun;   /* sums of [begun, elements) have begun; private */
    enum err error; /* the first failure; comes out of grad_reduce_wait */
};

void grad_reduce_begin(struct grad_reduce *r); /* a new step */
/* Gradients from element `from` on are final; `from` only falls. For a model_grad_hook. */
void grad_reduce_ready(void *reduce, size_t from);
enum err grad_reduce_wait(
    struct grad_reduce *r) MUST; /* all gradients are final; orders the device after their sums */

#endif
