/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGGREGATOR_H
#define AGGREGATOR_H
/* The aggregator: a link_service over the pure round core, the journal, the spool and a replica's
 * outer state. It has no thread and no socket of its own: the link calls it. What is acknowledged
 * is durable; the rename of CURRENT is the one commit point; a restart reads the directory and
 * continues (docs/protocol.md 3.5).
 *
 * Memory, in addition to the replica's (theta, momentum, codes of every fragment and of one next
 * state): the core's tables (about 100 bytes for each fragment and index of a site); while a round
 * commits one aggregate of one fragment, the contributions being mapped from the spool, not copied
 * (a gathered aggregate is made in its file); while sites fetch, one copy of each different
 * snapshot that is being sent, however many sites read it, and at most twice the largest in all:
 * aggregates are mapped. Nothing grows with sites x model.
 * Disk: the spool holds at most one contribution per site and fragment; two where rounds are
 * encoded again (outer.downlink_compression_from).
 */
#include "outer/diloco/weights.h"
#include "outer/link/link.h"
#include "outer/protocol/signer.h"
#include "outer/organ/organ.h"
#include "outer/store/outer_state.h"

struct aggregator_replanned { /* what outer.replan has amended, and why */
    uint32_t number;          /* of the amendment */
    double share;             /* of the time that training had: trained_s of both, in a round */
    double trained_s, waited_s;
};
struct aggregator_names { /* the roster, in configuration order: site index = position */
    const char *const *names;
    unsigned count;
    unsigned room; /* for sites that an operator adds: indices in all; 0: none can be added */
};
struct aggregator_place { /* of several that share the fragments: fragment f is of the one at
                             f % count; 0, 0: alone */
    unsigned index, count;
};
struct aggregator_bounds { /* what a contribution may be (outer/protocol/bounds.h); 0: no bound */
    float norm_limit;      /* outer.norm_limit */
    float clip;            /* outer.clip; 0: nothing is scaled down */
    uint32_t edit_warmup;  /* outer.edit_warmup */
    unsigned strikes_max;  /* contributions in a row that are refused, or of which a
                              quarter or less counts, until the site is in quarantine; 0:
                              it never is */
    double share_max;      /* most that site.batch_scale may be */
    enum weights_kind weights;       /* outer.weights */
    int64_t max_local_steps_offline; /* outer.max_local_steps_offline */
};
struct aggregator_files {
    const char *revoked_path; /* list of refused identities and certificates
                                 (outer/identity/revocation.h); NULL: none */
    const char *revoked_copy; /* file that keeps the last list that was read; NULL: none */
    uint64_t scrub_every_ms, scrub_bytes_per_s; /* outer/store/scrub.h; every_ms 0: off */
    uint64_t journal_bytes_max; /* a commit rewrites a longer journal; 0: JOURNAL_BYTES_MAX */
};
struct aggregator_tell { /* what the process is told; NULL: not called */
    /* After each commit, with what the round waited since its first contribution; in the thread of
     * work(). */
    void (*committed)(void *self, const struct manifest *m, uint64_t waited_ms);
    /* A site has adopted a state (wire_report.round): after each report. */
    void (*adopted)(void *self, unsigned site, const struct wire_report *m);
    /* After each amendment of outer.replan, as `committed`. */
    void (*replanned)(void *self, const struct aggregator_replanned *r);
    /* A piece of the run's records for an observer: text of at most size bytes, *next: where the
     * next one begins; in the thread of the call, and it must not take long. NULL: there are none.
     */
    enum err (*records)(void *self, uint64_t at, char *text, size_t size, uint64_t *next);
    void *self;
};
struct aggregator_options {
    const char *run;
    struct aggregator_names sites;
    const char *canonical; /* pinned keys; identity_digest of it is the configuration digest */
    bool strict;
    uint64_t straggler_ms;
    struct grace_rule grace;
    struct aggregator_place place;
    struct aggregator_bounds bounds;
    struct aggregator_files files;
    struct aggregator_tell tell;
    struct round_masks masks;           /* privacy.secure = sum; needs a signer */
    struct organs_at_aggregator organs; /* in the order in which they are called */
    struct signer *signer; /* of this aggregator's identity, open as long as it is; NULL: it signs
                              nothing and checks no signature */
};
struct aggregator; /* opaque */

enum { AGGREGATOR_TERM_FIRST = 1, AGGREGATOR_TEXT_MAX = 256, AGGREGATOR_STRIKES = 3 };

/* Is this directory new, or begun with the same pinned settings? train.steps may have grown: its
 * former values are recorded and go to s->ends (s NULL: recorded only). Ask before the replica is
 * opened: its states are of no use otherwise. ERR_MISMATCH names the differing keys. */
enum err aggregator_claim(struct env *w, const char *canonical, struct schedule *s) MUST;
/* A directory that is rebuilt from those of the sites (docs/protocol.md 3.5): the settings with the
 * former values of train.steps in s->ends, before aggregator_claim; and the highest term that a
 * site has answered, before aggregator_open. */
enum err aggregator_claim_write(struct env *w, const char *canonical,
                                const struct schedule *s) MUST;
enum err aggregator_term_write(struct env *w, uint64_t term) MUST;
/* The replica is open and loaded or begun. New term; reads the journal, cuts a torn tail, keeps
 * verified ACCEPTs. */
enum err aggregator_open(struct aggregator **a, struct env *w, struct outer_state *m,
                         const struct aggregator_options *o, struct arena *perm) MUST;
/* outer_state_options.remake of an aggregator's directory; sites: its roster, const char *const *.
 * The last round's contributions are kept for it. */
enum err aggregator_remake(void *sites, struct outer_state *m, unsigned fragment,
                           const struct manifest *manifest) MUST;
struct link_service aggregator_service(struct aggregator *a);
void aggregator_close(struct aggregator *a);

/* What a person wants to see; any thread. As it was after the last work(). Times are the
 * environment's now_ms. */
struct aggregator_site_status {
    const char *name;
    bool bound, left, quarantined;
    bool removed;        /* from the roster */
    uint64_t heard_ms;   /* env's now_ms of its last call; 0: never in this term */
    uint64_t missing_ms; /* since when a round waits for it; 0: none does */
    int64_t step;
    double loss, tokens_per_second; /* NAN: not reported */
    uint64_t tokens, bytes_up, bytes_down;
};
struct aggregator_status {
    unsigned sites, bound, fragments; /* sites: of all indices given, removed sites too */
    uint64_t round[ROUND_FRAGMENTS_MAX], rounds[ROUND_FRAGMENTS_MAX]; /* committed, scheduled */
    uint64_t term, payload_up, payload_down;                          /* bytes, since open */
    bool done;       /* every fragment had its last round; every site reported it or left */
    enum err failed; /* why it halted; ERR_OK when it did not */
    char why[AGGREGATOR_TEXT_MAX];
    struct aggregator_site_status site[ROUND_SITES_MAX];
};
void aggregator_status(const struct aggregator *a, struct aggregator_status *out);
/* Rounds of the fragment before this one are final (docs/protocol.md 3.4); where calls are
 * answered.
 */
uint64_t aggregator_final(const struct aggregator *a, unsigned fragment);
bool aggregator_done(const struct aggregator *a);
enum err aggregator_failed(const struct aggregator *a); /* with its sentence in err_message() */

#endif
