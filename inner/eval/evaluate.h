/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EVALUATE_H
#define EVALUATE_H
/* Losses and predictions of a model over held-out windows, in micro-batches as large as its batch.
 * One rank's share: sums over ranks are the caller's. Predictions are counted with masked text
 * (tokens, pairs) and with labels.
 */
#include "inner/data/objective.h"
#include "inner/model/model.h"
#include "inner/eval/figures.h"
#include "inner/eval/scores.h"

/* All of it points into `values`, so that a sum over ranks is one array. */
struct evaluate_sums {
    double *loss;                              /* (MODEL_LOSSES) nats, summed over the targets */
    double *count;                             /* (MODEL_LOSSES) targets */
    double *right;                             /* (1) tokens whose most likely id is the target */
    struct class_counts tasks[KEYS_TASKS_MAX]; /* or of the pairs alone */
    size_t tasks_count;                        /* 0: sequences have no targets */
    /* With train.eval_attention (ranks, layers): each rank's largest attention logits in its own
     * row, 0 in the others; NULL: without. */
    double *attention;
    size_t layers, rank, ranks;
    double *values;
    size_t values_count;
    float *largest; /* (layers) scratch */
    float *logits;  /* scratch; NULL: no predictions */
    /* After each batch, with the windows so far; NULL: none. Set by the caller after open. */
    void (*told)(void *self, uint64_t done);
    void *self;
};
struct evaluate_rank {
    size_t rank, ranks;
};
enum err evaluate_open(struct evaluate_sums *sums, const struct settings *s, struct evaluate_rank r,
                       struct arena *perm) MUST;
/* The sum of the means over the targets of tokens and of sequences, as the training loss. */
double evaluate_loss(const struct evaluate_sums *sums);
/* The mean over the targets of one kind; 0: there are none. */
double evaluate_mean(const struct evaluate_sums *sums, enum model_loss_kind kind);
double evaluate_token_accuracy(const struct evaluate_sums *sums);
/* Adds the scores of the predictions on the text of `l`: of masked tokens, of pairs, or of labels,
 * where each task counts by its examples. The causal objective has none. */
void evaluate_scores(const struct evaluate_sums *sums, const struct settings *s,
                     const struct loader *l, struct figures *f);
/* Of all ranks; with train.eval_attention. */
double evaluate_attention(const struct evaluate_sums *sums, size_t layer);

/* Windows [first, end) of the set, in the order of storage, into sums that begin at 0; `b` is
 * scratch. */
enum err evaluate_windows(struct model *m, const struct loader *l, struct batch *b, uint64_t first,
                          uint64_t end, struct evaluate_sums *sums) MUST;
/* Where a pass is a collective: the passes of a rank with `most` windows that one with `windows`
 * has not run. They count nothing. */
enum err evaluate_along(struct model *m, const struct loader *l, struct batch *b, uint64_t windows,
                        uint64_t most) MUST;
/* How many windows `tokens` are: at least one, at most all. */
uint64_t evaluate_count(const struct loader *l, int64_t tokens);

#endif
