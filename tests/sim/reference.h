/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REFERENCE_H
#define REFERENCE_H
/* What a round must come to, once more, from docs/protocol.md 3 and the papers alone: which sites
 * it has, how many of them it needs, which count and with what weight, which codec the round has,
 * the mean, the outer step. Slow, in double, and without a line of the program's code; enumerators
 * of the settings are all that it shares. It looks at every applied round of a simulated run
 * (sim_options.judge).
 *
 * Not here: the codecs themselves (tests/outer/codec has golden bytes), and with them a compressed
 * downlink, whose decoded aggregate is taken for the mean; which step ends a round (schedule.c has
 * a test); radial merges whose directions cancel.
 */
#include "tests/sim/sim.h"

struct reference {
    uint64_t rounds, steps; /* seen; with the mean and the outer step compared */
};

/* For sim_options.judge; self: struct reference. */
const char *reference_judge(void *self, const struct sim_judged *c);

#endif
