/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OUTER_STATE_H
#define OUTER_STATE_H
/* The outer state as every replica (each site, the aggregator) holds it, for each fragment: theta,
 * the slabs that the outer optimizer names, block codes (the grid of the next round), round,
 * manifest and state digest; at a site the residual too, and at the aggregator where it compresses
 * the downlink. outer_state_apply is the outer step, the same bits on every replica. Files
 * (docs/protocol.md 2), relative to the environment's root; F is the fragment's number; all but
 * `aggregate` are records (kernels/base/record.h):
 *
 *   frag/F/<round>/state      theta, slabs, codes; residual, discarded residual
 *   frag/F/<round>/MANIFEST   of round <round> - 1, which made this state
 *   frag/F/<round>/aggregate  of round <round> - 1; the manifest holds its digest
 *   frag/F/CURRENT            names a round and a manifest; its rename is the one commit point
 *
 * The arithmetic may run on a GPU: the same bits, one fragment at a time (staging.h). The state is
 * host memory: outer_state_memory() bytes, all taken at open. outer_state_load, and reading a kept
 * state, take the bytes of one fragment's state file for the time of the call. One thread at a
 * time: at a site the one that holds the site's lock. State digests are of little-endian values;
 * the machine is little-endian.
 */
#include "outer/codec/codec.h"
#include "outer/diloco/fragment.h"
#include "outer/protocol/manifest.h"
#include "outer/diloco/outer_opt.h"
#include "outer/diloco/schedule.h"
#include "outer/diloco/shards.h"
#include "outer/diloco/stages.h"
#include "outer/diloco/staging.h"
#include "outer/store/state_digest.h"
#include "outer/store/store.h"

/* States of a fragment that are always kept: the present one, and the one it came from (one round
 * before, or the one before a snapshot). */
enum { OUTER_STATES_MIN = 2 };

struct outer_state_fragment { /* arrays: host memory of the arena given to outer_state_open */
    uint64_t round;         /* rounds committed; state `round` is the result of round `round` - 1 */
    struct digest manifest; /* of round `round` - 1; zero at round 0 */
    uint8_t residual_ratio; /* the manifest's, protocol 3.8: log2 of a ratio of squares, + 128 */
    struct digest digest;   /* of theta, slabs, codes: the state digest (state_digest.h) */
    struct digest *leaf;    /* [leaves] of the same, in the order of the digest; NULL: whole */
    double squares;         /* sum of the squares of theta; below 0: not known (outer_state_rms) */
    float *theta;           /* [elements] outer parameters */
    float *slab[OUTER_SLABS]; /* [elements] each, as outer_opt_row names them; NULL: the optimizer
                                 keeps fewer */
    void *codec_state; /* of encode (codec.state_bytes); NULL: none. Memory only: a codec whose
                          state must survive a restart needs a part of the state file */
    uint8_t *codes;    /* [elements / DEV_BLOCK] mean block code of the last round */
    float *residual;   /* [elements]; NULL at an aggregator that relays or sums */
    double *discarded; /* [elements] residual given up so far; NULL where none ever is */
};
struct outer_state;
struct outer_state_options {
    const struct fragments *fragments; /* borrowed, as long as the outer state */
    struct schedule schedule;
    struct outer_opt outer;
    enum state_digest digest;
    struct shards shards;     /* of a site whose ranks hold fragments each; zeroed: all are here */
    bool residuals;           /* a site */
    bool compresses_downlink; /* the aggregator, where it may compress the downlink: a residual of
                                 its own */
    bool discards; /* residuals may be discarded: a site with schedule_discards(); at the aggregator
                     set by outer_state_aggregates */
    /* Downlink compression: makes `next`'s residual and discarded residual of this manifest's round
     * once more from its contributions; m->state is the state that the round began at. On any error
     * what that round's encoding lost is given up. */
    enum err (*remake)(void *self, struct outer_state *m, unsigned fragment,
                       const struct manifest *manifest);
    void *remake_self;
    /* The schedule under a list of amendments, from that of the configuration: amend_schedule.
     * ERR_PROTO: they are no amendments of this run. NULL: a run without any. */
    enum err (*amend)(const void *self, struct schedule *s, const struct amendments *list);
    const void *amend_self;
    struct stages_options stages; /* train.stages; zeroed: none */
    uint64_t states; /* states that the aggregator keeps for a rollback (serve.keep_states); at
                        least OUTER_STATES_MIN are kept */
    uint64_t keep; /* manifests and aggregates kept per fragment, in rounds (outer.history_rounds);
                      at least OUTER_STATES_MIN */
};
struct outer_state {
    struct env *env;
    struct dev *dev; /* arithmetic of the exact set */
    struct outer_state_options o;
    const struct fragments *fragments;   /* o.fragments */
    struct schedule schedule;            /* o.schedule, amended */
    struct amendments amendments;        /* the longest list that is known */
    struct outer_state_fragment *state;  /* [fragments] the current states; zeroed where another
                                            rank holds the fragment */
    struct outer_state_fragment buffers; /* arrays of the largest fragment: memory of `next` */
    struct outer_state_fragment next;    /* the next state of one fragment while it is being made */
    float *mean; /* device, [elements of the largest fragment]: mean delta; scratch outside
                    outer_state_apply */
    uint64_t pruned[ROUND_FRAGMENTS_MAX]; /* a site keeps states from this round on */
    struct codec_work *work;
    uint64_t residuals_lost; /* times an aggregator's residual was lost with a damaged state */
    struct stages stages;
    struct staging staging; /* the fragment in flight, on a device with memory of its own */
};

