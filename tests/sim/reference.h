#ifndef REFERENCE_H
#define REFERENCE_H
/* What a round must come to, once more, from docs/protocol.md 3 and the papers alone: which sites
 * count and with what weight, which codec the round has, the mean, the outer step. Slow, in double,
 * and without a line of the program's code; enumerators of the settings are all that it shares.
 * It looks at every applied round of a simulated run (sim_options.judge).
 *
 * Not here: the codecs themselves (tests/outer/codec has golden bytes), the radial merge, rounds of
 * a downlink that is compressed (what they pass on is not the mean).
 */
#include "outer/sim/sim.h"

struct reference {
    uint64_t rounds, means, steps; /* seen; with the mean compared; with the outer step compared */
};

/* For sim_options.judge; self: struct reference. */
const char *reference_judge(void *self, const struct sim_judged *c);

#endif
