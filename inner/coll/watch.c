/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of one size in both directions: a heartbeat, a regular close, or an end with an error.
 * Rank 0 forwards an end to the other ranks. Only the thread reads; it is joined before a close. */
#include "inner/coll/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/digest.h"
#include "kernels/base/log.h"
#include "kernels/base/signals.h"

/* A host that does not answer: TCP keep-alive after 4 s idle, then 6 probes a second apart. */
enum { SILENT_HOST_S = 10, KEEPALIVE_IDLE_S = 4 };
enum { GREETING_MS = 2000, RETRY_MS = 50, LISTEN_TRIES = 200, HEARTBEATS = 24, DRAIN_MS = 2000 };
enum { PENDING_MAX = 256 }; /* accepted connections without a rank; more wait in the backlog */

enum kind { KIND_HEARTBEAT, KIND_BYE, KIND_END };
struct frame {
    uint8_t kind, exit_code;
    uint16_t rank; /* the rank that ends */
    char why[252];
};
struct greeting {  /* rank 0 sends first: another program at the port receives nothing */
    char magic[8]; /* differs for rank 0 and the others: an echoed greeting is not accepted */
    struct digest job;
    uint32_t number; /* from rank 0: number of ranks; from the others: their rank */
};
struct pending { /* connection to rank 0's port that has not sent its greeting */
    int fd;      /* -1: free */
    int64_t until_ms;
    struct greeting greeting;
    size_t have; /* bytes of greeting */
};
struct peer {
    int fd; /* -1: closed */
    int64_t last_heard_ms;
    struct frame in;
    size_t have; /* bytes of in */
};
struct watch {
    int rank, size, timeout_s;
    struct peer *peers; /* rank 0: one for each rank, [0] unused; other ranks: [0] is rank 0 */
    struct pollfd *polled;
    int stop_pipe[2];
    pthread_t thread;
    bool running;
};

static int peer_count(const struct watch *w)
{
    return w->rank == 0 ? w->size : 1;
}

static void peer_close(struct peer *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

/* ---- rendezvous ---- */
static bool wait_for(int fd, short what, int64_t until_ms)
{
    struct pollfd p = {fd, what, 0};
    int n;
    do { /* again after a signal */
        int64_t left = until_ms - (int64_t)clock_mono_ms();
        n = poll(&p, 1, left > 0 ? (int)left : 0);
    } while (n < 0 && errno == EINTR);
    return n == 1;
}

static bool receive_all(int fd, void *to, size_t bytes, int64_t until_ms)
{
    size_t have = 0;
    while (have < bytes && wait_for(fd, POLLIN, until_ms)) {
        ssize_t n = recv(fd, (char *)to + have, bytes - have, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        have += n > 0 ? (size_t)n : 0;
    }
    return have == bytes;
}

static bool send_all(int fd, const void *from, size_t bytes) /* few: the socket buffer holds them */
{
    return send(fd, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

static const char magic_lead[8] = "atoll-0", magic_other[8] = "atoll-n";

static struct greeting greeting_make(const char magic[8], const char *job, int number)
{
    struct greeting g = {.job = digest_of(job, strlen(job)), .number = (uint32_t)number};
    memcpy(g.magic, magic, sizeof g.magic);
    return g;
}

static bool greeting_fits(const struct greeting *g, const char magic[8],
                          const struct greeting *ours)
{
    return !memcmp(g->magic, magic, sizeof g->magic) && digest_equal(&g->job, &ours->job);
}

static void set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value,
                     sizeof value); /* where it is refused: NCCL's deadline */
}

static void keep_alive(int fd)
{
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, SILENT_HOST_S - KEEPALIVE_IDLE_S);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SILENT_HOST_S * 1000);
}

/* For IPv4 and, where the host has it, IPv6. */
static int listener_make(int port, int *error)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool both = fd >= 0;
    if (!both)
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (both)
        set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (fd >= 0 &&
        bind(fd, both ? (struct sockaddr *)&six : (struct sockaddr *)&four,
             both ? sizeof six : sizeof four) == 0 &&
        listen(fd, SOMAXCONN) == 0)
        return fd;
    *error = errno;
    if (fd >= 0)
        close(fd);
    return -1;
}

