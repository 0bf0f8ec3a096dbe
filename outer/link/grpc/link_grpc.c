/* SPDX-License-Identifier: Apache-2.0 */
/* A site's end of the real link: its channels, its opening and closing, and what each call begins
 * and ends with. Control and each bulk stream have a channel, and so a connection, of their own:
 * without a local subchannel pool they would share one, and a heartbeat would wait after a
 * contribution.
 */
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/link/grpc/link_client.h"
#include "outer/identity/tls.h"

static grpc_channel *channel_make(const struct link_grpc *l, const struct tls_pem *pem)
{
    int keepalive = (int)l->o.keepalive_ms;
    int timeout = keepalive / 2 > 1000
                      ? keepalive / 2
                      : 1000; /* also TCP_USER_TIMEOUT, the only timeout that ends a blocked send */
    grpc_arg list[] = {
        {GRPC_ARG_INTEGER, (char *)"grpc.keepalive_time_ms", {.integer = keepalive}},
        {GRPC_ARG_INTEGER, (char *)"grpc.keepalive_timeout_ms", {.integer = timeout}},
        {GRPC_ARG_INTEGER, (char *)"grpc.keepalive_permit_without_calls", {.integer = 1}},
        {GRPC_ARG_INTEGER, (char *)"grpc.http2.max_pings_without_data", {.integer = 0}},
        {GRPC_ARG_INTEGER,
         (char *)"grpc.max_receive_message_length",
         {.integer = WIRE_MESSAGE_MAX}},
        {GRPC_ARG_INTEGER, (char *)"grpc.compression_enabled_algorithms_bitset", {.integer = 1}},
        {GRPC_ARG_INTEGER, (char *)"grpc.use_local_subchannel_pool", {.integer = 1}},
        {GRPC_ARG_INTEGER, (char *)"grpc.initial_reconnect_backoff_ms", {.integer = 200}},
        {GRPC_ARG_INTEGER, (char *)"grpc.max_reconnect_backoff_ms", {.integer = 2000}},
        {GRPC_ARG_INTEGER,
         (char *)"grpc.min_reconnect_backoff_ms",
         {.integer = l->o.proxy ? 5000 + DIAL_TIMEOUT_MS : 5000}}, /* connect timeout, ms */
        {GRPC_ARG_INTEGER, (char *)"grpc.enable_http_proxy", {.integer = 0}},
        {GRPC_ARG_INTEGER, (char *)"grpc.enable_retries", {.integer = 0}},
        {GRPC_ARG_STRING, (char *)"grpc.ssl_target_name_override", {.string = l->o.server_name}},
    };
    size_t count = sizeof list / sizeof *list - (l->o.server_name ? 0 : 1);
    grpc_channel_args args = {count, list};
    grpc_ssl_pem_key_cert_pair pair = {.private_key = pem->key, .cert_chain = pem->certificate};
    grpc_channel_credentials *credentials =
        grpc_ssl_credentials_create_ex(pem->ca, &pair, NULL, NULL);
    grpc_channel *channel = grpc_channel_create(
        l->o.proxy ? link_proxy_address(l->o.proxy) : l->o.target, credentials, &args);
    grpc_channel_credentials_release(credentials);
    return channel;
}

static void channels_destroy(struct link_grpc *l)
{
    for (unsigned i = 0; i <= l->o.streams; i++) {
        if (l->channels.list[i])
            grpc_channel_destroy(l->channels.list[i]);
        l->channels.list[i] = NULL;
    }
}

static enum err channels_make(struct link_grpc *l)
{
    struct tls_pem pem;
    uint64_t stamp = tls_stamp(&l->o.files);
    TRY(tls_load(&pem, &l->o.files));
    channels_destroy(l);
    for (unsigned i = 0; i <= l->o.streams; i++) {
        l->channels.list[i] = channel_make(l, &pem);
        for (int k = 0; k < LINK_METHODS; k++)
            l->channels.methods[i][k] =
                grpc_channel_register_call(l->channels.list[i], link_paths[k], NULL, NULL);
    }
    l->channels.stamp = stamp;
    l->sockets.certificate_bytes = tls_certificate_bytes(&pem);
    tls_forget(&pem);
    return ERR_OK;
}

/* ---- certificates that expire ---- */

static bool look_due(const struct link_grpc *l, uint64_t *looked_ms)
{
    uint64_t now = clock_mono_ms();
    bool due = !*looked_ms || now - *looked_ms >= l->o.look_ms;
    *looked_ms = due ? now : *looked_ms;
    return due;
}

