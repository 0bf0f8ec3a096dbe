/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/grpc/link_call.h"
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/handover.h"
#include "kernels/base/log.h"
#include "kernels/base/signals.h"
#include "outer/link/grpc/link_path.h"
#include "outer/identity/tls.h"

const char *const link_paths[LINK_METHODS] = {
    [LINK_HELLO] = "/atoll.Control/Hello",        [LINK_POLL] = "/atoll.Control/Poll",
    [LINK_REPORT] = "/atoll.Control/Report",      [LINK_LEAVE] = "/atoll.Control/Leave",
    [LINK_MASK] = "/atoll.Control/Mask",          [LINK_OPERATE] = "/atoll.Control/Operate",
    [LINK_CONTRIBUTE] = "/atoll.Bulk/Contribute", [LINK_FETCH] = "/atoll.Bulk/Fetch",
};

const struct link_kinds link_kinds[LINK_OPERATE + 1] = {
    [LINK_HELLO] = {WIRE_HELLO, WIRE_HELLO_ANSWER}, [LINK_POLL] = {WIRE_POLL, WIRE_POLL_ANSWER},
    [LINK_REPORT] = {WIRE_REPORT, WIRE_ANSWER},     [LINK_LEAVE] = {WIRE_LEAVE, WIRE_ANSWER},
    [LINK_MASK] = {WIRE_MASK, WIRE_MASK_ANSWER},    [LINK_OPERATE] = {WIRE_OPERATE, WIRE_ANSWER},
};

void link_tune(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* glibc's maximum; a larger value is silently refused */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 64 << 20);
    mallopt(M_ARENA_MAX, 2);
}

/* ---- once per process ---- */

static struct {
    pthread_mutex_t mutex;
    unsigned users;
    grpc_completion_queue *cq;
    pthread_t poller;
} core = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Peers without any certificate make core log. */
static struct log_limit_key core_limit_keys[LOG_LIMIT_KEYS_MIN];
static struct {
    pthread_mutex_t mutex; /* guards the limit */
    struct log_limit limit;
} core_limit = {.mutex = PTHREAD_MUTEX_INITIALIZER, .limit = {core_limit_keys, LOG_LIMIT_KEYS_MIN}};

