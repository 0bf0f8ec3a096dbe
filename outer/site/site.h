/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_H
#define SITE_H
/* A site's end of the outer loop, DiLoCo's Algorithm 1 line by line: z = weight * delta + residual,
 * encode, outbox durable, contribute, commit, outer step, residual, theta. Runs on the real link
 * and world and, unchanged, on the simulated ones. It knows parameters as flat arrays only; binding
 * to the trainer is outer/site/exchange.c.
 *
 * One thread calls it. A round runs in an in-flight slot: site_acquire, site_submit, then
 * site_complete and site_reap. With overlap (schedule.overlap > 0) a slot has a thread, several
 * rounds are in flight during training, one of each fragment, and no call waits for another slot's
 * work. Blocking, there is one slot and no thread: the round runs inside site_complete. The replica
 * belongs to the site from site_start to site_close.
 *
 * Files in addition to the replica's, relative to the environment's root:
 *   id/site           incarnation (one more at each open), highest term of an aggregator seen,
 *                     name: no other site, and no aggregator, takes the directory up
 *   id/announced.N    what aggregator N announced of its term, signed: shown to others of its name
 *   id/rank.R.site    the same two of rank R, where the ranks hold fragments each: the lead begins
 *   id/rank.R.announced.N  with the highest term that one of them has seen
 *   reported/F        digest of the last state, confirmed by the aggregator
 *   final/F           rounds that were known to be final when one was given up
 *   withdrawn/F/<round>  the training for a round whose contribution was withdrawn, until that
 *                     round is committed here (site_step_back.c)
 *   outbox/F/<round>  header, payload, residual', forgotten: durable before the first byte is sent
 *   eager/F/<round>   with outer.eager: the values from which this site continued when it had sent
 * the round; durable before the outbox, kept as long as a restart may repeat that step
 *
 * What a site trained is handed over in memory of the replica's device, and taken back there: on a
 * GPU it never sees the host (outer/diloco/staging.h says what does). Memory: site_memory(), taken
 * at open.
 */
#include <stdatomic.h>
#include "outer/diloco/metrics.h"
#include "outer/link/link.h"
#include "outer/protocol/signer.h"
#include "outer/organ/organ.h"
#include "outer/store/outer_state.h"

/* What the processes of a site share, so that an aggregator takes them for one: the lead's
 * (site_process_of), given to the others before they open their ends. */
