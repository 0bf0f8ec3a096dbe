/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGGREGATOR_STATE_H
#define AGGREGATOR_STATE_H
/* Inside the aggregator: what its files share. Which members of struct aggregator each of them
 * writes, and what it does:
 *
 *   aggregator.c: env, replica, o, sums, signs, site, part. Opens, works, closes.
 *   aggregator_answer.c: none. Words answers.
 *   aggregator_caller.c: none. The checks before every call.
 *   aggregator_calls.c: site. Hello, poll, report, leave.
 *   aggregator_clear.c: none. Sums contributions in the clear.
 *   aggregator_claim.c: none. The settings that the directory began with.
 *   aggregator_commit.c: journal, fragment, commit. Closes rounds, while calls are answered.
 *   aggregator_core.c: core, fragment, site, state. Events of the core.
 *   aggregator_fetch.c: fetches. What sites fetch.
 *   aggregator_identity.c: none. Signs, and checks what is signed.
 *   aggregator_journal.c: journal. Rewrites small files.
 *   aggregator_masks.c: core, journal. Sums masked contributions.
 *   aggregator_masks_calls.c: fragment. What sites ask and say for it.
 *   aggregator_masks_setup.c: core. Passes on their public keys.
 *   aggregator_members.c: members, core, site. Which sites rounds have.
 *   aggregator_metrics.c: metrics. Counts by site.
 *   aggregator_missing.c: none. Names of the sites that are waited for.
 *   aggregator_notice.c: notice. Who is missing, in the log.
 *   aggregator_operate.c: journal, fragment. Answers an operator.
 *   aggregator_organs.c: none. Calls the organs.
 *   aggregator_quarantine.c: journal, quarantine. Keeps sites out.
 *   aggregator_recover.c: core, journal, start, fragment. Reads the directory at a start.
 *   aggregator_scrub.c: scrub. Has damaged files repaired.
 *   aggregator_shown.c: site, shown. What other threads see.
 *   aggregator_sites.c: site. Which sites have the last state.
 *   aggregator_spool.c: journal, spool. Takes contributions.
 *   aggregator_unsigned.c: none. Signs and checks nothing.
 *
 * Of the organs, roster writes the journal, and amend the journal and the core. Calls go one way:
 * no two of these files need each other. From below: answer, core; members, quarantine; sites,
 * metrics; caller; identity, unsigned, masks, clear, organs; missing; spool, journal; notice,
 * commit; all others; aggregator.c.
 */
#include <stdatomic.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator.h"
#include "outer/aggregator/intake.h"
#include "outer/identity/revocation.h"
#include "outer/protocol/bounds.h"
#include "outer/protocol/roles.h"
#include "outer/protocol/roster.h"
#include "outer/store/journal.h"
#include "outer/store/store.h"

#define AGGREGATOR_JOURNAL    "journal"
#define AGGREGATOR_TERM       "epoch" /* number and instance of the last start */
#define AGGREGATOR_RESERVE    "reserve"
#define AGGREGATOR_FINISHED   "finished" /* names of sites that have the last state, one per line */
#define AGGREGATOR_ENDED      "ended"    /* the last process closed it; gone while one runs */
#define AGGREGATOR_IDENTITIES "identities" /* keys that sites sign with, as seen first */
#define AGGREGATOR_SETUP      "setup"      /* secure aggregation: of pair keys, the newest one */
#define AGGREGATOR_STALE      "stale" /* a site proved that this directory is old: never served */
#define AGGREGATOR_NO_MEMORY  "no memory for it now"
enum { AGGREGATOR_PATH_MAX = INTAKE_PATH_MAX, AGGREGATOR_FULL_RETRY_MS = 5000 };
enum { AGGREGATOR_ABORTS_MAX = 32 }; /* rounds in a row: with masked ones the run stops */

