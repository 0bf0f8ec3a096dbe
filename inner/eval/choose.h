/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHOOSE_H
#define CHOOSE_H
/* Which choice of a multiple-choice question a causal model picks: the one whose ids have the
 * largest log-likelihood after the context, summed (acc), or divided by the length of the choice
 * (acc_norm); of equal ones the first, as numpy's argmax takes it in lm-evaluation-harness. What is
 * longer than the model reads loses its beginning, as there. Sequences are packed; equal choices of
 * a question have equal scores, wherever they lie in a batch.
 */
#include "inner/coll/coll.h"
#include "inner/eval/choices.h"
#include "inner/model/model.h"

struct choose {
    struct model *model;
    struct batch batch;
    size_t longest; /* ids that the model reads at once */
    float *losses;  /* (batch.tokens_max) */
    struct choose_place {
        size_t choice, first, count; /* positions of the batch that have its losses */
    } * places;
    size_t places_count;
    /* Before each batch; false: end. NULL: none. */
    bool (*go_on)(void *self);
    void *self;
    /* Ranks whose passes collect parameters (train.zero_stage = 3) make the same number of them:
     * those that have no more questions read along. NULL: each rank has what it needs. */
    struct coll *together;
};
struct choose_counts {
    double right, right_norm, questions;
    double ended; /* above 0: go_on has ended it, the counts are of a part */
};

/* longest: train.seq_len. ERR_UNSUPPORTED: an encoder. */
enum err choose_open(struct choose *x, struct model *m, const struct settings *s,
                     struct arena *perm) MUST;
/* Does each choice fit? ERR_INPUT names the question. */
enum err choose_check(const struct choose *x, const struct choices *c) MUST;
/* Log-likelihoods, nats, of the choices of questions [first, end): scores[0] is that of the first
 * one's first. *ended: by go_on. */
enum err choose_scores(struct choose *x, const struct choices *c, size_t first, size_t end,
                       double *scores, bool *ended) MUST;
/* The pick of a question by its scores: by their sums, or by length. */
size_t choose_pick(const struct choices *c, size_t question, const double *scores, bool by_length);
/* Of questions [first, end). */
enum err choose_count(struct choose *x, const struct choices *c, size_t first, size_t end,
                      struct choose_counts *out) MUST;
/* Of all questions, divided among the ranks, which all call. */
enum err choose_ranks(struct choose *x, struct coll *coll, const struct choices *c,
                      struct choose_counts *out) MUST;

#endif
