/* SPDX-License-Identifier: Apache-2.0 */
/* The loop is outer/link/forward.h's; here are addresses, and what a flow does to the bytes. */
#include "outer/wan/relay.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 64, PIECE_MIN = 1448, PIECE_MAX = 65536, WINDOW_MIN = 262144 };

struct relay_place {
    unsigned from, to;
    uint16_t port;
};

static struct forward *running;

static void on_signal(int number)
{
    (void)number;
    forward_stop(running);
}

/* ---- connections ---- */
static struct sockaddr_in place_address(unsigned from, unsigned to, uint16_t port)
{
    uint32_t host = 127u << 24 | 77u << 16 | from << 8 | to;
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(host)};
}

/* No listener there: the caller sees its connection closed. */
static enum err relay_dial(void *self, unsigned listener, int stop, struct forward_dialled *out)
{
    struct relay *r = self;
    const struct relay_place *at = &r->at[listener];
    struct sockaddr_in target = place_address(0, at->to + 1, at->port);
    int one = 1;
    (void)stop;
    out->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (out->fd < 0 ||
        (connect(out->fd, (struct sockaddr *)&target, sizeof target) != 0 && errno != EINPROGRESS))
        return err_set(ERR_LINK, "relay: %s", strerror(errno));
    setsockopt(out->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return ERR_OK;
}

/* The window: as much as the line and its queue hold. A piece: about a millisecond of the line. */
static void way_shape(struct forward_way *way, struct flow *f)
{
    const struct flow_settings *set = &f->set;
    double line = (double)set->rate_bps / 8 * 2 * (double)set->delay_ns / 1e9;
    double piece = (double)set->rate_bps / 8 * 1e-3;
    way->user = f;
    way->window_bytes = (size_t)line + set->queue_bytes + WINDOW_MIN;
    way->piece_bytes = set->rate_bps == 0 || piece > PIECE_MAX ? PIECE_MAX
                       : piece < PIECE_MIN                     ? PIECE_MIN
                                                               : (size_t)piece;
}

static void relay_shape(void *self, unsigned listener, struct forward_way *up,
                        struct forward_way *down)
{
    struct relay *r = self;
    const struct relay_place *at = &r->at[listener];
    way_shape(up, &r->flows[at->from * r->places + at->to]);
    way_shape(down, &r->flows[at->to * r->places + at->from]);
}

static int64_t relay_due(void *flow, int64_t now_ns, size_t n)
{
    return flow_carry(flow, now_ns, n);
}

static void relay_delivered(void *flow, size_t n)
{
    struct flow *f = flow;
    f->count->arrived++;
    f->count->arrived_bytes += n;
}

enum err relay_run(struct relay *r)
{
    const struct forward_options o = {.self = r,
                                      .listeners = r->listeners,
                                      .listener_count = r->count,
                                      .dial = relay_dial,
                                      .shape = relay_shape,
                                      .due = relay_due,
                                      .delivered = relay_delivered};
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t ends;
    TRY(forward_open(&running, &o));
    sigaction(SIGTERM, &action, NULL);
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_UNBLOCK, &ends, NULL); /* blocked until there was a handler */
    signal(SIGINT, SIG_IGN);
    forward_run(running);
    signal(SIGTERM, SIG_IGN);
    forward_close(running);
    return ERR_OK;
}

/* ---- listening ---- */
static enum err listen_at(struct relay *r, unsigned from, unsigned to, uint16_t port)
{
    struct sockaddr_in a = place_address(from + 1, to + 1, port);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(ERR_IO, "relay: no socket: %s", strerror(errno));
    r->at[r->count] = (struct relay_place){from, to, port};
    r->listeners[r->count] = (struct forward_listener){fd, (unsigned)r->count};
    r->count++;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, BACKLOG) != 0)
        return err_set(ERR_BUSY, "relay: port %u of %s: %s; choose other wan.ports", port,
                       inet_ntoa(a.sin_addr), strerror(errno));
    return ERR_OK;
}

static bool port_read(const char *text, uint16_t *port)
{
    unsigned long value = strtoul(text, NULL, 10);
    *port = (uint16_t)value;
    return *text && !text[strspn(text, "0123456789")] && value >= 1 && value <= 65535;
}

enum err relay_open(struct relay *r, unsigned places, const struct config_list *ports,
                    struct arena *a)
{
    size_t most = (size_t)places * places * ports->count;
    *r = (struct relay){.places = places};
    TRY_ALLOC(r->listeners = arena_array(a, most, sizeof *r->listeners));
    TRY_ALLOC(r->at = arena_array(a, most, sizeof *r->at));
    for (size_t p = 0; p < ports->count; p++)
        for (unsigned from = 0; from < places; from++)
            for (unsigned to = 0; to < places; to++) {
                uint16_t port;
                if (!port_read(ports->items[p], &port))
                    return err_set(ERR_CONFIG, "wan.ports: \"%.40s\" is no port (1 to 65535)",
                                   ports->items[p]);
                if (from != to)
                    TRY(listen_at(r, from, to, port));
            }
    return ERR_OK;
}

void relay_close(struct relay *r)
{
    for (size_t i = 0; i < r->count; i++)
        close(r->listeners[i].fd);
    r->count = 0;
}