static void *poller_main(void *cq)
{
    for (;;) {
        grpc_event ev = grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (ev.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        struct link_tag *tag = ev.tag;
        HANDOVER_TAKE(tag); /* from the thread that started the operation */
        struct link_call *c = tag->call;
        pthread_mutex_lock(&c->mutex);
        tag->ok = ev.success != 0;
        tag->done = true;
        pthread_cond_broadcast(&c->cond);
        pthread_mutex_unlock(&c->mutex);
    }
}

static atomic_uint_least64_t handshakes_failed;

uint64_t link_core_handshakes_failed(void)
{
    return atomic_load(&handshakes_failed);
}

/* Forwards core's log: only core's log gives the reason why the aggregator refused a certificate.
 */
static void core_log(gpr_log_func_args *a)
{
    enum { LINES = 20 }; /* of one place of core's sources, in LOG_LIMIT_MS */
    char quoted[1024], place[64];
    unsigned repeats;
    if (a->severity != GPR_LOG_SEVERITY_ERROR)
        return;
    if (strncmp(a->message, "Handshake failed", 16) == 0)
        atomic_fetch_add(&handshakes_failed, 1);
    const char *slash = strrchr(a->file, '/');
    snprintf(place, sizeof place, "%.50s:%d", slash ? slash + 1 : a->file, a->line);
    pthread_mutex_lock(&core_limit.mutex);
    bool pass = log_limit_pass(&core_limit.limit, "grpc", place, LINES, clock_mono_ms(), &repeats);
    pthread_mutex_unlock(&core_limit.mutex);
    if (pass && repeats)
        log_event(LOG_WARN, "grpc", "repeats=%u text=%s", repeats,
                  log_quote(quoted, sizeof quoted, a->message));
    else if (pass)
        log_event(LOG_WARN, "grpc", "text=%s", log_quote(quoted, sizeof quoted, a->message));
}

void link_core_log_flush(void)
{
    pthread_mutex_lock(&core_limit.mutex);
    log_limit_flush(&core_limit.limit, clock_mono_ms());
    pthread_mutex_unlock(&core_limit.mutex);
}

static enum err core_start(bool wide)
{
    TRY(tls_force13());
    if (wide)
        setenv("GRPC_EXPERIMENTS", "memory_pressure_controller", 0);
    gpr_set_log_function(core_log);
    grpc_init();
    core.cq = grpc_completion_queue_create_for_next(NULL);
    if (pthread_create(&core.poller, NULL, poller_main, core.cq) == 0)
        return ERR_OK;
    grpc_completion_queue_shutdown(core.cq);
    grpc_completion_queue_destroy(core.cq);
    grpc_shutdown_blocking();
    return err_set(ERR_MEMORY, "cannot start a thread for the link");
}

/* Threads created here block all signals; the program's own threads handle them. */
enum err link_core_open(grpc_completion_queue **cq, bool wide)
{
    sigset_t before;
    pthread_mutex_lock(&core.mutex);
    signals_block(&before);
    enum err e = core.users ? ERR_OK : core_start(wide);
    signals_restore(&before);
    core.users += e == ERR_OK;
    *cq = e == ERR_OK ? core.cq : NULL;
    pthread_mutex_unlock(&core.mutex);
    return e;
}

void link_core_close(void)
{
    pthread_mutex_lock(&core.mutex);
    ASSERT(core.users > 0);
    if (--core.users == 0) {
        grpc_completion_queue_shutdown(core.cq);
        pthread_join(core.poller, NULL);
        grpc_completion_queue_destroy(core.cq);
        grpc_shutdown_blocking();
        core.cq = NULL;
    }
    pthread_mutex_unlock(&core.mutex);
}

/* ---- a call ---- */

static bool op_start(struct link_call *c, const grpc_op *op, struct link_tag *tag)
{
    pthread_mutex_lock(&c->mutex);
    *tag = (struct link_tag){.call = c, .pending = true};
    pthread_mutex_unlock(&c->mutex);
    HANDOVER_GIVE(tag);
    if (grpc_call_start_batch(c->call, op, 1, tag, NULL) == GRPC_CALL_OK)
        return true;
    tag->pending = false; /* refused: the queue never returns this tag */
    return false;
}

bool link_call_wait(struct link_call *c, struct link_tag *tag)
{
    pthread_mutex_lock(&c->mutex);
    while (tag->pending && !tag->done)
        pthread_cond_wait(&c->cond, &c->mutex);
    tag->pending = false;
    bool ok = tag->ok;
    pthread_mutex_unlock(&c->mutex);
    return ok;
}

void link_call_wait_any(struct link_call *c, struct link_tag *a, struct link_tag *b)
{
    pthread_mutex_lock(&c->mutex);
    while (!(a->pending && a->done) && !(b->pending && b->done) && (a->pending || b->pending))
        pthread_cond_wait(&c->cond, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
}

bool link_call_done(struct link_call *c, struct link_tag *tag)
{
    pthread_mutex_lock(&c->mutex);
    bool done = tag->pending && tag->done;
    pthread_mutex_unlock(&c->mutex);
    return done;
}

bool link_call_wait_until(struct link_call *c, struct link_tag *tag, uint64_t until_ms)
{
    int late = 0;
    pthread_mutex_lock(&c->mutex);
    while (tag->pending && !tag->done && !c->waits.again && !late)
        late = clock_cond_wait(&c->cond, &c->mutex, until_ms);
    bool done = !tag->pending || tag->done;
    c->waits.again = false;
    pthread_mutex_unlock(&c->mutex);
    return done;
}

bool link_call_wait_again(struct link_call *c, uint64_t until_ms)
{
    int late = 0;
    pthread_mutex_lock(&c->mutex);
    while (!c->waits.again && !c->status.done && !late)
        late = clock_cond_wait(&c->cond, &c->mutex, until_ms);
    bool again = c->waits.again && !c->status.done;
    c->waits.again = false;
    pthread_mutex_unlock(&c->mutex);
    return again;
}

void link_call_wake(struct link_call *c)
{
    pthread_mutex_lock(&c->mutex);
    c->waits.again = true;
    pthread_cond_broadcast(&c->cond);
    pthread_mutex_unlock(&c->mutex);
}

static struct link_call *call_new(void)
{
    struct link_call *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    clock_cond_init(&c->cond);
    pthread_mutex_init(&c->mutex, NULL);
    grpc_metadata_array_init(&c->data.md_initial);
    grpc_metadata_array_init(&c->data.md_trailing);
    c->end.details = grpc_empty_slice();
    c->row.round = LEDGER_NO_ROUND;
    return c;
}

static void row_about(struct link_call *c, enum ledger_what what, uint32_t fragment, uint64_t round)
{
    c->row.what = what;
    c->row.fragment = fragment;
    c->row.round = round;
}

void link_call_about(struct link_call *c, enum link_method method, const void *m)
{
    const struct wire_poll *poll = m;
    const struct wire_report *report = m;
    const struct wire_mask *mask = m;
    const struct wire_contribution *offer = m;
    const struct wire_fetch *fetch = m;
    switch (method) {
    case LINK_POLL:
        row_about(c, LEDGER_POLL, poll->fragment, poll->round);
        break;
    case LINK_REPORT: /* the round that produced the reported state */
        row_about(c, LEDGER_REPORT, report->fragment, report->round ? report->round - 1 : 0);
        break;
    case LINK_MASK:
        row_about(c, LEDGER_MASK, mask->fragment,
                  mask->step == WIRE_MASK_SETUP ? LEDGER_NO_ROUND : mask->round);
        break;
    case LINK_CONTRIBUTE:
        if (offer->supply) {
            row_about(c, LEDGER_SUPPLY, 0, LEDGER_NO_ROUND);
            break;
        }
        row_about(c, LEDGER_CONTRIBUTION, offer->fragment, offer->round);
        c->row.total = offer->payload_bytes;
        break;
    case LINK_FETCH:
        row_about(c, fetch->what == WIRE_SNAPSHOT ? LEDGER_SNAPSHOT : LEDGER_AGGREGATE,
                  fetch->fragment, fetch->round);
        break;
    default:
        row_about(c, method == LINK_HELLO ? LEDGER_HELLO : LEDGER_LEAVE, 0, LEDGER_NO_ROUND);
    }
}

void link_call_total(struct link_call *c, uint64_t bytes)
{
    c->row.total = bytes;
}

void link_call_whole(struct link_call *c, bool done)
{
    c->row.done = done;
}

struct ledger_row link_call_row(struct link_call *c)
{
    link_call_wait(c, &c->status);
    struct ledger_row row = c->row;
    bool ended = c->server ? c->end.cancelled == 0 : c->end.code == GRPC_STATUS_OK;
    row.broken = !ended && !row.done; /* a site may close the call after its receipt */
    if (!c->server &&
        !link_call_wait(c, &c->tags.start)) { /* never had a connection: no bytes were sent */
        row.calls++;
        row.up = (struct ledger_side){0};
    } else {
        ledger_call(&row);
    }
    return row;
}

/* Status and initial metadata are awaited from the start; without the latter a RECV_MESSAGE never
 * completes. Never wait-for-ready: the site has its own back-off and reports it, and the call does
 * not block here. */
struct link_call *link_call_open(grpc_channel *channel, void *method, grpc_completion_queue *cq,
                                 uint64_t timeout_ms, const char *path)
{
    gpr_timespec deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    if (timeout_ms != UINT64_MAX)
        deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                gpr_time_from_millis((int64_t)timeout_ms, GPR_TIMESPAN));
    struct link_call *c = call_new();
    if (!c)
        return NULL;
    c->call = grpc_channel_create_registered_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, cq,
                                                  method, deadline, NULL);
    grpc_op status = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    status.data.recv_status_on_client.trailing_metadata = &c->data.md_trailing;
    status.data.recv_status_on_client.status = &c->end.code;
    status.data.recv_status_on_client.status_details = &c->end.details;
    status.data.recv_status_on_client.error_string = &c->end.error;
    grpc_op initmd = {.op = GRPC_OP_RECV_INITIAL_METADATA};
    initmd.data.recv_initial_metadata.recv_initial_metadata = &c->data.md_initial;
    grpc_op start = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    if (path) {
        c->path.key = grpc_slice_from_static_string(LINK_PATH_KEY);
        c->path.value = grpc_slice_from_static_string(path);
        start.data.send_initial_metadata.count = 1;
        start.data.send_initial_metadata.metadata = &c->path;
    }
    op_start(c, &status, &c->status);
    op_start(c, &initmd, &c->tags.initmd);
    op_start(c, &start, &c->tags.start);
    return c;
}

