#ifndef REDUCE_H
#define REDUCE_H
/* Gradient buckets. The slab of gradients becomes final from its end to its beginning while the
 * backward runs; whatever is final and not yet begun is summed over the ranks as soon as it exceeds
 * one bucket (GradientFlow's lazy all-reduce, arXiv 1902.06855: one pool in backward order, no
 * copies). With owners (ZeRO-1) each part goes to the rank that will read it and to no other, a
 * reduce-scatter in pieces.
 *
 * Every rank begins the same sums in the same order, whatever its data. Two ranks: the same bits at
 * any bucket size. More: the order of additions may depend on where a bucket begins;
 * |difference| <= (ranks - 1) 2^-23 sum|g|. In bf16 half the bytes cross the network and
 * |error| <= (ranks + 1) 2^-9 sum|g|. One rank: nothing happens.
 */
#include "inner/coll/coll.h"
#include "inner/config/keys.h"

struct reduce;
/* How gradients cross the ranks: one file and one row of TRAIN_GRAD_REDUCE_DTYPE (config/keys.h)
 * each. A compressed sum with error feedback keeps its errors in its memory. */
struct reducer {
    const char *name;                 /* train.grad_reduce_dtype */
    enum dtype type;                  /* of what is summed */
    size_t (*bytes)(size_t elements); /* device memory of a rank beside the gradients */
    /* Gradients [from, to) are final: makes of them what the ranks sum, and says where it lies. */
    void *(*pack)(struct reduce *r, size_t from, size_t to);
    void (*unpack)(struct reduce *r); /* all sums are here: they become the gradients. NULL: they
                                         are */
};
#define X(VALUE, name) extern const struct reducer reducer_##name;
TRAIN_GRAD_REDUCE_DTYPE(X)
#undef X
const struct reducer *reducer_of(const struct settings *s);

struct reduce {
    struct coll *coll;
    struct dev *dev;
    const struct reducer *reducer;
    float *grads;          /* device, borrowed */
    void *memory;          /* device, borrowed: reducer->bytes(elements) */
    size_t elements;       /* of the slab */
    size_t bucket;         /* elements; 0: everything at once, behind the backward */
    const size_t *offsets; /* (ranks + 1) owners' shards; NULL: every rank gets every sum */
    size_t begun;          /* from here to the end; reduce's own */
    enum err failed;       /* the first failure; comes out of reduce_finish */
};

void reduce_begin(struct reduce *r); /* a new step: nothing is final */
/* Gradients from element `from` on are final; `from` only falls. Callable as a model_grad_hook. */
void reduce_ready(void *reduce, size_t from);
enum err reduce_finish(struct reduce *r) MUST; /* all of it is final, summed and here */

#endif
