/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ARCHIVES_H
#define ARCHIVES_H
/* The archives (run.archive) of replicas of one run, opened for a replay. Reads only. */
#include "outer/config/run.h"
#include "outer/organ/archive/replay.h"
#include "outer/protocol/signer.h"

enum { ARCHIVES_MAX = ROUND_SITES_MAX };
struct archives_options {
    const char *config; /* NULL: the one in the first archive */
    const char *ca;     /* whose authority the aggregator's certificates must be of; NULL: any */
    bool several;       /* they may be of two runs */
};
struct archives {
    struct archives_options o;
    struct run run;
    struct replay_source sources[ARCHIVES_MAX];
    size_t count;
    bool imported; /* the run did not start from run.seed */
    struct signer *signer;
    unsigned aggregators;
    struct archives_keys *keys; /* [aggregators] */
    struct dev *cpu;
    struct outer_state replica;
};

/* The operands are archives, run directories, serve.dirs, or directories of archives. `c` is
 * zeroed; close takes what is half open. */
enum err archives_open(struct archives *c, const struct archives_options *o,
                       const struct args *args) MUST;
void archives_close(struct archives *c);
const struct replay_source *archives_first(const struct archives *c);
enum replay_signature archives_signature(const struct archives *c, const struct manifest *m);

#endif
