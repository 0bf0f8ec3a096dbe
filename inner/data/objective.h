#ifndef OBJECTIVE_H
#define OBJECTIVE_H
/* Objectives: what a window of text becomes in a batch, and which of its positions have a target.
 * An objective is a pure function of the text, (seed, site) and the example's number in the site's
 * endless order: ranks and restarts see the same batch. Losses and gradients are sums over targets;
 * a step divides them by its number of targets, which its ranks add up (batch_targets). One file
 * each.
 */
#include "inner/config/keys.h"
#include "inner/data/loader.h"

struct objective {
    const char *name;
    /* Adds one sequence to the batch, from a window of the text. example: its number in the site's
     * endless order (in evaluation the window's), the key of whatever is drawn at random. */
    void (*append)(const struct loader *l, uint64_t window, uint64_t example, struct batch *b);
};
#define X(NAME, name, causal) extern const struct objective objective_##name;
OBJECTIVE_LIST(X)
#undef X

const struct objective *objective_of(const struct settings *s);
/* This rank's sequences first .. first + count - 1 of a step, first + count <= rank_sequences: a
 * micro-batch. By l's objective, as in what follows. */
void objective_step(const struct loader *l, uint64_t step, size_t first, size_t count,
                    struct batch *b);
/* Windows first .. first + count - 1 in the order of storage, first + count <= windows: held-out
 * text. */
void objective_windows(const struct loader *l, uint64_t first, size_t count, struct batch *b);

#endif
