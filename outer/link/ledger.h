#ifndef LEDGER_H
#define LEDGER_H
/* Every byte between the sites and the aggregator, by layer: payload; protobuf with gRPC's 5-byte
 * prefix; HTTP/2 frames; TLS records; and what the kernel says its sockets carried. Here are the
 * rows that a link books and the model of the layers that only gRPC core sees. Pure: no clock, no
 * file, no lock. ledger_book.h writes rows to a file, ledger_read.h adds them up.
 *
 * Payload and protobuf are counted at both ends, message by message. Frames and records are what
 * gRPC 1.51 and OpenSSL 3.0 make of those messages, observed on the wire: one DATA frame for each
 * message (both ends raise the largest frame above our largest message), records of at most 16284
 * bytes of plaintext, each batch of frames starting a new one. What depends on time (pings, window
 * updates) enters as a mean per call and per 2 MiB. Held against the kernel's counters: within 1 %.
 */
#include <stdbool.h>
#include <stdint.h>

enum ledger_what {
    LEDGER_HELLO,
    LEDGER_POLL,
    LEDGER_REPORT,
    LEDGER_LEAVE, /* control calls, in the order of the link's methods */
    LEDGER_CONTRIBUTION,
    LEDGER_AGGREGATE,
    LEDGER_SNAPSHOT,   /* transfers */
    LEDGER_CONNECTION, /* handshakes, settings, pings of idle connections */
    LEDGER_SOCKET,     /* what the kernel counted */
    LEDGER_WHATS
};
enum {
    LEDGER_SITE_MAX = 64,
    LEDGER_RECORD_BYTES = 16284,
    LEDGER_RECORD_EXTRA = 22,
    LEDGER_FRAME_EXTRA = 9
};
#define LEDGER_NO_ROUND UINT64_MAX /* a call about no round */

struct ledger_side { /* bytes of one direction, by layer; they add up to what a socket carries */
    uint64_t payload;
    uint64_t grpc;       /* protobuf fields and gRPC's prefix, without the payload */
    uint64_t http2, tls; /* by the model */
    uint64_t socket;     /* LEDGER_SOCKET only: the kernel's counter, each byte once */
};
struct ledger_row {
    enum ledger_what what;
    char site[LEDGER_SITE_MAX]; /* whose link; "-": not known (a refused certificate) */
    uint32_t fragment;
    uint64_t round;     /* LEDGER_NO_ROUND: none */
    uint64_t calls;     /* connections, where it is one */
    uint64_t broken;    /* of these, calls that the link ended, so that it is not known how much of
                           them    left */
    uint64_t total;     /* transfer: its whole payload, as its two ends agreed */
    uint64_t predicted; /* transfer: the same from configuration and manifest alone */
    bool done;          /* transfer: complete, acknowledged */
    uint64_t resent;    /* LEDGER_SOCKET: bytes that TCP sent again */
    struct ledger_side up, down; /* up: from the site to the aggregator */
};
typedef void ledger_sink(void *self, const struct ledger_row *row); /* any thread */

const char *ledger_name(enum ledger_what what);
bool ledger_find(const char *name, enum ledger_what *what);
static inline bool ledger_transfer(enum ledger_what what)
{
    return what == LEDGER_CONTRIBUTION || what == LEDGER_AGGREGATE || what == LEDGER_SNAPSHOT;
}
uint64_t ledger_sum(const struct ledger_side *s); /* all layers, without the socket */
void ledger_add(struct ledger_row *to, const struct ledger_row *row);

/* One message on its way: message_bytes of protobuf, payload_bytes of them payload. */
void ledger_message(struct ledger_side *s, uint64_t message_bytes, uint64_t payload_bytes);
/* What surrounds the messages of one call: headers, end, trailers, and the window updates for bytes
 * that came. Once, when all its messages are in the row. */
void ledger_call(struct ledger_row *row);
/* A connection begins: certificate_bytes (DER) of each end's own certificate, taken as equally
 * long. */
void ledger_connection(struct ledger_row *row, uint64_t certificate_bytes);
/* Nothing was said for that long on one connection: both ends ping. */
void ledger_idle(struct ledger_row *row, uint64_t idle_ms, uint64_t keepalive_ms);

/* Predictions: what `payload` bytes take on their way, in chunks of chunk_bytes, without the
 * control calls. */
struct ledger_side ledger_predict(uint64_t payload, uint32_t chunk_bytes);
/* Estimate: what the IP packets take that carry `bytes` of socket: 52 bytes a segment of 1448
 * (IPv4, TCP, timestamps), and the other direction's acknowledgements, one for two segments. No
 * link layer, nothing sent again. */
uint64_t ledger_ip(uint64_t bytes, uint64_t bytes_back);

#endif
