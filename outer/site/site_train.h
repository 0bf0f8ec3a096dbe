#ifndef SITE_TRAIN_H
#define SITE_TRAIN_H
/* Joins a site's outer loop to its inner one: carries out the actions of the stepper
 * (outer/diloco/stepper.h). All ranks call these at the same steps; only the lead (rank 0) has a
 * site, a replica and a link, exchanges, and hands the result on: its status first, so that no rank
 * waits for bytes that never come, then the new outer parameters.
 *
 * Without overlap a checkpoint of step s may be from before or after the rounds that are due at s:
 * site_train_start does them (again). A round whose state is on record sends nothing and puts the
 * recorded parameters in, so both lead to the same bits. Mixing is not so: with overlap a
 * checkpoint is from after them, or a mark beside it says that it is not; what was in flight flies
 * again, with the stored contribution, which is why site_train_saving comes first.
 */
#include "inner/train/train.h"
#include "outer/diloco/interval.h"
#include "outer/diloco/stepper.h"
#include "outer/diloco/weights.h"
#include "outer/site/site.h"

struct site_train_round { /* what a finished round looked like; bytes are of this site */
    int64_t step;
    unsigned fragment, included, sites;
    uint64_t round;
    int64_t trained; /* steps that this site made for it */
    double weight;
    bool replayed;  /* its state was on record: nothing went over the link */
    double seconds; /* that training stood still for it: gathered, waited, mixed */
    struct site_times times;
    double flight_ms;  /* from the send until the commit was adopted */
    double exposed_ms; /* of these, training waited; the rest was hidden */
    double gather_ms, mix_ms;
    uint64_t up_predicted, down_predicted;
    struct link_counters counted; /* since the last round that was told of */
    struct outer_metrics metrics;
};
struct site_train_options {
    struct site *site; /* these three NULL on ranks other than the lead */
    struct outer_state *replica;
    struct link *link;
    const struct fragments *fragments;
    struct schedule schedule;
    struct coll *coll;
    struct dev *dev; /* the trainer's */
    bool beside;     /* the lead's replica works in the memory of that device */
    struct env *env; /* NULL on ranks other than the lead */
    unsigned site_count;
    bool strict; /* replay every step that a restart lost; else go on where the others are */
    int64_t max_local_steps_offline; /* quorum mode: steps to train on while the aggregator is
                                        unreachable */
    uint64_t every_ms;               /* outer.every_s; 0: rounds end by their steps alone */
    double share;                    /* site.share */
    enum weights_kind weights;       /* outer.weights */
    double mix;         /* keys_mix: share of the local parameters when a commit is applied */
    bool before_update; /* with overlap: applied before its step's update, not after it */
    bool evaluate;      /* will be asked for the outer loss between rounds: takes memory for it */
    /* The parameters that the run starts from; NULL: those of run.seed. Lead only. */
    enum err (*initial)(void *self, float *slab);
    void (*rounded)(void *self, const struct site_train_round *r); /* lead only */
    /* On every rank, before the first step and when the replica's schedule has changed: *s becomes
     * the lead's schedule, with the former values of train.steps that *s has. No step after a
     * border of the new schedule has begun. *version: its outer_state_schedule_version. An error is
     * the same on every rank. */
    enum err (*rescheduled)(void *self, struct schedule *s, uint32_t *version);
    void *self;
};
struct site_train {
    struct site_train_options o;
    float *fragment;     /* device, largest fragment: local parameters, or what takes their place */
    float *own_fragment; /* the same where it is not the site's (site_blocking_memory) */
    float *gathered;     /* device, the same: local parameters; NULL without a one-round delay */
    float *host; /* host, largest fragment: between fragment and the replica; NULL where it works
                    in the memory of the device, and on other ranks */
    struct dev_range *drawn; /* outer.draw: the values of a round; else NULL */
    float *local; /* host slab, the local parameters while the outer ones are looked at; NULL
                     without evaluate */
    struct arena arena;
    /* The same on every rank: */
    uint32_t schedule_version; /* of o.schedule */
    struct stepper stepper;
    struct stepper_event event;
    struct stepper_update update;
    /* The lead's: */
    struct interval interval;     /* of the round that is trained for */
    struct train_report report;   /* of the step just done */
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

/* What each rank takes for it, the lead beside outer_state_memory() and site_memory(). here: the
 * trainer's device works in the host's memory. */
struct outer_memory site_train_memory(const struct site_train_options *o, size_t local_elements,
                                      bool here);
/* local_elements: t->table.elements of the trainer. */
enum err site_train_open(struct site_train *s, const struct site_train_options *o,
                         size_t local_elements) MUST;
void site_train_close(struct site_train *s);
/* Returns the lead's result on every rank. Every rank calls it. */
enum err site_train_agree(const struct site_train *s, enum err mine) MUST;
/* Before a checkpoint is loaded: the schedule that the newest manifests here imply. */
enum err site_train_reschedule(struct site_train *s) MUST;
/* Before the first step, after a checkpoint was loaded: hello, catch-up, and the rounds due at this
 * very step. Moves t->step to where the others are when its steps cannot be repeated (joined by
 * snapshot, or came back in quorum mode). */
enum err site_train_start(struct site_train *s, struct train *t) MUST;
/* Before the update of step t->step + 1 (outer.before_update). Stopped while waiting: the step
 * before is checkpointed, ERR_STOPPED. */
enum err site_train_update(struct site_train *s, struct train *t) MUST;
/* Does anything at `step`, which is t->step or the next, want that very step: a round that ends or
 * is applied there, quorum mode? On every rank alike. */
bool site_train_due(const struct site_train *s, int64_t step);
/* After a step, with its report (the aggregator's live view). Stopped while waiting: the step is
 * checkpointed, ERR_STOPPED. In quorum mode it may move t->step forward, as above. */
enum err site_train_step(struct site_train *s, struct train *t, const struct train_report *r) MUST;
/* A checkpoint is about to be written: what it has behind it must be stored, since it cannot be
 * made again, and what a restart must be told of it (site_marks.h). All ranks call. */
enum err site_train_saving(struct site_train *s, struct train *t) MUST;
/* A checkpoint is durable; the oldest one kept is of this step: outer states from before it may go.
 */
enum err site_train_saved(struct site_train *s, int64_t oldest_step) MUST;
/* Are the local parameters of this step the outer ones? They are where every fragment has just been
 * merged. */
bool site_train_merged(const struct site_train *s, int64_t at);
/* Held-out loss of the outer parameters. *same: they are the local ones at this step, or
 * outer.every was amended and there is no memory to look at them; nothing was evaluated. */
enum err site_train_eval(struct site_train *s, struct train *t, struct train_eval *e,
                         bool *same) MUST;
/* Runs `work` on every rank with the outer parameters in place of the local ones, which come back.
 * Needs `evaluate`. Which: those of site_train_outer_rounds() rounds of the first fragment, and of
 * the other fragments at this step. */
enum err site_train_outer(struct site_train *s, struct train *t,
                          enum err (*work)(void *self, struct train *t), void *self) MUST;
uint64_t site_train_outer_rounds(const struct site_train *s, const struct train *t);
uint64_t site_train_rounds(const struct schedule *s,
                           int64_t step); /* rounds of all fragments that end by then */

#endif