struct link_call *link_call_accept(grpc_call *call)
{
    struct link_call *c = call_new();
    if (!c)
        return NULL;
    c->call = call;
    c->server = true;
    grpc_op closed = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    closed.data.recv_close_on_server.cancelled = &c->end.cancelled;
    grpc_op start = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    op_start(c, &closed, &c->status);
    op_start(c, &start, &c->tags.start);
    return c;
}

static void sending_drop(struct link_call *c)
{
    if (c->data.sending)
        grpc_byte_buffer_destroy(c->data.sending);
    c->data.sending = NULL;
}

bool link_call_send_start(struct link_call *c, grpc_byte_buffer *bb)
{
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    link_call_wait(c, &c->tags.start);
    sending_drop(c);
    c->data.sending = bb;
    ledger_message(c->server ? &c->row.down : &c->row.up, grpc_byte_buffer_length(bb),
                   c->payload_bytes);
    c->payload_bytes = 0;
    op.data.send_message.send_message = bb;
    return op_start(c, &op, &c->send);
}

bool link_call_send(struct link_call *c, grpc_byte_buffer *bb)
{
    bool ok = link_call_send_start(c, bb) && link_call_wait(c, &c->send);
    sending_drop(c);
    return ok;
}

bool link_call_recv_start(struct link_call *c)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    c->data.received = NULL;
    op.data.recv_message.recv_message = &c->data.received;
    return op_start(c, &op, &c->recv);
}

