/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OBJECTIVE_H
#define OBJECTIVE_H
/* Objectives (struct objective: loader.h): what the text becomes in a batch, and what in it has a
 * target. An objective cuts the text into examples, `windows` in an epoch, each of which is one
 * sequence of a batch. An example is a pure function of the text, (seed, site), the epoch and its
 * number: ranks, micro-batches and restarts see the same. One file each.
 *
 * Targets are of two kinds: of a token (batch.targets) and of a sequence (batch.labels). Losses
 * and gradients are sums over targets; a step divides the sum of each kind by its number over the
 * whole step of the site. A step of a site has batch_tokens / sequence examples of any length.
 */
#include "inner/data/loader.h"

#define X(NAME, name, causal) extern const struct objective objective_##name;
OBJECTIVE_LIST(X)
#undef X

extern const struct objective objective_documents;

/* Of held-out text, and of a step: with privacy.unit = document or owner causal windows keep within
 * a document. */
const struct objective *objective_of(const struct settings *s);
const struct objective *objective_trained(const struct settings *s);
/* Room for `sequences` sequences of the longest length, and for the one that fills the batch up. */
size_t objective_tokens_max(const struct objective *o, size_t tokens);
enum err objective_batch_open(const struct objective *o, struct batch *b, struct arena *perm,
                              size_t sequences, size_t sequence) MUST;
/* This rank's sequences first .. first + count - 1 of a step, first + count <= rank_sequences: a
 * micro-batch. By l's objective, as in what follows. */
void objective_step(struct loader *l, uint64_t step, size_t first, size_t count, struct batch *b);
/* The examples of these windows, in that order, as a micro-batch of a step. What is drawn of an
 * example (masks, dropout) depends on its window and the step alone, not on the others in the
 * batch: with privacy a record's gradient must be a function of that record. */
void objective_records(struct loader *l, uint64_t step, const uint64_t *windows, size_t count,
                       struct batch *b);
/* The targets of the whole step of the site, of all its ranks; the same on each. */
void objective_counts(const struct loader *l, uint64_t step, struct target_counts *c);
/* What the loss of a sequence counts in a step, that of a token counting 1: the sum of both is
 * divided by the targets of tokens, and so is the sum of two means. 1 where there is one kind. */
double objective_sequence_weight(const struct loader *l, uint64_t step);
/* What the sum of the losses of a batch is divided by: its token targets, or its sequence targets
 * where the objective has no others. */
size_t objective_divisor(const struct loader *l, const struct batch *b);
/* Windows first .. first + count - 1 in the order of storage, first + count <= windows: held-out
 * text. What is drawn at random is the same at each evaluation. */
void objective_windows(const struct loader *l, uint64_t first, size_t count, struct batch *b);

#endif
