/* A site's end of the real link. Two channels, control and bulk, each with a connection of its own: without a local subchannel
 * pool they would share one, and a heartbeat would wait behind a contribution.
 */
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "outer/link/link_call.h"
#include "outer/link/link_socket.h"
#include "outer/link/tls.h"

enum { CONTROL, BULK, CHANNELS };
enum { CONTRIBUTE_TRIES = 3 }; /* damaged chunks of one contribution before we give up */

struct link_grpc {
    struct link base;
    grpc_completion_queue *cq;
    char *target, *server_name, *ca, *certificate, *key;
    struct link_tls files;
    uint32_t keepalive_ms;
    pthread_mutex_t mutex; /* guards all below */
    grpc_channel *channels[CHANNELS];
    void *methods[LINK_METHODS];
    uint64_t stamp; /* of the files that the channels were made from */
    unsigned calls; /* under way */
    struct link_counters counters;
    struct link_sockets sockets;
    ledger_sink *book;
    void *book_self;
};

static struct link_grpc *self_of(struct link *l)
{
    return (struct link_grpc *)l;
}

/* ---- channels ---- */

static grpc_channel *channel_make(const struct link_grpc *l, const struct tls_pem *pem)
{
    int keepalive = (int)l->keepalive_ms;
    int timeout = keepalive / 2 > 1000 ? keepalive / 2 : 1000; /* also TCP_USER_TIMEOUT: it alone frees a stuck send */
    grpc_arg list[] = {
        {GRPC_ARG_INTEGER, (char *)"grpc.keepalive_time_ms", {.integer = keepalive}},
        {GRPC_ARG_INTEGER, (char *)"grpc.keepalive_timeout_ms", {.integer = timeout}},
        {GRPC_ARG_INTEGER, (char *)"grpc.keepalive_permit_without_calls", {.integer = 1}},
        {GRPC_ARG_INTEGER, (char *)"grpc.http2.max_pings_without_data", {.integer = 0}},
        {GRPC_ARG_INTEGER, (char *)"grpc.max_receive_message_length", {.integer = WIRE_MESSAGE_MAX}},
        {GRPC_ARG_INTEGER, (char *)"grpc.compression_enabled_algorithms_bitset", {.integer = 1}},
        {GRPC_ARG_INTEGER, (char *)"grpc.use_local_subchannel_pool", {.integer = 1}},
        {GRPC_ARG_INTEGER, (char *)"grpc.initial_reconnect_backoff_ms", {.integer = 200}},
        {GRPC_ARG_INTEGER, (char *)"grpc.max_reconnect_backoff_ms", {.integer = 2000}},
        {GRPC_ARG_INTEGER, (char *)"grpc.min_reconnect_backoff_ms", {.integer = 5000}}, /* the connect timeout */
        {GRPC_ARG_INTEGER, (char *)"grpc.enable_http_proxy", {.integer = 0}},
        {GRPC_ARG_INTEGER, (char *)"grpc.enable_retries", {.integer = 0}},
        {GRPC_ARG_STRING, (char *)"grpc.ssl_target_name_override", {.string = l->server_name}},
    };
    size_t count = sizeof list / sizeof *list - (l->server_name ? 0 : 1);
    grpc_channel_args args = {count, list};
    grpc_ssl_pem_key_cert_pair pair = {.private_key = pem->key, .cert_chain = pem->certificate};
    grpc_channel_credentials *credentials = grpc_ssl_credentials_create_ex(pem->ca, &pair, NULL, NULL);
    grpc_channel *channel = grpc_channel_create(l->target, credentials, &args);
    grpc_channel_credentials_release(credentials);
    return channel;
}

static void channels_destroy(struct link_grpc *l)
{
    for (int i = 0; i < CHANNELS; i++) {
        if (l->channels[i])
            grpc_channel_destroy(l->channels[i]);
        l->channels[i] = NULL;
    }
}

