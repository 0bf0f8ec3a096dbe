/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CANARY_AUDIT_H
#define CANARY_AUDIT_H
/* The audit of a run with canaries (inner/data/canaries.h): each is scored by its loss under the
 * trained model less that under the initial one, the lowest scores are guessed to have been in the
 * training text, the highest not, and the right guesses give a lower bound on epsilon
 * (outer/budget/audit.h). One thread, on the run's device.
 */
#include "outer/run/load.h"

enum { CANARY_AUDIT_MAX = 10000000 }; /* canaries */
struct canary_audit {
    const char *set;     /* directory of the canaries */
    int64_t canaries;    /* found */
    int64_t guesses;     /* 0: a quarter of them */
    int64_t correct;     /* found: right guesses */
    double delta, claim; /* 0: of the run's charges; claim stays 0 where none can be claimed */
    double confidence;
    double bound;      /* found: epsilon is at least this */
    uint64_t included; /* found: canaries in the training text */
};
/* The bound of given canaries, guesses and right guesses, without a run. */
void canary_audit_bound(struct canary_audit *w);
/* Loads the model of l. ERR_CONFIG: too few or too many guesses; else as canaries_open, spent_read
 * and load_model. */
enum err canary_audit_run(struct load *l, struct canary_audit *w) MUST;
/* A line of AUDIT_FILE in the run's directory. */
enum err canary_audit_record(struct load *l, const struct canary_audit *w) MUST;

#endif
