/* SPDX-License-Identifier: Apache-2.0 */
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
 * Some schedules have changes of the roster: what follows from them is in sim_roster.c. With
 * amended settings: sim_amend.c.
 *
 * Schedules with a copied directory (`second`, `copied`) break what docs/protocol.md 7 asks of the
 * operator: never start a copy. There a run may stop and wait for a person. What must hold anyway
 * is in sim_copies.c.
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
#include "outer/protocol/manifest.h"
#include "tests/sim/disk_sim.h"

enum { SIM_SITES_MAX = 64, SIM_FEW_SITES = 5, SIM_WHY_MAX = 512 };
enum { SIM_FRAGMENTS_MAX = 4, SIM_CHANGES_MAX = 3 };

/* A copy of a directory, made at some moment, is started later. */
enum sim_copy {
    SIM_COPY_NONE,
    SIM_COPY_RESTORED, /* in place of the original, whose disk is lost */
    SIM_COPY_BOTH      /* next to the original, for a time; then one of the two is ended for good */
};

/* One fault of one disk, in a run without others. */
struct sim_point {
    unsigned node; /* a site, or after them the aggregator */
    uint64_t at;   /* which operation of the node's disk, from 1 on; 0: none */
    enum disk_fault fault;
    bool power;       /* and within a minute after it the node loses its power */
    uint64_t then_at; /* a second one, at this operation after the restart; 0: none */
    enum disk_fault then;
};

/* Allocations of one node's processes fail. What allocates has to be compiled into the test with
 * calloc and malloc replaced by functions that ask sim_memory_fails. */
struct sim_memory {
    unsigned node; /* a site, or after them the aggregator */
    uint64_t at;   /* which allocation of the node's processes, from 1 on; 0: none */
    bool lasting;  /* all of them from this one on, over restarts, for a simulated minute */
};

/* Faults that few seeds have at the moment that matters, for a test that looks for one kind of bug.
 * All 0: as the seed draws them. */
struct sim_leaning {
    double journal; /* chance that an aggregator that is down loses its journal; half of the starts
                       that follow end between the new journal and the term in it */
    double full;    /* chance that a site's file of keys finds no space */
    double power;   /* chance that the power goes soon after the removal of a file for good; some
                       processes end right after they have stored an eager start, each step has a
                       checkpoint, and most of what a damaged site trains is not finite */
    double crash;   /* chance that a process ends at a storage operation */
    double seals;   /* chance that a process ends as it shows, signs or answers for a seal, and in
                       no other step of secure aggregation */
    double rot;     /* chance that a file of an aggregator that is down rots */
    bool away;      /* one site after the other is out of reach for longer than a round waits */
    bool silent; /* a site that is removed is out of reach, from its last contribution on until it
                    is added again */
};

/* One applied round, decoded. Arrays have `count` values. */
struct sim_judged {
    const struct sim_options *o;
    unsigned fragment;
    uint64_t round, rounds;                   /* rounds: of the fragment in the run */
    const struct manifest *before, *manifest; /* before: NULL in round 0 */
    size_t count;
    float lr;              /* of the outer step, before annealing */
    enum codec_kind codec; /* outer.codec, as amended for this round */
    double progress;       /* the step that ends the round over the last step of the run */
    int64_t left, length;  /* steps: from it to the last one; of a full round */
    const struct tensor_range *tensors; /* [tensor_count] of the fragment */
    size_t tensor_count;
    const unsigned *members; /* the sites that the round must have, in order */
    unsigned member_count;
    const float *const *sent; /* [manifest->site_count] by entry; NULL: not included */
    const float *passed; /* what a compressed aggregate decodes to, over the weight; NULL: it is not
                            compressed */
    const float *const *theta, *const *momentum, *const *second; /* [2]: before, after; NULL */
};