static enum err channels_make(struct link_grpc *l)
{
    struct tls_pem pem;
    uint64_t stamp = tls_stamp(&l->files);
    TRY(tls_load(&pem, &l->files));
    channels_destroy(l);
    for (int i = 0; i < CHANNELS; i++)
        l->channels[i] = channel_make(l, &pem);
    for (int i = 0; i < LINK_METHODS; i++) {
        int on = i == LINK_CONTRIBUTE || i == LINK_FETCH ? BULK : CONTROL;
        l->methods[i] = grpc_channel_register_call(l->channels[on], link_paths[i], NULL, NULL);
    }
    l->stamp = stamp;
    l->sockets.certificate_bytes = tls_certificate_bytes(&pem);
    tls_forget(&pem);
    return ERR_OK;
}

/* New files are taken when no call is under way; half replaced ones not before they load. */
static struct link_call *call_begin(struct link_grpc *l, enum link_method method, uint64_t timeout_ms)
{
    pthread_mutex_lock(&l->mutex);
    uint64_t stamp = l->calls ? l->stamp : tls_stamp(&l->files);
    if (stamp && stamp != l->stamp && channels_make(l) != ERR_OK)
        err_clear();
    link_sockets_spoke(&l->sockets, NULL, link_now_ms(), l->calls++ == 0);
    int on = method == LINK_CONTRIBUTE || method == LINK_FETCH ? BULK : CONTROL;
    struct link_call *c = link_call_open(l->channels[on], l->methods[method], l->cq, timeout_ms);
    pthread_mutex_unlock(&l->mutex);
    return c;
}

/* Under the lock, so that what is booked is of one moment. */
static void book(struct link_grpc *l, const struct ledger_row *call)
{
    struct ledger_row row;
    link_sockets_scan(&l->sockets);
    while (l->book && link_sockets_next(&l->sockets, &row))
        l->book(l->book_self, &row);
    if (l->book && call)
        l->book(l->book_self, call);
}

static void call_end(struct link_grpc *l, struct link_call *c)
{
    struct ledger_row row = link_call_row(c);
    link_call_close(c);
    pthread_mutex_lock(&l->mutex);
    l->calls--;
    link_sockets_spoke(&l->sockets, NULL, link_now_ms(), false);
    book(l, &row);
    pthread_mutex_unlock(&l->mutex);
}

static void count(struct link_grpc *l, const grpc_byte_buffer *up, const grpc_byte_buffer *down, size_t payload_up,
                  size_t payload_down)
{
    pthread_mutex_lock(&l->mutex);
    l->counters.messages_up += up ? grpc_byte_buffer_length((grpc_byte_buffer *)(uintptr_t)up) + 5 : 0;
    l->counters.messages_down += down ? grpc_byte_buffer_length((grpc_byte_buffer *)(uintptr_t)down) + 5 : 0;
    l->counters.payload_up += payload_up;
    l->counters.payload_down += payload_down;
    link_sockets_look(&l->sockets, CHANNELS);
    pthread_mutex_unlock(&l->mutex);
}

static grpc_byte_buffer *received(struct link_grpc *l, struct link_call *c)
{
    grpc_byte_buffer *bb = link_call_received(c);
    if (bb)
        count(l, NULL, bb, 0, 0);
    return bb;
}

/* ---- the result of a call ---- */

/* Core's texts are not stable, so they only choose between two sentences, never between going on and not. */
static enum err unavailable(const struct link_grpc *l, const char *text)
{
    if (strstr(text, "certificate verify failed") || strstr(text, "CERTIFICATE_VERIFY_FAILED") ||
        strstr(text, "not in peer certificate"))
        return err_set(ERR_DENIED, "%s: its certificate is not by the authority in %s, has expired, or is not for this name: "
                                   "check ca.pem, the clock and site.aggregator_name (%s)", l->target, l->ca, text);
    if (strstr(text, "Socket closed") || strstr(text, "reset by peer") || strstr(text, "handshake"))
        return err_set(ERR_LINK, "%s: the connection was closed; if this comes again at once, the aggregator refused this "
                                 "certificate, and its log says why (%s)", l->target, text);
    return err_set(ERR_LINK, "%s: no connection (%s)", l->target, text);
}

