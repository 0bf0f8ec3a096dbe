/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYNC_CONFIG_H
#define SYNC_CONFIG_H
/* Synchronisation as the configuration describes it, in the form that the outer loop's parts use:
 * the fragments of the model, the schedule of rounds, the outer optimizer, the options of an outer
 * state. Settings become these here only, and only settings that pass all rules, so every process
 * of a run (site, aggregator, evaluation, planner) has the same.
 */
#include "outer/config/keys.h"
#include "outer/diloco/fragment.h"
#include "outer/diloco/outer_opt.h"
#include "outer/diloco/schedule.h"
#include "outer/store/outer_state.h"

struct sync_config {
    struct fragments fragments;
    struct schedule schedule;
    struct outer_opt outer; /* of the parameters */
    enum state_digest digest;
};

/* The outer optimizer of these settings; outer.lr = 0: the rate of the table (tuning.h). */
enum err sync_config_optimizer(struct outer_opt *o, const struct outer_settings *s) MUST;
/* Checks all rules of both key tables first. ERR_CONFIG: a rule is violated, or the model cannot be
 * cut into these fragments. */
enum err sync_config_make(struct sync_config *x, const struct settings *s,
                          const struct outer_settings *o, const struct table *t,
                          struct arena *perm) MUST;
/* The fragments of the parameters with outer.partition and `count` parts, for a planner that varies
 * the count. outer.partition = slices fixes its own count: with another one the cut is strided. */
enum err sync_config_cut(struct fragments *f, const struct settings *s,
                         const struct outer_settings *o, const struct table *t, unsigned count,
                         struct arena *perm) MUST;

struct sync_config_replica { /* a holder of the outer state */
    bool site;               /* false: the aggregator, or a reader of its directory */
    unsigned sites;          /* of the run */
    float error_feedback_decay;
    enum state_digest digest;
    uint64_t keep; /* rounds kept per fragment */
    struct stages_options stages;
};
/* Options of its outer state; an aggregator sets `remake` itself. */
struct outer_state_options sync_config_state(const struct fragments *f, const struct schedule *s,
                                             const struct outer_opt *outer,
                                             const struct sync_config_replica *r);

#endif
