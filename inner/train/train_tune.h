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

/* Multiverse heads (inner/methods/heads.c): the losses of a step into the averages, for so many
 * sequences; the mean |cosine| of a step; at an evaluation the heads that leave. */
void heads_step(struct train *t, double sequences);
double heads_cosine(const struct train *t, double sequences);
enum err heads_review(struct train *t) MUST;

#endif
