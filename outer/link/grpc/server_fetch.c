/* Downloads: a part of a snapshot or an aggregate, streamed from the service's memory. */
#include "outer/link/grpc/link_server.h"

enum { CHUNK_LEAST = 4096 };

/* Sends bytes [at, end) without a copy: downloads of the same bytes by several sites share the
 * memory. */
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
        call->c->row.total = content.size_bytes;
        bool all = server_answer(call->c, WIRE_DOWNLOAD, &answer, &a) && sending &&
                   chunks_send(call, content.data, content.size_bytes, m.offset, end,
                               chunk_size(m.chunk_bytes));
        call->c->row.done =
            link_call_reply(call->c, GRPC_STATUS_OK, "") && all && end == content.size_bytes;
    }
    arena_free(&a);
}
