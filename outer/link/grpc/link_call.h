/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_CALL_H
#define LINK_CALL_H
/* Private to outer/link/grpc. One gRPC call as a state machine, for both ends; and the process-wide
 * part: gRPC itself and one thread inside grpc_completion_queue_next. That thread drives keepalive
 * and reconnects of every channel; it only sets flags and signals. A call belongs to one thread;
 * other threads use link_call_wake only.
 */
#include <grpc/grpc.h>
#include <pthread.h>
#include "outer/link/ledger.h"
#include "outer/link/link.h"
#include "outer/identity/tls.h"

enum { LINK_KEEPALIVE_MS = 20000, LINK_LOOK_MS = 86400000 };

/* Methods in the order of all tables of methods. */
enum link_method {
    LINK_HELLO,
    LINK_POLL,
    LINK_REPORT,
    LINK_LEAVE,
    LINK_MASK,
    LINK_OPERATE,
    LINK_CONTRIBUTE,
    LINK_FETCH,
    LINK_METHODS
};
extern const char *const link_paths[LINK_METHODS];
/* Message kinds of the small calls. */
struct link_kinds {
    enum wire_kind request, answer;
};
extern const struct link_kinds link_kinds[LINK_OPERATE + 1];
#define LINK_HEALTH_PATH "/grpc.health.v1.Health/Check" /* answered by server_admission.c */
/* A RESOURCE_EXHAUSTED text with this prefix means: the site tries again. */
#define LINK_BUSY      "busy"
#define LINK_NO_MEMORY "busy: no memory for this call"

struct link_call;
struct link_tag { /* the tag that the completion queue returns */
    struct link_call *call;
    bool pending, done, ok;
};
struct link_call_tags {
    struct link_tag start, initmd, fin;
};
struct link_call_waits {
    unsigned pins; /* number of slices that still point into the payload */
    bool again;    /* link_call_wake was called */
};
struct link_call_data {
    grpc_metadata_array md_initial, md_trailing;
    grpc_byte_buffer *sending, *received;
};
struct link_call_end {
    grpc_status_code code; /* client: the result of the call */
    grpc_slice details;
    const char *error;
    int cancelled; /* server: valid after status */
};
struct link_call { /* written by link_call.c, but for tags that others wait for, and streams */
    grpc_call *call;
    pthread_mutex_t mutex; /* guards the tags and waits */
    pthread_cond_t cond;
    struct link_call_tags tags;
    struct link_tag send, recv, status;
    struct link_call_data data;
    struct link_call_end end;
    struct link_call_waits waits;
    bool server;          /* the aggregator's end: it sends downwards */
    size_t payload_bytes; /* payload bytes of the next message to send */
    grpc_metadata path;   /* what is sent with it, as long as the call lives (link_path.h) */
    unsigned streams;     /* server: connections of the site's next download; 0: not said */
    /* Bytes of its messages so far, counted when passed to gRPC core and when received from it. */
    struct ledger_row row;
};

/* Starts gRPC (TLS forced to 1.3 before), the completion queue and its thread. Opens are counted;
 * the last close ends both. wide (of the first open): receive windows of twice the bandwidth-delay
 * product, at least 16 MiB; needs that memory. Without `wide` windows end at 32 MiB and are renewed
 * when half is used: at 1 Gbit/s and 100 ms the sender's kernel then runs out of data, and BBR,
 * which discards such samples, stays in its start-up phase. With `wide`, many streams that exhaust
 * the memory quota close their windows and reopen them only after minutes. The environment's
 * GRPC_EXPERIMENTS is kept. */
enum err link_core_open(grpc_completion_queue **cq, bool wide) MUST;
void link_core_close(void);
/* Logs how many of core's messages were not logged. */
/* How many failed handshakes core has logged; its lines hold no address. */
uint64_t link_core_handshakes_failed(void);
void link_core_log_flush(void);

/* NULL: no memory; the server's grpc_call remains the caller's. path: value of LINK_PATH_KEY; NULL:
 * none. */
struct link_call *link_call_open(grpc_channel *channel, void *method, grpc_completion_queue *cq,
                                 uint64_t timeout_ms, const char *path);
/* What the server said with the status of a call that has ended; 0: nothing. */
unsigned link_call_streams(const struct link_call *c);
struct link_call *link_call_accept(grpc_call *call);
/* Reads the certificate of the other end of the call's connection. */
enum err link_peer_facts(grpc_call *call, struct tls_facts *facts) MUST;
/* Sets the site, fragment and round of the call's ledger row from request m of this method. */
void link_call_about(struct link_call *c, enum link_method method, const void *m);
/* Into the row: the bytes that the transfer has in all; whether it came to its end. */
void link_call_total(struct link_call *c, uint64_t bytes);
void link_call_whole(struct link_call *c, bool done);
/* Waits for the call's end and returns its complete ledger row. */
struct ledger_row link_call_row(struct link_call *c);
/* Both consume bb. True: flow control has accepted the message; it may not have arrived. */
bool link_call_send(struct link_call *c, grpc_byte_buffer *bb);
bool link_call_send_start(struct link_call *c, grpc_byte_buffer *bb); /* does not wait */
bool link_call_recv_start(struct link_call *c);
/* After recv_start; the caller destroys it. NULL: the stream or the call has ended. */
grpc_byte_buffer *link_call_received(struct link_call *c);
grpc_byte_buffer *link_call_recv(struct link_call *c);
bool link_call_half_close(struct link_call *c);
bool link_call_reply(struct link_call *c, grpc_status_code code, const char *text);
bool link_call_wait(struct link_call *c, struct link_tag *tag);
void link_call_wait_any(struct link_call *c, struct link_tag *a, struct link_tag *b);
bool link_call_done(struct link_call *c, struct link_tag *tag); /* completed, not yet waited for */
/* Waits until the operation completes (true), the call is woken, or until_ms. */
bool link_call_wait_until(struct link_call *c, struct link_tag *tag, uint64_t until_ms);
/* Waits until the call is woken (true), the call ends, or until_ms. */
bool link_call_wait_again(struct link_call *c, uint64_t until_ms);
void link_call_wake(struct link_call *c);
/* Ends a call of the server with PERMISSION_DENIED, from any thread, while the call is open. */
void link_call_cancel(struct link_call *c, const char *why);
void link_call_close(struct link_call *c); /* waits for every operation and every pinned slice */

grpc_byte_buffer *link_buffer(const uint8_t *data, size_t size_bytes); /* copies: small messages */
/* One chunk, not copied: data stays pinned until the call is closed or nothing pins it. */
grpc_byte_buffer *link_chunk(struct link_call *c, const struct wire_chunk *chunk,
                             const uint8_t *data);
/* Copies bytes [skip, skip + size) of a message to dst. */
size_t link_copy(grpc_byte_buffer *bb, size_t skip, void *dst, size_t size);
/* Decodes a whole message; consumes bb. */
enum err link_decode(grpc_byte_buffer *bb, enum wire_kind kind, void *message,
                     struct arena *a) MUST;
/* The first function reads a chunk's header and the offset of its data; the second copies the data
 * to dst, the only copy of received data. ERR_CORRUPT: wrong CRC. Neither consumes bb. */
enum err link_chunk_head(struct link_call *c, grpc_byte_buffer *bb, struct wire_chunk *chunk,
                         size_t *data_at) MUST;
enum err link_chunk_data(grpc_byte_buffer *bb, const struct wire_chunk *chunk, size_t data_at,
                         uint8_t *dst) MUST;

#endif