/* Under the lock, as the next one. */
static void own_look(struct link_grpc *l)
{
    struct tls_facts f;
    if (!look_due(l, &l->seen.own_ms))
        return;
    if (tls_facts(&f, l->o.certificate) == ERR_OK)
        tls_log_expiry(l->o.certificate, &f, clock_wall_s());
    else
        err_clear();
}

static void peer_look(struct link_grpc *l, grpc_call *call)
{
    struct tls_facts f;
    if (!look_due(l, &l->seen.peer_ms))
        return;
    if (link_peer_facts(call, &f) == ERR_OK)
        tls_log_expiry(l->o.target, &f, clock_wall_s());
    else
        err_clear();
}

/* ---- start and end of a call ---- */

/* Reads replaced certificate files when no call is running. Incompletely replaced files do not
 * load; the old channels stay. */
struct link_call *link_begin(struct link_grpc *l, enum link_method method, unsigned channel,
                             uint64_t timeout_ms)
{
    ASSERT(channel <= l->o.streams);
    pthread_mutex_lock(&l->mutex);
    uint64_t stamp = l->channels.calls ? l->channels.stamp : tls_stamp(&l->o.files);
    if (stamp && stamp != l->channels.stamp && channels_make(l) != ERR_OK)
        err_clear();
    own_look(l);
    const char *path = method != LINK_FETCH || l->paths.up.path.fixed ? NULL
                       : l->paths.up.bbr                              ? LINK_PATH_BBR
                                                                      : LINK_PATH_KERNEL;
    struct link_call *c =
        link_call_open(l->channels.list[channel], l->channels.methods[channel][method],
                       l->channels.cq, timeout_ms, path);
    if (c) {
        link_sockets_spoke(&l->sockets, NULL, clock_mono_ms(), l->channels.calls++ == 0);
        l->channels.connected += !l->channels.used[channel];
        l->channels.used[channel] = true;
    } else {
        err_set(ERR_MEMORY, "no memory for a call to %s", l->o.target);
    }
    pthread_mutex_unlock(&l->mutex);
    return c;
}

/* Called under the lock, so that a row is a consistent snapshot. */
static void book(struct link_grpc *l, const struct ledger_row *call)
{
    struct ledger_row row;
    link_sockets_scan(&l->sockets);
    while (l->o.book && link_sockets_next(&l->sockets, &row))
        l->o.book(l->o.book_self, &row);
    if (l->o.book && call)
        l->o.book(l->o.book_self, call);
}

void link_end(struct link_grpc *l, struct link_call *c)
{
    struct ledger_row row = link_call_row(c);
    char *peer = grpc_call_get_peer(c->call);
    pthread_mutex_lock(&l->mutex);
    if (c->end.code == GRPC_STATUS_OK) {
        l->seen.reached = true;
        l->seen.asked_ms = 0;
        peer_look(l, c->call);
        unsigned told = link_call_streams(c);
        l->paths.down = told ? told : l->paths.down;
    }
    pthread_mutex_unlock(&l->mutex);
    link_call_close(c);
    pthread_mutex_lock(&l->mutex);
    l->channels.calls--;
    link_sockets_own(&l->sockets, peer, "-");
    gpr_free(peer);
    link_sockets_spoke(&l->sockets, NULL, clock_mono_ms(), false);
    book(l, &row);
    pthread_mutex_unlock(&l->mutex);
}

void link_count(struct link_grpc *l, const grpc_byte_buffer *up, const grpc_byte_buffer *down,
                size_t payload_up, size_t payload_down)
{
    pthread_mutex_lock(&l->mutex);
    l->counters.messages_up +=
        up ? grpc_byte_buffer_length((grpc_byte_buffer *)(uintptr_t)up) + 5 : 0;
    l->counters.messages_down +=
        down ? grpc_byte_buffer_length((grpc_byte_buffer *)(uintptr_t)down) + 5 : 0;
    l->counters.payload_up += payload_up;
    l->counters.payload_down += payload_down;
    link_sockets_look(&l->sockets, l->channels.connected);
    pthread_mutex_unlock(&l->mutex);
}

static bool path_look(void *self)
{
    struct link_grpc *l = self;
    pthread_mutex_lock(&l->mutex);
    link_sockets_look(&l->sockets, l->channels.connected);
    bool more = link_path_look(&l->paths.up, &l->sockets, NULL);
    pthread_mutex_unlock(&l->mutex);
    return more;
}

unsigned link_streams(struct link_grpc *l, bool up)
{
    pthread_mutex_lock(&l->mutex);
    unsigned count = l->paths.up.path.now.streams;
    if (!up && !l->paths.up.path.fixed && l->paths.down)
        count = l->paths.down;
    pthread_mutex_unlock(&l->mutex);
    return count;
}

