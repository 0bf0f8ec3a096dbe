/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WIRE_H
#define WIRE_H
/* The messages as plain structs, and their protobuf form (wire.c, the one file that includes
 * protobuf-c; proto/atoll.proto documents sender, moment, idempotence and largest size of each).
 * Sizes and counts from a peer are checked here, before memory is allocated; a decoder refuses
 * malformed messages and values over a limit.
 */
#include "kernels/base/arena.h"
#include "outer/wire/blocks.h"
#include "outer/protocol/signer.h"
#include "outer/protocol/manifest.h"
#include "outer/protocol/round.h"

enum {
    WIRE_MAJOR = 1,
    WIRE_MINOR = 3,
    WIRE_AGGREGATORS_MAX = 16,
    WIRE_ENDS_MAX = 16,
    WIRE_NAME_MAX = 64,
    WIRE_SETTING_MAX = 224, /* of a setting and its value, with NUL */
    WIRE_TEXT_MAX = 2048,
    WIRE_CONFIG_MAX = 65536,
    WIRE_CHUNK_BYTES = 1 << 20,
    WIRE_MESSAGE_MAX = WIRE_CHUNK_BYTES + 65536,
    WIRE_CHUNK_HEADER_MAX = 32, /* 2 varints of 10, a fixed32, a length of 4, and 4 tags, at most */
    WIRE_DECODE_BYTES_MAX =
        1 << 20 /* limit of a decoder's arena: the memory that one message may allocate */
};