static enum err call_result(struct link_grpc *l, struct link_call *c)
{
    link_call_wait(c, &c->status);
    char *text = grpc_slice_to_c_string(c->details);
    enum err e = ERR_OK;
    switch (c->code) {
    case GRPC_STATUS_OK:
        break;
    case GRPC_STATUS_UNAUTHENTICATED:
    case GRPC_STATUS_PERMISSION_DENIED:
        e = err_set(ERR_DENIED, "%s refused: %s", l->target, text);
        break;
    case GRPC_STATUS_UNIMPLEMENTED:
    case GRPC_STATUS_FAILED_PRECONDITION:
        e = err_set(ERR_MISMATCH, "%s is of another version: use the same atoll everywhere (%s)", l->target, text);
        break;
    case GRPC_STATUS_INVALID_ARGUMENT:
    case GRPC_STATUS_DATA_LOSS:
    case GRPC_STATUS_OUT_OF_RANGE:
        e = err_set(ERR_PROTO, "%s did not accept a message: %s", l->target, text);
        break;
    case GRPC_STATUS_RESOURCE_EXHAUSTED: /* by us: too many calls, passes; by core: over the receive limit */
        e = err_set(strncmp(text, "busy", 4) == 0 ? ERR_LINK : ERR_PROTO, "%s: %s", l->target, text);
        break;
    case GRPC_STATUS_DEADLINE_EXCEEDED:
        e = err_set(ERR_LINK, "%s: no answer in time", l->target);
        break;
    default:
        e = unavailable(l, text);
    }
    gpr_free(text);
    return e;
}

/* ---- small calls ---- */

/* A control call waits as long as keepalive needs to notice a dead link, and as long as the answer may be held. */
static enum err unary_call(struct link_grpc *l, struct link_call *c, grpc_byte_buffer *request, enum wire_kind answer_kind,
                           void *answer, struct arena *a)
{
    count(l, request, NULL, 0, 0);
    grpc_byte_buffer *bb = NULL;
    if (link_call_send(c, request) && link_call_half_close(c) && link_call_recv_start(c))
        bb = received(l, c);
    enum err e = call_result(l, c);
    if (e == ERR_OK && !bb)
        return err_set(ERR_PROTO, "%s ended a call without an answer", l->target);
    if (e == ERR_OK) {
        e = link_decode(bb, answer_kind, answer, a);
        return e == ERR_OK ? e : err_add(ERR_PROTO, "answer of %s: ", l->target);
    }
    if (bb)
        grpc_byte_buffer_destroy(bb);
    return e;
}

static enum err unary(struct link *base, enum link_method method, enum wire_kind kind, const void *m, uint32_t hold_ms,
                      enum wire_kind answer_kind, void *answer)
{
    struct link_grpc *l = self_of(base);
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    uint8_t *data;
    size_t n;
    enum err e = wire_encode(kind, m, &a, &data, &n);
    if (e == ERR_OK) {
        struct link_call *c = call_begin(l, method, (uint64_t)hold_ms + l->keepalive_ms + l->keepalive_ms / 2);
        link_call_about(c, method, m);
        e = unary_call(l, c, link_buffer(data, n), answer_kind, answer, &a);
        call_end(l, c);
    }
    arena_free(&a);
    return e;
}

static enum err grpc_hello(struct link *l, const struct wire_hello *m, struct wire_hello_answer *answer)
{
    return unary(l, LINK_HELLO, WIRE_HELLO, m, 0, WIRE_HELLO_ANSWER, answer);
}

static enum err grpc_poll(struct link *l, const struct wire_poll *m, uint32_t hold_ms, struct wire_poll_answer *answer)
{
    struct wire_poll held = *m;
    held.hold_ms = hold_ms;
    return unary(l, LINK_POLL, WIRE_POLL, &held, hold_ms, WIRE_POLL_ANSWER, answer);
}

