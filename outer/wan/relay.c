/* One thread. A connection is two streams; a stream is a list of pieces that wait until they are
 * due. */
#include "outer/wan/relay.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "kernels/base/clock.h"

enum { BACKLOG = 64, PIECE_MIN = 1448, PIECE_MAX = 65536, WINDOW_MIN = 262144 };
static const int64_t SECOND_NS = 1000000000;

struct relay_listener {
    int fd;
    unsigned from, to;
    uint16_t port;
};
struct piece {
    struct piece *next;
    int64_t due_ns;
    size_t size_bytes, sent_bytes;
    uint8_t data[];
};
struct stream {
    struct flow *flow;
    int from, to; /* sockets */
    struct piece *first, *last;
    size_t held_bytes,
        window_bytes;   /* as much as the line and its queue hold: then we stop reading */
    size_t piece_bytes; /* about a millisecond of the line */
    bool ended, shut;   /* the sender has closed; so have we, behind its last piece */
};
struct connection {
    struct connection *next;
    struct stream way[2];
    bool broken;
};
struct watched { /* what an entry of the poll array stands for */
    struct stream *stream;
    struct connection *connection;
};
struct loop {
    struct relay *r;
    struct connection *connections;
    size_t count; /* of connections */
    struct pollfd *polls;
    struct watched *watched;
    size_t capacity, used;
    uint64_t start_ns;
};

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
    ended = number;
}

static int64_t now_ns(const struct loop *l)
{
    return (int64_t)(clock_mono_ns() - l->start_ns);
}

/* ---- connections ---- */
static struct sockaddr_in place_address(unsigned from, unsigned to, uint16_t port)
{
    uint32_t host = 127u << 24 | 77u << 16 | from << 8 | to;
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(host)};
}

static void stream_open(struct stream *s, struct flow *f, int from, int to)
{
    const struct flow_settings *set = &f->set;
    double line = (double)set->rate_bps / 8 * 2 * (double)set->delay_ns / 1e9;
    double piece = (double)set->rate_bps / 8 * 1e-3;
    *s = (struct stream){.flow = f, .from = from, .to = to};
    s->window_bytes = (size_t)line + set->queue_bytes + WINDOW_MIN;
    s->piece_bytes = set->rate_bps == 0 || piece > PIECE_MAX ? PIECE_MAX
                     : piece < PIECE_MIN                     ? PIECE_MIN
                                                             : (size_t)piece;
}