struct wire_certificate { /* what a caller showed; zeros: nothing */
    struct digest sha256; /* of its DER bytes */
    char serial[48];      /* hexadecimal */
};
struct wire_head { /* in every request of a site */
    char run[WIRE_NAME_MAX];
    char site[WIRE_NAME_MAX];
    struct digest config; /* identity_digest: pinned keys but train.steps */
    uint32_t roster_version;
    uint64_t term, incarnation, instance;
    uint32_t aggregator; /* index of the addressed aggregator; fragments are dealt to aggregators in
                            turn */
    struct wire_certificate
        certificate; /* not sent: the receiving link sets it from the connection */
};
struct wire_proof { /* that the manifest of a state was signed (outer/identity/signed.h) */
    bool there;
    uint64_t term, instance, unix_ms; /* its envelope */
    uint8_t signature[SIGNER_BYTES];
};
struct wire_announcement { /* of a term; signed.h reads it */
    uint8_t bytes[SIGNER_ANNOUNCEMENT_MAX];
    size_t size_bytes; /* 0: none */
};
struct wire_fragment_state { /* hello and its answer */
    uint64_t round;
    struct digest state, manifest;
    struct digest
        accepted; /* answer: the payload accepted from this site for `round`; zero: none */
    bool sealed;
    uint64_t first;          /* answer: first round of this site under the newest roster */
    struct wire_proof proof; /* hello: of `manifest` */
    uint64_t final;          /* answer: rounds before this one are final */
    bool step_back;          /* answer: the round that made this state of the hello is given up */
    bool elsewhere;          /* hello: another process of this site holds the fragment; else zero */
};
struct wire_hello {
    struct wire_head head;
    uint32_t major, minor;
    const char *config; /* canonical text, to name differing keys; borrowed */
    bool has_state;
    uint32_t fragment_count;
    struct wire_fragment_state fragments[ROUND_FRAGMENTS_MAX];
    uint8_t identity[SIGNER_CERTIFICATE_MAX]; /* the site's certificate, DER */
    size_t identity_bytes;                    /* 0: none */
    struct wire_announcement announcement;    /* the highest that the site has seen */
};
struct wire_hello_answer {
    enum round_outcome outcome; /* worst over fragments: MISMATCH, ..., JOIN, BEHIND, CURRENT */
    char text[WIRE_TEXT_MAX];
    uint32_t minor;
    uint64_t term, instance;
    uint32_t roster_version;
    uint32_t fragment_count;
    struct wire_fragment_state fragments[ROUND_FRAGMENTS_MAX];
    uint32_t end_count;
    int64_t ends[WIRE_ENDS_MAX]; /* former values of train.steps, ascending */
    uint32_t site, sites;        /* roster_version > 1: index of this site, sites in the roster */
    struct wire_announcement announcement; /* of `term` and `instance` */
};
enum wire_supply { /* parts of what a site has, for an aggregator that is rebuilt */
                   WIRE_SUPPLY_NONE = 0,      /* a contribution */
                   WIRE_SUPPLY_MANIFEST = 1,  /* of the round, with its envelope */
                   WIRE_SUPPLY_AGGREGATE = 2, /* of the round */
                   WIRE_SUPPLY_STATE = 3,     /* number `round`: the bytes of a snapshot */
                   WIRE_SUPPLY_ANNOUNCED = 4, /* the file id/announced.N */
                   WIRE_SUPPLY_SEEN = 5,      /* the file id/site; the site's last part */
                   WIRE_SUPPLY_LAST = WIRE_SUPPLY_SEEN
};
struct wire_pace { /* of a site, between two contributions to fragment 0 */
    double trained_s,
        waited_s; /* trained_s in steps; waited_s while training waited. trained_s 0: not known */
    double exchange_s; /* mean of the rounds adopted in it: from their submission until then */
};
struct wire_contribution { /* header of a contribution; the payload follows in chunks */
    struct wire_head head;
    uint32_t fragment, codec;
    uint64_t round, payload_bytes, data_cursor, max_local_steps_offline;
    struct digest parent, grid, payload;
    float weight;
    uint8_t residual_ratio;          /* codec_residual_ratio */
    uint64_t charged;                /* steps of its privacy budget so far; 0: it has none */
    uint64_t transfer;               /* set by the link: streams that carry one transfer together */
    uint32_t stream;                 /* set by the link: 0: the leading stream; others join it */
    uint8_t signature[SIGNER_BYTES]; /* the site's (outer/identity/signed.h); zero: none */
    struct wire_pace pace;
    enum wire_supply supply;
};
struct wire_answer {
    enum round_outcome outcome;
    char text[WIRE_TEXT_MAX];
    uint64_t offset;      /* RESUME: the first byte that is missing; METRICS: index of the next
                              site, 0: none is left; RECORDS: where the next piece begins, as
                              asked for: none is there yet */
    struct blocks blocks; /* RESUME of an offer: the stored bytes; of a fetch: see link.h */
    uint64_t round;       /* aggregator's current round of the fragment; ROSTER_*: the version */
    uint64_t final;       /* of poll and report: rounds of the fragment before this one are final */
    uint64_t clock_ms;    /* of report: the aggregator's wall clock, Unix time; 0: not told */
    uint32_t retry_ms;    /* FULL */
};
struct wire_poll {
    struct wire_head head;
    uint32_t fragment;
    uint64_t round;
    uint32_t hold_ms; /* set by the link */
};
/* Steps of secure aggregation (docs/privacy-methods.md). On the wire: never renumber. */
enum wire_mask_step {
    WIRE_MASK_NONE = 0,
    WIRE_MASK_SETUP = 1,    /* public keys of the sites */
    WIRE_MASK_ANNOUNCE = 2, /* which sites the round has */
    WIRE_MASK_SIGN = 3,
    WIRE_MASK_REVEAL = 4,
    WIRE_MASK_LAST = WIRE_MASK_REVEAL
};
enum { WIRE_MASK_REQUEST_MAX = 30720, WIRE_MASK_ANSWER_MAX = 98304 };
struct wire_poll_answer {
    struct wire_answer answer; /* COMMIT, PENDING (text: the missing sites), GONE, ... */
    struct manifest manifest;  /* COMMIT */
    enum wire_mask_step wants; /* PENDING: what the round needs from this site */
    size_t body_bytes;         /* with wants: what the step's own call would answer; 0: ask there */
    uint8_t body[WIRE_MASK_ANSWER_MAX];
};
struct wire_mask {
    struct wire_head head;
    enum wire_mask_step step;
    uint32_t fragment, first; /* first: SETUP: index of the first site asked for */
    uint64_t round;           /* SETUP: the newest one of which this site has all pair keys */
    const uint8_t *body;      /* borrowed */
    size_t body_bytes;
};
struct wire_mask_answer {
    struct wire_answer answer;
    uint32_t number; /* SETUP: its number; ANNOUNCE: attempt */
    size_t body_bytes;
    uint8_t body[WIRE_MASK_ANSWER_MAX];
};
enum wire_what { WIRE_AGGREGATE = 0, WIRE_SNAPSHOT = 1 };
struct wire_fetch {
    struct wire_head head;
    enum wire_what what;
    uint32_t fragment;
    uint64_t round;      /* AGGREGATE: its round; SNAPSHOT: number of the state */
    uint64_t offset;     /* resume */
    uint64_t size_bytes; /* set by the link: bytes from `offset` on; 0: to the end */
    uint32_t
        chunk_bytes; /* set by the link: largest chunk of one message; 0: the aggregator chooses */
};
struct wire_report { /* the site has adopted a state; also the source of the live view */
    struct wire_head head;
    uint32_t fragment;
    uint64_t round; /* the site's state */
    struct digest state;
    int64_t step;
    double loss, tokens_per_second;
    uint64_t tokens, bytes_up, bytes_down;
};
struct wire_leave {
    struct wire_head head;
    char text[256];
};
enum wire_act {
    WIRE_STATUS = 0,
    WIRE_ABORT = 1,
    WIRE_QUARANTINE = 2,
    WIRE_READMIT = 3,
    WIRE_ROLLBACK = 4,
    WIRE_ROSTER_LIST = 5,
    WIRE_ROSTER_ADD = 6,
    WIRE_ROSTER_REMOVE = 7,
    WIRE_METRICS = 8,
    WIRE_RECORDS = 9,
    WIRE_SET_LIST = 10,
    WIRE_SET = 11,
    WIRE_ACT_LAST = WIRE_SET
};
struct wire_operate { /* an operator's; METRICS: an observer's and a site's too */
    enum wire_act act;
    char site[WIRE_NAME_MAX];            /* QUARANTINE, READMIT, ROSTER_ADD, ROSTER_REMOVE;
                                            METRICS: this one alone; empty: all */
    uint32_t fragment;                   /* STATUS, ABORT, ROLLBACK */
    uint64_t round;                      /* ABORT, ROLLBACK: the one in flight; SET: of fragment
                                            0, the first one under it; UINT64_MAX: the first
                                            possible one */
    uint64_t to;                         /* ROLLBACK: number of the state; METRICS: index of
                                            the first site; RECORDS, SET_LIST: `offset`
                                            of the last answer, 0 at first */
    uint64_t version;                    /* ROSTER_ADD, ROSTER_REMOVE: that the act makes; SET:
                                            number of the amendment, from 1 */
    char setting[WIRE_SETTING_MAX];      /* SET: "outer.every=200" */
    struct wire_certificate certificate; /* as in wire_head */
};
struct wire_chunk { /* of a contribution or a download; the data follows the header */
    uint64_t offset, total;
    uint32_t crc32c, size_bytes;
};