struct site_process {
    uint64_t incarnation, instance;
    uint64_t term[WIRE_AGGREGATORS_MAX], term_instance[WIRE_AGGREGATORS_MAX]; /* seen so far */
    uint64_t steps; /* train.steps and its former values, as told last; 0: not told yet */
    uint32_t former_count;
    uint64_t former[SCHEDULE_ENDS_MAX];
};
struct site_options {
    const char *run, *name;
    unsigned index, site_count; /* position in outer.sites, and how many it has. index from
                                   ROUND_SITES_MAX on: in none; the aggregator says which */
    unsigned aggregators;  /* that share the fragments in turn; 0: 1. The link takes a call to the
                              one its head names */
    const char *canonical; /* pinned keys (identity_text) */
    const struct site_process *joint; /* the lead's, of a site whose ranks hold fragments each;
                                         NULL: this is the lead, or the only process */
    bool strict;
    float error_feedback_decay; /* outer.error_feedback_decay: share of the residual that is carried
                                   on */
    int64_t max_local_steps_offline; /* an apply may be this late: outer.max_local_steps_offline */
    uint64_t straggler_ms;           /* other deadlines derive from it */
    uint64_t seed;                   /* jitter, stochastic codecs */
    atomic_int *stop; /* asked to stop: return ERR_STOPPED from waits, outbox and state are safe;
                           may be NULL */
    /* Progress while waiting, may be NULL: "waiting for b", "aggregator unreachable for 12 s,
     * retrying in 3 s". */
    void (*notice)(void *self, const char *text);
    void *notice_self;
    uint64_t scrub_every_ms, scrub_bytes_per_s; /* outer/store/scrub.h; every_ms 0: off */
    struct organs_at_site organs;               /* in the order in which they are called */
    struct round_masks masks;  /* privacy.secure = sum; needs a signer, and the names: */
    const char *const *roster; /* [site_count] outer.sites; NULL without masks */
    struct signer *signer; /* of this site's identity, open as long as it is; NULL: it signs nothing
                              and checks no signature */
};
struct site_times { /* ms of the last round, for the step profile */
    double encode_ms, store_ms, send_ms, wait_ms, fetch_ms, apply_ms;
};
struct site_submission { /* a round to exchange */
    unsigned fragment;
    uint64_t round, base; /* base: state whose theta the delta is taken against (schedule_base) */
    float weight;
    uint64_t data_cursor;
    uint64_t charged;      /* steps of the site's privacy budget so far; 0: it has none */
    struct wire_pace pace; /* of fragment 0 alone */
    uint64_t late;         /* local steps after the one at which the round was due */
    bool resend;     /* submitted before a restart: its contribution is stored, there is no other */
    bool from_start; /* the local steps began at the eager start of the round before, if any */
    /* For the report when it is committed. */
    int64_t step;
    double loss, tokens_per_second;
    uint64_t tokens;
};
struct site_completion { /* and what came of it */
    struct site_times times;
    bool replayed;                 /* its state was on record: nothing went over the link */
    uint32_t schedule_version;     /* by then */
    unsigned included, sites;      /* of how many sites in the round; 0: not known */
    uint64_t up_bytes, down_bytes; /* payload, as the manifest says; 0: not known */
    uint64_t reached; /* state of the fragment now: round + 1, or later after an absence */
    double flight_ms;
    struct outer_metrics metrics;
    bool skipped; /* the local values are damaged: continue with theta alone, at any alpha */
};
struct site;       /* opaque */
struct site_seen { /* id/site of a directory that no process uses */
    char name[WIRE_NAME_MAX + 1];
    uint64_t term;  /* the highest that it has answered; 0: none */
    uint64_t steps; /* train.steps and its former values, as an aggregator said last; 0: none did */
    struct schedule_former ends;
};

/* What the site of this directory has seen of aggregator number `aggregator`. ERR_INPUT: this is no
 * site's directory; ERR_CORRUPT, ERR_MISMATCH. */
enum err site_seen(struct env *w, unsigned aggregator, struct site_seen *out) MUST;

/* In addition to outer_state_memory(). here: the replica's device works in the host's memory. */
struct outer_memory site_memory(const struct outer_state_options *o, unsigned site_count,
                                int64_t max_local_steps_offline, bool here);
/* The replica is open, not yet begun or loaded: site_start does that. */
enum err site_open(struct site **s, struct env *w, struct link *l, struct outer_state *m,
                   const struct site_options *o, struct arena *perm) MUST;
void site_close(struct site *s);
/* Before the first step: loads what the directory holds, hello; a new site begins at round 0 with
 * `initial` (its digest must equal the aggregator's; NULL where the directory has begun), one that
 * was away catches up by aggregates, one whose next aggregate is no longer kept takes snapshots.
 * Afterwards every fragment is where the aggregator is, or, in strict mode, before a round that an
 * operator has closed and that has yet to be trained for; schedule_reached() says from which step a
 * trainer without checkpoint may continue. */
enum err site_start(struct site *s, const float *initial_slab) MUST;
/* The first part of site_start, up to where a new directory has begun. The ranks of a site that
 * hold fragments each are all prepared before one of them is started. Where the directory holds the
 * whole run (site_ended), its states are loaded and no more: no call is needed, and the aggregator
 * may have gone. site_prepared: it did continue. */
enum err site_prepare(struct site *s, const float *initial_slab) MUST;
bool site_prepared(const struct site *s);
/* For site_options.joint of the other ranks. */
struct site_process site_process_of(const struct site *s);
/* Until the rounds that are committed here are reported. Other ranks than the lead call it before
 * the lead calls site_leave. */