struct aggregator_site {
    struct aggregator_site_status status;
    bool finished;      /* has the last state of every fragment; durable */
    uint64_t silent_ms; /* before its last call: since the one before, or since this start */
};
struct aggregator_fragment {
    bool sealed; /* commit pending, of: */
    struct set seal_set;
    bool ordered; /* by an operator: sealed with an empty set, not with seal_set */
    struct digest ordered_by;
    bool rolls_back; /* and followed by state `rolls_to` */
    uint64_t rolls_to;
    struct set lost;      /* of them, by the commit: their contributions are no longer stored */
    uint64_t retry_ms;    /* not before: the disk was full */
    uint64_t first_ms;    /* when the first contribution counted; UINT64_MAX: none yet */
    uint64_t found_round; /* in flight when this process began: its spool may hold anything */
    uint64_t committed;   /* highest round + 1 with a COMMIT record; 0: none */
    struct bounds_history norms; /* of the rounds before the one in flight */
    uint64_t asked;              /* rounds before it were asked about by a site, which waits */
};
struct aggregator_members {       /* which sites rounds have; aggregator_members.c writes it */
    struct roster roster, former; /* newest version, and the one before: still in force for the
                                     fragments that have not reached the first round of the newest
                                     (core.f[].first) */
    atomic_uint count; /* of all indices given, removed sites too; read without the lock, as: */
    const char *names[ROUND_SITES_MAX];
    char added[MANIFEST_ADDED_MAX][MANIFEST_NAME_MAX];
};
struct aggregator_start { /* of this process */
    bool begun;           /* the directory had begun: a missing file is damage */
    bool journal_lost;
    uint64_t term, instance, opened_ms;
    struct digest config; /* identity_digest of the pinned keys */
};
struct aggregator_state { /* aggregator_core.c writes it */
    uint64_t wake_ms;     /* of the core */
    enum err failed;      /* why it halted */
    char why[AGGREGATOR_TEXT_MAX];
    struct log_limit limit; /* of what peers make it log */
    struct set touched;     /* sites whose status may have changed since it was shown */
};
struct aggregator_parts { /* what a feature keeps, which its file alone knows and writes */
    struct aggregator_commit *commit;
    struct aggregator_spool *spool;
    struct aggregator_fetches *fetches;
    struct aggregator_quarantine *quarantine;
    struct aggregator_metrics *metrics;
    struct aggregator_notice *notice;
    struct aggregator_shown *shown;
    struct aggregator_scrub *scrub; /* NULL: off */
    void *sums, *signs;             /* of the ways that were chosen */
    struct revocation *revocation;  /* NULL: nothing is revoked */
};
struct aggregator {
    struct env *env;
    struct outer_state *replica;
    const struct aggregator_options *o;
    const struct aggregator_sums *sums;   /* aggregator_sums.h */
    const struct aggregator_signs *signs; /* aggregator_signs.h */
    struct aggregator_start start;
    struct aggregator_members members;
    struct round core;
    struct journal journal;
    struct aggregator_site site[ROUND_SITES_MAX];
    struct aggregator_fragment fragment[ROUND_FRAGMENTS_MAX];
    struct aggregator_state state;
    struct aggregator_parts part;
};

/* ---- aggregator_core.c ---- */
enum err aggregator_core_open(struct aggregator *a, struct arena *perm) MUST;
uint64_t aggregator_now(const struct aggregator *a);
bool aggregator_serves(const struct aggregator *a, unsigned fragment);
uint64_t aggregator_rounds(const struct aggregator *a, unsigned fragment);
/* All rounds of all fragments are. */
bool aggregator_last_committed(const struct aggregator *a);
void aggregator_halt(struct aggregator *a, enum err e); /* keeps this thread's sentence */
/* One event through the core: remembers seals and halts, logs the trace. The event's time is set
 * here. */
void aggregator_step(struct aggregator *a, struct round_event *e, struct round_update *u);
struct round_event aggregator_event(enum round_event_kind kind, unsigned site,
                                    const struct wire_head *head);
/* May this line, which a peer has caused, be logged? As log_limit_pass. */
bool aggregator_line_passes(struct aggregator *a, const char *what, const char *who, unsigned lines,
                            unsigned *repeats);
void aggregator_lines_flush(struct aggregator *a, uint64_t now_ms);
/* The site's status may have changed. */
void aggregator_touch(struct aggregator *a, unsigned site);
struct set aggregator_touched(struct aggregator *a); /* since it was asked the last time */
/* The site was heard of just now. */
void aggregator_heard(struct aggregator *a, unsigned site);
/* A full disk and missing memory are answered `full`: the site tries again. Any other
 * error halts this process. */
