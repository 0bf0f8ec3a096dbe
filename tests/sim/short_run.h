/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SHORT_RUN_H
#define SHORT_RUN_H
/* The short strict runs of test_points and test_memory, and what their ends are compared with. */
#include <time.h>
#include "tests/sim/sim.h"

enum { RUNS = 4, SITES = 3 };
enum { STEP = 7919 }; /* a prime: neighbours in the sample are far apart in the run */

/* Blocking rounds of one fragment; four fragments whose rounds overlap training; both once more
 * with masks. Two of them keep an archive. */
static inline struct sim_options run_of(unsigned run)
{
    bool four = run % 2;
    struct sim_options o = {.seed = 1 + run,
                            .sites = SITES,
                            .fragments = four ? 4 : 1,
                            .every = four ? 4 : 2,
                            .steps = four ? 12 : 6,
                            .overlap = four ? 2 : 0,
                            .mix = four ? 0.5f : 0,
                            .codec = CODEC_INT4,
                            .error_feedback_decay = 1,
                            .optimizer = OUTER_OPT_MOMENTUM,
                            .delay = 1,
                            .strict = true,
                            .keep = 3};
    o.anneal.end = 1;
    o.masked = o.equal = o.full_fixed = run >= RUNS / 2;
    o.colluding = o.masked;
    o.archives = run == 1 || run == 2;
    return o;
}

/* NULL: the replicas are those of the run without faults. */
static inline const char *differs(const struct sim_result *calm, const struct sim_result *r)
{
    if (!digest_equal(&calm->state, &r->state))
        return "the outer state differs from the run without faults";
    for (unsigned i = 0; i < SITES; i++)
        if (!digest_equal(&calm->residual[i], &r->residual[i]))
            return "a residual differs from the run without faults";
    return NULL;
}

static inline double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

#endif
