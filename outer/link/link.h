/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_H
#define LINK_H
/* The seam between site and aggregator: grpc (link_grpc.c: real, mutual TLS 1.3) and sim
 * (outer/sim/link_line.c: virtual time; tests/sim/link_sim.c: with seeded faults). Sites dial the
 * aggregator; the aggregator only answers calls. A site's calls block the calling thread. ERR_LINK
 * means "not delivered, or no answer": the caller waits and repeats the call. Every message may
 * arrive twice.
 */
#include "outer/link/dial.h"
#include "outer/link/ledger.h"
#include "outer/link/path.h"
#include "outer/wire/wire.h"

struct link_counters {                 /* bytes by layer, both directions, since open */
    uint64_t payload_up, payload_down; /* contributions; aggregates and snapshots */
    uint64_t messages_up,
        messages_down; /* protobuf bytes, gRPC's 5-byte prefix included, payload included */
    uint64_t wire_up,
        wire_down; /* the kernel's counters of this process's sockets to the aggregator's port: TLS
                      and HTTP/2 included, retransmitted bytes counted once; 0: unknown */
};

struct link; /* a site's end */
struct link_ops {
    enum err (*hello)(struct link *l, const struct wire_hello *m, struct wire_hello_answer *answer);
    /* Offers the contribution, sends the bytes that the aggregator has not yet over the configured
     * number of connections, and waits for the final answer. */
    enum err (*contribute)(struct link *l, const struct wire_contribution *m,
                           const uint8_t *payload, struct wire_answer *answer);
    /* The aggregator holds the call until the round is committed, at most hold_ms; then it answers
     * PENDING. */
    enum err (*poll)(struct link *l, const struct wire_poll *m, uint32_t hold_ms,
                     struct wire_poll_answer *answer);
    /* Reads exactly size_bytes into `out`, from m->offset on; the caller knows the size from the
     * configuration or the manifest. answer->outcome NONE: complete. ERR_LINK: `out` is valid up to
     * answer->offset, and in later blocks as answer->blocks says; a repeated call with the same
     * answer and `out` fetches only the missing bytes. The caller zeroes the answer before the
     * first call and verifies the digest. */
    enum err (*fetch)(struct link *l, const struct wire_fetch *m, uint8_t *out, size_t size_bytes,
                      struct wire_answer *answer);
    enum err (*report)(struct link *l, const struct wire_report *m, struct wire_answer *answer);
    enum err (*leave)(struct link *l, const struct wire_leave *m, struct wire_answer *answer);
    enum err (*mask)(struct link *l, const struct wire_mask *m, struct wire_mask_answer *answer);
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
/* What the aggregator implements. The link calls these functions under one lock, one at a time.
 * Exceptions are known, revoked, store, verify and commit: the last three may take long (slow disk,
 * large payload, large state), and other calls are answered meanwhile. `peer`: verified URI SAN of
 * the caller (atoll://run/role/name); the service checks it at each call. Only storage may block.
 */
struct link_service {
    void *self;
    /* True: the peer is in the run's roster. Called without the lock, from any thread; must not
     * block. The link limits the open calls of all unknown peers together. NULL: every peer is
     * known. */
    bool (*known)(void *self, const char *peer);
    /* Why calls with this certificate are refused; NULL: they are not. Called as known, at each
     * call and about once a second during it: a call that is refused is ended. The service checks
     * offers, chunks and verified payloads again. NULL: no certificate is revoked. */
    const char *(*revoked)(void *self, const char *peer, const struct wire_certificate *c);
    void (*hello)(void *self, const char *peer, const struct wire_hello *m,
                  struct wire_hello_answer *answer);
    /* RESUME with *upload set: the site sends the chunks that are missing in answer->blocks. Any
     * other outcome is final. A newer stream of the same site and fragment supersedes the older
     * upload: the older one's next chunk answers SUPERSEDED. */
    void (*offer)(void *self, const char *peer, const struct wire_contribution *m,
                  struct wire_answer *answer, void **upload);
    /* NONE: stored now or earlier. PENDING: the link calls store, then stored. RESUME: the chunk
     * does not continue the stored part of its block. Any other outcome is final. The link has
     * checked CRC and size; n <= 1 MiB. Chunks of one upload may come from several streams, in any
     * order of blocks. */
    void (*chunk)(void *self, void *upload, uint64_t offset, const uint8_t *data, size_t n,
                  struct wire_answer *answer);
    /* Writes the chunk. Called without the lock; other calls and other stores of the same upload
     * may run meanwhile. */
    enum err (*store)(void *self, void *upload, uint64_t offset, const uint8_t *data, size_t n);
    /* Called under the lock, in the thread of store, with the result of store. The answer has the
     * meanings of chunk's answer. */
    void (*stored)(void *self, void *upload, uint64_t offset, size_t n, enum err e,
                   struct wire_answer *answer);
    /* Called exactly once for each upload that offer set, when no store of it is running. complete:
     * the site has ended the upload without an error; PENDING: all bytes are stored, verify and
     * verified follow; RESUME: bytes are missing. Not complete: chunk() gave a final answer; finish
     * releases the upload and the answer is ignored. */
    void (*finish)(void *self, void *upload, bool complete, struct wire_answer *answer);
    /* Verifies the upload's digest and makes the upload durable. Called without the lock; other
     * calls may run meanwhile. */
    void (*verify)(void *self, void *upload);
    /* Under the lock: RECEIPT or refusal; releases the upload. */
    void (*verified)(void *self, void *upload, struct wire_answer *answer);
    /* PENDING without `wants`: the link holds the call and calls poll again after each work(),
     * until the caller's hold time ends. */
    void (*poll)(void *self, const char *peer, const struct wire_poll *m,
                 struct wire_poll_answer *answer);
    /* NONE: the link streams out->data from m->offset on. */
    void (*fetch)(void *self, const char *peer, const struct wire_fetch *m,
                  struct link_content *out, struct wire_answer *answer);
    void (*fetched)(void *self, void *source);
    void (*report)(void *self, const char *peer, const struct wire_report *m,
                   struct wire_answer *answer);
    void (*leave)(void *self, const char *peer, const struct wire_leave *m,
                  struct wire_answer *answer);
    /* NULL: the service has no secure aggregation; every request is answered INVALID. */
    void (*mask)(void *self, const char *peer, const struct wire_mask *m,
                 struct wire_mask_answer *answer);
    void (*operate)(void *self, const char *peer, const struct wire_operate *m,
                    struct wire_answer *answer);
    /* Commits complete rounds and advances the round's clock. Called once at the start, after every
     * hello, offer, finish, report, leave, mask and operate, and at the time that the last work()
     * returned. Returns the time of the next call in clock_mono_ms(); UINT64_MAX: only after
     * another call. *stop: the server stops once commit() has nothing left to do. */
    uint64_t (*work)(void *self, bool *stop);
    /* The part of a commit that takes long. Called without the lock after each work(), in the
     * thread of work(); other calls may run meanwhile. True: work() is called again, at once. */
    bool (*commit)(void *self);
};

/* chunk, store and stored in one call; finish, verify and verified in one call. For callers without
 * concurrent calls. An empty chunk answers NONE.
 */
void link_service_chunk(const struct link_service *s, void *upload, uint64_t offset,
                        const uint8_t *data, size_t n, struct wire_answer *answer);
void link_service_finish(const struct link_service *s, void *upload, bool complete,
                         struct wire_answer *answer);
/* The answer of a service without secure aggregation is INVALID. */
void link_service_mask(const struct link_service *s, const char *peer, const struct wire_mask *m,
                       struct wire_mask_answer *answer);
/* Does the aggregator hold this poll? */
bool link_service_holds(const struct wire_poll_answer *answer);
/* work() and all of commit() in one call, for callers without concurrent calls. */
uint64_t link_service_work(const struct link_service *s, bool *stop);
/* commit of a service whose work() leaves nothing to it. */
bool link_service_no_commit(void *self);
/* store, stored, verify and verified of a service that never answers PENDING: a call is a bug
 * (assertion). */
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
    LINK_STREAMS_MAX = PATH_STREAMS_MAX,
    LINK_RECEIVE_MIB = 160,
    LINK_RECEIVE_MIB_MIN = 76, /* 64 MiB, and 6 MiB for each of two streams received at a time;
                                  LINK_RECEIVE_MIB holds 16 streams */
    LINK_CALLS_PER_S = 1000,   /* a round of a fragment is four calls of a site (contribute, poll,
                                  fetch, report), and a connection more for each 256th of a large
                                  payload; a round is at least a dozen fsyncs of the aggregator, so
                                  at 10 ms a round a site makes 400 calls a second */
    LINK_CALLS_BURST = 10,     /* times calls_per_s */
    LINK_FEW_SITES = 4,
    LINK_LINE_MIB = 256 /* memory for each site when there are at most LINK_FEW_SITES: the receive
                           window then covers the link's bandwidth-delay product */
};
struct link_dial {
    const char *target;             /* host:port */
    const char *server_name;        /* NULL: from target */
    const struct dial_proxy *proxy; /* NULL or zeroed: none; borrowed by link_open only */
    struct link_tls tls;
    uint32_t keepalive_ms; /* 0: the default 20000; tests use less */
    unsigned streams;      /* largest number of connections for bulk data; 0: 1 */
    bool automatic;   /* the link chooses their number and paces them (outer/link/path.h); `streams`
                         is not read */
    bool bbr;         /* automatic: it asks the kernel for BBR, at both ends */
    uint32_t look_ms; /* interval between checks of the certificates' expiry, ms; 0: one day */
    uint64_t rate_up, rate_down; /* limit of bulk data, payload bytes per second; 0: no limit */
    ledger_sink *
        book; /* receives one row for each call at its end, and the kernel's counters; NULL: none */
    void *book_self;
};
struct link_listen {
    const char *address; /* host:port; port 0 picks one */
    struct link_tls tls;
    uint32_t keepalive_ms;
    uint32_t look_ms;       /* as in link_dial */
    unsigned sites;         /* number of expected sites; 0: unknown, many */
    uint32_t calls_per_s;   /* of each identity; LINK_CALLS_BURST times as many at once. 0:
                               LINK_CALLS_PER_S */
    uint32_t self_call_ms;  /* interval between calls to its own port over a new connection, ms; 0:
                               never */
    uint64_t receive_bytes; /* memory for received bytes that are not yet stored, all sites
                               together; 0: link_receive_bytes */
    ledger_sink *book;      /* as in link_dial, with the site's name */
    void *book_self;
};
struct link_server;

