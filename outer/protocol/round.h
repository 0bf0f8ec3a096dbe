/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ROUND_H
#define ROUND_H
/* The protocol core, pure: round_step takes one event (with the time in it) and says what the
 * caller must do and when to call again. No socket, clock, thread or file inside, memory at
 * round_init alone; the same code runs in `atoll serve` and in the simulator. It knows digests and
 * sizes, never payloads. Answers: docs/protocol.md 3.2.
 *
 * Every fragment has its own round number, set and parent and waits for no other. Round t takes a
 * fragment's state t to state t + 1.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/arena.h"
#include "kernels/base/digest.h"
#include "outer/protocol/grace.h"
#include "outer/protocol/site_set.h"

enum { ROUND_SITES_MAX = SET_MAX, ROUND_FRAGMENTS_MAX = 64 };

enum round_outcome { /* on the wire: never renumber */
                     ROUND_NONE = 0,
                     ROUND_RECEIPT = 1, /* durable here; inclusion is read from the manifest only */
                     ROUND_RESUME = 2,  /* send from `offset` on */
                     ROUND_BEHIND = 3,  /* the site's round is committed: catch up */
                     ROUND_LATE = 4,    /* sealed without this site; nothing stored */
                     ROUND_EARLY = 5,   /* the site is not in the roster of this round */
                     ROUND_REBIND = 6,  /* say hello first (new term, or none yet) */
                     ROUND_DENIED = 7,  /* certificate and header disagree, or wrong role */
                     ROUND_EXCLUDED = 8, /* not in the roster */
                     ROUND_INVALID = 9,  /* malformed */
                     ROUND_MISMATCH =
                         10, /* other run, configuration, codec, version: text names the keys */
                     ROUND_CONFLICT = 11,   /* same round, other bytes; or a state we cannot have */
                     ROUND_SUPERSEDED = 12, /* a newer incarnation of the site is bound */
                     ROUND_LOST_STATE = 13, /* hello: the site proves, by a signature of this
                                               aggregator's identity, that our files are old: we
                                               halt. A bare claim is CONFLICT */
                     ROUND_FULL = 14,       /* no space: retry later */
                     ROUND_CURRENT = 15,    /* hello, report: the site has our state */
                     ROUND_JOIN = 16, /* hello without state, or of a state that is no longer kept:
                                         take the snapshot */
                     ROUND_DIVERGED = 17, /* same manifest, other state digest: the site resyncs
                                             from a snapshot */
                     ROUND_PENDING = 18,  /* poll: not committed yet */
                     ROUND_COMMIT = 19,   /* poll: manifest follows */
                     ROUND_GONE = 20,     /* fetch: no longer kept */
                     ROUND_ABORTED = 21,  /* manifest: stored, and the round was aborted */
                     ROUND_STEP_BACK =
                         22, /* hello: the site's newest commit is of an earlier term and not in
                              * our history: it gives that round up (docs/protocol.md 3.4)
                              */
                     ROUND_SUPPLY = 23 /* hello: the aggregator has lost its directory, and the site
                                          sends what it has (docs/protocol.md 3.5) */
};
enum { ROUND_OUTCOMES = ROUND_SUPPLY + 1 };

enum round_event_kind {
    ROUND_HELLO,  /* the state of a site in one fragment: counts as a report. One per fragment, then
                     BIND */
    ROUND_BIND,   /* every HELLO was answered without a refusal: the site is bound to this term */
    ROUND_OFFER,  /* header of a contribution */
    ROUND_STORED, /* its payload is complete, verified, durable */
    ROUND_RESTORED, /* recovery: a journalled ACCEPT whose spool file verifies */
    ROUND_LOST, /* the accepted contribution of `site` is no longer stored: it is asked for again */
    ROUND_COMMITTED, /* the caller passed the commit point of `fragment`: state is now `round` */
    ROUND_POLL,      /* is `round` committed? */
    ROUND_FETCH,     /* may this process be served at all? */
    ROUND_REPORT,    /* site adopted state `round` with `state` digest */
    ROUND_LEAVE,     /* the site's process ends; what it contributed stays */
    ROUND_EXCLUDE,   /* quarantine: in quorum mode rounds no longer wait for the site. What of it is
                        accepted stays, and counts */
    ROUND_READMIT,   /* the end of it; the site has to say hello */
    ROUND_CLOSE,     /* by an operator: the round in flight is sealed with an empty set */
    ROUND_TICK       /* time passed */
};

