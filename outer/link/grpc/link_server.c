/* The aggregator's end of the real link. One acceptor hands each call to a thread of its own: calls
 * are few (a handful per site, capped) and long (held polls, contributions), so a thread each is
 * the simplest form that blocks nobody. The service runs under one lock, but for what may take long
 * for one contribution: that runs on its call's thread; a work thread calls work() beside it.
 */
#include <errno.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <netdb.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "kernels/base/log.h"
#include "outer/link/grpc/link_call.h"
#include "outer/link/grpc/link_socket.h"
#include "outer/link/tls.h"

enum {
    CALLS_MAX = 2048, /* under way, all sites */
    CALLS_PER_SITE_MAX =
        64, /* polls of fragments in flight, and up to twice LINK_STREAMS_MAX for bulk */
    HOLD_MS_MAX = 60000,
    CHUNK_LEAST = 4096,
    ACK_CHUNKS = 8, /* an Answer that tells the stored offset every so many chunks */
    BUFFERS = 8, /* of one chunk each, shared by all streams: who has one waits for nobody but the
                    service */
    /* Of what core may hold unread, for all connections; the rest is for streams of contributions,
     * of which each may need so much (a window of 4 MiB and what goes beyond it until it shrinks, a
     * message that has half come). From 80 % on windows shrink; beyond all of it core closes idle
     * connections, then breaks streams off: so no more are received at a time than there is memory
     * for. */
    UNREAD_BYTES = 64 << 20,
    UNREAD_STREAM_BYTES = 6 << 20,
    READ_BYTES = 256 << 10, /* that a connection keeps for its next read, of the same memory, also
                               while it is idle; core's own is 4 MiB */
    RECEIVED_PER_SITE = 4,  /* one site has at most one of so many parts of them */
    CONNECTION_AGE_MS =
        3600000 /* expiry and withdrawal of a certificate bite only in a handshake */
};

struct server_call {
    struct server_call *next;
    struct link_server *server;
    struct link_call *c;
    enum link_method method;
    pthread_t thread;
    void *source; /* of a download; given back when no slice points into it any more */
    char peer[TLS_URI_MAX];
    uint64_t socket;   /* the kernel's name of its connection; 0: not found */
    bool busy;         /* the site has too many under way */
    uint32_t fragment; /* of a contribution */
    bool joins;        /* it is not the leading stream of its contribution */
    bool received;     /* its chunks are: one of `receiving` */
    bool waits;        /* to be woken when a stream may be received */
};
struct request { /* one waiting for the next call of each method */
    grpc_call *call;
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    enum link_method method;
};
struct link_server {
    struct link_service service;
    grpc_completion_queue *cq, *notify;
    grpc_server *server;
    void *methods[LINK_METHODS];
    struct request requests[LINK_METHODS];
    pthread_t acceptor, worker;
    char *ca, *certificate, *key, *address;
    struct link_tls files;
    _Atomic uint64_t stamp;
    atomic_bool stopped;
    pthread_mutex_t service_mutex; /* the service's functions */
    pthread_mutex_t mutex;         /* guards all below */
    pthread_cond_t changed, given_back, stored;
    uint8_t *buffers[BUFFERS]; /* WIRE_CHUNK_BYTES each, made at the first use; the first
                                  `buffers_free` are nobody's */
    unsigned buffers_made, buffers_free;
    grpc_resource_quota *quota;
    unsigned receiving, receiving_most,
        sites;                         /* streams of contributions; that may come, 0: not known */
    struct server_call *calls, *ended; /* under way; to be joined */
    struct transfer *transfers;
    unsigned call_count;
    bool work_due, stopping;
    struct link_sockets sockets;
    ledger_sink *book;
    void *book_self;
};

/* ---- work, and who waits for it ---- */