grpc_byte_buffer *link_call_received(struct link_call *c)
{
    link_call_wait(c, &c->recv);
    grpc_byte_buffer *bb = c->data.received;
    c->data.received = NULL;
    if (bb)
        ledger_message(c->server ? &c->row.up : &c->row.down, grpc_byte_buffer_length(bb), 0);
    return bb;
}

grpc_byte_buffer *link_call_recv(struct link_call *c)
{
    return link_call_recv_start(c) ? link_call_received(c) : NULL;
}

bool link_call_half_close(struct link_call *c)
{
    grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    link_call_wait(c, &c->tags.start);
    return op_start(c, &op, &c->tags.fin) && link_call_wait(c, &c->tags.fin);
}

bool link_call_reply(struct link_call *c, grpc_status_code code, const char *text)
{
    grpc_slice details = grpc_slice_from_copied_string(text);
    grpc_op op = {.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    op.data.send_status_from_server.status = code;
    op.data.send_status_from_server.status_details = &details;
    if (c->streams) {
        char number[16];
        snprintf(number, sizeof number, "%u 0", c->streams);
        c->path.key = grpc_slice_from_static_string(LINK_PATH_STREAMS);
        c->path.value = grpc_slice_from_copied_string(number); /* short: inside the slice */
        op.data.send_status_from_server.trailing_metadata_count = 1;
        op.data.send_status_from_server.trailing_metadata = &c->path;
    }
    link_call_wait(c, &c->tags.start);
    bool ok = op_start(c, &op, &c->tags.fin) && link_call_wait(c, &c->tags.fin);
    link_call_wait(c, &c->status);
    grpc_slice_unref(details);
    return ok && !c->end.cancelled;
}

unsigned link_call_streams(const struct link_call *c)
{
    char text[8] = "";
    unsigned count, first;
    for (size_t i = 0; i < c->data.md_trailing.count; i++) {
        const grpc_metadata *m = &c->data.md_trailing.metadata[i];
        if (grpc_slice_str_cmp(m->key, LINK_PATH_STREAMS) == 0 &&
            GRPC_SLICE_LENGTH(m->value) < sizeof text)
            memcpy(text, GRPC_SLICE_START_PTR(m->value), GRPC_SLICE_LENGTH(m->value));
    }
    bool good = sscanf(text, "%2u %2u", &count, &first) == 2 && count <= LINK_STREAMS_MAX;
    return good ? count : 0;
}

void link_call_cancel(struct link_call *c, const char *why)
{
    grpc_call_cancel_with_status(c->call, GRPC_STATUS_PERMISSION_DENIED, why, NULL);
    link_call_wake(c);
}

void link_call_close(struct link_call *c)
{
    struct link_tag *all[] = {&c->tags.start, &c->tags.initmd, &c->send,
                              &c->recv,       &c->tags.fin,    &c->status};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        link_call_wait(c, all[i]);
    sending_drop(c);
    if (c->data.received)
        grpc_byte_buffer_destroy(c->data.received);
    grpc_metadata_array_destroy(&c->data.md_initial);
    grpc_metadata_array_destroy(&c->data.md_trailing);
    grpc_slice_unref(c->end.details);
    gpr_free((void *)(uintptr_t)c->end.error);
    grpc_call_unref(c->call);
    pthread_mutex_lock(&c->mutex);
    while (c->waits.pins) /* the transport may hold slices longer than the call: on a broken link
                       until keepalive ends it */
        pthread_cond_wait(&c->cond, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
    pthread_cond_destroy(&c->cond);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

enum err link_peer_facts(grpc_call *call, struct tls_facts *facts)
{
    grpc_auth_context *ctx = grpc_call_auth_context(call);
    enum err e = err_set(ERR_INPUT, "the other end showed no certificate");
    if (!ctx)
        return e;
    grpc_auth_property_iterator it =
        grpc_auth_context_find_properties_by_name(ctx, GRPC_X509_PEM_CERT_PROPERTY_NAME);
    const grpc_auth_property *pem = grpc_auth_property_iterator_next(&it);
    char *text = pem ? strndup(pem->value, pem->value_length) : NULL;
    if (text)
        e = tls_facts_of(facts, text, "the other end's certificate");
    free(text);
    grpc_auth_context_release(ctx);
    return e;
}

/* ---- messages ---- */

grpc_byte_buffer *link_buffer(const uint8_t *data, size_t size_bytes)
{
    grpc_slice s = grpc_slice_from_copied_buffer((const char *)data, size_bytes);
    grpc_byte_buffer *bb = grpc_raw_byte_buffer_create(&s, 1);
    grpc_slice_unref(s);
    return bb;
}

static void unpin(void *call) /* on one of core's threads */
{
    struct link_call *c = call;
    HANDOVER_TAKE(c);
    pthread_mutex_lock(&c->mutex);
    c->waits.pins--;
    pthread_cond_broadcast(&c->cond);
    pthread_mutex_unlock(&c->mutex);
}

grpc_byte_buffer *link_chunk(struct link_call *c, const struct wire_chunk *chunk,
                             const uint8_t *data)
{
    pthread_mutex_lock(&c->mutex);
    c->waits.pins++;
    pthread_mutex_unlock(&c->mutex);
    uint8_t head[WIRE_CHUNK_HEADER_MAX];
    size_t head_bytes = wire_chunk_header(head, chunk);
    HANDOVER_GIVE(c);
    grpc_slice part[2] = {
        grpc_slice_from_copied_buffer((const char *)head, head_bytes),
        grpc_slice_new_with_user_data((void *)(uintptr_t)data, chunk->size_bytes, unpin, c),
    };
    grpc_byte_buffer *bb = grpc_raw_byte_buffer_create(part, 2);
    grpc_slice_unref(part[0]);
    grpc_slice_unref(part[1]);
    c->payload_bytes = chunk->size_bytes;
    return bb;
}

size_t link_copy(grpc_byte_buffer *bb, size_t skip, void *dst, size_t size)
{
    grpc_byte_buffer_reader reader;
    grpc_slice *s;
    size_t done = 0;
    if (!grpc_byte_buffer_reader_init(&reader, bb))
        return 0;
    while (done < size && grpc_byte_buffer_reader_peek(&reader, &s)) {
        size_t n = GRPC_SLICE_LENGTH(*s);
        size_t drop = skip < n ? skip : n;
        skip -= drop;
        n -= drop;
        if (n > size - done)
            n = size - done;
        memcpy((uint8_t *)dst + done, GRPC_SLICE_START_PTR(*s) + drop, n);
        done += n;
    }
    grpc_byte_buffer_reader_destroy(&reader);
    return done;
}

enum err link_decode(grpc_byte_buffer *bb, enum wire_kind kind, void *message, struct arena *a)
{
    size_t n = grpc_byte_buffer_length(bb);
    enum err e = ERR_OK;
    uint8_t *data = NULL;
    if (n > wire_largest(kind))
        e = err_set(ERR_PROTO, "a message of %zu bytes, at most %zu are allowed", n,
                    wire_largest(kind));
    else if (!(data = arena_alloc(a, n)))
        e = ERR_MEMORY;
    else if (link_copy(bb, 0, data, n) != n)
        e = err_set(ERR_PROTO, "a message of %zu bytes cannot be read", n);
    grpc_byte_buffer_destroy(bb);
    return e == ERR_OK ? wire_decode(kind, message, data, n, a) : e;
}

enum err link_chunk_head(struct link_call *c, grpc_byte_buffer *bb, struct wire_chunk *chunk,
                         size_t *data_at)
{
    uint8_t head[WIRE_CHUNK_HEADER_MAX];
    size_t n = link_copy(bb, 0, head, sizeof head);
    struct ledger_side *came = c->server ? &c->row.up : &c->row.down;
    TRY(wire_chunk_parse(chunk, head, n, grpc_byte_buffer_length(bb), data_at));
    came->grpc -= chunk->size_bytes; /* was counted as protobuf before the chunk was decoded */
    came->payload += chunk->size_bytes;
    return ERR_OK;
}

enum err link_chunk_data(grpc_byte_buffer *bb, const struct wire_chunk *chunk, size_t data_at,
                         uint8_t *dst)
{
    if (link_copy(bb, data_at, dst, chunk->size_bytes) != chunk->size_bytes)
        return err_set(ERR_PROTO, "a chunk cannot be read");
    if (digest_crc32c(0, dst, chunk->size_bytes) != chunk->crc32c)
        return err_set(ERR_CORRUPT, "the chunk at %llu was damaged in transit",
                       (unsigned long long)chunk->offset);
    return ERR_OK;
}
