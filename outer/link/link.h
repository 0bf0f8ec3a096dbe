#ifndef LINK_H
#define LINK_H
/* The seam between site and aggregator: grpc (link_grpc.c: real, mutual TLS 1.3) and sim
 * (link_sim.c: in memory, virtual time, seeded faults). Sites dial; all the aggregator has to say
 * is the answer to a call. A site's calls block the calling thread; ERR_LINK means "not delivered
 * or no answer": back off and ask again, everything may come twice.
 */
#include "outer/link/ledger.h"
#include "outer/link/wire.h"

struct link_counters {                 /* bytes by layer, both directions, since open */
    uint64_t payload_up, payload_down; /* contributions; aggregates and snapshots */
    uint64_t messages_up,
        messages_down; /* protobuf bytes, gRPC's 5-byte prefix included, payload included */
    uint64_t wire_up,
        wire_down; /* the kernel's counters of this process's sockets to the aggregator's port: TLS
                    * and HTTP/2 included, what TCP sent again once; 0: unknown */
};

struct link; /* a site's end */
struct link_ops {
    enum err (*hello)(struct link *l, const struct wire_hello *m, struct wire_hello_answer *answer);
    /* Offers, sends what the aggregator does not have yet, over as many connections as configured,
     * waits for the final answer. */
    enum err (*contribute)(struct link *l, const struct wire_contribution *m,
                           const uint8_t *payload, struct wire_answer *answer);
    /* Held by the aggregator until committed, at most hold_ms; then PENDING. */
    enum err (*poll)(struct link *l, const struct wire_poll *m, uint32_t hold_ms,
                     struct wire_poll_answer *answer);
    /* Exactly size_bytes into out (the caller knows the size: configuration or manifest), from
     * m->offset on. answer.outcome NONE: complete. ERR_LINK: out is good up to answer->offset, and
     * in the blocks behind it as answer->blocks says; called again with that answer and that out,
     * only what is missing comes. The caller zeroes the answer before the first call, and verifies
     * the digest. */
    enum err (*fetch)(struct link *l, const struct wire_fetch *m, uint8_t *out, size_t size_bytes,
                      struct wire_answer *answer);
    enum err (*report)(struct link *l, const struct wire_report *m, struct wire_answer *answer);
    enum err (*leave)(struct link *l, const struct wire_leave *m, struct wire_answer *answer);
    void (*counters)(struct link *l, struct link_counters *out);
    void (*close)(struct link *l);
};
struct link {
    const struct link_ops *ops;
};

struct link_content {    /* what a fetch delivers */
    const uint8_t *data; /* borrowed until fetched(source) */
    size_t size_bytes;
    void *source;
};
/* What the aggregator implements. The link calls it under one lock, never concurrently, but for
 * store and verify, which are for what a slow disk and a large payload make long: meanwhile all
 * other calls are answered. peer is the verified URI SAN (atoll://run/role/name) of the caller,
 * checked per call by the service itself. Must not block but on storage. */
struct link_service {
    void *self;
    /* Is this peer one of the run's? Without the lock, any thread, at once. Few calls are open at a
     * time for all that are not. NULL: every peer is. */
    bool (*known)(void *self, const char *peer);
    void (*hello)(void *self, const char *peer, const struct wire_hello *m,
                  struct wire_hello_answer *answer);
    /* RESUME with *upload set: chunks of what answer->blocks lacks follow. Any other outcome is
     * final. A newer stream of the same site and fragment makes the older upload stale: its next
     * chunk answers SUPERSEDED. */
    void (*offer)(void *self, const char *peer, const struct wire_contribution *m,
                  struct wire_answer *answer, void **upload);
    /* NONE: stored, or there already; PENDING: wanted, store and stored follow; RESUME: does not
     * follow what is there of its block; anything else is final as well. The link has checked CRC
     * and size; n <= 1 MiB. Chunks of one upload may come from several streams, in any order of
     * blocks. */
    void (*chunk)(void *self, void *upload, uint64_t offset, const uint8_t *data, size_t n,
                  struct wire_answer *answer);
    /* Without the lock, beside any other call and other stores of the same upload. */
    enum err (*store)(void *self, void *upload, uint64_t offset, const uint8_t *data, size_t n);
    /* Under the lock, in the thread of that store: what became of it, with its sentence. The answer
     * is chunk's. */
    void (*stored)(void *self, void *upload, uint64_t offset, size_t n, enum err e,
                   struct wire_answer *answer);
    /* Exactly once for each upload that offer set, when no store of it is under way. complete: no
     * more comes and nothing was wrong: when all bytes are there PENDING: verify and verified
     * follow; else RESUME. Not complete: chunk() gave a final answer; releases the upload; answer
     * is ignored. */
    void (*finish)(void *self, void *upload, bool complete, struct wire_answer *answer);
    /* Without the lock, beside any other call: verifies, makes durable. */
    void (*verify)(void *self, void *upload);
    /* Under the lock: RECEIPT or refusal; releases the upload. */
    void (*verified)(void *self, void *upload, struct wire_answer *answer);
    /* PENDING: the link holds the call and asks again after work() ran, until the caller's hold
     * time ends. */
    void (*poll)(void *self, const char *peer, const struct wire_poll *m,
                 struct wire_poll_answer *answer);
    /* NONE: the part of out->data from m->offset on is streamed. */
    void (*fetch)(void *self, const char *peer, const struct wire_fetch *m,
                  struct link_content *out, struct wire_answer *answer);
    void (*fetched)(void *self, void *source);
    void (*report)(void *self, const char *peer, const struct wire_report *m,
                   struct wire_answer *answer);
    void (*leave)(void *self, const char *peer, const struct wire_leave *m,
                  struct wire_answer *answer);
    /* Once at the start, after every hello, offer, finish, report and leave, and at the time the
     * last work() returned: commits what is ready, ticks the round. Returns when it wants to run
     * next (in clock_mono_ms(); UINT64_MAX: only after a call). *stop:
     * halt serving; work() is not called again. */
    uint64_t (*work)(void *self, bool *stop);
};

