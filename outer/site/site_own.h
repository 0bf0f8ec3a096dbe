#ifndef SITE_OWN_H
#define SITE_OWN_H
/* What the files of the site share: site.c (the round), site_call.c (one call to the aggregator and
 * what each answer means), site_outbox.c (the contribution that is made once and sent until it is
 * settled), site_lane.c (rounds beside training), site_eager.c (where a site goes on meanwhile).
 */
#include <stdatomic.h>
#include "outer/diloco/metrics.h"
#include "outer/site/site.h"

enum { SITE_TEXT_MAX = 1024 };

struct site_box { /* the one contribution in memory; its file is the truth */
    bool valid;
    bool received; /* the aggregator said so in the epoch we are bound to */
    unsigned fragment;
    uint64_t round;
    enum codec_kind codec;
    size_t payload_bytes;
    struct digest payload, parent, grid;
    float weight;
    uint64_t data_cursor, max_local_steps_offline;
    uint8_t backlog; /* codec_backlog of residual' */
};
/* One exchange: a contribution, its buffers, its calls. site->main belongs to the thread that calls
 * site_round; the others are overlapped rounds', each with a thread of its own (site_lane.c). */
struct site_lane {
    struct site *site;
    unsigned peer; /* which aggregator it talks to */
    struct site_box box;
    uint8_t *payload;  /* of the box */
    float *residual;   /* of the box: residual' */
    double *forgotten; /* of the box; NULL without a leak */
    uint8_t *download; /* aggregate or snapshot; before that, the base of the delta */
    unsigned failures; /* calls without an answer in a row */
    uint64_t down_since_ms;
    struct site_times times;
    bool sat_out; /* of the round just done, or being done */
    /* An overlapped round; guarded by site->post while `flying`, the thread's until `landed`: */
    struct env_thread *thread;
    struct site_sending sending;
    struct site_landed landing;
    float *local; /* device: what the site trained, then the new theta */
    float *ahead; /* eager start of the round being sent, before that what the others sent; NULL
                     where the configuration is not eager */
    float others; /* weight of what the others sent */
    bool started; /* ahead is the start */
    bool lent;    /* to the caller, until it has collected */
    bool flying;  /* the thread is at work */
    bool stored;  /* the contribution is durable, or was not needed */
    bool away;    /* the aggregator does not answer it */
    bool landed;  /* adopted, or failed: e */
    enum err e;
    char why[SITE_TEXT_MAX];
};
struct site_peer {            /* one aggregator */
    uint64_t epoch, instance; /* highest epoch seen, durable before it is answered */
};
struct site {
    struct env *env;
    struct link *link;
    struct outer_state *replica;
    struct site_options o;
    struct digest config;
    uint64_t incarnation, instance; /* of this process */
    struct site_peer peer[WIRE_AGGREGATORS_MAX];
    uint32_t roster_version;
    bool heard;                                /* an aggregator answered a hello of this process */
    bool told_over;                            /* that all rounds were on record at the start */
    uint64_t round_there[ROUND_FRAGMENTS_MAX]; /* the aggregator's, as last heard */
    struct digest state_there[ROUND_FRAGMENTS_MAX]; /* its digest, from the last hello */
    struct digest
        accepted_there[ROUND_FRAGMENTS_MAX]; /* ours for round_there, from the last hello */
    uint64_t max_local_steps_offline[ROUND_FRAGMENTS_MAX];
    uint64_t jitter;
    struct outer_metrics_state *metrics; /* [fragments] */
    struct site_lane main;
    /* All above, the replica, the files. Whoever works is inside, and outside only during a call to
     * the aggregator and in a wait: nothing shared is half changed when another lane runs, and
     * whatever must outlast a call lies in the lane. */
    struct env_mutex *mutex;
    /* Overlapped rounds. Entered last, and held for moments only: the training thread needs no
     * other. */
    struct env_mutex *post;
    struct site_lane *lane;
    unsigned lanes;
    atomic_bool closing;        /* waits end as if asked to stop */
    enum err failed;            /* of a lane after it was collected */
    char why[SITE_TEXT_MAX];    /* its message */
    char notice[SITE_TEXT_MAX]; /* of a lane, for the caller's thread; "": none */
};

