/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/grpc/link_accept.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/link/grpc/link_call.h"
#include "outer/link/grpc/link_socket.h"

enum {
    PORTS_MAX = 8,
    PENDING_LEAST = 16,
    PENDING_MOST = 1024,
    DESCRIPTOR_SHARE = 4, /* 1/4 of all descriptors may be pending connections */
    TRIES = 4096,         /* largest number of connections dropped in one call of accept4 */
    FAILED_MAX = 8,       /* callers named at a time */
    LINES = 2,            /* of one source in a window of the limiter */
    LOG_MS = 60000
};

struct pending {
    uint64_t cookie, since_ms;
    int fd;
    uint16_t port;
    bool ended; /* shut down here, not yet closed by core */
    char source[LINK_PEER_MAX], peer[LINK_PEER_MAX];
};
static struct {
    pthread_mutex_t mutex; /* guards all below */
    uint16_t ports[PORTS_MAX];
    unsigned port_count, most;
    struct pending list[2 * PENDING_MOST]; /* at most 2 * most: pending, and ended */
    unsigned count;
    int spare;
    bool used;
    uint64_t dropped, logged_dropped, logged_ms;
    char last_source[LINK_PEER_MAX];
    /* Closed without a call since the last sweep, and core's count of failed handshakes then. */
    char failed[FAILED_MAX][LINK_PEER_MAX];
    unsigned failed_count;
    uint64_t handshakes_failed;
    struct log_limit limit;
    struct log_limit_key keys[LOG_LIMIT_KEYS_MIN];
} at = {.mutex = PTHREAD_MUTEX_INITIALIZER, .spare = -1};

void accept_raise_descriptors(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
}

static unsigned pending_most(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0)
        return PENDING_LEAST;
    rlim_t share = l.rlim_cur / DESCRIPTOR_SHARE;
    return share < PENDING_LEAST  ? PENDING_LEAST
           : share > PENDING_MOST ? PENDING_MOST
                                  : (unsigned)share;
}

