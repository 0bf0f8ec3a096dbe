#ifndef PROBE_RANKS_H
#define PROBE_RANKS_H
/* atoll probe --ranks: what the ranks of this site, started by a launcher, take for their
 * collectives, their products and the classes of a training step. All ranks call.
 */
#include "outer/config/run.h"

struct probe_ranks_options {
    const char *write;  /* file for atoll plan --inside --probe, by rank 0; NULL: none */
    const char *widths; /* "64,128": of the calibrated models; NULL: half, whole and twice
                           model.width */
    double seconds;     /* of repetitions of each size of each collective */
};
enum err probe_ranks(struct run *p, const struct probe_ranks_options *o) MUST;

/* A new directory next to run.dir, so that the same disk is measured. */
enum err probe_directory(struct run *p, char **path) MUST;

#endif