/* The options of an aggregator of `sites` sites: what downlink compression needs. */
void outer_state_aggregates(struct outer_state_options *o, unsigned sites);
/* Does this rank hold the fragment? */
static inline bool outer_state_holds(const struct outer_state *m, unsigned fragment)
{
    return shards_hold(&m->o.shards, fragment);
}
/* Leaves of the state digest of a fragment; 0: it is of the whole. */
size_t outer_state_leaves(const struct outer_state_options *o, unsigned fragment);
/* Bytes that outer_state_open takes at this rank. here: the device works in the host's memory. */
struct outer_memory outer_state_memory(const struct outer_state_options *o, bool here);
/* All state is in perm's memory, on any device; dev_arena() makes copies of it fast. */
enum err outer_state_open(struct outer_state *m, struct env *w, struct dev *d,
                          const struct outer_state_options *o, struct arena *perm) MUST;
void outer_state_close(struct outer_state *m); /* a zeroed or partly opened one is fine */
/* A list that is not shorter than the known one and agrees with it: the schedule follows. Errors:
 * all is as it was. */
enum err outer_state_amend(struct outer_state *m, const struct amendments *list) MUST;
/* Grows with each change of the schedule; 0: it is that of the configuration. */
uint32_t outer_state_schedule_version(const struct outer_state *m);
/* The former values of train.steps (schedule.ends), once they are known. */
enum err outer_state_ends(struct outer_state *m, const struct schedule_former *ends) MUST;
/* The longest list of the newest manifests that the directory holds, before the state is loaded. */
enum err outer_state_amendments_find(struct outer_state *m) MUST;
/* Has this directory begun? Then outer_state_load. Else outer_state_begin, and store_begin once all
 * else that belongs to a first start is written. */
bool outer_state_begun(struct outer_state *m);
/* Round 0 of the fragments that are held, from the initial parameters; durable. */
enum err outer_state_begin(struct outer_state *m, const float *initial_slab) MUST;
/* The same in memory alone. No other call that reads or writes files follows (replay.h). */
enum err outer_state_place(struct outer_state *m, const float *initial_slab) MUST;
/* The state that CURRENT names, of every fragment that is held, verified.
 * A state that does not verify: the aggregator rebuilds it from the state before and the aggregate,
 * and counts the round's residual as lost where `remake` fails (residuals_lost); a site goes back
 * to the one it came from and catches up again. CURRENT missing or damaged: the newest state, when
 * its manifest verifies; CURRENT is written again. Never an older one. Else ERR_CORRUPT names the
 * file. ERR_MISMATCH: an intact file of another version, or made with other settings; they are
 * named. */
