#ifndef SITE_H
#define SITE_H
/* A site's end of the outer loop, DiLoCo's Algorithm 1 line by line: z = weight * delta + residual,
 * encode, outbox durable, contribute, commit, outer step, residual, theta. Runs on the real link
 * and world and, unchanged, on the simulated ones. It knows parameters as flat arrays only; binding
 * to the trainer is outer/site/site_train.c.
 *
 * One thread calls it. site_round blocks that thread for a full-precision round. With overlap
 * (schedule.overlap > 0) rounds also run beside it, one for each fragment, each on a lane: a thread
 * that does what site_round does. Then site_lend, site_send, ..., site_collect; the caller is never
 * held up by another lane's work. The replica belongs to the site from site_start to site_close.
 *
 * Files beside the replica's, relative to the environment's root:
 *   id/site           incarnation (one more at each open), highest epoch of an aggregator seen,
 *                     name: no other site, and no aggregator, takes the directory up
 *   reported/F        digest of the last state, confirmed by the aggregator
 *   outbox/F/<round>  header, payload, residual', forgotten: durable before the first byte is sent
 *   eager/F/<round>   with outer.eager: where this site went on when it had sent the round; durable
 *                     before the outbox, kept as long as a restart may repeat that step
 *
 * What a site trained is handed over in memory of the replica's device, and taken back there: on a
 * GPU it never sees the host (outer/diloco/staging.h says what does). Memory: site_memory(), taken
 * at open.
 */
#include "outer/diloco/metrics.h"
#include "outer/link/link.h"
#include "outer/store/outer_state.h"

struct site_options {
    const char *run, *name;
    unsigned index, site_count; /* position in the roster */
    unsigned aggregators;  /* that share the fragments in turn; 0: 1. The link takes a call to the
                              one its head names */
    const char *canonical; /* pinned keys (identity_text) */
    bool strict;
    float error_feedback_decay; /* outer.error_feedback_decay: share of the residual that is carried
                                   on */
    int64_t max_local_steps_offline; /* an apply may be this late: outer.max_local_steps_offline */
    uint64_t straggler_ms;           /* other deadlines derive from it */
    uint64_t seed;                   /* jitter, stochastic codecs */
    volatile int *stop; /* asked to stop: return ERR_STOPPED from waits, outbox and state are safe;
                           may be NULL */
    /* Progress while waiting, may be NULL: "waiting for b", "aggregator unreachable for 12 s,
     * retrying in 3 s". */
    void (*notice)(void *self, const char *text);
    void *notice_self;
};
struct site_times { /* ms of the last round, for the step profile */
    double encode_ms, store_ms, send_ms, wait_ms, fetch_ms, apply_ms;
};
struct site_sending { /* a round that leaves */
    unsigned fragment;
    uint64_t round, base; /* base: state whose theta the delta is taken against (schedule_base) */
    float weight;
    uint64_t data_cursor;
    bool again; /* sent before a restart: its contribution is stored, there is no other */
    bool ahead; /* the local steps began at the eager start of the round before, if it has one */
    /* For the report when it is adopted. */
    int64_t step;
    double loss, tokens_per_second;
    uint64_t tokens;
};
struct site_landed { /* and what came of it */
    struct site_times times;
    bool replayed;                 /* its state was on record: nothing went over the link */
    unsigned included;             /* 0: not known */
    uint64_t up_bytes, down_bytes; /* payload, as the manifest says; 0: not known */
    uint64_t reached; /* state of the fragment now: round + 1, or later after an absence */
    double flight_ms;
    struct outer_metrics metrics;
    bool sat_out; /* what was trained is damaged (site_round): go on with theta alone, whatever
                     alpha */
};
struct site; /* opaque */

/* Beside outer_state_memory(). here: the replica's device works in the host's memory. */
struct outer_memory site_memory(const struct outer_state_options *o, unsigned site_count,
                                int64_t max_local_steps_offline, bool here);
/* The replica is open, not yet begun or loaded: site_start does that. */
enum err site_open(struct site **s, struct env *w, struct link *l, struct outer_state *m,
                   const struct site_options *o, struct arena *perm) MUST;