static void spare_open(void)
{
    if (at.spare < 0)
        at.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void accept_watch(uint16_t port)
{
    pthread_mutex_lock(&at.mutex);
    at.most = pending_most();
    spare_open();
    if (at.port_count < PORTS_MAX)
        at.ports[at.port_count++] = port;
    pthread_mutex_unlock(&at.mutex);
}

void accept_unwatch(uint16_t port)
{
    pthread_mutex_lock(&at.mutex);
    for (unsigned i = 0; i < at.port_count; i++)
        if (at.ports[i] == port) {
            at.ports[i] = at.ports[--at.port_count];
            break;
        }
    for (unsigned i = 0; i < at.count;)
        if (at.list[i].port == port)
            at.list[i] = at.list[--at.count];
        else
            i++;
    if (at.port_count == 0 && at.spare >= 0) {
        close(at.spare);
        at.spare = -1;
    }
    pthread_mutex_unlock(&at.mutex);
}

/* ---- pending connections; all under the mutex ---- */

/* True: the descriptor is still this connection. Core may have closed it, and another socket may
 * have the number. */
static bool pending_there(const struct pending *p)
{
    return link_socket_cookie(p->fd) == p->cookie;
}

static void pending_forget_closed(void)
{
    for (unsigned i = 0; i < at.count;)
        if (pending_there(&at.list[i])) {
            i++;
        } else {
            if (!at.list[i].ended && at.failed_count < FAILED_MAX)
                memcpy(at.failed[at.failed_count++], at.list[i].peer, LINK_PEER_MAX);
            at.list[i] = at.list[--at.count];
        }
}

/* Core says that a handshake has failed, and not whose: the callers that were closed meanwhile
 * without a call. */
static void failed_log(uint64_t now)
{
    uint64_t failed = link_core_handshakes_failed();
    at.limit = (struct log_limit){at.keys, LOG_LIMIT_KEYS_MIN};
    for (unsigned i = 0; i < at.failed_count && failed != at.handshakes_failed; i++) {
        char source[LINK_PEER_MAX];
        unsigned repeats;
        snprintf(source, sizeof source, "%s", at.failed[i]);
        if (strrchr(source, ':'))
            *strrchr(source, ':') = 0;
        if (log_limit_pass(&at.limit, "handshake_failed", source, LINES, now, &repeats))
            log_event(LOG_WARN, "handshake_failed",
                      "peer=%s repeats=%u why=\"no call came on this connection; the reason is in "
                      "ev=grpc\"",
                      at.failed[i], repeats);
    }
    log_limit_flush(&at.limit, now);
    at.handshakes_failed = failed;
    at.failed_count = 0;
}

/* Shuts the connection down; core sees the end and closes the descriptor. */
static void pending_end(struct pending *p)
{
    if (pending_there(p))
        shutdown(p->fd, SHUT_RDWR);
    p->ended = true;
    at.dropped++;
    memcpy(at.last_source, p->source, sizeof p->source);
}

/* The oldest open pending connection of this source (NULL: of all sources); *count: number of such
 * connections. */
static struct pending *pending_oldest(const char *source, unsigned *count)
{
    struct pending *oldest = NULL;
    *count = 0;
    for (unsigned i = 0; i < at.count; i++) {
        struct pending *p = &at.list[i];
        if (p->ended || (source && strcmp(p->source, source) != 0))
            continue;
        ++*count;
        if (!oldest || p->since_ms < oldest->since_ms)
            oldest = p;
    }
    return oldest;
}

/* False: the list is full of connections that core has not closed; this one is not added. */
static bool pending_add(int fd, uint16_t port)
{
    struct pending p = {
        .fd = fd, .port = port, .cookie = link_socket_cookie(fd), .since_ms = clock_mono_ms()};
    unsigned all, of_source;
    link_socket_peer(fd, p.peer, p.source);
    if (at.count >= at.most)
        pending_forget_closed();
    struct pending *oldest = pending_oldest(NULL, &all),
                   *same = pending_oldest(p.source, &of_source);
    if (of_source >= at.most / 2)
        pending_end(same);
    else if (all >= at.most)
        pending_end(oldest);
    if (at.count >= 2 * at.most)
        return false;
    at.list[at.count++] = p;
    return true;
}

void accept_known(uint16_t port, const char *peer)
{
    pthread_mutex_lock(&at.mutex);
    for (unsigned i = 0; i < at.count; i++)
        if (at.list[i].port == port && strcmp(at.list[i].peer, peer) == 0) {
            at.list[i] = at.list[--at.count];
            break;
        }
    pthread_mutex_unlock(&at.mutex);
}

unsigned accept_pending(uint16_t port)
{
    unsigned n = 0;
    pthread_mutex_lock(&at.mutex);
    pending_forget_closed();
    for (unsigned i = 0; i < at.count; i++)
        n += at.list[i].port == port && !at.list[i].ended;
    pthread_mutex_unlock(&at.mutex);
    return n;
}

bool accept_in_use(void)
{
    pthread_mutex_lock(&at.mutex);
    bool used = at.used;
    pthread_mutex_unlock(&at.mutex);
    return used;
}

void accept_sweep(void)
{
    uint64_t now = clock_mono_ms();
    pthread_mutex_lock(&at.mutex);
    spare_open();
    pending_forget_closed();
    failed_log(now);
    for (unsigned i = 0; i < at.count; i++)
        if (!at.list[i].ended && now - at.list[i].since_ms >= ACCEPT_PENDING_MS)
            pending_end(&at.list[i]);
    uint64_t dropped = at.dropped - at.logged_dropped;
    bool log = dropped && (!at.logged_ms || now - at.logged_ms >= LOG_MS);
    char source[LINK_PEER_MAX];
    memcpy(source, at.last_source, sizeof source);
    if (log) {
        at.logged_dropped = at.dropped;
        at.logged_ms = now;
    }
    pthread_mutex_unlock(&at.mutex);
    if (log)
        log_event(LOG_WARN, "connections_dropped",
                  "count=%llu last=%s why=\"no call came on them\"", (unsigned long long)dropped,
                  source);
}

/* ---- accept4 ---- */

static bool watched(int listener, uint16_t *port)
{
    struct sockaddr_in6 a;
    socklen_t n = sizeof a;
    if (getsockname(listener, (struct sockaddr *)&a, &n) != 0 ||
        (a.sin6_family != AF_INET && a.sin6_family != AF_INET6))
        return false;
    *port = ntohs(a.sin6_port); /* same offset for both address families */
    for (unsigned i = 0; i < at.port_count; i++)
        if (at.ports[i] == *port)
            return true;
    return false;
}

/* Accepts the next connection with the reserved descriptor and closes it. False: no connection was
 * waiting. */
static bool spare_drop(int listener)
{
    if (at.spare >= 0)
        close(at.spare);
    at.spare = -1;
    int fd = (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    at.dropped += fd >= 0;
    spare_open();
    return fd >= 0;
}

enum next { NEXT_TAKEN, NEXT_DROPPED, NEXT_FAILED, NEXT_LATER };

static enum next accept_next(int listener, uint16_t port, struct sockaddr *address, socklen_t *size,
                             int flags, int *fd)
{
    *fd = (int)syscall(SYS_accept4, listener, address, size, flags);
    if (*fd >= 0) {
        if (pending_add(*fd, port))
            return NEXT_TAKEN;
        close(*fd);
        at.dropped++;
        return NEXT_DROPPED;
    }
    switch (errno) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
        return spare_drop(listener) ? NEXT_DROPPED : NEXT_LATER;
    case ECONNABORTED: /* error of the connection, not of the listener: accept(2) */
    case EPERM:
    case EPROTO:
    case ENOPROTOOPT:
    case ENETDOWN:
    case ENETUNREACH:
    case ENONET:
    case EHOSTDOWN:
    case EHOSTUNREACH:
        return NEXT_DROPPED;
    default:
        return NEXT_FAILED;
    }
}

/* accept4 under another C name: the header's declaration differs between C libraries. */
int accept_replaced(int listener, struct sockaddr *address, socklen_t *size,
                    int flags) __asm__("accept4") __attribute__((visibility("default")));

int accept_replaced(int listener, struct sockaddr *address, socklen_t *size, int flags)
{
    uint16_t port;
    socklen_t room = size ? *size : 0;
    enum next next = NEXT_DROPPED;
    int fd = -1;
    pthread_mutex_lock(&at.mutex);
    if (!watched(listener, &port)) {
        pthread_mutex_unlock(&at.mutex);
        return (int)syscall(SYS_accept4, listener, address, size, flags);
    }
    at.used = true;
    for (int i = 0; i < TRIES && next == NEXT_DROPPED; i++) {
        if (size)
            *size = room;
        next = accept_next(listener, port, address, size, flags, &fd);
    }
    int why = next == NEXT_FAILED ? errno : EAGAIN; /* core waits for the next connection */
    pthread_mutex_unlock(&at.mutex);
    errno = why;
    return next == NEXT_TAKEN ? fd : -1;
}
