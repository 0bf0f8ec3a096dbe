/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_OWN_H
#define SITE_OWN_H
/* What the files of the site share. Which members of struct site each of them writes, and what it
 * does:
 *
 *   site.c: env, replica, o, own, mutex. The round.
 *   site_call.c: call, there, peer. One call to the aggregator, and what each answer means.
 *   site_eager.c: none. The start from which a site continues meanwhile.
 *   site_identity.c: peer, announced. What it signs, and checks of what is signed.
 *   site_inflight.c: inflight. The slots that rounds run in.
 *   site_marks.c: none. What a restart is told of a checkpoint.
 *   site_masks.c: masks. Secure aggregation: its files, the end of a round.
 *   site_masks_round.c: none. The mask of a contribution.
 *   site_masks_seal.c: none. The seal that the site signs, and what it reveals for it.
 *   site_masks_setup.c: none. Pair keys with the other sites.
 *   site_members.c: members. Which sites rounds have.
 *   site_outbox.c: charged. The contribution, which is encoded once and sent until it is committed.
 *   site_scrub.c: none. Repairs damaged files.
 *   site_slot.c: none. The memory of a slot.
 *   site_step_back.c: asked. A round given up.
 *   site_supply.c: supplying. The aggregator has lost its directory.
 *   exchange.c: none. The trainer's end.
 *   exchange_together.c: none. Waits of all ranks.
 *
 * Of the organs, roster has the index taken.
 */
#include <stdatomic.h>
#include "outer/masks/seal.h"
#include "outer/protocol/roster.h"
#include "outer/site/site.h"

enum { SITE_TEXT_MAX = 1024 };

struct site_announced_round { /* secure aggregation: which sites mask for each other in a round */
    uint32_t roster_version, sites; /* sites: indices of that version */
    struct seal_announce of;
    struct set members; /* as the aggregator says; what counts is what the site knows of them */
};
struct site_made { /* what a contribution is; site_outbox.c writes it */
    enum codec_kind codec;
    size_t payload_bytes;
    struct digest payload, parent, grid;
    float weight;
    uint64_t data_cursor, max_local_steps_offline, charged;
    uint8_t residual_ratio; /* codec_residual_ratio of residual' */
    struct wire_pace pace;  /* of the submission; not in the file */
};
struct site_box { /* the one contribution in memory; its file is the truth */
    bool valid;
    bool received; /* the aggregator said so in the term we are bound to */
    unsigned fragment;
    uint64_t round;
    struct site_made made;
    /* Secure aggregation: `made.payload` is then the digest of the masked bytes. */
    size_t masked_bytes; /* of them; 0: the payload is sent as it is */
    struct site_announced_round announced;
    struct cipher_key b; /* the site's own mask */
};
/* Of an in-flight slot. The caller: acquire, submit, reap. What carries the round out is the slot's
 * thread, or without one the caller itself in site_complete. */
enum site_slot_state {
    SLOT_FREE,
    SLOT_ACQUIRED,  /* the caller writes the local values */
    SLOT_SUBMITTED, /* under way, the contribution perhaps not yet stored */
    SLOT_STORED,    /* under way, the contribution is durable, or is not needed */
    SLOT_FAILED,    /* before the contribution was stored: e */
    SLOT_COMPLETE,  /* committed here, or failed later: e */
    SLOT_REPORTING, /* complete, and the thread tells the aggregator so */
    SLOT_REAPED     /* the caller has taken the result, the thread still tells */
};
/* Guarded by inflight.post; site_inflight.c writes it. Between SUBMITTED and COMPLETE all else of
 * the slot is the thread's. */