enum err outer_state_load(struct outer_state *m) MUST;
enum err outer_state_load_fragment(struct outer_state *m, unsigned fragment) MUST; /* of one */
/* A kept state's theta, `elements` values, for the replay after a restart. `next` is lost.
 * ERR_INPUT: not kept; ERR_CORRUPT. */
enum err outer_state_load_theta(struct outer_state *m, unsigned fragment, uint64_t round,
                                float *theta) MUST;
/* Codec of the next round, the same on every replica: a function of configuration, round and the
 * state's manifest. */
enum codec_kind outer_state_codec(const struct outer_state *m, unsigned fragment);
/* The outer optimizer as the round's step uses it: lr and mu are the round's own, with amendments,
 * outer.lr_schedule and outer.momentum_warmup and _cooldown. Moments are averaged. Nothing else
 * says what a round's step is. */
struct outer_opt outer_state_optimizer(const struct outer_state *m, unsigned fragment,
                                       uint64_t round);
/* Digest of the grid of the next round; contributions and manifests carry it. */
struct digest outer_state_grid(const struct outer_state *m, unsigned fragment);
/* The aggregator: decodes the aggregate of round state.round and does the outer step into `next`.
 * Fills the manifest's state_before, state_after, grid and the aggregate's digest and size.
 * ERR_DIVERGED: the next state would not be finite; it is never committed. The residual and
 * discarded residual of `next` are the caller's (downlink.h). */
enum err outer_state_apply(struct outer_state *m, struct manifest *manifest,
                           const uint8_t *aggregate, size_t aggregate_bytes) MUST;
/* In place of outer_state_apply for a round that is aborted: `next` is the current state, one round
 * further, and grown where the round ends a stage. Fills the manifest. outer_state_commit follows,
 * without an aggregate. */
enum err outer_state_abort(struct outer_state *m, struct manifest *manifest) MUST;
/* Replays a committed round at any replica: makes `next` from the current state, the round's
 * manifest, whose parent is the current state's manifest, and the bytes that the manifest names.
 * The bytes are the aggregate, from any source: the aggregator, a kept file, an archive, or a new
 * sum of the contributions. A round that was rolled back has the bytes of a state. An empty round
 * (manifest_empty) has none. The residual and discarded residual of `next` are the caller's.
 * ERR_PROTO: these are not the manifest's bytes. ERR_DISAGREE: the states differ, before the step
 * or after it. ERR_DIVERGED: as for outer_state_apply. */
enum err outer_state_replay(struct outer_state *m, const struct manifest *manifest,
                            const uint8_t *bytes, size_t size_bytes) MUST;
bool outer_state_kept(struct outer_state *m, unsigned fragment, uint64_t round);
/* In place of outer_state_apply for a round that is rolled back: `next` has the arrays of state
 * `to`, which is kept, and its own residual is given up (discarded). Fills the manifest; the
 * aggregate, the bytes of that state, is written. ERR_INPUT, ERR_CORRUPT: the state cannot be read.
 */
enum err outer_state_roll_back(struct outer_state *m, unsigned fragment, struct manifest *manifest,
                               uint64_t to) MUST;
/* Residual and discarded residual of `next` are those of the current state. */
void outer_state_own_keep(struct outer_state *m, unsigned fragment);
/* Of the current state into `next`: a replica's own residual is discarded, and booked where there
 * is a book. Part of a rollback. */
void outer_state_give_up(struct outer_state *m, unsigned fragment);
/* Root mean square of the fragment's outer parameters. Computed once for each state; where a commit
 * may be under way in another thread, the caller has asked before: a state that is committed by
 * parts knows its own. */
enum err outer_state_rms(struct outer_state *m, unsigned fragment, float *rms) MUST;
/* The mean of a kept round, decoded once more, to m->mean; next.codes is its grid, *manifest its
 * manifest. ERR_INPUT: not kept, or the round was aborted; ERR_CORRUPT. */