/* A chunk, and the end, in one go: for callers without concurrent calls. An empty chunk is NONE.
 */
void link_service_chunk(const struct link_service *s, void *upload, uint64_t offset,
                        const uint8_t *data, size_t n, struct wire_answer *answer);
void link_service_finish(const struct link_service *s, void *upload, bool complete,
                         struct wire_answer *answer);
/* store, stored, verify and verified of a service that never says PENDING: assert. */
enum err link_service_no_store(void *self, void *upload, uint64_t offset, const uint8_t *data,
                               size_t n);
void link_service_no_stored(void *self, void *upload, uint64_t offset, size_t n, enum err e,
                            struct wire_answer *answer);
void link_service_no_verify(void *self, void *upload);
void link_service_no_verified(void *self, void *upload, struct wire_answer *answer);

struct link_tls { /* PEM texts' paths */
    const char *ca, *certificate, *key;
};
enum {
    LINK_STREAMS_MAX = 16,
    LINK_RECEIVE_MIB = 160,
    LINK_RECEIVE_MIB_MIN = 76, /* 64 and 6 for each stream that is received at a time: 16, 2 */
    LINK_FEW_SITES = 4,
    LINK_LINE_MIB = 256 /* so few have receive windows as long as their lines; for each so much */
};
struct link_dial {
    const char *target;      /* host:port */
    const char *server_name; /* NULL: from target */
    struct link_tls tls;
    uint32_t keepalive_ms; /* 0: the default 20000; tests use less */
    unsigned streams;      /* connections for bulk, at most; 0: 1 */
    uint32_t look_ms;      /* how often the expiry of certificates is looked at; 0: once a day */
    uint64_t rate_up, rate_down; /* bulk, bytes of payload per second; 0: as fast as it goes */
    ledger_sink *book; /* gets a row for every call when it has ended, and the kernel's counters;
                          NULL: none */
    void *book_self;
};
struct link_listen {
    const char *address; /* host:port; port 0 picks one */
    struct link_tls tls;
    uint32_t keepalive_ms;
    uint32_t look_ms;       /* as above */
    unsigned sites;         /* that may come; 0: not known, many */
    uint32_t self_call_ms;  /* how often it calls its own port, over a new connection; 0: never */
    uint64_t receive_bytes; /* memory for what comes in and is not yet stored, of all sites
                               together; 0: link_receive_bytes */
    ledger_sink *book;      /* as above, with the site's name */
    void *book_self;
};
struct link_server;

/* First thing in main of a process that dials or serves: malloc settings without which gRPC gives
 * memory back and takes it again at every message (15-40 % of its CPU). Price: up to 1 GiB of freed
 * heap stays resident. */
void link_tune(void);
/* What a server of that number of sites takes when nothing is set: windows for their lines, or, for
 * many, LINK_RECEIVE_MIB. */
uint64_t link_receive_bytes(unsigned sites);
/* Does not connect yet: the first call does. No system roots, no plaintext. Files replaced by
 * rename are used from the next call on; the server's from the next connection on. */
enum err link_open(struct link **l, const struct link_dial *d) MUST;
enum err link_serve(struct link_server **s, const struct link_listen *l,
                    const struct link_service *service, int *port) MUST; /* ERR_BUSY: port in use */
bool link_stopped(const struct link_server *s); /* the service asked to halt */
/* Its own calls succeeded once and do not any more: end the process, and start it again. */
bool link_silent(const struct link_server *s);
/* One connection, one call to gRPC's health service: ERR_OK when an aggregator answers there that
 * this certificate's authority vouches for; else why not. */
enum err link_probe(const struct link_dial *d, uint32_t timeout_ms) MUST;
void link_shutdown(struct link_server *s,
                   uint32_t grace_ms); /* returns when all calls have ended */

#endif
