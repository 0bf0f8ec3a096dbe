/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AMEND_OWN_H
#define AMEND_OWN_H
/* What the files of the amendments' end at the aggregator share. amend_aggregator.c writes all
 * members but `replan`, which amend_replan.c writes. All under the aggregator's lock. */
#include "outer/aggregator/aggregator_state.h"
#include "outer/config/amend.h"
#include "outer/diloco/replan.h"
#include "outer/organ/amend/amend_organ.h"

struct amend_replan {    /* outer.replan */
    uint64_t round;      /* rounds of fragment 0 before this one were looked at */
    bool full_precision; /* the last of them was */
    struct replan plan;  /* what they were */
    bool longest;        /* it was said that no round may be longer */
};
struct amend_aggregator {
    struct aggregator *a;             /* from `open` on */
    const struct keys_base *settings; /* NULL: there can be no amendments */
    struct amendments list;           /* all that are journalled; the replica's follow */
    struct amendment reading;         /* recovery: the parts of the next one so far */
    uint32_t journalled;              /* of the list */
    uint32_t in_force;                /* of the list: the core is of these; UINT32_MAX: not known */
    struct amend_replan replan;
};

/* A sealed round, whose manifest is not made yet: should outer.sync_every change? *wanted: to
 * plan->every, by what was measured of the rounds, *r. Once for each round. */
enum err amend_replan_sealed(struct amend_aggregator *x, unsigned fragment, struct replan_round *r,
                             struct replan_plan *plan, bool *wanted) MUST;

#endif