void link_deal_begin(struct link_grpc *l, struct deal *d, bool up, unsigned streams)
{
    static const double JOIN_TRIPS = 2; /* an upload's stream joins and ends before the first */
    pthread_mutex_lock(&l->mutex);
    double *rates = up ? l->paths.rates.up : l->paths.rates.down;
    double late_s = up ? JOIN_TRIPS * l->paths.up.path.facts.rtt_s : 0;
    deal_begin(d, l->paths.up.path.fixed ? NULL : rates, streams, late_s);
    pthread_mutex_unlock(&l->mutex);
}

void link_deal_end(struct link_grpc *l, const struct deal *d, bool up)
{
    pthread_mutex_lock(&l->mutex);
    deal_end(d, up ? l->paths.rates.up : l->paths.rates.down);
    pthread_mutex_unlock(&l->mutex);
}

unsigned link_channel(const struct link_grpc *l, unsigned streams, unsigned i)
{
    return LINK_BULK + i % streams % l->o.streams;
}

void link_up_begin(struct link_grpc *l)
{
    pthread_mutex_lock(&l->mutex);
    link_sockets_scan(&l->sockets);
    link_path_begin(&l->paths.up, &l->sockets, NULL, "up", l->o.target);
    pthread_mutex_unlock(&l->mutex);
    link_watch_wake(&l->paths.watch);
}

void link_up_end(struct link_grpc *l)
{
    pthread_mutex_lock(&l->mutex);
    link_path_end(&l->paths.up);
    pthread_mutex_unlock(&l->mutex);
}

void link_choice(struct link *base, struct path *up, unsigned *down)
{
    struct link_grpc *l = (struct link_grpc *)base;
    pthread_mutex_lock(&l->mutex);
    *up = l->paths.up.path;
    *down = l->paths.down;
    pthread_mutex_unlock(&l->mutex);
}

grpc_byte_buffer *link_received(struct link_grpc *l, struct link_call *c)
{
    grpc_byte_buffer *bb = link_call_received(c);
    if (bb)
        link_count(l, NULL, bb, 0, 0);
    return bb;
}

void link_pace(struct link_grpc *l, struct pace *p, size_t bytes)
{
    pthread_mutex_lock(&l->mutex);
    uint64_t wait_ns = pace_wait_ns(p, clock_mono_ns(), bytes);
    pthread_mutex_unlock(&l->mutex);
    struct timespec wait = {(time_t)(wait_ns / 1000000000), (long)(wait_ns % 1000000000)};
    if (wait_ns)
        nanosleep(&wait, NULL);
}

/* ---- the result of a call ---- */

static bool says_unverified(const char *text)
{
    return strstr(text, "certificate verify failed") || strstr(text, "CERTIFICATE_VERIFY_FAILED") ||
           strstr(text, "not in peer certificate");
}

/* True: the process at the address shows a certificate that does not verify; `who` describes it.
 * Core's error text does not say so, so the certificate is read again, at most once per interval.
 * *asked: it was read in this call. */
static bool answered_by_other(struct link_grpc *l, const char *text, char who[LINK_TEXT_MAX],
                              bool *asked)
{
    enum { ASK_AGAIN_MS = 30000, ASK_TIMEOUT_MS = 5000 };
    struct tls_facts f;
    struct tls_question q = {.files = &l->o.files,
                             .target = l->o.target,
                             .server_name = l->o.server_name,
                             .proxy = &l->o.how,
                             .timeout_ms = ASK_TIMEOUT_MS};
    uint64_t now = clock_mono_ms();
    pthread_mutex_lock(&l->mutex);
    *asked = !l->seen.asked_ms || now - l->seen.asked_ms >= ASK_AGAIN_MS;
    l->seen.asked_ms = *asked ? now : l->seen.asked_ms;
    if (*asked || !l->seen.who[0]) /* also for other calls that fail meanwhile */
        snprintf(l->seen.who, sizeof l->seen.who, "%s: its certificate does not verify (%s)",
                 l->o.target, text);
    bool other = *asked ? says_unverified(text) : l->seen.other;
    memcpy(who, l->seen.who, sizeof l->seen.who);
    pthread_mutex_unlock(&l->mutex);
    if (*asked && tls_peer(&q, &f) == ERR_DENIED) {
        snprintf(who, LINK_TEXT_MAX, "%s", err_message());
        other = true;
    }
    err_clear();
    pthread_mutex_lock(&l->mutex);
    memcpy(l->seen.who, who, sizeof l->seen.who);
    l->seen.other = other;
    pthread_mutex_unlock(&l->mutex);
    return other;
}

