#ifndef SITE_OWN_H
#define SITE_OWN_H
/* What the files of the site share: site.c (the round), site_call.c (one call to the aggregator and
 * what each answer means), site_outbox.c (the contribution that is made once and sent until it is
 * settled).
 */
#include "outer/site.h"

struct site_box { /* the one contribution in memory; its file is the truth */
    bool valid;
    bool received; /* the aggregator said so in the epoch we are bound to */
    unsigned fragment;
    uint64_t round;
    enum codec_kind codec;
    size_t payload_bytes;
    struct digest payload, parent, grid;
    float weight;
    uint64_t data_cursor, extra_steps;
    uint8_t backlog; /* codec_backlog of residual' */
};
struct site {
    struct world *world;
    struct link *link;
    struct member *member;
    struct site_options o;
    struct digest config;
    uint64_t incarnation, instance;      /* of this process */
    uint64_t epoch, aggregator_instance; /* highest epoch seen, durable before it is answered */
    uint32_t roster_version;
    uint64_t round_there[ROUND_FRAGMENTS_MAX];      /* the aggregator's, as last heard */
    struct digest state_there[ROUND_FRAGMENTS_MAX]; /* its digest, from the last hello */
    struct digest
        accepted_there[ROUND_FRAGMENTS_MAX]; /* ours for round_there, from the last hello */
    uint64_t extra_steps[ROUND_FRAGMENTS_MAX];
    struct site_box box;
    uint8_t *payload;  /* of the box */
    float *residual;   /* of the box: residual' */
    double *forgotten; /* of the box; NULL without a leak */
    float *z;          /* largest fragment */
    uint8_t *download; /* aggregate or snapshot */
    unsigned failures; /* calls without an answer in a row */
    uint64_t down_since_ms, jitter;
    struct site_times times;
};

/* site_call.c */
struct wire_head site_head(const struct site *s);
enum err site_identify(struct site *s) MUST;                   /* a new incarnation, durable */
enum err site_hello(struct site *s, bool has_state) MUST;      /* until answered; fills *_there */
enum err site_hello_once(struct site *s, bool has_state) MUST; /* ERR_LINK: no answer */
/* An answer other than the hoped-for one. ERR_OK: what had to be done is done, ask again. */
enum err site_react(struct site *s, const struct wire_answer *a) MUST;
/* e of a call: ERR_LINK waits with back-off and gives ERR_OK with *again set; ERR_OK clears the
 * back-off. */
enum err site_called(struct site *s, enum err e, bool *again) MUST;
enum err site_wait(struct site *s, uint64_t ms) MUST; /* ERR_STOPPED */
void site_notice(struct site *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* site_outbox.c */
enum err site_outbox_load(struct site *s, unsigned fragment,
                          uint64_t round) MUST; /* box.valid: found */
enum err site_outbox_make(struct site *s, unsigned fragment, const float *local, float weight,
                          uint64_t data_cursor) MUST; /* S1-S3 of the member's round */
enum err site_outbox_send(struct site *s) MUST;       /* S4, S5: until received or overtaken */
/* S8 into the member's spare; the box of that round is loaded when there is one. */
enum err site_outbox_settle(struct site *s, unsigned fragment, const struct manifest *m) MUST;
enum err site_outbox_prune(struct site *s, unsigned fragment) MUST;

#endif
