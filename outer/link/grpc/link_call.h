#ifndef LINK_CALL_H
#define LINK_CALL_H
/* Inside the real link only: one gRPC call as a state machine, for both ends, and what the process
 * has once: gRPC itself and the one thread that is always inside grpc_completion_queue_next. That
 * thread drives keepalive and reconnects of every channel; it sets flags and signals, nothing else.
 * A call belongs to one thread; only link_call_wake comes from others.
 */
#include <grpc/grpc.h>
#include <pthread.h>
#include "outer/link/ledger.h"
#include "outer/link/link.h"
#include "outer/link/tls.h"

enum { LINK_KEEPALIVE_MS = 20000, LINK_LOOK_MS = 86400000 };

/* Largest chunk and message bytes of a method by its number; also the order of the methods
 * everywhere. */
enum link_method {
    LINK_HELLO,
    LINK_POLL,
    LINK_REPORT,
    LINK_LEAVE,
    LINK_CONTRIBUTE,
    LINK_FETCH,
    LINK_METHODS
};
extern const char *const link_paths[LINK_METHODS];
/* What the small calls carry. */
struct link_kinds {
    enum wire_kind request, answer;
};
extern const struct link_kinds link_kinds[LINK_LEAVE + 1];
#define LINK_HEALTH_PATH "/grpc.health.v1.Health/Check" /* answered by the server itself */
/* Texts of RESOURCE_EXHAUSTED that begin so ask for another try. */
#define LINK_BUSY      "busy"
#define LINK_NO_MEMORY "busy: no memory for this call"

struct link_call;
struct link_tag { /* what the completion queue hands back */
    struct link_call *call;
    bool pending, done, ok;
};
struct link_call {
    grpc_call *call;
    pthread_mutex_t mutex; /* guards the tags, pins and again */
    pthread_cond_t cond;
    struct link_tag start, initmd, send, recv, fin, status;
    grpc_metadata_array md_initial, md_trailing;
    grpc_byte_buffer *sending, *received;
    grpc_status_code code; /* client: the result of the call */
    grpc_slice details;
    const char *error;
    int cancelled;        /* server: valid after status */
    unsigned pins;        /* slices that still point into the payload */
    bool again;           /* link_call_wake was called */
    bool server;          /* the aggregator's end: what it sends goes down */
    size_t payload_bytes; /* of the message that is sent next */
    /* Its messages so far, counted when they are handed to gRPC core and taken from it. */
    struct ledger_row row;
};

/* Starts gRPC (TLS forced to 1.3 before), the completion queue and its thread. Calls are counted;
 * the last close ends both.
 * wide, of the first call: receive windows of twice rate x delay, at least 16 MiB; there must be
 * memory for them. Without it the windows end at 32 MiB and are announced again when half is used:
 * at 1 Gbit/s and 100 ms the sender's kernel then has nothing to send, and BBR, which learns
 * nothing from such samples, stays in its start-up phase. With `wide`, many streams that reach the
 * end of the memory quota close their windows and open them only after minutes. An operator's own
 * GRPC_EXPERIMENTS is kept. */
enum err link_core_open(grpc_completion_queue **cq, bool wide) MUST;
void link_core_close(void);

/* Both NULL: no memory; the server's call is still the caller's. */
struct link_call *link_call_open(grpc_channel *channel, void *method, grpc_completion_queue *cq,
                                 uint64_t timeout_ms);
struct link_call *link_call_accept(grpc_call *call);
/* What the certificate says that the other end of this call's connection showed. */
enum err link_peer_facts(grpc_call *call, struct tls_facts *facts) MUST;
/* The request m of this method is the call's: its row is about that. */
void link_call_about(struct link_call *c, enum link_method method, const void *m);
/* Waits for the call's end; then its row is complete. */
struct ledger_row link_call_row(struct link_call *c);
/* Both consume bb. True says that flow control took it, not that it arrived. */
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
bool link_call_done(struct link_call *c, struct link_tag *tag); /* came back, not yet waited for */
/* Until the operation has come back (true), the call is woken, or the time. */
bool link_call_wait_until(struct link_call *c, struct link_tag *tag, uint64_t until_ms);
/* Until woken, over, or the time: true when woken. */
bool link_call_wait_again(struct link_call *c, uint64_t until_ms);
void link_call_wake(struct link_call *c);
void link_call_close(struct link_call *c); /* waits for every operation and every pinned slice */

grpc_byte_buffer *link_buffer(const uint8_t *data, size_t size_bytes); /* copies: small messages */
/* One chunk, not copied: data stays pinned until the call is closed or c->pins is 0. */
grpc_byte_buffer *link_chunk(struct link_call *c, const struct wire_chunk *chunk,
                             const uint8_t *data);
/* Bytes [skip, skip + size) of a message to dst. */
size_t link_copy(grpc_byte_buffer *bb, size_t skip, void *dst, size_t size);
/* Whole message decoded; consumes bb. */
enum err link_decode(grpc_byte_buffer *bb, enum wire_kind kind, void *message,
                     struct arena *a) MUST;
/* Header of a chunk, and where its data begins; then, when the caller wants it, the data to dst:
 * the only copy on the way in. ERR_CORRUPT: its CRC is wrong. Neither consumes bb. */
enum err link_chunk_head(struct link_call *c, grpc_byte_buffer *bb, struct wire_chunk *chunk,
                         size_t *data_at) MUST;
enum err link_chunk_data(grpc_byte_buffer *bb, const struct wire_chunk *chunk, size_t data_at,
                         uint8_t *dst) MUST;

#endif
