#ifndef EVALUATE_H
#define EVALUATE_H
/* Loss of a model over held-out windows, in micro-batches as large as its batch. One rank's share:
 * sums over ranks are the caller's.
 */
#include "inner/data/objective.h"
#include "inner/model/model.h"

struct evaluate_sums {
    double loss[MODEL_LOSSES]; /* nats, summed over the targets */
    double count[MODEL_LOSSES];
};
/* The sum of the means over the targets of tokens and of sequences, as the training loss. */
double evaluate_loss(const struct evaluate_sums *sums);

/* Windows [first, end) of the set, in the order of storage; `b` is scratch. */
enum err evaluate_windows(struct model *m, const struct loader *l, struct batch *b, uint64_t first,
                          uint64_t end, struct evaluate_sums *sums) MUST;
/* How many windows `tokens` are: at least one, at most all. */
uint64_t evaluate_count(const struct loader *l, int64_t tokens);

#endif