static enum err grpc_report(struct link *l, const struct wire_report *m, struct wire_answer *answer)
{
    return unary(l, LINK_REPORT, WIRE_REPORT, m, 0, WIRE_ANSWER, answer);
}

static enum err grpc_leave(struct link *l, const struct wire_leave *m, struct wire_answer *answer)
{
    return unary(l, LINK_LEAVE, WIRE_LEAVE, m, 0, WIRE_ANSWER, answer);
}

/* ---- contribution ---- */

struct upload {
    struct link_grpc *l;
    struct link_call *c;
    const uint8_t *payload;
    uint64_t total;
    struct wire_answer *answer;
    bool final; /* answer holds the end of the story */
};

/* Takes the Answer that has come. ERR_LINK without a sentence: the stream is over, its status says why. */
static enum err upload_answer(struct upload *u)
{
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    grpc_byte_buffer *bb = received(u->l, u->c);
    enum err e = bb ? link_decode(bb, WIRE_ANSWER, u->answer, &a) : ERR_LINK;
    arena_free(&a);
    if (e == ERR_OK && u->answer->offset > u->total)
        e = err_set(ERR_PROTO, "%s wants to go on at %llu of %llu bytes", u->l->target,
                    (unsigned long long)u->answer->offset, (unsigned long long)u->total);
    u->final = e == ERR_OK && u->answer->outcome != ROUND_NONE;
    return e;
}

/* Answers that came while we send: progress, or the end. */
static enum err upload_answers(struct upload *u)
{
    while (!u->final && link_call_done(u->c, &u->c->recv)) {
        TRY(upload_answer(u));
        if (!u->final && !link_call_recv_start(u->c))
            return ERR_LINK;
    }
    return ERR_OK;
}

/* *open: false when the stream takes no more; why, the answers or the status will say. */
static enum err upload_chunk(struct upload *u, uint64_t offset, uint32_t size, bool *open)
{
    const uint8_t *data = u->payload + offset;
    struct wire_chunk chunk = {offset, u->total, digest_crc32c(0, data, size), size};
    grpc_byte_buffer *bb = link_chunk(u->c, &chunk, data);
    count(u->l, bb, NULL, size, 0);
    *open = link_call_send_start(u->c, bb);
    while (*open && !u->final && !link_call_done(u->c, &u->c->send)) {
        link_call_wait_any(u->c, &u->c->send, &u->c->recv);
        TRY(upload_answers(u));
    }
    if (*open && !u->final)
        *open = link_call_wait(u->c, &u->c->send);
    return ERR_OK;
}

static enum err upload_chunks(struct upload *u)
{
    uint64_t offset = u->answer->offset;
    bool open = true;
    u->final = false;
    if (!link_call_recv_start(u->c))
        return ERR_LINK;
    while (open && !u->final && offset < u->total) {
        uint64_t left = u->total - offset;
        uint32_t size = left < WIRE_CHUNK_BYTES ? (uint32_t)left : WIRE_CHUNK_BYTES;
        TRY(upload_chunk(u, offset, size, &open));
        offset += size;
    }
    if (open && !u->final)
        link_call_half_close(u->c);
    while (!u->final) {
        TRY(upload_answer(u));
        if (!u->final && !link_call_recv_start(u->c))
            return ERR_LINK;
    }
    return ERR_OK;
}

static enum err upload_all(struct upload *u, grpc_byte_buffer *offer)
{
    count(u->l, offer, NULL, 0, 0);
    enum err e = link_call_send(u->c, offer) && link_call_recv_start(u->c) ? upload_answer(u) : ERR_LINK;
    if (e == ERR_OK && u->answer->outcome == ROUND_RESUME)
        e = upload_chunks(u);
    if (e != ERR_LINK) { /* what may still be on its way is not wanted */
        if (e != ERR_OK || u->c->send.pending)
            grpc_call_cancel(u->c->call, NULL);
        return e;
    }
    e = call_result(u->l, u->c);
    return e == ERR_OK ? err_set(ERR_LINK, "%s ended a contribution without an answer", u->l->target) : e;
}