static void work_soon(struct link_server *s)
{
    pthread_mutex_lock(&s->mutex);
    s->work_due = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static void wake_held(struct link_server *s)
{
    pthread_mutex_lock(&s->mutex);
    for (struct server_call *call = s->calls; call; call = call->next)
        if (call->method == LINK_POLL || (call->waits && s->stopping))
            link_call_wake(call->c);
    pthread_mutex_unlock(&s->mutex);
}

static bool work_wait(struct link_server *s, uint64_t wake_ms)
{
    struct timespec until = {(time_t)(wake_ms / 1000), (long)(wake_ms % 1000) * 1000000};
    bool ever = wake_ms < UINT64_MAX / 2;
    pthread_mutex_lock(&s->mutex);
    int late = 0;
    while (!s->work_due && !s->stopping && !late)
        late = ever ? pthread_cond_timedwait(&s->changed, &s->mutex, &until)
                    : pthread_cond_wait(&s->changed, &s->mutex);
    s->work_due = false;
    bool go = !s->stopping;
    pthread_mutex_unlock(&s->mutex);
    return go;
}

static bool server_stopping(struct link_server *s)
{
    pthread_mutex_lock(&s->mutex);
    bool stopping = s->stopping;
    pthread_mutex_unlock(&s->mutex);
    return stopping;
}

static void work_stop(struct link_server *s)
{
    pthread_mutex_lock(&s->mutex);
    s->stopping = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static void *work_main(void *server)
{
    struct link_server *s = server;
    uint64_t wake_ms = 0;
    bool stop = false;
    while (!stop && work_wait(s, wake_ms)) {
        pthread_mutex_lock(&s->service_mutex);
        wake_ms = s->service.work(s->service.self, &stop);
        pthread_mutex_unlock(&s->service_mutex);
        wake_held(s);
    }
    atomic_store(&s->stopped, stop);
    return NULL;
}

/* ---- who is calling ---- */

static bool property_is(grpc_auth_context *ctx, const char *name, const char *value)
{
    grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(ctx, name);
    const grpc_auth_property *p = grpc_auth_property_iterator_next(&it);
    return p && p->value_length == strlen(value) && memcmp(p->value, value, p->value_length) == 0;
}

/* The caller's name: exactly one URI in the certificate it showed in this very connection. */
static bool peer_uri(grpc_call *call, char out[TLS_URI_MAX])
{
    grpc_auth_context *ctx = grpc_call_auth_context(call);
    bool ok = false;
    if (ctx && grpc_auth_context_peer_is_authenticated(ctx) &&
        property_is(ctx, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME,
                    GRPC_SSL_TRANSPORT_SECURITY_TYPE) &&
        property_is(ctx, GRPC_SSL_SESSION_REUSED_PROPERTY, "false")) {
        grpc_auth_property_iterator it =
            grpc_auth_context_find_properties_by_name(ctx, GRPC_PEER_URI_PROPERTY_NAME);
        const grpc_auth_property *uri = grpc_auth_property_iterator_next(&it);
        if (uri && uri->value_length < TLS_URI_MAX && !memchr(uri->value, 0, uri->value_length) &&
            !grpc_auth_property_iterator_next(&it)) {
            memcpy(out, uri->value, uri->value_length);
            out[uri->value_length] = 0;
            ok = true;
        }
    }
    if (ctx)
        grpc_auth_context_release(ctx);
    return ok;
}

static unsigned calls_of(const struct link_server *s, const char *peer) /* under its mutex */
{
    unsigned n = 0;
    for (const struct server_call *call = s->calls; call; call = call->next)
        n += strcmp(call->peer, peer) == 0;
    return n;
}

/* ---- what the calls cost ---- */

/* A connection that breaks takes along what it carried after it was last read: so it is read with
 * every chunk. */
static void socket_read(const struct server_call *call)
{
    struct link_server *s = call->server;
    pthread_mutex_lock(&s->mutex);
    link_sockets_read(&s->sockets, call->socket);
    pthread_mutex_unlock(&s->mutex);
}

static const char *site_of(const char *peer) /* atoll://run/site/NAME */
{
    const char *slash = strrchr(peer, '/');
    return slash && slash[1] ? slash + 1 : "-";
}

/* The call that begins, on which connection, after how long a silence of its site. */
static void socket_begin(struct server_call *call, grpc_call *core) /* under the server's mutex */
{
    struct link_server *s = call->server;
    char *from = grpc_call_get_peer(core);
    call->socket = link_sockets_own(&s->sockets, from, site_of(call->peer));
    link_sockets_spoke(&s->sockets, site_of(call->peer), link_now_ms(),
                       calls_of(s, call->peer) == 0);
    gpr_free(from);
}

static void book_sockets(struct link_server *s) /* under its mutex */
{
    struct ledger_row row;
    while (s->book && link_sockets_next(&s->sockets, &row))
        s->book(s->book_self, &row);
}

static void book(const struct server_call *call,
                 struct ledger_row *row) /* under the server's mutex */
{
    struct link_server *s = call->server;
    link_sockets_settle(&s->sockets, call->socket);
    book_sockets(s);
    link_sockets_spoke(&s->sockets, site_of(call->peer), link_now_ms(), false);
    if (!s->book)
        return;
    snprintf(row->site, sizeof row->site, "%s", site_of(call->peer));
    s->book(s->book_self, row);
}

/* ---- small calls ---- */

static bool answer_send(struct link_call *c, enum wire_kind kind, const void *answer,
                        struct arena *a)
{
    uint8_t *data;
    size_t n;
    return wire_encode(kind, answer, a, &data, &n) == ERR_OK &&
           link_call_send(c, link_buffer(data, n));
}

static bool request_read(struct link_call *c, enum wire_kind kind, void *message, struct arena *a)
{
    grpc_byte_buffer *bb = link_call_recv(c);
    if (!bb)
        err_set(ERR_PROTO, "no request");
    return bb && link_decode(bb, kind, message, a) == ERR_OK;
}

/* The service answers, again after each work(), until it is no longer PENDING or the caller's time
 * is over. */
static void poll_held(struct server_call *call, const struct wire_poll *m,
                      struct wire_poll_answer *answer)
{
    struct link_server *s = call->server;
    uint64_t until = link_now_ms() + (m->hold_ms < HOLD_MS_MAX ? m->hold_ms : HOLD_MS_MAX);
    bool again;
    do {
        answer->answer = (struct wire_answer){0};
        manifest_clear(&answer->manifest);
        pthread_mutex_lock(&s->service_mutex);
        s->service.poll(s->service.self, call->peer, m, answer);
        pthread_mutex_unlock(&s->service_mutex);
        again = answer->answer.outcome == ROUND_PENDING && !server_stopping(s) &&
                link_call_wait_again(call->c, until);
    } while (again);
}

union message {
    struct wire_hello hello;
    struct wire_poll poll;
    struct wire_report report;
    struct wire_leave leave;
};
union answer {
    struct wire_hello_answer hello;
    struct wire_poll_answer poll;
    struct wire_answer plain;
};
static const struct {
    enum wire_kind request, answer;
} kinds[] = {
    [LINK_HELLO] = {WIRE_HELLO, WIRE_HELLO_ANSWER},
    [LINK_POLL] = {WIRE_POLL, WIRE_POLL_ANSWER},
    [LINK_REPORT] = {WIRE_REPORT, WIRE_ANSWER},
    [LINK_LEAVE] = {WIRE_LEAVE, WIRE_ANSWER},
};

static void service_call(struct server_call *call, const union message *m, union answer *answer)
{
    struct link_server *s = call->server;
    const struct link_service *service = &s->service;
    pthread_mutex_lock(&s->service_mutex);
    if (call->method == LINK_HELLO)
        service->hello(service->self, call->peer, &m->hello, &answer->hello);
    else if (call->method == LINK_REPORT)
        service->report(service->self, call->peer, &m->report, &answer->plain);
    else
        service->leave(service->self, call->peer, &m->leave, &answer->plain);
    pthread_mutex_unlock(&s->service_mutex);
    work_soon(s);
}

static void unary_serve(struct server_call *call)
{
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    union message m;
    union answer answer = {0};
    if (!request_read(call->c, kinds[call->method].request, &m, &a)) {
        link_call_reply(call->c, GRPC_STATUS_INVALID_ARGUMENT, err_message());
    } else {
        link_call_about(call->c, call->method, &m);
        if (call->method == LINK_POLL)
            poll_held(call, &m.poll, &answer.poll);
        else
            service_call(call, &m, &answer);
        answer_send(call->c, kinds[call->method].answer, &answer, &a);
        link_call_reply(call->c, GRPC_STATUS_OK, "");
    }
    arena_free(&a);
}

/* ---- contribution ---- */

struct transfer { /* one contribution on its way, on one or several streams; under the server's
                     mutex but for what is said */
    struct transfer *next;
    char peer[TLS_URI_MAX];
    uint64_t id, total;
    uint32_t fragment;
    void *handle;              /* the service's */
    unsigned streams, storing; /* chunks that the service is asked about or writes */
    bool over;                 /* nobody may join or store any more */
    struct wire_answer broken; /* what ended a joined stream before all was stored; NONE: nothing */
};
struct stream {
    struct server_call *call;
    struct transfer *t;
    struct wire_answer answer; /* the last one; NONE while all is well */
    struct arena arena;
};

static struct transfer *transfer_open(struct server_call *call, const struct wire_contribution *m,
                                      void *handle)
{
    struct link_server *s = call->server;
    struct transfer *t = calloc(1, sizeof *t);
    ASSERT(t);
    *t = (struct transfer){.id = m->transfer,
                           .total = m->payload_bytes,
                           .fragment = m->fragment,
                           .handle = handle,
                           .streams = 1};
    snprintf(t->peer, sizeof t->peer, "%s", call->peer);
    pthread_mutex_lock(&s->mutex);
    t->next = s->transfers;
    s->transfers = t;
    pthread_mutex_unlock(&s->mutex);
    return t;
}

/* NULL: there is none, or not any more. */
static struct transfer *transfer_join(struct server_call *call, const struct wire_contribution *m)
{
    struct link_server *s = call->server;
    pthread_mutex_lock(&s->mutex);
    struct transfer *t = s->transfers;
    while (t && (t->over || t->id != m->transfer || t->fragment != m->fragment ||
                 t->total != m->payload_bytes || strcmp(t->peer, call->peer) != 0))
        t = t->next;
    if (t)
        t->streams++;
    pthread_mutex_unlock(&s->mutex);
    return t;
}

/* Nothing is stored after this. */
static void transfer_over(struct link_server *s, struct transfer *t)
{
    pthread_mutex_lock(&s->mutex);
    t->over = true;
    while (t->storing)
        pthread_cond_wait(&s->stored, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
}

static bool store_begin(struct link_server *s, struct transfer *t)
{
    pthread_mutex_lock(&s->mutex);
    bool may = !t->over;
    t->storing += may;
    pthread_mutex_unlock(&s->mutex);
    return may;
}

static void store_end(struct link_server *s, struct transfer *t)
{
    pthread_mutex_lock(&s->mutex);
    t->storing--;
    pthread_cond_broadcast(&s->stored);
    pthread_mutex_unlock(&s->mutex);
}

static void transfer_release(struct link_server *s, struct transfer *t)
{
    pthread_mutex_lock(&s->mutex);
    bool last = --t->streams == 0;
    for (struct transfer **at = &s->transfers; last && *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            break;
        }
    pthread_mutex_unlock(&s->mutex);
    if (last)
        free(t);
}

/* A stream has a buffer only while it stores a chunk that has come: so many sites need no more of
 * them than a few. */
static uint8_t *buffer_take(struct link_server *s)
{
    pthread_mutex_lock(&s->mutex);
    if (!s->buffers_free && s->buffers_made < BUFFERS) {
        uint8_t *buffer = malloc(WIRE_CHUNK_BYTES);
        ASSERT(buffer);
        s->buffers_made++;
        s->buffers[s->buffers_free++] = buffer;
    }
    while (!s->buffers_free)
        pthread_cond_wait(&s->given_back, &s->mutex);
    uint8_t *buffer = s->buffers[--s->buffers_free];
    pthread_mutex_unlock(&s->mutex);
    return buffer;
}

static void buffer_give(struct link_server *s, uint8_t *buffer)
{
    pthread_mutex_lock(&s->mutex);
    s->buffers[s->buffers_free++] = buffer;
    pthread_cond_signal(&s->given_back);
    pthread_mutex_unlock(&s->mutex);
}

static void chunk_store(struct stream *u, const struct wire_chunk *chunk, const uint8_t *data)
{
    struct link_server *s = u->call->server;
    const struct link_service *service = &s->service;
    void *handle = u->t->handle;
    u->answer = (struct wire_answer){.outcome = ROUND_SUPERSEDED};
    if (!store_begin(s, u->t))
        return;
    u->answer = (struct wire_answer){0};
    pthread_mutex_lock(&s->service_mutex);
    service->chunk(service->self, handle, chunk->offset, data, chunk->size_bytes, &u->answer);
    pthread_mutex_unlock(&s->service_mutex);
    if (u->answer.outcome == ROUND_PENDING) { /* a slow disk holds up nobody's small calls */
        enum err e = service->store(service->self, handle, chunk->offset, data, chunk->size_bytes);
        pthread_mutex_lock(&s->service_mutex);
        service->stored(service->self, handle, chunk->offset, chunk->size_bytes, e, &u->answer);
        pthread_mutex_unlock(&s->service_mutex);
    }
    store_end(s, u->t);
}

static enum err chunk_take(struct stream *u, grpc_byte_buffer *bb)
{
    struct wire_chunk chunk;
    size_t data_at;
    TRY(link_chunk_head(u->call->c, bb, &chunk, &data_at));
    if (chunk.total != u->t->total)
        return err_set(ERR_PROTO, "a chunk of %llu bytes in all, offered were %llu",
                       (unsigned long long)chunk.total, (unsigned long long)u->t->total);
    uint8_t *data = buffer_take(u->call->server);
    enum err e = link_chunk_data(bb, &chunk, data_at, data);
    if (e == ERR_OK)
        chunk_store(u, &chunk, data);
    buffer_give(u->call->server, data);
    return e;
}

/* Damaged bytes end the stream with RESUME: the next offer learns what is stored. False: the stream
 * has no more. */
static bool stream_take(struct stream *u)
{
    grpc_byte_buffer *bb = link_call_recv(u->call->c);
    socket_read(u->call);
    if (!bb)
        return false;
    enum err e = chunk_take(u, bb);
    grpc_byte_buffer_destroy(bb);
    if (e != ERR_OK) {
        u->answer =
            (struct wire_answer){.outcome = e == ERR_CORRUPT ? ROUND_RESUME : ROUND_INVALID};
        snprintf(u->answer.text, sizeof u->answer.text, "%s", err_message());
    }
    return true;
}

/* Until the site sends no more, or something is wrong. */
static void stream_chunks(struct stream *u)
{
    unsigned chunks = 0;
    u->answer = (struct wire_answer){0};
    while (u->answer.outcome == ROUND_NONE && stream_take(u))
        if (u->answer.outcome == ROUND_NONE && ++chunks % ACK_CHUNKS == 0) {
            answer_send(u->call->c, WIRE_ANSWER, &u->answer, &u->arena);
            arena_reset(&u->arena);
        }
}

static void stream_end(struct stream *u)
{
    answer_send(u->call->c, WIRE_ANSWER, &u->answer, &u->arena);
    link_call_reply(u->call->c, GRPC_STATUS_OK, "");
}

static void transfer_finish(struct link_server *s, struct transfer *t, bool complete,
                            struct wire_answer *answer)
{
    const struct link_service *service = &s->service;
    pthread_mutex_lock(&s->service_mutex);
    service->finish(service->self, t->handle, complete, answer);
    pthread_mutex_unlock(&s->service_mutex);
    if (answer->outcome != ROUND_PENDING)
        return;
    service->verify(service->self, t->handle);
    pthread_mutex_lock(&s->service_mutex);
    service->verified(service->self, t->handle, answer);
    pthread_mutex_unlock(&s->service_mutex);
}

/* The leading stream: the site ends it last, so when it has no more the others have stored theirs,
 * or are dead. The service knows whether all bytes are there. */
static void stream_lead(struct stream *u)
{
    struct link_server *s = u->call->server;
    stream_chunks(u);
    transfer_over(s, u->t);
    bool complete = u->answer.outcome == ROUND_NONE;
    struct wire_answer answer = {0};
    transfer_finish(s, u->t, complete, &answer);
    work_soon(s);
    pthread_mutex_lock(&s->mutex);
    if (complete)
        u->answer = answer;
    if (u->answer.outcome == ROUND_RESUME && u->t->broken.outcome != ROUND_NONE)
        u->answer = u->t->broken;
    pthread_mutex_unlock(&s->mutex);
    transfer_release(s, u->t);
    u->call->c->row.done = u->answer.outcome == ROUND_RECEIPT;
    stream_end(u);
}

/* Another stream: OK once everything that it carried is stored. What stopped it is told on the
 * leading one as well. */
static void stream_joined(struct stream *u)
{
    struct link_server *s = u->call->server;
    stream_chunks(u);
    pthread_mutex_lock(&s->mutex);
    if (u->answer.outcome != ROUND_NONE && u->answer.outcome != ROUND_SUPERSEDED)
        u->t->broken = u->answer;
    pthread_mutex_unlock(&s->mutex);
    transfer_release(s, u->t);
    stream_end(u);
}

static void contribution_offer(struct server_call *call, const struct wire_contribution *m,
                               struct stream *u)
{
    struct link_server *s = call->server;
    void *handle = NULL;
    if (m->stream) {
        u->t = transfer_join(call, m);
        u->answer.outcome = u->t ? ROUND_RESUME : ROUND_SUPERSEDED;
        return;
    }
    pthread_mutex_lock(&s->service_mutex);
    s->service.offer(s->service.self, call->peer, m, &u->answer, &handle);
    pthread_mutex_unlock(&s->service_mutex);
    work_soon(s);
    bool resume = u->answer.outcome == ROUND_RESUME;
    ASSERT(!resume || (handle && u->answer.offset <= m->payload_bytes));
    if (resume)
        u->t = transfer_open(call, m, handle);
}

/* ---- whose turn it is to be received ---- */

/* Streams that join leave room for one of each site: else a few sites with slow lines would keep
 * all others waiting. What the same site sent of the same fragment does not stand in the way of a
 * new leading stream: it takes their place, and they may hang on a connection that is dead, which
 * shows only after a while. They count for a site that opens one after the other. */
static bool receive_may(const struct server_call *call) /* under the server's mutex */
{
    const struct link_server *s = call->server;
    unsigned mine = 0, replaced = 0, joined = 0;
    unsigned most = s->receiving_most / RECEIVED_PER_SITE + (s->receiving_most < RECEIVED_PER_SITE);
    for (const struct server_call *c = s->calls; c; c = c->next) {
        bool same = c->received && strcmp(c->peer, call->peer) == 0;
        joined += c->received && c->joins;
        mine += same;
        replaced += same && !call->joins && c->fragment == call->fragment;
    }
    if (call->joins && joined + s->sites >= s->receiving_most)
        return false;
    return s->receiving - replaced < s->receiving_most && mine - replaced < most && mine < 2 * most;
}

static bool receive_try(struct server_call *call)
{
    struct link_server *s = call->server;
    pthread_mutex_lock(&s->mutex);
    call->received = receive_may(call);
    call->waits = !call->received;
    s->receiving += call->received;
    pthread_mutex_unlock(&s->mutex);
    return call->received;
}

/* False: it hung up, or the server ends. A lead alone brings all of a contribution, so one that
 * would only join does not wait. */
static bool receive_begin(struct server_call *call, const struct wire_contribution *m)
{
    call->joins = m->stream > 0;
    call->fragment = m->fragment;
    bool mine = receive_try(call);
    while (!mine && !call->joins && !server_stopping(call->server) &&
           link_call_wait_again(call->c, UINT64_MAX / 4))
        mine = receive_try(call);
    return mine;
}

static void receive_end(struct server_call *call)
{
    struct link_server *s = call->server;
    pthread_mutex_lock(&s->mutex);
    s->receiving -= call->received;
    call->received = call->waits = false;
    for (struct server_call *c = s->calls; c; c = c->next)
        if (c->waits)
            link_call_wake(c->c);
    pthread_mutex_unlock(&s->mutex);
}

static void contribution_receive(struct stream *u, const struct wire_contribution *m)
{
    if (receive_begin(u->call, m)) {
        contribution_offer(u->call, m, u);
    } else if (m->stream) {
        u->answer.outcome = ROUND_SUPERSEDED;
    } else {
        link_call_reply(u->call->c, GRPC_STATUS_RESOURCE_EXHAUSTED, "busy: the aggregator ends");
        return;
    }
    answer_send(u->call->c, WIRE_ANSWER, &u->answer, &u->arena);
    if (!u->t)
        link_call_reply(u->call->c, GRPC_STATUS_OK, "");
    else if (m->stream)
        stream_joined(u);
    else
        stream_lead(u);
}

static void contribute_serve(struct server_call *call)
{
    struct wire_contribution m;
    struct stream u = {.call = call, .arena = arena_make(WIRE_DECODE_BYTES_MAX)};
    if (request_read(call->c, WIRE_UPLOAD, &m, &u.arena)) {
        link_call_about(call->c, LINK_CONTRIBUTE, &m);
        contribution_receive(&u, &m);
        receive_end(call);
    } else {
        link_call_reply(call->c, GRPC_STATUS_INVALID_ARGUMENT, err_message());
    }
    arena_free(&u.arena);
}

/* ---- download ---- */

/* Bytes [at, end), not copied: all sites that read the same bytes send from the same memory. */
static bool chunks_send(struct server_call *call, const uint8_t *data, size_t size_bytes,
                        uint64_t at, uint64_t end, uint32_t chunk_bytes)
{
    bool alive = true;
    while (alive && at < end) {
        uint64_t left = end - at;
        struct wire_chunk chunk = {.offset = at, .total = size_bytes};
        chunk.size_bytes = left < chunk_bytes ? (uint32_t)left : chunk_bytes;
        chunk.crc32c = digest_crc32c(0, data + at, chunk.size_bytes);
        alive = link_call_send(call->c, link_chunk(call->c, &chunk, data + at));
        at += chunk.size_bytes;
        socket_read(call);
    }
    return alive;
}

static uint32_t chunk_size(uint32_t wanted)
{
    return wanted == 0 || wanted > WIRE_CHUNK_BYTES ? WIRE_CHUNK_BYTES
           : wanted < CHUNK_LEAST                   ? CHUNK_LEAST
                                                    : wanted;
}

static void fetch_serve(struct server_call *call)
{
    struct link_server *s = call->server;
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    struct wire_fetch m;
    struct wire_answer answer = {0};
    const uint8_t *data = NULL;
    size_t size = 0;
    if (!request_read(call->c, WIRE_FETCH, &m, &a)) {
        link_call_reply(call->c, GRPC_STATUS_INVALID_ARGUMENT, err_message());
    } else {
        pthread_mutex_lock(&s->service_mutex);
        s->service.fetch(s->service.self, call->peer, &m, &data, &size, &call->source, &answer);
        pthread_mutex_unlock(&s->service_mutex);
        bool sending = answer.outcome == ROUND_NONE;
        ASSERT(!sending || (m.offset <= size && m.size_bytes <= size - m.offset));
        uint64_t end = m.size_bytes ? m.offset + m.size_bytes : size;
        link_call_about(call->c, LINK_FETCH, &m);
        call->c->row.total = size;
        bool all = answer_send(call->c, WIRE_DOWNLOAD, &answer, &a) && sending &&
                   chunks_send(call, data, size, m.offset, end, chunk_size(m.chunk_bytes));
        call->c->row.done = link_call_reply(call->c, GRPC_STATUS_OK, "") && all && end == size;
    }
    arena_free(&a);
}

/* ---- calls ---- */

static void call_unlist(struct server_call *call) /* nobody wakes it any more */
{
    struct link_server *s = call->server;
    pthread_mutex_lock(&s->mutex);
    struct server_call **at = &s->calls;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
    pthread_mutex_unlock(&s->mutex);
}

static void call_close(struct server_call *call)
{
    struct link_server *s = call->server;
    call_unlist(call);
    struct ledger_row row = link_call_row(call->c);
    link_call_close(call->c);
    if (call->source) {
        pthread_mutex_lock(&s->service_mutex);
        s->service.fetched(s->service.self, call->source);
        pthread_mutex_unlock(&s->service_mutex);
    }
    pthread_mutex_lock(&s->mutex);
    book(call, &row);
    call->next = s->ended;
    s->ended = call;
    s->call_count--;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static void *call_main(void *arg)
{
    struct server_call *call = arg;
    if (!call->peer[0])
        link_call_reply(call->c, GRPC_STATUS_PERMISSION_DENIED,
                        "the certificate must name exactly one URI, atoll://run/role/name");
    else if (call->busy)
        link_call_reply(call->c, GRPC_STATUS_RESOURCE_EXHAUSTED,
                        "busy: too many calls of this site at once");
    else if (call->method == LINK_CONTRIBUTE)
        contribute_serve(call);
    else if (call->method == LINK_FETCH)
        fetch_serve(call);
    else
        unary_serve(call);
    call_close(call);
    return NULL;
}

static void ended_join(struct link_server *s)
{
    pthread_mutex_lock(&s->mutex);
    struct server_call *list = s->ended;
    s->ended = NULL;
    pthread_mutex_unlock(&s->mutex);
    while (list) {
        struct server_call *call = list;
        list = call->next;
        pthread_join(call->thread, NULL);
        free(call);
    }
}

static void call_refuse(grpc_call *call)
{
    grpc_call_cancel(call, NULL);
    grpc_call_unref(call);
}

static void call_take(struct link_server *s, struct request *r)
{
    ended_join(s);
    struct server_call *call = calloc(1, sizeof *call);
    pthread_mutex_lock(&s->mutex);
    bool room = call && s->call_count < CALLS_MAX && !s->stopping;
    if (room) {
        *call = (struct server_call){.server = s, .method = r->method, .next = s->calls};
        if (!peer_uri(r->call, call->peer))
            call->peer[0] = 0;
        call->busy = calls_of(s, call->peer) >= CALLS_PER_SITE_MAX;
        socket_begin(call, r->call);
        call->c = link_call_accept(r->call);
        if (pthread_create(&call->thread, NULL, call_main, call) == 0) {
            s->calls = call;
            s->call_count++;
        } else {
            room = false;
        }
    }
    pthread_mutex_unlock(&s->mutex);
    if (room)
        return;
    if (call && call->c) {
        grpc_call_cancel(call->c->call, NULL);
        link_call_close(call->c);
    } else {
        call_refuse(r->call);
    }
    free(call);
}

static void request_next(struct link_server *s, enum link_method method)
{
    struct request *r = &s->requests[method];
    grpc_metadata_array_destroy(&r->metadata);
    grpc_metadata_array_init(&r->metadata);
    r->method = method;
    grpc_server_request_registered_call(s->server, s->methods[method], &r->call, &r->deadline,
                                        &r->metadata, NULL, s->cq, s->notify,
                                        r); /* an error: the server shuts down */
}

static void *accept_main(void *server)
{
    struct link_server *s = server;
    for (;;) {
        grpc_event ev =
            grpc_completion_queue_next(s->notify, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (ev.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        if (ev.tag == s) { /* the server has shut down */
            grpc_completion_queue_shutdown(s->notify);
            continue;
        }
        struct request *r = ev.tag;
        if (!ev.success)
            continue;
        call_take(s, r);
        request_next(s, r->method);
    }
}

/* ---- credentials: read again for each handshake when the files have changed ---- */

static grpc_ssl_certificate_config_reload_status
config_fetch(void *server, grpc_ssl_server_certificate_config **config)
{
    struct link_server *s = server;
    uint64_t stamp = tls_stamp(&s->files);
    if (stamp == atomic_load(&s->stamp))
        return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    struct tls_pem pem;
    if (stamp == 0 || tls_load(&pem, &s->files) != ERR_OK) {
        log_event(LOG_WARN, "certificate_reload", "ok=0 file=%s", s->files.certificate);
        return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL; /* core goes on with the ones it has */
    }
    grpc_ssl_pem_key_cert_pair pair = {.private_key = pem.key, .cert_chain = pem.certificate};
    *config = grpc_ssl_server_certificate_config_create(pem.ca, &pair, 1);
    tls_forget(&pem);
    atomic_store(&s->stamp, stamp);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

static grpc_server_credentials *credentials_make(struct link_server *s)
{
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, config_fetch, s));
}

/* ---- start and end ---- */

/* Core says only that it could not bind; the system says why. */
static enum err bind_failed(const char *address)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    snprintf(host, sizeof host, "%.*s", colon ? (int)(colon - address) : 0, address);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    int e = colon ? getaddrinfo(host, colon + 1, &hints, &found) : EAI_NONAME;
    if (e != 0)
        return err_set(ERR_CONFIG, "cannot listen on '%s': %s; it must be address:port", address,
                       gai_strerror(e));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    bool bound = bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0;
    int why = bound ? 0 : errno;
    close(fd);
    freeaddrinfo(found);
    if (why == EADDRINUSE || bound)
        return err_set(ERR_BUSY,
                       "cannot listen on %s: the port is in use: stop the other process or change "
                       "serve.listen",
                       address);
    return err_set(ERR_CONFIG, "cannot listen on %s: %s", address, strerror(why));
}

/* Without a quota each connection may hold a window of at least 4 MiB, and of twice rate x delay,
 * unread: sites x 4 MiB at the least. Core counts what it holds and takes the windows back as the
 * quota fills; what has been asked for still comes. */
static grpc_server *server_make(grpc_resource_quota *quota, int keepalive)
{
    int timeout = keepalive / 2 > 1000 ? keepalive / 2 : 1000;
    grpc_arg list[] = {
        {GRPC_ARG_INTEGER, (char *)"grpc.keepalive_time_ms", {.integer = keepalive}},
        {GRPC_ARG_INTEGER, (char *)"grpc.keepalive_timeout_ms", {.integer = timeout}},
        {GRPC_ARG_INTEGER, (char *)"grpc.keepalive_permit_without_calls", {.integer = 1}},
        {GRPC_ARG_INTEGER,
         (char *)"grpc.http2.min_ping_interval_without_data_ms",
         {.integer = keepalive / 2}},
        {GRPC_ARG_INTEGER, (char *)"grpc.http2.max_ping_strikes", {.integer = 0}},
        {GRPC_ARG_INTEGER,
         (char *)"grpc.max_receive_message_length",
         {.integer = WIRE_MESSAGE_MAX}},
        {GRPC_ARG_INTEGER, (char *)"grpc.compression_enabled_algorithms_bitset", {.integer = 1}},
        {GRPC_ARG_INTEGER,
         (char *)"grpc.experimental.tcp_max_read_chunk_size",
         {.integer = READ_BYTES}},
        {GRPC_ARG_INTEGER,
         (char *)"grpc.so_reuseport",
         {.integer = 0}}, /* 1: two servers bind one port silently */
        {GRPC_ARG_INTEGER,
         (char *)"grpc.max_concurrent_streams",
         {.integer = 2 * CALLS_PER_SITE_MAX}},
        {GRPC_ARG_INTEGER, (char *)"grpc.max_connection_age_ms", {.integer = CONNECTION_AGE_MS}},
        {GRPC_ARG_INTEGER,
         (char *)"grpc.max_connection_age_grace_ms",
         {.integer = CONNECTION_AGE_MS}},
        {GRPC_ARG_POINTER,
         (char *)GRPC_ARG_RESOURCE_QUOTA,
         {.pointer = {.p = quota, .vtable = grpc_resource_quota_arg_vtable()}}},
    };
    grpc_channel_args args = {sizeof list / sizeof *list, list};
    return grpc_server_create(&args, NULL);
}

static void server_free(struct link_server *s)
{
    for (int i = 0; i < LINK_METHODS; i++)
        grpc_metadata_array_destroy(&s->requests[i].metadata);
    grpc_server_destroy(s->server);
    grpc_resource_quota_unref(s->quota);
    grpc_completion_queue_destroy(s->notify);
    link_core_close();
    link_sockets_close(&s->sockets);
    ASSERT(s->buffers_free == s->buffers_made);
    for (unsigned i = 0; i < s->buffers_made; i++)
        free(s->buffers[i]);
    pthread_cond_destroy(&s->changed);
    pthread_cond_destroy(&s->given_back);
    pthread_cond_destroy(&s->stored);
    pthread_mutex_destroy(&s->mutex);
    pthread_mutex_destroy(&s->service_mutex);
    free(s->ca);
    free(s->certificate);
    free(s->key);
    free(s->address);
    free(s);
}

static void locks_init(struct link_server *s)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_cond_init(&s->given_back, &monotonic);
    pthread_cond_init(&s->stored, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_mutex_init(&s->service_mutex, NULL);
}

static enum err server_bind(struct link_server *s, int *port)
{
    for (int i = 0; i < LINK_METHODS; i++)
        s->methods[i] =
            grpc_server_register_method(s->server, link_paths[i], NULL, GRPC_SRM_PAYLOAD_NONE, 0);
    grpc_server_register_completion_queue(s->server, s->notify, NULL);
    grpc_server_register_completion_queue(s->server, s->cq, NULL);
    grpc_server_credentials *credentials = credentials_make(s);
    *port = grpc_server_add_http2_port(s->server, s->address, credentials);
    grpc_server_credentials_release(credentials);
    return *port ? ERR_OK : bind_failed(s->address);
}

/* Signals are for the threads that the program means, not for ours. */
static enum err server_threads(struct link_server *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool worker = pthread_create(&s->worker, NULL, work_main, s) == 0;
    bool acceptor = worker && pthread_create(&s->acceptor, NULL, accept_main, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (acceptor)
        return ERR_OK;
    work_stop(s);
    if (worker)
        pthread_join(s->worker, NULL);
    return err_set(ERR_MEMORY, "cannot start the aggregator's threads");
}

/* A server that never started: its queue is empty after its shutdown. */
static void server_abandon(struct link_server *s)
{
    grpc_server_shutdown_and_notify(s->server, s->notify, s);
    grpc_completion_queue_next(s->notify, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    grpc_completion_queue_shutdown(s->notify);
    while (grpc_completion_queue_next(s->notify, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type !=
           GRPC_QUEUE_SHUTDOWN)
        ;
    server_free(s);
}

uint64_t link_receive_bytes(unsigned sites)
{
    bool few = sites && sites <= LINK_FEW_SITES;
    return few ? UNREAD_BYTES + ((uint64_t)sites * LINK_LINE_MIB << 20)
               : (uint64_t)LINK_RECEIVE_MIB << 20;
}

static bool windows_wide(const struct link_listen *l)
{
    return l->sites && l->sites <= LINK_FEW_SITES &&
           (!l->receive_bytes || l->receive_bytes >= link_receive_bytes(l->sites));
}

enum err link_serve(struct link_server **out, const struct link_listen *l,
                    const struct link_service *service, int *port)
{
    struct tls_pem pem; /* sentences for the operator, before core says only that it failed */
    TRY(tls_load(&pem, &l->tls));
    size_t certificate_bytes = tls_certificate_bytes(&pem);
    tls_forget(&pem);
    struct link_server *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(ERR_MEMORY, "no memory for the aggregator's link");
    enum err e = link_core_open(&s->cq, windows_wide(l));
    if (e != ERR_OK) {
        free(s);
        return e;
    }
    locks_init(s);
    s->service = *service;
    s->ca = strdup(l->tls.ca);
    s->certificate = strdup(l->tls.certificate);
    s->key = strdup(l->tls.key);
    s->address = strdup(l->address);
    s->files = (struct link_tls){s->ca, s->certificate, s->key};
    s->notify = grpc_completion_queue_create_for_next(NULL);
    s->quota = grpc_resource_quota_create("aggregator");
    uint64_t memory = l->receive_bytes ? l->receive_bytes : link_receive_bytes(l->sites);
    ASSERT(memory >= (uint64_t)LINK_RECEIVE_MIB_MIN << 20);
    grpc_resource_quota_resize(s->quota, memory);
    s->sites = l->sites;
    s->receiving_most = (unsigned)((memory - UNREAD_BYTES) / UNREAD_STREAM_BYTES);
    s->server = server_make(s->quota, l->keepalive_ms ? (int)l->keepalive_ms : LINK_KEEPALIVE_MS);
    s->book = l->book;
    s->book_self = l->book_self;
    e = server_bind(s, port);
    s->sockets = (struct link_sockets){.port = (uint16_t)*port,
                                       .listening = true,
                                       .certificate_bytes = certificate_bytes,
                                       .keepalive_ms =
                                           l->keepalive_ms ? l->keepalive_ms : LINK_KEEPALIVE_MS};
    if (e == ERR_OK)
        e = server_threads(s);
    if (e != ERR_OK) {
        server_abandon(s);
        return e;
    }
    grpc_server_start(s->server);
    for (int i = 0; i < LINK_METHODS; i++)
        request_next(s, (enum link_method)i);
    *out = s;
    return ERR_OK;
}

bool link_stopped(const struct link_server *s)
{
    return atomic_load(&s->stopped);
}

static void calls_wait(struct link_server *s, uint64_t until_ms)
{
    struct timespec until = {(time_t)(until_ms / 1000), (long)(until_ms % 1000) * 1000000};
    int late = 0;
    pthread_mutex_lock(&s->mutex);
    while (s->call_count && !late)
        late = pthread_cond_timedwait(&s->changed, &s->mutex, &until);
    pthread_mutex_unlock(&s->mutex);
}

void link_shutdown(struct link_server *s, uint32_t grace_ms)
{
    work_stop(s);
    wake_held(s);
    pthread_join(s->worker, NULL);
    grpc_server_shutdown_and_notify(s->server, s->notify, s);
    calls_wait(s, link_now_ms() + grace_ms);
    pthread_mutex_lock(&s->mutex);
    link_sockets_scan(&s->sockets);
    book_sockets(s);
    pthread_mutex_unlock(&s->mutex);
    grpc_server_cancel_all_calls(s->server);
    pthread_join(s->acceptor, NULL);
    calls_wait(s, UINT64_MAX / 4);
    ended_join(s);
    server_free(s);
}
