/* SPDX-License-Identifier: Apache-2.0 */
/* A connection is two streams; a stream is a list of pieces that wait until they are due, and until
 * the socket takes them. */
#include "outer/link/forward.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "outer/link/dial.h"

enum {
    FIRST_MAX = 17 << 10, /* a record of TLS, with its header */
    PIECE = 65536,
    WINDOW = 1 << 20,
    BACKLOG = 128,
    DIALERS_MAX = 32,
    LINGER_MS = 100 /* the loop sleeps so long when it cannot accept */
};
static const int64_t SECOND_NS = 1000000000;
const char *const forward_why_names[FORWARD_WHYS] = {"ended",   "broken", "idle",        "full",
                                                     "refused", "slow",   "unreachable", "stopped"};

struct piece {
    struct piece *next;
    int64_t due_ns;
    size_t size_bytes, sent_bytes;
    uint8_t data[];
};
struct stream {
    struct forward_way way;
    int from, to; /* sockets; -1: not dialled yet */
    struct piece *first, *last;
    size_t held_bytes;
    bool ended, shut; /* the sender has closed; so have we, after its last piece */
};
enum state { STATE_FIRST, STATE_DIALLING, STATE_OPEN };
struct connection {
    struct connection *next, *next_waiting;
    struct stream way[2];
    unsigned listener;
    enum state state;
    bool picked, answered; /* under the mutex: a dialer has it; and is done with it */
    enum err result;
    struct forward_dialled dialled;
    bool gone; /* it ended */
    enum forward_why why;
    uint64_t began_ms, moved_ms;
    char source[FORWARD_SOURCE_TEXT];
    uint8_t *seen; /* [FIRST_MAX] the first bytes */
    size_t seen_bytes;
};
struct watched { /* what an entry of the poll array stands for */
    struct stream *stream;
    struct connection *connection;
    const struct forward_listener *listener;
};
struct forward {
    struct forward_options o;
    struct connection *connections;
    size_t count;
    struct pollfd *polls;
    struct watched *watched;
    size_t capacity, used;
    uint64_t start_ns, ticked_ms, deaf_ms; /* deaf: accepts nothing until then */
    int wake, stop;                        /* eventfds */
    atomic_bool stopping;
    pthread_mutex_t mutex;
    pthread_cond_t work;
    struct connection *waiting, **waiting_end;
    pthread_t dialers[DIALERS_MAX];
    unsigned dialer_count;
};

static int64_t now_ns(const struct forward *f)
{
    return (int64_t)(clock_mono_ns() - f->start_ns);
}

static void nudge(int fd)
{
    uint64_t one = 1;
    ssize_t ignored = write(fd, &one, sizeof one);
    (void)ignored; /* full: it is awake anyway */
}

/* ---- dialling ---- */

static struct connection *waiting_take(struct forward *f)
{
    pthread_mutex_lock(&f->mutex);
    while (!f->waiting && !atomic_load(&f->stopping))
        clock_cond_wait(&f->work, &f->mutex, clock_mono_ms() + 1000);
    struct connection *c = atomic_load(&f->stopping) ? NULL : f->waiting;
    if (c) {
        f->waiting = c->next_waiting;
        f->waiting_end = f->waiting ? f->waiting_end : &f->waiting;
        c->picked = true;
    }
    pthread_mutex_unlock(&f->mutex);
    return c;
}

static void *dialer_main(void *forward)
{
    struct forward *f = forward;
    for (struct connection *c; (c = waiting_take(f));) {
        struct forward_dialled d = {.fd = -1};
        enum err e = f->o.dial(f->o.self, c->listener, f->stop, &d);
        pthread_mutex_lock(&f->mutex);
        c->dialled = d;
        c->result = e;
        c->answered = true;
        pthread_mutex_unlock(&f->mutex);
        nudge(f->wake);
    }
    return NULL;
}

static void finish(struct connection *c, enum forward_why why)
{
    if (!c->gone)
        c->why = why;
    c->gone = true;
}