struct site_flight {
    enum site_slot_state state;
    struct site_submission submission;
    struct site_completion completion;
    enum err e;
    char why[SITE_TEXT_MAX];
};
struct site_buffer { /* site_slot.c writes it */
    uint8_t *bytes;
    size_t room;
    struct arena larger; /* of `bytes`, once the room of the start was too small: an amendment of
                            outer.codec, a larger roster, masks */
};
struct site_eager { /* site_eager.c writes it */
    float *start; /* of the round being submitted, before that what the others sent; NULL where the
                     configuration is not eager */
    float others; /* weight of what the others sent */
};
struct site_outage {      /* of a slot's calls; site_call.c writes it */
    atomic_uint failures; /* calls without an answer in a row */
    uint64_t since_ms;
    char cause[256]; /* of the first of these failures */
};
/* One exchange: a contribution, its buffers, its calls. */
struct site_slot {
    struct site *site;
    unsigned peer;        /* which aggregator it talks to */
    uint64_t polled_term; /* of that aggregator, when it gave the manifest polled for last */
    struct site_box box;
    struct site_buffer payload;  /* of the box, in the clear */
    struct site_buffer masked;   /* of the box, with masks: the bytes to send */
    struct site_buffer download; /* aggregate or snapshot; before that, the base of the delta */
    float *residual;             /* of the box: residual' */
    double *discarded;           /* of the box; NULL without error-feedback decay */
    struct site_eager eager;
    struct site_outage outage;
    struct site_times times;
    float *local; /* device: what the site trained, then the new theta; NULL: calls only */
    struct env_thread *thread; /* NULL: rounds run in line */
    bool skipped;              /* site_completion.skipped of the round under way */
    struct site_flight flight;
};
struct site_peer {           /* one aggregator */
    uint64_t term, instance; /* highest term seen, durable before it is answered */
    bool signs;              /* it has announced a term, with: */
    struct signer_key key;   /* its identity's, of the newest announcement; else zero */
};
struct site_asked { /* to give up the round that made this state; another state: not any more */
    uint64_t round; /* of the state; 0: not asked */
    struct digest manifest;
};
struct site_steps { /* as the aggregator said last; in id/site */
    uint64_t steps; /* train.steps; 0: not told yet */
    uint32_t count;
    uint64_t former[SCHEDULE_ENDS_MAX];
};
struct site_members {      /* which sites rounds have, as known here; site_members.c writes it */
    struct roster *roster; /* [fragments] of the newest state, where `round` is its number */
    uint64_t *round;       /* [fragments] */
    uint32_t version[WIRE_AGGREGATORS_MAX]; /* of each aggregator, as last heard */
    unsigned sites;                         /* of the newest roster */
    uint64_t first[ROUND_FRAGMENTS_MAX];    /* the first round with this site */
};
struct site_inflight { /* the slots that rounds run in; site_inflight.c writes it */
    /* Of the slots' states. Locked last, and held for moments only: the training thread needs no
     * other. */
    struct env_mutex *post;
    struct site_slot *slot; /* overlapped: one thread each. Blocking: main alone */
    unsigned slots;
    atomic_bool closing;        /* waits end as if asked to stop */
    enum err failed;            /* of a slot after it was reaped */
    char why[SITE_TEXT_MAX];    /* its message */
    char notice[SITE_TEXT_MAX]; /* of a slot, for the caller's thread; "": none */
};
struct site_own { /* site.c writes it */
    struct link *link;
    unsigned index; /* position in outer.sites; from ROUND_SITES_MAX on: not known yet */
    struct digest config;
    bool prepared, started;              /* site_prepare, site_start have ended */
    bool found;                          /* the directory had begun before */
    bool told_over;                      /* that all rounds were on record at the start */
    uint64_t final[ROUND_FRAGMENTS_MAX]; /* rounds before this one are final, as far as known */
    double clock_s; /* this clock minus an aggregator's, by the last report; NaN: not known */
    struct outer_metrics_state *metrics; /* [fragments] */
    struct site_slot *main;              /* hello, catch-up; blocking rounds too */
    struct site_scrub *scrub;            /* site_scrub.c; NULL: off */
};
struct site_calls {                 /* site_call.c writes it */
    uint64_t incarnation, instance; /* of this process */
    bool heard;                     /* an aggregator answered a hello of this process */
    struct site_steps steps;
    bool ends_known; /* the schedule has the former values of train.steps, or there are none */
    uint64_t jitter;
};
struct site_there { /* the aggregator's state, as last heard; site_call.c writes it */
    uint64_t round[ROUND_FRAGMENTS_MAX];
    struct digest state[ROUND_FRAGMENTS_MAX];    /* its digest, from the last hello */
    struct digest accepted[ROUND_FRAGMENTS_MAX]; /* ours for `round`, from the last hello */
};
struct site {
    struct env *env;
    struct outer_state *replica;
    const struct site_options *o;
    struct site_own own;
    struct site_calls call;
    struct site_there there;
    struct site_peer peer[WIRE_AGGREGATORS_MAX];
    struct site_announced *announced; /* [aggregators], site_identity.c; NULL: without signatures */
    struct site_members members;
    bool supplying[WIRE_AGGREGATORS_MAX]; /* a slot sends what the site has of the run */
    struct site_asked asked[ROUND_FRAGMENTS_MAX];
    uint64_t charged; /* the most that a submission or an adopted manifest names of this site */
    struct site_masks *masks; /* site_masks.c; NULL: off, or not yet needed */
    /* All above, the replica, the files. Held by the thread that works, and released during a call
     * to the aggregator and in a wait: shared members are consistent when another slot runs, and
     * values that must survive a call are in the slot. */
    struct env_mutex *mutex;
    struct site_inflight inflight;
};

