/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRAIN_TUNE_H
#define TRAIN_TUNE_H
/* Private to inner/train: measurements during the first steps (train_tune.c). */
#include "inner/train/train.h"

struct train_tune {
    struct profile *profile;                    /* NULL: train.profile is 0 */
    struct {                                    /* sums over the micro-batches of profiled steps */
        double tokens, targets, pairs, batches; /* pairs: of tokens of one sequence */
    } profiled;
    unsigned seen; /* steps begun in this process */
    bool reported;
    int64_t steps;     /* of the trial with graphs */
    double fastest[2]; /* seconds: without, with */
};

/* After each step with its report: device.graphs = auto. */
void tune_graphs(struct train *t, const struct train_report *r);
enum err tune_open(struct train_tune **u, struct train *t, struct arena *perm) MUST;
/* train.profile: before each step; `ended`: after the last one. */
enum err tune_profile_step(struct train *t, bool ended) MUST;
/* t->data.batch is about to run. */
void tune_profile_batch(struct train *t);

#endif