/* Sets malloc's thresholds; main calls it first in a process that dials or serves. With the
 * defaults malloc returns memory to the kernel and maps it again at every message (15-40 % of
 * gRPC's CPU time). Cost: up to 1 GiB of freed heap stays resident. */
void link_tune(void);
/* Default of link_listen.receive_bytes: LINK_LINE_MIB for each of at most LINK_FEW_SITES sites,
 * else LINK_RECEIVE_MIB. */
uint64_t link_receive_bytes(unsigned sites);
/* Does not connect: the first call connects. No system roots, no plaintext. The site reads
 * certificate files that were replaced by rename at its next call, the server at the next
 * connection. */
enum err link_open(struct link **l, const struct link_dial *d) MUST;
enum err link_serve(struct link_server **s, const struct link_listen *l,
                    const struct link_service *service, int *port) MUST; /* ERR_BUSY: port in use */
bool link_stopped(const struct link_server *s);                          /* work() has set *stop */
void link_work_soon(struct link_server *s); /* work() has something to do; any thread */
/* True: calls to its own port succeeded earlier and fail now; the process must be restarted. */
bool link_silent(const struct link_server *s);
/* One connection and one call to gRPC's health service. ERR_OK: an aggregator answers whose
 * certificate is signed by the same authority. Else the error says why not. */
