/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRAIN_PARALLEL_H
#define TRAIN_PARALLEL_H
/* How the ranks of a site divide a step: the batch (train.modules = 1, train_batch.c), the layers
 * (train_modules.c), or, with privacy.unit, the records that are drawn (train_private.c).
 * Everything else of the loop is the same. All ranks call each of these. Private to train.
 */
#include "inner/methods/methods.h"
#include "inner/train/train.h"
#include "kernels/base/chained.h"

struct step_targets { /* of this rank, in one step */
    size_t divisor, sequences, tokens;
};
struct train_sizes { /* for the plan of its memory */
    const struct settings *settings;
    const struct table *table;
    enum dtype model_type;
    size_t tokens; /* of a micro-batch, at most */
    int ranks;
};
struct train_parallel { /* no member is NULL */
    /* ERR_CONFIG: this number of ranks cannot divide a step. */
    enum err (*check)(const struct settings *s, int ranks);
    /* The number of ranks that divide the batch; 1: every rank has the whole batch. */
    int (*batch_ranks)(int ranks);
    /* Adds its rows of the memory table. */
    void (*plan)(struct train_memory *m, const struct train_sizes *p);
    bool secret; /* losses and targets of its steps stay at the site */
    /* Allocates d->state. */
    enum err (*open)(struct train *t, struct train_division *d, struct arena *perm);
    void (*close)(struct train *t); /* a partly opened one is fine */
    /* Charges step t->step + 1, durably; an error: no record of it may be read. */
    enum err (*charge)(struct train *t);
    /* The backward of step t->step + 1: adds this rank's gradients to the model's slab and its sums
     * of losses to the statistics. */
    enum err (*backward)(struct train *t, struct step_targets *targets);
    /* Makes the gradients those of the optimizer's step. */
    enum err (*reduce)(struct train *t);
    /* Makes parameters and the optimizer's state whole on every rank: before an evaluation or
     * a checkpoint. Between two steps. */
    enum err (*gather)(struct train *t);
    /* The parameters are those of t->step, from a checkpoint or from the seed. */
    enum err (*resumed)(struct train *t);
    /* Parameters of earlier steps that a checkpoint must hold: slabs (table.elements). Returns the
     * number of slabs. */
    size_t (*earlier)(const struct train *t, float *const **slabs);
    /* As in struct method. */
    enum err (*lengthened)(const struct settings *before, const struct settings *s,
                           const char *dir);
};
static inline enum err parallel_nothing(struct train *t)
{
    (void)t;
    return ERR_OK;
}
static inline enum err parallel_any_ranks(const struct settings *s, int ranks)
{
    (void)s, (void)ranks;
    return ERR_OK;
}
static inline int parallel_all_ranks(int ranks)
{
    return ranks;
}
static inline size_t parallel_no_earlier(const struct train *t, float *const **slabs)
{
    (void)t;
    *slabs = NULL;
    return 0;
}
/* Adds the targets of the batch that t->data.batch holds. */
static inline void parallel_count_targets(const struct train *t, struct step_targets *targets)
{
    const struct batch *b = t->data.batch;
    targets->divisor += objective_divisor(t->data.loader, b);
    targets->sequences += t->data.loader->sequence_targets ? batch_labels(b) : 0;
    targets->tokens += b->tokens_count - b->filled;
}
/* The parts of a rank's training that methods work on. */
static inline struct method_parts train_parts(struct train *t)
{
    return (struct method_parts){t->settings, t->dev,   t->coll,        &t->table,
                                 t->model,    t->optim, t->data.loader, t->data.batch};
}
extern const struct train_parallel parallel_batch, parallel_modules, parallel_private;
const struct train_parallel *parallel_of(const struct settings *s);
/* All ranks return the lead's error, so that no rank waits in a collective for a rank that has
 * returned. */
enum err train_share_error(struct train *t, enum err e) MUST;
/* train_state.c, part of train_open. */
enum err train_state_open(struct train *t, struct arena *perm) MUST;
/* With privacy.unit: the position of the list of charges that a checkpoint holds, as stored last or
 * as loaded; else NULL. */
struct chained_at *train_charges_at(struct train *t);

#endif
