#ifndef TRAIN_PARALLEL_H
#define TRAIN_PARALLEL_H
/* How the ranks of a site divide a step: the batch (train.modules = 1, train_batch.c), the layers
 * (train_modules.c), or, with privacy.unit, the records that are drawn (train_private.c).
 * Everything else of the loop is the same. All ranks call each of these. Private to train.
 */
#include "inner/model/clip.h"
#include "inner/train/train.h"
#include "kernels/base/chained.h"

struct step_targets { /* of this rank, in one step */
    size_t divisor, sequences, tokens;
};
struct train_parallel {
    enum err (*open)(struct train *t, struct arena *perm);
    void (*close)(struct train *t); /* a partly opened one is fine */
    /* Charges step t->step + 1, durably; an error: no record of it may be read. */
    enum err (*charge)(struct train *t);
    /* The backward of step t->step + 1: adds this rank's gradients to the model's slab and its sums
     * of losses to the statistics. */
    enum err (*backward)(struct train *t, struct step_targets *targets);
    /* Makes the gradients those of the optimizer's step. */
    enum err (*reduce)(struct train *t);
    /* Makes parameters and the optimizer's state whole on every rank: in front of an evaluation or
     * a checkpoint. Between two steps. */
    enum err (*gather)(struct train *t);
    /* The parameters are those of t->step, from a checkpoint or from the seed. */
    enum err (*resumed)(struct train *t);
};
static inline enum err parallel_nothing(struct train *t)
{
    (void)t;
    return ERR_OK;
}
extern const struct train_parallel parallel_batch, parallel_modules, parallel_private;
const struct train_parallel *parallel_of(const struct settings *s);
/* All ranks return the lead's error, so that no rank waits in a collective for a rank that has
 * returned. */
enum err train_share_error(struct train *t, enum err e) MUST;
/* With privacy.unit: the position of the list of charges that a checkpoint holds, as stored last or
 * as loaded; else NULL. */
struct chained_at *train_charges_at(struct train *t);
/* What train_private.c opens `clip` with, but for the model and the norm. */
struct clip_options private_clip_options(const struct settings *s, int ranks);

#endif
