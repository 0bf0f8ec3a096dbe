#ifndef TRAIN_TUNE_H
#define TRAIN_TUNE_H
/* Private to inner/train: measurements during the first steps (train_tune.c). */
#include "inner/train/train.h"

/* After each step with its report: device.graphs = auto. */
void tune_graphs(struct train *t, const struct train_report *r);
/* train.profile: memory for it; then before each step and, ended, behind the last. */
enum err tune_profile_open(struct train *t, struct arena *perm) MUST;
enum err tune_profile_step(struct train *t, bool ended) MUST;
/* t->batch is about to run. */
void tune_profile_batch(struct train *t);

#endif