void aggregator_say_failed(struct aggregator *a, enum err e, struct wire_answer *answer);

/* ---- aggregator_sites.c ---- */
const char *aggregator_site_state(const struct aggregator *a, unsigned site); /* "bound", "away" */
/* All rounds are committed: the end waits for this site, which has not confirmed the last one. */
bool aggregator_owes_report(const struct aggregator *a, unsigned site);
bool aggregator_all_done(const struct aggregator *a); /* and no site owes a report */
/* After what a site said: has it all of it now? Durable before it is answered, so that a restart
 * after the end does not wait for sites that are gone. */
enum err aggregator_finished(struct aggregator *a, unsigned site) MUST;
enum err aggregator_finished_read(struct aggregator *a) MUST; /* at a start */

/* ---- aggregator_shown.c ---- */
enum err aggregator_shown_open(struct aggregator_shown **out, struct arena *perm) MUST;
void aggregator_shown_close(struct aggregator_shown *s);
void aggregator_show(struct aggregator *a); /* under the lock of the service, after each work() */

/* ---- aggregator_journal.c ---- */
struct journal_head { /* where a process that ended in order has left the journal */
    uint64_t number;  /* of the next record */
    struct digest last;
};
/* Rewrites it from memory with the records that a restart needs: the term, the sites in
 * quarantine, the last commit of each fragment, the accepts of the rounds in flight. */
enum err aggregator_journal_again(struct aggregator *a) MUST;
enum err aggregator_term_again(struct aggregator *a) MUST;
/* The number in the file; ERR_INPUT: there is none. */
enum err aggregator_term_read(struct aggregator *a, uint64_t *number) MUST;
/* Journal, term, identities or `begun`, rewritten from memory. */
enum err aggregator_file_again(struct aggregator *a, const char *path) MUST;
enum err aggregator_ended_write(struct aggregator *a) MUST;
/* Empty, of a former program, or damaged: it says nothing of the journal. */
enum err aggregator_ended_read(struct aggregator *a, struct journal_head *h) MUST;

/* ---- aggregator_recover.c ---- */
/* Makes the core, reads what the process before left, and begins a term. */
enum err aggregator_recover(struct aggregator *a, struct arena *perm) MUST;

/* ---- aggregator_missing.c ---- */
/* The sites that the round in flight waits for, and what for. */
struct set aggregator_missing_of(const struct aggregator *a, unsigned fragment, const char **owes);
/* "b, c": their names; returns how many. */
unsigned aggregator_missing(const struct aggregator *a, unsigned fragment, char *out,
                            size_t size_bytes);

/* ---- aggregator_notice.c ---- */
enum err aggregator_notice_open(struct aggregator_notice **out, struct arena *perm) MUST;
/* Writes the lines that are due; returns when the next one is. */
uint64_t aggregator_notice(struct aggregator *a, uint64_t now_ms);

/* ---- aggregator_claim.c ---- */
/* Once the states are loaded: a run.cfg that is missing is compared with the newest manifests and
 * written again. ERR_MISMATCH: other settings. */
enum err aggregator_claim_again(struct aggregator *a) MUST;

/* ---- aggregator_caller.c ---- */
/* The refusals that need names, the first that applies: certificate, roster, revocation, run. The
 * site's index, or -1 with the refusal in *outcome and text. */
int aggregator_caller_check(struct aggregator *a, const char *peer, enum roles_call call,
                            const struct wire_head *head, enum round_outcome *outcome,
                            char text[WIRE_TEXT_MAX]);
/* The same, and the configuration and the roster's version: of every call but hello. */
int aggregator_caller(struct aggregator *a, const char *peer, enum roles_call call,
                      const struct wire_head *head, enum round_outcome *outcome,
                      char text[WIRE_TEXT_MAX]);
/* A refusal is logged once in LOG_LIMIT_MS for the same caller and outcome, with the number of
 * those that were not logged since. site: -1 when the caller is none. */