struct round_offer { /* OFFER, STORED, RESTORED: a contribution */
    struct digest payload;
    uint64_t payload_bytes;
    float weight, norm; /* norm: STORED, RESTORED: bounds_norm, for its manifest */
    uint64_t data_cursor, charged;
    uint8_t residual_ratio; /* of the contribution, for its manifest */
    bool grid_differs;      /* OFFER: encoded on another grid than the round's */
    uint64_t payload_max;   /* OFFER: what the configuration allows */
};
struct round_proofs { /* HELLO: signed by an identity of this aggregator: */
    bool term;        /* a later term than ours, or another instance of ours */
    bool round;       /* the manifest `parent` of `round`... */
    bool later;       /* ...which is of our term, or of a later one than the manifest that made
                         our state of that round */
    bool older;       /* the manifest `parent` of `round` is not ours, and is of an earlier term
                         than ours of that round */
};
/* HELLO, REPORT below our round: what the caller knows of that round and the core does not keep. */
struct round_past {
    bool kept; /* our own record of it is still there, and says: */
    struct digest parent, state;
};
struct round_hello {    /* HELLO, BIND */
    bool has_state;     /* false when the site joins */
    uint64_t elsewhere; /* bit f: another process of the site holds fragment f, and binds it */
};
struct round_event {
    enum round_event_kind kind;
    uint64_t now_ms; /* monotonic */
    unsigned site, fragment;
    uint64_t incarnation; /* of the site's process; a newer start has a higher one */
    uint64_t instance;    /* random per process: equal incarnation and other instance = a clone */
    uint64_t term;        /* the term the site is bound to; HELLO, BIND: the highest it has seen */
    uint64_t round;
    struct digest parent; /* manifest of the site's newest commit (zero: round 0, its parent is the
                             initial state) */
    struct digest state;  /* HELLO, REPORT, COMMITTED: digest of the outer state at `round` */
    bool aborted;         /* COMMITTED: with an empty set, the state is the one before */
    struct round_hello hello;
    struct round_offer offer;
    struct round_proofs proves;
    struct round_past past;
};

struct round_update {
    enum round_outcome outcome; /* the answer to the site, when the event came from one */
    const char *text;           /* static: why; NULL: nothing to explain */
    uint64_t round;             /* our current round of that fragment */
    uint64_t final;             /* of that fragment: rounds before this one are final */
    bool accept;                /* STORED: journal the ACCEPT durably, then answer */
    bool alarm;                 /* an operator should look at it */
    bool seal; /* a fragment's set is fixed: aggregate and commit it, then COMMITTED */
    unsigned seal_fragment;
    struct set seal_set; /* when seal */
    bool halt;           /* stop serving, keep all files */
    uint64_t wake_ms;    /* call again with TICK at this time; UINT64_MAX: only on events */
};

struct round_entry { /* one site in the round in flight of one fragment */
    bool offered;    /* a stream began: `payload` by `incarnation` */
    bool accepted;   /* durable */
    struct digest payload;
    uint64_t payload_bytes, incarnation;
    float weight, norm;
    uint64_t data_cursor; /* tokens of this site so far */
    uint64_t charged;     /* steps of its privacy budget so far; 0: it has none */
    uint8_t residual_ratio;
};
struct round_fragment {
    uint64_t round;
    struct digest parent,
        state; /* manifest that made `state`; zero and the initial digest in round 0 */
    bool sealed;
    unsigned aborts;             /* rounds aborted in a row */
    uint64_t deadline_ms;        /* UINT64_MAX: none */
    struct grace grace;          /* quorum mode */
    struct set members;          /* the roster of the round in flight, which never changes */
    unsigned n, quorum;          /* of them; least set */
    uint64_t first;              /* first round of the newest roster */
    struct round_entry *entries; /* [sites] */
    struct set counted;  /* members: accepted in this term, or before it and the site has said hello
                            since */
    unsigned count;      /* of them */
    uint64_t *adopted;   /* [sites] highest state each site has said it has, with our digest */
    uint64_t final;      /* highest state that more than half of the roster's sites have said they
                            have: no round before it is ever given up (docs/protocol.md 3.4) */
    struct set disagree; /* sites that reported `other` instead of `state` */
    struct digest other;
    uint64_t apart; /* rounds before it do not wait for the site `apart` of struct round */
    bool pins; /* the round is sealed with exactly this set, and no other, also after a restart: */
    struct set pinned;
};
struct round_site {
    bool known; /* incarnation and instance were seen in this term */
    bool bound; /* said hello in this term and has not left */
    uint64_t incarnation, instance;
};
struct round_masks { /* docs/privacy-methods.md 3: sums of masked contributions */
    bool on;
    bool two_sites;     /* allowed, though each then knows the other's values */
    unsigned colluding; /* sites that may work together with the aggregator */
    unsigned threshold; /* least number of sites in every sum, also after changes of the roster */
};
struct round { /* open: tests and drivers read it; only the functions below write it */
    unsigned sites, fragments; /* indices of sites */
    unsigned room;             /* for indices */
    unsigned quorum;           /* least set of the newest roster, all its sites in strict mode */
    struct set members;        /* the newest roster */
    bool strict;
    struct round_masks masks;
    uint64_t straggler_ms, term;
    struct grace_rule grace;
    struct set excluded; /* in quarantine */
    unsigned apart;      /* the newest site: round_apart */
    struct round_fragment f[ROUND_FRAGMENTS_MAX];
    struct round_site *s; /* [sites] */
};

