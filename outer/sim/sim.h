#ifndef SIM_H
#define SIM_H
/* The whole outer loop in one thread and virtual time: the production site, aggregator, core,
 * journal, outer state and codecs on a simulated link, disk and clock, with a toy trainer inside
 * each site. One 64-bit seed draws configuration, intensities of faults and every single fault;
 * chaos first, then the faults end, then the run must end.
 *
 * Checked while it runs (docs/protocol.md 4): I3 and I4 exactly (integers), I5 parent chain, I6 no
 * receipt without durable payload and record, nothing sent that is not stored, I7 one payload per
 * site and round, the set counted only after hello. At the end: all members equal, equal to the
 * replay of the manifests, the residual books close, commits came within the bound. What a run
 * returns lets the caller compare with the run without faults (I1).
 *
 * The trainer repeats bit for bit in strict mode; in quorum mode it does not, on purpose, as on a
 * GPU.
 */
#include <stdbool.h>
#include <stdint.h>
#include "kernels/base/digest.h"
#include "outer/codec/codec.h"
#include "outer/diloco/period.h"
#include "outer/diloco/outer_opt.h"
#include "outer/sim/disk_sim.h"

enum { SIM_SITES_MAX = 5, SIM_WHY_MAX = 512 };

/* One fault of one disk, in a run without others. */
struct sim_point {
    unsigned node; /* a site, or behind them the aggregator */
    uint64_t at;   /* which operation of the node's disk, from 1 on; 0: none */
    enum disk_fault fault;
    bool power; /* and within a minute after it the node loses its power */
};

struct sim_options {
    uint64_t seed;
    unsigned sites, fragments;
    int64_t steps, every, overlap;
    uint64_t every_ms;               /* rounds by time: strict, one fragment, no overlap */
    struct period_growth growth;     /* without the one-round delay */
    float mix;                       /* with overlap */
    bool eager;                      /* with the one-round delay */
    bool before_update;              /* with overlap, but not with the one-round delay */
    int64_t max_local_steps_offline; /* quorum */
    enum codec_kind codec;
    float error_feedback_decay, residual_reset;
    unsigned downlink_compression_from;
    enum outer_opt_kind optimizer;
    enum merge_kind merge;
    float clip; /* with a gathered codec */
    struct anneal anneal;
    unsigned delay; /* of delayed_nesterov */
    double grace;   /* quorum with overlap */
    bool strict;
    uint64_t keep; /* outer.history_rounds */
    bool faults;   /* false: the run to compare with */
    /* quorum: the last site starts late; the first is away for long; what the second of three or
     * more trained is not finite now and then */
    bool late, absent, damaged;
    bool aborts; /* the outer step of some rounds gives values that are not finite; a run without
                    faults has it too */
    bool lies;   /* quorum, three sites or more: the last one sends what must be refused */
    struct sim_point point;
};
struct sim_result {
    bool ok;
    char why[SIM_WHY_MAX];
    struct digest state;                   /* of all members */
    struct digest residual[SIM_SITES_MAX]; /* theta, momentum, codes, residual of each site */
    uint64_t virtual_ms, calls, crashes, restarts, commits, snapshots, excluded, gap_ms, stopped,
        moved, postponed, /* site_train.h: steps given up, rounds that waited offline */
        residual_resets,  /* full-precision rounds of residual resets */
        damaged,          /* deltas that were not finite */
        aborted,          /* rounds committed with an empty set */
        clipped,          /* contributions that were scaled down */
        lies_refused,     /* contributions of a lying site that were answered `invalid` */
        compressed,       /* rounds with downlink compression */
        residuals_lost;   /* the aggregator's, with a damaged state: such a run differs from a calm
                             one */
    unsigned books_checked; /* sites whose I3 was checked to the end */
    uint64_t
        operations[SIM_SITES_MAX + 1]; /* of the disks of the sites, then of the aggregator's */
    bool struck;                       /* the fault of the point */
};

struct sim_options sim_draw(uint64_t seed); /* the configuration of a seed */
void sim_run_options(const struct sim_options *o, struct sim_result *r);

#endif
