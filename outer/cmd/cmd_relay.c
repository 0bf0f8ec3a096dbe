/* atoll relay: forwards TLS connections to an aggregator, for sites that can reach only this
 * machine. It has no key and opens nothing: it reads the first message of a connection, which is in
 * the clear, and forwards what is TLS 1.3 with HTTP/2 for the aggregator's name. The loop is
 * outer/link/forward.h's. */
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
#include "kernels/base/args.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/cmd/cmd.h"
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
struct relay_job {
    const char *listen, *to, *names, *allow, *proxy_url, *credentials;
    int64_t connections, of_source;
    double idle_s;
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

static bool line_passes(struct relay_job *j, const char *what, const char *who, unsigned *repeats)
{
    pthread_mutex_lock(&j->mutex);
    bool passes = log_limit_pass(&j->limit, what, who, LINES, clock_mono_ms(), repeats);
    pthread_mutex_unlock(&j->mutex);
    return passes;
}

/* Why and, where its first message was read, which server it asked for. */
static void refused_log(struct relay_job *j, const char *source, const char *why, const char *name)
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

static enum err nets_read(struct relay_job *j)
{
    char *rest, text[4096];
    snprintf(text, sizeof text, "%s", j->allow ? j->allow : "");
    for (char *at = strtok_r(text, ",", &rest); at; at = strtok_r(NULL, ",", &rest)) {
        if (j->net_count == NETS_MAX || (j->allow && strlen(j->allow) >= sizeof text))
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

static bool relay_accepts(void *self, int fd, const char *source)
{
    struct relay_job *j = self;
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

static bool named(const struct relay_job *j, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = j->names; n && *at;) {
        size_t size = strcspn(at, ",");
        if (size == n && strncasecmp(at, name, n) == 0)
            return true;
        at += size + (at[size] == ',');
    }
    return false;
}

static enum forward_first relay_first(void *self, const char *source, const uint8_t *data, size_t n)
{
    struct relay_job *j = self;
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

static enum err relay_dial(void *self, unsigned listener, int stop, struct forward_dialled *out)
{
    struct relay_job *j = self;
    char quoted[1024];
    unsigned repeats;
    struct dial_question q = {.target = j->to,
                              .proxy = &j->proxy,
                              .timeout_ms = *j->proxy.shown ? DIAL_TIMEOUT_MS : DIRECT_MS,
                              .stop = stop};
    (void)listener;
    enum err e = dial_connect(&out->fd, &q, NULL);
    if (e != ERR_OK && line_passes(j, "unreachable", j->to, &repeats))
        log_event(LOG_WARN, "unreachable", "to=%s repeats=%u why=%s", j->to, repeats,
                  log_quote(quoted, sizeof quoted, err_message()));
    return e;
}

/* ---- what is said ---- */

static void relay_ended(void *self, const struct forward_end *end)
{
    struct relay_job *j = self;
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

static void counts_log(const struct relay_job *j, unsigned connections)
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

static void relay_tick(void *self, unsigned connections)
{
    struct relay_job *j = self;
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
static enum err descriptors_raise(const struct relay_job *j)
{
    struct rlimit r;
    rlim_t need = (rlim_t)j->connections * 2 + 64;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= need)
        return ERR_OK;
    r.rlim_cur = r.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur >= need)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "--connections %" PRId64 " needs %llu descriptors, this process may have %llu: "
                   "raise the limit (ulimit -n, LimitNOFILE=), or give less",
                   j->connections, (unsigned long long)need, (unsigned long long)r.rlim_max);
}

static enum err names_default(struct relay_job *j, struct arena *a)
{
    char host[DIAL_HOST_MAX], port[8];
    uint8_t address[16];
    bool v4;
    TRY(address_split(j->to, 1, host, port));
    if (j->names)
        return ERR_OK;
    if (address_read(address, host, &v4))
        return err_set(ERR_CONFIG,
                       "--name is missing: the DNS name in the aggregator's certificate, "
                       "which sites give as site.aggregator_name");
    TRY_ALLOC(j->names = arena_printf(a, "%s", host));
    return ERR_OK;
}

static enum err relay_serve(struct relay_job *j, struct arena *a)
{
    struct forward_listener listener = {0};
    int port;
    TRY_ALLOC(j->limit.keys = arena_array(a, LIMIT_KEYS, sizeof *j->limit.keys));
    j->limit.count = LIMIT_KEYS;
    j->told_ms = clock_mono_ms();
    const struct forward_options o = {.self = j,
                                      .listeners = &listener,
                                      .listener_count = 1,
                                      .connections_max = (unsigned)j->connections,
                                      .source_max = (unsigned)j->of_source,
                                      .dialers = DIALERS,
                                      .first_ms = FIRST_MS,
                                      .idle_ms = (uint32_t)(1e3 * j->idle_s),
                                      .half_ms = HALF_MS,
                                      .accepts = relay_accepts,
                                      .first = relay_first,
                                      .dial = relay_dial,
                                      .ended = relay_ended,
                                      .tick = relay_tick};
    TRY(forward_listen(&listener.fd, j->listen, &port));
    enum err e = forward_open(&running, &o);
    if (e == ERR_OK) {
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGINT, &action, NULL);
        log_event(LOG_INFO, "listening", "address=%s port=%d to=%s names=%s proxy=%s", j->listen,
                  port, j->to, j->names, *j->proxy.shown ? j->proxy.shown : "-");
        forward_run(running);
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        forward_close(running);
        counts_log(j, 0);
    }
    close(listener.fd);
    return e;
}

static enum err relay_start(struct relay_job *j, struct arena *a)
{
    signal(SIGPIPE, SIG_IGN);
    log_prefix("site=relay ");
    TRY(names_default(j, a));
    TRY(nets_read(j));
    TRY(descriptors_raise(j));
    TRY(dial_proxy_parse(&j->proxy, j->proxy_url));
    TRY(dial_proxy_credentials(&j->proxy, j->credentials));
    return relay_serve(j, a);
}

enum err cmd_relay(int argc, char **argv)
{
    static struct relay_job j = {
        .connections = 1024, .of_source = 256, .idle_s = 300, .mutex = PTHREAD_MUTEX_INITIALIZER};
    struct arena arena = arena_make(0);
    const struct args_option options[] = {
        {"listen", ARGS_TEXT, &j.listen, .value = "ADDRESS:PORT", .required = true,
         .help = "Where sites connect: their site.aggregator."},
        {"to", ARGS_TEXT, &j.to, .value = "HOST:PORT", .required = true,
         .help = "The aggregator, or the next relay."},
        {"name", ARGS_TEXT, &j.names, .value = "NAME,NAME",
         .help = "Names of the aggregator's certificate: connections that ask for another server "
                 "are refused. "
                 "Without it, HOST."},
        {"allow", ARGS_TEXT, &j.allow, .value = "CIDR,CIDR",
         .help = "Networks that may connect, such as 10.0.0.0/8; without it, all."},
        {"connections", ARGS_INT, &j.connections, .min = 1, .max = 100000, .value = "N",
         .help = "Most connections at a time. A site has at most 17 (site.streams auto)."},
        {"source-connections", ARGS_INT, &j.of_source, .min = 1, .max = 100000, .value = "N",
         .help = "Most of them from one address."},
        {"idle-s", ARGS_REAL, &j.idle_s, .min = 1, .max = 86400, .value = "S",
         .help = "A connection without a byte for so long ends. Sites ping every 20 s."},
        {"proxy", ARGS_TEXT, &j.proxy_url, .value = "URL",
         .help = "Proxy from here to the aggregator, as site.proxy."},
        {"proxy-credentials", ARGS_TEXT, &j.credentials, .value = "FILE",
         .help = "Its user and password, as site.proxy_credentials."},
    };
    struct args args = {
        .command = "relay",
        .summary =
            "Forwards the TLS connections of sites to an aggregator that they cannot reach by "
            "themselves: compute nodes without internet, sites behind a hub. It holds no key and "
            "opens "
            "nothing. What is no TLS 1.3 for the aggregator's name is refused. It keeps no state: "
            "killing it costs its sites a reconnection.",
        .example =
            "atoll relay --listen 10.0.0.1:7443 --to hub.example.org:7443 --allow 10.0.0.0/8",
        .options = options,
        .count = sizeof options / sizeof *options};
    enum err e = args_parse(&args, argc, argv, &arena);
    if (e == ERR_OK && !args.help)
        e = relay_start(&j, &arena);
    dial_proxy_forget(&j.proxy);
    arena_free(&arena);
    return e;
}