void site_drain(struct site *s);
/* Are all rounds of the run recorded here? Only where the former values of train.steps are on
 * record: else the aggregator is asked for them first. */
bool site_ended(const struct site *s);
/* One attempt; an aggregator that is away is no error. */
enum err site_leave(struct site *s, const char *why) MUST;
/* Theta of a recorded state, or of the newest where that one is not kept; memory of the replica's
 * device, or the host's. */
enum err site_theta(struct site *s, unsigned fragment, uint64_t round, float *theta) MUST;
/* This site's tokens by the end of the round, as its manifest or its stored contribution has them;
 * 0: neither is here. Blocking only, while no round is in flight. */
enum err site_round_tokens(struct site *s, unsigned fragment, uint64_t round,
                           uint64_t *tokens) MUST;
/* Public identity key of an aggregator, as its newest announcement has it. False: none is known. */
bool site_aggregator_key(struct site *s, unsigned aggregator, struct signer_key *out);
/* Steps of this site's privacy budget, the most that its submissions and the manifests that it has
 * adopted name; 0: none. More than its own list of charges has: the list is of an older copy. */
uint64_t site_charged(struct site *s);
/* This machine's clock minus the aggregator's, by the answer to the last report, within half of the
 * call's time; NaN: not known. Any thread. */
double site_clock_s(struct site *s);
/* Payload bytes of this site's contribution, as its offer said and the manifest says; 0: absent. */
uint64_t site_sent_bytes(const struct site *s, const struct manifest *m);
/* outer_state_prune, between the rounds in flight. */
enum err site_prune(struct site *s, unsigned fragment, uint64_t oldest_round) MUST;

/* ---- rounds ---- */

/* Memory of a free slot (elements of the fragment, of the replica's device) for the local values;
 * site_submit, on the same fragment, is next. Waits for a slot if all are in use. */
enum err site_acquire(struct site *s, unsigned fragment, float **local) MUST;
void site_submit(struct site *s, const struct site_submission *w); /* returns at once */
/* Blocking: carries out the round that was submitted, if one was; site_complete has its result. */
void site_carry_out(struct site *s);
/* Waits until the round of this fragment is committed here. ERR_STOPPED: asked to stop; the
 * contribution is stored, a restart sends it. The error of another fragment's round ends the wait,
 * too. */
enum err site_complete(struct site *s, unsigned fragment) MUST;
/* site_complete, and the slot is free again. *theta, from which the trainer continues, is valid
 * until the next site_acquire. */
enum err site_reap(struct site *s, unsigned fragment, const float **theta,
                   struct site_completion *done) MUST;
/* Blocking: the memory that each site_acquire hands out; the caller's while no round is submitted.
 * NULL with overlap. */
float *site_blocking_memory(struct site *s);
/* Does the aggregator not answer the fragment's round? Overlapped: the calls in flight say so.
 * Blocking: before the round in flight is submitted, while no contribution of it is stored, one
 * call is made.
 */
enum err site_unreachable(struct site *s, unsigned fragment, bool *unreachable) MUST;
/* outer.eager, right after site_submit: waits until the contribution is stored, and with it the
 * start, from which the trainer continues. *start is valid until site_reap. Not ended by a stop
 * request: no call is made. */
enum err site_eager(struct site *s, unsigned fragment, const float **start) MUST;
/* The site continues from theta at another step: none of its stored starts is where its steps
 * began.
 */
enum err site_moved(struct site *s, unsigned fragment) MUST;
/* It differs once the replica's schedule has changed (outer_state_schedule_version). */
uint32_t site_schedule_version(struct site *s);
/* Until the contributions of all rounds submitted are durable: before a checkpoint of a later step.
 */
enum err site_wait_stored(struct site *s) MUST;
/* Has a round failed, reaped or not? Passes on what slots had to say. Never waits. */
enum err site_failed(struct site *s) MUST;

#endif
