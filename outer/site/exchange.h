/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXCHANGE_H
#define EXCHANGE_H
/* The rounds of a site that trains: carries out the actions of the stepper
 * (outer/diloco/stepper.h). It knows no trainer: struct exchange_trainer is the interface. All
 * ranks call these at the same steps. A rank that holds fragments (outer/diloco/shards.h; the lead
 * alone, or each rank some) has a site, a replica and a link, exchanges these fragments, and hands
 * the result on: its status first, so that no rank waits for bytes that never come, then the new
 * outer parameters.
 *
 * Without overlap a checkpoint of step s may be from before or after the rounds that are due at s:
 * exchange_start does them (again). A round whose state is on record sends nothing and puts the
 * recorded parameters in, so both lead to the same bits. Mixing cannot be repeated: with overlap a
 * checkpoint is from after them, or its mark says that it is not. A round in flight is sent again
 * from the stored contribution, so exchange_saving comes first.
 */
#include "inner/coll/coll.h"
#include "outer/diloco/interval.h"
#include "outer/diloco/stepper.h"
#include "outer/diloco/weights.h"
#include "outer/site/site.h"

/* The position of the trainer. The exchange moves step and tokens when the run has continued
 * without this site. */
struct exchange_now {
    int64_t step;    /* steps done; the same on every rank, as is tokens */
    uint64_t tokens; /* of this site so far */
    uint64_t batch_tokens;
    uint64_t charged;               /* steps of its privacy budget so far; 0: it has none */
    double loss, tokens_per_second; /* of the step just done, for displays; NaN: not known */
};
/* What trains: the holder of the local parameters. Called on every rank, but for `initial`. All
 * members are set. */
struct exchange_trainer {
    void *self;
    struct dev *dev;         /* of the memory that values pass through */
    size_t elements;         /* of the parameters' slab, gaps included */
    const char *checkpoints; /* where its checkpoints are, for messages */
    bool everywhere;         /* gather is a collective: every rank calls it */
    /* The local values of a fragment -> out (elements of the fragment, memory of dev). Where
     * they are sent or hashed alone, unless `everywhere`. */
    enum err (*gather)(void *self, const struct fragment *f, float *out);
    /* The values of these ranges become alpha * local + (1 - alpha) * theta: lerp_ranges of
     * kernels/dev.h, on the slab of f->state. theta: the ranges concatenated, memory of dev. */
    enum err (*mix)(void *self, const struct fragment *f, const float *theta,
                    const struct dev_lerp *b);
    void (*mixed)(void *self); /* after the mixes of an event */
    /* The trainer is at another step now: n->step and n->tokens. */
    void (*moved)(void *self, const struct exchange_now *n);
    /* A stop while waiting: a checkpoint of the present step, unless there is one. */
    enum err (*checkpoint)(void *self);
    /* The parameters that the run starts from, as a slab. Lead only. */
    enum err (*initial)(void *self, float *slab);
};
struct exchange_round { /* what a finished round looked like; bytes are of this site */
    int64_t step;
    unsigned fragment, included, sites;
    uint64_t round;
    int64_t trained; /* steps that this site made for it */
    double weight;
    int rank;       /* that holds the fragment */
    bool replayed;  /* its state was on record: nothing went over the link */
    double seconds; /* that training waited for it: gather, wait, mix */
    struct site_times times;
    double flight_ms;  /* from the send until the commit was adopted */
    double exposed_ms; /* of these, training waited; the rest was hidden */
    double gather_ms, mix_ms;
    uint64_t up_predicted, down_predicted;
    struct link_counters counted; /* since the last round that was told of */
    struct outer_metrics metrics;
};
struct exchange_rules { /* what the configuration says of it */
    const struct fragments *fragments;
    struct schedule schedule; /* the exchange keeps its own up to date */
    unsigned site_count;
    bool strict; /* replay every step that a restart lost; else continue where the others are */
    int64_t max_local_steps_offline; /* quorum mode: steps to train on while the aggregator is
                                        unreachable */
    uint64_t every_ms;               /* outer.sync_interval_s; 0: rounds end by their steps alone */
    double share;                    /* site.batch_scale */
    enum weights_kind weights;       /* outer.weights */
    double mix;         /* keys_mix: share of the local parameters when a commit is applied */
    bool before_update; /* with overlap: applied before its step's update, not after it */
};
struct exchange_options {
    struct exchange_rules rules;
    struct shards shards; /* of this rank */
    struct site *site;    /* these three NULL on ranks that hold no fragment */
    struct outer_state *replica;
    struct link *link;
    struct coll *coll;
    bool beside;      /* the replica works in the memory of the trainer's device */
    struct env *env;  /* NULL on ranks that hold no fragment */
    atomic_int *stop; /* asked to stop: of this rank; NULL where the ranks have no all_reduce_host
                         (libatoll) */
    /* On the lead; of a round that another rank holds, on every rank. */
    enum err (*rounded)(void *self, const struct exchange_round *r);
    /* On every rank, before the first step and when a replica's schedule has changed: *s becomes
     * the newest schedule that a rank knows, with the former values of train.steps that *s has. No
     * step after a border of the new schedule has begun. *version: its
     * outer_state_schedule_version. An error is the same on every rank. */
    enum err (*rescheduled)(void *self, struct schedule *s, uint32_t *version);
    void *self; /* of these two */
};
struct exchange {
    struct exchange_options o;
    struct exchange_trainer t;
    float *fragment;     /* device, largest fragment: local parameters, or what takes their place */
    float *own_fragment; /* the same where it is not the site's (site_blocking_memory) */
    float *gathered;     /* device, the same: local parameters; NULL without a one-round delay */
    float *host; /* host, largest fragment: between fragment and the replica; NULL where it works
                    in the memory of the device, and where no fragment is held */
    struct dev_range *drawn; /* outer.sync_fraction: the values of a round; else NULL */
    struct arena arena;
    /* The same on every rank: */
    uint32_t schedule_version; /* of o.schedule */
    struct stepper stepper;
    struct stepper_event event;
    struct stepper_update update;
    /* Of the rank that holds the fragment, and of the lead: */
    struct interval interval;     /* of the round that is trained for */
    struct link_counters counted; /* at the last round that was told of */
    int64_t trained[ROUND_FRAGMENTS_MAX];
    double weight[ROUND_FRAGMENTS_MAX], gather_ms[ROUND_FRAGMENTS_MAX],
        exposed_ms[ROUND_FRAGMENTS_MAX]; /* of the round in flight */
    struct {                             /* since the last submission of fragment 0 */
        uint64_t since_ms;               /* 0: there is none in this process */
        double idle_ms;                  /* in all rounds: gathered, waited, mixed */
        double flight_ms;                /* of all rounds adopted, and how many these are */
        unsigned flights;
    } pace;
};