static void connection_open(struct forward *f, struct connection *c)
{
    c->state = STATE_OPEN;
    c->moved_ms = clock_mono_ms();
    if (c->result != ERR_OK || c->dialled.fd < 0) {
        finish(c, FORWARD_NO_DIAL);
        return;
    }
    c->way[FORWARD_UP].to = c->way[FORWARD_DOWN].from = c->dialled.fd;
    if (f->o.shape)
        f->o.shape(f->o.self, c->listener, &c->way[FORWARD_UP].way, &c->way[FORWARD_DOWN].way);
}

static void connection_dial(struct forward *f, struct connection *c)
{
    if (!f->dialer_count) {
        c->result = f->o.dial(f->o.self, c->listener, f->stop, &c->dialled);
        connection_open(f, c);
        return;
    }
    c->state = STATE_DIALLING;
    pthread_mutex_lock(&f->mutex);
    *f->waiting_end = c;
    f->waiting_end = &c->next_waiting;
    pthread_cond_signal(&f->work);
    pthread_mutex_unlock(&f->mutex);
}

static void dialled_take(struct forward *f)
{
    uint64_t ignored;
    ssize_t n = read(f->wake, &ignored, sizeof ignored);
    (void)n;
    for (struct connection *c = f->connections; c; c = c->next) {
        pthread_mutex_lock(&f->mutex);
        bool ready = c->state == STATE_DIALLING && c->answered;
        pthread_mutex_unlock(&f->mutex);
        if (ready)
            connection_open(f, c);
    }
}

/* True: a dialer has it: it must not be freed. One that waits for a dialer is taken back. */
static bool with_dialer(struct forward *f, struct connection *c)
{
    if (c->state != STATE_DIALLING)
        return false;
    pthread_mutex_lock(&f->mutex);
    bool dialling = c->picked && !c->answered;
    struct connection **at = &f->waiting;
    while (!c->picked && *at != c)
        at = &(*at)->next_waiting;
    if (!c->picked) {
        *at = c->next_waiting;
        if (f->waiting_end == &c->next_waiting)
            f->waiting_end = at;
    }
    pthread_mutex_unlock(&f->mutex);
    return dialling;
}

/* ---- connections ---- */

static bool again(void)
{
    return errno == EAGAIN || errno == EINTR || errno == EINPROGRESS;
}

/* The address without the port; IPv4 inside IPv6 as IPv4. */
static void source_of(int fd, char text[FORWARD_SOURCE_TEXT])
{
    struct sockaddr_in6 a;
    socklen_t n = sizeof a;
    const void *at = &a.sin6_addr;
    snprintf(text, FORWARD_SOURCE_TEXT, "-");
    if (getpeername(fd, (struct sockaddr *)&a, &n) != 0 ||
        (a.sin6_family != AF_INET && a.sin6_family != AF_INET6))
        return;
    bool mapped = a.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a.sin6_addr);
    if (a.sin6_family == AF_INET)
        at = &((const struct sockaddr_in *)(const void *)&a)->sin_addr;
    else if (mapped)
        at = a.sin6_addr.s6_addr + 12;
    inet_ntop(mapped ? AF_INET : a.sin6_family, at, text, FORWARD_SOURCE_TEXT);
}

static bool source_full(const struct forward *f, const char *source)
{
    unsigned n = 0;
    for (const struct connection *c = f->connections; c && f->o.source_max; c = c->next)
        n += strcmp(c->source, source) == 0;
    return f->o.source_max && n >= f->o.source_max;
}

static void ended_tell(const struct forward *f, const struct forward_end *end)
{
    if (f->o.ended)
        f->o.ended(f->o.self, end);
}

static struct connection *connection_make(const struct forward *f, int fd, struct forward_end *end)
{
    bool full = f->o.connections_max && f->count >= f->o.connections_max;
    bool crowd = source_full(f, end->source);
    bool wanted = !full && !crowd && (!f->o.accepts || f->o.accepts(f->o.self, fd, end->source));
    struct connection *c = wanted ? calloc(1, sizeof *c) : NULL;
    end->why = crowd && !full ? FORWARD_SOURCE : full || wanted ? FORWARD_FULL : FORWARD_UNWANTED;
    return c;
}

