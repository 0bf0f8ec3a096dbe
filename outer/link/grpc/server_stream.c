/* SPDX-License-Identifier: Apache-2.0 */
/* Contributions at the aggregator. The leading stream of a contribution makes the offer and ends
 * it; streams that join carry further chunks. The stored bytes of a broken stream remain for the
 * next offer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "outer/link/grpc/server.h"

enum {
    ACK_CHUNKS = 8, /* chunks between two answers with the stored offset */
    LOOK_MS = 1000  /* interval between checks of a silent stream */
};

struct transfer { /* one contribution in transfer, on one or several streams; guarded by the
                     server's mutex unless stated */
    struct transfer *next;
    char peer[TLS_URI_MAX];
    uint64_t id, total;
    uint32_t fragment;
    void *handle;              /* the service's upload */
    unsigned streams, storing; /* storing: chunks being passed to the service or written */
    bool over;                 /* closed: no stream may join or store */
    struct wire_answer
        broken; /* the answer that ended a joined stream early; NONE: no such stream */
};
enum stream_state {
    STREAM_OPEN,
    STREAM_ENDED, /* the site has ended the stream, the connection broke, or `answer` gives the
                     reason */
    STREAM_SUPERSEDED,
    STREAM_SILENT,
    STREAM_NO_MEMORY
};
struct stream {
    struct server_call *call;
    struct transfer *t;
    enum stream_state state;
    struct wire_answer answer; /* the last answer; NONE: no error so far */
    struct arena arena;
};

static void transfer_open(struct server_call *call, const struct wire_contribution *m, void *handle,
                          struct transfer *t)
{
    struct link_server *s = call->server;
    *t = (struct transfer){.id = m->transfer,
                           .total = m->payload_bytes,
                           .fragment = m->fragment,
                           .handle = handle,
                           .streams = 1};
    snprintf(t->peer, sizeof t->peer, "%s", call->peer);
    pthread_mutex_lock(&s->mutex);
    t->next = s->streams.transfers;
    s->streams.transfers = t;
    pthread_mutex_unlock(&s->mutex);
}

/* NULL: no transfer to join, or it is closed. */
static struct transfer *transfer_join(struct server_call *call, const struct wire_contribution *m)
{
    struct link_server *s = call->server;
    pthread_mutex_lock(&s->mutex);
    struct transfer *t = s->streams.transfers;
    while (t && (t->over || t->id != m->transfer || t->fragment != m->fragment ||
                 t->total != m->payload_bytes || strcmp(t->peer, call->peer) != 0))
        t = t->next;
    if (t)
        t->streams++;
    pthread_mutex_unlock(&s->mutex);
    return t;
}

/* Closes the transfer: no chunk is stored afterwards. */
static void transfer_over(struct link_server *s, struct transfer *t)
{
    pthread_mutex_lock(&s->mutex);
    t->over = true;
    while (t->storing)
        pthread_cond_wait(&s->streams.stored, &s->mutex);
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
    pthread_cond_broadcast(&s->streams.stored);
    pthread_mutex_unlock(&s->mutex);
}

static void transfer_release(struct link_server *s, struct transfer *t)
{
    pthread_mutex_lock(&s->mutex);
    bool last = --t->streams == 0;
    for (struct transfer **at = &s->streams.transfers; last && *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            break;
        }
    pthread_mutex_unlock(&s->mutex);
    if (last)
        free(t);
}

void server_streams_open(struct link_server *s)
{
    clock_cond_init(&s->streams.given_back);
    clock_cond_init(&s->streams.stored);
}

void server_streams_close(struct link_server *s)
{
    ASSERT(s->streams.free == s->streams.made);
    for (unsigned i = 0; i < s->streams.made; i++)
        free(s->streams.buffers[i]);
    pthread_cond_destroy(&s->streams.given_back);
    pthread_cond_destroy(&s->streams.stored);
}

/* A stream holds a buffer only while it stores a received chunk, so a few buffers serve many sites.
 * NULL: no memory. */