/* The memory of each rank for it; where fragments are held, outer_state_memory() and site_memory()
 * come in addition. here:
 * the trainer's device works in the host's memory. */
struct outer_memory exchange_memory(const struct exchange_options *o, bool here);
enum err exchange_open(struct exchange *s, const struct exchange_options *o,
                       const struct exchange_trainer *t) MUST;
void exchange_close(struct exchange *s);
/* Returns the lead's result on every rank; where several ranks hold fragments, an error of any
 * rank. Every rank calls it. */
enum err exchange_agree(const struct exchange *s, enum err mine) MUST;
/* A number of each rank that holds fragments, on every rank: of[shards.ranks]. Every rank calls
 * it. */
enum err exchange_ranks(const struct exchange *s, double mine, double of[SHARDS_RANKS_MAX]) MUST;
/* What waits for the aggregator. All ranks call it together, and it runs in a thread of its own on
 * those that hold fragments: a stop request that reaches one rank then ends the wait of all. A site
 * of one rank, and one without `stop`, calls it. */
struct exchange_call {
    enum err (*run)(void *self); /* NULL: this rank has nothing to wait for */
    void *self;
};
enum err exchange_together(const struct exchange *s, const struct exchange_call *call) MUST;
/* Before a checkpoint is loaded: the schedule that the newest manifests here imply. */
enum err exchange_reschedule(struct exchange *s) MUST;
/* Before the first step, after a checkpoint was loaded: hello, catch-up, and the rounds due at this
 * very step. Moves n->step to where the others are when its steps cannot be repeated (joined by
 * snapshot, or came back in quorum mode). */
enum err exchange_start(struct exchange *s, struct exchange_now *n) MUST;
/* Before the update of step n->step + 1 (outer.before_update). Stopped while waiting: the step
 * before is checkpointed, ERR_STOPPED. */
enum err exchange_update(struct exchange *s, struct exchange_now *n) MUST;
/* Does anything at `step`, which is the trainer's step or the next, want that very step: a round
 * that ends or is applied there, quorum mode? On every rank alike. */
bool exchange_due(const struct exchange *s, int64_t step);
/* After a step. Stopped while waiting: the step is checkpointed, ERR_STOPPED. In quorum mode it may
 * move n->step forward, like exchange_start. */
enum err exchange_step(struct exchange *s, struct exchange_now *n) MUST;
/* A checkpoint is about to be written. Stores the contributions of its earlier steps, which could
 * not be recomputed from it, and its marks (site_marks.h). All ranks call. */
enum err exchange_saving(struct exchange *s, const struct exchange_now *n) MUST;
/* A checkpoint is durable; the oldest one kept is of this step, which the lead knows: outer states
 * from before it may go. All ranks call. */
enum err exchange_saved(struct exchange *s, int64_t oldest_step) MUST;
/* Are the local parameters of this step the outer ones? They are where every fragment has just been
 * merged. */
bool exchange_merged(const struct exchange *s, int64_t at);
/* The outer parameters take the place of the local ones; the caller puts those back. Which: those
 * of exchange_outer_rounds() rounds of the first fragment, and of the other fragments at this step;
 * newest: those that the rounds applied by this step have led to, in quorum mode, too. */
enum err exchange_put_outer(struct exchange *s, int64_t at, bool newest) MUST;
uint64_t exchange_outer_rounds(const struct exchange *s, int64_t at);
/* Rounds of all fragments that end by then. */
uint64_t exchange_rounds(const struct schedule *s, int64_t step);

#endif
