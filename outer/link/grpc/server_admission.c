/* SPDX-License-Identifier: Apache-2.0 */
/* Admission of calls at the aggregator: identity, limits, a thread for each call, and its ledger
 * row at the end. Limits are checked before a call costs more than its memory: on all calls, on the
 * calls of each site, and on the calls of all unknown peers together. An unknown method is answered
 * at once on the same path.
 */
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/handover.h"
#include "kernels/base/log.h"
#include "outer/link/grpc/link_accept.h"
#include "outer/link/grpc/server.h"

enum {
    UNKNOWN_PEER_CALLS_MAX = 32,
    METADATA_BYTES_MAX = 8192,    /* announced by core, which accepts more anyway */
    CALLS_ENDED_LOGGED = 5,       /* lines of one peer in LOG_LIMIT_MS */
    CONNECTIONS_PER_SITE_MAX = 64 /* control, bulk, and broken connections not yet detected */
};

/* ---- identity ---- */

static bool property_is(grpc_auth_context *ctx, const char *name, const char *value)
{
    grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(ctx, name);
    const grpc_auth_property *p = grpc_auth_property_iterator_next(&it);
    return p && p->value_length == strlen(value) && memcmp(p->value, value, p->value_length) == 0;
}

/* The caller's identity: exactly one URI in the certificate of this connection. */
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
    for (const struct server_call *call = s->calls.running; call; call = call->next)
        n += strcmp(call->peer, peer) == 0;
    return n;
}

/* ---- ledger ---- */

/* Records a new call: its connection, and its site's idle time before it. */
static void socket_begin(struct server_call *call, grpc_call *core) /* under the server's mutex */
{
    struct link_server *s = call->server;
    char *from = grpc_call_get_peer(core);
    accept_known(s->sockets.port, from);
    call->socket = link_sockets_own(&s->sockets, from, server_site_of(call->peer));
    if (strcmp(call->peer, s->o.uri) == 0)
        link_sockets_own_call(&s->sockets, call->socket);
    link_sockets_spoke(&s->sockets, server_site_of(call->peer), clock_mono_ms(),
                       calls_of(s, call->peer) == 0);
    gpr_free(from);
}

void server_book_sockets(struct link_server *s) /* under its mutex */
{
    struct ledger_row row;
    while (s->o.book && link_sockets_next(&s->sockets, &row))
        s->o.book(s->o.book_self, &row);
}

static void book(const struct server_call *call,
                 struct ledger_row *row) /* under the server's mutex */
{
    struct link_server *s = call->server;
    link_sockets_refresh(&s->sockets, call->socket);
    server_book_sockets(s);
    link_sockets_spoke(&s->sockets, server_site_of(call->peer), clock_mono_ms(), false);
    if (!s->o.book || strcmp(call->peer, s->o.uri) == 0)
        return;
    snprintf(row->site, sizeof row->site, "%s", server_site_of(call->peer));
    s->o.book(s->o.book_self, row);
}

/* ---- calls ---- */

