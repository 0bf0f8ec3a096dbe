/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/ledger.h"
#include <string.h>

/* Observed with gRPC 1.51.1 and OpenSSL 3.0 (Debian 12), TLS 1.3, AES-256-GCM, between a site and
 * its aggregator; a record is counted with the 22 bytes around its plaintext. test_ledger.c
 * compares the model with the kernel's counters. */
enum {
    PREFIX = 5,           /* gRPC, before each message */
    REQUEST_HEADERS = 18, /* all fields from the dynamic table, a cached deadline */
    RESPONSE_HEADERS = 12,
    TRAILERS = 10,
    HALF_CLOSE = 9, /* an empty DATA frame ends the request */
    PING = 17,
    WINDOW_UPDATE = 13,
    /* A call triggers the flow control of both ends: about one ping or ping answer each way, and
       one window update. */
    CALL_EXTRA = PING + WINDOW_UPDATE,
    UPDATES_PER_2MIB =
        2 * WINDOW_UPDATE, /* stream and connection together, in a record of their own */
    /* Handshake without the certificate (hello, change cipher spec, verify, finished) and the first
       frames (preface, settings, header fields not yet in the dynamic table). */
    SITE_HANDSHAKE = 500,
    SERVER_HANDSHAKE = 560,
    SITE_FIRST = 390,
    SERVER_FIRST = 250
};

static const char *const names[LEDGER_WHATS] = {
    [LEDGER_HELLO] = "hello",         [LEDGER_POLL] = "poll",
    [LEDGER_REPORT] = "report",       [LEDGER_LEAVE] = "leave",
    [LEDGER_MASK] = "mask",           [LEDGER_CONTRIBUTION] = "contribution",
    [LEDGER_AGGREGATE] = "aggregate", [LEDGER_SNAPSHOT] = "snapshot",
    [LEDGER_SUPPLY] = "supply",       [LEDGER_CONNECTION] = "connection",
    [LEDGER_SOCKET] = "socket",
};

const char *ledger_name(enum ledger_what what)
{
    return names[what];
}

bool ledger_find(const char *name, enum ledger_what *what)
{
    for (int i = 0; i < LEDGER_WHATS; i++)
        if (strcmp(names[i], name) == 0) {
            *what = (enum ledger_what)i;
            return true;
        }
    return false;
}

uint64_t ledger_sum(const struct ledger_side *s)
{
    return s->payload + s->grpc + s->http2 + s->tls;
}

static void side_add(struct ledger_side *to, const struct ledger_side *s)
{
    to->payload += s->payload;
    to->grpc += s->grpc;
    to->http2 += s->http2;
    to->tls += s->tls;
    to->socket += s->socket;
}

bool ledger_same(const struct ledger_row *a, const struct ledger_row *b)
{
    return a->what == b->what && a->fragment == b->fragment && a->round == b->round &&
           strcmp(a->site, b->site) == 0;
}

struct ledger_row ledger_row_about(const struct ledger_row *row)
{
    struct ledger_row empty = {.what = row->what, .fragment = row->fragment, .round = row->round};
    memcpy(empty.site, row->site, sizeof empty.site);
    return empty;
}

void ledger_no_round(struct ledger_row *row)
{
    row->fragment = 0;
    row->round = LEDGER_NO_ROUND;
    row->total = 0;
}

void ledger_add(struct ledger_row *to, const struct ledger_row *row)
{
    to->calls += row->calls;
    to->broken += row->broken;
    to->resent += row->resent;
    to->done = to->done || row->done;
    to->total = row->total ? row->total : to->total;
    to->predicted = row->predicted ? row->predicted : to->predicted;
    to->t_ms = row->t_ms < to->t_ms ? row->t_ms : to->t_ms;
    side_add(&to->up, &row->up);
    side_add(&to->down, &row->down);
}

static uint64_t records(uint64_t plain)
{
    return (plain + LEDGER_RECORD_BYTES - 1) / LEDGER_RECORD_BYTES * LEDGER_RECORD_EXTRA;
}

static void frame(struct ledger_side *s, uint64_t bytes) /* one frame in its own record */
{
    s->http2 += bytes;
    s->tls += LEDGER_RECORD_EXTRA;
}

void ledger_message(struct ledger_side *s, uint64_t message_bytes, uint64_t payload_bytes)
{
    s->payload += payload_bytes;
    s->grpc += message_bytes - payload_bytes + PREFIX;
    s->http2 += LEDGER_FRAME_EXTRA;
    s->tls += records(LEDGER_FRAME_EXTRA + PREFIX + message_bytes);
}

void ledger_call(struct ledger_row *row)
{
    uint64_t up = row->up.payload >> 21, down = row->down.payload >> 21;
    row->calls++;
    frame(&row->up, REQUEST_HEADERS);
    frame(&row->up, HALF_CLOSE);
    frame(&row->up, CALL_EXTRA);
    frame(&row->down, RESPONSE_HEADERS);
    frame(&row->down, TRAILERS);
    frame(&row->down, CALL_EXTRA);
    row->up.http2 += down * UPDATES_PER_2MIB;
    row->up.tls += down * LEDGER_RECORD_EXTRA;
    row->down.http2 += up * UPDATES_PER_2MIB;
    row->down.tls += up * LEDGER_RECORD_EXTRA;
}

void ledger_connection(struct ledger_row *row, uint64_t certificate_bytes)
{
    row->calls++;
    row->up.tls += SITE_HANDSHAKE + certificate_bytes;
    row->down.tls += SERVER_HANDSHAKE + certificate_bytes;
    row->up.http2 += SITE_FIRST;
    row->down.http2 += SERVER_FIRST;
}

void ledger_idle(struct ledger_row *row, uint64_t idle_ms, uint64_t keepalive_ms)
{
    uint64_t pings = 2 * (idle_ms / keepalive_ms); /* each end pings and answers the other's ping */
    for (uint64_t i = 0; i < pings; i++) {
        frame(&row->up, PING);
        frame(&row->down, PING);
    }
}

static uint64_t varint_bytes(uint64_t v)
{
    uint64_t n = 1;
    while (v >>= 7)
        n++;
    return n;
}

/* A chunk's fields before its data (proto/atoll.proto, Upload and Download): offset unless 0,
 * total, CRC, length. */
static uint64_t chunk_header(uint64_t offset, uint64_t total, uint64_t size)
{
    uint64_t offset_bytes = offset ? 1 + varint_bytes(offset) : 0;
    return offset_bytes + 1 + varint_bytes(total) + 5 + 1 + varint_bytes(size);
}

struct ledger_side ledger_predict(uint64_t payload, uint32_t chunk_bytes)
{
    struct ledger_side s = {0};
    for (uint64_t at = 0; at < payload; at += chunk_bytes) {
        uint64_t size = payload - at < chunk_bytes ? payload - at : chunk_bytes;
        ledger_message(&s, chunk_header(at, payload, size) + size, size);
    }
    return s;
}

uint64_t ledger_ip(uint64_t bytes, uint64_t bytes_back)
{
    enum { SEGMENT = 1448, HEADERS = 52 };
    uint64_t segments = (bytes + SEGMENT - 1) / SEGMENT,
             back = (bytes_back + SEGMENT - 1) / SEGMENT;
    return bytes + (segments + back / 2) * HEADERS;
}