void site_close(struct site *s);
/* Before the first step: loads what the directory holds, hello; a new site begins at round 0 with
 * `initial` (its digest must equal the aggregator's), one that was away catches up by aggregates,
 * one that is too far behind takes snapshots. Afterwards every fragment is where the aggregator is;
 * schedule_reached() says from which step a trainer without checkpoint may go on. */
enum err site_start(struct site *s, const float *initial_slab) MUST;
/* Round `round` of a fragment is due: local (elements, memory of the replica's device) becomes the
 * theta to go on with, by way of z; after an error it is neither. Returns with
 * replica->state[fragment].round > round: round + 1, or later after an absence (then a trainer may
 * skip to schedule_reached()). When that state is already recorded (replay after a restart) nothing
 * is sent and the recorded theta of state round + 1 comes back, or the newest one where that is not
 * kept. A z that is not finite or holds a spike (codec_spike) is neither stored nor sent: in quorum
 * mode, where the others can commit without this site, it sits the round out and what it trained
 * since is lost; else ERR_DIVERGED. ERR_STOPPED: asked to. */
enum err site_round(struct site *s, unsigned fragment, uint64_t round, float *local, float weight,
                    uint64_t data_cursor) MUST;
/* Asks, before a site_round that has nothing stored yet, whether it would wait for an aggregator
 * that cannot be reached: then, in quorum mode, a site may train on (outer.max_local_steps_offline)
 * and come back with more steps in its delta. Never blocks longer than one failing call.
 * max_local_steps_offline goes into the header of the contribution that follows. */
enum err site_unreachable(struct site *s, unsigned fragment, uint64_t round,
                          uint64_t max_local_steps_offline, bool *unreachable) MUST;
/* Adopted state and progress; nothing is repeated but in the last rounds of the schedule, which end
 * the run. */
enum err site_report(struct site *s, unsigned fragment, int64_t step, double loss,
                     double tokens_per_second, uint64_t tokens) MUST;
/* One attempt; an aggregator that is away is no error. */
enum err site_leave(struct site *s, const char *why) MUST;
struct site_times site_last(const struct site *s);
struct outer_metrics site_gauge(struct site *s, unsigned fragment, uint64_t round);
/* Theta of a recorded state, or of the newest where that one is not kept; memory of the replica's
 * device, or the host's. */
enum err site_theta(struct site *s, unsigned fragment, uint64_t round, float *theta) MUST;
/* Payload bytes of this site's contribution, as its offer said and the manifest says; 0: absent. */
uint64_t site_sent_bytes(const struct site *s, const struct manifest *m);
/* outer_state_prune, between the rounds of the lanes. */
enum err site_prune(struct site *s, unsigned fragment, uint64_t oldest_round) MUST;

/* ---- overlapped rounds ---- */

/* Memory of a free lane (elements of the fragment, of the replica's device) for what was trained;
 * site_send, on the same fragment, is next. Waits for a lane if all are at work. */
enum err site_lend(struct site *s, unsigned fragment, float **local) MUST;
void site_send(struct site *s, const struct site_sending *w); /* returns at once */
/* outer.eager, right after site_send: waits until the contribution is stored, and with it where to
 * go on from. *start is good until site_collect. Not ended by a stop request: no call is made. */
enum err site_eager(struct site *s, unsigned fragment, const float **start) MUST;
/* The site goes on from theta at another step: no start it has stored says where its steps began.
 */
enum err site_moved(struct site *s, unsigned fragment) MUST;
/* Until the contributions of all rounds sent are durable: before a checkpoint that has them behind
 * it. */
enum err site_stored(struct site *s) MUST;
/* Has a lane failed, collected or not? Passes on what lanes had to say. Never waits. */
enum err site_failed(struct site *s) MUST;
/* In flight, and the aggregator does not answer? */
bool site_is_away(struct site *s, unsigned fragment);
/* Waits until the round of this fragment is adopted. ERR_STOPPED: asked to stop; the contribution
 * is stored, a restart goes on with it. */
enum err site_await(struct site *s, unsigned fragment) MUST;
/* site_await, and the lane is free again. *theta, to go on with, is good until the next site_lend.
 */
enum err site_collect(struct site *s, unsigned fragment, const float **theta,
                      struct site_landed *landed) MUST;

#endif