static void call_unlist(struct server_call *call) /* after this the call is not woken */
{
    struct link_server *s = call->server;
    pthread_mutex_lock(&s->mutex);
    struct server_call **at = &s->calls.running;
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
    call->next = s->calls.ended;
    s->calls.ended = call;
    s->calls.count--;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

/* gRPC's health service, for probes of any kind: the connection was accepted, both certificates
 * verified, and this process answers calls. */
static void serve_health(struct server_call *call)
{
    static const uint8_t SERVING[] = {0x08, 0x01}; /* HealthCheckResponse.status = SERVING */
    grpc_byte_buffer *request = server_first_message(call->c); /* its content is ignored */
    if (request)
        grpc_byte_buffer_destroy(request);
    link_call_send(call->c, link_buffer(SERVING, sizeof SERVING));
    link_call_reply(call->c, GRPC_STATUS_OK, "");
}

static void call_answer(struct server_call *call)
{
    switch (call->method) {
    case LINK_CONTRIBUTE:
        server_serve_contribution(call);
        break;
    case LINK_FETCH:
        server_serve_fetch(call);
        break;
    case LINK_UNKNOWN:
        if (call->wants.health)
            serve_health(call);
        else
            link_call_reply(call->c, GRPC_STATUS_UNIMPLEMENTED, "no such method");
        break;
    default:
        server_serve_small(call);
    }
}

/* What the peer of a refused call is told. */
static const char *verdict_text(const struct server_call *call)
{
    return call->verdict == SERVER_NO_IDENTITY
               ? "the certificate must name exactly one URI, atoll://run/role/name"
           : call->verdict == SERVER_REVOKED  ? call->revoked
           : call->verdict == SERVER_METADATA ? "metadata: more than 8192 bytes"
           : call->verdict == SERVER_RATE     ? LINK_BUSY ": too many calls a second"
                                              : "busy: too many calls of this site at once";
}

static void *call_main(void *arg)
{
    struct server_call *call = arg;
    if (call->verdict == SERVER_ADMITTED)
        call_answer(call);
    else
        link_call_reply(call->c,
                        call->verdict == SERVER_BUSY || call->verdict == SERVER_METADATA
                            ? GRPC_STATUS_RESOURCE_EXHAUSTED
                            : GRPC_STATUS_PERMISSION_DENIED,
                        verdict_text(call));
    call_close(call);
    return NULL;
}

void server_calls_join(struct link_server *s)
{
    pthread_mutex_lock(&s->mutex);
    struct server_call *list = s->calls.ended;
    s->calls.ended = NULL;
    pthread_mutex_unlock(&s->mutex);
    while (list) {
        struct server_call *call = list;
        list = call->next;
        pthread_join(call->thread, NULL);
        free(call);
    }
}

static bool metadata_large(const grpc_metadata_array *m)
{
    size_t bytes = 0;
    for (size_t i = 0; i < m->count; i++)
        bytes += GRPC_SLICE_LENGTH(m->metadata[i].key) + GRPC_SLICE_LENGTH(m->metadata[i].value);
    return bytes > METADATA_BYTES_MAX;
}

/* Under the server's mutex. */
static enum server_verdict call_verdict(const struct link_server *s, const struct server_call *call,
                                        const struct request *r)
{
    unsigned unknown = 0;
    if (!*call->peer)
        return SERVER_NO_IDENTITY;
    if (call->revoked)
        return SERVER_REVOKED;
    if (metadata_large(&r->metadata))
        return SERVER_METADATA;
    for (const struct server_call *c = s->calls.running; c; c = c->next)
        unknown += !c->known;
    bool busy = calls_of(s, call->peer) >= SERVER_CALLS_PER_SITE_MAX ||
                (!call->known && unknown >= UNKNOWN_PEER_CALLS_MAX);
    return busy ? SERVER_BUSY : SERVER_ADMITTED;
}

/* Who calls, for the log: the certificate's URI, or the address without the port. */
static void caller_name(const struct server_call *call, grpc_call *core, char out[TLS_URI_MAX])
{
    if (*call->peer) {
        memcpy(out, call->peer, TLS_URI_MAX);
        return;
    }
    char *from = grpc_call_get_peer(core), *colon = strrchr(from, ':');
    snprintf(out, TLS_URI_MAX, "%.*s", colon ? (int)(colon - from) : (int)strlen(from), from);
    gpr_free(from);
}

/* A call that the link itself refuses; the service logs those that it refuses. Under the server's
 * mutex. */
static void refusal_log(struct link_server *s, const struct server_call *call, grpc_call *core)
{
    static const char *const answers[] = {[SERVER_NO_IDENTITY] = "denied",
                                          [SERVER_REVOKED] = "excluded",
                                          [SERVER_METADATA] = "invalid",
                                          [SERVER_BUSY] = "busy",
                                          [SERVER_RATE] = "busy"};
    char who[TLS_URI_MAX], quoted[2 * TLS_URI_MAX], why[256];
    unsigned repeats;
    if (call->verdict == SERVER_ADMITTED)
        return;
    const char *answer = answers[call->verdict];
    caller_name(call, core, who);
    if (log_limit_pass(&s->limit, answer, who, 1, clock_mono_ms(), &repeats))
        log_event(LOG_WARN, "refused", "call=%s peer=%s answer=%s repeats=%u why=%s",
                  call->method == LINK_UNKNOWN ? "-" : strrchr(link_paths[call->method], '/') + 1,
                  log_quote(quoted, sizeof quoted, who), answer, repeats,
                  log_quote(why, sizeof why, verdict_text(call)));
}

/* Under the server's mutex. */
static void unknown_method_log(struct link_server *s, const struct server_call *call,
                               const grpc_call_details *details)
{
    char quoted[256], from[2 * TLS_URI_MAX], *path;
    unsigned repeats;
    if (!log_limit_pass(&s->limit, "unknown_method", call->peer, 1, clock_mono_ms(), &repeats))
        return;
    path = grpc_slice_to_c_string(details->method);
    log_event(LOG_WARN, "unknown_method", "peer=%s method=%s repeats=%u",
              log_quote(from, sizeof from, call->peer), log_quote(quoted, sizeof quoted, path),
              repeats);
    gpr_free(path);
}

/* ---- what a site is sent ---- */

static void path_wanted(struct server_call *call, const grpc_metadata_array *m)
{
    for (size_t i = 0; i < m->count; i++) {
        if (grpc_slice_str_cmp(m->metadata[i].key, LINK_PATH_KEY) != 0)
            continue;
        call->wants.paces = true;
        call->wants.bbr = grpc_slice_str_cmp(m->metadata[i].value, LINK_PATH_BBR) == 0;
    }
}

/* Checks a site certificate's expiry once a day. Under the server's mutex. */
static void expiry_look(struct link_server *s, const struct server_call *call, grpc_call *core)
{
    struct server_look *look = server_look_of(s, call->peer);
    struct tls_facts f;
    uint64_t now = clock_mono_ms();
    if (look->ms && now - look->ms < s->o.look_ms)
        return;
    look->ms = now;
    if (link_peer_facts(core, &f) == ERR_OK)
        tls_log_expiry(call->peer, &f, clock_wall_s());
    else
        err_clear();
}

void server_revoked_end(struct link_server *s)
{
    const struct link_service *service = &s->service;
    char quoted[2 * TLS_URI_MAX];
    unsigned repeats;
    if (!service->revoked)
        return;
    pthread_mutex_lock(&s->mutex);
    for (struct server_call *call = s->calls.running; call; call = call->next) {
        if (call->verdict != SERVER_ADMITTED || call->revoked)
            continue;
        call->revoked = service->revoked(service->self, call->peer, &call->certificate);
        if (!call->revoked)
            continue;
        if (log_limit_pass(&s->limit, "call_ended", call->peer, CALLS_ENDED_LOGGED, clock_mono_ms(),
                           &repeats))
            log_event(LOG_WARN, "call_ended", "peer=%s repeats=%u why=\"%s\"",
                      log_quote(quoted, sizeof quoted, call->peer), repeats, call->revoked);
        link_call_cancel(call->c, call->revoked);
    }
    pthread_mutex_unlock(&s->mutex);
}

static void certificate_of(struct server_call *call, grpc_call *core)
{
    struct tls_facts f;
    if (link_peer_facts(core, &f) != ERR_OK) {
        err_clear();
        return;
    }
    call->certificate.sha256 = f.sha256;
    snprintf(call->certificate.serial, sizeof call->certificate.serial, "%.*s",
             (int)sizeof call->certificate.serial - 1, f.serial);
}

/* Each identity has its own bucket, so one that calls without a pause takes nothing from the
 * others. Under the server's mutex. */
static bool rate_exceeded(struct link_server *s, const struct server_call *call)
{
    if (!*call->peer || strcmp(call->peer, s->o.uri) == 0)
        return false;
    struct bucket *b =
        call->known
            ? &server_look_of(s, call->peer)->calls
            : &s->calls
                   .strangers[digest_crc32c(0, call->peer, strlen(call->peer)) % SERVER_STRANGERS];
    return !bucket_take(b, clock_mono_ms() * 1000000, s->o.calls_per_s,
                        LINK_CALLS_BURST * s->o.calls_per_s);
}

static void call_about(struct link_server *s, struct server_call *call, const struct request *r)
{
    const struct link_service *service = &s->service;
    if (!peer_uri(r->call, call->peer))
        call->peer[0] = 0;
    if (service->revoked)
        call->revoked = service->revoked(service->self, call->peer, &call->certificate);
    call->known = !call->revoked && (!service->known || strcmp(call->peer, s->o.uri) == 0 ||
                                     service->known(service->self, call->peer));
    call->verdict = call_verdict(s, call, r);
    if (rate_exceeded(s, call))
        call->verdict = SERVER_RATE;
    if (r->method == LINK_FETCH)
        path_wanted(call, &r->metadata);
    if (call->known && call->verdict == SERVER_ADMITTED && r->method != LINK_UNKNOWN)
        expiry_look(s, call, r->call);
    if (r->method != LINK_UNKNOWN)
        return;
    call->wants.health = grpc_slice_str_cmp(r->details.method, LINK_HEALTH_PATH) == 0;
    if (!call->wants.health)
        unknown_method_log(s, call, &r->details);
}

/* Limits the connections of one site, because a site that keeps opening connections would exhaust
 * the descriptors. Under the server's mutex. */
static void connections_limit(struct link_server *s, struct server_call *call, grpc_call *core)
{
    const char *site = server_site_of(call->peer);
    if (link_sockets_of(&s->sockets, site) <= CONNECTIONS_PER_SITE_MAX)
        return;
    link_sockets_scan(&s->sockets); /* removes sockets that have closed meanwhile */
    if (link_sockets_of(&s->sockets, site) <= CONNECTIONS_PER_SITE_MAX)
        return;
    call->verdict = SERVER_BUSY;
    refusal_log(s, call, core);
    link_sockets_end(&s->sockets, call->socket);
}

/* False: no thread could be started, or a limit is reached; the call is ended with
 * RESOURCE_EXHAUSTED and the text "busy". */
static bool call_start(struct link_server *s, struct server_call *call, const struct request *r)
{
    certificate_of(call, r->call);
    pthread_mutex_lock(&s->mutex);
    bool room = s->calls.count < SERVER_CALLS_MAX && !s->work.stopping;
    if (room) {
        call_about(s, call, r);
        room = call->verdict != SERVER_RATE; /* as cheap as it can be */
        refusal_log(s, call, r->call);
    }
    if (room) {
        socket_begin(call, r->call);
        connections_limit(s, call, r->call);
        room = pthread_create(&call->thread, NULL, call_main, call) == 0;
    }
    if (room) {
        call->next = s->calls.running;
        s->calls.running = call;
        s->calls.count++;
    }
    pthread_mutex_unlock(&s->mutex);
    return room;
}

/* Ends the call with RESOURCE_EXHAUSTED; the peer tries again later. */
static void call_refuse(grpc_call *call)
{
    grpc_call_cancel_with_status(call, GRPC_STATUS_RESOURCE_EXHAUSTED, "busy", NULL);
}

static void call_take(struct link_server *s, const struct request *r)
{
    server_calls_join(s);
    struct server_call *call = calloc(1, sizeof *call);
    struct link_call *c = call ? link_call_accept(r->call) : NULL;
    if (!c) {
        call_refuse(r->call);
        grpc_call_unref(r->call);
        free(call);
        return;
    }
    *call = (struct server_call){.server = s, .c = c, .method = r->method};
    if (call_start(s, call, r))
        return;
    call_refuse(r->call);
    link_call_close(c);
    free(call);
}

void server_request_next(struct link_server *s, unsigned method)
{
    struct request *r = &s->calls.requests[method];
    grpc_metadata_array_destroy(&r->metadata);
    grpc_metadata_array_init(&r->metadata);
    r->method = method;
    HANDOVER_GIVE(r);
    if (method == LINK_UNKNOWN) {
        grpc_call_details_destroy(&r->details);
        grpc_call_details_init(&r->details);
        grpc_server_request_call(s->core.server, &r->call, &r->details, &r->metadata, s->core.cq,
                                 s->core.notify, r); /* an error: the server shuts down */
        return;
    }
    grpc_server_request_registered_call(s->core.server, s->core.methods[method], &r->call,
                                        &r->deadline, &r->metadata, NULL, s->core.cq,
                                        s->core.notify, r);
}

void server_requests_free(struct link_server *s)
{
    for (int i = 0; i < SERVER_REQUESTS; i++) {
        grpc_metadata_array_destroy(&s->calls.requests[i].metadata);
        grpc_call_details_destroy(&s->calls.requests[i].details);
    }
}

void *server_admission_main(void *server)
{
    struct link_server *s = server;
    for (;;) {
        grpc_event ev =
            grpc_completion_queue_next(s->core.notify, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (ev.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        if (ev.tag == s) { /* the server has shut down */
            grpc_completion_queue_shutdown(s->core.notify);
            continue;
        }
        struct request *r = ev.tag;
        HANDOVER_TAKE(r);
        if (!ev.success)
            continue;
        call_take(s, r);
        server_request_next(s, r->method);
    }
}