/* X(kind, struct, largest message in bytes). UPLOAD and DOWNLOAD are the first message of their
 * streams. */
#define WIRE_LIST(X)                                                                               \
    X(HELLO, wire_hello, 131072)                                                                   \
    X(HELLO_ANSWER, wire_hello_answer, 16384)                                                      \
    X(POLL, wire_poll, 1024)                                                                       \
    X(POLL_ANSWER, wire_poll_answer, 131072)                                                       \
    X(MASK, wire_mask, 32768)                                                                      \
    X(MASK_ANSWER, wire_mask_answer, 106496)                                                       \
    X(REPORT, wire_report, 1024)                                                                   \
    X(LEAVE, wire_leave, 1024)                                                                     \
    X(OPERATE, wire_operate, 1024)                                                                 \
    X(UPLOAD, wire_contribution, 1024)                                                             \
    X(FETCH, wire_fetch, 1024)                                                                     \
    X(DOWNLOAD, wire_answer, 4096)                                                                 \
    X(ANSWER, wire_answer, 8192)

_Static_assert(MANIFEST_BYTES_MAX + WIRE_TEXT_MAX + 1024 <= 131072,
               "a poll's answer holds a manifest of ROUND_SITES_MAX sites");

enum wire_kind {
#define X(kind, type, largest) WIRE_##kind,
    WIRE_LIST(X)
#undef X
        WIRE_KINDS
};

/* message: the struct that WIRE_LIST names. A message that a decoder would refuse is a bug
 * (assertion). */
enum err wire_encode(enum wire_kind kind, const void *message, struct arena *a, uint8_t **data,
                     size_t *size_bytes) MUST;
/* ERR_PROTO: malformed or over a limit. Borrowed members of the struct (config) are in the arena,
 * which the caller caps. */
enum err wire_decode(enum wire_kind kind, void *message, const uint8_t *data, size_t size_bytes,
                     struct arena *a) MUST;
size_t wire_largest(enum wire_kind kind);

/* Writes a chunk's header alone; the data is sent from its own memory, without a copy. Returns the
 * header's size in bytes. */
size_t wire_chunk_header(uint8_t out[WIRE_CHUNK_HEADER_MAX], const struct wire_chunk *c);
/* Reads the header at the start of a message of message_bytes. `head` holds the first head_bytes
 * (the whole message, or at least WIRE_CHUNK_HEADER_MAX). Checks: the header's form; the data ends
 * with the message, has at most WIRE_CHUNK_BYTES and is inside total. */
enum err wire_chunk_parse(struct wire_chunk *c, const uint8_t *head, size_t head_bytes,
                          size_t message_bytes, size_t *data_at) MUST;

#endif
