/* SPDX-License-Identifier: Apache-2.0 */
/* The aggregator's end of the real link: its start, its credentials, its end (server.h lists
 * the other parts). */
#include <errno.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/base/signals.h"
#include "outer/link/grpc/link_accept.h"
#include "outer/link/grpc/server.h"
#include "outer/link/address.h"

enum {
    /* Unread bytes that core may hold: UNREAD_BYTES for all connections, and UNREAD_STREAM_BYTES
       for each stream of a contribution (a window of 4 MiB, the overrun until the window shrinks, a
       partly received message). At 80 % of the quota core shrinks windows; at 100 % it closes idle
       connections, then breaks streams. So the memory limits the number of streams received at a
       time. */
    UNREAD_BYTES = 64 << 20,
    UNREAD_STREAM_BYTES = 6 << 20,
    READ_BYTES = 256 << 10, /* read buffer of a connection, part of the same memory, also while
                               idle; core's default is 4 MiB */
    CONNECTION_AGE_MS =
        3600000 /* expiry and revocation of a certificate take effect only in a handshake */
};

/* ---- credentials: read again for each handshake when the files have changed ---- */

/* At each handshake, so peers set the rate. */
static void reload_failed_log(struct link_server *s)
{
    unsigned repeats;
    pthread_mutex_lock(&s->mutex);
    bool pass = log_limit_pass(&s->limit, "certificate_reload", "", 1, clock_mono_ms(), &repeats);
    pthread_mutex_unlock(&s->mutex);
    if (pass)
        log_event(LOG_WARN, "certificate_reload", "ok=0 file=%s repeats=%u", s->o.files.certificate,
                  repeats);
}

static grpc_ssl_certificate_config_reload_status
config_fetch(void *server, grpc_ssl_server_certificate_config **config)
{
    struct link_server *s = server;
    uint64_t stamp = tls_stamp(&s->o.files);
    if (stamp == atomic_load(&s->core.stamp))
        return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    struct tls_pem pem;
    if (stamp == 0 || tls_load(&pem, &s->o.files) != ERR_OK) {
        reload_failed_log(s);
        return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL; /* core keeps the present credentials */
    }
    grpc_ssl_pem_key_cert_pair pair = {.private_key = pem.key, .cert_chain = pem.certificate};
    *config = grpc_ssl_server_certificate_config_create(pem.ca, &pair, 1);
    tls_forget(&pem);
    atomic_store(&s->core.stamp, stamp);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

static grpc_server_credentials *credentials_make(struct link_server *s)
{
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, config_fetch, s));
}

/* ---- start and end ---- */

