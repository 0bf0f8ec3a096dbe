/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SAMPLE_H
#define SAMPLE_H
/* Text from a model: one id at a time, drawn from the model's distribution given the last `context`
 * ids. The n-th draw is a function of (seed, n), so the same prompt and seed give the same text.
 * There is no key-value cache: each id costs a forward pass over the context.
 */
#include "inner/model/model.h"

struct sample_options {
    double temperature; /* 0: always the most likely id; 1: the model's own distribution */
    int64_t top_k;      /* only the k most likely; 0: all */
    uint64_t seed;
    size_t context; /* ids that are read at once, at most; 0: model.max_seq_len */
};
/* What atoll sample draws with unless it is told otherwise, and what a run draws with. */
static const struct sample_options sample_usual = {.temperature = 0.8, .top_k = 40, .seed = 1};
struct sample {
    struct model *model;
    struct sample_options o;
    size_t context, vocab;
    struct batch
        batch; /* the text as sequence 0, then padding sequences: few shapes, so few GEMM plans */
    float *logits;
    int64_t *order; /* (vocab) scratch */
};

/* The model must hold at least sample_tokens(s) tokens, or with a smaller context as many as that
 * filled up to a multiple of 64; evaluation models will do. */
size_t sample_tokens(const struct settings *s);
enum err sample_open(struct sample *x, struct model *m, const struct settings *s,
                     const struct sample_options *o, struct arena *perm) MUST;
/* The id that follows ids[0 .. count), count > 0; `n` numbers the draw. */
enum err sample_next(struct sample *x, const int32_t *ids, size_t count, uint64_t n,
                     int32_t *id) MUST;
/* An encoder reads one sequence; types NULL: all 0. Then the logits of any position, in x->logits,
 * or of the sequence by the head of a task (model_class_logits). */
enum err sample_read(struct sample *x, const int32_t *ids, const int32_t *types, size_t count) MUST;
enum err sample_logits_at(struct sample *x, size_t position) MUST;
enum err sample_class_logits(struct sample *x, size_t task, float *logits) MUST;
/* The k-th most likely id of x->logits, k = 0: the most likely one. */
int32_t sample_likely(struct sample *x, size_t k);
/* The draw alone, from logits: what tests check. */
int32_t sample_draw(struct sample *x, uint64_t n);

#endif