static bool was_reached(struct link_grpc *l)
{
    pthread_mutex_lock(&l->mutex);
    bool reached = l->seen.reached;
    pthread_mutex_unlock(&l->mutex);
    return reached;
}

/* Before the first successful call this is a setup error: final, because the operator is present.
 * After it, another process answers at this address or a certificate has expired: the site retries,
 * and the run continues after the repair. */
static enum err peer_unverified(struct link_grpc *l, const char *who, bool asked)
{
    char quoted[LINK_TEXT_MAX];
    if (!was_reached(l))
        return err_set(ERR_DENIED, "%s: check %s, the clock and site.aggregator_name", who,
                       l->o.ca);
    if (asked)
        log_event(LOG_ERROR, "peer_certificate", "target=%s why=%s", l->o.target,
                  log_quote(quoted, sizeof quoted, who));
    return err_set(ERR_LINK,
                   "%s: this is not the aggregator that answered before, or its "
                   "certificate needs renewal; nothing is sent to it",
                   who);
}

/* The connection was closed in or right after the handshake. The aggregator logs the reason; the
 * site can detect one of the reasons itself: an expired own certificate. */
static enum err closed(struct link_grpc *l, const char *text)
{
    if (tls_current(l->o.certificate, clock_wall_s()) == ERR_DENIED)
        return err_add(was_reached(l) ? ERR_LINK : ERR_DENIED,
                       "%s closes connections: ", l->o.target);
    return err_set(ERR_LINK,
                   "%s: the connection was closed; if this repeats at once, the aggregator "
                   "refused this certificate, and its log gives the reason (%s)",
                   l->o.target, text);
}

/* Core's texts are not stable. They only select the error's text, and before the first success
 * whether the site retries. */
static enum err unavailable(struct link_grpc *l, const char *text)
{
    char who[LINK_TEXT_MAX];
    bool asked;
    enum err e;
    if (l->o.proxy && link_proxy_failed(l->o.proxy, who, sizeof who, &e))
        return err_set(was_reached(l) ? ERR_LINK : e, "%s: no connection: %s", l->o.target, who);
    if ((says_unverified(text) || strstr(text, "SSL_ERROR_SSL") || !was_reached(l)) &&
        answered_by_other(l, text, who, &asked))
        return peer_unverified(l, who, asked);
    if (strstr(text, "Socket closed") || strstr(text, "reset by peer") || strstr(text, "andshake"))
        return closed(l, text);
    return err_set(ERR_LINK, "%s: no connection (%s)", l->o.target, text);
}

/* The aggregator refused the certificate of this connection, for example because it was revoked.
 * When the files hold another one by now, the next call shows that one. */
static enum err refused(struct link_grpc *l, const char *text)
{
    pthread_mutex_lock(&l->mutex);
    uint64_t used = l->channels.stamp, now = tls_stamp(&l->o.files);
    pthread_mutex_unlock(&l->mutex);
    if (now && now != used)
        return err_set(ERR_LINK, "%s refused the certificate that was in use: %s; %s has changed",
                       l->o.target, text, l->o.certificate);
    return err_set(ERR_DENIED, "%s refused: %s", l->o.target, text);
}

enum err link_result(struct link_grpc *l, struct link_call *c)
{
    link_call_wait(c, &c->status);
    char *text = grpc_slice_to_c_string(c->end.details);
    enum err e = ERR_OK;
    switch (c->end.code) {
    case GRPC_STATUS_OK:
        break;
    case GRPC_STATUS_UNAUTHENTICATED:
    case GRPC_STATUS_PERMISSION_DENIED:
        e = refused(l, text);
        break;
    case GRPC_STATUS_UNIMPLEMENTED:
    case GRPC_STATUS_FAILED_PRECONDITION:
        e = err_set(ERR_MISMATCH, "%s is of another version: use the same atoll everywhere (%s)",
                    l->o.target, text);
        break;
    case GRPC_STATUS_INVALID_ARGUMENT:
    case GRPC_STATUS_DATA_LOSS:
    case GRPC_STATUS_OUT_OF_RANGE:
        e = err_set(ERR_PROTO, "%s did not accept a message: %s", l->o.target, text);
        break;
    case GRPC_STATUS_RESOURCE_EXHAUSTED: /* temporary, except for a message over the receive limit
                                          */
        e = err_set(strstr(text, "larger than max") ? ERR_PROTO : ERR_LINK, "%s: %s", l->o.target,
                    text);
        break;
    case GRPC_STATUS_DEADLINE_EXCEEDED: {
        char who[LINK_TEXT_MAX];
        bool asked;
        e = !was_reached(l) && answered_by_other(l, "no answer in time", who, &asked)
                ? peer_unverified(l, who, asked)
                : err_set(ERR_LINK, "%s: no answer in time", l->o.target);
        break;
    }
    default:
        e = unavailable(l, text);
    }
    gpr_free(text);
    return e;
}