/* Core reports only that bind failed; a second bind gives the system's reason. */
static enum err bind_failed(const char *address)
{
    char host[ADDRESS_HOST_MAX], port[ADDRESS_PORT_MAX];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    TRY(address_split(address, 0, host, port));
    int e = getaddrinfo(host, port, &hints, &found);
    if (e != 0)
        return err_set(ERR_CONFIG, "cannot listen on '%s': %s", address, gai_strerror(e));
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
        {GRPC_ARG_INTEGER, (char *)"grpc.http2.max_ping_strikes", {.integer = 2}},
        {GRPC_ARG_INTEGER,
         (char *)"grpc.max_receive_message_length",
         {.integer = WIRE_MESSAGE_MAX}},
        {GRPC_ARG_INTEGER, (char *)"grpc.compression_enabled_algorithms_bitset", {.integer = 1}},
        {GRPC_ARG_INTEGER,
         (char *)"grpc.experimental.tcp_max_read_chunk_size",
         {.integer = READ_BYTES}},
        {GRPC_ARG_INTEGER,
         (char *)"grpc.so_reuseport",
         {.integer = 0}}, /* 1 would let two servers bind one port without an error */
        {GRPC_ARG_INTEGER,
         (char *)"grpc.max_concurrent_streams",
         {.integer = 2 * SERVER_CALLS_PER_SITE_MAX}},
        {GRPC_ARG_INTEGER,
         (char *)"grpc.server_handshake_timeout_ms",
         {.integer = ACCEPT_PENDING_MS}},
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

/* Frees gRPC's objects; accepts a partly opened server. */
static void server_core_free(struct link_server *s)
{
    server_requests_free(s);
    grpc_server_destroy(s->core.server);
    grpc_resource_quota_unref(s->core.quota);
    grpc_completion_queue_destroy(s->core.notify);
}

static void server_free(struct link_server *s)
{
    server_looks_close(s);
    if (s->core.server)
        server_core_free(s);
    if (s->core.cq)
        link_core_close();
    accept_unwatch(s->sockets.port);
    link_sockets_close(&s->sockets);
    server_streams_close(s);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    pthread_mutex_destroy(&s->service_mutex);
    free(s->o.ca);
    free(s->o.certificate);
    free(s->o.key);
    free(s->o.address);
    free(s->limit.keys);
    free(s);
}

static void locks_init(struct link_server *s)
{
    clock_cond_init(&s->changed);
    server_streams_open(s);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_mutex_init(&s->service_mutex, NULL);
}

static enum err server_bind(struct link_server *s, int *port)
{
    for (int i = 0; i < LINK_METHODS; i++)
        s->core.methods[i] = grpc_server_register_method(s->core.server, link_paths[i], NULL,
                                                         GRPC_SRM_PAYLOAD_NONE, 0);
    grpc_server_register_completion_queue(s->core.server, s->core.notify, NULL);
    grpc_server_register_completion_queue(s->core.server, s->core.cq, NULL);
    grpc_server_credentials *credentials = credentials_make(s);
    *port = grpc_server_add_http2_port(s->core.server, s->o.address, credentials);
    grpc_server_credentials_release(credentials);
    return *port ? ERR_OK : bind_failed(s->o.address);
}

/* The link's threads block all signals; the program's own threads handle them. */
static enum err server_threads(struct link_server *s)
{
    struct {
        pthread_t *thread;
        void *(*body)(void *);
    } all[] = {{&s->core.worker, server_work_main},
               {&s->core.guard, server_guard_main},
               {&s->core.acceptor, server_admission_main}};
    unsigned count = sizeof all / sizeof *all, started = 0;
    sigset_t before;
    TRY(server_looks_watch(s));
    signals_block(&before);
    while (started < count && pthread_create(all[started].thread, NULL, all[started].body, s) == 0)
        started++;
    signals_restore(&before);
    if (started == count)
        return ERR_OK;
    server_work_stop(s); /* the admission thread starts last, so it does not run here */
    while (started--)
        pthread_join(*all[started].thread, NULL);
    return err_set(ERR_MEMORY, "cannot start the aggregator's threads");
}

/* Closes a server that never started; its queue is empty after shutdown. */
static void server_abandon(struct link_server *s)
{
    if (!s->core.server) {
        server_free(s);
        return;
    }
    grpc_server_shutdown_and_notify(s->core.server, s->core.notify, s);
    grpc_completion_queue_next(s->core.notify, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    grpc_completion_queue_shutdown(s->core.notify);
    while (grpc_completion_queue_next(s->core.notify, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL)
               .type != GRPC_QUEUE_SHUTDOWN)
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

/* Copies the settings that the server keeps. */
static enum err settings_copy(struct link_server *s, const struct link_listen *l)
{
    struct tls_facts facts;
    TRY(tls_facts(&facts, l->tls.certificate));
    memcpy(s->o.uri, facts.uri, sizeof s->o.uri);
    s->o.ca = strdup(l->tls.ca);
    s->o.certificate = strdup(l->tls.certificate);
    s->o.key = strdup(l->tls.key);
    s->o.address = strdup(l->address);
    s->o.files = (struct link_tls){s->o.ca, s->o.certificate, s->o.key};
    s->o.sites = l->sites;
    s->o.book = l->book;
    s->o.book_self = l->book_self;
    s->o.self_ms = l->self_call_ms;
    s->o.keepalive_ms = l->keepalive_ms ? l->keepalive_ms : LINK_KEEPALIVE_MS;
    s->o.look_ms = l->look_ms ? l->look_ms : LINK_LOOK_MS;
    s->o.calls_per_s = l->calls_per_s ? l->calls_per_s : LINK_CALLS_PER_S;
    TRY(server_looks_open(s, l->sites));
    s->limit.count = LOG_LIMIT_KEYS_MIN + 4 * s->looks.count;
    s->limit.keys = calloc(s->limit.count, sizeof *s->limit.keys);
    bool copied = s->o.ca && s->o.certificate && s->o.key && s->o.address && s->limit.keys;
    return copied ? ERR_OK : err_set(ERR_MEMORY, "no memory for the aggregator's link");
}

static void server_core_make(struct link_server *s, uint64_t receive_bytes)
{
    uint64_t memory = receive_bytes ? receive_bytes : link_receive_bytes(s->o.sites);
    ASSERT(memory >= (uint64_t)LINK_RECEIVE_MIB_MIN << 20);
    s->core.notify = grpc_completion_queue_create_for_next(NULL);
    s->core.quota = grpc_resource_quota_create("aggregator");
    grpc_resource_quota_resize(s->core.quota, memory);
    s->o.receiving_most = (unsigned)((memory - UNREAD_BYTES) / UNREAD_STREAM_BYTES);
    s->core.server = server_make(s->core.quota, (int)s->o.keepalive_ms);
}

static enum err server_open(struct link_server *s, const struct link_listen *l, int *port)
{
    struct tls_pem pem; /* loaded here for errors that name the file: core reports only a failure */
    TRY(tls_load(&pem, &l->tls));
    s->sockets.certificate_bytes = tls_certificate_bytes(&pem);
    tls_forget(&pem);
    TRY(settings_copy(s, l));
    accept_raise_descriptors();
    TRY(link_core_open(&s->core.cq, windows_wide(l)));
    server_core_make(s, l->receive_bytes);
    TRY(server_bind(s, port));
    s->sockets.port = (uint16_t)*port;
    s->sockets.listening = true;
    s->sockets.keepalive_ms = s->o.keepalive_ms;
    accept_watch((uint16_t)*port);
    return server_threads(s);
}

enum err link_serve(struct link_server **out, const struct link_listen *l,
                    const struct link_service *service, int *port)
{
    struct link_server *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(ERR_MEMORY, "no memory for the aggregator's link");
    locks_init(s);
    s->service = *service;
    enum err e = server_open(s, l, port);
    if (e != ERR_OK) {
        server_abandon(s);
        return e;
    }
    grpc_server_start(s->core.server);
    for (unsigned i = 0; i < SERVER_REQUESTS; i++)
        server_request_next(s, i);
    *out = s;
    return ERR_OK;
}

bool link_silent(const struct link_server *s)
{
    return atomic_load(&s->guard.silent);
}

void link_work_soon(struct link_server *s)
{
    server_work_soon(s);
}

bool link_stopped(const struct link_server *s)
{
    return atomic_load(&s->work.stopped);
}

static void calls_wait(struct link_server *s, uint64_t until_ms)
{
    int late = 0;
    pthread_mutex_lock(&s->mutex);
    while (s->calls.count && !late)
        late = clock_cond_wait(&s->changed, &s->mutex, until_ms);
    pthread_mutex_unlock(&s->mutex);
}

void link_shutdown(struct link_server *s, uint32_t grace_ms)
{
    server_work_stop(s);
    server_wake_held(s);
    pthread_join(s->core.worker, NULL);
    pthread_join(s->core.guard, NULL);
    grpc_server_shutdown_and_notify(s->core.server, s->core.notify, s);
    calls_wait(s, clock_mono_ms() + grace_ms);
    pthread_mutex_lock(&s->mutex);
    link_sockets_scan(&s->sockets);
    server_book_sockets(s);
    pthread_mutex_unlock(&s->mutex);
    grpc_server_cancel_all_calls(s->core.server);
    pthread_join(s->core.acceptor, NULL);
    calls_wait(s, UINT64_MAX / 4);
    server_calls_join(s);
    server_free(s);
}
