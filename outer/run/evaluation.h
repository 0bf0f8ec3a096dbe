/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EVALUATION_H
#define EVALUATION_H
/* A trained model on held-out text, set by set, and on multiple-choice tasks: what `atoll eval`
 * prints. Results go to the functions of struct evaluation_told, in the order of the settings.
 */
#include "inner/eval/choose.h"
#include "inner/eval/evaluate.h"
#include "outer/run/load.h"

struct evaluation_set {
    const char *name; /* "": it has none */
    uint64_t windows; /* that are read */
    const struct loader *text;
    const struct evaluate_sums *sums;
    bool tokens, pairs, labels; /* what it has targets for */
};
struct evaluation_told {
    void *self; /* the first argument of each */
    void (*begins)(void *self, const struct evaluation_set *set);
    void (*progress)(void *self, uint64_t done); /* windows of the set */
    void (*set)(void *self, const struct evaluation_set *set);
    void (*task)(void *self, const struct choices *c, const struct choose_counts *n);
    /* With `details`, in place of sets and tasks. scores: of each choice. */
    void (*question)(void *self, const struct choices *c, size_t i, const double *scores);
};
struct evaluation_options {
    int64_t tokens; /* of each set; 0: all; -1: train.eval_tokens */
    bool details;
};
/* The directory is open (load_run); loads the model. ERR_CONFIG: neither data.eval nor eval.tasks.
 */
enum err evaluation_run(struct load *l, const struct evaluation_options *o,
                        const struct evaluation_told *told) MUST;

#endif