struct round_options {
    unsigned sites, fragments;
    bool strict; /* a round needs all sites; else a majority of the configured ones */
    uint64_t straggler_ms, term;
    struct grace_rule grace;
    struct round_masks masks; /* on: a set has at least round_threshold sites */
    unsigned room;            /* indices that there may be when sites are added; 0: sites */
};
/* The least sum of secure aggregation among n sites, of which `colluding` may work together with
 * the aggregator: two honest sites are in every sum, and two seals of a round have an honest site
 * in common, which signs one of them (docs/privacy-methods.md, Threshold). */
unsigned round_threshold(unsigned n, unsigned colluding);
/* Sites that a round of n sites needs: all of them in strict mode, else that many of secure
 * aggregation, else a majority. The majority is of configured sites, never of those alive: else
 * both halves of a cut would continue. */
unsigned round_least(unsigned n, bool strict, const struct round_masks *masks);
/* Who may leave a roster of n sites, for a while or for good: what doctor, plan, the page of a site
 * and the aggregator say comes from here. */
struct round_leave {
    unsigned least;  /* round_least */
    unsigned away;   /* number that may be away while rounds continue */
    unsigned roster; /* fewer sites than these the roster never has */
    unsigned
        remove; /* number that may be removed, so that every sum has the promised number of sites */
    bool pairs; /* of more sites, a sum of two is opened: each of them learns the other's part */
};
struct round_leave round_leave(const struct round_masks *m, unsigned n, bool strict);
/* The only allocation: about 100 bytes for each site and fragment. */
enum err round_init(struct round *r, const struct round_options *o, struct arena *perm) MUST;
/* The state of a fragment when the process starts: its round, manifest and state digest. */
void round_place(struct round *r, unsigned fragment, uint64_t round, const struct digest *manifest,
                 const struct digest *state);
/* Rounds before it that were aborted in a row. */
void round_aborts(struct round *r, unsigned fragment, unsigned aborts);
/* The term of this start, once it is known. */
void round_term(struct round *r, uint64_t term);
/* Settings of how a round waits have changed: the straggler timeout, and outer.overlap_steps over
 * outer.sync_every. */
void round_pace(struct round *r, uint64_t straggler_ms, double overlap);
/* Rounds of each fragment before until[fragment] do not wait for this site, which cannot contribute
 * to them yet. One site at a time. */
void round_apart(struct round *r, unsigned site, const uint64_t *until);
/* The newest roster has, or has no longer, this site; `site` may be the next index. It is in force
 * for each fragment from round first[fragment] on: of the round in flight or an earlier one only
 * where a record is read again. */
void round_roster(struct round *r, unsigned site, bool in, const uint64_t *first);
/* Each fragment has committed its first round under the newest roster, and more than half of the
 * sites have reported that state: the next change may come. Not so: *fragment is one that waits. */
bool round_roster_final(const struct round *r, unsigned *fragment);
/* Secure aggregation: the seal of the round in flight was announced to sites. A contribution of
 * this set that is lost is waited for; no other set is ever sealed. Until the next round_place. */
void round_pin(struct round *r, unsigned fragment, const struct set *s);
/* At most one seal per step; when another fragment is ready too, wake_ms is now. */
void round_step(struct round *r, const struct round_event *e, struct round_update *u);
const char *round_outcome_name(enum round_outcome o);  /* "receipt" */
const char *round_event_name(enum round_event_kind k); /* "offer" */
/* Event and update as logfmt values without the event's name and time; production logs and golden
 * traces. */
void round_trace(const struct round_event *e, const struct round_update *u, char *out,
                 size_t size_bytes);

#endif