enum err outer_state_mean(struct outer_state *m, unsigned fragment, uint64_t round,
                          struct manifest *manifest) MUST;
/* A checked payload's values -> values (device). */
enum err outer_state_decode(struct outer_state *m, unsigned fragment, enum codec_kind kind,
                            float *values, const struct codec_payload *payload,
                            const uint8_t *grid) MUST;
/* For the codec's ops on this fragment's values, on this grid. */
struct codec_call outer_state_call(const struct outer_state *m, unsigned fragment,
                                   const uint8_t *grid);
/* theta = the outer step from the current state with m->mean as the round's mean. The current state
 * does not change; `next` is lost. */
enum err outer_state_ahead(struct outer_state *m, unsigned fragment, float *theta) MUST;
/* The commit point. Writes `next` (its residual and discarded residual were put there by the
 * caller) as state round + 1 with manifest and aggregate (kept for sites that catch up), then
 * CURRENT; then `next` is the current state. aggregate NULL: it is in its file. */
enum err outer_state_commit(struct outer_state *m, unsigned fragment,
                            const struct manifest *manifest, const uint8_t *aggregate,
                            size_t aggregate_bytes) MUST;
/* The same in memory alone: `next`, of this manifest, is the current state, and nothing is
 * written. */
void outer_state_follow(struct outer_state *m, unsigned fragment, const struct manifest *manifest);
/* The current state as a file of its own, at `path` of w: the shared parts, and where the
 * aggregator compresses the downlink its residual. */
enum err outer_state_keep(struct outer_state *m, unsigned fragment, struct env *w,
                          const char *path) MUST;
/* A state file in memory, of any replica of the run. The parts are borrowed from `data`;
 * nothing is taken over. ERR_CORRUPT: its head is damaged, or it is of another fragment or other
 * settings; ERR_MISMATCH: of another version. */
struct outer_state_file {
    uint64_t round;
    struct digest manifest, digest; /* digest: what the head says of the shared parts */
    bool intact;                    /* they match it */
    const uint8_t *shared;          /* theta, slabs, codes */
    size_t shared_bytes;
    const struct record_view *leaf; /* [leaves] their sections */
    const uint8_t *own; /* residual, discarded; NULL: it has none, or not this replica's */
    bool own_intact;    /* the parts after the shared ones match their digest */
    uint8_t residual_ratio;
};
enum err outer_state_file_open(struct outer_state_file *f, const struct outer_state *m,
                               unsigned fragment, const char *path, const void *data,
                               size_t size_bytes, struct arena *a) MUST;
/* It becomes the current state, in memory alone. It is intact. */
void outer_state_file_take(struct outer_state *m, unsigned fragment,
                           const struct outer_state_file *f);
/* A site gives up the round that made its state: the state before it, which is kept, becomes the
 * current one; CURRENT is the commit point. `next` is lost. ERR_INPUT, ERR_CORRUPT: that state is
 * not kept, or not the one that this one was made from. */
enum err outer_state_step_back(struct outer_state *m, unsigned fragment) MUST;
/* outer_state_commit in three parts, for a commit during which other calls are answered
 * (aggregator_commit.c). One thread calls them, and no other thread uses `next`, `mean`, `work` or
 * `staging` from outer_state_apply to outer_state_switch. Others may read the current state under a
 * lock: store   without the lock: the files of `next`. The current state is in force, and whole.
 *   pass    without the lock: CURRENT, the commit point; then theta, slabs, residual
 *           and discarded residual are copied: no other thread reads these. ERR_FULL: nothing is
 * committed, and it may be called again. switch  under the lock: round, digests, codes. The next
 * state is the current one. */
enum err outer_state_store(struct outer_state *m, unsigned fragment,
                           const struct manifest *manifest, const uint8_t *aggregate,
                           size_t aggregate_bytes) MUST;
enum err outer_state_pass(struct outer_state *m, unsigned fragment) MUST;
void outer_state_switch(struct outer_state *m, unsigned fragment);
/* A site: no inner checkpoint needs states before `oldest_round` any more; all but the last
 * OUTER_STATES_MIN of them go. Until it is called a site keeps all states; the aggregator keeps
 * OUTER_STATES_MIN by itself. */
