/* SPDX-License-Identifier: Apache-2.0 */
/* The small calls of a site's end, one message each way; probes; and its table of operations.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/base/clock.h"
#include "outer/link/grpc/link_client.h"

enum { PROBE_FIRST = 64 << 10, PROBE_CALLS = 32 };

/* A control call's deadline: keepalive's time to detect a dead link, plus the time that the answer
 * may be held. */
static enum err unary_call(struct link_grpc *l, struct link_call *c, grpc_byte_buffer *request,
                           enum wire_kind answer_kind, void *answer, struct arena *a)
{
    link_count(l, request, NULL, 0, 0);
    grpc_byte_buffer *bb = NULL;
    if (link_call_send(c, request) && link_call_half_close(c) && link_call_recv_start(c))
        bb = link_received(l, c);
    enum err e = link_result(l, c);
    if (e == ERR_OK && !bb)
        return err_set(ERR_PROTO, "%s ended a call without an answer", l->o.target);
    if (e == ERR_OK) {
        e = link_decode(bb, answer_kind, answer, a);
        return e == ERR_OK ? e : err_add(ERR_PROTO, "answer of %s: ", l->o.target);
    }
    if (bb)
        grpc_byte_buffer_destroy(bb);
    return e;
}

static enum err unary(struct link *base, enum link_method method, const void *m, uint32_t hold_ms,
                      void *answer)
{
    struct link_grpc *l = (struct link_grpc *)base;
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    uint8_t *data;
    size_t n;
    enum err e = wire_encode(link_kinds[method].request, m, &a, &data, &n);
    if (e == ERR_OK) {
        struct link_call *c = link_begin(
            l, method, LINK_CONTROL, (uint64_t)hold_ms + l->o.keepalive_ms + l->o.keepalive_ms / 2);
        e = c ? ERR_OK : ERR_MEMORY;
        if (c) {
            link_call_about(c, method, m);
            e = unary_call(l, c, link_buffer(data, n), link_kinds[method].answer, answer, &a);
            link_end(l, c);
        }
    }
    arena_free(&a);
    return e;
}

static enum err grpc_hello(struct link *l, const struct wire_hello *m,
                           struct wire_hello_answer *answer)
{
    return unary(l, LINK_HELLO, m, 0, answer);
}

static enum err grpc_poll(struct link *l, const struct wire_poll *m, uint32_t hold_ms,
                          struct wire_poll_answer *answer)
{
    struct wire_poll held = *m;
    held.hold_ms = hold_ms;
    return unary(l, LINK_POLL, &held, hold_ms, answer);
}

static enum err grpc_report(struct link *l, const struct wire_report *m, struct wire_answer *answer)
{
    return unary(l, LINK_REPORT, m, 0, answer);
}

static enum err grpc_leave(struct link *l, const struct wire_leave *m, struct wire_answer *answer)
{
    return unary(l, LINK_LEAVE, m, 0, answer);
}

static enum err grpc_mask(struct link *l, const struct wire_mask *m,
                          struct wire_mask_answer *answer)
{
    return unary(l, LINK_MASK, m, 0, answer);
}

static const struct link_ops grpc_ops = {
    .hello = grpc_hello,
    .contribute = link_contribute,
    .poll = grpc_poll,
    .fetch = link_fetch,
    .report = grpc_report,
    .leave = grpc_leave,
    .mask = grpc_mask,
    .counters = link_grpc_counters,
    .close = link_grpc_close,
};

enum err link_open(struct link **out, const struct link_dial *d)
{
    return link_grpc_open(out, d, &grpc_ops);
}

/* A call of the health service with a message of `size` bytes, which the other end ignores. */
static struct link_call *health_begin(struct link_grpc *l, unsigned channel, const uint8_t *data,
                                      size_t size, uint32_t timeout_ms)
{
    void *method =
        grpc_channel_register_call(l->channels.list[channel], LINK_HEALTH_PATH, NULL, NULL);
    struct link_call *c =
        link_call_open(l->channels.list[channel], method, l->channels.cq, timeout_ms, NULL);
    if (!c)
        err_set(ERR_MEMORY, "no memory for a call to %s", l->o.target);
    else if (!link_call_send_start(c, link_buffer(data, size)))
        (void)0; /* the status says why */
    return c;
}

