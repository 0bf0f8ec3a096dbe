/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLIP_H
#define CLIP_H
/* Gradients clipped record by record (DP-SGD, Abadi et al. 2016, 1607.00133, Algorithm 1): a record
 * is one sequence of the batch, or several that follow each other, such as those of one owner. Its
 * loss is the mean over the token targets of all its sequences plus the mean over their labels, its
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
    size_t sequences_max;      /* of a batch */
    size_t record_max;         /* sequences of one record */
    size_t sequence;           /* tokens of the longest sequence */
    double norm;               /* C > 0: the norm that a record's gradient is clipped to */
};
/* Bytes that clip_open takes with these options, of which it reads all but model, table, norm. */
size_t clip_plan(const struct settings *s, const struct table *t, const struct clip_options *o);
enum err clip_open(struct clip **c, const struct clip_options *o, struct arena *perm) MUST;
void clip_close(struct clip *c); /* NULL is fine */
/* Record r is the sequences first[r] .. first[r + 1] - 1 of a batch; first (records + 1) begins
 * with 0 and ends with the number of sequences, but for the one that fills the batch up. */
struct clip_cut {
    const size_t *first;
    size_t records;
};
/* Adds the sum over the records of g_r min(1, C / |g_r|) to the model's gradients. cut NULL: a
 * record is a sequence. norms (records): |g_r| before clipping, for tests; they are secret.
 * NULL: not written. */
enum err clip_accumulate(struct clip *c, const struct batch *b, const struct clip_cut *cut,
                         double *norms) MUST;

#endif