enum err watch_listen(int *listener, int *port)
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    int error = 0;
    *listener = -1;
    for (int i = 0; i < LISTEN_TRIES && *listener < 0;
         i++) { /* a former rank 0 may still be ending */
        *listener = listener_make(*port, &error);
        if (*listener < 0 && error != EADDRINUSE)
            break;
        if (*listener < 0)
            usleep(RETRY_MS * 1000);
    }
    if (*listener < 0)
        return err_set(ERR_LINK, "the ranks of this site cannot meet at port %d of this host: %s",
                       *port, strerror(error));
    if (getsockname(*listener, (struct sockaddr *)&own, &size) == 0)
        *port = ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                                : ((struct sockaddr_in *)&own)->sin_port);
    return ERR_OK;
}

static void list_missing(const struct watch *w, char *out, size_t size)
{
    int n = 0;
    for (int r = 1; r < w->size && n >= 0 && (size_t)n < size; r++)
        if (w->peers[r].fd < 0)
            n += snprintf(out + n, size - (size_t)n, "%s%d", n ? ", " : "", r);
}

/* A peer with a valid greeting becomes the connection of its rank. */
static enum err register_rank(struct watch *w, const struct pending *k)
{
    uint32_t rank = k->greeting.number;
    bool known = rank > 0 && rank < (uint32_t)w->size;
    if (!known || w->peers[rank].fd >= 0) {
        close(k->fd);
        return err_set(ERR_CONFIG, "%s is rank %u of %d: see how the launcher numbers them",
                       known ? "a second process" : "a process", rank, w->size);
    }
    keep_alive(k->fd);
    w->peers[rank].fd = k->fd;
    return ERR_OK;
}

/* Never waits: an unknown peer that sends nothing, or a byte at a time, delays no other. */
static enum err read_greeting(struct watch *w, struct pending *k, const struct greeting *ours)
{
    ssize_t n =
        recv(k->fd, (char *)&k->greeting + k->have, sizeof k->greeting - k->have, MSG_DONTWAIT);
    bool silent = n < 0 && (errno == EAGAIN || errno == EINTR);
    k->have += n > 0 ? (size_t)n : 0;
    if ((n > 0 || silent) && k->have < sizeof k->greeting && (int64_t)clock_mono_ms() < k->until_ms)
        return ERR_OK;
    enum err e = ERR_OK;
    if (k->have == sizeof k->greeting && greeting_fits(&k->greeting, magic_other, ours))
        e = register_rank(w, k);
    else
        close(k->fd);
    k->fd = -1;
    return e;
}

static void accept_pending(struct pending *k, int listener, const struct greeting *ours)
{
    *k = (struct pending){.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK),
                          .until_ms = (int64_t)clock_mono_ms() + GREETING_MS};
    if (k->fd >= 0 && !send_all(k->fd, ours, sizeof *ours)) {
        close(k->fd);
        k->fd = -1;
    }
}

/* Waits at most RETRY_MS for connections and greetings, and handles them. */
static enum err poll_listener(struct watch *w, int listener, struct pending pending[PENDING_MAX],
                              const struct greeting *ours)
{
    struct pollfd p[PENDING_MAX + 1];
    struct pending *unused = NULL;
    for (int i = 0; i < PENDING_MAX; i++) {
        p[i] = (struct pollfd){pending[i].fd, POLLIN, 0}; /* poll ignores -1 */
        if (pending[i].fd < 0)
            unused = &pending[i];
    }
    p[PENDING_MAX] = (struct pollfd){unused ? listener : -1, POLLIN, 0};
    if (poll(p, PENDING_MAX + 1, RETRY_MS) < 0)
        return ERR_OK; /* a signal */
    for (int i = 0; i < PENDING_MAX; i++)
        if (pending[i].fd >= 0)
            TRY(read_greeting(w, &pending[i], ours));
    if (p[PENDING_MAX].revents)
        accept_pending(unused, listener, ours);
    return ERR_OK;
}