/* site.c: on a lane, inside the gate */
enum err site_round_on(struct site_lane *l, const struct site_sending *w, float *local) MUST;
/* Theta of a recorded state, or of the newest where that one is not kept. */
enum err site_theta_to(struct site *s, unsigned fragment, uint64_t round, float *local) MUST;
enum err site_report_on(struct site_lane *l, const struct site_sending *w) MUST;

/* site_lane.c */
enum err site_lane_make(struct site_lane *l, struct site *s, struct arena *perm) MUST; /* buffers */
unsigned site_lanes_count(const struct schedule *s, int64_t max_local_steps_offline);
enum err site_lanes_open(struct site *s, struct arena *perm) MUST;
void site_lanes_settle(struct site *s); /* until what has landed is reported */
void site_lanes_end(struct site *s);    /* the threads; calls under way come back first */
void site_lanes_free(struct site *s);
void site_lane_stored(struct site_lane *l);
void site_lane_away(struct site_lane *l, bool away);
void site_lane_notice(struct site_lane *l, const char *text);

/* site_call.c */
/* Of a call about a fragment: from here on the lane talks to the aggregator that serves it. */
struct wire_head site_head(struct site_lane *l, unsigned fragment);
enum err site_identify(struct site *s) MUST; /* a new incarnation, durable */
enum err site_hello(struct site_lane *l,
                    bool has_state) MUST; /* until answered; fills *_there of its fragments */
enum err site_hello_once(struct site_lane *l, bool has_state) MUST; /* ERR_LINK: no answer */
/* An answer other than the hoped-for one. ERR_OK: what had to be done is done, ask again. */
enum err site_react(struct site_lane *l, const struct wire_answer *a) MUST;
/* e of a call: ERR_LINK waits with back-off and gives ERR_OK with *again set; ERR_OK clears the
 * back-off. */
enum err site_called(struct site_lane *l, enum err e, bool *again) MUST;
enum err site_wait(struct site_lane *l, uint64_t ms) MUST; /* ERR_STOPPED */
/* Out of the gate for a call or a wait, and back: what is shared may have changed. */
void site_unlock(struct site *s);
void site_lock(struct site *s);
void site_notice(struct site_lane *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* site_eager.c: eager starts, of the lanes of overlapped rounds */
bool site_eager_due(const struct site_lane *l, const struct site_sending *w);
/* Before the round's contribution is made: the others' part of the last mean. The lane's box is
 * lost. */
enum err site_eager_others(struct site_lane *l, const struct site_sending *w) MUST;
/* With the contribution in the lane, before it is stored: the start, durable. */
enum err site_eager_make(struct site_lane *l, const struct site_sending *w) MUST;
/* lane->ahead, as stored; the committed theta where the round has no start: it sat out. */
enum err site_eager_begin(struct site_lane *l, const struct site_sending *w) MUST;
/* The start of a round into base. *found false: there is none. */
enum err site_eager_load(struct site_lane *l, unsigned fragment, uint64_t round, float *base,
                         bool *found) MUST;
enum err site_eager_drop(struct site_lane *l, unsigned fragment,
                         uint64_t round) MUST; /* sits out */

/* site_outbox.c */
const struct manifest_entry *site_own_entry(const struct site *s, const struct manifest *m);
enum err site_outbox_load(struct site_lane *l, unsigned fragment,
                          uint64_t round) MUST; /* box.valid: found */
enum err site_outbox_make(struct site_lane *l, const struct site_sending *w,
                          float *local) MUST; /* S1-S3 of the replica's round; local becomes z */
enum err site_outbox_send(struct site_lane *l) MUST; /* S4, S5: until received or overtaken */
/* S8 into the replica's spare; the box of that round is loaded when there is one. */
enum err site_outbox_settle(struct site_lane *l, unsigned fragment, const struct manifest *m) MUST;
enum err site_outbox_prune(struct site_lane *l, unsigned fragment) MUST;

#endif
