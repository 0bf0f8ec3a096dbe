/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/hub.h"
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/link/client_hello.h"
#include "outer/link/dial.h"
#include "outer/link/forward.h"

enum {
    NETS_MAX = 64,
    FIRST_MS = 10000,
    HALF_MS = 30000,
    TOLD_MS = 60000,
    DIALERS = 16,
    DIRECT_MS = 5000, /* as long as gRPC waits for a connection */
    LIMIT_KEYS = 256,
    LINES = 3 /* of one source and reason, or end, in LOG_LIMIT_MS */
};

struct net { /* an IPv4 address is one of IPv6, ::ffff:a.b.c.d */
    uint8_t address[16];
    unsigned bits;
};
struct counts {
    uint64_t by[FORWARD_WHYS], up, down;
};
struct hub {
    struct hub_options o;
    struct dial_proxy proxy;
    struct net nets[NETS_MAX];
    unsigned net_count;
    pthread_mutex_t mutex; /* of `limit`: dialers log, too */
    struct log_limit limit;
    struct counts counts;
    uint64_t told_ms;
};

static struct forward *running;

static void on_signal(int number)
{
    (void)number;
    forward_stop(running);
}

static bool line_passes(struct hub *j, const char *what, const char *who, unsigned *repeats)
{
    pthread_mutex_lock(&j->mutex);
    bool passes = log_limit_pass(&j->limit, what, who, LINES, clock_mono_ms(), repeats);
    pthread_mutex_unlock(&j->mutex);
    return passes;
}

/* Why and, where its first message was read, which server it asked for. */
static void refused_log(struct hub *j, const char *source, const char *why, const char *name)
{
    char quoted[600], reason[256];
    unsigned suppressed;
    if (line_passes(j, why, source, &suppressed))
        log_event(LOG_WARN, "refused", "source=%s why=%s name=%s repeats=%u", source,
                  log_quote(reason, sizeof reason, why),
                  log_quote(quoted, sizeof quoted, *name ? name : "-"), suppressed);
}

/* ---- who may connect ---- */

static bool address_read(uint8_t out[16], const char *text, bool *v4)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    memcpy(out, mapped, sizeof mapped);
    *v4 = inet_pton(AF_INET, text, out + 12) == 1;
    return *v4 || inet_pton(AF_INET6, text, out) == 1;
}

/* "10.0.0.0/8", "fd00::/8", "192.0.2.7" */
static bool net_read(struct net *n, const char *text)
{
    char address[64];
    bool v4;
    size_t size = strcspn(text, "/");
    const char *bits = text[size] ? text + size + 1 : NULL;
    snprintf(address, sizeof address, "%.*s", (int)(size < 63 ? size : 63), text);
    if (!address_read(n->address, address, &v4))
        return false;
    unsigned most = v4 ? 32 : 128;
    n->bits = bits ? (unsigned)strtoul(bits, NULL, 10) : most;
    if (bits && (!*bits || strlen(bits) > 3 || bits[strspn(bits, "0123456789")] || n->bits > most))
        return false;
    n->bits += 128 - most;
    return true;
}

static enum err nets_read(struct hub *j)
{
    char *rest, text[4096];
    snprintf(text, sizeof text, "%s", j->o.allow ? j->o.allow : "");
    for (char *at = strtok_r(text, ",", &rest); at; at = strtok_r(NULL, ",", &rest)) {
        if (j->net_count == NETS_MAX || (j->o.allow && strlen(j->o.allow) >= sizeof text))
            return err_set(ERR_CONFIG, "--allow: at most %d networks", NETS_MAX);
        if (!net_read(&j->nets[j->net_count++], at))
            return err_set(ERR_CONFIG, "--allow \"%.60s\": no network, as in 10.0.0.0/8", at);
    }
    return ERR_OK;
}

static bool net_holds(const struct net *n, const uint8_t address[16])
{
    unsigned whole = n->bits / 8, rest = n->bits % 8;
    return memcmp(n->address, address, whole) == 0 &&
           (!rest || (n->address[whole] ^ address[whole]) >> (8 - rest) == 0);
}