static enum err contribute_once(struct link_grpc *l, const struct wire_contribution *m, const uint8_t *payload,
                                struct wire_answer *answer, bool *damaged)
{
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    uint8_t *data;
    size_t n;
    enum err e = wire_encode(WIRE_UPLOAD, m, &a, &data, &n);
    if (e == ERR_OK) {
        struct upload u = {.l = l, .payload = payload, .total = m->payload_bytes, .answer = answer};
        u.c = call_begin(l, LINK_CONTRIBUTE, UINT64_MAX);
        link_call_about(u.c, LINK_CONTRIBUTE, m);
        e = upload_all(&u, link_buffer(data, n));
        u.c->row.done = e == ERR_OK && answer->outcome == ROUND_RECEIPT;
        call_end(l, u.c);
        *damaged = e == ERR_OK && answer->outcome == ROUND_RESUME;
    }
    arena_free(&a);
    return e;
}

static enum err grpc_contribute(struct link *base, const struct wire_contribution *m, const uint8_t *payload,
                                struct wire_answer *answer)
{
    bool damaged = true;
    for (int i = 0; i < CONTRIBUTE_TRIES && damaged; i++)
        TRY(contribute_once(self_of(base), m, payload, answer, &damaged));
    return damaged ? err_set(ERR_PROTO, "%s found the contribution damaged %d times: %s", self_of(base)->target,
                             CONTRIBUTE_TRIES, answer->text)
                   : ERR_OK;
}

/* ---- download ---- */

struct download {
    struct link_grpc *l;
    struct link_call *c;
    uint8_t *out;
    uint64_t total, at;
    struct wire_answer *answer;
};

static enum err download_chunk(struct download *d, grpc_byte_buffer *bb)
{
    struct wire_chunk chunk;
    size_t data_at;
    TRY(link_chunk_head(d->c, bb, &chunk, &data_at));
    if (chunk.total != d->total || chunk.offset != d->at)
        return err_set(ERR_PROTO, "%s sent bytes at %llu of %llu, expected %llu of %llu", d->l->target,
                       (unsigned long long)chunk.offset, (unsigned long long)chunk.total, (unsigned long long)d->at,
                       (unsigned long long)d->total);
    TRY(link_chunk_data(bb, &chunk, data_at, d->out + d->at));
    d->at += chunk.size_bytes;
    count(d->l, NULL, NULL, 0, chunk.size_bytes);
    return ERR_OK;
}

static enum err download_all(struct download *d, grpc_byte_buffer *request, struct arena *a)
{
    count(d->l, request, NULL, 0, 0);
    grpc_byte_buffer *bb = NULL;
    if (link_call_send(d->c, request) && link_call_half_close(d->c) && link_call_recv_start(d->c))
        bb = received(d->l, d->c);
    if (!bb) {
        enum err e = call_result(d->l, d->c);
        return e == ERR_OK ? err_set(ERR_PROTO, "%s ended a download without an answer", d->l->target) : e;
    }
    TRY(link_decode(bb, WIRE_DOWNLOAD, d->answer, a));
    while (d->answer->outcome == ROUND_NONE && d->at < d->total) {
        bb = link_call_recv_start(d->c) ? received(d->l, d->c) : NULL;
        if (!bb) {
            enum err e = call_result(d->l, d->c);
            return e == ERR_OK ? err_set(ERR_PROTO, "%s ended a download early", d->l->target) : e;
        }
        enum err e = download_chunk(d, bb);
        grpc_byte_buffer_destroy(bb);
        TRY(e);
    }
    return ERR_OK;
}

static enum err fetch_once(struct download *d, const struct wire_fetch *m)
{
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    uint8_t *data;
    size_t n;
    struct wire_fetch from = *m;
    from.offset = d->at;
    enum err e = wire_encode(WIRE_FETCH, &from, &a, &data, &n);
    if (e == ERR_OK) {
        d->c = call_begin(d->l, LINK_FETCH, UINT64_MAX);
        link_call_about(d->c, LINK_FETCH, m);
        d->c->row.total = d->total;
        e = download_all(d, link_buffer(data, n), &a);
        d->c->row.done = e == ERR_OK && d->at == d->total;
        if (e != ERR_OK)
            grpc_call_cancel(d->c->call, NULL);
        call_end(d->l, d->c);
    }
    arena_free(&a);
    return e;
}