static void take_connection(struct forward *f, const struct forward_listener *at)
{
    char source[FORWARD_SOURCE_TEXT];
    int one = 1, fd = accept4(at->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        f->deaf_ms = again() ? 0 : clock_mono_ms() + LINGER_MS; /* no descriptor left */
        return;
    }
    source_of(fd, source);
    struct forward_end end = {.source = source};
    struct connection *c = connection_make(f, fd, &end);
    if (!c) {
        ended_tell(f, &end);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* a Unix socket has none */
    for (int i = 0; i < 2; i++)
        c->way[i] = (struct stream){
            .way = {.window_bytes = WINDOW, .piece_bytes = PIECE}, .from = -1, .to = -1};
    c->way[FORWARD_UP].from = c->way[FORWARD_DOWN].to = fd;
    c->listener = at->index;
    c->dialled.fd = -1;
    c->began_ms = c->moved_ms = clock_mono_ms();
    memcpy(c->source, source, sizeof source);
    c->next = f->connections;
    f->connections = c;
    f->count++;
    if (!f->o.first)
        connection_dial(f, c);
}

static void connection_free(struct forward *f, struct connection *c)
{
    for (int i = 0; i < 2; i++)
        for (struct piece *p = c->way[i].first, *next; p; p = next) {
            next = p->next;
            free(p);
        }
    ended_tell(f, &(struct forward_end){.why = c->why,
                                        .source = c->source,
                                        .user = c->dialled.user,
                                        .up = c->way[FORWARD_UP].way.bytes,
                                        .down = c->way[FORWARD_DOWN].way.bytes,
                                        .lasted_ms = clock_mono_ms() - c->began_ms});
    close(c->way[FORWARD_UP].from);
    if (c->dialled.fd >= 0)
        close(c->dialled.fd);
    free(c->seen);
    free(c);
}

static void remove_finished(struct forward *f)
{
    for (struct connection **at = &f->connections; *at;) {
        struct connection *c = *at;
        if (c->way[0].shut && c->way[1].shut)
            finish(c, FORWARD_ENDED);
        if (!c->gone || with_dialer(f, c)) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        f->count--;
        connection_free(f, c);
    }
}

static void connection_judge(const struct forward *f, struct connection *c, uint64_t now)
{
    bool half = c->way[0].ended || c->way[1].ended;
    uint64_t quiet = now - c->moved_ms;
    if (c->state == STATE_FIRST && quiet >= f->o.first_ms)
        finish(c, FORWARD_SLOW);
    if (c->state == STATE_OPEN && ((f->o.idle_ms && quiet >= f->o.idle_ms) ||
                                   (half && f->o.half_ms && quiet >= f->o.half_ms)))
        finish(c, FORWARD_IDLE);
}

/* ---- streams ---- */

static void piece_add(struct forward *f, struct stream *s, struct piece *p, size_t n)
{
    p->next = NULL;
    p->size_bytes = n;
    p->sent_bytes = 0;
    p->due_ns = f->o.due ? f->o.due(s->way.user, now_ns(f), n) : 0;
    *(s->first ? &s->last->next : &s->first) = p;
    s->last = p;
    s->held_bytes += n;
}

static void stream_read(struct forward *f, struct stream *s, struct connection *c)
{
    struct piece *p = malloc(sizeof *p + s->way.piece_bytes);
    ssize_t n = p ? read(s->from, p->data, s->way.piece_bytes) : -1;
    if (n <= 0) {
        s->ended = n == 0;
        if (n < 0 && (!p || !again()))
            finish(c, FORWARD_BROKEN);
        free(p);
        return;
    }
    c->moved_ms = clock_mono_ms();
    piece_add(f, s, p, (size_t)n);
}

/* The first bytes, until the owner has seen enough; then they are the first piece. */
static void first_read(struct forward *f, struct connection *c)
{
    struct stream *s = &c->way[FORWARD_UP];
    c->seen = c->seen ? c->seen : malloc(FIRST_MAX);
    ssize_t n = c->seen ? read(s->from, c->seen + c->seen_bytes, FIRST_MAX - c->seen_bytes) : -1;
    if (n <= 0) {
        if (n == 0 || !c->seen || !again())
            finish(c, n == 0 ? FORWARD_ENDED : FORWARD_BROKEN);
        return;
    }
    c->seen_bytes += (size_t)n;
    enum forward_first verdict = f->o.first(f->o.self, c->source, c->seen, c->seen_bytes);
    if (verdict == FORWARD_MORE && c->seen_bytes < FIRST_MAX)
        return;
    struct piece *p = verdict == FORWARD_PASS ? malloc(sizeof *p + c->seen_bytes) : NULL;
    if (!p) {
        finish(c, FORWARD_UNWANTED);
        return;
    }
    memcpy(p->data, c->seen, c->seen_bytes);
    piece_add(f, s, p, c->seen_bytes);
    free(c->seen);
    c->seen = NULL;
    connection_dial(f, c);
}

static void stream_deliver(struct forward *f, struct stream *s, struct connection *c, int64_t now)
{
    while (s->first && s->first->due_ns <= now) {
        struct piece *p = s->first;
        size_t left = p->size_bytes - p->sent_bytes;
        ssize_t n = send(s->to, p->data + p->sent_bytes, left, MSG_NOSIGNAL);
        if (n < 0) {
            if (!again())
                finish(c, FORWARD_BROKEN);
            return;
        }
        p->sent_bytes += (size_t)n;
        s->way.bytes += (size_t)n;
        c->moved_ms = clock_mono_ms();
        if (p->sent_bytes < p->size_bytes)
            return;
        if (f->o.delivered)
            f->o.delivered(s->way.user, p->size_bytes);
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

static void watch(struct forward *f, int fd, short events, struct watched what)
{
    if (!events)
        return; /* a closed one would wake us for ever */
    f->polls[f->used] = (struct pollfd){.fd = fd, .events = events};
    f->watched[f->used++] = what;
}

static bool room(struct forward *f)
{
    size_t need = 2 + f->o.listener_count + 4 * f->count;
    if (need <= f->capacity)
        return true;
    struct pollfd *polls = realloc(f->polls, 2 * need * sizeof *polls);
    if (polls)
        f->polls = polls;
    struct watched *watched = realloc(f->watched, 2 * need * sizeof *watched);
    if (watched)
        f->watched = watched;
    if (!polls || !watched)
        return false;
    f->capacity = 2 * need;
    return true;
}

static void connection_watch(struct forward *f, struct connection *c, int64_t now, int64_t *next)
{
    if (c->state == STATE_FIRST)
        watch(f, c->way[FORWARD_UP].from, POLLIN, (struct watched){.connection = c});
    if (c->state != STATE_OPEN || c->gone)
        return;
    for (int i = 0; i < 2; i++) {
        struct stream *s = &c->way[i];
        stream_deliver(f, s, c, now);
        bool blocked = s->first && s->first->due_ns <= now;
        if (s->first && !blocked && s->first->due_ns < *next)
            *next = s->first->due_ns;
        watch(f, s->from, !s->ended && s->held_bytes < s->way.window_bytes ? POLLIN : 0,
              (struct watched){.stream = s, .connection = c});
        watch(f, s->to, blocked ? POLLOUT : 0, (struct watched){.connection = c});
    }
}

/* Delivers what is due; watches the rest. Returns how long nothing else will be due. */
static int64_t prepare(struct forward *f)
{
    int64_t now = now_ns(f), next = now + SECOND_NS;
    uint64_t now_ms = clock_mono_ms();
    f->used = 0;
    watch(f, f->stop, POLLIN, (struct watched){0});
    watch(f, f->wake, POLLIN, (struct watched){0});
    for (size_t i = 0; i < f->o.listener_count && now_ms >= f->deaf_ms; i++)
        watch(f, f->o.listeners[i].fd, POLLIN, (struct watched){.listener = &f->o.listeners[i]});
    if (now_ms < f->deaf_ms)
        next = now + LINGER_MS * SECOND_NS / 1000;
    for (struct connection *c = f->connections; c; c = c->next) {
        connection_judge(f, c, now_ms);
        connection_watch(f, c, now, &next);
        if (c->gone || (c->way[0].shut && c->way[1].shut))
            next = now; /* removed at the next turn */
    }
    if (f->o.tick && now_ms - f->ticked_ms >= 1000) {
        f->ticked_ms = now_ms;
        f->o.tick(f->o.self, (unsigned)f->count);
    }
    return next - now;
}

static void turn(struct forward *f)
{
    remove_finished(f);
    if (!room(f))
        return;
    int64_t wait = prepare(f);
    struct timespec t = {wait / SECOND_NS, wait % SECOND_NS};
    if (ppoll(f->polls, f->used, &t, NULL) <= 0)
        return;
    for (size_t i = 0; i < f->used; i++) {
        struct watched *w = &f->watched[i];
        if (!f->polls[i].revents)
            continue;
        if (w->listener)
            take_connection(f, w->listener);
        else if (w->stream)
            stream_read(f, w->stream, w->connection);
        else if (w->connection && w->connection->state == STATE_FIRST)
            first_read(f, w->connection);
        else if (f->polls[i].fd == f->wake)
            dialled_take(f);
    }
}

void forward_run(struct forward *f)
{
    while (!atomic_load(&f->stopping))
        turn(f);
}

void forward_stop(struct forward *f)
{
    atomic_store(&f->stopping, true);
    nudge(f->stop);
}

enum err forward_open(struct forward **out, const struct forward_options *o)
{
    struct forward *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(ERR_MEMORY, "no memory for a forwarder");
    *f = (struct forward){.o = *o, .wake = -1, .stop = -1};
    pthread_mutex_init(&f->mutex, NULL);
    clock_cond_init(&f->work);
    f->waiting_end = &f->waiting;
    f->start_ns = clock_mono_ns();
    f->ticked_ms = clock_mono_ms();
    f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    f->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    unsigned dialers = o->dialers < DIALERS_MAX ? o->dialers : DIALERS_MAX;
    bool good = f->wake >= 0 && f->stop >= 0;
    while (good && f->dialer_count < dialers) {
        good = pthread_create(&f->dialers[f->dialer_count], NULL, dialer_main, f) == 0;
        f->dialer_count += good;
    }
    *out = f;
    if (good)
        return ERR_OK;
    forward_close(f);
    return err_set(ERR_MEMORY, "no descriptors or threads for a forwarder");
}

void forward_close(struct forward *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->mutex);
    atomic_store(&f->stopping, true);
    pthread_cond_broadcast(&f->work);
    pthread_mutex_unlock(&f->mutex);
    nudge(f->stop);
    for (unsigned i = 0; i < f->dialer_count; i++)
        pthread_join(f->dialers[i], NULL);
    for (struct connection *c = f->connections, *next; c; c = next) {
        next = c->next;
        finish(c, FORWARD_STOPPED);
        connection_free(f, c);
    }
    if (f->wake >= 0)
        close(f->wake);
    if (f->stop >= 0)
        close(f->stop);
    pthread_cond_destroy(&f->work);
    pthread_mutex_destroy(&f->mutex);
    free(f->polls);
    free(f->watched);
    free(f);
}

/* ---- listening ---- */

static enum err listen_failed(int fd, const char *address)
{
    int why = errno;
    if (fd >= 0)
        close(fd);
    return err_set(why == EADDRINUSE ? ERR_BUSY : ERR_CONFIG, "%s: cannot listen (%s)", address,
                   strerror(why));
}

enum err forward_listen(int *out, const char *address, int *port)
{
    char host[ADDRESS_HOST_MAX] = "", port_text[ADDRESS_PORT_MAX];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found = NULL;
    struct sockaddr_in6 bound = {0};
    socklen_t n = sizeof bound;
    int one = 1;
    if (strrchr(address, ':') == address) /* of every address of this machine */
        snprintf(port_text, sizeof port_text, "%.7s", address + 1);
    else
        TRY(address_split(address, 0, host, port_text));
    if (getaddrinfo(*host ? host : NULL, port_text, &hints, &found) != 0)
        return err_set(ERR_CONFIG, "'%.200s' is no address to listen on: host:port", address);
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    bool good = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                listen(fd, BACKLOG) == 0 && getsockname(fd, (struct sockaddr *)&bound, &n) == 0;
    freeaddrinfo(found);
    if (!good)
        return listen_failed(fd, address);
    *port = ntohs(bound.sin6_port); /* at the same place in sockaddr_in */
    *out = fd;
    return ERR_OK;
}
