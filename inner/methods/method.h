/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRAINING_METHOD_H
#define TRAINING_METHOD_H
/* Interface of a training method: a row of methods.c, and a file of this folder.
 */
#include "inner/data/objective.h"
#include "inner/eval/figures.h"
#include "inner/optim/optim.h"

struct method_parts { /* of a rank's training, borrowed for the methods' life */
    const struct settings *settings;
    struct dev *dev;
    struct coll *coll;
    const struct table *table;
    struct model *model;
    struct optim *optim;
    struct loader *loader; /* of the training text */
    struct batch *batch;   /* of the running step */
};

/* A row; no member is NULL. `state` is the method's own. */
struct method {
    const char *name; /* of its part in checkpoints */
    /* Whether the settings ask for it. If not, no other function of the row is called. Pure. */
    bool (*asked)(const struct settings *s);
    enum err (*open)(void **state, const struct method_parts *p, struct arena *perm);
    /* Bytes that a checkpoint holds of it; 0: none. Pure. */
    size_t bytes;
    /* These bytes, in `state`. Equal on all ranks. */
    void *(*kept)(void *state);
    /* The parameters are those of a finished step, from a checkpoint or from the seed. */
    enum err (*resumed)(void *state);
    /* Whether `begin` of the step after `steps` finished ones changes parameters: the host then
     * does not run ahead of the device. */
    bool (*changes)(const void *state, int64_t steps);
    /* Before the forward of that step. */
    void (*begin)(void *state, int64_t steps);
    /* Adds the figures of the last of `steps` finished steps. stats (STEP_STATS): the statistics of
     * that step, summed over the ranks. */
    void (*read)(void *state, int64_t steps, const double *stats, struct figures *f);
    /* After a step at which an evaluation is due, before it. */
    enum err (*review)(void *state, int64_t steps);
    /* A run continues with another train.steps. `before`: the settings of its finished steps; they
     * differ from `s` in train.steps alone. ERR_MISMATCH: with `s` the finished steps would have
     * been different. `dir` holds the checkpoint. */
    enum err (*lengthened)(const struct settings *before, const struct settings *s,
                           const char *dir);
};
/* For rows that have nothing to do at a place. */
void *method_keeps_nothing(void *state);
enum err method_resumes_nothing(void *state) MUST;
bool method_changes_nothing(const void *state, int64_t steps);
void method_begins_nothing(void *state, int64_t steps);
enum err method_reviews_nothing(void *state, int64_t steps) MUST;
enum err method_keeps_past(const struct settings *before, const struct settings *s,
                           const char *dir) MUST;

#endif