/* Goes on at once for as long as each try brings bytes: a link that was cut, a chunk that was damaged. */
static enum err grpc_fetch(struct link *base, const struct wire_fetch *m, uint8_t *out, size_t size_bytes,
                           struct wire_answer *answer)
{
    if (m->offset > size_bytes)
        return err_set(ERR_INTERNAL, "a download from %llu of %zu bytes", (unsigned long long)m->offset, size_bytes);
    struct download d = {.l = self_of(base), .out = out, .total = size_bytes, .at = m->offset, .answer = answer};
    uint64_t before;
    enum err e;
    do {
        before = d.at;
        e = fetch_once(&d, m);
    } while ((e == ERR_LINK || e == ERR_CORRUPT) && d.at > before);
    answer->offset = d.at;
    return e == ERR_CORRUPT ? err_add(ERR_PROTO, "%s: ", d.l->target) : e;
}

/* ---- open and close ---- */

static void grpc_counters(struct link *base, struct link_counters *out)
{
    struct link_grpc *l = self_of(base);
    pthread_mutex_lock(&l->mutex);
    link_sockets_scan(&l->sockets);
    *out = l->counters;
    out->wire_up = l->sockets.up;
    out->wire_down = l->sockets.down;
    pthread_mutex_unlock(&l->mutex);
}

static void link_free(struct link_grpc *l)
{
    pthread_mutex_destroy(&l->mutex);
    free(l->target);
    free(l->server_name);
    free(l->ca);
    free(l->certificate);
    free(l->key);
    free(l);
}

static void grpc_close(struct link *base)
{
    struct link_grpc *l = self_of(base);
    ASSERT(l->calls == 0);
    pthread_mutex_lock(&l->mutex);
    book(l, NULL);
    pthread_mutex_unlock(&l->mutex);
    channels_destroy(l);
    link_core_close();
    link_sockets_close(&l->sockets);
    link_free(l);
}

static const struct link_ops grpc_ops = {
    .hello = grpc_hello,
    .contribute = grpc_contribute,
    .poll = grpc_poll,
    .fetch = grpc_fetch,
    .report = grpc_report,
    .leave = grpc_leave,
    .counters = grpc_counters,
    .close = grpc_close,
};

enum err link_open(struct link **out, const struct link_dial *d)
{
    const char *colon = strrchr(d->target, ':');
    int port = colon ? atoi(colon + 1) : 0;
    if (port <= 0 || port > 65535)
        return err_set(ERR_CONFIG, "'%s' is no address of an aggregator: host:port", d->target);
    struct link_grpc *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(ERR_MEMORY, "no memory for a link");
    pthread_mutex_init(&l->mutex, NULL);
    l->base.ops = &grpc_ops;
    l->target = strdup(d->target);
    l->server_name = d->server_name && *d->server_name ? strdup(d->server_name) : NULL;
    l->ca = strdup(d->tls.ca);
    l->certificate = strdup(d->tls.certificate);
    l->key = strdup(d->tls.key);
    l->files = (struct link_tls){l->ca, l->certificate, l->key};
    l->keepalive_ms = d->keepalive_ms ? d->keepalive_ms : LINK_KEEPALIVE_MS;
    l->sockets.port = (uint16_t)port;
    l->sockets.keepalive_ms = l->keepalive_ms;
    l->book = d->book;
    l->book_self = d->book_self;
    enum err e = link_core_open(&l->cq);
    if (e != ERR_OK) {
        link_free(l);
        return e;
    }
    e = channels_make(l);
    if (e != ERR_OK) {
        grpc_close(&l->base);
        return e;
    }
    *out = &l->base;
    return ERR_OK;
}