enum err link_probe(const struct link_dial *d, uint32_t timeout_ms) MUST;
/* Sends messages of the health service over d->streams connections, twice as long ones each time
 * until one takes half a second or 32 MiB are sent: bounded. *bytes_per_s: of the last one, without
 * the round trip. *rtt_s: of the shortest empty call. *chosen: what the link has chosen after
 * it. */
enum err link_probe_rate(const struct link_dial *d, uint32_t timeout_ms, double *bytes_per_s,
                         double *rtt_s, struct path *chosen) MUST;
/* What the link has chosen so far: for what it sends, with the reason; and the number of
 * connections that the other end asks for downloads, 0: it has not said. For doctor and probe. */
void link_choice(struct link *l, struct path *up, unsigned *down);
/* One connection and one call of an operator. ERR_LINK: no answer within timeout_ms; the call may
 * have taken effect, and may be repeated. */
enum err link_operate(const struct link_dial *d, const struct wire_operate *m,
                      struct wire_answer *answer, uint32_t timeout_ms) MUST;
/* The same over a link that is open. */
enum err link_operate_on(struct link *l, const struct wire_operate *m,
                         struct wire_answer *answer) MUST;
void link_shutdown(struct link_server *s,
                   uint32_t grace_ms); /* returns when all calls have ended */

#endif