static bool hub_accepts(void *self, int fd, const char *source)
{
    struct hub *j = self;
    uint8_t address[16];
    bool v4, held = !j->net_count;
    (void)fd;
    bool good = address_read(address, source, &v4);
    for (unsigned i = 0; good && i < j->net_count; i++)
        held = held || net_holds(&j->nets[i], address);
    if (good && held)
        return true;
    refused_log(j, source, "this address is not in --allow", "");
    return false;
}

/* ---- what is forwarded ---- */

static bool named(const struct hub *j, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = j->o.names; n && *at;) {
        size_t size = strcspn(at, ",");
        if (size == n && strncasecmp(at, name, n) == 0)
            return true;
        at += size + (at[size] == ',');
    }
    return false;
}

static enum forward_first hub_first(void *self, const char *source, const uint8_t *data, size_t n)
{
    struct hub *j = self;
    struct client_hello h;
    enum client_hello_state state = client_hello_read(&h, data, n);
    if (state == CLIENT_HELLO_SHORT)
        return FORWARD_MORE;
    const char *why = state == CLIENT_HELLO_WRONG ? "it does not begin as TLS"
                      : !named(j, h.name)         ? "it asks for a server of another name"
                      : !h.h2 || !h.tls13         ? "it is no TLS 1.3 with HTTP/2"
                                                  : NULL;
    if (!why)
        return FORWARD_PASS;
    refused_log(j, source, why, state == CLIENT_HELLO_WRONG ? "" : h.name);
    return FORWARD_REFUSE;
}

static enum err hub_dial(void *self, unsigned listener, int stop, struct forward_dialled *out)
{
    struct hub *j = self;
    char quoted[1024];
    unsigned repeats;
    struct dial_question q = {.target = j->o.to,
                              .proxy = &j->proxy,
                              .timeout_ms = *j->proxy.shown ? DIAL_TIMEOUT_MS : DIRECT_MS,
                              .stop = stop};
    (void)listener;
    enum err e = dial_connect(&out->fd, &q, NULL);
    if (e != ERR_OK && line_passes(j, "unreachable", j->o.to, &repeats))
        log_event(LOG_WARN, "unreachable", "to=%s repeats=%u why=%s", j->o.to, repeats,
                  log_quote(quoted, sizeof quoted, err_message()));
    return e;
}

/* ---- what is said ---- */

static void hub_ended(void *self, const struct forward_end *end)
{
    struct hub *j = self;
    unsigned repeats;
    j->counts.by[end->why]++;
    j->counts.up += end->up;
    j->counts.down += end->down;
    if (end->why == FORWARD_FULL)
        refused_log(j, end->source, "there are as many as --connections allows", "");
    else if (end->why == FORWARD_SOURCE)
        refused_log(j, end->source, "there are as many as --source-connections allows", "");
    else if (end->why == FORWARD_SLOW)
        refused_log(j, end->source, "its first bytes did not come in time", "");
    else if (end->why != FORWARD_NO_DIAL && end->why != FORWARD_UNWANTED &&
             line_passes(j, "forwarded", end->source, &repeats))
        log_event(LOG_INFO, "forwarded",
                  "source=%s up=%" PRIu64 " down=%" PRIu64 " seconds=%.1f end=%s repeats=%u",
                  end->source, end->up, end->down, (double)end->lasted_ms / 1e3,
                  forward_why_names[end->why], repeats);
}

static void counts_log(const struct hub *j, unsigned connections)
{
    const uint64_t *by = j->counts.by;
    log_event(LOG_INFO, "relay",
              "connections=%u ended=%" PRIu64 " broken=%" PRIu64 " idle=%" PRIu64
              " refused=%" PRIu64 " full=%" PRIu64 " slow=%" PRIu64 " unreachable=%" PRIu64
              " up=%" PRIu64 " down=%" PRIu64,
              connections, by[FORWARD_ENDED], by[FORWARD_BROKEN], by[FORWARD_IDLE],
              by[FORWARD_UNWANTED], by[FORWARD_FULL] + by[FORWARD_SOURCE], by[FORWARD_SLOW],
              by[FORWARD_NO_DIAL], j->counts.up, j->counts.down);
}