void aggregator_refused(struct aggregator *a, int site, const char *peer, const char *call,
                        enum round_outcome outcome, const char *text);
bool aggregator_known(void *self, const char *peer); /* without the lock: names are never changed */
/* Why the caller is refused; NULL: it is not. Without the lock. */
const char *aggregator_revoked(void *self, const char *peer, const struct wire_certificate *c);
/* What we keep of a round below ours, for the core to compare. False: there is no memory to look; a
 * site that were told to join would lose its residual. */
bool aggregator_event_past(struct aggregator *a, struct round_event *e);
/* Caller and core for one call about one fragment; what the core says lands in the answer. The
 * site's index; -1: refused. */
int aggregator_call_step(struct aggregator *a, const char *peer, const struct wire_head *head,
                         enum roles_call call, struct round_event *e, struct wire_answer *answer);

/* ---- aggregator_calls.c ---- */
void aggregator_hello(void *self, const char *peer, const struct wire_hello *m,
                      struct wire_hello_answer *answer);
void aggregator_poll(void *self, const char *peer, const struct wire_poll *m,
                     struct wire_poll_answer *answer);
void aggregator_report(void *self, const char *peer, const struct wire_report *m,
                       struct wire_answer *answer);
void aggregator_leave(void *self, const char *peer, const struct wire_leave *m,
                      struct wire_answer *answer);
void aggregator_mask(void *self, const char *peer, const struct wire_mask *m,
                     struct wire_mask_answer *answer);

/* ---- aggregator_fetch.c ---- */
void aggregator_fetch(void *self, const char *peer, const struct wire_fetch *m,
                      struct link_content *out, struct wire_answer *answer);
void aggregator_fetched(void *self, void *source);
enum err aggregator_fetch_open(struct aggregator_fetches **out, struct arena *perm) MUST;
void aggregator_fetch_close(struct aggregator *a);
uint64_t aggregator_fetch_bytes(const struct aggregator *a); /* asked for, since the start */

/* ---- aggregator_spool.c ---- */
enum err aggregator_spool_open(struct aggregator_spool **out, struct arena *perm) MUST;
void aggregator_spool_close(struct aggregator *a);
uint64_t aggregator_spool_bytes(const struct aggregator *a); /* arrived, since the start */
unsigned aggregator_spool_streams(const struct aggregator *a,
                                  unsigned site); /* uploads that have not ended */
struct aggregator_sent {
    uint64_t bytes, of_bytes;
    uint64_t idle_ms; /* since its last chunk was stored, or it was opened */
};
/* Of the contribution to the round in flight that is on its way in; false: none is. */
bool aggregator_spool_sent(const struct aggregator *a, unsigned fragment, unsigned site,
                           struct aggregator_sent *out);
struct aggregator_pace { /* of a contribution of a site to fragment 0; all 0: of none yet */
    struct wire_pace pace;
    uint64_t round, ms; /* the payload took this long from the offer on */
};
const struct aggregator_pace *aggregator_spool_pace(const struct aggregator *a, unsigned site);
/* The organs read or move the contributions of this round, which is over, until the release. */
void aggregator_spool_hold(struct aggregator *a, unsigned fragment, uint64_t round);
enum err aggregator_spool_release(struct aggregator *a) MUST;
void aggregator_offer(void *self, const char *peer, const struct wire_contribution *m,
                      struct wire_answer *answer, void **upload);
void aggregator_chunk(void *self, void *upload, uint64_t offset, const uint8_t *data, size_t n,
                      struct wire_answer *answer);
enum err aggregator_store(void *self, void *upload, uint64_t offset, const uint8_t *data, size_t n);
void aggregator_stored(void *self, void *upload, uint64_t offset, size_t n, enum err e,
                       struct wire_answer *answer);
void aggregator_finish(void *self, void *upload, bool complete, struct wire_answer *answer);
void aggregator_verify(void *self, void *upload);
void aggregator_verified(void *self, void *upload, struct wire_answer *answer);
void aggregator_spool_path(const char *site, unsigned fragment, uint64_t round,
                           const struct digest *payload, char out[AGGREGATOR_PATH_MAX]);
