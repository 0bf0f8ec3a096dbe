#ifndef CLIP_H
#define CLIP_H
/* Gradients clipped record by record (DP-SGD, Abadi et al. 2016, 1607.00133, Algorithm 1): a record
 * is a sequence of the batch, its loss the mean over its targets plus the loss of its label, its
 * norm the L2 norm of the gradient of all parameters. Two ways, one result up to rounding: `ghost`
 * (clip_ghost.c), the fast one, and `slow` (clip_slow.c), its specification. On a device whose
 * memory the host reads (dev->host_memory) and with f32 activations. One thread.
 *
 * A record whose gradient is not finite counts as 0: it must not reach the sum, nor stop the run,
 * which the world would see.
 */
#include "inner/config/keys.h"
#include "inner/model/model.h"

struct clip; /* opaque */
struct clip_options {
    enum privacy_clipping how;
    struct model *model;       /* borrowed for the clip's life, opened with train */
    const struct table *table; /* of the model; borrowed for the same time */
    size_t records_max;        /* of a batch */
    size_t sequence;           /* tokens of the longest record */
    double norm;               /* C > 0: the norm that a record's gradient is clipped to */
};
/* Bytes that clip_open takes. */
size_t clip_plan(const struct settings *s, const struct table *t, size_t records_max);
enum err clip_open(struct clip **c, const struct clip_options *o, struct arena *perm) MUST;
void clip_close(struct clip *c); /* NULL is fine */
/* Adds the sum over the records of g_r min(1, C / |g_r|) to the model's gradients. norms (records):
 * |g_r| in front of clipping, for tests; they are secret. NULL: not written. */
enum err clip_accumulate(struct clip *c, const struct batch *b, double *norms) MUST;

#endif
