/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_H
#define SERVER_H
/* Private to outer/link/grpc: the aggregator's end. Its files, and the members of struct
 * link_server that each of them writes:
 *
 *   server.c: service, o, core, service_mutex, mutex, changed, limit, sockets. Start, credentials,
 *       end.
 *   server_admission.c: calls, limit, sockets. An arriving call: identity, limits, its thread, its
 *       ledger row.
 *   server_work.c: work. The work thread, small calls, held polls.
 *   server_stream.c: streams. Contributions: streams, chunks, buffers.
 *   server_slots.c: slots. The slots that limit the streams received at a time.
 *   server_fetch.c: sockets. Downloads.
 *   server_guard.c: guard, limit. Pending connections, its own certificate, calls to its own port.
 *   peer.c: looks, sockets. A site's connections and paths.
 *
 * The admission thread hands each call to a thread of its own: calls are few (a handful per site,
 * limited) and long (held polls, contributions). The service runs under one lock, except store and
 * verify, which run without it on the call's thread. The work thread calls work().
 */
#include <grpc/grpc_security.h>
#include <stdatomic.h>
#include "kernels/base/log.h"
#include "outer/link/grpc/link_call.h"
#include "outer/link/bucket.h"
#include "outer/link/grpc/link_path.h"
#include "outer/link/grpc/link_socket.h"
#include "outer/identity/tls.h"

enum {
    SERVER_CALLS_MAX = 2048,        /* running calls, all sites */
    SERVER_CALLS_PER_SITE_MAX = 64, /* running calls of one site: polls of fragments in flight, and
                                       up to twice LINK_STREAMS_MAX for bulk */
    SERVER_BUFFERS = 8,             /* of one chunk each, shared by all streams */
    SERVER_FIRST_MESSAGE_MS = 5000, /* from the start of a call to its first message */
    SERVER_SILENT_LOGGED = 16,
    SERVER_STRANGERS = 64
};
enum {
    LINK_UNKNOWN = LINK_METHODS,
    SERVER_REQUESTS
}; /* LINK_UNKNOWN: all methods that do not exist */

/* What the call's thread does with the call. */
enum server_verdict {
    SERVER_ADMITTED,
    SERVER_NO_IDENTITY, /* the certificate does not name exactly one URI */
    SERVER_REVOKED,     /* the service refuses this certificate */
    SERVER_METADATA,    /* its metadata is too large */
    SERVER_BUSY,        /* the site has too many running calls */
    SERVER_RATE         /* it makes too many calls a second */
};

/* State of a contribution's stream: only streams with a slot are received. */
enum slot_state {
    SLOT_NONE, /* not requested, refused, or released */
    SLOT_WAITING,
    SLOT_HELD,
    SLOT_SUPERSEDED, /* lost the slot to a newer stream of the same site and fragment */
    SLOT_SILENT      /* lost the slot: sent nothing while others waited */
};
struct server_slot { /* under the server's mutex */
    enum slot_state state;
    uint32_t fragment;
    bool joins;      /* it is not the leading stream of its contribution */
    uint64_t ticket; /* order of arrival */
    uint64_t bytes;  /* bytes of chunks since it got the slot */
    uint64_t since_ms;
    uint64_t mark_ms, mark_bytes, mark_socket; /* time and counters at its last progress */
};

struct server_wants { /* what the call's metadata says */
    bool health;      /* a call of gRPC's health check */
    bool paces, bbr;  /* a download: the site leaves its sockets to path.h, and lets it use BBR */
};
struct server_call {
    struct server_call *next;
    struct link_server *server;
    struct link_call *c;
    unsigned method; /* enum link_method, or LINK_UNKNOWN */
    enum server_verdict verdict;
    pthread_t thread;
    void *source; /* of a download; released when no slice points into it */
    char peer[TLS_URI_MAX];
    struct wire_certificate certificate;
    const char *revoked; /* why the service refuses it; NULL: it does not */
    bool known;          /* its peer is in the roster, and its certificate is not revoked */
    struct server_wants wants;
    uint64_t socket; /* socket cookie of its connection; 0: not found */
    struct server_slot slot;
};
struct request { /* one pending request for each method, and one for unknown methods */
    grpc_call *call;
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    grpc_call_details details; /* of an unknown method */
    unsigned method;
};
struct server_look { /* of a site */
    char peer[TLS_URI_MAX];
    uint64_t ms;           /* time of the last expiry check of its certificate */
    struct bucket calls;   /* how many it may make */
    struct link_path down; /* what it is sent; path.now.streams 0: nothing yet */
};
struct server_settings { /* never change once the server runs */
    char *ca, *certificate, *key, *address;
    struct link_tls files;
    char uri[TLS_URI_MAX]; /* this process's own URI */
    uint32_t keepalive_ms, look_ms, calls_per_s;
    uint64_t self_ms;        /* interval of calls to its own port, 0: never */
    unsigned sites;          /* expected; 0: not known */
    unsigned receiving_most; /* streams of contributions */
    ledger_sink *book;
    void *book_self;
};
struct server_core { /* gRPC's objects and the server's threads */
    grpc_completion_queue *cq, *notify;
    grpc_server *server;
    grpc_resource_quota *quota;
    void *methods[LINK_METHODS];
    pthread_t acceptor, worker, guard;
    _Atomic uint64_t stamp; /* of the files whose credentials are in use */
};
struct server_calls {
    struct request requests[SERVER_REQUESTS]; /* of the admission thread, without the mutex */
    struct server_call *running, *ended;      /* of `ended` the threads must be joined */
    unsigned count;
    struct bucket strangers[SERVER_STRANGERS]; /* how many calls peers may make that are not in the
                                                  roster, by the hash of their names; operators are
                                                  such */
};
struct server_work {
    bool due, stopping;
    atomic_bool stopped;
};
struct server_guard { /* of the guard thread alone, but for `silent` */
    atomic_bool silent;
    uint64_t looked_ms; /* at its own certificate */
    uint64_t next_ms;   /* time of the next call to its own port */
    unsigned failures;  /* consecutive ones */
    bool armed;         /* one call has succeeded */
};
struct server_streams { /* contributions */
    pthread_cond_t given_back, stored;
    uint8_t *buffers[SERVER_BUFFERS]; /* WIRE_CHUNK_BYTES each, allocated at first use; the first
                                         `free` are unused */
    unsigned made, free;
    struct transfer *transfers;
};
struct server_slots {
    unsigned receiving; /* streams of contributions */
    uint64_t tickets;   /* issued so far */
    double rate;        /* bytes per second of one stream, exponential mean; 0: none yet */
    char logged[SERVER_SILENT_LOGGED][TLS_URI_MAX]; /* sites already logged as silent */
    unsigned next;
};
struct server_looks {
    struct server_look *list; /* [count], the first `used` are set */
    unsigned count, used;
    struct link_watch watch; /* of downloads; not under the mutex */
};
struct link_server {
    struct link_service service;
    struct server_settings o;
    struct server_core core;
    struct server_guard guard;
    pthread_mutex_t service_mutex; /* the service's functions */
    pthread_mutex_t mutex;         /* guards all below */
    pthread_cond_t changed;
    struct server_work work;
    struct server_calls calls;
    struct server_streams streams;
    struct server_slots slots;
    struct server_looks looks;
    struct log_limit limit; /* of what peers make it log */
    struct link_sockets sockets;
};