unsigned site_peers(const struct site *s); /* aggregators */
/* Is this not the lead of a site of several processes? */
static inline bool site_joint(const struct site *s)
{
    return s->o->joint != NULL;
}
/* Does this process hold the fragment? */
static inline bool site_holds(const struct site *s, unsigned fragment)
{
    return outer_state_holds(s->replica, fragment);
}
void site_index_take(struct site *s, unsigned index); /* the organ roster has learnt it */

/* site.c: by the thread that carries out the slot's round, with the mutex locked.
 *
 * Round w->round of a fragment: l->local, the local values, becomes z, then the theta from which
 * training continues; after an error it is neither. Afterwards replica->state[fragment].round >
 * w->round: round
 * + 1, or later after an absence. When that state is already recorded (replay after a restart)
 * nothing is sent and the recorded theta of state round + 1 comes back, or the newest one where
 * that is not kept. A z that is not finite or holds a spike (codec_spike) is neither stored nor
 * sent: in quorum mode, where the others can commit without this site, the round is skipped and
 * what it trained since is lost; else ERR_DIVERGED. */
enum err site_round_run(struct site_slot *l, const struct site_submission *w) MUST;
/* Theta of a recorded state, or of the newest where that one is not kept. */
enum err site_theta_to(struct site *s, unsigned fragment, uint64_t round, float *local) MUST;
enum err site_report_on(struct site_slot *l, const struct site_submission *w) MUST;

/* Rounds before `rounds` are final; those that are recorded here are taken note of. */
void site_final(struct site *s, unsigned fragment, uint64_t rounds);
/* The first round whose state and contribution are kept, so that it can be given up. */
uint64_t site_final_kept(const struct site *s, unsigned fragment);
enum err site_final_keep(struct site *s, unsigned fragment) MUST; /* final/F, durable */
/* Has an aggregator asked to give up the round that made the newest state? */
bool site_step_back_due(const struct site *s, unsigned fragment);

/* site_inflight.c */
enum err site_slots_open(struct site *s, struct arena *perm) MUST;
void site_slots_drain(struct site *s); /* until complete rounds are reported */
void site_slots_end(struct site *s);   /* the threads; calls under way come back first */
void site_slots_free(struct site *s);
void site_slot_stored(struct site_slot *l);
void site_slot_notice(struct site_slot *l, const char *text);

/* site_call.c */
/* Of a call about a fragment: from here on the slot talks to the aggregator that serves it. */
struct wire_head site_head(struct site_slot *l, unsigned fragment);
enum err site_identify(struct site *s) MUST; /* a new incarnation, durable */
enum err site_id_again(struct site *s,
                       const char *path) MUST; /* id/site, id/announced.N, from memory */
enum err site_hello(struct site_slot *l,
                    bool has_state) MUST; /* until answered; fills *_there of its fragments */
enum err site_hello_once(struct site_slot *l, bool has_state) MUST; /* ERR_LINK: no answer */
/* An answer other than the hoped-for one. ERR_OK: what had to be done is done, ask again. */
enum err site_react(struct site_slot *l, const struct wire_answer *a) MUST;
/* e of a call: ERR_LINK waits with back-off and gives ERR_OK with *again set; ERR_OK clears the
 * back-off. */
enum err site_called(struct site_slot *l, enum err e, bool *again) MUST;
void site_outage_clear(struct site_slot *l);                /* a new round: no failures yet */
enum err site_sleep(struct site_slot *l, uint64_t ms) MUST; /* ERR_STOPPED */
/* A poll said that this is the aggregator's round of the fragment. */
void site_polled(struct site *s, unsigned fragment, uint64_t round);
/* The mutex, around a call or a wait: shared members may have changed afterwards. */
void site_unlock(struct site *s);
static inline enum err site_unlocked(struct site *s, enum err e) /* unlocks, and returns e */
{
    site_unlock(s);
    return e;
}
void site_lock(struct site *s);
/* The manifest of a recorded round, from the aggregator: by the digests here it is the one. With
 * the lock held, which is released during the call. ERR_LINK: not now. */
enum err site_manifest_ask(struct site_slot *l, unsigned fragment, uint64_t round,
                           struct manifest *m) MUST;