static void hub_tick(void *self, unsigned connections)
{
    struct hub *j = self;
    uint64_t now = clock_mono_ms();
    pthread_mutex_lock(&j->mutex);
    log_limit_flush(&j->limit, now);
    pthread_mutex_unlock(&j->mutex);
    if (now - j->told_ms < TOLD_MS)
        return;
    j->told_ms = now;
    counts_log(j, connections);
}

/* ---- start ---- */

/* Two descriptors for each connection. */
static enum err descriptors_raise(const struct hub *j)
{
    struct rlimit r;
    rlim_t need = (rlim_t)j->o.connections * 2 + 64;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= need)
        return ERR_OK;
    r.rlim_cur = r.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur >= need)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "--connections %" PRId64 " needs %llu descriptors, this process may have %llu: "
                   "raise the limit (ulimit -n, LimitNOFILE=), or give less",
                   j->o.connections, (unsigned long long)need, (unsigned long long)r.rlim_max);
}

static enum err names_default(struct hub *j, struct arena *a)
{
    char host[DIAL_HOST_MAX], port[8];
    uint8_t address[16];
    bool v4;
    TRY(address_split(j->o.to, 1, host, port));
    if (j->o.names)
        return ERR_OK;
    if (address_read(address, host, &v4))
        return err_set(ERR_CONFIG,
                       "--name is missing: the DNS name in the aggregator's certificate, "
                       "which sites give as site.aggregator_name");
    TRY_ALLOC(j->o.names = arena_printf(a, "%s", host));
    return ERR_OK;
}

static enum err hub_serve(struct hub *j, struct arena *a)
{
    struct forward_listener listener = {0};
    int port;
    TRY_ALLOC(j->limit.keys = arena_array(a, LIMIT_KEYS, sizeof *j->limit.keys));
    j->limit.count = LIMIT_KEYS;
    j->told_ms = clock_mono_ms();
    const struct forward_options o = {.self = j,
                                      .listeners = &listener,
                                      .listener_count = 1,
                                      .connections_max = (unsigned)j->o.connections,
                                      .source_max = (unsigned)j->o.of_source,
                                      .dialers = DIALERS,
                                      .first_ms = FIRST_MS,
                                      .idle_ms = (uint32_t)(1e3 * j->o.idle_s),
                                      .half_ms = HALF_MS,
                                      .accepts = hub_accepts,
                                      .first = hub_first,
                                      .dial = hub_dial,
                                      .ended = hub_ended,
                                      .tick = hub_tick};
    TRY(forward_listen(&listener.fd, j->o.listen, &port));
    enum err e = forward_open(&running, &o);
    if (e == ERR_OK) {
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGINT, &action, NULL);
        log_event(LOG_INFO, "listening", "address=%s port=%d to=%s names=%s proxy=%s", j->o.listen,
                  port, j->o.to, j->o.names, *j->proxy.shown ? j->proxy.shown : "-");
        forward_run(running);
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        forward_close(running);
        counts_log(j, 0);
    }
    close(listener.fd);
    return e;
}

static enum err hub_start(struct hub *j, struct arena *a)
{
    signal(SIGPIPE, SIG_IGN);
    log_prefix("site=relay ");
    TRY(names_default(j, a));
    TRY(nets_read(j));
    TRY(descriptors_raise(j));
    TRY(dial_proxy_parse(&j->proxy, j->o.proxy_url));
    TRY(dial_proxy_credentials(&j->proxy, j->o.credentials));
    return hub_serve(j, a);
}

enum err hub_run(const struct hub_options *o, struct arena *a)
{
    static struct hub j = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    j.o = *o;
    enum err e = hub_start(&j, a);
    dial_proxy_forget(&j.proxy);
    return e;
}