enum err outer_state_prune(struct outer_state *m, unsigned fragment, uint64_t oldest_round) MUST;
/* Of a kept round. ERR_INPUT: not kept. */
enum err outer_state_manifest(struct outer_state *m, unsigned fragment, uint64_t round,
                              struct manifest *out) MUST;
/* The newest there is on disk; the state need not be loaded. ERR_INPUT: none. */
enum err outer_state_manifest_newest(struct outer_state *m, unsigned fragment,
                                     struct manifest *out) MUST;
/* Of a kept round; not copied, the caller unmaps. ERR_INPUT: not kept. */
enum err outer_state_aggregate(struct outer_state *m, unsigned fragment, uint64_t round,
                               struct file_map *map) MUST;
/* Manifest and aggregate of a round before the present state, or of the one that made it: from
 * another replica of the run, for sites that catch up, or in place of damaged files. The
 * caller has verified them. */
enum err outer_state_manifest_put(struct outer_state *m, const struct manifest *manifest) MUST;
enum err outer_state_aggregate_again(struct outer_state *m, const struct manifest *manifest,
                                     const uint8_t *aggregate) MUST;
/* An aggregate made of pieces, for the round in flight: durable, and mapped for outer_state_apply;
 * outer_state_commit then takes NULL for it. It may be larger than memory. */
enum err outer_state_aggregate_put(struct outer_state *m, unsigned fragment,
                                   const struct file_part *parts, size_t n,
                                   struct file_map *map) MUST;
/* A kept state's file that was found damaged, written again: the current one from memory, once its
 * digest holds there; an earlier one from the state before, manifest and aggregate, with the
 * replica's own parts as they are in the damaged file where these are intact. No round is in flight
 * of which `next` is in use. Memory of one fragment's state for the time of the call. Any error:
 * the file is as it was, and the message says why. */
enum err outer_state_repair(struct outer_state *m, unsigned fragment, uint64_t round) MUST;
/* CURRENT, from memory. */
enum err outer_state_repair_current(struct outer_state *m, unsigned fragment) MUST;
/* What the manifest of a kept round before the current state must be, by what follows it: the
 * current state, or the manifest of the next round. ERR_CORRUPT: neither is intact. */
enum err outer_state_manifest_digest(struct outer_state *m, unsigned fragment, uint64_t round,
                                     struct digest *out) MUST;
/* Bytes of a snapshot for a site that joins: theta, slabs, codes. The configuration
 * implies the size. */
size_t outer_state_snapshot_bytes(const struct outer_state *m, unsigned fragment);
/* The same of a replica that is not open. */
size_t outer_state_shared_bytes(const struct outer_state_options *o, unsigned fragment);
/* The same with the replica's own residual and discarded residual. */
size_t outer_state_state_bytes(const struct outer_state *m, unsigned fragment);
enum err outer_state_snapshot_write(const struct outer_state *m, unsigned fragment,
                                    uint8_t *out) MUST;
/* Makes a snapshot the current state, durable. own: residual and discarded residual are what the
 * caller put into `next`; otherwise they start at zero, and what the site held is lost. ERR_PROTO:
 * not the bytes of manifest->state_after. */
enum err outer_state_snapshot_adopt(struct outer_state *m, const struct manifest *manifest,
                                    const uint8_t *data, size_t size_bytes, bool own) MUST;
/* What a fragment that is held adds to the digest over all: the bytes of its shared parts, or, of
 * leaves, its state digest, made of them once more in *sum. Returns how many parts. */
enum { OUTER_STATE_SHARED_MAX = 2 + OUTER_SLABS };
size_t outer_state_digested(const struct outer_state *m, unsigned fragment, struct digest *sum,
                            struct file_part out[OUTER_STATE_SHARED_MAX]);
/* Over all fragments, which are all held: the last line of a run. residual: with residual and
 * discarded residual. */
struct digest outer_state_digest(const struct outer_state *m, bool residual);

#endif