/* ---- open and close ---- */

void link_grpc_counters(struct link *base, struct link_counters *out)
{
    struct link_grpc *l = (struct link_grpc *)base;
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
    free(l->o.target);
    free(l->o.server_name);
    free(l->o.ca);
    free(l->o.certificate);
    free(l->o.key);
    dial_proxy_forget(&l->o.how);
    free(l);
}

void link_grpc_close(struct link *base)
{
    struct link_grpc *l = (struct link_grpc *)base;
    ASSERT(l->channels.calls == 0);
    link_watch_close(&l->paths.watch);
    pthread_mutex_lock(&l->mutex);
    book(l, NULL);
    pthread_mutex_unlock(&l->mutex);
    channels_destroy(l);
    link_core_close();
    link_proxy_close(l->o.proxy);
    link_sockets_close(&l->sockets);
    link_free(l);
}

static bool link_texts_copy(struct link_grpc *l, const struct link_dial *d)
{
    char host[DIAL_HOST_MAX] = "", port[8];
    bool proxied = d->proxy && d->proxy->kind != DIAL_DIRECT;
    bool named = proxied || (d->server_name && *d->server_name);
    if (address_split(d->target, 1, host, port) != ERR_OK)
        err_clear(); /* link_open has checked it */
    l->o.target = strdup(d->target);
    l->o.server_name = d->server_name && *d->server_name ? strdup(d->server_name)
                       : proxied                         ? strdup(host) /* not that of the socket */
                                                         : NULL;
    l->o.ca = strdup(d->tls.ca);
    l->o.certificate = strdup(d->tls.certificate);
    l->o.key = strdup(d->tls.key);
    l->o.files = (struct link_tls){l->o.ca, l->o.certificate, l->o.key};
    return l->o.target && l->o.ca && l->o.certificate && l->o.key && (!named || l->o.server_name);
}

enum err link_grpc_open(struct link **out, const struct link_dial *d, const struct link_ops *ops)
{
    char host[DIAL_HOST_MAX], number[8];
    TRY(address_split(d->target, 1, host, number));
    int port = atoi(number);
    ASSERT(d->streams <= LINK_STREAMS_MAX);
    struct link_grpc *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(ERR_MEMORY, "no memory for a link");
    pthread_mutex_init(&l->mutex, NULL);
    l->base.ops = ops;
    if (!link_texts_copy(l, d)) {
        link_free(l);
        return err_set(ERR_MEMORY, "no memory for a link");
    }
    l->o.keepalive_ms = d->keepalive_ms ? d->keepalive_ms : LINK_KEEPALIVE_MS;
    if (d->proxy && d->proxy->kind != DIAL_DIRECT) {
        enum err opened = link_proxy_open(&l->o.proxy, d->target, d->proxy);
        if (opened != ERR_OK) {
            link_free(l);
            return opened;
        }
        l->o.how = *d->proxy;
        l->sockets.owns = link_proxy_owns;
        l->sockets.owns_self = l->o.proxy;
    }
    l->sockets.port = (uint16_t)port;
    l->sockets.keepalive_ms = l->o.keepalive_ms;
    l->o.book = d->book;
    l->o.book_self = d->book_self;
    l->o.streams = d->automatic ? LINK_STREAMS_MAX : d->streams ? d->streams : 1;
    link_path_open(&l->paths.up, d->automatic ? 0 : l->o.streams, d->bbr);
    l->o.look_ms = d->look_ms ? d->look_ms : LINK_LOOK_MS;
    l->seen.own_ms = clock_mono_ms(); /* the command checked it before link_open */
    l->pace_up.bytes_per_s = d->rate_up;
    l->pace_down.bytes_per_s = d->rate_down;
    enum err e = link_core_open(&l->channels.cq, true);
    if (e != ERR_OK) {
        link_proxy_close(l->o.proxy);
        link_free(l);
        return e;
    }
    e = channels_make(l);
    if (e == ERR_OK && d->automatic)
        e = link_watch_open(&l->paths.watch, path_look, l);
    if (e != ERR_OK) {
        link_grpc_close(&l->base);
        return e;
    }
    *out = &l->base;
    return ERR_OK;
}