/* Is the contribution of this ACCEPT stored, whole, and with its header? ERR_CORRUPT: it is not,
 * and its files are removed. squares: as codec.check. */
enum err aggregator_spool_found(struct aggregator *a, const struct journal_record *r,
                                double *squares) MUST;
/* Removes the spool directory of a round that is over; while a contribution in it is being
 * verified, the end of that verification removes it. */
enum err aggregator_spool_drop(struct aggregator *a, unsigned fragment, uint64_t round) MUST;
bool aggregator_spool_verifying(const struct aggregator *a, unsigned fragment, uint64_t round);
/* The same without a look at uploads; without the lock. */
enum err aggregator_spool_remove(struct aggregator *a, unsigned fragment, uint64_t round) MUST;
/* Removes spool directories of rounds that are over, but for the last round's where it may be
 * encoded again; and, unless the process before `ended` in good order, what had arrived in part: it
 * may be in memory alone, and no fsync would say so. */
enum err aggregator_spool_sweep(struct aggregator *a, bool ended) MUST;

/* ---- aggregator_answer.c ---- */
void aggregator_say(struct wire_answer *answer, enum round_outcome outcome, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void aggregator_put_text(char out[WIRE_TEXT_MAX], const char *text); /* text NULL: none */
void aggregator_say_no_memory(struct wire_answer *answer);           /* the site tries again */
struct aggregator_text { /* of several parts, as far as there is room */
    char *out;
    size_t used, size;
};
void aggregator_text_add(struct aggregator_text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- aggregator_quarantine.c ---- */
enum err aggregator_quarantine_open(struct aggregator_quarantine **out, struct arena *perm) MUST;
unsigned aggregator_strikes(const struct aggregator *a, unsigned site); /* in a row, so far */
bool aggregator_quarantined(const struct aggregator *a, unsigned site);
/* What such a site is told: why, and what a person does. */
void aggregator_quarantine_text(const struct aggregator *a, unsigned site,
                                char text[WIRE_TEXT_MAX]);
/* Begins or ends it; journalled before it takes effect. Nothing happens where it is so already. */
enum err aggregator_quarantine(struct aggregator *a, unsigned site, bool in, const char *why) MUST;
/* This contribution of the site was refused: strikes_max in a row are a quarantine. */
void aggregator_strike(struct aggregator *a, unsigned site, const struct wire_contribution *m,
                       const char *why);
/* The same for committed ones that hardly counted; any other one resets the count. */
void aggregator_strikes_commit(struct aggregator *a, const struct manifest *m);
void aggregator_quarantine_restore(struct aggregator *a, const struct journal_record *r);
/* The journal is lost: whom the newest manifests leave out as quarantined. */
enum err aggregator_quarantine_again(struct aggregator *a) MUST;

/* ---- aggregator_members.c ---- */
int aggregator_site(const struct aggregator *a, const char *name); /* its index; -1: no site */
void aggregator_members_begin(struct aggregator *a);               /* version 1: outer.sites */
/* A change of the roster, or of who was in it before (r->to 0), whose record is durable. */
void aggregator_members_change(struct aggregator *a, const struct journal_record *r,
                               const uint64_t *first);
/* The journal is lost: the roster of the newest manifest. A fragment whose newest manifest is of
 * the version before takes its round in flight under the new one: its accepts are lost with the
 * journal. */
void aggregator_members_take(struct aggregator *a, const struct manifest *m, const uint64_t *first);
/* Is the site in the newest roster, or in that of a round in flight? */
bool aggregator_serves_site(const struct aggregator *a, unsigned site);
const struct roster *aggregator_roster(const struct aggregator *a,
                                       unsigned fragment); /* of the round in flight */
/* Version and names of the round in flight; the entries are the caller's. */
void aggregator_members_manifest(const struct aggregator *a, unsigned fragment, struct manifest *m);

/* ---- aggregator_operate.c ---- */
void aggregator_operate(void *self, const char *peer, const struct wire_operate *m,
                        struct wire_answer *answer);
enum roles_call aggregator_act_call(enum wire_act act);
/* An OPERATOR record of the round in flight: its act is still to be carried out. */
void aggregator_order_restore(struct aggregator *a, const struct journal_record *r);

/* ---- aggregator_metrics.c ---- */
enum err aggregator_metrics_open(struct aggregator_metrics **out, struct arena *perm) MUST;
void aggregator_metrics_up(struct aggregator *a, unsigned site, uint64_t bytes);   /* arrived */
void aggregator_metrics_down(struct aggregator *a, unsigned site, uint64_t bytes); /* asked for */
/* The call was answered so. site: -1: the site that the certificate `peer` names, if there is one.
 */
void aggregator_metrics_refused(struct aggregator *a, int site, const char *peer,
                                enum round_outcome outcome);
void aggregator_metrics_commit(struct aggregator *a, const struct manifest *m);
/* The role is checked: an operator and an observer see every site, a site itself alone. */
void aggregator_metrics_operate(struct aggregator *a, const char *peer,
                                const struct wire_operate *m, struct wire_answer *answer);

/* ---- aggregator_organs.c: all organs, in the order of the list ---- */
enum err aggregator_organs_open(struct aggregator *a) MUST;
/* ERR_UNSUPPORTED: the record's kind is no organ's. */
enum err aggregator_organs_restore(struct aggregator *a, const struct journal_record *r) MUST;
enum err aggregator_organs_recovered(struct aggregator *a) MUST;
void aggregator_organs_begin(struct aggregator *a);
size_t aggregator_organs_records(const struct aggregator *a, struct journal_record *keep);
void aggregator_organs_bound(const struct aggregator *a, unsigned site,
                             struct wire_hello_answer *answer);
enum err aggregator_organs_work(struct aggregator *a) MUST;
enum err aggregator_organs_sealed(struct aggregator *a, unsigned fragment) MUST;
void aggregator_organs_manifest(const struct aggregator *a, struct manifest *m);
/* The organ that answers the act; NULL: none does. */
const struct organ_at_aggregator *aggregator_organ_of(const struct aggregator *a,
                                                      enum wire_act act);
/* Without the lock: the round in flight is committed, and its spool is there. */
void aggregator_organs_committed(struct aggregator *a, const struct manifest *m, bool moves);
bool aggregator_organs_read_spool(const struct aggregator *a);

/* ---- aggregator_commit.c ---- */
struct aggregator_beside {                 /* work that takes the place of a commit: */
    void (*outside)(struct aggregator *a); /* without the lock, and then */
    void (*end)(struct aggregator *a);     /* under it */
};
enum err aggregator_commit_open(struct aggregator_commit **out, struct arena *perm) MUST;
bool aggregator_commit_idle(const struct aggregator *a); /* none is in flight, nor other work */
/* The fragment's state is being replaced: acts are answered `full`, and so are snapshots. */
bool aggregator_commit_passes(const struct aggregator *a, unsigned fragment);
/* The manifest of the fragment's round in flight is made already. */
bool aggregator_commit_manifest(const struct aggregator *a, unsigned fragment);
/* A sealed fragment, none being in flight. Under the lock, as aggregator_commit_next. */
void aggregator_commit_begin(struct aggregator *a, unsigned fragment);
/* No commit being in flight, this takes its place. */
void aggregator_commit_beside(struct aggregator *a, const struct aggregator_beside *work);
/* After aggregator_commit_outside: the next stage. Nothing happens in COMMIT_IDLE. A full disk and
 * missing memory are tried again; any other error is final. */
enum err aggregator_commit_next(struct aggregator *a) MUST;
bool aggregator_commit_outside(void *self);         /* link_service.commit */
void aggregator_commit_close(struct aggregator *a); /* before the aggregator is */
/* Full disk or no memory: the sealed fragment is tried again later. Any other error halts.
 */
void aggregator_commit_later(struct aggregator *a, unsigned fragment, enum err e);
/* This accepted contribution of a round that is not sealed is no longer stored: the rest of its
 * file is removed, and the site sends it again. */
enum err aggregator_payload_again(struct aggregator *a, unsigned fragment, unsigned site) MUST;
/* Space for one more state, given back when a commit finds the disk full. */
enum err aggregator_reserve(struct aggregator *a) MUST;

#endif