struct sim_options {
    uint64_t seed;
    unsigned sites, fragments;
    bool small; /* a fragment is one block; processes end more often */
    int64_t steps, every, overlap;
    uint64_t every_ms;               /* rounds by time: strict, one fragment, no overlap */
    struct period_growth growth;     /* without the one-round delay */
    float mix;                       /* with overlap */
    bool eager;                      /* with the one-round delay */
    bool before_update;              /* with overlap, but not with the one-round delay */
    int64_t max_local_steps_offline; /* quorum */
    enum codec_kind codec;
    bool full_fixed; /* full-precision rounds are sent as fixed; else as bf16 */
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
    uint32_t edit_warmup; /* of merge edit */
    float edit_norm;
    uint64_t journal_bytes_max; /* of the aggregator: a commit rewrites a longer journal; 0: as in
                                   production */
    bool beside;   /* other calls come between the stages of a commit (docs/protocol.md 3.14) */
    bool operates; /* an operator aborts and rolls back rounds, quarantines and readmits */
    bool joins;    /* two sites or more: the last one is not in outer.sites, an operator adds it */
    bool leaves;   /* the same: an operator removes one of the others */
    bool returns;  /* and adds it again later, with its directory */
    bool amends;   /* an operator amends settings (sim_amend.c) */
    bool masked;   /* privacy.secure = sum; what a seed has with it: sim_draw.c. Needs `equal` */
    bool archives; /* run.archive of the aggregator and of every second site */
    /* Between two passes of the scrub of every process; 0: none. It reads this number of bytes a
     * second.
     */
    uint64_t scrub_every_ms, scrub_bytes_per_s;
    unsigned colluding;   /* of them: sites that may work together with the aggregator */
    bool equal;           /* every site has weight 1; else every third one half of it */
    enum sim_copy second; /* of the aggregator's directory */
    bool split; /* quorum, three sites or more, `second` is SIM_COPY_BOTH: the copy is made when a
                   round has a majority; then one of its sites stays with the original for a while,
                   and all others are at the copy */
    enum sim_copy copied; /* of a site's */
    struct sim_point point;
    struct sim_memory memory;
    struct sim_leaning leaning;
    /* What sees the faults, and which of them are left out (clock_sim.h). */
    sim_told *told;
    void *told_self;
    const uint8_t *without;
    /* Every commit, as an independent implementation wants to see it; NULL: none does. Returns
     * NULL, or what is wrong. */
    const char *(*judge)(void *self, const struct sim_judged *c);
    void *judge_self;
};
struct sim_result {
    bool ok;
    char why[SIM_WHY_MAX];
    struct digest state;                   /* of all members */
    struct digest residual[SIM_SITES_MAX]; /* theta, momentum, codes, residual of each site */
    uint64_t virtual_ms, calls, crashes, restarts, commits, snapshots, excluded, gap_ms, stopped,
        moved, postponed, /* exchange.h: steps given up, rounds that waited offline */
        residual_resets,  /* full-precision rounds of residual resets */
        damaged,          /* deltas that were not finite */
        aborted,          /* rounds committed with an empty set */
        ordered,          /* of them, by an operator */
        rolled_back,      /* of them, to an earlier state */
        quarantined,      /* by an operator */
        amidst,           /* calls that came between the stages of a commit */
        judged,           /* commits that `judge` saw */
        faults,           /* that struck: clock_sim.h */
        copies,           /* directories that were copied and started */
        given_up,         /* processes that only a person can bring back, with a copy about */
        stepped_back,     /* answers `step_back` */
        parted,           /* runs that ended before their last round, with a copy about */
        lies_accepted,    /* honest contributions of a lying site */
        clipped,          /* contributions that were scaled down */
        lies_refused,     /* contributions of a lying site that were answered `invalid` */
        compressed,       /* rounds with downlink compression */
        residuals_lost,   /* the aggregator's, with a damaged state: such a run differs from a calm
                             one */
        sealed,           /* seals that sites were shown */
        unsealed,         /* of them, without a commit that includes a site */
        absent,           /* sites whose pair masks were revealed */
        archived,         /* rounds in the aggregator's archive, each whole */
        gaps,             /* committed rounds that are not in it: the disk failed */
        scrubbed, mended, /* files that the scrubs have read; damaged ones that are whole again */
        sought, /* pieces of sites' values that the aggregator's files were searched for */
        amendments, refused_amendments,
        seals_lost,         /* rounds aborted since the seal was damaged: such a run differs, too */
        codecs;             /* which codec each round had, as one number */
    unsigned books_checked; /* sites whose I3 was checked to the end */
    uint64_t
        operations[SIM_SITES_MAX + 1]; /* of the disks of the sites, then of the aggregator's */
    uint64_t allocations[SIM_SITES_MAX + 1]; /* of their processes, where they are counted */
    bool struck;                             /* the fault of the point, or of the memory */
    bool compared;                           /* with the run without faults, by the caller */
    bool compared_unmasked;                  /* and with that without masks */
    struct digest amended; /* the list of amendments: I1 is defined where it is the same */
    bool repeats;     /* the acts of an operator met every site's contribution: I1 is defined */
    unsigned changes; /* of the roster */
    uint64_t first[SIM_CHANGES_MAX][SIM_FRAGMENTS_MAX]; /* round of each fragment under them; I1 is
                                                           defined where these are the same */
};

/* The configuration of a seed: of up to 5 sites and 8 rounds of several blocks. */
struct sim_options sim_draw(uint64_t seed);
/* Up to 3 sites and 5 rounds of one block: most schedules of a campaign, since what a bug needs
 * happens in few rounds. */
struct sim_options sim_draw_small(uint64_t seed);
struct sim_options sim_draw_large(uint64_t seed); /* up to 64 sites, up to 200 rounds */
/* Where `masked` is drawn, or set: what masked rounds need, and the rest that they have. */
void sim_draw_masked(struct sim_options *o);
/* Of the code that runs now: does this allocation fail? Counts it. */
bool sim_memory_fails(void);
void sim_run_options(const struct sim_options *o, struct sim_result *r);

#endif