/* ---- server_admission.c ---- */
void server_request_next(struct link_server *s, unsigned method);
void server_requests_free(struct link_server *s);
void *server_admission_main(void *server);
void server_calls_join(struct link_server *s); /* the threads of calls that have ended */
/* Ends the open calls of revoked certificates. */
void server_revoked_end(struct link_server *s);
void server_book_sockets(struct link_server *s); /* under its mutex */

/* ---- peer.c ---- */
/* Reads the counters of the call's connection. When a connection breaks, bytes after the last
 * reading are lost to the ledger. */
void server_socket_read(const struct server_call *call);
/* The site's entry; when the table is full, the first one. Under the server's mutex. */
struct server_look *server_look_of(struct link_server *s, const char *peer);
const char *server_site_of(const char *peer); /* atoll://run/site/NAME -> NAME; "-" */
enum err server_looks_open(struct link_server *s, unsigned sites) MUST; /* sites 0: not known */
void server_looks_close(struct link_server *s);
enum err server_looks_watch(struct link_server *s) MUST; /* the paths of downloads, from now on */
/* Around a download: its site's connections. */
void server_path_begin(struct server_call *call);
void server_path_end(struct server_call *call);

/* ---- server_work.c ---- */
void *server_work_main(void *server);
void server_work_soon(struct link_server *s);
void server_work_stop(struct link_server *s);
void server_wake_held(struct link_server *s);
bool server_stopping(struct link_server *s);
bool server_answer(struct link_call *c, enum wire_kind kind, const void *answer, struct arena *a);
/* NULL: the message did not arrive in time, and the call was cancelled; or the stream ended. */
grpc_byte_buffer *server_first_message(struct link_call *c);
/* Reads and decodes the first message, and adds the caller's certificate.
 * ERR_MEMORY, ERR_PROTO. */
enum err server_request(struct server_call *call, enum wire_kind kind, void *message,
                        struct arena *a) MUST;
/* Before an answer: was the certificate revoked since the call was admitted? Then the call ends
 * with the status of admission: a site that has other files by now connects again with those. */
bool server_revoked(struct server_call *call);
void server_refuse(struct link_call *c,
                   enum err e); /* ends the call with the status of an unreadable request */
void server_serve_small(struct server_call *call);

/* ---- server_guard.c ---- */
void *server_guard_main(void *server);

/* ---- server_stream.c, server_fetch.c ---- */
void server_streams_open(struct link_server *s);
void server_streams_close(struct link_server *s);
void server_serve_contribution(struct server_call *call);
void server_serve_fetch(struct server_call *call);

/* ---- server_slots.c ---- */
/* Waits for a slot. A joining stream does not wait, because the leading stream alone can send the
 * whole contribution. Any result but SLOT_HELD: no slot; SLOT_WAITING: the site closed the call, or
 * the server shuts down. */
enum slot_state server_slot_begin(struct server_call *call, const struct wire_contribution *m);
void server_slot_bytes(struct server_call *call, size_t bytes); /* counts a received chunk */
enum slot_state server_slot_state(struct server_call *call);
/* Returns the slot's state; revokes the slot when the stream sends nothing while others wait. */
enum slot_state server_slot_look(struct server_call *call);
void server_slot_end(struct server_call *call); /* releases the slot; may be called again */
/* How long a stream may stand still, from the rates of earlier contributions, and the bytes that
 * count as progress within `ms`. Under the server's mutex. */
uint64_t server_silent_ms(const struct link_server *s);
double server_silent_bytes(const struct link_server *s, uint64_t ms);

#endif
