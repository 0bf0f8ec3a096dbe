/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_H
#define LEDGER_H
/* Every byte between the sites and the aggregator, by layer: payload; protobuf with gRPC's 5-byte
 * prefix; HTTP/2 frames; TLS records; and the kernel's socket counters. This header declares the
 * rows that a link records and the model of the layers that only gRPC core sees. Pure: no clock, no
 * file, no lock. ledger_book.h writes rows to a file, ledger_read.h adds them up.
 *
 * Payload and protobuf are counted at both ends, message by message. Frames and records follow the
 * behaviour of gRPC 1.51 and OpenSSL 3.0, observed on the wire: one DATA frame for each message
 * (both ends raise the largest frame above our largest message), records of at most 16284 bytes of
 * plaintext, each batch of frames starting a new one. Pings and window updates depend on time and
 * enter as a mean per call and per 2 MiB. The model's totals are within 1 % of the kernel's
 * counters.
 */
#include <stdbool.h>
#include <stdint.h>

enum ledger_what {
    LEDGER_HELLO,
    LEDGER_POLL,
    LEDGER_REPORT,
    LEDGER_LEAVE,
    LEDGER_MASK, /* control calls, in the order of the link's methods */
    LEDGER_CONTRIBUTION,
    LEDGER_AGGREGATE,
    LEDGER_SNAPSHOT,   /* transfers */
    LEDGER_SUPPLY,     /* to an aggregator that is rebuilt: nothing predicts it */
    LEDGER_CONNECTION, /* handshakes, settings, pings of idle connections */
    LEDGER_SOCKET,     /* the kernel's counters */
    LEDGER_WHATS
};
enum {
    LEDGER_SITE_MAX = 64,
    LEDGER_RECORD_BYTES = 16284,
    LEDGER_RECORD_EXTRA = 22,
    LEDGER_FRAME_EXTRA = 9
};
#define LEDGER_NO_ROUND UINT64_MAX /* a call that belongs to no round */

struct ledger_side { /* bytes of one direction, by layer; they add up to what a socket carries */
    uint64_t payload;
    uint64_t grpc;       /* protobuf fields and gRPC's prefix, without the payload */
    uint64_t http2, tls; /* by the model */
    uint64_t socket;     /* LEDGER_SOCKET only: the kernel's counter, each byte once */
};
struct ledger_row {
    enum ledger_what what;
    char site[LEDGER_SITE_MAX]; /* the site of the link; "-": unknown (a refused certificate) */
    uint32_t fragment;
    uint64_t round;  /* LEDGER_NO_ROUND: none */
    uint64_t calls;  /* LEDGER_CONNECTION: connections */
    uint64_t broken; /* of these, calls that the link ended early: how many of their bytes were sent
                        is unknown */
    uint64_t total;  /* transfer: its whole payload, as its two ends agreed */
    uint64_t predicted; /* transfer: the same, predicted from configuration and manifest */
    bool done;          /* transfer: complete, acknowledged */
    uint64_t resent;    /* LEDGER_SOCKET: bytes that TCP sent again */
    uint64_t t_ms;      /* of its first line in a file, ms since 1970; a link leaves it 0 */
    uint64_t line;      /* of the same: its place in the file */
    struct ledger_side up, down; /* up: from the site to the aggregator */
};
typedef void ledger_sink(void *self, const struct ledger_row *row); /* any thread */

const char *ledger_name(enum ledger_what what);
bool ledger_find(const char *name, enum ledger_what *what);
static inline bool ledger_transfer(enum ledger_what what)
{
    return what == LEDGER_CONTRIBUTION || what == LEDGER_AGGREGATE || what == LEDGER_SNAPSHOT;
}
uint64_t ledger_sum(const struct ledger_side *s); /* sum of all layers except the socket counter */
void ledger_add(struct ledger_row *to, const struct ledger_row *row);
/* Are both about one thing: what, site, fragment, round? */
bool ledger_same(const struct ledger_row *a, const struct ledger_row *b);
/* An empty row about the same thing. */
struct ledger_row ledger_row_about(const struct ledger_row *row);
void ledger_no_round(struct ledger_row *row); /* it is of no round then, and of no payload */

/* Adds one message: message_bytes of protobuf, of which payload_bytes are payload. */
void ledger_message(struct ledger_side *s, uint64_t message_bytes, uint64_t payload_bytes);
/* Adds a call's other bytes: headers, end of stream, trailers, and window updates for received
 * bytes. Called once, when the row holds all messages of the call. */
void ledger_call(struct ledger_row *row);
/* Adds a new connection. certificate_bytes: DER size of one end's certificate; both ends are
 * assumed equal. */
void ledger_connection(struct ledger_row *row, uint64_t certificate_bytes);
/* Adds the pings of both ends on a connection that was idle for idle_ms. */
void ledger_idle(struct ledger_row *row, uint64_t idle_ms, uint64_t keepalive_ms);

/* Predicts the bytes by layer of a transfer of `payload` bytes in chunks of chunk_bytes, without
 * control calls. */
struct ledger_side ledger_predict(uint64_t payload, uint32_t chunk_bytes);
/* Estimates the bytes of the IP packets that carry `bytes` of a socket's stream: 52 bytes of
 * headers for each segment of 1448 bytes (IPv4, TCP, timestamps), and one acknowledgement for two
 * segments of bytes_back. Without link-layer headers and retransmissions. */
uint64_t ledger_ip(uint64_t bytes, uint64_t bytes_back);

#endif