static enum err check_connected(const struct watch *w)
{
    char byte;
    for (int r = 1; r < w->size; r++) {
        ssize_t n =
            w->peers[r].fd < 0 ? 1 : recv(w->peers[r].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return err_set(ERR_LINK, "rank %d of %d ended while the others were still coming", r,
                           w->size);
    }
    return ERR_OK;
}

static enum err accept_ranks(struct watch *w, const struct watch_options *o,
                             struct pending pending[PENDING_MAX])
{
    const struct greeting ours = greeting_make(magic_lead, o->job, w->size);
    int64_t until = (int64_t)clock_mono_ms() + (int64_t)o->timeout_s * 1000;
    for (int connected = 0; connected < w->size - 1;) {
        char missing[80] = "";
        TRY(poll_listener(w, o->listener, pending, &ours));
        TRY(check_connected(w));
        connected = 0;
        for (int r = 1; r < w->size; r++)
            connected += w->peers[r].fd >= 0;
        list_missing(w, missing, sizeof missing);
        if (connected < w->size - 1 && (int64_t)clock_mono_ms() > until)
            return err_set(ERR_LINK, "%d of %d ranks did not come to %s:%d within %d s: %s",
                           w->size - 1 - connected, w->size, o->host, o->port, o->timeout_s,
                           missing);
    }
    return ERR_OK;
}

static enum err rendezvous_lead(struct watch *w, const struct watch_options *o)
{
    struct pending pending[PENDING_MAX];
    for (int i = 0; i < PENDING_MAX; i++)
        pending[i].fd = -1;
    enum err e = accept_ranks(w, o, pending);
    for (int i = 0; i < PENDING_MAX; i++)
        if (pending[i].fd >= 0)
            close(pending[i].fd);
    for (int r = 1; r < w->size && e == ERR_OK; r++)
        if (!send_all(w->peers[r].fd, o->shared, o->shared_bytes))
            e = err_set(ERR_LINK, "rank %d of %d is gone already", r, w->size);
    return e;
}

static int connect_to(const struct addrinfo *a)
{
    int error = 0, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof error;
    if (fd < 0)
        return -1;
    if (connect(fd, a->ai_addr, a->ai_addrlen) && errno == EINPROGRESS &&
        wait_for(fd, POLLOUT, (int64_t)clock_mono_ms() + GREETING_MS))
        (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    struct sockaddr_storage peer;
    size = sizeof peer;
    if (!error && getpeername(fd, (struct sockaddr *)&peer, &size) == 0)
        return fd;
    close(fd);
    return -1;
}

/* A connection to rank 0; -1: not yet. */
static int connect_lead(const struct addrinfo *found, const struct greeting *ours)
{
    struct greeting theirs;
    for (const struct addrinfo *a = found; a; a = a->ai_next) {
        int fd = connect_to(a);
        if (fd >= 0 &&
            receive_all(fd, &theirs, sizeof theirs, (int64_t)clock_mono_ms() + GREETING_MS) &&
            greeting_fits(&theirs, magic_lead, ours) && send_all(fd, ours, sizeof *ours))
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

static enum err rendezvous_other(struct watch *w, const struct watch_options *o)
{
    const struct greeting ours = greeting_make(magic_other, o->job, o->rank);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int64_t until = (int64_t)clock_mono_ms() + (int64_t)o->timeout_s * 1000;
    const char *why = "no rank of this job answers";
    char port[8];
    snprintf(port, sizeof port, "%d", o->port);
    while (w->peers[0].fd < 0) {
        struct addrinfo *found = NULL;
        int e = getaddrinfo(o->host, port, &hints, &found);
        why = e ? gai_strerror(e) : "no rank of this job answers";
        if (e) /* in a container whose own name does not resolve */
            e = getaddrinfo("127.0.0.1", port, &hints, &found);
        w->peers[0].fd = e ? -1 : connect_lead(found, &ours);
        if (found)
            freeaddrinfo(found);
        if (w->peers[0].fd < 0 && (int64_t)clock_mono_ms() > until)
            return err_set(ERR_LINK, "rank %d of %d did not find rank 0 at %s:%d within %d s: %s",
                           o->rank, o->size, o->host, o->port, o->timeout_s, why);
        if (w->peers[0].fd < 0)
            usleep(RETRY_MS * 1000);
    }
    keep_alive(w->peers[0].fd);
    if (!receive_all(w->peers[0].fd, o->shared, o->shared_bytes, until + GREETING_MS))
        return err_set(ERR_LINK, "rank %d of %d: rank 0 gave up waiting for the others, or is gone",
                       o->rank, o->size);
    return ERR_OK;
}

/* ---- watching ---- */
static void send_frame(const struct watch *w, const struct frame *f)
{
    for (int i = 0; i < peer_count(w); i++)
        if (w->peers[i].fd >= 0)
            (void)send_all(w->peers[i].fd, f, sizeof *f);
}

/* Ends at once: durable state is always consistent, and the main thread may be in a CUDA call that
 * never returns. */
static void end_process(struct watch *w, const struct frame *f)
{
    char quoted[600];
    log_event(LOG_ERROR, "rank_lost", "rank=%u ranks=%d why=%s", f->rank, w->size,
              log_quote(quoted, sizeof quoted, f->why));
    if (w->rank == 0)
        send_frame(w, f);
    _exit(f->exit_code);
}

static void rank_lost(struct watch *w, int peer, const char *how)
{
    struct frame f = {
        .kind = KIND_END, .exit_code = (uint8_t)err_exit_code(ERR_LINK), .rank = (uint16_t)peer};
    snprintf(
        f.why, sizeof f.why,
        "rank %d of %d %s; this site's job ends and may be started again: it continues from its "
        "last checkpoint",
        peer, w->size, how);
    end_process(w, &f);
}

static void handle_frame(struct watch *w, int peer)
{
    struct peer *p = &w->peers[peer];
    if (p->in.kind == KIND_END) {
        p->in.why[sizeof p->in.why - 1] = 0;
        end_process(w, &p->in);
    }
    if (p->in.kind == KIND_BYE)
        peer_close(p);
}

static void read_frames(struct watch *w, int peer)
{
    struct peer *p = &w->peers[peer];
    ssize_t n = recv(p->fd, (char *)&p->in + p->have, sizeof p->in - p->have, MSG_DONTWAIT);
    if (n == 0)
        rank_lost(w, peer, "ended without a word: killed, or its log says why");
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        rank_lost(w, peer,
                  errno == ETIMEDOUT ? "does not answer: its host or the network is down"
                                     : "ended without a word: killed, or its log says why");
    if (n > 0) {
        p->last_heard_ms = (int64_t)clock_mono_ms();
        p->have = (p->have + (size_t)n) % sizeof p->in;
        if (p->have == 0)
            handle_frame(w, peer);
    }
}

static void reset_silence(struct watch *w)
{
    for (int i = 0; i < peer_count(w); i++)
        w->peers[i].last_heard_ms = (int64_t)clock_mono_ms();
}

static void check_silence(struct watch *w)
{
    int64_t now = (int64_t)clock_mono_ms();
    for (int i = 0; i < peer_count(w); i++)
        if (w->peers[i].fd >= 0 && now - w->peers[i].last_heard_ms > (int64_t)w->timeout_s * 1000)
            rank_lost(w, i, "has been silent for too long: stopped, or its host is frozen");
}

static void *watch_thread(void *self)
{
    struct watch *w = self;
    const struct frame heartbeat = {.kind = KIND_HEARTBEAT};
    int n = peer_count(w), every_ms = w->timeout_s * 1000 / HEARTBEATS;
    int64_t due = (int64_t)clock_mono_ms();
    reset_silence(w);
    for (;;) {
        for (int i = 0; i < n; i++)
            w->polled[i] = (struct pollfd){w->peers[i].fd, POLLIN, 0}; /* poll ignores -1 */
        w->polled[n] = (struct pollfd){w->stop_pipe[0], POLLIN, 0};
        int64_t left = due - (int64_t)clock_mono_ms();
        (void)poll(w->polled, (nfds_t)n + 1, left > 0 ? (int)left : 0);
        if (w->polled[n].revents)
            return NULL;
        for (int i = 0; i < n; i++)
            if (w->polled[i].revents)
                read_frames(w, i);
        if ((int64_t)clock_mono_ms() >= due) {
            if ((int64_t)clock_mono_ms() > due + every_ms) /* this process was stopped, others
                                              perhaps too: a suspended job continues when resumed */
                reset_silence(w);
            check_silence(w);
            send_frame(w, &heartbeat);
            due = (int64_t)clock_mono_ms() + every_ms;
        }
    }
}

/* ---- open and close ---- */
static enum err start_thread(struct watch *w)
{
    sigset_t before;
    if (pipe2(w->stop_pipe, O_CLOEXEC))
        return err_set(ERR_INTERNAL, "pipe: %s", strerror(errno));
    signals_block(&before);
    w->running = pthread_create(&w->thread, NULL, watch_thread, w) == 0;
    signals_restore(&before);
    return w->running ? ERR_OK : err_set(ERR_MEMORY, "no thread that watches the other ranks");
}

static void stop_thread(struct watch *w)
{
    if (w->running && write(w->stop_pipe[1], "", 1) == 1)
        pthread_join(w->thread, NULL);
    w->running = false;
}

static void release(struct watch *w)
{
    stop_thread(w);
    for (int i = 0; w->peers && i < peer_count(w); i++)
        peer_close(&w->peers[i]);
    for (int i = 0; i < 2; i++)
        if (w->stop_pipe[i] >= 0)
            close(w->stop_pipe[i]);
    free(w->peers);
    free(w->polled);
    free(w);
}

enum err watch_open(struct watch **w, const struct watch_options *o)
{
    struct watch *n = calloc(1, sizeof *n);
    enum err e = ERR_MEMORY;
    *w = NULL;
    if (n) {
        *n = (struct watch){
            .rank = o->rank, .size = o->size, .timeout_s = o->timeout_s, .stop_pipe = {-1, -1}};
        n->peers = calloc((size_t)peer_count(n), sizeof *n->peers);
        n->polled = calloc((size_t)peer_count(n) + 1, sizeof *n->polled);
    }
    if (n && n->peers && n->polled) {
        for (int i = 0; i < peer_count(n); i++)
            n->peers[i].fd = -1;
        e = o->rank == 0 ? rendezvous_lead(n, o) : rendezvous_other(n, o);
    } else
        err_set(e, "no memory to watch the other ranks");
    if (o->rank == 0)
        close(o->listener);
    if (e == ERR_OK)
        e = start_thread(n);
    if (e == ERR_OK)
        *w = n;
    else if (n)
        release(n);
    return e;
}

/* Reads until the peers close: closing a socket with unread data resets the connection and discards
 * what was just sent. */
static void close_with(struct watch *w, const struct frame *f)
{
    int64_t until = (int64_t)clock_mono_ms() + DRAIN_MS;
    stop_thread(w);
    send_frame(w, f);
    for (int i = 0; i < peer_count(w); i++)
        if (w->peers[i].fd >= 0)
            shutdown(w->peers[i].fd, SHUT_WR);
    for (int i = 0; i < peer_count(w); i++) {
        char rest[512];
        while (w->peers[i].fd >= 0 && wait_for(w->peers[i].fd, POLLIN, until) &&
               recv(w->peers[i].fd, rest, sizeof rest, MSG_DONTWAIT) > 0)
            ;
    }
    release(w);
}

void watch_close(struct watch *w)
{
    if (w)
        close_with(w, &(struct frame){.kind = KIND_BYE});
}

void watch_abort(struct watch *w, int exit_code, const char *why)
{
    if (!w)
        return;
    struct frame f = {.kind = KIND_END, .exit_code = (uint8_t)exit_code, .rank = (uint16_t)w->rank};
    snprintf(f.why, sizeof f.why, "%s", why);
    close_with(w, &f);
}