static enum err health_end(struct link_grpc *l, struct link_call *c)
{
    if (!c)
        return ERR_MEMORY;
    if (link_call_wait(c, &c->send) && link_call_half_close(c) && link_call_recv_start(c))
        link_call_wait(c, &c->recv);
    enum err e = link_result(l, c);
    link_call_close(c);
    return e;
}

enum err link_probe(const struct link_dial *d, uint32_t timeout_ms)
{
    struct link *base;
    TRY(link_open(&base, d));
    struct link_grpc *l = (struct link_grpc *)base;
    enum err e = health_end(l, health_begin(l, LINK_CONTROL, (const uint8_t *)"", 0, timeout_ms));
    base->ops->close(base);
    return e;
}

/* `calls` messages of `size` bytes at a time, dealt to the connections. */
static enum err health_burst(struct link_grpc *l, const uint8_t *data, size_t size, unsigned calls,
                             uint32_t timeout_ms, double *seconds)
{
    struct link_call *call[PROBE_CALLS];
    unsigned streams = link_streams(l, true);
    double begin = clock_mono_s();
    enum err e = ERR_OK;
    for (unsigned i = 0; i < calls; i++)
        call[i] = health_begin(l, link_channel(l, streams, i), data, size, timeout_ms);
    for (unsigned i = 0; i < calls; i++) {
        enum err one = health_end(l, call[i]);
        e = e == ERR_OK ? one : e;
    }
    *seconds = clock_mono_s() - begin;
    return e;
}

static enum err probe_rate(struct link_grpc *l, const uint8_t *data, uint32_t timeout_ms,
                           double *bytes_per_s, double *rtt_s)
{
    static const double LONG_S = 0.5;
    double took = 0;
    *rtt_s = 1e9;
    TRY(health_burst(l, data, 0, link_streams(l, true), timeout_ms,
                     &took)); /* opens the connections */
    for (int i = 0; i < 3; i++) {
        TRY(health_burst(l, data, 0, 1, timeout_ms, &took));
        *rtt_s = took < *rtt_s ? took : *rtt_s;
    }
    for (size_t all = PROBE_FIRST; all <= (size_t)PROBE_CALLS * WIRE_CHUNK_BYTES; all *= 2) {
        size_t size = all < WIRE_CHUNK_BYTES ? all : WIRE_CHUNK_BYTES;
        link_up_begin(l);
        enum err e = health_burst(l, data, size, (unsigned)(all / size), timeout_ms, &took);
        link_up_end(l);
        TRY(e);
        *bytes_per_s = (double)all / (took > 2 * *rtt_s ? took - *rtt_s : took);
        if (took > LONG_S)
            break;
    }
    link_up_begin(l); /* learns from the last one */
    link_up_end(l);
    return ERR_OK;
}

enum err link_probe_rate(const struct link_dial *d, uint32_t timeout_ms, double *bytes_per_s,
                         double *rtt_s, struct path *chosen)
{
    struct link *base;
    unsigned down;
    uint8_t *data = malloc(WIRE_CHUNK_BYTES);
    if (!data)
        return err_set(ERR_MEMORY, "no memory for a measurement");
    memset(data, 0x5a, WIRE_CHUNK_BYTES); /* no proxy compresses TLS */
    enum err e = link_open(&base, d);
    if (e == ERR_OK) {
        e = probe_rate((struct link_grpc *)base, data, timeout_ms, bytes_per_s, rtt_s);
        link_choice(base, chosen, &down);
        base->ops->close(base);
    }
    free(data);
    return e;
}

enum err link_operate(const struct link_dial *d, const struct wire_operate *m,
                      struct wire_answer *answer, uint32_t timeout_ms)
{
    struct link_dial dial = *d;
    struct link *l;
    dial.keepalive_ms = timeout_ms * 2 / 3; /* a call's deadline is one and a half of it */
    TRY(link_open(&l, &dial));
    enum err e = unary(l, LINK_OPERATE, m, 0, answer);
    l->ops->close(l);
    return e;
}

enum err link_operate_on(struct link *l, const struct wire_operate *m, struct wire_answer *answer)
{
    return unary(l, LINK_OPERATE, m, 0, answer);
}