static void take_connection(struct loop *l, const struct relay_listener *at)
{
    struct sockaddr_in target = place_address(0, at->to + 1, at->port);
    unsigned n = l->r->places;
    int one = 1;
    int near = accept4(at->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    int far = near < 0 ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct connection *c = far < 0 ? NULL : calloc(1, sizeof *c);
    if (!c ||
        (connect(far, (struct sockaddr *)&target, sizeof target) != 0 && errno != EINPROGRESS)) {
        free(c); /* no listener there: the caller sees its connection closed */
        if (near >= 0)
            close(near);
        if (far >= 0)
            close(far);
        return;
    }
    setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    stream_open(&c->way[0], &l->r->flows[at->from * n + at->to], near, far);
    stream_open(&c->way[1], &l->r->flows[at->to * n + at->from], far, near);
    c->next = l->connections;
    l->connections = c;
    l->count++;
}

static void connection_free(struct connection *c)
{
    for (int i = 0; i < 2; i++)
        for (struct piece *p = c->way[i].first, *next; p; p = next) {
            next = p->next;
            free(p);
        }
    close(c->way[0].from);
    close(c->way[0].to);
    free(c);
}

static void remove_finished(struct loop *l)
{
    for (struct connection **at = &l->connections; *at;) {
        struct connection *c = *at;
        if (!c->broken && !(c->way[0].shut && c->way[1].shut)) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        l->count--;
        connection_free(c);
    }
}

/* ---- streams ---- */
static bool again(void)
{
    return errno == EAGAIN || errno == EINTR || errno == EINPROGRESS;
}

static void connection_take(struct loop *l, struct stream *s, struct connection *c)
{
    struct piece *p = malloc(sizeof *p + s->piece_bytes);
    ssize_t n = p ? read(s->from, p->data, s->piece_bytes) : -1;
    if (n <= 0) {
        s->ended = n == 0;
        c->broken = c->broken || (n < 0 && (!p || !again()));
        free(p);
        return;
    }
    p->next = NULL;
    p->size_bytes = (size_t)n;
    p->sent_bytes = 0;
    p->due_ns = flow_carry(s->flow, now_ns(l), (size_t)n);
    *(s->first ? &s->last->next : &s->first) = p;
    s->last = p;
    s->held_bytes += (size_t)n;
}

static void deliver(struct stream *s, struct connection *c, int64_t now)
{
    while (s->first && s->first->due_ns <= now) {
        struct piece *p = s->first;
        size_t left = p->size_bytes - p->sent_bytes;
        ssize_t n = send(s->to, p->data + p->sent_bytes, left, MSG_NOSIGNAL);
        if (n < 0) {
            c->broken = c->broken || !again();
            return;
        }
        p->sent_bytes += (size_t)n;
        if (p->sent_bytes < p->size_bytes)
            return;
        s->flow->count->arrived++;
        s->flow->count->arrived_bytes += p->size_bytes;
        s->held_bytes -= p->size_bytes;
        s->first = p->next;
        free(p);
    }
    if (s->ended && !s->first && !s->shut) {
        shutdown(s->to, SHUT_WR);
        s->shut = true;
    }
}

/* ---- loop ---- */
static void watch(struct loop *l, int fd, short events, struct stream *s, struct connection *c)
{
    if (!events)
        return; /* a closed one would wake us for ever */
    l->polls[l->used] = (struct pollfd){.fd = fd, .events = events};
    l->watched[l->used++] = (struct watched){s, c};
}

static bool room(struct loop *l)
{
    size_t need = l->r->count + 4 * l->count;
    if (need <= l->capacity)
        return true;
    struct pollfd *polls = realloc(l->polls, 2 * need * sizeof *polls);
    if (polls)
        l->polls = polls;
    struct watched *watched = realloc(l->watched, 2 * need * sizeof *watched);
    if (watched)
        l->watched = watched;
    if (!polls || !watched)
        return false;
    l->capacity = 2 * need;
    return true;
}

/* Delivers what is due; watches the rest. Returns how long nothing else will be due. */
static int64_t prepare(struct loop *l)
{
    int64_t now = now_ns(l), next = now + SECOND_NS;
    l->used = 0;
    for (size_t i = 0; i < l->r->count; i++)
        watch(l, l->r->listeners[i].fd, POLLIN, NULL, NULL);
    for (struct connection *c = l->connections; c; c = c->next)
        for (int i = 0; i < 2; i++) {
            struct stream *s = &c->way[i];
            deliver(s, c, now);
            bool blocked = s->first && s->first->due_ns <= now;
            if (s->first && !blocked && s->first->due_ns < next)
                next = s->first->due_ns;
            watch(l, s->from, !s->ended && s->held_bytes < s->window_bytes ? POLLIN : 0, s, c);
            watch(l, s->to, blocked ? POLLOUT : 0, NULL, c);
        }
    return next - now;
}

static void turn(struct loop *l, const sigset_t *mask)
{
    remove_finished(l);
    if (!room(l))
        return;
    int64_t wait = prepare(l);
    struct timespec t = {wait / SECOND_NS, wait % SECOND_NS};
    if (ppoll(l->polls, l->used, &t, mask) <= 0)
        return;
    for (size_t i = 0; i < l->used; i++) {
        if (!l->polls[i].revents)
            continue;
        if (l->watched[i].stream)
            connection_take(l, l->watched[i].stream, l->watched[i].connection);
        else if (!l->watched[i].connection)
            take_connection(l, &l->r->listeners[i]);
    }
}

void relay_run(struct relay *r)
{
    struct loop l = {.r = r};
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t blocked, mask;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, &mask);
    sigdelset(&mask, SIGTERM);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGINT, SIG_IGN);
    l.start_ns = clock_mono_ns();
    while (!ended)
        turn(&l, &mask);
    for (struct connection *c = l.connections, *next; c; c = next) {
        next = c->next;
        connection_free(c);
    }
    free(l.polls);
    free(l.watched);
}

/* ---- listening ---- */
static enum err listen_at(struct relay *r, unsigned from, unsigned to, uint16_t port)
{
    struct sockaddr_in a = place_address(from + 1, to + 1, port);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(ERR_IO, "relay: no socket: %s", strerror(errno));
    r->listeners[r->count++] =
        (struct relay_listener){.fd = fd, .from = from, .to = to, .port = port};
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
    *r = (struct relay){.places = places};
    TRY_ALLOC(r->listeners =
                  arena_array(a, (size_t)places * places * ports->count, sizeof *r->listeners));
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
