/* SPDX-License-Identifier: Apache-2.0 */
/* The aggregator's work thread, and the small calls: hello, report, leave, and polls that are held
 * until work() has an answer. */
#include <stddef.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "outer/link/grpc/server.h"

enum { HOLD_MS_MAX = 60000 };

/* ---- the work thread ---- */

void server_work_soon(struct link_server *s)
{
    pthread_mutex_lock(&s->mutex);
    s->work.due = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

void server_wake_held(struct link_server *s)
{
    pthread_mutex_lock(&s->mutex);
    for (struct server_call *call = s->calls.running; call; call = call->next)
        if (call->method == LINK_POLL || (call->slot.state == SLOT_WAITING && s->work.stopping))
            link_call_wake(call->c);
    pthread_mutex_unlock(&s->mutex);
}

static bool work_wait(struct link_server *s, uint64_t wake_ms)
{
    bool ever = wake_ms < UINT64_MAX / 2;
    pthread_mutex_lock(&s->mutex);
    int late = 0;
    while (!s->work.due && !s->work.stopping && !late)
        late = ever ? clock_cond_wait(&s->changed, &s->mutex, wake_ms)
                    : pthread_cond_wait(&s->changed, &s->mutex);
    s->work.due = false;
    bool go = !s->work.stopping;
    pthread_mutex_unlock(&s->mutex);
    return go;
}

bool server_stopping(struct link_server *s)
{
    pthread_mutex_lock(&s->mutex);
    bool stopping = s->work.stopping;
    pthread_mutex_unlock(&s->mutex);
    return stopping;
}

void server_work_stop(struct link_server *s)
{
    pthread_mutex_lock(&s->mutex);
    s->work.stopping = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

void *server_work_main(void *server)
{
    struct link_server *s = server;
    uint64_t wake_ms = 0;
    bool stop = false;
    while (!stop && work_wait(s, wake_ms)) {
        do { /* a commit that has begun is ended, also when the server stops */
            pthread_mutex_lock(&s->service_mutex);
            wake_ms = s->service.work(s->service.self, &stop);
            pthread_mutex_unlock(&s->service_mutex);
            server_wake_held(s);
        } while (s->service.commit(s->service.self));
    }
    atomic_store(&s->work.stopped, stop);
    return NULL;
}

/* ---- small calls ---- */

bool server_answer(struct link_call *c, enum wire_kind kind, const void *answer, struct arena *a)
{
    uint8_t *data;
    size_t n;
    return wire_encode(kind, answer, a, &data, &n) == ERR_OK &&
           link_call_send(c, link_buffer(data, n));
}

grpc_byte_buffer *server_first_message(struct link_call *c)
{
    if (!link_call_recv_start(c))
        return NULL;
    uint64_t until = clock_mono_ms() + SERVER_FIRST_MESSAGE_MS;
    while (!link_call_wait_until(c, &c->recv, until))
        if (clock_mono_ms() >= until) {
            grpc_call_cancel(c->call, NULL); /* then the operation completes */
            break;
        }
    return link_call_received(c);
}

#define BEGINS_WITH_HEAD(type) _Static_assert(offsetof(struct type, head) == 0, #type)
BEGINS_WITH_HEAD(wire_hello);
BEGINS_WITH_HEAD(wire_poll);
BEGINS_WITH_HEAD(wire_report);
BEGINS_WITH_HEAD(wire_leave);
BEGINS_WITH_HEAD(wire_mask);
BEGINS_WITH_HEAD(wire_contribution);
BEGINS_WITH_HEAD(wire_fetch);

enum err server_request(struct server_call *call, enum wire_kind kind, void *message,
                        struct arena *a)
{
    struct wire_certificate *certificate = kind == WIRE_OPERATE
                                               ? &((struct wire_operate *)message)->certificate
                                               : &((struct wire_head *)message)->certificate;
    grpc_byte_buffer *bb = server_first_message(call->c);
    if (!bb)
        return err_set(ERR_PROTO, "no request");
    TRY(link_decode(bb, kind, message, a));
    *certificate = call->certificate;
    return ERR_OK;
}

void server_refuse(struct link_call *c, enum err e)
{
    if (e == ERR_MEMORY)
        link_call_reply(c, GRPC_STATUS_RESOURCE_EXHAUSTED, LINK_NO_MEMORY);
    else
        link_call_reply(c, GRPC_STATUS_INVALID_ARGUMENT, err_message());
}

bool server_revoked(struct server_call *call)
{
    const struct link_service *service = &call->server->service;
    const char *why =
        service->revoked ? service->revoked(service->self, call->peer, &call->certificate) : NULL;
    if (why)
        link_call_reply(call->c, GRPC_STATUS_PERMISSION_DENIED, why);
    return why != NULL;
}

/* Asks the service now and after each work(), until the answer is not held or the caller's hold
 * time ends. */
static void poll_held(struct server_call *call, const struct wire_poll *m,
                      struct wire_poll_answer *answer)
{
    struct link_server *s = call->server;
    uint64_t until = clock_mono_ms() + (m->hold_ms < HOLD_MS_MAX ? m->hold_ms : HOLD_MS_MAX);
    bool again;
    do {
        answer->answer = (struct wire_answer){0};
        answer->wants = WIRE_MASK_NONE;
        answer->body_bytes = 0;
        manifest_clear(&answer->manifest);
        pthread_mutex_lock(&s->service_mutex);
        s->service.poll(s->service.self, call->peer, m, answer);
        pthread_mutex_unlock(&s->service_mutex);
        again = link_service_holds(answer) && !server_stopping(s) &&
                link_call_wait_again(call->c, until);
    } while (again);
}

union message {
    struct wire_hello hello;
    struct wire_poll poll;
    struct wire_report report;
    struct wire_leave leave;
    struct wire_mask mask;
    struct wire_operate operate;
};
union answer {
    struct wire_hello_answer hello;
    struct wire_poll_answer poll;
    struct wire_mask_answer mask;
    struct wire_answer plain;
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
    else if (call->method == LINK_LEAVE)
        service->leave(service->self, call->peer, &m->leave, &answer->plain);
    else if (call->method == LINK_MASK)
        link_service_mask(service, call->peer, &m->mask, &answer->mask);
    else
        service->operate(service->self, call->peer, &m->operate, &answer->plain);
    pthread_mutex_unlock(&s->service_mutex);
    server_work_soon(s);
}

static void small_answer(struct server_call *call, const union answer *answer, struct arena *a)
{
    if (server_answer(call->c, link_kinds[call->method].answer, answer, a))
        link_call_reply(call->c, GRPC_STATUS_OK, "");
    else /* also when the site has closed the call; the answer is then dropped */
        link_call_reply(call->c, GRPC_STATUS_RESOURCE_EXHAUSTED, LINK_NO_MEMORY);
}

void server_serve_small(struct server_call *call)
{
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    union message m;
    union answer answer = {0};
    enum err e = server_request(call, link_kinds[call->method].request, &m, &a);
    if (e != ERR_OK) {
        server_refuse(call->c, e);
    } else {
        link_call_about(call->c, (enum link_method)call->method, &m);
        if (call->method == LINK_POLL)
            poll_held(call, &m.poll, &answer.poll);
        else
            service_call(call, &m, &answer);
        if (!server_revoked(call))
            small_answer(call, &answer, &a);
    }
    arena_free(&a);
}