void site_notice(struct site_slot *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* site_slot.c */
/* Slots with threads; 0: rounds are blocking, and main alone has one. */
unsigned site_slot_count(const struct schedule *s, int64_t max_local_steps_offline);
enum err site_slot_make(struct site_slot *l, struct site *s, struct arena *perm) MUST; /* buffers */
void site_slot_memory_free(struct site_slot *l); /* what they have grown by */
/* Room for `size` bytes; the contents are lost. fresh: an empty arena for them. what: "a payload",
 * for the error. */
enum err site_buffer_grow(struct site_buffer *b, struct arena fresh, size_t size,
                          const char *what) MUST;
/* l->download holds `size` bytes. The roster may have grown since the start: the aggregate of a
 * gathered codec grows with it. */
enum err site_download_grow(struct site_slot *l, size_t size) MUST;
/* l->payload holds `size` bytes; its contents are lost. */
enum err site_payload_grow(struct site_slot *l, size_t size) MUST;

/* site_members.c */
enum err site_members_open(struct site *s, struct arena *perm) MUST;
/* A hello is answered: the newest roster, and the first rounds with this site. */
void site_members_heard(struct site *s, unsigned peer, const struct wire_hello_answer *a);
/* The manifest is adopted. True: of a later roster than the state before, as far as known. */
bool site_members_take(struct site *s, unsigned peer, const struct manifest *m);
void site_members_forget(struct site *s, unsigned fragment); /* the newest state is given up */
/* Of the newest state of the fragment. *known false: its manifest cannot be read. */
enum err site_members_now(const struct site *s, unsigned fragment, struct roster *out,
                          bool *known) MUST;
/* Until it is known: where the manifest cannot be read, the log names it, and the aggregator is
 * asked for it. A check without its own input says nothing about a peer. */
enum err site_members_known(struct site_slot *l, unsigned fragment, struct roster *out) MUST;
/* Tries once; ERR_OK without it. */
enum err site_members_try(struct site_slot *l, unsigned fragment) MUST;
/* Sites of the newest state's roster; this one counts, if it was added since. Waits, too. */
enum err site_members_count(struct site_slot *l, unsigned fragment, unsigned *count) MUST;

/* site_eager.c: eager starts, of slots with threads */
enum err site_eager_open(struct site_slot *l, size_t elements, struct arena *perm) MUST;
/* Before the round's contribution is made: the others' part of the last mean. The slot's box is
 * lost. */
enum err site_eager_others(struct site_slot *l, const struct site_submission *w) MUST;
/* With the contribution in the slot, before it is stored: the start, durable. */
enum err site_eager_make(struct site_slot *l, const struct site_submission *w) MUST;
/* l->eager.start, as stored; the committed theta where the round has no start: it was skipped. */
enum err site_eager_begin(struct site_slot *l, const struct site_submission *w) MUST;
/* The start of a round into base. *found false: there is none. */
enum err site_eager_load(struct site_slot *l, unsigned fragment, uint64_t round, float *base,
                         bool *found) MUST;
enum err site_eager_drop(struct site_slot *l, unsigned fragment, uint64_t round) MUST; /* skipped */

/* site_outbox.c */
/* A slot's stored contribution whose file is damaged: written again where the slot still holds all
 * of it. ERR_CORRUPT: it does not, or the file does not say what it held. */
enum err site_outbox_repair(struct site_slot *l) MUST;
/* S1 to S3 once more for another parent, of withdrawn training; l->local is lost. */
enum err site_outbox_make_again(struct site_slot *l, unsigned fragment) MUST;
const struct manifest_entry *site_own_entry(const struct site *s, const struct manifest *m);
/* An adopted manifest: what it says of this site's privacy budget is kept in mind. */
void site_charges_take(struct site *s, const struct manifest *m);
enum err site_outbox_load(struct site_slot *l, unsigned fragment,
                          uint64_t round) MUST; /* box.valid: found */
enum err site_outbox_make(struct site_slot *l, const struct site_submission *w,
                          const struct site_announced_round *announced,
                          float *local) MUST; /* S1-S3 of the replica's round; local becomes z */
enum err site_outbox_send(struct site_slot *l) MUST; /* S4, S5: until received or overtaken */
/* S8 into `next` of the replica; the box of that round is loaded when there is one. */
enum err site_outbox_commit(struct site_slot *l, unsigned fragment, const struct manifest *m) MUST;
enum err site_outbox_prune(struct site_slot *l, unsigned fragment) MUST;
/* What the stored contribution of the present round says was trained: decoded + residual' - what
 * was carried over (docs/protocol.md 4), to `values` (host). The slot's box is the round's. */
enum err site_outbox_trained(struct site_slot *l, unsigned fragment, float *values) MUST;

#endif