static uint8_t *buffer_take(struct link_server *s)
{
    pthread_mutex_lock(&s->mutex);
    if (!s->streams.free && s->streams.made < SERVER_BUFFERS) {
        uint8_t *made = malloc(WIRE_CHUNK_BYTES);
        if (made) {
            s->streams.made++;
            s->streams.buffers[s->streams.free++] = made;
        }
    }
    while (!s->streams.free && s->streams.made)
        pthread_cond_wait(&s->streams.given_back, &s->mutex);
    uint8_t *buffer = s->streams.made ? s->streams.buffers[--s->streams.free] : NULL;
    pthread_mutex_unlock(&s->mutex);
    return buffer;
}

static void buffer_give(struct link_server *s, uint8_t *buffer)
{
    pthread_mutex_lock(&s->mutex);
    s->streams.buffers[s->streams.free++] = buffer;
    pthread_cond_signal(&s->streams.given_back);
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
    if (u->answer.outcome ==
        ROUND_PENDING) { /* without the lock: a slow disk must not delay small calls */
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
    TRY_ALLOC(data);
    server_slot_bytes(u->call, chunk.size_bytes);
    enum err e = link_chunk_data(bb, &chunk, data_at, data);
    if (e == ERR_OK)
        chunk_store(u, &chunk, data);
    buffer_give(u->call->server, data);
    return e;
}

/* Receives the next chunk. NULL: the site has ended the stream, the connection broke, or the slot
 * is lost. */
static grpc_byte_buffer *stream_receive(struct stream *u)
{
    struct link_call *c = u->call->c;
    enum slot_state slot = SLOT_HELD;
    if (!link_call_recv_start(c))
        return NULL;
    while (slot == SLOT_HELD && !link_call_wait_until(c, &c->recv, clock_mono_ms() + LOOK_MS)) {
        server_socket_read(u->call);
        slot = server_slot_look(u->call);
    }
    if (slot == SLOT_HELD)
        return link_call_received(c);
    u->state = slot == SLOT_SILENT ? STREAM_SILENT : STREAM_SUPERSEDED;
    return NULL;
}

/* A damaged chunk ends the stream with RESUME; the answer to the next offer lists the stored bytes.
 */
static void stream_take(struct stream *u)
{
    grpc_byte_buffer *bb = stream_receive(u);
    server_socket_read(u->call);
    if (!bb) {
        u->state = u->state == STREAM_OPEN ? STREAM_ENDED : u->state;
        return;
    }
    enum err e = chunk_take(u, bb);
    grpc_byte_buffer_destroy(bb);
    if (e == ERR_MEMORY) {
        u->state = STREAM_NO_MEMORY;
    } else if (e != ERR_OK) {
        u->answer =
            (struct wire_answer){.outcome = e == ERR_CORRUPT ? ROUND_RESUME : ROUND_INVALID};
        snprintf(u->answer.text, sizeof u->answer.text, "%s", err_message());
    }
    if (u->state == STREAM_OPEN && u->answer.outcome != ROUND_NONE)
        u->state = STREAM_ENDED;
}

/* Receives chunks until the site ends the stream or an error occurs, then releases the slot. */
static void stream_chunks(struct stream *u)
{
    unsigned chunks = 0;
    u->answer = (struct wire_answer){0};
    while (u->state == STREAM_OPEN) {
        stream_take(u);
        if (u->state == STREAM_OPEN && ++chunks % ACK_CHUNKS == 0) {
            server_answer(u->call->c, WIRE_ANSWER, &u->answer, &u->arena);
            arena_reset(&u->arena);
        }
    }
    server_slot_end(u->call);
}

/* Sends the final answer. RESUME after a lost slot becomes a status that names the reason. */
static void stream_end(struct stream *u)
{
    bool incomplete = u->answer.outcome == ROUND_RESUME || u->answer.outcome == ROUND_NONE;
    if (incomplete && u->state == STREAM_SILENT) {
        link_call_reply(u->call->c, GRPC_STATUS_RESOURCE_EXHAUSTED,
                        "busy: this site sent too little while other sites wait");
        return;
    }
    if (u->answer.outcome == ROUND_EXCLUDED) { /* revoked meanwhile: as at admission */
        link_call_reply(u->call->c, GRPC_STATUS_PERMISSION_DENIED, u->answer.text);
        return;
    }
    if (incomplete && u->state == STREAM_NO_MEMORY) {
        link_call_reply(u->call->c, GRPC_STATUS_RESOURCE_EXHAUSTED, LINK_NO_MEMORY);
        return;
    }
    if (incomplete && u->state == STREAM_SUPERSEDED)
        u->answer = (struct wire_answer){.outcome = ROUND_SUPERSEDED};
    server_answer(u->call->c, WIRE_ANSWER, &u->answer, &u->arena);
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

/* Serves the leading stream. The site ends it last, so at its end the joined streams have stored
 * their chunks or are broken. The service decides whether all bytes are stored. */
static void stream_lead(struct stream *u)
{
    struct link_server *s = u->call->server;
    stream_chunks(u);
    transfer_over(s, u->t);
    bool complete = u->answer.outcome == ROUND_NONE;
    struct wire_answer answer = {0};
    transfer_finish(s, u->t, complete, &answer);
    server_work_soon(s);
    pthread_mutex_lock(&s->mutex);
    if (complete)
        u->answer = answer;
    if (u->answer.outcome == ROUND_RESUME && u->t->broken.outcome != ROUND_NONE)
        u->answer = u->t->broken;
    pthread_mutex_unlock(&s->mutex);
    transfer_release(s, u->t);
    link_call_whole(u->call->c, u->answer.outcome == ROUND_RECEIPT);
    stream_end(u);
}

/* Serves a joined stream: OK when all its chunks are stored. The leading stream also reports the
 * answer that stopped a joined stream. */
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

static void contribution_join(struct stream *u, const struct wire_contribution *m)
{
    u->t = transfer_join(u->call, m);
    u->answer.outcome = u->t ? ROUND_RESUME : ROUND_SUPERSEDED;
}

static enum err contribution_offer(struct stream *u, const struct wire_contribution *m)
{
    struct server_call *call = u->call;
    struct link_server *s = call->server;
    struct transfer *t = calloc(1, sizeof *t);
    void *handle = NULL;
    TRY_ALLOC(t);
    pthread_mutex_lock(&s->service_mutex);
    s->service.offer(s->service.self, call->peer, m, &u->answer, &handle);
    pthread_mutex_unlock(&s->service_mutex);
    server_work_soon(s);
    bool resume = u->answer.outcome == ROUND_RESUME;
    ASSERT(!resume || (handle && u->answer.offset <= m->payload_bytes));
    if (resume)
        transfer_open(call, m, handle, u->t = t);
    else
        free(t);
    return ERR_OK;
}

/* Ends a stream without a slot. */
static void contribution_refuse(struct stream *u, enum slot_state slot, bool joins)
{
    if (!joins && slot == SLOT_WAITING) {
        link_call_reply(u->call->c, GRPC_STATUS_RESOURCE_EXHAUSTED,
                        "busy: the aggregator is shutting down");
        return;
    }
    u->answer.outcome = ROUND_SUPERSEDED;
    server_answer(u->call->c, WIRE_ANSWER, &u->answer, &u->arena);
    link_call_reply(u->call->c, GRPC_STATUS_OK, "");
}

static void contribution_receive(struct stream *u, const struct wire_contribution *m)
{
    enum slot_state slot = server_slot_begin(u->call, m);
    if (slot != SLOT_HELD) {
        contribution_refuse(u, slot, m->stream > 0);
        return;
    }
    if (m->stream) {
        contribution_join(u, m);
    } else if (contribution_offer(u, m) != ERR_OK) {
        link_call_reply(u->call->c, GRPC_STATUS_RESOURCE_EXHAUSTED, LINK_NO_MEMORY);
        return;
    }
    server_answer(u->call->c, WIRE_ANSWER, &u->answer, &u->arena);
    if (!u->t)
        link_call_reply(u->call->c, GRPC_STATUS_OK, "");
    else if (m->stream)
        stream_joined(u);
    else
        stream_lead(u);
}

void server_serve_contribution(struct server_call *call)
{
    struct wire_contribution m;
    struct stream u = {.call = call, .arena = arena_make(WIRE_DECODE_BYTES_MAX)};
    enum err e = server_request(call, WIRE_UPLOAD, &m, &u.arena);
    if (e == ERR_OK) {
        link_call_about(call->c, LINK_CONTRIBUTE, &m);
        contribution_receive(&u, &m);
        server_slot_end(call);
    } else {
        server_refuse(call->c, e);
    }
    arena_free(&u.arena);
}
