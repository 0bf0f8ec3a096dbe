/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads: a part of a snapshot or an aggregate, streamed from the service's memory. A download
 * that stands still is ended, because its bytes are held in memory: the site asks for the rest
 * again. */
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/link/grpc/server.h"

enum {
    CHUNK_LEAST = 4096,
    LOOK_MS = 1000,
    STILL_LEAST_MS = 15000 /* a link with losses may be silent for some seconds */
};

struct progress { /* of the download's connection */
    uint64_t mark_ms, mark_bytes;
};

static struct progress progress_begin(struct server_call *call)
{
    struct link_server *s = call->server;
    pthread_mutex_lock(&s->mutex);
    struct progress p = {clock_mono_ms(), link_sockets_sent(&s->sockets, call->socket)};
    pthread_mutex_unlock(&s->mutex);
    return p;
}

/* Has the other end taken anything lately? False: cut. */
static bool progress_look(struct server_call *call, struct progress *p)
{
    struct link_server *s = call->server;
    pthread_mutex_lock(&s->mutex);
    link_sockets_read(&s->sockets, call->socket);
    uint64_t now = clock_mono_ms(), ms = now - p->mark_ms, most = server_silent_ms(s),
             sent = link_sockets_sent(&s->sockets, call->socket);
    most = most > STILL_LEAST_MS ? most : STILL_LEAST_MS;
    bool moves = (double)(sent - p->mark_bytes) >= server_silent_bytes(s, ms);
    pthread_mutex_unlock(&s->mutex);
    if (ms < most)
        return true;
    *p = (struct progress){now, sent};
    if (!moves)
        log_event(LOG_WARN, "download_cut",
                  "site=%s still_s=%llu why=\"it asked for bytes and does not take them; the site "
                  "may ask for the rest\"",
                  server_site_of(call->peer), (unsigned long long)ms / 1000);
    return moves;
}

static bool chunk_send(struct server_call *call, grpc_byte_buffer *bb, struct progress *p)
{
    if (!link_call_send_start(call->c, bb))
        return false;
    while (!link_call_wait_until(call->c, &call->c->send, clock_mono_ms() + LOOK_MS))
        if (!progress_look(call, p)) {
            grpc_call_cancel_with_status(call->c->call, GRPC_STATUS_RESOURCE_EXHAUSTED,
                                         LINK_BUSY ": the download stood still", NULL);
            break;
        }
    return link_call_wait(call->c, &call->c->send);
}

/* Sends bytes [at, end) without a copy: downloads of the same bytes by several sites share the
 * memory. */
static bool chunks_send(struct server_call *call, const uint8_t *data, size_t size_bytes,
                        uint64_t at, uint64_t end, uint32_t chunk_bytes)
{
    bool alive = true;
    struct progress p = progress_begin(call);
    while (alive && at < end) {
        uint64_t left = end - at;
        struct wire_chunk chunk = {.offset = at, .total = size_bytes};
        chunk.size_bytes = left < chunk_bytes ? (uint32_t)left : chunk_bytes;
        chunk.crc32c = digest_crc32c(0, data + at, chunk.size_bytes);
        alive = chunk_send(call, link_chunk(call->c, &chunk, data + at), &p);
        at += chunk.size_bytes;
        server_socket_read(call);
    }
    return alive;
}

static uint32_t chunk_size(uint32_t wanted)
{
    return wanted == 0 || wanted > WIRE_CHUNK_BYTES ? WIRE_CHUNK_BYTES
           : wanted < CHUNK_LEAST                   ? CHUNK_LEAST
                                                    : wanted;
}

void server_serve_fetch(struct server_call *call)
{
    struct link_server *s = call->server;
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    struct wire_fetch m;
    struct wire_answer answer = {0};
    struct link_content content = {0};
    enum err e = server_request(call, WIRE_FETCH, &m, &a);
    if (e != ERR_OK) {
        server_refuse(call->c, e);
    } else {
        pthread_mutex_lock(&s->service_mutex);
        s->service.fetch(s->service.self, call->peer, &m, &content, &answer);
        call->source = content.source;
        pthread_mutex_unlock(&s->service_mutex);
        bool sending = answer.outcome == ROUND_NONE;
        ASSERT(!sending ||
               (m.offset <= content.size_bytes && m.size_bytes <= content.size_bytes - m.offset));
        uint64_t end = m.size_bytes ? m.offset + m.size_bytes : content.size_bytes;
        link_call_about(call->c, LINK_FETCH, &m);
        link_call_total(call->c, content.size_bytes);
        bool revoked = server_revoked(call);
        if (sending && !revoked)
            server_path_begin(call);
        bool all = !revoked && server_answer(call->c, WIRE_DOWNLOAD, &answer, &a) && sending &&
                   chunks_send(call, content.data, content.size_bytes, m.offset, end,
                               chunk_size(m.chunk_bytes));
        bool replied = !revoked && link_call_reply(call->c, GRPC_STATUS_OK, "");
        link_call_whole(call->c, replied && all && end == content.size_bytes);
        server_path_end(call);
    }
    arena_free(&a);
}
